/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The waiting tasks live in queue maps, not in dispatch queues: three bands by weight, the heavier
 * served more often. A ticket in a queue cannot be taken out again, so each carries the task's
 * sequence number; whatever takes the task from the policy's custody (ops.dequeue) raises the
 * number and so makes the ticket worthless.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u64 slice_ns = 5000000;
const volatile u32 batch = 4; /* most tasks handed out per dispatch */

#define READY	 7 /* dispatch queue from which CPUs take what was handed out */
#define NR_BANDS 3
#define TRIES	 64 /* tickets looked at per dispatch */

struct ticket {
	s32 pid;
	u32 pad;
	u64 seq;
};

#define BAND(name)                                                                                 \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_QUEUE);                                                  \
		__uint(max_entries, 4096);                                                         \
		__type(value, struct ticket);                                                      \
	} name SEC(".maps")

BAND(band_light);
BAND(band_normal);
BAND(band_heavy);

struct task_ctx {
	u64 seq;      /* of the only ticket that counts */
	bool waiting; /* a ticket is out */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

struct cpu_ctx {
	u32 turn; /* which band is next */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_ctx);
} cpu_ctxs SEC(".maps");

u64 nr_queued, nr_stale, nr_overflow, nr_cancelled, nr_handed_out;

static long band_push(u32 band, struct ticket *t)
{
	switch (band) {
	case 0:
		return bpf_map_push_elem(&band_light, t, 0);
	case 1:
		return bpf_map_push_elem(&band_normal, t, 0);
	default:
		return bpf_map_push_elem(&band_heavy, t, 0);
	}
}

static long band_pop(u32 band, struct ticket *t)
{
	switch (band) {
	case 0:
		return bpf_map_pop_elem(&band_light, t);
	case 1:
		return bpf_map_pop_elem(&band_normal, t);
	default:
		return bpf_map_pop_elem(&band_heavy, t);
	}
}

s32 BPF_STRUCT_OPS(bands_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu;

	if (scx_bpf_test_and_clear_cpu_idle(prev_cpu))
		cpu = prev_cpu;
	else
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu < 0)
		return prev_cpu;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(bands_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *tc = bpf_task_storage_get(&task_ctxs, p, 0, 0);
	struct ticket t = { .pid = p->pid };
	u32 weight = p->scx.weight;
	s32 cpu;

	if (!tc) {
		scx_bpf_error("no context for %d", p->pid);
		return;
	}
	t.seq = ++tc->seq;
	if (band_push(weight < 100 ? 0 : weight == 100 ? 1 : 2, &t)) {
		__sync_fetch_and_add(&nr_overflow, 1);
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);
		return;
	}
	tc->waiting = true;
	__sync_fetch_and_add(&nr_queued, 1);
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, 0);
}

void BPF_STRUCT_OPS(bands_dequeue, struct task_struct *p, u64 deq_flags)
{
	struct task_ctx *tc = bpf_task_storage_get(&task_ctxs, p, 0, 0);

	if (!tc || !tc->waiting)
		return;
	tc->waiting = false;
	tc->seq++;
	__sync_fetch_and_add(&nr_cancelled, 1);
}

/* Hand the task of a ticket out; false if the ticket is stale. */
static bool hand_out(struct ticket *t)
{
	struct task_struct *p = bpf_task_from_pid(t->pid);
	struct task_ctx *tc;
	bool valid = false;

	if (!p)
		return false;
	tc = bpf_task_storage_get(&task_ctxs, p, 0, 0);
	if (tc && tc->waiting && tc->seq == t->seq) {
		tc->waiting = false;
		scx_bpf_dsq_insert(p, READY, slice_ns, 0);
		__sync_fetch_and_add(&nr_handed_out, 1);
		valid = true;
	} else {
		__sync_fetch_and_add(&nr_stale, 1);
	}
	bpf_task_release(p);
	return valid;
}

void BPF_STRUCT_OPS(bands_dispatch, s32 cpu, struct task_struct *prev)
{
	static const u32 order[] = { 2, 1, 2, 0, 2, 1 }; /* heavy 3 : normal 2 : light 1 */
	u32 zero = 0, band, empty = 0, done = 0, i;
	struct cpu_ctx *c;
	struct ticket t;

	if (scx_bpf_dsq_move_to_local(READY, 0))
		return;
	c = bpf_map_lookup_elem(&cpu_ctxs, &zero);
	if (!c)
		return;
	bpf_for(i, 0, TRIES) {
		if (done >= batch || empty >= 6 || !scx_bpf_dispatch_nr_slots())
			break;
		band = order[c->turn++ % 6];
		if (band_pop(band, &t)) {
			empty++;
			continue;
		}
		empty = 0;
		if (hand_out(&t))
			done++;
	}
	if (done)
		scx_bpf_dsq_move_to_local(READY, 0);
}

s32 BPF_STRUCT_OPS(bands_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	if (bpf_task_storage_get(&task_ctxs, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE))
		return 0;
	return -ENOMEM;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(bands_init)
{
	return scx_bpf_create_dsq(READY, -1);
}

void BPF_STRUCT_OPS(bands_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(bands_ops,
	.select_cpu		= (void *)bands_select_cpu,
	.enqueue		= (void *)bands_enqueue,
	.dequeue		= (void *)bands_dequeue,
	.dispatch		= (void *)bands_dispatch,
	.init_task		= (void *)bands_init_task,
	.init			= (void *)bands_init,
	.exit			= (void *)bands_exit,
	.dispatch_max_batch	= 8,
	.timeout_ms		= 5000,
	.name			= "fifo_bands");
