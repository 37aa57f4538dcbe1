/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who has to wait for long under vmfair: those whose share is small, and those whose VM has used
 * up its cap.
 */
#ifndef __VMFAIR_PATIENCE_BPF_H
#define __VMFAIR_PATIENCE_BPF_H

/*
 * Bring forward who has waited too long: the shares of very unequal weights, or of a thread bound
 * to a CPU that its VM's siblings cannot help with, may be one slice in minutes, which no guest and
 * no watchdog endures. A VM of which nothing has run gets one slice; a thread whose siblings
 * have run only as long as a latency thread is safe: many threads are no larger share.
 */
static int bring_forward(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = scx_bpf_now(), late = patience_ms * 1000000;
	struct task_struct *p;
	struct thread *t;
	struct group *g;
	struct pcpu *c;
	s32 llc;

	bpf_rcu_read_lock();
	bpf_for(llc, 0, berth_nr_llcs) {
		bpf_for_each(scx_dsq, p, llc, 0) {
			t = thread_of(p);
			g = group_of(t);
			c = cpu_at(scx_bpf_task_cpu(p));
			if (!t || !g || !c || !time_after(now, t->queued_at + late))
				continue;
			t->brief = !time_after(now, g->served_at + late);
			t->queued_at = now;
			g->served_at = now;
			t->run = RUN_DIRECT;
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER,
						   c->vnow - 2 * credit_us * 1000);
			scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, llc, 0);
			berth_count(overdue);
		}
	}
	bpf_rcu_read_unlock();
	bpf_timer_start(timer, late / 2, 0);
	return 0;
}

/* A period of some cap has ended: whoever may run again waits for a CPU again. */
static int unpark(void *map, int *key, struct bpf_timer *timer)
{
	u64 now = scx_bpf_now(), until, next = 0;
	struct task_struct *p;
	struct thread *t;
	struct group *g;
	struct pcpu *c;
	s32 cpu;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, PARKED, 0) {
		cpu = scx_bpf_task_cpu(p);
		t = thread_of(p);
		g = group_of(t);
		c = cpu_at(cpu);
		if (!t || !g || !c)
			continue;
		until = capped_until(g, 0);
		if (until) {
			if (!next || time_before(until, next))
				next = until;
			continue;
		}
		t->run = RUN_TURN;
		t->favoured = false;
		t->queued_at = now;
		place(t, g, c);
		reserved(t, g, c);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, t->vtime);
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, berth_llc(cpu), 0);
		tell_idle(p, cpu);
	}
	bpf_rcu_read_unlock();
	unparked(timer, now, next);
	return 0;
}

#endif
