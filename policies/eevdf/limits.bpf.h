/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cpu.max for policies/eevdf.bpf.c: who runs is counted against the limits of its cgroups
 * (berth/shares.bpf.h), and waits in PARKED for the next period when one of them is used up.
 *
 * The includer has declared its counters (`parked`).
 */
#ifndef __EEVDF_LIMITS_BPF_H
#define __EEVDF_LIMITS_BPF_H

#include "queue.bpf.h"

enum { GUARD_BALANCE, GUARD_PARKED, GUARDS };

#include "berth/parking.bpf.h"

/* Count p's run time against the limits of its cgroups. 0: it may run; else: again from then on. */
static __always_inline u64 limited_until(struct task_struct *p, struct entity *e)
{
	u64 sum = p->se.sum_exec_runtime, ns = sum - e->used_ns;

	if (!berth_groups_limited)
		return 0;
	e->used_ns = sum;
	/* What it ran before there were limits counts against none. */
	if (!e->metered || !e->member.group) {
		e->metered = true;
		return 0;
	}
	return berth_member_use(&e->member, ns, scx_bpf_now());
}

/* A slice no longer than limits can wait. */
static __always_inline u64 within_limits(struct entity *e, u64 slice)
{
	if (berth_groups_limited && e->member.group && slice > BERTH_BUDGET_NS)
		return BERTH_BUDGET_NS;
	return slice;
}

/* p waits until its cgroups may run again. */
static __always_inline void park(struct task_struct *p, struct entity *e, u64 until)
{
	struct runq *rq = e->cpu == NOWHERE ? NULL : rq_of(e->cpu);
	u64 now = scx_bpf_now();
	struct guard *guard;
	u32 slot = GUARD_PARKED;

	if (rq) {
		if (e->queued && rq->queued)
			rq->queued--;
		detach(e, rq, false);
	}
	e->queued = false;
	guard = bpf_map_lookup_elem(&guards, &slot);
	if (guard &&
	    (!parked_until || time_before(until, parked_until) || time_before(parked_until, now))) {
		parked_until = until;
		bpf_timer_start(&guard->timer, time_before(now, until) ? until - now : 1, 0);
	}
	berth_count(parked);
}

/* A period of cpu.max has ended: whoever may run again goes back to a CPU. */
static int unpark(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = scx_bpf_now(), until, next = 0, slice;
	struct task_struct *p;
	struct entity *e;
	struct runq *rq;
	s32 cpu;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, PARKED, 0) {
		e = entity_of(p);
		if (!e)
			continue;
		until = berth_member_use(&e->member, 0, now);
		if (until) {
			if (!next || time_before(until, next))
				next = until;
			continue;
		}
		cpu = scx_bpf_task_cpu(p);
		rq = rq_of(cpu);
		if (!rq)
			continue;
		catch_up(rq, cpu);
		place(p, e, rq, cpu);
		e->queued = true;
		rq->queued++;
		slice = time_before(e->v, e->deadline)
				? real_ns_until(e->deadline - e->v, e->weight)
				: 0;
		scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, within_limits(e, slice ?: 1));
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, e->deadline);
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, cpu, 0);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	bpf_rcu_read_unlock();
	unparked(timer, now, next);
	return 0;
}

#endif
