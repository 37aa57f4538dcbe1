/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * osv: the scheduler of the unikernel OSv: on each CPU whoever has had least lately, with
 * hysteresis, and a balancer that moves one thread at a time.
 *
 * Source: core/sched.cc and include/osv/sched.hh of OSv (cloudius-systems), read, not copied. Each
 * thread has a decayed run time rho: while it runs, rho goes to 1 with a time constant of 200 ms,
 * while it does not, to 0. The lowest runs. The running thread has a lead of 5 ms: it goes on until
 * it is ahead by so much, and looks again after the time that takes, and 1 % more. A thread wakes
 * on the CPU that it last ran on, and starts on that of its creator, with rho = 0. Every 100 ms a
 * CPU gives the last of its waiting threads to the CPU with fewest, if that has fewer.
 *
 * A thread's key is the logarithm of rho, moved by the time at which it was measured: it need not
 * be changed while the thread waits, since all decay alike.
 *
 * Deviations. One clock for all CPUs. The balancer moves waiting threads only, and so does not make
 * a lone thread bounce (OSv's does, 20 times a second); it is no thread and costs nothing; the
 * CPUs' turns are spread evenly over the period. Priorities are p = 100 / weight; real-time ones
 * are not modelled. `place=deal` starts threads on all CPUs in turn, as programs have to ask OSv
 * for: from one creator they come to one CPU, and leave it one every 100 ms.
 *
 * Run time is the wall clock's.
 *
 * Not good for: any host; many threads from one creator; what M-RSF's paper calls OSv's scheduler
 * is the policy mqms.
 */
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"
#include "berth/stats.bpf.h"
#include "berth/topology.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

BERTH_POLICY("wall",
	     "OSv's: least decayed run time on each CPU, with hysteresis and a slow balancer");

enum { PLACE_CREATOR, PLACE_DEAL };
enum { RULE_EXACT, RULE_SANE };

BERTH_PARAM(u64, tau_us, "us", 200000, 1000, 10000000, "Time constant of the decayed run time");
BERTH_PARAM(u64, hysteresis_us, "us", 5000, 0, 1000000, "Lead of the thread that runs");
BERTH_PARAM(u64, penalty_us, "us", 10, 0, 10000, "Charged to whoever is switched to");
BERTH_PARAM(u64, balance_ms, "ms", 100, 0, 10000, "How often each CPU balances; 0: never");
BERTH_CHOICE(balance_rule, "exact|sane", 0,
	     "To whom threads move: who has fewer (OSv's code), or fewer by two (its comment)");
BERTH_CHOICE(place, "creator|deal", 0, "Where threads start: on their creator's CPU, or in turn");
BERTH_PARAM(bool, spare_interrupts, "bool", 1, 0, 1,
	    "A CPU where somebody waits already is not told of a thread that another CPU wakes");

struct berth_stats {
	u64 switches;
	u64 preempted; /* by whoever woke */
	u64 balanced;
};
BERTH_STATS;

#include "osv/powers.bpf.h"

#define LN2_PPM	     693147ULL
#define KEY_ZERO     (64ULL << LOG_BITS)
#define OVERSHOOT(t) ((t) + (t) / 100)
#define LOG_OF_MOST  7 /* rho is at most 100 */

struct thread {
	u64 rho; /* 32 bits behind the point, at `at` */
	u64 at;	 /* scx_bpf_now() */
	u64 p;	 /* what rho goes to while it runs */
	bool started;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct cpu_state {
	u64 rho; /* of the thread that runs, at `at` */
	u64 at;
	u64 p;
	u32 runnable; /* running or waiting here; as good as its last count */
	bool busy;
	bool online;
	bool kicked;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct cpu_state);
} states_by_cpu SEC(".maps");

static u64 dealt;
static u32 gone; /* CPUs that are offline: others take who waits there */

static __always_inline struct thread *thread_of(struct task_struct *p)
{
	return bpf_task_storage_get(&threads, p, 0, 0);
}

static __always_inline struct cpu_state *state_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&states_by_cpu, &key);
}

/* ns in which a decayed run time is halved. */
static __always_inline u64 half_life(void)
{
	return tau_us * LN2_PPM / 1000;
}

/* How many of them a time is, LOG_BITS behind the point. In two parts: of 4.9 hours all bits are
 * taken else. */
static __always_inline u64 half_lives(u64 ns)
{
	u64 one = half_life();

	return (ns / one << LOG_BITS) + (ns % one << LOG_BITS) / one;
}

static __always_inline u64 decay(u64 ns)
{
	return half_to(half_lives(ns));
}

/* a is at most 100 (of the least weight), b at most 1. */
static __always_inline u64 times(u64 a, u64 b)
{
	return ((a >> 16) * b >> 16) + ((a & 0xffff) * b >> 32);
}

/* rho after having run, or not, for ns. */
static __always_inline u64 later(u64 rho, u64 p, u64 ns, bool ran)
{
	u64 keeps = decay(ns);

	return times(rho, keeps) + (ran ? times(p, ONE - keeps) : 0);
}

static __always_inline void update(struct thread *t, u64 now, bool ran)
{
	t->rho = later(t->rho, t->p, now - t->at, ran);
	t->at = now;
}

static __always_inline u64 key_of(struct thread *t)
{
	return t->rho ? KEY_ZERO + log2_of(t->rho) + half_lives(t->at) : 0;
}

/* rho now of who waits under this key. */
static __always_inline u64 rho_of(u64 key, u64 now)
{
	u64 one = KEY_ZERO + half_lives(now), above;

	if (!key)
		return 0;
	if (key <= one)
		return half_to(one - key);
	/* Of little weight: 2^x is 2^(n + 1) times 2^-(n + 1 - x). */
	above = ((key - one) >> LOG_BITS) + 1;
	if (above > LOG_OF_MOST)
		return ONE << LOG_OF_MOST;
	return half_to((above << LOG_BITS) - (key - one)) << above;
}

/* How long the thread of `rho` may go on before the one of `head`, ns; 0: not at all. */
static __always_inline u64 may_run(u64 rho, u64 p, u64 head)
{
	s64 lead = (s64)head - (s64)rho, ns;
	u64 part;

	p = p ?: ONE;
	/* 1 + lead / p */
	if (lead < 0) {
		part = (u64)-lead << 16;
		part = part / (p >> 16);
		part = part < ONE ? ONE - part : 0;
	} else {
		part = ONE + ((u64)lead << 16) / (p >> 16);
	}
	if (!part)
		return 0;
	/* Both factors are below 2^32 apart from the sign. */
	ns = log2_of(part);
	ns = ns < 0 ? -(s64)((u64)-ns * half_life() >> LOG_BITS)
		    : (s64)((u64)ns * half_life() >> LOG_BITS);
	ns += hysteresis_us * 1000;
	return ns > 0 ? OVERSHOOT((u64)ns) : 0;
}

/* How long p, which has this CPU, may go on before whoever waits there. */
static __always_inline u64 run_length(struct thread *t, s32 cpu, u64 now)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(cpu);

	if (!first)
		return SCX_SLICE_INF;
	return may_run(t->rho, t->p, rho_of(first->scx.dsq_vtime, now));
}

static __always_inline void sits(struct thread *t, s32 cpu)
{
	struct cpu_state *s = state_of(cpu);

	if (!s)
		return;
	s->rho = t->rho;
	s->p = t->p;
	s->at = t->at;
	s->busy = true;
	s->kicked = false;
}

static __always_inline s32 next_online(struct task_struct *p, s32 from)
{
	struct cpu_state *s;
	s32 found = -1, i, cpu;

	bpf_for(i, 0, berth_nr_cpus) {
		cpu = (from + i) % berth_nr_cpus;
		s = state_of(cpu);
		if (found < 0 && s && s->online && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			found = cpu;
	}
	return found;
}

/* Somebody waits on this CPU who did not, and is to be seen. */
static __always_inline void interrupt(struct cpu_state *s, s32 cpu)
{
	if (!s->busy) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	} else if (!s->kicked) {
		s->kicked = true;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

s32 BPF_STRUCT_OPS(osv_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu = -1;

	if ((wake_flags & SCX_WAKE_FORK) && place == PLACE_DEAL)
		cpu = next_online(p, __sync_fetch_and_add(&dealt, 1) % berth_nr_cpus);
	return cpu >= 0 ? cpu : prev_cpu;
}

void BPF_STRUCT_OPS(osv_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p), waiting;
	bool arrives = enq_flags & SCX_ENQ_WAKEUP;
	u64 now = scx_bpf_now(), its;
	struct thread *t = thread_of(p);
	struct cpu_state *s = state_of(cpu);

	if (!t || !s) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
		return;
	}
	if ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1) {
		if (enq_flags & SCX_ENQ_WAKEUP)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, enq_flags);
		return;
	}
	if (!t->started) {
		t->started = true;
		arrives = true;
		t->rho = 0;
		t->at = now;
	}
	update(t, now, false);
	waiting = scx_bpf_dsq_nr_queued(cpu);
	scx_bpf_dsq_insert_vtime(p, cpu, SCX_SLICE_INF, key_of(t), enq_flags);
	/* Who runs alone has no timer: it looks whether it needs one. */
	if (!s->busy || !waiting) {
		interrupt(s, cpu);
		return;
	}
	if (!arrives || s->kicked)
		return;
	if (spare_interrupts && cpu != bpf_get_smp_processor_id())
		return;
	its = later(s->rho, s->p, now - s->at, true);
	if (!may_run(its, s->p, t->rho))
		berth_count(preempted);
	/* Who runs looks anew: its timer may be too long now. */
	interrupt(s, cpu);
}

static __noinline bool take_left_behind(void)
{
	struct cpu_state *s;
	bool taken = false;
	s32 cpu;

	bpf_for(cpu, 0, berth_nr_cpus) {
		s = state_of(cpu);
		if (!taken && s && !s->online)
			taken = scx_bpf_dsq_move_to_local(cpu, 0);
	}
	return taken;
}

void BPF_STRUCT_OPS(osv_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_state *s = state_of(cpu);
	struct thread *t = NULL, *next;
	struct task_struct *first;
	u64 now = scx_bpf_now(), ns = 0;

	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		t = thread_of(prev);
	if (t && s) {
		if (s->busy)
			update(t, now, true);
		ns = run_length(t, cpu, now);
		if (ns) {
			scx_bpf_task_set_slice(prev, ns);
			sits(t, cpu);
			return;
		}
		sits(t, cpu);
	}
	first = __COMPAT_scx_bpf_dsq_peek(cpu);
	next = first && t ? thread_of(first) : NULL;
	if (!scx_bpf_dsq_move_to_local(cpu, 0) && !(gone && take_left_behind())) {
		if (t) {
			scx_bpf_task_set_slice(prev, hysteresis_us * 1000 ?: 1000000);
			sits(t, cpu);
		}
		return;
	}
	if (next)
		next->rho += times(next->p, ONE - decay(penalty_us * 1000));
	berth_count(switches);
}

void BPF_STRUCT_OPS(osv_running, struct task_struct *p)
{
	struct thread *t = thread_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now = scx_bpf_now(), ns;

	if (!t || ((p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1))
		return;
	update(t, now, false);
	sits(t, cpu);
	ns = run_length(t, cpu, now);
	/* It was the lowest: it has the lead at least, but for what rounding takes. */
	scx_bpf_task_set_slice(p, ns > 1000 ? ns : 1000);
}

void BPF_STRUCT_OPS(osv_stopping, struct task_struct *p, bool runnable)
{
	struct cpu_state *s = state_of(scx_bpf_task_cpu(p));
	struct thread *t = thread_of(p);

	if (!s || !t || !s->busy)
		return;
	update(t, scx_bpf_now(), true);
	s->busy = false;
}

static __always_inline u64 p_of(u32 weight)
{
	return ONE * 100 / (weight ?: 100);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(osv_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t)
		return -ENOMEM;
	t->p = ONE;
	return 0;
}

void BPF_STRUCT_OPS(osv_set_weight, struct task_struct *p, u32 weight)
{
	struct thread *t = thread_of(p);

	if (t)
		t->p = p_of(weight);
}

struct clock {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct clock);
} clocks SEC(".maps");

static u32 whose; /* CPU whose turn it is to balance */

static __always_inline u32 threads_at(s32 cpu)
{
	struct cpu_state *s = state_of(cpu);
	s32 waiting = scx_bpf_dsq_nr_queued(cpu);

	return (waiting > 0 ? waiting : 0) + (s && s->busy);
}

static __always_inline void balance_one(s32 own)
{
	u32 here = threads_at(own), there, least = here;
	s32 cpu, target = own;
	struct task_struct *p;
	struct cpu_state *s;
	bool moved = false;

	bpf_for(cpu, 0, berth_nr_cpus) {
		s = state_of(cpu);
		there = threads_at(cpu);
		if (s && s->online && there < least) {
			least = there;
			target = cpu;
		}
	}
	if (target == own || (balance_rule == RULE_SANE && least + 2 > here))
		return;
	bpf_for_each(scx_dsq, p, own, SCX_DSQ_ITER_REV) {
		if (moved)
			break;
		if (!bpf_cpumask_test_cpu(target, p->cpus_ptr))
			continue;
		moved = scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, target, 0);
	}
	s = state_of(target);
	if (!moved || !s)
		return;
	/* As a wake-up, with an interrupt. */
	interrupt(s, target);
	berth_count(balanced);
}

static int balance(void *map, int *key, struct bpf_timer *timer)
{
	u32 own = whose;

	whose = own + 1 < berth_nr_cpus ? own + 1 : 0;
	bpf_rcu_read_lock();
	balance_one(own);
	bpf_rcu_read_unlock();
	bpf_timer_start(timer, balance_ms * 1000000 / berth_nr_cpus, 0);
	return 0;
}

static __always_inline void set_online(s32 cpu, bool online)
{
	struct cpu_state *s = state_of(cpu);

	if (!s)
		return;
	gone += s->online - online;
	s->online = online;
	s->busy = false;
}

void BPF_STRUCT_OPS(osv_cpu_online, s32 cpu)
{
	set_online(cpu, true);
}

/* Its waiting threads are the others' to take. */
void BPF_STRUCT_OPS(osv_cpu_offline, s32 cpu)
{
	s32 other;

	set_online(cpu, false);
	bpf_for(other, 0, berth_nr_cpus)
		scx_bpf_kick_cpu(other, SCX_KICK_IDLE);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(osv_init)
{
	const struct cpumask *online;
	struct clock *clock;
	s32 cpu, err = 0;
	u32 zero = 0;

	bpf_for(cpu, 0, berth_nr_cpus) {
		if (!err)
			err = scx_bpf_create_dsq(cpu, -1);
	}
	online = scx_bpf_get_online_cpumask();
	bpf_for(cpu, 0, berth_nr_cpus)
		set_online(cpu, bpf_cpumask_test_cpu(cpu, online));
	gone = 0;
	scx_bpf_put_cpumask(online);
	clock = bpf_map_lookup_elem(&clocks, &zero);
	if (err || !clock || !balance_ms || berth_nr_cpus < 2)
		return err;
	bpf_timer_init(&clock->timer, &clocks, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&clock->timer, balance);
	return bpf_timer_start(&clock->timer, balance_ms * 1000000 / berth_nr_cpus, 0);
}

void BPF_STRUCT_OPS(osv_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(osv_ops,
	.select_cpu	= (void *)osv_select_cpu,
	.enqueue	= (void *)osv_enqueue,
	.dispatch	= (void *)osv_dispatch,
	.running	= (void *)osv_running,
	.stopping	= (void *)osv_stopping,
	.init_task	= (void *)osv_init_task,
	.set_weight	= (void *)osv_set_weight,
	.cpu_online	= (void *)osv_cpu_online,
	.cpu_offline	= (void *)osv_cpu_offline,
	.init		= (void *)osv_init,
	.exit		= (void *)osv_exit,
	.flags		= SCX_OPS_ENQ_LAST,
	.timeout_ms	= 30000,
	.name		= "osv");
