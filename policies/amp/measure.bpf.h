/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a vCPU did in a window, and the score that follows: how much it would gain from fast cores.
 */
#ifndef __AMP_MEASURE_BPF_H
#define __AMP_MEASURE_BPF_H

#define ONE	    1000000 /* parts per million */
#define MOST_CYCLES 10	    /* a ns; more is a counter that has jumped, as are */
#define MOST_IPC    16	    /* so many instructions a cycle */

static u64 interval_at; /* when the present interval should have begun, */
static u64 window_at;	/* and when its window did: with a round */
static bool window_closed;
static u32 window_nr; /* windows closed so far */
static bool planned;  /* there has been a window: scores mean something */

/* Can counters have counted so much in ns? A stay below a millisecond may be one of a few cycles,
 * and the clock is the run queue's, which is behind at times. */
static __always_inline bool plausible(u64 instructions, u64 cycles, u64 ns)
{
	if (cycles > (ns + MS) * MOST_CYCLES || instructions > (cycles + MS) * MOST_IPC)
		return false;
	return ns < MS || (cycles && instructions);
}

/* Read the counters of c, which executes this; what they counted since the last time is v's. Asked
 * where a vCPU stops or goes on, never by timers: a program that may sleep, as ops.init which sets
 * them up, may not use these maps. */
static __noinline int sample(struct vcpu *v, struct pcpu *c)
{
	u64 now = scx_bpf_now(), instructions, cycles;
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
		instructions = counts.instructions - c->instructions;
		cycles = counts.cycles - c->cycles;
		if (plausible(instructions, cycles, now - c->counted_at)) {
			v->instructions[kind] += instructions;
			v->cycles[kind] += cycles;
		} else {
			v->implausible = 1;
		}
	}
	c->instructions = counts.instructions;
	c->cycles = counts.cycles;
	c->counted_at = now;
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
	c->counted_at = scx_bpf_now();
}

/* D3: a new sample of v's IPC, or of what stands for it; of its utilisation (D4). */
__noinline int filter(struct vcpu *v, u64 s, bool of_use)
{
	u64 *level, *rejected;
	u64 off, again;

	if (!v)
		return 0;
	level = of_use ? &v->use_level : &v->level;
	rejected = of_use ? &v->use_rejected : &v->rejected;
	off = s > *level ? s - *level : *level - s;
	again = s > *rejected ? s - *rejected : *rejected - s;
	if (!*level || off * 100 <= filter_percent * *level ||
	    (*rejected && again * 100 <= filter_percent * *rejected)) {
		*level = s;
		*rejected = 0;
	} else {
		*rejected = s;
	}
	return 0;
}

/* Part of its time on the slowest kind that a vCPU computes, ppm, from its instructions per cycle:
 * x = y speed / (1 + (speed - 1) y), both relative to the slowest (D16). */
__noinline u64 computes(struct vcpu *v, u32 kind)
{
	u64 speed, y, x;

	if (!v || kind >= MAX_KINDS)
		return 0;
	speed = (u64)speed_of_kind[kind] * 1000 / (speed_of_kind[slowest() & 3] ?: 1);
	y = v->instructions[kind] * 1000 / (v->cycles[kind] / 1000 ?: 1) * 1000 / ipc_ref_milli;
	x = speed * y / (1000 + (speed - 1000) * y / ONE ?: 1);
	return x < ONE ? x : ONE;
}

/* The window's sample: IPC, ppm (literal), or the mean of computes() by cycles; 0: no cycles. */
__noinline u64 sampled(struct vcpu *v)
{
	u64 instructions = 0, cycles = 0, x = 0;
	u32 i;

	if (!v)
		return 0;
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

/* By what v's VM is scored in the window that has closed. */
static __always_inline struct berth_scored *scored_of(struct vcpu *v)
{
	u32 slot = v->slot;
	struct berth_scored *vm = bpf_map_lookup_elem(&berth_scored_by_vm, &slot);

	if (vm && vm->window != window_nr) {
		__builtin_memset(vm, 0, sizeof(*vm));
		vm->window = window_nr;
	}
	return vm;
}

/* One more of the VM's vCPUs has this score, ppm. */
static __always_inline void count_score(struct berth_scored *vm, u64 ppm)
{
	u32 before = vm->given + vm->pmu + vm->utilisation;

	vm->score_milli = ((u64)vm->score_milli * before + ppm / 1000) / (before + 1);
}

/* v's score of the window of this length, for the next plan; 0: it was not active (D4d). What is
 * said of it counts, else what was counted, else what it used: as if it never waited for memory. */
static __always_inline void score(struct vcpu *v, u64 window)
{
	u64 u, x, s = sampled(v), wall = window;
	struct berth_scored *vm = scored_of(v);
	u32 said = berth_score_of(v->pid);
	bool measured;

	v->score_next = 0;
	if (utilisation == OF_WANTED)
		wall = v->waited < window ? window - v->waited : 1;
	if (v->implausible) {
		s = 0;
		berth_count(windows_left_out);
		if (vm)
			vm->left_out++;
	}
	if (s && score_by != BY_UTILISATION)
		filter(v, s, false);
	v->wants = v->ran + v->waited < window ? (v->ran + v->waited) * ONE / window : ONE;
	if (v->ran < active_ms * MS || !window || !vm)
		return;
	u = v->ran < wall ? v->ran * ONE / wall : ONE;
	if (filter_of == OF_BOTH) {
		filter(v, u ?: 1, true);
		u = v->use_level;
	}
	measured = score_by != BY_UTILISATION && v->level;
	x = measured ? v->level : ONE;
	if (said)
		v->score_next = (u64)said * 1000;
	else
		v->score_next = efficiency == LITERAL ? x * u / ONE ?: 1 : estimate(x, u);
	v->speedup = (said ? v->score_next : estimate(x, ONE)) - ONE;
	count_score(vm, v->score_next);
	if (said) {
		vm->given++;
		berth_count(scores_given);
	} else if (measured) {
		vm->pmu++;
		berth_count(scores_pmu);
	} else {
		vm->utilisation++;
		berth_count(scores_utilisation);
	}
}

/* The window is over: scores from it. */
__noinline int close_window(u64 length)
{
	struct vcpu *v;
	u32 i;

	window_nr++;
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
		v->ran_fast = 0;
		v->waited = 0;
		v->sleeps = 0;
		v->implausible = 0;
		for (k = 0; k < MAX_KINDS; k++) {
			v->instructions[k] = 0;
			v->cycles[k] = 0;
		}
	}
	return 0;
}

#endif
