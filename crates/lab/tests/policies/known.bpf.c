/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One global queue that counts turns of vCPUs of VMs that it has been told of. It does nothing
 * about CPUs that go and come: the kernel ends it then, and asks for it to be loaded again. One
 * that is to fail passes the verifier, and its start fails.
 */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("task", "One queue that counts turns of VMs that it knows");

BERTH_PARAM(u32, fail_init, "count", 0, 0, 1, "Whether its start fails");

struct berth_stats {
	u64 known;
	u64 latency;
};
BERTH_STATS;

void BPF_STRUCT_OPS(known_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(known_running, struct task_struct *p)
{
	struct berth_vm *vm = berth_vm_at(p->cgroups->dfl_cgrp->kn->id);
	u32 tid = p->pid;
	struct berth_thread *th = bpf_map_lookup_elem(&berth_threads, &tid);

	if (!vm || !th || th->role != BERTH_ROLE_VCPU)
		return;
	berth_count(known);
	if (vm->class == BERTH_CLASS_LATENCY)
		berth_count(latency);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(known_init)
{
	return fail_init ? -22 : 0; /* EINVAL */
}

void BPF_STRUCT_OPS(known_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(known_ops,
	.enqueue	= (void *)known_enqueue,
	.running	= (void *)known_running,
	.init		= (void *)known_init,
	.exit		= (void *)known_exit,
	.name		= "known");
