/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What Credit does at each hook that the policy has not taken, and the callbacks. Besides the hooks
 * of berth/credit*.bpf.h there are
 *
 *	aim(p, v, cpu)		p, a vCPU that has been placed before, wakes and would go to cpu:
 *				where else
 *	slept(v)		v does not want to run any more
 *	ended(p)		its thread ends; calls core_exit_task(p)
 *	before_decision(v, c, cpu) v could go on, and cpu is about to choose
 *	accounting_over()	an accounting is over
 *	cpus_changed()		a CPU came or went
 *	prepare()		at the end of ops.init; 0 or an error
 */
#ifndef __BERTH_STUDY_CREDIT_PLAIN_BPF_H
#define __BERTH_STUDY_CREDIT_PLAIN_BPF_H

#ifndef credit_burned
static __always_inline void credit_burned(struct vcpu *v, struct pcpu *c, u32 credits, u64 ns)
{
}
#endif

#ifndef credit_granted
static __always_inline void credit_granted(struct vcpu *v)
{
}
#endif

#ifndef labelled
static __always_inline void labelled(struct vcpu *v, struct berth_identity *id)
{
}
#endif

#ifndef refresh
static __always_inline void refresh(struct task_struct *p, struct vcpu *v)
{
}
#endif

#ifndef descheduled
static __always_inline void descheduled(struct vcpu *v, struct pcpu *c)
{
}
#endif

#ifndef may_use
static __always_inline bool may_use(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}
#endif

#ifndef narrow
static __always_inline void narrow(struct vcpu *v, struct cpu_set *set)
{
}
#endif

#ifndef queue_key
static __always_inline u64 queue_key(struct vcpu *v, struct pcpu *c, s32 cpu, bool front)
{
	return arrival_key(c, front);
}
#endif

#ifndef slice_ns
static __always_inline u64 slice_ns(struct vcpu *v, s32 cpu)
{
	return tslice_ms * MS;
}
#endif

#ifndef rate_limit_ns
static __always_inline u64 rate_limit_ns(struct vcpu *v, s32 cpu)
{
	return ratelimit_us * 1000;
}
#endif

#ifndef boosts
static __always_inline bool boosts(struct vcpu *v, s32 cpu)
{
	return true;
}
#endif

#ifndef beats
static __always_inline bool beats(struct vcpu *v, struct vcpu *curr, struct pcpu *c, s32 cpu)
{
	return v->pri < curr->pri;
}
#endif

#ifndef goes_before
static __always_inline bool goes_before(struct vcpu *v, struct vcpu *first, u64 key, struct pcpu *c,
					s32 cpu)
{
	return v->pri < first->pri;
}
#endif

#ifndef choose_idle
static __always_inline s32 choose_idle(struct task_struct *p, struct vcpu *v, struct pcpu *c,
				       s32 cpu, const struct cpumask *idle)
{
	s32 found = NO_CPU;

	if (v->node >= 0 && berth_nr_nodes > 1)
		found = find_idle(p, v, c, idle, v->node);
	return found >= 0 ? found : find_idle(p, v, c, idle, NO_CPU);
}
#endif

#ifndef rehome
static __always_inline s32 rehome(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	return first_usable(p, v, cpu);
}
#endif

#ifndef started
static __always_inline void started(struct vcpu *v, struct pcpu *c, s32 cpu)
{
}
#endif

#ifndef wake_to
static __always_inline s32 wake_to(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	return NO_CPU;
}
#endif

#ifndef ticked
static __always_inline void ticked(struct pcpu *c, s32 cpu)
{
}
#endif

#ifndef aim
static __always_inline s32 aim(struct task_struct *p, struct vcpu *v, s32 cpu)
{
	return cpu;
}
#endif

#ifndef slept
static __always_inline void slept(struct vcpu *v)
{
}
#endif

#ifndef ended
static __always_inline void ended(struct task_struct *p)
{
	core_exit_task(p);
}
#endif

#ifndef before_decision
static __always_inline void before_decision(struct vcpu *v, struct pcpu *c, s32 cpu)
{
}
#endif

#ifndef accounting_over
static __always_inline void accounting_over(void)
{
}
#endif

#ifndef cpus_changed
static __always_inline void cpus_changed(void)
{
}
#endif

#ifndef prepare
static __always_inline s32 prepare(void)
{
	return 0;
}
#endif

#include "berth/credit_steal.bpf.h"

static int account_over(void *map, u32 *key, struct bpf_timer *timer)
{
	core_account();
	accounting_over();
	bpf_timer_start(timer, tslice_ms * MS, 0);
	return 0;
}

static __always_inline s32 start_accounting(void)
{
	s32 err = core_init();
	struct timer *t;
	u32 zero = 0;

	err = err ?: prepare();
	if (err)
		return err;
	t = bpf_map_lookup_elem(&accounting, &zero);
	if (!t)
		return -ENOENT;
	bpf_timer_init(&t->timer, &accounting, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, account_over);
	return bpf_timer_start(&t->timer, tslice_ms * MS, 0);
}

static __always_inline s32 aimed_select_cpu(struct task_struct *p, s32 prev)
{
	struct vcpu *v = vcpu_of(p);
	s32 cpu = core_select_cpu(p, prev);

	return v && !unplaced(v) && !(v->flags & VF_FRESH) ? aim(p, v, cpu) : cpu;
}

static __always_inline void prepared_dispatch(s32 cpu, struct task_struct *prev)
{
	struct vcpu *v = prev && (prev->scx.flags & SCX_TASK_QUEUED) ? vcpu_of(prev) : NULL;
	struct pcpu *c = pcpu_at(cpu);

	if (v && c)
		before_decision(v, c, cpu);
	core_dispatch(cpu, prev);
}

static __always_inline void sleeping_quiescent(struct task_struct *p)
{
	struct vcpu *v = vcpu_of(p);

	if (v)
		slept(v);
	core_quiescent(p);
}

#define CREDIT_CALLBACKS(policy)                                                                   \
	s32 BPF_STRUCT_OPS(policy##_select_cpu, struct task_struct *p, s32 prev_cpu,               \
			   u64 wake_flags)                                                         \
	{                                                                                          \
		return aimed_select_cpu(p, prev_cpu);                                              \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_enqueue, struct task_struct *p, u64 enq_flags)                \
	{                                                                                          \
		core_enqueue(p, enq_flags);                                                        \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_dispatch, s32 cpu, struct task_struct *prev)                  \
	{                                                                                          \
		prepared_dispatch(cpu, prev);                                                      \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_running, struct task_struct *p)                               \
	{                                                                                          \
		core_running(p);                                                                   \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_stopping, struct task_struct *p, bool runnable)               \
	{                                                                                          \
		core_stopping(p, runnable);                                                        \
	}                                                                                          \
	bool BPF_STRUCT_OPS(policy##_yield, struct task_struct *from, struct task_struct *to)      \
	{                                                                                          \
		core_yield(from);                                                                  \
		return false;                                                                      \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_quiescent, struct task_struct *p, u64 deq_flags)              \
	{                                                                                          \
		sleeping_quiescent(p);                                                             \
	}                                                                                          \
	s32 BPF_STRUCT_OPS_SLEEPABLE(policy##_init_task, struct task_struct *p,                    \
				     struct scx_init_task_args *args)                              \
	{                                                                                          \
		return core_init_task(p, args);                                                    \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_exit_task, struct task_struct *p,                             \
			    struct scx_exit_task_args *args)                                       \
	{                                                                                          \
		ended(p);                                                                          \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_cgroup_move, struct task_struct *p, struct cgroup *from,      \
			    struct cgroup *to)                                                     \
	{                                                                                          \
		core_cgroup_move(p, to);                                                           \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_cgroup_set_weight, struct cgroup *cgrp, u32 weight)           \
	{                                                                                          \
		core_set_weight(cgrp, weight);                                                     \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_cpu_online, s32 cpu)                                          \
	{                                                                                          \
		core_set_online(cpu, true);                                                        \
		cpus_changed();                                                                    \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_cpu_offline, s32 cpu)                                         \
	{                                                                                          \
		core_set_online(cpu, false);                                                       \
		cpus_changed();                                                                    \
	}                                                                                          \
	s32 BPF_STRUCT_OPS_SLEEPABLE(policy##_init)                                                \
	{                                                                                          \
		return start_accounting();                                                         \
	}                                                                                          \
	void BPF_STRUCT_OPS(policy##_exit, struct scx_exit_info *ei)                               \
	{                                                                                          \
		UEI_RECORD(uei, ei);                                                               \
	}

/* clang-format off */
#define CREDIT_OPS(policy)									   \
	.select_cpu		= (void *)policy##_select_cpu,					   \
	.enqueue		= (void *)policy##_enqueue,					   \
	.dispatch		= (void *)policy##_dispatch,					   \
	.running		= (void *)policy##_running,					   \
	.stopping		= (void *)policy##_stopping,					   \
	.yield			= (void *)policy##_yield,					   \
	.quiescent		= (void *)policy##_quiescent,					   \
	.init_task		= (void *)policy##_init_task,					   \
	.exit_task		= (void *)policy##_exit_task,					   \
	.cgroup_move		= (void *)policy##_cgroup_move,					   \
	.cgroup_set_weight	= (void *)policy##_cgroup_set_weight,				   \
	.cpu_online		= (void *)policy##_cpu_online,					   \
	.cpu_offline		= (void *)policy##_cpu_offline,					   \
	.init			= (void *)policy##_init,					   \
	.exit			= (void *)policy##_exit,					   \
	.flags			= SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING,			   \
	.timeout_ms		= 30000
/* clang-format on */

#endif
