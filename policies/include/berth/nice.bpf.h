/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What nice values are worth to Linux's fair schedulers: 1024 for 0, some 1.25 times as much or as
 * little per step (sched_prio_to_weight, since 2.6.23). Weights are in units of 2^-10 of that.
 */
#ifndef __BERTH_NICE_BPF_H
#define __BERTH_NICE_BPF_H

/* Weights of nice -20 to 19, and of SCHED_IDLE. */
static const u32 nice_weights[40] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
	9548,  7620,  6100,  4904,  3906,  3121,  2501,	 1991,	1586,  1277,
	1024,  820,   655,   526,   423,   335,	  272,	 215,	172,   137,
	110,   87,    70,    56,    45,	   36,	  29,	 23,	18,    15,
};
#define IDLE_WEIGHT 3
#define POLICY_IDLE 5 /* SCHED_IDLE */

/* Of a thread by its nice value: 1 << 20 for 0. */
static __always_inline u64 berth_nice_weight(struct task_struct *p)
{
	u32 nice = p->static_prio - 100;

	if (p->policy == POLICY_IDLE)
		return IDLE_WEIGHT << 10;
	return nice < 40 ? (u64)nice_weights[nice] << 10 : 1ULL << 20;
}

#endif
