/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vturbo: a reconstruction of vTurbo (Xu et al., "vTurbo: Accelerating virtual machine I/O
 * processing using designated turbo-sliced core", USENIX ATC 2013), on the rules of Xen 4.4.
 *
 * Idea. Some CPUs are set apart, the turbo CPUs. A VM has vCPUs that only take its interrupts; they
 * run there, first come, first served, by slices of 0.1 ms, with neither boost nor rate limit. All
 * other threads stay on the other CPUs, under Credit. What the turbo vCPUs of a VM have used is
 * taken from the credit of its other vCPUs at each accounting. Turbo vCPUs are served however much
 * that is; with `throttle_turbo` those of a VM without credit run when no other VM's want to.
 *
 * Sources: the abstract (a turbo core, 0.1 ms, interrupts go there); the related work of FLMS (one
 * or more CPUs, statically; an extra vCPU for each VM; a modified guest). Not published in what we
 * have, so ours: how turbo time is charged, and the order on a turbo CPU.
 *
 * What deviates. A turbo vCPU is one that the loader says serves I/O: an extra one (the scenario
 * key `turbo_vcpus`) or the reserved ones of a mixed VM. The turbo CPUs are the last ones. Credits
 * are handed out for all CPUs: if turbo CPUs idle, for more time than there is, and shares are
 * looser then. A thread whose affinity has turbo CPUs only runs there, whatever it is; a machine
 * of as many CPUs as `turbo_cpus`, or fewer, has none. What else deviates from Xen is in
 * credit.bpf.c.
 *
 * Charges wall time between switches, with interrupts and stolen time, as Xen does.
 *
 * Not good for: hosts with little I/O (the turbo CPUs idle); application work behind an interrupt,
 * which waits among the hogs; unmodified guests; bulk work on a turbo CPU, which is switched ten
 * thousand times a second.
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"
#include "credit/stats.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall",
	     "vTurbo, reconstructed: interrupts on CPUs with slices of 0.1 ms, else Credit");
BERTH_HYPERVISOR("xen");

BERTH_PARAM(u32, turbo_cpus, "CPUs", 1, 1, 1024, "The last ones, for turbo vCPUs alone");
BERTH_PARAM(u64, turbo_us, "us", 100, 50, 100000, "Slice there");
BERTH_PARAM(bool, charge_turbo, "bool", 1, 0, 1,
	    "What turbo vCPUs use is taken from their VM's credit");
BERTH_PARAM(bool, throttle_turbo, "bool", 0, 0, 1,
	    "While a VM's other vCPUs are OVER, its turbo vCPUs come behind those of other VMs");
BERTH_MOST_CPUS(1024);

struct berth_stats {
	CREDIT_STATS
	u64 turbo_slices; /* used up */
};
BERTH_STATS;

#define rehome_movers	   true
#define migrate_for_wakeup false /* idle CPUs of the other kind are no place to go to, boosted */

/* Of sizes that follow the load; these are fixed. */
static const u32 rounding, start;
static const bool hysteresis;

#include "../flms/groups_fields.bpf.h"
/* sent: + 1, the accounting in which it was last sent away from where it may not run. */
#define VCPU_MORE GROUP_VCPU u64 sent;
#define PCPU_MORE GROUP_PCPU
#define narrow	  narrow

#include "credit/rules.bpf.h"
#include "../flms/groups.bpf.h"

/* Credits of a VM's turbo vCPUs that have not been charged, and what each of its active vCPUs is to
 * pay in this accounting. */
struct turbo {
	u64 used;
	u64 due;
	u64 epoch;  /* + 1: of the accounting that set due */
	u64 better; /* active vCPUs that it did not leave OVER */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_DOMAINS);
	__type(key, u32);
	__type(value, struct turbo);
} turbo_by_vm SEC(".maps");

static __always_inline struct turbo *turbo_of(struct vcpu *v)
{
	u32 slot = v->slot;

	return bpf_map_lookup_elem(&turbo_by_vm, &slot);
}

static __always_inline bool is_turbo(struct vcpu *v)
{
	return split && v->kind == IO_KIND;
}

#define labelled labelled
static __always_inline void labelled(struct vcpu *v, struct berth_identity *id)
{
	bool serves = id->thread.role == BERTH_ROLE_VCPU && id->thread.flags & BERTH_THREAD_IO;

	set_kind(v, serves ? IO_KIND : CPU_KIND, 0);
}

#define refresh refresh
static __always_inline void refresh(struct task_struct *p, struct vcpu *v)
{
	if (v->fits_epoch != groups_epoch)
		fit(p, v);
	if (is_turbo(v) && !(throttle_turbo && v->pri == OVER))
		v->pri = UNDER;
}

#define may_use may_use
static __always_inline bool may_use(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && in_group(v, cpu);
}

/* Turbo vCPUs have no credit of their own. */
#define credit_burned credit_burned
static __always_inline void credit_burned(struct vcpu *v, struct pcpu *c, u32 credits, u64 ns)
{
	struct turbo *t;

	if (!is_turbo(v))
		return;
	__sync_fetch_and_add(&v->credit, credits);
	t = turbo_of(v);
	if (t && charge_turbo)
		__sync_fetch_and_add(&t->used, credits);
}

#define credit_granted credit_granted
static __always_inline void credit_granted(struct vcpu *v)
{
	s32 least = -(s32)period_credits(), credit;
	struct domain *d;
	struct turbo *t;

	if (!v->active || is_turbo(v))
		return;
	t = turbo_of(v);
	d = domain_at(v->slot);
	if (!t || !d)
		return;
	if (t->epoch != epoch + 1) {
		t->epoch = epoch + 1;
		t->due = __sync_lock_test_and_set(&t->used, 0) / (d->active ?: 1);
		t->better = 0;
	}
	if (t->due) {
		credit = v->credit - (s32)t->due;
		v->credit = credit > least ? credit : least;
		if (credit < 0)
			v->pri = OVER;
	}
	if (v->pri != OVER)
		t->better++;
}

/* The last accounting left all active vCPUs of v's VM OVER. */
static __always_inline bool is_broke(struct vcpu *v)
{
	struct domain *d = domain_at(v->slot);
	struct turbo *t = turbo_of(v);

	return d && t && d->active && t->epoch == epoch && !t->better;
}

/* A turbo vCPU takes the class of its VM. */
__noinline int classify(u32 index)
{
	struct vcpu *v = vcpu_at(index);

	if (!v || !v->pid || !is_turbo(v))
		return 0;
	if (is_broke(v)) {
		v->pri = OVER;
		return 0;
	}
	v->pri = UNDER;
	improved(v);
	return 0;
}

#define accounting_over accounting_over
static __always_inline void accounting_over(void)
{
	u32 i;

	if (!throttle_turbo)
		return;
	bpf_for(i, 1, vcpus_used)
		classify(i);
}

/* Only regular vCPUs are active: they earn. */
#define ticked ticked
static __always_inline void ticked(struct pcpu *c, s32 cpu)
{
	struct vcpu *v = c->curr ? vcpu_at(c->curr) : NULL;

	if (v && is_turbo(v))
		deactivate(v);
}

#define slice_ns slice_ns
static __always_inline u64 slice_ns(struct vcpu *v, s32 cpu)
{
	return is_short(cpu) ? turbo_us * 1000 : tslice_ms * MS;
}

/* By turns, and with `throttle_turbo` by class. */
#define goes_before goes_before
static __always_inline bool goes_before(struct vcpu *v, struct vcpu *first, u64 key, struct pcpu *c,
					s32 cpu)
{
	return (throttle_turbo || !is_short(cpu)) && v->pri < first->pri;
}

#define in_turn is_short
#include "credit/in_turn.bpf.h"

#define descheduled descheduled
static __always_inline void descheduled(struct vcpu *v, struct pcpu *c)
{
	if (is_turbo(v) && (s64)(c->slice_end - scx_bpf_now()) <= 0)
		berth_count(turbo_slices);
}

/* Its label, or the turbo CPUs, changed while it was on its way. */
#define started started
static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	/* Who comes back at once would be sent for ever, and no time pass. */
	if (in_group(v, cpu) || v->sent == epoch + 1)
		return;
	v->sent = epoch + 1;
	set_flag(v, VF_MIGRATING);
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* The turbo CPUs are the last ones that are online. */
#define cpus_changed cpus_changed
static __always_inline void cpus_changed(void)
{
	struct pcpu *c;
	u32 cpu, rank = nr_online;

	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (c && c->online)
			c->rank = --rank;
	}
	split = nr_online > turbo_cpus;
	set_groups(split ? turbo_cpus : 0);
}

#define prepare prepare
static __always_inline s32 prepare(void)
{
	cpus_changed();
	return 0;
}

#include "credit/plain.bpf.h"

CREDIT_CALLBACKS(vturbo)

void BPF_STRUCT_OPS(vturbo_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	struct vcpu *v = vcpu_of(p);

	if (v)
		v->fits_epoch = 0;
}

/* clang-format off */
SCX_OPS_DEFINE(vturbo_ops,
	CREDIT_OPS(vturbo),
	.set_cpumask		= (void *)vturbo_set_cpumask,
	.name			= "vturbo");
