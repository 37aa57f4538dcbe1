/* SPDX-License-Identifier: GPL-2.0-only */
/* Between credit2's queues: after a refill, the exchange that makes two loads most alike. */
#ifndef __BERTH_CREDIT2_BALANCE_BPF_H
#define __BERTH_CREDIT2_BALANCE_BPF_H

#define LISTED 32

struct listed {
	s32 pid;
	u32 waits;
	s64 load;
};

struct lists {
	struct listed of[2][LISTED];
	u32 n[2];
	s64 best;
	u32 push, pull; /* + 1; 0: nobody */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct lists);
} exchanges_by_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct timer);
} balances_by_cpu SEC(".maps");

static __always_inline struct lists *lists_here(void)
{
	u32 here = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&exchanges_by_cpu, &here);
}

/* Once the present decision is over, on this CPU. */
static __always_inline void balance_soon(void)
{
	u32 here = bpf_get_smp_processor_id();
	struct timer *timer = bpf_map_lookup_elem(&balances_by_cpu, &here);

	if (timer)
		bpf_timer_start(&timer->timer, SHORTEST_ARM, CPU_PIN);
}

static __always_inline void list(struct lists *l, u32 side, struct task_struct *p, bool waits,
				 struct runq *to, u64 now)
{
	struct thread *t = thread_of(p);
	struct choice *s = choice_here();
	u32 n = l->n[side & 1];

	if (!t || !s || t->target || n >= LISTED)
		return;
	read_affinity(s, p);
	if (!reaches(s, to))
		return;
	average(&t->load, t->runnable, now);
	l->of[side & 1][n % LISTED].pid = p->pid;
	l->of[side & 1][n % LISTED].waits = waits;
	l->of[side & 1][n % LISTED].load = t->load.avg;
	l->n[side & 1] = n + 1;
}

/* Those that wait in a queue or run on its CPUs, and may go to the other one. */
__noinline int list_all(u32 queue, u32 other, u32 side)
{
	struct runq *q = runq_at(queue), *to = runq_at(other);
	struct task_struct *p;
	struct lists *l;
	struct pcpu *c;
	u64 now = scx_bpf_now();
	u32 cpu, n, i;

	l = lists_here();
	if (!l || !q || !to)
		return 0;
	l->n[side & 1] = 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, queue, 0) {
		list(l, side, p, true, to, now);
		if (l->n[side & 1] >= LISTED)
			break;
	}
	cpu = q->first;
	n = q->cpus;
	bpf_for(i, 0, n) {
		c = pcpu_at(cpu);
		if (!c)
			break;
		p = c->busy ? bpf_task_from_pid(c->pid) : NULL;
		if (p) {
			list(l, side, p, false, to, now);
			bpf_task_release(p);
		}
		cpu = c->next;
	}
	bpf_rcu_read_unlock();
	return 0;
}

/* Would it be more alike if `push` went there and `pull` came here? */
static __always_inline void try(struct lists *l, s64 here, s64 there, u32 push, u32 pull)
{
	s64 goes = push ? l->of[0][(push - 1) % LISTED].load : 0;
	s64 comes = pull ? l->of[1][(pull - 1) % LISTED].load : 0;
	s64 apart = (here - goes + comes) - (there + goes - comes);

	if (apart < 0)
		apart = -apart;
	if (apart >= l->best)
		return;
	l->best = apart;
	l->push = push;
	l->pull = pull;
}

__noinline int find_exchange(s64 here, s64 there)
{
	struct lists *l;
	u32 push, pull;

	l = lists_here();
	if (!l)
		return 0;
	l->push = l->pull = 0;
	bpf_for(push, 0, LISTED + 1) {
		if (push > l->n[0])
			break;
		bpf_for(pull, 0, LISTED + 1) {
			if (pull > l->n[1])
				break;
			try(l, here, there, push, pull);
		}
	}
	return 0;
}

/* One goes to another queue: at once if it waits, else when it stops. */
__noinline int send(u32 side, u32 number, u32 from, u32 to)
{
	struct task_struct *p;
	struct lists *l;
	struct thread *t;
	struct choice *s = choice_here();
	s32 pid;

	l = lists_here();
	if (!l || !s || !number)
		return 0;
	pid = l->of[side & 1][(number - 1) % LISTED].pid;
	bpf_rcu_read_lock();
	if (!l->of[side & 1][(number - 1) % LISTED].waits) {
		p = bpf_task_from_pid(pid);
		t = p ? thread_of(p) : NULL;
		if (t)
			t->target = to + 1;
		if (p)
			bpf_task_release(p);
		goto out;
	}
	bpf_for_each(scx_dsq, p, from, 0) {
		t = thread_of(p);
		if (p->pid != pid || !t)
			continue;
		assign(t, to);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, t->mark);
		if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, to, 0)) {
			berth_count(balanced);
			read_affinity(s, p);
			tickle(t, NO_CPU);
		}
		break;
	}
out:
	bpf_rcu_read_unlock();
	return 0;
}

/* The queue that differs most from this one; its difference. */
__noinline s32 most_apart(u32 own)
{
	struct runq *q = runq_at(own), *other;
	s64 apart, most_so_far = 0;
	s32 found = -1;
	u32 i;

	if (!q)
		return -1;
	load_of_queue(own, 0, 0);
	bpf_for(i, 0, nr_queues) {
		other = runq_at(i);
		if (!other || i == own)
			continue;
		load_of_queue(i, 0, 0);
		apart = q->balanced.avg - other->balanced.avg;
		if (apart < 0)
			apart = -apart;
		if (apart > most_so_far) {
			most_so_far = apart;
			found = i;
		}
	}
	return found;
}

static __always_inline void balance(u32 own)
{
	s32 other = most_apart(own);
	struct runq *q = runq_at(own), *o = runq_at(other);
	s64 here, there, apart, higher;
	u64 least;
	struct lists *l;
	u32 cpus;

	l = lists_here();
	if (other < 0 || !q || !o || !l)
		return;
	here = q->balanced.avg;
	there = o->balanced.avg;
	apart = here > there ? here - there : there - here;
	higher = here > there ? here : there;
	cpus = q->cpus > o->cpus ? q->cpus : o->cpus;
	least = higher < (s64)cpus << AVG_BITS ? underload_mcpu : overload_mcpu;
	if (apart < (s64)((least << AVG_BITS) / 1000))
		return;
	list_all(own, other, 0);
	list_all(other, own, 1);
	l->best = apart;
	find_exchange(here, there);
	send(0, l->push, own, other);
	send(1, l->pull, other, own);
}

static int balance_queue(void *map, u32 *cpu, struct bpf_timer *timer)
{
	struct pcpu *c = pcpu_at(*cpu);

	if (c)
		balance(c->queue);
	return 0;
}

static __always_inline int make_guards(void)
{
	u32 parked = GUARD_PARKED, cpu;
	struct guard *guard = bpf_map_lookup_elem(&guards, &parked);
	struct timer *t;

	if (!guard)
		return -ENOENT;
	bpf_timer_init(&guard->timer, &guards, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&guard->timer, period_over);
	bpf_for(cpu, 0, berth_nr_cpus) {
		t = bpf_map_lookup_elem(&balances_by_cpu, &cpu);
		if (!t)
			continue;
		bpf_timer_init(&t->timer, &balances_by_cpu, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&t->timer, balance_queue);
	}
	return 0;
}

#endif
