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
 * and GROUP_PCPU in PCPU_MORE, and defines the parameters `rounding`, `start`, `hysteresis`. Which
 * pCPUs come first is in groups_order.bpf.h.
 */
#ifndef __FLMS_GROUPS_BPF_H
#define __FLMS_GROUPS_BPF_H

enum kind { ANY_KIND, IO_KIND, CPU_KIND };
enum rounding { ROUND_NEAREST, ROUND_DOWN, ROUND_UP };
enum start { WEIGHTS, ZERO };

static u64 groups_epoch = 1;
static struct cpu_set short_cpus; /* SP */
static u32 nr_short;		  /* pCPUs in SP: SPNum */
static bool split;		  /* there are groups: two pCPUs at least */
static u64 estimated_io;	  /* ns a period, equation 1 */
static u64 estimated_cpu;	  /* equation 2 */
static s64 nr_io, nr_cpu;	  /* vCPUs of each kind */
static s64 weight_io, weight_cpu;

static __always_inline bool is_short(s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu);

	return split && c && c->short_slices;
}

/* Only CPUs of its group will do for v. Until it is known that nothing of that is left to v, it
 * counts. */
static __always_inline bool is_bound(struct vcpu *v)
{
	return split && v->kind != ANY_KIND && (v->fits_epoch != groups_epoch || v->fits);
}

static __always_inline bool in_group(struct vcpu *v, s32 cpu)
{
	return !is_bound(v) || is_short(cpu) == (v->kind == IO_KIND);
}

/* Take CPUs out of the set that are not of v's group. */
static __always_inline void narrow(struct vcpu *v, struct cpu_set *set)
{
	if (!is_bound(v))
		return;
	if (v->kind == IO_KIND)
		keep_both(set, &short_cpus);
	else
		drop_both(set, &short_cpus);
}

/* Is anything of v's group left to p? To be called again when the groups or p's affinity change. */
static __noinline int fit(struct task_struct *p, struct vcpu *v)
{
	struct choice *s = choice_here();

	if (!p || !v || !s)
		return 0;
	read_mask(&s->zone, p->cpus_ptr);
	if (v->kind == IO_KIND)
		keep_both(&s->zone, &short_cpus);
	else
		drop_both(&s->zone, &short_cpus);
	v->fits = keep_both(&s->zone, &online_cpus);
	v->fits_epoch = groups_epoch;
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
		if (io + cpu < 1 << 20)
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
		io += __sync_lock_test_and_set(&c->sample_io, 0);
		cpu_ns += __sync_lock_test_and_set(&c->sample_cpu, 0);
	}
	estimated_io = (7 * estimated_io + io) / 8;
	estimated_cpu = (7 * estimated_cpu + cpu_ns) / 8;
}

/* Equation 3: `part` of `all` CPUs' time, in CPUs; D3 says how it is rounded. */
static __always_inline u64 rounded(u64 part, u64 all)
{
	if (rounding == ROUND_DOWN)
		return part / all;
	if (rounding == ROUND_UP)
		return (part + all - 1) / all;
	return (2 * part + all) / (2 * all); /* half up */
}

/* D10b: a size that moves only for more than 0.75 CPUs, and by one at a time. */
static __always_inline u64 steadied(u64 part, u64 all)
{
	s64 off = part - nr_short * all;

	if (off > (s64)(3 * all / 4))
		return nr_short + 1;
	return nr_short && off < -(s64)(3 * all / 4) ? nr_short - 1 : nr_short;
}

/* SPNum: equation 3, then at least one pCPU for each kind that exists (D3). `settled`: a period is
 * over since the last estimate, it is not a new one for new VMs. */
static __always_inline u32 group_size(bool settled)
{
	u64 all = estimated_io + estimated_cpu, n = nr_short;

	/* D4 `zero`: nothing is known before a period is over. */
	if (start == ZERO && !settled)
		return nr_short;
	if (nr_io <= 0)
		return 0;
	if (nr_cpu <= 0)
		return nr_online;
	if (all && hysteresis && settled)
		n = steadied(estimated_io * nr_online, all);
	else if (all)
		n = rounded(estimated_io * nr_online, all);
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
			put(&short_cpus, cpu, is);
			changed = true;
		}
	}
	nr_short = n;
	if (changed)
		groups_epoch++;
	return changed;
}

#endif
