/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What Linux's fair scheduler does with cores of unequal capacity, for policies/eevdf.bpf.c. The
 * includer has declared `unequal` and its counter (`moved_up`).
 *
 * Capacity awareness (SD_ASYM_CPUCAPACITY): a thread's utilisation is how much of the fastest core
 * it has used of late (a mean over time that halves every 32 ms, PELT; asleep, what it was when it
 * fell asleep, util_est). It fits a CPU if that is less than 80 % of its capacity. A waking thread
 * takes the first idle CPU that it fits, else the idle one with the highest capacity. A running
 * thread that does not fit (a misfit) is moved to an idle CPU of clearly more capacity. Busy CPUs
 * are balanced by load per capacity.
 *
 * Asymmetric packing (SD_ASYM_PACKING, ITMT): an idle CPU of higher priority, here: capacity, takes
 * the thread that runs on one of lower priority, whatever it uses.
 *
 * Deviations: no frequency, no thermal pressure, no energy model, no uclamp; util_est is a mean of
 * the same form per thread only; an idle CPU hears of a misfit when it goes idle and at the steps
 * of the periodic balance, the kernel's at ticks; SMT siblings have the priority of their core.
 */
#ifndef __EEVDF_CAPACITY_BPF_H
#define __EEVDF_CAPACITY_BPF_H

#include "queue.bpf.h"

enum { BY_CAPACITY, BY_PACKING, BY_NOTHING };

#define UTIL_BITS   10	    /* fraction bits of a utilisation */
#define PELT_NS	    1048576 /* its mean halves in 32 of these */
#define FITS	    1280    /* a thread fits with 1024 / 1280 = 80 % of a capacity */
#define MORE	    1078    /* clearly more capacity: by 5 % */
#define PELT_ONE    65536
#define BUSY	    1002 /* of 1024: it runs all the time */
#define PELT_PERIOD 22	 /* 1024 times what a mean loses in one of its units */

static bool asymmetric; /* CPUs differ in capacity, and it is regarded */

/* 1024: the fastest of the machine. */
__noinline u32 eevdf_capacity_of(s32 cpu)
{
	struct berth_cpu *topo = asymmetric ? berth_cpu(cpu) : NULL;

	return topo && topo->capacity ? topo->capacity : SCX_CPUPERF_ONE;
}

/* Weight per capacity. */
__noinline u64 eevdf_load_of(s32 cpu)
{
	struct runq *rq = rq_of(cpu);

	return rq ? rq->weight * SCX_CPUPERF_ONE / (eevdf_capacity_of(cpu) ?: 1) : 0;
}

/* What is left of a mean after ns: 2^(-ns / 32 units), in steps of a unit by binary digits. */
static __always_inline u64 decayed(u64 mean, u64 ns)
{
	u64 units = ns / PELT_NS, rest = ns % PELT_NS;

	if (units >= 32 * 21)
		return 0;
	mean >>= units / 32;
	if (units & 16)
		mean = mean * 46341 / PELT_ONE;
	if (units & 8)
		mean = mean * 55109 / PELT_ONE;
	if (units & 4)
		mean = mean * 60097 / PELT_ONE;
	if (units & 2)
		mean = mean * 62757 / PELT_ONE;
	if (units & 1)
		mean = mean * 64132 / PELT_ONE;
	return mean - mean * (rest * PELT_PERIOD / PELT_NS) / 1024;
}

/* Bring p's utilisation up to now; `ran`: it has had this CPU since it last was. While it runs,
 * time on a slow core passes slower, and catches up when it does not, as with the kernel's
 * clock_pelt (there when the CPU goes idle); what a thread that runs all the time has lost is lost.
 */
static __always_inline void use(struct entity *e, s32 cpu, bool ran)
{
	u64 now = scx_bpf_now(), ns = now - e->util_at, full = 1024ULL << UTIL_BITS;

	e->util_at = now;
	if (ran) {
		u64 slower = ns * eevdf_capacity_of(cpu) / SCX_CPUPERF_ONE;

		e->util = full - decayed(full - e->util, slower);
		e->util_behind += ns - slower;
	} else {
		if (e->util < full * BUSY / 1024)
			ns += e->util_behind;
		e->util = decayed(e->util, ns);
		e->util_behind = 0;
	}
}

/* It falls asleep: how much it used is remembered, less of it each time that it was more. */
static __always_inline void remember_use(struct entity *e)
{
	if (e->util >= e->util_est)
		e->util_est = e->util;
	else
		e->util_est -= (e->util_est - e->util) / 4;
}

static __always_inline bool fits(struct entity *e, s32 cpu)
{
	u64 util = e->util > e->util_est ? e->util : e->util_est;

	return util * FITS < (u64)eevdf_capacity_of(cpu) << (UTIL_BITS + 10);
}

/* For p, which wakes: an idle CPU that it fits, the first from prev_cpu on, else the one with the
 * highest capacity; NOWHERE: none is idle. */
static __noinline s32 fitting_idle(struct task_struct *p, struct entity *e, s32 prev_cpu)
{
	const struct cpumask *idle;
	s32 cpu, found = NOWHERE, i;
	u32 most = 0;

	if (!p || !e)
		return NOWHERE;
	idle = scx_bpf_get_idle_cpumask();
	bpf_for(i, 0, berth_nr_cpus) {
		cpu = (prev_cpu + i) % berth_nr_cpus;
		if (!bpf_cpumask_test_cpu(cpu, idle) || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		if (fits(e, cpu)) {
			found = cpu;
			break;
		}
		if (eevdf_capacity_of(cpu) > most) {
			most = eevdf_capacity_of(cpu);
			found = cpu;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	return found >= 0 && scx_bpf_test_and_clear_cpu_idle(found) ? found : NOWHERE;
}

/* Is the thread that runs on `from` to go to `to`, which is idle? How much it uses, and 1; 0: no.
 */
static __noinline u64 better_off(s32 from, s32 to)
{
	struct runq *rq = rq_of(from);
	struct task_struct *p;
	struct entity *e;
	u64 gain = 0;

	if (!rq || !rq->curr || eevdf_capacity_of(to) * 1024 <= eevdf_capacity_of(from) * MORE)
		return 0;
	bpf_rcu_read_lock();
	p = __COMPAT_scx_bpf_cpu_curr(from);
	e = p && p->pid == rq->curr ? entity_of(p) : NULL;
	if (e && !e->moves_to && bpf_cpumask_test_cpu(to, p->cpus_ptr) &&
	    !is_migration_disabled(p)) {
		use(e, from, true);
		if (unequal == BY_PACKING || !fits(e, from))
			gain = e->util + 1;
	}
	bpf_rcu_read_unlock();
	return gain;
}

/* An idle CPU with nothing to pull asks for the running thread that would gain most. */
__noinline bool eevdf_pull_running(s32 cpu)
{
	struct task_struct *p;
	struct entity *e;
	u64 most = 0, gain;
	s32 from = NOWHERE, i;

	bpf_for(i, 0, berth_nr_cpus) {
		gain = better_off(i, cpu);
		if (gain > most) {
			most = gain;
			from = i;
		}
	}
	if (from < 0)
		return false;
	bpf_rcu_read_lock();
	p = __COMPAT_scx_bpf_cpu_curr(from);
	e = p ? entity_of(p) : NULL;
	if (e)
		e->moves_to = cpu + 1;
	bpf_rcu_read_unlock();
	scx_bpf_kick_cpu(from, SCX_KICK_PREEMPT);
	return true;
}

/* p was asked to move, and gives up its CPU: there it goes, if that is still idle. */
static __noinline bool move_up(struct task_struct *p, struct entity *e, u64 slice, u64 enq_flags)
{
	s32 to;

	if (!p || !e || !e->moves_to)
		return false;
	to = e->moves_to - 1;
	e->moves_to = 0;
	if (!bpf_cpumask_test_cpu(to, p->cpus_ptr) || is_migration_disabled(p) ||
	    !scx_bpf_test_and_clear_cpu_idle(to))
		return false;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | to, slice, enq_flags);
	berth_count(moved_up);
	return true;
}

/* An idle CPU is told of the thread that runs on this one, if it would be better off there. */
__noinline int eevdf_tell_idle(s32 cpu)
{
	const struct cpumask *idle;
	s32 i, found = NOWHERE;

	idle = scx_bpf_get_idle_cpumask();
	bpf_for(i, 0, berth_nr_cpus) {
		if (bpf_cpumask_test_cpu(i, idle) && better_off(cpu, i)) {
			found = i;
			break;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	if (found >= 0)
		scx_bpf_kick_cpu(found, SCX_KICK_IDLE);
	return 0;
}

/* Do the CPUs differ? */
static __always_inline bool capacities_differ(void)
{
	struct berth_cpu *first = berth_cpu(0), *topo;
	bool differ = false;
	s32 cpu;

	bpf_for(cpu, 1, berth_nr_cpus) {
		topo = berth_cpu(cpu);
		if (first && topo && topo->capacity != first->capacity)
			differ = true;
	}
	return differ;
}

#endif
