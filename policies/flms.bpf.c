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
 * specification of FLMS. Parameters: D3 rounding, D5 periods, D6 slices, D11 sp_preempt_key, D12
 * idle_only, D13b percent_thresholds, D15b refuse_overshoot. Fixed: D1 a VM without a class
 * computes, vhost and I/O threads serve I/O as a driver domain's vCPU would, all other threads
 * without a VM are bound to no group and take part in both; D2 SP is a prefix of the CPUs ordered
 * by package, core, thread; D4 estimates start from the weights of the vCPUs of each kind whenever
 * one comes, goes or changes, and the groups follow within 0.1 ms; D4b samples are run time; D7
 * equation 5 whenever an I/O vCPU leaves its CPU, from the credits used in this accounting period,
 * equation 7 at every partition; D8 32.32 fixed point, denominators at least one credit; D9
 * equation 9 with a moving average of load, not the sum over the VM's life; D10 a group's change
 * moves queued vCPUs to the idlest CPU of their group and preempts running ones at once, counted
 * apart; D10b no hysteresis; D11b waking on an idle CPU of SP, the nearest first; D13 a victim must
 * have something to take; D15 ties: lowest CPU, then longest waiting; D17 a vCPU with no CPU of its
 * group in its affinity keeps its affinity.
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

BERTH_PARAM(
	u64, short_us, "us", 5000, 100, 100000,
	"D6: slice in the group for I/O (paper: short; 5 ms divides 30, below its bound of 7 ms)");
BERTH_PARAM(u64, long_us, "us", 30000, 1000, 1000000,
	    "D6: slice in the group for computing (Credit's 30 ms)");
BERTH_PARAM(u64, partition_ms, "ms", 300, 30, 10000,
	    "D5: T_part, how often the group sizes are computed (not given in the paper)");
BERTH_PARAM(u64, busy_ms, "ms", 30, 10, 1000,
	    "D5: T_busy, how often the loads of CPUs are averaged (not given in the paper)");
BERTH_PARAM(u32, rounding, "count", 0, 0, 2,
	    "D3: CPUs of the I/O group: 0 to nearest, 1 down (integer arithmetic in C), 2 up");
BERTH_PARAM(
	bool, sp_preempt_key, "bool", 0, 0, 1,
	"D11: in the I/O group a strictly smaller IO_Boost preempts, too, after the rate limit");
BERTH_PARAM(bool, idle_only, "bool", 0, 0, 1,
	    "D12: only an idle CPU looks for work elsewhere, not one left with exhausted vCPUs");
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

BERTH_PRESET(paper, "paper", "",
	     "As published, with the decisions of the specification, which are the defaults");

struct berth_stats {
	u64 boosted;	   /* woken with credit left, on the compute side */
	u64 woken_over;	   /* vCPUs woken without credit: OVER, they wait for their turn */
	u64 rate_limited;  /* asked to give way before the rate limit */
	u64 moved_by_tick; /* sent to a better CPU while running */
	u64 parked;	   /* stopped for the cap */
	u64 same_core;	   /* taken by balancing from the same core, */
	u64 same_package;  /* the same last-level cache, */
	u64 other_package; /* another one */
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

/* Loads are credits with this many fraction bits. */
#define LOAD_BITS	      8

/* used: credits of this accounting period; busy_used: of this T_busy; history_load: equation 6;
 * load_avg: D9; io_boost: equations 5 and 7, 32.32. */
#define VCPU_MORE                                                                                  \
	GROUP_VCPU                                                                                 \
	u64 used;                                                                                  \
	u64 busy_used;                                                                             \
	u64 history_load;                                                                          \
	u64 load_avg;                                                                              \
	u64 io_boost;                                                                              \
	u64 queued_at;
/* busy: credits of this T_busy; history_busy: equation 8. */
#define PCPU_MORE                                                                                  \
	GROUP_PCPU                                                                                 \
	u64 busy;                                                                                  \
	u64 history_busy;

#include "berth/groups_fields.bpf.h"
#include "berth/credit.bpf.h"
#include "berth/groups.bpf.h"
#include "berth/credit_queue.bpf.h"
#include "berth/credit_pick.bpf.h"
#include "berth/credit_core.bpf.h"

#define BOOST_ONE (1ULL << 32) /* 1 credit^-1 */
#define RANK_MAX  (MIDDLE - 1)
#define SOON_NS	  100000 /* from a change of the VMs to the new groups */

/* The clocks of accounting, busy and partition; one timer serves all three, so that they come in
 * this order when they coincide. */
static u64 account_at, busy_at, partition_at;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer);
} regroupings SEC(".maps");

/* VMs have come, gone or changed: new estimates, new groups. */
static __always_inline void regroup_soon(void)
{
	struct timer *t;
	u32 zero = 0;

	t = bpf_map_lookup_elem(&regroupings, &zero);
	if (t)
		bpf_timer_start(&t->timer, SOON_NS, 0);
}

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
	if (v->history_load)
		v->io_boost = BOOST_ONE / v->history_load;
}

/* Equation 5. Who is sent away because the groups changed (D10) has not been scheduled once, it
 * goes on elsewhere: its few credits would put it behind all others of a busy group for good. */
static __always_inline void descheduled(struct vcpu *v, struct pcpu *c)
{
	bool sent = (v->flags & VF_MIGRATING) && split && !c->short_slices;

	if (v->kind != CPU_KIND && !sent)
		v->io_boost += BOOST_ONE / (v->used ?: 1);
}

static __always_inline void labelled(struct vcpu *v, struct berth_identity *id)
{
	u32 role = id->thread.role, kind = ANY_KIND;
	u64 weight = (u64)id->vm.weight * 16 / (id->vm.vcpus ?: 1);

	if (role == BERTH_ROLE_VHOST || role == BERTH_ROLE_IOTHREAD)
		kind = IO_KIND;
	else if (role == BERTH_ROLE_VCPU && id->vm.slot != HOST)
		kind = id->vm.class == BERTH_CLASS_LATENCY || (id->vm.class == BERTH_CLASS_MIXED &&
							       (id->thread.flags & BERTH_THREAD_IO))
			       ? IO_KIND
			       : CPU_KIND;
	if (v->kind != kind) { /* D16 */
		v->io_boost = 0;
		reset_boost(v);
	}
	if (set_kind(v, kind, kind == ANY_KIND ? 0 : weight))
		regroup_soon();
}

static __always_inline void refresh(struct task_struct *p, struct vcpu *v)
{
	if (v->fits_epoch != groups_epoch)
		fit(p, v);
	if (v->pri == BOOST && v->kind == IO_KIND && split)
		v->pri = UNDER;
	v->queued_at = scx_bpf_now();
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

/* Core 0, package 1, other package 2. A function of its own: the verifiers of 6.18 and 7.0 give up
 * on its branches inside a loop. */
__noinline u32 distance(s32 a, s32 b)
{
	struct berth_cpu *x = berth_cpu(a), *y = berth_cpu(b);

	if (!x || !y)
		return 2;
	return x->core == y->core ? 0 : x->llc == y->llc ? 1 : 2;
}

/* The best other CPU for p, which is at cpu: the nearest idle one; with `busy` allowed, else the
 * one with the least load, the nearest of equals. */
static __noinline s32 nearest(struct task_struct *p, struct vcpu *v, s32 cpu, bool busy)
{
	const struct cpumask *idle;
	u64 best = ~0ULL, score;
	s32 found = NO_CPU, i;
	struct pcpu *c;

	if (!p || !v)
		return NO_CPU;
	idle = scx_bpf_get_idle_cpumask();
	bpf_for(i, 0, berth_nr_cpus) {
		c = pcpu_at(i);
		if (!c || !c->online || !may_use(p, v, i))
			continue;
		score = distance(cpu, i);
		if (!bpf_cpumask_test_cpu(i, idle)) {
			if (!busy)
				continue;
			score += (1ULL << 62) + (c->history_busy << 2);
		}
		if (score < best) {
			best = score;
			found = i;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

static __always_inline s32 choose_idle(struct task_struct *p, struct vcpu *v, struct pcpu *c,
				       s32 cpu, const struct cpumask *idle)
{
	if (is_short(cpu))
		return nearest(p, v, cpu, false);
	return find_idle(p, v, c, idle, NO_CPU);
}

static __always_inline s32 rehome(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	s32 found = nearest(p, v, cpu, true);

	return found < 0 ? cpu : found;
}

static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
}

#include "berth/flms_balance.bpf.h"

/* Put every waiting vCPU where it belongs now, and order the queues of SP anew. */
__noinline int rehome_queue(s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu), *other;
	struct task_struct *p;
	struct vcpu *v;
	u64 since;
	s32 to;

	if (!c)
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		v = vcpu_of(p);
		if (!v)
			continue;
		since = v->queued_at;
		refresh(p, v);
		v->queued_at = since; /* it waits on */
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
		berth_count(repartition);
		tickle(to, p, v);
	}
	bpf_rcu_read_unlock();
	sort_queue(cpu, true);
	return 0;
}

/* Steps 3 to 5 and 7 of a partition (D10). */
static __always_inline void regroup(void)
{
	bool changed = set_groups(short_cpus());
	struct vcpu *v;
	struct pcpu *c;
	s32 cpu;

	if (changed)
		berth_count(partitions);
	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (!c)
			continue;
		if (changed || c->short_slices)
			rehome_queue(cpu);
		v = c->curr ? vcpu_at(c->curr) : NULL;
		if (!changed || !v || in_group(v, cpu))
			continue;
		set_flag(v, VF_MIGRATING);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		berth_count(repartition);
	}
}

static int regroup_over(void *map, u32 *key, struct bpf_timer *timer)
{
	seed_estimates(partition_ms * MS);
	regroup();
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

/* Equation 8, and the same average for vCPUs (D9); beta = 7/8. */
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
	}
	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (!v || !v->pid)
			continue;
		v->load_avg = (7 * v->load_avg + (v->busy_used << LOAD_BITS)) / 8;
		v->busy_used = 0;
	}
}

static __always_inline void partition(void)
{
	struct vcpu *v;
	s32 i;

	update_estimates();
	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (v && v->pid && v->kind == IO_KIND)
			reset_boost(v);
	}
	regroup();
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
