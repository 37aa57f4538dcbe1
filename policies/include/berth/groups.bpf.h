/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Two groups of pCPUs for two kinds of vCPUs: SP, with a short slice, for those that serve I/O, LP,
 * with a long one, for those that compute. How many pCPUs each has follows the run time of both
 * kinds (FLMS, Journal of Software 28(2), 2017, equations 1 to 4). On top of credit.bpf.h.
 *
 * A vCPU of no kind, a thread of the host, runs anywhere. A vCPU whose own affinity leaves nothing
 * of its group uses its affinity (D17).
 *
 * Before credit.bpf.h the includer includes groups_fields.bpf.h and puts GROUP_VCPU in VCPU_MORE
 * and GROUP_PCPU in PCPU_MORE.
 */
#ifndef __BERTH_GROUPS_BPF_H
#define __BERTH_GROUPS_BPF_H

enum kind { ANY_KIND, IO_KIND, CPU_KIND };

static u64 groups_epoch = 1;
static u32 nr_short;	  /* pCPUs in SP: SPNum */
static bool split;	  /* there are groups: two pCPUs at least */
static u64 estimated_io;  /* ns a period, equation 1 */
static u64 estimated_cpu; /* equation 2 */
static s64 nr_io, nr_cpu; /* vCPUs of each kind */
static s64 weight_io, weight_cpu;

static __always_inline bool is_short(s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu);

	return split && c && c->short_slices;
}

/* cpu belongs to v's group. Until it is known that nothing of its group is left to v, it counts. */
static __always_inline bool in_group(struct vcpu *v, s32 cpu)
{
	if (!split || v->kind == ANY_KIND || (v->fits_epoch == groups_epoch && !v->fits))
		return true;
	return is_short(cpu) == (v->kind == IO_KIND);
}

/* Is anything of v's group left to p? To be called again when the groups or p's affinity change. */
static __noinline int fit(struct task_struct *p, struct vcpu *v)
{
	bool fits = false;
	struct pcpu *c;
	s32 cpu;

	if (!p || !v)
		return 0;
	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (!c || !c->online || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		fits = is_short(cpu) == (v->kind == IO_KIND);
		if (fits)
			break;
	}
	v->fits = fits;
	v->fits_epoch = groups_epoch;
	return 0;
}

/* Order of the online pCPUs by package, core, thread. */
__noinline int rank_cpus(void)
{
	struct berth_cpu *mine, *its;
	struct pcpu *c, *other;
	s32 cpu, i;

	bpf_for(cpu, 0, berth_nr_cpus) {
		u32 before = 0;

		c = pcpu_at(cpu);
		mine = berth_cpu(cpu);
		if (!c || !mine)
			continue;
		bpf_for(i, 0, berth_nr_cpus) {
			other = pcpu_at(i);
			its = berth_cpu(i);
			if (!other || !its || !other->online || i == cpu)
				continue;
			if (its->llc != mine->llc)
				before += its->llc < mine->llc;
			else if (its->core != mine->core)
				before += its->core < mine->core;
			else
				before += i < cpu;
		}
		c->rank = before;
	}
	split = nr_online > 1;
	return 0;
}

/* v is of this kind from now on; its share of its VM's weight counts there. Whether that changed.
 */
static __always_inline bool set_kind(struct vcpu *v, u32 kind, u64 weight)
{
	if (v->kind == kind && v->counted == weight)
		return false;
	if (v->kind == IO_KIND) {
		__sync_fetch_and_sub(&nr_io, 1);
		__sync_fetch_and_sub(&weight_io, v->counted);
	} else if (v->kind == CPU_KIND) {
		__sync_fetch_and_sub(&nr_cpu, 1);
		__sync_fetch_and_sub(&weight_cpu, v->counted);
	}
	if (kind == IO_KIND) {
		__sync_fetch_and_add(&nr_io, 1);
		__sync_fetch_and_add(&weight_io, weight);
	} else if (kind == CPU_KIND) {
		__sync_fetch_and_add(&nr_cpu, 1);
		__sync_fetch_and_add(&weight_cpu, weight);
	}
	v->kind = kind;
	v->counted = weight;
	v->fits_epoch = 0;
	return true;
}

/* D4: estimates from the weights of the vCPUs there are, scaled to all pCPUs for a period. */
static __always_inline void seed_estimates(u64 period_ns)
{
	u64 io = weight_io > 0 ? weight_io : 0, cpu = weight_cpu > 0 ? weight_cpu : 0;
	u64 all = nr_online * period_ns;
	s32 i;

	if (!(io + cpu))
		return;
	/* So that the product fits in 64 bits. */
	bpf_for(i, 0, 32) {
		if (io + cpu < 1 << 21)
			break;
		io /= 2;
		cpu /= 2;
	}
	estimated_io = all * io / (io + cpu);
	estimated_cpu = all - estimated_io;
}

/* Equations 1 and 2, alpha = 1/8. */
static __always_inline void update_estimates(void)
{
	u64 io = 0, cpu_ns = 0;
	struct pcpu *c;
	s32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (!c)
			continue;
		io += c->sample_io;
		cpu_ns += c->sample_cpu;
		c->sample_io = c->sample_cpu = 0;
	}
	estimated_io = (7 * estimated_io + io) / 8;
	estimated_cpu = (7 * estimated_cpu + cpu_ns) / 8;
}

/* Equation 3 with decision D3: rounding 0 to nearest (half up), 1 down, 2 up; then at least one
 * pCPU for each kind that exists. */
static __always_inline u32 short_cpus(void)
{
	u64 all = estimated_io + estimated_cpu, n = nr_short, part;

	if (nr_io <= 0)
		return 0;
	if (nr_cpu <= 0)
		return nr_online;
	if (all) {
		part = estimated_io * nr_online;
		if (rounding == 0)
			n = (2 * part + all) / (2 * all);
		else if (rounding == 1)
			n = part / all;
		else
			n = (part + all - 1) / all;
	}
	if (n < 1)
		n = 1;
	if (n > nr_online - 1)
		n = nr_online - 1;
	return n;
}

/* SP becomes the first n pCPUs; whether that changes anything. */
static __always_inline bool set_groups(u32 n)
{
	bool changed = false;
	struct pcpu *c;
	s32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		bool is;

		c = pcpu_at(cpu);
		if (!c)
			continue;
		is = c->online && c->rank < n;
		if (c->short_slices != is) {
			c->short_slices = is;
			changed = true;
		}
	}
	nr_short = n;
	if (changed)
		groups_epoch++;
	return changed;
}

#endif
