/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * First come, first served, from a list whose nodes lie in an arena, with both ends and a way to
 * take anybody out of the middle: who is dequeued leaves it at once. A turn is as long as the
 * task's weight says. An arena whose place user space chooses, of a few pages.
 */
#include <scx/common.bpf.h>
#include <bpf_arena_common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u64 slice_ns = 40000000; /* of weight 100 */

#define SHARED 0
#define PAGES  64
#define PAGE   4096
#define TRIES  64

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PAGES);
} memory SEC(".maps");

struct item {
	struct item __arena *next, *prev;
	s32 pid;
	u32 weight;
	u32 waits;
	u32 pad;
};

struct holder {
	struct item __arena *node;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct holder);
} holders SEC(".maps");

private(LIST) struct bpf_spin_lock list_lock;
static struct item __arena *first, *last, *spare;
u64 nr_waiting, nr_taken, nr_left;

static struct item __arena *node_of(struct task_struct *p)
{
	struct holder *holder = bpf_task_storage_get(&holders, p, 0, 0);

	return holder ? holder->node : NULL;
}

/* Out of the list, with the lock held. */
static void unlink(struct item __arena *node)
{
	if (node->prev)
		node->prev->next = node->next;
	else
		first = node->next;
	if (node->next)
		node->next->prev = node->prev;
	else
		last = node->prev;
	node->waits = 0;
	nr_waiting--;
}

s32 BPF_STRUCT_OPS(list_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns * p->scx.weight / 100, 0);
	return cpu;
}

void BPF_STRUCT_OPS(list_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct item __arena *node = node_of(p);
	s32 cpu;

	if (!node) {
		scx_bpf_error("no node of %d", p->pid);
		return;
	}
	bpf_spin_lock(&list_lock);
	if (node->waits)
		unlink(node);
	node->weight = p->scx.weight;
	node->prev = last;
	node->next = NULL;
	if (last)
		last->next = node;
	else
		first = node;
	last = node;
	node->waits = 1;
	nr_waiting++;
	bpf_spin_unlock(&list_lock);
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

void BPF_STRUCT_OPS(list_dequeue, struct task_struct *p, u64 deq_flags)
{
	struct item __arena *node = node_of(p);

	if (!node)
		return;
	bpf_spin_lock(&list_lock);
	if (node->waits) {
		unlink(node);
		nr_left++;
	}
	bpf_spin_unlock(&list_lock);
}

void BPF_STRUCT_OPS(list_dispatch, s32 cpu, struct task_struct *prev)
{
	struct item __arena *node;
	struct task_struct *p;
	u64 slice;
	s32 pid, idle;
	u32 i;

	if (scx_bpf_dsq_move_to_local(SHARED, 0))
		return;
	bpf_for(i, 0, TRIES) {
		bpf_spin_lock(&list_lock);
		node = first;
		pid = -1;
		slice = 0;
		if (node) {
			pid = node->pid;
			slice = slice_ns * node->weight / 100;
			unlink(node);
		}
		bpf_spin_unlock(&list_lock);
		if (pid < 0)
			break;
		p = bpf_task_from_pid(pid);
		if (!p)
			continue;
		__sync_fetch_and_add(&nr_taken, 1);
		scx_bpf_dsq_insert(p, SHARED, slice, 0);
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
			idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
			if (idle >= 0)
				scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
		}
		bpf_task_release(p);
		if (scx_bpf_dsq_move_to_local(SHARED, 0))
			break;
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(list_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct item __arena *page, *node;
	struct holder *holder;
	u32 i;

	holder = bpf_task_storage_get(&holders, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!holder)
		return -ENOMEM;
	if (!spare) {
		page = bpf_arena_alloc_pages(&memory, NULL, 1, NUMA_NO_NODE, 0);
		if (!page)
			return -ENOMEM;
		for (i = 0; i < PAGE / sizeof(*page) && can_loop; i++) {
			page[i].next = spare;
			spare = &page[i];
		}
	}
	node = spare;
	spare = node->next;
	/* The rest is set when it waits. */
	node->waits = 0;
	node->pid = p->pid;
	holder->node = node;
	return 0;
}

void BPF_STRUCT_OPS(list_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct item __arena *node = node_of(p);

	if (!node)
		return;
	bpf_spin_lock(&list_lock);
	if (node->waits)
		unlink(node);
	node->next = spare;
	spare = node;
	bpf_spin_unlock(&list_lock);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(list_init)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

void BPF_STRUCT_OPS(list_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(list_ops,
	.select_cpu	= (void *)list_select_cpu,
	.enqueue	= (void *)list_enqueue,
	.dequeue	= (void *)list_dequeue,
	.dispatch	= (void *)list_dispatch,
	.init_task	= (void *)list_init_task,
	.exit_task	= (void *)list_exit_task,
	.init		= (void *)list_init,
	.exit		= (void *)list_exit,
	.timeout_ms	= 5000,
	.name		= "arena_queue");
