/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues, timers and the way of a thread through them, for policies on top of credit.bpf.h.
 *
 * Every pCPU has a queue (the DSQ of its number) ordered by class and arrival. Key: class in the
 * high bits, then a running number around MIDDLE. Parked vCPUs wait in a queue of their own.
 *
 * Slices, ticks and rate limits are ends of timers of the policy, not kernel ticks: a thread gets
 * an endless kernel slice, and a timer on its CPU asks for the next decision.
 *
 * Functions that are not static are verified once, by themselves, and as part of sleepable programs
 * too: hence their own bpf_rcu_read_lock().
 *
 * The includer defines
 *
 *	may_use(p, v, cpu)	    p may run on cpu: affinity, and what the policy adds to it
 *	narrow(v, set)		    what the policy adds, for all CPUs of the set
 *	queue_key(v, c, cpu, front) rank of v inside its class in that queue, below 2^59; mostly
 *				    arrival_key()
 *	choose_idle(p, v, c, cpu, idle) the idle pCPU to ask for p, which waits at cpu; or NO_CPU
 *	beats(v, curr, c, cpu)	    v, which waits at cpu, preempts curr
 *	rehome(p, v, cpu)	    a pCPU that p may use, as it may not use cpu
 */
#ifndef __BERTH_CREDIT_QUEUE_BPF_H
#define __BERTH_CREDIT_QUEUE_BPF_H

#define CLASS_SHIFT  60
#define MIDDLE	     (1ULL << 58)
#define PARKING	     (1ULL << 20) /* DSQ of the parked */
#define CPU_PIN	     2		  /* BPF_F_TIMER_CPU_PIN */
#define SHORTEST_ARM 1000

static s32 waiting; /* vCPUs in the queues of pCPUs */

struct timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct timer);
} ticks_by_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct timer);
} slices_by_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer);
} accounting SEC(".maps");

/* Sets of CPUs while one is chosen. Used by one decision of a CPU at a time; an interrupt in
 * between costs a worse choice. */
struct choice {
	struct cpu_set candidates;
	struct cpu_set idle;
	struct cpu_set zone;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct choice);
} choices_by_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct cpu_set);
} cpus_by_llc SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct cpu_set);
} cpus_by_node SEC(".maps");

static __always_inline bool may_use(struct task_struct *p, struct vcpu *v, s32 cpu);
static __always_inline void narrow(struct vcpu *v, struct cpu_set *set);
static __always_inline u64 queue_key(struct vcpu *v, struct pcpu *c, s32 cpu, bool front);
static __always_inline s32 choose_idle(struct task_struct *p, struct vcpu *v, struct pcpu *c,
				       s32 cpu, const struct cpumask *idle);
static __always_inline bool beats(struct vcpu *v, struct vcpu *curr, struct pcpu *c, s32 cpu);
static __always_inline s32 rehome(struct task_struct *p, struct vcpu *v, s32 cpu);

/* Arrival order inside the class; `front`: before all that are there. */
static __always_inline u64 arrival_key(struct pcpu *c, bool front)
{
	return front ? MIDDLE - __sync_fetch_and_add(&c->front, 1)
		     : MIDDLE + __sync_fetch_and_add(&c->back, 1);
}

static __always_inline u64 key_of(struct vcpu *v, struct pcpu *c, s32 cpu, bool front)
{
	return ((u64)v->pri << CLASS_SHIFT) | queue_key(v, c, cpu, front);
}

static __always_inline struct choice *choice_here(void)
{
	u32 here = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&choices_by_cpu, &here);
}

static __always_inline struct cpu_set *node_cpus(s32 node)
{
	u32 key = node;

	return bpf_map_lookup_elem(&cpus_by_node, &key);
}

/* The CPUs that p may use. */
static __noinline int usable(struct cpu_set *set, struct task_struct *p, struct vcpu *v)
{
	if (!set || !p || !v)
		return 0;
	read_mask(set, p->cpus_ptr);
	narrow(v, set);
	return 0;
}

/*
 * v has joined the queue of cpu. From ops.enqueue this comes just before the kernel puts it there:
 * a thief that looks in between may strike cpu off again. The next accounting puts that right.
 */
static __always_inline void joined(struct vcpu *v, s32 cpu)
{
	mark(&waiting_cpus, cpu);
	if (v->pri < OVER)
		mark(&better_cpus, cpu);
}

/* The first of the queue of cpu has left it: the next one may be better than it was. */
static __always_inline void first_left(s32 cpu)
{
	if (scx_bpf_dsq_nr_queued(cpu) > 0)
		mark(&better_cpus, cpu);
}

/* The queue of cpu has been seen empty. */
static __always_inline void emptied(s32 cpu)
{
	unmark(&waiting_cpus, cpu);
	unmark(&better_cpus, cpu);
	if (scx_bpf_dsq_nr_queued(cpu) > 0) {
		mark(&waiting_cpus, cpu);
		mark(&better_cpus, cpu);
	}
}

/* A thief that wanted better than pri found nothing in the queue of cpu. */
__noinline int found_nothing(s32 cpu, u32 pri)
{
	struct task_struct *first;
	struct vcpu *v;

	if (scx_bpf_dsq_nr_queued(cpu) <= 0) {
		emptied(cpu);
		return 0;
	}
	if (pri != OVER)
		return 0;
	unmark(&better_cpus, cpu);
	/* Whoever became better behind it counts from the next tick on, which sorts. */
	first = __COMPAT_scx_bpf_dsq_peek(cpu);
	v = first ? vcpu_of(first) : NULL;
	if (v && v->pri < OVER)
		mark(&better_cpus, cpu);
	return 0;
}

/* Count v in or out of `waiting`. */
static __always_inline void count_waiting(struct vcpu *v, bool waits)
{
	if (waits && !(__sync_fetch_and_or(&v->flags, VF_QUEUED) & VF_QUEUED))
		__sync_fetch_and_add(&waiting, 1);
	else if (!waits && (__sync_fetch_and_and(&v->flags, ~VF_QUEUED) & VF_QUEUED))
		__sync_fetch_and_sub(&waiting, 1);
}

/* Let the slice's end be noticed in time: by the next tick, or by a timer of its own. */
static __always_inline void arm_slice(struct pcpu *c, s32 cpu, u64 now)
{
	struct timer *t;
	u32 key = cpu;
	u64 left;

	if (c->slice_end >= c->next_tick)
		return;
	left = (s64)(c->slice_end - now) > SHORTEST_ARM ? c->slice_end - now : SHORTEST_ARM;
	t = bpf_map_lookup_elem(&slices_by_cpu, &key);
	if (t)
		bpf_timer_start(&t->timer, left, CPU_PIN);
}

/* Ticks of the pCPUs are spread over the period. */
static __always_inline void arm_tick(struct pcpu *c, s32 cpu, u64 now)
{
	u64 tick = tick_ns(), phase = tick * cpu / berth_nr_cpus, left;
	struct timer *t;
	u32 key = cpu;

	left = tick - (now - phase) % tick;
	c->next_tick = now + left;
	c->ticking = 1;
	t = bpf_map_lookup_elem(&ticks_by_cpu, &key);
	if (t)
		bpf_timer_start(&t->timer, left, CPU_PIN);
}

/* v has, or keeps, cpu from now on for ns. */
static __always_inline void give_slice(struct pcpu *c, s32 cpu, u64 now, u64 ns)
{
	c->slice_end = now + ns;
	if (!c->ticking)
		arm_tick(c, cpu, now);
	arm_slice(c, cpu, now);
}

static int slice_over(void *map, u32 *cpu, struct bpf_timer *timer)
{
	struct pcpu *c = pcpu_at(*cpu);
	u64 now = scx_bpf_now();

	if (!c || !c->curr)
		return 0;
	if ((s64)(c->slice_end - now) > 0)
		arm_slice(c, *cpu, now);
	else
		scx_bpf_kick_cpu(*cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* Idle CPUs that p may use, into `candidates`; of `node` only, unless negative. Whether any. */
static __noinline bool idle_for(struct choice *s, struct task_struct *p, struct vcpu *v,
				const struct cpumask *idle, s32 node)
{
	struct cpu_set *there;

	if (!s || !p || !v)
		return false;
	read_mask(&s->candidates, idle);
	usable(&s->zone, p, v);
	if (node >= 0) {
		there = node_cpus(node);
		if (there)
			keep_both(&s->zone, there);
	}
	return keep_both(&s->candidates, &s->zone);
}

/* First idle pCPU after the one asked last from c that p may use; on `node` only if that is not
 * negative. */
static __always_inline s32 find_idle(struct task_struct *p, struct vcpu *v, struct pcpu *c,
				     const struct cpumask *idle, s32 node)
{
	struct choice *s = choice_here();

	if (!s || !idle_for(s, p, v, idle, node))
		return NO_CPU;
	return next_in(&s->candidates, c->cursor);
}

/* Ask all idle pCPUs that p may use. */
static __always_inline void kick_idlers(struct task_struct *p, struct vcpu *v,
					const struct cpumask *idle)
{
	s32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		if (bpf_cpumask_test_cpu(cpu, idle) && may_use(p, v, cpu))
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
}

/* The vCPU that runs on a pCPU that is not idle. NULL: a thread of another class, which gives way
 * to nobody; whoever of ours comes after it will look who has come (core_running()). */
static __always_inline struct vcpu *runs_on(struct pcpu *c)
{
	if (!c->curr)
		__sync_lock_test_and_set(&c->missed, 1);
	/* It may have come meanwhile, and looked before. */
	return c->curr ? vcpu_at(c->curr) : NULL;
}

/* p has joined the queue of cpu: who is asked to look? */
static __always_inline void tickle(s32 cpu, struct task_struct *p, struct vcpu *v)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool none = bpf_cpumask_empty(idle), wins;
	struct pcpu *c = pcpu_at(cpu);
	s32 found = NO_CPU;
	struct vcpu *curr;

	if (!c)
		goto out;
	if (bpf_cpumask_test_cpu(cpu, idle)) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		goto out;
	}
	curr = runs_on(c);
	wins = curr && beats(v, curr, c, cpu);
	if (tickle_all || none) {
		if (wins)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		if (!none)
			kick_idlers(p, v, idle);
		goto out;
	}
	found = choose_idle(p, v, c, cpu, idle);
	if (found >= 0) {
		c->cursor = found;
		scx_bpf_kick_cpu(found, SCX_KICK_IDLE);
	} else if (wins && curr) {
		if (migrate_for_wakeup)
			set_flag(curr, VF_MIGRATING);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
out:
	scx_bpf_put_idle_cpumask(idle);
}

/* Put p into the queue of cpu. `front`: before its equals. */
static __always_inline void queue_on(struct task_struct *p, struct vcpu *v, s32 cpu, bool front,
				     u64 enq_flags)
{
	struct pcpu *c = pcpu_at(cpu);
	struct task_struct *q;
	struct vcpu *other;
	u64 key;

	if (!c) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_INF, enq_flags);
		return;
	}
	key = key_of(v, c, cpu, front);
	if (v->flags & VF_YIELDED) {
		/* Behind the first of a lower class, if there is one. */
		bpf_for_each(scx_dsq, q, cpu, 0) {
			other = vcpu_of(q);
			if (!other || other->pri <= v->pri)
				continue;
			key = q->scx.dsq_vtime;
			break;
		}
		clear_flag(v, VF_YIELDED);
	}
	v->cpu = cpu;
	count_waiting(v, true);
	joined(v, cpu);
	scx_bpf_dsq_insert_vtime(p, cpu, SCX_SLICE_INF, key, enq_flags);
}

/* Any online pCPU that p may use, the lowest; cpu, if there is none. */
static __always_inline s32 first_usable(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	struct choice *s = choice_here();

	if (!s)
		return cpu;
	usable(&s->zone, p, v);
	if (!keep_both(&s->zone, &online_cpus))
		return cpu;
	return next_in(&s->zone, berth_nr_cpus - 1);
}

/* The pCPU whose queue p can wait in: where it is, if it may. */
static __always_inline s32 home_of(struct task_struct *p, struct vcpu *v)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct pcpu *c = pcpu_at(cpu);

	return c && c->online && may_use(p, v, cpu) ? cpu : rehome(p, v, cpu);
}

/* Sort the queue of cpu as its vCPUs' classes, or with `ranks` their ranks, have become. */
__noinline int sort_queue(s32 cpu, bool ranks)
{
	struct pcpu *c = pcpu_at(cpu);
	struct task_struct *p;
	struct vcpu *v;
	bool changed = ranks;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		if (changed)
			break;
		v = vcpu_of(p);
		changed = v && p->scx.dsq_vtime >> CLASS_SHIFT != v->pri;
	}
	if (!changed || !c)
		goto out;
	/* Moved ones are not met again. */
	bpf_for_each(scx_dsq, p, cpu, 0) {
		v = vcpu_of(p);
		if (!v)
			continue;
		if (v->pri < OVER)
			mark(&better_cpus, cpu);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, key_of(v, c, cpu, false));
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, cpu, 0);
	}
out:
	bpf_rcu_read_unlock();
	return 0;
}

/* Move the newly parked out of the queue of cpu. */
__noinline int park_queued(s32 cpu)
{
	struct task_struct *p;
	struct vcpu *v;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		v = vcpu_of(p);
		if (!v || !(v->flags & VF_PARKED))
			continue;
		if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, PARKING, 0)) {
			set_flag(v, VF_HELD);
			count_waiting(v, false);
			first_left(cpu);
		}
	}
	bpf_rcu_read_unlock();
	return 0;
}

/* Back to their pCPUs' queues. */
__noinline int unpark_held(void)
{
	struct task_struct *p;
	struct pcpu *c;
	struct vcpu *v;
	s32 cpu;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, PARKING, 0) {
		v = vcpu_of(p);
		if (!v || (v->flags & VF_PARKED))
			continue;
		cpu = home_of(p, v);
		c = pcpu_at(cpu);
		if (!c)
			continue;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, key_of(v, c, cpu, false));
		if (!scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, cpu, 0))
			continue;
		clear_flag(v, VF_HELD);
		v->cpu = cpu;
		count_waiting(v, true);
		joined(v, cpu);
		tickle(cpu, p, v);
	}
	bpf_rcu_read_unlock();
	return 0;
}

/* After an accounting: whoever was parked stops and leaves its queue, whoever was let go comes
 * back. An idle pCPU with a queue has missed a call (a CPU of another class came between). */
static __always_inline void settle_parked(void)
{
	const struct cpumask *idle;
	struct vcpu *v;
	struct pcpu *c;
	s32 cpu;

	idle = scx_bpf_get_idle_cpumask();
	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (!c)
			continue;
		if (to_park) {
			v = c->curr ? vcpu_at(c->curr) : NULL;
			if (v && (v->flags & VF_PARKED))
				scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
			park_queued(cpu);
		}
		if (scx_bpf_dsq_nr_queued(cpu) <= 0)
			continue;
		mark(&waiting_cpus, cpu);
		if (bpf_cpumask_test_cpu(cpu, idle))
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
	scx_bpf_put_idle_cpumask(idle);
	if (to_unpark)
		unpark_held();
}

/* cpu is gone: its queue goes to others. */
static __always_inline void drain_queue(s32 cpu)
{
	struct task_struct *p;
	struct pcpu *c;
	struct vcpu *v;
	s32 to;

	bpf_for_each(scx_dsq, p, cpu, 0) {
		v = vcpu_of(p);
		if (!v)
			continue;
		to = home_of(p, v);
		c = pcpu_at(to);
		if (!c || to == cpu)
			continue;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, key_of(v, c, to, false));
		if (!scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, to, 0))
			continue;
		v->cpu = to;
		joined(v, to);
		scx_bpf_kick_cpu(to, 0);
	}
}

#endif
