/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a pCPU with nothing better takes a vCPU from another one, as Xen's credit scheduler does:
 * from busy ones, of its memory node first. On top of credit_core.bpf.h.
 *
 * The includer defines the parameters `migration_delay_us`, `cyclic_steal` and `soft_affinity`, and
 * counts `stolen`, `same_core`, `same_package` and `other_package`.
 */
#ifndef __BERTH_CREDIT_STEAL_BPF_H
#define __BERTH_CREDIT_STEAL_BPF_H

/* Take the first of peer's queue that is better than pri and may run on cpu. */
__noinline bool steal_from(s32 peer, s32 cpu, u32 pri, s32 node)
{
	u64 now = scx_bpf_now();
	struct task_struct *p;
	struct vcpu *v;
	bool taken = false;

	bpf_for_each(scx_dsq, p, peer, 0) {
		v = vcpu_of(p);
		if (!v)
			continue;
		if (v->pri >= pri)
			break;
		if (node >= 0 && v->node != node)
			continue;
		if (now - v->left_at < migration_delay_us * 1000 || !may_use(p, v, cpu))
			continue;
		taken = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		if (taken)
			break;
	}
	return taken;
}

static __always_inline void count_distance(s32 from, s32 to)
{
	struct berth_cpu *a = berth_cpu(from), *b = berth_cpu(to);

	berth_count(stolen);
	if (!a || !b)
		return;
	if (a->core == b->core)
		berth_count(same_core);
	else if (a->llc == b->llc)
		berth_count(same_package);
	else
		berth_count(other_package);
}

/* One look at all busy pCPUs: from the next number on, around. Of `node` only, unless negative;
 * with `home` vCPUs whose memory is there, unless negative. */
__noinline bool steal_around(s32 cpu, u32 pri, s32 start, s32 node, s32 home)
{
	const struct cpumask *idle;
	struct choice *s = choice_here();
	struct cpu_set *there = NULL;
	bool taken = false;
	s32 i, peer = start - 1;

	if (!s)
		return false;
	s->candidates = pri == OVER ? better_cpus : waiting_cpus;
	idle = scx_bpf_get_idle_cpumask();
	read_mask(&s->idle, idle);
	scx_bpf_put_idle_cpumask(idle);
	drop_both(&s->candidates, &s->idle);
	put(&s->candidates, cpu, false);
	if (node >= 0)
		there = node_cpus(node);
	if (there)
		keep_both(&s->candidates, there);
	if (peer < 0)
		peer = berth_nr_cpus - 1;
	bpf_for(i, 0, berth_nr_cpus) {
		peer = next_in(&s->candidates, peer);
		if (peer < 0)
			break;
		put(&s->candidates, peer, false);
		taken = steal_from(peer, cpu, pri, home);
		if (taken) {
			count_distance(peer, cpu);
			break;
		}
		found_nothing(peer, pri);
	}
	return taken;
}

static __always_inline bool balance_to(struct pcpu *c, s32 cpu, u32 pri)
{
	struct berth_cpu *topo = berth_cpu(cpu);
	bool taken = false;
	s32 own = topo ? topo->node : 0, i;

	if (waiting <= 0)
		return false;
	if (cyclic_steal)
		return steal_around(cpu, pri, cpu + 1, -1, -1);
	if (berth_nr_nodes < 2)
		return steal_around(cpu, pri, 0, -1, -1);
	/* First vCPUs whose memory is here, of all nodes, then anybody. */
	bpf_for(i, 0, 2 * berth_nr_nodes) {
		s32 node = (own + i) % berth_nr_nodes;
		bool home_step = i < berth_nr_nodes;

		if (home_step && !(soft_affinity && some_home))
			continue;
		taken = steal_around(cpu, pri, 0, node, home_step ? own : -1);
		if (taken)
			break;
	}
	return taken;
}

#endif
