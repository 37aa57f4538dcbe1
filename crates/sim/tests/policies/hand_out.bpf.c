/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * hand_out: once `gate` threads wait, each call of dispatch gives one of them to the CPU it is
 * bound to, first come, first served, whichever CPU asks. For the test of what the kernel does with
 * a CPU whose dispatch serves others only. Nobody's slice ends.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "One thread per call of dispatch, to the CPU it is bound to, for tests");

BERTH_PARAM(u32, gate, "threads", 1, 1, 4096, "How many must wait before the first is given a CPU");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 4096);
	__type(value, s32);
} waiting SEC(".maps");

static u32 enqueued;

void BPF_STRUCT_OPS(hand_out_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 pid = p->pid;

	if (bpf_map_push_elem(&waiting, &pid, 0))
		scx_bpf_error("more threads than the queue holds");
	enqueued++;
}

void BPF_STRUCT_OPS(hand_out_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;
	s32 pid;

	if (enqueued < gate || bpf_map_pop_elem(&waiting, &pid))
		return;
	p = bpf_task_from_pid(pid);
	if (!p)
		return;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | scx_bpf_task_cpu(p), SCX_SLICE_INF, 0);
	bpf_task_release(p);
}

void BPF_STRUCT_OPS(hand_out_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(hand_out_ops, .enqueue = (void *)hand_out_enqueue,
	       .dispatch = (void *)hand_out_dispatch, .exit = (void *)hand_out_exit,
	       .timeout_ms = 30000, .name = "hand_out");
