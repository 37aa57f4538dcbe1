/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * perf: round robin, and each thread that gets a CPU asks it for a performance, `first` and
 * `second` by turns. The test policy behind kinds of cores with frequency steps.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "Asks CPUs for a performance, for tests");

BERTH_PARAM(u32, first, "", 1024, 0, 1024, "Asked for at the first, third, ... switch");
BERTH_PARAM(u32, second, "", 1024, 0, 1024, "Asked for at the others");
BERTH_PARAM(u32, before, "", 0, 0, 1, "Asked for when a thread loses its CPU, too");
BERTH_PARAM(u64, slice_ns, "ns", 1000000, 100, 1000000000000000, "Length of every slice");

u64 switches;

void BPF_STRUCT_OPS(perf_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);
}

void BPF_STRUCT_OPS(perf_running, struct task_struct *p)
{
	scx_bpf_cpuperf_set(scx_bpf_task_cpu(p), switches & 1 ? second : first);
	switches++;
}

void BPF_STRUCT_OPS(perf_stopping, struct task_struct *p, bool runnable)
{
	if (before)
		scx_bpf_cpuperf_set(scx_bpf_task_cpu(p), second);
}

void BPF_STRUCT_OPS(perf_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(perf_ops, .enqueue = (void *)perf_enqueue, .running = (void *)perf_running,
	       .stopping = (void *)perf_stopping, .exit = (void *)perf_exit, .timeout_ms = 30000,
	       .name = "perf");
