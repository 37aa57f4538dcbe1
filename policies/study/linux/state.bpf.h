/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What linux/queues.bpf.h keeps of a CPU, for the `struct runq` of its includer.
 */
#ifndef __LINUX_STATE_BPF_H
#define __LINUX_STATE_BPF_H

#include "berth/topology.bpf.h"

#define NOWHERE -1
#define LEVELS	2 /* LLC, machine */

/* Written before load by name: timer ticks per second (0: slices end exactly). */
const volatile u32 berth_hz = 250;

/* When a CPU looks for balance. */
struct balance {
	u64 at[LEVELS];		 /* next */
	u64 amount;		 /* weight to move, as linux_busiest() has found */
	u32 interval_ms[LEVELS]; /* for an idle CPU */
	u32 moved;		 /* threads, in the last attempt */
	bool online;
	bool looks; /* an idle CPU was woken to look */
	u8 failed;  /* attempts in vain */
};

#endif
