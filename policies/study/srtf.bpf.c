/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * srtf: the shortest remaining time first; an arrival takes the CPU from whoever needs longest
 * still. The least mean time in the system there can be, on one CPU with sizes known.
 *
 * Source: Schrage (1968), textbooks. One queue for the machine, ordered by what a job is expected
 * to need still. An arrival takes an idle CPU, else that of the thread with most to do, if it needs
 * less than that by more than `min_gain_us`.
 *
 * A job that outlives its size (`overrun`): double, its size is now twice what it has had; floor,
 * it needs nothing any more, so that nobody takes its CPU.
 *
 * Deviation: what runs is known to need by the wall clock since it began, so that interrupts and
 * stolen time count as work until it is put back.
 *
 * Not good for: long jobs, as sjf; sizes that nobody knows.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";

BERTH_POLICY("task", "Shortest remaining time first; arrivals preempt");

enum { OVERRUN_DOUBLE, OVERRUN_FLOOR };

BERTH_CHOICE(overrun, "double|floor", 0, "What a job needs that has outlived its size");
BERTH_PARAM(u64, min_gain_us, "us", 0, 0, 1000000,
	    "An arrival must need so much less to take a CPU (about two switches)");

BERTH_PRESET(textbook, "textbook", "most_ms=0", "Jobs have all the time they take");

struct berth_stats {
	u64 pieces;    /* times a job was given a CPU */
	u64 preempted; /* CPUs that an arrival took */
};

#define PREEMPTS       1
#define JOBS_ESTIMATES 0 /* label */
#define JOBS_UNIT      0 /* task */

#include "berth/stats.bpf.h"
BERTH_STATS;
#include "jobs/one_level.bpf.h"

static __always_inline u64 key_of(struct task_struct *p, struct job *j)
{
	u64 had = attained(p, j);

	if (estimate == ESTIMATE_NONE)
		return j->place;
	return j->estimate > had ? j->estimate - had : 0;
}

/* Until it has outlived its size. */
static __always_inline u64 turn_of(struct task_struct *p, struct job *j)
{
	u64 before = j->turn_since - j->since;

	if (estimate == ESTIMATE_NONE)
		return SCX_SLICE_INF;
	if (most_ms && j->estimate > before + most_ms * 1000000)
		return SCX_SLICE_INF;
	if (j->estimate <= before)
		return overrun == OVERRUN_FLOOR && j->estimate ? SCX_SLICE_INF : 1000;
	return j->estimate - before;
}

static __always_inline void used_up(struct task_struct *p, struct job *j)
{
	if (overrun == OVERRUN_DOUBLE)
		j->estimate = 2 * attained(p, j);
}

static __always_inline void woken(struct task_struct *p, struct job *j)
{
	j->place = ++arrivals;
}

static __always_inline void yielded(struct task_struct *p, struct job *j)
{
	j->place = ++arrivals;
}

/* What the thread on a CPU needs still. */
static __always_inline u64 rank_now(struct seat *seat, u64 now)
{
	u64 ran = now - seat->at;

	if (estimate == ESTIMATE_NONE)
		return 0;
	return seat->rank > ran ? seat->rank - ran : 0;
}

static __always_inline u64 margin(void)
{
	return min_gain_us * 1000;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(srtf_init)
{
	return queues_init();
}

/* clang-format off */
SCX_OPS_DEFINE(srtf_ops,
	BERTH_JOB_OPS,
	.init		= (void *)srtf_init,
	.name		= "srtf");
