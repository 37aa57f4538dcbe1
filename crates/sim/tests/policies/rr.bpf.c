/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * rr: round robin over one queue for the whole machine, with slices as short as one likes. The test
 * policy behind the closed forms: with slices longer than any burst it is first come, first served,
 * with slices near zero processor sharing.
 *
 * A thread that nobody waits behind gets the next slice of the same length (the kernel would give
 * it one of 20 ms). Ends of slices must be exact: for a simulated machine with hz = "exact".
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "Round robin with slices of any length, for tests");

BERTH_PARAM(u64, slice_ns, "ns", 1000000, 100, 1000000000000000, "Length of every slice");

#define QUEUE 0

s32 BPF_STRUCT_OPS(rr_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(rr_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, QUEUE, slice_ns, enq_flags);
}

void BPF_STRUCT_OPS(rr_dispatch, s32 cpu, struct task_struct *prev)
{
	if (scx_bpf_dsq_move_to_local(QUEUE, 0))
		return;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		scx_bpf_task_set_slice(prev, slice_ns);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(rr_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

void BPF_STRUCT_OPS(rr_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(rr_ops, .select_cpu = (void *)rr_select_cpu, .enqueue = (void *)rr_enqueue,
	       .dispatch = (void *)rr_dispatch, .init = (void *)rr_init, .exit = (void *)rr_exit,
	       .timeout_ms = 30000, .name = "rr");
