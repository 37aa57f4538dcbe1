/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * tracer: how long the threads of VMs wait for a CPU, who has it meanwhile, and how long they run
 * before they sleep. Sums only, by VM and thread; what they mean is in crates/tracer/src/lib.rs.
 *
 * A wait begins when a thread is woken or loses its CPU while it could go on, and ends when it is
 * switched in. It is charged to what that CPU ran meanwhile, by the CPU's last SPANS switches.
 */
/* Not scx/common.bpf.h: kernels without sched_ext are watched, too. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define NULL ((void *)0)

char _license[] SEC("license") = "GPL";

#define MAX_THREADS 32768
#define MAX_VMS	    4096
#define MAX_PAIRS   65536
#define OCTAVES	    24
#define BUCKETS	    128
#define SPANS	    64

/* Who had a CPU, besides VMs (counted from 0). */
#define WHO_HOST    0xfffffffe
#define WHO_IDLE    0xfffffffd
#define WHO_EARLIER 0xfffffffc /* before the last SPANS switches */

enum way {
	WAY_UNKNOWN = 0,
	WAY_AWAY = 1,
	WAY_WOKEN = 2,
	WAY_PREEMPTED = 3,
	WAY_RUNNING = 4,
};

struct member {
	u32 slot; /* of threads[] */
	u32 vm;	  /* of vms[] */
	u32 vcpu; /* counts for the VM's wake-ups */
};

struct traced {
	u64 since; /* start of the state */
	u64 burst; /* run since it was woken */
	u32 state;
	u32 unused;
	u64 bursts[OCTAVES]; /* CPU time by length of burst */
};

struct guest {
	u64 wakeups[BUCKETS]; /* waits after a wake-up, by length */
	u64 worst;	      /* longest wait of any kind */
};

struct who_whom {
	u32 waiter;
	u32 cause;
};

struct stretch {
	u64 end;
	u32 who;
	u32 unused;
};

struct cpu_history {
	u64 next;
	struct stretch spans[SPANS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* read without a system call */
	__uint(max_entries, MAX_THREADS);
	__type(key, u32);
	__type(value, struct traced);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_VMS);
	__type(key, u32);
	__type(value, struct guest);
} vms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PAIRS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct who_whom);
	__type(value, u64);
} blame SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_history);
} cpus SEC(".maps");

static u32 log2_of(u64 v)
{
	u32 r = 0;

	if (v >> 32) {
		v >>= 32;
		r += 32;
	}
	if (v >> 16) {
		v >>= 16;
		r += 16;
	}
	if (v >> 8) {
		v >>= 8;
		r += 8;
	}
	if (v >> 4) {
		v >>= 4;
		r += 4;
	}
	if (v >> 2) {
		v >>= 2;
		r += 2;
	}
	return r + (v >> 1);
}

/* Four buckets an octave, from 64 ns on. */
static u32 bucket(u64 ns)
{
	u32 log, i;

	if (ns < 64)
		return 0;
	log = log2_of(ns);
	i = (log - 6) * 4 + ((ns >> (log - 2)) & 3);
	return i < BUCKETS ? i : BUCKETS - 1;
}

static void charge(u32 waiter, u32 cause, u64 ns)
{
	struct who_whom key = { .waiter = waiter, .cause = cause };
	u64 *sum = bpf_map_lookup_elem(&blame, &key);

	if (sum)
		__sync_fetch_and_add(sum, ns);
	else
		bpf_map_update_elem(&blame, &key, &ns, BPF_NOEXIST);
}

/* A wait that ends now on this CPU: charged backwards, span by span. */
static void charge_wait(struct cpu_history *c, u32 vm, u64 from, u64 now)
{
	u64 end = now, start;
	u32 i;

	for (i = 1; i < SPANS; i++) {
		struct stretch *s = &c->spans[(c->next - i) & (SPANS - 1)];
		struct stretch *before = &c->spans[(c->next - i - 1) & (SPANS - 1)];

		if (end <= from || i >= c->next)
			break;
		start = before->end > from ? before->end : from;
		if (start < end)
			charge(vm, s->who, end - start);
		end = start;
	}
	if (end > from)
		charge(vm, WHO_EARLIER, end - from);
}

static void switched_out(struct member *m, u64 now, bool goes_on)
{
	struct traced *t = bpf_map_lookup_elem(&threads, &m->slot);
	u32 octave;

	if (!t)
		return;
	if (t->state == WAY_RUNNING && now > t->since)
		t->burst += now - t->since;
	if (!goes_on && t->state != WAY_UNKNOWN) {
		octave = log2_of(t->burst / 1000);
		if (octave >= OCTAVES)
			octave = OCTAVES - 1;
		t->bursts[octave] += t->burst;
	}
	if (!goes_on)
		t->burst = 0;
	t->state = goes_on ? WAY_PREEMPTED : WAY_AWAY;
	t->since = now;
}

static void switched_in(struct member *m, struct cpu_history *c, u64 now)
{
	struct traced *t = bpf_map_lookup_elem(&threads, &m->slot);
	struct guest *v = bpf_map_lookup_elem(&vms, &m->vm);
	u64 wait;
	u32 i;

	if (!t || !v)
		return;
	if ((t->state == WAY_WOKEN || t->state == WAY_PREEMPTED) && now > t->since) {
		wait = now - t->since;
		if (t->state == WAY_WOKEN && m->vcpu) {
			i = bucket(wait);
			if (i < BUCKETS)
				__sync_fetch_and_add(&v->wakeups[i], 1);
		}
		if (wait > v->worst)
			v->worst = wait;
		charge_wait(c, m->vm, t->since, now);
	}
	t->state = WAY_RUNNING;
	t->since = now;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	u32 zero = 0, out = prev->pid, in = next->pid;
	u64 now = bpf_ktime_get_ns();
	struct cpu_history *c = bpf_map_lookup_elem(&cpus, &zero);
	struct member *m;
	struct stretch *s;

	if (!c)
		return 0;
	m = out ? bpf_map_lookup_elem(&members, &out) : NULL;
	s = &c->spans[c->next & (SPANS - 1)];
	s->end = now;
	s->who = !out ? WHO_IDLE : m ? m->vm : WHO_HOST;
	c->next++;
	if (m)
		switched_out(m, now, preempt || !prev_state);
	m = in ? bpf_map_lookup_elem(&members, &in) : NULL;
	if (m)
		switched_in(m, c, now);
	return 0;
}

static void woken(struct task_struct *p)
{
	u32 tid = p->pid;
	struct member *m = bpf_map_lookup_elem(&members, &tid);
	struct traced *t = m ? bpf_map_lookup_elem(&threads, &m->slot) : NULL;

	if (!t || t->state != WAY_AWAY)
		return;
	t->state = WAY_WOKEN;
	t->since = bpf_ktime_get_ns();
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	woken(p);
	return 0;
}

/* What /proc would tell of a thread, in one reading of all. As in crates/tracer/src/lib.rs. */
struct told {
	u32 pid;
	u32 tid;
	u64 start; /* nanoseconds since boot */
	u64 run;
	u64 wait;
	u64 stays;
	u64 wakeups;
};

SEC("iter/task")
int tell(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct told t = {};
	u32 tid;

	if (!p)
		return 0;
	tid = p->pid;
	if (!bpf_map_lookup_elem(&members, &tid))
		return 0;
	t.pid = p->tgid;
	t.tid = tid;
	t.start = p->start_boottime;
	t.run = p->se.sum_exec_runtime;
	t.wait = p->sched_info.run_delay;
	t.stays = p->sched_info.pcount;
	t.wakeups = p->nvcsw;
	bpf_seq_write(ctx->meta->seq, &t, sizeof(t));
	return 0;
}

/* The number may be used again: nobody is mistaken for the one that ended. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *p)
{
	u32 tid = p->pid;

	bpf_map_delete_elem(&members, &tid);
	return 0;
}
