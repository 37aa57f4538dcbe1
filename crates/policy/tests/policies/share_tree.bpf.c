/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cgroups share by weight, however many tasks each has: those with waiting tasks are nodes of a
 * tree, by virtual time; the first gives one task a slice, and goes on by what that is worth to it.
 * A cgroup without waiting tasks has its node in a map.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u64 slice_ns = 5000000;

#define TRIES 64

struct item {
	struct bpf_rb_node rb;
	u64 vtime;
	u64 cgid;
};

private(TREE) struct bpf_spin_lock tree_lock;
private(TREE) struct bpf_rb_root tree __contains(item, rb);

struct resting {
	struct item __kptr *node;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct resting);
} resting SEC(".maps");

struct group {
	u32 weight;
};

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct group);
} groups SEC(".maps");

static u64 vnow;
u64 nr_joined, nr_rested, nr_given;

static bool earlier(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	struct item *x = container_of(a, struct item, rb);
	struct item *y = container_of(b, struct item, rb);

	return time_before(x->vtime, y->vtime);
}

static void join(struct item *node)
{
	bpf_spin_lock(&tree_lock);
	bpf_rbtree_add(&tree, &node->rb, earlier);
	bpf_spin_unlock(&tree_lock);
}

static u64 id_of(struct task_struct *p)
{
	struct cgroup *cgrp = scx_bpf_task_cgroup(p);
	u64 id = 0;

	if (cgrp) {
		id = cgrp->kn->id;
		bpf_cgroup_release(cgrp);
	}
	return id;
}

s32 BPF_STRUCT_OPS(tree_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(tree_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 cgid = id_of(p);
	struct resting *place = bpf_map_lookup_elem(&resting, &cgid);
	struct item *node;
	s32 cpu;

	if (!place) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);
		return;
	}
	scx_bpf_dsq_insert(p, cgid, slice_ns, enq_flags);
	node = bpf_kptr_xchg(&place->node, NULL);
	if (node) {
		if (time_before(node->vtime, vnow))
			node->vtime = vnow;
		join(node);
		__sync_fetch_and_add(&nr_joined, 1);
	}
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* What a slice is worth to the cgroup; 0: it is no more. */
static u64 worth(u64 cgid)
{
	struct cgroup *cgrp = bpf_cgroup_from_id(cgid);
	struct group *group;
	u64 worth = 0;

	if (!cgrp)
		return 0;
	group = bpf_cgrp_storage_get(&groups, cgrp, 0, 0);
	if (group)
		worth = slice_ns * 100 / (group->weight ?: 1);
	bpf_cgroup_release(cgrp);
	return worth;
}

void BPF_STRUCT_OPS(tree_dispatch, s32 cpu, struct task_struct *prev)
{
	struct bpf_rb_node *first;
	struct resting *place;
	struct item *node;
	u64 cgid, by;
	u32 i;

	bpf_for(i, 0, TRIES) {
		bpf_spin_lock(&tree_lock);
		first = bpf_rbtree_first(&tree);
		if (!first) {
			bpf_spin_unlock(&tree_lock);
			break;
		}
		first = bpf_rbtree_remove(&tree, first);
		bpf_spin_unlock(&tree_lock);
		if (!first)
			break;
		node = container_of(first, struct item, rb);
		cgid = node->cgid;
		if (time_before(vnow, node->vtime))
			vnow = node->vtime;
		by = worth(cgid);
		if (!by) {
			bpf_obj_drop(node);
			continue;
		}
		if (scx_bpf_dsq_move_to_local(cgid, 0)) {
			node->vtime += by;
			join(node);
			__sync_fetch_and_add(&nr_given, 1);
			break;
		}
		/* Some of its tasks may not run here: others will look. */
		if (scx_bpf_dsq_nr_queued(cgid) > 0) {
			node->vtime = vnow + slice_ns;
			join(node);
			continue;
		}
		place = bpf_map_lookup_elem(&resting, &cgid);
		if (place) {
			node = bpf_kptr_xchg(&place->node, node);
			__sync_fetch_and_add(&nr_rested, 1);
		}
		if (node)
			bpf_obj_drop(node);
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(tree_cgroup_init, struct cgroup *cgrp,
			     struct scx_cgroup_init_args *args)
{
	u64 cgid = cgrp->kn->id;
	struct resting empty = {}, *place;
	struct group *group;
	struct item *node;
	s32 err;

	group = bpf_cgrp_storage_get(&groups, cgrp, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!group)
		return -ENOMEM;
	group->weight = args->weight;
	err = bpf_map_update_elem(&resting, &cgid, &empty, BPF_NOEXIST);
	if (err)
		return err == -EEXIST ? 0 : err;
	place = bpf_map_lookup_elem(&resting, &cgid);
	node = bpf_obj_new(struct item);
	if (!node || !place) {
		if (node)
			bpf_obj_drop(node);
		return -ENOMEM;
	}
	node->cgid = cgid;
	node->vtime = vnow;
	node = bpf_kptr_xchg(&place->node, node);
	if (node)
		bpf_obj_drop(node);
	return scx_bpf_create_dsq(cgid, -1);
}

void BPF_STRUCT_OPS(tree_cgroup_exit, struct cgroup *cgrp)
{
	u64 cgid = cgrp->kn->id;

	bpf_map_delete_elem(&resting, &cgid);
	scx_bpf_destroy_dsq(cgid);
}

void BPF_STRUCT_OPS(tree_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	struct group *group = bpf_cgrp_storage_get(&groups, cgrp, 0, 0);

	if (group)
		group->weight = weight;
}

void BPF_STRUCT_OPS(tree_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(tree_ops,
	.select_cpu		= (void *)tree_select_cpu,
	.enqueue		= (void *)tree_enqueue,
	.dispatch		= (void *)tree_dispatch,
	.cgroup_init		= (void *)tree_cgroup_init,
	.cgroup_exit		= (void *)tree_cgroup_exit,
	.cgroup_set_weight	= (void *)tree_cgroup_set_weight,
	.exit			= (void *)tree_exit,
	.timeout_ms		= 5000,
	.name			= "share_tree");
