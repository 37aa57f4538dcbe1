/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weights through the cgroup tree. A group's share is the product, from the root down, of its
 * weight over the weights of its active siblings; it is worked out again when the set of active
 * groups has changed. All tasks wait in one queue by a virtual time which runs faster the smaller
 * the share and the more tasks the group has.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u64 cgrp_slice_ns = 4000000;

#define QUEUE 3
#define WHOLE (1 << 16) /* share of the root */
#define DEPTH 16

struct group {
	u32 weight;
	u32 nr_active;	   /* runnable tasks here and active groups below */
	u32 nr_runnable;   /* runnable tasks here */
	u32 active_weight; /* of the active groups just below */
	u32 share;	   /* of WHOLE */
	u32 share_gen;	   /* generation for which share holds */
};

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct group);
} groups SEC(".maps");

struct task_ctx {
	u64 vtime;
	u64 started_at;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

static u64 vnow;
static u32 generation = 1;
u64 nr_inits, nr_exits, nr_moves, nr_weights, nr_walks;

static struct group *group_of(struct cgroup *cgrp)
{
	return bpf_cgrp_storage_get(&groups, cgrp, 0, 0);
}

/* A task of the group woke or slept: carry "active" up the tree as far as it changes. */
static void activate(struct cgroup *cgrp, bool on)
{
	struct group *g = group_of(cgrp), *up;
	struct cgroup *parent;
	int i;

	if (!g)
		return;
	g->nr_runnable += on ? 1 : -1;
	bpf_for(i, 1, DEPTH) {
		u32 before = g->nr_active, weight = g->weight;

		g->nr_active += on ? 1 : -1;
		if (on ? before != 0 : before != 1)
			break; /* it was active already, or still is */
		generation++;
		if (i > cgrp->level)
			break;
		parent = bpf_cgroup_ancestor(cgrp, cgrp->level - i);
		if (!parent)
			break;
		up = group_of(parent);
		bpf_cgroup_release(parent);
		if (!up)
			break;
		up->active_weight += on ? weight : -weight;
		g = up;
	}
}

static u32 share_of(struct cgroup *cgrp, struct group *g)
{
	u64 share = WHOLE, below = 0;
	struct cgroup *c;
	struct group *at;
	int level;

	if (g->share_gen == generation && g->share)
		return g->share;
	nr_walks++;
	bpf_for(level, 0, DEPTH) {
		if (level > cgrp->level)
			break;
		c = bpf_cgroup_ancestor(cgrp, level);
		if (!c)
			break;
		at = group_of(c);
		bpf_cgroup_release(c);
		if (!at)
			break;
		if (level && below)
			share = share * at->weight / below;
		below = at->active_weight;
	}
	g->share_gen = generation;
	g->share = share ?: 1;
	return g->share;
}

s32 BPF_STRUCT_OPS(shares_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, cgrp_slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(shares_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *t = bpf_task_storage_get(&task_ctxs, p, 0, 0);

	if (!t) {
		scx_bpf_error("no context for %d", p->pid);
		return;
	}
	if (time_before(t->vtime, vnow - cgrp_slice_ns))
		t->vtime = vnow - cgrp_slice_ns;
	scx_bpf_dsq_insert_vtime(p, QUEUE, cgrp_slice_ns, t->vtime, enq_flags);
}

void BPF_STRUCT_OPS(shares_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(QUEUE, 0);
}

void BPF_STRUCT_OPS(shares_runnable, struct task_struct *p, u64 enq_flags)
{
	struct cgroup *cgrp = scx_bpf_task_cgroup(p);

	if (!cgrp)
		return;
	activate(cgrp, true);
	bpf_cgroup_release(cgrp);
}

void BPF_STRUCT_OPS(shares_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct cgroup *cgrp = scx_bpf_task_cgroup(p);

	if (!cgrp)
		return;
	activate(cgrp, false);
	bpf_cgroup_release(cgrp);
}

void BPF_STRUCT_OPS(shares_running, struct task_struct *p)
{
	struct task_ctx *t = bpf_task_storage_get(&task_ctxs, p, 0, 0);

	if (!t)
		return;
	t->started_at = scx_bpf_now();
	if (time_before(vnow, t->vtime))
		vnow = t->vtime;
}

void BPF_STRUCT_OPS(shares_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *t = bpf_task_storage_get(&task_ctxs, p, 0, 0);
	u64 used, share = WHOLE, sharers = 1;
	struct cgroup *cgrp;
	struct group *g;

	if (!t)
		return;
	used = scx_bpf_now() - t->started_at;
	cgrp = scx_bpf_task_cgroup(p);
	if (cgrp) {
		g = group_of(cgrp);
		if (g) {
			share = share_of(cgrp, g);
			sharers = g->nr_runnable ?: 1;
		}
		bpf_cgroup_release(cgrp);
	}
	t->vtime += used * sharers * WHOLE / share;
}

s32 BPF_STRUCT_OPS(shares_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *t;

	t = bpf_task_storage_get(&task_ctxs, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return -ENOMEM;
	t->vtime = vnow;
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(shares_cgroup_init, struct cgroup *cgrp,
			     struct scx_cgroup_init_args *args)
{
	struct group *g;

	g = bpf_cgrp_storage_get(&groups, cgrp, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!g)
		return -ENOMEM;
	g->weight = args->weight;
	__sync_fetch_and_add(&nr_inits, 1);
	return 0;
}

void BPF_STRUCT_OPS(shares_cgroup_exit, struct cgroup *cgrp)
{
	__sync_fetch_and_add(&nr_exits, 1);
}

s32 BPF_STRUCT_OPS(shares_cgroup_prep_move, struct task_struct *p, struct cgroup *from,
		   struct cgroup *to)
{
	return group_of(to) ? 0 : -ENOENT;
}

void BPF_STRUCT_OPS(shares_cgroup_move, struct task_struct *p, struct cgroup *from,
		    struct cgroup *to)
{
	struct task_ctx *t = bpf_task_storage_get(&task_ctxs, p, 0, 0);

	if (t)
		t->vtime = vnow;
	__sync_fetch_and_add(&nr_moves, 1);
}

void BPF_STRUCT_OPS(shares_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	struct group *g = group_of(cgrp), *up;
	struct cgroup *parent;

	if (!g)
		return;
	if (g->nr_active && cgrp->level > 0) {
		parent = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
		if (parent) {
			up = group_of(parent);
			if (up)
				up->active_weight += weight - g->weight;
			bpf_cgroup_release(parent);
		}
	}
	g->weight = weight;
	generation++;
	__sync_fetch_and_add(&nr_weights, 1);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(shares_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

void BPF_STRUCT_OPS(shares_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(shares_ops,
	.select_cpu		= (void *)shares_select_cpu,
	.enqueue		= (void *)shares_enqueue,
	.dispatch		= (void *)shares_dispatch,
	.runnable		= (void *)shares_runnable,
	.quiescent		= (void *)shares_quiescent,
	.running		= (void *)shares_running,
	.stopping		= (void *)shares_stopping,
	.init_task		= (void *)shares_init_task,
	.cgroup_init		= (void *)shares_cgroup_init,
	.cgroup_exit		= (void *)shares_cgroup_exit,
	.cgroup_prep_move	= (void *)shares_cgroup_prep_move,
	.cgroup_move		= (void *)shares_cgroup_move,
	.cgroup_set_weight	= (void *)shares_cgroup_set_weight,
	.init			= (void *)shares_init,
	.exit			= (void *)shares_exit,
	.timeout_ms		= 5000,
	.name			= "flatcg");
