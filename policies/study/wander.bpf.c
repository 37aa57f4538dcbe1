/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wander: threads that change CPUs by chance, the unbound side of a study of CPU affinity.
 *
 * Idea. Each CPU has a queue, first come, first served; nobody takes a running thread's CPU. A
 * waking thread stays on the CPU where it ran, busy or not. With probability `move` it goes to an
 * idle CPU instead, if there is another one it may use: with probability `near` to one of its LLC
 * if one is idle there, else to any, both chosen at random. Every `balance_ms` each idle CPU takes
 * over one waiting thread.
 *
 * Source: what docs/papers/affinity.md needs for "runs free on four cores", where the paper says
 * nothing of how often its kernel moved the guest's threads. One number stands for that, so that a
 * result can be shown to hold, or not, for others; cfs and eevdf are the schedulers themselves.
 *
 * Deviation: where there are ticks, a slice ends at the first one after its length.
 *
 * Not good for: anything else. Nobody should want threads to move for no reason.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "Threads that change CPUs by chance: the unbound side of CPU affinity");

BERTH_PARAM(u64, move, "%", 30, 0, 100, "Wake-ups that leave the CPU where a thread ran");
BERTH_PARAM(u64, near, "%", 50, 0, 100, "Of those, such as look at the same LLC first");
BERTH_PARAM(u64, balance_ms, "ms", 64, 1, 10000, "Idle CPUs take over waiting threads so often");
BERTH_PARAM(u64, slice_us, "us", 4000, 100, 1000000, "Longest run while another thread waits");

struct berth_stats {
	u64 moved;  /* wake-ups on another CPU */
	u64 pulled; /* taken over by an idle CPU */
};
BERTH_STATS;

struct look {
	bool now; /* may take over a thread */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct look);
} looks_by_cpu SEC(".maps");

struct balancer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct balancer);
} balancers SEC(".maps");

static __always_inline struct look *look_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&looks_by_cpu, &key);
}

static __always_inline bool chance(u64 percent)
{
	return bpf_get_prandom_u32() % 100 < percent;
}

/* An idle CPU for p, not this one, now claimed; -1. From a random one on, by number. */
static __always_inline s32 claim_idle(struct task_struct *p, s32 but, bool near)
{
	u32 start = bpf_get_prandom_u32() % (berth_nr_cpus ?: 1), llc = berth_llc(but), i;
	s32 cpu;

	bpf_for(i, 0, berth_nr_cpus) {
		cpu = (start + i) % berth_nr_cpus;
		if (cpu == but || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		if (near && berth_llc(cpu) != llc)
			continue;
		if (scx_bpf_test_and_clear_cpu_idle(cpu))
			return cpu;
	}
	return -1;
}

s32 BPF_STRUCT_OPS(wander_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool stays = bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr);
	s32 cpu = -1;

	if (p->nr_cpus_allowed > 1 && !is_migration_disabled(p) && (!stays || chance(move))) {
		if (chance(near))
			cpu = claim_idle(p, prev_cpu, true);
		if (cpu < 0)
			cpu = claim_idle(p, prev_cpu, false);
	}
	if (cpu >= 0) {
		berth_count(moved);
		return cpu;
	}
	if (!stays)
		return bpf_cpumask_first(p->cpus_ptr);
	scx_bpf_test_and_clear_cpu_idle(prev_cpu);
	return prev_cpu;
}

void BPF_STRUCT_OPS(wander_enqueue, struct task_struct *p, u64 enq_flags)
{
	if ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1) {
		if (enq_flags & SCX_ENQ_WAKEUP)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_us * 1000, enq_flags);
		return;
	}
	scx_bpf_dsq_insert(p, scx_bpf_task_cpu(p), slice_us * 1000, enq_flags);
}

void BPF_STRUCT_OPS(wander_dispatch, s32 cpu, struct task_struct *prev)
{
	struct look *c = look_of(cpu);
	s32 i, from;

	if (scx_bpf_dsq_move_to_local(cpu, 0))
		return;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED)) {
		scx_bpf_task_set_slice(prev, slice_us * 1000);
		return;
	}
	if (!c || !c->now)
		return;
	c->now = false;
	bpf_for(i, 1, berth_nr_cpus) {
		from = (cpu + i) % berth_nr_cpus;
		if (scx_bpf_dsq_nr_queued(from) > 0 && scx_bpf_dsq_move_to_local(from, 0)) {
			berth_count(pulled);
			return;
		}
	}
}

/* Somebody waits: idle CPUs may look. */
static int balance(void *map, int *key, struct bpf_timer *timer)
{
	bool waits = false;
	struct look *c;
	s32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		if (scx_bpf_dsq_nr_queued(cpu) > 0)
			waits = true;
	}
	bpf_for(cpu, 0, berth_nr_cpus) {
		c = look_of(cpu);
		if (!c)
			break;
		c->now = waits;
		if (waits)
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
	bpf_timer_start(timer, balance_ms * 1000000, 0);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(wander_init)
{
	struct balancer *b;
	u32 first = 0;
	s32 cpu, err;

	bpf_for(cpu, 0, berth_nr_cpus) {
		err = scx_bpf_create_dsq(cpu, -1);
		if (err)
			return err;
	}
	b = bpf_map_lookup_elem(&balancers, &first);
	if (!b)
		return -ENOENT;
	bpf_timer_init(&b->timer, &balancers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&b->timer, balance);
	return berth_nr_cpus > 1 ? bpf_timer_start(&b->timer, balance_ms * 1000000, 0) : 0;
}

void BPF_STRUCT_OPS(wander_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(wander_ops,
	.select_cpu	= (void *)wander_select_cpu,
	.enqueue	= (void *)wander_enqueue,
	.dispatch	= (void *)wander_dispatch,
	.init		= (void *)wander_init,
	.exit		= (void *)wander_exit,
	.flags		= SCX_OPS_ENQ_LAST,
	.timeout_ms	= 30000,
	.name		= "wander");
