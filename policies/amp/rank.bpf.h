/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ranking: all vCPUs of VMs, groups in descending order of score; a group is a VM (amp-vm) or a
 * vCPU. Ties keep their order, else the lower VM, the lower vCPU.
 */
#ifndef __AMP_RANK_BPF_H
#define __AMP_RANK_BPF_H

#define MAX_RANKED 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_RANKED);
	__type(key, u32);
	__type(value, u32);
} ranking SEC(".maps");

struct vm_score {
	u64 sum;
	u64 nr;
	u64 score;
	u64 before;
	u64 wants; /* of its vCPUs, so many at a time, ppm */
	u32 place;
	u32 seen;  /* in this update of the ranking */
	u32 fresh; /* no window of it is over */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_DOMAINS);
	__type(key, u32);
	__type(value, struct vm_score);
} scores_by_vm SEC(".maps");

static u32 nr_ranked;
static u64 mean_score;	       /* of all active, in the present plan */
static u32 fair_percent = 100; /* R of the present plan */
static u64 ranking_at;	       /* when the ranking was updated last, */
static u32 ranking_nr;	       /* and how often it has been */

#define RANKED_FIRST (1ULL << 40) /* more than any score */

/* What loops count is not local: the verifier would walk through all its values. */
static u32 kept, rank;
static u64 active_sum, nr_active_scores;

static __always_inline u32 *rank_at(u32 i)
{
	return bpf_map_lookup_elem(&ranking, &i);
}

static __always_inline struct vcpu *ranked_at(u32 i)
{
	u32 *index = rank_at(i);

	return index ? vcpu_at(*index) : NULL;
}

static __always_inline struct vm_score *score_of_vm(u32 slot)
{
	return bpf_map_lookup_elem(&scores_by_vm, &slot);
}

static __always_inline u64 score_of(struct vcpu *v, bool before)
{
	struct vm_score *vm;

	if (mode == AMP_VCPU)
		return before ? v->score_before : v->score;
	vm = score_of_vm(v->slot);
	return !vm ? 0 : before ? vm->before : vm->score;
}

/* D15: what a score gains, where so many of the VM's vCPUs want CPUs at a time, ppm, by Saez et
 * al.: by the square of the threads that share the fastest CPUs with it. */
static __always_inline u64 shared_gain(u64 s, u64 wants)
{
	u64 alone = (u64)ONE * (cpus_of_kind[0] ? cpus_of_kind[0] - 1 : 0);
	u64 threads = wants > alone + ONE ? wants - alone : ONE;
	u64 gain = efficiency == LITERAL ? s : s > ONE ? s - ONE : 0;

	return gain * ONE / (threads / 1000 * (threads / 1000));
}

/* What v's group is ranked by: its score, unless D7 or D15 is otherwise. */
__noinline u64 ranked_by(struct vcpu *v, bool before)
{
	struct vm_score *vm;

	if (!v)
		return 0;
	vm = score_of_vm(v->slot);
	if (!vm)
		return 0;
	if (newcomer != AT_MEAN && (mode == AMP_VCPU ? v->fresh : vm->fresh))
		return newcomer == AT_FIRST ? RANKED_FIRST : 0;
	return parallel_aware ? shared_gain(score_of(v, before), vm->wants) : score_of(v, before);
}

/* a's group goes before b's. D4c: a lead of 10 % in two windows, if it does not already. */
static __always_inline bool outranks(struct vcpu *a, struct vcpu *b)
{
	u64 x = ranked_by(a, false), y = ranked_by(b, false);

	if (hardened)
		return x * 10 > y * 11 && ranked_by(a, true) * 10 > ranked_by(b, true) * 11;
	return x > y;
}

/* The later one in the ranking, a, belongs before b. */
static __always_inline bool comes_before(struct vcpu *a, struct vcpu *b)
{
	struct vm_score *of_a, *of_b;

	if (!planned && before_plan == BY_ORDER)
		return a->slot < b->slot;
	if (mode == AMP_VCPU)
		return outranks(a, b);
	if (a->slot == b->slot)
		return false;
	if (outranks(a, b))
		return true;
	if (outranks(b, a))
		return false;
	/* As before. Members of a VM stay together. */
	of_a = score_of_vm(a->slot);
	of_b = score_of_vm(b->slot);
	if (!of_a || !of_b)
		return false;
	return of_a->place != of_b->place ? of_a->place < of_b->place : a->slot < b->slot;
}

/* Insertion: almost nothing to do for an order that has hardly changed. How many changed places. */
__noinline u32 sort_ranking(void)
{
	struct vcpu *a, *b;
	u32 i, j, moves = 0, *this, *that, index;

	bpf_for(i, 1, nr_ranked) {
		bpf_for(j, 0, i) {
			this = rank_at(i - j);
			that = rank_at(i - j - 1);
			if (!this || !that)
				break;
			a = vcpu_at(*this);
			b = vcpu_at(*that);
			if (!a || !b || !comes_before(a, b))
				break;
			index = *this;
			*this = *that;
			*that = index;
			moves = 1;
		}
	}
	return moves;
}

/* Do two neighbours of the ranking share what is left for their group? D1, property (E). */
static __always_inline bool same_group(struct vcpu *a, struct vcpu *b)
{
	u64 low = a->score < b->score ? a->score : b->score;
	u64 high = a->score < b->score ? b->score : a->score;

	if (a->slot != b->slot)
		return false;
	return mode != AMP_VCPU || (share_close && high * 100 <= low * 105);
}

/* Places of groups, and what adaptive R goes by. */
__noinline int number_ranking(void)
{
	struct vcpu *v, *last = NULL;
	struct vm_score *vm;
	u32 i;

	rank = 0;
	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		if (!v)
			continue;
		last = i ? ranked_at(i - 1) : NULL;
		if (last && !same_group(last, v))
			rank++;
		v->place = rank;
		vm = score_of_vm(v->slot);
		if (vm)
			vm->place = rank;
	}
	return 0;
}

/* A vCPU of this VM is new, and the VM if it has no others. Another one may have had its slot. */
static __always_inline void first_seen(struct vm_score *vm)
{
	if (vm->seen == ranking_nr)
		return;
	__builtin_memset(vm, 0, sizeof(*vm));
	vm->score = vm->before = mean_score;
	vm->place = MAX_RANKED;
	vm->seen = ranking_nr;
	vm->fresh = 1;
}

/* Who has come and gone since the last round; new ones have the mean score (D7). */
__noinline int update_ranking(void)
{
	u32 i, *from, *to, moves;
	bool changed = false;
	struct vm_score *vm;
	struct vcpu *v;

	kept = 0;
	ranking_nr++;
	bpf_for(i, 0, nr_ranked) {
		from = rank_at(i);
		to = rank_at(kept);
		v = from ? vcpu_at(*from) : NULL;
		if (!v || !to || !v->pid || v->ranked != v->slot + 1 || !is_guest(v)) {
			if (v)
				v->ranked = 0;
			changed = true;
			continue;
		}
		*to = *from;
		kept++;
		vm = score_of_vm(v->slot);
		if (vm)
			vm->seen = ranking_nr;
	}
	bpf_for(i, 1, vcpus_used) {
		v = vcpu_at(i);
		if (!v || !v->pid || v->ranked || !is_guest(v) || kept >= MAX_RANKED)
			continue;
		to = rank_at(kept);
		if (!to)
			continue;
		*to = i;
		kept++;
		v->ranked = v->slot + 1;
		v->came_at = ranking_at;
		v->fresh = 1;
		v->score = v->score_before = mean_score;
		changed = true;
		vm = score_of_vm(v->slot);
		if (vm)
			first_seen(vm);
	}
	nr_ranked = kept;
	if (!changed)
		return 0;
	moves = sort_ranking();
	number_ranking();
	return moves;
}

/* A new plan from the scores of the last window. */
__noinline int apply_plan(void)
{
	struct vm_score *vm;
	struct vcpu *v;
	u32 i;

	active_sum = 0;
	nr_active_scores = 0;
	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		vm = v ? score_of_vm(v->slot) : NULL;
		if (!vm)
			continue;
		vm->sum = 0;
		vm->nr = 0;
		vm->wants = 0;
	}
	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		vm = v ? score_of_vm(v->slot) : NULL;
		if (!vm)
			continue;
		vm->wants += v->wants;
		/* It was not there for most of the window. */
		if (v->came_at > window_at + window_ms * MS / 2)
			continue;
		v->fresh = 0;
		vm->fresh = 0;
		v->score_before = v->score;
		v->score = v->score_next;
		if (!v->score)
			continue;
		vm->sum += v->score;
		vm->nr++;
		active_sum += v->score;
		nr_active_scores++;
	}
	mean_score = nr_active_scores ? active_sum / nr_active_scores : 0;
	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		vm = v ? score_of_vm(v->slot) : NULL;
		if (v && v->fresh)
			v->score = v->score_before = mean_score;
		if (vm && vm->fresh)
			vm->score = vm->before = mean_score;
		if (!vm || vm->fresh || (vm->nr && !vm->sum))
			continue;
		vm->before = vm->score;
		vm->score = vm->nr ? vm->sum / vm->nr : 0;
		vm->sum = 0;
	}
	planned = true;
	berth_count(plans);
	if (sort_ranking())
		berth_count(plan_changes);
	number_ranking();
	return 0;
}

#endif
