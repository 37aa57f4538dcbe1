/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Adaptive R (D14): the smallest R at which no group loses more than the limit against equal parts.
 *
 * Shared equally, phi of everybody's time is on fast CPUs; by rank alone, R = 0, a group has them
 * for q of its time. A fast CPU makes it e times as fast, so with R it does
 * 1 + (e - 1)(r phi + (1 - r) q) instead of 1 + (e - 1) phi, and it loses at most s if
 *
 *	1 - r <= s (1 + phi (e - 1)) / ((phi - q)(e - 1)),
 *
 * which for q = 0 is the closed form of the specification's section 11. Who has its part of fast
 * CPUs anyway, q >= phi, loses nothing at any R.
 *
 * q is a mean over the last plans, of what the ranking gives, after all groups before it, and what
 * it had beyond it: those who gain the same change places from plan to plan, and who is ranked
 * behind others has fast CPUs while they sleep (W). When somebody comes or goes the ranking counts
 * alone again. The first plan takes what it needs at once, later ones move towards it by STEP.
 */
#ifndef __AMP_ADAPT_BPF_H
#define __AMP_ADAPT_BPF_H

#define STEP	   10 /* percent points that R moves in a plan */
#define PLANS_LOG2 3  /* so many plans are remembered */

/* Counted here and not in locals, as in rank.bpf.h. */
static u32 wanted, nr_learnt;
static s64 parts_learnt;
static bool has_adapted; /* there has been an R to step from */
static u64 phi_before;	 /* phi of the plan before */

/* R, percent, that keeps the limit for who gains `gain` from fast CPUs and has them for `q` of its
 * time by rank; all ppm. */
static __always_inline u32 needed(u64 gain, u64 phi, u64 q)
{
	u64 lost = q < phi ? (phi - q) * gain / ONE : 0, left;

	/* A thousandth is nothing that one could lose. */
	left = lost >= ONE / 1000 ? (u64)limit_percent * (ONE + phi * gain / ONE) / lost : 100;
	return left < 100 ? 100 - left : 0;
}

/* The plan before, with R of `now`, is over, the new one gives v fast CPUs for q of its time. */
static __always_inline void learn(struct vcpu *v, u64 q, u32 now)
{
	s64 rest = (100 - now) * 1024 / 100;
	s64 expected = (now * phi_before + (100 - now) * v->ranked_part) / 100;

	if (ranking_is_new) {
		v->mean_part = q;
		v->beyond = 0;
	} else {
		v->mean_part += ((s64)q - v->mean_part) >> PLANS_LOG2;
		if (v->ran)
			v->beyond += ((s64)(v->ran_fast * ONE / v->ran) - expected -
				      (rest * v->beyond >> 10)) >>
				     PLANS_LOG2;
	}
	v->ranked_part = q;
}

/* The same for those of the ranking from `from` on and before `to`. Their mean q, ppm. */
__noinline u64 learnt_of(u32 from, u32 to, u64 q, u32 now)
{
	struct vcpu *v;
	u32 i;

	parts_learnt = 0;
	nr_learnt = 0;
	bpf_for(i, from, to) {
		v = ranked_at(i);
		if (!v)
			continue;
		learn(v, q, now);
		parts_learnt += v->mean_part + v->beyond;
		nr_learnt++;
	}
	if (parts_learnt <= 0 || !nr_learnt)
		return 0;
	return (u64)parts_learnt / nr_learnt;
}

/* What Credit grants those of the ranking from `from` on and before `to` in a round while they are
 * active, together: of all that were in the window, for who sleeps at this moment is not. */
__noinline u64 due_to(u32 from, u32 to)
{
	struct domain *d;
	struct vcpu *v;
	u64 ns;
	u32 i;

	granted_sum = 0;
	bpf_for(i, from, to) {
		v = ranked_at(i);
		d = v && v->score ? domain_at(v->slot) : NULL;
		if (!d || !v->wide || (v->flags & VF_PARKED))
			continue;
		ns = (u64)d->share * CREDIT_NS;
		granted_sum += exclusive || ns > ROUND_NS ? ROUND_NS : ns;
	}
	return granted_sum;
}

/* R of the next plan, percent; `now`: of the one before. */
__noinline u32 adapted(u32 now)
{
	u64 fast = (u64)cpus_of_kind[0] * ROUND_NS, all = due_to(0, nr_ranked), phi, own, has, q;
	struct vcpu *first;
	u64 e;
	u32 i, r_of;

	if (now > 100)
		return 100;
	wanted = 0;
	phi = all > fast ? fast * ONE / all : ONE;
	group_from = 0;
	bpf_for(i, 0, nr_ranked) {
		first = ranked_at(group_from);
		if (group_from >= nr_ranked || !first)
			break;
		find_group_end();
		own = due_to(group_from, group_to);
		has = own < fast ? own : fast;
		e = score_of(first, false);
		q = learnt_of(group_from, group_to, own ? has * ONE / own : 0, now);
		r_of = own && e > ONE ? needed(e - ONE, phi, q) : 0;
		if (r_of > wanted)
			wanted = r_of;
		fast -= has;
		group_from = group_to;
	}
	phi_before = phi;
	ranking_is_new = false;
	if (!has_adapted) {
		has_adapted = true;
		return wanted;
	}
	if (wanted > now + STEP)
		return now + STEP;
	return wanted + STEP < now ? now - STEP : wanted;
}

/* R of the plan that has just been made. */
static __always_inline void adapt(void)
{
	fair_percent = mode == AMP_FAIR ? 100 : adaptive ? adapted(fair_percent) : r;
}

#endif
