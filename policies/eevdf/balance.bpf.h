/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the threads of policies/eevdf.bpf.c run: CPUs for new ones, what an idle CPU takes over,
 * and the periodic balance among busy ones.
 *
 * The includer has declared balance_us and its counters (`pulled`, `balanced`).
 */
#ifndef __EEVDF_BALANCE_BPF_H
#define __EEVDF_BALANCE_BPF_H

#include "capacity.bpf.h"
#include "queue.bpf.h"

#define IMBALANCE 117 /* percent: smaller differences are left alone */
#define MOVES	  32  /* threads taken over at once at most */

struct llc {
	s32 next; /* CPU whose turn it is to look for work */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, struct llc);
} llcs_by_llc SEC(".maps");

/* Sums of the LLC that is looked at: static, since the verifier would see no end of a counter. */
static u64 domain_weight;
static u64 domain_capacity;

/* For a new thread: the allowed CPU with the least to do. */
static __always_inline s32 least_loaded(struct task_struct *p, s32 cpu)
{
	struct runq *rq;
	u64 least = ~0ULL;
	s32 i;

	bpf_for(i, 0, berth_nr_cpus) {
		rq = rq_of(i);
		if (rq && rq->online && eevdf_load_of(i) < least &&
		    bpf_cpumask_test_cpu(i, p->cpus_ptr)) {
			least = eevdf_load_of(i);
			cpu = i;
		}
	}
	return cpu;
}

/* Take over one waiting thread from the CPU near here with most of them. */
__noinline bool eevdf_pull(s32 cpu)
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
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, busiest, 0) {
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr) || is_migration_disabled(p))
			continue;
		if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0)) {
			done = true;
			break;
		}
	}
	bpf_rcu_read_unlock();
	if (done)
		berth_count(pulled);
	return done;
}

/* Who runs alone is never put into a queue, where its weight is brought up to date. */
static __always_inline void look_at_running(struct runq *rq, s32 cpu)
{
	struct task_struct *p;
	struct entity *e;

	bpf_rcu_read_lock();
	p = rq->curr ? __COMPAT_scx_bpf_cpu_curr(cpu) : NULL;
	e = p && p->pid == rq->curr ? entity_of(p) : NULL;
	if (e)
		reweight_running(p, e, rq, cpu);
	bpf_rcu_read_unlock();
}

/*
 * Take waiting threads over to a CPU from the busiest of its LLC, as far as both come nearer to the
 * mean, but not too heavy ones; after vain attempts, heavier ones.
 */
__noinline int eevdf_balance(s32 cpu)
{
	u64 most = 0, load, local, mean_load, room, excess, slice;
	struct runq *rq, *to = rq_of(cpu), *from;
	struct task_struct *p;
	struct berth_cpu *topo;
	struct entity *e;
	s32 other = cpu, busiest = NOWHERE, i;
	u32 moved = 0;

	if (!to || !to->online)
		return 0;
	/* A CPU looks at its ticks: not while a hypervisor has it. */
	local = task_clock(cpu);
	if (to->curr && local == to->balanced_at)
		return 0;
	to->balanced_at = local;
	domain_weight = domain_capacity = 0;
	bpf_for(i, 0, berth_nr_cpus) {
		rq = rq_of(other);
		topo = berth_cpu(other);
		if (!rq || !topo)
			break;
		look_at_running(rq, other);
		domain_weight += rq->weight;
		domain_capacity += eevdf_capacity_of(other);
		load = eevdf_load_of(other);
		if (rq->queued && load > most && other != cpu) {
			most = load;
			busiest = other;
		}
		other = topo->next_in_llc;
		if (other == cpu)
			break;
	}
	local = eevdf_load_of(cpu);
	mean_load = domain_weight * SCX_CPUPERF_ONE / (domain_capacity ?: SCX_CPUPERF_ONE);
	if (busiest < 0 || local >= mean_load || most * 100 <= local * IMBALANCE) {
		to->failed = 0;
		return 0;
	}
	from = rq_of(busiest);
	if (!from)
		return 0;
	catch_up(from, busiest);
	catch_up(to, cpu);
	room = (mean_load - local) * eevdf_capacity_of(cpu) / SCX_CPUPERF_ONE;
	excess = (most - mean_load) * eevdf_capacity_of(busiest) / SCX_CPUPERF_ONE;
	if (excess < room)
		room = excess;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, busiest, 0) {
		e = entity_of(p);
		if (!e || e->cpu != busiest || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr) ||
		    is_migration_disabled(p) || e->weight >> to->failed > room)
			continue;
		detach(e, from, false);
		place(p, e, to, cpu);
		slice = time_before(e->v, e->deadline)
				? real_ns_until(e->deadline - e->v, e->weight)
				: 0;
		scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, slice ?: 1);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, e->deadline);
		if (!scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, cpu, 0))
			break; /* it has begun to run, where it will be counted again */
		if (from->queued)
			from->queued--;
		to->queued++;
		moved++;
		if (e->weight >= room || moved >= MOVES)
			break;
		room -= e->weight;
	}
	bpf_rcu_read_unlock();
	if (moved) {
		berth_count(balanced);
		to->failed = 0;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	} else if (to->failed < 10) {
		to->failed++;
	}
	return 0;
}

/*
 * Until the next CPU of each LLC looks: a busy CPU does every `balance_us` times the number of CPUs
 * in its LLC, less a tick, which the kernel takes off so that domains do not look in step. Threads
 * that change places at ticks are in step with what is left, too, if it is an even number of them.
 */
static __always_inline u64 balance_step_ns(void)
{
	u32 cpus = berth_nr_cpus / (berth_nr_llcs ?: 1) ?: 1;

	return balance_us * 1000 - tick_ns / cpus;
}

/* One CPU of each LLC looks for work. */
static int balance_some(void *map, int *key, struct bpf_timer *timer)
{
	struct llc *llc;
	struct berth_cpu *topo;
	s32 i;
	u32 slot;

	bpf_for(i, 0, berth_nr_llcs) {
		slot = i;
		llc = bpf_map_lookup_elem(&llcs_by_llc, &slot);
		if (!llc)
			break;
		eevdf_balance(llc->next);
		topo = berth_cpu(llc->next);
		if (topo)
			llc->next = topo->next_in_llc;
	}
	bpf_for(i, 0, asymmetric ? berth_nr_cpus : 0) {
		eevdf_tell_idle(i);
	}
	bpf_timer_start(timer, balance_step_ns(), 0);
	return 0;
}

#endif
