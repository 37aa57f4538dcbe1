/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * observer: writes down when the threads of one process and of those that it started are woken,
 * moved to another run queue, switched in and switched out, and when CPUs go idle.
 *
 * It watches the kernel's own tracepoints, so that every scheduler is measured alike, and only
 * appends records to an array; what they mean is worked out afterwards (crates/lab/src/observe.rs).
 * A record that finds the array full is counted and lost.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define MAX_RECORDS (1 << 20)

enum kind {
	KIND_WAKING = 1,
	KIND_SWITCH = 2,
	KIND_MOVE = 3,
};

enum flag {
	FLAG_RUNNABLE = 1, /* the thread switched out could go on */
	FLAG_IDLE = 2,	   /* the CPU has nothing to run now */
	FLAG_WAS_IDLE = 4, /* nor had it before */
};

struct record {
	u64 ns;	  /* CLOCK_MONOTONIC */
	u32 prev; /* thread switched out, 0: not of the process */
	u32 next; /* thread switched in, woken or moved, 0: not of the process */
	u16 cpu;  /* that switches, or whose run queue the thread belongs to */
	u16 kind;
	u32 flags;
};

struct control {
	u64 tgid; /* the process; 0: write nothing down */
	u64 next; /* records so far, lost ones included */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_RECORDS);
	__type(key, u32);
	__type(value, struct record);
} records SEC(".maps");

/* Whether p is of the process, or of one that it started. */
static bool ours(struct control *c, struct task_struct *p)
{
	return p->tgid == c->tgid || p->real_parent->tgid == c->tgid;
}

static void append(struct control *c, enum kind kind, u32 cpu, u32 prev, u32 next, u32 flags)
{
	u32 i = __sync_fetch_and_add(&c->next, 1);
	struct record *r;

	if (i >= MAX_RECORDS)
		return;
	r = bpf_map_lookup_elem(&records, &i);
	if (!r)
		return;
	r->ns = bpf_ktime_get_ns();
	r->prev = prev;
	r->next = next;
	r->cpu = cpu;
	r->kind = kind;
	r->flags = flags;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	u32 zero = 0, out = 0, in = 0;
	u32 flags = 0;
	struct control *c = bpf_map_lookup_elem(&control, &zero);

	if (!c || !c->tgid)
		return 0;
	if (ours(c, prev))
		out = prev->pid;
	if (ours(c, next))
		in = next->pid;
	/* Between two threads outside the process nothing changes for those inside. */
	if (!out && !in && next->pid && prev->pid)
		return 0;
	if (preempt || !prev_state)
		flags |= FLAG_RUNNABLE;
	if (!next->pid)
		flags |= FLAG_IDLE;
	if (!prev->pid)
		flags |= FLAG_WAS_IDLE;
	append(c, KIND_SWITCH, bpf_get_smp_processor_id(), out, in, flags);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	u32 zero = 0;
	struct control *c = bpf_map_lookup_elem(&control, &zero);

	if (c && c->tgid && ours(c, p))
		append(c, KIND_WAKING, p->thread_info.cpu, 0, p->pid, 0);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_new, struct task_struct *p)
{
	u32 zero = 0;
	struct control *c = bpf_map_lookup_elem(&control, &zero);

	if (c && c->tgid && ours(c, p))
		append(c, KIND_WAKING, p->thread_info.cpu, 0, p->pid, 0);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_move, struct task_struct *p, int to)
{
	u32 zero = 0;
	struct control *c = bpf_map_lookup_elem(&control, &zero);

	if (c && c->tgid && ours(c, p))
		append(c, KIND_MOVE, to, 0, p->pid, 0);
	return 0;
}
