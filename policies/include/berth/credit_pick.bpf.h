/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a vCPU goes: Credit's search for a better pCPU, and the first placement. "Package" is what
 * shares a last-level cache.
 */
#ifndef __BERTH_CREDIT_PICK_BPF_H
#define __BERTH_CREDIT_PICK_BPF_H

#define MASK_WORDS 16 /* 1024 pCPUs */

/* Sets of pCPUs while one is chosen. Used by one decision of a CPU at a time; an interrupt in
 * between costs a worse choice. */
struct choice {
	u64 candidates[MASK_WORDS];
	u64 idle[MASK_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct choice);
} choices_by_cpu SEC(".maps");

static __always_inline bool has(const u64 *words, u32 cpu)
{
	return words[cpu / 64 % MASK_WORDS] >> cpu % 64 & 1;
}

static __always_inline void put(u64 *words, u32 cpu, bool in)
{
	if (in)
		words[cpu / 64 % MASK_WORDS] |= 1ULL << cpu % 64;
	else
		words[cpu / 64 % MASK_WORDS] &= ~(1ULL << cpu % 64);
}

/* First member after cpu, around; NO_CPU: the set is empty. */
__noinline s32 next_in(struct choice *s, u32 cpu)
{
	s32 found = NO_CPU, i;

	if (!s)
		return found;
	bpf_for(i, 1, berth_nr_cpus + 1) {
		u32 at = (cpu + i) % berth_nr_cpus;

		if (has(s->candidates, at)) {
			found = at;
			break;
		}
	}
	return found;
}

/* The next pCPU of the core, or of the package. */
static __always_inline u32 neighbour(u32 cpu, bool package)
{
	struct berth_cpu *topo = berth_cpu(cpu);
	u32 next;

	if (!topo)
		return cpu;
	next = topo->next_in_core;
	barrier_var(
		next); /* or clang chooses the address by arithmetic, which the verifier refuses */
	if (package)
		next = topo->next_in_llc;
	return next;
}

/* How many of cpu's core or package are idle. */
__noinline u32 count_idle(struct choice *s, u32 cpu, bool package)
{
	u32 at = cpu, n = 0;
	s32 i;

	if (!s)
		return 0;
	bpf_for(i, 0, berth_nr_cpus) {
		n += has(s->idle, at);
		at = neighbour(at, package);
		if (at == cpu)
			break;
	}
	return n;
}

/* Take cpu's core or package out of the candidates; with `idle_only`, its idle members. */
__noinline int remove_from(struct choice *s, u32 cpu, bool package, bool idle_only)
{
	u32 at = cpu;
	s32 i;

	if (!s)
		return 0;
	bpf_for(i, 0, berth_nr_cpus) {
		if (!idle_only || has(s->idle, at))
			put(s->candidates, at, false);
		at = neighbour(at, package);
		if (at == cpu)
			break;
	}
	return 0;
}

/* First candidate of cpu's core or package after `bias`, around. */
__noinline s32 first_after(struct choice *s, u32 cpu, bool package, u32 bias)
{
	s32 after = NO_CPU, lowest = NO_CPU, i;
	u32 at = cpu;

	if (!s)
		return lowest;
	bpf_for(i, 0, berth_nr_cpus) {
		if (has(s->candidates, at)) {
			if (lowest < 0 || at < lowest)
				lowest = at;
			if (at > bias && (after < 0 || at < after))
				after = at;
		}
		at = neighbour(at, package);
		if (at == cpu)
			break;
	}
	return after >= 0 ? after : lowest;
}

/* Candidates and idle pCPUs for p; `node` -1: anywhere. */
static __always_inline void gather(struct choice *s, struct task_struct *p, struct vcpu *v,
				   const struct cpumask *idle, s32 node)
{
	struct berth_cpu *topo;
	struct pcpu *c;
	s32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		bool is_idle = bpf_cpumask_test_cpu(cpu, idle);
		bool in = false;

		c = pcpu_at(cpu);
		topo = berth_cpu(cpu);
		if (c && topo && c->online)
			in = (node < 0 || topo->node == node) && may_use(p, v, cpu);
		/* Its own place counts as idle if nobody else waits there. */
		if (cpu == v->cpu && (old_pick || scx_bpf_dsq_nr_queued(cpu) <= 0))
			is_idle = true;
		put(s->idle, cpu, is_idle);
		put(s->candidates, cpu, in);
	}
}

/* One step of the search among the gathered. */
__noinline s32 pick_among(struct choice *s, u32 home)
{
	u32 cpu = home, a, b, winner = 0;
	bool moved = false;
	struct pcpu *c;
	s32 i, nxt;

	if (!s)
		return NO_CPU;
	if (!has(s->candidates, cpu)) {
		nxt = next_in(s, cpu);
		if (nxt < 0)
			return NO_CPU;
		cpu = nxt;
	}
	bpf_for(i, 0, MASK_WORDS) {
		s->candidates[i % MASK_WORDS] &= s->idle[i % MASK_WORDS];
	}
	if (!has(s->candidates, cpu)) {
		nxt = next_in(s, cpu);
		if (nxt >= 0)
			cpu = nxt;
	}
	put(s->candidates, cpu, false);
	bpf_for(i, 0, berth_nr_cpus) {
		bool package;

		nxt = next_in(s, cpu);
		if (nxt < 0)
			break;
		package = berth_llc(cpu) != berth_llc(nxt);
		a = count_idle(s, cpu, package);
		b = count_idle(s, nxt, package);
		if (package && !old_pick)
			a *= 2;
		if (a < b) {
			c = pcpu_at(nxt);
			winner = nxt;
			moved = true;
			cpu = nxt;
			if (c && !old_pick) {
				nxt = first_after(s, nxt, package, c->idle_bias);
				if (nxt >= 0)
					cpu = nxt;
			}
			remove_from(s, cpu, false, false);
		} else {
			remove_from(s, nxt, package, true);
			put(s->candidates, nxt, false);
		}
	}
	c = pcpu_at(winner);
	if (moved && c)
		c->idle_bias = cpu;
	return cpu;
}

/* The pCPU p would best run on now; its own on ties. */
static __noinline s32 pick_cpu(struct task_struct *p, struct vcpu *v)
{
	u32 here = bpf_get_smp_processor_id();
	const struct cpumask *idle;
	struct choice *s;
	s32 cpu = NO_CPU;

	if (!p || !v)
		return NO_CPU;
	s = bpf_map_lookup_elem(&choices_by_cpu, &here);
	if (!s)
		return v->cpu;
	idle = scx_bpf_get_idle_cpumask();
	if (bpf_cpumask_empty(idle))
		goto out;
	if (soft_affinity && v->node >= 0 && berth_nr_nodes > 1) {
		gather(s, p, v, idle, v->node);
		cpu = pick_among(s, v->cpu);
		if (cpu >= 0 && has(s->idle, cpu))
			goto out;
	}
	gather(s, p, v, idle, NO_CPU);
	cpu = pick_among(s, v->cpu);
out:
	scx_bpf_put_idle_cpumask(idle);
	return cpu < 0 ? v->cpu : cpu;
}

/*
 * v is a vCPU and has had no first placement. A hypervisor's thread becomes a vCPU after it has
 * run: it is born as any thread, and its label comes later. (In Xen it is born as one.)
 */
static __always_inline bool unplaced(struct vcpu *v)
{
	return !v->placed && v->slot != HOST && v->role == BERTH_ROLE_VCPU;
}

/* First placement: vCPU 0 of a domain on the pCPU with the fewest, the others around after it. */
static __noinline s32 place(struct task_struct *p, struct vcpu *v, s32 prev)
{
	struct pcpu *c, *best = NULL;
	s32 cpu, found = NO_CPU, i;
	struct domain *d;

	if (!p || !v)
		return prev;
	d = domain_at(v->slot);
	if (!d)
		return prev;
	bpf_for(i, 1, berth_nr_cpus + 1) {
		cpu = d->last_cpu ? (d->last_cpu - 1 + i) % berth_nr_cpus : i - 1;
		c = pcpu_at(cpu);
		if (!c || !c->online || !may_use(p, v, cpu))
			continue;
		if (d->last_cpu || !best || c->placed <= best->placed) {
			best = c;
			found = cpu;
		}
		if (d->last_cpu)
			break;
	}
	if (found < 0 || !best)
		return prev;
	__sync_fetch_and_add(&best->placed, 1);
	d->last_cpu = found + 1;
	v->placed = found + 1;
	return found;
}

#endif
