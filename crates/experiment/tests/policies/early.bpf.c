/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A program that its loader runs before the scheduler is there: it asks functions of the scheduler
 * core, each of which finds none, and gives the number of the first that answers otherwise.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

#define ENODEV 19

static int of_queues(void)
{
	if (scx_bpf_create_dsq(7, -1) != -ENODEV)
		return 1;
	if (scx_bpf_dsq_nr_queued(7) != -ENODEV)
		return 2;
	scx_bpf_destroy_dsq(7);
	return 0;
}

static int of_idle_cpus(const struct cpumask *all)
{
	const struct cpumask *idle;
	int nr_idle;

	if (scx_bpf_pick_idle_cpu(all, 0) != -ENODEV)
		return 3;
	if (scx_bpf_pick_any_cpu(all, 0) != -ENODEV)
		return 4;
	if (scx_bpf_test_and_clear_cpu_idle(0))
		return 5;
	idle = scx_bpf_get_idle_cpumask();
	nr_idle = bpf_cpumask_weight(idle);
	scx_bpf_put_idle_cpumask(idle);
	return nr_idle ? 6 : 0;
}

SEC("syscall")
int early(void *unused)
{
	const struct cpumask *all = scx_bpf_get_possible_cpumask();
	int found = bpf_cpumask_weight(all) == scx_bpf_nr_cpu_ids() ? of_queues() : 7;

	found = found ?: of_idle_cpus(all);
	scx_bpf_put_cpumask(all);
	if (scx_bpf_cpuperf_cap(0) != SCX_CPUPERF_ONE)
		found = found ?: 8;
	/* Nobody is there to be told. */
	scx_bpf_kick_cpu(0, SCX_KICK_IDLE);
	scx_bpf_cpuperf_set(0, 1);
	scx_bpf_error("too early");
	return found;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(early_init)
{
	return scx_bpf_create_dsq(7, -1);
}

void BPF_STRUCT_OPS(early_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, 7, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(early_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(7, 0);
}

void BPF_STRUCT_OPS(early_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(early_ops, .enqueue = (void *)early_enqueue, .dispatch = (void *)early_dispatch,
	       .init = (void *)early_init, .exit = (void *)early_exit, .name = "early");
