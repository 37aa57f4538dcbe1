/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fast-core credit of a round, and the slots in which it is used.
 *
 * Of the credit of an upper kind, R % are poured evenly over all active vCPUs, to each at most what
 * Credit has granted it; the rest goes to the groups in the order of the ranking, to the group at
 * the boundary evenly. Credits are time: 10 a ms, here in ns.
 *
 * A vCPU uses its part in one slot. Slots are laid one behind the other on the timelines of the
 * kind's CPUs (McNaughton's rule): one that does not fit goes on at the beginning of the next CPU's
 * round, which is the same instant a round later. So every CPU is covered all of the round if there
 * is enough to do, and no vCPU is to be in two places at once.
 */
#ifndef __AMP_SHARE_BPF_H
#define __AMP_SHARE_BPF_H

#define ROUND_NS  (tslice_ms * MS)
#define CREDIT_NS (MS / CREDITS_PER_MS)

static u64 put_off_ns[MAX_KINDS]; /* credit of slots put off */
static u32 put_off_next;	  /* place in the ranking that is served next */

/* Pour `amount` evenly over the vCPUs of the ranking from `from` on and before `to`, to each at
 * most the room it has. What is left over. */
__noinline u64 pour(u64 amount, u32 from, u32 to)
{
	u64 each, part;
	struct vcpu *v;
	u32 i, pass, n;

	for (pass = 0; pass < 16; pass++) {
		n = 0;
		bpf_for(i, from, to) {
			v = ranked_at(i);
			if (v && v->room > v->give)
				n++;
		}
		each = n ? amount / n : 0;
		if (!each)
			break;
		bpf_for(i, from, to) {
			v = ranked_at(i);
			if (!v || v->room <= v->give)
				continue;
			part = v->room - v->give;
			part = part < each ? part : each;
			v->give += part;
			amount -= part;
		}
	}
	return amount;
}

/* The end of the group that begins at this place of the ranking. */
static __always_inline u32 group_end(u32 from)
{
	struct vcpu *v, *first = ranked_at(from);
	u32 i, end = from + 1;

	bpf_for(i, from + 1, nr_ranked) {
		v = ranked_at(i);
		if (!v || !first || v->place != first->place)
			break;
		end = i + 1;
	}
	return end;
}

__noinline u64 need_of(u32 from, u32 to)
{
	struct vcpu *v;
	u64 need = 0;
	u32 i;

	bpf_for(i, from, to) {
		v = ranked_at(i);
		if (v && v->room > v->give)
			need += v->room - v->give;
	}
	return need;
}

/* The efficient part: `amount` to groups by rank. */
__noinline int give_by_rank(u64 amount)
{
	u32 i, from = 0, end;
	u64 need;

	bpf_for(i, 0, nr_ranked) {
		if (from >= nr_ranked || !amount)
			break;
		end = group_end(from);
		need = need_of(from, end);
		if (need > amount) {
			pour(amount, from, end);
			break;
		}
		pour(need, from, end);
		amount -= need;
		from = end;
	}
	return 0;
}

/* A slot of v on cpu. Beyond the tables' ends it lapses. */
static __always_inline void add_slot(struct vcpu *v, u32 index, s32 cpu, u32 from, u32 to)
{
	struct pcpu *c = pcpu_at(cpu);
	u32 nr = v->nr_pieces, at;

	if (!c || nr >= MAX_PIECES || from >= to)
		return;
	at = c->nr_slots;
	if (at >= MAX_SLOTS)
		return;
	v->pieces[nr].cpu = cpu;
	v->pieces[nr].from = from;
	v->pieces[nr].to = to;
	v->nr_pieces = nr + 1;
	c->slots[at].index = index;
	c->slots[at].from = from;
	c->slots[at].to = to;
	c->nr_slots = at + 1;
	berth_count(slots);
}

/* D5: whose slot would be shorter than min_slot is served every k-th round, with k slots; ten
 * rounds at most. The length of v's slot in this round; its turn has come if `turn`. */
static __always_inline u64 length_of(struct vcpu *v, u32 kind, bool turn)
{
	u64 least = min_slot_us * 1000, k, length;

	if (v->give >= least || v->give >= v->room || !v->give)
		return v->give;
	if (!turn)
		return 0;
	k = div_up(least, v->give);
	length = v->give * (k < 10 ? k : 10);
	if (put_off_ns[kind & 3] < length)
		return 0;
	put_off_ns[kind & 3] -= length;
	v->deficit -= length;
	return length;
}

/* Credit of this round that belongs to slots put off. */
__noinline int put_off(u32 kind)
{
	u64 sum = 0, most = (u64)cpus_of_kind[kind & 3] * ROUND_NS;
	struct vcpu *v;
	u32 i;

	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		if (!v || !v->give || v->give >= min_slot_us * 1000 || v->give >= v->room)
			continue;
		v->deficit += v->give;
		sum += v->give;
	}
	sum += put_off_ns[kind & 3];
	/* What could not be served in time lapses. */
	put_off_ns[kind & 3] = sum < 2 * most ? sum : 2 * most;
	return 0;
}

/* Lay out the slots of a kind, in the order of the ranking; of those put off, from the one whose
 * turn it is. */
__noinline int lay_out(u32 kind)
{
	u32 i, at = 0, place, served = 0, start = nr_ranked ? put_off_next % nr_ranked : 0, *index;
	s32 cpu = next_of_kind(kind, -1);
	struct vcpu *v;
	bool small, pass;
	u64 length;

	put_off(kind);
	/* First whole slots, then those whose turn it is. */
	bpf_for(i, 0, 2 * nr_ranked) {
		pass = i >= nr_ranked;
		place = pass ? (start + i - nr_ranked) % nr_ranked : i;
		index = rank_at(place);
		v = index ? vcpu_at(*index) : NULL;
		if (!v || !v->give || cpu < 0)
			continue;
		small = v->give < min_slot_us * 1000 && v->give < v->room;
		if (small != pass)
			continue;
		length = length_of(v, kind, pass);
		if (pass) {
			if (!length)
				break;
			put_off_next = place + 1;
			served++;
		}
		v->fast += length;
		if (length > ROUND_NS)
			length = ROUND_NS;
		if (at + length <= ROUND_NS) {
			add_slot(v, *index, cpu, at, at + length);
			at += length;
		} else {
			add_slot(v, *index, cpu, at, ROUND_NS);
			length -= ROUND_NS - at;
			at = 0;
			cpu = next_of_kind(kind, cpu);
			if (cpu >= 0)
				add_slot(v, *index, cpu, 0, length);
			at = length;
		}
		if (at >= ROUND_NS) {
			at = 0;
			cpu = next_of_kind(kind, cpu);
		}
	}
	return served;
}

/* What each vCPU may use in this round: Credit's grant. */
__noinline u32 open_round(void)
{
	u64 most = ROUND_NS;
	struct domain *d;
	struct vcpu *v;
	u32 i, n = 0;

	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		if (!v)
			continue;
		v->round = round_nr;
		v->nr_pieces = 0;
		v->give = 0;
		v->fast = 0;
		v->used = 0;
		v->room = 0;
		d = domain_at(v->slot);
		/* Promised to vCPUs that may run anywhere. */
		if (!d || !v->active || d->epoch != epoch || !v->wide || (v->flags & VF_PARKED))
			continue;
		v->room = (u64)d->share * CREDIT_NS;
		if (exclusive || v->room > most)
			v->room = most;
		n++;
	}
	return n;
}

/* Share out an upper kind. */
__noinline int share_kind(u32 kind)
{
	u64 all = (u64)cpus_of_kind[kind & 3] * ROUND_NS, fair;
	struct vcpu *v;
	u32 i;

	fair = planned ? all * fair_percent / 100 : all;
	fair -= pour(fair, 0, nr_ranked);
	give_by_rank(all - fair);
	lay_out(kind);
	bpf_for(i, 0, nr_ranked) {
		v = ranked_at(i);
		if (!v)
			continue;
		v->room -= v->give < v->room ? v->give : v->room;
		v->give = 0;
	}
	return 0;
}

#endif
