/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * rr: round robin with a fixed slice on each CPU, a control beside models of Linux's schedulers.
 *
 * Idea. Each CPU has a queue. Who comes or has used up its slice goes to its end, and whoever is
 * first runs for `slice_us`, or until it sleeps. Nice values, weights and sleep count for nothing,
 * and nobody takes a running thread's CPU. A waking thread goes to an idle CPU of its LLC; idle and
 * less busy CPUs take waiting threads over (linux/queues.bpf.h, with every thread of weight 1).
 *
 * What gfifo has in one queue for the machine, by its length; here threads stay on their CPUs as
 * with Linux's schedulers, so that a comparison with those is one of their rules.
 *
 * Deviation: where there are ticks, a slice ends at the first one after its length. No run time is
 * accounted.
 *
 * Not good for: latency beside compute (who wakes waits for everybody's slice), weights.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "Round robin with a fixed slice on each CPU: the control of o1 and cfs");

BERTH_PARAM(u64, slice_us, "us", 4000, 100, 10000000,
	    "Every slice; Linux's SCHED_RR has 100000 by default");
BERTH_PARAM(u64, migration_cost_us, "us", 500, 0, 1000000,
	    "Who ran that lately stays on its CPU, as with cfs");

struct berth_stats {
	u64 queued;   /* had to wait */
	u64 pulled;   /* taken over by an idle CPU */
	u64 balanced; /* times a busy CPU took threads over */
};
BERTH_STATS;

#include "linux/state.bpf.h"

#define QUEUES	    1
#define NICE_0_LOAD 1
#define MOVE_HALVES 0

struct entity {
	s32 cpu;
	bool on;
	u64 weight;
	u64 ran_at;
	u64 key; /* place in the queue */
};

struct runq {
	struct bpf_spin_lock lock;
	u32 nr;
	u64 load;
	u64 sequence;
	struct balance bal;
};

static __always_inline u64 hot_ns(void)
{
	return migration_cost_us * 1000;
}

#include "linux/queues.bpf.h"

static __always_inline u64 weight_now(struct task_struct *p, struct entity *e)
{
	return NICE_0_LOAD;
}

static __always_inline u64 next_queue(struct runq *rq, s32 cpu, u32 i)
{
	return cpu;
}

static __always_inline void moves(struct task_struct *p, struct entity *e, struct runq *from,
				  struct runq *to)
{
}

static __always_inline u64 waits_at(struct entity *e, struct runq *rq, s32 cpu)
{
	e->key = ++rq->sequence;
	return cpu;
}

static __always_inline void arrived(struct task_struct *p, struct entity *e, struct runq *rq,
				    s32 cpu)
{
}

s32 BPF_STRUCT_OPS(rr_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct runq *rq = rq_of(prev_cpu);
	s32 idle;

	if (wake_flags & SCX_WAKE_FORK)
		return least_loaded(p, prev_cpu);
	if (!rq || (!rq->nr && rq->bal.online && allowed(p, prev_cpu)))
		return prev_cpu;
	idle = idle_in_ring(p, prev_cpu, false);
	return idle >= 0 ? idle : prev_cpu;
}

void BPF_STRUCT_OPS(rr_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct entity *e = entity_of(p);
	struct runq *rq = rq_of(cpu);
	u64 queue;

	if (!e || !rq) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_us * 1000, enq_flags);
		return;
	}
	settle(p, e, rq, cpu);
	if (bound_kthread(p)) {
		if (enq_flags & SCX_ENQ_WAKEUP)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_us * 1000, enq_flags);
		return;
	}
	queue = waits_at(e, rq, cpu);
	scx_bpf_dsq_insert_vtime(p, queue, slice_us * 1000, e->key, enq_flags);
	berth_count(queued);
}

void BPF_STRUCT_OPS(rr_dispatch, s32 cpu, struct task_struct *prev)
{
	if (scx_bpf_dsq_move_to_local(cpu, 0))
		return;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		scx_bpf_task_set_slice(prev, slice_us * 1000);
	else if (linux_pull(cpu))
		berth_count(pulled);
}

void BPF_STRUCT_OPS(rr_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct entity *e = entity_of(p);
	struct runq *rq = rq_of(cpu);

	if (e && rq)
		settle(p, e, rq, cpu);
}

void BPF_STRUCT_OPS(rr_stopping, struct task_struct *p, bool runnable)
{
	struct entity *e = entity_of(p);

	if (e)
		e->ran_at = scx_bpf_now();
}

void BPF_STRUCT_OPS(rr_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct entity *e = entity_of(p);

	if (e)
		count(e, false);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(rr_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct entity *e = bpf_task_storage_get(&entities, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!e)
		return -ENOMEM;
	e->cpu = NOWHERE;
	e->weight = NICE_0_LOAD;
	return 0;
}

void BPF_STRUCT_OPS(rr_disable, struct task_struct *p)
{
	struct entity *e = entity_of(p);

	if (e)
		count(e, false);
}

void BPF_STRUCT_OPS(rr_cpu_online, s32 cpu)
{
	set_online(cpu, true);
}

void BPF_STRUCT_OPS(rr_cpu_offline, s32 cpu)
{
	set_online(cpu, false);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(rr_init)
{
	return queues_init();
}

void BPF_STRUCT_OPS(rr_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(rr_ops,
	.select_cpu	= (void *)rr_select_cpu,
	.enqueue	= (void *)rr_enqueue,
	.dispatch	= (void *)rr_dispatch,
	.running	= (void *)rr_running,
	.stopping	= (void *)rr_stopping,
	.quiescent	= (void *)rr_quiescent,
	.init_task	= (void *)rr_init_task,
	.disable	= (void *)rr_disable,
	.cpu_online	= (void *)rr_cpu_online,
	.cpu_offline	= (void *)rr_cpu_offline,
	.init		= (void *)rr_init,
	.exit		= (void *)rr_exit,
	.flags		= SCX_OPS_ENQ_LAST,
	.timeout_ms	= 30000,
	.name		= "rr");
