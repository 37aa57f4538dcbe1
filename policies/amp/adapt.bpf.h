/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Adaptive R (D14): the smallest R at which no group loses more than the limit against equal parts.
 *
 * Shared equally, phi of everybody's time is on fast CPUs; by rank alone, R = 0, a group has them
 * for q of its time, after all groups before it. A fast CPU makes it e times as fast, so with R it
 * does 1 + (e - 1)(r phi + (1 - r) q) instead of 1 + (e - 1) phi, and it loses at most s if
 *
 *	1 - r <= s (1 + phi (e - 1)) / ((phi - q)(e - 1)),
 *
 * which for q = 0 is the closed form of the specification's section 11. Who has its part of fast
 * CPUs by rank alone, q >= phi, loses nothing at any R. The first plan takes what it needs at once,
 * later ones move towards it by STEP.
 */
#ifndef __AMP_ADAPT_BPF_H
#define __AMP_ADAPT_BPF_H

#define STEP 10 /* percent points that R moves in a plan */

/* Counted here and not in locals, as in rank.bpf.h. */
static u32 wanted;
static bool has_adapted; /* there has been an R to step from */

/* R, percent, that keeps the limit for who gains `gain` from fast CPUs and has them for `q` of its
 * time by rank; all ppm. */
static __always_inline u32 needed(u64 gain, u64 phi, u64 q)
{
	u64 lost = q < phi ? (phi - q) * gain / ONE : 0, left;

	left = lost ? (u64)limit_percent * (ONE + phi * gain / ONE) / lost : 100;
	return left < 100 ? 100 - left : 0;
}

/* R of the next plan. */
__noinline u32 adapted(u32 now)
{
	u64 fast = (u64)cpus_of_kind[0] * ROUND_NS, all = granted_to(0, nr_ranked), phi, own, has;
	struct vcpu *first;
	u64 e;
	u32 i, r_of;

	wanted = 0;
	phi = all > fast ? fast * ONE / all : ONE;
	group_from = 0;
	bpf_for(i, 0, nr_ranked) {
		first = ranked_at(group_from);
		if (group_from >= nr_ranked || !first)
			break;
		find_group_end();
		own = granted_to(group_from, group_to);
		has = own < fast ? own : fast;
		e = score_of(first, false);
		r_of = own && e > ONE ? needed(e - ONE, phi, has * ONE / own) : 0;
		if (r_of > wanted)
			wanted = r_of;
		fast -= has;
		group_from = group_to;
	}
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
