/* SPDX-License-Identifier: GPL-2.0-only */
/* Loads of credit2's queues and vCPUs, and which queue a vCPU belongs to. */
#ifndef __BERTH_CREDIT2_LOAD_BPF_H
#define __BERTH_CREDIT2_LOAD_BPF_H

#define AVG_BITS    18
#define WINDOW_BITS 20 /* of 1024 ns: 1.07 s */

/* Up to now it was `value`. */
static __always_inline void average(struct load *l, s64 value, u64 now)
{
	u64 at = now >> 10;
	s64 gone = at - l->at;

	value <<= AVG_BITS;
	if (gone > 1LL << WINDOW_BITS)
		l->avg = value;
	else if (gone > 0)
		l->avg += (gone * value >> WINDOW_BITS) - (gone * l->avg >> WINDOW_BITS);
	if (gone > 0)
		l->at = at;
}

/* `more` are runnable there from now on; load that comes or goes. */
__noinline int load_of_queue(u32 queue, s64 more, s64 moved)
{
	struct runq *q = runq_at(queue);
	u64 now = scx_bpf_now();

	if (!q)
		return 0;
	bpf_spin_lock(&q->lock);
	average(&q->load, q->runnable, now);
	average(&q->balanced, q->runnable, now);
	q->balanced.avg += moved;
	if (q->balanced.avg < 0)
		q->balanced.avg = 0;
	q->runnable += more;
	bpf_spin_unlock(&q->lock);
	return 0;
}

/* A vCPU becomes runnable, or sleeps. */
static __always_inline void counts(struct task_struct *p, bool runnable)
{
	struct thread *t = thread_of(p);

	if (!t || t->runnable == runnable || (runnable && bound_kthread(p)))
		return;
	average(&t->load, t->runnable, scx_bpf_now());
	t->runnable = runnable;
	if (t->queue)
		load_of_queue(t->queue - 1, runnable ? 1 : -1, 0);
}

/* Has it a CPU that is among these of affinity? */
static __always_inline bool reaches(struct choice *s, struct runq *q)
{
	return count_both(&s->may, &q->usable) > 0;
}

/* p's affinity, in the choice of this CPU. */
static __noinline int read_affinity(struct choice *s, struct task_struct *p)
{
	if (s && p)
		read_mask(&s->may, p->cpus_ptr);
	return 0;
}

/* t belongs to another queue, with the credit that it has. */
__noinline int assign(struct thread *t, u32 queue)
{
	struct runq *from, *to = runq_at(queue);
	s64 credit = most();

	if (!t || !to || t->queue == queue + 1)
		return 0;
	average(&t->load, t->runnable, scx_bpf_now());
	from = t->queue ? runq_at(t->queue - 1) : NULL;
	if (from) {
		credit = credit_of(from, t->mark);
		load_of_queue(t->queue - 1, t->runnable ? -1 : 0, -t->load.avg);
	} else {
		t->load.avg = 1LL << (AVG_BITS - 1);
	}
	t->mark = mark_of(to, credit);
	t->queue = queue + 1;
	load_of_queue(queue, t->runnable ? 1 : 0, t->load.avg);
	return 0;
}

/* The queue with the least load that affinity reaches, its own counted without it. */
__noinline s32 least_loaded(u32 own, s64 without)
{
	struct choice *s = choice_here();
	s64 least = 0, load;
	struct runq *q;
	s32 found = -1;
	u32 i;

	if (!s)
		return -1;
	bpf_for(i, 0, nr_queues) {
		q = runq_at(i);
		if (!q || !reaches(s, q))
			continue;
		load_of_queue(i, 0, 0);
		load = q->balanced.avg - (i + 1 == own ? without : 0);
		if (found < 0 || load < least) {
			found = i;
			least = load;
		}
	}
	return found;
}

/* t, whose affinity has been read, is about to be queued: its queue + 1, another one if it has
 * none, is to move or may not stay; 0: there is none. */
__noinline u32 settle(struct thread *t)
{
	struct choice *s = choice_here();
	struct runq *q;
	s32 queue;

	if (!t || !s)
		return 0;
	q = t->target ? runq_at(t->target - 1) : NULL;
	if (q && reaches(s, q)) {
		assign(t, t->target - 1);
		berth_count(balanced);
	}
	t->target = 0;
	q = t->queue ? runq_at(t->queue - 1) : NULL;
	if (q && reaches(s, q))
		return t->queue;
	queue = least_loaded(t->queue, t->load.avg);
	if (queue < 0)
		return 0;
	assign(t, queue);
	return t->queue;
}

/* p is no longer ours. */
static __always_inline void leaves(struct task_struct *p)
{
	struct thread *t = thread_of(p);

	counts(p, false);
	if (!t || !t->queue)
		return;
	load_of_queue(t->queue - 1, 0, -t->load.avg);
	t->queue = 0;
}

#endif
