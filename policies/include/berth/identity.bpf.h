/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who a thread is: which VM it works for, in which role, and what that VM is entitled to.
 *
 * The loader (Berth's daemon, the lab, the simulator) fills two maps through the ordinary map
 * interface:
 *
 *   berth_vms      id of the VM's own cgroup -> struct berth_vm. Every thread in that cgroup or
 *                  below it belongs to the VM. A VM without a cgroup of its own has its process
 *                  as the key (BERTH_PROCESS); that process's threads belong to it. Filled before
 *                  the VM's threads start; VMs may come and go at any time.
 *   berth_threads  thread id -> struct berth_thread. Optional: what the cgroup does not tell. A
 *                  thread without an entry inherits role and flags of the thread that forked it
 *                  (so a vhost worker forked by an emulator thread with an entry is covered),
 *                  else it is `other`.
 *
 * After any later change of either map the loader adds one to berth_generation; each thread is then
 * identified anew when it next stops running. A VM that ends: delete its entries, add one. A slot
 * may be reused at once.
 *
 * The policy keeps the answer in task storage (berth_identity), so that its callbacks need no
 * cgroup look-up. All records have fixed sizes and start with a version; one of another version is
 * ignored as if it were absent.
 */
#ifndef __BERTH_IDENTITY_BPF_H
#define __BERTH_IDENTITY_BPF_H

#define BERTH_IDENTITY_VERSION 1
#define BERTH_CGROUP_DEPTH     16 /* levels below the root at which a VM's cgroup is looked for */

/*
 * Key of a process in berth_vms: this bit, then 41 bits with its start since boot in ticks of
 * 10 ms, as field 22 of /proc/PID/stat has it, then 22 with its number. The start tells it from
 * another process that gets the number later.
 */
#define BERTH_PROCESS	       (1ULL << 63)
#define BERTH_PROCESS_TICK_NS  10000000
#define BERTH_PROCESS_NUMBERS  (1ULL << 22)

enum berth_class { BERTH_CLASS_NONE, BERTH_CLASS_LATENCY, BERTH_CLASS_BATCH, BERTH_CLASS_MIXED };

enum berth_role {
	BERTH_ROLE_OTHER, /* no VM's, or unknown */
	BERTH_ROLE_VCPU,
	BERTH_ROLE_VHOST,
	BERTH_ROLE_IOTHREAD,
	BERTH_ROLE_EMULATOR,
};

#define BERTH_THREAD_IO 1 /* struct berth_thread.flags: this vCPU serves I/O (mixed VMs) */

/* 32 bytes, value of berth_vms. */
struct berth_vm {
	u32 version;
	u32 slot; /* dense number of the VM, 1 and up: index into maps named _by_vm; 0 is the host
		   */
	u32 generation; /* another one for each VM that gets the slot */
	u32 class;	/* enum berth_class, never NONE */
	u32 weight;	/* 1..10000 of the whole VM, as cgroup cpu.weight */
	u32 cap_mcpu;	/* thousandths of a CPU the VM may use; 0: no cap */
	s32 node;	/* memory node; -1: none or several */
	u32 vcpus;	/* number of vCPUs */
};

/* 16 bytes, value of berth_threads. */
struct berth_thread {
	u32 version;
	u32 role;  /* enum berth_role */
	s32 vcpu;  /* index of the vCPU; -1 for other roles */
	u32 flags; /* BERTH_THREAD_* */
};

/* 48 bytes, task storage. A thread of no VM: slot 0, class NONE, weight 100. */
struct berth_identity {
	struct berth_vm vm;
	struct berth_thread thread;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct berth_vm);
} berth_vms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct berth_thread);
} berth_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct berth_identity);
} berth_identity SEC(".maps");

volatile u32 berth_generation SEC(".data.berth") = 1;

static __always_inline struct berth_vm *berth_vm_at(u64 key)
{
	struct berth_vm *vm = bpf_map_lookup_elem(&berth_vms, &key);

	return vm && vm->version == BERTH_IDENTITY_VERSION ? vm : NULL;
}

/* The VM whose process this thread belongs to; NULL: none, or it is known by its cgroup. */
static __always_inline struct berth_vm *berth_vm_of_process(struct task_struct *p)
{
	u64 start = p->group_leader->start_boottime / BERTH_PROCESS_TICK_NS;

	return berth_vm_at(BERTH_PROCESS | (start * BERTH_PROCESS_NUMBERS + p->tgid));
}

/* The VM of the nearest registered cgroup at or above this one; NULL: none. */
static __always_inline struct berth_vm *berth_vm_of(u64 cgroup_id)
{
	struct berth_vm *vm = berth_vm_at(cgroup_id);
	struct cgroup *cgrp, *up;
	int i;

	if (vm)
		return vm;
	cgrp = bpf_cgroup_from_id(cgroup_id);
	if (!cgrp)
		return NULL;
	bpf_for(i, 1, BERTH_CGROUP_DEPTH) {
		if (i >= cgrp->level) /* the root is no VM */
			break;
		up = bpf_cgroup_ancestor(cgrp, cgrp->level - i);
		if (!up)
			break;
		vm = berth_vm_at(up->kn->id);
		bpf_cgroup_release(up);
		if (vm)
			break;
	}
	bpf_cgroup_release(cgrp);
	return vm;
}

/*
 * Fill p's record from its process and the cgroup it is in (0: unknown). fork: the current thread
 * is forking it. NULL: no memory.
 */
static __always_inline struct berth_identity *berth_identify(struct task_struct *p, u64 cgroup_id,
							     bool fork)
{
	struct berth_identity *id, *parent;
	struct berth_thread *th;
	struct berth_vm *vm;
	u32 tid = p->pid;

	id = bpf_task_storage_get(&berth_identity, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!id)
		return NULL;
	if (fork) {
		parent = bpf_task_storage_get(&berth_identity, bpf_get_current_task_btf(), 0, 0);
		if (parent) {
			id->thread = parent->thread;
			id->thread.vcpu = -1;
			if (id->thread.role == BERTH_ROLE_VCPU)
				id->thread.role = BERTH_ROLE_OTHER;
		}
	}
	th = bpf_map_lookup_elem(&berth_threads, &tid);
	if (th && th->version == BERTH_IDENTITY_VERSION)
		id->thread = *th;
	vm = berth_vm_of_process(p);
	if (!vm && cgroup_id)
		vm = berth_vm_of(cgroup_id);
	if (vm) {
		id->vm = *vm;
	} else {
		__builtin_memset(&id->vm, 0, sizeof(id->vm));
		id->vm.version = BERTH_IDENTITY_VERSION;
		id->vm.weight = 100;
		id->vm.node = -1;
	}
	return id;
}

#endif
