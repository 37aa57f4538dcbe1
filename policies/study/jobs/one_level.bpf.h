/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What fcfs, sjf, srtf and las leave at its simplest: one queue, which all CPUs serve, and nothing
 * beside it. The includer defines key_of, turn_of, used_up, woken and yielded, and with PREEMPTS
 * rank_now and margin (berth/job_queues.bpf.h); the rank of an arrival is its key.
 */
#ifndef __JOBS_ONE_LEVEL_BPF_H
#define __JOBS_ONE_LEVEL_BPF_H

#define QUEUES	    1
#define FIRST_ALIKE 1
#define TIED	    0

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

static __always_inline void slept(struct task_struct *p, struct job *j)
{
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
	return key_of(p, j);
}

static __always_inline void ended(struct task_struct *p, struct job *j)
{
}

#endif
