/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * On which nodes the memory of VMs is, and how often a CPU reads memory.
 *
 *   berth_memory_by_vm  slot of a VM -> struct berth_memory. Filled by whoever knows (the simulator
 *                       from a scenario's vm.memory; on a host, whoever reads numa_maps). All zero:
 *                       nothing is said.
 *
 * And two events of each CPU, opened and read like those of pmu.bpf.h: PERF_COUNT_HW_CACHE_NODE,
 * reads and misses of them, which perf calls node-loads and node-load-misses: reads of memory, and
 * those of them that went to another node.
 */
#ifndef __BERTH_MEMORY_BPF_H
#define __BERTH_MEMORY_BPF_H

#include "berth/pmu.bpf.h"

#define BERTH_MEMORY_NODES 16
#define BERTH_MEMORY_ALL   1000000 /* parts per million */

/* 64 bytes. */
struct berth_memory {
	u32 ppm[BERTH_MEMORY_NODES]; /* part on each node, in all BERTH_MEMORY_ALL */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4097);
	__type(key, u32);
	__type(value, struct berth_memory);
} berth_memory_by_vm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} berth_node_loads_by_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} berth_node_load_misses_by_cpu SEC(".maps");

struct berth_reads {
	u64 instructions;
	u64 loads;
	u64 remote; /* of them */
};

/* What the CPU that executes this has counted so far; a negative error if it counts nothing. Not
 * for programs that may sleep, nor for timers that such a program sets up. */
static __always_inline long berth_read_memory(struct berth_reads *out)
{
	struct berth_perf_value value;
	long err;

	err = bpf_perf_event_read_value(&berth_instructions_by_cpu, BPF_F_CURRENT_CPU,
					(void *)&value, sizeof(value));
	if (err)
		return err;
	out->instructions = value.counter;
	err = bpf_perf_event_read_value(&berth_node_loads_by_cpu, BPF_F_CURRENT_CPU, (void *)&value,
					sizeof(value));
	if (err)
		return err;
	out->loads = value.counter;
	err = bpf_perf_event_read_value(&berth_node_load_misses_by_cpu, BPF_F_CURRENT_CPU,
					(void *)&value, sizeof(value));
	if (err)
		return err;
	out->remote = value.counter;
	return 0;
}

#endif
