/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One CPU decides for all. Waiting tasks are numbers in one queue map; a CPU that runs out of work
 * raises its flag and kicks the central CPU, whose dispatch fills every raised flag's CPU with a
 * task of unlimited slice. A timer takes the CPU from tasks that have had `slice_ns` while others
 * wait, so no CPU needs ticks.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile s32 central_cpu;
const volatile u32 nr_cpu_ids = 1;
const volatile u64 slice_ns;
const volatile u64 period_ns = 1000000;

#define FALLBACK 1

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 8192);
	__type(value, s32);
} waiting SEC(".maps");

struct slot {
	u64 since;  /* when its task started; 0: idle */
	bool wants; /* has asked for a task */
	u8 pad[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct ticker {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ticker);
} tickers SEC(".maps");

s64 nr_waiting;
u64 nr_placed, nr_lost, nr_preempted, nr_overflow, nr_timers;

static struct slot *slot_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&slots, &key);
}

s32 BPF_STRUCT_OPS(central_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return central_cpu; /* wakes the central CPU, where enqueue then runs for this task */
}

void BPF_STRUCT_OPS(central_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 pid = p->pid;

	/* Kernel threads of one CPU cannot wait for a central decision: that CPU may need them
	 * first. */
	if ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_INF, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	if (bpf_map_push_elem(&waiting, &pid, 0)) {
		__sync_fetch_and_add(&nr_overflow, 1);
		scx_bpf_dsq_insert(p, FALLBACK, SCX_SLICE_INF, enq_flags);
		return;
	}
	__sync_fetch_and_add(&nr_waiting, 1);
	/* Who lost its CPU needs no kick: that CPU has asked already. */
	if (enq_flags & SCX_ENQ_WAKEUP)
		scx_bpf_kick_cpu(central_cpu, SCX_KICK_PREEMPT);
}

/* Give this task to `cpu`; false: it may not run there and waits for a CPU that suits it. */
static bool place(s32 pid, s32 cpu)
{
	struct task_struct *p = bpf_task_from_pid(pid);
	bool fits;

	if (!p) {
		__sync_fetch_and_add(&nr_lost, 1);
		return false;
	}
	fits = bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
	scx_bpf_dsq_insert(p, fits ? SCX_DSQ_LOCAL_ON | cpu : FALLBACK, SCX_SLICE_INF, 0);
	bpf_task_release(p);
	if (!fits)
		return false;
	__sync_fetch_and_add(&nr_placed, 1);
	if (cpu != central_cpu)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return true;
}

/* Give a waiting task to `cpu`; false: there is none. */
static bool place_next(s32 cpu)
{
	s32 pid, tries;

	bpf_for(tries, 0, 64) {
		if (!scx_bpf_dispatch_nr_slots() || bpf_map_pop_elem(&waiting, &pid))
			break;
		__sync_fetch_and_sub(&nr_waiting, 1);
		if (place(pid, cpu))
			return true;
	}
	return false;
}

void BPF_STRUCT_OPS(central_dispatch, s32 cpu, struct task_struct *prev)
{
	struct slot *s;
	s32 other;

	if (cpu != central_cpu) {
		if (scx_bpf_dsq_move_to_local(FALLBACK, 0))
			return;
		s = slot_of(cpu);
		if (s)
			s->wants = true;
		scx_bpf_kick_cpu(central_cpu, SCX_KICK_PREEMPT);
		return;
	}
	bpf_for(other, 0, nr_cpu_ids) {
		s = slot_of(other);
		if (!s || !s->wants || other == central_cpu)
			continue;
		if (!place_next(other))
			break;
		s->wants = false;
	}
	if (!scx_bpf_dsq_move_to_local(FALLBACK, 0))
		place_next(central_cpu);
}

void BPF_STRUCT_OPS(central_running, struct task_struct *p)
{
	struct slot *s = slot_of(scx_bpf_task_cpu(p));

	if (s)
		s->since = scx_bpf_now() ?: 1;
}

void BPF_STRUCT_OPS(central_stopping, struct task_struct *p, bool runnable)
{
	struct slot *s = slot_of(scx_bpf_task_cpu(p));

	if (s)
		s->since = 0;
}

static int on_timer(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns();
	struct slot *s;
	s32 cpu;

	__sync_fetch_and_add(&nr_timers, 1);
	bpf_for(cpu, 0, nr_cpu_ids) {
		s = slot_of(cpu);
		if (!s)
			break;
		if (!s->since || !time_after(now, s->since + slice_ns))
			continue;
		if (!nr_waiting && !scx_bpf_dsq_nr_queued(FALLBACK) &&
		    !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu))
			continue;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		__sync_fetch_and_add(&nr_preempted, 1);
	}
	bpf_timer_start(timer, period_ns, 0);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(central_init)
{
	struct ticker *t;
	u32 key = 0;
	s32 err;

	err = scx_bpf_create_dsq(FALLBACK, -1);
	if (err)
		return err;
	t = bpf_map_lookup_elem(&tickers, &key);
	if (!t)
		return -ESRCH;
	bpf_timer_init(&t->timer, &tickers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, on_timer);
	return bpf_timer_start(&t->timer, period_ns, 0);
}

void BPF_STRUCT_OPS(central_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(central_ops,
	/* the central CPU must go on deciding while it has one task only */
	.flags		= SCX_OPS_ENQ_LAST,
	.select_cpu	= (void *)central_select_cpu,
	.enqueue	= (void *)central_enqueue,
	.dispatch	= (void *)central_dispatch,
	.running	= (void *)central_running,
	.stopping	= (void *)central_stopping,
	.init		= (void *)central_init,
	.exit		= (void *)central_exit,
	.timeout_ms	= 5000,
	.name		= "central");
