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
 * Written as the example of docs/policies.md: what it takes to know VMs is in berth/vms.bpf.h.
 * Deviations from the paper: a ticket is a VM's, not a thread's; there are no compensation tickets.
 *
 * Run time is not charged, except against caps, where it is the task clock's.
 *
 * Not good for: latency (who wakes waits for luck, and takes the CPU from nobody), VMs that give
 * their slices up early (they win as often as others and get less), many VMs (a draw looks at
 * each), affinities (a VM may win on a CPU that none of its waiting threads may use).
 */
#include <scx/common.bpf.h>
#include "berth/bandwidth.bpf.h"
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/topology.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("task",
	     "A draw among VMs by weight for every slice: the smallest policy that knows VMs");

BERTH_PARAM(u64, slice_us, "us", 3000, 100, 100000, "Longest run while another thread waits");
BERTH_PARAM(u32, host_weight, "weight", 1000, 1, 10000,
	    "Weight of all threads that belong to no VM, together: they serve every VM");
BERTH_PARAM(u64, patience_ms, "ms", 2000, 10, 5000,
	    "Whoever has waited this long goes first, whatever the draw");

#define NOBODY -1

struct group {
	struct bpf_spin_lock lock; /* of `pool` */
	u32 load;
	struct berth_pool pool;
	u32 weight; /* tickets */
	u32 cap_mcpu;
};

struct thread {
	u64 charged_ns; /* p->se.sum_exec_runtime up to which run time counts against the cap */
	u64 queued_at;
	u32 slot;
	u32 counted;
	u32 generation;
};

enum { GUARD_PARKED, GUARDS };

#define reweighted(g)
#define joined(t, g)

#include "berth/parking.bpf.h"
#include "berth/vms.bpf.h"

static u32 slots = 1; /* above those of all VMs so far */

static __always_inline void labelled(struct thread *t, struct berth_identity *id)
{
	if (slots <= t->slot)
		slots = t->slot + 1;
}

static __always_inline void no_group(u32 slot)
{
	scx_bpf_error("VM slot %u is beyond the size of groups_by_vm", slot);
}

/* What p has run since the last call counts against its VM's cap. 0: it may go on. */
static __always_inline u64 charge(struct task_struct *p, struct thread *t, struct group *g)
{
	u64 ns = p->se.sum_exec_runtime - t->charged_ns;

	t->charged_ns += ns;
	return capped_until(g, ns);
}

s32 BPF_STRUCT_OPS(lottery_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct thread *t = thread_of(p);
	struct group *g = group_of(t);
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle && g && !capped_until(g, 0))
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_us * 1000, 0);
	return cpu;
}

void BPF_STRUCT_OPS(lottery_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct thread *t = thread_of(p);
	struct group *g = group_of(t);
	u64 until;
	s32 cpu;

	if (!t || !g || ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1)) {
		if (enq_flags & SCX_ENQ_WAKEUP)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_us * 1000, enq_flags);
		return;
	}
	t->queued_at = scx_bpf_now();
	scx_bpf_dsq_insert(p, t->slot, slice_us * 1000, enq_flags);
	until = capped_until(g, 0);
	if (until) {
		look_at(until);
		return;
	}
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* The VM whose turn it is, by slot: of those with a thread waiting, and `own`. */
static __always_inline s32 draw(s32 own)
{
	u64 now = scx_bpf_now(), tickets = 0, until;
	struct task_struct *first;
	s32 slot, winner = NOBODY;
	struct thread *t;
	struct group *g;

	bpf_for(slot, 0, slots) {
		first = __COMPAT_scx_bpf_dsq_peek(slot);
		if (!first && slot != own)
			continue;
		g = group_at(slot);
		if (!g)
			continue;
		until = capped_until(g, 0);
		if (until) {
			look_at(until);
			continue;
		}
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

/* The winner has nobody who may run here: somebody else's thread. */
static __always_inline bool take_any(void)
{
	bool taken = false;
	struct group *g;
	s32 slot;

	bpf_for(slot, 0, slots) {
		g = group_at(slot);
		taken = g && !capped_until(g, 0) && scx_bpf_dsq_move_to_local(slot, 0);
		if (taken)
			break;
	}
	return taken;
}

void BPF_STRUCT_OPS(lottery_dispatch, s32 cpu, struct task_struct *prev)
{
	struct thread *t = NULL;
	struct group *g;
	s32 own = NOBODY, winner;

	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		t = thread_of(prev);
	g = group_of(t);
	if (t && g && !charge(prev, t, g))
		own = t->slot;
	winner = draw(own);
	if (winner == NOBODY)
		return;
	if (scx_bpf_dsq_move_to_local(winner, 0) || (winner != own && take_any()) || own == NOBODY)
		return;
	scx_bpf_task_set_slice(prev, slice_us * 1000);
}

void BPF_STRUCT_OPS(lottery_stopping, struct task_struct *p, bool runnable)
{
	struct thread *t = thread_of(p);
	struct group *g = group_of(t);

	if (!t || !g)
		return;
	charge(p, t, g);
	relabel(p, t);
}

BERTH_VM_CALLBACKS(lottery)

/* A period of some cap has ended: whoever may run again waits in its VM's queue. */
static int period_over(void *map, int *key, struct bpf_timer *timer)
{
	s32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	unparked(timer, scx_bpf_now(), 0);
	return 0;
}

/* Present so that the kernel does not end the policy when CPUs come and go. */
void BPF_STRUCT_OPS(lottery_cpu_online, s32 cpu)
{
}

void BPF_STRUCT_OPS(lottery_cpu_offline, s32 cpu)
{
}

s32 BPF_STRUCT_OPS_SLEEPABLE(lottery_init)
{
	u32 parked = GUARD_PARKED;
	struct guard *guard = bpf_map_lookup_elem(&guards, &parked);
	s32 slot, err = 0;

	if (!guard)
		return -ENOENT;
	bpf_timer_init(&guard->timer, &guards, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&guard->timer, period_over);
	bpf_for(slot, 0, MAX_GROUPS) {
		if (err || !group_at(slot))
			break;
		err = scx_bpf_create_dsq(slot, -1);
	}
	return err;
}

void BPF_STRUCT_OPS(lottery_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(lottery_ops,
	.select_cpu		= (void *)lottery_select_cpu,
	.enqueue		= (void *)lottery_enqueue,
	.dispatch		= (void *)lottery_dispatch,
	.stopping		= (void *)lottery_stopping,
	BERTH_VM_OPS(lottery),
	.cpu_online		= (void *)lottery_cpu_online,
	.cpu_offline		= (void *)lottery_cpu_offline,
	.init			= (void *)lottery_init,
	.exit			= (void *)lottery_exit,
	.flags			= SCX_OPS_ENQ_LAST,
	.timeout_ms		= 20000,
	.name			= "lottery");
