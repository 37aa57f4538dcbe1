/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * calling: one queue, as the kernel has by default, but by hand. For `berth lab --measure-costs`:
 * against `nothing`, it gives what a call of the kernel functions takes that put a thread into a
 * queue and take it out.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "The kernel's default, by hand");

#define QUEUE 1

static u64 waiting;

void BPF_STRUCT_OPS(calling_enqueue, struct task_struct *p, u64 enq_flags)
{
	waiting++;
	scx_bpf_dsq_insert(p, QUEUE, SCX_SLICE_DFL, enq_flags);
}

/* No call for nothing: a CPU that goes idle delays nobody. */
void BPF_STRUCT_OPS(calling_dispatch, s32 cpu, struct task_struct *prev)
{
	if (!waiting)
		return;
	waiting--;
	scx_bpf_dsq_move_to_local(QUEUE, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(calling_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

void BPF_STRUCT_OPS(calling_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(calling_ops,
	.enqueue	= (void *)calling_enqueue,
	.dispatch	= (void *)calling_dispatch,
	.init		= (void *)calling_init,
	.exit		= (void *)calling_exit,
	.timeout_ms	= 20000,
	.name		= "calling");
