/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zeng: a reconstruction of the improved credit scheduler of Zeng et al. (2013; extended as
 * XCollOpts, 2015), on the rules of Xen 4.4.
 *
 * Idea. I/O is short, so that BOOST may be: who wakes boosted keeps it for 2 ms of run time, then
 * is UNDER and last of its class (`boost_us`). A wake-up whose pCPU is taken by a boosted vCPU goes
 * where it can start at once: to a free pCPU, else to one that runs nobody boosted, else where
 * fewest of them wait; of the same core first, then of the same package (`balance`). The driver
 * domain is not preempted while it hands out packets (`protect`). Slices are shorter where many
 * wait (`short_slices`). Each can be switched off; with all of them off this is Credit.
 *
 * Sources: the abstract of 2013; the text of 2015 for balance and protection; the 2 ms from the
 * related work of FLMS (Journal of Software 28(2), 2017).
 *
 * What is ours. How the slice varies is not published: here it is 30 ms divided by those that wait
 * and are not OVER, 5 ms at least. How many interrupts a driver has pending is not visible to a
 * policy: a driver is a vhost or I/O thread, and as long as it runs it has something to hand out.
 * Where somebody boosted waits already counts as taken by one, so that wake-ups at one instant do
 * not all go to the same pCPU. What else deviates from Xen is in credit.bpf.c.
 *
 * Charges wall time between switches, with interrupts and stolen time, as Xen does.
 *
 * Not good for: latency beside compute in one vCPU, which never sleeps and so is never boosted; a
 * driver that always has work and keeps its pCPU for a slice; caches (boosted vCPUs wander).
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"
#include "credit/stats.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall", "Zeng et al., reconstructed: Credit with short boosts that seek free CPUs");
BERTH_HYPERVISOR("xen");

BERTH_PARAM(u64, boost_us, "us", 2000, 0, 100000, "Run time for which a boost lasts; 0: no limit");
BERTH_PARAM(bool, balance_boosts, "bool", 1, 0, 1,
	    "Who would wake behind somebody boosted goes to another CPU");
BERTH_PARAM(bool, protect, "bool", 1, 0, 1,
	    "A wake-up does not preempt a vhost or I/O thread: the driver domain");
BERTH_PARAM(bool, short_slices, "bool", 1, 0, 1, "Slices are shorter where more vCPUs wait");
BERTH_PARAM(u64, least_slice_ms, "ms", 5, 1, 1000, "Shortest of them");
BERTH_PRESET(boost_only, "boost-only", "boost_us=2000,balance_boosts=0,protect=0,short_slices=0",
	     "As FLMS tells of it: Credit, and a boost ends after 2 ms");
BERTH_MOST_CPUS(1024);

struct berth_stats {
	CREDIT_STATS
	u64 demoted;  /* boosts that came to their end */
	u64 diverted; /* woken on another CPU than their own */
};
BERTH_STATS;

/* boosted_ns: run in this boost; boosted_at: + 1, where it waits boosted; claimed: + 1, the idle
 * pCPU that it wakes on. */
#define VCPU_MORE                                                                                  \
	u64 boosted_ns;                                                                            \
	u32 boosted_at;                                                                            \
	u32 claimed;
/* boosts: vCPUs that wait here boosted; better: those that wait and are not OVER, as counted last.
 */
#define PCPU_MORE                                                                                  \
	u32 boosts;                                                                                \
	u32 better;

#include "credit/rules.bpf.h"

/* Run time that is left of v's boost. */
static __always_inline u64 boost_left(struct vcpu *v)
{
	u64 limit = boost_us * 1000;

	if (!limit)
		return ~0ULL;
	return limit > v->boosted_ns ? limit - v->boosted_ns : 0;
}

#define credit_burned credit_burned
static __always_inline void credit_burned(struct vcpu *v, struct pcpu *c, u32 credits, u64 ns)
{
	if (v->pri == BOOST)
		v->boosted_ns += ns;
}

#define descheduled descheduled
static __always_inline void descheduled(struct vcpu *v, struct pcpu *c)
{
	if (v->pri != BOOST || boost_left(v))
		return;
	v->pri = UNDER;
	berth_count(demoted);
}

/* How many wait on cpu that are not OVER. */
__noinline u32 count_better(s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu);
	struct task_struct *p;
	struct vcpu *v;

	if (!c)
		return 0;
	c->better = 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		v = vcpu_of(p);
		if (!v || v->pri >= OVER)
			break;
		c->better++;
	}
	bpf_rcu_read_unlock();
	return c->better;
}

#define slice_ns slice_ns
static __always_inline u64 slice_ns(struct vcpu *v, s32 cpu)
{
	u64 slice = tslice_ms * MS, least = least_slice_ms * MS, left = boost_left(v);

	if (short_slices) {
		slice /= count_better(cpu) ?: 1;
		if (slice < least)
			slice = least;
	}
	if (slice > tslice_ms * MS)
		slice = tslice_ms * MS;
	return v->pri == BOOST && left < slice ? left : slice;
}

#define rate_limit_ns rate_limit_ns
static __always_inline u64 rate_limit_ns(struct vcpu *v, s32 cpu)
{
	u64 limit = ratelimit_us * 1000, left = boost_left(v);

	return v->pri == BOOST && left < limit ? left : limit;
}

#define beats beats
static __always_inline bool beats(struct vcpu *v, struct vcpu *curr, struct pcpu *c, s32 cpu)
{
	if (protect && (curr->role == BERTH_ROLE_VHOST || curr->role == BERTH_ROLE_IOTHREAD))
		return false;
	return v->pri < curr->pri;
}

/* v waits boosted on that pCPU + 1, or (0) nowhere. */
static __always_inline void wait_boosted(struct vcpu *v, u32 at)
{
	struct pcpu *from = v->boosted_at ? pcpu_at(v->boosted_at - 1) : NULL;
	struct pcpu *to = at ? pcpu_at(at - 1) : NULL;

	if (from)
		__sync_fetch_and_sub(&from->boosts, 1);
	if (to)
		__sync_fetch_and_add(&to->boosts, 1);
	v->boosted_at = at;
}

#define queue_key queue_key
static __always_inline u64 queue_key(struct vcpu *v, struct pcpu *c, s32 cpu, bool front)
{
	wait_boosted(v, v->pri == BOOST ? cpu + 1 : 0);
	return arrival_key(c, front);
}

#define started started
static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	wait_boosted(v, 0);
}

#define slept slept
static __always_inline void slept(struct vcpu *v)
{
	wait_boosted(v, 0);
	/* Who sleeps before a tick has found it wakes boosted. */
	v->boosted_ns = 0;
}

/* Somebody boosted runs there, or is about to. */
static __always_inline bool is_taken(struct pcpu *c)
{
	struct vcpu *curr = c->curr ? vcpu_at(c->curr) : NULL;

	return c->boosts || (curr && curr->pri == BOOST);
}

/* The less, the better for somebody boosted whose pCPU is `from`. */
__noinline u32 cost_of(s32 cpu, s32 from)
{
	struct berth_cpu *a = berth_cpu(cpu), *b = berth_cpu(from);
	struct choice *s = choice_here();
	struct pcpu *c = pcpu_at(cpu);
	u32 away;

	if (!s || !c || !a || !b)
		return ~0U;
	away = a->core == b->core ? 0 : a->llc == b->llc ? 1 : 2;
	if (is_taken(c))
		return 4 * (2 + c->boosts) + away;
	return has(&s->idle, cpu) ? away : 4 + away;
}

/* Where p starts soonest that has woken on cpu. */
static __noinline s32 divert(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	const struct cpumask *idle;
	struct choice *s = choice_here();
	u32 least, cost;
	s32 at, found = cpu;

	if (!p || !v || !s)
		return cpu;
	usable(&s->candidates, p, v);
	keep_both(&s->candidates, &online_cpus);
	idle = scx_bpf_get_idle_cpumask();
	read_mask(&s->idle, idle);
	scx_bpf_put_idle_cpumask(idle);
	least = cost_of(cpu, cpu);
	bpf_for(at, 0, berth_nr_cpus) {
		if (!has(&s->candidates, at))
			continue;
		cost = cost_of(at, cpu);
		if (cost >= least)
			continue;
		least = cost;
		found = at;
	}
	return found;
}

#define aim aim
static __always_inline s32 aim(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu);
	s32 found;

	if (!balance_boosts || !c || v->pri > UNDER || !is_taken(c))
		return cpu;
	found = divert(p, v, cpu);
	if (found == cpu)
		return cpu;
	berth_count(diverted);
	if (scx_bpf_test_and_clear_cpu_idle(found))
		v->claimed = found + 1;
	return found;
}

#define wake_to wake_to
static __always_inline s32 wake_to(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	bool claimed = v->claimed == cpu + 1;

	v->claimed = 0;
	return claimed ? cpu : NO_CPU;
}

#include "credit/plain.bpf.h"

CREDIT_CALLBACKS(zeng)

/* clang-format off */
SCX_OPS_DEFINE(zeng_ops,
	CREDIT_OPS(zeng),
	.name			= "zeng");
