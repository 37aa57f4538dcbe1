/* SPDX-License-Identifier: GPL-2.0-only */
/* What `header.rs` reads of berth/identity.bpf.h: its types, its maps and its numbers. */
#include <scx/common.bpf.h>
#include "berth/identity.bpf.h"
#include "berth/memory.bpf.h"
#include "berth/scores.bpf.h"

char _license[] SEC("license") = "GPL";

const volatile u64 version = BERTH_IDENTITY_VERSION;
const volatile u64 process = BERTH_PROCESS;
const volatile u64 process_numbers = BERTH_PROCESS_NUMBERS;
const volatile u64 thread_io = BERTH_THREAD_IO;
const volatile u64 memory_nodes = BERTH_MEMORY_NODES;
const volatile enum berth_class class = BERTH_CLASS_NONE;
const volatile enum berth_role role = BERTH_ROLE_OTHER;

void BPF_STRUCT_OPS(header_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_DEFINE(header_ops, .enqueue = (void *)header_enqueue, .name = "header");
