/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vmfair's clocks: what a VM and its threads have had, and the key under which a thread waits.
 */
#ifndef __VMFAIR_SHARE_BPF_H
#define __VMFAIR_SHARE_BPF_H

/* Run time as virtual time of the group. */
static __always_inline u64 virtual_ns(struct group *g, u64 ns)
{
	return ns * g->inv_weight >> FIXED_ONE;
}

static __always_inline void advance(struct pcpu *c, u64 key)
{
	if (time_before(c->vnow, key))
		c->vnow = key;
}

/* A thread started on c under this key because it was its turn. */
static __always_inline void started(struct pcpu *c, u64 key)
{
	advance(c, key);
	if (time_before(vnow, key))
		vnow = key;
}

/* Add what p has run since the last call to its own clock and its group's. */
static __always_inline void charge(struct task_struct *p, struct thread *t, struct group *g,
				   struct pcpu *c)
{
	u64 sum = p->se.sum_exec_runtime, v = virtual_ns(g, work_ns(c, sum - t->charged_ns)), limit;
	u32 weight = weight_of(p), load = g->load;

	capped_until(g, sum - t->charged_ns);
	t->charged_ns = sum;
	__sync_fetch_and_add(&g->vtime, v);
	if (load > weight)
		v = load < SHARERS * weight ? v * load / weight : v * SHARERS;
	t->vtime += v;
	if (t->run != RUN_FREE)
		return;
	/* Nobody wanted it here. In other LLCs there may be somebody: a slice counts. */
	limit = c->vnow + virtual_ns(g, slice_ns());
	if (time_after(g->vtime, limit))
		g->vtime = limit;
	if (time_after(t->vtime, limit))
		t->vtime = limit;
}

/*
 * The earliest key for a thread of this group: of one that has slept. A VM may be behind by more
 * than a thread may be ahead of it: else a VM that is owed time would forget it while its only
 * thread with work waits. No thread gains by that: it is behind by twice the credit at most.
 * Threads of a VM that wake together have what sleep is worth once: each comes after those before
 * it, which are likely to run for so long.
 */
static __always_inline u64 earliest(struct group *g, struct pcpu *c, u64 before_ns)
{
	u64 credit = credit_us * 1000, lead = virtual_ns(g, LEAD * slice_ns()), low;

	if (time_before(g->vtime, c->vnow - credit - lead))
		g->vtime = c->vnow - credit - lead;
	low = g->vtime + virtual_ns(g, before_ns) - credit;
	if (time_before(low, c->vnow - 2 * credit))
		low = c->vnow - 2 * credit;
	return low;
}

/*
 * Bring the clocks of a thread and its group within bounds; the thread's is then the key to wait
 * under at c. A thread is ahead of its VM by no more than those of its VM that wait take.
 */
static __always_inline u64 place(struct thread *t, struct group *g, struct pcpu *c)
{
	u64 low = earliest(g, c, g->woken_ns);
	u64 high = g->vtime + virtual_ns(g, LEAD * slice_ns() + g->queued_ns);

	if (time_before(t->vtime, low))
		t->vtime = low;
	else if (time_after(t->vtime, high))
		t->vtime = high;
	return t->vtime;
}

/* Change t's part of its group's `queued` or `woken`. Callers may race: each adds what it changed.
 */
static __always_inline void counts(u64 *sum, u64 *part, u64 ns)
{
	u64 before = __sync_lock_test_and_set(part, ns);

	if (before != ns)
		__sync_fetch_and_add(sum, ns - before);
}

/* t, which has been placed, begins to wait. If it leaves for another class meanwhile, it stays
 * counted until it waits again: threads of its VM may be so much further apart. */
static __always_inline void reserved(struct thread *t, struct group *g, struct pcpu *c)
{
	bool slept = !time_after(t->vtime, earliest(g, c, g->woken_ns));

	counts(&g->queued_ns, &t->queued_ns, t->likely_ns);
	counts(&g->woken_ns, &t->woken_ns, slept ? t->likely_ns : 0);
}

/* It waits no longer. */
static __always_inline void released(struct thread *t, struct group *g)
{
	counts(&g->queued_ns, &t->queued_ns, 0);
	counts(&g->woken_ns, &t->woken_ns, 0);
}

/*
 * A latency thread that woke within its share and has computed for no longer than a slice since
 * goes before all others, and is safe from those of its kind for a moment.
 */
static __always_inline bool is_favoured(struct task_struct *p, struct thread *t, struct pcpu *c)
{
	return t->urgent && p->se.sum_exec_runtime - t->woke_ns < slice_ns() &&
	       !time_after(t->vtime, c->vnow);
}

/* Under which it waits. Those who are favoured take turns by VM. */
static __always_inline u64 key_of(struct thread *t, struct group *g)
{
	return t->favoured ? g->vtime - FAVOUR * credit_us * 1000 : t->vtime;
}

/*
 * The first ones of a queue may have been placed when their VM had had less: by its siblings' last
 * runs, which are no promise. They are placed anew.
 */
static __noinline int refresh(u32 llc)
{
	struct task_struct *p;
	struct thread *t;
	struct group *g;
	struct pcpu *c;
	s32 looked = 0;
	u64 low, slack;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, llc, 0) {
		t = thread_of(p);
		g = group_of(t);
		c = cpu_at(scx_bpf_task_cpu(p));
		if (!t || !g || !c || t->run != RUN_TURN || looked++ >= REFRESHED)
			break;
		low = earliest(g, c, 0);
		if (time_before(t->vtime, low))
			t->vtime = low;
		t->favoured = t->favoured && is_favoured(p, t, c);
		slack = t->favoured ? shield_us * 500 : virtual_ns(g, LEAD * slice_ns());
		if (!time_before(p->scx.dsq_vtime + slack, key_of(t, g)))
			break;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, key_of(t, g));
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, llc, 0);
	}
	bpf_rcu_read_unlock();
	return 0;
}

/* A run begins. */
static __always_inline void begins(struct task_struct *p, struct thread *t, struct group *g)
{
	released(t, g);
	t->began_ns = p->se.sum_exec_runtime;
	g->served_at = scx_bpf_now();
}

/* It ends. */
static __always_inline void ends(struct task_struct *p, struct thread *t)
{
	u64 ran = p->se.sum_exec_runtime - t->began_ns, most = slice_ns();

	t->brief = false;
	t->likely_ns = (3 * t->likely_ns + (ran < most ? ran : most)) / 4;
}

#endif
