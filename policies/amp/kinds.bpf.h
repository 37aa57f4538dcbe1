/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kinds of cores, from the fastest (0) to the slowest, and where in the round a vCPU is (D10).
 */
#ifndef __AMP_KINDS_BPF_H
#define __AMP_KINDS_BPF_H

#define ROUND_NS   (tslice_ms * MS)
#define CREDIT_NS  (MS / CREDITS_PER_MS)
#define MOST_SPEED SCX_CPUPERF_ONE

static u32 nr_kinds;
static u32 speed_of_kind[MAX_KINDS];	 /* 1024: the fastest the hardware can be */
static u32 cpus_of_kind[MAX_KINDS];	 /* online */
static u64 round_at;			 /* when the present round began */
static u64 round_nr;			 /* rounds so far */
static u32 choices_of_upper;		 /* where the last search for an upper CPU ended */
static u32 choices_of_lower;		 /* and for one below the fastest */
static u32 fastest_alike, slowest_alike; /* of the kind that is being compared */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_KINDS);
	__type(key, u32);
	__type(value, struct cpu_set);
} cpus_by_kind SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_SPEED + 1);
	__type(key, u32);
	__type(value, u32);
} alike_by_speed SEC(".maps");

static __always_inline u32 slowest(void)
{
	return nr_kinds - 1;
}

static __always_inline struct cpu_set *kind_cpus(u32 kind)
{
	return bpf_map_lookup_elem(&cpus_by_kind, &kind);
}

static __always_inline bool is_upper(struct pcpu *c)
{
	return c->kind + 1 < nr_kinds;
}

/* Is it a vCPU of a VM, and not of dom0 or a thread that serves one (D13)? */
static __always_inline bool is_guest(struct vcpu *v)
{
	return v->slot != HOST && v->role == BERTH_ROLE_VCPU;
}

/* What Credit has granted v for this round, ns of it that it can use. Promised to vCPUs that may
 * run anywhere, and to no others. */
static __always_inline u64 granted(struct vcpu *v)
{
	struct domain *d = domain_at(v->slot);
	u64 ns;

	if (!d || !v->active || d->epoch != epoch || !v->wide || (v->flags & VF_PARKED))
		return 0;
	ns = (u64)d->share * CREDIT_NS;
	return exclusive || ns > ROUND_NS ? ROUND_NS : ns;
}

/* Where v has a slot at this instant; NO_CPU: nowhere. */
__noinline s32 slot_of(struct vcpu *v, u64 now)
{
	u32 at = now - round_at, i;

	if (!v || v->round != round_nr || !v->nr_pieces)
		return NO_CPU;
#pragma unroll
	for (i = 0; i < MAX_PIECES; i++)
		if (i < v->nr_pieces && v->pieces[i].from <= at && at < v->pieces[i].to)
			return v->pieces[i].cpu;
	return NO_CPU;
}

/* All that the round grants it is on the fastest CPUs: it waits there for its slot. */
static __always_inline bool fast_only(struct vcpu *v)
{
	return v->round == round_nr && v->nr_pieces && !v->below;
}

/* It has credit for the fastest CPUs left in this round. */
static __always_inline bool has_fast(struct vcpu *v)
{
	return v->round == round_nr && v->used < v->fast;
}

/* Speed of a CPU: what it can do, or what it does at its present frequency. */
static __always_inline u32 speed_of(s32 cpu)
{
	struct berth_cpu *topo = berth_cpu(cpu);
	u32 speed = topo && topo->capacity ? topo->capacity : SCX_CPUPERF_ONE;

	if (kinds_by == BY_FREQUENCY)
		speed = speed * scx_bpf_cpuperf_cur(cpu) / SCX_CPUPERF_ONE;
	return !speed ? 1 : speed < MOST_SPEED ? speed : MOST_SPEED;
}

static __always_inline u32 *alike_of(u32 speed)
{
	return bpf_map_lookup_elem(&alike_by_speed, &speed);
}

/* Below the slowest of a full table there is one more speed: of the five the two that are closest
 * to each other become one kind, with the speed of the faster. */
static __always_inline void merge_closest(u32 slowest_of_all)
{
	u32 i, next, apart, least = ~0, at = 0;

#pragma unroll
	for (i = 0; i < MAX_KINDS; i++) {
		next = i + 1 < MAX_KINDS ? speed_of_kind[i + 1] : slowest_of_all;
		apart = (speed_of_kind[i] - next) * 1024 / (speed_of_kind[i] ?: 1);
		if (apart < least) {
			least = apart;
			at = i;
		}
	}
#pragma unroll
	for (i = 1; i < MAX_KINDS; i++)
		if (i > at)
			speed_of_kind[i] =
				i + 1 < MAX_KINDS ? speed_of_kind[i + 1] : slowest_of_all;
}

/* Of each speed that a core has, that of the fastest core which is of one kind with it: neighbours
 * are alike, from the fastest down. One look at every CPU and one at every speed. */
__noinline int compare_speeds(void)
{
	u32 cpu, i, *alike;

	bpf_for(cpu, 0, berth_nr_cpus) {
		alike = alike_of(speed_of(cpu));
		if (alike)
			*alike = 1;
	}
	bpf_for(i, 0, MOST_SPEED) {
		alike = alike_of(MOST_SPEED - i);
		if (!alike || !*alike)
			continue;
		if ((MOST_SPEED - i) * 100 < slowest_alike * BERTH_ALIKE_PERCENT || !slowest_alike)
			fastest_alike = MOST_SPEED - i;
		slowest_alike = MOST_SPEED - i;
		*alike = fastest_alike;
	}
	return 0;
}

/* One more speed. */
__noinline int add_kind(u32 speed)
{
	u32 i, here;

	for (i = 0; i < MAX_KINDS; i++) {
		if (i >= nr_kinds) {
			speed_of_kind[i] = speed;
			nr_kinds++;
			return 0;
		}
		here = speed_of_kind[i];
		if (here == speed)
			return 0;
		if (here < speed) {
			speed_of_kind[i] = speed;
			speed = here;
		}
	}
	merge_closest(speed);
	return 0;
}

static __always_inline u32 nearest_kind(u32 speed)
{
	u32 i, of, apart, least = ~0, nearest = 0;

#pragma unroll
	for (i = 0; i < MAX_KINDS; i++) {
		if (i >= nr_kinds)
			break;
		of = speed_of_kind[i];
		apart = of > speed ? of - speed : speed - of;
		if (apart < least) {
			least = apart;
			nearest = i;
		}
	}
	return nearest;
}

static __always_inline void find_kinds(void)
{
	struct cpu_set *set;
	u32 cpu, *alike;
	struct pcpu *c;

	compare_speeds();
	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (!c)
			continue;
		c->number = cpu;
		c->speed = speed_of(cpu);
		/* 0: its frequency has changed meanwhile. */
		alike = alike_of(c->speed);
		if (alike && *alike)
			c->speed = *alike;
		add_kind(c->speed);
	}
	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (!c)
			continue;
		c->kind = nearest_kind(c->speed);
		set = kind_cpus(c->kind);
		if (set)
			put(set, cpu, true);
	}
}

static __always_inline void count_kinds(void)
{
	struct cpu_set *set;
	u32 i;

	for (i = 0; i < MAX_KINDS; i++) {
		set = kind_cpus(i);
		if (set)
			cpus_of_kind[i] = count_both(set, &online_cpus);
	}
}

/* The next online CPU of a kind after cpu; NO_CPU: cpu was the last. */
__noinline s32 next_of_kind(u32 kind, s32 cpu)
{
	struct pcpu *c;
	s32 i, found = NO_CPU;

	bpf_for(i, cpu + 1, berth_nr_cpus) {
		c = pcpu_at(i);
		if (c && c->online && c->kind == kind) {
			found = i;
			break;
		}
	}
	return found;
}

#endif
