/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task stays where its caches are warm: it wakes on its last CPU if that is idle, else on any
 * idle one, else it waits in one queue for all, first come, first served.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

#define SHARED 0

u64 nr_stayed, nr_moved, nr_waited;

s32 BPF_STRUCT_OPS(sticky_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu;

	if (scx_bpf_test_and_clear_cpu_idle(prev_cpu)) {
		__sync_fetch_and_add(&nr_stayed, 1);
		cpu = prev_cpu;
	} else {
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (cpu < 0)
			return prev_cpu;
		__sync_fetch_and_add(&nr_moved, 1);
	}
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	return cpu;
}

void BPF_STRUCT_OPS(sticky_enqueue, struct task_struct *p, u64 enq_flags)
{
	__sync_fetch_and_add(&nr_waited, 1);
	scx_bpf_dsq_insert(p, SHARED, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(sticky_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(sticky_init)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

void BPF_STRUCT_OPS(sticky_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(sticky_ops,
	.select_cpu	= (void *)sticky_select_cpu,
	.enqueue	= (void *)sticky_enqueue,
	.dispatch	= (void *)sticky_dispatch,
	.init		= (void *)sticky_init,
	.exit		= (void *)sticky_exit,
	.name		= "sticky");
