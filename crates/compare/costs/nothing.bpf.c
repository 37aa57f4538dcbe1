/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nothing: a policy without code. The kernel does what it does by default: an idle CPU if there is
 * one, else one queue. For `berth lab --measure-costs`: what sched_ext takes by itself.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "No code: what sched_ext does by default");

void BPF_STRUCT_OPS(nothing_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(nothing_ops,
	.exit		= (void *)nothing_exit,
	.timeout_ms	= 20000,
	.name		= "nothing");
