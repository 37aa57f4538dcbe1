/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The arithmetic of policies/study/cfs.bpf.c: virtual run time, slices, where a thread is placed,
 * and when one is far enough behind another to take its CPU.
 *
 * The includer has declared its parameters, struct entity (v, weight, avg_wakeup) and struct runq
 * (v, curr_weight, charged, charged_at, picked, min_v).
 */
#ifndef __CFS_CLOCK_BPF_H
#define __CFS_CLOCK_BPF_H

/* The kernel's run queues. */
extern struct rq runqueues __ksym;

static u64 latency_ns, least_slice_ns, wakeup_ns; /* as scaled by the number of CPUs */

/* Run time as virtual time. */
static __always_inline u64 virtual_ns(u64 ns, u64 weight)
{
	return weight == NICE_0_LOAD ? ns : ns * NICE_0_LOAD / (weight ?: 1);
}

static __always_inline u64 later(u64 a, u64 b)
{
	return time_before(a, b) ? b : a;
}

/* Wanted: everybody has run once within this time, ns. */
static __always_inline u64 period_of(u32 nr)
{
	return nr <= nr_latency ? latency_ns : nr * least_slice_ns;
}

/* A thread's part of the period, ns, on a CPU where `nr` threads of weight `load` are runnable. */
static __always_inline u64 slice_of(u64 weight, u32 nr, u64 load)
{
	u64 slice = period_of(nr) * weight / (load ?: weight ?: 1);

	return base_slice && slice < least_slice_ns ? least_slice_ns : slice;
}

/*
 * The task clock of a CPU, by which run time is charged: it stands still while a hypervisor has
 * taken the CPU away, in kernels that account for steal.
 */
static __always_inline u64 task_clock(s32 cpu)
{
	struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq ? rq->clock_task : 0;
}

/* min_vruntime: never goes back. */
static __always_inline void advance_min(struct runq *rq, s32 cpu)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(cpu);
	u64 least = rq->v;

	if (first && (!rq->curr || time_before(first->scx.dsq_vtime, least)))
		least = first->scx.dsq_vtime;
	else if (!rq->curr)
		return;
	rq->min_v = later(rq->min_v, least);
}

/* The running thread has run for ns more (or, corrected, less). */
static __always_inline void advance(struct runq *rq, s32 cpu, s64 ns)
{
	if (!ns)
		return;
	rq->v += ns > 0 ? virtual_ns(ns, rq->curr_weight) : -virtual_ns(-ns, rq->curr_weight);
	advance_min(rq, cpu);
}

/* Charge p, which runs here, what the kernel has charged it by now. */
static __always_inline void charge(struct runq *rq, s32 cpu, struct task_struct *p)
{
	u64 sum = p->se.sum_exec_runtime;

	advance(rq, cpu, sum - rq->charged);
	rq->charged = sum;
	rq->charged_at = p->se.exec_start;
}

/* The same when the kernel has not charged it yet: up to now by the task clock. */
static __always_inline void charge_ahead(struct runq *rq, s32 cpu)
{
	s64 ns;

	if (!rq->curr)
		return;
	ns = task_clock(cpu) - rq->charged_at;
	if (ns <= 0)
		return;
	advance(rq, cpu, ns);
	rq->charged += ns;
	rq->charged_at += ns;
}

/* Place p, which will be one of `nr` threads of weight `load`: a new one, or one that has slept. */
static __always_inline void place(struct entity *e, struct runq *rq, bool fresh)
{
	u64 v = rq->min_v;

	if (fresh)
		v += start_debit ? virtual_ns(slice_of(e->weight, rq->nr, rq->load), e->weight) : 0;
	else if (fair_sleepers)
		v -= gentle_sleepers ? latency_ns / 2 : latency_ns;
	e->v = later(e->v, v);
}

/*
 * How far e must be behind a thread that has had the CPU for `ran` ns to take it, virtual ns. Who
 * is woken often by short runs may do so sooner (ADAPTIVE_GRAN).
 */
static __always_inline u64 granularity_of(struct entity *e, u64 ran, u32 nr)
{
	u64 gran = wakeup_ns, expected;

	if (adaptive_gran) {
		expected = 2 * e->avg_wakeup * nr;
		expected = expected > ran ? expected - ran : 0;
		if (expected < gran)
			gran = expected;
	}
	return virtual_ns(gran, e->weight);
}

/* A mean of 8, in which the latest has 1/8. */
static __always_inline void average(u64 *mean, u64 sample)
{
	*mean += (s64)(sample - *mean) >> 3;
}

#endif
