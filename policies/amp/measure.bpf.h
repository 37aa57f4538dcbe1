/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a vCPU did in a window, and the score that follows: how much it would gain from fast cores.
 */
#ifndef __AMP_MEASURE_BPF_H
#define __AMP_MEASURE_BPF_H

#define ONE 1000000 /* parts per million */

static u64 interval_at; /* when the present interval should have begun, */
static u64 window_at;	/* and when its window did: with a round */
static bool window_closed;
static bool planned; /* there has been a window: scores mean something */

/* Read the counters of c, which executes this; what they counted since the last time is v's. Asked
 * where a vCPU stops or goes on, never by timers: a program that may sleep, as ops.init which sets
 * them up, may not use these maps. */
static __noinline int sample(struct vcpu *v, struct pcpu *c)
{
	struct berth_counts counts;
	u32 kind;

	if (!v || !c || bpf_get_smp_processor_id() != c->number)
		return 0;
	if (berth_read_counts(&counts)) {
		c->counted = 0;
		return 0;
	}
	kind = c->kind & (MAX_KINDS - 1);
	if (c->counted) {
		v->instructions[kind] += counts.instructions - c->instructions;
		v->cycles[kind] += counts.cycles - c->cycles;
	}
	c->instructions = counts.instructions;
	c->cycles = counts.cycles;
	c->counted = 1;
	return 0;
}

/* c begins with another vCPU. */
static __always_inline void restart_counts(struct pcpu *c)
{
	struct berth_counts counts;

	c->counted = bpf_get_smp_processor_id() == c->number && !berth_read_counts(&counts);
	if (!c->counted)
		return;
	c->instructions = counts.instructions;
	c->cycles = counts.cycles;
}

/* D3: a new sample of v's IPC, or of what stands for it. */
static __always_inline void filter(struct vcpu *v, u64 s)
{
	u64 level = v->level, rejected = v->rejected;
	u64 off = s > level ? s - level : level - s;
	u64 again = s > rejected ? s - rejected : rejected - s;

	if (!level || off * 100 <= filter_percent * level ||
	    (rejected && again * 100 <= filter_percent * rejected)) {
		v->level = s;
		v->rejected = 0;
	} else {
		v->rejected = s;
	}
}

/* Part of its time on the slowest kind that a vCPU computes, ppm, from its instructions per cycle:
 * x = y speed / (1 + (speed - 1) y), both relative to the slowest (D16). */
static __always_inline u64 computes(struct vcpu *v, u32 kind)
{
	u64 speed = (u64)speed_of_kind[kind] * 1000 / (speed_of_kind[slowest() & 3] ?: 1);
	u64 y = v->instructions[kind] * 1000 / (v->cycles[kind] / 1000 ?: 1) * 1000 / ipc_ref_milli;
	u64 x = speed * y / (1000 + (speed - 1000) * y / ONE ?: 1);

	return x < ONE ? x : ONE;
}

/* The window's sample: IPC, ppm (literal), or the mean of computes() by cycles; 0: no cycles. */
static __always_inline u64 sampled(struct vcpu *v)
{
	u64 instructions = 0, cycles = 0, x = 0;
	u32 i;

	for (i = 0; i < MAX_KINDS; i++) {
		if (i >= nr_kinds || v->cycles[i] < 1000)
			continue;
		instructions += v->instructions[i];
		cycles += v->cycles[i];
		x += computes(v, i) * (v->cycles[i] / 1000);
	}
	if (!cycles)
		return 0;
	if (efficiency == LITERAL)
		return instructions * 1000 / (cycles / 1000 ?: 1) ?: 1;
	return x / (cycles / 1000 ?: 1) ?: 1;
}

/* How many times as fast on the fastest kind, ppm: e = 1 / (1 - (1 - 1 / speed) x), then for the
 * part u of the time that it wants a CPU, 1 / (1 - u + u / e) (D16). */
static __always_inline u64 estimate(u64 x, u64 u)
{
	u64 speed = (u64)speed_of_kind[0] * 1000 / (speed_of_kind[slowest() & 3] ?: 1);
	u64 per_e = ONE - x * (speed - 1000) / (speed ?: 1); /* 1 / e */
	u64 per = ONE - u + u * per_e / ONE;

	return (u64)ONE * ONE / (per ?: 1);
}

/* v's score of the window of this length, for the next plan; 0: it was not active (D4d). */
static __always_inline void score(struct vcpu *v, u64 window)
{
	u64 u, s = sampled(v), wall = window;

	v->score_next = 0;
	if (utilisation == OF_WANTED)
		wall = v->waited < window ? window - v->waited : 1;
	if (s && score_by != BY_UTILISATION)
		filter(v, s);
	if (v->ran < active_ms * MS || !window)
		return;
	u = v->ran < wall ? v->ran * ONE / wall : ONE;
	if (score_by == BY_UTILISATION || !v->level) {
		v->score_next = u ?: 1;
		berth_count(scores_utilisation);
		return;
	}
	berth_count(scores_pmu);
	if (efficiency == LITERAL)
		v->score_next = v->level * u / ONE ?: 1;
	else
		v->score_next = estimate(v->level, u);
}

/* The window is over: scores from it. */
__noinline int close_window(u64 length)
{
	struct vcpu *v;
	u32 i;

	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (v && v->pid && is_guest(v))
			score(v, length);
	}
	return 0;
}

/* A new window: nothing measured yet. */
__noinline int open_window(void)
{
	struct vcpu *v;
	u32 i, k;

	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (!v)
			continue;
		v->ran = 0;
		v->waited = 0;
		for (k = 0; k < MAX_KINDS; k++) {
			v->instructions[k] = 0;
			v->cycles[k] = 0;
		}
	}
	return 0;
}

#endif
