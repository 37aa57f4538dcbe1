/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vtime: the smallest weighted fair policy. A place to start from.
 *
 * One queue for the whole machine, ordered by virtual time: the run time a thread has had, divided
 * by its weight (p->scx.weight, that is nice). Who has had least comes first. A thread that slept
 * is at most one slice behind the virtual time of the queue, so that it cannot save up.
 *
 * Threads are equals here: VMs and their weights are not known. prev is put back after its
 * successor is chosen, so on a CPU with only two threads they take turns whatever their weights.
 *
 * slice_us is for threads that were chosen while others waited. Who is alone when its slice ends
 * goes on with the kernel's default of 20 ms, and keeps them when another thread comes.
 *
 * Run time is the task clock (p->se.sum_exec_runtime), without interrupts and stolen time.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("task", "One queue ordered by weighted run time: the smallest fair policy");

BERTH_PARAM(u64, slice_us, "us", 3000, 100, 1000000,
	    "Longest run of who was chosen while others waited; who goes on alone has 20 ms");

#define QUEUE 0

static u64
	vnow; /* virtual time of the thread started last; racy, an older value is nearly as good */

struct thread {
	u64 charged_ns; /* p->se.sum_exec_runtime up to which run time is charged */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

s32 BPF_STRUCT_OPS(vtime_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_us * 1000, 0);
	return cpu;
}

void BPF_STRUCT_OPS(vtime_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 vtime = p->scx.dsq_vtime;

	if ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1) {
		if (enq_flags & SCX_ENQ_WAKEUP)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_us * 1000, enq_flags);
		return;
	}
	if (time_before(vtime, vnow - slice_us * 1000))
		vtime = vnow - slice_us * 1000;
	scx_bpf_dsq_insert_vtime(p, QUEUE, slice_us * 1000, vtime, enq_flags);
}

void BPF_STRUCT_OPS(vtime_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(QUEUE, 0);
}

void BPF_STRUCT_OPS(vtime_running, struct task_struct *p)
{
	if (time_before(vnow, p->scx.dsq_vtime))
		vnow = p->scx.dsq_vtime;
}

void BPF_STRUCT_OPS(vtime_stopping, struct task_struct *p, bool runnable)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, 0);
	u64 sum = p->se.sum_exec_runtime;

	if (!t)
		return;
	scx_bpf_task_set_dsq_vtime(p,
				   p->scx.dsq_vtime + (sum - t->charged_ns) * 100 / p->scx.weight);
	t->charged_ns = sum;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(vtime_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	return bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) ? 0 : -ENOMEM;
}

void BPF_STRUCT_OPS(vtime_enable, struct task_struct *p)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, 0);

	if (t)
		t->charged_ns = p->se.sum_exec_runtime;
	scx_bpf_task_set_dsq_vtime(p, vnow);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(vtime_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

void BPF_STRUCT_OPS(vtime_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(vtime_ops,
	.select_cpu	= (void *)vtime_select_cpu,
	.enqueue	= (void *)vtime_enqueue,
	.dispatch	= (void *)vtime_dispatch,
	.running	= (void *)vtime_running,
	.stopping	= (void *)vtime_stopping,
	.init_task	= (void *)vtime_init_task,
	.enable		= (void *)vtime_enable,
	.init		= (void *)vtime_init,
	.exit		= (void *)vtime_exit,
	.timeout_ms	= 20000,
	.name		= "vtime");
