/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * floor: whoever wakes takes the CPU that it had last, at once and from anybody; the others wait in
 * one queue.
 *
 * For docs/kvm-table.md only: how soon can a policy serve a thread that wakes while all CPUs are
 * busy, if it keeps no account of anybody? Not good for anything else: a thread that wakes often
 * has all it wants.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "Whoever wakes takes its last CPU");

BERTH_PARAM(u64, slice_us, "us", 3000, 100, 1000000, "Longest run");

#define QUEUE 0

s32 BPF_STRUCT_OPS(floor_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_us * 1000, SCX_ENQ_PREEMPT);
	return prev_cpu;
}

void BPF_STRUCT_OPS(floor_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 dsq = QUEUE;

	if (p->nr_cpus_allowed == 1) {
		dsq = SCX_DSQ_LOCAL;
		if (enq_flags & SCX_ENQ_WAKEUP)
			enq_flags |= SCX_ENQ_PREEMPT;
	}
	scx_bpf_dsq_insert(p, dsq, slice_us * 1000, enq_flags);
}

void BPF_STRUCT_OPS(floor_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(QUEUE, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(floor_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

void BPF_STRUCT_OPS(floor_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(floor_ops, .select_cpu = (void *)floor_select_cpu, .enqueue = (void *)floor_enqueue,
	       .dispatch = (void *)floor_dispatch, .init = (void *)floor_init,
	       .exit = (void *)floor_exit, .timeout_ms = 20000, .name = "floor");
