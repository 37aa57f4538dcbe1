/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who takes a CPU from whom in vmfair when it wakes, and how long a latency thread is safe from
 * others.
 */
#ifndef __VMFAIR_PREEMPT_BPF_H
#define __VMFAIR_PREEMPT_BPF_H

#define LOOKED_AT 8 /* of a queue */

struct cutoff {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct cutoff);
} cutoffs_by_cpu SEC(".maps");

/* What runs on a CPU is looked at again in ns. */
static __always_inline void look_at_cpu(s32 cpu, u64 ns)
{
	u32 key = cpu;
	struct cutoff *cutoff = bpf_map_lookup_elem(&cutoffs_by_cpu, &key);

	if (cutoff)
		bpf_timer_start(&cutoff->timer, ns ?: 1, 0);
}

/* t has the CPU from now on. */
static __always_inline void takes(struct pcpu *c, struct thread *t, s32 cpu)
{
	u64 now = scx_bpf_now();

	c->preemptible = true;
	c->key = t->vtime;
	c->slot = t->slot;
	c->shield_until = t->favoured ? now + shield_us * 1000 : 0;
	c->favoured_until = t->favoured ? now + slice_ns() : 0;
	c->brief = t->brief;
	if (t->brief)
		look_at_cpu(cpu, shield_us * 1000);
}

/* t has the CPU for another slice. */
static __always_inline void goes_on_at(struct pcpu *c, struct thread *t, struct group *g)
{
	c->preemptible = true;
	c->key = t->vtime;
	c->shield_until = 0;
	c->favoured_until = 0;
	c->brief = false;
	t->brief = false;
	g->served_at = scx_bpf_now();
}

/* From when on may t, a favoured thread, take c from who runs there? A sibling that is favoured,
 * too, keeps it: they would only take turns. A CPU that is just being taken is its new owner's for
 * a moment. */
static __always_inline u64 free_at(struct thread *t, struct pcpu *c, u64 now)
{
	if (!c->preemptible)
		return now + shield_us * 1000;
	return t->slot == c->slot ? c->favoured_until : c->shield_until;
}

/*
 * May t, which wakes, take c from who runs there? A favoured thread may. Another one may not take
 * it from a favoured one, and only if its VM is behind by more than what sleep is worth: it is owed
 * that.
 */
static __always_inline bool may_take(struct thread *t, struct pcpu *c, u64 now)
{
	if (!c->preemptible)
		return false;
	if (t->favoured)
		return !time_before(now, free_at(t, c, now));
	return !t->urgent && !time_before(now, c->favoured_until) &&
	       time_before(t->vtime + credit_us * 1000, c->key);
}

/* A CPU near `cpu` that p may take from who runs there; -1: none of the few looked at. */
static __always_inline s32 find_victim(struct task_struct *p, struct thread *t, s32 cpu, int probes)
{
	u64 now = scx_bpf_now();
	struct berth_cpu *topo;
	struct pcpu *c;
	int i;

	for (i = 0; i < PROBES; i++) {
		c = cpu_at(cpu);
		topo = berth_cpu(cpu);
		if (!c || !topo || i >= probes)
			return -1;
		if (may_take(t, c, now) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
			c->preemptible = false; /* the next waker looks elsewhere */
			return cpu;
		}
		cpu = topo->next_in_llc;
	}
	return -1;
}

/* p waits, a favoured thread: it has a CPU as soon as one of those near by has run for its time. */
static __always_inline void await_shield(struct task_struct *p, struct thread *t, s32 cpu)
{
	u64 now = scx_bpf_now(), soonest = 0, at;
	struct berth_cpu *topo;
	s32 found = NO_CPU;
	struct pcpu *c;
	int i;

	for (i = 0; i < PROBES; i++) {
		c = cpu_at(cpu);
		topo = berth_cpu(cpu);
		if (!c || !topo)
			break;
		at = free_at(t, c, now);
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
		    (found < 0 || time_before(at, soonest))) {
			found = cpu;
			soonest = at;
		}
		cpu = topo->next_in_llc;
	}
	if (found >= 0)
		look_at_cpu(found, time_before(now, soonest) ? soonest - now : 1);
}

/* The first favoured thread that waits for cpu takes it, now or when who runs there has run for its
 * time; and then the next one. */
static __noinline int serve(s32 cpu)
{
	struct pcpu *c = cpu_at(cpu);
	u64 now = scx_bpf_now(), at, again = 0;
	struct task_struct *p;
	bool served = false;
	struct thread *t;
	s32 looked = 0;

	if (!c)
		return 0;
	refresh(berth_llc(cpu));
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, berth_llc(cpu), 0) {
		if (looked++ >= LOOKED_AT)
			break;
		t = thread_of(p);
		if (!t || !t->favoured || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr) ||
		    is_migration_disabled(p))
			continue;
		at = free_at(t, c, now);
		if (served || time_before(now, at)) {
			again = served ? shield_us * 1000 : at - now;
			break;
		}
		c->preemptible = false;
		served = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu,
					  SCX_ENQ_PREEMPT);
		if (!served)
			c->preemptible = true;
	}
	bpf_rcu_read_unlock();
	if (served) {
		/* 6.18 forgets SCX_ENQ_PREEMPT where a thread stays on its CPU. */
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		berth_count(preempted);
	}
	if (again)
		look_at_cpu(cpu, again);
	return 0;
}

static int cut_off(void *map, u32 *key, struct bpf_timer *timer)
{
	struct pcpu *c = cpu_at(*key);

	if (c && c->brief) {
		c->brief = false;
		scx_bpf_kick_cpu(*key, SCX_KICK_PREEMPT);
	} else {
		serve(*key);
	}
	return 0;
}

static __noinline int make_cutoffs(void)
{
	struct cutoff *cutoff;
	u32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		cutoff = bpf_map_lookup_elem(&cutoffs_by_cpu, &cpu);
		if (!cutoff)
			break;
		bpf_timer_init(&cutoff->timer, &cutoffs_by_cpu, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&cutoff->timer, cut_off);
	}
	return 0;
}

/* p goes on although nobody was asked. Is a latency thread first in the queue, within its share? */
static __always_inline void give_way(s32 cpu, struct pcpu *c)
{
	struct task_struct *head = __COMPAT_scx_bpf_dsq_peek(berth_llc(cpu));
	struct thread *t = head ? thread_of(head) : NULL;

	if (!t || !t->favoured || !bpf_cpumask_test_cpu(cpu, head->cpus_ptr))
		return;
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	berth_count(gave_way);
}

#endif
