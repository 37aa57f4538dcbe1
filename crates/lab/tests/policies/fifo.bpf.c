/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One global queue, with something of everything that the loader handles: constants of the kernel,
 * load-time and live variables, counters, a syscall program, an exit record, a chosen failure.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u64 slice_ns = 5000000;
const volatile s32 fail_init;
const volatile s32 fail_task; /* what ops.init_task says of the first thread */
const volatile u64
	fail_once;	   /* only if it has not failed before with this number, if there is one */
const volatile bool stall; /* keep every thread named "victim" waiting for ever */
u64 live_knob = 3;
u64 seen_slice;
static bool failed_before;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

static void count(u32 i)
{
	u64 *c = bpf_map_lookup_elem(&counters, &i);

	if (c)
		(*c)++;
}

static bool victim(const struct task_struct *p)
{
	return p->comm[0] == 'v' && p->comm[1] == 'i' && p->comm[2] == 'c';
}

/* Every wake-up shall pass enqueue, also on an idle machine. */
s32 BPF_STRUCT_OPS(fifo_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void BPF_STRUCT_OPS(fifo_enqueue, struct task_struct *p, u64 enq_flags)
{
	count(0);
	if (stall && victim(p))
		return;
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);
}

void BPF_STRUCT_OPS(fifo_running, struct task_struct *p)
{
	count(1);
	seen_slice = slice_ns;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(fifo_init)
{
	return fail_init;
}

/* Loaded anew, a policy has forgotten all. What it has set in a thread is still there. */
s32 BPF_STRUCT_OPS_SLEEPABLE(fifo_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	if (fail_once && p->scx.dsq_vtime == fail_once)
		failed_before = true;
	if (!fail_task || failed_before)
		return 0;
	p->scx.dsq_vtime = fail_once;
	return fail_task;
}

void BPF_STRUCT_OPS(fifo_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SEC("syscall")
int bump(u64 *context)
{
	live_knob += *context;
	*context = live_knob;
	return 7;
}

SCX_OPS_DEFINE(fifo_ops, .select_cpu = (void *)fifo_select_cpu, .enqueue = (void *)fifo_enqueue,
	       .running = (void *)fifo_running, .init = (void *)fifo_init,
	       .init_task = (void *)fifo_init_task, .exit = (void *)fifo_exit, .name = "fifo");
