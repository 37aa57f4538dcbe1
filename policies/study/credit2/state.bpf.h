/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What credit2 keeps of queues, CPUs and threads, and how credit is counted.
 *
 * A refill gives all vCPUs of a queue the same, and so moves nobody: what is kept of each is a
 * mark, the queue's `base` less its credit, and a refill raises the base.
 */
#ifndef __BERTH_CREDIT2_STATE_BPF_H
#define __BERTH_CREDIT2_STATE_BPF_H

#include "berth/cpuset.bpf.h"
#include "berth/bandwidth.bpf.h"

#define MS	   1000000ULL
#define BASE	   (1ULL << 40)
#define WEIGHT_ONE 1024ULL

struct group {
	struct bpf_spin_lock lock; /* of `pool` */
	u32 load;
	struct berth_pool pool;
	u32 weight;
	u32 cap_mcpu;
	u32 vcpus;
};

/* EWMA of a number of runnable vCPUs, AVG_BITS behind the point, over a window of some second. */
struct load {
	s64 avg;
	u64 at; /* in 1024 ns */
};

struct thread {
	u64 charged_ns;
	u32 slot;
	u32 counted;
	u32 generation;
	u32 queue;    /* + 1; 0: none yet */
	u32 target;   /* + 1: the queue that it is to move to */
	u32 last_cpu; /* + 1 */
	u32 tickled;  /* + 1: the CPU that was asked to take it */
	u32 yields;
	u32 runnable;
	u64 mark;
	u64 residual;
	struct load load;
};

struct runq {
	struct bpf_spin_lock lock; /* of the loads */
	u32 cpus;
	u32 online;	       /* of them */
	u32 first;	       /* CPU of it */
	struct cpu_set usable; /* those online */
	u64 base;
	u64 heaviest; /* weight, of those that ran since the last refill and the one before */
	u64 heaviest_now;
	s64 runnable;
	struct load load;     /* of all that are runnable */
	struct load balanced; /* the same, as it will be when who has moved is counted */
};

struct pcpu {
	u32 queue;
	u32 next; /* ring of the CPUs of its queue */
	u32 busy; /* the rest is of whoever runs */
	u32 tickled;
	s32 pid;
	u32 online;
	u64 mark;
	u64 residual;
	u64 weight;
	u64 burned_at;
	u64 charged_at;
	u64 since;
	u64 slice_end;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct pcpu);
} pcpus_by_cpu SEC(".maps");

/* At most as many as CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct runq);
} queues_by_cpu SEC(".maps");

/* CPUs that may share queues, by the number of what they have in common, while queues are made. */
struct scope {
	u32 cpus;
	u32 queue;  /* + 1: the one that is being filled */
	u32 filled; /* CPUs of it, with the siblings of those that are there */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct scope);
} scopes_by_cpu SEC(".maps");

/* Sets of CPUs while one decision is taken on a CPU; an interrupt in between costs a worse one. */
struct choice {
	struct cpu_set may; /* by affinity */
	struct cpu_set idle;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct choice);
} choices_by_cpu SEC(".maps");

static u32 nr_queues;

enum { GUARD_PARKED, GUARDS };

#include "berth/parking.bpf.h"
#define joined(t, g)
#define reweighted(g)
#include "berth/vms.bpf.h"

static __always_inline struct pcpu *pcpu_at(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&pcpus_by_cpu, &key);
}

static __always_inline struct runq *runq_at(u32 queue)
{
	return bpf_map_lookup_elem(&queues_by_cpu, &queue);
}

static __always_inline struct scope *scope_at(u32 number)
{
	return bpf_map_lookup_elem(&scopes_by_cpu, &number);
}

static __always_inline struct choice *choice_here(void)
{
	u32 here = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&choices_by_cpu, &here);
}

/* Timers, softirqs, the policy's own timers: they go before everybody, by no decision. */
static __always_inline bool bound_kthread(struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

static __always_inline void no_group(u32 slot)
{
	scx_bpf_error("VM slot %u is beyond the size of groups_by_vm", slot);
}

static __always_inline void labelled(struct thread *t, struct berth_identity *id)
{
	struct group *g = group_of(t);

	if (!g)
		return;
	g->vcpus = t->slot == HOST ? berth_nr_cpus : id->vm.vcpus ?: 1;
	if (!g->cap_mcpu || g->pool.period_ns == cap_period_ms * MS)
		return;
	bpf_spin_lock(&g->lock);
	berth_pool_set(&g->pool, cap_period_ms * MS, g->cap_mcpu * (cap_period_ms * 1000));
	bpf_spin_unlock(&g->lock);
}

static __always_inline u64 vcpu_weight(struct group *g)
{
	return g->weight * WEIGHT_ONE / (g->vcpus ?: 1) ?: 1;
}

/* Threads of this VM have run for ns: is its cap used up? Then it is looked at again when it may
 * run. */
__noinline bool used_up(u32 slot, u64 ns)
{
	struct group *g = group_at(slot);
	u64 until = 0;

	if (g)
		until = capped_until(g, ns);
	if (until)
		look_at(until);
	return until != 0;
}

static __always_inline bool at_cap(struct thread *t)
{
	return any_caps && used_up(t->slot, 0);
}

static __always_inline s64 most(void)
{
	return credit_ms * MS;
}

/* At most a refill and what may be carried over. */
static __always_inline s64 credit_of(struct runq *q, u64 mark)
{
	s64 credit = q->base - mark, limit = most() + carryover_us * 1000;

	return credit < limit ? credit : limit;
}

static __always_inline u64 mark_of(struct runq *q, s64 credit)
{
	return q->base - credit;
}

/* Credit that whoever runs on c has now. */
static __always_inline s64 credit_now(struct pcpu *c, struct runq *q, u64 now)
{
	s64 ns = now - c->burned_at, credit = credit_of(q, c->mark);

	if (ns > 0)
		credit -= ns * q->heaviest / (c->weight ?: 1);
	return credit > -most() ? credit : -most();
}

/* Charge whoever runs on c up to now. Two CPUs may come at once: one of them does. */
static __always_inline void burn(struct pcpu *c, struct runq *q, u64 now)
{
	u64 since = c->burned_at, due;
	s64 credit;

	if ((s64)(now - since) <= 0 ||
	    __sync_val_compare_and_swap(&c->burned_at, since, now) != since)
		return;
	due = (now - since) * q->heaviest + c->residual;
	credit = credit_of(q, c->mark) - due / (c->weight ?: 1);
	c->residual = due % (c->weight ?: 1);
	c->mark = mark_of(q, credit > -most() ? credit : -most());
	if (q->heaviest_now < c->weight)
		q->heaviest_now = c->weight;
}

/* The same against the cap of its VM; whether that is used up. */
static __always_inline bool charge(struct pcpu *c, struct thread *t, u64 now)
{
	u64 ns = now - c->charged_at;

	c->charged_at = now;
	return any_caps && used_up(t->slot, ns);
}

#endif
