/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * fcfs: first come, first served, to the end of each burst. What MirageOS, KylinX and IncludeOS do.
 *
 * Source: textbooks; as a rival of M-RSF, Dong, Yang, Li (2024). One queue for the machine. Who
 * wakes is a new customer at its end, who yields goes there too. Nobody is interrupted, and there
 * are no slices: a job has the CPU until it sleeps or ends, or for `most_ms`, which `textbook` has
 * at 0.
 *
 * With `turn_us` it is round robin from one queue for all CPUs, as the textbooks have it: who has
 * had a turn goes to the end of the queue, behind who has arrived by then, and a wake-up begins a
 * new turn. (The policy rr has a queue per CPU, as Linux.)
 *
 * Deviation: what MirageOS really is, cooperative threads on one CPU, is this policy on one CPU.
 *
 * Not good for: anything long beside anything short; without `most_ms` a thread that never sleeps
 * has its CPU for good. gfifo is the same with slices.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";

BERTH_POLICY("none", "First come, first served, to the end: what most unikernels do");

BERTH_PARAM(u64, turn_us, "us", 0, 0, 10000000,
	    "Round robin: after so long a job goes to the end of the queue; 0: it goes on");

BERTH_PRESET(textbook, "textbook", "most_ms=0", "Jobs have all the time they take");

struct berth_stats {
	u64 pieces; /* times a job was given a CPU */
	u64 preempted;
};

#define PREEMPTS  0
#define JOBS_UNIT 0 /* task */

#include "berth/stats.bpf.h"
BERTH_STATS;
#include "jobs/one_level.bpf.h"

static __always_inline u64 key_of(struct task_struct *p, struct job *j)
{
	return j->place;
}

static __always_inline u64 turn_of(struct task_struct *p, struct job *j)
{
	return turn_us ? turn_us * 1000 : SCX_SLICE_INF;
}

static __always_inline void used_up(struct task_struct *p, struct job *j)
{
	j->place = ++arrivals;
}

static __always_inline void woken(struct task_struct *p, struct job *j)
{
	j->place = ++arrivals;
	j->turn_since = p->se.sum_exec_runtime;
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

s32 BPF_STRUCT_OPS_SLEEPABLE(fcfs_init)
{
	return queues_init();
}

/* clang-format off */
SCX_OPS_DEFINE(fcfs_ops,
	BERTH_JOB_OPS,
	.init		= (void *)fcfs_init,
	.name		= "fcfs");
