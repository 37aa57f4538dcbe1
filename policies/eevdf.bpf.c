/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * eevdf: a model of Linux's fair scheduler (EEVDF as of 6.18 and later), in sched_ext.
 *
 * Idea. On each CPU every thread has a virtual run time v, which advances by its run time divided
 * by its weight. V is the mean of all v, weighted. Who has had no more than its share (v <= V) is
 * eligible; of those the one with the earliest virtual deadline v + slice / weight runs next. A
 * thread keeps the CPU until its deadline, as seen at the timer tick (RUN_TO_PARITY), unless a
 * waking one asks for a shorter slice. How far a sleeper is from V (its lag) is kept while it
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
 *  - No NEXT_BUDDY, core scheduling, NUMA balancing, capacity or energy awareness, SCHED_BATCH.
 *  - A deadline that passes while the thread is alone is renewed when somebody arrives, computed
 *    for the tick at which the kernel would have done it.
 *
 * Run time is the task clock (p->se.sum_exec_runtime), read ahead by the run queue's clock where
 * the kernel would have brought it up to date. Not good for: a production host, which has the real
 * one.
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
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
BERTH_PARAM(bool, wakeup_preemption, "bool", 1, 0, 1,
	    "A waking thread may take the CPU (WAKEUP_PREEMPTION)");

/* Written before load by name: timer ticks per second; 0: slices end exactly. */
const volatile u32 berth_hz = 250;

#define UNIT	20 /* a weight of 1 << UNIT is nice 0's; run time is virtual time there */
#define SHADOWS 8
#define NOWHERE -1

/* Weights of nice -20 to 19, and of SCHED_IDLE. */
static const u32 nice_weights[40] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
	9548,  7620,  6100,  4904,  3906,  3121,  2501,	 1991,	1586,  1277,
	1024,  820,   655,   526,   423,   335,	  272,	 215,	172,   137,
	110,   87,    70,    56,    45,	   36,	  29,	 23,	18,    15,
};
#define IDLE_WEIGHT 3
#define POLICY_IDLE 5 /* SCHED_IDLE */

/* A thread's part in the competition. */
struct entity {
	u64 v;	      /* virtual run time */
	u64 deadline; /* virtual; relative to v while `relative` */
	s64 lag;      /* V - v when it left */
	u64 weight;   /* as counted in the sums */
	u64 slice;    /* ns */
	s32 cpu;      /* whose sums count it; NOWHERE */
	bool queued;  /* waits in that CPU's queue */
	bool shadow;  /* sleeps, and still counts (until its shadow is gone) */
	bool relative;
	bool fresh; /* has never run */
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
	u64 charged; /* of p->se.sum_exec_runtime */
	u64 charged_at;
	s32 curr;     /* its pid; 0: none */
	u32 queued;   /* waiting here */
	bool alone;   /* it runs without end of slice */
	bool resched; /* has been told to choose anew */
	u8 nr_shadows;
	struct shadow shadows[SHADOWS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct runq);
} rqs_by_cpu SEC(".maps");

struct berth_stats {
	u64 idle;      /* woken onto an idle CPU */
	u64 queued;    /* had to wait */
	u64 preempted; /* took the CPU when it woke */
	u64 kept;      /* slice ended, still first: went on */
	u64 pulled;    /* taken over by an idle CPU */
	u64 shadows;   /* slept with negative lag and stayed */
};
BERTH_STATS;

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

static __always_inline u64 weight_of(struct task_struct *p)
{
	u32 nice = p->static_prio - 100;

	if (p->policy == POLICY_IDLE)
		return IDLE_WEIGHT << 10;
	return nice < 40 ? (u64)nice_weights[nice] << 10 : 1ULL << UNIT;
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
	if (key > 1LL << 32 || key < -(1LL << 32)) {
		sum >>= 12;
		key >>= 12;
	}
	return sum >= key * load;
}

/* The slice p asks for: sched_setattr()'s, or the default. */
static __always_inline u64 slice_of(struct task_struct *p)
{
	if (bpf_core_field_exists(p->se.custom_slice) && p->se.custom_slice && p->se.slice)
		return p->se.slice;
	return base_slice_ns;
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

/* Charge p, which runs here, what it has run by the task clock. */
static __always_inline void charge(struct runq *rq, struct task_struct *p)
{
	u64 sum = p->se.sum_exec_runtime;

	advance(rq, sum - rq->charged);
	rq->charged = sum;
	rq->charged_at = scx_bpf_now();
}

/* The same between ticks, when the task clock is behind. */
static __always_inline void charge_ahead(struct runq *rq, u64 now)
{
	s64 ns = now - rq->charged_at;

	if (ns <= 0)
		return;
	advance(rq, ns);
	rq->charged += ns;
	rq->charged_at = now;
}

/*
 * The running thread was alone until now: its deadline is the one the kernel's ticks would have
 * given it.
 */
static __always_inline void renew_at_ticks(struct runq *rq, u64 now)
{
	u64 v = rq->v - virtual_ns(now % tick_ns, rq->curr_weight), late, ticks;

	if (!time_before(v, rq->deadline)) {
		late = real_ns(v - rq->deadline, rq->curr_weight) / tick_ns;
		ticks = (rq->slice + tick_ns - 1) / tick_ns;
		v -= virtual_ns(late % (ticks ?: 1) * tick_ns, rq->curr_weight);
		rq->deadline = v + virtual_ns(rq->slice, rq->curr_weight);
	}
	renew(rq);
}

/* What is left of the running thread's protection, ns; without, it is looked at at every tick. */
static __always_inline u64 protection_ns(struct runq *rq)
{
	if (time_before(rq->v, rq->protected_to))
		return real_ns(rq->protected_to - rq->v, rq->curr_weight) ?: 1;
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
	e->weight = weight_of(p);
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
	e->relative = false;
	e->fresh = false;
	e->cpu = cpu;
	join(rq, e->weight, e->v);
}

static __always_inline struct shadow *shadow_at(struct runq *rq, u32 i)
{
	return i < SHADOWS ? &rq->shadows[i] : NULL;
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
	u32 i, best = SHADOWS;
	u64 deadline = 0;

	for (i = 0; i < SHADOWS; i++) {
		struct shadow *sh = &rq->shadows[i];

		if (i >= rq->nr_shadows)
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
	u32 i;

	for (i = 0; i < SHADOWS; i++) {
		if (i >= rq->nr_shadows)
			break;
		if (rq->shadows[i].pid == pid)
			return i;
	}
	return SHADOWS;
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

s32 BPF_STRUCT_OPS(eevdf_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct entity *e = entity_of(p);
	bool idle = false;
	struct runq *rq;
	s32 cpu;

	if (!e)
		return prev_cpu;
	if (e->shadow) {
		/* On the run queue for the kernel: it stays there. */
		rq = rq_of(e->cpu);
		if (rq && shadow_of(rq, p->pid) < SHADOWS &&
		    bpf_cpumask_test_cpu(e->cpu, p->cpus_ptr))
			return e->cpu;
	}
	if (bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) &&
	    scx_bpf_test_and_clear_cpu_idle(prev_cpu)) {
		cpu = prev_cpu;
		idle = true;
	} else {
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	}
	if (idle) {
		berth_count(idle);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, e->slice ?: base_slice_ns, 0);
	}
	return cpu;
}

/* Would e, not in the queue yet, be chosen on this CPU? */
static __always_inline bool first(struct runq *rq, struct entity *e, s32 cpu, bool protect)
{
	struct task_struct *p;
	struct entity *other;
	bool beaten = false;
	struct sums s;
	u32 i;

	read_sums(rq, &s);
	if (!eligible(&s, e->v))
		return false;
	if (eligible(&s, rq->v) && (time_before(rq->deadline, e->deadline) ||
				    (protect && time_before(rq->v, rq->protected_to))))
		return false;
	i = first_shadow(rq, &s);
	if (i < SHADOWS && time_before(rq->shadows[i].deadline, e->deadline))
		return false;
	p = rq->queued ? __COMPAT_scx_bpf_dsq_peek(cpu) : NULL;
	if (!p || time_after(p->scx.dsq_vtime, e->deadline))
		return true;
	bpf_for_each(scx_dsq, p, cpu, 0) {
		if (time_after(p->scx.dsq_vtime, e->deadline))
			break;
		other = entity_of(p);
		if (other && eligible(&s, other->v)) {
			beaten = true;
			break;
		}
	}
	return !beaten;
}

/* A thread has come to a CPU where another one runs. */
static __always_inline void check_preempt(struct runq *rq, struct entity *e, s32 cpu, bool overdue)
{
	bool shorter = preempt_short && e->slice < rq->slice;

	if (rq->resched)
		return;
	if (!overdue && wakeup_preemption && first(rq, e, cpu, !shorter)) {
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
	u64 now, slice;
	s64 ahead;

	if (!e || !rq) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
		return;
	}
	arrives = e->cpu != cpu || e->shadow;
	if (arrives && rq->curr) {
		now = scx_bpf_now();
		others = rq->nr > 1;
		charge_ahead(rq, now);
		if (rq->alone)
			renew_at_ticks(rq, now);
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
	slice = time_before(e->v, e->deadline) ? real_ns(e->deadline - e->v, e->weight) : 0;
	berth_count(queued);
	if (arrives && rq->curr) {
		check_preempt(rq, e, cpu, overdue);
		if (rq->alone) {
			/* From now on ticks look at the running thread. */
			rq->alone = false;
			curr = __COMPAT_scx_bpf_cpu_curr(cpu);
			if (curr && curr->pid == rq->curr) {
				ahead = scx_bpf_now() - curr->se.exec_start;
				if (ahead < 0 || ahead > tick_ns)
					ahead = 0;
				scx_bpf_task_set_slice(curr, protection_ns(rq) + ahead);
			}
		}
	}
	scx_bpf_dsq_insert_vtime(p, cpu, slice ?: 1, e->deadline, enq_flags);
}

/* Take over one waiting thread from the CPU near here with most of them. */
static __always_inline bool pull(s32 cpu)
{
	struct berth_cpu *topo = berth_cpu(cpu);
	struct task_struct *p;
	struct runq *rq;
	s32 busiest = NOWHERE, other, i;
	bool done = false;
	u32 most = 0;

	if (!topo)
		return false;
	other = topo->next_in_llc;
	bpf_for(i, 0, berth_nr_cpus) {
		if (other == cpu)
			break;
		rq = rq_of(other);
		topo = berth_cpu(other);
		if (!rq || !topo)
			break;
		if (rq->queued > most) {
			most = rq->queued;
			busiest = other;
		}
		other = topo->next_in_llc;
	}
	if (!most) {
		/* Nobody waits in this LLC. */
		bpf_for(i, 1, berth_nr_llcs > 1 ? berth_nr_cpus : 1) {
			other = (cpu + i) % berth_nr_cpus;
			rq = rq_of(other);
			if (rq && rq->queued > most) {
				most = rq->queued;
				busiest = other;
			}
		}
	}
	if (busiest < 0)
		return false;
	bpf_for_each(scx_dsq, p, busiest, 0) {
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr) || is_migration_disabled(p))
			continue;
		if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0)) {
			done = true;
			break;
		}
	}
	if (done)
		berth_count(pulled);
	return done;
}

/* Give the CPU to the waiting thread that is first among the eligible. */
static __always_inline bool hand_over(struct sums *s, s32 cpu)
{
	struct task_struct *p;
	struct entity *e;
	bool done = false;

	bpf_for_each(scx_dsq, p, cpu, 0) {
		e = entity_of(p);
		if (e && !eligible(s, e->v))
			continue;
		done = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		if (done)
			break;
	}
	return done;
}

/* Deadline of the first eligible waiting thread; false: there is none. */
static __always_inline bool first_waiting(struct sums *s, s32 cpu, u64 *deadline, bool *is_head)
{
	struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(cpu);
	struct entity *e;
	bool found = false;

	if (!p)
		return false;
	e = entity_of(p);
	*deadline = p->scx.dsq_vtime;
	*is_head = true;
	if (!e || eligible(s, e->v))
		return true;
	*is_head = false;
	bpf_for_each(scx_dsq, p, cpu, 0) {
		e = entity_of(p);
		if (e && eligible(s, e->v)) {
			*deadline = p->scx.dsq_vtime;
			found = true;
			break;
		}
	}
	return found;
}

void BPF_STRUCT_OPS(eevdf_dispatch, s32 cpu, struct task_struct *prev)
{
	struct runq *rq = rq_of(cpu);
	bool goes_on = false, is_head = true, waits;
	u64 deadline = 0;
	struct sums s;
	u32 i, sh;

	if (!rq)
		return;
	rq->resched = false;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED) && prev->pid == rq->curr) {
		goes_on = true;
		charge(rq, prev);
		renew(rq);
	}
	bpf_for(i, 0, SHADOWS + 1) {
		if (!rq->nr_shadows)
			break;
		read_sums(rq, &s);
		mean(rq, &s);
		sh = first_shadow(rq, &s);
		if (sh >= SHADOWS)
			break;
		if (goes_on && eligible(&s, rq->v) &&
		    (time_before(rq->deadline, rq->shadows[sh].deadline) ||
		     time_before(rq->v, rq->protected_to)))
			break;
		waits = first_waiting(&s, cpu, &deadline, &is_head);
		if (waits && !time_after(deadline, rq->shadows[sh].deadline))
			break;
		drop_shadow(rq, sh);
	}
	if (goes_on && rq->nr > 1) {
		read_sums(rq, &s);
		waits = first_waiting(&s, cpu, &deadline, &is_head);
		if (waits && eligible(&s, rq->v) &&
		    (time_before(rq->deadline, deadline) || time_before(rq->v, rq->protected_to)))
			waits = false;
	} else {
		read_sums(rq, &s);
		waits = !goes_on && first_waiting(&s, cpu, &deadline, &is_head);
	}
	if (waits && (is_head ? scx_bpf_dsq_move_to_local(cpu, 0) : hand_over(&s, cpu)))
		return;
	if (goes_on) {
		rq->alone = rq->nr == 1;
		scx_bpf_task_set_slice(prev, rq->alone ? SCX_SLICE_INF : protection_ns(rq));
		berth_count(kept);
		return;
	}
	if (scx_bpf_dsq_move_to_local(cpu, 0))
		return;
	pull(cpu);
}

/* Shortest slice of those who wait on a CPU. */
static __always_inline u64 shortest_slice(s32 cpu)
{
	struct task_struct *p;
	struct entity *e;
	u64 shortest = ~0ULL;

	bpf_for_each(scx_dsq, p, cpu, 0) {
		e = entity_of(p);
		if (e && e->slice < shortest)
			shortest = e->slice;
	}
	return shortest;
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
	rq->charged_at = scx_bpf_now();
	rq->curr = p->pid;
	rq->alone = false;
	rq->resched = false;
	if (!run_to_parity)
		shortest = base_slice_us * 1000;
	else
		shortest = any_slices && rq->queued ? shortest_slice(cpu) : e->slice;
	if (shortest < e->slice) {
		end = e->v + virtual_ns(shortest, e->weight);
		if (time_before(end, rq->protected_to))
			rq->protected_to = end;
		if (rq->nr > 1)
			scx_bpf_task_set_slice(p, protection_ns(rq));
	}
}

void BPF_STRUCT_OPS(eevdf_stopping, struct task_struct *p, bool runnable)
{
	struct entity *e = entity_of(p);
	struct runq *rq = rq_of(scx_bpf_task_cpu(p));

	if (!e || !rq || rq->curr != p->pid)
		return;
	charge(rq, p);
	renew(rq);
	e->v = rq->v;
	e->deadline = rq->deadline;
	rq->curr = 0;
	rq->alone = false;
}

void BPF_STRUCT_OPS(eevdf_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct entity *e = entity_of(p);
	struct runq *rq;

	if (!e || e->cpu == NOWHERE || e->shadow)
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
	struct sums s;

	if (to || !rq || rq->curr != from->pid)
		return false;
	charge(rq, from);
	renew(rq);
	read_sums(rq, &s);
	/* Who has had its share already has given up enough. */
	if (rq->nr > 1 && eligible(&s, rq->v)) {
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
	return 0;
}

/* p leaves the policy, or exits. */
void BPF_STRUCT_OPS(eevdf_disable, struct task_struct *p)
{
	struct entity *e = entity_of(p);
	struct runq *rq;

	if (!e || e->cpu == NOWHERE)
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

/* Present so that the kernel does not end the policy when CPUs come and go. */
void BPF_STRUCT_OPS(eevdf_cpu_online, s32 cpu)
{
}

void BPF_STRUCT_OPS(eevdf_cpu_offline, s32 cpu)
{
}

s32 BPF_STRUCT_OPS_SLEEPABLE(eevdf_init)
{
	u32 factor = 1, cpus = berth_nr_cpus < 8 ? berth_nr_cpus : 8;
	s32 cpu, err;

	if (scaling)
		factor += (cpus >= 2) + (cpus >= 4) + (cpus >= 8);
	base_slice_ns = base_slice_us * 1000 * factor;
	tick_ns = 1000000000 / (berth_hz ?: 1000);
	bpf_for(cpu, 0, berth_nr_cpus) {
		err = scx_bpf_create_dsq(cpu, -1);
		if (err)
			return err;
	}
	return 0;
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
	.cpu_online		= (void *)eevdf_cpu_online,
	.cpu_offline		= (void *)eevdf_cpu_offline,
	.init			= (void *)eevdf_init,
	.exit			= (void *)eevdf_exit,
	.timeout_ms		= 30000,
	.name			= "eevdf");
