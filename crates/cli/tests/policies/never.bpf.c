// SPDX-License-Identifier: GPL-2.0-only
/* Takes tasks into a queue that it never serves. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS_SLEEPABLE(never_init)
{
	return scx_bpf_create_dsq(7, -1);
}

void BPF_STRUCT_OPS(never_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, 7, SCX_SLICE_DFL, enq_flags);
}

SEC(".struct_ops.link")
struct sched_ext_ops never_ops = {
	.init = (void *)never_init,
	.enqueue = (void *)never_enqueue,
	.timeout_ms = 5000,
	.name = "never",
};
