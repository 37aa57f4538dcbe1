/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A thread of a higher class takes the CPU from a vCPU. No policy is asked, the vCPU waits on the
 * CPU's own queue and goes on when that thread is done: an interrupt, as of the hypervisor in Xen,
 * so its turn goes on (D17). It is the CPU's `curr` meanwhile: it is charged, its slice passes,
 * ticks meet it, and what it is told it does as soon as it runs.
 */
#ifndef __AMP_CUT_BPF_H
#define __AMP_CUT_BPF_H

/* After core_stopping(): it has not been decided for another one. */
static __always_inline void was_cut(struct task_struct *p, struct vcpu *v, bool runnable)
{
	struct pcpu *c = pcpu_at(scx_bpf_task_cpu(p));

	if (c && v && runnable && (v->flags & VF_CUT) && !is_pinned_kthread(p))
		c->curr = index_of(p);
}

/* It leaves the CPU's own queue for another one, or for good: another one goes before it after all,
 * or what it may use has changed. */
static __always_inline void cut_is_over(struct task_struct *p, struct vcpu *v)
{
	struct pcpu *c;

	if (!v || !(v->flags & VF_CUT))
		return;
	c = v->ran_on ? pcpu_at(v->ran_on - 1) : NULL;
	if (c && c->curr == index_of(p))
		c->curr = 0;
}

/* Before core_running(): v goes on. What was taken of its turn is charged, and part of its slice.
 * Whether it was told to leave meanwhile. */
static __always_inline bool goes_on(struct task_struct *p, struct vcpu *v, struct pcpu *c)
{
	u64 now = scx_bpf_now();

	if (c->curr == index_of(p)) {
		burn(v, c, now);
		v->slice_left = (s64)(c->slice_end - now) > 0 ? c->slice_end - now : 0;
		if (v->flags & VF_PARKED)
			return true;
	}
	return v->flags & VF_MIGRATING;
}

/* After core_running(): v was told to leave, and does if the reason is there still. */
static __always_inline void leave(struct vcpu *v, struct pcpu *c, s32 cpu)
{
	s32 slot = slot_of(v, scx_bpf_now());
	struct pcpu *there = slot >= 0 && slot != cpu ? pcpu_at(slot) : NULL;

	if (there && there->kind <= c->kind)
		set_flag(v, VF_MIGRATING);
	if (v->flags & (VF_MIGRATING | VF_PARKED))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

#endif
