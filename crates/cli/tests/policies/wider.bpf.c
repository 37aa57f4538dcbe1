// SPDX-License-Identifier: GPL-2.0-only
/* Counts on its loader to make an array as large as the machine. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

u64 RESIZABLE_ARRAY(data, turns);

void BPF_STRUCT_OPS(wider_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 i;

	bpf_for(i, 0, 1000)
		((volatile u64 *)turns)[i] += 1;
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SEC(".struct_ops.link")
struct sched_ext_ops wider_ops = {
	.enqueue = (void *)wider_enqueue,
	.name = "wider",
};
