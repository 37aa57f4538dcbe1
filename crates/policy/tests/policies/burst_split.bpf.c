/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Short and long bursts on CPUs of their own: the first `nr_short` CPUs take tasks whose average
 * burst is short, the others the rest; an idle CPU of the other kind helps out. Masks are kptrs,
 * the masks allowed to a task are worked out in a mask of its own, and every change of kind is
 * reported through a ring buffer.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u32 nr_cpu_ids = 1;
const volatile u32 nr_short = 1;
const volatile u64 short_ns = 1000000;
const volatile u64 slice_ns = 4000000;

#define DSQ_SHORT 10
#define DSQ_LONG  11

private(MASKS) struct bpf_cpumask __kptr *short_mask;

struct mask_box {
	struct bpf_cpumask __kptr *mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct mask_box);
} long_mask SEC(".maps");

struct task_ctx {
	struct bpf_cpumask __kptr *allowed; /* its affinity within the CPUs of its kind */
	u64 started_at;
	u64 burst_ns;
	u64 average_ns;
	bool is_long;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

struct change {
	u64 at_ns;
	s32 pid;
	u32 is_long;
	u64 average_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} changes SEC(".maps");

u64 nr_changes, nr_dropped, nr_helped, nr_own_kind;

static struct task_ctx *ctx_of(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, 0, 0);
}

/* allowed = affinity and the CPUs of its kind. */
static void narrow(struct task_struct *p, struct task_ctx *t)
{
	struct bpf_cpumask *kind = NULL, *allowed;
	struct mask_box *box;
	u32 zero = 0;

	bpf_rcu_read_lock();
	if (t->is_long) {
		box = bpf_map_lookup_elem(&long_mask, &zero);
		if (box)
			kind = box->mask;
	} else {
		kind = short_mask;
	}
	allowed = t->allowed;
	if (kind && allowed)
		bpf_cpumask_and(allowed, cast_mask(kind), p->cpus_ptr);
	bpf_rcu_read_unlock();
}

static s32 pick(struct task_struct *p, struct task_ctx *t)
{
	struct bpf_cpumask *allowed;
	s32 cpu = -EBUSY;

	bpf_rcu_read_lock();
	allowed = t->allowed;
	if (allowed && !bpf_cpumask_empty(cast_mask(allowed)))
		cpu = scx_bpf_pick_idle_cpu(cast_mask(allowed), 0);
	bpf_rcu_read_unlock();
	if (cpu >= 0) {
		__sync_fetch_and_add(&nr_own_kind, 1);
		return cpu;
	}
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		__sync_fetch_and_add(&nr_helped, 1);
	return cpu;
}

s32 BPF_STRUCT_OPS(split_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *t = ctx_of(p);
	s32 cpu;

	if (!t)
		return prev_cpu;
	cpu = pick(p, t);
	if (cpu < 0)
		return prev_cpu;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(split_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *t = ctx_of(p);
	s32 cpu;

	scx_bpf_dsq_insert(p, t && t->is_long ? DSQ_LONG : DSQ_SHORT, slice_ns, enq_flags);
	if (!t)
		return;
	cpu = pick(p, t);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

void BPF_STRUCT_OPS(split_dispatch, s32 cpu, struct task_struct *prev)
{
	bool is_long = cpu >= nr_short;

	if (!scx_bpf_dsq_move_to_local(is_long ? DSQ_LONG : DSQ_SHORT, 0))
		scx_bpf_dsq_move_to_local(is_long ? DSQ_SHORT : DSQ_LONG, 0);
}

void BPF_STRUCT_OPS(split_running, struct task_struct *p)
{
	struct task_ctx *t = ctx_of(p);

	if (t)
		t->started_at = bpf_ktime_get_ns();
}

static void report(struct task_struct *p, struct task_ctx *t)
{
	struct change *c = bpf_ringbuf_reserve(&changes, sizeof(*c), 0);

	__sync_fetch_and_add(&nr_changes, 1);
	if (!c) {
		__sync_fetch_and_add(&nr_dropped, 1);
		return;
	}
	c->at_ns = bpf_ktime_get_ns();
	c->pid = p->pid;
	c->is_long = t->is_long;
	c->average_ns = t->average_ns;
	bpf_ringbuf_submit(c, 0);
}

void BPF_STRUCT_OPS(split_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *t = ctx_of(p);
	bool is_long;

	if (!t)
		return;
	t->burst_ns += bpf_ktime_get_ns() - t->started_at;
	if (runnable && t->burst_ns < 4 * short_ns)
		return;
	t->average_ns = (t->average_ns * 3 + t->burst_ns) / 4;
	t->burst_ns = 0;
	is_long = t->average_ns >= short_ns;
	if (is_long == t->is_long)
		return;
	t->is_long = is_long;
	narrow(p, t);
	report(p, t);
}

void BPF_STRUCT_OPS(split_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	struct task_ctx *t = ctx_of(p);

	if (t)
		narrow(p, t);
}

s32 BPF_STRUCT_OPS(split_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct bpf_cpumask *mask;
	struct task_ctx *t;

	t = bpf_task_storage_get(&task_ctxs, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return -ENOMEM;
	mask = bpf_cpumask_create();
	if (!mask)
		return -ENOMEM;
	mask = bpf_kptr_xchg(&t->allowed, mask);
	if (mask)
		bpf_cpumask_release(mask);
	narrow(p, t);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(split_init)
{
	struct bpf_cpumask *s, *l;
	struct mask_box *box;
	u32 zero = 0, cpu;
	s32 err;

	err = scx_bpf_create_dsq(DSQ_SHORT, -1) ?: scx_bpf_create_dsq(DSQ_LONG, -1);
	if (err)
		return err;
	box = bpf_map_lookup_elem(&long_mask, &zero);
	if (!box)
		return -ENOENT;
	s = bpf_cpumask_create();
	if (!s)
		return -ENOMEM;
	l = bpf_cpumask_create();
	if (!l) {
		bpf_cpumask_release(s);
		return -ENOMEM;
	}
	bpf_for(cpu, 0, nr_cpu_ids)
		bpf_cpumask_set_cpu(cpu, cpu < nr_short ? s : l);
	s = bpf_kptr_xchg(&short_mask, s);
	if (s)
		bpf_cpumask_release(s);
	l = bpf_kptr_xchg(&box->mask, l);
	if (l)
		bpf_cpumask_release(l);
	return 0;
}

void BPF_STRUCT_OPS(split_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(split_ops,
	.select_cpu	= (void *)split_select_cpu,
	.enqueue	= (void *)split_enqueue,
	.dispatch	= (void *)split_dispatch,
	.running	= (void *)split_running,
	.stopping	= (void *)split_stopping,
	.set_cpumask	= (void *)split_set_cpumask,
	.init_task	= (void *)split_init_task,
	.init		= (void *)split_init,
	.exit		= (void *)split_exit,
	.timeout_ms	= 5000,
	.name		= "burst_split");
