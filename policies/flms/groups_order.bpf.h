/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The order in which pCPUs become members of SP (D2). `prefix`: by package, core, thread, so that
 * growth moves one boundary pCPU and siblings mostly stay together. `spread`: by thread, core,
 * package, so that SP has a part of each package first. On top of groups.bpf.h.
 */
#ifndef __FLMS_GROUPS_ORDER_BPF_H
#define __FLMS_GROUPS_ORDER_BPF_H

enum sp_order { PREFIX, SPREAD };

/* What a pCPU is sorted by, and while that is done. */
enum sort_key { BY_PACKAGE, BY_CORE, BY_THREAD, KEYS };

struct place_in_order {
	u32 keys[KEYS]; /* package; core in the package; thread in the core */
	u32 cpu;	/* the order so far: who comes at this place */
	u32 next;	/* the order after this pass */
	u32 count;	/* of members with a key; then where the next of them goes */
	u32 cores;	/* seen of a package */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct place_in_order);
} order_by_cpu SEC(".maps");

static __always_inline struct place_in_order *order_at(u32 place)
{
	return bpf_map_lookup_elem(&order_by_cpu, &place);
}

/* The keys of all pCPUs, and the order by number. Cores are met at their lowest pCPU. */
__noinline int number_cpus(void)
{
	struct place_in_order *mine, *package, *first;
	struct berth_cpu *topo;
	u32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		mine = order_at(cpu);
		if (mine)
			__builtin_memset(mine, 0, sizeof(*mine));
	}
	bpf_for(cpu, 0, berth_nr_cpus) {
		mine = order_at(cpu);
		topo = berth_cpu(cpu);
		package = topo ? order_at(topo->llc) : NULL;
		first = topo ? order_at(topo->core) : NULL;
		if (!mine || !package || !first)
			continue;
		mine->cpu = cpu;
		mine->keys[BY_PACKAGE] = topo->llc;
		if (topo->core == cpu)
			mine->keys[BY_CORE] = package->cores++;
		else
			mine->keys[BY_CORE] = first->keys[BY_CORE];
		mine->keys[BY_THREAD] = first->count++;
	}
	return 0;
}

/* One pass of a sort that keeps equals in order: by this key. */
__noinline int sort_cpus_by(u32 key)
{
	struct place_in_order *at, *whose, *to;
	u32 place, sum = 0;

	if (key >= KEYS)
		return 0;
	bpf_for(place, 0, berth_nr_cpus) {
		at = order_at(place);
		if (at)
			at->count = 0;
	}
	bpf_for(place, 0, berth_nr_cpus) {
		whose = order_at(place);
		to = whose ? order_at(whose->keys[key]) : NULL;
		if (to)
			to->count++;
	}
	bpf_for(place, 0, berth_nr_cpus) {
		at = order_at(place);
		if (!at)
			continue;
		sum += at->count;
		at->count = sum - at->count;
	}
	bpf_for(place, 0, berth_nr_cpus) {
		at = order_at(place);
		whose = at ? order_at(at->cpu) : NULL;
		to = whose ? order_at(whose->keys[key]) : NULL;
		whose = to ? order_at(to->count) : NULL;
		if (!at || !to || !whose)
			continue;
		to->count++;
		whose->next = at->cpu;
	}
	bpf_for(place, 0, berth_nr_cpus) {
		at = order_at(place);
		if (at)
			at->cpu = at->next;
	}
	return 0;
}

/* The rank of each online pCPU in the order. The most important key comes last. */
__noinline int rank_cpus(void)
{
	struct place_in_order *at;
	u32 place, rank = 0;
	struct pcpu *c;

	number_cpus();
	sort_cpus_by(sp_order == SPREAD ? BY_PACKAGE : BY_THREAD);
	sort_cpus_by(BY_CORE);
	sort_cpus_by(sp_order == SPREAD ? BY_THREAD : BY_PACKAGE);
	bpf_for(place, 0, berth_nr_cpus) {
		at = order_at(place);
		c = at ? pcpu_at(at->cpu) : NULL;
		if (!c || !c->online)
			continue;
		c->rank = rank++;
	}
	split = nr_online > 1;
	return 0;
}

#endif
