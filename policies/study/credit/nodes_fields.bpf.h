/* SPDX-License-Identifier: GPL-2.0-only */
/* What credit/nodes.bpf.h keeps of a vCPU and of a pCPU. */
#ifndef __CREDIT_NODES_FIELDS_BPF_H
#define __CREDIT_NODES_FIELDS_BPF_H

#include "berth/memory.bpf.h"

/* home: node it belongs to, + 1; 0: any. astray: may not run there. nodes: on which it may, a bit
 * each, as of fits_epoch. lent: pCPU of another node that has nobody else, + 1. The rest: what it
 * did since somebody asked, on node read_on - 1. */
#define NODE_VCPU                                                                                  \
	u32 home;                                                                                  \
	u32 astray;                                                                                \
	u32 nodes;                                                                                 \
	u32 lent;                                                                                  \
	u64 fits_epoch;                                                                            \
	u64 sent;                                                                                  \
	u32 read_on;                                                                               \
	u64 instructions;                                                                          \
	u64 loads;                                                                                 \
	u64 remote;

/* ran_at: when one of ours ran last. The rest: its counters as read last, if counted. */
#define NODE_PCPU                                                                                  \
	u64 ran_at;                                                                                \
	u32 counted;                                                                               \
	u64 counted_at;                                                                            \
	u64 instructions;                                                                          \
	u64 loads;                                                                                 \
	u64 remote;

#endif
