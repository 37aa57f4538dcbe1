/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A policy whose CPUs ask one question: which VM's turn is it? Each VM has one queue, the host's
 * own threads together have another; in a queue, first come, first served. The policy says whose
 * turn it is, and that VM's first thread runs for a slice; the thread that has the CPU takes part
 * for its VM. An idle CPU is given to whoever wakes. Caps hold; labels, weights, CPUs may change.
 *
 * The includer defines before this header the parameters `slice_us` and `host_weight`, if it keeps
 * more of a VM or of a thread than is here, TURN_GROUP or TURN_THREAD (members of a structure; new
 * ones are all zeroes), and if it has use for them the hooks reweighted(g) and joined(t, g) of
 * berth/vms.bpf.h. After it come the hooks
 *
 *	turn(own)	the slot whose turn it is, or NOBODY, from bpf_for(slot, 0, slots) with
 *			candidate(slot, own, &first): NULL, or a group that takes part and its
 *			first waiting thread (NULL: only the thread that has the CPU)
 *	ran(g, ns)	threads of g have run for ns more
 *
 * and SCX_OPS_DEFINE with BERTH_TURN_OPS. `policies/lottery.bpf.c` is an example.
 */
#ifndef __BERTH_VM_TURNS_BPF_H
#define __BERTH_VM_TURNS_BPF_H

#include "berth/bandwidth.bpf.h"
#include "berth/identity.bpf.h"
#include "berth/topology.bpf.h"

#ifndef TURN_GROUP
#define TURN_GROUP
#endif
#ifndef TURN_THREAD
#define TURN_THREAD
#endif

#define NOBODY -1

struct group {
	struct bpf_spin_lock lock; /* of `pool` */
	u32 load;
	struct berth_pool pool;
	u32 weight;
	u32 cap_mcpu;
	TURN_GROUP
};

struct thread {
	u64 charged_ns; /* p->se.sum_exec_runtime up to which run time is accounted for */
	u64 queued_at;
	u32 slot;
	u32 counted;
	u32 generation;
	TURN_THREAD
};

enum { GUARD_PARKED, GUARDS };

#ifndef reweighted
#define reweighted(g)
#endif
#ifndef joined
#define joined(t, g)
#endif

#include "berth/parking.bpf.h"
#include "berth/vms.bpf.h"

UEI_DEFINE(uei);

static u32 slots = 1; /* above those of all VMs so far */

static __always_inline s32 turn(s32 own);
static __always_inline void ran(struct group *g, u64 ns);

static __always_inline void labelled(struct thread *t, struct berth_identity *id)
{
	if (slots <= t->slot)
		slots = t->slot + 1;
}

static __always_inline void no_group(u32 slot)
{
	scx_bpf_error("VM slot %u is beyond the size of groups_by_vm", slot);
}

/* Who takes part in the next turn: a group that is not at its cap and has a thread waiting,
 * `first`, or is `own`, whose thread has the CPU. */
static __always_inline struct group *candidate(s32 slot, s32 own, struct task_struct **first)
{
	struct group *g;
	u64 until;

	*first = __COMPAT_scx_bpf_dsq_peek(slot);
	if (!*first && slot != own)
		return NULL;
	g = group_at(slot);
	until = g ? capped_until(g, 0) : 0;
	if (!until)
		return g;
	look_at(until);
	return NULL;
}

/* What p has run since the last call is the group's, also against its cap. 0: it may go on. */
static __always_inline u64 charge(struct task_struct *p, struct thread *t, struct group *g)
{
	u64 ns = p->se.sum_exec_runtime - t->charged_ns;

	t->charged_ns += ns;
	ran(g, ns);
	return capped_until(g, ns);
}

s32 BPF_STRUCT_OPS(turn_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct thread *t = thread_of(p);
	struct group *g = group_of(t);
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle && g && !capped_until(g, 0))
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_us * 1000, 0);
	return cpu;
}

void BPF_STRUCT_OPS(turn_enqueue, struct task_struct *p, u64 enq_flags)
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

/* Whose turn it is has nobody who may run here: somebody else's thread. */
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

void BPF_STRUCT_OPS(turn_dispatch, s32 cpu, struct task_struct *prev)
{
	struct thread *t = NULL;
	struct group *g;
	s32 own = NOBODY, next;

	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		t = thread_of(prev);
	g = group_of(t);
	if (t && g && !charge(prev, t, g))
		own = t->slot;
	next = turn(own);
	if (next == NOBODY)
		return;
	if (scx_bpf_dsq_move_to_local(next, 0) || (next != own && take_any()) || own == NOBODY)
		return;
	scx_bpf_task_set_slice(prev, slice_us * 1000);
}

void BPF_STRUCT_OPS(turn_stopping, struct task_struct *p, bool runnable)
{
	struct thread *t = thread_of(p);
	struct group *g = group_of(t);

	if (!t || !g)
		return;
	charge(p, t, g);
	relabel(p, t);
}

BERTH_VM_CALLBACKS(turn)

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
void BPF_STRUCT_OPS(turn_cpu_online, s32 cpu)
{
}

void BPF_STRUCT_OPS(turn_cpu_offline, s32 cpu)
{
}

s32 BPF_STRUCT_OPS_SLEEPABLE(turn_init)
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

void BPF_STRUCT_OPS(turn_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
#define BERTH_TURN_OPS                                                                             \
	.select_cpu		= (void *)turn_select_cpu,                                         \
	.enqueue		= (void *)turn_enqueue,                                            \
	.dispatch		= (void *)turn_dispatch,                                           \
	.stopping		= (void *)turn_stopping,                                           \
	BERTH_VM_OPS(turn),                                                                        \
	.cpu_online		= (void *)turn_cpu_online,                                         \
	.cpu_offline		= (void *)turn_cpu_offline,                                        \
	.init			= (void *)turn_init,                                               \
	.exit			= (void *)turn_exit,                                               \
	.flags			= SCX_OPS_ENQ_LAST,                                                \
	.timeout_ms		= 20000
/* clang-format on */

#endif
