/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * mqms: several queues, each with a policy and a CPU of its own. What the M-RSF paper says that OSv
 * does.
 *
 * Source: Dong, Yang, Li (2024): OSv has several queues, some first come first served, some round
 * robin, and ties a task to its queue. OSv's source has nothing of the kind; what it does is the
 * policy osv, and neither is to be reported as the other.
 *
 * New jobs come to the queues in turns. Queues 0, 2 and 4 are first come, first served; 1 and 3 are
 * round robin with a slice of the mean service time. A job stays in its queue. With `balance_ms` a
 * timer moves one waiting job from the longest to the shortest queue if they differ by two or more.
 *
 * Deviations, where the paper is silent: five queues, which is which, the slice, how jobs are
 * dealt. With fewer CPUs than queues they are dealt around, and a CPU takes whoever came first of
 * all its queues' heads.
 *
 * Not good for: anything; CPUs stay idle while others have jobs waiting.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";

BERTH_POLICY("task",
	     "Queues with a CPU each, FCFS and round robin by turns: OSv as M-RSF's paper has it");

BERTH_PARAM(u32, queues, "count", 5, 1, 16, "Number of queues, each with a CPU of its own");
BERTH_PARAM(u64, slice, "%", 100, 1, 100000, "Slice of round robin, of the mean service time");
BERTH_PARAM(u64, balance_ms, "ms", 0, 0, 10000,
	    "How often a job moves from the longest to the shortest queue; 0: never (OSv: 100)");

BERTH_PRESET(textbook, "textbook", "most_ms=0", "Jobs have all the time they take");

struct berth_stats {
	u64 pieces;    /* times a job was given a CPU */
	u64 preempted; /* none */
	u64 balanced;  /* moved to a shorter queue */
};

#define JOBS_LAMBDA 10000
#define JOBS_UNIT   0 /* task */
#define QUEUES	    queues
#define FIRST_ALIKE queues
#define TIED	    1
#define PREEMPTS    0

#include "berth/stats.bpf.h"
BERTH_STATS;
#include "berth/job_queues.bpf.h"

static u64 dealt;

static __always_inline void begin(struct task_struct *p, struct job *j)
{
	j->queue = __sync_fetch_and_add(&dealt, 1) % queues;
	j->place = ++arrivals;
}

static __always_inline bool admit(struct task_struct *p, struct job *j, bool fresh)
{
	return false;
}

static __always_inline void gather(void)
{
}

static __always_inline bool may_start(u32 queue)
{
	return true;
}

static __always_inline u64 key_of(struct task_struct *p, struct job *j)
{
	return j->place;
}

static __always_inline u64 turn_of(struct task_struct *p, struct job *j)
{
	if (j->queue & 1)
		return lambda() * slice / 100 ?: 1;
	/* To the end of its own queue, not behind round robin's, if both have one CPU. */
	return most_ms ? most_ms * 1000000 : SCX_SLICE_INF;
}

static __always_inline void used_up(struct task_struct *p, struct job *j)
{
	j->place = ++arrivals;
}

static __always_inline void slept(struct task_struct *p, struct job *j)
{
}

static __always_inline void woken(struct task_struct *p, struct job *j)
{
	j->place = ++arrivals;
	j->turn_since = p->se.sum_exec_runtime;
}

static __always_inline void yielded(struct task_struct *p, struct job *j)
{
	j->place = ++arrivals;
	j->turn_since = p->se.sum_exec_runtime;
}

static __always_inline void left(struct task_struct *p, struct job *j, u32 queue)
{
}

static __always_inline bool overdue(s32 cpu)
{
	return false;
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

static int balance(void *map, int *key, struct bpf_timer *timer)
{
	s32 most = 0, least = 0, n, longest = 0, shortest = 0;
	bool moved = false;
	struct task_struct *p;
	struct job *j;
	s32 queue;

	bpf_rcu_read_lock();
	bpf_for(queue, 0, QUEUES) {
		n = scx_bpf_dsq_nr_queued(queue);
		if (!queue || n > most) {
			most = n;
			longest = queue;
		}
		if (!queue || n < least) {
			least = n;
			shortest = queue;
		}
	}
	if (most >= least + 2) {
		bpf_for_each(scx_dsq, p, longest, 0) {
			j = job_of(p);
			if (moved || !j)
				break;
			moved = true;
			j->queue = shortest;
			j->place = ++arrivals;
			j->turn_since = p->se.sum_exec_runtime;
			scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, remaining(p, j));
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, j->place);
			scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, waits_in(p, j), 0);
			scx_bpf_kick_cpu(home_of(shortest), SCX_KICK_IDLE);
			berth_count(balanced);
		}
	}
	bpf_rcu_read_unlock();
	bpf_timer_start(timer, balance_ms * 1000000, 0);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mqms_init)
{
	s32 err = queues_init();
	struct clock *clock;
	u32 zero = 0;

	if (err || !balance_ms)
		return err;
	clock = bpf_map_lookup_elem(&clocks, &zero);
	if (!clock)
		return -ENOENT;
	bpf_timer_init(&clock->timer, &clocks, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&clock->timer, balance);
	return bpf_timer_start(&clock->timer, balance_ms * 1000000, 0);
}

/* clang-format off */
SCX_OPS_DEFINE(mqms_ops,
	BERTH_JOB_OPS,
	.init		= (void *)mqms_init,
	.name		= "mqms");
