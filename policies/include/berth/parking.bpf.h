/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Timers of a policy, and the queue of those that wait until a limit on CPU time lets them run
 * again (berth/bandwidth.bpf.h).
 *
 * The includer numbers its timers before this header, GUARD_PARKED among them:
 *
 *	enum { GUARD_PARKED, GUARDS };
 *
 * makes the queue PARKED in `init`, and gives the timer GUARD_PARKED a callback that looks at
 *whoever is in it (or was left out for that reason) and ends with unparked(timer, next).
 */
#ifndef __BERTH_PARKING_BPF_H
#define __BERTH_PARKING_BPF_H

struct guard {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GUARDS);
	__type(key, u32);
	__type(value, struct guard);
} guards SEC(".maps");

static u64 parked_until; /* when the parked are next looked at */

#define PARKED (1ULL << 32)

/* Have the parked looked at when a period ends. */
static __always_inline void look_at(u64 until)
{
	u64 now = scx_bpf_now();
	u32 slot = GUARD_PARKED;
	struct guard *guard = bpf_map_lookup_elem(&guards, &slot);

	if (!guard ||
	    (parked_until && time_after(parked_until, now) && !time_before(until, parked_until)))
		return;
	parked_until = until;
	bpf_timer_start(&guard->timer, time_before(now, until) ? until - now : 1, 0);
}

/* The parked have been looked at; the first of those that stay may run again at next. 0: none. */
static __always_inline void unparked(struct bpf_timer *timer, u64 now, u64 next)
{
	parked_until = next;
	if (next)
		bpf_timer_start(timer, time_before(now, next) ? next - now : 1, 0);
}

#endif
