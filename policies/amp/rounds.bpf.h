/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The clock of amp: a round every accounting, in it the slots of the upper CPUs; a plan every
 * interval.
 */
#ifndef __AMP_ROUNDS_BPF_H
#define __AMP_ROUNDS_BPF_H

/* The vCPU waits at `from`: it goes to `to`, before the others. Whether it was there. */
__noinline bool move_queued(u32 index, s32 from, s32 to)
{
	struct pcpu *c = pcpu_at(to);
	struct task_struct *p;
	bool found = false;
	struct vcpu *v;

	if (!c)
		return false;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, from, 0) {
		if (index_of(p) != index)
			continue;
		found = true;
		v = vcpu_at(index);
		if (!v || !bpf_cpumask_test_cpu(to, p->cpus_ptr))
			break;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, key_of(v, c, to, true));
		if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, to, 0)) {
			v->cpu = to;
			joined(v, to);
			first_left(from);
			left_queue(from);
			berth_count(moved);
		}
		break;
	}
	bpf_rcu_read_unlock();
	return found;
}

/* A round begins: who has waited for a whole one on a CPU of the fastest kind, and has no credit
 * for it, waits elsewhere from now on: it would be passed over by all that have some. So does
 * whoever waits on a CPU that is gone. On the others they are in order by what they have been
 * granted now (D18). */
__noinline int tidy_queue(s32 cpu)
{
	struct pcpu *here = pcpu_at(cpu), *c;
	struct task_struct *p;
	struct vcpu *v;
	s32 to;

	if (!here || scx_bpf_dsq_nr_queued(cpu) <= 0)
		return 0;
	if (here->kind && here->online)
		return scx_bpf_dsq_nr_queued(cpu) > 1 ? sort_queue(cpu, true) : 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		v = vcpu_of(p);
		if (!v || (here->online &&
			   (has_fast(v) || v->no_slow || round_at - v->queued_at < ROUND_NS)))
			continue;
		refit(p, v);
		to = home_for(p, v, cpu);
		c = pcpu_at(to);
		if (!c || to == cpu)
			continue;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, key_of(v, c, to, false));
		if (!scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, to, 0))
			continue;
		v->cpu = to;
		joined(v, to);
		first_left(cpu);
		left_queue(cpu);
		tickle(to, p, v);
		berth_count(moved);
	}
	bpf_rcu_read_unlock();
	return 0;
}

/* A slot of the vCPU begins on cpu, wherever it is; who sleeps takes it when it wakes. */
__noinline int begin_slot(u32 index, s32 cpu)
{
	struct vcpu *v = vcpu_at(index);
	struct pcpu *c = pcpu_at(cpu), *on;

	if (!v || !c || !v->pid || (v->flags & VF_PARKED))
		return 0;
	lift(v);
	c->owner = index;
	if (c->curr == index)
		return 0;
	on = v->ran_on ? pcpu_at(v->ran_on - 1) : NULL;
	if (on && on->curr == index) {
		/* It is better off where it is. */
		if (on->kind < c->kind)
			return 0;
		set_flag(v, VF_MIGRATING);
		scx_bpf_kick_cpu(v->ran_on - 1, SCX_KICK_PREEMPT);
		berth_count(moved);
		return 0;
	}
	if (!(v->flags & VF_QUEUED))
		return 0;
	/* It is on its way to run elsewhere: it is told when it does. */
	if (v->cpu == cpu)
		sort_queue(cpu, true);
	else if (!move_queued(index, v->cpu, cpu))
		set_flag(v, VF_MIGRATING);
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* Begin the slot that is due on cpu, and come back for the next. */
__noinline int begin_due(s32 cpu)
{
	u32 i, nr, at = scx_bpf_now() - round_at, next = ROUND_NS, from;
	struct pcpu *c = pcpu_at(cpu);

	if (!c)
		return 0;
	nr = c->nr_slots;
	bpf_for(i, 0, MAX_SLOTS) {
		struct slot *s = &c->slots[i & (MAX_SLOTS - 1)];

		if (i >= nr)
			break;
		from = s->from;
		if (from <= at && at < s->to)
			begin_slot(s->index, cpu);
		else if (from > at && from < next)
			next = from;
	}
	if (!c->curr)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	c->next_slot = next < ROUND_NS ? round_at + next : 0;
	/* Whoever is to look for work before the next slot, or after the last one, does. */
	if (c->next_slot || c->again > scx_bpf_now())
		look_after(c, cpu, ROUND_NS);
	return 0;
}

static int slot_over(void *map, u32 *key, struct bpf_timer *timer)
{
	s32 cpu = *key;
	struct pcpu *c = pcpu_at(cpu);
	bool looks = c && c->again <= scx_bpf_now();

	begin_due(cpu);
	/* It was to look for work, and has some: another one looks. */
	if (looks && c->curr)
		ask_one(c->kind + 1, cpu);
	return 0;
}

static __always_inline void new_plan(u64 now)
{
	apply_plan();
	adapt(now - window_at);
}

/* Windows and plans begin and end with rounds; a plan from the window before counts from the next
 * interval on (D7b). */
static __always_inline void keep_intervals(u64 now)
{
	if (!window_at) {
		interval_at = window_at = now;
		return;
	}
	if (!window_closed && now - interval_at >= window_ms * MS) {
		close_window(now - window_at);
		window_closed = true;
		if (plan_at == AT_WINDOW)
			new_plan(now);
	}
	if (now - interval_at < interval_ms * MS)
		return;
	/* A window is no longer than the interval. */
	if (!window_closed)
		close_window(now - window_at);
	if (plan_at == AT_INTERVAL)
		new_plan(now);
	open_window();
	interval_at += interval_ms * MS;
	window_at = now;
	window_closed = false;
}

/* A round: what each vCPU may use of which kind, and when. */
static __always_inline void begin_round(u64 now)
{
	struct pcpu *c;
	u32 kind;
	s32 cpu;

	if (nr_kinds < 2) {
		berth_count(symmetric);
		return;
	}
	count_kinds();
	keep_intervals(now);
	ranking_at = now;
	update_ranking();
	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (c)
			c->nr_slots = 0;
	}
	round_nr++;
	round_at = now;
	open_round();
	bpf_for(kind, 0, slowest())
		share_kind(kind);
	bpf_for(cpu, 0, berth_nr_cpus) {
		tidy_queue(cpu);
	}
	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (c && c->online && is_upper(c))
			begin_due(cpu);
	}
}

/* Charge everybody who runs. */
static __always_inline void burn_all(u64 now)
{
	struct vcpu *v;
	struct pcpu *c;
	s32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		v = c && c->curr ? vcpu_at(c->curr) : NULL;
		if (c && v)
			burn(v, c, now);
	}
}

#endif
