/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * On the CPUs below the fastest, of one class, who is furthest behind its grants goes first (D18).
 * Credit takes turns there, in the order of arrival and by slices of 30 ms: who is due most of a
 * CPU, and comes from its slot on a fast one, has no time to wait for turns.
 *
 * Behind is credit by what a round grants, not credit: of two who have not had 3 ms, one whose
 * grant is a whole round cannot make up for it, one whose grant is 3 ms can.
 */
#ifndef __AMP_OVERDUE_BPF_H
#define __AMP_OVERDUE_BPF_H

#define ROUND_PARTS 32 /* of a round: the unit */
#define LEAD	    2  /* so many more preempt: 1.9 ms for whom a whole CPU is granted */
#define KEPT_ROUNDS 4  /* who waits or runs keeps what so many grant it; none is further behind */
#define MOST_BEHIND (KEPT_ROUNDS * ROUND_PARTS)
#define MOST_AHEAD  4000
#define RANK_SHIFT  44 /* in a queue's key, above the running number */

/* How far v is behind, in parts of a round; below 0: ahead. */
__noinline s32 overdue(struct vcpu *v)
{
	struct domain *d;
	u32 share, parts;
	s32 credit;

	if (!v)
		return 0;
	d = domain_at(v->slot);
	share = d && d->share ? d->share : 1;
	credit = v->credit;
	parts = (credit < 0 ? -credit : credit) * ROUND_PARTS / share;
	if (credit < 0)
		return -(s32)(parts < MOST_AHEAD ? parts : MOST_AHEAD);
	return parts < MOST_BEHIND ? parts : MOST_BEHIND;
}

/* Both of one class. */
static __always_inline bool more_overdue(struct vcpu *v, struct vcpu *than, s32 by)
{
	return nr_kinds > 1 && v->pri == than->pri && overdue(v) > overdue(than) + by;
}

/* Its rank in the queue of a CPU below the fastest, by the running number of who came when. */
static __always_inline u64 overdue_key(struct vcpu *v, u64 arrival, bool first)
{
	u64 rank = first ? 0 : MOST_BEHIND + 1 - overdue(v);

	return rank << RANK_SHIFT | (arrival & ((1ULL << RANK_SHIFT) - 1));
}

static __always_inline bool waits_or_runs(struct vcpu *v)
{
	struct pcpu *c = v->ran_on ? pcpu_at(v->ran_on - 1) : NULL;

	return (v->flags & VF_QUEUED) || (c && c->curr && vcpu_at(c->curr) == v);
}

/* Credit above which it counts as asleep; `per` is what a CPU grants in a round. */
static __always_inline s32 kept_credit(struct vcpu *v, struct domain *d, s32 per)
{
	s32 most = KEPT_ROUNDS * d->share;

	return nr_kinds > 1 && most > per && waits_or_runs(v) ? most : per;
}

/* At a decision: its slot is over, or its credit, and it is of that class from now on. Not with a
 * cap: it would be behind all others before it has had what the cap leaves.
 */
static __always_inline void reclass(struct vcpu *v, struct pcpu *c)
{
	struct domain *d = v ? domain_at(v->slot) : NULL;
	u64 now = scx_bpf_now();

	if (!d || !c)
		return;
	burn(v, c, now);
	if (d->cap_mcpu || slot_of(v, now) >= 0 || (v->pri == BOOST && !v->lifted))
		return;
	v->lifted = 0;
	v->pri = v->credit < 0 ? OVER : UNDER;
}

#endif
