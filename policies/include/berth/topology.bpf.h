/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The machine as a policy sees it, filled by the loader before the policy starts.
 *
 * Maps sized by the machine. A map whose name ends in _by_cpu, _by_llc, _by_node or _by_vm is an
 * array indexed by CPU number, LLC number, NUMA node or VM slot. Its max_entries in the source is
 * an upper limit that works as it is; Berth's loader lowers or raises it to the number of possible
 * CPUs, LLCs, nodes or VM slots before loading.
 *
 * Numbers are dense: LLCs 0..berth_nr_llcs-1 and nodes 0..berth_nr_nodes-1 in order of their first
 * CPU. A CPU that is offline when the policy loads belongs to LLC 0, node 0 and is a ring of one,
 * unless the loader knows better.
 */
#ifndef __BERTH_TOPOLOGY_BPF_H
#define __BERTH_TOPOLOGY_BPF_H

/* Written before load by name; 1 is a machine with nothing to tell apart. */
const volatile u32 berth_nr_cpus = 1; /* possible CPU numbers, holes included */
const volatile u32 berth_nr_llcs = 1;
const volatile u32 berth_nr_nodes = 1;

/* 24 bytes. The two rings visit each online CPU of the LLC or core once and come back; alone, a CPU
 * is its own next. */
struct berth_cpu {
	u32 llc;
	u32 node;
	u32 core;	  /* lowest CPU number among its SMT siblings */
	u32 next_in_llc;  /* ring of the CPUs sharing the LLC, by ascending number */
	u32 next_in_core; /* ring of the SMT siblings */
	u32 capacity;	  /* of the core type: 1024 is the fastest of the machine */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct berth_cpu);
} berth_topology_by_cpu SEC(".maps");

static __always_inline struct berth_cpu *berth_cpu(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&berth_topology_by_cpu, &key);
}

/* LLC of a CPU; 0 for a CPU the loader did not describe. */
static __always_inline u32 berth_llc(s32 cpu)
{
	struct berth_cpu *c = berth_cpu(cpu);

	return c ? c->llc : 0;
}

/* Cores of one kind are not exactly alike, favoured ones are faster. Another kind begins where the
 * next slower core has less of a core's capacity than this: as in Berth's map of hosts. */
#define BERTH_ALIKE_PERCENT 90

#endif
