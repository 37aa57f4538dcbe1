/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * best_node: a reconstruction of the best NUMA node (Cheng et al., "Best NUMA node based virtual
 * machine scheduling", APPT 2013; a scheduler at user level, for KVM), on the rules of Xen 4.4.
 *
 * Idea. Every second each VM's best node is found: where most of its memory is, unless that node
 * has more than its part of all reads of memory. The VM that reads most chooses first. A VM goes
 * there with all its threads if that is better than where it is by more than `hysteresis_percent`
 * and there is room. Inside a node: Credit.
 *
 * Sources: the abstract (VMs are placed anew from time to time, by remote accesses and contention
 * for what a node shares); the related work of FLMS (whole nodes: nothing is said of the cores in
 * one). Not published in what we have, so ours: the score, the period, the order and the room.
 *
 * What is ours. A node's score for a VM: the part of its memory there, less half of that by which
 * the reads of all VMs there, with this one, exceed a node's mean (`contention_percent`). A
 * node has room for as many vCPUs as it has CPUs, and if all VMs have more than there are CPUs, for
 * its part of them. Who has more vCPUs than that stays where Credit puts it. The hysteresis is of
 * the score's scale, 1. Where a VM's memory is, is told (berth_memory_by_vm, or a memory node with
 * the VM), else counted: what it reads of other nodes is taken to be spread over them evenly. What
 * else deviates from Xen is in credit.bpf.c.
 *
 * Without counters (host.pmu in scenarios; a machine without a PMU, or without these events) it
 * goes by what is told alone; a VM of which nothing is known stays on the node that had most room
 * when it began, and the counter `unknown` says so.
 *
 * Charges wall time between switches, with interrupts and stolen time, as Xen does.
 *
 * Not good for: latency (it knows none); VMs larger than a node; VMs that would have to change
 * places, since both nodes are full; caches inside a node; loads that change within seconds.
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"
#include "credit/stats.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall", "Best NUMA node, reconstructed: Credit in the node with a VM's memory");
BERTH_HYPERVISOR("xen");

BERTH_PARAM(u64, look_ms, "ms", 1000, 10, 100000, "How often VMs are placed anew");
BERTH_PARAM(u64, contention_percent, "percent", 50, 0, 1000,
	    "Weight of a node's reads of memory beyond the mean");
BERTH_PARAM(u32, hysteresis_percent, "percent", 10, 0, 100, "A move has to gain more than this");
BERTH_PARAM(u64, lend_ms, "ms", 10, 0, 10000, "A CPU idle for longer takes vCPUs of other nodes");
BERTH_MOST_CPUS(1024);

struct berth_stats {
	CREDIT_STATS
	u64 lent;    /* taken by a CPU of another node */
	u64 looks;   /* VMs looked at, */
	u64 unknown; /* of whose memory nothing is known */
	u64 moves;   /* of VMs */
	u64 full;    /* better nodes without room */
	u64 large;   /* VMs that fit into no node */
};
BERTH_STATS;

#define rehome_movers true
#include "credit/nodes_fields.bpf.h"
#define VCPU_MORE NODE_VCPU
#define PCPU_MORE NODE_PCPU

#include "credit/rules.bpf.h"
#include "credit/nodes.bpf.h"

#define SOON_NS 20000 /* between two VMs of a round */

/* Where a VM is. */
struct place {
	u32 home;   /* node + 1; 0: any */
	s32 told;   /* its memory node, -1: none */
	u32 vcpus;  /* alive */
	u32 nodes;  /* on which all its vCPUs may run, a bit each */
	u32 here;   /* part of what it reads that is of its node, ppm + 1; 0: not known */
	u32 round;  /* in which it has been looked at */
	u64 loads;  /* since the last round: reads of memory, and those of */
	u64 remote; /* another node's */
	u64 rate;   /* loads of the last round */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_DOMAINS);
	__type(key, u32);
	__type(value, struct place);
} places_by_vm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_NODES);
	__type(key, u32);
	__type(value, u64);
} loads_by_node SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer);
} looks SEC(".maps");

static u32 rounds;     /* begun */
static bool in_round;  /* VMs of it are left */
static u64 round_at;   /* when it began */
static u32 all_vcpus;  /* of VMs, alive */
static u64 all_loads;  /* of the last round */
static u32 highest_vm; /* slot */

static __always_inline struct place *place_of(u32 slot)
{
	return bpf_map_lookup_elem(&places_by_vm, &slot);
}

#define labelled labelled
static __always_inline void labelled(struct vcpu *v, struct berth_identity *id)
{
	struct place *place = place_of(v->slot);

	if (v->slot == HOST) {
		v->home = 0;
		return;
	}
	if (place)
		place->told = id->vm.node;
	if (v->slot > highest_vm)
		highest_vm = v->slot;
	v->node = -1;
}

/* How many vCPUs a node takes. */
static __always_inline u32 takes(struct room *room)
{
	u32 fair = nr_online ? div_up((u64)all_vcpus * room->cpus, nr_online) : 0;

	return room->cpus > fair ? room->cpus : fair;
}

/* The first of a VM to be queued chooses the node for all. */
static __always_inline void settle(struct task_struct *p, struct vcpu *v)
{
	struct domain *d;
	struct place *place;
	struct room *room;

	if (v->slot == HOST)
		return;
	place = place_of(v->slot);
	d = domain_at(v->slot);
	if (!place || !d)
		return;
	if (!place->home && !place->vcpus && is_guest(v)) {
		u32 home = roomiest(v->nodes);

		room = home ? room_of(home - 1) : NULL;
		if (!room || d->vcpus > takes(room)) {
			place->vcpus = d->vcpus;
			berth_count(large);
		} else {
			__sync_fetch_and_add(&room->vcpus, d->vcpus);
			place->vcpus = d->vcpus;
			place->home = home;
		}
	}
	if (v->home == place->home)
		return;
	v->home = place->home;
	v->lent = 0;
}

#define before_decision before_decision
static __always_inline void before_decision(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	nodes_return(v, cpu, false);
}

#define descheduled descheduled
static __always_inline void descheduled(struct vcpu *v, struct pcpu *c)
{
	nodes_read(v, c, bpf_get_smp_processor_id());
}

#define slept slept
static __always_inline void slept(struct vcpu *v)
{
	nodes_return(v, v->cpu, true);
}

#define started started
static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	nodes_started(v, c, cpu);
}

/* What v has read since the last round becomes its VM's. */
static __always_inline void collect(struct vcpu *v)
{
	struct place *place = place_of(v->slot);

	if (!place)
		return;
	if (is_guest(v)) {
		place->nodes = place->vcpus ? place->nodes & v->nodes : v->nodes;
		place->vcpus++;
		__sync_fetch_and_add(&all_vcpus, 1);
	}
	if (!place->home || v->read_on == place->home) {
		place->loads += v->loads;
		place->remote += v->remote;
	}
	v->instructions = v->loads = v->remote = 0;
}

__noinline int collect_all(void)
{
	struct vcpu *v;
	u32 i;

	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (v && v->pid && v->slot != HOST)
			collect(v);
	}
	return 0;
}

static __always_inline void begin_vm(u32 slot)
{
	struct place *place = place_of(slot);

	if (!place)
		return;
	place->vcpus = 0;
	place->loads = 0;
	place->remote = 0;
}

/* A VM's loads of the last round, and which of them are its node's. */
static __always_inline void sum_up(u32 slot)
{
	struct place *place = place_of(slot);
	u64 *loads, here;
	u32 node;
	struct room *room;

	if (!place)
		return;
	if (!place->vcpus)
		place->home = 0;
	place->rate = place->loads;
	if (place->loads) {
		here = (place->loads - place->remote) * BERTH_MEMORY_ALL / place->loads;
		place->here = here + 1;
	}
	__sync_fetch_and_add(&all_loads, place->rate);
	if (!place->home)
		return;
	node = place->home - 1;
	loads = bpf_map_lookup_elem(&loads_by_node, &node);
	room = room_of(node);
	if (loads)
		*loads += place->rate;
	if (room)
		room->vcpus += place->vcpus;
}

/* A round begins: who is where, and what everybody reads. */
__noinline int begin_round(void)
{
	struct room *room;
	u64 *loads;
	u32 i;

	all_vcpus = 0;
	all_loads = 0;
	bpf_for(i, 0, berth_nr_nodes) {
		room = room_of(i);
		loads = bpf_map_lookup_elem(&loads_by_node, &i);
		if (room)
			room->vcpus = 0;
		if (loads)
			*loads = 0;
	}
	bpf_for(i, 1, highest_vm + 1)
		begin_vm(i);
	collect_all();
	bpf_for(i, 1, highest_vm + 1)
		sum_up(i);
	rounds++;
	return 0;
}

/* Of the VMs that have not been looked at, the one that reads most; 0: none is left. */
__noinline u32 next_vm(void)
{
	struct place *place;
	u64 most = 0;
	u32 i, found = 0;

	bpf_for(i, 1, highest_vm + 1) {
		place = place_of(i);
		if (!place || !place->home || place->round == rounds)
			continue;
		if (found && place->rate <= most)
			continue;
		most = place->rate;
		found = i;
	}
	return found;
}

/* Part of the VM's memory on that node, ppm, as far as it is known; -1: it is not. */
static __always_inline s64 memory_on(u32 slot, struct place *place, u32 node)
{
	struct berth_memory *said = bpf_map_lookup_elem(&berth_memory_by_vm, &slot);
	u32 i, others = berth_nr_nodes > 1 ? berth_nr_nodes - 1 : 1, sum = 0;

	if (said) {
		for (i = 0; i < BERTH_MEMORY_NODES; i++)
			sum += said->ppm[i];
		if (sum)
			return said->ppm[node & (BERTH_MEMORY_NODES - 1)];
	}
	if (place->told >= 0 && berth_nr_nodes > 1)
		return place->told == node ? BERTH_MEMORY_ALL : 0;
	if (!place->here)
		return -1;
	if (place->home == node + 1)
		return place->here - 1;
	return (BERTH_MEMORY_ALL - (place->here - 1)) / others;
}

/* The node's score for the VM, ppm. */
static __always_inline s64 score(u32 slot, struct place *place, u32 node)
{
	u64 *there = bpf_map_lookup_elem(&loads_by_node, &node), mean, loads;
	s64 memory = memory_on(slot, place, node);

	if (memory < 0)
		memory = 0;
	mean = all_loads / (berth_nr_nodes ?: 1);
	if (!there || !mean)
		return memory;
	loads = *there + (place->home == node + 1 ? 0 : place->rate);
	if (loads <= mean)
		return memory;
	return memory - (s64)((loads - mean) * BERTH_MEMORY_ALL / mean * contention_percent / 100);
}

/* All threads of a VM go to its node. */
__noinline int move_all(u32 slot, u32 node)
{
	struct vcpu *v;
	u32 i;

	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (v && v->pid && v->slot == slot)
			leave_for(i, v, node);
	}
	return 0;
}

/* Where would the VM be better off? */
__noinline int look_at(u32 slot)
{
	struct place *place = place_of(slot);
	struct room *room, *from;
	u64 *loads;
	s64 best, gain;
	u32 node, found, here;

	if (!place || !place->home)
		return 0;
	place->round = rounds;
	berth_count(looks);
	here = place->home - 1;
	if (memory_on(slot, place, here) < 0)
		berth_count(unknown);
	best = score(slot, place, here) + (s64)hysteresis_percent * BERTH_MEMORY_ALL / 100;
	found = here;
	bpf_for(node, 0, berth_nr_nodes) {
		if (node == here || !(place->nodes >> (node & (MOST_NODES - 1)) & 1))
			continue;
		gain = score(slot, place, node);
		if (gain <= best)
			continue;
		room = room_of(node);
		if (!room || room->vcpus + place->vcpus > takes(room)) {
			berth_count(full);
			continue;
		}
		best = gain;
		found = node;
	}
	if (found == here)
		return 0;
	from = room_of(here);
	room = room_of(found);
	if (from && room) {
		from->vcpus -= place->vcpus;
		room->vcpus += place->vcpus;
	}
	loads = bpf_map_lookup_elem(&loads_by_node, &here);
	if (loads)
		*loads -= place->rate;
	loads = bpf_map_lookup_elem(&loads_by_node, &found);
	if (loads)
		*loads += place->rate;
	place->home = found + 1;
	place->here = 0;
	move_all(slot, found);
	berth_count(moves);
	return 0;
}

static int look_over(void *map, u32 *key, struct bpf_timer *timer)
{
	u64 now = scx_bpf_now(), gone;
	u32 slot;

	if (!in_round) {
		in_round = true;
		round_at = now;
		begin_round();
	}
	slot = next_vm();
	if (slot) {
		look_at(slot);
		bpf_timer_start(timer, SOON_NS, 0);
		return 0;
	}
	in_round = false;
	gone = now - round_at;
	bpf_timer_start(timer, look_ms * MS > gone + MS ? look_ms * MS - gone : MS, 0);
	return 0;
}

#define cpus_changed cpus_changed
static __always_inline void cpus_changed(void)
{
	nodes_cpus_changed();
}

#define prepare prepare
static __always_inline s32 prepare(void)
{
	s32 err = nodes_prepare();
	u32 zero = 0;
	struct timer *t;

	if (err)
		return err;
	t = bpf_map_lookup_elem(&looks, &zero);
	if (!t)
		return -ENOENT;
	bpf_timer_init(&t->timer, &looks, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, look_over);
	return bpf_timer_start(&t->timer, look_ms * MS, 0);
}

#include "credit/plain.bpf.h"

CREDIT_CALLBACKS(best_node)

void BPF_STRUCT_OPS(best_node_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	struct vcpu *v = vcpu_of(p);

	if (v)
		nodes_forget(v);
}

/* clang-format off */
SCX_OPS_DEFINE(best_node_ops,
	CREDIT_OPS(best_node),
	.set_cpumask		= (void *)best_node_set_cpumask,
	.name			= "best_node");
