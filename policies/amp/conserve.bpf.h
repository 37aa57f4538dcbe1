/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Property (W): a CPU is not idle while a slower one works or has somebody waiting. When it has
 * nothing of its own it takes, in this order: who waits at CPUs as fast or faster, who waits at
 * slower ones, who runs on a slower one; the highest score first, of equals one below its own
 * last-level cache. A CPU of the slowest kind steals as in Xen, from the next number on.
 *
 * With three kinds and more, who has no slot at the moment shares all CPUs but the fastest: they
 * take each other's vCPUs by class and then by credit, so that all have their share of time.
 */
#ifndef __AMP_CONSERVE_BPF_H
#define __AMP_CONSERVE_BPF_H

#define PULL_NS	    MS	/* a vCPU is pulled once in that time */
#define LOOKED_AT   8	/* of a queue, of those that may come; */
#define PASSED_OVER 256 /* and of all */
#define NOBODY	    (~0ULL)
#define MOST_CREDIT 1000000 /* nobody has more */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct timer);
} slots_by_cpu SEC(".maps");

/* The timer of an upper CPU comes after ns at the latest, when its next slot begins, and when it
 * was to come before. */
static __always_inline void look_after(struct pcpu *c, s32 cpu, u64 ns)
{
	u64 now = scx_bpf_now();
	struct timer *t;
	u32 key = cpu;

	if (c->again > now && c->again - now < ns)
		ns = c->again - now;
	c->again = now + ns;
	if (c->next_slot > now && c->next_slot - now < ns)
		ns = c->next_slot - now;

	t = bpf_map_lookup_elem(&slots_by_cpu, &key);
	if (t)
		bpf_timer_start(&t->timer, ns, 0);
}

/* May the vCPU that runs elsewhere come to cpu? */
__noinline bool may_come(u32 index, s32 cpu)
{
	struct vcpu *v = vcpu_at(index);
	struct task_struct *p;
	bool may;

	if (!v || !is_guest(v))
		return false;
	if (v->wide)
		return true;
	p = bpf_task_from_pid(v->pid);
	if (!p)
		return false;
	bpf_rcu_read_lock();
	may = bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
	bpf_rcu_read_unlock();
	bpf_task_release(p);
	return may;
}

/* How good it is to take v: the smaller, the better. By score, or by the credit that it has left:
 * classes do not tell those apart who owe something. */
static __always_inline u64 merit(struct vcpu *v, s32 from, s32 cpu, bool by_credit)
{
	u64 first = by_credit ? MOST_CREDIT - v->credit : v->place;

	return first << 1 | (berth_llc(from) != berth_llc(cpu));
}

/* Is it one of the CPUs that those without a slot share? */
static __always_inline bool is_shared(struct pcpu *c)
{
	return nr_kinds > 2 && c->kind;
}

/* The best of those that wait at peer, have a class better than pri, or that and more credit than
 * `above`, and may run on cpu: its merit, class first. With `move` it comes. */
__noinline u64 best_of_queue(s32 peer, s32 cpu, u32 pri, s32 above, u64 move)
{
	struct pcpu *c = pcpu_at(cpu);
	u64 now = scx_bpf_now(), best = NOBODY, this;
	struct task_struct *p;
	struct vcpu *v;
	u32 seen = 0;

	if (!c)
		return NOBODY;
	/* Counted there, or the verifier would follow each step. */
	c->passed = 0;
	bpf_for_each(scx_dsq, p, peer, 0) {
		if (++c->passed > PASSED_OVER)
			break;
		v = vcpu_of(p);
		if (!v)
			continue;
		if (v->pri > pri)
			break;
		/* dom0's threads may be many. */
		if (nr_kinds > 1 && is_upper(c) && !is_guest(v) && !host_anywhere)
			continue;
		if (++seen > LOOKED_AT)
			break;
		if (v->pri == pri && v->credit <= above)
			continue;
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		/* Whose slot it is there, unless another class holds it up. */
		if (slot_of(v, now) == peer && (pri != IDLE || now - v->queued_at < PULL_NS))
			continue;
		this = (u64)v->pri << 40;
		if (is_upper(c) || is_shared(c))
			this |= merit(v, peer, cpu, is_shared(c));
		if (move == NOBODY) {
			best = this < best ? this : best;
		} else if (this == move) {
			if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0))
				best = this;
			break;
		}
	}
	return best;
}

/* Somebody has left the queue of cpu, to run elsewhere. */
static __always_inline void left_queue(s32 cpu)
{
	if (scx_bpf_dsq_nr_queued(cpu) <= 0)
		emptied(cpu);
}

/* Take the best that waits at another CPU of which kind is between `from` and `to`. Whoever waits
 * alone at an idle CPU as fast as this one or faster is left to it: it has been told, and comes at
 * once. (Xen's thieves look at busy CPUs only.) */
__noinline bool take_waiting(s32 cpu, u32 pri, s32 above, u32 from, u32 to)
{
	struct choice *s = choice_here();
	u64 best = NOBODY, this;
	s32 peer = cpu, at = NO_CPU, i;
	const struct cpumask *idle;
	struct pcpu *c = pcpu_at(cpu);
	u32 kind;

	if (!s || !c)
		return false;
	kind = c->kind;
	s->candidates = pri == OVER && above == MOST_CREDIT ? better_cpus : waiting_cpus;
	put(&s->candidates, cpu, false);
	idle = scx_bpf_get_idle_cpumask();
	read_mask(&s->idle, idle);
	scx_bpf_put_idle_cpumask(idle);
	bpf_for(i, 0, berth_nr_cpus) {
		peer = next_in(&s->candidates, peer);
		if (peer < 0)
			break;
		put(&s->candidates, peer, false);
		c = pcpu_at(peer);
		if (!c || c->kind < from || c->kind > to)
			continue;
		if (c->kind <= kind && has(&s->idle, peer) && scx_bpf_dsq_nr_queued(peer) == 1)
			continue;
		this = best_of_queue(peer, cpu, pri, above, NOBODY);
		if (this == NOBODY) {
			if (scx_bpf_dsq_nr_queued(peer) <= 0)
				found_nothing(peer, pri);
			continue;
		}
		if (this < best) {
			best = this;
			at = peer;
		}
	}
	if (at < 0 || best == NOBODY)
		return false;
	if (best_of_queue(at, cpu, pri, above, best) != best)
		return false;
	left_queue(at);
	return true;
}

/* (W), step 4: the running vCPU of a slower CPU with the highest score is asked to come. */
__noinline bool pull_running(s32 cpu)
{
	u64 now = scx_bpf_now(), best = NOBODY, later = NOBODY, this;
	struct pcpu *c = pcpu_at(cpu), *other;
	struct vcpu *v;
	u32 index = 0;
	s32 i, at = NO_CPU;

	if (!c)
		return false;
	bpf_for(i, 0, berth_nr_cpus) {
		other = pcpu_at(i);
		if (!other || other->kind <= c->kind || !other->curr)
			continue;
		v = vcpu_at(other->curr);
		if (!v || !is_guest(v) || (v->flags & (VF_PARKED | VF_MIGRATING | VF_CUT)))
			continue;
		if (now - v->pulled_at < PULL_NS) {
			this = v->pulled_at + PULL_NS - now;
			later = this < later ? this : later;
			continue;
		}
		this = merit(v, i, cpu, false);
		if (this >= best || !may_come(other->curr, cpu))
			continue;
		best = this;
		index = other->curr;
		at = i;
	}
	v = index ? vcpu_at(index) : NULL;
	if (!v || at < 0) {
		if (later != NOBODY)
			look_after(c, cpu, later);
		return false;
	}
	v->pulled_at = now;
	v->target = cpu + 1;
	set_flag(v, VF_MIGRATING);
	scx_bpf_kick_cpu(at, SCX_KICK_PREEMPT);
	berth_count(pulled);
	return true;
}

/* Of who runs on cpu and who waits there first, both of class OVER. */
static __always_inline s32 most_credit(struct pcpu *c, s32 cpu)
{
	struct task_struct *head = __COMPAT_scx_bpf_dsq_peek(cpu);
	struct vcpu *first = head ? vcpu_of(head) : NULL;
	struct vcpu *curr = c->curr ? vcpu_at(c->curr) : NULL;

	if (first && curr)
		return first->credit > curr->credit ? first->credit : curr->credit;
	return first ? first->credit : curr ? curr->credit : MOST_CREDIT;
}

static __always_inline bool balance_to(struct pcpu *c, s32 cpu, u32 pri)
{
	s32 above = is_shared(c) && pri == OVER ? most_credit(c, cpu) : MOST_CREDIT;
	u32 from = pri == IDLE ? 0 : is_shared(c) ? 1 : slowest();
	bool taken = false;

	if (!is_upper(c) || nr_kinds < 2) {
		if (waiting > 0)
			taken = take_waiting(cpu, pri, above, from, slowest());
		if (taken)
			berth_count(stolen);
		return taken;
	}
	if (waiting > 0 && is_shared(c))
		taken = take_waiting(cpu, pri, above, from, slowest());
	else if (waiting > 0)
		taken = take_waiting(cpu, pri, MOST_CREDIT, 0, c->kind) ||
			take_waiting(cpu, pri, MOST_CREDIT, c->kind + 1, slowest());
	if (taken)
		berth_count(conserved);
	else if (pri == IDLE && awaits_owner(c, cpu))
		look_after(c, cpu, PULL_NS);
	else if (pri == IDLE)
		pull_running(cpu);
	return taken;
}

/* Of the candidates, the next after `cpu` that is nobody's: no one waits there, and whose slot it
 * is there is not on its way. It would not look for others. Looks at a few. */
static __noinline s32 nobodys(struct choice *s, s32 cpu)
{
	struct pcpu *c;
	s32 i, found;

	if (!s)
		return NO_CPU;
	bpf_for(i, 0, 8) {
		found = next_in(&s->candidates, cpu);
		c = found >= 0 ? pcpu_at(found) : NULL;
		if (!c)
			break;
		if (scx_bpf_dsq_nr_queued(found) <= 0 && !awaits_owner(c, found))
			return found;
		put(&s->candidates, found, false);
	}
	return NO_CPU;
}

/* One CPU of the `of` fastest kinds that is idle and nobody's is asked to look. */
__noinline int ask_one(u32 of, s32 cpu)
{
	struct choice *s = choice_here();
	const struct cpumask *idle;
	struct cpu_set *set;
	s32 found = NO_CPU;
	u32 kind;

	if (!s)
		return 0;
	bpf_for(kind, 0, of) {
		set = kind_cpus(kind);
		if (!set)
			break;
		idle = scx_bpf_get_idle_cpumask();
		read_mask(&s->candidates, idle);
		scx_bpf_put_idle_cpumask(idle);
		if (!keep_both(&s->candidates, set) || !keep_both(&s->candidates, &online_cpus))
			continue;
		found = nobodys(s, cpu);
		if (found >= 0)
			break;
	}
	if (found >= 0)
		scx_bpf_kick_cpu(found, SCX_KICK_IDLE);
	return 0;
}

/* A vCPU runs on cpu: a faster one that is idle is asked. */
static __always_inline void ask_faster(struct pcpu *c, s32 cpu)
{
	if (nr_kinds > 1 && c->kind)
		ask_one(c->kind, cpu);
}

/* It was missed, and is asked again. Whoever waits here has become more overdue than who runs. */
static __always_inline void ticked(struct pcpu *c, s32 cpu)
{
	struct task_struct *head;
	struct vcpu *first, *curr;

	ask_faster(c, cpu);
	if (nr_kinds < 2 || !c->kind || !c->curr)
		return;
	bpf_rcu_read_lock();
	head = __COMPAT_scx_bpf_dsq_peek(cpu);
	first = head ? vcpu_of(head) : NULL;
	curr = vcpu_at(c->curr);
	if (first && curr && beats(first, curr, c, cpu))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	bpf_rcu_read_unlock();
}

/* Others wait where it does. They may have woken at the same instant: the CPU was idle for each. */
static __always_inline bool is_behind(struct vcpu *v)
{
	return (v->flags & VF_QUEUED) && scx_bpf_dsq_nr_queued(v->cpu) > 1;
}

/* Whoever has to wait because of somebody's slot, or of others that have woken with it, is offered
 * to an idle CPU. (Credit tells nobody of those that a decision has passed over, and only its own
 * CPU of those that wake while that is idle.) */
static __noinline int offer(struct task_struct *p, struct vcpu *v)
{
	const struct cpumask *idle;
	struct pcpu *c;
	s32 found;

	if (!p || !v || !(v->flags & VF_QUEUED))
		return 0;
	c = pcpu_at(v->cpu);
	if (!c)
		return 0;
	/* The CPU that was claimed for it was another's, who had been told before. */
	if (is_behind(v))
		v->target = 0;
	idle = scx_bpf_get_idle_cpumask();
	found = choose_idle(p, v, c, v->cpu, idle);
	scx_bpf_put_idle_cpumask(idle);
	if (found >= 0) {
		c->cursor = found;
		scx_bpf_kick_cpu(found, SCX_KICK_IDLE);
		return 0;
	}
	/* None is. Who has no slot shares the CPUs with others of its kind by class: not only when
	 * those end their slices, which may be just when its own slot begins. */
	if (slot_of(v, scx_bpf_now()) >= 0)
		return 0;
	zone_for(p, v);
	found = lesser_to_preempt(v, v->pri);
	if (found >= 0 && found != v->cpu)
		scx_bpf_kick_cpu(found, SCX_KICK_PREEMPT);
	return 0;
}

/* cpu has decided, and somebody waits there still: an idle CPU is asked to look. */
static __noinline int ask_idle(s32 cpu)
{
	struct choice *s = choice_here();
	const struct cpumask *idle;
	struct pcpu *c;
	s32 found;

	c = pcpu_at(cpu);
	if (!c || !s || scx_bpf_dsq_nr_queued(cpu) <= 0)
		return 0;
	idle = scx_bpf_get_idle_cpumask();
	read_mask(&s->candidates, idle);
	scx_bpf_put_idle_cpumask(idle);
	drop_both(&s->candidates, &waiting_cpus);
	if (!keep_both(&s->candidates, &online_cpus))
		return 0;
	found = next_in(&s->candidates, c->cursor);
	if (found >= 0) {
		c->cursor = found;
		scx_bpf_kick_cpu(found, SCX_KICK_IDLE);
	}
	return 0;
}

#endif
