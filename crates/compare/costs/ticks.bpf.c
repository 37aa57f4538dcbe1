/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ticks: the kernel does what it does by default; when each CPU ticks is noted. For
 * `berth lab --measure-costs`: how even ticks are, and how those of two CPUs lie.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "No decision: notes when CPUs tick");

/* Ticks of 100, 250 and 1000 Hz are multiples of this apart. */
#define GRID	  1000000ULL
#define MOST_CPUS 8

struct berth_stats {
	u64 ticks;     /* with one before them on the same CPU */
	u64 uneven_ns; /* how far from a multiple of GRID after that one, sum */
	u64 others;    /* ticks of other CPUs than the first */
	u64 later_ns; /* after the first CPU's last one, GRID / 2 added, less multiples of GRID; sum
		       */
};
BERTH_STATS;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, u64);
} last SEC(".maps");

void BPF_STRUCT_OPS(ticks_tick, struct task_struct *p)
{
	u64 now = bpf_ktime_get_ns(), off;
	u32 cpu = bpf_get_smp_processor_id(), first = 0, zero = 0;
	u64 *mine = bpf_map_lookup_elem(&last, &cpu);
	u64 *theirs = bpf_map_lookup_elem(&last, &first);
	struct berth_stats *s = bpf_map_lookup_elem(&berth_stats, &zero);

	if (!mine || !theirs || !s)
		return;
	if (*mine) {
		off = (now - *mine) % GRID;
		s->ticks++;
		s->uneven_ns += off > GRID / 2 ? GRID - off : off;
	}
	if (cpu && *theirs) {
		s->others++;
		s->later_ns += (now - *theirs + GRID / 2) % GRID;
	}
	*mine = now;
}

void BPF_STRUCT_OPS(ticks_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(ticks_ops,
	.tick		= (void *)ticks_tick,
	.exit		= (void *)ticks_exit,
	.timeout_ms	= 20000,
	.name		= "ticks");
