/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Credit accounting as in Xen's first credit scheduler: who has earned how much, and who may run
 * before whom. What the policies `credit` and `flms` share; queues, wake-ups and stealing are in
 * credit_queue.bpf.h.
 *
 * A thread is a vCPU, a VM a domain; slot 0, the host, is the domain of all threads without a VM.
 * Every accounting period (`tslice`) the credits of all pCPUs are split among domains with active
 * vCPUs by weight, bounded by cap and by what the active vCPUs can use, and a domain's part equally
 * among its active vCPUs. A vCPU burns 10 credits per ms that it runs. The sign of its credit gives
 * its class.
 *
 * The includer defines, before this header, VCPU_MORE, PCPU_MORE (fields of its own, or nothing),
 * keeps_most(v, d, per), the credit above which v of domain d counts as asleep (mostly per, what a
 * pCPU grants in a period), and the parameters used here, and after it the hooks
 *	credit_burned(v, c, credits, ns)   v ran ns on c
 *	credit_granted(v)		   an accounting is over for v, active or not
 *	labelled(v, id)			   v's labels have been read
 *
 * Times are scx_bpf_now() differences, so interrupts and stolen time are charged, as in Xen.
 */
#ifndef __BERTH_CREDIT_BPF_H
#define __BERTH_CREDIT_BPF_H

#include "berth/cpuset.bpf.h"

#define HOST	       0       /* slot of the domain of threads without a VM */
#define MAX_VCPUS      32768   /* threads alive at once */
#define MAX_DOMAINS    4097    /* slots, the host's included */
#define CREDITS_PER_MS 10      /* since 4.0; 100 per 10 ms tick before */
#define MS	       1000000 /* ns */
#define WEIGHT_ONE     4096    /* fixed point of weights divided by vCPUs */

/* Classes; the smaller runs first. */
enum pri { BOOST, UNDER, OVER, IDLE };

enum flag {
	VF_PARKED = 1,	  /* over its cap: does not run until its credit is back */
	VF_HELD = 2,	  /* waits in the queue of the parked */
	VF_YIELDED = 4,	  /* lets one vCPU of a lower class pass */
	VF_MIGRATING = 8, /* leaves its pCPU at the next chance */
	VF_FRESH = 16,	  /* has not waited yet: its first wake-up */
	VF_PASSED = 32,	  /* its pCPU has decided for another one */
	VF_QUEUED = 64,	  /* counted in `waiting` */
	VF_CUT = 128,	  /* lost its pCPU to a thread of another class, not by a decision */
};

/* What was a thread. Written on its pCPU and by the accounting; credit by atomic additions, the
 * rest unlocked: a class or flag seen late acts at the next decision. */
struct vcpu {
	u32 pid; /* 0: free */
	u32 slot;
	s32 credit;
	u32 residual;	 /* ns * 10 not burnt yet, below 1 ms */
	u32 cpu;	 /* its pCPU, also while asleep */
	u32 pri;	 /* enum pri */
	u32 flags;	 /* enum flag */
	u32 active;	 /* earns credit */
	u32 generation;	 /* of its labels */
	s32 node;	 /* of its VM's memory; -1: none */
	u32 placed;	 /* pCPU of its first placement + 1; 0: none */
	u32 role;	 /* enum berth_role */
	u32 ran_on;	 /* pCPU it ran on last + 1; 0: none */
	u64 slice_left;	 /* of a cut slice, ns; 0: a whole one, or (VF_CUT) nothing */
	u64 burned_at;	 /* up to where its run time is charged */
	u64 switched_in; /* when it got its pCPU */
	u64 left_at;	 /* when it last left a pCPU */
	VCPU_MORE
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_VCPUS);
	__type(key, u32);
	__type(value, struct vcpu);
} vcpus SEC(".maps");

/* Free elements of vcpus below `vcpus_used`. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, MAX_VCPUS);
	__type(value, u32);
} free_vcpus SEC(".maps");

static u32 vcpus_used = 1; /* element 0 stands for nobody */

struct thread {
	u32 index; /* in vcpus */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct domain {
	u32 weight; /* cpu.weight of the whole VM */
	u32 vcpus;
	u32 cap_mcpu; /* 0: no cap */
	u32 active;   /* active vCPUs: k of the papers */
	u32 listed;   /* among the active domains */
	u32 next;     /* slot + 1 of the list's neighbours; 0: none */
	u32 prev;
	u32 share;     /* credits for each active vCPU in this accounting */
	u32 cap_share; /* a vCPU's part of the cap in a period; 0: no cap */
	u32 last_cpu;  /* pCPU + 1 where its last vCPU was placed first */
	u64 epoch;     /* of the accounting that set share */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_DOMAINS);
	__type(key, u32);
	__type(value, struct domain);
} domains_by_vm SEC(".maps");

/* Domains that became active since the last accounting, in order. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, MAX_DOMAINS);
	__type(value, u32);
} activated SEC(".maps");

struct pcpu {
	u32 curr; /* index of the vCPU that runs, 0: none of ours */
	u32 online;
	u32 ticking;   /* its tick timer runs */
	u32 idle_bias; /* where the last move to its core or package went */
	u32 cursor;    /* the idle pCPU asked last from here */
	u32 placed;    /* vCPUs placed here first */
	u32 met;       /* one of ours has run here */
	u32 missed;    /* somebody came while none of ours ran, and it was not idle */
	u64 slice_end;
	u64 next_tick;
	u64 back;	  /* of the keys of its queue: next to the tail */
	u64 front;	  /* next before the head */
	u64 sorted_epoch; /* its queue was sorted after that accounting */
	PCPU_MORE
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS);
	__type(key, u32);
	__type(value, struct pcpu);
} pcpus_by_cpu SEC(".maps");

static u32 first_domain; /* slot + 1 of the head of the active domains */
static u32 nr_online;	 /* pCPUs */
static u64 epoch;	 /* accountings so far; 0 before the first */
static s64 balance;	 /* credits of the active after the last one */
static u32 to_park;	 /* vCPUs parked by it, */
static u32 to_unpark;	 /* and let go */
static u32 unheld;	 /* parked ones that have left their domain since */
static struct cpu_set online_cpus;
/* Whose queues have somebody, and a first one better than OVER: these and perhaps more, so that
 * thieves need not ask all (credit_queue.bpf.h). */
static struct cpu_set waiting_cpus, better_cpus;
static bool some_home; /* some VM has a memory node of its own */

static __always_inline struct vcpu *vcpu_at(u32 index)
{
	return bpf_map_lookup_elem(&vcpus, &index);
}

static __always_inline u32 index_of(struct task_struct *p)
{
	struct thread *t = bpf_task_storage_get(&threads, p, 0, 0);

	return t ? t->index : 0;
}

/* The vCPU of a thread; NULL only for a thread the policy never met. */
static __always_inline struct vcpu *vcpu_of(struct task_struct *p)
{
	u32 index = index_of(p);

	return index ? vcpu_at(index) : NULL;
}

static __always_inline struct domain *domain_at(u32 slot)
{
	return bpf_map_lookup_elem(&domains_by_vm, &slot);
}

static __always_inline struct pcpu *pcpu_at(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&pcpus_by_cpu, &key);
}

static __always_inline void set_flag(struct vcpu *v, u32 flag)
{
	__sync_fetch_and_or(&v->flags, flag);
}

static __always_inline void clear_flag(struct vcpu *v, u32 flag)
{
	__sync_fetch_and_and(&v->flags, ~flag);
}

static __always_inline u64 div_up(u64 a, u64 b)
{
	return b ? (a + b - 1) / b : 0;
}

/* Credits that one pCPU hands out in a period. */
static __always_inline u32 period_credits(void)
{
	return tslice_ms * CREDITS_PER_MS;
}

static __always_inline u64 tick_ns(void)
{
	return tslice_ms < 3 ? tslice_ms * MS : tslice_ms * MS / 3;
}

static __always_inline void credit_burned(struct vcpu *v, struct pcpu *c, u32 credits, u64 ns);
static __always_inline void credit_granted(struct vcpu *v);
static __always_inline void labelled(struct vcpu *v, struct berth_identity *id);

/* Charge v, which runs on c, up to now. */
static __always_inline void burn(struct vcpu *v, struct pcpu *c, u64 now)
{
	u64 since = v->burned_at, ns = now - since, due;
	u32 credits;

	/* A timer on another CPU may charge v at this moment, too: one of both does. */
	if ((s64)ns <= 0 || __sync_val_compare_and_swap(&v->burned_at, since, now) != since)
		return;
	due = ns * CREDITS_PER_MS + v->residual;
	credits = due / MS;
	v->residual = due % MS;
	if (!sampled_burn)
		__sync_fetch_and_sub(&v->credit, credits);
	credit_burned(v, c, credits, ns);
}

/* Weight of what is active of a domain: of the whole VM before 4.1, of each vCPU since. */
static __always_inline u64 effective_weight(struct domain *d)
{
	u64 vcpus = d->vcpus ?: 1, k = d->active;

	if (!k)
		return 0;
	if (domain_weight)
		return (u64)d->weight * WEIGHT_ONE;
	return (u64)d->weight * WEIGHT_ONE / vcpus * (k < vcpus ? k : vcpus);
}

/* A tick has found v running. */
static __always_inline void activate(struct vcpu *v)
{
	struct domain *d = domain_at(v->slot);
	u32 slot = v->slot;

	if (!d || v->active)
		return;
	v->active = 1;
	if (!__sync_fetch_and_add(&d->active, 1))
		bpf_map_push_elem(&activated, &slot, 0);
}

static __always_inline void deactivate(struct vcpu *v)
{
	struct domain *d = domain_at(v->slot);

	if (!d || !v->active)
		return;
	v->active = 0;
	__sync_fetch_and_sub(&d->active, 1);
}

/* The list of active domains; the accounting alone changes it. */
static __always_inline void unlink_domain(struct domain *d)
{
	struct domain *prev = d->prev ? domain_at(d->prev - 1) : NULL;
	struct domain *next = d->next ? domain_at(d->next - 1) : NULL;

	if (prev)
		prev->next = d->next;
	else
		first_domain = d->next;
	if (next)
		next->prev = d->prev;
	d->listed = 0;
}

static __always_inline void link_domain(struct domain *d, u32 slot)
{
	struct domain *head = first_domain ? domain_at(first_domain - 1) : NULL;

	d->prev = 0;
	d->next = first_domain;
	if (head)
		head->prev = slot + 1;
	first_domain = slot + 1;
	d->listed = 1;
}

/* Bring the list up to date; the sum of the weights on it. */
__noinline u64 list_domains(void)
{
	struct domain *d;
	u64 sum = 0;
	u32 slot, at;
	s32 i;

	bpf_for(i, 0, MAX_DOMAINS) {
		if (bpf_map_pop_elem(&activated, &slot))
			break;
		d = domain_at(slot);
		if (!d)
			continue;
		if (d->listed)
			unlink_domain(d);
		link_domain(d, slot);
	}
	at = first_domain;
	bpf_for(i, 0, MAX_DOMAINS) {
		if (!at)
			break;
		d = domain_at(at - 1);
		if (!d)
			break;
		at = d->next;
		if (!d->active)
			unlink_domain(d);
		sum += effective_weight(d);
	}
	return sum;
}

/* What each domain's vCPUs get in this period. The order of the list matters: what one domain
 * cannot use goes to those behind it, and whoever was cut short comes first next time. */
__noinline int share_out(u64 sum)
{
	u64 per = period_credits(), total = per * nr_online, left = sum, peak, fair, weight;
	u64 debt = balance < 0 ? -balance : 0;
	struct domain *d;
	bool extra = false;
	u32 at = first_domain, slot, k;
	s32 i;

	total += debt;
	bpf_for(i, 0, MAX_DOMAINS) {
		if (!at)
			break;
		slot = at - 1;
		d = domain_at(slot);
		if (!d)
			break;
		at = d->next;
		weight = effective_weight(d);
		k = d->active;
		if (!k || !weight)
			continue;
		left = left > weight ? left - weight : 0;
		peak = k * per + div_up(debt * weight, sum);
		d->cap_share = 0;
		if (d->cap_mcpu) {
			u64 cap = div_up(d->cap_mcpu * per, 1000);

			if (peak > cap)
				peak = cap;
			d->cap_share = div_up(cap, k);
		}
		fair = div_up(total * weight, sum);
		if (fair < peak) {
			extra = true;
		} else {
			if (left)
				total += div_up((fair - peak) * sum, left);
			if (extra) {
				unlink_domain(d);
				link_domain(d, slot);
			}
			fair = peak;
		}
		d->share = div_up(fair, k);
		d->epoch = epoch + 1;
	}
	return 0;
}

/* v, which may be waiting, is better than OVER from now on. */
static __always_inline void improved(struct vcpu *v)
{
	if (v->flags & VF_QUEUED)
		mark(&better_cpus, v->cpu);
}

/* Add v's credit of this period and set its class; the credit it is left with. */
static __always_inline s32 grant(struct vcpu *v, struct domain *d)
{
	s32 per = period_credits();
	s32 credit = __sync_fetch_and_add(&v->credit, d->share) + d->share;

	if (credit < 0) {
		v->pri = OVER;
		if (d->cap_share && credit < -(s32)d->cap_share && !(v->flags & VF_PARKED)) {
			set_flag(v, VF_PARKED);
			to_park++;
		}
		if (credit < -per)
			v->credit = credit = -per;
	} else {
		v->pri = UNDER;
		if (v->flags & VF_PARKED) {
			clear_flag(v, VF_PARKED);
			if (boost_on_unpark)
				v->pri = BOOST;
			to_unpark++;
		}
		if (credit > keeps_most(v, d, per)) {
			deactivate(v);
			v->credit = credit = zero_on_inactive ? 0 : credit / 2;
		}
		improved(v);
	}
	return credit;
}

__noinline int grant_all(void)
{
	struct domain *d;
	struct vcpu *v;
	s64 sum = 0;
	s32 i;

	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (!v || !v->pid)
			continue;
		d = domain_at(v->slot);
		if (v->active && d && d->epoch == epoch + 1)
			sum += grant(v, d);
		credit_granted(v);
	}
	balance = sum;
	return 0;
}

/* One accounting. Whatever it parked or let go has still to be moved. */
static __always_inline void account(void)
{
	u64 sum = list_domains();

	to_park = 0;
	to_unpark = __sync_lock_test_and_set(&unheld, 0);
	if (!sum)
		balance = 0;
	else
		share_out(sum);
	grant_all();
	if (sum)
		epoch++;
}

/* An element for a new thread; 0: none left. */
static __always_inline u32 alloc_vcpu(void)
{
	u32 index;

	if (!bpf_map_pop_elem(&free_vcpus, &index))
		return index;
	index = __sync_fetch_and_add(&vcpus_used, 1);
	if (index < MAX_VCPUS)
		return index;
	__sync_fetch_and_sub(&vcpus_used, 1);
	return 0;
}

/* v leaves its domain: what it earned and burned there stays there. Else a thread that worked for
 * the host before it joined a VM would start OVER, and nothing but a tick that finds it running
 * could make it earn again. */
static __always_inline void start_afresh(struct vcpu *v)
{
	deactivate(v);
	v->credit = 0;
	v->residual = 0;
	v->pri = UNDER;
	improved(v);
	if (v->flags & VF_PARKED) {
		clear_flag(v, VF_PARKED);
		__sync_fetch_and_add(&unheld, 1);
	}
}

/* Read p's labels: domain, weight, cap, role, memory node. */
static __always_inline int label(struct task_struct *p, struct vcpu *v, u64 cgroup_id, bool fork)
{
	struct berth_identity *id = berth_identify(p, cgroup_id, fork);
	struct domain *d;
	u32 slot;

	if (!id)
		return -ENOMEM;
	slot = id->vm.slot;
	d = domain_at(slot);
	if (!d) {
		scx_bpf_error("VM slot %u is beyond the size of domains_by_vm", slot);
		return -E2BIG;
	}
	if (v->slot != slot)
		start_afresh(v);
	v->slot = slot;
	v->node = id->vm.node;
	if (v->node >= 0)
		some_home = true;
	v->role = id->thread.role;
	v->generation = berth_generation;
	if (slot == HOST) {
		d->weight = host_weight;
		d->vcpus = berth_nr_cpus;
	} else {
		d->weight = id->vm.weight;
		d->vcpus = id->vm.vcpus;
		d->cap_mcpu = id->vm.cap_mcpu;
	}
	labelled(v, id);
	return 0;
}

#endif
