/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * brm: a reconstruction of bias random vCPU migration (Rao et al., "Optimizing virtual machine
 * scheduling in NUMA multicore systems", HPCA 2013), on the rules of Xen 4.4.
 *
 * Idea. What a vCPU pays for memory outside its core's caches tells which node is best for it. One
 * vCPU after the other, each every 30 ms, is looked at: if it would pay less on another node it
 * goes there with a probability, its bias. The system's penalty before and after tells whether that
 * was good: then the bias grows by 0.1, else it falls, and a move that made things worse is undone.
 * Now and then (`explore_percent`) a vCPU goes to another node for no reason. Inside a node:
 * Credit.
 *
 * Sources: the abstract (the uncore penalty predicts performance; vCPUs migrate so that the
 * system's is least); the related work of FLMS (locality, contention and sharing are weighed). Not
 * published in what we have, so ours: the penalty's formula, how the bias changes, the period.
 *
 * What is ours. A vCPU's penalty is counted in reads: for each million instructions, those of
 * another node's memory (`remote_percent`), and half of all that reach memory (`miss_percent`),
 * which are more where the last-level cache is contended. Sharing between vCPUs is not visible to
 * counters and not weighed. On a node where a vCPU has not been, what it read of other nodes'
 * memory is taken to be spread over them evenly. A node that has a vCPU for each of its CPUs gives
 * one back: that whose penalty grows least. A judgement waits until the moved vCPU has run, 30 ms
 * at most. What else deviates from Xen is in credit.bpf.c; memory nodes that a loader tells of are
 * not used.
 *
 * A vCPU that goes on running is interrupted to read its counters, and goes on with the rest of its
 * slice; one without credit may lose its CPU then, to somebody with credit.
 *
 * Without counters (host.pmu in scenarios; a machine without a PMU, or without these events) there
 * is nothing to decide by: each vCPU stays on the node that had most room when it began, and the
 * counter `blind` says so.
 *
 * Charges wall time between switches, with interrupts and stolen time, as Xen does.
 *
 * Not good for: latency (it knows none); memory that is spread evenly; many vCPUs (a step each).
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"
#include "credit/stats.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall", "Bias random migration, reconstructed: Credit in the node that costs least");
BERTH_HYPERVISOR("xen");

BERTH_PARAM(u64, look_ms, "ms", 30, 1, 10000, "Every vCPU is looked at once in this time");
BERTH_PARAM(u32, bias_start, "percent", 50, 5, 95, "Probability of a move that seems good");
BERTH_PARAM(u32, bias_step, "percent", 10, 0, 50, "So much more or less after each judgement");
BERTH_PARAM(u32, explore_percent, "percent", 5, 0, 100, "Probability of a move for no reason");
BERTH_PARAM(u32, gate_percent, "percent", 1, 0, 50, "Smaller changes of the penalty are noise");
BERTH_PARAM(u64, remote_percent, "percent", 100, 0, 1000, "Weight of reads of other nodes' memory");
BERTH_PARAM(u64, miss_percent, "percent", 50, 0, 1000, "Weight of all reads of memory");
BERTH_PARAM(u64, lend_ms, "ms", 10, 0, 10000, "A CPU idle for longer takes vCPUs of other nodes");
BERTH_MOST_CPUS(1024);

struct berth_stats {
	CREDIT_STATS
	u64 lent;     /* taken by a CPU of another node */
	u64 steps;    /* vCPUs looked at, */
	u64 blind;    /* of which nothing was counted, */
	u64 waits;    /* while the last move could not be judged */
	u64 moves;    /* to the node that seemed best, */
	u64 explored; /* and to any */
	u64 swaps;    /* of both, with one that came back */
	u64 undone;
};
BERTH_STATS;

#define rehome_movers true
#include "credit/nodes_fields.bpf.h"

/* bias: percent. reads, away: of memory and of another node's, for each million instructions.
 * fresh: they have been counted since it moved; measured: ever. cost: its penalty on each node, +
 * 1; 0: not known. */
#define VCPU_MORE                                                                                  \
	NODE_VCPU                                                                                  \
	u32 bias;                                                                                  \
	u32 fresh;                                                                                 \
	u32 measured;                                                                              \
	u64 reads;                                                                                 \
	u64 away;                                                                                  \
	u64 cost[BERTH_MEMORY_NODES];
/* asked: to read its counters; rest_ns: of the slice of who was interrupted for that. */
#define PCPU_MORE                                                                                  \
	NODE_PCPU                                                                                  \
	u32 asked;                                                                                 \
	u64 rest_ns;

#include "credit/rules.bpf.h"
#include "credit/nodes.bpf.h"

#define MILLION	      1000000ULL
#define BIAS_LEAST    5
#define BIAS_MOST     95
#define SETTLE_NS     100000 /* for counters to be read */
#define LEAST_STEP_NS 500000
#define LEAST_READ    10000 /* instructions */

/* Who moved last and has not been judged: numbers in vcpus, 0: nobody. Not static: the compiler
 * would take it to pieces, and its type would not fit them. */
struct trial {
	u32 moved;
	u32 back; /* for whom this one went the other way */
	u32 from;
	u32 to;
	u64 before; /* penalty of all */
	u64 at;
} trial;

static u32 cursor; /* number of the vCPU looked at */
static u32 guests; /* vCPUs of VMs, as counted last */
static u64 total;
static bool reading; /* counters have been asked for */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer);
} steps SEC(".maps");

#define labelled labelled
static __always_inline void labelled(struct vcpu *v, struct berth_identity *id)
{
	v->node = -1;
}

static __always_inline void settle(struct task_struct *p, struct vcpu *v)
{
	struct room *room;

	if (v->home || !is_guest(v))
		return;
	v->home = roomiest(v->nodes);
	v->bias = bias_start;
	room = v->home ? room_of(v->home - 1) : NULL;
	if (room)
		__sync_fetch_and_add(&room->vcpus, 1);
}

#define before_decision before_decision
static __always_inline void before_decision(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	s64 left = c->slice_end - scx_bpf_now();

	c->rest_ns = c->asked && left > 0 ? left : 0;
	c->asked = 0;
	nodes_read(v, c, cpu);
	nodes_return(v, cpu, false);
}

#define descheduled descheduled
static __always_inline void descheduled(struct vcpu *v, struct pcpu *c)
{
	nodes_read(v, c, bpf_get_smp_processor_id());
}

#define slept slept
static __always_inline void slept(struct vcpu *v)
{
	nodes_return(v, v->cpu, true);
}

#define started started
static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	c->asked = 0;
	c->rest_ns = 0;
	nodes_started(v, c, cpu);
}

/* Who was only interrupted goes on. */
#define goes_before goes_before
static __always_inline bool goes_before(struct vcpu *v, struct vcpu *first, u64 key, struct pcpu *c,
					s32 cpu)
{
	return v->pri < first->pri || (c->rest_ns && v->pri == first->pri);
}

#define slice_ns slice_ns
static __always_inline u64 slice_ns(struct vcpu *v, s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu);

	return c && c->rest_ns ? c->rest_ns : tslice_ms * MS;
}

static __always_inline u64 weigh(u64 reads, u64 away)
{
	return (reads * miss_percent + away * remote_percent) / 100;
}

/* What was read of a vCPU since it was last looked at becomes its penalty on its node. Here and
 * below, whoever reaches into `cost` by a variable is a function of its own: verifiers up to 7.0
 * fail to follow such an index out of a loop ("backtracking call unexpected regs"). */
__noinline int measure(u32 index)
{
	struct vcpu *v = vcpu_at(index);
	u64 cost, *known;
	u32 on;

	if (!v)
		return 0;
	on = v->read_on;
	if (!on || on != v->home || v->instructions < LEAST_READ)
		return 0;
	v->reads = v->loads * MILLION / v->instructions;
	v->away = v->remote * MILLION / v->instructions;
	v->instructions = v->loads = v->remote = 0;
	cost = weigh(v->reads, v->away) + 1;
	known = &v->cost[(on - 1) & (MOST_NODES - 1)];
	*known = *known ? (*known + cost) / 2 : cost;
	v->fresh = 1;
	v->measured = 1;
	return 1;
}

/* A vCPU's penalty on that node, as far as is known. */
__noinline u64 cost_on(u32 index, u32 node)
{
	struct vcpu *v = vcpu_at(index);
	u64 known, spread;

	if (!v)
		return 0;
	known = v->cost[node & (MOST_NODES - 1)];
	if (known || v->home == node + 1)
		return known ? known - 1 : 0;
	spread = v->away / (berth_nr_nodes > 1 ? berth_nr_nodes - 1 : 1);
	return weigh(v->reads, v->reads > spread ? v->reads - spread : 0);
}

/* Who has ended has left its node. */
__noinline int recount(void)
{
	struct room *room;
	struct vcpu *v;
	u32 i;

	bpf_for(i, 0, berth_nr_nodes) {
		room = room_of(i);
		if (room)
			room->vcpus = 0;
	}
	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		room = v && v->pid && v->home && is_guest(v) ? room_of(v->home - 1) : NULL;
		if (room)
			__sync_fetch_and_add(&room->vcpus, 1);
	}
	return 0;
}

/* The penalty of all, and how many they are. */
__noinline int add_up(bool measured)
{
	struct vcpu *v;
	u32 i;

	total = 0;
	guests = 0;
	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (!v || !v->pid || !v->home || !is_guest(v))
			continue;
		if (measured)
			measure(i);
		__sync_fetch_and_add(&guests, 1);
		__sync_fetch_and_add(&total, cost_on(i, v->home - 1));
	}
	return 0;
}

/* cpu is to read its counters, if somebody has been running there for a while. */
static __always_inline void ask(s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu);
	struct vcpu *v = c && c->curr ? vcpu_at(c->curr) : NULL;

	if (!v || !is_guest(v) || scx_bpf_now() - v->switched_in < ratelimit_us * 1000)
		return;
	c->asked = 1;
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* The next vCPU of a VM after number `at`, around; 0: there is none. */
__noinline u32 next_guest(u32 at)
{
	u32 i, index = at, found = 0;
	struct vcpu *v;

	bpf_for(i, 0, vcpus_used) {
		index = index + 1 < vcpus_used ? index + 1 : 1;
		v = vcpu_at(index);
		if (!v || !v->pid || !v->home || !is_guest(v))
			continue;
		found = index;
		break;
	}
	return found;
}

static __always_inline void ask_for_counters(void)
{
	struct vcpu *v;
	s32 cpu;

	cursor = next_guest(cursor);
	v = cursor ? vcpu_at(cursor) : NULL;
	if (!trial.moved) {
		if (v)
			ask(v->cpu);
		return;
	}
	bpf_for(cpu, 0, berth_nr_cpus)
		ask(cpu);
}

/* The vCPU of node `at` whose penalty grows least if it goes to node `to`; 0: none may. */
__noinline u32 cheapest(u32 at, u32 to)
{
	s64 least = 1LL << 62, grows;
	struct vcpu *v;
	u32 i, found = 0;

	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (!v || !v->pid || v->home != at + 1 || !is_guest(v) || !may_live(v, to))
			continue;
		grows = cost_on(i, to) - cost_on(i, at);
		if (grows >= least)
			continue;
		least = grows;
		found = i;
	}
	return found;
}

static __always_inline void go(u32 index, u32 node)
{
	struct vcpu *v = vcpu_at(index);
	struct room *from, *to;

	if (!v)
		return;
	v->fresh = 0;
	v->instructions = v->loads = v->remote = 0;
	from = v->home ? room_of(v->home - 1) : NULL;
	to = room_of(node);
	if (from)
		__sync_fetch_and_sub(&from->vcpus, 1);
	if (to)
		__sync_fetch_and_add(&to->vcpus, 1);
	leave_for(index, v, node);
}

/* Number `index` goes to that node, and one of it comes back if it is full. */
__noinline int move_to(u32 index, u32 from, u32 to)
{
	struct room *room = room_of(to);
	u32 back = 0;

	if (!room)
		return 0;
	if (room->vcpus >= room->cpus) {
		back = cheapest(to, from);
		if (!back)
			return 0;
		berth_count(swaps);
	}
	trial.moved = index;
	trial.back = back;
	trial.from = from;
	trial.to = to;
	trial.before = total;
	trial.at = scx_bpf_now();
	go(index, to);
	if (back)
		go(back, from);
	return 1;
}

/* Was the last move good? */
__noinline int judge(void)
{
	u64 gate = trial.before * gate_percent / 100;
	struct vcpu *v = vcpu_at(trial.moved);
	struct vcpu *back = trial.back ? vcpu_at(trial.back) : NULL;
	bool lives = v && v->pid && v->home == trial.to + 1;
	bool late = scx_bpf_now() - trial.at >= look_ms * MS;

	if (lives && !late && (!v->fresh || (back && back->pid && !back->fresh)))
		return 0;
	if (lives && total + gate < trial.before)
		v->bias = v->bias + bias_step < BIAS_MOST ? v->bias + bias_step : BIAS_MOST;
	else if (lives)
		v->bias = v->bias > BIAS_LEAST + bias_step ? v->bias - bias_step : BIAS_LEAST;
	if (lives && total > trial.before + gate) {
		berth_count(undone);
		go(trial.moved, trial.from);
		if (back && back->pid && back->home == trial.from + 1)
			go(trial.back, trial.to);
	}
	trial.moved = 0;
	return 0;
}

static __always_inline bool chance(u32 percent)
{
	return bpf_get_prandom_u32() % 100 < percent;
}

/* The node that costs a vCPU least, its own of equals. */
__noinline u32 best_for(u32 index, u32 here)
{
	u64 least = cost_on(index, here), cost;
	struct vcpu *v = vcpu_at(index);
	u32 node, found = here;

	if (!v)
		return here;
	bpf_for(node, 0, berth_nr_nodes) {
		if (node == here || !may_live(v, node))
			continue;
		cost = cost_on(index, node);
		if (cost >= least)
			continue;
		least = cost;
		found = node;
	}
	return found;
}

static __always_inline void decide(void)
{
	struct vcpu *v = cursor ? vcpu_at(cursor) : NULL;
	u32 here, to;

	if (!v || !v->pid || !v->home)
		return;
	here = v->home - 1;
	if (!v->measured) {
		berth_count(blind);
		return;
	}
	to = best_for(cursor, here);
	if (to != here && chance(v->bias)) {
		if (move_to(cursor, here, to))
			berth_count(moves);
		return;
	}
	if (berth_nr_nodes < 2 || !chance(explore_percent))
		return;
	to = (here + 1 + bpf_get_prandom_u32() % (berth_nr_nodes - 1)) % berth_nr_nodes;
	if (may_live(v, to) && move_to(cursor, here, to))
		berth_count(explored);
}

static int step_over(void *map, u32 *key, struct bpf_timer *timer)
{
	u64 step;

	if (!reading) {
		reading = true;
		ask_for_counters();
		bpf_timer_start(timer, SETTLE_NS, 0);
		return 0;
	}
	reading = false;
	recount();
	add_up(true);
	if (trial.moved) {
		judge();
		add_up(false);
	}
	if (cursor)
		berth_count(steps);
	if (!trial.moved)
		decide();
	else
		berth_count(waits);
	step = look_ms * MS / (guests ?: 1);
	bpf_timer_start(timer, step > LEAST_STEP_NS ? step - SETTLE_NS : LEAST_STEP_NS, 0);
	return 0;
}

#define cpus_changed cpus_changed
static __always_inline void cpus_changed(void)
{
	nodes_cpus_changed();
}

#define prepare prepare
static __always_inline s32 prepare(void)
{
	s32 err = nodes_prepare();
	u32 zero = 0;
	struct timer *t;

	if (err)
		return err;
	t = bpf_map_lookup_elem(&steps, &zero);
	if (!t)
		return -ENOENT;
	bpf_timer_init(&t->timer, &steps, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, step_over);
	return bpf_timer_start(&t->timer, look_ms * MS, 0);
}

#include "credit/plain.bpf.h"

CREDIT_CALLBACKS(brm)

void BPF_STRUCT_OPS(brm_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	struct vcpu *v = vcpu_of(p);

	if (v)
		nodes_forget(v);
}

/* clang-format off */
SCX_OPS_DEFINE(brm_ops,
	CREDIT_OPS(brm),
	.set_cpumask		= (void *)brm_set_cpumask,
	.name			= "brm");
