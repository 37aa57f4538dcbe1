/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * gfifo: one queue for the whole machine, first come, first served.
 *
 * A waking thread takes an idle CPU if there is one, else it waits at the end of the queue; whoever
 * runs keeps its CPU for one slice. No weights, no VMs, no preemption. It is what a policy has to
 * beat: everybody gets turns of the same length, so a thread that needs a CPU for a moment waits
 * behind all that burn one, and a VM with twice the threads gets twice the CPU time.
 *
 * Kernel threads of one CPU bypass the queue. No run time is accounted.
 *
 * slice_us is for threads that were chosen while others waited. Who is alone when its slice ends
 * goes on with the kernel's default of 20 ms, and keeps them when another thread comes.
 *
 * Good for: saturated machines of equal threads, one LLC. Not good for: anything latency-sensitive
 * beside batch work.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "One first-come-first-served queue for the whole machine");

BERTH_PARAM(u64, slice_us, "us", 20000, 100, 1000000,
	    "Longest run of who was chosen while others waited; who goes on alone has 20 ms");

#define QUEUE 0

s32 BPF_STRUCT_OPS(gfifo_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_us * 1000, 0);
	return cpu;
}

void BPF_STRUCT_OPS(gfifo_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 dsq = QUEUE;

	if ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1) {
		dsq = SCX_DSQ_LOCAL;
		if (enq_flags & SCX_ENQ_WAKEUP)
			enq_flags |= SCX_ENQ_PREEMPT;
	}
	scx_bpf_dsq_insert(p, dsq, slice_us * 1000, enq_flags);
}

void BPF_STRUCT_OPS(gfifo_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(QUEUE, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(gfifo_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

void BPF_STRUCT_OPS(gfifo_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(gfifo_ops,
	.select_cpu	= (void *)gfifo_select_cpu,
	.enqueue	= (void *)gfifo_enqueue,
	.dispatch	= (void *)gfifo_dispatch,
	.init		= (void *)gfifo_init,
	.exit		= (void *)gfifo_exit,
	.timeout_ms	= 20000,
	.name		= "gfifo");
