/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Five queues, found through an array of maps. A task's weight says in which it waits; each CPU
 * takes one task from the first, two from the second, four from the third and so on, and passes
 * over those that are empty. A number in a queue may be of a task that waits no more: what is
 * handed out then is nothing.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u64 slice_ns;

#define SHARED 11
#define QUEUES 5
#define TRIES  64

struct queue {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 4096);
	__type(value, s32);
} queue0 SEC(".maps"), queue1 SEC(".maps"), queue2 SEC(".maps"), queue3 SEC(".maps"),
	queue4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, QUEUES);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
	__array(values, struct queue);
} queues SEC(".maps") = {
	.values = { [0] = &queue0, [1] = &queue1, [2] = &queue2, [3] = &queue3, [4] = &queue4 },
};

struct turn {
	u32 at;	  /* which queue */
	u32 left; /* tasks that it still gives */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct turn);
} turns SEC(".maps");

u64 nr_queued, nr_full, nr_given, nr_gone;

static void wake_one(struct task_struct *p)
{
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

s32 BPF_STRUCT_OPS(five_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(five_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 weight = p->scx.weight;
	u32 at = weight <= 25 ? 0 : weight <= 50 ? 1 : weight < 200 ? 2 : weight < 400 ? 3 : 4;
	void *queue = bpf_map_lookup_elem(&queues, &at);
	s32 pid = p->pid;

	if (!queue || bpf_map_push_elem(queue, &pid, 0)) {
		__sync_fetch_and_add(&nr_full, 1);
		scx_bpf_dsq_insert(p, SHARED, slice_ns, enq_flags);
	} else {
		__sync_fetch_and_add(&nr_queued, 1);
	}
	wake_one(p);
}

void BPF_STRUCT_OPS(five_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 zero = 0, at, i;
	struct turn *turn = bpf_map_lookup_elem(&turns, &zero);
	struct task_struct *p;
	void *queue;
	s32 pid;

	if (!turn || scx_bpf_dsq_move_to_local(SHARED, 0))
		return;
	bpf_for(i, 0, TRIES) {
		if (!turn->left) {
			turn->at = (turn->at + 1) % QUEUES;
			turn->left = 1 << turn->at;
		}
		at = turn->at;
		queue = bpf_map_lookup_elem(&queues, &at);
		if (!queue)
			break;
		if (bpf_map_pop_elem(queue, &pid)) {
			turn->left = 0;
			continue;
		}
		turn->left--;
		p = bpf_task_from_pid(pid);
		if (!p) {
			__sync_fetch_and_add(&nr_gone, 1);
			continue;
		}
		scx_bpf_dsq_insert(p, SHARED, slice_ns, 0);
		__sync_fetch_and_add(&nr_given, 1);
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			wake_one(p);
		bpf_task_release(p);
		if (scx_bpf_dsq_move_to_local(SHARED, 0))
			break;
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(five_init)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

void BPF_STRUCT_OPS(five_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(five_ops,
	.select_cpu	= (void *)five_select_cpu,
	.enqueue	= (void *)five_enqueue,
	.dispatch	= (void *)five_dispatch,
	.init		= (void *)five_init,
	.exit		= (void *)five_exit,
	.timeout_ms	= 5000,
	.name		= "qmap");
