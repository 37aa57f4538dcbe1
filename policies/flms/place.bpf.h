/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * FLMS: which pCPU a vCPU goes to when it wakes (D11b), when its own has left its group (D10), and
 * which idle one is asked to come and take it. "Nearest" is the same core, then the same package,
 * then another one; of equals the lowest number.
 */
#ifndef __FLMS_PLACE_BPF_H
#define __FLMS_PLACE_BPF_H

enum wake_place { TICKLE, DIRECT };
enum distance { SAME_CORE, SAME_PACKAGE, ELSEWHERE, DISTANCES };

/* Of the set: what is this far from cpu. */
__noinline bool keep_at(struct cpu_set *set, s32 cpu, u32 away)
{
	struct choice *s = choice_here();

	if (!set || !s)
		return false;
	if (away == SAME_CORE) {
		zone_of(&s->zone, cpu, false);
		return keep_both(set, &s->zone);
	}
	zone_of(&s->zone, cpu, true);
	if (away == ELSEWHERE) {
		drop_both(set, &s->zone);
	} else {
		keep_both(set, &s->zone);
	}
	zone_of(&s->zone, cpu, false);
	drop_both(set, &s->zone);
	return next_in(set, 0) >= 0;
}

/* The nearest idle pCPU that p, at cpu, may use. */
static __always_inline s32 nearest_idle(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	struct choice *s = choice_here();
	s32 found = NO_CPU, away;

	bpf_for(away, 0, DISTANCES) {
		if (!s || !idle_for(s, p, v, idle, NO_CPU))
			break;
		if (!keep_at(&s->candidates, cpu, away))
			continue;
		found = next_in(&s->candidates, berth_nr_cpus - 1);
		break;
	}
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/* Is x nearer to cpu than y? */
__noinline bool is_nearer(s32 x, s32 y, s32 cpu)
{
	struct berth_cpu *a = berth_cpu(x), *b = berth_cpu(y), *from = berth_cpu(cpu);

	if (!a || !b || !from)
		return false;
	if ((a->core == from->core) != (b->core == from->core))
		return a->core == from->core;
	return a->llc == from->llc && b->llc != from->llc;
}

/* The one of the candidates with the least load; of equals the nearest to cpu. `expected`: with
 * that of those who were sent there since. */
__noinline s32 least_loaded(struct choice *s, s32 cpu, bool expected)
{
	s32 found = NO_CPU, at = berth_nr_cpus - 1, i;
	u64 least = ~0ULL, load;
	struct pcpu *c;

	if (!s)
		return found;
	bpf_for(i, 0, berth_nr_cpus) {
		at = next_in(&s->candidates, at);
		if (at < 0)
			break;
		put(&s->candidates, at, false);
		c = pcpu_at(at);
		if (!c)
			continue;
		load = c->history_busy;
		if (expected)
			load += c->expected;
		if (load > least || (load == least && !is_nearer(at, found, cpu)))
			continue;
		least = load;
		found = at;
	}
	return found;
}

/* D10: p cannot stay at cpu. To the least busy pCPU of its group; its load counts there from now
 * on, so that not all go to the same. */
static __noinline s32 rehomed(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	struct choice *s = choice_here();
	struct pcpu *c;
	s32 to;

	if (!p || !v || !s)
		return cpu;
	usable(&s->candidates, p, v);
	if (!keep_both(&s->candidates, &online_cpus))
		return cpu;
	to = least_loaded(s, cpu, true);
	c = to < 0 ? NULL : pcpu_at(to);
	if (!c)
		return cpu;
	__sync_fetch_and_add(&c->expected, v->load_avg > LEAST_ONE ? v->load_avg : LEAST_ONE);
	return to;
}

static __always_inline s32 rehome(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	return rehomed(p, v, cpu);
}

/* `tickle`: as Credit, the next idle one after the one that was asked last. */
static __always_inline s32 choose_idle(struct task_struct *p, struct vcpu *v, struct pcpu *c,
				       s32 cpu, const struct cpumask *idle)
{
	return find_idle(p, v, c, idle, NO_CPU);
}

/* `direct`, on SP (D11b): its own pCPU if that is idle, else the nearest idle one, which is its own
 * from now on. NO_CPU: it waits where it was, and somebody may be tickled. */
static __always_inline s32 wake_to(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	s32 found = cpu;

	if (wake_place != DIRECT || !is_short(cpu))
		return NO_CPU;
	if (scx_bpf_test_and_clear_cpu_idle(cpu))
		return cpu;
	found = nearest_idle(p, v, cpu);
	return found >= 0 && scx_bpf_test_and_clear_cpu_idle(found) ? found : NO_CPU;
}

#endif
