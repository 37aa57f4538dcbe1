// SPDX-License-Identifier: GPL-2.0-only
/* Calls what no kernel has. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

void scx_bpf_guess_best_cpu(struct task_struct *p) __ksym;

void BPF_STRUCT_OPS(unknown_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_guess_best_cpu(p);
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SEC(".struct_ops.link")
struct sched_ext_ops unknown_ops = {
	.enqueue = (void *)unknown_enqueue,
	.name = "unknown",
};
