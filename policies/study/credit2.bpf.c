/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * credit2: the second credit scheduler of Xen, its default since 4.12.
 *
 * Idea. The pCPUs of a socket, sixteen at most, share a queue ordered by credit, most first. Who
 * runs burns credit, the heaviest vCPU of the queue one per ns, others more by their weight. When
 * nobody who could run has credit left, all vCPUs of the queue get the same refill. Who has slept
 * has credit, and so preempts whoever burned his: there is no boost, no class, no tick. Queues are
 * balanced by decayed averages of their load after each refill.
 *
 * Source: Xen 4.17 read as a specification, not copied.
 *
 * What is converted. A cgroup's weight belongs to the whole VM; a vCPU weighs weight / vCPUs of its
 * VM, whether the others are busy or not. All threads without a VM are dom0, of weight
 * `host_weight` spread over as many vCPUs as there are CPUs. A VM's threads that are no vCPUs weigh
 * as one. A cap in thousandths of a CPU is Xen's percentage times ten. "Socket" is what shares a
 * last-level cache.
 *
 * What deviates. No soft affinity, no power-saving search. The heaviest vCPU of a queue is that of
 * those that ran since the last refill, not of those that sleep. A credit above the limit is cut
 * when it is looked at: two that wait keep their order. The balancer weighs the vCPUs that wait or
 * run, the first LISTED of each queue; one that sleeps stays where it is. A cap's budget is taken
 * when time has been used, not by portions before. CPUs of a queue look at each other's credits
 * without a lock. A kernel thread bound to one CPU goes before everybody, and a thread of another
 * class that takes a CPU begins the rate limit of whom it interrupted anew.
 *
 * Charges wall time between switches, with interrupts and stolen time, as Xen does.
 *
 * Not good for: a wake-up in the first millisecond of the only one that runs, which waits for the
 * end of that one's turn, up to `max_slice_us`; latency beside compute in the same vCPU, which has
 * no more credit left than others when its packet comes.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY(
	"wall",
	"Xen's second credit scheduler: shared queues by credit, refilled when all is used up");
BERTH_HYPERVISOR("xen");

BERTH_PARAM(u64, credit_ms, "ms", 10, 1, 1000, "Refill, and what one begins with");
BERTH_PARAM(u64, carryover_us, "us", 500, 0, 100000, "Credit is at most this above a refill");
BERTH_PARAM(u64, min_slice_us, "us", 500, 100, 100000, "Shortest turn");
BERTH_PARAM(u64, max_slice_us, "us", 10000, 100, 1000000, "Longest turn (2000 in Xen 4.4)");
BERTH_PARAM(u64, ratelimit_us, "us", 1000, 0, 500000, "Whoever got a CPU keeps it this long");
BERTH_PARAM(u64, resist_us, "us", 500, 0, 100000,
	    "Credit that one needs to have more to run on another CPU than last time");
BERTH_PARAM(u64, compensation_us, "us", 50, 0, 100000, "Credit given to who does");
BERTH_CHOICE(scope, "cpu|core|socket|node|all", 2, "Which CPUs share a queue");
BERTH_PARAM(u32, most_cpus, "CPUs", 16, 1, 64, "At most so many share one");
BERTH_PARAM(u64, cap_period_ms, "ms", 10, 1, 1000, "Period in which a cap is counted");
BERTH_PARAM(u64, underload_mcpu, "vCPU/1000", 1000, 0, 100000,
	    "Difference of two queues' loads that is let be while CPUs are idle");
BERTH_PARAM(u64, overload_mcpu, "vCPU/1000", 125, 0, 100000, "The same when none is");
BERTH_PARAM(u32, host_weight, "weight", 1000, 1, 10000,
	    "Weight of all threads that belong to no VM, together: dom0");

BERTH_MOST_CPUS(1024);

struct berth_stats {
	u64 resets;	  /* refills of a queue */
	u64 preempted;	  /* who ran was asked to give way */
	u64 rate_limited; /* asked before the rate limit was over */
	u64 moved;	  /* to another CPU of the queue */
	u64 balanced;	  /* to another queue */
	u64 parked;	  /* stopped for the cap */
};
BERTH_STATS;

#include "credit2/state.bpf.h"
#include "credit2/load.bpf.h"
#include "credit2/queue.bpf.h"
#include "credit2/balance.bpf.h"

s32 BPF_STRUCT_OPS(credit2_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void BPF_STRUCT_OPS(credit2_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct thread *t = thread_of(p);
	struct choice *s = choice_here();
	struct runq *q;

	if (!t || !s) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_INF, enq_flags);
		return;
	}
	if (bound_kthread(p)) {
		if (enq_flags & SCX_ENQ_WAKEUP)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_INF, enq_flags);
		return;
	}
	read_affinity(s, p);
	q = settle(t) ? runq_at(t->queue - 1) : NULL;
	if (!q) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_INF, enq_flags);
		return;
	}
	if (at_cap(t)) {
		scx_bpf_dsq_insert(p, PARKED, SCX_SLICE_INF, enq_flags);
		berth_count(parked);
		return;
	}
	t->mark = mark_of(q, credit_of(q, t->mark));
	scx_bpf_dsq_insert_vtime(p, t->queue - 1, SCX_SLICE_INF, t->mark, enq_flags);
	tickle(t, enq_flags & SCX_ENQ_WAKEUP ? NO_CPU : scx_bpf_task_cpu(p));
}

void BPF_STRUCT_OPS(credit2_dispatch, s32 cpu, struct task_struct *prev)
{
	struct pcpu *c = pcpu_at(cpu);
	struct runq *q = c ? runq_at(c->queue) : NULL;
	s64 best = -most() - 1, credit;
	struct thread *t = NULL;
	bool stays = false, any;
	u64 now = scx_bpf_now();

	if (!c || !q)
		return;
	c->tickled = 0;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED) && !bound_kthread(prev))
		t = thread_of(prev);
	if (t && c->busy) {
		burn(c, q, now);
		stays = !charge(c, t, now) && !t->target;
		if (stays)
			best = credit_of(q, c->mark);
	}
	if (stays && t && !t->yields && now - c->since < ratelimit_us * 1000) {
		berth_count(rate_limited);
		keep(prev, t, cpu);
		return;
	}
	any = take(c, q, cpu, stays && t && t->yields ? -2 * most() : best, best, &credit);
	if (!any && stays) {
		credit = best;
		any = true;
		if (t)
			keep(prev, t, cpu);
	}
	if (any)
		refill(c->queue, credit);
	if (t)
		t->yields = 0;
}

void BPF_STRUCT_OPS(credit2_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct thread *t = thread_of(p);
	struct pcpu *c = pcpu_at(cpu);
	struct runq *q = c ? runq_at(c->queue) : NULL;

	if (t && c && q && !bound_kthread(p))
		begins(p, t, c, q, cpu);
}

void BPF_STRUCT_OPS(credit2_stopping, struct task_struct *p, bool runnable)
{
	struct thread *t = thread_of(p);
	struct pcpu *c = pcpu_at(scx_bpf_task_cpu(p));
	struct runq *q = c ? runq_at(c->queue) : NULL;
	u64 now = scx_bpf_now();

	if (!t || !c || !q)
		return;
	if (c->busy) {
		burn(c, q, now);
		charge(c, t, now);
		if (t->queue == c->queue + 1)
			t->mark = c->mark;
		t->residual = c->residual;
		c->busy = 0;
	}
	relabel(p, t);
}

bool BPF_STRUCT_OPS(credit2_yield, struct task_struct *from, struct task_struct *to)
{
	struct thread *t = thread_of(from);

	if (t)
		t->yields = 1;
	scx_bpf_task_set_slice(from, 0);
	return false;
}

void BPF_STRUCT_OPS(credit2_runnable, struct task_struct *p, u64 enq_flags)
{
	vm_runnable(p);
	counts(p, true);
}

void BPF_STRUCT_OPS(credit2_quiescent, struct task_struct *p, u64 deq_flags)
{
	vm_quiescent(p);
	counts(p, false);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(credit2_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	return vm_init_task(p, args);
}

void BPF_STRUCT_OPS(credit2_enable, struct task_struct *p)
{
	vm_enable(p);
}

void BPF_STRUCT_OPS(credit2_disable, struct task_struct *p)
{
	leaves(p);
}

void BPF_STRUCT_OPS(credit2_cgroup_move, struct task_struct *p, struct cgroup *from,
		    struct cgroup *to)
{
	vm_cgroup_move(p, to);
}

void BPF_STRUCT_OPS(credit2_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	vm_cgroup_set_weight(cgrp, weight);
}

void BPF_STRUCT_OPS(credit2_cpu_online, s32 cpu)
{
	set_online(cpu, true);
}

void BPF_STRUCT_OPS(credit2_cpu_offline, s32 cpu)
{
	set_online(cpu, false);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(credit2_init)
{
	s32 err = make_queues();

	return err ?: make_guards();
}

void BPF_STRUCT_OPS(credit2_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(credit2_ops,
	.select_cpu		= (void *)credit2_select_cpu,
	.enqueue		= (void *)credit2_enqueue,
	.dispatch		= (void *)credit2_dispatch,
	.running		= (void *)credit2_running,
	.stopping		= (void *)credit2_stopping,
	.yield			= (void *)credit2_yield,
	.runnable		= (void *)credit2_runnable,
	.quiescent		= (void *)credit2_quiescent,
	.init_task		= (void *)credit2_init_task,
	.enable			= (void *)credit2_enable,
	.disable		= (void *)credit2_disable,
	.cgroup_move		= (void *)credit2_cgroup_move,
	.cgroup_set_weight	= (void *)credit2_cgroup_set_weight,
	.cpu_online		= (void *)credit2_cpu_online,
	.cpu_offline		= (void *)credit2_cpu_offline,
	.init			= (void *)credit2_init,
	.exit			= (void *)credit2_exit,
	.flags			= SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING,
	.timeout_ms		= 30000,
	.name			= "credit2");
