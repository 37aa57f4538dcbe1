/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When the running thread of policies/eevdf.bpf.c is looked at next, where a timer ends slices
 * (HRTICK, which Linux uses from 7.2 on), not only ticks.
 *
 * The timer is set when a thread gets a CPU that others wait for (shadows do not), or one arrives:
 * for the end of the thread's own slice, which it has within its cgroup. Its cgroup has a slice,
 * too, that competes with the other cgroups' (protected_to), and the two need not end together. If
 * the cgroup's has not ended by then, or if it is still the first, the thread goes on; the timer is
 * not set again, and the next look is at a tick. So two hogs of different cgroups take turns of a
 * slice while they are about equal, and of a whole tick for good once one is ahead by more than a
 * slice.
 *
 * A thread's own slice is renewed where the kernel looks at its cgroup's queue: when it gets or
 * loses the CPU, when the timer ends, at ticks. In no cgroup it is the one that competes.
 */
#ifndef __EEVDF_TIMER_BPF_H
#define __EEVDF_TIMER_BPF_H

#include "queue.bpf.h"

#define TIMER_LEAST 10000 /* ns; the kernel sets no shorter ones */

/* First tick at or after t. */
static __always_inline u64 tick_from(u64 t)
{
	u64 since = (t - berth_tick_phase_ns) % tick_ns;

	return since ? t + tick_ns - since : t;
}

/*
 * The thread that runs now has had its own slice looked at at each tick since it last was, when the
 * CPU's task clock is what charged_at says.
 */
static __always_inline void request_at_ticks(struct runq *rq, u64 now)
{
	u64 tick = rq->charged_at - (now - berth_tick_phase_ns) % tick_ns;
	u64 ran = tick - rq->request_at, ticks;

	if (!time_before(rq->request_at, tick))
		return;
	rq->request_at = tick;
	if (ran < rq->request) {
		rq->request -= ran;
		return;
	}
	/* Renewed at the first tick after its end, and so on. */
	ticks = (rq->slice + tick_ns - 1) / tick_ns;
	rq->request = rq->slice - (ran - rq->request) / tick_ns % (ticks ?: 1) * tick_ns;
}

/* Its own slice is looked at. */
static __always_inline void request_now(struct runq *rq, u64 now)
{
	u64 ran;

	request_at_ticks(rq, now);
	ran = rq->charged_at - rq->request_at;
	rq->request = ran < rq->request ? rq->request - ran : rq->slice;
	rq->request_at = rq->charged_at;
}

/* Set the timer, unless it is. */
static __always_inline void set_timer(struct runq *rq, u64 now)
{
	u64 left = rq->request;

	if (time_before(now, rq->timer_at))
		return;
	if (!rq->grouped)
		left = time_before(rq->v, rq->deadline)
			       ? real_ns_until(rq->deadline - rq->v, rq->curr_weight)
			       : 0;
	rq->timer_at = now + (left > TIMER_LEAST ? left : TIMER_LEAST);
}

/* ns until the running thread is looked at: at the timer's end, or at a tick after what is
 * protected. */
static __always_inline u64 until_look(struct runq *rq, u64 now)
{
	u64 left = time_before(rq->v, rq->protected_to)
			   ? real_ns_until(rq->protected_to - rq->v, rq->curr_weight)
			   : 1;
	u64 tick = tick_from(now + left);

	if (time_before(now, rq->timer_at) && time_before(rq->timer_at, tick))
		tick = rq->timer_at;
	return tick - now;
}

/* A thread has got the CPU. */
static __always_inline u64 look_at_new(struct runq *rq, struct entity *e, u64 now)
{
	rq->grouped = e->member.group;
	rq->request = e->request ?: e->slice;
	rq->request_at = rq->charged_at;
	rq->alone = rq->nr == 1;
	if (rq->alone)
		return SCX_SLICE_INF;
	if (rq->queued) {
		rq->timer_at = now;
		set_timer(rq, now);
	}
	return until_look(rq, now);
}

/* The thread on the CPU goes on. */
static __always_inline u64 look_again(struct runq *rq, u64 now)
{
	bool alone = rq->alone;

	request_now(rq, now);
	rq->alone = rq->nr == 1;
	if (rq->alone)
		return SCX_SLICE_INF;
	if (alone)
		set_timer(rq, now);
	return until_look(rq, now);
}

/* Another thread has come to wait for the CPU. */
static __always_inline u64 look_after_arrival(struct runq *rq, u64 now)
{
	rq->alone = false;
	request_at_ticks(rq, now);
	set_timer(rq, now);
	return until_look(rq, now);
}

#endif
