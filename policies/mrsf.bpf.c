/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * mrsf: three levels for jobs that are many, short and alike: two of them shortest remaining time
 * first with one slice each, the third to the end.
 *
 * Source: Dong, Yang, Li, "M-RSF" (2024, DOI 10.11959/j.issn.1000-436x.2024061). A new job comes to
 * level 1, which is `subqueues` queues; jobs that arrive together are dealt to them in order of
 * their sizes. Levels 1 and 2 are ordered by what a job is expected to need still, and a job has
 * one slice of the mean service time (lambda) there; who has not finished moves down. Level 3 is
 * first come, first served, to the end. Nobody is ever interrupted.
 *
 * With `cpus=per_queue` each queue has a CPU of its own, as the paper has it: the sub-queues, then
 * level 2, then level 3. With fewer CPUs than queues they are dealt around; a CPU then takes the
 * highest level first. Further CPUs stay idle. With `cpus=shared`, the default, all CPUs serve all
 * queues, the highest level first; of the sub-queues that whose first needs least.
 *
 * The defaults are for servers, of which nobody knows anything: sizes are learned, lambda too, a
 * job is what a thread does for a request, a job of level 3 goes to its end after 4 lambda, and who
 * has waited for 50 lambda goes first. Presets `literal` (the paper's: per_queue, sizes told) and
 * `fair` (the same on CPUs that are shared).
 *
 * Deviations from the paper, all of them options or where it is silent: its sort before level 2 is
 * an ordered insertion (`barrier`: level 2 starts when level 1 is empty, level 3 when both are);
 * only who has had its slice moves down (`flush`: everybody behind it, too, as its Figs. 9 and 11
 * say). Jobs that arrive within one instant are one batch.
 *
 * Run time is the task clock. Slices end exactly where there are no ticks, else at the first one
 * after them: choose lambda of several ticks.
 *
 * Not good for: vCPUs of a host, or anything that has a weight (there are none); threads that must
 * preempt; per_queue wastes CPUs (in the paper's own workload, shared CPUs wait a quarter less); a
 * long job of level 3 keeps new short ones from its CPU for up to 4 lambda, in the paper's form
 * until it ends.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"

char _license[] SEC("license") = "GPL";

BERTH_POLICY("task",
	     "M-RSF: shortest remaining jobs first for two slices, the rest in order of arrival");

enum { CPUS_SHARED, CPUS_PER_QUEUE };

BERTH_CHOICE(cpus, "shared|per_queue", 0,
	     "Which CPUs serve a queue: all, or one of its own (the paper's)");
BERTH_PARAM(u32, subqueues, "count", 3, 1, 8, "Queues of level 1 (the paper: 3)");
BERTH_PARAM(u64, slice1, "%", 100, 1, 100000,
	    "Slice at level 1, of the mean service time (the paper: 100)");
BERTH_PARAM(u64, slice2, "%", 100, 1, 100000,
	    "Slice at level 2, of the mean service time (the paper: 100)");
BERTH_PARAM(u64, q3_slice, "%", 400, 0, 100000,
	    "After so much, of the mean service time, a job of level 3 goes to its end; 0: never");
BERTH_PARAM(u64, aging, "%", 5000, 0, 1000000,
	    "Who has waited so long, of the mean service time, goes first; 0: never");
BERTH_PARAM(bool, barrier, "bool", 0, 0, 1, "A level starts when those above it are empty");
BERTH_PARAM(bool, flush, "bool", 0, 0, 1,
	    "Who waits in the queue of a job that moves down moves down with it");

BERTH_PRESET(literal, "literal",
	     "cpus=per_queue,unit=task,estimate=label,lambda_us=10000,q3_slice=0,aging=0,most_ms=0",
	     "The paper's: a CPU for each queue, sizes told, a mean of 10 ms, nothing of ours");
BERTH_PRESET(fair, "fair",
	     "cpus=shared,unit=task,estimate=label,lambda_us=10000,q3_slice=0,aging=0,most_ms=0",
	     "The same with all queues served by all CPUs");

struct berth_stats {
	u64 pieces;    /* times a job was given a CPU */
	u64 preempted; /* none */
	u64 ended1;    /* jobs that ended at level 1 */
	u64 ended2;
	u64 ended3;
	u64 overdue;	 /* brought forward by age */
	u64 shared_home; /* times a CPU of several queues had to choose */
};
BERTH_STATS;

#define JOBS_ESTIMATES 1	   /* ema */
#define JOBS_LAMBDA    0	   /* learned */
#define JOBS_UNIT      1	   /* request */
#define JOB_FIELDS     u8 counted; /* the level at which it is counted for `barrier`; 0: none */

#define MOST_SUBS      8
#define LEVEL2	       subqueues
#define LEVEL3	       (subqueues + 1)
#define QUEUES	       (subqueues + 2)
#define FIRST_ALIKE    subqueues
#define TIED	       (cpus == CPUS_PER_QUEUE)
#define PREEMPTS       0

#define TOGETHER       32 /* jobs that have arrived and are not dealt yet */
#define AGED	       64 /* and on, by queue: whose turn it is by age */
#define UNDEALT	       0xff

#include "berth/job_queues.bpf.h"

#define SIZE_BITS 38 /* of sizes in the order of jobs of one instant: 275 s */
#define MOST_DEAL 65536

static u64 instant, instants; /* when jobs came last, and how many such moments there were */
static u64 coming, dealt;
static u64 at_level[4]; /* runnable jobs, for barrier */

/* A runnable job is at this level now; 0: it sleeps, or has left. */
static __always_inline void count_at(struct job *j, u32 level)
{
	u32 was = j->counted;
	s32 cpu;

	if (!barrier || was == level)
		return;
	j->counted = level;
	if (level)
		__sync_fetch_and_add(&at_level[level & 3], 1);
	if (!was || __sync_fetch_and_sub(&at_level[was & 3], 1) != 1)
		return;
	bpf_for(cpu, 0, berth_nr_cpus)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

static __always_inline void begin(struct task_struct *p, struct job *j)
{
	j->queue = UNDEALT;
	j->place = ++arrivals;
	count_at(j, 1);
}

/* What comes to the first queue in which it waits, by time still needed; may be negative. */
static __always_inline u64 key_of(struct task_struct *p, struct job *j)
{
	if (j->level >= 3 || estimate == ESTIMATE_NONE)
		return j->place;
	return j->estimate - attained(p, j);
}

static __always_inline u64 turn_of(struct task_struct *p, struct job *j)
{
	if (j->level >= 3)
		return q3_slice ? lambda() * q3_slice / 100 : SCX_SLICE_INF;
	return lambda() * (j->level == 1 ? slice1 : slice2) / 100 ?: 1;
}

static __always_inline void deal_one(struct job *j)
{
	j->queue = __sync_fetch_and_add(&dealt, 1) % subqueues;
}

static __always_inline void down(struct job *j)
{
	u32 level = j->level;

	j->place = ++arrivals;
	if (level >= 3)
		return;
	j->level = level + 1;
	j->queue = level == 1 ? LEVEL2 : LEVEL3;
	count_at(j, level + 1);
}

static __always_inline void used_up(struct task_struct *p, struct job *j)
{
	down(j);
}

static __always_inline void slept(struct task_struct *p, struct job *j)
{
	count_at(j, 0);
}

/* Where the order of arrival counts, it comes anew; elsewhere it stands behind its equals. */
static __always_inline void yielded(struct task_struct *p, struct job *j)
{
	if (j->level >= 3 || estimate == ESTIMATE_NONE)
		j->place = ++arrivals;
}

/* Blocked inside a job: the same level, what is left of its slice. */
static __always_inline void woken(struct task_struct *p, struct job *j)
{
	yielded(p, j);
	count_at(j, j->level);
}

/* Everybody behind a job that has moved down moves with it. */
static __always_inline void left(struct task_struct *p, struct job *j, u32 queue)
{
	struct task_struct *q;
	struct job *its;

	if (!flush || queue >= LEVEL3)
		return;
	bpf_for_each(scx_dsq, q, queue, 0) {
		its = job_of(q);
		if (!its)
			continue;
		down(its);
		its->turn_since = q->se.sum_exec_runtime;
		scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, remaining(q, its));
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, key_of(q, its));
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, q, waits_in(q, its), 0);
		if (TIED)
			scx_bpf_kick_cpu(home_of(its->queue), SCX_KICK_IDLE);
	}
}

static __always_inline bool may_start(u32 queue)
{
	if (!barrier || queue < LEVEL2)
		return true;
	return !at_level[1] && (queue == LEVEL2 || !at_level[2]);
}

/* Jobs that arrive together are dealt in order of their sizes, by whichever CPU chooses next. */
static __always_inline bool admit(struct task_struct *p, struct job *j, bool fresh)
{
	u64 now = scx_bpf_now(), most = (1ULL << SIZE_BITS) - 1;
	u64 size = estimate == ESTIMATE_NONE ? 0 : j->estimate;

	if (!fresh) {
		if (j->queue == UNDEALT)
			deal_one(j);
		return false;
	}
	if (now != instant || !instants) {
		instant = now;
		instants++;
	}
	j->queued_at = now;
	j->waits = true;
	scx_bpf_dsq_insert_vtime(p, TOGETHER, remaining(p, j),
				 instants << SIZE_BITS | (size < most ? size : most), 0);
	/* Dealing goes around, so that the set of queues they come to is known already. */
	j->queue = coming++ % subqueues;
	tell(p, j, true);
	j->queue = UNDEALT;
	return true;
}

/* Not local: the verifier would walk through its values. CPUs that gather at once share it, so one
 * may deal fewer or more than MOST_DEAL; what is left is dealt when the next CPU chooses. */
static u32 gathered;

static __always_inline void gather(void)
{
	struct task_struct *p;
	struct job *j;

	if (!scx_bpf_dsq_nr_queued(TOGETHER))
		return;
	gathered = 0;
	bpf_for_each(scx_dsq, p, TOGETHER, 0) {
		j = job_of(p);
		if (!j || ++gathered > MOST_DEAL)
			break;
		deal_one(j);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, key_of(p, j));
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, waits_in(p, j), 0);
		if (TIED)
			scx_bpf_kick_cpu(home_of(j->queue), SCX_KICK_IDLE);
	}
}

/* Whoever has waited too long, of a queue that this CPU serves. */
static __noinline bool take_aged(s32 cpu)
{
	bool taken = false;
	u32 queue;

	bpf_for(queue, 0, QUEUES) {
		if (!taken && serves(cpu, queue))
			taken = scx_bpf_dsq_move_to_local(AGED + queue, 0);
	}
	return taken;
}

static __always_inline bool overdue(s32 cpu)
{
	if (TIED && QUEUES > berth_nr_cpus)
		berth_count(shared_home);
	return aging && take_aged(cpu);
}

static __always_inline u64 rank_of(struct task_struct *p, struct job *j)
{
	return 0;
}

static __always_inline u64 rank_now(struct seat *seat, u64 now)
{
	return 0;
}

static __always_inline u64 margin(void)
{
	return 0;
}

static __always_inline void ended(struct task_struct *p, struct job *j)
{
	if (j->level == 1)
		berth_count(ended1);
	else if (j->level == 2)
		berth_count(ended2);
	else
		berth_count(ended3);
}

struct clock {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct clock);
} clocks SEC(".maps");

/* Seldom: in a guest that is idle each look wakes its vCPU. */
static __always_inline u64 look_again_in(void)
{
	u64 ns = lambda() * aging / 100 / 2;

	return ns > 10000000 ? ns : 10000000;
}

/* Bring forward whoever has waited too long. */
static int look_at_ages(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = scx_bpf_now(), late = lambda() * aging / 100;
	struct task_struct *p;
	struct job *j;
	u32 queue;

	bpf_rcu_read_lock();
	bpf_for(queue, 0, QUEUES) {
		bpf_for_each(scx_dsq, p, queue, 0) {
			j = job_of(p);
			if (!j || !time_after(now, j->queued_at + late))
				continue;
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, j->queued_at);
			scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, AGED + queue, 0);
			berth_count(overdue);
		}
	}
	bpf_rcu_read_unlock();
	bpf_timer_start(timer, look_again_in(), 0);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mrsf_init)
{
	struct clock *clock;
	s32 err = queues_init();
	u32 queue, zero = 0;

	if (!err)
		err = scx_bpf_create_dsq(TOGETHER, -1);
	bpf_for(queue, 0, QUEUES) {
		if (!err)
			err = scx_bpf_create_dsq(AGED + queue, -1);
	}
	if (err || !aging)
		return err;
	clock = bpf_map_lookup_elem(&clocks, &zero);
	if (!clock)
		return -ENOENT;
	bpf_timer_init(&clock->timer, &clocks, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&clock->timer, look_at_ages);
	return bpf_timer_start(&clock->timer, look_again_in(), 0);
}

/* clang-format off */
SCX_OPS_DEFINE(mrsf_ops,
	BERTH_JOB_OPS,
	.init		= (void *)mrsf_init,
	.name		= "mrsf");
