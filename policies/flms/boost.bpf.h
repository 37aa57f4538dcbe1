/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * FLMS, equations 5 to 8 of the paper: IO_Boost, by which the queues of SP are ordered, and the
 * loads of vCPUs and pCPUs, by which idle pCPUs choose. The parameters are those of flms.bpf.c.
 */
#ifndef __FLMS_BOOST_BPF_H
#define __FLMS_BOOST_BPF_H

enum io_boost_mode { BOTH_EQUATIONS, EQ7_ONLY, EQ5_ONLY, NO_BOOST };
enum eq7_on { EVERY, CHANGE };
enum sampled { RUN, DEMAND };

#define BOOST_ONE (1ULL << 32) /* 1 credit^-1 */
#define LOAD_BITS 8	       /* loads are credits with this many fraction bits */
#define LEAST_ONE (1ULL << LOAD_BITS)

/* D4b, `demand`: what v waited for counts as if it had run. */
static __always_inline void sample_wait(struct vcpu *v, struct pcpu *c, u64 now)
{
	u64 ns = now - v->waits_from;

	if (sample != DEMAND || !v->waits_from || (s64)ns <= 0)
		return;
	if (v->kind == IO_KIND)
		__sync_fetch_and_add(&c->sample_io, ns);
	else if (v->kind == CPU_KIND)
		__sync_fetch_and_add(&c->sample_cpu, ns);
}

/* v has run on c: what the samples of equations 1 and 2, equation 6, 8 and D9 add up. */
static __always_inline void credit_burned(struct vcpu *v, struct pcpu *c, u32 credits, u64 ns)
{
	v->used += credits;
	v->busy_used += credits;
	__sync_fetch_and_add(&c->busy, credits);
	if (v->kind == IO_KIND)
		__sync_fetch_and_add(&c->sample_io, ns);
	else if (v->kind == CPU_KIND)
		__sync_fetch_and_add(&c->sample_cpu, ns);
}

/* Equation 6. */
static __always_inline void credit_granted(struct vcpu *v)
{
	v->history_load += v->used;
	v->used = 0;
}

/* Equation 7. */
static __always_inline void reset_boost(struct vcpu *v)
{
	if (v->history_load && (io_boost_mode == BOTH_EQUATIONS || io_boost_mode == EQ7_ONLY))
		v->io_boost = BOOST_ONE / v->history_load;
}

/* Equation 5. Who is sent away because the groups changed (D10) has not been scheduled once, it
 * goes on elsewhere: its few credits would put it behind all others of a busy group for good. */
static __always_inline void descheduled(struct vcpu *v, struct pcpu *c)
{
	bool sent = (v->flags & VF_MIGRATING) && split && !c->short_slices;

	if (v->kind == CPU_KIND || sent)
		return;
	if (io_boost_mode == BOTH_EQUATIONS || io_boost_mode == EQ5_ONLY)
		v->io_boost += BOOST_ONE / (v->used ?: 1);
}

/* Equation 8, and the same average for vCPUs (D9); beta = 7/8. What re-homing has sent to a pCPU
 * shows in its load at this rate, and is expected of it at this rate less (D10). */
static __always_inline void average_loads(void)
{
	struct pcpu *c;
	struct vcpu *v;
	s32 i;

	bpf_for(i, 0, berth_nr_cpus) {
		c = pcpu_at(i);
		if (!c)
			continue;
		c->history_busy = (7 * c->history_busy + (c->busy << LOAD_BITS)) / 8;
		c->busy = 0;
		c->expected = 7 * c->expected / 8;
	}
	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (!v || !v->pid)
			continue;
		v->load_avg = (7 * v->load_avg + (v->busy_used << LOAD_BITS)) / 8;
		v->busy_used = 0;
	}
}

/* Equation 7 for all I/O vCPUs (D7: when). */
static __always_inline void reset_boosts(void)
{
	struct vcpu *v;
	s32 i;

	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (v && v->pid && v->kind == IO_KIND)
			reset_boost(v);
	}
}

/* D4b: whoever has waited for the whole period has not begun to run yet. */
static __always_inline void sample_waits(void)
{
	u64 now = scx_bpf_now();
	struct pcpu *c;
	struct vcpu *v;
	s32 i;

	if (sample != DEMAND)
		return;
	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (!v || !v->pid || !(v->flags & VF_QUEUED))
			continue;
		c = pcpu_at(v->cpu);
		if (!c)
			continue;
		sample_wait(v, c, now);
		v->waits_from = now;
	}
}

#endif
