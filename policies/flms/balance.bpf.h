/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * FLMS, sections 5.4 and 5.5 of the specification: from which CPU an idle one takes a vCPU, and
 * which. The paper calls the idle one the source and the other the target; here they are the thief
 * and the victim. What the thief already has counts as `pri`: IDLE if nothing, OVER if an exhausted
 * vCPU (D12).
 */
#ifndef __FLMS_BALANCE_BPF_H
#define __FLMS_BALANCE_BPF_H

/* D13: who is a possible victim in a step. `stealable`: only who has something to take; else the
 * search goes on. `literal`: the first, or the busiest, whatever it has; there the search ends. */
enum step { STEALABLE, LITERAL };
enum sp_take { BY_KEY, BY_BOOST };
enum eq9_load { AVERAGE, LIFETIME };
/* Ablation. `steps`: step 7 takes the first of the queue. `credit`: so it does, and victims are
 * looked at in the order of their numbers, near or far, whatever their load (Credit's search on one
 * node).
 */
enum balancing { PAPER, STEPS, AS_CREDIT };

/* The best vCPU to take from a queue, while it is searched. */
struct find {
	u32 pid; /* 0: none */
	u64 score;
	u64 since; /* waits since then */
};

/* May p, which waits at some victim, be taken to the thief? */
static __always_inline bool stealable(struct task_struct *p, struct vcpu *v, s32 thief, u32 pri)
{
	return v->pri < pri && may_use(p, v, thief);
}

/* Has victim's queue anything for the thief (D13)? */
__noinline bool has_stealable(s32 victim, s32 thief, u32 pri)
{
	struct task_struct *p;
	struct vcpu *v;
	bool found = false;

	if (scx_bpf_dsq_nr_queued(victim) <= 0)
		return false;
	bpf_for_each(scx_dsq, p, victim, 0) {
		v = vcpu_of(p);
		if (!v)
			continue;
		found = stealable(p, v, thief, pri);
		if (found)
			break;
	}
	return found;
}

/* D9: the load that equation 9 and D15b mean; in the paper the sum over the vCPU's life. */
static __always_inline s64 moving_load(struct vcpu *v)
{
	return eq9_load == AVERAGE ? v->load_avg : v->history_load << LOAD_BITS;
}

/* Equation 9, as a distance from balance: |2 load - (busy[victim] - busy[thief])|. */
static __always_inline u64 imbalance(struct vcpu *v, s64 difference)
{
	s64 off = 2 * moving_load(v) - difference;

	return off < 0 ? -off : off;
}

/* On SP: the key of its queues (D13), or IO_Boost alone. */
static __always_inline u64 rank_on_sp(struct vcpu *v)
{
	u64 boost = v->io_boost < RANK_MAX ? v->io_boost : RANK_MAX;

	return sp_take == BY_BOOST ? v->io_boost : (u64)v->pri << CLASS_SHIFT | boost;
}

/* Step 7: choose a vCPU of victim's queue and take it. */
__noinline bool take_from(s32 victim, s32 thief, u32 pri)
{
	struct pcpu *a = pcpu_at(victim), *b = pcpu_at(thief);
	bool taken = false, sp = is_short(thief);
	struct find best = {};
	struct task_struct *p;
	struct vcpu *v;
	s64 difference;
	u64 score;

	if (!a || !b)
		return false;
	difference = (s64)a->history_busy - (s64)b->history_busy;
	bpf_for_each(scx_dsq, p, victim, 0) {
		v = vcpu_of(p);
		if (!v || !stealable(p, v, thief, pri))
			continue;
		if (!sp && refuse_overshoot && pri != IDLE && moving_load(v) >= difference)
			continue;
		if (balancing != PAPER && best.pid)
			break;
		score = sp ? rank_on_sp(v) : imbalance(v, difference);
		if (best.pid &&
		    (score > best.score || (score == best.score && v->queued_at >= best.since)))
			continue;
		best.pid = v->pid;
		best.score = score;
		best.since = v->queued_at;
	}
	if (!best.pid)
		return false;
	bpf_for_each(scx_dsq, p, victim, 0) {
		if (p->pid != best.pid)
			continue;
		taken = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		break;
	}
	return taken;
}

/* Difference of loads that a move this far must exceed: nothing, A, B. In credits for T_busy. */
static __always_inline s64 worth(u32 away)
{
	u64 credits = away == SAME_CORE ? 0 : away == SAME_PACKAGE ? same_package : other_package;

	if (percent_thresholds)
		credits *= 3;
	return (credits << LOAD_BITS) * busy_ms / 30;
}

/* Step 1, narrowed to a distance: the CPUs of the thief's group among which a victim is sought. */
__noinline bool candidates_for(struct choice *s, s32 thief, u32 pri, u32 away)
{
	bool literal = away == SAME_CORE ? step2 == LITERAL : steps35 == LITERAL;
	const struct cpumask *idle;

	if (!s)
		return false;
	if (literal) {
		s->candidates = online_cpus;
	} else {
		s->candidates = pri == OVER ? better_cpus : waiting_cpus;
		idle = scx_bpf_get_idle_cpumask();
		read_mask(&s->idle, idle);
		scx_bpf_put_idle_cpumask(idle);
		drop_both(&s->candidates, &s->idle);
	}
	if (is_short(thief))
		keep_both(&s->candidates, &short_cpus);
	else
		drop_both(&s->candidates, &short_cpus);
	put(&s->candidates, thief, false);
	return balancing == AS_CREDIT || keep_at(&s->candidates, thief, away);
}

/* The candidate with the most load, the lowest of equals, if that is worth the way; in the thief's
 * own core the first. */
__noinline s32 busiest(struct choice *s, s32 thief, u32 pri, u32 away)
{
	bool literal = away == SAME_CORE ? step2 == LITERAL : steps35 == LITERAL;
	bool first = away == SAME_CORE || balancing == AS_CREDIT;
	s32 found = NO_CPU, cpu = berth_nr_cpus - 1, i;
	struct pcpu *c, *mine = pcpu_at(thief);
	s64 most = 0;

	if (!s || !mine)
		return found;
	/* Strictly more than what is worth it. */
	most = (s64)mine->history_busy + worth(away);
	bpf_for(i, 0, berth_nr_cpus) {
		cpu = next_in(&s->candidates, cpu);
		if (cpu < 0)
			break;
		put(&s->candidates, cpu, false);
		c = pcpu_at(cpu);
		if (!c || (!first && (s64)c->history_busy <= most))
			continue;
		if (!literal && !has_stealable(cpu, thief, pri)) {
			found_nothing(cpu, pri);
			continue;
		}
		found = cpu;
		most = c->history_busy;
		if (first)
			break;
	}
	return found;
}

/* The eight steps: 2 for its core, 3 and 4 for its package, 5 and 6 for the others, each with 7. */
static __always_inline bool balance_to(struct pcpu *c, s32 thief, u32 pri)
{
	struct choice *s = choice_here();
	bool taken = false;
	s32 away, victim;

	if (!s || waiting <= 0 || (idle_only && pri != IDLE))
		return false;
	bpf_for(away, 0, DISTANCES) {
		if (!candidates_for(s, thief, pri, away))
			continue;
		victim = busiest(s, thief, pri, away);
		if (victim < 0)
			continue;
		taken = take_from(victim, thief, pri);
		if (taken && balancing == AS_CREDIT)
			berth_count(as_credit);
		else if (taken && away == SAME_CORE)
			berth_count(same_core);
		else if (taken && away == SAME_PACKAGE)
			berth_count(same_package);
		else if (taken)
			berth_count(other_package);
		/* Whoever is the victim to the letter ends the search, with or without anything. */
		if (taken || (away == SAME_CORE ? step2 : steps35) == LITERAL)
			break;
	}
	return taken;
}

/* Idle CPUs in s, this far from cpu: the one with the least load that would find cpu worth the way.
 */
__noinline s32 willing(struct choice *s, s32 cpu, u32 away)
{
	struct pcpu *c = pcpu_at(cpu), *other;
	s32 found = least_loaded(s, cpu, false);

	other = found < 0 ? NULL : pcpu_at(found);
	if (!c || !other)
		return NO_CPU;
	if (away != SAME_CORE && (s64)(c->history_busy - other->history_busy) <= worth(away))
		return NO_CPU;
	return found;
}

/*
 * A tick of cpu while somebody waits there: an idle CPU of the group that would take work from here
 * is asked to look. It may have refused before, when the loads were nearer to each other, and
 * nobody asks an idle CPU otherwise.
 */
static __always_inline void call_for_help(s32 cpu)
{
	struct choice *s = choice_here();
	const struct cpumask *idle;
	struct task_struct *head;
	s32 found = NO_CPU, away;
	struct vcpu *v;

	head = __COMPAT_scx_bpf_dsq_peek(cpu);
	v = head ? vcpu_of(head) : NULL;
	if (!s || !head || !v)
		return;
	idle = scx_bpf_get_idle_cpumask();
	bpf_for(away, 0, DISTANCES) {
		if (!idle_for(s, head, v, idle, NO_CPU))
			break;
		if (!keep_at(&s->candidates, cpu, away))
			continue;
		found = willing(s, cpu, away);
		if (found >= 0)
			break;
	}
	scx_bpf_put_idle_cpumask(idle);
	if (found >= 0)
		scx_bpf_kick_cpu(found, SCX_KICK_IDLE);
}

#endif
