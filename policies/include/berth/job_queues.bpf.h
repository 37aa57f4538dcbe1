/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Schedulers of jobs (berth/jobs.bpf.h) with a few ordered queues, which all CPUs serve, or each
 * one its own: mrsf, and the textbook policies it is compared with.
 *
 * The includer declares its parameters and struct berth_stats with `pieces` and `preempted`, then
 * defines
 *
 *	QUEUES		number of queues, an expression, at most MOST_QUEUES
 *	FIRST_ALIKE	so many of the first queues are one level: of their heads the smallest key
 *			goes first; later queues follow one by one
 *	TIED		each queue has a CPU of its own: queue q is CPU q's, around if there are
 *			fewer CPUs than queues, counted over the CPUs that are online
 *	PREEMPTS	0: an arrival never takes a CPU
 *
 * before this header, and after it the hooks
 *
 *	begin(p, j)		a job has been admitted, at level 1: j->queue
 *	admit(p, j, fresh)	before it is queued: it has been, elsewhere (true; only a fresh
 *				one), to come with `gather`
 *	gather()		before a CPU chooses: queue what was put elsewhere
 *	may_start(queue)	false: nothing of this queue is to start now
 *	key_of(p, j)		place in the queue, smaller first, equal ones in order of arrival
 *	turn_of(p, j)		CPU time it may have at this level, ns; SCX_SLICE_INF: all
 *	used_up(p, j)		it has had that: where does it go?
 *	slept(p, j)		it goes to sleep, for good perhaps, or leaves the policy
 *	woken(p, j)		it has slept without a new job beginning
 *	yielded(p, j)		it gives its CPU away before its time
 *	left(p, j, queue)	as used_up, by dispatch: it was of this queue
 *	overdue(cpu)		before a choice by order: true if somebody was taken
 *	rank_of(p, j)		where arrivals preempt: of an arrival, smaller is better,
 *	rank_now(seat, now)	and of who has a CPU;
 *	margin()		by how much better is better enough
 *	ended(p, j)		a job is over
 *
 * Rules. An arrival first takes an idle CPU; else, with PREEMPTS, the CPU whose thread ranks worst,
 * the one of the highest number of several. Who has used up its time is weighed against the queues
 * before it is put back, and goes on if it is strictly before them. A thread that may not use its
 * queue's CPU waits in a queue of its own kind, OTHERS, that every CPU takes from first. Kernel
 * threads bound to a CPU get it at once, and are no jobs: nothing is learned of them.
 *
 * Who may run to the end may do so for `most_ms`; with `most_ms=0`, as the textbooks have it (and
 * the presets `textbook`), threads that never end would starve the rest of a machine.
 *
 * Slices end exactly where there are no ticks, else at the first one after them.
 */
#ifndef __BERTH_JOB_QUEUES_BPF_H
#define __BERTH_JOB_QUEUES_BPF_H

#include "berth/jobs.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"

#define MOST_QUEUES 16
#define OTHERS	    16
#define NOWHERE	    (-1)

BERTH_PARAM(
	u64, most_ms, "ms", 20, 0, 20000,
	"Who may run to the end and has not slept for so long goes behind all others of its level: "
	"some threads never end, and the kernel ends a policy that lets one wait for 30 s; 0: never");

#define ENDLESS (1ULL << 61) /* beyond all keys, which are times and numbers */

UEI_DEFINE(uei);

/* Who has a CPU. */
struct seat {
	u64 rank; /* when it got it */
	u64 at;	  /* scx_bpf_now() then */
	bool busy;
	bool kicked;
	bool online;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct seat);
} seats_by_cpu SEC(".maps");

static u32 homes[MOST_QUEUES]; /* CPU of each queue, where they are tied */
static u64 arrivals;

static __always_inline void begin(struct task_struct *p, struct job *j);
static __always_inline bool admit(struct task_struct *p, struct job *j, bool fresh);
static __always_inline void gather(void);
static __always_inline bool may_start(u32 queue);
static __always_inline u64 key_of(struct task_struct *p, struct job *j);
static __always_inline u64 turn_of(struct task_struct *p, struct job *j);
static __always_inline void used_up(struct task_struct *p, struct job *j);
static __always_inline void slept(struct task_struct *p, struct job *j);
static __always_inline void woken(struct task_struct *p, struct job *j);
static __always_inline void yielded(struct task_struct *p, struct job *j);
static __always_inline void left(struct task_struct *p, struct job *j, u32 queue);
static __always_inline bool overdue(s32 cpu);
static __always_inline u64 rank_of(struct task_struct *p, struct job *j);
static __always_inline u64 rank_now(struct seat *seat, u64 now);
static __always_inline u64 margin(void);
static __always_inline void ended(struct task_struct *p, struct job *j);

static __always_inline struct seat *seat_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&seats_by_cpu, &key);
}

static __always_inline bool bound_kthread(struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

static __always_inline s32 home_of(u32 queue)
{
	return homes[queue % MOST_QUEUES];
}

static __always_inline bool serves(s32 cpu, u32 queue)
{
	return !TIED || queue == OTHERS || home_of(queue) == cpu;
}

/* The queue in which a thread waits. */
static __always_inline u32 waits_in(struct task_struct *p, struct job *j)
{
	if (TIED && !bpf_cpumask_test_cpu(home_of(j->queue), p->cpus_ptr))
		return OTHERS;
	return j->queue;
}

/* What it may still have of its time, ns. */
static __always_inline u64 remaining(struct task_struct *p, struct job *j)
{
	u64 turn = turn_of(p, j), used = p->se.sum_exec_runtime - j->turn_since;

	if (turn == SCX_SLICE_INF) {
		if (!most_ms)
			return turn;
		turn = most_ms * 1000000;
	}
	return used < turn ? turn - used : 1;
}

static __always_inline bool check_turn(struct task_struct *p, struct job *j)
{
	u64 turn = turn_of(p, j), now = p->se.sum_exec_runtime;

	if (turn != SCX_SLICE_INF) {
		if (now - j->turn_since < turn)
			return false;
		j->turn_since = now;
		used_up(p, j);
		return true;
	}
	if (!most_ms || now - j->turn_since < most_ms * 1000000)
		return false;
	j->turn_since = now;
	j->endless = true;
	j->place = ++arrivals;
	return true;
}

/* Its place in its queue, smaller first. */
static __always_inline u64 place_of(struct task_struct *p, struct job *j)
{
	return j->endless ? ENDLESS + j->place : key_of(p, j);
}

/* The CPU from which an arrival of this rank takes it; NOWHERE: none. */
static __noinline s32 victim(struct task_struct *p, u64 rank)
{
	u64 now = scx_bpf_now(), worst = 0, its;
	s32 cpu, found = NOWHERE;
	struct seat *seat;

	bpf_for(cpu, 0, berth_nr_cpus) {
		seat = seat_of(cpu);
		if (!seat || !seat->busy || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		its = rank_now(seat, now);
		if (found == NOWHERE || !time_before(its, worst)) {
			worst = its;
			found = cpu;
		}
	}
	if (found != NOWHERE && !time_before(rank + margin(), worst))
		found = NOWHERE;
	return found;
}

/* p waits: whose business is it? */
static __always_inline void tell(struct task_struct *p, struct job *j, bool arrival)
{
	struct seat *seat;
	s32 cpu;

	if (TIED && bpf_cpumask_test_cpu(home_of(j->queue), p->cpus_ptr)) {
		scx_bpf_kick_cpu(home_of(j->queue), SCX_KICK_IDLE);
		return;
	}
	if (j->placed) {
		j->placed = false;
		return;
	}
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	if (!PREEMPTS || TIED || !arrival)
		return;
	cpu = victim(p, rank_of(p, j));
	seat = cpu >= 0 ? seat_of(cpu) : NULL;
	if (!seat)
		return;
	seat->rank = rank_of(p, j);
	seat->at = scx_bpf_now();
	seat->kicked = true;
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	berth_count(preempted);
}

/* Place of the queue among levels. */
static __always_inline u32 level_of(u32 queue)
{
	return queue < FIRST_ALIKE ? 0 : queue;
}

/* The queue from which this CPU takes next; NOWHERE: none. */
static __noinline s32 best_queue(s32 cpu)
{
	struct task_struct *p;
	s32 queue, best = NOWHERE;
	u64 key = 0;

	bpf_for(queue, 0, QUEUES) {
		if (best != NOWHERE && level_of(queue) > level_of(best))
			break;
		if (!serves(cpu, queue) || !may_start(queue))
			continue;
		p = __COMPAT_scx_bpf_dsq_peek(queue);
		if (p && (best == NOWHERE || time_before(p->scx.dsq_vtime, key))) {
			best = queue;
			key = p->scx.dsq_vtime;
		}
	}
	return best;
}

/* Who waits first in `queue` goes before p, which has had its time. */
static __always_inline bool goes_before(s32 queue, struct task_struct *p, struct job *j)
{
	struct task_struct *first;

	if (queue == NOWHERE)
		return false;
	if (level_of(queue) != level_of(j->queue))
		return level_of(queue) < level_of(j->queue);
	first = __COMPAT_scx_bpf_dsq_peek(queue);
	return first && !time_before(place_of(p, j), first->scx.dsq_vtime);
}

/* p has this CPU from now on. */
static __always_inline void sits(struct task_struct *p, struct job *j, s32 cpu)
{
	struct seat *seat = seat_of(cpu);

	if (!seat)
		return;
	seat->busy = true;
	seat->kicked = false;
	if (PREEMPTS) {
		seat->rank = rank_of(p, j);
		seat->at = scx_bpf_now();
	}
}

static __always_inline void goes_on(struct task_struct *p, struct job *j, s32 cpu)
{
	scx_bpf_task_set_slice(p, remaining(p, j));
	sits(p, j, cpu);
	berth_count(pieces);
}

static __always_inline void next_job(struct task_struct *p, struct job *j, u64 told)
{
	if (j->known) {
		ended(p, j);
		job_ends(p, j);
	}
	job_begins(p, j, told);
}

s32 BPF_STRUCT_OPS(jobs_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct job *j = job_of(p);
	s32 cpu;

	if (TIED || !j)
		return prev_cpu;
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	j->placed = cpu >= 0;
	return cpu >= 0 ? cpu : prev_cpu;
}

void BPF_STRUCT_OPS(jobs_runnable, struct task_struct *p, u64 enq_flags)
{
	struct job *j = job_of(p);
	u64 told;

	if (!j || bound_kthread(p))
		return;
	if (job_wakes(p, j, &told)) {
		next_job(p, j, told);
	} else if (enq_flags & SCX_ENQ_WAKEUP) {
		if (turn_of(p, j) == SCX_SLICE_INF)
			j->turn_since = p->se.sum_exec_runtime;
		j->endless = false;
		woken(p, j);
	}
}

static __always_inline void put(struct task_struct *p, struct job *j, u64 enq_flags)
{
	j->queued_at = scx_bpf_now();
	j->waits = true;
	scx_bpf_dsq_insert_vtime(p, waits_in(p, j), remaining(p, j), place_of(p, j), enq_flags);
}

void BPF_STRUCT_OPS(jobs_enqueue, struct task_struct *p, u64 enq_flags)
{
	bool arrival = enq_flags & SCX_ENQ_WAKEUP;
	struct job *j = job_of(p);

	if (!j) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
		return;
	}
	if (bound_kthread(p)) {
		if (enq_flags & SCX_ENQ_WAKEUP)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, enq_flags);
		return;
	}
	if (j->fresh) {
		arrival = true;
		j->fresh = false;
		begin(p, j);
		if (admit(p, j, true))
			return;
	} else {
		check_turn(p, j);
		admit(p, j, false);
	}
	put(p, j, enq_flags);
	tell(p, j, arrival);
}

/* prev's time is over, or it was interrupted, or it yields. */
static __always_inline void turn_ends(struct task_struct *prev, struct job *j, s32 cpu)
{
	struct seat *seat = seat_of(cpu);
	u32 queue = j->queue;
	u64 told;

	if (unit == UNIT_REQUEST && job_told(prev, j, &told)) {
		/* It has begun with its next request without having slept. */
		next_job(prev, j, told);
		j->fresh = false;
		begin(prev, j);
		admit(prev, j, false);
	} else if (check_turn(prev, j)) {
		left(prev, j, queue);
	} else if (seat && !seat->kicked) {
		yielded(prev, j);
	}
}

/* Some queue has threads that may use this CPU, though not the first ones. */
static __noinline bool take_any(s32 cpu)
{
	bool taken = false;
	s32 queue;

	bpf_for(queue, 0, QUEUES) {
		if (!taken && serves(cpu, queue) && may_start(queue))
			taken = scx_bpf_dsq_move_to_local(queue, 0);
	}
	return taken;
}

void BPF_STRUCT_OPS(jobs_dispatch, s32 cpu, struct task_struct *prev)
{
	struct job *j = NULL;
	s32 queue;

	if (prev && (prev->scx.flags & SCX_TASK_QUEUED) && !bound_kthread(prev))
		j = job_of(prev);
	gather();
	if (j)
		turn_ends(prev, j, cpu);
	if (TIED && scx_bpf_dsq_move_to_local(OTHERS, 0))
		return;
	if (overdue(cpu))
		return;
	queue = best_queue(cpu);
	if (j && serves(cpu, waits_in(prev, j)) && may_start(j->queue) &&
	    !goes_before(queue, prev, j)) {
		goes_on(prev, j, cpu);
		return;
	}
	if (queue != NOWHERE && (scx_bpf_dsq_move_to_local(queue, 0) || take_any(cpu)))
		return;
	if (j && serves(cpu, waits_in(prev, j)) && may_start(j->queue))
		goes_on(prev, j, cpu);
}

void BPF_STRUCT_OPS(jobs_running, struct task_struct *p)
{
	struct job *j = job_of(p);

	if (!j || bound_kthread(p))
		return;
	sits(p, j, scx_bpf_task_cpu(p));
	/* The kernel also takes a thread off its CPU and puts it back, when it exits for instance.
	 */
	if (j->waits)
		berth_count(pieces);
	j->waits = false;
}

void BPF_STRUCT_OPS(jobs_stopping, struct task_struct *p, bool runnable)
{
	struct seat *seat = seat_of(scx_bpf_task_cpu(p));

	if (seat)
		seat->busy = false;
}

void BPF_STRUCT_OPS(jobs_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct job *j = job_of(p);

	if (!j || !(deq_flags & SCX_DEQ_SLEEP))
		return;
	j->slept_at = scx_bpf_now();
	slept(p, j);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(jobs_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return bpf_task_storage_get(&jobs_of_threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE)
		       ? 0
		       : -ENOMEM;
}

/* It exits, or leaves the policy. */
void BPF_STRUCT_OPS(jobs_disable, struct task_struct *p)
{
	struct job *j = job_of(p);

	/* Numbers of threads are used again. */
	job_forget(p);
	if (!j)
		return;
	slept(p, j);
	if (!j->known)
		return;
	ended(p, j);
	job_ends(p, j);
}

/* The first CPUs that are online. Not local: the verifier would walk through all values. */
static struct {
	u32 nr;
	s32 cpus[MOST_QUEUES];
} tying;

/* Which CPU serves which queue; those that have changed hands are looked at. CPUs come and go one
 * at a time. */
static __noinline void tie(void)
{
	struct seat *seat;
	u32 queue, nth;
	s32 cpu;

	tying.nr = 0;
	bpf_for(cpu, 0, berth_nr_cpus) {
		seat = seat_of(cpu);
		if (!seat || !seat->online)
			continue;
		nth = tying.nr++;
		if (nth < MOST_QUEUES)
			tying.cpus[nth] = cpu;
	}
	bpf_for(queue, 0, QUEUES) {
		nth = queue % (tying.nr ?: 1);
		homes[queue % MOST_QUEUES] = tying.cpus[nth % MOST_QUEUES];
	}
}

static __always_inline void set_online(s32 cpu, bool online)
{
	struct seat *seat = seat_of(cpu);
	u32 queue;

	if (!seat)
		return;
	seat->online = online;
	seat->busy = false;
	if (!TIED)
		return;
	tie();
	bpf_for(queue, 0, QUEUES)
		scx_bpf_kick_cpu(home_of(queue), SCX_KICK_IDLE);
}

void BPF_STRUCT_OPS(jobs_cpu_online, s32 cpu)
{
	set_online(cpu, true);
}

void BPF_STRUCT_OPS(jobs_cpu_offline, s32 cpu)
{
	set_online(cpu, false);
}

static __always_inline s32 queues_init(void)
{
	const struct cpumask *online;
	struct seat *seat;
	s32 cpu, err = 0;
	u32 queue;

	bpf_for(queue, 0, QUEUES) {
		if (!err)
			err = scx_bpf_create_dsq(queue, -1);
	}
	if (!err)
		err = scx_bpf_create_dsq(OTHERS, -1);
	online = scx_bpf_get_online_cpumask();
	bpf_for(cpu, 0, berth_nr_cpus) {
		seat = seat_of(cpu);
		if (seat)
			seat->online = bpf_cpumask_test_cpu(cpu, online);
	}
	scx_bpf_put_cpumask(online);
	if (TIED)
		tie();
	return err;
}

void BPF_STRUCT_OPS(jobs_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
#define BERTH_JOB_OPS							\
	.select_cpu	= (void *)jobs_select_cpu,			\
	.runnable	= (void *)jobs_runnable,			\
	.enqueue	= (void *)jobs_enqueue,				\
	.dispatch	= (void *)jobs_dispatch,			\
	.running	= (void *)jobs_running,				\
	.stopping	= (void *)jobs_stopping,			\
	.quiescent	= (void *)jobs_quiescent,			\
	.init_task	= (void *)jobs_init_task,			\
	.disable	= (void *)jobs_disable,				\
	.cpu_online	= (void *)jobs_cpu_online,			\
	.cpu_offline	= (void *)jobs_cpu_offline,			\
	.exit		= (void *)jobs_exit,				\
	.flags		= SCX_OPS_ENQ_LAST,				\
	.timeout_ms	= 30000
/* clang-format on */

#endif
