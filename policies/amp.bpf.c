/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * amp: fast cores for who gains most from them, or for all in equal parts, on top of Xen's credits.
 *
 * Idea ("Virtualizing Performance Asymmetric Multi-core Systems", ISCA 2011, built on Xen 3.4.1).
 * Credit says how long a vCPU runs; amp says on which kind of core. Every 30 ms round R % of the
 * time of the fast cores is shared equally by all active vCPUs (R = 100: amp-fair), the rest goes
 * to VMs (amp-vm) or vCPUs (amp-vcpu) in the order of their scores, which say how much they gain.
 * Every 2.5 s a new order is made of what was measured in the first 2 s. A vCPU uses its fast time
 * in one slot of the round (amp/share.bpf.h). A fast core is never idle while a slow one works
 * (amp/conserve.bpf.h), and the vCPUs of a VM that gets both kinds take turns. Of more than two
 * kinds each is shared so, from the fastest down; who has no slot at the moment shares all CPUs but
 * the fastest with the others (D10).
 *
 * Decisions where the paper is silent are numbered as in Berth's specification of AMP, and are
 * parameters; docs/amp.md has them all, and what is fixed (D17, D18).
 *
 * What deviates from Credit (rules of 3.4). Burning is exact. A vCPU goes before all classes in its
 * slot, which is part of what Credit has granted it. Nobody waits long at a fast core without
 * credit for it. "Package" is what shares a last-level cache. No first placement, no moves at
 * ticks. With several kinds, who waits or runs goes on earning, and below the fastest kind who is
 * furthest behind its grants goes first (amp/overdue.bpf.h).
 *
 * A score is what is said of a vCPU (berth/scores.bpf.h), else it comes from performance counters
 * (IPC), else from utilisation; the counters scores_given, scores_pmu and scores_utilisation say
 * which. Counters that jump or stand still are not believed for that window. On a host whose cores
 * are all alike it is Credit, which is amp-fair there, and counts `symmetric`.
 *
 * Charges wall time, with interrupts, stolen time and what higher classes take, as Xen does (D17).
 *
 * Not good for: vCPUs that may not use all CPUs (they have no slots, and wait behind those who do
 * on a fast core), programs that stall without a miss to show for it (low IPC, yet they gain),
 * requests on a host of two kinds almost all of whose CPUs are fast (who wakes without a slot may
 * have none of these but an idle one), vCPUs that are due most of a CPU beside others that are not
 * (they have less), more than 1,024 vCPUs (those above have no slots).
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/pmu.bpf.h"
#include "berth/scores.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall", "Fast cores by efficiency or in equal parts, on Xen's credits");
BERTH_HYPERVISOR("xen");

enum { AMP_VM, AMP_VCPU, AMP_FAIR };
enum { BY_CAPACITY, BY_FREQUENCY };
enum { BY_PMU, BY_UTILISATION };
enum { ESTIMATE, LITERAL };
enum { OF_WALL, OF_WANTED };
enum { AT_INTERVAL, AT_WINDOW };
enum { BY_VCPU, BY_WEIGHT };
enum { OF_IPC, OF_BOTH };
enum { EQUALLY, BY_ORDER };
enum { AT_MEAN, AT_FIRST, AT_LAST };

BERTH_CHOICE(mode, "vm|vcpu|fair", 0,
	     "D1: what R leaves over goes to VMs or vCPUs by score; fair: nothing is left over");
BERTH_PARAM(u32, r, "percent", 0, 0, 100,
	    "R: part of fast time that all active vCPUs share equally (100: amp-fair)");
BERTH_PARAM(u64, interval_ms, "ms", 2500, 30, 60000, "A new plan this often (paper: 2.5 s)");
BERTH_PARAM(u64, window_ms, "ms", 2000, 30, 60000,
	    "Measured for it, from the interval's begin, at most all of it (paper: 2 s)");
BERTH_PARAM(
	u64, filter_percent, "percent", 15, 0, 100,
	"D3: a sample of IPC (D4: or utilisation) further off counts when the next one is as far "
	"(paper: 15)");
BERTH_CHOICE(filter_of, "ipc|both", 0, "D4: filtered are samples of IPC, or of utilisation, too");
BERTH_CHOICE(score_by, "pmu|utilisation", 0,
	     "Where no score is given: from performance counters if there are some, or from "
	     "utilisation alone");
BERTH_CHOICE(efficiency, "estimate|literal", 0,
	     "D16: score is the speed-up estimated from IPC by kind of core; literal: IPC x "
	     "utilisation");
BERTH_PARAM(u32, ipc_ref_milli, "count", 1500, 100, 16000,
	    "D16: instructions of 1000 cycles of who never waits for memory");
BERTH_CHOICE(utilisation, "wall|wanted", 0,
	     "D4b: run time by the window, or by the part in which it did not wait for a CPU");
BERTH_PARAM(bool, hardened, "bool", 0, 0, 1,
	    "D4c: groups change places only for a lead of 10 % in two windows");
BERTH_PARAM(u64, active_ms, "ms", 10, 0, 1000, "D4d: active in a window is who ran so long");
BERTH_PARAM(u64, min_slot_us, "us", 5000, 0, 30000,
	    "D5: shorter slots are put off, ten rounds at most");
BERTH_PARAM(bool, keep_fast, "bool", 0, 0, 1,
	    "D6: fast time that a vCPU has left is kept, a round at most, and had of what R leaves "
	    "over; 0: it lapses");
BERTH_CHOICE(before_plan, "fair|rank", 0,
	     "D7: fast time before the first plan: in equal parts, or by r in the order of VMs");
BERTH_CHOICE(
	newcomer, "mean|first|last", 0,
	"D7: who is new (by mode: a VM, a vCPU) is ranked by the mean score, or before all, or behind "
	"all, until it has been there for half a window or more at its end");
BERTH_PARAM(bool, exclusive, "bool", 0, 0, 1,
	    "D2: fast time beyond Credit's grant: the first have a fast core for themselves");
BERTH_CHOICE(plan_at, "interval|window", 0,
	     "D7b: a plan counts from the next interval on, or as soon as it is made");
BERTH_PARAM(
	bool, parallel_aware, "bool", 0, 0, 1,
	"D15: ranked by what is gained, by the square of how many vCPUs of the VM want CPUs at a "
	"time beyond the fastest ones");
BERTH_PARAM(bool, boost_fast, "bool", 0, 0, 1,
	    "D11: who wakes boosted preempts where it ran last, on fast cores, too, in slots");
BERTH_PARAM(bool, host_anywhere, "bool", 0, 0, 1,
	    "D13: dom0 and what serves VMs may use fast cores");
BERTH_PARAM(bool, adaptive, "bool", 0, 0, 1,
	    "D14: R follows the spread of efficiencies, so that nobody loses more than limit");
BERTH_PARAM(u32, limit_percent, "percent", 10, 0, 100, "D14: the slowdown that adaptive R allows");
BERTH_PARAM(bool, share_close, "bool", 1, 0, 1,
	    "E: amp-vcpu lets vCPUs of one VM share that are within 5 % of each other");
BERTH_CHOICE(kinds_by, "capacity|frequency", 0,
	     "D10: cores of a kind have one capacity; frequency: and run at one frequency at load");
BERTH_CHOICE(fair_by, "vcpu|weight", 0,
	     "D12: R's part is equal for all vCPUs, or as Credit's grants: by weight");
BERTH_PARAM(u32, host_weight, "weight", 1000, 1, 10000,
	    "Weight of all threads that belong to no VM, together: dom0");

BERTH_PRESET(vm, "amp-vm", "mode=vm", "The paper's amp-vm, which is the default");
BERTH_PRESET(vcpu, "amp-vcpu", "mode=vcpu", "The paper's amp-vcpu");
BERTH_PRESET(fair, "amp-fair", "mode=fair", "The paper's amp-fair: 100%-fair");
BERTH_MOST_CPUS(1024);

struct berth_stats {
	u64 boosted;	   /* woken with credit left */
	u64 woken_over;	   /* vCPUs woken without credit: OVER, they wait for their turn */
	u64 rate_limited;  /* stays 0: 3.4 has no rate limit */
	u64 moved_by_tick; /* stays 0 */
	u64 stolen;	   /* taken by a CPU of the slowest kind with nothing better */
	u64 conserved;	   /* waited elsewhere, taken by a fast CPU with nothing of its own, */
	u64 pulled;	   /* ran on a slower one */
	u64 slots;	   /* of vCPUs on fast CPUs */
	u64 moved;	   /* brought to their slot's CPU */
	u64 plans;
	u64 plan_changes; /* plans with another order than the one before */
	u64 scores_given; /* said by whoever loaded the policy, */
	u64 scores_pmu;	  /* from performance counters, */
	u64 scores_utilisation;
	u64 windows_left_out; /* of vCPUs whose counters jumped or stood still */
	u64 symmetric;	      /* rounds of a host whose cores are all alike */
};
BERTH_STATS;

/* What credit.bpf.h and its companions let a policy choose: the rules of Xen 3.4, burning exactly.
 */
#define tslice_ms	      30
#define sampled_burn	      false
#define domain_weight	      true
#define zero_on_inactive      true
#define yield_flag	      false
#define tickle_all	      false
#define old_pick	      true
#define soft_affinity	      false
#define boost_after_migration false
#define boost_on_unpark	      false
#define migrate_for_wakeup    false
#define tick_moves	      false
#define rehome_movers	      false

#define keeps_most	      kept_credit

struct vcpu;
struct domain;
static __always_inline s32 kept_credit(struct vcpu *v, struct domain *d, s32 per);

static u32 nr_kinds;

#include "amp/fields.bpf.h"
#include "berth/credit.bpf.h"
#include "berth/credit_queue.bpf.h"
#include "amp/kinds.bpf.h"
#include "amp/measure.bpf.h"
#include "amp/rank.bpf.h"
#include "amp/share.bpf.h"
#include "amp/adapt.bpf.h"
#include "amp/overdue.bpf.h"
#include "amp/place.bpf.h"
#include "berth/credit_core.bpf.h"
#include "amp/conserve.bpf.h"
#include "amp/cut.bpf.h"
#include "amp/rounds.bpf.h"

#define UPPER_SLICE_MS 10 /* who may run nowhere else waits so long for somebody's slot */

static __always_inline void credit_burned(struct vcpu *v, struct pcpu *c, u32 credits, u64 ns)
{
	v->ran += ns;
	if (v->beside)
		__sync_fetch_and_add(&beside_ns, ns);
	if (!c->kind) {
		v->used += ns;
		v->ran_fast += ns;
	}
}

/* Where there are several kinds, who waits for a CPU or has one earns on, and keeps what it is
 * behind (D18): else it had neither grant nor slots until a tick met it, and would wait yet longer.
 */
static __always_inline void credit_granted(struct vcpu *v)
{
	struct domain *d = domain_at(v->slot);

	if (nr_kinds > 1 && is_guest(v) && d && waits_or_runs(v)) {
		if (v->earned && !v->active)
			v->credit = kept_credit(v, d, period_credits());
		if (v->earned || (v->flags & VF_QUEUED))
			activate(v);
	}
	v->earned = v->active;
}

/* In another VM it begins anew, and is owed nothing. */
static __always_inline void labelled(struct vcpu *v, struct berth_identity *id)
{
	if (!v->active)
		v->earned = 0;
}

static __always_inline void descheduled(struct vcpu *v, struct pcpu *c)
{
}

static __always_inline u64 slice_ns(struct vcpu *v, s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu);

	return (c && is_upper(c) ? UPPER_SLICE_MS : tslice_ms) * MS;
}

static __always_inline u64 rate_limit_ns(struct vcpu *v, s32 cpu)
{
	return 0;
}

static __always_inline bool boosts(struct vcpu *v, s32 cpu)
{
	return true;
}

static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	u64 now = scx_bpf_now();

	if (v->queued_at)
		v->waited += now - v->queued_at;
	v->queued_at = 0;
	v->target = 0;
	if (c->kind && slot_of(v, now) != cpu)
		v->slow_home = cpu + 1;
	if (nr_kinds > 1 && score_by == BY_PMU)
		restart_counts(c);
	if (is_guest(v))
		ask_faster(c, cpu);
}

s32 BPF_STRUCT_OPS(amp_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return core_select_cpu(p, prev_cpu);
}

void BPF_STRUCT_OPS(amp_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct vcpu *v = vcpu_of(p);
	bool passed = v && (v->flags & (VF_PASSED | VF_MIGRATING)) == VF_PASSED &&
		      !(enq_flags & SCX_ENQ_WAKEUP);

	cut_is_over(p, v);
	core_enqueue(p, enq_flags);
	if (v && ((passed && nr_kinds > 1) || is_behind(v)))
		offer(p, v);
}

void BPF_STRUCT_OPS(amp_dispatch, s32 cpu, struct task_struct *prev)
{
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED) && nr_kinds > 1) {
		if (score_by == BY_PMU)
			sample(vcpu_of(prev), pcpu_at(cpu));
		reclass(vcpu_of(prev), pcpu_at(cpu));
	}
	core_dispatch(cpu, prev);
	ask_idle(cpu);
}

void BPF_STRUCT_OPS(amp_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct pcpu *c = pcpu_at(cpu);
	struct vcpu *v = vcpu_of(p);
	bool leaves = v && c && goes_on(p, v, c);

	core_running(p);
	if (leaves)
		leave(v, c, cpu);
}

void BPF_STRUCT_OPS(amp_stopping, struct task_struct *p, bool runnable)
{
	if (nr_kinds > 1 && score_by == BY_PMU)
		sample(vcpu_of(p), pcpu_at(scx_bpf_task_cpu(p)));
	core_stopping(p, runnable);
	was_cut(p, vcpu_of(p), runnable);
}

bool BPF_STRUCT_OPS(amp_yield, struct task_struct *from, struct task_struct *to)
{
	core_yield(from);
	return false;
}

void BPF_STRUCT_OPS(amp_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct vcpu *v = vcpu_of(p);

	cut_is_over(p, v);
	/* It slept before it came to the CPU that asked for it. */
	if (v) {
		v->target = 0;
		v->slept = 1;
		v->sleeps++;
	}
	core_quiescent(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(amp_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return core_init_task(p, args);
}

void BPF_STRUCT_OPS(amp_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	core_exit_task(p);
}

void BPF_STRUCT_OPS(amp_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	core_cgroup_move(p, to);
}

void BPF_STRUCT_OPS(amp_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	core_set_weight(cgrp, weight);
}

void BPF_STRUCT_OPS(amp_cpu_online, s32 cpu)
{
	core_set_online(cpu, true);
}

void BPF_STRUCT_OPS(amp_cpu_offline, s32 cpu)
{
	core_set_online(cpu, false);
}

static int account_over(void *map, u32 *key, struct bpf_timer *timer)
{
	u64 now = scx_bpf_now();

	burn_all(now);
	core_account();
	begin_round(now);
	bpf_timer_start(timer, ROUND_NS, 0);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(amp_init)
{
	s32 err = core_init();
	struct timer *t;
	u32 cpu, zero = 0;

	if (err)
		return err;
	find_kinds();
	bpf_for(cpu, 0, berth_nr_cpus) {
		t = bpf_map_lookup_elem(&slots_by_cpu, &cpu);
		if (!t)
			continue;
		bpf_timer_init(&t->timer, &slots_by_cpu, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&t->timer, slot_over);
	}
	t = bpf_map_lookup_elem(&accounting, &zero);
	if (!t)
		return -ENOENT;
	bpf_timer_init(&t->timer, &accounting, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, account_over);
	return bpf_timer_start(&t->timer, ROUND_NS, 0);
}

void BPF_STRUCT_OPS(amp_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(amp_ops,
	.select_cpu		= (void *)amp_select_cpu,
	.enqueue		= (void *)amp_enqueue,
	.dispatch		= (void *)amp_dispatch,
	.running		= (void *)amp_running,
	.stopping		= (void *)amp_stopping,
	.yield			= (void *)amp_yield,
	.quiescent		= (void *)amp_quiescent,
	.init_task		= (void *)amp_init_task,
	.exit_task		= (void *)amp_exit_task,
	.cgroup_move		= (void *)amp_cgroup_move,
	.cgroup_set_weight	= (void *)amp_cgroup_set_weight,
	.cpu_online		= (void *)amp_cpu_online,
	.cpu_offline		= (void *)amp_cpu_offline,
	.init			= (void *)amp_init,
	.exit			= (void *)amp_exit,
	.flags			= SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING,
	.timeout_ms		= 30000,
	.name			= "amp");
