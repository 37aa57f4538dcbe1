/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vmfair on a host whose cores are of several kinds.
 *
 * Who waits for requests (latency VMs, I/O threads of mixed ones, what serves VMs' devices; here:
 * prompt) goes to the fastest core that is idle or runs somebody else who may be preempted; that
 * one moves on to the next idle core. All others take what is idle, the fastest first. While a core
 * is idle no slower one works: it asks a thread of a slower one to move up, prompt threads first,
 * then those of the slowest cores. While a core runs one that is not prompt, no prompt thread runs
 * on a slower one. Who runs on a slow core and falls behind its share takes a faster one from
 * somebody who is ahead.
 *
 * A kind is what has no gap: cores sorted by capacity, the next one with less than 90 % of the one
 * before begins another kind, as in Berth's map of hosts (favoured cores are no kind). On a host
 * with one kind nothing here is used.
 *
 * Deviations: what a thread gained from a core is not measured, its capacity is all that counts
 * (amp measures); a core's idle SMT sibling comes after all whole idle cores; among cores of a kind
 * last-level caches do not matter; of more than MAX_KINDS kinds the slowest are one; above
 * MOST_CPUS possible CPUs all are.
 */
#ifndef __VMFAIR_KINDS_BPF_H
#define __VMFAIR_KINDS_BPF_H

#include "berth/cpuset.bpf.h"

#define MAX_KINDS 4

struct kind {
	struct cpu_set cpus;
	struct cpu_set prompt; /* those that run a prompt thread, */
	struct cpu_set others; /* those that run another one */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_KINDS);
	__type(key, u32);
	__type(value, struct kind);
} kinds SEC(".maps");

/* What a CPU needs to choose another one. */
struct choice {
	struct cpu_set allowed;
	struct cpu_set idle;
	struct cpu_set candidates;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct choice);
} choices_by_cpu SEC(".maps");

static u32 nr_kinds = 1;
/* Capacity of its slowest CPU. Not static: the compiler would make four variables of it, of which
 * libbpf cannot make one again. */
u32 least_of_kind[MAX_KINDS];

static __always_inline struct kind *kind_at(u32 kind)
{
	return bpf_map_lookup_elem(&kinds, &kind);
}

static __always_inline struct choice *choice_here(void)
{
	u32 here = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&choices_by_cpu, &here);
}

static __always_inline u32 capacity_of(s32 cpu)
{
	struct berth_cpu *topo = berth_cpu(cpu);

	return topo && topo->capacity ? topo->capacity : SCX_CPUPERF_ONE;
}

/* Run time on c as run time on the fastest core: what a VM gets is counted in work. */
static __always_inline u64 work_ns(struct pcpu *c, u64 ns)
{
	return nr_kinds > 1 ? ns * c->capacity / SCX_CPUPERF_ONE : ns;
}

/* The highest capacity below this one; 0: there is none. */
__noinline u32 next_slower(u32 than)
{
	u32 found = 0, capacity;
	s32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		capacity = capacity_of(cpu);
		if (capacity < than && capacity > found)
			found = capacity;
	}
	return found;
}

/* The lowest capacity that is of one kind with this one. */
__noinline u32 slowest_alike(u32 capacity)
{
	u32 next;
	s32 i;

	bpf_for(i, 0, berth_nr_cpus) {
		next = next_slower(capacity);
		if (!next || next * 100 < capacity * BERTH_ALIKE_PERCENT)
			break;
		capacity = next;
	}
	return capacity;
}

static __always_inline u32 kind_of_capacity(u32 capacity)
{
	u32 kind;

#pragma unroll
	for (kind = 0; kind < MAX_KINDS; kind++)
		if (capacity >= least_of_kind[kind])
			return kind;
	return MAX_KINDS - 1;
}

static __noinline int find_kinds(void)
{
	u32 capacity = next_slower(~0U), kind;
	struct pcpu *c;
	struct kind *k;
	s32 cpu;

	if (!by_kind || berth_nr_cpus > MOST_CPUS)
		return 0;
#pragma unroll
	for (kind = 0; kind < MAX_KINDS; kind++) {
		if (!capacity)
			break;
		least_of_kind[kind] = kind + 1 < MAX_KINDS ? slowest_alike(capacity) : 1;
		capacity = next_slower(least_of_kind[kind]);
		nr_kinds = kind + 1;
	}
	bpf_for(cpu, 0, berth_nr_cpus) {
		c = cpu_at(cpu);
		if (!c)
			continue;
		c->capacity = capacity_of(cpu);
		c->kind = kind_of_capacity(c->capacity);
		k = kind_at(c->kind);
		if (k)
			put(&k->cpus, cpu, true);
	}
	return 0;
}

/* The CPU of `set` after cpu that is allowed, cpu itself first; NO_CPU: none. */
static __always_inline s32 allowed_in(struct choice *s, const struct cpu_set *set, s32 cpu)
{
	s->candidates = s->allowed;
	if (!keep_both(&s->candidates, set))
		return NO_CPU;
	return has(&s->candidates, cpu) ? cpu : next_in(&s->candidates, cpu);
}

/* Of the idle CPUs in this mask, one of the fastest kind, which is below `below`. */
static __noinline s32 fastest_of(struct choice *s, const struct cpumask *idle, s32 cpu, u32 below)
{
	s32 found = NO_CPU, i;
	struct kind *k;

	if (!s || !idle)
		return NO_CPU;
	read_mask(&s->idle, idle);
	if (!keep_both(&s->idle, &s->allowed))
		return NO_CPU;
	bpf_for(i, 0, below) {
		k = kind_at(i);
		if (!k)
			break;
		s->candidates = s->idle;
		if (!keep_both(&s->candidates, &k->cpus))
			continue;
		found = has(&s->candidates, cpu) ? cpu : next_in(&s->candidates, cpu);
		break;
	}
	return found;
}

/* The idle CPU for p, of a kind below `below`: of a whole idle core, the fastest, if it may be cpu.
 * Its idle bit stays. NO_CPU: none. */
static __noinline s32 find_idle(struct task_struct *p, s32 cpu, u32 below)
{
	struct choice *s = choice_here();
	const struct cpumask *idle;
	s32 found;

	if (!p || !s)
		return NO_CPU;
	read_mask(&s->allowed, p->cpus_ptr);
	idle = scx_bpf_get_idle_smtmask();
	found = fastest_of(s, idle, cpu, below);
	scx_bpf_put_idle_cpumask(idle);
	if (found >= 0)
		return found;
	idle = scx_bpf_get_idle_cpumask();
	found = fastest_of(s, idle, cpu, below);
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/* A CPU of a kind below `below`, the fastest, that runs somebody p may take it from; `beyond`, if
 * it is not 0: somebody with a later key. */
static __noinline s32 find_yielding(struct task_struct *p, s32 cpu, u32 below, u64 beyond)
{
	struct choice *s = choice_here();
	u64 now = scx_bpf_now();
	s32 found = NO_CPU, i, j;
	struct kind *k;
	struct pcpu *c;

	if (!p || !s)
		return NO_CPU;
	read_mask(&s->allowed, p->cpus_ptr);
	bpf_for(i, 0, below) {
		k = kind_at(i);
		if (!k)
			break;
		bpf_for(j, 0, berth_nr_cpus) {
			cpu = allowed_in(s, &k->others, cpu);
			c = cpu < 0 ? NULL : cpu_at(cpu);
			if (!c)
				break;
			if (c->preemptible && !time_before(now, c->shield_until) &&
			    (!beyond || time_after(c->key, beyond))) {
				found = cpu;
				break;
			}
			put(&s->allowed, cpu, false);
		}
		if (found >= 0)
			break;
		cpu = 0;
	}
	return found;
}

/* The thread that runs on `from` is asked to move up; it is to be able to use `to`. */
static __noinline bool ask(s32 from, s32 to)
{
	struct task_struct *p;
	struct thread *t;
	bool asked = false;

	bpf_rcu_read_lock();
	p = __COMPAT_scx_bpf_cpu_curr(from);
	t = p ? thread_of(p) : NULL;
	if (t && !t->moves && bpf_cpumask_test_cpu(to, p->cpus_ptr) && !is_migration_disabled(p)) {
		t->moves = true;
		asked = true;
	}
	bpf_rcu_read_unlock();
	if (asked)
		scx_bpf_kick_cpu(from, SCX_KICK_PREEMPT);
	return asked;
}

/* One of those that run on CPUs of a kind slower than that of cpu is asked to move up, a prompt
 * one or another one. */
static __noinline bool pull_up(s32 cpu, bool prompt)
{
	struct choice *s = choice_here();
	struct pcpu *c = cpu_at(cpu);
	bool asked = false;
	struct kind *k;
	s32 i, j, from;

	if (!s || !c)
		return false;
	bpf_for(i, 1, nr_kinds - c->kind) {
		k = kind_at(nr_kinds - i);
		if (!k)
			break;
		s->candidates = prompt ? k->prompt : k->others;
		from = cpu;
		bpf_for(j, 0, berth_nr_cpus) {
			from = next_in(&s->candidates, from);
			if (from < 0)
				break;
			put(&s->candidates, from, false);
			asked = ask(from, cpu);
			if (asked)
				break;
		}
		if (asked)
			break;
	}
	return asked;
}

/* Who may p take a faster core from? Anybody who is not prompt, if it is; else who is ahead of it
 * by more than sleep is worth: the slow core alone would not let it have its share. */
static __always_inline s32 find_faster(struct task_struct *p, struct thread *t, s32 cpu, u32 below)
{
	if (t->prompt)
		return preempt ? find_yielding(p, cpu, below, 0) : NO_CPU;
	return find_yielding(p, cpu, below, t->vtime + credit_us * 1000 ?: 1);
}

/* p has the CPU, for the first time or again. Is somebody in the wrong place now? */
static __noinline int settle(struct task_struct *p, struct thread *t, s32 cpu)
{
	struct pcpu *c = cpu_at(cpu);
	s32 faster;

	if (!p || !t || !c)
		return 0;
	if (c->kind) {
		faster = find_idle(p, cpu, c->kind);
		if (faster >= 0) {
			scx_bpf_kick_cpu(faster, SCX_KICK_IDLE);
		} else if (!t->moves && find_faster(p, t, cpu, c->kind) >= 0) {
			t->moves = true;
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		}
	}
	if (!t->prompt && preempt)
		pull_up(cpu, true);
	return 0;
}

/* p starts on a CPU, or stops. */
static __always_inline void occupies(struct thread *t, struct pcpu *c, s32 cpu, bool starts)
{
	struct kind *k = kind_at(c->kind);

	if (!k)
		return;
	if (starts && t->prompt)
		mark(&k->prompt, cpu);
	else
		unmark(&k->prompt, cpu);
	if (starts && !t->prompt)
		mark(&k->others, cpu);
	else
		unmark(&k->others, cpu);
}

/* p was asked to move up: to the fastest CPU that is idle or, if it is prompt, gives way. */
static __noinline bool move_up(struct task_struct *p, struct thread *t, u64 enq_flags)
{
	struct pcpu *c, *other;
	s32 cpu, to;

	if (!p || !t)
		return false;
	cpu = scx_bpf_task_cpu(p);
	c = cpu_at(cpu);
	if (!c || is_migration_disabled(p))
		return false;
	to = find_idle(p, cpu, c->kind);
	if (to >= 0 && scx_bpf_test_and_clear_cpu_idle(to)) {
		t->run = RUN_FREE;
	} else {
		to = find_faster(p, t, cpu, c->kind);
		other = to < 0 ? NULL : cpu_at(to);
		if (!other)
			return false;
		other->preemptible = false;
		t->run = RUN_DIRECT;
		enq_flags |= SCX_ENQ_PREEMPT;
	}
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | to, slice_ns(), enq_flags);
	berth_count(moved_up);
	return true;
}

/* The first in the queue is prompt, and its turn has come on a CPU of this kind: a faster CPU that
 * runs somebody else takes it. `limit`: it has not, if it waits under that key or a later one. */
static __noinline bool hand_up(u32 llc, u32 kind, u64 limit, bool limited)
{
	struct task_struct *p;
	struct thread *t;
	struct pcpu *c;
	bool done = false;
	s32 to;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, llc, 0) {
		t = thread_of(p);
		if (!t || !t->prompt || (limited && !time_before(p->scx.dsq_vtime, limit)) ||
		    is_migration_disabled(p))
			break;
		to = find_yielding(p, scx_bpf_task_cpu(p), kind, 0);
		c = to < 0 ? NULL : cpu_at(to);
		if (!c)
			break;
		if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | to,
				     SCX_ENQ_PREEMPT)) {
			c->preemptible = false;
			scx_bpf_kick_cpu(to, SCX_KICK_PREEMPT); /* see serve() */
			done = true;
		}
		break;
	}
	bpf_rcu_read_unlock();
	if (done)
		berth_count(handed_up);
	return done;
}

/* An idle CPU is told that p waits. */
static __always_inline void tell_idle(struct task_struct *p, s32 cpu)
{
	cpu = nr_kinds > 1 ? find_idle(p, cpu, nr_kinds) : scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/*
 * Where p, which wakes, is to run: on the fastest idle CPU, t->run is RUN_FREE then; a prompt one
 * that is within its share, or that another idle CPU makes up for, rather on a faster one that it
 * takes, RUN_DIRECT; RUN_TURN: nowhere at once.
 */
static __noinline s32 choose(struct task_struct *p, struct thread *t, s32 prev_cpu, bool within)
{
	s32 idle, yielding = NO_CPU;
	u32 below = nr_kinds;
	struct pcpu *c;

	if (!p || !t)
		return prev_cpu;
	idle = find_idle(p, prev_cpu, nr_kinds);
	c = idle < 0 ? NULL : cpu_at(idle);
	if (c)
		below = c->kind;
	if (t->prompt && preempt && (c || within))
		yielding = find_yielding(p, prev_cpu, below, 0);
	c = yielding < 0 ? NULL : cpu_at(yielding);
	if (c) {
		c->preemptible = false;
		t->run = RUN_DIRECT;
		return yielding;
	}
	t->run = RUN_TURN;
	if (idle < 0 || !scx_bpf_test_and_clear_cpu_idle(idle))
		return prev_cpu;
	t->run = RUN_FREE;
	return idle;
}

#endif
