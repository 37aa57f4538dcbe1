/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weighted virtual time whose data of each task lies in an arena: a pool of pages, cut into
 * records, with a list of those that are free. The task's storage only has the pointer. What is
 * counted in all lies in the arena, too.
 */
#include <scx/common.bpf.h>
#include <bpf_arena_common.bpf.h>
#include <lib/arena_map.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u64 slice_ns = 5000000;

#define SHARED 0
#define PAGE   4096

struct record {
	struct record __arena *next; /* while it is free */
	u64 vtime;
	u64 started_at;
	u64 nr_runs;
};

struct holder {
	struct record __arena *record;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct holder);
} holders SEC(".maps");

private(POOL) struct bpf_spin_lock pool_lock;
static struct record __arena *spare;

struct totals {
	u64 nr_pages, nr_made, nr_freed, nr_runs;
};

struct totals __arena_global totals;

static u64 vnow;

static struct record __arena *record_of(struct task_struct *p)
{
	struct holder *holder = bpf_task_storage_get(&holders, p, 0, 0);

	return holder ? holder->record : NULL;
}

static void give_back(struct record __arena *record)
{
	bpf_spin_lock(&pool_lock);
	record->next = spare;
	spare = record;
	bpf_spin_unlock(&pool_lock);
}

static struct record __arena *make(void)
{
	struct record __arena *page, *record = NULL;
	u32 i;

	if (!spare) {
		page = bpf_arena_alloc_pages(&arena, NULL, 1, NUMA_NO_NODE, 0);
		if (!page)
			return NULL;
		__sync_fetch_and_add(&totals.nr_pages, 1);
		/* The arena's first record has the address of no pointer. */
		for (i = 1; i < PAGE / sizeof(*record) && can_loop; i++)
			give_back(page + i);
	}
	bpf_spin_lock(&pool_lock);
	record = spare;
	if (record)
		spare = record->next;
	bpf_spin_unlock(&pool_lock);
	return record;
}

s32 BPF_STRUCT_OPS(records_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);

	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(records_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct record __arena *record = record_of(p);

	if (!record) {
		scx_bpf_error("no record of %d", p->pid);
		return;
	}
	if (time_before(record->vtime, vnow - slice_ns))
		record->vtime = vnow - slice_ns;
	scx_bpf_dsq_insert_vtime(p, SHARED, slice_ns, record->vtime, enq_flags);
}

void BPF_STRUCT_OPS(records_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED, 0);
}

void BPF_STRUCT_OPS(records_running, struct task_struct *p)
{
	struct record __arena *record = record_of(p);

	if (!record)
		return;
	record->started_at = scx_bpf_now();
	record->nr_runs++;
	if (time_before(vnow, record->vtime))
		vnow = record->vtime;
}

void BPF_STRUCT_OPS(records_stopping, struct task_struct *p, bool runnable)
{
	struct record __arena *record = record_of(p);

	if (record)
		record->vtime += (scx_bpf_now() - record->started_at) * 100 / p->scx.weight;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(records_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct record __arena *record;
	struct holder *holder;

	holder = bpf_task_storage_get(&holders, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!holder)
		return -ENOMEM;
	record = make();
	if (!record)
		return -ENOMEM;
	record->vtime = vnow;
	record->nr_runs = 0;
	holder->record = record;
	__sync_fetch_and_add(&totals.nr_made, 1);
	return 0;
}

void BPF_STRUCT_OPS(records_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct record __arena *record = record_of(p);

	if (!record)
		return;
	__sync_fetch_and_add(&totals.nr_runs, record->nr_runs);
	__sync_fetch_and_add(&totals.nr_freed, 1);
	give_back(record);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(records_init)
{
	return scx_bpf_create_dsq(SHARED, -1);
}

void BPF_STRUCT_OPS(records_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(records_ops,
	.select_cpu	= (void *)records_select_cpu,
	.enqueue	= (void *)records_enqueue,
	.dispatch	= (void *)records_dispatch,
	.running	= (void *)records_running,
	.stopping	= (void *)records_stopping,
	.init_task	= (void *)records_init_task,
	.exit_task	= (void *)records_exit_task,
	.init		= (void *)records_init,
	.exit		= (void *)records_exit,
	.timeout_ms	= 5000,
	.name		= "arena_tasks");
