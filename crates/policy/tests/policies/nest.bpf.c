/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Few CPUs that are warm instead of many that are cold: tasks wake on CPUs of the nest. One that
 * finds none there has a CPU from outside, which belongs to the nest from then on; one that has had
 * nothing to do for `leave_ns` leaves it, by a timer of its own. Who waits waits in one queue, by
 * weighted virtual time.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u32 nr_cpu_ids = 1;
const volatile u64 slice_ns; /* its loader says */
const volatile u64 leave_ns = 2000000;

#define SHARED 0

private(NEST) struct bpf_cpumask __kptr *nest;

struct cpu_ctx {
	struct bpf_timer timer;
	u64 idle_since; /* 0: it has something to do */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct cpu_ctx);
} cpu_ctxs SEC(".maps");

static u64 vnow;
u64 nr_inside, nr_joined, nr_left;

static struct cpu_ctx *ctx_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&cpu_ctxs, &key);
}

s32 BPF_STRUCT_OPS(packed_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct bpf_cpumask *mask;
	s32 cpu = -EBUSY, i;

	bpf_rcu_read_lock();
	mask = nest;
	if (!mask) {
		bpf_rcu_read_unlock();
		return prev_cpu;
	}
	if (bpf_cpumask_test_cpu(prev_cpu, cast_mask(mask)) &&
	    bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) &&
	    scx_bpf_test_and_clear_cpu_idle(prev_cpu))
		cpu = prev_cpu;
	if (cpu < 0)
		bpf_for(i, 0, nr_cpu_ids) {
			if (!bpf_cpumask_test_cpu(i, cast_mask(mask)) ||
			    !bpf_cpumask_test_cpu(i, p->cpus_ptr) ||
			    !scx_bpf_test_and_clear_cpu_idle(i))
				continue;
			cpu = i;
			break;
		}
	if (cpu >= 0) {
		__sync_fetch_and_add(&nr_inside, 1);
	} else {
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (cpu >= 0) {
			bpf_cpumask_set_cpu(cpu, mask);
			__sync_fetch_and_add(&nr_joined, 1);
		}
	}
	bpf_rcu_read_unlock();
	if (cpu < 0)
		return prev_cpu;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(packed_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 vtime = p->scx.dsq_vtime;

	if (time_before(vtime, vnow - slice_ns))
		vtime = vnow - slice_ns;
	scx_bpf_dsq_insert_vtime(p, SHARED, slice_ns, vtime, enq_flags);
}

void BPF_STRUCT_OPS(packed_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *c;

	if (scx_bpf_dsq_move_to_local(SHARED, 0))
		return;
	c = ctx_of(cpu);
	if (!c || (prev && (prev->scx.flags & SCX_TASK_QUEUED)))
		return;
	c->idle_since = scx_bpf_now() ?: 1;
	bpf_timer_start(&c->timer, leave_ns, 0);
}

static int on_leave(void *map, int *key, struct cpu_ctx *c)
{
	struct bpf_cpumask *mask;

	if (!c->idle_since)
		return 0;
	bpf_rcu_read_lock();
	mask = nest;
	if (mask && bpf_cpumask_test_and_clear_cpu(*key, mask))
		__sync_fetch_and_add(&nr_left, 1);
	bpf_rcu_read_unlock();
	return 0;
}

void BPF_STRUCT_OPS(packed_running, struct task_struct *p)
{
	struct cpu_ctx *c = ctx_of(scx_bpf_task_cpu(p));

	if (c && c->idle_since) {
		c->idle_since = 0;
		bpf_timer_cancel(&c->timer);
	}
	if (time_before(vnow, p->scx.dsq_vtime))
		vnow = p->scx.dsq_vtime;
}

void BPF_STRUCT_OPS(packed_stopping, struct task_struct *p, bool runnable)
{
	u64 left = p->scx.slice < slice_ns ? p->scx.slice : slice_ns;

	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + (slice_ns - left) * 100 / p->scx.weight);
}

void BPF_STRUCT_OPS(packed_enable, struct task_struct *p)
{
	scx_bpf_task_set_dsq_vtime(p, vnow);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(packed_init)
{
	struct bpf_cpumask *mask;
	struct cpu_ctx *c;
	s32 cpu;

	bpf_for(cpu, 0, nr_cpu_ids) {
		c = ctx_of(cpu);
		if (!c)
			return -E2BIG;
		if (bpf_timer_init(&c->timer, &cpu_ctxs, CLOCK_MONOTONIC))
			return -EINVAL;
		bpf_timer_set_callback(&c->timer, on_leave);
	}
	mask = bpf_cpumask_create();
	if (!mask)
		return -ENOMEM;
	mask = bpf_kptr_xchg(&nest, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return scx_bpf_create_dsq(SHARED, -1);
}

void BPF_STRUCT_OPS(packed_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(packed_ops,
	.select_cpu	= (void *)packed_select_cpu,
	.enqueue	= (void *)packed_enqueue,
	.dispatch	= (void *)packed_dispatch,
	.running	= (void *)packed_running,
	.stopping	= (void *)packed_stopping,
	.enable		= (void *)packed_enable,
	.init		= (void *)packed_init,
	.exit		= (void *)packed_exit,
	.timeout_ms	= 5000,
	.name		= "nest");
