/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vslicer: a reconstruction of vSlicer (Xu et al., "vSlicer: Latency-aware virtual machine
 * scheduling via differentiated-frequency CPU slicing", HPDC 2012), on the rules of Xen 4.4.
 *
 * Idea. The vCPUs of a latency-sensitive VM have the same share as others, in more and shorter
 * turns: where r vCPUs share a pCPU, each of them gets a sixth of a slice, 5 ms, in each frame of
 * r x 5 ms, before those that compute. These run in what is left of the frame, and go on with the
 * rest of their 30 ms when they were interrupted. So a latency-sensitive vCPU that always computes
 * waits 15 ms beside three others, not 90; one that sleeps is boosted as in Credit as long as it
 * has something left of its turn.
 *
 * Sources: the abstract (two classes, more turns, an equal share); the related work of FLMS (no
 * isolation). Not published in what we have, so ours: the length of the microslice (`turns` of a
 * slice), how the turns are interleaved (the frame), what a wake-up is worth after the turn
 * (nothing), and that of unequal weights a turn is longer in their proportion.
 *
 * What deviates. A vCPU is latency-sensitive if its VM is of class latency; the reserved vCPUs of
 * a mixed VM are not: vSlicer knows VMs of one kind. Who is OVER gets no turn, and has cause to
 * wait: it had more than its share. A frame counts whoever ran in the last one or waits. What else
 * deviates from Xen is in credit.bpf.c.
 *
 * Charges wall time between switches, with interrupts and stolen time, as Xen does.
 *
 * Not good for: mixed VMs; many latency-sensitive VMs on a pCPU (each waits for all others'
 * turns); caches of who computes beside them.
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"
#include "credit/stats.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall", "vSlicer, reconstructed: Credit, and shorter turns more often for latency");
BERTH_HYPERVISOR("xen");

BERTH_PARAM(u64, turns, "count", 6, 1, 100, "Turns of a latency-sensitive vCPU for a slice");
BERTH_PARAM(u64, frame_least_us, "us", 1000, 100, 100000, "Shortest frame");
BERTH_PARAM(bool, boost_if_spent, "bool", 0, 0, 1, "A wake-up boosts after the turn, too");
BERTH_MOST_CPUS(1024);

struct berth_stats {
	CREDIT_STATS
	u64 frames;
	u64 turns_over; /* turns used up */
};
BERTH_STATS;

/* often: latency-sensitive; turn_ns: what is left of its turn in the frame for which it got one at
 * turn_at; rest_ns: of a slice that such a vCPU has interrupted; met: number of the frame in which
 * it was counted, on met_on (+ 1). */
#define VCPU_MORE                                                                                  \
	u32 often;                                                                                 \
	u32 met_on;                                                                                \
	u64 met;                                                                                   \
	u64 turn_ns;                                                                               \
	u64 turn_at;                                                                               \
	u64 rest_ns;
/* frame: its number, since frame_at; members, weights: of those met in it; mean: of the last one's
 * weights. */
#define PCPU_MORE                                                                                  \
	u32 framing;                                                                               \
	u32 members;                                                                               \
	u64 weights;                                                                               \
	u64 mean;                                                                                  \
	u64 frame;                                                                                 \
	u64 frame_at;

#include "credit/rules.bpf.h"

#define EARLIER (1ULL << 56) /* in a queue: before, or after, the others of the class */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct timer);
} frames_by_cpu SEC(".maps");

static __always_inline u64 micro_ns(void)
{
	return tslice_ms * MS / turns;
}

static __always_inline u64 weight_of(struct vcpu *v)
{
	struct domain *d = domain_at(v->slot);

	return d ? (u64)d->weight * WEIGHT_ONE / (d->vcpus ?: 1) ?: 1 : 1;
}

/* A turn of v on c: m, by its weight. */
static __always_inline u64 whole_turn(struct vcpu *v, struct pcpu *c)
{
	return c->mean ? micro_ns() * weight_of(v) / c->mean : micro_ns();
}

/* v is on c: a new frame there means a new turn. */
static __always_inline void renew(struct vcpu *v, struct pcpu *c)
{
	if (!v->often || (s64)(c->frame_at - v->turn_at) < 0)
		return;
	v->turn_at = scx_bpf_now() + 1;
	v->turn_ns = whole_turn(v, c);
}

/* v runs or waits on cpu in this frame. */
static __always_inline void meet(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	if (v->met == c->frame && v->met_on == cpu + 1)
		return;
	v->met = c->frame;
	v->met_on = cpu + 1;
	c->members++;
	c->weights += weight_of(v);
}

static __always_inline void arm_frame(s32 cpu, u64 members)
{
	u64 ns = members * micro_ns(), least = frame_least_us * 1000;
	u32 key = cpu;
	struct timer *t = bpf_map_lookup_elem(&frames_by_cpu, &key);

	if (t)
		bpf_timer_start(&t->timer, ns > least ? ns : least, CPU_PIN);
}

/* Before, among or behind those of its class: with something left of its turn, computing, with
 * nothing left. */
static __always_inline u32 band_of(struct vcpu *v)
{
	if (v->pri != UNDER || !v->often)
		return 1;
	return v->turn_ns ? 0 : 2;
}

#define labelled labelled
static __always_inline void labelled(struct vcpu *v, struct berth_identity *id)
{
	v->often = id->vm.class == BERTH_CLASS_LATENCY && id->thread.role == BERTH_ROLE_VCPU;
}

#define credit_burned credit_burned
static __always_inline void credit_burned(struct vcpu *v, struct pcpu *c, u32 credits, u64 ns)
{
	if (!v->often || !v->turn_ns)
		return;
	v->turn_ns = v->turn_ns > ns ? v->turn_ns - ns : 0;
	if (!v->turn_ns)
		berth_count(turns_over);
}

#define started started
static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	if (!c->framing) {
		c->framing = 1;
		c->frame++;
		c->frame_at = scx_bpf_now();
		c->members = c->weights = c->mean = 0;
		arm_frame(cpu, 1);
	}
	renew(v, c);
	meet(v, c, cpu);
}

#define descheduled descheduled
static __always_inline void descheduled(struct vcpu *v, struct pcpu *c)
{
	v->rest_ns = 0;
	renew(v, c);
	if (v->often && !v->turn_ns && v->pri == BOOST)
		v->pri = UNDER;
}

#define slept slept
static __always_inline void slept(struct vcpu *v)
{
	v->rest_ns = 0;
}

#define slice_ns slice_ns
static __always_inline u64 slice_ns(struct vcpu *v, s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu);

	if (!v->often)
		return v->rest_ns ?: tslice_ms * MS;
	if (c)
		renew(v, c);
	return v->turn_ns ?: micro_ns();
}

#define rate_limit_ns rate_limit_ns
static __always_inline u64 rate_limit_ns(struct vcpu *v, s32 cpu)
{
	u64 limit = ratelimit_us * 1000;

	return limit < micro_ns() / 2 ? limit : micro_ns() / 2;
}

#define boosts boosts
static __always_inline bool boosts(struct vcpu *v, s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu);

	if (c)
		renew(v, c);
	return !v->often || v->turn_ns || boost_if_spent;
}

#define queue_key queue_key
static __always_inline u64 queue_key(struct vcpu *v, struct pcpu *c, s32 cpu, bool front)
{
	u32 band;
	u64 key;

	renew(v, c);
	band = band_of(v);
	key = arrival_key(c, front || v->rest_ns);
	return band == 0 ? key - EARLIER : band == 1 ? key : key + EARLIER;
}

/* Who computes and is interrupted by a turn goes on with the rest of its slice, first of its class.
 */
#define goes_before goes_before
static __always_inline bool goes_before(struct vcpu *v, struct vcpu *first, u64 key, struct pcpu *c,
					s32 cpu)
{
	s64 left = c->slice_end - scx_bpf_now();

	renew(first, c);
	if (v->pri < first->pri || (v->pri == first->pri && band_of(v) < band_of(first)))
		return true;
	if (!v->often && first->often && left > 0)
		v->rest_ns = left;
	return false;
}

/* A frame is over on cpu: who waits there and has something to use in the next one comes first. How
 * many the frame had. */
__noinline u32 next_frame(s32 cpu)
{
	struct pcpu *c = pcpu_at(cpu);
	struct task_struct *p;
	struct vcpu *v;
	u32 members;

	if (!c)
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, cpu, 0) {
		v = vcpu_of(p);
		if (v)
			meet(v, c, cpu);
	}
	members = c->members;
	c->mean = members ? c->weights / members : 0;
	c->members = 0;
	c->weights = 0;
	c->frame++;
	c->frame_at = scx_bpf_now();
	/* Moved ones are not met again. */
	bpf_for_each(scx_dsq, p, cpu, 0) {
		v = vcpu_of(p);
		if (!v || !v->often || v->pri != UNDER)
			continue;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, key_of(v, c, cpu, false));
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, cpu, 0);
	}
	bpf_rcu_read_unlock();
	return members;
}

static int frame_over(void *map, u32 *key, struct bpf_timer *timer)
{
	struct vcpu *v, *first;
	struct task_struct *head;
	struct pcpu *c;
	s32 cpu = *key;
	u32 members;

	c = pcpu_at(cpu);
	if (!c)
		return 0;
	v = c->curr ? vcpu_at(c->curr) : NULL;
	if (v)
		burn(v, c, scx_bpf_now());
	members = next_frame(cpu);
	if (!members) {
		c->framing = 0;
		return 0;
	}
	berth_count(frames);
	arm_frame(cpu, members);
	if (!v)
		return 0;
	meet(v, c, cpu);
	renew(v, c);
	head = __COMPAT_scx_bpf_dsq_peek(cpu);
	first = head ? vcpu_of(head) : NULL;
	if (first && first->often && first->pri == UNDER && !v->often && v->pri >= UNDER)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

#define prepare prepare
static __always_inline s32 prepare(void)
{
	struct timer *t;
	u32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		t = bpf_map_lookup_elem(&frames_by_cpu, &cpu);
		if (!t)
			continue;
		bpf_timer_init(&t->timer, &frames_by_cpu, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&t->timer, frame_over);
	}
	return 0;
}

#include "credit/plain.bpf.h"

CREDIT_CALLBACKS(vslicer)

/* clang-format off */
SCX_OPS_DEFINE(vslicer_ops,
	CREDIT_OPS(vslicer),
	.name			= "vslicer");
