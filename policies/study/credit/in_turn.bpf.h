/* SPDX-License-Identifier: GPL-2.0-only */
/* CPUs on which everybody waits for a turn, in_turn(cpu): no boost, nobody is preempted by
 * priority, and nobody is kept from its end by the rate limit. The others are Credit's. */
#ifndef __CREDIT_IN_TURN_BPF_H
#define __CREDIT_IN_TURN_BPF_H

#define rate_limit_ns rate_limit_ns
static __always_inline u64 rate_limit_ns(struct vcpu *v, s32 cpu)
{
	return in_turn(cpu) ? 0 : ratelimit_us * 1000;
}

#define boosts boosts
static __always_inline bool boosts(struct vcpu *v, s32 cpu)
{
	return !in_turn(cpu);
}

#define beats beats
static __always_inline bool beats(struct vcpu *v, struct vcpu *curr, struct pcpu *c, s32 cpu)
{
	return !in_turn(cpu) && v->pri < curr->pri;
}

#ifndef goes_before
#define goes_before goes_before
static __always_inline bool goes_before(struct vcpu *v, struct vcpu *first, u64 key, struct pcpu *c,
					s32 cpu)
{
	return !in_turn(cpu) && v->pri < first->pri;
}
#endif

#endif
