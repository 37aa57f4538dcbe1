/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * FLMS, sections 5.4 and 5.5 of the specification: from which CPU an idle one takes a vCPU, and
 * which. The paper calls the idle one the source and the other the target; here they are the thief
 * and the victim.
 */
#ifndef __BERTH_FLMS_BALANCE_BPF_H
#define __BERTH_FLMS_BALANCE_BPF_H

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

/* Equation 9, as a distance from balance: |2 load - (busy[victim] - busy[thief])|. */
static __always_inline u64 imbalance(struct vcpu *v, s64 difference)
{
	s64 off = 2 * (s64)v->load_avg - difference;

	return off < 0 ? -off : off;
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
		if (!sp && refuse_overshoot && pri != IDLE && (s64)v->load_avg >= difference)
			continue;
		score = sp ? v->io_boost : imbalance(v, difference);
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

/* Is cpu a possible victim: busy, of the thief's group, with something to take? */
static __always_inline bool eligible(s32 cpu, s32 thief, u32 pri, const struct cpumask *idle)
{
	if (cpu == thief || bpf_cpumask_test_cpu(cpu, idle) || is_short(cpu) != is_short(thief))
		return false;
	return has_stealable(cpu, thief, pri);
}

/* The eligible CPU at this distance with the most load; the lowest of equals. */
__noinline s32 busiest(s32 thief, u32 pri, u32 away)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	u64 most = 0;
	struct pcpu *c;
	s32 found = NO_CPU, cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (!c || distance(cpu, thief) != away || !eligible(cpu, thief, pri, idle))
			continue;
		/* In the thief's core the first will do. */
		if (found < 0 || (away && c->history_busy > most)) {
			found = cpu;
			most = c->history_busy;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/* The eight steps. */
static __always_inline bool balance_to(struct pcpu *c, s32 thief, u32 pri)
{
	bool taken = false;
	s32 away, victim;

	if (waiting <= 0 || (idle_only && pri != IDLE))
		return false;
	bpf_for(away, 0, 3) {
		u64 worth = away == 1 ? same_package : away == 2 ? other_package : 0;
		struct pcpu *other;

		if (percent_thresholds)
			worth *= 3;
		victim = busiest(thief, pri, away);
		other = victim < 0 ? NULL : pcpu_at(victim);
		if (!other)
			continue;
		if (away &&
		    (s64)(other->history_busy - c->history_busy) <= (s64)(worth << LOAD_BITS))
			continue;
		taken = take_from(victim, thief, pri);
		if (!taken)
			continue;
		if (away == 0)
			berth_count(same_core);
		else if (away == 1)
			berth_count(same_package);
		else
			berth_count(other_package);
		break;
	}
	return taken;
}

#endif
