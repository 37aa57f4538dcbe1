/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cfs: Linux's completely fair scheduler as of 2.6.33, a model; `preset = "linux-6.1"`: as of 6.1.
 *
 * Idea. On each CPU every thread has a virtual run time, which advances by its run time divided by
 * its weight. The one with the least runs, for its part (by weight) of a period in which all are to
 * run once. Who has slept is set half a period behind the others at most, and takes the CPU at once
 * if it is behind the running thread by more than the wake-up granularity.
 *
 * Source: kernel/sched_fair.c of 2.6.33; nothing is copied. What is kept: latency, minimum and
 * wake-up granularity scaled by CPUs, placement of new and waking threads, the tick's two rules,
 * LAST_BUDDY, NEXT_BUDDY, ADAPTIVE_GRAN, wake_affine with avg_overlap, balance by weight.
 *
 * Deviations.
 *  - What wakes threads (interrupts, or other threads) is a parameter: a policy cannot see it.
 *  - Groups have no queues of their own: threads of all groups compete in one queue per CPU, each
 *    with its part of its groups' weights (berth/shares.bpf.h). Wake-up preemption and slices
 *    compare threads, not groups. With `groups` a VM's weight counts, without it nice values only.
 *  - LAST_BUDDY is a thread that waits, found by its pid; so is NEXT_BUDDY.
 *  - SCHED_BATCH and SCHED_IDLE threads have their weights and wake without preempting; nobody else
 *    is treated specially.
 *  - No bandwidth limits: a scenario with caps is refused. (2.6.33 has none either; 6.1 does.)
 *  - linux-6.1 has 2.6.33's ways between CPUs: no search by PELT, no select_idle_core, no skip
 *    buddy for yield.
 *  - Those of linux/queues.bpf.h.
 *
 * Run time is the task clock's (p->se.sum_exec_runtime), read ahead by rq->clock_task where the
 * kernel would have brought it up to date.
 *
 * Not good for: any host; VMs with unequal numbers of busy threads, unless `groups` is on.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/nice.bpf.h"
#include "berth/shares.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("task",
	     "Linux's completely fair scheduler as of 2.6.33: least virtual run time first");

BERTH_PARAM(u64, latency_us, "us", 5000, 100, 1000000,
	    "sched_latency: all run once in it, times `scaling`");
BERTH_PARAM(u64, min_granularity_us, "us", 1000, 100, 1000000,
	    "sched_min_granularity: everybody's slice where there are many, times `scaling`");
BERTH_PARAM(u64, wakeup_granularity_us, "us", 1000, 0, 1000000,
	    "sched_wakeup_granularity: head start of who runs, times `scaling`");
BERTH_PARAM(u32, nr_latency, "count", 5, 1, 1000,
	    "Threads for which the latency is kept; with more the period grows");
BERTH_PARAM(bool, scaling, "bool", 1, 0, 1,
	    "The three times 1 + log2 of the number of CPUs (at most 8), as the kernel");
BERTH_PARAM(u64, migration_cost_us, "us", 500, 0, 1000000,
	    "sched_migration_cost: who ran that lately stays on its CPU");
BERTH_PARAM(bool, groups, "bool", 0, 0, 1, "Group scheduling: VMs share by their weights");
BERTH_PARAM(bool, fair_sleepers, "bool", 1, 0, 1, "Sleep is worth a latency (FAIR_SLEEPERS)");
BERTH_PARAM(bool, gentle_sleepers, "bool", 1, 0, 1, "Half of it (GENTLE_FAIR_SLEEPERS)");
BERTH_PARAM(bool, start_debit, "bool", 1, 0, 1, "New threads wait a slice (START_DEBIT)");
BERTH_PARAM(bool, wakeup_preemption, "bool", 1, 0, 1,
	    "A waking thread may take the CPU (WAKEUP_PREEMPT)");
BERTH_PARAM(bool, adaptive_gran, "bool", 1, 0, 1,
	    "Less head start towards who wakes others often (ADAPTIVE_GRAN)");
BERTH_PARAM(bool, last_buddy, "bool", 1, 0, 1,
	    "Who lost its CPU to a waking thread has it back soon (LAST_BUDDY)");
BERTH_PARAM(bool, next_buddy, "bool", 0, 0, 1,
	    "Who woke last comes next if that is nearly fair (NEXT_BUDDY)");
BERTH_PARAM(bool, base_slice, "bool", 0, 0, 1,
	    "No slice is shorter than the minimum granularity (BASE_SLICE of 6.1)");
BERTH_CHOICE(wakers, "interrupts|threads", 0,
	     "What wakes threads: only threads count as such in avg_wakeup and avg_overlap");
BERTH_PRESET(linux61, "linux-6.1",
	     "latency_us=6000,min_granularity_us=750,wakeup_granularity_us=1000,nr_latency=8,"
	     "adaptive_gran=0,base_slice=1",
	     "Times and rules of Linux 6.1, the last but few with this scheduler");
BERTH_PRESET(linux2633, "linux-2.6.33", "nr_latency=5", "The defaults: Linux 2.6.33");

struct berth_stats {
	u64 queued;    /* had to wait */
	u64 preempted; /* took the CPU when it woke */
	u64 kept;      /* still first: went on */
	u64 buddies;   /* chosen though not the first */
	u64 pulled;    /* taken over by an idle CPU */
	u64 balanced;  /* times a busy CPU took threads over */
};
BERTH_STATS;

#include "linux/state.bpf.h"

#define QUEUES	     1
#define NICE_0_LOAD  (1ULL << 20)
#define MOVE_HALVES  1
#define LEAST_WEIGHT 64 /* a thread may come to have in its group */
#define THREADS_WAKE 1	/* of `wakers` */
#define POLICY_BATCH 3	/* SCHED_BATCH */

struct entity {
	s32 cpu;
	u32 pad;
	u64 weight; /* 1 << 20: nice 0 */
	u64 ran_at;
	u64 key; /* v */
	u64 v;	 /* virtual run time */
	u64 avg_wakeup;
	u64 avg_overlap;
	u64 last_wakeup; /* of p->se.sum_exec_runtime, when it last woke somebody; 0: has not */
	u64 woken;	 /* of p->se.sum_exec_runtime, when it last woke up */
	u64 ran;	 /* ns, when it last had the CPU */
	bool on;
	bool fresh; /* has never been placed */
	bool sync;
	bool aside; /* a higher class has taken its CPU */
	struct berth_member member;
};

/* A run queue. What is not under the lock belongs to who holds the kernel's run queue lock. */
struct runq {
	struct bpf_spin_lock lock;
	u32 nr;
	u64 load;
	u64 min_v;

	/* The running thread. */
	u64 v;
	u64 curr_weight;
	u64 charged;	/* of p->se.sum_exec_runtime */
	u64 charged_at; /* by the task clock */
	u64 picked;	/* `charged` when it was chosen */
	s32 curr;	/* pid; 0: none */
	u32 curr_policy;

	s32 last; /* buddies by pid; 0: none */
	s32 next;
	bool resched; /* has been told to choose anew */
	u64 idle_at;  /* since when it is idle; 0: it is not */
	u64 avg_idle;
	struct balance bal;
};

static __always_inline u64 hot_ns(void)
{
	return migration_cost_us * 1000;
}

#include "linux/queues.bpf.h"
#include "cfs/clock.bpf.h"

static __always_inline u64 weight_now(struct task_struct *p, struct entity *e)
{
	u64 weight = berth_nice_weight(p);

	if (!groups || !e->member.group)
		return weight;
	weight = berth_member_weight(&e->member, weight, scx_bpf_now());
	return weight < LEAST_WEIGHT ? LEAST_WEIGHT : weight;
}

static __always_inline u64 next_queue(struct runq *rq, s32 cpu, u32 i)
{
	return cpu;
}

/* Who leaves a CPU is nobody's buddy there, and is as far from the others where it comes to. */
static __always_inline void moves(struct task_struct *p, struct entity *e, struct runq *from,
				  struct runq *to)
{
	if (!from) {
		e->v = to->min_v;
		return;
	}
	if (from->last == p->pid)
		from->last = 0;
	if (from->next == p->pid)
		from->next = 0;
	e->v += to->min_v - from->min_v;
	e->key = e->v;
}

static __always_inline u64 waits_at(struct entity *e, struct runq *rq, s32 cpu)
{
	return cpu;
}

/* Run time until the next look at the running thread, where slices end exactly; else ticks look. */
static __always_inline u64 until_look(struct runq *rq, s32 cpu)
{
	u64 ran = rq->charged - rq->picked, ideal, left, fair;
	struct task_struct *first;
	s64 ahead;

	if (berth_hz || rq->nr < 2)
		return SCX_SLICE_INF;
	ideal = slice_of(rq->curr_weight, rq->nr, rq->load);
	left = ran < ideal ? ideal - ran : 1;
	first = __COMPAT_scx_bpf_dsq_peek(cpu);
	if (!first)
		return left;
	ahead = rq->v - first->scx.dsq_vtime;
	fair = ahead < (s64)ideal ? (ideal - ahead) * rq->curr_weight / NICE_0_LOAD + 1 : 1;
	if (ran + fair < least_slice_ns)
		fair = least_slice_ns - ran;
	return fair < left ? fair : left;
}

/* May a thread that has come to wait here take the CPU? */
static __always_inline void arrived(struct task_struct *p, struct entity *e, struct runq *rq,
				    s32 cpu)
{
	struct task_struct *curr;
	s64 behind, ahead;
	bool takes;

	charge_ahead(rq, cpu);
	if (!rq->curr)
		return;
	behind = rq->v - e->v;
	takes = behind > 0 && behind > (s64)granularity_of(e, rq->charged - rq->picked, rq->nr);
	if (rq->curr_policy == POLICY_IDLE)
		takes = true;
	if (p->policy == POLICY_BATCH || p->policy == POLICY_IDLE || !wakeup_preemption)
		takes = false;
	if (takes && !rq->resched) {
		rq->resched = true;
		if (last_buddy && rq->nr >= nr_latency)
			rq->last = rq->curr;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		berth_count(preempted);
	} else if (!berth_hz) {
		curr = __COMPAT_scx_bpf_cpu_curr(cpu);
		if (curr && curr->pid == rq->curr && curr->scx.slice) {
			/* The kernel charges it this, too, against the slice. */
			ahead = rq->charged_at - curr->se.exec_start;
			scx_bpf_task_set_slice(curr, until_look(rq, cpu) + (ahead > 0 ? ahead : 0));
		}
	}
}

s32 BPF_STRUCT_OPS(cfs_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 waker = bpf_get_smp_processor_id(), idle;
	struct entity *e = entity_of(p), *by;
	struct berth_cpu *topo = berth_cpu(prev_cpu);
	struct runq *rq = rq_of(prev_cpu);
	u64 synced = 0;

	if (!e || !rq || !topo)
		return prev_cpu;
	if (wake_flags & SCX_WAKE_FORK)
		return least_loaded(p, prev_cpu);
	if (berth_llc(waker) == topo->llc) {
		if (!rq->nr && rq->bal.online && allowed(p, prev_cpu))
			return prev_cpu;
		idle = idle_in_ring(p, prev_cpu, false);
		if (idle >= 0)
			return idle;
	}
	if (waker == prev_cpu || !allowed(p, waker))
		return prev_cpu;
	if (wake_flags & SCX_WAKE_SYNC) {
		by = entity_of(bpf_get_current_task_btf());
		if (by && by->avg_overlap <= hot_ns() && e->avg_overlap <= hot_ns())
			synced = by->weight;
	}
	return wakes_near(e->weight, waker, prev_cpu, synced) ? waker : prev_cpu;
}

/* The running thread here has woken somebody. */
static __always_inline void wakes_another(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct entity *e = entity_of(p);
	u64 sum = p->se.sum_exec_runtime;

	if (!e)
		return;
	average(&e->avg_wakeup, sum - (e->last_wakeup ?: e->woken));
	e->last_wakeup = sum;
}

/* p begins or ceases to be a runnable member of its groups. */
static __always_inline void member_runnable(struct task_struct *p, struct entity *e, bool wants)
{
	if (groups && e->member.group)
		berth_member_runnable(&e->member, berth_nice_weight(p) >> 10, wants, scx_bpf_now());
}

void BPF_STRUCT_OPS(cfs_enqueue, struct task_struct *p, u64 enq_flags)
{
	bool wakes = enq_flags & SCX_ENQ_WAKEUP, comes;
	s32 cpu = scx_bpf_task_cpu(p);
	struct entity *e = entity_of(p);
	struct runq *rq = rq_of(cpu);

	if (!e || !rq) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
		return;
	}
	comes = !e->on || e->cpu != cpu;
	if (comes)
		charge_ahead(rq, cpu);
	member_runnable(p, e, true);
	settle(p, e, rq, cpu);
	if (!comes)
		reweigh(p, e);
	if (e->fresh || wakes)
		place(e, rq, e->fresh);
	if (wakes) {
		e->woken = p->se.sum_exec_runtime;
		if (wakers == THREADS_WAKE)
			wakes_another();
		if (next_buddy)
			rq->next = p->pid;
	}
	e->fresh = false;
	e->key = e->v;
	if (bound_kthread(p)) {
		if (wakes)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_INF, enq_flags);
		return;
	}
	scx_bpf_dsq_insert_vtime(p, cpu, SCX_SLICE_INF, e->key, enq_flags);
	berth_count(queued);
	if (comes)
		arrived(p, e, rq, cpu);
}

/* What the kernel finds at a tick, or a timer's end: must the running thread give way? */
static __always_inline bool too_long(struct runq *rq, s32 cpu)
{
	u64 ran = rq->charged - rq->picked, ideal;
	struct task_struct *first;

	if (rq->nr < 2)
		return false;
	ideal = slice_of(rq->curr_weight, rq->nr, rq->load);
	if (ran > ideal) {
		if (rq->last == rq->curr)
			rq->last = 0;
		if (rq->next == rq->curr)
			rq->next = 0;
		return true;
	}
	first = __COMPAT_scx_bpf_dsq_peek(cpu);
	return first && ran >= least_slice_ns && (s64)(rq->v - first->scx.dsq_vtime) > (s64)ideal;
}

void BPF_STRUCT_OPS(cfs_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct entity *e = entity_of(p);
	struct runq *rq = rq_of(cpu);

	if (!e || !rq || rq->curr != p->pid)
		return;
	charge(rq, cpu, p);
	reweigh(p, e);
	rq->curr_weight = e->weight;
	if (too_long(rq, cpu)) {
		rq->resched = true;
		scx_bpf_task_set_slice(p, 0);
	}
}

/*
 * Give the CPU to a waiting buddy, if it is not further behind `left`, whose turn it would be, than
 * one may be without losing the CPU to it.
 */
__noinline bool cfs_favour(s32 cpu, s32 pid, u64 left_v, u64 left_weight, u64 left_wakeup)
{
	struct entity left = { .weight = left_weight, .avg_wakeup = left_wakeup };
	struct runq *rq = rq_of(cpu);
	struct task_struct *p;
	struct entity *e;
	bool done = false;

	if (!rq)
		return false;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		if (p->pid != pid)
			continue;
		e = entity_of(p);
		if (e && (s64)(e->v - left_v) <= (s64)granularity_of(&left, e->ran, rq->nr))
			done = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		break;
	}
	bpf_rcu_read_unlock();
	return done;
}

/* A buddy takes the turn of `left`; the last one has it before the next. */
static __always_inline bool buddy_first(struct runq *rq, s32 cpu, struct entity *left, u64 left_v)
{
	if (rq->last && cfs_favour(cpu, rq->last, left_v, left->weight, left->avg_wakeup))
		return true;
	return rq->next && cfs_favour(cpu, rq->next, left_v, left->weight, left->avg_wakeup);
}

void BPF_STRUCT_OPS(cfs_dispatch, s32 cpu, struct task_struct *prev)
{
	struct runq *rq = rq_of(cpu);
	struct entity *e = NULL, *left;
	struct task_struct *head;
	bool stays;

	if (!rq)
		return;
	rq->resched = false;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED) && prev->pid == rq->curr) {
		charge(rq, cpu, prev);
		e = entity_of(prev);
	}
	head = __COMPAT_scx_bpf_dsq_peek(cpu);
	stays = e && (!head || time_before(rq->v, head->scx.dsq_vtime));
	left = stays ? e : head ? entity_of(head) : NULL;
	if (left && head && (rq->last || rq->next) &&
	    buddy_first(rq, cpu, left, stays ? rq->v : left->v)) {
		berth_count(buddies);
		return;
	}
	if (!stays && head && scx_bpf_dsq_move_to_local(cpu, 0))
		return;
	if (e) {
		rq->picked = rq->charged;
		scx_bpf_task_set_slice(prev, until_look(rq, cpu));
		berth_count(kept);
		return;
	}
	if ((rq->bal.looks || rq->avg_idle >= hot_ns()) && linux_pull(cpu))
		berth_count(pulled);
	else
		rq->idle_at = scx_bpf_now();
}

void BPF_STRUCT_OPS(cfs_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct entity *e = entity_of(p);
	struct runq *rq = rq_of(cpu);
	struct task_struct *head;
	u64 idle;

	if (!e || !rq)
		return;
	member_runnable(p, e, true);
	settle(p, e, rq, cpu);
	reweigh(p, e);
	if (rq->idle_at) {
		idle = scx_bpf_now() - rq->idle_at;
		if (idle > 2 * hot_ns())
			rq->avg_idle = 2 * hot_ns();
		else
			average(&rq->avg_idle, idle);
		rq->idle_at = 0;
	}
	if (rq->last == p->pid)
		rq->last = 0;
	if (rq->next == p->pid)
		rq->next = 0;
	rq->v = e->v;
	rq->curr_weight = e->weight;
	rq->curr_policy = p->policy;
	rq->charged = rq->picked = p->se.sum_exec_runtime;
	rq->charged_at = p->se.exec_start;
	rq->curr = p->pid;
	rq->resched = false;
	scx_bpf_task_set_slice(p, until_look(rq, cpu));
	if (e->aside) {
		/* A higher class had the CPU; sched_ext has p go on without asking. */
		head = __COMPAT_scx_bpf_dsq_peek(cpu);
		if (head && time_before(head->scx.dsq_vtime, rq->v)) {
			rq->resched = true;
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		}
	}
	e->aside = false;
}

void BPF_STRUCT_OPS(cfs_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct entity *e = entity_of(p);
	struct runq *rq = rq_of(cpu);

	if (!e || !rq || rq->curr != p->pid)
		return;
	charge(rq, cpu, p);
	e->v = rq->v;
	e->ran = rq->charged - rq->picked;
	e->ran_at = scx_bpf_now();
	if (runnable)
		average(&e->avg_overlap, e->ran < 2 * hot_ns() ? e->ran : 2 * hot_ns());
	e->aside = runnable && p->scx.slice;
	rq->curr = 0;
}

void BPF_STRUCT_OPS(cfs_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct entity *e = entity_of(p);
	struct runq *rq;

	if (!e)
		return;
	member_runnable(p, e, false);
	count(e, false);
	rq = rq_of(e->cpu);
	if (rq && rq->last == p->pid)
		rq->last = 0;
	if (rq && rq->next == p->pid)
		rq->next = 0;
	if (!(deq_flags & SCX_DEQ_SLEEP))
		return;
	if (e->last_wakeup)
		average(&e->avg_overlap, p->se.sum_exec_runtime - e->last_wakeup);
	else
		average(&e->avg_wakeup, wakeup_ns);
	e->last_wakeup = 0;
}

bool BPF_STRUCT_OPS(cfs_yield, struct task_struct *from, struct task_struct *to)
{
	s32 cpu = scx_bpf_task_cpu(from);
	struct runq *rq = rq_of(cpu);

	if (to || !rq || rq->curr != from->pid)
		return false;
	charge(rq, cpu, from);
	if (rq->last == from->pid)
		rq->last = 0;
	if (rq->next == from->pid)
		rq->next = 0;
	scx_bpf_task_set_slice(from, 0);
	return false;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(cfs_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct entity *e = bpf_task_storage_get(&entities, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!e)
		return -ENOMEM;
	e->cpu = NOWHERE;
	e->fresh = true;
	e->weight = berth_nice_weight(p);
	e->avg_wakeup = wakeup_ns;
	if (groups)
		berth_member_join(&e->member, args->cgroup->kn->id);
	return 0;
}

void BPF_STRUCT_OPS(cfs_disable, struct task_struct *p)
{
	struct entity *e = entity_of(p);

	if (!e)
		return;
	member_runnable(p, e, false);
	count(e, false);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(cfs_cgroup_init, struct cgroup *cgrp,
			     struct scx_cgroup_init_args *args)
{
	return berth_group_init(cgrp, args->weight);
}

void BPF_STRUCT_OPS_SLEEPABLE(cfs_cgroup_exit, struct cgroup *cgrp)
{
	berth_group_exit(cgrp);
}

void BPF_STRUCT_OPS(cfs_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct entity *e = entity_of(p);
	bool wants;

	if (!e || !groups)
		return;
	wants = e->member.counted;
	member_runnable(p, e, false);
	berth_member_join(&e->member, to->kn->id);
	if (wants)
		member_runnable(p, e, true);
}

void BPF_STRUCT_OPS(cfs_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	berth_group_weight(cgrp->kn->id, weight);
}

void BPF_STRUCT_OPS(cfs_cpu_online, s32 cpu)
{
	set_online(cpu, true);
}

void BPF_STRUCT_OPS(cfs_cpu_offline, s32 cpu)
{
	set_online(cpu, false);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(cfs_init)
{
	u32 factor = 1, cpus = berth_nr_cpus;
	struct runq *rq;
	s32 cpu;

	if (scaling)
		factor += (cpus >= 2) + (cpus >= 4) + (cpus >= 8);
	latency_ns = latency_us * 1000 * factor;
	least_slice_ns = min_granularity_us * 1000 * factor;
	wakeup_ns = wakeup_granularity_us * 1000 * factor;
	bpf_for(cpu, 0, berth_nr_cpus) {
		rq = rq_of(cpu);
		if (rq)
			rq->avg_idle = 2 * hot_ns();
	}
	return queues_init();
}

void BPF_STRUCT_OPS(cfs_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(cfs_ops,
	.select_cpu		= (void *)cfs_select_cpu,
	.enqueue		= (void *)cfs_enqueue,
	.dispatch		= (void *)cfs_dispatch,
	.running		= (void *)cfs_running,
	.tick			= (void *)cfs_tick,
	.stopping		= (void *)cfs_stopping,
	.quiescent		= (void *)cfs_quiescent,
	.yield			= (void *)cfs_yield,
	.init_task		= (void *)cfs_init_task,
	.disable		= (void *)cfs_disable,
	.cgroup_init		= (void *)cfs_cgroup_init,
	.cgroup_exit		= (void *)cfs_cgroup_exit,
	.cgroup_move		= (void *)cfs_cgroup_move,
	.cgroup_set_weight	= (void *)cfs_cgroup_set_weight,
	.cpu_online		= (void *)cfs_cpu_online,
	.cpu_offline		= (void *)cfs_cpu_offline,
	.init			= (void *)cfs_init,
	.exit			= (void *)cfs_exit,
	.flags			= SCX_OPS_ENQ_LAST,
	.timeout_ms		= 30000,
	.name			= "cfs");
