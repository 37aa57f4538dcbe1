/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * lottery: every VM has as many tickets as its weight, and a CPU that looks for work draws one.
 *
 * Idea (Waldspurger and Weihl, "Lottery scheduling", OSDI 1994). The VMs that have a thread waiting
 * take part in a draw; the winner's thread that has waited longest runs for a slice. A VM's chance
 * depends on its weight only, not on how many threads it has. No clock and no history: what was won
 * or lost before counts for nothing, and after n draws a share is off by some sqrt(n) slices. The
 * thread that has the CPU takes part for its VM. Who has waited for `patience_ms` runs without a
 * draw.
 *
 * Written as the example of docs/policies.md: what it takes to know VMs is in berth/vms.bpf.h, and
 * what it takes to give them turns in berth/vm_turns.bpf.h.
 * Deviations from the paper: a ticket is a VM's, not a thread's; there are no compensation tickets.
 *
 * Run time is not charged, except against caps, where it is the task clock's.
 *
 * Not good for: latency (who wakes waits for luck, and takes the CPU from nobody), VMs that give
 * their slices up early (they win as often as others and get less), many VMs (a draw looks at
 * each), affinities (a VM may win on a CPU that none of its waiting threads may use).
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";

BERTH_POLICY("task",
	     "A draw among VMs by weight for every slice: the smallest policy that knows VMs");

BERTH_PARAM(u64, slice_us, "us", 3000, 100, 100000, "Longest run while another thread waits");
BERTH_PARAM(u32, host_weight, "weight", 1000, 1, 10000,
	    "Weight of all threads that belong to no VM, together: they serve every VM");
BERTH_PARAM(u64, patience_ms, "ms", 2000, 10, 5000,
	    "Whoever has waited this long goes first, whatever the draw");

#include "berth/vm_turns.bpf.h"

static __always_inline void ran(struct group *g, u64 ns)
{
}

static __always_inline s32 turn(s32 own)
{
	u64 now = scx_bpf_now(), tickets = 0;
	struct task_struct *first;
	s32 slot, winner = NOBODY;
	struct thread *t;
	struct group *g;

	bpf_for(slot, 0, slots) {
		g = candidate(slot, own, &first);
		if (!g)
			continue;
		t = first ? thread_of(first) : NULL;
		if (t && time_after(now, t->queued_at + patience_ms * 1000000)) {
			winner = slot;
			break;
		}
		/* The k-th stays the winner with its part of the tickets up to there: in the end
		 * each VM has won with its part of all. */
		tickets += g->weight;
		if (bpf_get_prandom_u32() % tickets < g->weight)
			winner = slot;
	}
	return winner;
}

/* clang-format off */
SCX_OPS_DEFINE(lottery_ops,
	BERTH_TURN_OPS,
	.name			= "lottery");
