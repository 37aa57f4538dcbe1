/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vmfair: weighted fair sharing among VMs first, among the vCPUs of a VM second.
 *
 * Idea. Every VM has a virtual clock that advances by the run time of all its threads divided by
 * its weight. A thread waits under a key near its VM's clock, and each CPU takes the lowest key of
 * its LLC's queue. So a VM progresses at the rate of its weight however many threads it has. Inside
 * the VM a thread has a clock of its own, which runs faster than the VM's by the weights (of their
 * nice values) of all its runnable threads divided by the thread's, and orders the siblings: it may
 * be behind the VM's clock by a few slices, and ahead of it by these and what the siblings that
 * wait are likely to run. Siblings that wake together queue up behind each other. A CPU's virtual
 * time is the highest key it has started so far. A VM that has slept, or could not use its share,
 * is at most `credit_us` behind it: that is how much sleep is worth. A VM that runs where nobody
 * waits is at most one slice ahead of it: CPU time that nobody else wanted is free. CPUs that serve
 * the same threads keep the same time; where cpusets part them, each part has its own, and weights
 * hold within it.
 *
 * Latency. A waking thread goes to an idle CPU if there is one. Without one, a thread of a latency
 * VM, an I/O thread of a mixed VM, a vhost or I/O thread or a thread of the host takes the CPU at
 * once from a thread of another kind, if its key is not beyond the virtual time: a VM that has used
 * its share and `credit_us` on top waits like everyone else. It is favoured until it has run for a
 * slice: first in the queue, and safe from others of its kind for `shield_us` whenever it gets a
 * CPU; who computes for longer is no latency thread while it does. Any other thread takes the CPU,
 * from one that is no latency thread either, if its VM is behind by more than `credit_us`: it is
 * owed that, and who sleeps shortly would never have it (vmfair/preempt.bpf.h). A thread that a
 * higher class (real-time, say) takes the CPU from goes on before this policy is asked: then it
 * gives way if a favoured thread has come to be first in the queue.
 *
 * Cores of several kinds. Latency threads of VMs go to fast cores first, no core idles while a
 * slower one works, and run time counts by the capacity of the core (vmfair/kinds.bpf.h).
 *
 * Threads without a VM form one group, the host, of weight `host_weight`. Kernel threads that may
 * run on one CPU only go to that CPU at once, and preempt when they wake: they carry timers and
 * softirqs.
 *
 * Run time is the task clock (p->se.sum_exec_runtime), without interrupts and stolen time. A VM
 * with a cap may use so much run time in every 100 ms; then its threads are parked until the next
 * period begins. At ticks it may overdraw, which it pays back.
 * Nobody waits for ever, whatever its share (vmfair/patience.bpf.h).
 *
 * Not good for: equal work on unequal cores while nobody waits for a CPU (whoever came first keeps
 * the fast one; only those who wait take turns), gangs (siblings are not run together), lock
 * holders (a holder is preempted like anyone), slices below two ticks, weights further apart than
 * some 500 : 1 (patience_ms gives the light one more: a slice, or `shield_us` for each thread).
 */
#include <scx/common.bpf.h>
#include "berth/bandwidth.bpf.h"
#include "berth/identity.bpf.h"
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY(
	"task",
	"Weighted virtual time per VM, then per vCPU; who wakes within its VM's share preempts");

BERTH_PARAM(
	u64, slice_us, "us", 3000, 100, 100000,
	"Longest run while another thread waits; below a 250 Hz tick, so that it ends at the next one");
BERTH_PARAM(u64, shield_us, "us", 100, 10, 100000,
	    "How long a latency thread is safe from others once it runs");
BERTH_PARAM(u64, credit_us, "us", 8000, 0, 1000000,
	    "How far a sleeper's clock may be behind, in run time of a VM of weight 100");
BERTH_PARAM(u32, host_weight, "weight", 1000, 1, 10000,
	    "Weight of all threads that belong to no VM, together: they serve every VM");
BERTH_PARAM(bool, preempt, "bool", 1, 0, 1, "Whether waking threads preempt");
BERTH_PARAM(
	u64, patience_ms, "ms", 2000, 10, 5000,
	"A VM, or a thread of one, that has waited this long goes first once, whatever its share");
BERTH_PARAM(
	bool, by_kind, "bool", 1, 0, 1,
	"Where cores are of several kinds: latency threads go to fast ones, shares are of work");
BERTH_PARAM(u64, balance_us, "us", 10000, 1000, 1000000,
	    "How often an LLC looks for older work in other LLCs while it has work of its own");

#define PROBES	  4  /* CPUs looked at for a victim, starting with the thread's last */
#define SHARERS	  64 /* a thread's clock runs at most so many times faster than its VM's */
#define LEAD	  4  /* slices by which a thread may be ahead of its VM */
#define FAVOUR	  4  /* credits by which a favoured thread goes before others: by 2 at most */
#define REFRESHED 32 /* of a queue, at a time */
#define FIXED_ONE 16 /* fraction bits of inverse weights */

/* A VM, or the host. Counters are shared by CPUs; clamping vtime may lose a concurrent charge,
 * which is bounded by one slice and not systematic. */
struct group {
	struct bpf_spin_lock lock; /* of `pool` */
	u32 load;		/* weights of the threads queued or running, by their nice values */
	struct berth_pool pool; /* its cap */
	u64 vtime;		/* run time of all threads times 100 / weight, ns */
	u64 queued_ns;		/* how long those that wait are likely to run, together, */
	u64 woken_ns;		/* and of these those whose clocks had been put forward */
	u64 served_at;		/* when a thread of it started last, or was brought forward */
	u64 inv_weight;		/* 100 / weight, fixed point */
	u32 weight;
	u32 cap_mcpu; /* 0: none */
};

enum run {
	RUN_FREE,   /* nobody waited */
	RUN_DIRECT, /* ahead of the queue */
	RUN_TURN,   /* its key was the lowest */
};

struct thread {
	u64 vtime;	/* own clock, in the units of its VM's */
	u64 queued_at;	/* when it began to wait */
	u64 charged_ns; /* p->se.sum_exec_runtime up to which run time is charged */
	u64 woke_ns;	/* p->se.sum_exec_runtime when it woke, */
	u64 began_ns;	/* and when this run began */
	u64 likely_ns;	/* how long it runs once it has a CPU, of its last runs */
	u64 queued_ns;	/* its part of its group's, */
	u64 woken_ns;	/* of both */
	u32 slot;
	u32 counted;	/* its weight, as far as it is in its group's `load` */
	u32 generation; /* of the labels slot and urgent were read from */
	bool urgent;	/* preempts when it wakes */
	bool favoured;	/* it woke within its share and has not run for a slice since */
	bool aside;	/* a higher class has taken its CPU: the kernel has it go on */
	bool brief;	/* waited for too long beside siblings: runs for a short time only */
	bool prompt;	/* goes to fast cores first */
	bool moves;	/* has been asked to move to a faster core */
	u8 run;		/* enum run: how it got, or will get, its CPU */
};

#include "berth/vms.bpf.h"

struct pcpu {
	u64 vnow;	    /* the CPU's virtual time: highest key it has started from a queue */
	u64 key;	    /* of who runs here, when it was last looked at */
	u64 shield_until;   /* who runs here may be preempted from then on by a favoured thread, */
	u64 favoured_until; /* by one of its own VM, or one that is owed */
	u32 slot;	    /* its VM's */
	u32 capacity;	    /* 1024: the machine's fastest */
	u32 kind;	    /* 0: the fastest; 0 on a machine with one kind */
	bool preemptible;   /* runs a thread that has not been preempted yet */
	bool brief;	    /* which runs for a short time only */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct pcpu);
} cpus_by_cpu SEC(".maps");

struct llc {
	u64 balanced_at; /* when older work was last looked for elsewhere */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, struct llc);
} llcs_by_llc SEC(".maps");

enum { GUARD_PATIENCE, GUARD_PARKED, GUARDS };

#include "berth/parking.bpf.h"

struct berth_stats {
	u64 idle;      /* woken onto an idle CPU */
	u64 queued;    /* had to wait */
	u64 preempted; /* woken onto a CPU taken from another thread */
	u64 gave_way;  /* went on after a higher class, and gave way to a latency thread */
	u64 kept;      /* slice ended, still first: went on */
	u64 stolen;    /* taken from another LLC's queue */
	u64 parked;    /* had to wait for the next period of the VM's cap */
	u64 overdue;   /* brought forward because it had waited for `patience_ms` */
	u64 moved_up;  /* moved from a core to a faster one while it ran */
	u64 handed_up; /* a slower core's turn, given to a faster one */
};
BERTH_STATS;

static u64 vnow; /* highest of all CPUs'; racy, an older value is nearly as good */

static __always_inline struct pcpu *cpu_at(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&cpus_by_cpu, &key);
}

static __always_inline u64 slice_ns(void)
{
	return slice_us * 1000;
}

#include "vmfair/kinds.bpf.h"
#include "vmfair/share.bpf.h"
#include "vmfair/preempt.bpf.h"

s32 BPF_STRUCT_OPS(vmfair_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct thread *t = thread_of(p);
	bool idle = false;
	struct group *g;
	struct pcpu *c;
	s32 cpu = prev_cpu, victim;

	if (nr_kinds < 2)
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	if (!t)
		return cpu;
	g = group_at(t->slot);
	if (!g || capped_until(g, 0))
		return cpu;
	c = cpu_at(cpu);
	if (!c)
		return cpu;
	place(t, g, c);
	t->woke_ns = p->se.sum_exec_runtime;
	t->favoured = is_favoured(p, t, c);
	if (nr_kinds > 1) {
		cpu = choose(p, t, prev_cpu, !time_after(t->vtime, c->vnow));
		idle = t->run == RUN_FREE;
		if (t->run == RUN_DIRECT) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns(), SCX_ENQ_PREEMPT);
			berth_count(preempted);
			return cpu;
		}
	}
	if (idle) {
		t->run = RUN_FREE;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns(), 0);
		berth_count(idle);
		return cpu;
	}
	if (!preempt)
		return cpu;
	victim = find_victim(p, t, cpu, PROBES);
	if (victim < 0)
		return cpu;
	t->run = RUN_DIRECT;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns(), SCX_ENQ_PREEMPT);
	berth_count(preempted);
	return victim;
}

void BPF_STRUCT_OPS(vmfair_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct thread *t = thread_of(p);
	struct group *g = group_of(t);
	s32 cpu = scx_bpf_task_cpu(p);
	struct pcpu *c = cpu_at(cpu);
	bool wakes = enq_flags & SCX_ENQ_WAKEUP;
	u64 until;

	if (!t || !g || !c) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns(), enq_flags);
		return;
	}
	released(t, g);
	until = capped_until(g, 0);
	if (until) {
		scx_bpf_dsq_insert(p, PARKED, slice_ns(), enq_flags);
		look_at(until);
		berth_count(parked);
		return;
	}
	place(t, g, c);
	if (t->moves) {
		t->moves = false;
		if (move_up(p, t, enq_flags))
			return;
	}
	if (wakes)
		t->woke_ns = p->se.sum_exec_runtime;
	t->favoured = is_favoured(p, t, c);
	if ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1) {
		t->run = RUN_DIRECT;
		if (wakes)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns(), enq_flags);
		return;
	}
	/* The kernel asks for no CPU where there is only one to choose (pinned, or a small
	 * machine). */
	if (wakes && preempt && p->nr_cpus_allowed == 1 && find_victim(p, t, cpu, 1) >= 0) {
		t->run = RUN_DIRECT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns(), enq_flags | SCX_ENQ_PREEMPT);
		berth_count(preempted);
		return;
	}
	reserved(t, g, c);
	t->run = RUN_TURN;
	t->queued_at = scx_bpf_now();
	scx_bpf_dsq_insert_vtime(p, berth_llc(cpu), slice_ns(), key_of(t, g), enq_flags);
	berth_count(queued);
	/* A CPU may have gone idle since p last looked, or p did not look: it lost its CPU, or has
	 * one only. */
	tell_idle(p, cpu);
	if (t->favoured && preempt)
		await_shield(p, t, cpu);
}

/*
 * Take the oldest thread waiting in another LLC; with `bounded`, only one that waits under a key
 * before `key`. The oldest may not be allowed here: without a bound any other will do.
 */
static __always_inline bool steal(s32 cpu, u32 own, u64 key, bool bounded)
{
	struct task_struct *head;
	s32 best = -1, i;

	bpf_for(i, 1, berth_nr_llcs) {
		u32 llc = (own + i) % berth_nr_llcs;

		head = __COMPAT_scx_bpf_dsq_peek(llc);
		if (!head || !bpf_cpumask_test_cpu(cpu, head->cpus_ptr))
			continue;
		if ((best < 0 && !bounded) || time_before(head->scx.dsq_vtime, key)) {
			key = head->scx.dsq_vtime;
			best = llc;
		}
	}
	if (best >= 0 && scx_bpf_dsq_move_to_local(best, 0)) {
		berth_count(stolen);
		return true;
	}
	if (bounded)
		return false;
	bpf_for(i, 1, berth_nr_llcs) {
		if (scx_bpf_dsq_move_to_local((own + i) % berth_nr_llcs, 0)) {
			berth_count(stolen);
			return true;
		}
	}
	return false;
}

/* Now and then: has a thread of another LLC clearly waited longer than the first one here? */
static __always_inline bool balance(s32 cpu, u32 own, u64 first)
{
	struct llc *llc = bpf_map_lookup_elem(&llcs_by_llc, &own);
	u64 now = scx_bpf_now();

	if (!llc || now - llc->balanced_at < balance_us * 1000)
		return false;
	llc->balanced_at = now;
	return steal(cpu, own, first - credit_us * 1000, true);
}

/*
 * prev is not in the queue yet: compare its key with the first one's here, or two threads would
 * take turns whatever their weights.
 */
void BPF_STRUCT_OPS(vmfair_dispatch, s32 cpu, struct task_struct *prev)
{
	struct pcpu *c = cpu_at(cpu);
	struct task_struct *head;
	struct thread *t = NULL;
	struct group *g = NULL;
	u32 llc = berth_llc(cpu);
	bool goes_on = false, prev_first = false;
	u64 key = 0;

	if (prev && (prev->scx.flags & SCX_TASK_QUEUED)) {
		t = thread_of(prev);
		g = group_of(t);
	}
	if (!c)
		return;
	if (t && g) {
		charge(prev, t, g, c);
		goes_on = !capped_until(g, 0) && !t->moves;
		key = place(t, g, c);
	}
	if (c->kind && preempt)
		hand_up(llc, c->kind, key, goes_on);
	refresh(llc);
	head = __COMPAT_scx_bpf_dsq_peek(llc);
	if (head) {
		prev_first = goes_on && !t->brief && !time_before(head->scx.dsq_vtime, key);
		if (!prev_first)
			key = head->scx.dsq_vtime;
		if (berth_nr_llcs > 1 && balance(cpu, llc, key))
			return;
	}
	if (!prev_first && scx_bpf_dsq_move_to_local(llc, 0))
		return;
	if (!head && berth_nr_llcs > 1 && steal(cpu, llc, key, goes_on))
		return;
	if (!t || !g || !goes_on) {
		if (nr_kinds > 1 && !pull_up(cpu, true))
			pull_up(cpu, false);
		return;
	}
	if (prev_first) {
		t->run = RUN_TURN;
		started(c, key);
		berth_count(kept);
	} else {
		t->run = RUN_FREE;
		advance(c, vnow);
	}
	goes_on_at(c, t, g);
	scx_bpf_task_set_slice(prev, slice_ns());
	if (nr_kinds > 1)
		settle(prev, t, cpu);
}

void BPF_STRUCT_OPS(vmfair_running, struct task_struct *p)
{
	struct thread *t = thread_of(p);
	struct group *g = group_of(t);
	s32 cpu = bpf_get_smp_processor_id();
	struct pcpu *c = cpu_at(cpu);

	if (!t || !c)
		return;
	if (t->aside) {
		t->aside = false;
		if (!t->urgent && preempt)
			give_way(cpu, c);
	}
	if (g)
		begins(p, t, g);
	takes(c, t, cpu);
	if (t->run == RUN_TURN)
		started(c, p->scx.dsq_vtime);
	else /* its virtual time may be from long ago */
		advance(c, vnow);
	if (nr_kinds > 1) {
		occupies(t, c, cpu, true);
		settle(p, t, cpu);
	}
}

void BPF_STRUCT_OPS(vmfair_stopping, struct task_struct *p, bool runnable)
{
	struct thread *t = thread_of(p);
	struct group *g = group_of(t);
	struct pcpu *c = cpu_at(scx_bpf_task_cpu(p));

	if (!t || !g || !c)
		return;
	charge(p, t, g, c);
	ends(p, t);
	if (nr_kinds > 1) {
		occupies(t, c, scx_bpf_task_cpu(p), false);
		if (!runnable)
			t->moves = false;
	}
	/* With some of its slice left only a higher class takes a thread's CPU. */
	t->aside = runnable && p->scx.slice;
	relabel(p, t);
}

BERTH_VM_CALLBACKS(vmfair)

/* Present so that the kernel does not end the policy when CPUs come and go. */
void BPF_STRUCT_OPS(vmfair_cpu_online, s32 cpu)
{
}

void BPF_STRUCT_OPS(vmfair_cpu_offline, s32 cpu)
{
	struct pcpu *c = cpu_at(cpu);

	if (c)
		c->preemptible = false;
}

#include "vmfair/patience.bpf.h"

/* What berth/vms.bpf.h asks for. The message below has the number of its line in it, and so has the
 * hash of the object, by which recordings of real kernels are kept. */
static __always_inline void no_group(u32 slot)
{
	scx_bpf_error("VM slot %u is beyond the size of groups_by_vm", slot);
}

static __always_inline void reweighted(struct group *g)
{
	/* A new VM has not slept: it begins with the others. */
	if (!g->inv_weight)
		g->vtime = vnow;
	g->inv_weight = (100ULL << FIXED_ONE) / g->weight;
}

static __always_inline void joined(struct thread *t, struct group *g)
{
	struct group *old = group_at(t->slot);

	if (old)
		released(t, old);
	t->likely_ns = slice_ns();
	t->vtime = g->vtime - credit_us * 1000;
}

static __always_inline void labelled(struct thread *t, struct berth_identity *id)
{
	t->urgent = t->slot == HOST || id->vm.class == BERTH_CLASS_LATENCY ||
		    (id->vm.class == BERTH_CLASS_MIXED && (id->thread.flags & BERTH_THREAD_IO)) ||
		    id->thread.role == BERTH_ROLE_VHOST || id->thread.role == BERTH_ROLE_IOTHREAD;
	t->prompt = t->urgent && t->slot != HOST;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(vmfair_init)
{
	struct guard *guard;
	u32 slot = GUARD_PARKED;
	s32 llc, err;

	find_kinds();
	bpf_for(llc, 0, berth_nr_llcs) {
		err = scx_bpf_create_dsq(llc, -1);
		if (err)
			return err;
	}
	err = scx_bpf_create_dsq(PARKED, -1);
	if (err)
		return err;
	err = make_cutoffs();
	if (err)
		return err;
	guard = bpf_map_lookup_elem(&guards, &slot);
	if (!guard)
		return -ENOENT;
	bpf_timer_init(&guard->timer, &guards, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&guard->timer, unpark);
	slot = GUARD_PATIENCE;
	guard = bpf_map_lookup_elem(&guards, &slot);
	if (!guard)
		return -ENOENT;
	bpf_timer_init(&guard->timer, &guards, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&guard->timer, bring_forward);
	return bpf_timer_start(&guard->timer, patience_ms * 1000000 / 2, 0);
}

void BPF_STRUCT_OPS(vmfair_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(vmfair_ops,
	.select_cpu		= (void *)vmfair_select_cpu,
	.enqueue		= (void *)vmfair_enqueue,
	.dispatch		= (void *)vmfair_dispatch,
	.running		= (void *)vmfair_running,
	.stopping		= (void *)vmfair_stopping,
	BERTH_VM_OPS(vmfair),
	.cpu_online		= (void *)vmfair_cpu_online,
	.cpu_offline		= (void *)vmfair_cpu_offline,
	.init			= (void *)vmfair_init,
	.exit			= (void *)vmfair_exit,
	.flags			= SCX_OPS_ENQ_LAST,
	.timeout_ms		= 10000,
	.name			= "vmfair");
