/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * mlfq: three levels in order of arrival, with slices of the mean service time, twice that, and to
 * the end.
 *
 * Source: Corbato et al. (1962), textbooks; the rules and slices are those of the M-RSF paper's
 * rival (Dong, Yang, Li, 2024), whose text says that a running job of level 2 or 3 is interrupted
 * by an arrival. It then goes to the head of its level with what is left of its slice.
 * `preempt=0` is the same without. Time at a level counts across sleeps, which come back to the end
 * of their level. No boost, no aging: the paper has none.
 *
 * With `cpus=per_level` each level has a CPU of its own, as the paper's M-RSF has (a reading of its
 * comparison); nobody is interrupted then, since an arrival is never for that CPU.
 *
 * Not good for: jobs longer than three slices while others come, which starve; I/O of threads that
 * compute, which sink for good.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";

BERTH_POLICY("task", "Three levels in order of arrival, with growing slices; arrivals preempt");

enum { CPUS_SHARED, CPUS_PER_LEVEL };

BERTH_CHOICE(cpus, "shared|per_level", 0, "Which CPUs serve a level: all, or one of its own");
BERTH_PARAM(u64, slice1, "%", 100, 1, 100000, "Slice at level 1, of the mean service time");
BERTH_PARAM(u64, slice2, "%", 200, 1, 100000, "Slice at level 2, of the mean service time");
BERTH_PARAM(bool, preempt, "bool", 1, 0, 1, "Whether an arrival interrupts a job of a lower level");

BERTH_PRESET(textbook, "textbook", "most_ms=0", "Jobs have all the time they take");

struct berth_stats {
	u64 pieces;    /* times a job was given a CPU */
	u64 preempted; /* CPUs that an arrival took */
};

#define JOBS_LAMBDA 10000
#define JOBS_UNIT   0 /* task */
/* Not a constant: the compiler would leave out the bound that the verifier has to see (`tie`). */
const volatile u32 levels = 3;

#define QUEUES	    levels
#define FIRST_ALIKE 1
#define TIED	    (cpus == CPUS_PER_LEVEL)
#define PREEMPTS    preempt

#include "berth/stats.bpf.h"
BERTH_STATS;
#include "berth/job_queues.bpf.h"

static __always_inline void begin(struct task_struct *p, struct job *j)
{
	j->queue = 0;
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

/* Who was interrupted keeps its place, which is before all others of its level. */
static __always_inline u64 key_of(struct task_struct *p, struct job *j)
{
	return j->place;
}

static __always_inline u64 turn_of(struct task_struct *p, struct job *j)
{
	if (j->level >= 3)
		return SCX_SLICE_INF;
	return lambda() * (j->level == 1 ? slice1 : slice2) / 100 ?: 1;
}

static __always_inline void used_up(struct task_struct *p, struct job *j)
{
	if (j->level < 3)
		j->queue = j->level++;
	j->place = ++arrivals;
}

static __always_inline void slept(struct task_struct *p, struct job *j)
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

static __always_inline void left(struct task_struct *p, struct job *j, u32 queue)
{
}

static __always_inline bool overdue(s32 cpu)
{
	return false;
}

static __always_inline u64 rank_of(struct task_struct *p, struct job *j)
{
	return j->level;
}

static __always_inline u64 rank_now(struct seat *seat, u64 now)
{
	return seat->rank;
}

static __always_inline u64 margin(void)
{
	return 0;
}

static __always_inline void ended(struct task_struct *p, struct job *j)
{
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mlfq_init)
{
	return queues_init();
}

/* clang-format off */
SCX_OPS_DEFINE(mlfq_ops,
	BERTH_JOB_OPS,
	.init		= (void *)mlfq_init,
	.name		= "mlfq");
