/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * quota: each thread of nice 0 or more runs for at most `quota_ns` in every period of `period_ns`,
 * as under a bandwidth limit; threads of negative nice come first and are not limited. The test
 * policy behind the longest blackout of a capped vCPU. One CPU, ends of slices exact.
 *
 * One queue ordered by when a thread may run next: now, or at the next period if its quota is used
 * up. A timer at every period lets everybody choose anew.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("task", "A quota of CPU time per thread and period, for tests");

BERTH_PARAM(u64, period_ns, "ns", 10000000, 1000, 1000000000, "Length of a period");
BERTH_PARAM(u64, quota_ns, "ns", 2000000, 100, 1000000000, "CPU time of a thread per period");

#define QUEUE 0

struct budget {
	u64 period; /* number of the period that `left` is of */
	u64 left;
	u64 charged; /* p->se.sum_exec_runtime up to which run time is charged */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct budget);
} budgets SEC(".maps");

struct ticker {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ticker);
} tickers SEC(".maps");

static void renew(struct budget *b)
{
	u64 period = scx_bpf_now() / period_ns;

	if (b->period != period) {
		b->period = period;
		b->left = quota_ns;
	}
}

s32 BPF_STRUCT_OPS(quota_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void BPF_STRUCT_OPS(quota_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct budget *b = bpf_task_storage_get(&budgets, p, 0, 0);

	if (!b)
		return;
	if (p->scx.weight > 100) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_INF, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	renew(b);
	if (b->left)
		scx_bpf_dsq_insert_vtime(p, QUEUE, b->left, scx_bpf_now(), enq_flags);
	else
		scx_bpf_dsq_insert_vtime(p, QUEUE, quota_ns, (b->period + 1) * period_ns,
					 enq_flags);
}

void BPF_STRUCT_OPS(quota_dispatch, s32 cpu, struct task_struct *prev)
{
	u64 now = scx_bpf_now();
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, QUEUE, 0) {
		if (time_before(now, p->scx.dsq_vtime))
			return;
		break;
	}
	scx_bpf_dsq_move_to_local(QUEUE, 0);
}

void BPF_STRUCT_OPS(quota_running, struct task_struct *p)
{
	struct budget *b = bpf_task_storage_get(&budgets, p, 0, 0);

	if (!b || p->scx.weight > 100)
		return;
	renew(b);
	scx_bpf_task_set_slice(p, b->left);
}

void BPF_STRUCT_OPS(quota_stopping, struct task_struct *p, bool runnable)
{
	struct budget *b = bpf_task_storage_get(&budgets, p, 0, 0);
	u64 ran;

	if (!b)
		return;
	ran = p->se.sum_exec_runtime - b->charged;
	b->charged += ran;
	b->left = ran < b->left ? b->left - ran : 0;
}

static int on_timer(void *map, int *key, struct bpf_timer *timer)
{
	scx_bpf_kick_cpu(0, SCX_KICK_PREEMPT);
	bpf_timer_start(timer, period_ns, 0);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(quota_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct budget *b = bpf_task_storage_get(&budgets, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!b)
		return -ENOMEM;
	b->left = quota_ns;
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(quota_init)
{
	struct ticker *t;
	u32 key = 0;
	s32 err = scx_bpf_create_dsq(QUEUE, -1);

	if (err)
		return err;
	t = bpf_map_lookup_elem(&tickers, &key);
	if (!t)
		return -ESRCH;
	bpf_timer_init(&t->timer, &tickers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, on_timer);
	return bpf_timer_start(&t->timer, period_ns, 0);
}

void BPF_STRUCT_OPS(quota_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(quota_ops,
	.select_cpu	= (void *)quota_select_cpu,
	.enqueue	= (void *)quota_enqueue,
	.dispatch	= (void *)quota_dispatch,
	.running	= (void *)quota_running,
	.stopping	= (void *)quota_stopping,
	.init_task	= (void *)quota_init_task,
	.init		= (void *)quota_init,
	.exit		= (void *)quota_exit,
	.flags		= SCX_OPS_ENQ_LAST,
	.timeout_ms	= 30000,
	.name		= "quota");
