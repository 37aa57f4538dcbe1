/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * credit: the first credit scheduler of Xen, rules of 4.4; the preset xen-3.4 has those of 3.4.
 *
 * Idea. Every pCPU has a queue in three classes, first come first served inside a class. Each 30 ms
 * (`tslice_ms`) the domains with active vCPUs earn credits by weight; a vCPU that runs burns them,
 * exactly since 4.0. Who has credit is UNDER, who has none is OVER and runs when nobody better
 * wants to. Who wakes with credit is BOOST until a 10 ms tick finds it running, and preempts. A
 * pCPU whose best is OVER or nothing takes a strictly better vCPU from a busy pCPU, so that classes
 * hold on the whole machine. A vCPU waits on the pCPU it last ran on; an idle pCPU is asked to come
 * and take it.
 *
 * Sources: Xen 4.4.2 and 3.4.0 read as specifications; Cherkasova, Gupta, Vahdat, "Comparison of
 * the three CPU schedulers in Xen", 2007. Ticks (10 ms, spread over the pCPUs), accounting, slice
 * ends and the rate limit are timers of this policy and do not depend on the kernel's tick.
 *
 * What is converted. A cgroup's weight belongs to the whole VM and is 100 by default; Xen's is 256
 * and belongs to each vCPU. Here a vCPU weighs weight / vCPUs of its VM, so that a VM of which all
 * vCPUs are busy gets its weight, and, as in Xen, one of which half are busy half of it; only
 * ratios count, so the 256 drops out. A cap in thousandths of a CPU is Xen's percentage times ten.
 * Threads of a VM that are no vCPUs (vhost, I/O, emulator) earn and burn in their VM's name and do
 * not add to its weight. All threads without a VM are dom0, of weight `host_weight` spread over as
 * many vCPUs as there are CPUs.
 *
 * What deviates. "Package" is what shares a last-level cache. A class that changes while its vCPU
 * waits counts from the pCPU's next tick on, as in Xen; what arrives before that is placed by the
 * old classes. An unparked vCPU is not boosted (`boost_on_unpark` brings the bug of 4.4 back). A
 * kernel thread bound to one CPU preempts, and who loses the CPU to it continues with what is left
 * of its slice. An idle pCPU with a queue, which Xen cannot have, is woken by the accounting. Nice
 * values have no meaning.
 *
 * Charges wall time between switches, with interrupts and stolen time, as Xen does.
 *
 * Not good for: latency beside compute in the same vCPU (it never sleeps, so it is never boosted,
 * and waits up to slice times queue), many boosted vCPUs at once (they wait for each other).
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall",
	     "Xen's credit scheduler: shares by credit, boost for whoever wakes with some left");
BERTH_HYPERVISOR("xen");

BERTH_PARAM(
	u64, tslice_ms, "ms", 30, 1, 1000,
	"Slice and accounting period (Xen 4.4: 30, settable from 1 to 1000); the tick is a third");
BERTH_PARAM(u64, ratelimit_us, "us", 1000, 0, 500000,
	    "Whoever got a CPU keeps it this long; 0: off (Xen 4.2 and later: 1000)");
BERTH_PARAM(u64, migration_delay_us, "us", 0, 0, 100000,
	    "A vCPU that left its CPU less than this ago is not taken to another (Xen: 0)");
BERTH_PARAM(u32, host_weight, "weight", 1000, 1, 10000,
	    "Weight of all threads that belong to no VM, together: dom0");
BERTH_PARAM(
	bool, sampled_burn, "bool", 0, 0, 1,
	"Charge a tick's credits to whoever runs at a tick, nothing in between (Xen before 4.0)");
BERTH_PARAM(bool, domain_weight, "bool", 0, 0, 1,
	    "A weight counts for the VM however many of its vCPUs are active (Xen before 4.1)");
BERTH_PARAM(bool, zero_on_inactive, "bool", 0, 0, 1,
	    "Who leaves the active list starts from 0 credits, not from half (Xen before 4.1)");
BERTH_PARAM(bool, yield_flag, "bool", 1, 0, 1,
	    "Who yields lets one vCPU of a lower class pass (Xen 4.1 and later)");
BERTH_PARAM(bool, tickle_all, "bool", 0, 0, 1,
	    "A wake-up preempts and asks all idle CPUs, not one or the other (Xen before 4.1)");
BERTH_PARAM(bool, cyclic_steal, "bool", 0, 0, 1,
	    "Look for vCPUs from the next CPU on, not node by node from the lowest (Xen 3.4)");
BERTH_PARAM(bool, old_pick, "bool", 0, 0, 1,
	    "Choose CPUs by the rules of 3.4: no factor 2 between packages, no turns in a core");
BERTH_PARAM(bool, soft_affinity, "bool", 1, 0, 1,
	    "Prefer CPUs of the VM's memory node (Xen 4.3 and later)");
BERTH_PARAM(bool, boost_after_migration, "bool", 1, 0, 1,
	    "A vCPU that a tick moved away arrives as if woken (Xen before 4.7)");
BERTH_PARAM(bool, boost_on_unpark, "bool", 0, 0, 1,
	    "Boost a capped vCPU when it may run again (a bug of Xen 4.4, fixed in 4.13)");

BERTH_PRESET(xen44, "xen-4.4", "", "The rules of Xen 4.4, which are the defaults");
BERTH_PRESET(xen34, "xen-3.4",
	     "ratelimit_us=0,sampled_burn=1,domain_weight=1,zero_on_inactive=1,yield_flag=0,"
	     "tickle_all=1,cyclic_steal=1,old_pick=1,soft_affinity=0",
	     "The rules of Xen 3.4: sampled burning, weights per VM, no rate limit");
BERTH_PRESET(short_slices, "short-slices", "tslice_ms=5",
	     "A shorter slice for all, as FLMS compares with: Xen's own setting, at 5 ms");

BERTH_MOST_CPUS(1024);

struct berth_stats {
	u64 boosted;	   /* woken with credit left */
	u64 woken_over;	   /* vCPUs woken without credit: OVER, they wait for their turn */
	u64 rate_limited;  /* asked to give way before the rate limit */
	u64 moved_by_tick; /* sent to a better CPU while running */
	u64 stolen;	   /* taken by a CPU with nothing better */
	u64 parked;	   /* stopped for the cap */
	u64 same_core;	   /* stolen from the same core, */
	u64 same_package;  /* the same last-level cache, */
	u64 other_package; /* another one */
};
BERTH_STATS;

#define VCPU_MORE
#define PCPU_MORE
#define migrate_for_wakeup    true
#define tick_moves	      true
#define rehome_movers	      false
#define keeps_most(v, d, per) per

#include "berth/credit.bpf.h"
#include "berth/credit_queue.bpf.h"
#include "berth/credit_pick.bpf.h"
#include "berth/credit_core.bpf.h"

static __always_inline void credit_burned(struct vcpu *v, struct pcpu *c, u32 credits, u64 ns)
{
}

static __always_inline void credit_granted(struct vcpu *v)
{
}

static __always_inline void labelled(struct vcpu *v, struct berth_identity *id)
{
}

static __always_inline void refresh(struct task_struct *p, struct vcpu *v)
{
}

static __always_inline void descheduled(struct vcpu *v, struct pcpu *c)
{
}

static __always_inline bool may_use(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

static __always_inline void narrow(struct vcpu *v, struct cpu_set *set)
{
}

static __always_inline u64 queue_key(struct vcpu *v, struct pcpu *c, s32 cpu, bool front)
{
	return arrival_key(c, front);
}

static __always_inline u64 slice_ns(struct vcpu *v, s32 cpu)
{
	return tslice_ms * MS;
}

static __always_inline u64 rate_limit_ns(struct vcpu *v, s32 cpu)
{
	return ratelimit_us * 1000;
}

static __always_inline bool boosts(struct vcpu *v, s32 cpu)
{
	return true;
}

static __always_inline bool beats(struct vcpu *v, struct vcpu *curr, struct pcpu *c, s32 cpu)
{
	return v->pri < curr->pri;
}

static __always_inline bool goes_before(struct vcpu *v, struct vcpu *first, u64 key, struct pcpu *c,
					s32 cpu)
{
	return v->pri < first->pri;
}

/* First of the memory node, then anywhere. */
static __always_inline s32 choose_idle(struct task_struct *p, struct vcpu *v, struct pcpu *c,
				       s32 cpu, const struct cpumask *idle)
{
	s32 found = NO_CPU;

	if (soft_affinity && v->node >= 0 && berth_nr_nodes > 1)
		found = find_idle(p, v, c, idle, v->node);
	return found >= 0 ? found : find_idle(p, v, c, idle, NO_CPU);
}

static __always_inline s32 rehome(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	return first_usable(p, v, cpu);
}

static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
}

static __always_inline s32 wake_to(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	return NO_CPU;
}

static __always_inline void ticked(struct pcpu *c, s32 cpu)
{
}

#include "berth/credit_steal.bpf.h"

s32 BPF_STRUCT_OPS(credit_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return core_select_cpu(p, prev_cpu);
}

void BPF_STRUCT_OPS(credit_enqueue, struct task_struct *p, u64 enq_flags)
{
	core_enqueue(p, enq_flags);
}

void BPF_STRUCT_OPS(credit_dispatch, s32 cpu, struct task_struct *prev)
{
	core_dispatch(cpu, prev);
}

void BPF_STRUCT_OPS(credit_running, struct task_struct *p)
{
	core_running(p);
}

void BPF_STRUCT_OPS(credit_stopping, struct task_struct *p, bool runnable)
{
	core_stopping(p, runnable);
}

bool BPF_STRUCT_OPS(credit_yield, struct task_struct *from, struct task_struct *to)
{
	core_yield(from);
	return false;
}

void BPF_STRUCT_OPS(credit_quiescent, struct task_struct *p, u64 deq_flags)
{
	core_quiescent(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(credit_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	return core_init_task(p, args);
}

void BPF_STRUCT_OPS(credit_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	core_exit_task(p);
}

void BPF_STRUCT_OPS(credit_cgroup_move, struct task_struct *p, struct cgroup *from,
		    struct cgroup *to)
{
	core_cgroup_move(p, to);
}

void BPF_STRUCT_OPS(credit_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	core_set_weight(cgrp, weight);
}

void BPF_STRUCT_OPS(credit_cpu_online, s32 cpu)
{
	core_set_online(cpu, true);
}

void BPF_STRUCT_OPS(credit_cpu_offline, s32 cpu)
{
	core_set_online(cpu, false);
}

static int account_over(void *map, u32 *key, struct bpf_timer *timer)
{
	core_account();
	bpf_timer_start(timer, tslice_ms * MS, 0);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(credit_init)
{
	s32 err = core_init();
	struct timer *t;
	u32 zero = 0;

	if (err)
		return err;
	t = bpf_map_lookup_elem(&accounting, &zero);
	if (!t)
		return -ENOENT;
	bpf_timer_init(&t->timer, &accounting, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, account_over);
	return bpf_timer_start(&t->timer, tslice_ms * MS, 0);
}

void BPF_STRUCT_OPS(credit_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(credit_ops,
	.select_cpu		= (void *)credit_select_cpu,
	.enqueue		= (void *)credit_enqueue,
	.dispatch		= (void *)credit_dispatch,
	.running		= (void *)credit_running,
	.stopping		= (void *)credit_stopping,
	.yield			= (void *)credit_yield,
	.quiescent		= (void *)credit_quiescent,
	.init_task		= (void *)credit_init_task,
	.exit_task		= (void *)credit_exit_task,
	.cgroup_move		= (void *)credit_cgroup_move,
	.cgroup_set_weight	= (void *)credit_cgroup_set_weight,
	.cpu_online		= (void *)credit_cpu_online,
	.cpu_offline		= (void *)credit_cpu_offline,
	.init			= (void *)credit_init,
	.exit			= (void *)credit_exit,
	.flags			= SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING,
	.timeout_ms		= 30000,
	.name			= "credit");
