/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What amp keeps of a vCPU and of a CPU, beside Credit's. "Upper" kinds are all but the slowest.
 */
#ifndef __AMP_FIELDS_BPF_H
#define __AMP_FIELDS_BPF_H

#define MAX_KINDS  4
#define MAX_PIECES 6  /* of a vCPU's slots in a round: two for each upper kind */
#define MAX_SLOTS  32 /* of a CPU in a round */

/* Part of a round, ns from its start. */
struct piece {
	u32 cpu;
	u32 from;
	u32 to;
};

struct slot {
	u32 index; /* vCPU */
	u32 from;
	u32 to;
};

/* round: of the plan that `pieces` belong to; room: credit of the round not assigned to a kind
 * yet, below: what it has for all kinds but the fastest, give: for the kind that is being
 * assigned, fast: for the fastest, used: there so far, all in ns; slept: since it had a grant
 * last, beside: it has none in this round because of that; earned: it was active at the last
 * accounting; small: its slot is too short and put off, owed: what it has not had of those, by
 * kind, turn: what it has of them in this round, lent: what it was given of others' slots put off,
 * and gives back; ranked: slot + 1 of the VM as whose it is in the ranking, since came_at; fresh:
 * no window of it is over; place: its group's place there; score_next: for the next plan;
 * even_part, ranked_part: of its time on the fastest CPUs in equal parts and by rank, mean_even,
 * mean_part: the means of these over `judged` plans, beyond: what it had there beside the latter,
 * ppm, for adaptive R; left: fast time of earlier rounds that it keeps, ns (D6); wants: part of
 * the window before in which it ran or waited, ppm; level, rejected, use_level, use_rejected: the
 * filter's, of IPC and of utilisation, 0: none; instructions, cycles, by kind, ran, ran_fast, on
 * the fastest, waited, and implausible, that its counters stood still or jumped: of this window. */
#define VCPU_MORE                                                                                  \
	struct piece pieces[MAX_PIECES];                                                           \
	u32 nr_pieces;                                                                             \
	u32 ranked;                                                                                \
	u32 lifted;                                                                                \
	u32 no_slow;   /* may use no CPU of the slowest kind */                                    \
	u32 wide;      /* may use every CPU */                                                     \
	u32 slow_home; /* CPU it ran on last without a slot, not of the fastest kind + 1 */        \
	u32 target;    /* CPU + 1 that asked for it, or was claimed for it */                      \
	u32 place;                                                                                 \
	u32 small;                                                                                 \
	u32 slept;                                                                                 \
	u32 beside;                                                                                \
	u32 earned;                                                                                \
	u32 implausible;                                                                           \
	u32 judged;                                                                                \
	u32 compared;                                                                              \
	u32 sleeps;                                                                                \
	u32 fresh;                                                                                 \
	u64 round;                                                                                 \
	u64 room;                                                                                  \
	u64 below;                                                                                 \
	u64 give;                                                                                  \
	u64 fast;                                                                                  \
	u64 used;                                                                                  \
	u64 owed[MAX_KINDS];                                                                       \
	u64 turn;                                                                                  \
	u64 lent;                                                                                  \
	u64 pulled_at;                                                                             \
	u64 score;                                                                                 \
	u64 score_before;                                                                          \
	u64 score_next;                                                                            \
	u64 even_part;                                                                             \
	u64 ranked_part;                                                                           \
	s64 mean_even;                                                                             \
	s64 mean_part;                                                                             \
	s64 beyond;                                                                                \
	u64 speedup;                                                                               \
	u64 mean_ranked;                                                                           \
	u64 mean_fast;                                                                             \
	u64 mean_busy;                                                                             \
	s64 form;                                                                                  \
	s64 found;                                                                                 \
	u64 left;                                                                                  \
	u64 came_at;                                                                               \
	u64 wants;                                                                                 \
	u64 level;                                                                                 \
	u64 rejected;                                                                              \
	u64 use_level;                                                                             \
	u64 use_rejected;                                                                          \
	u64 instructions[MAX_KINDS];                                                               \
	u64 cycles[MAX_KINDS];                                                                     \
	u64 ran;                                                                                   \
	u64 ran_fast;                                                                              \
	u64 waited;                                                                                \
	u64 queued_at;
/* instructions, cycles: its counters when they were read last, at counted_at; counted: they were.
 */
#define PCPU_MORE                                                                                  \
	u32 number;                                                                                \
	u32 kind;                                                                                  \
	u32 speed;                                                                                 \
	u32 nr_slots;                                                                              \
	u32 counted;                                                                               \
	u32 owner;  /* whose slot began last */                                                    \
	u32 passed; /* looked at in a queue by its last search */                                  \
	struct slot slots[MAX_SLOTS];                                                              \
	u64 next_slot; /* when its next slot begins; 0: none in this round */                      \
	u64 again;     /* when it looks for work again */                                          \
	u64 instructions;                                                                          \
	u64 cycles;                                                                                \
	u64 counted_at;

#endif
