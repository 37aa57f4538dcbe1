/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Performance counters of the executing CPU: retired instructions and unhalted cycles.
 *
 * The loader opens one event of each for every CPU and puts it into the map at the CPU's number;
 * the simulator has them on a host with `pmu = true`. They count whatever runs there: what a thread
 * did is the difference between two readings while it had the CPU, which is what "saved and
 * restored at context switches" comes to. Where nobody has opened events, reading is an error: do
 * without.
 */
#ifndef __BERTH_PMU_BPF_H
#define __BERTH_PMU_BPF_H

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} berth_instructions_by_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} berth_cycles_by_cpu SEC(".maps");

/* As the helper writes it, in every kernel: struct bpf_perf_event_value. */
struct berth_perf_value {
	u64 counter;
	u64 enabled_ns;
	u64 running_ns;
};

struct berth_counts {
	u64 instructions;
	u64 cycles;
};

/* What the CPU that executes this has counted so far; a negative error if it counts nothing. */
static __always_inline long berth_read_counts(struct berth_counts *out)
{
	struct berth_perf_value value;
	long err;

	err = bpf_perf_event_read_value(&berth_instructions_by_cpu, BPF_F_CURRENT_CPU,
					(void *)&value, sizeof(value));
	if (err)
		return err;
	out->instructions = value.counter;
	err = bpf_perf_event_read_value(&berth_cycles_by_cpu, BPF_F_CURRENT_CPU, (void *)&value,
					sizeof(value));
	if (err)
		return err;
	out->cycles = value.counter;
	return 0;
}

#endif
