/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who runs next on a CPU, for how long, and who is asked to give way to whoever has come. Turns end
 * by timers of the policy: a thread gets an endless kernel slice.
 */
#ifndef __BERTH_CREDIT2_QUEUE_BPF_H
#define __BERTH_CREDIT2_QUEUE_BPF_H

#define CPU_PIN	     2 /* BPF_F_TIMER_CPU_PIN */
#define SHORTEST_ARM 1000
#define TOLERANCE    50000 /* of the rate limit, for who wakes */

struct timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct timer);
} slices_by_cpu SEC(".maps");

static __always_inline void arm(struct pcpu *c, s32 cpu, u64 now)
{
	u32 key = cpu;
	struct timer *timer = bpf_map_lookup_elem(&slices_by_cpu, &key);
	s64 left = c->slice_end - now;

	if (timer)
		bpf_timer_start(&timer->timer, left > SHORTEST_ARM ? left : SHORTEST_ARM, CPU_PIN);
}

static int slice_over(void *map, u32 *cpu, struct bpf_timer *timer)
{
	struct pcpu *c = pcpu_at(*cpu);
	u64 now = scx_bpf_now();

	if (!c || !c->busy)
		return 0;
	if ((s64)(c->slice_end - now) > 0)
		arm(c, *cpu, now);
	else
		scx_bpf_kick_cpu(*cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* How long whoever runs on cpu may go on: until it has no more credit than the first that waits. */
__noinline int time_turn(s32 cpu, u32 slot)
{
	s64 lead, ns = 0, ran, least, theirs, left;
	struct pcpu *c = pcpu_at(cpu);
	struct runq *q = c ? runq_at(c->queue) : NULL;
	struct group *g = group_at(slot);
	u64 now = scx_bpf_now();
	struct task_struct *head;
	struct thread *first;

	if (!c || !q)
		return 0;
	head = __COMPAT_scx_bpf_dsq_peek(c->queue);
	first = head ? thread_of(head) : NULL;
	lead = credit_of(q, c->mark);
	ran = now - c->since;
	least = (s64)(ratelimit_us * 1000) - ran;
	if (least < (s64)(min_slice_us * 1000))
		least = min_slice_us * 1000;
	theirs = first ? credit_of(q, first->mark) : 0;
	if (theirs > 0)
		lead -= theirs;
	if (lead > 0)
		ns = lead * c->weight / (q->heaviest ?: 1);
	if (any_caps && g && g->cap_mcpu) {
		left = g->pool.left_ns;
		if (ns > left)
			ns = left;
	}
	if (ns < least)
		ns = least;
	if (ns > (s64)(max_slice_us * 1000))
		ns = max_slice_us * 1000;
	c->slice_end = now + ns;
	arm(c, cpu, now);
	return 0;
}

/* prev goes on. */
static __always_inline void keep(struct task_struct *prev, struct thread *t, s32 cpu)
{
	time_turn(cpu, t->slot);
	scx_bpf_task_set_slice(prev, SCX_SLICE_INF);
}

static __always_inline void begins(struct task_struct *p, struct thread *t, struct pcpu *c,
				   struct runq *q, s32 cpu)
{
	struct group *g = group_of(t);
	u64 now = scx_bpf_now();
	s64 credit;

	if (!g)
		return;
	/* It may have come from another queue by the kernel's hand. */
	if (t->queue != c->queue + 1)
		assign(t, c->queue);
	credit = credit_of(q, t->mark);
	if (t->last_cpu && t->last_cpu != cpu + 1) {
		credit += compensation_us * 1000;
		berth_count(moved);
	}
	t->last_cpu = cpu + 1;
	t->tickled = 0;
	c->mark = mark_of(q, credit);
	c->residual = t->residual;
	c->weight = vcpu_weight(g);
	if (q->heaviest < c->weight)
		q->heaviest = c->weight;
	c->pid = p->pid;
	c->since = c->burned_at = c->charged_at = now;
	c->busy = 1;
	time_turn(cpu, t->slot);
}

/* t last ran on another CPU of the queue, where it still may run: it takes credit to leave it. */
static __always_inline bool resists(struct task_struct *p, struct thread *t, struct pcpu *c,
				    s32 cpu)
{
	struct pcpu *last = t->last_cpu ? pcpu_at(t->last_cpu - 1) : NULL;

	return last && t->last_cpu != cpu + 1 && last->online && last->queue == c->queue &&
	       bpf_cpumask_test_cpu(t->last_cpu - 1, p->cpus_ptr);
}

/*
 * Puts the first of the queue on the CPU that has more credit than `floor`, may run there, was not
 * promised to another CPU, and has enough more than `best` if it ran elsewhere last time. Whether
 * there was one; its credit.
 */
static __always_inline bool take(struct pcpu *c, struct runq *q, s32 cpu, s64 floor, s64 best,
				 s64 *credit)
{
	struct task_struct *p;
	struct thread *t;
	struct pcpu *asked;
	bool taken = false;
	s64 its = 0;

	bpf_for_each(scx_dsq, p, c->queue, 0) {
		t = thread_of(p);
		if (!t)
			continue;
		its = credit_of(q, t->mark);
		if (its <= floor)
			break;
		if (at_cap(t)) {
			if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, PARKED, 0))
				berth_count(parked);
			continue;
		}
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		asked = t->tickled && t->tickled != cpu + 1 ? pcpu_at(t->tickled - 1) : NULL;
		if (asked && asked->tickled)
			continue;
		if (its < best + (s64)(resist_us * 1000) && resists(p, t, c, cpu))
			continue;
		taken = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		if (taken)
			break;
	}
	*credit = its;
	return taken;
}

static __always_inline void balance_soon(void);

/* Nobody has credit left, neither who is next nor who waits: a refill for all of the queue. */
__noinline int refill(u32 queue, s64 next)
{
	struct runq *q = runq_at(queue);
	u64 now = scx_bpf_now(), base, more = most();
	struct task_struct *head;
	struct thread *first;
	struct pcpu *c;
	u32 cpu, n, i;

	if (!q || next > 0)
		return 0;
	head = __COMPAT_scx_bpf_dsq_peek(queue);
	first = head ? thread_of(head) : NULL;
	if (first && credit_of(q, first->mark) > 0)
		return 0;
	base = q->base;
	cpu = q->first;
	n = q->cpus;
	if (next <= -most())
		more *= 2;
	/* Who runs is charged before what is above the limit is cut. */
	bpf_for(i, 0, n) {
		c = pcpu_at(cpu);
		if (!c)
			break;
		if (c->busy)
			burn(c, q, now);
		cpu = c->next;
	}
	/* One of two CPUs that come at once. */
	if (__sync_val_compare_and_swap(&q->base, base, base + more) != base)
		return 0;
	q->heaviest = q->heaviest_now ?: q->heaviest;
	q->heaviest_now = 0;
	berth_count(resets);
	if (nr_queues > 1)
		balance_soon();
	return 0;
}

/* Idle, or between two of ours: what has just joined the queue may have come too late for it. */
static __always_inline bool is_idle(s32 cpu, struct pcpu *c, struct choice *s)
{
	return !c->tickled && (!c->busy || has(&s->idle, cpu));
}

/* All threads of the core are idle, and none has been asked. */
__noinline bool core_is_idle(s32 cpu)
{
	struct choice *s = choice_here();
	struct berth_cpu *topo;
	struct pcpu *c;
	s32 at = cpu, i;
	bool all = true;

	if (!s)
		return false;
	bpf_for(i, 0, 8) {
		topo = berth_cpu(at);
		c = pcpu_at(at);
		if (!topo || !c)
			break;
		all = is_idle(at, c, s);
		at = topo->next_in_core;
		if (!all || at == cpu)
			break;
	}
	return all;
}

/* An idle CPU of the queue that affinity allows, an idle core at best, `own` first; or NO_CPU. Not
 * `leaves`, which is about to run somebody else. */
__noinline s32 idle_cpu(u32 queue, s32 own, s32 leaves)
{
	struct choice *s = choice_here();
	struct runq *q = runq_at(queue);
	s32 cpu = own, found = NO_CPU;
	struct pcpu *c;
	u32 i, n;

	if (!q || !s)
		return NO_CPU;
	n = q->cpus;
	bpf_for(i, 0, n) {
		c = pcpu_at(cpu);
		if (!c)
			break;
		if (has(&s->may, cpu) && is_idle(cpu, c, s) &&
		    (cpu != leaves || has(&s->idle, cpu))) {
			if (core_is_idle(cpu)) {
				found = cpu;
				break;
			}
			if (found < 0)
				found = cpu;
		}
		cpu = c->next;
	}
	return found;
}

/* The CPU of the queue whose vCPU has least credit, less than this; or NO_CPU. */
__noinline s32 weakest(u32 queue, s32 own, s64 credit)
{
	struct choice *s = choice_here();
	struct runq *q = runq_at(queue);
	u64 now = scx_bpf_now();
	s64 score, best = 0;
	s32 cpu = own, found = NO_CPU;
	struct pcpu *c;
	u32 i, n;

	if (!q || !s)
		return NO_CPU;
	n = q->cpus;
	bpf_for(i, 0, n) {
		c = pcpu_at(cpu);
		if (!c)
			break;
		if (has(&s->may, cpu) && c->busy && !c->tickled &&
		    now - c->since + TOLERANCE >= ratelimit_us * 1000) {
			score = credit - credit_now(c, q, now);
			if (cpu != own)
				score -= resist_us * 1000;
			if (score > best) {
				best = score;
				found = cpu;
			}
			if (found == own)
				break;
		}
		cpu = c->next;
	}
	return found;
}

/* t, whose affinity has been read, has joined its queue: who is asked to look? It comes from the
 * CPU `leaves`, unless that is NO_CPU. */
__noinline int tickle(struct thread *t, s32 leaves)
{
	struct choice *s = choice_here();
	const struct cpumask *idle;
	struct pcpu *last, *c;
	struct runq *q;
	s32 own, cpu;

	if (!t || !s)
		return 0;
	q = t->queue ? runq_at(t->queue - 1) : NULL;
	if (!q)
		return 0;
	idle = scx_bpf_get_idle_cpumask();
	read_mask(&s->idle, idle);
	scx_bpf_put_idle_cpumask(idle);
	keep_both(&s->may, &q->usable);
	last = t->last_cpu ? pcpu_at(t->last_cpu - 1) : NULL;
	own = last && last->queue + 1 == t->queue ? (s32)t->last_cpu - 1 : (s32)q->first;
	cpu = idle_cpu(t->queue - 1, own, leaves);
	c = cpu >= 0 ? pcpu_at(cpu) : NULL;
	if (c) {
		c->tickled = 1;
		/* Others leave t to it, unless a thread of another class may have the CPU. */
		if (scx_bpf_test_and_clear_cpu_idle(cpu)) {
			t->tickled = cpu + 1;
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		} else {
			scx_bpf_kick_cpu(cpu, 0);
		}
		return 0;
	}
	cpu = weakest(t->queue - 1, own, credit_of(q, t->mark));
	c = cpu >= 0 ? pcpu_at(cpu) : NULL;
	if (c) {
		berth_count(preempted);
		c->tickled = 1;
		t->tickled = cpu + 1;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	return 0;
}

/* A period of some cap has ended: who may run again goes back to its queue. */
static int period_over(void *map, int *key, struct bpf_timer *timer)
{
	struct choice *s = choice_here();
	struct task_struct *p;
	u64 next = 0, until;
	struct thread *t;
	struct group *g;

	if (!s)
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, PARKED, 0) {
		t = thread_of(p);
		g = group_of(t);
		if (!t || !g)
			continue;
		until = capped_until(g, 0);
		if (until) {
			if (!next || time_before(until, next))
				next = until;
			continue;
		}
		read_affinity(s, p);
		if (!settle(t))
			continue;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, t->mark);
		if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, t->queue - 1, 0))
			tickle(t, NO_CPU);
	}
	bpf_rcu_read_unlock();
	unparked(timer, scx_bpf_now(), next);
	return 0;
}

/* A CPU comes or goes. Whose queue has none left goes to other queues. */
static __always_inline void set_online(s32 cpu, bool online)
{
	struct pcpu *c = pcpu_at(cpu);
	struct runq *q = c ? runq_at(c->queue) : NULL;
	struct choice *s = choice_here();
	struct task_struct *p;
	struct thread *t;

	if (!c || !q || !s || c->online == online)
		return;
	c->online = online;
	c->tickled = 0;
	put(&q->usable, cpu, online);
	__sync_fetch_and_add(&q->online, online ? 1 : -1);
	if (q->online)
		return;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, c->queue, 0) {
		t = thread_of(p);
		if (!t)
			continue;
		read_affinity(s, p);
		if (!settle(t))
			continue;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, t->mark);
		if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, t->queue - 1, 0))
			tickle(t, NO_CPU);
	}
	bpf_rcu_read_unlock();
}

/* What shares a queue with cpu: the number of its scope, the same for all of a core. */
static __always_inline u32 scope_of(u32 cpu, struct berth_cpu *topo)
{
	switch (scope) {
	case 0:
		return cpu;
	case 1:
		return topo->core;
	case 2:
		return topo->llc;
	case 3:
		return topo->node;
	}
	return 0;
}

/* How many CPUs each scope has. */
static __always_inline void count_scopes(void)
{
	struct berth_cpu *topo;
	struct scope *s;
	u32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		topo = berth_cpu(cpu);
		s = topo ? scope_at(scope_of(cpu, topo)) : NULL;
		if (s)
			s->cpus++;
	}
}

/* How many threads the core has whose first this is. */
__noinline u32 threads_of(u32 cpu)
{
	struct berth_cpu *topo;
	u32 at = cpu, i;

	bpf_for(i, 0, berth_nr_cpus) {
		topo = berth_cpu(at);
		if (!topo || topo->next_in_core == cpu)
			break;
		at = topo->next_in_core;
	}
	return i + 1;
}

/* The queue of a CPU: that of its core, else the one that its scope fills, else a new one. CPUs
 * come in order, so that all but the last queue of a scope are full. */
__noinline s32 queue_for(u32 cpu)
{
	struct berth_cpu *topo = berth_cpu(cpu);
	struct scope *s;
	struct pcpu *c;
	u32 room;

	if (!topo)
		return -1;
	if (scope && topo->core < cpu) {
		c = pcpu_at(topo->core);
		return c ? (s32)c->queue : -1;
	}
	s = scope_at(scope_of(cpu, topo));
	if (!s || !s->cpus)
		return -1;
	room = s->cpus / ((s->cpus + most_cpus - 1) / most_cpus);
	if (!s->queue || s->filled >= room) {
		s->queue = ++nr_queues;
		s->filled = 0;
	}
	s->filled += scope ? threads_of(cpu) : 1;
	return s->queue - 1;
}

static __always_inline int make_queues(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	struct pcpu *c, *first;
	struct timer *timer;
	struct runq *q;
	s32 queue, err = 0;
	u32 cpu;

	count_scopes();
	bpf_for(cpu, 0, berth_nr_cpus) {
		queue = queue_for(cpu);
		c = pcpu_at(cpu);
		q = runq_at(queue);
		if (queue < 0 || !c || !q)
			continue;
		c->queue = queue;
		c->next = cpu;
		if (!q->cpus) {
			q->first = cpu;
			q->base = BASE;
			err = scx_bpf_create_dsq(queue, -1);
			if (err)
				break;
		}
		first = pcpu_at(q->first);
		if (first && q->cpus) {
			c->next = first->next;
			first->next = cpu;
		}
		q->cpus++;
		c->online = bpf_cpumask_test_cpu(cpu, online);
		q->online += c->online;
		put(&q->usable, cpu, c->online);
		timer = bpf_map_lookup_elem(&slices_by_cpu, &cpu);
		if (timer) {
			bpf_timer_init(&timer->timer, &slices_by_cpu, CLOCK_MONOTONIC);
			bpf_timer_set_callback(&timer->timer, slice_over);
		}
	}
	scx_bpf_put_cpumask(online);
	return err ?: scx_bpf_create_dsq(PARKED, -1);
}

#endif
