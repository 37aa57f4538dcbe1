/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sets of CPUs as words of 64 bits: to find the next member, or how many there are, costs a step
 * for 64 CPUs and not for each. For policies of at most MOST_CPUS CPUs, which they say with
 * BERTH_MOST_CPUS(MOST_CPUS).
 */
#ifndef __BERTH_CPUSET_BPF_H
#define __BERTH_CPUSET_BPF_H

#define MOST_CPUS 1024
#define CPU_WORDS (MOST_CPUS / 64)
#define NO_CPU	  (-1)

struct cpu_set {
	u64 words[CPU_WORDS];
};

/* Words that this machine needs. */
static __always_inline u32 nr_words(void)
{
	return (berth_nr_cpus + 63) / 64;
}

static __always_inline bool has(const struct cpu_set *set, u32 cpu)
{
	return set->words[cpu / 64 % CPU_WORDS] >> cpu % 64 & 1;
}

static __always_inline void put(struct cpu_set *set, u32 cpu, bool in)
{
	if (in)
		set->words[cpu / 64 % CPU_WORDS] |= 1ULL << cpu % 64;
	else
		set->words[cpu / 64 % CPU_WORDS] &= ~(1ULL << cpu % 64);
}

/* put() where other CPUs write, too. Who is in already costs no write. */
static __always_inline void mark(struct cpu_set *set, u32 cpu)
{
	if (!has(set, cpu))
		__sync_fetch_and_or(&set->words[cpu / 64 % CPU_WORDS], 1ULL << cpu % 64);
}

static __always_inline void unmark(struct cpu_set *set, u32 cpu)
{
	if (has(set, cpu))
		__sync_fetch_and_and(&set->words[cpu / 64 % CPU_WORDS], ~(1ULL << cpu % 64));
}

/* First member after cpu, around, cpu itself last; NO_CPU: the set is empty. */
__noinline s32 next_in(const struct cpu_set *set, u32 cpu)
{
	u32 words = nr_words(), at, i;
	s32 found = NO_CPU;
	u64 word;

	if (!set)
		return found;
	bpf_for(i, 0, words + 1) {
		at = (cpu / 64 + i) % words;
		word = set->words[at % CPU_WORDS];
		if (i == 0)
			word &= ~1ULL << cpu % 64;
		else if (i == words)
			word &= (2ULL << cpu % 64) - 1;
		if (word) {
			found = at * 64 + __builtin_ctzll(word);
			break;
		}
	}
	return found;
}

/* How many are in both. */
__noinline u32 count_both(const struct cpu_set *a, const struct cpu_set *b)
{
	u32 n = 0;
	s32 i;

	if (!a || !b)
		return 0;
	bpf_for(i, 0, nr_words()) {
		n += __builtin_popcountll(a->words[i % CPU_WORDS] & b->words[i % CPU_WORDS]);
	}
	return n;
}

/* What is in both stays in a. Whether that is anything. */
__noinline bool keep_both(struct cpu_set *a, const struct cpu_set *b)
{
	u64 any = 0;
	s32 i;

	if (!a || !b)
		return false;
	bpf_for(i, 0, nr_words()) {
		a->words[i % CPU_WORDS] &= b->words[i % CPU_WORDS];
		any |= a->words[i % CPU_WORDS];
	}
	return any != 0;
}

/* What is in b leaves a. */
__noinline int drop_both(struct cpu_set *a, const struct cpu_set *b)
{
	s32 i;

	if (!a || !b)
		return 0;
	bpf_for(i, 0, nr_words()) {
		a->words[i % CPU_WORDS] &= ~b->words[i % CPU_WORDS];
	}
	return 0;
}

/* A mask of the kernel's. Its words beyond what the machine needs may not exist; the verifier wants
 * constant indices. */
static __noinline int read_mask(struct cpu_set *set, const struct cpumask *mask)
{
	u32 words = nr_words(), i;

	if (!set || !mask)
		return 0;
	set->words[0] = mask->bits[0];
	if (words <= 1)
		return 0;
#pragma unroll
	for (i = 1; i < CPU_WORDS; i++)
		if (i < words)
			set->words[i] = mask->bits[i];
	return 0;
}

#endif
