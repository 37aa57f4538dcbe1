/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * flms: groups of CPUs with short and long slices for VMs that serve I/O and VMs that compute, on
 * top of Xen's credit scheduler.
 *
 * Idea ("FLMS", Journal of Software 28(2), 2017, 398-410, built on Xen 4.4.2). A user says of each
 * VM whether it is latency-sensitive, not, or mixed; of a mixed VM some vCPUs are reserved for I/O.
 * I/O vCPUs are bound to the group SP of CPUs with a short slice, the others to LP with a long one.
 * The group sizes follow the run time of both kinds. On SP nobody is boosted; the queue is ordered
 * by IO_Boost, which falls with the credits a vCPU has used. An idle CPU takes work in eight steps,
 * from its core, its package, other packages, if the difference in load is worth the distance; on
 * LP the vCPU that evens the load out best.
 *
 * Decisions where the paper is silent or contradicts itself are numbered as in Berth's
 * specification of FLMS, and are parameters: the help of each says what, `berth policy show flms`
 * prints them. Where a woken vCPU of SP goes decides most (D11b), and the paper does not say it:
 * `wake_place=tickle`, as Xen does, queues it on its own CPU and asks an idle one of the group to
 * come, which runs the eight steps and may refuse; `direct` puts it on the nearest idle one.
 * Fixed: D8 32.32 fixed point, denominators at least one credit; D10 a change of the groups sends
 * queued vCPUs to the least busy CPU of their group, counting who was sent there already, preempts
 * running ones at once, and is counted apart; D15 ties: lowest CPU, then longest waiting; D16 a
 * change of class starts from equation 7; D17 a vCPU with no CPU of its group in its affinity keeps
 * its affinity. Threads of the host other than vhost and I/O threads are bound to no group. New VMs
 * change the groups within 0.1 ms. While somebody waits on a CPU, each tick there asks an idle CPU
 * of the group that would find it worth the way.
 *
 * What deviates. As in credit.bpf.c, whose conversion of weights and caps is used; "package" is
 * what shares a last-level cache. The rank IO_Boost is cut at 2^26. Which processes of a mixed VM
 * use its reserved vCPUs (D14) is the guest's business.
 *
 * Charges wall time between switches, with interrupts and stolen time, as Xen does.
 *
 * Not good for: a host whose SP or LP alone is overloaded (groups do not help each other before the
 * next partition, and from saturated samples the sizes cannot tell who needs more), compute inside
 * a latency-sensitive VM (it counts as I/O and goes first; where such VMs want more than SP has,
 * one that used next to nothing so far can wait until the watchdog unloads the policy).
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall",
	     "FLMS: CPU groups with short and long slices for I/O and compute, on Xen's credits");
BERTH_HYPERVISOR("xen");

BERTH_CHOICE(unlabelled, "compute|io|unbound", 0, "D1: what the vCPUs of a VM without a class do");
BERTH_CHOICE(driver, "io|compute|unbound", 0,
	     "D1: what threads count as that serve devices, vhost and I/O threads: dom0's part");
BERTH_CHOICE(sp_order, "prefix|spread", 0,
	     "D2: the I/O group is the first CPUs by package, core, thread, or by the reverse");
BERTH_CHOICE(rounding, "nearest|down|up", 0,
	     "D3: CPUs of the I/O group (down: integer arithmetic in C)");
BERTH_CHOICE(
	start, "weights|zero", 0,
	"D4: with new VMs estimates start from weights, or groups wait for the next partition");
BERTH_CHOICE(sample, "run|demand", 0,
	     "D4b: equations 1 and 2 count run time, or waiting for a CPU, too");
BERTH_PARAM(u64, partition_ms, "ms", 300, 30, 10000,
	    "D5: T_part, how often the group sizes are computed (not given in the paper)");
BERTH_PARAM(u64, busy_ms, "ms", 30, 10, 1000,
	    "D5: T_busy, how often the loads of CPUs are averaged (not given in the paper)");
BERTH_PARAM(
	u64, short_us, "us", 5000, 100, 100000,
	"D6: slice in the group for I/O (paper: short; 5 ms divides 30, below its bound of 7 ms)");
BERTH_PARAM(u64, long_us, "us", 30000, 1000, 1000000,
	    "D6: slice in the group for computing (Credit's 30 ms)");
BERTH_CHOICE(io_boost_mode, "paper|eq7_only|eq5_only|off", 0,
	     "D7: which of the equations 5 and 7 make IO_Boost");
BERTH_CHOICE(eq7_on, "every|change", 0,
	     "D7: equation 7 at every partition, or when the groups change (to the letter)");
BERTH_CHOICE(eq9_load, "average|literal", 0,
	     "D9: a vCPU's load in equation 9: moving average, or the sum over its life");
BERTH_PARAM(bool, hysteresis, "bool", 0, 0, 1,
	    "D10b: sizes change for more than 0.75 CPUs only, by one at a time");
BERTH_PARAM(
	bool, sp_preempt_key, "bool", 0, 0, 1,
	"D11: in the I/O group a strictly smaller IO_Boost preempts, too, after the rate limit");
BERTH_CHOICE(wake_place, "tickle|direct", 0,
	     "D11b: woken in the I/O group: wait where it was and ask an idle CPU, or go to one");
BERTH_PARAM(bool, idle_only, "bool", 0, 0, 1,
	    "D12: only an idle CPU looks for work elsewhere, not one left with exhausted vCPUs");
BERTH_PARAM(bool, tick_moves, "bool", 1, 0, 1,
	    "D12: a tick sends a running vCPU to a better CPU of its group, as in Credit");
BERTH_CHOICE(balancing, "paper|steps|credit", 0,
	     "Ablation: the eight steps; without equation 9; or as Credit, whoever is found first");
BERTH_CHOICE(step2, "stealable|literal", 0,
	     "D13: a victim in the same core has work to take, or (literal) is there");
BERTH_CHOICE(steps35, "stealable|literal", 0,
	     "D13: so has the busiest of the package, of the others, or (literal) ends the search");
BERTH_CHOICE(sp_take, "key|boost", 0,
	     "D13: in the I/O group a thief takes by class and IO_Boost, or by IO_Boost alone");
BERTH_PARAM(u32, same_package, "count", 40, 0, 1000,
	    "A: difference in load worth a move inside the package, credits per 30 ms (paper: 40)");
BERTH_PARAM(u32, other_package, "count", 80, 0, 1000, "B: the same between packages (paper: 80)");
BERTH_PARAM(bool, percent_thresholds, "bool", 0, 0, 1,
	    "D13b: both mean per cent of a CPU: three times as many credits");
BERTH_PARAM(
	bool, refuse_overshoot, "bool", 0, 0, 1,
	"D15b: a CPU that is not idle leaves a vCPU whose load is the whole difference or more");
BERTH_PARAM(u32, host_weight, "weight", 1000, 1, 10000,
	    "Weight of all threads that belong to no VM, together: dom0");

BERTH_PRESET(paper, "paper", "wake_place=tickle",
	     "As published, with the decisions of the specification, which are the defaults");
BERTH_PRESET(direct, "paper-direct", "wake_place=direct",
	     "The other reading of the paper: who wakes in the I/O group goes to an idle CPU");
BERTH_PRESET(literal, "literal",
	     "start=zero,eq7_on=change,eq9_load=literal,idle_only=1,step2=literal,steps35=literal,"
	     "sp_take=boost",
	     "The paper to the letter where its own words contradict what it reports");
BERTH_PRESET(groups, "groups",
	     "short_us=30000,io_boost_mode=off,balancing=credit,same_package=0,other_package=0",
	     "Ablation: two groups of CPUs, sized by equations 1 to 4, and else Credit");
BERTH_PRESET(slices, "groups+slices",
	     "io_boost_mode=off,balancing=credit,same_package=0,other_package=0",
	     "Ablation: and short slices in the group for I/O");
BERTH_PRESET(order, "groups+slices+order", "balancing=credit,same_package=0,other_package=0",
	     "Ablation: and the order by IO_Boost there");
BERTH_PRESET(
	steps, "groups+slices+order+steps", "balancing=steps",
	"Ablation: and balancing by steps and thresholds; equation 9 is what paper has besides");
BERTH_MOST_CPUS(1024);

struct berth_stats {
	u64 boosted;	   /* woken with credit left, on the compute side */
	u64 woken_over;	   /* vCPUs woken without credit: OVER, they wait for their turn */
	u64 rate_limited;  /* asked to give way before the rate limit */
	u64 moved_by_tick; /* sent to a better CPU while running */
	u64 parked;	   /* stopped for the cap */
	u64 same_core;	   /* taken by balancing from the same core, */
	u64 same_package;  /* the same last-level cache, */
	u64 other_package; /* another one */
	u64 as_credit;	   /* the same where balancing is Credit's */
	u64 repartition;   /* moved because the groups changed */
	u64 partitions;	   /* times the groups changed */
};
BERTH_STATS;

/* What credit.bpf.h and its companions let a policy choose: the rules of Xen 4.4. */
#define tslice_ms	      30
#define sampled_burn	      false
#define domain_weight	      false
#define zero_on_inactive      false
#define yield_flag	      true
#define tickle_all	      false
#define old_pick	      false
#define soft_affinity	      true
#define boost_after_migration true
#define boost_on_unpark	      false
#define migrate_for_wakeup    false
#define rehome_movers	      true

/* used: credits of this accounting period; busy_used: of this T_busy; history_load: equation 6;
 * load_avg: D9; io_boost: equations 5 and 7, 32.32; queued_at: since then in a queue; waits_from:
 * what comes before is in the samples (D4b), 0: does not wait. */
#define VCPU_MORE                                                                                  \
	GROUP_VCPU                                                                                 \
	u64 used;                                                                                  \
	u64 busy_used;                                                                             \
	u64 history_load;                                                                          \
	u64 load_avg;                                                                              \
	u64 io_boost;                                                                              \
	u64 queued_at;                                                                             \
	u64 waits_from;
/* busy: credits of this T_busy; history_busy: equation 8; expected: loads of those who were sent
 * here by a change of the groups, as far as they are not in history_busy yet (D10). */
#define PCPU_MORE                                                                                  \
	GROUP_PCPU                                                                                 \
	u64 busy;                                                                                  \
	u64 history_busy;                                                                          \
	u64 expected;

#define keeps_most(v, d, per) per

#include "flms/groups_fields.bpf.h"
#include "berth/credit.bpf.h"
#include "berth/credit_queue.bpf.h"
#include "flms/groups.bpf.h"
#include "flms/groups_order.bpf.h"
#include "berth/credit_pick.bpf.h"
#include "berth/credit_core.bpf.h"
#include "flms/boost.bpf.h"
#include "flms/place.bpf.h"

#define RANK_MAX (MIDDLE - 1)
#define SOON_NS	 100000 /* from a change of the VMs to the new groups */
#define NEXT_NS	 1000	/* between two parts of re-homing */

/* The clocks of accounting, busy and partition; one timer serves all three, so that they come in
 * this order when they coincide. */
static u64 account_at, busy_at, partition_at;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer);
} regroupings SEC(".maps");

/* The next regrouping is for new VMs, not the rest of the last one. */
static u32 vms_changed;

static __always_inline void regroup_after(u64 ns)
{
	struct timer *t;
	u32 zero = 0;

	t = bpf_map_lookup_elem(&regroupings, &zero);
	if (t)
		bpf_timer_start(&t->timer, ns, 0);
}

/* VMs have come, gone or changed: new estimates, new groups. */
static __always_inline void regroup_soon(void)
{
	__sync_lock_test_and_set(&vms_changed, 1);
	regroup_after(SOON_NS);
}

static __always_inline void labelled(struct vcpu *v, struct berth_identity *id)
{
	u32 role = id->thread.role, kind = ANY_KIND;
	u64 weight = (u64)id->vm.weight * 16 / (id->vm.vcpus ?: 1);
	bool io = id->vm.class == BERTH_CLASS_LATENCY ||
		  (id->vm.class == BERTH_CLASS_MIXED && (id->thread.flags & BERTH_THREAD_IO));

	if (role == BERTH_ROLE_VHOST || role == BERTH_ROLE_IOTHREAD)
		kind = driver == 0 ? IO_KIND : driver == 1 ? CPU_KIND : ANY_KIND;
	else if (role != BERTH_ROLE_VCPU || id->vm.slot == HOST)
		kind = ANY_KIND;
	else if (id->vm.class == BERTH_CLASS_NONE)
		kind = unlabelled == 0 ? CPU_KIND : unlabelled == 1 ? IO_KIND : ANY_KIND;
	else
		kind = io ? IO_KIND : CPU_KIND;
	if (v->kind != kind) { /* D16 */
		v->io_boost = 0;
		reset_boost(v);
	}
	if (set_kind(v, kind, kind == ANY_KIND ? 0 : weight))
		regroup_soon();
}

/* What v caches about its group. */
static __always_inline void refit(struct task_struct *p, struct vcpu *v)
{
	if (v->fits_epoch != groups_epoch)
		fit(p, v);
	if (v->pri == BOOST && v->kind == IO_KIND && split)
		v->pri = UNDER;
}

static __always_inline void refresh(struct task_struct *p, struct vcpu *v)
{
	refit(p, v);
	v->queued_at = scx_bpf_now();
	/* To wait for its cap is no demand. */
	v->waits_from = v->flags & VF_PARKED ? 0 : v->queued_at;
}

static __always_inline bool may_use(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && in_group(v, cpu);
}

static __always_inline u64 queue_key(struct vcpu *v, struct pcpu *c, s32 cpu, bool front)
{
	if (!is_short(cpu))
		return arrival_key(c, front);
	return v->io_boost < RANK_MAX ? v->io_boost : RANK_MAX;
}

static __always_inline u64 slice_ns(struct vcpu *v, s32 cpu)
{
	bool is = split ? is_short(cpu) : v->kind == IO_KIND;

	return (is ? short_us : long_us) * 1000;
}

/* 1 ms, or half a short slice if that is less than 2 ms (D6). */
static __always_inline u64 rate_limit_ns(struct vcpu *v, s32 cpu)
{
	u64 slice = slice_ns(v, cpu);

	return slice < 2 * MS ? slice / 2 : MS;
}

static __always_inline bool boosts(struct vcpu *v, s32 cpu)
{
	return !is_short(cpu);
}

static __always_inline bool goes_before(struct vcpu *v, struct vcpu *first, u64 key, struct pcpu *c,
					s32 cpu)
{
	if (!is_short(cpu))
		return v->pri < first->pri;
	return key_of(v, c, cpu, false) < key;
}

static __always_inline bool beats(struct vcpu *v, struct vcpu *curr, struct pcpu *c, s32 cpu)
{
	if (v->pri != curr->pri || !sp_preempt_key || !is_short(cpu))
		return v->pri < curr->pri;
	return v->io_boost < curr->io_boost;
}

static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	sample_wait(v, c, scx_bpf_now());
	v->waits_from = 0;
	/* The groups changed while it was on its way. */
	if (!in_group(v, cpu)) {
		set_flag(v, VF_MIGRATING);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

#include "flms/balance.bpf.h"

static __always_inline void ticked(struct pcpu *c, s32 cpu)
{
	if (scx_bpf_dsq_nr_queued(cpu) > 0)
		call_for_help(cpu);
}

/* Put every waiting vCPU where it belongs now, and order the queue anew. How many had to go. */
__noinline u32 rehome_queue(s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu), *other;
	struct task_struct *p;
	struct vcpu *v;
	u32 moved = 0;
	s32 to;

	if (!c)
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		v = vcpu_of(p);
		if (!v)
			continue;
		refit(p, v);
		if (may_use(p, v, cpu))
			continue;
		to = rehome(p, v, cpu);
		other = pcpu_at(to);
		if (!other || to == cpu)
			continue;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, key_of(v, other, to, false));
		if (!scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, to, 0))
			continue;
		v->cpu = to;
		joined(v, to);
		berth_count(repartition);
		tickle(to, p, v);
		moved++;
	}
	bpf_rcu_read_unlock();
	sort_queue(cpu, true);
	return moved;
}

/* The next CPU to be looked at; berth_nr_cpus or more: all are done. */
static u32 rehome_from = MOST_CPUS;

/*
 * D10, CPU by CPU: its queue, then who runs there. Each vCPU that has to go looks at all CPUs, so a
 * large host does it in parts of a millisecond or two, one right after the other.
 */
static __always_inline void rehome_some(void)
{
	u32 cpu, from = rehome_from, moved = 0, most = 50000 / berth_nr_cpus;
	struct vcpu *v;
	struct pcpu *c;

	rehome_from = MOST_CPUS;
	bpf_for(cpu, from, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (!c)
			continue;
		if (moved >= most) {
			rehome_from = cpu;
			regroup_after(NEXT_NS);
			break;
		}
		moved += rehome_queue(cpu);
		v = c->curr ? vcpu_at(c->curr) : NULL;
		if (!v || in_group(v, cpu))
			continue;
		set_flag(v, VF_MIGRATING);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		berth_count(repartition);
	}
}

/* Steps 3 to 7 of a partition; `settled` as group_size() has it. */
static __always_inline void regroup(bool settled)
{
	bool changed = set_groups(group_size(settled));
	s32 cpu;

	if (settled && (changed || eq7_on == EVERY))
		reset_boosts();
	if (changed) {
		berth_count(partitions);
		rehome_from = 0;
		rehome_some();
		return;
	}
	bpf_for(cpu, 0, berth_nr_cpus) {
		if (is_short(cpu))
			rehome_queue(cpu);
	}
}

static int regroup_over(void *map, u32 *key, struct bpf_timer *timer)
{
	if (!__sync_lock_test_and_set(&vms_changed, 0)) {
		rehome_some();
		return 0;
	}
	if (start == WEIGHTS)
		seed_estimates(partition_ms * MS);
	regroup(false);
	return 0;
}

/* Charge everybody who runs. */
static __always_inline void burn_all(void)
{
	u64 now = scx_bpf_now();
	struct vcpu *v;
	struct pcpu *c;
	s32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		v = c && c->curr ? vcpu_at(c->curr) : NULL;
		if (c && v)
			burn(v, c, now);
	}
}

static __always_inline void partition(void)
{
	sample_waits();
	update_estimates();
	regroup(true);
}

static int clocks_over(void *map, u32 *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns(), next;

	burn_all();
	if (now >= account_at) {
		core_account();
		account_at += tslice_ms * MS;
	}
	if (now >= busy_at) {
		average_loads();
		busy_at += busy_ms * MS;
	}
	if (now >= partition_at) {
		partition();
		partition_at += partition_ms * MS;
	}
	next = account_at < busy_at ? account_at : busy_at;
	next = next < partition_at ? next : partition_at;
	bpf_timer_start(timer, next > now ? next - now : 1, 0);
	return 0;
}

s32 BPF_STRUCT_OPS(flms_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return core_select_cpu(p, prev_cpu);
}

void BPF_STRUCT_OPS(flms_enqueue, struct task_struct *p, u64 enq_flags)
{
	core_enqueue(p, enq_flags);
}

void BPF_STRUCT_OPS(flms_dispatch, s32 cpu, struct task_struct *prev)
{
	core_dispatch(cpu, prev);
}

void BPF_STRUCT_OPS(flms_running, struct task_struct *p)
{
	core_running(p);
}

void BPF_STRUCT_OPS(flms_stopping, struct task_struct *p, bool runnable)
{
	core_stopping(p, runnable);
}

bool BPF_STRUCT_OPS(flms_yield, struct task_struct *from, struct task_struct *to)
{
	core_yield(from);
	return false;
}

void BPF_STRUCT_OPS(flms_quiescent, struct task_struct *p, u64 deq_flags)
{
	core_quiescent(p);
}

void BPF_STRUCT_OPS(flms_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	struct vcpu *v = vcpu_of(p);

	if (v)
		v->fits_epoch = 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(flms_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return core_init_task(p, args);
}

void BPF_STRUCT_OPS(flms_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct vcpu *v = vcpu_of(p);

	if (v && set_kind(v, ANY_KIND, 0))
		regroup_soon();
	core_exit_task(p);
}

void BPF_STRUCT_OPS(flms_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	core_cgroup_move(p, to);
}

void BPF_STRUCT_OPS(flms_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	core_set_weight(cgrp, weight);
}

/* CPUs come and go: their order, and with it the groups, are others. */
void BPF_STRUCT_OPS(flms_cpu_online, s32 cpu)
{
	core_set_online(cpu, true);
	rank_cpus();
	groups_epoch++;
	regroup_soon();
}

void BPF_STRUCT_OPS(flms_cpu_offline, s32 cpu)
{
	core_set_online(cpu, false);
	rank_cpus();
	groups_epoch++;
	regroup_soon();
}

s32 BPF_STRUCT_OPS_SLEEPABLE(flms_init)
{
	u64 now = bpf_ktime_get_ns();
	s32 err = core_init();
	struct timer *t;
	u32 zero = 0;

	if (err)
		return err;
	rank_cpus();
	t = bpf_map_lookup_elem(&regroupings, &zero);
	if (!t)
		return -ENOENT;
	bpf_timer_init(&t->timer, &regroupings, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, regroup_over);
	account_at = now + tslice_ms * MS;
	busy_at = now + busy_ms * MS;
	partition_at = now + partition_ms * MS;
	t = bpf_map_lookup_elem(&accounting, &zero);
	if (!t)
		return -ENOENT;
	bpf_timer_init(&t->timer, &accounting, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, clocks_over);
	return bpf_timer_start(&t->timer, 10 * MS, 0);
}

void BPF_STRUCT_OPS(flms_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(flms_ops,
	.select_cpu		= (void *)flms_select_cpu,
	.enqueue		= (void *)flms_enqueue,
	.dispatch		= (void *)flms_dispatch,
	.running		= (void *)flms_running,
	.stopping		= (void *)flms_stopping,
	.yield			= (void *)flms_yield,
	.quiescent		= (void *)flms_quiescent,
	.set_cpumask		= (void *)flms_set_cpumask,
	.init_task		= (void *)flms_init_task,
	.exit_task		= (void *)flms_exit_task,
	.cgroup_move		= (void *)flms_cgroup_move,
	.cgroup_set_weight	= (void *)flms_cgroup_set_weight,
	.cpu_online		= (void *)flms_cpu_online,
	.cpu_offline		= (void *)flms_cpu_offline,
	.init			= (void *)flms_init,
	.exit			= (void *)flms_exit,
	.flags			= SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING,
	.timeout_ms		= 30000,
	.name			= "flms");
