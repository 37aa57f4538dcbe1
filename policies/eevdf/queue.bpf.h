/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The arithmetic of EEVDF for policies/eevdf.bpf.c: entities, the sums of a run queue, V, lag,
 * eligibility, placement, and the shadows of sleepers.
 *
 * The includer has declared its parameters (base_slice_us, place_lag, delay_dequeue, delay_zero)
 * and its counters (`shadows`).
 */
#ifndef __EEVDF_QUEUE_BPF_H
#define __EEVDF_QUEUE_BPF_H

#include "berth/nice.bpf.h"
#include "berth/shares.bpf.h"

/* Written before load by name: timer ticks per second (0: slices end exactly), and when one is. */
const volatile u32 berth_hz = 250;
const volatile u64 berth_tick_phase_ns;
/* Likewise: slices end by a timer, too (timer.bpf.h). */
const volatile bool berth_slice_timer;

/* The kernel's run queues. */
extern struct rq runqueues __ksym;

#define UNIT	20 /* a weight of 1 << UNIT is nice 0's; run time is virtual time there */
#define SHADOWS 8  /* a power of two */
#define NOWHERE -1
#define LEAST	64 /* smallest weight a thread may come to have in its cgroup */

/* A thread's part in the competition. */
struct entity {
	u64 v;	      /* virtual run time */
	u64 deadline; /* virtual; relative to v while `relative` */
	s64 lag;      /* V - v when it left */
	u64 weight;   /* as counted in the sums */
	u64 slice;    /* ns */
	u64 request;  /* ns left of its slice within its cgroup; 0: a new one begins */
	s32 cpu;      /* whose sums count it; NOWHERE */
	bool queued;  /* waits in that CPU's queue */
	bool shadow;  /* sleeps, and still counts (until its shadow is gone) */
	bool relative;
	bool fresh;		    /* has never run */
	bool aside;		    /* a higher class has taken its CPU */
	u64 used_ns;		    /* of p->se.sum_exec_runtime, counted against limits */
	bool metered;		    /* used_ns has been followed since there are limits */
	u64 util;		    /* what it uses of the fastest core, 1024 << 10: all of it */
	u64 util_est;		    /* when it last slept */
	u64 util_at;		    /* util is of this time */
	u64 util_behind;	    /* ns by which its clock is behind */
	u32 moves_to;		    /* a CPU and 1 that has asked for it while it ran */
	struct berth_member member; /* of its cgroup */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct entity);
} entities SEC(".maps");

struct shadow {
	u64 v;
	u64 deadline;
	u64 weight;
	s64 lag;
	s32 pid;
	u32 pad;
};

/* A run queue. What is not under the lock belongs to who holds the kernel's run queue lock. */
struct runq {
	struct bpf_spin_lock lock; /* the sums: other CPUs take threads away */
	u32 nr;			   /* who counts: waiting, running, shadows */
	u64 weight;		   /* sum of weights */
	u64 wv;			   /* sum of weight times v, modulo 2^64 */
	u64 v0;			   /* some v near the others */

	/* The running thread. */
	u64 v;
	u64 deadline;
	u64 protected_to; /* keeps the CPU up to this v */
	u64 curr_weight;
	u64 slice;
	u64 charged;	 /* of p->se.sum_exec_runtime */
	u64 charged_at;	 /* by the task clock */
	u64 request;	 /* as in its entity, at this time */
	u64 request_at;	 /* by the task clock */
	u64 timer_at;	 /* when the timer ends its slice; in the past: not set */
	u64 balanced_at; /* the task clock when it last looked for work elsewhere */
	s32 curr;	 /* its pid; 0: none */
	u32 queued;	 /* waiting here */
	bool alone;	 /* it runs without end of slice */
	bool grouped;	 /* it is in a cgroup */
	bool resched;	 /* has been told to choose anew */
	bool online;
	bool head_first; /* as eevdf_first_waiting() has found */
	u8 nr_shadows;
	u8 failed; /* attempts to take work over that found none light enough */
	struct shadow shadows[SHADOWS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct runq);
} rqs_by_cpu SEC(".maps");

static u64 base_slice_ns;
static u64 tick_ns;
static bool any_slices; /* some thread has asked for a slice of its own */

/* The sums at one moment. */
struct sums {
	u64 weight;
	u64 wv;
	u64 v0;
};

static __always_inline struct entity *entity_of(struct task_struct *p)
{
	return bpf_task_storage_get(&entities, p, 0, 0);
}

static __always_inline struct runq *rq_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&rqs_by_cpu, &key);
}

/* Run time as virtual time. */
static __always_inline u64 virtual_ns(u64 ns, u64 weight)
{
	return weight == 1ULL << UNIT ? ns : (ns << UNIT) / (weight ?: 1);
}

static __always_inline u64 real_ns(u64 virtual, u64 weight)
{
	return virtual * weight >> UNIT;
}

/*
 * Run time until virtual time has gone on by this much: rounded up, or the last part of a slice
 * would be run for, and not be counted, over and over.
 */
static __always_inline u64 real_ns_until(u64 virtual, u64 weight)
{
	return (virtual * weight + (1ULL << UNIT) - 1) >> UNIT;
}

/* The weight p has by now: its own, or its part of its cgroups'. */
static __always_inline u64 weight_now(struct task_struct *p, struct entity *e)
{
	u64 weight = berth_nice_weight(p);

	if (!e->member.group)
		return weight;
	weight = berth_member_weight(&e->member, weight, scx_bpf_now());
	return weight < LEAST ? LEAST : weight;
}

/* p wants to run, or no longer does: so its cgroups' weight is divided anew. */
static __always_inline void runnable(struct task_struct *p, struct entity *e, bool wants)
{
	if (e->member.group)
		berth_member_runnable(&e->member, berth_nice_weight(p) >> 10, wants, scx_bpf_now());
}

/* A virtual distance of a thread whose weight changes: the same run time. */
static __always_inline s64 rescale(s64 distance, u64 old, u64 new)
{
	return distance < 0 ? -(s64)((u64)-distance * old / (new ?: 1))
			    : (s64)((u64)distance * old / (new ?: 1));
}

static __always_inline void read_sums(struct runq *rq, struct sums *s)
{
	bpf_spin_lock(&rq->lock);
	s->weight = rq->weight;
	s->wv = rq->wv;
	bpf_spin_unlock(&rq->lock);
	s->v0 = rq->v0;
}

/* V, rounded down. */
static __always_inline u64 mean(struct runq *rq, struct sums *s)
{
	s64 sum = s->wv - s->weight * s->v0;

	if (!s->weight)
		return s->v0;
	if (sum < 0)
		s->v0 -= ((u64)-sum + s->weight - 1) / s->weight;
	else
		s->v0 += (u64)sum / s->weight;
	rq->v0 = s->v0;
	return s->v0;
}

/* v <= V, without division. */
static __always_inline bool eligible(struct sums *s, u64 v)
{
	s64 sum = s->wv - s->weight * s->v0, key = v - s->v0, load = s->weight;
	/* Very light threads are far from V: keep the product within 63 bits. */
	u32 shift = (u64)(key + (1LL << 32)) > 1ULL << 33 ? 12 : 0;

	return sum >> shift >= (key >> shift) * load;
}

/* The slice p asks for: sched_setattr()'s, or the default. */
static __always_inline u64 slice_of(struct task_struct *p)
{
	u64 slice = 0;

	if (bpf_core_field_exists(p->se.custom_slice) && p->se.custom_slice) {
		slice = p->se.slice;
		/* Or the compiler would have one instruction read either variable. */
		asm volatile("" : "+r"(slice));
	}
	return slice ?: base_slice_ns;
}

static __always_inline void join(struct runq *rq, u64 weight, u64 v)
{
	bpf_spin_lock(&rq->lock);
	rq->nr++;
	rq->weight += weight;
	rq->wv += weight * v;
	bpf_spin_unlock(&rq->lock);
}

static __always_inline void leave(struct runq *rq, u64 weight, u64 v)
{
	bpf_spin_lock(&rq->lock);
	if (rq->nr)
		rq->nr--;
	rq->weight -= weight;
	rq->wv -= weight * v;
	bpf_spin_unlock(&rq->lock);
}

/* The running thread has run for ns more (or, corrected, less). */
static __always_inline void advance(struct runq *rq, s64 ns)
{
	u64 dv;

	if (!ns)
		return;
	dv = ns > 0 ? virtual_ns(ns, rq->curr_weight) : -virtual_ns(-ns, rq->curr_weight);
	rq->v += dv;
	bpf_spin_lock(&rq->lock);
	rq->wv += rq->curr_weight * dv;
	bpf_spin_unlock(&rq->lock);
}

/* Has the running thread reached its deadline? Then it gets the next one. */
static __always_inline bool renew(struct runq *rq)
{
	if (time_before(rq->v, rq->deadline))
		return false;
	rq->deadline = rq->v + virtual_ns(rq->slice, rq->curr_weight);
	return true;
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

/* Charge p, which runs here, what the kernel has charged it by now. */
static __always_inline void charge(struct runq *rq, struct task_struct *p)
{
	u64 sum = p->se.sum_exec_runtime;

	advance(rq, sum - rq->charged);
	rq->charged = sum;
	rq->charged_at = p->se.exec_start;
}

/* The same between ticks, when the kernel has not charged it yet: up to now by the task clock. */
static __always_inline void charge_ahead(struct runq *rq, u64 clock)
{
	s64 ns = clock - rq->charged_at;

	if (ns <= 0)
		return;
	advance(rq, ns);
	rq->charged += ns;
	rq->charged_at = clock;
}

/*
 * The running thread was alone until now: its deadline is the one the kernel's ticks would have
 * given it.
 */
static __always_inline void renew_at_ticks(struct runq *rq, u64 now)
{
	u64 v = rq->v - virtual_ns((now - berth_tick_phase_ns) % tick_ns, rq->curr_weight);
	u64 late, ticks;

	if (!time_before(v, rq->deadline)) {
		late = real_ns(v - rq->deadline, rq->curr_weight) / tick_ns;
		ticks = (rq->slice + tick_ns - 1) / tick_ns;
		v -= virtual_ns(late % (ticks ?: 1) * tick_ns, rq->curr_weight);
		rq->deadline = v + virtual_ns(rq->slice, rq->curr_weight);
	}
	renew(rq);
}

/* Others join or leave: what the running thread has had since it was last looked at counts. */
static __always_inline void catch_up(struct runq *rq, s32 cpu)
{
	if (!rq->curr)
		return;
	charge_ahead(rq, task_clock(cpu));
	if (rq->alone)
		renew_at_ticks(rq, scx_bpf_now());
	else
		renew(rq);
}

/* What is left of the running thread's protection, ns; without, it is looked at at every tick. */
static __always_inline u64 protection_ns(struct runq *rq)
{
	if (time_before(rq->v, rq->protected_to))
		return real_ns_until(rq->protected_to - rq->v, rq->curr_weight);
	return berth_hz ? 1 : tick_ns;
}

static __always_inline s64 bounded_lag(struct entity *e, s64 lag)
{
	s64 limit = virtual_ns((e->slice > base_slice_ns ? e->slice : base_slice_ns) + tick_ns,
			       e->weight);

	return lag > limit ? limit : lag < -limit ? -limit : lag;
}

/* Out of the sums, remembering the lag; `sleeps`: it will ask anew, else its request goes on. */
static __always_inline void detach(struct entity *e, struct runq *rq, bool sleeps)
{
	struct sums s;

	read_sums(rq, &s);
	e->lag = bounded_lag(e, mean(rq, &s) - e->v);
	leave(rq, e->weight, e->v);
	if (!sleeps && !e->relative) {
		e->deadline -= e->v;
		e->relative = true;
	}
	e->cpu = NOWHERE;
}

/* Into the competition on a CPU, with the lag it has. */
static __always_inline void place(struct task_struct *p, struct entity *e, struct runq *rq, s32 cpu)
{
	struct sums s;
	s64 lag = 0;
	u64 v, vslice;

	read_sums(rq, &s);
	v = mean(rq, &s);
	e->weight = weight_now(p, e);
	e->slice = slice_of(p);
	if (e->slice != base_slice_ns)
		any_slices = true;
	if (place_lag && e->lag && s.weight) {
		/* It will itself move V: more now, so that e->lag is left then. */
		lag = e->lag;
		if (lag < 0)
			lag -= (u64)-lag * e->weight / s.weight;
		else
			lag += (u64)lag * e->weight / s.weight;
	}
	e->v = v - lag;
	vslice = virtual_ns(e->slice, e->weight);
	if (e->relative)
		e->deadline += e->v;
	else
		e->deadline = e->v + (e->fresh ? vslice / 2 : vslice);
	if (e->fresh)
		e->request = e->slice / 2;
	e->relative = false;
	e->fresh = false;
	e->cpu = cpu;
	join(rq, e->weight, e->v);
}

/* Is p worth something else by now than what the sums count? Its new weight; 0: about the same. */
static __always_inline u64 other_weight(struct task_struct *p, struct entity *e)
{
	u64 weight;
	s64 more;

	if (!e->member.group)
		return 0;
	weight = weight_now(p, e);
	more = weight - e->weight;
	return (more < 0 ? -more : more) * 64 <= e->weight ? 0 : weight;
}

/*
 * What p's cgroups are worth may have changed while it ran. Its lag stays what it is in run time,
 * so V does, too.
 */
static __always_inline void reweight(struct task_struct *p, struct entity *e, struct runq *rq)
{
	u64 weight = other_weight(p, e), v, deadline;
	struct sums s;
	s64 lag;

	if (!weight)
		return;
	read_sums(rq, &s);
	v = mean(rq, &s);
	deadline = rescale(e->deadline - v, e->weight, weight);
	lag = rescale(v - e->v, e->weight, weight);
	leave(rq, e->weight, e->v);
	e->weight = weight;
	e->v = v - lag;
	e->deadline = v + deadline;
	join(rq, e->weight, e->v);
}

/* The same for p while it runs on a CPU, as the kernel does at its ticks. */
static __always_inline void reweight_running(struct task_struct *p, struct entity *e,
					     struct runq *rq, s32 cpu)
{
	u64 weight = other_weight(p, e), old = rq->curr_weight, v;
	struct sums s;

	if (!weight)
		return;
	catch_up(rq, cpu);
	read_sums(rq, &s);
	v = mean(rq, &s);
	leave(rq, old, rq->v);
	rq->protected_to = rescale(rq->protected_to - rq->v, old, weight);
	rq->deadline = v + rescale(rq->deadline - v, old, weight);
	rq->v = v + rescale(rq->v - v, old, weight);
	rq->protected_to += rq->v;
	rq->curr_weight = e->weight = weight;
	e->v = rq->v;
	join(rq, weight, rq->v);
}

static __always_inline struct shadow *shadow_at(struct runq *rq, u32 i)
{
	if (i >= SHADOWS)
		return NULL;
	/* The mask is for the verifier, which the compiler must not know. */
	asm volatile("" : "+r"(i));
	return &rq->shadows[i & (SHADOWS - 1)];
}

/* Forget shadow i. */
static __always_inline void drop_shadow(struct runq *rq, u32 i)
{
	struct shadow *sh = shadow_at(rq, i), *last;

	if (!sh || !rq->nr_shadows)
		return;
	leave(rq, sh->weight, sh->v);
	last = shadow_at(rq, --rq->nr_shadows);
	if (last)
		*sh = *last;
}

/* Index of the eligible shadow with the earliest deadline; SHADOWS: none. */
static __always_inline u32 first_shadow(struct runq *rq, struct sums *s)
{
	u32 best = SHADOWS, i;
	u64 deadline = 0;

	bpf_for(i, 0, rq->nr_shadows) {
		struct shadow *sh = shadow_at(rq, i);

		if (!sh)
			break;
		if ((best == SHADOWS || time_before(sh->deadline, deadline)) &&
		    eligible(s, sh->v)) {
			best = i;
			deadline = sh->deadline;
		}
	}
	return best;
}

static __always_inline u32 shadow_of(struct runq *rq, s32 pid)
{
	u32 found = SHADOWS, i;

	bpf_for(i, 0, rq->nr_shadows) {
		struct shadow *sh = shadow_at(rq, i);

		if (!sh)
			break;
		if (sh->pid == pid) {
			found = i;
			break;
		}
	}
	return found;
}

/*
 * A thread falls asleep or otherwise stops counting. With negative lag, a sleeper's shadow stays.
 */
static __always_inline void depart(struct task_struct *p, struct entity *e, struct runq *rq,
				   bool sleeps)
{
	struct shadow *sh;
	struct sums s;

	if (sleeps && delay_dequeue) {
		read_sums(rq, &s);
		sh = shadow_at(rq, rq->nr_shadows);
		if (sh && !eligible(&s, e->v)) {
			sh->v = e->v;
			sh->deadline = e->deadline;
			sh->weight = e->weight;
			sh->lag = bounded_lag(e, mean(rq, &s) - e->v);
			sh->pid = p->pid;
			rq->nr_shadows++;
			/* Its lag when the shadow will be gone: eligible, so not negative. */
			e->lag = 0;
			e->shadow = true;
			berth_count(shadows);
			return;
		}
	}
	detach(e, rq, sleeps);
}

/*
 * p wakes, and may have a shadow. True: its shadow has become p again, on the same CPU.
 */
static __always_inline bool reappear(struct task_struct *p, struct entity *e, s32 cpu)
{
	struct runq *rq = rq_of(e->cpu);
	struct shadow *sh;
	struct sums s;
	u32 i;

	e->shadow = false;
	if (!rq)
		return false;
	i = shadow_of(rq, p->pid);
	sh = shadow_at(rq, i);
	if (!sh) {
		e->cpu = NOWHERE;
		return false;
	}
	read_sums(rq, &s);
	e->lag = bounded_lag(e, mean(rq, &s) - e->v);
	if (e->lag < sh->lag)
		e->lag = sh->lag;
	if (delay_zero && e->lag > 0)
		e->lag = 0;
	if (e->cpu == cpu && e->lag < 0) {
		/* Still in debt: goes on where it was. */
		sh->weight = 0;
		sh->v = 0;
		bpf_spin_lock(&rq->lock);
		rq->nr++;
		bpf_spin_unlock(&rq->lock);
		drop_shadow(rq, i);
		return true;
	}
	drop_shadow(rq, i);
	e->cpu = NOWHERE;
	return false;
}

#endif
