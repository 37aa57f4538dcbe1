/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a cgroup's cpu.weight is worth to each of its threads, as Linux's group scheduling has it.
 *
 * A group's weight is divided among those of its members that want to run. A thread's part at one
 * level is weight / load, where load is the sum of the members' weights, each times the fraction of
 * the last 30 ms or so in which it was runnable (decaying by half in 32 periods of 2^20 ns), the
 * member's own counted in full. Its weight against all other threads of a CPU is the product over
 * the levels, which is what the kernel computes since it picks threads of all groups from one queue
 * per CPU, and what its queues per group come to before that, if no two members of a group wait on
 * the same CPU.
 *
 * Limits (cpu.max) are counted per group; the policy asks whether a member may run.
 *
 * A policy forwards ops.cgroup_init, _exit, _set_weight and _set_bandwidth, keeps a struct
 * berth_member per thread, and says when it is runnable. The root is no group: threads in it have
 * their own weight.
 *
 * Deviations: a group's load in its parent is its weight while any of its members is runnable; the
 * kernel counts per CPU.
 */
#ifndef __BERTH_SHARES_BPF_H
#define __BERTH_SHARES_BPF_H

#include "berth/bandwidth.bpf.h"

#define BERTH_GROUPS 4096
#define BERTH_LEVELS 8 /* groups above a thread that count, beginning with its own */
#define BERTH_NICE_0 1024

/* How much of the time something was there, or how many, lately. */
struct berth_load {
	u64 now;     /* value at present */
	u64 recent;  /* decaying mean */
	u64 sum;     /* value times ns since `mean_at` */
	u64 seen_at; /* up to which `sum` goes */
	u64 mean_at;
};

struct berth_member {
	struct berth_load load;
	u32 group; /* its slot; 0: the root */
	bool counted;
};

struct berth_group {
	struct bpf_spin_lock lock;
	u32 parent; /* slot; of a free one: the next free one */
	u64 weight; /* 1024 for cpu.weight 100 */
	struct berth_load load;
	struct berth_load in_parent;
	struct berth_pool pool;
	u32 runnable; /* members */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BERTH_GROUPS);
	__type(key, u32);
	__type(value, struct berth_group);
} berth_groups_by_cgroup SEC(".maps");

/* cgroup id -> slot */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BERTH_GROUPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, u32);
} berth_group_slots SEC(".maps");

static bool berth_groups_limited; /* some group has had a limit (cpu.max) */
static bool berth_root_members;	  /* some thread is, or was, in no group */
static u32 berth_groups_at_top;	  /* groups below the root */
static u32 berth_groups_used;	  /* slots ever used */
static u32 berth_groups_free;	  /* first of the list of free ones; 0: none */

/* 2^32 times half to the power of n / 32 */
static const u32 berth_decay[32] = {
	0xffffffff, 0xfa83b2db, 0xf5257d15, 0xefe4b99c, 0xeac0c6e8, 0xe5b906e7, 0xe0ccdeec,
	0xdbfbb798, 0xd744fccb, 0xd2a81d92, 0xce248c15, 0xc9b9bd86, 0xc5672a11, 0xc12c4cca,
	0xbd08a39f, 0xb8fbaf47, 0xb504f334, 0xb123f582, 0xad583eea, 0xa9a15ab5, 0xa5fed6aa,
	0xa2704303, 0x9ef53261, 0x9b8d39ba, 0x9837f052, 0x94f4efa9, 0x91c3d374, 0x8ea4398b,
	0x8b95c1e4, 0x88980e81, 0x85aac368, 0x82cd8699,
};

/* The value is about to change, or the mean is wanted. */
static __always_inline void berth_load_update(struct berth_load *l, u64 now)
{
	u64 span, periods, y, mean;

	if (!time_before(l->seen_at, now))
		return;
	if (now - l->seen_at > 1ULL << 30) {
		l->recent = l->now;
		l->sum = 0;
		l->seen_at = l->mean_at = now;
		return;
	}
	l->sum += l->now * (now - l->seen_at);
	l->seen_at = now;
	span = now - l->mean_at;
	periods = span >> 20;
	if (!periods)
		return;
	mean = l->sum / span;
	y = periods / 32 < 32 ? berth_decay[periods & 31] >> (periods / 32) : 0;
	l->recent = (l->recent * y + mean * ((1ULL << 32) - y)) >> 32;
	l->sum = 0;
	l->mean_at = now;
}

static __always_inline struct berth_group *berth_group_at(u32 slot)
{
	return slot ? bpf_map_lookup_elem(&berth_groups_by_cgroup, &slot) : NULL;
}

/* Slot of a cgroup; 0: the root, or none of ours. */
static __always_inline u32 berth_group_slot(u64 cgroup_id)
{
	u32 *slot = bpf_map_lookup_elem(&berth_group_slots, &cgroup_id);

	return slot ? *slot : 0;
}

/* A thread's cgroup, when it comes or moves. */
static __always_inline void berth_member_join(struct berth_member *m, u64 cgroup_id)
{
	m->group = berth_group_slot(cgroup_id);
	if (!m->group)
		berth_root_members = true;
}

/* A member of weight `weight` (1024: nice 0) becomes runnable, or no longer is. */
__noinline int berth_member_runnable(struct berth_member *m, u64 weight, bool runnable, u64 now)
{
	struct berth_group *g;
	u64 delta = weight, gone;
	bool turns = true;
	u32 slot;
	int i;

	if (!m || !m->group || m->counted == runnable)
		return 0;
	slot = m->group;
	m->counted = runnable;
	berth_load_update(&m->load, now);
	gone = m->load.now;
	m->load.now = runnable ? weight : 0;
	bpf_for(i, 0, BERTH_LEVELS) {
		if (!turns)
			break;
		g = berth_group_at(slot);
		if (!g)
			return 0;
		bpf_spin_lock(&g->lock);
		berth_load_update(&g->load, now);
		if (runnable) {
			g->load.now += delta;
			turns = !g->runnable++;
		} else {
			g->load.now -= gone < g->load.now ? gone : g->load.now;
			turns = g->runnable && !--g->runnable;
		}
		if (turns) {
			berth_load_update(&g->in_parent, now);
			gone = g->in_parent.now;
			delta = g->weight;
			g->in_parent.now = runnable ? delta : 0;
		}
		slot = g->parent;
		bpf_spin_unlock(&g->lock);
	}
	return 0;
}

/*
 * The only group below the root competes with nobody, and its weight is worth nothing: dividing it
 * would only make the members' weights go up and down with their number.
 */
static __always_inline bool berth_group_has_all(struct berth_group *g)
{
	return !g->parent && berth_groups_at_top == 1 && !berth_root_members;
}

/* The weight of a runnable member against all other threads, in the units of `weight`. */
__noinline u64 berth_member_weight(struct berth_member *m, u64 weight, u64 now)
{
	u64 own, recent, load, result = weight;
	struct berth_group *g;
	u32 slot;
	int i;

	if (!m || !m->group)
		return weight;
	slot = m->group;
	own = m->load.now;
	berth_load_update(&m->load, now);
	recent = m->load.recent;
	bpf_for(i, 0, BERTH_LEVELS) {
		g = berth_group_at(slot);
		if (!g || berth_group_has_all(g))
			break;
		bpf_spin_lock(&g->lock);
		berth_load_update(&g->load, now);
		berth_load_update(&g->in_parent, now);
		load = g->load.recent - (recent < g->load.recent ? recent : g->load.recent) + own;
		result = result * g->weight / (load ?: 1);
		own = g->weight;
		recent = g->in_parent.recent;
		slot = g->parent;
		bpf_spin_unlock(&g->lock);
	}
	return result ?: 1;
}

/*
 * A member has run for ns. 0: it may go on; else: the time at which one of its groups that has used
 * up its limit may run again.
 */
__noinline u64 berth_member_use(struct berth_member *m, u64 ns, u64 now)
{
	struct berth_group *g;
	u64 until = 0;
	u32 slot;
	int i;

	if (!m || !berth_groups_limited)
		return 0;
	slot = m->group;
	bpf_for(i, 0, BERTH_LEVELS) {
		g = berth_group_at(slot);
		if (!g)
			break;
		bpf_spin_lock(&g->lock);
		if (!berth_pool_use(&g->pool, ns, now) && time_after(g->pool.refill_at, until))
			until = g->pool.refill_at;
		slot = g->parent;
		bpf_spin_unlock(&g->lock);
	}
	return until;
}

/* Is nobody else of the member's cgroup runnable (on any CPU)? */
static __always_inline bool berth_member_alone(struct berth_member *m)
{
	struct berth_group *g = berth_group_at(m->group);

	return g && g->runnable < 2;
}

/* From ops.cgroup_init and ops.cgroup_set_bandwidth. */
static __always_inline void berth_group_limit(u64 cgroup_id, u64 period_us, u64 quota_us)
{
	struct berth_group *g = berth_group_at(berth_group_slot(cgroup_id));
	u64 quota_ns = BERTH_NO_LIMIT(quota_us) ? 0 : quota_us * 1000;

	if (!g)
		return;
	if (quota_ns)
		berth_groups_limited = true;
	bpf_spin_lock(&g->lock);
	berth_pool_set(&g->pool, period_us * 1000, quota_ns);
	bpf_spin_unlock(&g->lock);
}

static __always_inline void berth_group_weight(u64 cgroup_id, u32 weight)
{
	struct berth_group *g = berth_group_at(berth_group_slot(cgroup_id));
	u64 now = scx_bpf_now(), new = (u64)weight *BERTH_NICE_0 / 100, old = 0;
	u32 parent;

	if (!g || !weight)
		return;
	bpf_spin_lock(&g->lock);
	g->weight = new;
	if (g->runnable) {
		berth_load_update(&g->in_parent, now);
		old = g->in_parent.now;
		g->in_parent.now = new;
	}
	parent = g->parent;
	bpf_spin_unlock(&g->lock);
	/* While members are runnable it is part of what its parent's weight is divided by. */
	g = old ? berth_group_at(parent) : NULL;
	if (!g)
		return;
	bpf_spin_lock(&g->lock);
	berth_load_update(&g->load, now);
	g->load.now = g->load.now - (old < g->load.now ? old : g->load.now) + new;
	bpf_spin_unlock(&g->lock);
}

/* From ops.cgroup_init. */
static __always_inline int berth_group_init(struct cgroup *cgrp, u32 weight)
{
	u64 id = cgrp->kn->id;
	struct berth_group *g;
	struct cgroup *up;
	u32 slot, parent = 0;

	if (!cgrp->level)
		return 0;
	slot = berth_groups_free;
	g = berth_group_at(slot);
	if (g)
		berth_groups_free = g->parent;
	else
		slot = ++berth_groups_used;
	g = berth_group_at(slot);
	if (!g) {
		scx_bpf_error("more than %u cgroups", slot - 1);
		return -E2BIG;
	}
	up = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
	if (up) {
		parent = berth_group_slot(up->kn->id);
		bpf_cgroup_release(up);
	}
	if (!parent)
		berth_groups_at_top++;
	g->parent = parent;
	g->runnable = 0;
	__builtin_memset(&g->load, 0, sizeof(g->load));
	__builtin_memset(&g->in_parent, 0, sizeof(g->in_parent));
	g->weight = (u64)weight * BERTH_NICE_0 / 100;
	return bpf_map_update_elem(&berth_group_slots, &id, &slot, BPF_ANY);
}

/* From ops.cgroup_exit: nobody is in it any more. */
static __always_inline void berth_group_exit(struct cgroup *cgrp)
{
	u64 id = cgrp->kn->id;
	u32 slot = berth_group_slot(id);
	struct berth_group *g = berth_group_at(slot);

	if (!g)
		return;
	bpf_map_delete_elem(&berth_group_slots, &id);
	if (!g->parent)
		berth_groups_at_top--;
	g->parent = berth_groups_free;
	berth_groups_free = slot;
}

#endif
