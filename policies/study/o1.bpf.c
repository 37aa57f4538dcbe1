/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * o1: Linux's O(1) scheduler as of 2.6.21, a model.
 *
 * Idea. Each CPU has two arrays of 140 lists, one per priority: the best priority of the active one
 * runs. Who has used up its time slice gets a new one and goes to the expired array; when nobody is
 * active any more the arrays change places. The priority is the nice value's, up to 5 better for
 * who sleeps and up to 5 worse for who does not (sleep_avg: time slept, less time run). Who comes
 * out clearly better is interactive: its next slice is in the active array, too, until those who
 * have expired have waited too long.
 *
 * Source: kernel/sched.c of 2.6.21; nothing is copied. What is kept: slices, bonus, interactivity,
 * granularity, expiry and starvation limits, the credit for waiting, slices shared by parent and
 * child, wake-up preemption, balance by weight (slice / 100 ms).
 *
 * Deviations.
 *  - What wakes threads (interrupts, or other threads) is a parameter: a policy cannot see it.
 *  - A new process begins with a full slice; only threads of one process share theirs. A child is
 *    queued as any thread that wakes, not in front of its parent.
 *  - With ticks a slice is counted at ticks; where slices end exactly, by run time.
 *  - An interrupt's thread that wakes where it ran before stays there, though another CPU is idle:
 *    as in the kernel, the idle CPU takes it over later.
 *  - No SCHED_BATCH, no real-time threads, no synchronous wake-ups' weight in wake_affine.
 *  - Those of linux/queues.bpf.h.
 *
 * sleep_avg counts time on the wall, slices count ticks: time stolen or spent in interrupts is
 * charged to who has the CPU.
 *
 * Not good for: any host. Threads of nice 0 take turns of 100 ms; who pretends to be interactive
 * has a CPU for seconds times the number of threads.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall", "Linux's O(1) scheduler as of 2.6.21: two arrays of priorities per CPU");

BERTH_PARAM(u64, slice_us, "us", 100000, 5000, 10000000, "DEF_TIMESLICE: time slice of nice 0");
BERTH_PARAM(u64, sleep_max_ms, "ms", 1000, 10, 100000, "MAX_SLEEP_AVG: sleep that counts at most");
BERTH_PARAM(u64, starvation_ms, "ms", 1000, 1, 100000,
	    "STARVATION_LIMIT: expired threads wait that long, times the runnable ones, before "
	    "interactive ones expire, too");
BERTH_PARAM(u64, granularity_us, "us", 10000, 1000, 1000000,
	    "GRANULARITY: turns of interactive threads of a priority, for the best bonus");
BERTH_PARAM(u32, interactive_delta, "count", 2, 0, 10,
	    "INTERACTIVE_DELTA: bonus of an interactive thread of nice 0");
BERTH_PARAM(u64, migration_cost_us, "us", 2000, 0, 1000000,
	    "Who ran that lately stays on its CPU (the kernel measures it at boot)");
BERTH_PARAM(bool, interactivity, "bool", 1, 0, 1, "Sleep changes priorities");
BERTH_PARAM(bool, wakeup_preemption, "bool", 1, 0, 1, "A waking thread may take the CPU");
BERTH_CHOICE(wakers, "interrupts|threads", 0,
	     "What wakes threads: their wait for the CPU counts as sleep in full, or by 30 %");

struct berth_stats {
	u64 queued;	 /* had to wait */
	u64 preempted;	 /* took the CPU when it woke */
	u64 expired;	 /* slice used up: to the expired array */
	u64 reactivated; /* slice used up: interactive, back to the active one */
	u64 rotated;	 /* let its equals run */
	u64 swaps;	 /* of the arrays */
	u64 pulled;	 /* taken over by an idle CPU */
	u64 balanced;	 /* times a busy CPU took threads over */
};
BERTH_STATS;

#include "linux/state.bpf.h"

#define LEAST_SLICE_US	5000
#define QUEUES		2
#define NICE_0_LOAD	128
#define MOVE_HALVES	0
#define SEQUENCE	48		  /* bits of a key below the priority */
#define ON_RUNQUEUE(ns) ((ns) * 38 / 128) /* 30 %, as the kernel rounds it */
#define CHILD_PENALTY	95
#define PARENT_PENALTY	100
#define EXIT_WEIGHT	3
#define UNINTERRUPTIBLE 2 /* TASK_UNINTERRUPTIBLE */
#define THREADS_WAKE	1 /* of `wakers` */

struct entity {
	s32 cpu;
	u32 static_prio;
	u32 prio;
	s32 parent; /* pid */
	u64 weight;
	u64 ran_at;
	u64 key;       /* prio << SEQUENCE | place in the list */
	u64 timestamp; /* of the last wake-up, or switch */
	u64 sleep_avg; /* ns */
	u64 left_ns;   /* of the slice */
	u64 charged;   /* of p->se.sum_exec_runtime */
	u8 array;
	u8 sleep_type;
	bool on;
	bool fresh;	  /* has never waited for a CPU */
	bool first_slice; /* of its life, shared with its parent */
	bool sync;	  /* its waker is about to sleep */
	bool aside;	  /* a higher class has taken its CPU */
};

/* A CPU's arrays. What is not under the lock belongs to who holds the kernel's run queue lock. */
struct runq {
	struct bpf_spin_lock lock;
	u32 nr;
	u64 load;
	u64 sequence;
	u64 expired_at;	  /* when the first one expired since the last swap; 0: none has */
	u32 best_expired; /* static priority; NO_PRIO */
	u32 curr_prio;
	s32 curr; /* pid; 0: none */
	u32 active;
	struct balance bal;
};

static u64 tick_ns;

static __always_inline u64 hot_ns(void)
{
	return migration_cost_us * 1000;
}

#include "linux/queues.bpf.h"
#include "o1/bonus.bpf.h"

static __always_inline u64 weight_now(struct task_struct *p, struct entity *e)
{
	return slice_of(e->static_prio) * NICE_0_LOAD / slice_of(120);
}

/* Who has expired can wait for another CPU longest. */
static __always_inline u64 next_queue(struct runq *rq, s32 cpu, u32 i)
{
	return (u64)cpu * QUEUES + (i ? rq->active : !rq->active);
}

static __always_inline void to_tail(struct entity *e, struct runq *rq)
{
	e->key = (u64)e->prio << SEQUENCE | ++rq->sequence;
}

static __always_inline void moves(struct task_struct *p, struct entity *e, struct runq *from,
				  struct runq *to)
{
	bool expired = e->on && from && e->array != from->active;

	e->array = expired ? !to->active : to->active;
	to_tail(e, to);
}

static __always_inline u64 waits_at(struct entity *e, struct runq *rq, s32 cpu)
{
	return (u64)cpu * QUEUES + e->array;
}

static __always_inline void arrived(struct task_struct *p, struct entity *e, struct runq *rq,
				    s32 cpu)
{
	if (rq->curr && e->array == rq->active && e->prio < rq->curr_prio) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		berth_count(preempted);
	}
}

/* The nice value may have changed. */
static __always_inline bool renice(struct task_struct *p, struct entity *e)
{
	u32 prio = p->static_prio;

	if (prio < FIRST_NORMAL || prio > LAST_NORMAL)
		prio = 120;
	if (e->static_prio == prio)
		return false;
	e->static_prio = prio;
	e->prio = effective_prio(e);
	return true;
}

/* On which CPU does p wake? On its last one, or its waker's; in the core of either one may be idle.
 */
s32 BPF_STRUCT_OPS(o1_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 waker = bpf_get_smp_processor_id(), cpu = prev_cpu, idle;
	struct entity *e = entity_of(p);
	struct runq *rq;

	if (!e)
		return prev_cpu;
	if (wake_flags & SCX_WAKE_FORK)
		return least_loaded(p, prev_cpu);
	e->sync = wake_flags & SCX_WAKE_SYNC;
	if (waker != prev_cpu && allowed(p, waker) && wakes_near(e->weight, waker, prev_cpu, 0))
		cpu = waker;
	rq = rq_of(cpu);
	if (rq && rq->nr) {
		idle = idle_in_ring(p, cpu, true);
		if (idle >= 0)
			cpu = idle;
	}
	return cpu;
}

/* p has slept: what that is worth. */
static __always_inline void wakes(struct task_struct *p, struct entity *e, u64 now)
{
	credit_sleep(e, now - e->timestamp, p->flags & PF_KTHREAD);
	if (e->sleep_type == SLEEP_NORMAL)
		e->sleep_type = wakers == THREADS_WAKE ? SLEEP_INTERACTIVE : SLEEP_INTERRUPTED;
	e->timestamp = now;
}

void BPF_STRUCT_OPS(o1_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct entity *e = entity_of(p);
	struct runq *rq = rq_of(cpu);
	bool comes, reniced;

	if (!e || !rq) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
		return;
	}
	comes = !e->on || e->cpu != cpu;
	reniced = renice(p, e);
	if ((enq_flags & SCX_ENQ_WAKEUP) && !e->fresh)
		wakes(p, e, scx_bpf_now());
	else if (e->fresh)
		e->timestamp = scx_bpf_now();
	settle(p, e, rq, cpu);
	if (e->fresh || (enq_flags & SCX_ENQ_WAKEUP))
		e->array = rq->active;
	if (comes || reniced)
		to_tail(e, rq);
	e->fresh = false;
	if (reniced)
		reweigh(p, e);
	if (bound_kthread(p)) {
		if (enq_flags & SCX_ENQ_WAKEUP)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_INF, enq_flags);
		return;
	}
	scx_bpf_dsq_insert_vtime(p, waits_at(e, rq, cpu), SCX_SLICE_INF, e->key, enq_flags);
	berth_count(queued);
	if ((comes || reniced) && wakeup_preemption &&
	    !(e->sync && cpu == bpf_get_smp_processor_id()))
		arrived(p, e, rq, cpu);
	e->sync = false;
}

/* Interactive threads expire, too, once others have waited for long, or better ones do. */
static __always_inline bool expired_starve(struct runq *rq, struct entity *e, u64 now)
{
	if (e->static_prio > rq->best_expired)
		return true;
	return rq->expired_at && now - rq->expired_at > starvation_ms * 1000000 * rq->nr;
}

/* The slice is used up. */
static __always_inline void expire(struct entity *e, struct runq *rq, u64 now)
{
	e->prio = effective_prio(e);
	e->left_ns = slice_of(e->static_prio);
	e->first_slice = false;
	if (!rq->expired_at)
		rq->expired_at = now;
	if (interactive(e) && !expired_starve(rq, e, now)) {
		berth_count(reactivated);
	} else {
		e->array = !rq->active;
		if (e->static_prio < rq->best_expired)
			rq->best_expired = e->static_prio;
		berth_count(expired);
	}
	to_tail(e, rq);
}

/* The running thread has used another `ns` of its slice. True: the CPU must choose anew. */
static __always_inline bool use_slice(struct entity *e, struct runq *rq, u64 ns)
{
	u64 used;

	if (e->array != rq->active)
		return true;
	e->left_ns -= ns < e->left_ns ? ns : e->left_ns;
	if (!e->left_ns) {
		expire(e, rq, scx_bpf_now());
		rq->curr_prio = e->prio;
		return true;
	}
	used = slice_of(e->static_prio) - e->left_ns;
	if (!ns || !interactive(e) || used % granularity_of(e) || e->left_ns < granularity_of(e))
		return false;
	to_tail(e, rq);
	berth_count(rotated);
	return true;
}

/* Where slices end exactly: run time until use_slice() is asked; else ticks ask. */
static __always_inline u64 until_asked(struct entity *e)
{
	u64 granularity = granularity_of(e), next;

	if (berth_hz)
		return SCX_SLICE_INF;
	if (!interactive(e))
		return e->left_ns ?: 1;
	next = granularity - (slice_of(e->static_prio) - e->left_ns) % granularity;
	return next < e->left_ns ? next : e->left_ns ?: 1;
}

/* Where slices end exactly: count what p has run. */
static __always_inline void use_exactly(struct task_struct *p, struct entity *e, struct runq *rq)
{
	u64 sum = p->se.sum_exec_runtime, ns = sum - e->charged;

	e->charged = sum;
	if (!berth_hz && ns)
		use_slice(e, rq, ns);
}

void BPF_STRUCT_OPS(o1_tick, struct task_struct *p)
{
	struct runq *rq = rq_of(scx_bpf_task_cpu(p));
	struct entity *e = entity_of(p);

	if (!e || !rq || rq->curr != p->pid)
		return;
	if (use_slice(e, rq, tick_ns))
		scx_bpf_task_set_slice(p, 0);
}

void BPF_STRUCT_OPS(o1_dispatch, s32 cpu, struct task_struct *prev)
{
	struct runq *rq = rq_of(cpu);
	struct entity *e = NULL;
	struct task_struct *head;
	bool here;

	if (!rq)
		return;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED) && prev->pid == rq->curr) {
		e = entity_of(prev);
		if (e) {
			use_exactly(prev, e, rq);
			charge_run(e, scx_bpf_now());
		}
	}
	here = e && e->array == rq->active;
	head = __COMPAT_scx_bpf_dsq_peek(cpu * QUEUES + rq->active);
	if (!here && !head) {
		rq->active = !rq->active;
		rq->expired_at = 0;
		rq->best_expired = NO_PRIO;
		here = e != NULL;
		head = __COMPAT_scx_bpf_dsq_peek(cpu * QUEUES + rq->active);
		if (here || head)
			berth_count(swaps);
	}
	if (head && !(here && e->key < head->scx.dsq_vtime) &&
	    scx_bpf_dsq_move_to_local(cpu * QUEUES + rq->active, 0))
		return;
	if (e) {
		if (!here) {
			e->array = rq->active;
			to_tail(e, rq);
		}
		scx_bpf_task_set_slice(prev, until_asked(e));
		return;
	}
	if (scx_bpf_dsq_move_to_local(cpu * QUEUES + !rq->active, 0))
		return;
	if (linux_pull(cpu))
		berth_count(pulled);
	else
		rq->expired_at = 0;
}

/* p gets the CPU: its wait counts as sleep, too, if it came from sleep. */
void BPF_STRUCT_OPS(o1_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct entity *e = entity_of(p);
	struct runq *rq = rq_of(cpu);
	u64 now = scx_bpf_now(), waited;
	struct task_struct *head;
	u32 prio;

	if (!e || !rq)
		return;
	renice(p, e);
	settle(p, e, rq, cpu);
	if (e->array != rq->active) {
		e->array = rq->active;
		to_tail(e, rq);
	}
	if (e->sleep_type == SLEEP_INTERACTIVE || e->sleep_type == SLEEP_INTERRUPTED) {
		waited = now - e->timestamp;
		if (e->sleep_type == SLEEP_INTERACTIVE)
			waited = ON_RUNQUEUE(waited);
		prio = e->prio;
		credit_sleep(e, waited, p->flags & PF_KTHREAD);
		if (e->prio != prio)
			to_tail(e, rq);
	}
	e->sleep_type = SLEEP_NORMAL;
	e->timestamp = now;
	e->charged = p->se.sum_exec_runtime;
	rq->curr = p->pid;
	rq->curr_prio = e->prio;
	scx_bpf_task_set_slice(p, until_asked(e));
	if (e->aside) {
		/* A higher class had the CPU; sched_ext has p go on without asking. */
		head = __COMPAT_scx_bpf_dsq_peek(cpu * QUEUES + rq->active);
		if (head && head->scx.dsq_vtime < e->key)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	e->aside = false;
}

void BPF_STRUCT_OPS(o1_stopping, struct task_struct *p, bool runnable)
{
	struct runq *rq = rq_of(scx_bpf_task_cpu(p));
	struct entity *e = entity_of(p);
	u64 now = scx_bpf_now();

	if (!e || !rq || rq->curr != p->pid)
		return;
	use_exactly(p, e, rq);
	charge_run(e, now);
	e->ran_at = now;
	e->aside = runnable && p->scx.slice;
	rq->curr = 0;
}

void BPF_STRUCT_OPS(o1_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct entity *e = entity_of(p);

	if (!e)
		return;
	count(e, false);
	if ((deq_flags & SCX_DEQ_SLEEP) && (p->__state & UNINTERRUPTIBLE))
		e->sleep_type = SLEEP_NONINTERACTIVE;
}

bool BPF_STRUCT_OPS(o1_yield, struct task_struct *from, struct task_struct *to)
{
	struct runq *rq = rq_of(scx_bpf_task_cpu(from));
	struct entity *e = entity_of(from);

	if (to || !e || !rq || rq->curr != from->pid)
		return false;
	e->array = !rq->active;
	to_tail(e, rq);
	scx_bpf_task_set_slice(from, 0);
	return false;
}

/* A child of p, in the same process: slice and bonus are shared. */
static __always_inline void divide(struct task_struct *p, struct entity *e)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct entity *from;
	u64 unit = unit_ns(), half;

	if (!parent->pid || parent->tgid != p->tgid)
		return;
	from = bpf_task_storage_get(&entities, parent, 0, 0);
	if (!from)
		return;
	half = from->left_ns / unit / 2 * unit;
	e->left_ns = from->left_ns - half;
	from->left_ns = half ?: unit;
	e->sleep_avg = inherited(from, CHILD_PENALTY);
	from->sleep_avg = inherited(from, PARENT_PENALTY);
	e->parent = parent->pid;
	e->first_slice = true;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(o1_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct entity *e = bpf_task_storage_get(&entities, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!e)
		return -ENOMEM;
	e->cpu = NOWHERE;
	e->fresh = true;
	renice(p, e);
	e->left_ns = slice_of(e->static_prio);
	if (args->fork)
		divide(p, e);
	e->prio = effective_prio(e);
	e->weight = weight_now(p, e);
	return 0;
}

/* What p has not used of the slice it was given by its parent goes back. */
void BPF_STRUCT_OPS(o1_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct entity *e = entity_of(p), *to;
	struct task_struct *parent;
	u64 most;

	if (!e || !e->parent)
		return;
	parent = bpf_task_from_pid(e->parent);
	if (!parent)
		return;
	to = entity_of(parent);
	if (to) {
		most = slice_of(e->static_prio);
		if (e->first_slice && e->cpu == to->cpu) {
			to->left_ns += e->left_ns;
			if (to->left_ns > most)
				to->left_ns = most;
		}
		if (e->sleep_avg < to->sleep_avg)
			to->sleep_avg = to->sleep_avg / (EXIT_WEIGHT + 1) * EXIT_WEIGHT +
					e->sleep_avg / (EXIT_WEIGHT + 1);
	}
	bpf_task_release(parent);
}

void BPF_STRUCT_OPS(o1_disable, struct task_struct *p)
{
	struct entity *e = entity_of(p);

	if (e)
		count(e, false);
}

void BPF_STRUCT_OPS(o1_cpu_online, s32 cpu)
{
	set_online(cpu, true);
}

void BPF_STRUCT_OPS(o1_cpu_offline, s32 cpu)
{
	set_online(cpu, false);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(o1_init)
{
	struct runq *rq;
	s32 cpu;

	tick_ns = 1000000000 / (berth_hz ?: 1000);
	bpf_for(cpu, 0, berth_nr_cpus) {
		rq = rq_of(cpu);
		if (rq)
			rq->best_expired = NO_PRIO;
	}
	return queues_init();
}

void BPF_STRUCT_OPS(o1_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(o1_ops,
	.select_cpu	= (void *)o1_select_cpu,
	.enqueue	= (void *)o1_enqueue,
	.dispatch	= (void *)o1_dispatch,
	.running	= (void *)o1_running,
	.tick		= (void *)o1_tick,
	.stopping	= (void *)o1_stopping,
	.quiescent	= (void *)o1_quiescent,
	.yield		= (void *)o1_yield,
	.init_task	= (void *)o1_init_task,
	.exit_task	= (void *)o1_exit_task,
	.disable	= (void *)o1_disable,
	.cpu_online	= (void *)o1_cpu_online,
	.cpu_offline	= (void *)o1_cpu_offline,
	.init		= (void *)o1_init,
	.exit		= (void *)o1_exit,
	.flags		= SCX_OPS_ENQ_LAST,
	.timeout_ms	= 30000,
	.name		= "o1");
