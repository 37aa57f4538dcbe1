/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The callbacks of a policy on top of credit.bpf.h, credit_queue.bpf.h and credit_pick.bpf.h, as
 *far as such policies share them. The includer defines
 *
 *	slice_ns(v, cpu)	how long v may run on cpu
 *	rate_limit_ns(v, cpu)	how long it cannot be preempted there
 *	refresh(p, v)		p is about to be queued: what v caches about it
 *	goes_before(v, first, key, c, cpu) v, which runs on cpu, would come before first, which
 *waits there under that key descheduled(v, c)	v's run on c is over, whether or not it goes on
 *	boosts(v, cpu)		a wake-up there lifts v from UNDER to BOOST
 *	balance_to(c, cpu, pri)	take a vCPU of a class better than pri from elsewhere to cpu's local
 *				queue; whether there was one
 *	started(v, c, cpu)	v begins to run on cpu; v->ran_on is where it ran before
 *	wake_to(p, v, cpu)	the idle pCPU, claimed, whose queue the woken p joins instead of
 *				cpu's; or NO_CPU
 *	ticked(c, cpu)		a tick of cpu is over, on which a vCPU runs
 *
 * and tick_moves, whether a tick may send a running vCPU to a better pCPU, and rehome_movers,
 *whether one that may not stay where it ran goes where rehome() says.
 */
#ifndef __BERTH_CREDIT_CORE_BPF_H
#define __BERTH_CREDIT_CORE_BPF_H

static __always_inline u64 slice_ns(struct vcpu *v, s32 cpu);
static __always_inline u64 rate_limit_ns(struct vcpu *v, s32 cpu);
static __always_inline void refresh(struct task_struct *p, struct vcpu *v);
static __always_inline bool goes_before(struct vcpu *v, struct vcpu *first, u64 key, struct pcpu *c,
					s32 cpu);
static __always_inline void descheduled(struct vcpu *v, struct pcpu *c);
static __always_inline bool boosts(struct vcpu *v, s32 cpu);
static __always_inline bool balance_to(struct pcpu *c, s32 cpu, u32 pri);
static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu);
static __always_inline s32 wake_to(struct task_struct *p, struct vcpu *v, s32 cpu);
static __always_inline void ticked(struct pcpu *c, s32 cpu);

static __always_inline s32 core_select_cpu(struct task_struct *p, s32 prev)
{
	struct vcpu *v = vcpu_of(p);

	if (v)
		refresh(p, v);
	return v && unplaced(v) ? place(p, v, prev) : prev;
}

/* Timers, softirqs, the policy's own timers: they go before everybody, by no decision. */
static __always_inline bool is_pinned_kthread(struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

static __always_inline void core_enqueue(struct task_struct *p, u64 enq_flags)
{
	struct vcpu *v = vcpu_of(p);
	bool woken, passed, moves, front;
	s32 cpu, claimed = NO_CPU;

	if (!v) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_INF, enq_flags);
		return;
	}
	/* The end of its slice and the other class came together: the slice is over. */
	if (!v->slice_left)
		clear_flag(v, VF_CUT);
	if (is_pinned_kthread(p)) {
		if (enq_flags & SCX_ENQ_WAKEUP)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_INF, enq_flags);
		return;
	}
	woken = (enq_flags & SCX_ENQ_WAKEUP) || (v->flags & VF_FRESH);
	passed = !woken && (v->flags & VF_PASSED);
	moves = passed && (v->flags & VF_MIGRATING);
	clear_flag(v, VF_FRESH | VF_PASSED | VF_MIGRATING);
	front = !woken && !passed && (v->flags & VF_CUT) && !(v->flags & VF_YIELDED);
	if (!front) {
		clear_flag(v, VF_CUT);
		v->slice_left = 0;
	}
	if (v->flags & VF_PARKED) {
		set_flag(v, VF_HELD);
		scx_bpf_dsq_insert(p, PARKING, SCX_SLICE_INF, enq_flags);
		return;
	}
	refresh(p, v);
	/* Whoever may not stay is no better off by Credit's search, which is for the idlest place.
	 */
	if (moves && rehome_movers && !may_use(p, v, scx_bpf_task_cpu(p)))
		moves = false;
	cpu = moves ? pick_cpu(p, v) : home_of(p, v);
	if (moves && !may_use(p, v, cpu))
		cpu = rehome(p, v, cpu);
	if (!front && unplaced(v))
		cpu = place(p, v, cpu);
	if (woken)
		claimed = wake_to(p, v, cpu);
	if (claimed >= 0)
		cpu = claimed;
	if ((woken || (moves && boost_after_migration)) && v->pri == UNDER && boosts(v, cpu)) {
		v->pri = BOOST;
		berth_count(boosted);
	} else if (woken && v->pri == OVER && v->role == BERTH_ROLE_VCPU) {
		berth_count(woken_over);
	}
	queue_on(p, v, cpu, front, enq_flags);
	if (claimed >= 0) {
		scx_bpf_kick_cpu(cpu, 0);
		return;
	}
	if (cpu == scx_bpf_task_cpu(p)) {
		if (!passed || moves)
			tickle(cpu, p, v);
		return;
	}
	tickle(cpu, p, v);
	/* Nobody holds the lock of another pCPU: it may be going idle. */
	scx_bpf_kick_cpu(cpu, 0);
}

/* prev goes on, for a whole slice or what is left of the rate limit. */
static __always_inline void keep(struct task_struct *prev, struct vcpu *v, struct pcpu *c, s32 cpu,
				 u64 now, u64 ns)
{
	clear_flag(v, VF_PASSED | VF_YIELDED);
	give_slice(c, cpu, now, ns);
	scx_bpf_task_set_slice(prev, SCX_SLICE_INF);
}

/*
 * prev is not back in its queue yet. There it would be the last of its class: it goes on if its
 * class is better than the first one's.
 */
static __always_inline void core_dispatch(s32 cpu, struct task_struct *prev)
{
	struct pcpu *c = pcpu_at(cpu);
	struct vcpu *v = NULL, *first = NULL;
	bool stays = false, prev_first;
	struct task_struct *head;
	u64 now = scx_bpf_now();
	u32 pri = IDLE;

	if (!c)
		return;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		v = vcpu_of(prev);
	if (v) {
		burn(v, c, now);
		stays = !(v->flags & (VF_PARKED | VF_MIGRATING));
		if (stays && now - v->switched_in < rate_limit_ns(v, cpu)) {
			keep(prev, v, c, cpu, now, rate_limit_ns(v, cpu));
			berth_count(rate_limited);
			return;
		}
		set_flag(v, VF_PASSED);
		descheduled(v, c);
	}
	head = __COMPAT_scx_bpf_dsq_peek(cpu);
	if (head)
		first = vcpu_of(head);
	if (first)
		pri = first->pri;
	else if (!head && has(&waiting_cpus, cpu))
		emptied(cpu);
	prev_first = stays && v && (!first || !head);
	if (stays && v && first && head && !(v->flags & VF_YIELDED))
		prev_first = goes_before(v, first, head->scx.dsq_vtime, c, cpu);
	if (prev_first && v)
		pri = v->pri;
	if (pri >= OVER && balance_to(c, cpu, pri))
		return;
	if (!prev_first && first) {
		if (scx_bpf_dsq_move_to_local(cpu, 0)) {
			first_left(cpu);
			return;
		}
		/* The first one is gone meanwhile. */
		if (pri < OVER && balance_to(c, cpu, stays ? OVER : IDLE))
			return;
	}
	if (stays && v)
		keep(prev, v, c, cpu, now, slice_ns(v, cpu));
}

/*
 * v begins, or goes on, after a thread of another class had the CPU. The kernel does not ask for a
 * decision then, and whoever was woken meanwhile found nobody to preempt: made up for here.
 */
static __always_inline void look_back(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	struct task_struct *head = __COMPAT_scx_bpf_dsq_peek(cpu);
	struct vcpu *first = head ? vcpu_of(head) : NULL;

	/* Whoever waits on the CPU's own queue, where the kernel puts those that cannot migrate,
	 * comes next in any case: to give way to it would only be taking turns. It looks back
	 * itself. */
	if (scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL) > 0) {
		__sync_lock_test_and_set(&c->missed, 1);
		return;
	}
	if (first && beats(first, v, c, cpu))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/*
 * How long v runs whose slice ended just as a thread of a higher class came: nobody has decided
 * since, and is to. While somebody waits on the CPU's own queue the kernel takes that one next and
 * asks nobody: two of them would take turns each time.
 */
static __always_inline u64 undecided_ns(struct vcpu *v, s32 cpu)
{
	if (scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL) > 0)
		return rate_limit_ns(v, cpu) ?: slice_ns(v, cpu);
	return SHORTEST_ARM;
}

static __always_inline void core_running(struct task_struct *p)
{
	u32 index = index_of(p);
	struct vcpu *v = index ? vcpu_at(index) : NULL;
	s32 cpu = scx_bpf_task_cpu(p);
	struct pcpu *c = pcpu_at(cpu);
	u64 now = scx_bpf_now(), slice;
	bool cut, first;

	if (!v || !c)
		return;
	if (!c->met) {
		/* For the kernel all CPUs are idle at first, one that was busy then until it goes
		 * idle: for ever, if it never does. */
		c->met = 1;
		scx_bpf_test_and_clear_cpu_idle(cpu);
	}
	/* Two of them, each asked to give way to a thread that is behind both, would only take
	 * turns. */
	first = is_pinned_kthread(p);
	cut = v->flags & VF_CUT;
	count_waiting(v, false);
	clear_flag(v, VF_CUT | VF_PASSED | VF_MIGRATING | VF_HELD | VF_FRESH);
	started(v, c, cpu);
	v->cpu = cpu;
	v->ran_on = cpu + 1;
	v->burned_at = now;
	if (!cut)
		v->switched_in = now;
	slice = v->slice_left ?: cut && !first ? undecided_ns(v, cpu) : slice_ns(v, cpu);
	v->slice_left = 0;
	c->curr = index;
	give_slice(c, cpu, now, slice);
	if (!first && (__sync_lock_test_and_set(&c->missed, 0) || cut))
		look_back(v, c, cpu);
}

static __always_inline void core_stopping(struct task_struct *p, bool runnable)
{
	struct vcpu *v = vcpu_of(p);
	struct pcpu *c = pcpu_at(scx_bpf_task_cpu(p));
	u64 now = scx_bpf_now();
	struct cgroup *cgrp;
	bool cut;
	u64 left;

	if (!v || !c)
		return;
	burn(v, c, now);
	cut = runnable && !(v->flags & VF_PASSED);
	left = (s64)(c->slice_end - now) > 0 ? c->slice_end - now : 0;
	/* Who is cut goes on: an interrupt in Xen, no decision. */
	if (!(v->flags & VF_PASSED) && !(cut && left))
		descheduled(v, c);
	v->left_at = now;
	c->curr = 0;
	if (!runnable) {
		clear_flag(v, VF_PASSED | VF_YIELDED);
	} else if (cut) {
		set_flag(v, VF_CUT);
		v->slice_left = left;
	}
	if (v->generation == berth_generation)
		return;
	cgrp = scx_bpf_task_cgroup(p);
	if (!cgrp)
		return;
	label(p, v, cgrp->kn->id, false);
	bpf_cgroup_release(cgrp);
}

static __always_inline void core_yield(struct task_struct *p)
{
	struct vcpu *v = vcpu_of(p);

	if (v && yield_flag)
		set_flag(v, VF_YIELDED);
	scx_bpf_task_set_slice(p, 0);
}

static __always_inline void core_quiescent(struct task_struct *p)
{
	struct vcpu *v = vcpu_of(p);

	if (v)
		count_waiting(v, false);
}

/* Would the vCPU that runs on cpu better run elsewhere? */
__noinline bool wants_away(u32 index, s32 cpu)
{
	struct vcpu *v = vcpu_at(index);
	struct task_struct *p;
	s32 better;

	if (!v)
		return false;
	p = bpf_task_from_pid(v->pid);
	if (!p)
		return false;
	bpf_rcu_read_lock();
	better = p->nr_cpus_allowed > 1 ? pick_cpu(p, v) : cpu;
	bpf_rcu_read_unlock();
	bpf_task_release(p);
	return better != cpu;
}

static int tick_over(void *map, u32 *key, struct bpf_timer *timer)
{
	s32 cpu = *key;
	struct pcpu *c = pcpu_at(cpu);
	u64 now = scx_bpf_now();
	struct vcpu *v;

	if (!c)
		return 0;
	v = c->curr ? vcpu_at(c->curr) : NULL;
	if (!v) {
		c->ticking = 0;
		return 0;
	}
	if (v->pri == BOOST)
		v->pri = UNDER;
	burn(v, c, now);
	if (sampled_burn)
		__sync_fetch_and_sub(&v->credit, period_credits() * tick_ns() / (tslice_ms * MS));
	if (!v->active) {
		activate(v);
	} else if (tick_moves && !(v->flags & (VF_PARKED | VF_MIGRATING)) &&
		   wants_away(c->curr, cpu)) {
		set_flag(v, VF_MIGRATING);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		berth_count(moved_by_tick);
	}
	if (c->sorted_epoch != epoch) {
		c->sorted_epoch = epoch;
		sort_queue(cpu, false);
	}
	ticked(c, cpu);
	arm_tick(c, cpu, now);
	if ((s64)(c->slice_end - now) > 0)
		arm_slice(c, cpu, now);
	else
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

static __always_inline int core_init_task(struct task_struct *p, struct scx_init_task_args *args)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct vcpu *v;
	u32 index;

	if (!t)
		return -ENOMEM;
	index = alloc_vcpu();
	v = index ? vcpu_at(index) : NULL;
	if (!v) {
		scx_bpf_error("more than %u threads at once", MAX_VCPUS);
		return -ENOSPC;
	}
	__builtin_memset(v, 0, sizeof(*v));
	t->index = index;
	v->pri = UNDER;
	v->flags = VF_FRESH;
	v->cpu = scx_bpf_task_cpu(p);
	v->pid = p->pid;
	return label(p, v, args->cgroup->kn->id, args->fork);
}

static __always_inline void core_exit_task(struct task_struct *p)
{
	u32 index = index_of(p);
	struct vcpu *v = index ? vcpu_at(index) : NULL;
	struct pcpu *c;

	if (!v || !v->pid)
		return;
	deactivate(v);
	count_waiting(v, false);
	c = v->placed ? pcpu_at(v->placed - 1) : NULL;
	if (c)
		__sync_fetch_and_sub(&c->placed, 1);
	v->pid = 0;
	bpf_map_push_elem(&free_vcpus, &index, 0);
}

static __always_inline void core_cgroup_move(struct task_struct *p, struct cgroup *to)
{
	struct vcpu *v = vcpu_of(p);

	if (v)
		label(p, v, to->kn->id, false);
}

static __always_inline void core_set_weight(struct cgroup *cgrp, u32 weight)
{
	u64 id = cgrp->kn->id;
	struct berth_vm *vm = bpf_map_lookup_elem(&berth_vms, &id);
	struct domain *d = domain_at(vm ? vm->slot : HOST);

	if (!vm || !d || !weight)
		return;
	d->weight = weight;
	vm->weight = weight; /* the next thread to be labelled brings it along */
}

static __always_inline void core_set_online(s32 cpu, bool online)
{
	struct pcpu *c = pcpu_at(cpu);

	if (!c || c->online == online)
		return;
	c->online = online;
	__sync_fetch_and_add(&nr_online, online ? 1 : -1);
	if (online)
		mark(&online_cpus, cpu);
	else
		unmark(&online_cpus, cpu);
	if (online)
		return;
	bpf_rcu_read_lock();
	drain_queue(cpu);
	bpf_rcu_read_unlock();
}

/* One accounting and what follows from it. */
static __always_inline void core_account(void)
{
	account();
	settle_parked();
}

/* Queues, pCPUs, timers of ticks and slices. */
static __always_inline int core_init(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	struct berth_cpu *topo;
	struct cpu_set *there;
	struct pcpu *c;
	struct timer *t;
	s32 err = 0;
	u32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		err = scx_bpf_create_dsq(cpu, -1);
		if (err)
			break;
		c = pcpu_at(cpu);
		if (!c)
			continue;
		c->idle_bias = berth_nr_cpus - 1;
		c->cursor = cpu;
		c->online = bpf_cpumask_test_cpu(cpu, online);
		nr_online += c->online;
		put(&online_cpus, cpu, c->online);
		there = package_cpus(cpu);
		if (there)
			put(there, cpu, true);
		topo = berth_cpu(cpu);
		there = topo ? node_cpus(topo->node) : NULL;
		if (there)
			put(there, cpu, true);
		t = bpf_map_lookup_elem(&ticks_by_cpu, &cpu);
		if (t) {
			bpf_timer_init(&t->timer, &ticks_by_cpu, CLOCK_MONOTONIC);
			bpf_timer_set_callback(&t->timer, tick_over);
		}
		t = bpf_map_lookup_elem(&slices_by_cpu, &cpu);
		if (t) {
			bpf_timer_init(&t->timer, &slices_by_cpu, CLOCK_MONOTONIC);
			bpf_timer_set_callback(&t->timer, slice_over);
		}
	}
	scx_bpf_put_cpumask(online);
	return err ?: scx_bpf_create_dsq(PARKING, -1);
}

#endif
