// SPDX-License-Identifier: GPL-2.0-only
/* Loops without end. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

volatile u64 turns;

void BPF_STRUCT_OPS(endless_enqueue, struct task_struct *p, u64 enq_flags)
{
	while (turns < ~0ULL)
		turns++;
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SEC(".struct_ops.link")
struct sched_ext_ops endless_ops = {
	.enqueue = (void *)endless_enqueue,
	.name = "endless",
};
