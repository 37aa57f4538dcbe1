/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scheduler in the style of the kernel's examples whose loader sets the slice, the number of
 * CPUs, a flag, and the length of an array. Without the slice nothing is charged, and weights mean
 * nothing.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u64 slice_ns;
const volatile u32 nr_cpu_ids = 1;
const volatile bool strict;

u64 RESIZABLE_ARRAY(data, nr_started);

#define SHARED 0

static u64 now_v;

void BPF_STRUCT_OPS(loaded_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 v = p->scx.dsq_vtime;

	if (time_before(v, now_v - slice_ns))
		v = now_v - slice_ns;
	scx_bpf_dsq_insert_vtime(p, SHARED, slice_ns, v, enq_flags);
}

void BPF_STRUCT_OPS(loaded_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED, 0);
}

void BPF_STRUCT_OPS(loaded_running, struct task_struct *p)
{
	u64 *started = ARRAY_ELEM_PTR(nr_started, scx_bpf_task_cpu(p), nr_cpu_ids);

	if (started)
		*started += 1;
	else
		scx_bpf_error("no room for CPU %d", scx_bpf_task_cpu(p));
	if (time_before(now_v, p->scx.dsq_vtime))
		now_v = p->scx.dsq_vtime;
}

void BPF_STRUCT_OPS(loaded_stopping, struct task_struct *p, bool runnable)
{
	u64 used = slice_ns - p->scx.slice;

	if (slice_ns > p->scx.slice)
		scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + used * 100 / p->scx.weight);
}

void BPF_STRUCT_OPS(loaded_enable, struct task_struct *p)
{
	scx_bpf_task_set_dsq_vtime(p, now_v);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(loaded_init)
{
	/* In its own loader --strict goes with a flag. */
	if (strict)
		return -EINVAL;
	return scx_bpf_create_dsq(SHARED, -1);
}

void BPF_STRUCT_OPS(loaded_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(loaded_ops,
	.enqueue	= (void *)loaded_enqueue,
	.dispatch	= (void *)loaded_dispatch,
	.running	= (void *)loaded_running,
	.stopping	= (void *)loaded_stopping,
	.enable		= (void *)loaded_enable,
	.init		= (void *)loaded_init,
	.exit		= (void *)loaded_exit,
	.name		= "loaded");
