/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * fair: weighted sharing as exactly as one likes. The test policy behind the weighted max-min rows:
 * one queue for the whole machine, ordered by run time divided by weight (p->scx.weight, that is
 * nice). With slices near zero every thread gets its weighted max-min share at every moment.
 *
 * Unlike the shipped policy vtime it compares the running thread with the queue's head before it
 * chooses, so that a thread entitled to more than half of a CPU gets it.
 *
 * Ends of slices must be exact: for a simulated machine with hz = "exact".
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("task", "Weighted sharing with slices of any length, for tests");

BERTH_PARAM(u64, slice_ns, "ns", 1000000, 100, 1000000000000000, "Length of every slice");

#define QUEUE 0

/* Virtual time of the thread started last: nobody may be further behind it than a slice. */
static u64 vnow;

struct thread {
	u64 charged_ns; /* p->se.sum_exec_runtime up to which run time is charged */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* Brings a thread's virtual time up to date, and forgets what it has not used in time. */
static void charge(struct task_struct *p)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	u64 sum = p->se.sum_exec_runtime, vtime;

	if (!t)
		return;
	vtime = p->scx.dsq_vtime + (sum - t->charged_ns) * 100 / p->scx.weight;
	t->charged_ns = sum;
	if (time_before(vtime, vnow - slice_ns))
		vtime = vnow - slice_ns;
	scx_bpf_task_set_dsq_vtime(p, vtime);
}

s32 BPF_STRUCT_OPS(fair_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(fair_enqueue, struct task_struct *p, u64 enq_flags)
{
	charge(p);
	scx_bpf_dsq_insert_vtime(p, QUEUE, slice_ns, p->scx.dsq_vtime, enq_flags);
}

void BPF_STRUCT_OPS(fair_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *head;

	if (prev && (prev->scx.flags & SCX_TASK_QUEUED)) {
		charge(prev);
		head = __COMPAT_scx_bpf_dsq_peek(QUEUE);
		if (!head || !time_before(head->scx.dsq_vtime, prev->scx.dsq_vtime)) {
			if (time_before(vnow, prev->scx.dsq_vtime))
				vnow = prev->scx.dsq_vtime;
			scx_bpf_task_set_slice(prev, slice_ns);
			return;
		}
	}
	scx_bpf_dsq_move_to_local(QUEUE, 0);
}

void BPF_STRUCT_OPS(fair_running, struct task_struct *p)
{
	charge(p);
	if (time_before(vnow, p->scx.dsq_vtime))
		vnow = p->scx.dsq_vtime;
}

void BPF_STRUCT_OPS(fair_stopping, struct task_struct *p, bool runnable)
{
	charge(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(fair_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) ? 0 : -ENOMEM;
}

void BPF_STRUCT_OPS(fair_enable, struct task_struct *p)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, 0);

	if (t)
		t->charged_ns = p->se.sum_exec_runtime;
	scx_bpf_task_set_dsq_vtime(p, vnow);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(fair_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

void BPF_STRUCT_OPS(fair_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(fair_ops, .select_cpu = (void *)fair_select_cpu, .enqueue = (void *)fair_enqueue,
	       .dispatch = (void *)fair_dispatch, .running = (void *)fair_running,
	       .stopping = (void *)fair_stopping, .init_task = (void *)fair_init_task,
	       .enable = (void *)fair_enable, .init = (void *)fair_init, .exit = (void *)fair_exit,
	       .timeout_ms = 30000, .name = "fair");
