/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * sjf: the shortest job first, to its end. What FlexOS does.
 *
 * Source: textbooks; as a rival of M-RSF, Dong, Yang, Li (2024). One queue for the machine, ordered
 * by the size that a job is expected to have, equal ones in order of arrival. Nobody is
 * interrupted. With `aging` a job's place is worth that part of the time by which it came earlier:
 * all who wait age alike, so that nobody is moved; 0 is the textbook's, without end FCFS.
 *
 * A size is told by the scenario, learned, or none: then this is fcfs. See berth/jobs.bpf.h, which
 * mrsf has, too, so that both know the same. Nothing deviates beyond that.
 *
 * Not good for: long jobs, which starve while short ones keep coming (the kernel ends the policy
 * after 30 s of that); anything whose size nobody knows.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";

BERTH_POLICY("task", "The job that is expected to be shortest first, to its end");

BERTH_PARAM(u64, aging, "%", 0, 0, 10000,
	    "Of the time by which a job came earlier, as size; 0: none");

BERTH_PRESET(textbook, "textbook", "most_ms=0", "Jobs have all the time they take");

struct berth_stats {
	u64 pieces; /* times a job was given a CPU */
	u64 preempted;
};

#define PREEMPTS       0
#define JOBS_ESTIMATES 0 /* label */
#define JOBS_UNIT      0 /* task */

#include "berth/stats.bpf.h"
BERTH_STATS;
#include "jobs/one_level.bpf.h"

static __always_inline u64 key_of(struct task_struct *p, struct job *j)
{
	if (estimate == ESTIMATE_NONE)
		return j->place;
	return j->estimate + (aging ? j->came_at * aging / 100 : 0);
}

static __always_inline u64 turn_of(struct task_struct *p, struct job *j)
{
	return SCX_SLICE_INF;
}

static __always_inline void used_up(struct task_struct *p, struct job *j)
{
}

static __always_inline void woken(struct task_struct *p, struct job *j)
{
	j->place = ++arrivals;
}

static __always_inline void yielded(struct task_struct *p, struct job *j)
{
	j->place = ++arrivals;
}

static __always_inline u64 rank_now(struct seat *seat, u64 now)
{
	return 0;
}

static __always_inline u64 margin(void)
{
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(sjf_init)
{
	return queues_init();
}

/* clang-format off */
SCX_OPS_DEFINE(sjf_ops,
	BERTH_JOB_OPS,
	.init		= (void *)sjf_init,
	.name		= "sjf");
