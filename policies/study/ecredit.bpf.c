/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ecredit: a reconstruction of ECredit (Ding, Xiong, Yang, 2013), on the rules of Xen 4.4.
 *
 * Idea. In a class, those come first whose VM has made more I/O requests since the last accounting
 * (q). A woken vCPU preempts one that is UNDER if its q is larger by more than `margin`, though it
 * is not boosted. Classes and credits stay as they are.
 *
 * Sources: its abstract, and the related work of FLMS (Journal of Software 28(2), 2017). Not
 * published in what we have, so ours: what is counted when, and the margin.
 *
 * What deviates. The requests in a VM's shared rings are not visible to a policy. Counted are the
 * wake-ups of the VM's threads instead: each request or interrupt that finds a thread asleep. q is
 * of the last accounting period and of this one up to now; who waits is sorted anew by the first
 * tick after an accounting. What else deviates from Xen is in credit.bpf.c.
 *
 * Charges wall time between switches, with interrupts and stolen time, as Xen does.
 *
 * Not good for: VMs that wake for no request (timers count as I/O); I/O beside compute in one
 * vCPU, which seldom sleeps; VMs with little I/O, whose packets wait behind those with much.
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"
#include "credit/stats.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall", "ECredit, reconstructed: Credit, and more I/O comes first in each class");
BERTH_HYPERVISOR("xen");

BERTH_PARAM(u64, margin, "count", 8, 0, 1000000,
	    "So many requests more than who runs preempt it, though not boosted");
BERTH_MOST_CPUS(1024);

struct berth_stats {
	CREDIT_STATS
};
BERTH_STATS;

#define VCPU_MORE
/* filed_epoch: its queue has been sorted after that accounting. */
#define PCPU_MORE u64 filed_epoch;

#include "credit/rules.bpf.h"

#define MOST_REQUESTS (1ULL << 16)
#define SEQUENCE_BITS 40

/* A VM's requests: in this accounting period, and in the one before. */
struct requests {
	u64 now;
	u64 last;
	u64 epoch;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_DOMAINS);
	__type(key, u32);
	__type(value, struct requests);
} requests_by_vm SEC(".maps");

static u64 accountings;

/* Requests of v's VM, those of an older period forgotten. */
static __always_inline struct requests *requests_of(struct vcpu *v)
{
	u32 slot = v->slot;
	struct requests *r = bpf_map_lookup_elem(&requests_by_vm, &slot);

	if (!r || r->epoch == accountings)
		return r;
	r->last = r->epoch + 1 == accountings ? r->now : 0;
	r->now = 0;
	r->epoch = accountings;
	return r;
}

static __always_inline u64 intensity(struct vcpu *v)
{
	struct requests *r = requests_of(v);
	u64 q = r ? r->now + r->last : 0;

	return q < MOST_REQUESTS ? q : MOST_REQUESTS;
}

/* Most first, in order of arrival among equals; `front`: before those. */
#define queue_key queue_key
static __always_inline u64 queue_key(struct vcpu *v, struct pcpu *c, s32 cpu, bool front)
{
	u64 order = arrival_key(c, front) - MIDDLE + (1ULL << (SEQUENCE_BITS - 1));

	return (MOST_REQUESTS - (v->pri < OVER ? intensity(v) : 0)) << SEQUENCE_BITS | order;
}

#define goes_before goes_before
static __always_inline bool goes_before(struct vcpu *v, struct vcpu *first, u64 key, struct pcpu *c,
					s32 cpu)
{
	if (v->pri != first->pri || v->pri >= OVER)
		return v->pri < first->pri;
	return intensity(v) > intensity(first);
}

/* A request, before its thread is queued. */
#define wake_to wake_to
static __always_inline s32 wake_to(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	struct requests *r = requests_of(v);

	if (r && v->slot != HOST)
		__sync_fetch_and_add(&r->now, 1);
	return NO_CPU;
}

#define beats beats
static __always_inline bool beats(struct vcpu *v, struct vcpu *curr, struct pcpu *c, s32 cpu)
{
	if (v->pri < curr->pri)
		return true;
	return v->pri == UNDER && curr->pri == UNDER && intensity(v) > intensity(curr) + margin;
}

#define accounting_over accounting_over
static __always_inline void accounting_over(void)
{
	accountings++;
}

#define ticked ticked
static __always_inline void ticked(struct pcpu *c, s32 cpu)
{
	if (c->filed_epoch == accountings)
		return;
	c->filed_epoch = accountings;
	sort_queue(cpu, true);
}

#include "credit/plain.bpf.h"

CREDIT_CALLBACKS(ecredit)

/* clang-format off */
SCX_OPS_DEFINE(ecredit_ops,
	CREDIT_OPS(ecredit),
	.name			= "ecredit");
