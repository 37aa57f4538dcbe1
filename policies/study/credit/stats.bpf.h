/* SPDX-License-Identifier: GPL-2.0-only */
/* What every policy on Credit's rules counts. */
#ifndef __BERTH_STUDY_CREDIT_STATS_BPF_H
#define __BERTH_STUDY_CREDIT_STATS_BPF_H

/* As in credit.bpf.c. */
#define CREDIT_STATS                                                                               \
	u64 boosted;                                                                               \
	u64 woken_over;                                                                            \
	u64 rate_limited;                                                                          \
	u64 moved_by_tick;                                                                         \
	u64 stolen;                                                                                \
	u64 parked;                                                                                \
	u64 same_core;                                                                             \
	u64 same_package;                                                                          \
	u64 other_package;

#endif
