/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counters of a policy, one copy per CPU, added up by the reader.
 *
 *	struct berth_stats {
 *		u64 idle;	// started at once on an idle CPU
 *		u64 preempted;
 *	};
 *	BERTH_STATS;
 *	...
 *	berth_count(idle);
 *
 * The reader takes the names from the BTF of the value type of the map `berth_stats`; every member
 *is a u64 that only grows.
 */
#ifndef __BERTH_STATS_BPF_H
#define __BERTH_STATS_BPF_H

#define BERTH_STATS                                                                                \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                                           \
		__uint(max_entries, 1);                                                            \
		__type(key, u32);                                                                  \
		__type(value, struct berth_stats);                                                 \
	} berth_stats SEC(".maps")

#define berth_count(field)                                                                         \
	do {                                                                                       \
		u32 __zero = 0;                                                                    \
		struct berth_stats *__s = bpf_map_lookup_elem(&berth_stats, &__zero);              \
		if (__s)                                                                           \
			__s->field++;                                                              \
	} while (0)

#endif
