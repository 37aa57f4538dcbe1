/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * las: least attained service first, in turns. The CFS-like row of the comparisons with M-RSF.
 *
 * Source: Kleinrock's foreground-background; Rai et al. (2003). One queue for the machine, ordered
 * by the CPU time that a job has had. A turn is `turn_us`; then it goes on if it still has had
 * least. An arrival takes the CPU from whoever has had most, if that is more by `turn_us`.
 *
 * It is not CFS: a new job starts at 0 and not at the queue's virtual time. For a batch, where all
 * arrive at once, both are the same; else this one favours whoever comes. cfs and eevdf are the
 * real ones.
 *
 * Deviation: as srtf, what the running thread has had is told by the wall clock since it began.
 *
 * Not good for: jobs of equal length, which all end late; long jobs beside many short ones.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";

BERTH_POLICY("task", "Least attained service first, in turns: the CFS-like rival of M-RSF");

BERTH_PARAM(u64, turn_us, "us", 3000, 1, 10000000,
	    "Longest run before somebody who has had less; by how much more lets an arrival in");

struct berth_stats {
	u64 pieces;    /* times a job was given a CPU */
	u64 preempted; /* CPUs that an arrival took */
};

#define PREEMPTS  1
#define JOBS_UNIT 0 /* task */

#include "berth/stats.bpf.h"
BERTH_STATS;
#include "jobs/one_level.bpf.h"

static __always_inline u64 key_of(struct task_struct *p, struct job *j)
{
	return attained(p, j);
}

static __always_inline u64 turn_of(struct task_struct *p, struct job *j)
{
	return turn_us * 1000;
}

static __always_inline void used_up(struct task_struct *p, struct job *j)
{
}

static __always_inline void woken(struct task_struct *p, struct job *j)
{
}

static __always_inline void yielded(struct task_struct *p, struct job *j)
{
}

/* What the thread on a CPU has had. */
static __always_inline u64 rank_now(struct seat *seat, u64 now)
{
	return seat->rank + (now - seat->at);
}

static __always_inline u64 margin(void)
{
	return turn_us * 1000;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(las_init)
{
	return queues_init();
}

/* clang-format off */
SCX_OPS_DEFINE(las_ops,
	BERTH_JOB_OPS,
	.init		= (void *)las_init,
	.name		= "las");
