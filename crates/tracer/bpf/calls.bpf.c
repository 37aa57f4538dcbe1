/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * calls: how often functions of the kernel are called, on all CPUs, and by the threads of a VM.
 * Who loads it says which functions; what they mean is in crates/tracer/src/calls.rs.
 *
 * What a call of this program is interrupted by and that would call it again is not counted; the
 * kernel counts those.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define NULL ((void *)0)

char _license[] SEC("license") = "GPL";

#define MAX_THREADS 32768

struct count {
	u64 all;
	u64 of_vm;
};

/* By the function's place in the list. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct count);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u32);
} members SEC(".maps");

SEC("kprobe.multi")
int on_call(struct pt_regs *ctx)
{
	u32 at = bpf_get_attach_cookie(ctx);
	u32 tid = bpf_get_current_pid_tgid();
	struct count *c = bpf_map_lookup_elem(&counts, &at);

	if (!c)
		return 0;
	c->all++;
	if (bpf_map_lookup_elem(&members, &tid))
		c->of_vm++;
	return 0;
}
