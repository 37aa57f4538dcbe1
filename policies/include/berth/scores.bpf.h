/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a vCPU gains from fast cores, as somebody says it, and what a policy has made of it.
 *
 *   berth_scores        thread id -> how many times as fast the vCPU is on the fastest kind of
 * cores as on the slowest, in thousandths. Filled by the loader (a scenario's vm.score, the agent's
 * `score`) for those of whom it is said; a policy measures the others. May change at any time.
 *   berth_scored_by_vm  slot of a VM -> by what its vCPUs were scored in the last window. Written
 * by the policy, read by the loader.
 */
#ifndef __BERTH_SCORES_BPF_H
#define __BERTH_SCORES_BPF_H

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u32);
} berth_scores SEC(".maps");

/* 24 bytes. All zero: no window is over yet, or none of its vCPUs was active in the last one. */
struct berth_scored {
	u32 window;	 /* number of the window that this is about */
	u32 score_milli; /* the VM's, the mean of its active vCPUs */
	u32 given;	 /* active vCPUs scored by the map, */
	u32 pmu;	 /* by performance counters, */
	u32 utilisation; /* by utilisation alone */
	u32 left_out;	 /* vCPUs of which the counters made no sense */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4097);
	__type(key, u32);
	__type(value, struct berth_scored);
} berth_scored_by_vm SEC(".maps");

/* The score that is said of a thread, in thousandths; 0: none is. */
static __always_inline u32 berth_score_of(u32 tid)
{
	u32 *said = bpf_map_lookup_elem(&berth_scores, &tid);

	return said ? *said : 0;
}

#endif
