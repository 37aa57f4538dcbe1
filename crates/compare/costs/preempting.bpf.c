/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * preempting: who wakes takes the CPU, at once. For `berth lab --measure-costs`, beside a thread
 * that never sleeps: against `nothing` and `calling`, it gives what a wake-up takes longer, or
 * less, if it preempts a thread.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "Who wakes preempts");

void BPF_STRUCT_OPS(preempting_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (enq_flags & SCX_ENQ_WAKEUP)
		enq_flags |= SCX_ENQ_PREEMPT;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(preempting_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(preempting_ops,
	.enqueue	= (void *)preempting_enqueue,
	.exit		= (void *)preempting_exit,
	.timeout_ms	= 20000,
	.name		= "preempting");
