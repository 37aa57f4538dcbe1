/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * typical: what policies' callbacks are made of, and no decision: when a thread becomes runnable
 * and when it runs, its storage is looked up, the clock and a table are read, numbers are compared
 * and divided. For `berth lab --measure-costs`: against `nothing`, it gives what one instruction of
 * such code takes, the kernel functions included.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("none", "Typical callbacks without a decision");

#define ROWS 64

struct account {
	u64 since;
	u64 total;
	u64 longest;
	u64 mean;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct account);
} accounts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ROWS);
	__type(key, u32);
	__type(value, u64);
} table SEC(".maps");

static void look(struct task_struct *p)
{
	struct account *a = bpf_task_storage_get(&accounts, p, 0, 0);
	u64 now = scx_bpf_now();
	u32 row = (u32)p->pid % ROWS;
	u64 *entry = bpf_map_lookup_elem(&table, &row);
	u64 span;

	if (!a || !entry)
		return;
	span = now - a->since;
	a->since = now;
	a->total += span;
	if (span > a->longest)
		a->longest = span;
	a->mean = (7 * a->mean + span) / 8;
	*entry = a->total / (1 + p->scx.weight);
}

void BPF_STRUCT_OPS(typical_runnable, struct task_struct *p, u64 enq_flags)
{
	look(p);
}

void BPF_STRUCT_OPS(typical_running, struct task_struct *p)
{
	look(p);
}

s32 BPF_STRUCT_OPS(typical_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	if (!bpf_task_storage_get(&accounts, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE))
		return -ENOMEM;
	return 0;
}

void BPF_STRUCT_OPS(typical_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(typical_ops,
	.runnable	= (void *)typical_runnable,
	.running	= (void *)typical_running,
	.init_task	= (void *)typical_init_task,
	.exit		= (void *)typical_exit,
	.timeout_ms	= 20000,
	.name		= "typical");
