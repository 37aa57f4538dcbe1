/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The bookkeeping of a policy that knows VMs: which group each thread belongs to, what a group is
 * entitled to, how much of it wants to run, and when its cap is used up. A group is a VM; the group
 * HOST has all threads without one.
 *
 * The includer defines before this header the parameter `host_weight` and
 *
 *	struct group	of a VM: u32 load, weight, cap_mcpu; struct bpf_spin_lock lock and struct
 *			berth_pool pool (its cap). A new one is all zeroes.
 *	struct thread	of a thread: u32 slot, counted, generation; u64 charged_ns
 *
 * with whatever else it keeps of them, and after it the hooks (the first two may be empty macros)
 *
 *	reweighted(g)	g has its first weight, or another one
 *	joined(t, g)	t works for g from now on, or the policy has just taken it on
 *	labelled(t, id)	t's labels have been read, after joined()
 *	no_group(slot)	groups_by_vm has no room for this VM: scx_bpf_error()
 *
 * It counts run time against caps (capped_until) and looks at the labels again when `stopping`
 * (relabel). BERTH_VM_CALLBACKS defines the callbacks that do nothing else, BERTH_VM_OPS names them
 * in the ops table.
 */
#ifndef __BERTH_VMS_BPF_H
#define __BERTH_VMS_BPF_H

#include "berth/bandwidth.bpf.h"
#include "berth/identity.bpf.h"

#define HOST	   0	/* slot of the group of threads without a VM */
#define MAX_GROUPS 4097 /* slots, the host's included; the loader may have room for fewer */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_GROUPS);
	__type(key, u32);
	__type(value, struct group);
} groups_by_vm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

static bool any_caps; /* some VM has had a cap */

#ifndef reweighted
static __always_inline void reweighted(struct group *g);
#endif
#ifndef joined
static __always_inline void joined(struct thread *t, struct group *g);
#endif
static __always_inline void labelled(struct thread *t, struct berth_identity *id);
static __always_inline void no_group(u32 slot);

static __always_inline struct thread *thread_of(struct task_struct *p)
{
	return bpf_task_storage_get(&threads, p, 0, 0);
}

static __always_inline struct group *group_at(u32 slot)
{
	return bpf_map_lookup_elem(&groups_by_vm, &slot);
}

/* The group of a thread; of one that the policy has not met, the host. */
static __always_inline struct group *group_of(struct thread *t)
{
	return group_at(t ? t->slot : HOST);
}

/* Of its nice value: 100 for 0. */
static __always_inline u32 weight_of(struct task_struct *p)
{
	return p->scx.weight ?: 1;
}

/* A VM's threads have run for ns. 0: they may go on; else: again from then on. */
static __always_inline u64 capped_until(struct group *g, u64 ns)
{
	u64 now, until = 0;

	if (!any_caps || !g->cap_mcpu)
		return 0;
	now = scx_bpf_now();
	bpf_spin_lock(&g->lock);
	if (!berth_pool_use(&g->pool, ns, now))
		until = g->pool.refill_at;
	bpf_spin_unlock(&g->lock);
	return until;
}

static __always_inline void set_weight(struct group *g, u32 weight)
{
	if (!weight || g->weight == weight)
		return;
	g->weight = weight;
	reweighted(g);
}

static __always_inline void set_cap(struct group *g, u32 cap_mcpu)
{
	if (g->cap_mcpu == cap_mcpu)
		return;
	bpf_spin_lock(&g->lock);
	berth_pool_set(&g->pool, BERTH_PERIOD_NS, cap_mcpu * (BERTH_PERIOD_NS / 1000));
	bpf_spin_unlock(&g->lock);
	g->cap_mcpu = cap_mcpu;
	any_caps = true;
}

/* Read p's labels. */
static __always_inline int label(struct task_struct *p, struct thread *t, u64 cgroup_id, bool fork)
{
	struct berth_identity *id = berth_identify(p, cgroup_id, fork);
	struct group *g, *old;
	u32 slot;

	if (!id)
		return -ENOMEM;
	slot = id->vm.slot;
	g = group_at(slot);
	if (!g) {
		no_group(slot);
		return -E2BIG;
	}
	old = group_at(t->slot);
	if (t->counted && old && old != g) {
		__sync_fetch_and_sub(&old->load, t->counted);
		__sync_fetch_and_add(&g->load, t->counted);
	}
	set_weight(g, slot == HOST ? host_weight : id->vm.weight);
	set_cap(g, slot == HOST ? 0 : id->vm.cap_mcpu);
	if (t->slot != slot)
		joined(t, g);
	t->slot = slot;
	t->generation = berth_generation;
	labelled(t, id);
	return 0;
}

/* p stops running: read its labels again if any have changed. */
static __always_inline void relabel(struct task_struct *p, struct thread *t)
{
	struct cgroup *cgrp;

	if (t->generation == berth_generation)
		return;
	cgrp = scx_bpf_task_cgroup(p);
	if (!cgrp)
		return;
	label(p, t, cgrp->kn->id, false);
	bpf_cgroup_release(cgrp);
}

static __always_inline void vm_runnable(struct task_struct *p)
{
	struct thread *t = thread_of(p);
	struct group *g = group_of(t);

	if (!t || !g || t->counted)
		return;
	t->counted = weight_of(p);
	__sync_fetch_and_add(&g->load, t->counted);
}

static __always_inline void vm_quiescent(struct task_struct *p)
{
	struct thread *t = thread_of(p);
	struct group *g = group_of(t);

	if (!t || !g || !t->counted)
		return;
	__sync_fetch_and_sub(&g->load, t->counted);
	t->counted = 0;
}

static __always_inline int vm_init_task(struct task_struct *p, struct scx_init_task_args *args)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	return t ? label(p, t, args->cgroup->kn->id, args->fork) : -ENOMEM;
}

static __always_inline void vm_enable(struct task_struct *p)
{
	struct thread *t = thread_of(p);
	struct group *g = group_of(t);

	if (!t || !g)
		return;
	t->charged_ns = p->se.sum_exec_runtime;
	joined(t, g);
}

static __always_inline void vm_cgroup_move(struct task_struct *p, struct cgroup *to)
{
	struct thread *t = thread_of(p);

	if (t)
		label(p, t, to->kn->id, false);
}

static __always_inline void vm_cgroup_set_weight(struct cgroup *cgrp, u32 weight)
{
	u64 id = cgrp->kn->id;
	struct berth_vm *vm = bpf_map_lookup_elem(&berth_vms, &id);
	struct group *g = group_at(vm ? vm->slot : HOST);

	if (!vm || !g)
		return;
	set_weight(g, weight);
	vm->weight = weight; /* the next thread to be labelled brings it along */
}

#define BERTH_VM_CALLBACKS(policy)                                                                 \
	void BPF_STRUCT_OPS(policy##_runnable, struct task_struct *p, u64 enq_flags)               \
	{                                                                                          \
		vm_runnable(p);                                                                    \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_quiescent, struct task_struct *p, u64 deq_flags)              \
	{                                                                                          \
		vm_quiescent(p);                                                                   \
	}                                                                                          \
	s32 BPF_STRUCT_OPS_SLEEPABLE(policy##_init_task, struct task_struct *p,                    \
				     struct scx_init_task_args *args)                              \
	{                                                                                          \
		return vm_init_task(p, args);                                                      \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_enable, struct task_struct *p)                                \
	{                                                                                          \
		vm_enable(p);                                                                      \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_cgroup_move, struct task_struct *p, struct cgroup *from,      \
			    struct cgroup *to)                                                     \
	{                                                                                          \
		vm_cgroup_move(p, to);                                                             \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_cgroup_set_weight, struct cgroup *cgrp, u32 weight)           \
	{                                                                                          \
		vm_cgroup_set_weight(cgrp, weight);                                                \
	}

/* clang-format off */
#define BERTH_VM_OPS(policy)                                                                       \
	.runnable		= (void *)policy##_runnable,                                       \
	.quiescent		= (void *)policy##_quiescent,                                      \
	.init_task		= (void *)policy##_init_task,                                      \
	.enable			= (void *)policy##_enable,                                         \
	.cgroup_move		= (void *)policy##_cgroup_move,                                    \
	.cgroup_set_weight	= (void *)policy##_cgroup_set_weight
/* clang-format on */

#endif
