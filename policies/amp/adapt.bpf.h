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
 * phi and q are means over a VM's last plans: of what the ranking gives, after all groups before
 *it, and what it had beyond it. Those who gain the same change places from plan to plan, and who is
 * ranked behind others has fast CPUs while they sleep (W). phi is another one when VMs come or go:
 * each plan's q is held against its own. The first plan takes what it needs at once, later ones
 * move towards it by STEP.
 */
#ifndef __AMP_ADAPT_BPF_H
#define __AMP_ADAPT_BPF_H

#define STEP	   10 /* percent points that R moves in a plan */
#define PLANS_LOG2 3  /* so many plans are remembered */
#define OLD_ENOUGH 5  /* plans after which a mean forgets the first ones */
#define TRUST	   16 /* in the form: it is right to a quarter, 1 / 0.25^2 */
#define FADES_LOG2 4  /* what has been seen counts for so many plans */
#define LEAST_OFF  25 /* ppm: half a percent squared; a plan ends in the middle of something */

/* Counted here and not in locals, as in rank.bpf.h. */
static u32 wanted, nr_learnt;
static bool asked;
static s64 parts_learnt, even_learnt;
static u64 plan_ns;
static u64 ranked_then; /* of a group in the plan that is over */
static u64 ran_learnt, fast_learnt, free_learnt,
	sleeps_learnt;	 /* of a group, in the plan that is over */
static bool has_adapted; /* there has been an R to step from */

/* R, percent, that keeps the limit for who gains `gain` from fast CPUs, would have them for phi of
 * its time in equal parts and has them for `q` by rank; all ppm. */
static __always_inline u32 needed(u64 gain, u64 phi, u64 q)
{
	u64 lost = q < phi ? (phi - q) * gain / ONE : 0, left;

	/* A thousandth is nothing that one could lose. */
	left = lost >= ONE / 1000 ? (u64)limit_percent * (ONE + phi * gain / ONE) / lost : 100;
	return left < 100 ? 100 - left : 0;
}

/* By how much, a power of two, the next plan counts less than all: half, a quarter, an eighth. */
static __always_inline u32 weight_of_next(struct vcpu *v)
{
	return v->judged >= OLD_ENOUGH ? PLANS_LOG2 : v->judged > 2 ? 2 : 1;
}

/* The plan before, with R of `now`, is over, the new one gives v fast CPUs for q of its time, where
 * equal parts would be phi. */
static __always_inline void learn(struct vcpu *v, u64 phi, u64 q, u32 now)
{
	s64 rest = (100 - now) * 1024 / 100;
	s64 expected = (now * v->even_part + (100 - now) * v->ranked_part) / 100;
	u32 by = weight_of_next(v);

	/* The interval in which it came was not a whole one. */
	if (v->judged < 2) {
		v->mean_even = phi;
		v->mean_part = q;
		v->beyond = 0;
	} else {
		v->mean_even += ((s64)phi - v->mean_even) >> by;
		v->mean_part += ((s64)q - v->mean_part) >> by;
		if (v->ran)
			v->beyond += ((s64)(v->ran_fast * ONE / v->ran) - expected -
				      (rest * v->beyond >> 10)) >>
				     by;
	}
	v->even_part = phi;
	v->ranked_part = q;
	if (v->judged < OLD_ENOUGH)
		v->judged++;
}

/* The same for those of the ranking from `from` on and before `to`, the sums of their means, and
 * what they did in the plan that is over: ran, on the fastest CPUs, did not wait for a CPU. */
__noinline int learn_of(u32 from, u32 to, u64 phi, u64 q, u32 now)
{
	struct vcpu *v;
	u32 i;

	ran_learnt = 0;
	fast_learnt = 0;
	free_learnt = 0;
	sleeps_learnt = 0;
	parts_learnt = 0;
	even_learnt = 0;
	nr_learnt = 0;
	bpf_for(i, from, to) {
		v = ranked_at(i);
		if (!v)
			continue;
		learn(v, phi, q, now);
		even_learnt += v->mean_even;
		parts_learnt += v->mean_part + v->beyond;
		nr_learnt++;
		ran_learnt += v->ran;
		fast_learnt += v->ran_fast;
		sleeps_learnt += v->sleeps;
		free_learnt += plan_ns - (v->waited < plan_ns ? v->waited : plan_ns);
	}
	return 0;
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

/* What is between two values, as a part of the lower one by which it is asked, ppm. */
static __always_inline s64 apart(u64 value, u64 from)
{
	u64 by = from ?: 1;

	if (value >= from)
		return (value - from) * ONE / by;
	return -(s64)((from - value) * ONE / by);
}

/* By how much what a group has done in a plan is off by chance, squared, ppm: it slept for some of
 * its time in so many sleeps. */
static __always_inline u64 off(u64 busy, u64 sleeps)
{
	u64 asleep = busy < ONE ? ONE - busy : 0;
	u64 square = asleep * asleep / ONE / (sleeps ?: 1);

	return square > LEAST_OFF ? square : LEAST_OFF;
}

/* a b / by, for what differs by less than all. */
static __always_inline s64 weighed(s64 a, s64 b, u64 by)
{
	bool negative = (a < 0) != (b < 0);
	u64 x = a < 0 ? -a : a, y = b < 0 ? -b : b;
	u64 all = (x < ONE ? x : ONE) * (y < ONE ? y : ONE) / ONE * 1024 / (by ?: 1);

	return negative ? -(s64)all : (s64)all;
}

/* The group of `first`, which gains `gain` by its score, ran for `busy` of its time in the plan
 * that is over, `part` of that on fast CPUs. When it had more of them than in the mean, how much
 * more did it do, and how much by the form? Weighed by what is chance in it. */
static __always_inline void compare(struct vcpu *first, u64 gain, u64 part, u64 busy, u64 chance)
{
	u64 had = first->mean_fast;
	u32 by = first->compared < PLANS_LOG2 ? first->compared : PLANS_LOG2;
	s64 form, done;

	/* Fast CPUs by rank are its threads' at one time, in equal parts one thread's after the
	 * other's: not to be compared. */
	if (first->mean_ranked > ranked_then + ONE / 8 ||
	    ranked_then > first->mean_ranked + ONE / 8) {
		first->compared = 0;
		first->form = 0;
		first->found = 0;
	}
	first->mean_ranked = ranked_then;
	if (!first->compared) {
		first->mean_fast = part;
		first->mean_busy = busy;
		first->compared = 1;
		return;
	}
	form = apart(ONE + gain * part / ONE, ONE + gain * had / ONE);
	done = apart(busy * (ONE + first->speedup * part / ONE) / ONE,
		     first->mean_busy * (ONE + first->speedup * had / ONE) / ONE);
	first->form += weighed(form, form, chance) - (first->form >> FADES_LOG2);
	first->found += weighed(form, done, chance) - (first->found >> FADES_LOG2);
	first->mean_fast += ((s64)part - (s64)had) >> by;
	first->mean_busy += ((s64)busy - (s64)first->mean_busy) >> by;
	if (first->compared < PLANS_LOG2)
		first->compared++;
}

/* Part of what the form says that the group of `first` does more with more fast time, ppm. Without
 * evidence all of it. */
static __always_inline u64 answer(struct vcpu *first)
{
	s64 found = first->found + TRUST * 1024, form = first->form + TRUST * 1024;

	if (found <= 0 || form <= 0)
		return 0;
	return found < form ? (u64)found * ONE / (u64)form : ONE;
}

/* R that the group of `first` needs, of which has been learnt last. */
__noinline u32 needed_by(struct vcpu *first, u64 gain, u64 phi, u32 now)
{
	u64 nr = nr_learnt ?: 1, ran = ran_learnt ?: 1, free = free_learnt ?: 1;
	u64 busy = ran < free ? ran * ONE / free : ONE, chance = off(busy, sleeps_learnt / nr);
	u64 all = gain * phi / ONE * (now < 100 ? now : 100) / 100, even;
	u32 r_of;

	if (!first)
		return 0;
	if (first->judged > 2)
		compare(first, gain, fast_learnt * ONE / ran, busy, chance);
	gain = gain * answer(first) / ONE;
	even = even_learnt > 0 ? (u64)even_learnt / nr : 0;
	r_of = needed(gain, even < phi ? even : phi, parts_learnt > 0 ? (u64)parts_learnt / nr : 0);
	if (r_of <= wanted)
		return r_of;
	/* A plan without R would say how much it needs. */
	asked = first->compared && busy < ONE - ONE / 32 && first->form < TRUST * 1024 &&
		all * all / ONE > TRUST * chance;
	return r_of;
}

/* R of the next plan, percent; `now`: of the one before. */
__noinline u32 adapted(u32 now)
{
	u64 fast = (u64)cpus_of_kind[0] * ROUND_NS, all = due_to(0, nr_ranked), phi, own, has;
	struct vcpu *first;
	u64 e;
	u32 i, r_of;

	if (now > 100)
		return 100;
	wanted = 0;
	asked = false;
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
		ranked_then = first->ranked_part;
		learn_of(group_from, group_to, phi, own ? has * ONE / own : 0, now);
		r_of = own && e > ONE ? needed_by(first, e - ONE, phi, now) : 0;
		if (r_of > wanted)
			wanted = r_of;
		fast -= has;
		group_from = group_to;
	}
	if (asked && has_adapted) {
		has_adapted = false;
		return 0;
	}
	if (!has_adapted) {
		has_adapted = true;
		return wanted;
	}
	if (wanted > now + STEP)
		return now + STEP;
	return wanted + STEP < now ? now - STEP : wanted;
}

/* R of the plan that has just been made; the one before was as long. */
static __always_inline void adapt(u64 length)
{
	plan_ns = length;
	fair_percent = mode == AMP_FAIR ? 100 : adaptive ? adapted(fair_percent) : r;
}

#endif
