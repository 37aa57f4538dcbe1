/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * recorder: writes down every call the kernel makes, and does what a script says.
 *
 * Not a scheduler to run anything with. It is loaded by the conformance tests, into a real kernel
 * and into the simulator, and both logs are compared: same calls, same order, same arguments.
 *
 * Without a script a waking or preempted thread goes to one FIFO queue, and an idle CPU takes its
 * head. A rule of the script (rodata, see struct rule) replaces that for one callback of one
 * thread: "the second time A is enqueued, insert it at the head of its local queue and kick CPU 1".
 *
 * Threads are told apart by label: a thread named "k:B" is B, from the moment it joins sched_ext.
 * All others are label 0; the tests load this in partial mode, where there are none.
 *
 * cgroups are told apart by number: 1 is the root, 2 the next one that ops.cgroup_init was called
 * for.
 *
 * Arguments are logged in a form that does not depend on the kernel's version (struct entry).
 * Nothing is charged to anybody.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

#define QUEUE	    1 /* where threads wait that no rule speaks of */
#define NR_QUEUES   4 /* queues 1 .. 4 exist */
#define MAX_RULES   32
#define MAX_ENTRIES 4096
#define MAX_LABELS  16
#define MAX_OPS	    32
#define MAX_CPUS    8 /* whose bits masks are logged */
#define MAX_GROUPS  64
#define MAX_AWAIT   (1 << 20) /* looks for what another CPU does; some 50 ms in the lab */

enum op {
	OP_SELECT_CPU = 1,
	OP_ENQUEUE,
	OP_DEQUEUE,
	OP_DISPATCH,
	OP_TICK,
	OP_RUNNABLE,
	OP_RUNNING,
	OP_STOPPING,
	OP_QUIESCENT,
	OP_SET_WEIGHT,
	OP_SET_CPUMASK,
	OP_UPDATE_IDLE,
	OP_CPU_ACQUIRE,
	OP_CPU_RELEASE,
	OP_INIT_TASK,
	OP_EXIT_TASK,
	OP_ENABLE,
	OP_DISABLE,
	OP_TIMER,
	OP_NOTE, /* what a rule found out */
	OP_EXIT, /* ops.exit */
	OP_CGROUP_INIT,
	OP_CGROUP_EXIT,
	OP_CGROUP_PREP_MOVE,
	OP_CGROUP_MOVE,
	OP_CGROUP_CANCEL_MOVE,
	OP_CGROUP_SET_WEIGHT,
	OP_CGROUP_SET_BANDWIDTH,
	OP_CGROUP_SET_IDLE,
};

enum action {
	ACT_INSERT = 1,	  /* this thread into queue a, slice b, flags c (as in enq_bits) */
	ACT_INSERT_VTIME, /* as INSERT, ordered by d */
	ACT_HOLD,	  /* keep this thread, in no queue */
	ACT_RELEASE,	  /* the held thread of label d: as INSERT */
	ACT_MOVE,	  /* the head of queue a to this CPU's local queue */
	ACT_KICK,	  /* CPU a, flags b */
	ACT_DEFAULT,	  /* select_cpu: the kernel's choice; insert locally if idle and b */
	ACT_RETURN,	  /* select_cpu: CPU a */
	ACT_SLICE,	  /* this thread's (dispatch: prev's) slice becomes a */
	ACT_NOTE,	  /* log the idle CPUs' mask and the length of queue a */
	ACT_CLAIM,	  /* claim idle CPU a; log whether it was idle */
	ACT_PICK,	  /* pick an idle CPU for this thread, flags a; log it */
	ACT_PULL, /* dispatch: label d, wherever it waits in queue a, to the local queue; slice b */
	ACT_AWAIT, /* dispatch: wait until label d has been enqueued a times; log whether it was */
	ACT_PICK_NODE, /* select_cpu: pick an idle CPU for this thread near node a, flags b; log it
			*/
	ACT_NOTE_NODE, /* select_cpu: log the masks of idle CPUs and cores of node a */
	ACT_REFUSE,    /* cgroup_prep_move: return a */
};

struct rule {
	u8 op;
	u8 label; /* 0: any */
	u8 nth;	  /* which call of this op for this label since it joined; 0: each */
	u8 action;
	u32 pad;
	u64 a, b, c, d;
};

struct entry {
	u64 clock; /* bpf_ktime_get_ns() */
	u64 a, b, c;
	s32 local, queued; /* length of this CPU's local queue and of QUEUE */
	u16 op, cpu;
	u32 label;
};

const volatile struct rule rules[MAX_RULES];
const volatile u32 nr_rules;
const volatile u64 slice_ns = 20000000; /* for threads no rule speaks of */

u32 nr_entries;			       /* written, or lost when above MAX_ENTRIES */
static u32 calls[MAX_OPS][MAX_LABELS]; /* since the label's first wake-up; 0: since anybody's */
static bool started[MAX_LABELS];       /* has been woken since it joined */
static s32 held[MAX_LABELS];	       /* pid of a held thread */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ENTRIES);
	__type(key, u32);
	__type(value, struct entry);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} labels SEC(".maps");

static u32 nr_groups;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GROUPS);
	__type(key, u64);
	__type(value, u32);
} groups SEC(".maps");

static u32 label_by_name(const struct task_struct *p)
{
	if (p->comm[0] != 'k' || p->comm[1] != ':')
		return 0;
	return (p->comm[2] - 'A' + 1) & (MAX_LABELS - 1);
}

static u32 label_of(struct task_struct *p)
{
	u32 *label;

	if (!p)
		return 0;
	label = bpf_task_storage_get(&labels, p, 0, 0);
	return label ? *label & (MAX_LABELS - 1) : 0;
}

/* The kernel's flag values differ between versions: bits of our own, in the order of the table. */
static u64 enq_bits(u64 flags)
{
	return (flags & SCX_ENQ_WAKEUP ? 1 : 0) | (flags & SCX_ENQ_HEAD ? 2 : 0) |
	       (flags & SCX_ENQ_PREEMPT ? 4 : 0) | (flags & SCX_ENQ_REENQ ? 8 : 0) |
	       (flags & SCX_ENQ_LAST ? 16 : 0);
}

static u64 enq_flags_of(u64 bits)
{
	return (bits & 1 ? SCX_ENQ_WAKEUP : 0) | (bits & 2 ? SCX_ENQ_HEAD : 0) |
	       (bits & 4 ? SCX_ENQ_PREEMPT : 0);
}

static u64 deq_bits(u64 flags)
{
	return (flags & SCX_DEQ_SLEEP ? 1 : 0) | (flags & SCX_DEQ_CORE_SCHED_EXEC ? 2 : 0) |
	       (flags & SCX_DEQ_SCHED_CHANGE ? 4 : 0);
}

static u64 wake_bits(u64 flags)
{
	return (flags & SCX_WAKE_FORK ? 1 : 0) | (flags & SCX_WAKE_TTWU ? 2 : 0) |
	       (flags & SCX_WAKE_SYNC ? 4 : 0);
}

/* What is left of a slice: 0 nothing, 1 one ns, 2 the default, 3 endless, 4 something else. */
static u64 slice_kind(const struct task_struct *p)
{
	u64 slice = p->scx.slice;

	if (slice <= 1)
		return slice;
	if (slice == SCX_SLICE_DFL)
		return 2;
	return slice == SCX_SLICE_INF ? 3 : 4;
}

static u64 mask_bits(const struct cpumask *mask)
{
	u64 bits = 0;
	u32 cpu;

	bpf_for(cpu, 0, MAX_CPUS)
		if (bpf_cpumask_test_cpu(cpu, mask))
			bits |= 1ULL << (cpu & (MAX_CPUS - 1));
	return bits;
}

/* Number of a cgroup; 0: ops.cgroup_init was never called for it. */
static u32 group_of(struct cgroup *cgrp)
{
	u64 id = cgrp->kn->id;
	u32 *number = bpf_map_lookup_elem(&groups, &id);

	return number ? *number : 0;
}

/* The entry's number of calls of (op, label) is returned: "nth" of the rules. */
static u32 record(enum op op, u32 label, u64 a, u64 b, u64 c)
{
	u32 i = __sync_fetch_and_add(&nr_entries, 1);
	struct entry *e;

	e = bpf_map_lookup_elem(&entries, &i);
	if (e) {
		e->clock = bpf_ktime_get_ns();
		e->op = op;
		e->cpu = bpf_get_smp_processor_id();
		e->label = label;
		e->a = a;
		e->b = b;
		e->c = c;
		e->local = scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL);
		e->queued = scx_bpf_dsq_nr_queued(QUEUE);
	}
	barrier_var(label); /* else the bound is known and the mask left out */
	label &= MAX_LABELS - 1;
	return __sync_fetch_and_add(&calls[op & (MAX_OPS - 1)][label], 1) + 1;
}

/* A thread's first wake-up begins its part: what it did to get ready is not counted. */
static void start(u32 label)
{
	u32 op;

	label &= MAX_LABELS - 1;
	if (started[label])
		return;
	started[label] = true;
	bpf_for(op, 0, MAX_OPS) {
		calls[op & (MAX_OPS - 1)][label] = 0;
		calls[op & (MAX_OPS - 1)][0] = 0;
	}
}

static bool applies(u32 i, enum op op, u32 label, u32 nth)
{
	const volatile struct rule *r = &rules[i & (MAX_RULES - 1)];

	if (r->label && (r->label == 255 ? 0 : r->label) != label)
		return false;
	return r->op == op && (!r->nth || r->nth == nth);
}

static void note_queue(u64 queue)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	const struct cpumask *cores = scx_bpf_get_idle_smtmask();
	u64 bits = mask_bits(idle) | mask_bits(cores) << MAX_CPUS;

	scx_bpf_put_idle_cpumask(cores);
	scx_bpf_put_idle_cpumask(idle);
	record(OP_NOTE, 0, ACT_NOTE, bits, scx_bpf_dsq_nr_queued(queue));
}

static void pull(u64 queue, u32 label, u64 slice)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0) {
		if (label_of(p) != label)
			continue;
		scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, slice);
		record(OP_NOTE, label, ACT_PULL, queue,
		       scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0));
	}
}

static void note_node(int node)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask_node(node);
	const struct cpumask *cores = scx_bpf_get_idle_smtmask_node(node);
	u64 bits = mask_bits(idle) | mask_bits(cores) << MAX_CPUS;

	scx_bpf_put_idle_cpumask(cores);
	scx_bpf_put_idle_cpumask(idle);
	record(OP_NOTE, 0, ACT_NOTE_NODE, bits, node);
}

/*
 * Stay in this callback while another CPU gets something done. The kernel function in the loop is
 * there for the simulator, where callbacks take no time: that other CPU acts in it.
 */
static void await_enqueues(u32 label, u32 nth)
{
	const volatile u32 *seen = &calls[OP_ENQUEUE][label & (MAX_LABELS - 1)];
	u32 i;

	bpf_for(i, 0, MAX_AWAIT) {
		if (*seen >= nth)
			break;
		scx_bpf_dispatch_nr_slots();
	}
	record(OP_NOTE, label, ACT_AWAIT, *seen >= nth, 0);
}

s32 BPF_STRUCT_OPS(recorder_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	u32 label = label_of(p), nth, i;
	s32 cpu = prev_cpu;

	start(label);
	nth = record(OP_SELECT_CPU, label, prev_cpu, wake_bits(wake_flags), mask_bits(p->cpus_ptr));
	bpf_for(i, 0, nr_rules) {
		const volatile struct rule *r = &rules[i & (MAX_RULES - 1)];
		bool idle = false;

		if (!applies(i, OP_SELECT_CPU, label, nth))
			continue;
		switch (r->action) {
		case ACT_INSERT:
			scx_bpf_dsq_insert(p, r->a, r->b, enq_flags_of(r->c));
			break;
		case ACT_RELEASE: {
			struct task_struct *q = bpf_task_from_pid(held[r->d & (MAX_LABELS - 1)]);

			if (q) {
				scx_bpf_dsq_insert(q, r->a, r->b, enq_flags_of(r->c));
				bpf_task_release(q);
			}
			break;
		}
		case ACT_DEFAULT:
			cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
			record(OP_NOTE, label, ACT_DEFAULT, cpu, idle);
			if (idle && r->b)
				scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
			break;
		case ACT_RETURN:
			cpu = r->a;
			break;
		case ACT_KICK:
			scx_bpf_kick_cpu(r->a, r->b);
			break;
		case ACT_CLAIM:
			record(OP_NOTE, label, ACT_CLAIM, r->a,
			       scx_bpf_test_and_clear_cpu_idle(r->a));
			break;
		case ACT_PICK:
			cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, r->a);
			record(OP_NOTE, label, ACT_PICK, (u32)cpu, 0);
			if (cpu < 0)
				cpu = prev_cpu;
			break;
		case ACT_NOTE:
			note_queue(r->a);
			break;
		case ACT_PICK_NODE:
			record(OP_NOTE, label, ACT_PICK_NODE,
			       (u32)scx_bpf_pick_idle_cpu_node(p->cpus_ptr, r->a, r->b), r->a);
			break;
		case ACT_NOTE_NODE:
			note_node(r->a);
			break;
		}
	}
	return cpu;
}

void BPF_STRUCT_OPS(recorder_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 label = label_of(p), nth, i;
	bool ruled = false;

	nth = record(OP_ENQUEUE, label, enq_bits(enq_flags), slice_kind(p), scx_bpf_task_cpu(p));
	bpf_for(i, 0, nr_rules) {
		const volatile struct rule *r = &rules[i & (MAX_RULES - 1)];

		if (!applies(i, OP_ENQUEUE, label, nth))
			continue;
		ruled = true;
		switch (r->action) {
		case ACT_INSERT:
			scx_bpf_dsq_insert(p, r->a, r->b, enq_flags_of(r->c));
			break;
		case ACT_INSERT_VTIME:
			scx_bpf_dsq_insert_vtime(p, r->a, r->b, r->d, enq_flags_of(r->c));
			break;
		case ACT_HOLD:
			held[label & (MAX_LABELS - 1)] = p->pid;
			break;
		case ACT_SLICE:
			scx_bpf_task_set_slice(p, r->a);
			break;
		case ACT_KICK:
			scx_bpf_kick_cpu(r->a, r->b);
			break;
		case ACT_CLAIM:
			record(OP_NOTE, label, ACT_CLAIM, r->a,
			       scx_bpf_test_and_clear_cpu_idle(r->a));
			break;
		case ACT_NOTE:
			note_queue(r->a);
			break;
		}
	}
	if (!ruled)
		scx_bpf_dsq_insert(p, QUEUE, slice_ns, enq_flags);
}

/* A mistake: a thread is moved while a run queue is locked that need not be its own. */
void BPF_STRUCT_OPS(recorder_enqueue_moving, struct task_struct *p, u64 enq_flags)
{
	struct task_struct *q;

	record(OP_ENQUEUE, label_of(p), enq_bits(enq_flags), slice_kind(p), scx_bpf_task_cpu(p));
	bpf_for_each(scx_dsq, q, QUEUE, 0) {
		scx_bpf_dsq_move(BPF_FOR_EACH_ITER, q, SCX_DSQ_LOCAL, 0);
		break;
	}
	scx_bpf_dsq_insert(p, QUEUE, slice_ns, enq_flags);
}

void BPF_STRUCT_OPS(recorder_dequeue, struct task_struct *p, u64 deq_flags)
{
	record(OP_DEQUEUE, label_of(p), deq_bits(deq_flags), 0, 0);
}

void BPF_STRUCT_OPS(recorder_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 label = label_of(prev), nth, i;
	u64 kind = 0, queued = 0, from = 0, who = 0, slice = 0, awaited = 0, times = 0;
	bool ruled = false;

	if (prev) {
		kind = slice_kind(prev);
		queued = prev->scx.flags & SCX_TASK_QUEUED ? 1 : 0;
	}
	nth = record(OP_DISPATCH, label, cpu, kind, queued);
	bpf_for(i, 0, nr_rules) {
		const volatile struct rule *r = &rules[i & (MAX_RULES - 1)];

		if (!applies(i, OP_DISPATCH, label, nth))
			continue;
		ruled = true;
		switch (r->action) {
		case ACT_RELEASE: {
			struct task_struct *q = bpf_task_from_pid(held[r->d & (MAX_LABELS - 1)]);

			if (q) {
				scx_bpf_dsq_insert(q, r->a, r->b, enq_flags_of(r->c));
				bpf_task_release(q);
			}
			break;
		}
		case ACT_MOVE:
			record(OP_NOTE, 0, ACT_MOVE, r->a, scx_bpf_dsq_move_to_local(r->a, 0));
			break;
		case ACT_PULL: /* a loop of its own, after this one */
			from = r->a;
			who = r->d;
			slice = r->b;
			break;
		case ACT_AWAIT: /* so is this */
			awaited = r->d;
			times = r->a;
			break;
		case ACT_SLICE:
			if (prev)
				scx_bpf_task_set_slice(prev, r->a);
			break;
		case ACT_KICK:
			scx_bpf_kick_cpu(r->a, r->b);
			break;
		case ACT_NOTE:
			note_queue(r->a);
			break;
		}
	}
	if (who)
		pull(from, who, slice);
	if (awaited)
		await_enqueues(awaited, times);
	if (!ruled)
		scx_bpf_dsq_move_to_local(QUEUE, 0);
}

void BPF_STRUCT_OPS(recorder_tick, struct task_struct *p)
{
	u32 label = label_of(p), nth, i;

	nth = record(OP_TICK, label, slice_kind(p), 0, 0);
	bpf_for(i, 0, nr_rules) {
		const volatile struct rule *r = &rules[i & (MAX_RULES - 1)];

		if (applies(i, OP_TICK, label, nth) && r->action == ACT_SLICE)
			scx_bpf_task_set_slice(p, r->a);
	}
}

void BPF_STRUCT_OPS(recorder_runnable, struct task_struct *p, u64 enq_flags)
{
	u32 label = label_of(p);

	if (enq_flags & SCX_ENQ_WAKEUP)
		start(label);
	record(OP_RUNNABLE, label, enq_bits(enq_flags), 0, scx_bpf_task_cpu(p));
}

void BPF_STRUCT_OPS(recorder_running, struct task_struct *p)
{
	u32 label = label_of(p), nth, i;

	nth = record(OP_RUNNING, label, slice_kind(p), 0, scx_bpf_task_cpu(p));
	bpf_for(i, 0, nr_rules) {
		const volatile struct rule *r = &rules[i & (MAX_RULES - 1)];

		if (!applies(i, OP_RUNNING, label, nth))
			continue;
		if (r->action == ACT_NOTE)
			note_queue(r->a);
		if (r->action == ACT_SLICE)
			scx_bpf_task_set_slice(p, r->a);
	}
}

void BPF_STRUCT_OPS(recorder_stopping, struct task_struct *p, bool runnable)
{
	record(OP_STOPPING, label_of(p), runnable, slice_kind(p), 0);
}

void BPF_STRUCT_OPS(recorder_quiescent, struct task_struct *p, u64 deq_flags)
{
	record(OP_QUIESCENT, label_of(p), deq_bits(deq_flags), 0, 0);
}

void BPF_STRUCT_OPS(recorder_set_weight, struct task_struct *p, u32 weight)
{
	record(OP_SET_WEIGHT, label_of(p), weight, 0, 0);
}

void BPF_STRUCT_OPS(recorder_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	record(OP_SET_CPUMASK, label_of(p), mask_bits(mask), 0, 0);
}

void BPF_STRUCT_OPS(recorder_update_idle, s32 cpu, bool idle)
{
	record(OP_UPDATE_IDLE, 0, cpu, idle, 0);
}

void BPF_STRUCT_OPS(recorder_cpu_acquire, s32 cpu, struct scx_cpu_acquire_args *args)
{
	record(OP_CPU_ACQUIRE, 0, cpu, 0, 0);
}

void BPF_STRUCT_OPS(recorder_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	record(OP_CPU_RELEASE, 0, cpu, 0, 0);
}

s32 BPF_STRUCT_OPS(recorder_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	u32 label = label_by_name(p);

	/* All threads of the machine pass here: log only those that have a name of ours. */
	if (label)
		record(OP_INIT_TASK, label, args->fork, 0, 0);
	return 0;
}

void BPF_STRUCT_OPS(recorder_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	u32 label = label_of(p);

	if (label)
		record(OP_EXIT_TASK, label, args->cancelled, 0, 0);
}

void BPF_STRUCT_OPS(recorder_enable, struct task_struct *p)
{
	u32 named = label_by_name(p);
	u32 *label = bpf_task_storage_get(&labels, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (label)
		*label = named;
	started[named & (MAX_LABELS - 1)] = false;
	record(OP_ENABLE, named, 0, 0, 0);
}

void BPF_STRUCT_OPS(recorder_disable, struct task_struct *p)
{
	record(OP_DISABLE, label_of(p), 0, 0, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(recorder_cgroup_init, struct cgroup *cgrp,
			     struct scx_cgroup_init_args *args)
{
	u64 id = cgrp->kn->id;
	u32 number = ++nr_groups;

	bpf_map_update_elem(&groups, &id, &number, BPF_ANY);
	record(OP_CGROUP_INIT, 0, number | (u64)args->weight << 8 | args->bw_period_us << 32,
	       args->bw_quota_us, args->bw_burst_us);
	return 0;
}

void BPF_STRUCT_OPS(recorder_cgroup_exit, struct cgroup *cgrp)
{
	record(OP_CGROUP_EXIT, 0, group_of(cgrp), 0, 0);
}

s32 BPF_STRUCT_OPS(recorder_cgroup_prep_move, struct task_struct *p, struct cgroup *from,
		   struct cgroup *to)
{
	u32 label = label_of(p), nth, i;
	s32 ret = 0;

	nth = record(OP_CGROUP_PREP_MOVE, label, group_of(from), group_of(to), 0);
	bpf_for(i, 0, nr_rules) {
		const volatile struct rule *r = &rules[i & (MAX_RULES - 1)];

		if (applies(i, OP_CGROUP_PREP_MOVE, label, nth) && r->action == ACT_REFUSE)
			ret = r->a;
	}
	return ret;
}

void BPF_STRUCT_OPS(recorder_cgroup_move, struct task_struct *p, struct cgroup *from,
		    struct cgroup *to)
{
	record(OP_CGROUP_MOVE, label_of(p), group_of(from), group_of(to), 0);
}

void BPF_STRUCT_OPS(recorder_cgroup_cancel_move, struct task_struct *p, struct cgroup *from,
		    struct cgroup *to)
{
	record(OP_CGROUP_CANCEL_MOVE, label_of(p), group_of(from), group_of(to), 0);
}

void BPF_STRUCT_OPS(recorder_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	record(OP_CGROUP_SET_WEIGHT, 0, group_of(cgrp), weight, 0);
}

void BPF_STRUCT_OPS(recorder_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
		    u64 burst_us)
{
	record(OP_CGROUP_SET_BANDWIDTH, 0, group_of(cgrp) | period_us << 32, quota_us, burst_us);
}

void BPF_STRUCT_OPS(recorder_cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	record(OP_CGROUP_SET_IDLE, 0, group_of(cgrp), idle, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(recorder_init)
{
	s32 ret = 0;
	u32 queue;

	bpf_for(queue, QUEUE, QUEUE + NR_QUEUES)
		if (!ret)
			ret = scx_bpf_create_dsq(queue, -1);
	return ret;
}

void BPF_STRUCT_OPS(recorder_exit, struct scx_exit_info *ei)
{
	record(OP_EXIT, 0, ei->kind, 0, 0);
	UEI_RECORD(uei, ei);
}

#define RECORDER_OPS(_name, _flags, ...)                                                           \
	SCX_OPS_DEFINE(_name, .select_cpu = (void *)recorder_select_cpu,                           \
		       .enqueue = (void *)recorder_enqueue, .dequeue = (void *)recorder_dequeue,   \
		       .dispatch = (void *)recorder_dispatch, .tick = (void *)recorder_tick,       \
		       .runnable = (void *)recorder_runnable, .running = (void *)recorder_running, \
		       .stopping = (void *)recorder_stopping,                                      \
		       .quiescent = (void *)recorder_quiescent,                                    \
		       .set_weight = (void *)recorder_set_weight,                                  \
		       .set_cpumask = (void *)recorder_set_cpumask,                                \
		       .init_task = (void *)recorder_init_task,                                    \
		       .exit_task = (void *)recorder_exit_task, .enable = (void *)recorder_enable, \
		       .disable = (void *)recorder_disable, .init = (void *)recorder_init,         \
		       .exit = (void *)recorder_exit, .flags = SCX_OPS_SWITCH_PARTIAL | (_flags),  \
		       .timeout_ms = 2000, .name = #_name, ##__VA_ARGS__)

/* What a scheduler implements and sets changes what the kernel does: one variant for each. */
RECORDER_OPS(recorder_plain, 0);
RECORDER_OPS(recorder_last, SCX_OPS_ENQ_LAST);
RECORDER_OPS(recorder_idle, 0, .update_idle = (void *)recorder_update_idle);
RECORDER_OPS(recorder_keep_idle, SCX_OPS_KEEP_BUILTIN_IDLE,
	     .update_idle = (void *)recorder_update_idle);
RECORDER_OPS(recorder_higher, 0, .cpu_acquire = (void *)recorder_cpu_acquire,
	     .cpu_release = (void *)recorder_cpu_release);
RECORDER_OPS(recorder_per_node, SCX_OPS_BUILTIN_IDLE_PER_NODE);
RECORDER_OPS(recorder_moving, 0, .enqueue = (void *)recorder_enqueue_moving);
RECORDER_OPS(recorder_cgroups, 0, .cgroup_init = (void *)recorder_cgroup_init,
	     .cgroup_exit = (void *)recorder_cgroup_exit,
	     .cgroup_prep_move = (void *)recorder_cgroup_prep_move,
	     .cgroup_move = (void *)recorder_cgroup_move,
	     .cgroup_cancel_move = (void *)recorder_cgroup_cancel_move,
	     .cgroup_set_weight = (void *)recorder_cgroup_set_weight,
	     .cgroup_set_bandwidth = (void *)recorder_cgroup_set_bandwidth,
	     .cgroup_set_idle = (void *)recorder_cgroup_set_idle);
