/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One queue for all CPUs: first come, first served with `fifo_sched`, else by weighted virtual
 * time, charged from what is gone of the slice. The shape of a first sched_ext scheduler.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile bool fifo_sched;

#define SHARED 0

enum { ST_LOCAL, ST_SHARED, ST_NR };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u64));
	__uint(max_entries, ST_NR);
} counts SEC(".maps");

static u64 started_vtime; /* of the task started last; may lag on other CPUs, which only costs a
			     little fairness */

static void count(u32 what)
{
	u64 *n = bpf_map_lookup_elem(&counts, &what);

	if (n)
		(*n)++;
}

s32 BPF_STRUCT_OPS(shared_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool found = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &found);

	if (found) {
		count(ST_LOCAL);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	}
	return cpu;
}

void BPF_STRUCT_OPS(shared_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 vtime = p->scx.dsq_vtime, oldest = started_vtime - SCX_SLICE_DFL;

	count(ST_SHARED);
	if (fifo_sched) {
		scx_bpf_dsq_insert(p, SHARED, SCX_SLICE_DFL, enq_flags);
		return;
	}
	if (time_before(vtime, oldest)) /* sleep is worth one slice */
		vtime = oldest;
	scx_bpf_dsq_insert_vtime(p, SHARED, SCX_SLICE_DFL, vtime, enq_flags);
}

void BPF_STRUCT_OPS(shared_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED, 0);
}

void BPF_STRUCT_OPS(shared_running, struct task_struct *p)
{
	if (!fifo_sched && time_before(started_vtime, p->scx.dsq_vtime))
		started_vtime = p->scx.dsq_vtime;
}

void BPF_STRUCT_OPS(shared_stopping, struct task_struct *p, bool runnable)
{
	u64 used = SCX_SLICE_DFL - p->scx.slice;

	if (!fifo_sched)
		scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + used * 100 / p->scx.weight);
}

void BPF_STRUCT_OPS(shared_enable, struct task_struct *p)
{
	scx_bpf_task_set_dsq_vtime(p, started_vtime);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(shared_init)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

void BPF_STRUCT_OPS(shared_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(shared_ops,
	.select_cpu	= (void *)shared_select_cpu,
	.enqueue	= (void *)shared_enqueue,
	.dispatch	= (void *)shared_dispatch,
	.running	= (void *)shared_running,
	.stopping	= (void *)shared_stopping,
	.enable		= (void *)shared_enable,
	.init		= (void *)shared_init,
	.exit		= (void *)shared_exit,
	.name		= "simple");
