/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a vCPU goes: Credit's search for a better pCPU, and the first placement. "Package" is what
 * shares a last-level cache.
 */
#ifndef __BERTH_CREDIT_PICK_BPF_H
#define __BERTH_CREDIT_PICK_BPF_H

static __always_inline struct cpu_set *package_cpus(u32 cpu)
{
	u32 llc = berth_llc(cpu);

	return bpf_map_lookup_elem(&cpus_by_llc, &llc);
}

/* cpu's core or package. */
__noinline int zone_of(struct cpu_set *zone, u32 cpu, bool package)
{
	struct cpu_set *there;
	struct berth_cpu *topo;
	u32 at = cpu;
	s32 i;

	if (!zone)
		return 0;
	if (package) {
		there = package_cpus(cpu);
		if (there)
			*zone = *there;
		return 0;
	}
	__builtin_memset(zone, 0, sizeof(*zone));
	bpf_for(i, 0, berth_nr_cpus) {
		put(zone, at, true);
		topo = berth_cpu(at);
		if (!topo)
			break;
		at = topo->next_in_core;
		if (at == cpu)
			break;
	}
	return 0;
}

/* How many of cpu's core or package are idle. */
__noinline u32 count_idle(struct choice *s, u32 cpu, bool package)
{
	if (!s)
		return 0;
	zone_of(&s->zone, cpu, package);
	return count_both(&s->zone, &s->idle);
}

/* Candidates and idle pCPUs for p; `node` -1: anywhere. */
static __always_inline void gather(struct choice *s, struct task_struct *p, struct vcpu *v,
				   const struct cpumask *idle, s32 node)
{
	struct cpu_set *there;

	usable(&s->candidates, p, v);
	keep_both(&s->candidates, &online_cpus);
	if (node >= 0) {
		there = node_cpus(node);
		if (there)
			keep_both(&s->candidates, there);
	}
	read_mask(&s->idle, idle);
	/* Its own place counts as idle if nobody else waits there. */
	if (old_pick || scx_bpf_dsq_nr_queued(v->cpu) <= 0)
		put(&s->idle, v->cpu, true);
}

/* One step of the search among the gathered. */
__noinline s32 pick_among(struct choice *s, u32 home)
{
	u32 cpu = home, a, b, winner = 0, from;
	bool moved = false;
	struct pcpu *c;
	s32 i, nxt;

	if (!s)
		return NO_CPU;
	if (!has(&s->candidates, cpu)) {
		nxt = next_in(&s->candidates, cpu);
		if (nxt < 0)
			return NO_CPU;
		cpu = nxt;
	}
	keep_both(&s->candidates, &s->idle);
	if (!has(&s->candidates, cpu)) {
		nxt = next_in(&s->candidates, cpu);
		if (nxt >= 0)
			cpu = nxt;
	}
	put(&s->candidates, cpu, false);
	from = cpu;
	bpf_for(i, 0, berth_nr_cpus) {
		bool package;

		/* Whoever lies between cpu and `from` is no candidate any more. */
		nxt = next_in(&s->candidates, from);
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
				/* `zone` is nxt's still. */
				keep_both(&s->zone, &s->candidates);
				nxt = next_in(&s->zone, c->idle_bias);
				if (nxt >= 0)
					cpu = nxt;
			}
			zone_of(&s->zone, cpu, false);
			drop_both(&s->candidates, &s->zone);
			from = cpu;
		} else {
			/* The zone is nxt's still. */
			keep_both(&s->zone, &s->idle);
			drop_both(&s->candidates, &s->zone);
			put(&s->candidates, nxt, false);
			from = nxt;
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
	const struct cpumask *idle;
	struct choice *s;
	s32 cpu = NO_CPU;

	if (!p || !v)
		return NO_CPU;
	s = choice_here();
	if (!s)
		return v->cpu;
	idle = scx_bpf_get_idle_cpumask();
	if (bpf_cpumask_empty(idle))
		goto out;
	if (soft_affinity && v->node >= 0 && berth_nr_nodes > 1) {
		gather(s, p, v, idle, v->node);
		cpu = pick_among(s, v->cpu);
		if (cpu >= 0 && has(&s->idle, cpu))
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
