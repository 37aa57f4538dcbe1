// SPDX-License-Identifier: GPL-2.0-only
/* Reads through a pointer that is none. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

volatile u64 where = 64;
volatile u64 seen;

void BPF_STRUCT_OPS(wild_enqueue, struct task_struct *p, u64 enq_flags)
{
	seen = *(u64 *)where;
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SEC(".struct_ops.link")
struct sched_ext_ops wild_ops = {
	.enqueue = (void *)wild_enqueue,
	.name = "wild",
};
