/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * eevdf: a model of Linux's fair scheduler (EEVDF as of 6.18 and later), in sched_ext.
 *
 * Idea. On each CPU every thread has a virtual run time v, which advances by its run time divided
 * by its weight. V is the mean of all v, weighted. Who has had no more than its share (v <= V) is
 * eligible; of those the one with the earliest virtual deadline v + slice / weight runs next. A
 * thread keeps the CPU until its deadline, as seen at the timer tick (RUN_TO_PARITY), or by a timer
 * of its own where there is one (HRTICK, eevdf/timer.bpf.h), unless a waking one asks for a
 * shorter slice. How far a sleeper is from V (its lag) is kept while it
 * sleeps (PLACE_LAG); one that has had too much stays in the competition as a shadow until its turn
 * would have come (DELAY_DEQUEUE).
 *
 * After Stoica and Abdel-Wahab (1995) and kernel/sched/fair.c; nothing is copied.
 *
 * Deviations from the kernel.
 *  - At most SHADOWS sleepers per CPU stay as shadows; one more leaves at once, with its lag. With
 *    DELAY_ZERO off, a shadow whose turn has come still leaves with lag 0.
 *  - Threads of a CPU that waits are pulled in the order of their deadlines; the kernel begins with
 *    the one that ran last longest ago. One thread is pulled at a time.
 *  - A waking thread looks for an idle CPU in the kernel's order (where it ran, a whole core, any),
 *    without the kernel's limits on how long it may look, and beyond its LLC.
 *  - No NEXT_BUDDY, core scheduling, NUMA balancing, energy awareness, SCHED_BATCH. Where cores
 *    differ in capacity, what the kernel does then, with deviations of its own
 *    (eevdf/capacity.bpf.h).
 *  - A deadline that passes while the thread is alone is renewed when somebody arrives, computed
 *    for the tick at which the kernel would have done it.
 *
 * Run time is the task clock's (p->se.sum_exec_runtime), read ahead by rq->clock_task where the
 * kernel would have brought it up to date: what a hypervisor takes from a guest that accounts for
 * steal is charged to nobody. Not good for: a production host, which has the real one.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("task", "Model of Linux's fair scheduler: earliest eligible virtual deadline first");

BERTH_PARAM(
	u64, base_slice_us, "us", 700, 100, 100000,
	"Virtual run time a thread asks for; kernel: 700 from 6.13 on, 750 before, times `scaling`");
BERTH_PARAM(bool, scaling, "bool", 1, 0, 1,
	    "Multiply base_slice_us by 1 + log2 of the number of CPUs (at most 8), as the kernel");
BERTH_PARAM(bool, run_to_parity, "bool", 1, 0, 1,
	    "A thread runs until its deadline unless a shorter slice comes (RUN_TO_PARITY)");
BERTH_PARAM(bool, place_lag, "bool", 1, 0, 1, "Lag is kept while a thread sleeps (PLACE_LAG)");
BERTH_PARAM(bool, preempt_short, "bool", 1, 0, 1,
	    "A waking thread with a shorter slice overrides run_to_parity (PREEMPT_SHORT)");
BERTH_PARAM(bool, delay_dequeue, "bool", 1, 0, 1,
	    "Who sleeps with negative lag stays until its turn (DELAY_DEQUEUE)");
BERTH_PARAM(bool, delay_zero, "bool", 1, 0, 1,
	    "Such a sleeper gains no positive lag meanwhile (DELAY_ZERO)");
BERTH_PARAM(
	u64, balance_us, "us", 16000, 1000, 1000000,
	"A busy CPU looks for work elsewhere every so often, times the CPUs in its LLC, less a tick");
BERTH_PARAM(bool, wakeup_preemption, "bool", 1, 0, 1,
	    "A waking thread may take the CPU (WAKEUP_PREEMPTION)");

BERTH_CHOICE(unequal, "capacity|packing|none", 0,
	     "Where cores differ: capacity-aware (SD_ASYM_CPUCAPACITY), packed by priority (ITMT)");

struct berth_stats {
	u64 idle;      /* woken onto an idle CPU */
	u64 queued;    /* had to wait */
	u64 preempted; /* took the CPU when it woke */
	u64 kept;      /* slice ended, still first: went on */
	u64 pulled;    /* taken over by an idle CPU */
	u64 balanced;  /* times a busy CPU took threads over */
	u64 parked;    /* had to wait for the next period of cpu.max */
	u64 shadows;   /* slept with negative lag and stayed */
	u64 gave_way;  /* a higher class had its CPU, and then another one was first */
	u64 moved_up;  /* moved to a core with more capacity while it ran */
};
BERTH_STATS;

#include "eevdf/balance.bpf.h"
#include "eevdf/timer.bpf.h"
#include "eevdf/limits.bpf.h"

s32 BPF_STRUCT_OPS(eevdf_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct entity *e = entity_of(p);
	bool idle = false;
	struct runq *rq;
	s32 cpu;

	if (!e)
		return prev_cpu;
	if (berth_groups_limited && limited_until(p, e))
		return prev_cpu;
	if (e->shadow) {
		/* On the run queue for the kernel: it stays there. */
		rq = rq_of(e->cpu);
		if (rq && shadow_of(rq, p->pid) < SHADOWS &&
		    bpf_cpumask_test_cpu(e->cpu, p->cpus_ptr))
			return e->cpu;
	}
	if (asymmetric)
		use(e, prev_cpu, false);
	if (bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) &&
	    (!asymmetric || unequal != BY_CAPACITY || fits(e, prev_cpu)) &&
	    scx_bpf_test_and_clear_cpu_idle(prev_cpu)) {
		cpu = prev_cpu;
		idle = true;
	} else if (asymmetric && unequal == BY_CAPACITY) {
		cpu = fitting_idle(p, e, prev_cpu);
		idle = cpu >= 0;
		if (!idle)
			cpu = prev_cpu;
	} else {
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	}
	if (idle) {
		berth_count(idle);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, within_limits(e, e->slice), 0);
	} else if (wake_flags & SCX_WAKE_FORK)
		cpu = least_loaded(p, cpu);
	return cpu;
}

/* Would e, not in the queue yet, be chosen on this CPU? */
__noinline bool eevdf_first(s32 cpu, u64 v, u64 deadline, bool protect)
{
	struct runq *rq = rq_of(cpu);
	struct task_struct *p;
	struct entity *other;
	bool beaten = false;
	struct sums s;
	struct shadow *sh;

	if (!rq)
		return false;
	read_sums(rq, &s);
	if (!eligible(&s, v))
		return false;
	if (eligible(&s, rq->v) && (time_before(rq->deadline, deadline) ||
				    (protect && time_before(rq->v, rq->protected_to))))
		return false;
	sh = shadow_at(rq, first_shadow(rq, &s));
	if (sh && time_before(sh->deadline, deadline))
		return false;
	p = rq->queued ? __COMPAT_scx_bpf_dsq_peek(cpu) : NULL;
	if (!p || time_after(p->scx.dsq_vtime, deadline))
		return true;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		if (time_after(p->scx.dsq_vtime, deadline))
			break;
		other = entity_of(p);
		if (other && eligible(&s, other->v)) {
			beaten = true;
			break;
		}
	}
	bpf_rcu_read_unlock();
	return !beaten;
}

/* A thread has come to a CPU where another one runs. */
static __always_inline void check_preempt(struct runq *rq, struct entity *e, s32 cpu, bool overdue)
{
	bool shorter = preempt_short && e->slice < rq->slice;

	if (rq->resched)
		return;
	if (!overdue && wakeup_preemption && eevdf_first(cpu, e->v, e->deadline, !shorter)) {
		overdue = true;
		berth_count(preempted);
	}
	if (overdue) {
		if (shorter)
			rq->protected_to = rq->v;
		rq->resched = true;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	} else if (run_to_parity && shorter) {
		u64 end = rq->v + virtual_ns(e->slice, rq->curr_weight);

		if (time_before(end, rq->protected_to))
			rq->protected_to = end;
	}
}

void BPF_STRUCT_OPS(eevdf_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct entity *e = entity_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct runq *rq = rq_of(cpu), *old;
	bool placed, overdue = false, arrives, others;
	struct task_struct *curr;
	u64 slice, slice_left, until;
	s64 ahead;

	if (!e || !rq) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
		return;
	}
	if (berth_groups_limited) {
		until = limited_until(p, e);
		if (until) {
			if (e->shadow)
				reappear(p, e, NOWHERE);
			park(p, e, until);
			scx_bpf_dsq_insert(p, PARKED, e->slice, enq_flags);
			return;
		}
	}
	if (asymmetric && move_up(p, e, within_limits(e, e->slice), enq_flags))
		return;
	arrives = e->cpu != cpu || e->shadow;
	runnable(p, e, true);
	if (!arrives)
		reweight(p, e, rq);
	if (arrives && rq->curr) {
		others = rq->nr > 1;
		charge_ahead(rq, task_clock(cpu));
		if (rq->alone)
			renew_at_ticks(rq, scx_bpf_now());
		else
			overdue = (renew(rq) || !time_before(rq->v, rq->protected_to)) && others;
	}
	placed = e->shadow && reappear(p, e, cpu);
	if (!placed && e->cpu != cpu) {
		old = e->cpu == NOWHERE ? NULL : rq_of(e->cpu);
		if (old) {
			if (e->queued && old->queued)
				old->queued--;
			detach(e, old, false);
		}
		place(p, e, rq, cpu);
	}
	if (!e->queued)
		rq->queued++;
	e->queued = true;
	slice = time_before(e->v, e->deadline) ? real_ns_until(e->deadline - e->v, e->weight) : 0;
	berth_count(queued);
	if (arrives && rq->curr) {
		check_preempt(rq, e, cpu, overdue);
		if (rq->alone || berth_slice_timer) {
			/* From now on ticks look at the running thread. */
			rq->alone = false;
			slice_left = berth_slice_timer ? look_after_arrival(rq, scx_bpf_now())
						       : protection_ns(rq);
			curr = __COMPAT_scx_bpf_cpu_curr(cpu);
			if (curr && curr->pid == rq->curr) {
				/* The kernel charges it this, too, against the slice. */
				ahead = rq->charged_at - curr->se.exec_start;
				if (ahead < 0 || ahead > tick_ns)
					ahead = 0;
				scx_bpf_task_set_slice(curr, slice_left + ahead);
			}
		}
	}
	slice = within_limits(e, slice ?: 1);
	scx_bpf_dsq_insert_vtime(p, cpu, slice, e->deadline, enq_flags);
	if (!arrives) {
		/* Two want this CPU, as a tick has shown: let an idle one look. */
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (cpu >= 0)
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
}

/* Give the CPU to the waiting thread that is first among the eligible. */
__noinline bool eevdf_hand_over(s32 cpu)
{
	struct runq *rq = rq_of(cpu);
	struct sums s;
	struct task_struct *p;
	struct entity *e;
	bool done = false;

	if (!rq)
		return false;
	read_sums(rq, &s);
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		e = entity_of(p);
		if (e && !eligible(&s, e->v))
			continue;
		done = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		if (done)
			break;
	}
	bpf_rcu_read_unlock();
	return done;
}

/* Deadline of the first eligible waiting thread, and whether it is first in the queue, too; 0:
 * there is none. */
__noinline u64 eevdf_first_waiting(s32 cpu)
{
	struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(cpu);
	struct runq *rq = rq_of(cpu);
	struct entity *e;
	u64 found = 0;
	struct sums s;

	if (!p || !rq)
		return 0;
	read_sums(rq, &s);
	e = entity_of(p);
	rq->head_first = !e || eligible(&s, e->v);
	if (rq->head_first)
		return p->scx.dsq_vtime ?: 1;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		e = entity_of(p);
		if (e && eligible(&s, e->v)) {
			found = p->scx.dsq_vtime ?: 1;
			break;
		}
	}
	bpf_rcu_read_unlock();
	return found;
}

/*
 * Shadows that would be chosen now are gone: of them, of the waiting threads and of the running one
 * if it `goes_on`.
 */
__noinline int eevdf_drop_shadows(s32 cpu, bool goes_on)
{
	struct runq *rq = rq_of(cpu);
	struct shadow *sh;
	u64 deadline;
	struct sums s;
	u32 i, gone;

	if (!rq)
		return 0;
	bpf_for(i, 0, SHADOWS + 1) {
		if (!rq->nr_shadows)
			break;
		read_sums(rq, &s);
		mean(rq, &s);
		gone = first_shadow(rq, &s);
		sh = shadow_at(rq, gone);
		if (!sh)
			break;
		if (goes_on && eligible(&s, rq->v) &&
		    (time_before(rq->deadline, sh->deadline) ||
		     time_before(rq->v, rq->protected_to)))
			break;
		deadline = eevdf_first_waiting(cpu);
		if (deadline && !time_after(deadline, sh->deadline))
			break;
		drop_shadow(rq, gone);
	}
	return 0;
}

void BPF_STRUCT_OPS(eevdf_dispatch, s32 cpu, struct task_struct *prev)
{
	struct runq *rq = rq_of(cpu);
	struct entity *e = NULL;
	bool goes_on = false;
	u64 deadline = 0, slice;
	struct sums s;

	if (!rq)
		return;
	rq->resched = false;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED) && prev->pid == rq->curr) {
		charge(rq, prev);
		renew(rq);
		e = entity_of(prev);
		goes_on = e && !limited_until(prev, e) && !e->moves_to;
	}
	if (rq->nr_shadows)
		eevdf_drop_shadows(cpu, goes_on);
	if (!goes_on || rq->nr > 1)
		deadline = eevdf_first_waiting(cpu);
	if (goes_on && deadline) {
		read_sums(rq, &s);
		mean(rq, &s);
		if (eligible(&s, rq->v) &&
		    (time_before(rq->deadline, deadline) || time_before(rq->v, rq->protected_to)))
			deadline = 0;
	}
	if (deadline && (rq->head_first ? scx_bpf_dsq_move_to_local(cpu, 0) : eevdf_hand_over(cpu)))
		return;
	if (goes_on && e) {
		if (berth_slice_timer) {
			slice = look_again(rq, scx_bpf_now());
		} else {
			rq->alone = rq->nr == 1;
			slice = rq->alone ? SCX_SLICE_INF : protection_ns(rq);
		}
		scx_bpf_task_set_slice(prev, within_limits(e, slice));
		berth_count(kept);
		return;
	}
	if (scx_bpf_dsq_move_to_local(cpu, 0) || eevdf_pull(cpu))
		return;
	if (asymmetric && !goes_on)
		eevdf_pull_running(cpu);
	rq->timer_at = 0;
}

/* Shortest slice of those who wait on a CPU. */
__noinline u64 eevdf_shortest_slice(s32 cpu)
{
	struct task_struct *p;
	struct entity *e;
	u64 shortest = ~0ULL;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		e = entity_of(p);
		if (e && e->slice < shortest)
			shortest = e->slice;
	}
	bpf_rcu_read_unlock();
	return shortest;
}

/*
 * p goes on after a higher class had its CPU. The kernel chooses anew then, and p's slice protects
 * it no longer; sched_ext has it go on without asking. Is another one first?
 */
static __always_inline void choose_anew(struct runq *rq, s32 cpu)
{
	u64 deadline = rq->nr > 1 ? eevdf_first_waiting(cpu) : 0;
	struct sums s;

	if (!deadline)
		return;
	read_sums(rq, &s);
	mean(rq, &s);
	if (eligible(&s, rq->v) && !time_before(deadline, rq->deadline))
		return;
	rq->protected_to = rq->v;
	rq->resched = true;
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	berth_count(gave_way);
}

void BPF_STRUCT_OPS(eevdf_running, struct task_struct *p)
{
	struct entity *e = entity_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct runq *rq = rq_of(cpu), *old;
	u64 shortest, end;
	bool placed;

	if (!e || !rq)
		return;
	runnable(p, e, true);
	if (asymmetric)
		use(e, cpu, false);
	placed = e->shadow && reappear(p, e, cpu);
	if (!placed && e->cpu != cpu) {
		old = e->cpu == NOWHERE ? NULL : rq_of(e->cpu);
		if (old) {
			if (e->queued && old->queued)
				old->queued--;
			detach(e, old, false);
		}
		place(p, e, rq, cpu);
	} else if (e->queued && rq->queued) {
		rq->queued--;
	}
	e->queued = false;
	rq->v = e->v;
	rq->deadline = e->deadline;
	rq->protected_to = e->deadline;
	rq->curr_weight = e->weight;
	rq->slice = e->slice;
	rq->charged = p->se.sum_exec_runtime;
	rq->charged_at = p->se.exec_start;
	rq->curr = p->pid;
	rq->alone = false;
	rq->resched = false;
	if (!run_to_parity)
		shortest = base_slice_us * 1000;
	else
		shortest = any_slices && rq->queued ? eevdf_shortest_slice(cpu) : e->slice;
	if (shortest < e->slice) {
		end = e->v + virtual_ns(shortest, e->weight);
		if (time_before(end, rq->protected_to))
			rq->protected_to = end;
		if (rq->nr > 1 && !berth_slice_timer)
			scx_bpf_task_set_slice(p, protection_ns(rq));
	}
	if (berth_slice_timer)
		scx_bpf_task_set_slice(p, within_limits(e, look_at_new(rq, e, scx_bpf_now())));
	if (e->aside)
		choose_anew(rq, cpu);
	e->aside = false;
}

void BPF_STRUCT_OPS(eevdf_stopping, struct task_struct *p, bool runnable)
{
	struct entity *e = entity_of(p);
	struct runq *rq = rq_of(scx_bpf_task_cpu(p));

	if (!e || !rq || rq->curr != p->pid)
		return;
	charge(rq, p);
	renew(rq);
	if (asymmetric) {
		use(e, scx_bpf_task_cpu(p), true);
		if (!runnable) {
			remember_use(e);
			e->moves_to = 0;
		}
	}
	e->v = rq->v;
	e->deadline = rq->deadline;
	if (berth_slice_timer) {
		request_now(rq, scx_bpf_now());
		e->request = runnable ? rq->request : 0;
	}
	rq->curr = 0;
	rq->alone = false;
	/* With some of its slice left only a higher class takes a thread's CPU. */
	e->aside = runnable && p->scx.slice;
}

void BPF_STRUCT_OPS(eevdf_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct entity *e = entity_of(p);
	struct runq *rq;

	if (!e)
		return;
	runnable(p, e, false);
	if (e->cpu == NOWHERE || e->shadow)
		return;
	rq = rq_of(e->cpu);
	if (!rq)
		return;
	if (e->queued && rq->queued)
		rq->queued--;
	e->queued = false;
	depart(p, e, rq, deq_flags & SCX_DEQ_SLEEP);
}

bool BPF_STRUCT_OPS(eevdf_yield, struct task_struct *from, struct task_struct *to)
{
	struct runq *rq = rq_of(scx_bpf_task_cpu(from));
	struct entity *e = entity_of(from);
	struct sums s;

	if (to || !e || !rq || rq->curr != from->pid)
		return false;
	charge(rq, from);
	renew(rq);
	read_sums(rq, &s);
	/*
	 * It gives way to the threads of its cgroup. Who has had its share already has given up
	 * enough.
	 */
	if (berth_member_alone(&e->member)) {
		rq->request = rq->slice;
		rq->request_at = rq->charged_at;
	} else if (rq->nr > 1 && eligible(&s, rq->v)) {
		u64 forfeit = rq->deadline - rq->v;

		bpf_spin_lock(&rq->lock);
		rq->wv += rq->curr_weight * forfeit;
		bpf_spin_unlock(&rq->lock);
		rq->v = rq->deadline;
		renew(rq);
	}
	scx_bpf_task_set_slice(from, 0);
	return false;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(eevdf_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct entity *e = bpf_task_storage_get(&entities, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!e)
		return -ENOMEM;
	e->cpu = NOWHERE;
	e->slice = base_slice_ns;
	e->weight = 1ULL << UNIT;
	e->fresh = args->fork;
	/* Not known yet: half of what its CPU can do, as the kernel has it. */
	e->util = (u64)eevdf_capacity_of(scx_bpf_task_cpu(p)) << UTIL_BITS >> 1;
	e->util_at = scx_bpf_now();
	e->used_ns = p->se.sum_exec_runtime;
	e->metered = berth_groups_limited;
	berth_member_join(&e->member, args->cgroup->kn->id);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(eevdf_cgroup_init, struct cgroup *cgrp,
			     struct scx_cgroup_init_args *args)
{
	int err = berth_group_init(cgrp, args->weight);

	if (!err)
		berth_group_limit(cgrp->kn->id, args->bw_period_us, args->bw_quota_us);
	return err;
}

void BPF_STRUCT_OPS(eevdf_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
		    u64 burst_us)
{
	berth_group_limit(cgrp->kn->id, period_us, quota_us);
}

void BPF_STRUCT_OPS_SLEEPABLE(eevdf_cgroup_exit, struct cgroup *cgrp)
{
	berth_group_exit(cgrp);
}

void BPF_STRUCT_OPS(eevdf_cgroup_move, struct task_struct *p, struct cgroup *from,
		    struct cgroup *to)
{
	struct entity *e = entity_of(p);
	bool wants;

	if (!e)
		return;
	wants = e->member.counted;
	runnable(p, e, false);
	berth_member_join(&e->member, to->kn->id);
	if (wants)
		runnable(p, e, true);
}

void BPF_STRUCT_OPS(eevdf_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	berth_group_weight(cgrp->kn->id, weight);
}

/* p leaves the policy, or exits. */
void BPF_STRUCT_OPS(eevdf_disable, struct task_struct *p)
{
	struct entity *e = entity_of(p);
	struct runq *rq;

	if (!e)
		return;
	runnable(p, e, false);
	if (e->cpu == NOWHERE)
		return;
	rq = rq_of(e->cpu);
	if (!rq)
		return;
	if (e->shadow)
		drop_shadow(rq, shadow_of(rq, p->pid));
	else
		detach(e, rq, true);
	e->shadow = false;
	e->lag = 0;
	e->cpu = NOWHERE;
}

void BPF_STRUCT_OPS(eevdf_cpu_online, s32 cpu)
{
	struct runq *rq = rq_of(cpu);

	if (rq)
		rq->online = true;
}

void BPF_STRUCT_OPS(eevdf_cpu_offline, s32 cpu)
{
	struct runq *rq = rq_of(cpu);

	if (rq)
		rq->online = false;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(eevdf_init)
{
	u32 factor = 1, cpus = berth_nr_cpus < 8 ? berth_nr_cpus : 8, slot;
	struct guard *guard;
	struct runq *rq;
	struct llc *llc;
	s32 cpu, err;

	if (scaling)
		factor += (cpus >= 2) + (cpus >= 4) + (cpus >= 8);
	asymmetric = unequal != BY_NOTHING && capacities_differ();
	base_slice_ns = base_slice_us * 1000 * factor;
	tick_ns = 1000000000 / (berth_hz ?: 1000);
	bpf_for(cpu, 0, berth_nr_cpus) {
		err = scx_bpf_create_dsq(cpu, -1);
		if (err)
			return err;
		rq = rq_of(cpu);
		if (rq)
			rq->online = true;
		slot = berth_nr_cpus - 1 - cpu;
		slot = berth_llc(slot);
		llc = bpf_map_lookup_elem(&llcs_by_llc, &slot);
		if (llc)
			llc->next = berth_nr_cpus - 1 - cpu;
	}
	err = scx_bpf_create_dsq(PARKED, -1);
	if (err)
		return err;
	slot = GUARD_PARKED;
	guard = bpf_map_lookup_elem(&guards, &slot);
	if (guard) {
		bpf_timer_init(&guard->timer, &guards, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&guard->timer, unpark);
	}
	slot = GUARD_BALANCE;
	guard = bpf_map_lookup_elem(&guards, &slot);
	if (!guard || berth_nr_cpus < 2)
		return 0;
	bpf_timer_init(&guard->timer, &guards, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&guard->timer, balance_some);
	return bpf_timer_start(&guard->timer, balance_step_ns(), 0);
}

void BPF_STRUCT_OPS(eevdf_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(eevdf_ops,
	.select_cpu		= (void *)eevdf_select_cpu,
	.enqueue		= (void *)eevdf_enqueue,
	.dispatch		= (void *)eevdf_dispatch,
	.running		= (void *)eevdf_running,
	.stopping		= (void *)eevdf_stopping,
	.quiescent		= (void *)eevdf_quiescent,
	.yield			= (void *)eevdf_yield,
	.init_task		= (void *)eevdf_init_task,
	.disable		= (void *)eevdf_disable,
	.cgroup_init		= (void *)eevdf_cgroup_init,
	.cgroup_exit		= (void *)eevdf_cgroup_exit,
	.cgroup_move		= (void *)eevdf_cgroup_move,
	.cgroup_set_weight	= (void *)eevdf_cgroup_set_weight,
	.cgroup_set_bandwidth	= (void *)eevdf_cgroup_set_bandwidth,
	.cpu_online		= (void *)eevdf_cpu_online,
	.cpu_offline		= (void *)eevdf_cpu_offline,
	.init			= (void *)eevdf_init,
	.exit			= (void *)eevdf_exit,
	.flags			= SCX_OPS_ENQ_LAST,
	.timeout_ms		= 30000,
	.name			= "eevdf");
