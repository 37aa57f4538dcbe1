/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a vCPU goes: to its slot's CPU in its slot, to an idle upper CPU (W), else to any CPU but
 * the fastest. And the hooks of Credit's queues.
 */
#ifndef __AMP_PLACE_BPF_H
#define __AMP_PLACE_BPF_H

static __always_inline struct cpu_set *package_cpus(u32 cpu)
{
	u32 llc = berth_llc(cpu);

	return bpf_map_lookup_elem(&cpus_by_llc, &llc);
}

/* Its slot is part of what Credit has granted it: in it, it goes before everybody. */
static __always_inline void lift(struct vcpu *v)
{
	v->lifted = 1;
	v->pri = BOOST;
}

/* What v caches: may it use all CPUs, or none of the slowest kind? Its class, in a slot or not. */
static __noinline int refit(struct task_struct *p, struct vcpu *v)
{
	struct cpu_set *slow;
	struct choice *s;

	if (!p || !v)
		return 0;
	v->wide = p->nr_cpus_allowed >= nr_online;
	v->no_slow = 0;
	if (!v->wide && nr_kinds > 1) {
		s = choice_here();
		slow = kind_cpus(slowest());
		if (s && slow) {
			read_mask(&s->zone, p->cpus_ptr);
			v->no_slow = !keep_both(&s->zone, slow);
		}
	}
	if (slot_of(v, scx_bpf_now()) >= 0) {
		lift(v);
	} else if (v->lifted) {
		v->lifted = 0;
		v->pri = v->credit < 0 ? OVER : UNDER;
	}
	return 0;
}

static __always_inline void refresh(struct task_struct *p, struct vcpu *v)
{
	refit(p, v);
	v->queued_at = scx_bpf_now();
}

static __always_inline bool is_online(s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu);

	return c && c->online;
}

static __always_inline bool may_use(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	struct pcpu *c;
	s32 slot;

	if (cpu < 0 || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return false;
	if (nr_kinds < 2)
		return true;
	slot = slot_of(v, scx_bpf_now());
	if (slot >= 0 && is_online(slot))
		return cpu == slot;
	if (fast_only(v) && is_online(v->pieces[0].cpu))
		return cpu == v->pieces[0].cpu;
	c = pcpu_at(cpu);
	return v->no_slow || (c && (is_guest(v) ? c->kind > 0 : !is_upper(c)));
}

/* dom0 and what serves VMs keeps to the slowest kind (D13), if it may use it. */
static __always_inline void narrow(struct vcpu *v, struct cpu_set *set)
{
	struct cpu_set *slow = kind_cpus(slowest());

	if (slow && !is_guest(v) && !host_anywhere && !v->no_slow && nr_kinds > 1)
		keep_both(set, slow);
}

/* Whose slot it is on this CPU is on its way. Who has been told while cut may be away for long. */
static __always_inline bool awaits_owner(struct pcpu *c, s32 cpu)
{
	struct vcpu *v = c->owner ? vcpu_at(c->owner) : NULL;
	u32 flags = v ? v->flags : 0;

	if (!(flags & VF_QUEUED) && (flags & (VF_MIGRATING | VF_CUT)) != VF_MIGRATING)
		return false;
	return v && slot_of(v, scx_bpf_now()) == cpu;
}

/* Idle CPUs that p may use and at which nobody waits, into `candidates`. Whoever waits at an idle
 * CPU is about to run there: it is nobody else's. Whether any. */
static __always_inline bool spare_for(struct choice *s, struct task_struct *p, struct vcpu *v,
				      const struct cpumask *idle)
{
	return idle_for(s, p, v, idle, NO_CPU) && !drop_both(&s->candidates, &waiting_cpus);
}

/* An idle upper CPU for p, the fastest; NO_CPU: none. */
static __noinline s32 idle_upper(struct task_struct *p, struct vcpu *v, const struct cpumask *idle)
{
	struct choice *s = choice_here();
	s32 cpu = NO_CPU, found;
	struct cpu_set *set;
	struct pcpu *c;
	u32 kind;

	if (!p || !v || !idle || !s || nr_kinds < 2 || !is_guest(v))
		return NO_CPU;
	bpf_for(kind, 0, slowest()) {
		set = kind_cpus(kind);
		if (!set || !spare_for(s, p, v, idle) || !keep_both(&s->candidates, set))
			continue;
		found = next_in(&s->candidates, choices_of_upper);
		c = found >= 0 ? pcpu_at(found) : NULL;
		if (c && !awaits_owner(c, found)) {
			choices_of_upper = found;
			cpu = found;
			break;
		}
	}
	return cpu;
}

/* The next two look at a few CPUs, of those that the caller has put into `zone`. */

/* D11 and section 5: a guest of an upper CPU that has no credit for it, for v that has. */
__noinline s32 guest_to_preempt(struct vcpu *v)
{
	u64 now = scx_bpf_now();
	struct cpu_set *set = kind_cpus(0);
	s32 cpu = choices_of_upper, found = NO_CPU, i;
	struct choice *s = choice_here();
	struct vcpu *curr;
	struct pcpu *c;

	if (!s || !v || !set || nr_kinds < 2 || !has_fast(v))
		return NO_CPU;
	bpf_for(i, 0, 8) {
		cpu = next_in(set, cpu);
		if (cpu < 0)
			break;
		c = pcpu_at(cpu);
		curr = c && c->curr ? vcpu_at(c->curr) : NULL;
		if (curr && !(curr->flags & VF_CUT) && !has_fast(curr) && slot_of(curr, now) < 0 &&
		    !curr->no_slow && has(&s->zone, cpu)) {
			found = cpu;
			break;
		}
	}
	return found;
}

/* A CPU below the fastest at which v, of class pri, goes before who runs there: by class, then who
 * is more overdue (D18). D11, who is boosted: before all, who has no slot there rather than who
 * has. */
__noinline s32 lesser_to_preempt(struct vcpu *v, u32 pri)
{
	struct choice *s = choice_here();
	u64 now = scx_bpf_now();
	s32 cpu, owned = NO_CPU, found = NO_CPU, i;
	struct cpu_set *set;
	struct vcpu *curr;
	struct pcpu *c;
	u32 kind;

	if (!s || !v || nr_kinds < 2 || pri > OVER || !is_guest(v))
		return NO_CPU;
	bpf_for(kind, 1, nr_kinds) {
		set = kind_cpus(kind);
		cpu = choices_of_lower;
		bpf_for(i, 0, 8) {
			cpu = set ? next_in(set, cpu) : NO_CPU;
			if (cpu < 0 || found >= 0)
				break;
			c = pcpu_at(cpu);
			curr = c && c->curr ? vcpu_at(c->curr) : NULL;
			if (!curr || curr->no_slow || (curr->flags & VF_CUT) || !has(&s->zone, cpu))
				continue;
			if (slot_of(curr, now) == cpu)
				owned = cpu;
			else if (curr->pri > pri || (pri == v->pri && more_overdue(v, curr, LEAD)))
				found = cpu;
		}
	}
	if (found < 0 && pri == BOOST)
		found = owned;
	if (found >= 0)
		choices_of_lower = found;
	return found;
}

/* What p may use, into `zone`. */
static __always_inline void zone_for(struct task_struct *p, struct vcpu *v)
{
	struct choice *s = choice_here();

	if (s)
		usable(&s->zone, p, v);
}

/* An idle CPU of the slowest kind, claimed; the one it ran on last if that is idle. */
static __noinline s32 claim_slow(struct task_struct *p, struct vcpu *v, const struct cpumask *idle)
{
	struct cpu_set *slow = kind_cpus(slowest());
	struct choice *s = choice_here();
	s32 home, cpu = NO_CPU;

	if (!p || !v || !idle || !slow || !s)
		return NO_CPU;
	home = v->slow_home ? v->slow_home - 1 : 0;
	if (v->slow_home && !has(&waiting_cpus, home) && bpf_cpumask_test_cpu(home, p->cpus_ptr) &&
	    scx_bpf_test_and_clear_cpu_idle(home))
		return home;
	if (!spare_for(s, p, v, idle) || !keep_both(&s->candidates, slow))
		return NO_CPU;
	cpu = next_in(&s->candidates, home);
	return cpu >= 0 && scx_bpf_test_and_clear_cpu_idle(cpu) ? cpu : NO_CPU;
}

/* Boosted by a wake-up, not by a slot. */
static __always_inline bool woke_boosted(struct vcpu *v)
{
	return v->pri == BOOST && !v->lifted;
}

/* D11 as in Credit: the upper CPU that it ran on last, if who runs there is not boosted, too. */
static __always_inline s32 last_upper(struct task_struct *p, struct vcpu *v)
{
	s32 cpu = (s32)v->ran_on - 1;
	struct pcpu *c = pcpu_at(cpu);
	struct vcpu *curr = c && c->curr ? vcpu_at(c->curr) : NULL;

	if (!c || !curr || !is_upper(c) || !is_guest(v) || curr->no_slow ||
	    (curr->flags & VF_CUT) || woke_boosted(curr) || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return NO_CPU;
	return cpu;
}

/* Whoever wakes has an idle CPU for itself, if there is one: an upper one, the one it ran on last,
 * another. To wait where it was until an idle one has come for it, as in Credit, would be to lose
 * if that one finds work of its own meanwhile, which it does where threads wake together. */
static __always_inline s32 wake_to(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	const struct cpumask *idle;
	bool stays;
	s32 found;

	if (nr_kinds < 2 || v->target || slot_of(v, scx_bpf_now()) >= 0)
		return NO_CPU;
	idle = scx_bpf_get_idle_cpumask();
	stays = bpf_cpumask_test_cpu(cpu, idle) && !has(&waiting_cpus, cpu);
	found = idle_upper(p, v, idle);
	if (found >= 0 && !scx_bpf_test_and_clear_cpu_idle(found))
		found = NO_CPU;
	if (found < 0 && has_fast(v)) {
		zone_for(p, v);
		found = guest_to_preempt(v);
		if (found >= 0)
			scx_bpf_kick_cpu(found, SCX_KICK_PREEMPT);
	}
	if (found < 0 && !stays)
		found = claim_slow(p, v, idle);
	if (found < 0 && !stays && boost_fast && v->pri <= UNDER) {
		found = last_upper(p, v);
		if (found >= 0)
			scx_bpf_kick_cpu(found, SCX_KICK_PREEMPT);
	}
	if (found < 0 && !stays && nr_kinds > 2 && v->pri <= UNDER) {
		zone_for(p, v);
		found = lesser_to_preempt(v, BOOST);
		if (found >= 0)
			scx_bpf_kick_cpu(found, SCX_KICK_PREEMPT);
	}
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

static __noinline s32 slow_place(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	struct cpu_set *fast = kind_cpus(0);
	struct choice *s = choice_here();
	struct pcpu *c;
	s32 home;

	if (!p || !v || !fast || !s)
		return cpu;
	home = v->slow_home ? v->slow_home - 1 : NO_CPU;
	c = home >= 0 ? pcpu_at(home) : NULL;
	if (c && c->online && bpf_cpumask_test_cpu(home, p->cpus_ptr))
		return home;
	usable(&s->zone, p, v);
	drop_both(&s->zone, fast);
	if (!keep_both(&s->zone, &online_cpus))
		return first_usable(p, v, cpu);
	return next_in(&s->zone, cpu);
}

/* Where p waits that has no slot: where it did last, or goes before who runs there. */
static __always_inline s32 lower_place(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	s32 home = slow_place(p, v, cpu), other;
	struct pcpu *c = pcpu_at(home);
	struct vcpu *curr = c && c->curr ? vcpu_at(c->curr) : NULL;

	if (!curr || curr->pri > v->pri || more_overdue(v, curr, LEAD))
		return home;
	zone_for(p, v);
	other = lesser_to_preempt(v, v->pri);
	return other >= 0 ? other : home;
}

static __always_inline bool is_faster(s32 cpu, s32 than)
{
	struct pcpu *a = pcpu_at(cpu), *b = pcpu_at(than);

	return a && b && a->kind < b->kind;
}

static __always_inline s32 home_for(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	s32 to = slot_of(v, scx_bpf_now());
	const struct cpumask *idle;
	struct pcpu *c;

	if (nr_kinds < 2)
		return first_usable(p, v, cpu);
	/* A faster CPU than its slot's has nothing to do. */
	if (to >= 0 && v->target && is_faster(v->target - 1, to))
		to = NO_CPU;
	else if (to < 0 && fast_only(v))
		to = v->pieces[0].cpu;
	if (to >= 0 && is_online(to) && bpf_cpumask_test_cpu(to, p->cpus_ptr))
		return to;
	if (v->no_slow)
		return first_usable(p, v, cpu);
	to = v->target ? (s32)v->target - 1 : NO_CPU;
	v->target = 0;
	c = to >= 0 ? pcpu_at(to) : NULL;
	if (c && !c->curr && bpf_cpumask_test_cpu(to, p->cpus_ptr)) {
		scx_bpf_test_and_clear_cpu_idle(to);
		v->target = to + 1;
		return to;
	}
	idle = scx_bpf_get_idle_cpumask();
	to = idle_upper(p, v, idle);
	if (to < 0 || !scx_bpf_test_and_clear_cpu_idle(to))
		to = claim_slow(p, v, idle);
	scx_bpf_put_idle_cpumask(idle);
	if (to < 0)
		return lower_place(p, v, cpu);
	v->target = to + 1;
	return to;
}

static __always_inline s32 rehome(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	s32 to = home_for(p, v, cpu);

	/* It stays although it was sent away: its CPU has decided without it. */
	if (to == scx_bpf_task_cpu(p))
		scx_bpf_kick_cpu(to, 0);
	return to;
}

/* First an upper one, then the next after the one asked last. In its slot, or at a CPU that has
 * been claimed for it, it waits for no other. */
static __always_inline s32 choose_idle(struct task_struct *p, struct vcpu *v, struct pcpu *c,
				       s32 cpu, const struct cpumask *idle)
{
	struct choice *s;
	s32 found;

	if (nr_kinds > 1 && (v->target == cpu + 1 || slot_of(v, scx_bpf_now()) == cpu))
		return NO_CPU;
	found = idle_upper(p, v, idle);
	s = choice_here();
	if (found >= 0 || !s || !spare_for(s, p, v, idle))
		return found;
	return next_in(&s->candidates, c->cursor);
}

/* Whoever has to go, goes where rehome() says. */
static __noinline s32 pick_cpu(struct task_struct *p, struct vcpu *v)
{
	return NO_CPU;
}

static __always_inline bool unplaced(struct vcpu *v)
{
	return false;
}

static __always_inline s32 place(struct task_struct *p, struct vcpu *v, s32 prev)
{
	return prev;
}

static __always_inline u64 queue_key(struct vcpu *v, struct pcpu *c, s32 cpu, bool front)
{
	bool first = front || slot_of(v, scx_bpf_now()) == cpu;
	u64 arrival = arrival_key(c, first);

	return nr_kinds > 1 && c->kind ? overdue_key(v, arrival, first) : arrival;
}

/* D11 as in Credit: on upper CPUs, too, who woke boosted goes before slots. */
static __always_inline bool breaks_in(struct vcpu *v, struct vcpu *other)
{
	return boost_fast && woke_boosted(v) && !woke_boosted(other);
}

/* On an upper CPU: whose slot it is, then who has credit for it, then by class. Below the fastest,
 * of one class, who is more overdue (D18). Who may run nowhere else gets its turn at the end of a
 * slice. */
static __always_inline bool goes_before(struct vcpu *v, struct vcpu *first, u64 key, struct pcpu *c,
					s32 cpu)
{
	u64 now = scx_bpf_now();

	if (!is_upper(c))
		return v->pri < first->pri || more_overdue(v, first, 0);
	if (first->no_slow && !v->no_slow)
		return false;
	if (breaks_in(v, first) != breaks_in(first, v))
		return breaks_in(v, first);
	if (slot_of(v, now) == cpu)
		return true;
	if (slot_of(first, now) == cpu)
		return false;
	if (!c->kind && has_fast(v) != has_fast(first))
		return has_fast(v);
	return v->pri < first->pri || (c->kind && more_overdue(v, first, 0));
}

static __always_inline bool beats(struct vcpu *v, struct vcpu *curr, struct pcpu *c, s32 cpu)
{
	u64 now = scx_bpf_now();

	if (!is_upper(c) || curr->no_slow)
		return v->pri < curr->pri || more_overdue(v, curr, LEAD);
	if (breaks_in(v, curr) != breaks_in(curr, v))
		return breaks_in(v, curr);
	if (slot_of(v, now) == cpu)
		return slot_of(curr, now) != cpu;
	if (slot_of(curr, now) == cpu)
		return c->kind && woke_boosted(v);
	if (!c->kind && has_fast(v) != has_fast(curr))
		return has_fast(v);
	return v->pri < curr->pri || (c->kind && more_overdue(v, curr, LEAD));
}

#endif
