/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * stride: the VM that has run least, by its weight, is next (Waldspurger and Weihl, "Stride
 * scheduling", 1995). A second policy on berth/vm_turns.bpf.h, which shows that the queues, the
 * labels and the caps there are not lottery's.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";

BERTH_POLICY("task", "The VM that has run least for its weight");
BERTH_PARAM(u64, slice_us, "us", 3000, 100, 100000, "Longest run while another thread waits");
BERTH_PARAM(u32, host_weight, "weight", 1000, 1, 10000, "Weight of threads without a VM");

#define TURN_GROUP u64 pass_ns; /* run time, of a VM of weight 100 */
#include "berth/vm_turns.bpf.h"

static u64 least_ns; /* pass of the last one whose turn it was */

static __always_inline void ran(struct group *g, u64 ns)
{
	__sync_fetch_and_add(&g->pass_ns, ns * 100 / (g->weight ?: 1));
}

static __always_inline s32 turn(s32 own)
{
	struct task_struct *first;
	s32 slot, next = NOBODY;
	u64 least = 0, pass;
	struct group *g;

	bpf_for(slot, 0, slots) {
		g = candidate(slot, own, &first);
		if (!g)
			continue;
		/* Who was away has no claim from that time. */
		if (time_before(g->pass_ns, least_ns))
			g->pass_ns = least_ns;
		pass = g->pass_ns;
		if (next != NOBODY && !time_before(pass, least))
			continue;
		next = slot;
		least = pass;
	}
	if (next != NOBODY)
		least_ns = least;
	return next;
}

/* clang-format off */
SCX_OPS_DEFINE(stride_ops,
	BERTH_TURN_OPS,
	.name			= "stride");
