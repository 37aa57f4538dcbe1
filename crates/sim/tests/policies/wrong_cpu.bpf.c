/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wrong_cpu: names a CPU to each kernel function that takes one, when the first thread is queued.
 * The test policy behind "a CPU that is not there ejects the policy, whoever is told of it".
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("task", "Names a CPU that may not be there, for tests");

BERTH_PARAM(u32, call, "", 0, 0, 100, "Which function is called");
BERTH_PARAM(u32, cpu, "", 0, 0, 4294967295, "The CPU that it is told");

bool said;

void BPF_STRUCT_OPS(wrong_cpu_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 at = cpu;
	u32 what = said ? ~0U : call;

	said = true;
	switch (what) {
	case 0:
		scx_bpf_kick_cpu(at, 0);
		break;
	case 1:
		scx_bpf_kick_cpu(at, SCX_KICK_IDLE);
		break;
	case 2:
		scx_bpf_kick_cpu(at, SCX_KICK_PREEMPT);
		break;
	case 3:
		scx_bpf_test_and_clear_cpu_idle(at);
		break;
	case 4:
		scx_bpf_cpuperf_cap(at);
		break;
	case 5:
		scx_bpf_cpuperf_cur(at);
		break;
	case 6:
		scx_bpf_cpuperf_set(at, SCX_CPUPERF_ONE);
		break;
	case 7:
		scx_bpf_cpu_rq(at);
		break;
	case 8:
		scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | (u32)at);
		break;
	case 9:
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | (u32)at, SCX_SLICE_DFL, enq_flags);
		return;
	}
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(wrong_cpu_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(wrong_cpu_ops, .enqueue = (void *)wrong_cpu_enqueue, .exit = (void *)wrong_cpu_exit,
	       .name = "wrong_cpu");
