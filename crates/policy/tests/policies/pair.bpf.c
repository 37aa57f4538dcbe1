/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Two neighbouring CPUs run tasks of one cgroup at a time, for `pair_batch_dur_ns`; then it is the
 * next cgroup's turn, and if only one CPU has work for it the other idles. Each cgroup's tasks wait
 * in a queue of its own, which the loader is to make: an array of maps without maps. Tasks that may
 * not run anywhere are outside of all this.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

const volatile u32 nr_cpu_ids = 1;
const volatile u64 pair_batch_dur_ns = 20000000;

#define GROUPS 256
#define TRIES  64

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GROUPS);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_QUEUE);
			__uint(max_entries, 4096);
			__type(value, s32);
		});
} waiting SEC(".maps");

/* Groups with waiting tasks, in turn; each at most once. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, GROUPS);
	__type(value, u32);
} turns SEC(".maps");

struct slot {
	u32 in_turns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GROUPS);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct group {
	u32 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct group);
} groups SEC(".maps");

struct pair {
	u64 until; /* end of the batch; 0: nobody's */
	u32 slot;
	u32 busy; /* bits of its CPUs that run a task */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 512);
	__type(key, u32);
	__type(value, struct pair);
} pairs SEC(".maps");

static u32 nr_groups;
u64 nr_batches, nr_waits, nr_full;

static struct pair *pair_of(s32 cpu)
{
	u32 key = (u32)cpu / 2;

	return bpf_map_lookup_elem(&pairs, &key);
}

static void take_turn(u32 number)
{
	struct slot *slot = bpf_map_lookup_elem(&slots, &number);

	if (slot && !slot->in_turns) {
		slot->in_turns = 1;
		bpf_map_push_elem(&turns, &number, 0);
	}
}

void BPF_STRUCT_OPS(paired_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct cgroup *cgrp;
	struct group *group;
	void *queue = NULL;
	s32 pid = p->pid, cpu;
	u32 slot = 0;

	if (p->nr_cpus_allowed != nr_cpu_ids) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, pair_batch_dur_ns, enq_flags);
		return;
	}
	cgrp = scx_bpf_task_cgroup(p);
	if (cgrp) {
		group = bpf_cgrp_storage_get(&groups, cgrp, 0, 0);
		if (group) {
			slot = group->slot;
			queue = bpf_map_lookup_elem(&waiting, &slot);
		}
		bpf_cgroup_release(cgrp);
	}
	if (!queue || bpf_map_push_elem(queue, &pid, 0)) {
		__sync_fetch_and_add(&nr_full, 1);
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, pair_batch_dur_ns, enq_flags);
		return;
	}
	take_turn(slot);
	cpu = scx_bpf_task_cpu(p);
	/* It alone wants this CPU, or another one has nothing to do. */
	if (!(enq_flags & SCX_ENQ_LAST))
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, 0);
}

/* A task of the pair's group for this CPU; false: none waits. */
static bool take(struct pair *pair, s32 cpu, u64 now)
{
	u32 slot = pair->slot, i;
	void *queue = bpf_map_lookup_elem(&waiting, &slot);
	struct task_struct *p;
	bool here;
	s32 pid;

	if (!queue)
		return false;
	bpf_for(i, 0, TRIES) {
		if (bpf_map_pop_elem(queue, &pid))
			break;
		p = bpf_task_from_pid(pid);
		if (!p)
			continue;
		here = bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
		scx_bpf_dsq_insert(p, here ? SCX_DSQ_LOCAL : SCX_DSQ_GLOBAL, pair->until - now, 0);
		bpf_task_release(p);
		if (here)
			return true;
	}
	return false;
}

void BPF_STRUCT_OPS(paired_dispatch, s32 cpu, struct task_struct *prev)
{
	struct pair *pair = pair_of(cpu);
	u64 now = scx_bpf_now();
	s32 other = cpu ^ 1;
	struct slot *slot;
	u32 number, i;

	if (!pair)
		return;
	if (pair->until && time_before(now, pair->until)) {
		if (take(pair, cpu, now) || (pair->busy & ~(1 << (cpu & 1))))
			return;
		/* Nobody of the group is left. */
	} else if (pair->busy & ~(1 << (cpu & 1))) {
		__sync_fetch_and_add(&nr_waits, 1);
		scx_bpf_kick_cpu(other, SCX_KICK_PREEMPT);
		return;
	}
	pair->until = 0;
	bpf_for(i, 0, TRIES) {
		if (bpf_map_pop_elem(&turns, &number))
			break;
		slot = bpf_map_lookup_elem(&slots, &number);
		if (!slot)
			break;
		slot->in_turns = 0;
		pair->slot = number;
		pair->until = now + pair_batch_dur_ns;
		if (!take(pair, cpu, now)) {
			pair->until = 0;
			continue;
		}
		/* Others of it may wait still. */
		take_turn(number);
		__sync_fetch_and_add(&nr_batches, 1);
		if (other < nr_cpu_ids)
			scx_bpf_kick_cpu(other, 0);
		break;
	}
}

static void mark(struct task_struct *p, bool on)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct pair *pair = pair_of(cpu);

	if (!pair)
		return;
	if (on)
		pair->busy |= 1 << (cpu & 1);
	else
		pair->busy &= ~(1 << (cpu & 1));
}

void BPF_STRUCT_OPS(paired_running, struct task_struct *p)
{
	mark(p, true);
}

void BPF_STRUCT_OPS(paired_stopping, struct task_struct *p, bool runnable)
{
	mark(p, false);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(paired_cgroup_init, struct cgroup *cgrp,
			     struct scx_cgroup_init_args *args)
{
	struct group *group;

	group = bpf_cgrp_storage_get(&groups, cgrp, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!group)
		return -ENOMEM;
	group->slot = __sync_fetch_and_add(&nr_groups, 1);
	return group->slot < GROUPS ? 0 : -ENOSPC;
}

void BPF_STRUCT_OPS(paired_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(paired_ops,
	/* who is alone is no reason to go on when it is another group's turn */
	.flags		= SCX_OPS_ENQ_LAST,
	.enqueue	= (void *)paired_enqueue,
	.dispatch	= (void *)paired_dispatch,
	.running	= (void *)paired_running,
	.stopping	= (void *)paired_stopping,
	.cgroup_init	= (void *)paired_cgroup_init,
	.exit		= (void *)paired_exit,
	.timeout_ms	= 5000,
	.name		= "pair");
