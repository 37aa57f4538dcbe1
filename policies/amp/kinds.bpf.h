/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kinds of cores, from the fastest (0) to the slowest, and where in the round a vCPU is (D10).
 */
#ifndef __AMP_KINDS_BPF_H
#define __AMP_KINDS_BPF_H

static u32 nr_kinds;
static u32 speed_of_kind[MAX_KINDS]; /* 1024: the fastest the hardware can be */
static u32 cpus_of_kind[MAX_KINDS];  /* online */
static u64 round_at;		     /* when the present round began */
static u64 round_nr;		     /* rounds so far */
static u32 choices_of_upper;	     /* where the last search for an upper CPU ended */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_KINDS);
	__type(key, u32);
	__type(value, struct cpu_set);
} cpus_by_kind SEC(".maps");

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

/* Where v has a slot at this instant; NO_CPU: nowhere. */
static __always_inline s32 slot_of(struct vcpu *v, u64 now)
{
	u32 at = now - round_at, i;

	if (v->round != round_nr || !v->nr_pieces)
		return NO_CPU;
#pragma unroll
	for (i = 0; i < MAX_PIECES; i++)
		if (i < v->nr_pieces && v->pieces[i].from <= at && at < v->pieces[i].to)
			return v->pieces[i].cpu;
	return NO_CPU;
}

/* All that the round grants it is on upper CPUs: it waits there for its slot. */
static __always_inline bool upper_only(struct vcpu *v)
{
	return v->round == round_nr && v->nr_pieces && !v->room;
}

/* It has credit for upper CPUs left in this round. */
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
	return speed ?: 1;
}

/* One more speed; whether there is room for it. */
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
	return -E2BIG;
}

static __always_inline int find_kinds(void)
{
	struct cpu_set *set;
	struct pcpu *c;
	u32 cpu, i;
	s32 err = 0;

	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (!c)
			continue;
		c->number = cpu;
		c->speed = speed_of(cpu);
		if (add_kind(c->speed))
			err = -E2BIG;
	}
	if (err) {
		scx_bpf_error("more than %d kinds of cores: their speeds are capacities, 1024 the "
			      "fastest; make some alike, or set kinds_by",
			      MAX_KINDS);
		return err;
	}
	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (!c)
			continue;
		for (i = 0; i < MAX_KINDS; i++)
			if (i < nr_kinds && speed_of_kind[i] == c->speed)
				c->kind = i;
		set = kind_cpus(c->kind);
		if (set)
			put(set, cpu, true);
	}
	return 0;
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
