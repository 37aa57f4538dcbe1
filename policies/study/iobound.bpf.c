/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * iobound: a reconstruction of what the FLMS paper calls I/O bounding, taken to be the dynamic
 * partitioning of cores by Hu et al. ("I/O scheduling model of virtual machine based on multi-core
 * dynamic partitioning", HPDC 2010), on the rules of Xen 4.4.
 *
 * Idea. Cores with a fast tick serve I/O, first come, first served, by slices of 1 ms with neither
 * boost nor rate limit; the others are under Credit. How many are fast follows the CPU time that
 * I/O needs. `mode=vm`: the vCPUs of latency-sensitive VMs, reserved ones of mixed VMs and the
 * threads that serve VMs' devices run on fast cores, all others of VMs elsewhere. `mode=event`:
 * while there is I/O enough, any vCPU that an event wakes goes to the fast core where fewest wait,
 * and back when it sleeps or has used `stay` slices in a row. The preset flms-groups is the
 * plainest reading of FLMS's words: two groups of cores as large as the weights of their VMs, each
 * under Credit.
 *
 * Sources: the abstract (three subsets of cores with strategies of their own, on preset
 * conditions), and what its first author wrote later (a vCPU went to an I/O core at once when an
 * event came). That FLMS means this system is our guess; it does not say. Not published in what we
 * have, so ours: every number, how the subsets are sized, and when a vCPU goes back.
 *
 * What deviates. There is no third subset for the driver domain: no VM is known to be one; vhost
 * and I/O threads are I/O. An event is seen as the wake-up that it causes: one for a vCPU that runs
 * or waits already is not seen. A vCPU that is on a core of the wrong kind when the kinds change
 * leaves it by the next tick, or when its turn comes. Threads of the host run anywhere. What else
 * deviates from Xen is in credit.bpf.c.
 *
 * Charges wall time between switches, with interrupts and stolen time, as Xen does.
 *
 * Not good for: I/O beside compute in one vCPU of a latency VM (a hog there takes a fast core's
 * turns like anybody); caches in `event` (two moves for each burst); hosts of few cores.
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"
#include "credit/stats.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall", "I/O bounding, reconstructed: I/O on cores with short slices, else Credit");
BERTH_HYPERVISOR("xen");

BERTH_CHOICE(mode, "vm|event", 0,
	     "Who runs on fast cores: VMs by class, or whoever an event wakes");
BERTH_PARAM(u64, period_ms, "ms", 100, 10, 10000,
	    "How often events and I/O's run time are counted");
BERTH_PARAM(u64, on_rate, "count", 1000, 1, 10000000,
	    "event: fast cores from two periods on with more events a second");
BERTH_PARAM(u64, off_rate, "count", 300, 0, 10000000, "event: none after five with fewer");
BERTH_PARAM(u64, fast_us, "us", 1000, 100, 100000, "Slice on a fast core");
BERTH_PARAM(u32, stay, "count", 3, 1, 1000, "event: so many of them in a row there");
BERTH_CHOICE(fast_order, "turns|credit", 0,
	     "On a fast core: whoever came first, or Credit's classes, boost and rate limit");
BERTH_PARAM(u32, fast_cpus, "CPUs", 0, 0, 1024, "Fast cores; 0: as `fast_size` says");
BERTH_CHOICE(
	fast_size, "time|weights", 0,
	"Fast cores: as many as I/O's run time fills, or (vm) as its vCPUs' weights are worth");
BERTH_PARAM(u64, fill_percent, "percent", 80, 1, 100, "So far they are to be used");
BERTH_PRESET(flms_groups, "flms-groups",
	     "mode=vm,fast_us=30000,fast_order=credit,fast_size=weights",
	     "The groups of FLMS, sized by weights once and for all, and else Credit");
BERTH_MOST_CPUS(1024);

struct berth_stats {
	CREDIT_STATS
	u64 events;
	u64 visits;    /* event: of vCPUs on fast cores */
	u64 resized;   /* times that the number of fast cores changed */
	u64 misplaced; /* found on a core of the wrong kind */
};
BERTH_STATS;

#define rehome_movers	   true
#define migrate_for_wakeup false /* idle CPUs of the other kind are no place to go to, boosted */

static const u32 rounding, start;
static const bool hysteresis;

/* home: + 1, where it ran last under Credit; stays: fast slices in a row; guest: a VM's. */
#include "../flms/groups_fields.bpf.h"
#define VCPU_MORE                                                                                  \
	GROUP_VCPU                                                                                 \
	u32 home;                                                                                  \
	u32 stays;                                                                                 \
	u32 guest;
#define PCPU_MORE GROUP_PCPU
#define narrow	  narrow

#include "credit/rules.bpf.h"
#include "../flms/groups.bpf.h"

enum mode { BY_VM, BY_EVENT };
enum fast_order { BY_TURNS, BY_CREDIT };
enum fast_size { BY_TIME, BY_WEIGHTS };

#define FIFO (3ULL << CLASS_SHIFT) /* covers all classes */

static u64 events;    /* of this period */
static u64 io_ns;     /* EWMA of I/O's run time in a period */
static u32 loud_for;  /* periods in a row above on_rate, */
static u32 quiet_for; /* and below off_rate */
static bool is_on;    /* event: there are fast cores */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer);
} periods SEC(".maps");

#define labelled labelled
static __always_inline void labelled(struct vcpu *v, struct berth_identity *id)
{
	u64 weight = mode == BY_VM ? (u64)id->vm.weight * 16 / (id->vm.vcpus ?: 1) : 0;
	u32 role = id->thread.role;
	bool serves = role == BERTH_ROLE_VHOST || role == BERTH_ROLE_IOTHREAD ||
		      id->vm.class == BERTH_CLASS_LATENCY ||
		      (id->vm.class == BERTH_CLASS_MIXED && id->thread.flags & BERTH_THREAD_IO);

	v->guest = v->slot != HOST && role != BERTH_ROLE_OTHER && role != BERTH_ROLE_EMULATOR;
	if (!v->guest)
		set_kind(v, ANY_KIND, 0);
	else
		set_kind(v, mode == BY_VM && serves ? IO_KIND : CPU_KIND, weight);
}

#define refresh refresh
static __always_inline void refresh(struct task_struct *p, struct vcpu *v)
{
	if (v->fits_epoch != groups_epoch)
		fit(p, v);
}

#define may_use may_use
static __always_inline bool may_use(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && in_group(v, cpu);
}

/* Of the CPUs that p may use, the one where fewest wait or run. */
static __noinline s32 shortest_queue(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	struct choice *s = choice_here();
	s32 at, found = cpu, least = 1 << 30, n;
	struct pcpu *c;

	if (!p || !v || !s)
		return cpu;
	usable(&s->zone, p, v);
	keep_both(&s->zone, &online_cpus);
	bpf_for(at, 0, berth_nr_cpus) {
		c = pcpu_at(at);
		if (!c || !has(&s->zone, at))
			continue;
		n = scx_bpf_dsq_nr_queued(at) + (c->curr != 0);
		if (n >= least)
			continue;
		least = n;
		found = at;
	}
	return found;
}

/* Back to where it was under Credit, or to where it may be. */
#define rehome rehome
static __always_inline s32 rehome(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	s32 home = v->home - 1;
	struct pcpu *c = v->home ? pcpu_at(home) : NULL;

	return c && c->online && may_use(p, v, home) ? home : shortest_queue(p, v, cpu);
}

/* `event`: it goes to a fast core. */
#define aim aim
static __always_inline s32 aim(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	if (mode != BY_EVENT || !is_on || !v->guest)
		return cpu;
	set_kind(v, IO_KIND, 0);
	v->stays = 0;
	fit(p, v);
	berth_count(visits);
	return shortest_queue(p, v, cpu);
}

#define wake_to wake_to
static __always_inline s32 wake_to(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	if (v->guest) {
		__sync_fetch_and_add(&events, 1);
		berth_count(events);
	}
	return NO_CPU;
}

/* `event`: its visit is over. */
static __always_inline bool end_visit(struct vcpu *v)
{
	return mode == BY_EVENT && v->guest && set_kind(v, CPU_KIND, 0);
}

#define slept slept
static __always_inline void slept(struct vcpu *v)
{
	end_visit(v);
}

#define ended ended
static __always_inline void ended(struct task_struct *p)
{
	struct vcpu *v = vcpu_of(p);

	if (v)
		set_kind(v, ANY_KIND, 0);
	core_exit_task(p);
}

#define before_decision before_decision
static __always_inline void before_decision(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	if (mode != BY_EVENT || !is_short(cpu) || v->kind != IO_KIND ||
	    (s64)(c->slice_end - scx_bpf_now()) > 0)
		return;
	v->stays++;
	if (v->stays >= stay && end_visit(v))
		set_flag(v, VF_MIGRATING);
}

#define credit_burned credit_burned
static __always_inline void credit_burned(struct vcpu *v, struct pcpu *c, u32 credits, u64 ns)
{
	if (v->kind == IO_KIND)
		__sync_fetch_and_add(&c->sample_io, ns);
}

/* Everybody there waits for a turn. */
static __always_inline bool in_turn(s32 cpu)
{
	return fast_order == BY_TURNS && is_short(cpu);
}

#define queue_key queue_key
static __always_inline u64 queue_key(struct vcpu *v, struct pcpu *c, s32 cpu, bool front)
{
	return arrival_key(c, front) | (in_turn(cpu) ? FIFO : 0);
}

#define slice_ns slice_ns
static __always_inline u64 slice_ns(struct vcpu *v, s32 cpu)
{
	return is_short(cpu) ? fast_us * 1000 : tslice_ms * MS;
}

#include "credit/in_turn.bpf.h"

/* v runs where it may not, since the kinds of cores have changed or its label is new. */
static __always_inline void send_away(struct vcpu *v, s32 cpu)
{
	if (in_group(v, cpu))
		return;
	set_flag(v, VF_MIGRATING);
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	berth_count(misplaced);
}

#define started started
static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	if (!is_short(cpu))
		v->home = cpu + 1;
	send_away(v, cpu);
}

#define ticked ticked
static __always_inline void ticked(struct pcpu *c, s32 cpu)
{
	struct vcpu *v = c->curr ? vcpu_at(c->curr) : NULL;

	if (v)
		send_away(v, cpu);
}

/* So many fast cores: enough for I/O's run time, one more or less than there were; or (fast_size)
 * as FLMS has it, D4. */
static __always_inline u32 cores_needed(void)
{
	u64 each = period_ms * MS * fill_percent / 100, n = (io_ns + each - 1) / each;

	if (nr_online < 2 || (mode == BY_EVENT ? !is_on : nr_io <= 0))
		return 0;
	if (!fast_cpus && mode == BY_VM && fast_size == BY_WEIGHTS) {
		seed_estimates(period_ms * MS);
		return group_size(false);
	}
	if (fast_cpus)
		n = fast_cpus;
	else if (nr_short && n > nr_short + 1)
		n = nr_short + 1;
	else if (nr_short > 1 && n < nr_short - 1)
		n = nr_short - 1;
	if (n < 1)
		n = 1;
	return n < nr_online - 1 ? n : nr_online - 1;
}

static __always_inline void resize(void)
{
	split = nr_online > 1;
	if (set_groups(cores_needed()))
		berth_count(resized);
}

static __always_inline void note_rate(u64 rate)
{
	loud_for = rate > on_rate ? loud_for + 1 : 0;
	quiet_for = rate < off_rate ? quiet_for + 1 : 0;
	if (loud_for >= 2)
		is_on = true;
	if (quiet_for >= 5)
		is_on = false;
}

static int period_over(void *map, u32 *key, struct bpf_timer *timer)
{
	u64 ns = 0;
	struct pcpu *c;
	u32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (c)
			ns += __sync_lock_test_and_set(&c->sample_io, 0);
	}
	io_ns = (io_ns + ns) / 2;
	note_rate(__sync_lock_test_and_set(&events, 0) * 1000 / period_ms);
	resize();
	bpf_timer_start(timer, period_ms * MS, 0);
	return 0;
}

#define cpus_changed cpus_changed
static __always_inline void cpus_changed(void)
{
	struct pcpu *c;
	u32 cpu, rank = 0;

	bpf_for(cpu, 0, berth_nr_cpus) {
		c = pcpu_at(cpu);
		if (c && c->online)
			c->rank = rank++;
	}
	groups_epoch++;
	resize();
}

#define prepare prepare
static __always_inline s32 prepare(void)
{
	u32 zero = 0;
	struct timer *t = bpf_map_lookup_elem(&periods, &zero);

	if (!t)
		return -ENOENT;
	cpus_changed();
	bpf_timer_init(&t->timer, &periods, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, period_over);
	return bpf_timer_start(&t->timer, period_ms * MS, 0);
}

#include "credit/plain.bpf.h"

CREDIT_CALLBACKS(iobound)

void BPF_STRUCT_OPS(iobound_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	struct vcpu *v = vcpu_of(p);

	if (v)
		v->fits_epoch = 0;
}

/* clang-format off */
SCX_OPS_DEFINE(iobound_ops,
	CREDIT_OPS(iobound),
	.set_cpumask		= (void *)iobound_set_cpumask,
	.name			= "iobound");
