/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The arithmetic of policies/study/o1.bpf.c: time slices, the bonus that sleep earns, and who is
 * interactive.
 *
 * The includer has declared its parameters and struct entity (static_prio, prio, sleep_avg,
 * sleep_type, timestamp, left_ns).
 */
#ifndef __O1_BONUS_BPF_H
#define __O1_BONUS_BPF_H

#define BONUSES	     10 /* MAX_BONUS: steps of sleep_avg */
#define FIRST_NORMAL 100
#define LAST_NORMAL  139
#define NO_PRIO	     140

/* What a thread's last wait was; SLEEP_NORMAL: it has run since. */
enum { SLEEP_NORMAL, SLEEP_NONINTERACTIVE, SLEEP_INTERACTIVE, SLEEP_INTERRUPTED };

static __always_inline u64 sleep_max_ns(void)
{
	return sleep_max_ms * 1000000;
}

/* ns in which slices are counted: a tick, or 1 where slices end exactly. */
static __always_inline u64 unit_ns(void)
{
	return berth_hz ? tick_ns : 1;
}

/* Whole units, at least one. */
static __always_inline u64 units(u64 us)
{
	return us * 1000 / unit_ns() ?: 1;
}

/* Time slice of a static priority, ns: 5 ms at least. */
static __always_inline u64 slice_of(u32 static_prio)
{
	u64 base = slice_us * 1000 / unit_ns(), least = units(LEAST_SLICE_US), slice;

	slice = (static_prio < 120 ? 4 : 1) * base * (NO_PRIO - static_prio) / 20;
	return (slice > least ? slice : least) * unit_ns();
}

/* CURRENT_BONUS: 0 for who never sleeps, to 10. */
static __always_inline u32 bonus_of(struct entity *e)
{
	return interactivity ? e->sleep_avg * BONUSES / sleep_max_ns() : BONUSES / 2;
}

static __always_inline u32 effective_prio(struct entity *e)
{
	s32 prio = (s32)e->static_prio - (s32)bonus_of(e) + BONUSES / 2;

	return prio < FIRST_NORMAL ? FIRST_NORMAL : prio > LAST_NORMAL ? LAST_NORMAL : prio;
}

/* DELTA: by how much prio must be better than static_prio. */
static __always_inline s32 delta_of(struct entity *e)
{
	return (s32)((e->static_prio - FIRST_NORMAL) * BONUSES / 40) - BONUSES / 2 +
	       (s32)interactive_delta;
}

/* TASK_INTERACTIVE */
static __always_inline bool interactive(struct entity *e)
{
	return interactivity && (s32)e->prio <= (s32)e->static_prio - delta_of(e);
}

/* INTERACTIVE_SLEEP: the most that one long sleep earns, ns. */
static __always_inline u64 ceiling_of(struct entity *e)
{
	s32 steps = BONUSES / 2 + delta_of(e) + 1;

	return steps > 0 ? sleep_max_ns() * (u32)steps / BONUSES - unit_ns() : 0;
}

/* TIMESLICE_GRANULARITY: run time after which an interactive thread lets its equals run, ns. */
static __always_inline u64 granularity_of(struct entity *e)
{
	u32 bonus = bonus_of(e), steps = bonus < BONUSES ? BONUSES - bonus : 1;

	return (units(granularity_us) << (steps - 1)) * berth_nr_cpus * unit_ns();
}

/* It has slept, or waited for a CPU, for `ns`: sleep_avg and prio. */
static __always_inline void credit_sleep(struct entity *e, u64 ns, bool kernel_thread)
{
	u64 ceiling = ceiling_of(e);

	if (ns && !kernel_thread && ns > ceiling) {
		if (e->sleep_avg < ceiling)
			e->sleep_avg = ceiling;
		e->sleep_type = SLEEP_NONINTERACTIVE;
	} else if (ns) {
		if (e->sleep_type == SLEEP_NONINTERACTIVE && !kernel_thread) {
			if (e->sleep_avg >= ceiling) {
				ns = 0;
			} else if (e->sleep_avg + ns >= ceiling) {
				e->sleep_avg = ceiling;
				ns = 0;
			}
		}
		e->sleep_avg += ns;
	}
	if (e->sleep_avg > sleep_max_ns())
		e->sleep_avg = sleep_max_ns();
	e->prio = effective_prio(e);
}

/* It has had the CPU since `timestamp`: what that costs. */
static __always_inline void charge_run(struct entity *e, u64 now)
{
	u64 ran = now - e->timestamp;
	u32 bonus = bonus_of(e);

	if (ran > sleep_max_ns())
		ran = sleep_max_ns();
	ran /= bonus ?: 1;
	e->sleep_avg -= ran < e->sleep_avg ? ran : e->sleep_avg;
	e->timestamp = now;
}

/* A child has this part (percent) of its parent's bonus, in whole steps. */
static __always_inline u64 inherited(struct entity *e, u32 percent)
{
	return e->sleep_avg * BONUSES / sleep_max_ns() * percent / 100 * (sleep_max_ns() / BONUSES);
}

#endif
