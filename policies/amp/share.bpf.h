/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fast-core credit of a round, and the slots in which it is used.
 *
 * Of the credit of an upper kind, R % are poured evenly over all active vCPUs, to each at most what
 * Credit has granted it, or over all by their grants; the rest goes to the groups in the order of
 * the ranking, to the group at the boundary evenly. Credits are time: 10 a ms, here in ns.
 *
 * A vCPU uses its part in one slot. Slots are laid one behind the other on the timelines of the
 * kind's CPUs (McNaughton's rule): one that does not fit goes on at the beginning of the next CPU's
 * round, which is the same instant a round later. So every CPU is covered all of the round if there
 * is enough to do, and no vCPU is to be in two places at once.
 */
#ifndef __AMP_SHARE_BPF_H
#define __AMP_SHARE_BPF_H

static u32 put_off_next;	  /* place in the ranking that is served next */
static u64 small_now, served_now; /* in this round: credit of small slots, and what they have */
static u64 kept_now;		  /* and what others have, without what they give back */

/* Counted here and not in locals, as in rank.bpf.h. */
static u32 nr_with_room, group_from, group_to;
static u32 kind_now; /* that is shared out */

static bool lending; /* what is poured is to be given back */

static u64 granted_sum;
static u64 beside_ns;	/* CPU time of who sleeps and wakes without a grant, in this round, */
static u64 beside_mean; /* and on average of the last ones */

/* Slots are laid out up to here. */
static s32 laid_cpu;
static u32 laid_to;

/* What Credit grants those of the ranking from `from` on and before `to` in a round, together. */
__noinline u64 granted_to(u32 from, u32 to)
{
	struct vcpu *v;
	u32 i;

	granted_sum = 0;
	bpf_for(i, from, to) {
		v = ranked_at(i);
		if (v)
			granted_sum += granted(v);
	}
	return granted_sum;
}

/* To each of the vCPUs of the ranking from `from` on and before `to` that has room an equal part of
 * `amount`, at most its room. What is left over. */
__noinline u64 pour_once(u64 amount, u32 from, u32 to)
{
	u64 each, part;
	struct vcpu *v;
	u32 i;

	nr_with_room = 0;
	bpf_for(i, from, to) {
		v = ranked_at(i);
		if (v && !v->small && v->room > v->give)
			nr_with_room++;
	}
	each = nr_with_room ? amount / nr_with_room : 0;
	if (!each)
		return amount;
	bpf_for(i, from, to) {
		v = ranked_at(i);
		if (!v || v->small || v->room <= v->give)
			continue;
		part = v->room - v->give;
		part = part < each ? part : each;
		v->give += part;
		v->lent += lending ? part : 0;
		amount -= part;
	}
	return amount;
}

/* Pour `amount` evenly over the vCPUs of the ranking from `from` on and before `to`, to each at
 * most the room it has. What is left over. */
__noinline u64 pour(u64 amount, u32 from, u32 to)
{
	u64 before;
	u32 pass;

	for (pass = 0; pass < 16; pass++) {
		before = amount;
		amount = pour_once(before, from, to);
		if (amount == before)
			break;
	}
	return amount;
}

/* The group that begins at group_from ends before group_to. */
static __always_inline void find_group_end(void)
{
	struct vcpu *v, *first = ranked_at(group_from);
	u32 i;

	group_to = group_from + 1;
	bpf_for(i, group_from + 1, nr_ranked) {
		v = ranked_at(i);
		if (!v || !first || v->place != first->place)
			break;
		group_to = i + 1;
	}
}

__noinline u64 need_of(u32 from, u32 to)
{
	struct vcpu *v;
	u64 need = 0;
	u32 i;

	bpf_for(i, from, to) {
		v = ranked_at(i);
		if (v && !v->small && v->room > v->give)
			need += v->room - v->give;
	}
	return need;
}

/* D12: pour `amount` over all in proportion to the room they have. What is left over. */
__noinline u64 pour_by_grant(u64 amount)
{
	u64 need = need_of(0, nr_ranked), most = need > amount ? need : amount;
	struct vcpu *v;
	u32 i;

	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		if (v)
			v->give = v->room * amount / (most ?: 1);
	}
	return most - need;
}

/* D6: of what R leaves over, who has fast time left of earlier rounds has it before the others, if
 * that makes a slot which is not put off. What is left of `amount`. */
__noinline u64 pour_left(u64 amount)
{
	struct vcpu *v;
	u64 part;
	u32 i;

	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		if (!v || v->room <= v->give)
			continue;
		part = v->room - v->give;
		part = part < v->left ? part : v->left;
		part = part < amount ? part : amount;
		if (v->owed[0] || v->give + part < min_slot_us * 1000)
			continue;
		v->give += part;
		v->left -= part;
		amount -= part;
	}
	return amount;
}

/* The efficient part: `amount` to groups by rank. */
__noinline int give_by_rank(u64 amount)
{
	u64 need;
	u32 i;

	group_from = 0;
	bpf_for(i, 0, nr_ranked) {
		if (group_from >= nr_ranked || !amount)
			break;
		find_group_end();
		need = need_of(group_from, group_to);
		if (need > amount) {
			pour(amount, group_from, group_to);
			break;
		}
		pour(need, group_from, group_to);
		amount -= need;
		group_from = group_to;
	}
	return 0;
}

/* A slot of a vCPU on cpu. Beyond the tables' ends it lapses. */
__noinline int add_slot(u32 index, s32 cpu, u32 from, u32 to)
{
	struct vcpu *v = vcpu_at(index);
	struct pcpu *c = pcpu_at(cpu);
	u32 nr, at;

	if (!v || !c || from >= to)
		return 0;
	nr = v->nr_pieces;
	at = c->nr_slots;
	if (nr >= MAX_PIECES || at >= MAX_SLOTS)
		return 0;
	v->pieces[nr].cpu = cpu;
	v->pieces[nr].from = from;
	v->pieces[nr].to = to;
	v->nr_pieces = nr + 1;
	c->slots[at].index = index;
	c->slots[at].from = from;
	c->slots[at].to = to;
	c->nr_slots = at + 1;
	berth_count(slots);
	return 0;
}

/* D5: whose slot would be shorter than min_slot is owed it; here: which they are. */
__noinline int put_off(u32 kind)
{
	struct vcpu *v;
	u64 *owed;
	u32 i;

	small_now = 0;
	served_now = 0;
	kept_now = 0;
	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		if (!v)
			continue;
		owed = &v->owed[kind & 3];
		if (!v->give)
			continue;
		if (v->give >= min_slot_us * 1000 || v->give >= v->room) {
			*owed = 0;
			kept_now += v->give > v->lent ? v->give - v->lent : 0;
			continue;
		}
		v->small = 1;
		/* What could not be served in time lapses. */
		*owed = *owed + v->give < ROUND_NS ? *owed + v->give : ROUND_NS;
		small_now += v->give;
	}
	return 0;
}

/* Those whose turn it is have what they are owed, as long as the round has room for a whole slot:
 * when it is one, or after ten rounds. */
__noinline int serve(u32 kind)
{
	u64 all = (u64)cpus_of_kind[kind & 3] * ROUND_NS,
	    left = all > kept_now ? all - kept_now : 0;
	u64 least = min_slot_us * 1000, length;
	u32 i, place, start = nr_ranked ? put_off_next % nr_ranked : 0;
	struct vcpu *v;

	bpf_for(i, 0, nr_ranked) {
		place = (start + i) % nr_ranked;
		v = ranked_at(place);
		if (!v || !v->small)
			continue;
		length = v->owed[kind & 3];
		if (length > left)
			length = left;
		if (length < least && length < 10 * v->give)
			break;
		v->owed[kind & 3] -= length;
		left -= length;
		served_now += length;
		v->turn = length;
		put_off_next = place + 1;
	}
	return 0;
}

/* What those put off leave in this round goes to others by rank, who give it back in a round in
 * which those have more than their part. */
__noinline int even_out(void)
{
	struct vcpu *v;
	u64 part;
	u32 i;

	if (served_now <= small_now) {
		lending = true;
		give_by_rank(small_now - served_now);
		lending = false;
		return 0;
	}
	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		if (!v || v->small)
			continue;
		part = v->lent < v->give ? v->lent : v->give;
		if (part > served_now - small_now)
			part = served_now - small_now;
		v->give -= part;
		v->lent -= part;
		served_now -= part;
		if (served_now <= small_now)
			break;
	}
	return 0;
}

/* The slot goes behind those laid out before; what does not fit goes on at the next CPU's begin. */
__noinline int lay_behind(u32 index, u32 kind, u32 length)
{
	if (laid_to + length <= ROUND_NS) {
		add_slot(index, laid_cpu, laid_to, laid_to + length);
		laid_to += length;
	} else {
		add_slot(index, laid_cpu, laid_to, ROUND_NS);
		length -= ROUND_NS - laid_to;
		laid_cpu = next_of_kind(kind, laid_cpu);
		if (laid_cpu >= 0)
			add_slot(index, laid_cpu, 0, length);
		laid_to = length;
	}
	if (laid_to >= ROUND_NS) {
		laid_to = 0;
		laid_cpu = next_of_kind(kind, laid_cpu);
	}
	return 0;
}

/* Lay out the slots of a kind, in the order of the ranking; those put off behind the others. */
__noinline int lay_out(u32 kind)
{
	struct vcpu *v;
	u32 i, *index;
	u64 length;
	bool put;

	laid_cpu = next_of_kind(kind, -1);
	laid_to = 0;
	bpf_for(i, 0, 2 * nr_ranked) {
		put = i >= nr_ranked;
		index = rank_at(put ? i - nr_ranked : i);
		v = index ? vcpu_at(*index) : NULL;
		if (!v || laid_cpu < 0 || v->small != put)
			continue;
		length = put ? v->turn : v->give;
		if (!length)
			continue;
		if (!kind_now)
			v->fast += length;
		lay_behind(*index, kind, length < ROUND_NS ? length : ROUND_NS);
	}
	return 0;
}

/* What each vCPU may use in this round: Credit's grant. With three kinds and more, where slots
 * cover all CPUs but a few slow ones, as large a part of it for all that those who sleep and wake
 * have room, too: Credit grants them nothing most of the time, for it grants to those whom a tick
 * has met. */
__noinline int open_round(void)
{
	u64 there = (u64)nr_online * ROUND_NS, all = 0;
	u64 beside = __sync_lock_test_and_set(&beside_ns, 0);
	struct vcpu *v;
	u32 i;

	if (nr_kinds > 2 && !exclusive)
		all = granted_to(0, nr_ranked);
	beside_mean = (beside_mean * 7 + beside) / 8;
	there -= beside_mean < there ? beside_mean : there;
	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		if (!v)
			continue;
		if (keep_fast && v->fast > v->used)
			v->left += v->fast - v->used;
		if (v->left > ROUND_NS)
			v->left = ROUND_NS;
		v->round = round_nr;
		v->nr_pieces = 0;
		v->give = 0;
		v->fast = 0;
		v->used = 0;
		v->room = granted(v);
		if (all > there)
			v->room = v->room * there / all;
		v->beside = v->slept && !v->room;
		v->slept = v->beside;
	}
	return 0;
}

/* Share out an upper kind. */
__noinline int share_kind(u32 kind)
{
	u64 all = (u64)cpus_of_kind[kind & 3] * ROUND_NS, fair;
	bool even = mode == AMP_FAIR || before_plan == EQUALLY;
	u32 percent = planned ? fair_percent : even ? 100 : r;
	struct vcpu *v;
	u32 i;

	kind_now = kind;
	fair = all * percent / 100;
	fair -= fair_by == BY_WEIGHT ? pour_by_grant(fair) : pour(fair, 0, nr_ranked);
	all -= fair;
	if (keep_fast && !kind)
		all = pour_left(all);
	give_by_rank(all);
	put_off(kind);
	serve(kind);
	even_out();
	lay_out(kind);
	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		if (!v)
			continue;
		v->room -= v->give < v->room ? v->give : v->room;
		if (!kind_now)
			v->below = v->room;
		v->give = 0;
		v->turn = 0;
		v->small = 0;
	}
	return 0;
}

#endif
