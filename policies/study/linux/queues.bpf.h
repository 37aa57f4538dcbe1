/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Run queues per CPU as Linux's schedulers have had them: what each weighs, on which CPU a thread
 * begins or wakes, and how waiting threads get to other CPUs. For o1, cfs and rr.
 *
 * Source: kernel/sched.c of 2.6.21 and 2.6.33 (find_busiest_group, move_tasks, wake_affine,
 * idle_balance); nothing is copied.
 *
 * The includer defines before this header, with linux/state.bpf.h,
 *
 *	QUEUES		dispatch queues of a CPU; numbered from CPU x QUEUES
 *	NICE_0_LOAD	weight of a thread of nice 0
 *	MOVE_HALVES	1: half a thread's weight must be left to move, 0: all of it
 *	hot_ns()	who ran this lately is moved only after attempts in vain
 *	struct entity	of a thread: s32 cpu (NOWHERE at first); bool on; u64 weight, ran_at, key
 *	struct runq	of a CPU: struct bpf_spin_lock lock; u32 nr; u64 load;
 *			struct balance bal
 *
 * with whatever else it keeps of them, and after it the hooks
 *
 *	weight_now(p, e)		what a thread weighs
 *	next_queue(rq, cpu, i)		a CPU's queues, in the order in which threads leave it
 *	moves(p, e, from, to)		p will count on another CPU; from: NULL if it has had none
 *	waits_at(e, rq, cpu)		the queue in which it waits there, under e->key
 *	arrived(p, e, rq, cpu)		it waits there: may it take the CPU?
 *
 * Deviations from the kernel, of all three policies.
 *  - Loads are weights at the moment, not means over ticks (cpu_load[]).
 *  - Domains are the LLC and the machine; SMT is none. Balance is looked for every STEP_NS at most,
 *    and every CALM_NS while nobody waits.
 *  - An idle CPU takes over one thread at a time.
 *  - Of a queue the first thread is taken first; O(1) begins with the last of a priority.
 *  - The running thread is not pushed away ("active balance"); each attempt in vain doubles the
 *    weight that may be moved instead.
 *  - Kernel threads bound to a CPU get it at once: timers and the policy depend on them.
 */
#ifndef __LINUX_QUEUES_BPF_H
#define __LINUX_QUEUES_BPF_H

#include "linux/state.bpf.h"

#define MOVES	     32
#define STEP_NS	     4000000ULL
#define CALM_NS	     16000000ULL
#define PERCENT	     125 /* imbalance_pct of the levels MC, CPU and NODE */
#define WAKE_PERCENT (100 + (PERCENT - 100) / 2)
#define VAIN	     2 /* attempts after which who ran lately is moved, too */

struct llc {
	u64 load;
	u32 nr; /* runnable threads */
	u32 cpus;
	s32 first; /* CPU */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, struct llc);
} llcs_by_llc SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct runq);
} rqs_by_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct entity);
} entities SEC(".maps");

struct balancer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct balancer);
} balancers SEC(".maps");

static __always_inline u64 weight_now(struct task_struct *p, struct entity *e);
static __always_inline u64 next_queue(struct runq *rq, s32 cpu, u32 i);
static __always_inline void moves(struct task_struct *p, struct entity *e, struct runq *from,
				  struct runq *to);
static __always_inline u64 waits_at(struct entity *e, struct runq *rq, s32 cpu);
static __always_inline void arrived(struct task_struct *p, struct entity *e, struct runq *rq,
				    s32 cpu);

static __always_inline struct entity *entity_of(struct task_struct *p)
{
	return bpf_task_storage_get(&entities, p, 0, 0);
}

static __always_inline struct runq *rq_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&rqs_by_cpu, &key);
}

static __always_inline struct llc *llc_at(u32 key)
{
	return bpf_map_lookup_elem(&llcs_by_llc, &key);
}

static __always_inline bool bound_kthread(struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

static __always_inline bool allowed(struct task_struct *p, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* p, counted on its CPU, begins or ceases to count there. */
static __always_inline void count(struct entity *e, bool in)
{
	struct runq *rq = rq_of(e->cpu);
	struct llc *llc = llc_at(berth_llc(e->cpu));

	if (!rq || e->on == in)
		return;
	e->on = in;
	bpf_spin_lock(&rq->lock);
	if (in) {
		rq->nr++;
		rq->load += e->weight;
	} else {
		rq->nr--;
		rq->load -= e->weight;
	}
	bpf_spin_unlock(&rq->lock);
	if (!llc)
		return;
	__sync_fetch_and_add(&llc->nr, in ? 1 : -1);
	__sync_fetch_and_add(&llc->load, in ? e->weight : -e->weight);
}

/* p counts on this CPU from now on. */
static __always_inline void settle(struct task_struct *p, struct entity *e, struct runq *rq,
				   s32 cpu)
{
	if (e->on && e->cpu == cpu)
		return;
	if (e->cpu != cpu)
		moves(p, e, e->cpu == NOWHERE ? NULL : rq_of(e->cpu), rq);
	count(e, false);
	e->cpu = cpu;
	e->weight = weight_now(p, e);
	count(e, true);
}

/* p is worth something else than what was counted. */
static __always_inline void reweigh(struct task_struct *p, struct entity *e)
{
	u64 weight = weight_now(p, e);
	bool on = e->on;

	if (weight == e->weight)
		return;
	count(e, false);
	e->weight = weight;
	if (on)
		count(e, true);
}

/* For a new thread: the allowed CPU with the least to do, if that is clearly less than here. */
static __always_inline s32 least_loaded(struct task_struct *p, s32 here)
{
	struct runq *rq = rq_of(here);
	u64 least = ~0ULL, own = rq ? rq->load : 0;
	s32 best = here, i;

	bpf_for(i, 0, berth_nr_cpus) {
		rq = rq_of(i);
		if (rq && rq->bal.online && rq->load < least && allowed(p, i)) {
			least = rq->load;
			best = i;
		}
	}
	return allowed(p, here) && 100 * own <= WAKE_PERCENT * least ? here : best;
}

/* The first idle CPU in a ring that p may use, by number; NOWHERE. */
static __always_inline s32 idle_in_ring(struct task_struct *p, s32 start, bool core)
{
	s32 cpu = start, found = NOWHERE, i;
	struct berth_cpu *topo;
	struct runq *rq;

	bpf_for(i, 0, berth_nr_cpus) {
		rq = rq_of(cpu);
		topo = berth_cpu(cpu);
		if (!rq || !topo)
			break;
		if (!rq->nr && rq->bal.online && allowed(p, cpu) && (found < 0 || cpu < found))
			found = cpu;
		cpu = core ? topo->next_in_core : topo->next_in_llc;
		if (cpu == start)
			break;
	}
	return found;
}

/*
 * wake_affine: does p, which ran on prev, wake on the waker's CPU instead? `synced` is the weight
 * of a waker that is about to sleep.
 */
static __always_inline bool wakes_near(u64 weight, s32 waker, s32 prev, u64 synced)
{
	struct runq *here = rq_of(waker), *there = rq_of(prev);
	u64 load, per_task;

	if (!here || !there || !here->bal.online)
		return false;
	load = here->load > synced ? here->load - synced : 0;
	per_task = here->nr ? here->load / here->nr : NICE_0_LOAD;
	if (load <= there->load && load + there->load <= per_task)
		return true;
	return 100 * (load + weight) <= WAKE_PERCENT * there->load;
}

/* Weight that makes `ours` and `most` more equal (per CPU); 0: leave them alone. */
static __always_inline u64 imbalance(u64 most, u32 most_nr, u64 ours, u32 our_nr, u64 mean)
{
	u64 per_task = most / (most_nr ?: 1), amount, here;

	if (ours >= most || ours >= mean || 100 * most <= PERCENT * ours)
		return 0;
	amount = most - mean;
	if (most - per_task < amount)
		amount = most - per_task;
	if (mean - ours < amount)
		amount = mean - ours;
	if (amount >= per_task)
		return amount;
	here = our_nr ? ours / our_nr : NICE_0_LOAD;
	return most - ours >= per_task * (our_nr && per_task > here ? 1 : 2) ? per_task : 0;
}

/* The CPU of an LLC with the highest load of those where somebody waits; NOWHERE. */
__noinline s32 linux_busiest_in(s32 start, s32 but)
{
	s32 cpu = start, found = NOWHERE, i;
	struct berth_cpu *topo;
	struct runq *rq;
	u64 most = 0;

	bpf_for(i, 0, berth_nr_cpus) {
		rq = rq_of(cpu);
		topo = berth_cpu(cpu);
		if (!rq || !topo)
			break;
		if (cpu != but && rq->nr > 1 && rq->load > most) {
			most = rq->load;
			found = cpu;
		}
		cpu = topo->next_in_llc;
		if (cpu == start)
			break;
	}
	return found;
}

/*
 * Where this CPU may take threads from, at a level: NOWHERE, or a CPU; the weight to take is in
 * bal.amount.
 */
__noinline s32 linux_busiest(s32 cpu, u32 level)
{
	struct runq *to = rq_of(cpu), *from;
	struct llc *own = llc_at(berth_llc(cpu)), *llc, *most = NULL;
	u64 total = 0, cpus = 0, load, highest = 0;
	s32 busiest, i;

	if (!to || !own || !to->bal.online)
		return NOWHERE;
	to->bal.amount = 0;
	if (!level) {
		busiest = linux_busiest_in(own->first, cpu);
		from = busiest < 0 ? NULL : rq_of(busiest);
		if (!from)
			return NOWHERE;
		to->bal.amount = imbalance(from->load, from->nr, to->load, to->nr,
					   own->load / (own->cpus ?: 1));
		return to->bal.amount ? busiest : NOWHERE;
	}
	bpf_for(i, 0, berth_nr_llcs) {
		llc = llc_at(i);
		if (!llc)
			break;
		total += llc->load;
		cpus += llc->cpus;
		load = llc->load / (llc->cpus ?: 1);
		if (llc != own && llc->nr > llc->cpus && load > highest) {
			highest = load;
			most = llc;
		}
	}
	if (!most)
		return NOWHERE;
	to->bal.amount =
		imbalance(highest, most->nr / (most->cpus ?: 1), own->load / (own->cpus ?: 1),
			  own->nr / (own->cpus ?: 1), total / (cpus ?: 1));
	return to->bal.amount ? linux_busiest_in(most->first, cpu) : NOWHERE;
}

/* May p go to this CPU, with this much weight to move? */
static __always_inline bool may_move(struct task_struct *p, struct entity *e, struct runq *to,
				     s32 cpu)
{
	if (!allowed(p, cpu) || is_migration_disabled(p))
		return false;
	if (to->bal.failed <= VAIN && scx_bpf_now() - e->ran_at < hot_ns())
		return false;
	return e->weight >> (to->bal.failed + MOVE_HALVES) <= to->bal.amount;
}

/* An idle CPU takes a thread from another CPU's queue. */
__noinline bool linux_take(s32 cpu, u64 queue)
{
	struct runq *to = rq_of(cpu);
	struct task_struct *p;
	struct entity *e;
	bool done = false;

	if (!to)
		return false;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, queue, 0) {
		e = entity_of(p);
		if (!e || !may_move(p, e, to, cpu))
			continue;
		done = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		if (done)
			break;
	}
	bpf_rcu_read_unlock();
	return done;
}

/* This CPU goes idle unless it finds work elsewhere. */
__noinline bool linux_pull(s32 cpu)
{
	struct runq *to = rq_of(cpu), *rq;
	bool done = false, found = false;
	u32 level, i;
	s32 from;

	if (!to)
		return false;
	bpf_for(level, 0, LEVELS) {
		from = done ? NOWHERE : linux_busiest(cpu, level);
		rq = from < 0 ? NULL : rq_of(from);
		if (!rq)
			continue;
		found = true;
		bpf_for(i, 0, QUEUES)
			done = done || linux_take(cpu, next_queue(rq, from, i));
	}
	if (done || !found)
		to->bal.failed = 0;
	else if (to->bal.looks && to->bal.failed < 10)
		to->bal.failed++;
	to->bal.looks = false;
	return done;
}

/* A busy CPU takes waiting threads over from another CPU's queue. Returns how many. */
__noinline u32 linux_move(s32 cpu, s32 from, u64 queue)
{
	struct runq *to = rq_of(cpu);
	struct task_struct *p;
	struct entity *e;
	u64 dst;

	if (!to)
		return 0;
	to->bal.moved = 0; /* no local counter, whose every value the verifier would walk through */
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, queue, 0) {
		e = entity_of(p);
		if (!to->bal.amount || to->bal.moved >= MOVES)
			break;
		if (!e || e->cpu != from || !may_move(p, e, to, cpu))
			continue;
		settle(p, e, to, cpu);
		dst = waits_at(e, to, cpu);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, e->key);
		if (!scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, dst, 0))
			break; /* it has begun to run, where it will be counted again */
		to->bal.moved++;
		to->bal.amount -= e->weight < to->bal.amount ? e->weight : to->bal.amount;
		arrived(p, e, to, cpu);
	}
	bpf_rcu_read_unlock();
	return to->bal.moved;
}

/* Is it time for this CPU to look for balance? Returns how many threads run or wait here. */
__noinline u32 linux_look(s32 cpu)
{
	struct runq *rq = rq_of(cpu), *most;
	u32 level, i, ms, busy, moved, nr;
	u64 now = scx_bpf_now();
	s32 from;

	if (!rq || !rq->bal.online)
		return 0;
	nr = rq->nr;
	/*
	 * Whoever came here while the CPU went idle, by linux_move or woken while `dispatch` had
	 * let go of the run queue's lock: nobody has told it. (One that wakes just now is told
	 * twice.)
	 */
	if (nr)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	bpf_for(level, 0, LEVELS) {
		if (level >= LEVELS || (level && berth_nr_llcs < 2))
			break;
		if (time_before(now, rq->bal.at[level]))
			continue;
		ms = rq->bal.interval_ms[level] ?: level ? 8 : 1;
		from = linux_busiest(cpu, level);
		most = from < 0 ? NULL : rq_of(from);
		moved = 0;
		if (most && !nr) {
			rq->bal.looks = true;
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		} else if (most) {
			bpf_for(i, 0, QUEUES)
				moved += linux_move(cpu, from, next_queue(most, from, i));
			if (moved)
				berth_count(balanced);
			if (moved)
				rq->bal.failed = 0;
			else if (rq->bal.failed < 10)
				rq->bal.failed++;
		}
		if (most)
			ms = level ? 8 : 1;
		else if (ms < (level ? 32 : 4))
			ms *= 2;
		rq->bal.interval_ms[level] = ms;
		busy = !nr ? 1 : level ? 32 : 64;
		rq->bal.at[level] = now + ms * busy * 1000000ULL;
	}
	return nr;
}

/* Not started by who has to wait: Linux 6.18 hangs on a timer that `enqueue` starts. */
static int rebalance(void *map, int *key, struct bpf_timer *timer)
{
	bool waiting = false;
	s32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		if (linux_look(cpu) > 1)
			waiting = true;
	}
	bpf_timer_start(timer, waiting ? STEP_NS : CALM_NS, 0);
	return 0;
}

static __always_inline void set_online(s32 cpu, bool online)
{
	struct runq *rq = rq_of(cpu);
	struct llc *llc = llc_at(berth_llc(cpu));

	if (!rq || !llc || rq->bal.online == online)
		return;
	rq->bal.online = online;
	__sync_fetch_and_add(&llc->cpus, online ? 1 : -1);
}

/* From ops.init: queues, CPUs, timer. */
static __always_inline s32 queues_init(void)
{
	const struct cpumask *online;
	struct balancer *b;
	struct llc *llc;
	u32 first = 0;
	s32 i, cpu, err;

	bpf_for(i, 0, berth_nr_cpus * QUEUES) {
		err = scx_bpf_create_dsq(i, -1);
		if (err)
			return err;
	}
	online = scx_bpf_get_online_cpumask();
	bpf_for(i, 0, berth_nr_cpus) {
		cpu = berth_nr_cpus - 1 - i;
		llc = llc_at(berth_llc(cpu));
		if (!llc || !bpf_cpumask_test_cpu(cpu, online))
			continue;
		llc->first = cpu;
		set_online(cpu, true);
	}
	scx_bpf_put_cpumask(online);
	b = bpf_map_lookup_elem(&balancers, &first);
	if (!b)
		return -ENOENT;
	bpf_timer_init(&b->timer, &balancers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&b->timer, rebalance);
	return berth_nr_cpus > 1 ? bpf_timer_start(&b->timer, CALM_NS, 0) : 0;
}

#endif
