/* SPDX-License-Identifier: GPL-2.0-only
 *
 * What translated policies are written in: the C side of abi.rs, and the functions that are worth
 * inlining. The emitter puts this text at the head of every translation.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

struct inst;
struct map;
typedef u64 (*kernel_fn)(struct inst *, u64, u64, u64, u64, u64);
typedef u64 (*native_fn)(struct inst *, u64, u64, u64, u64, u64);

struct inst {
	u64 insns;
	u64 insns_limit;
	u64 now;
	u64 ktime;
	u32 cpu;
	u32 op;
	void *machine;
	const kernel_fn *fns;
	u8 *const *sec;
	struct map *map;
	const native_fn *code;
	u32 nr_cpus;
	struct guard *guard;
};

struct span {
	u64 start, size;
};

#define PLACES	   64
#define PLACE_BITS 8

struct guard {
	struct span places[2][PLACES];
	struct span stacks, arguments;
	u8 *stack;
	u32 frames;
	u32 most_frames;
	u32 (*refuses)(struct inst *, u64 address, u32 size, u32 write);
	u32 (*refuses_call)(struct inst *, u32 id, const u64 *args);
	u64 refused[2];
};

struct map {
	u8 *data;
	u64 cpu_stride;
	u32 max_entries;
	u32 kind;
	u32 key_size;
	u32 value_size;
};

struct native_table {
	const native_fn *code;
	u64 count;
	const char *text_start;
	const char *text_end;
	const char *key;
};

/* Memory of a policy: any alignment, any aliasing. */
#define MEM(type, address) (*(type##_mem *)(address))
typedef u8 __attribute__((may_alias)) u8_mem;
typedef u16 __attribute__((may_alias, aligned(1))) u16_mem;
typedef u32 __attribute__((may_alias, aligned(1))) u32_mem;
typedef u64 __attribute__((may_alias, aligned(1))) u64_mem;
typedef s8 __attribute__((may_alias)) s8_mem;
typedef s16 __attribute__((may_alias, aligned(1))) s16_mem;
typedef s32 __attribute__((may_alias, aligned(1))) s32_mem;

#define POLICY_CODE __attribute__((section("berth_text")))
#define RT	    static inline __attribute__((always_inline, unused))
#define unlikely(x) __builtin_expect(!!(x), 0)

#define FUNC_TAG    0xfbf0000000000000ull
#define TRAP_BUDGET 1
#define TRAP_ACCESS 2
#define TRAP_DEPTH  3
#define STACK_BYTES 512
#define MAX_LOOPS   (1u << 23)
#define E2BIG_	    ((u64) - 7)
#define EINVAL_	    ((u64) - 22)

/* The instruction count is kept in a local and written back wherever somebody else can see it. */
#define COUNT(n)    (count += (n))
#define FLUSH()	    (I->insns = count)
#define RELOAD()    (count = I->insns)
#define CHECK_BUDGET()                                                                             \
	do {                                                                                       \
		if (unlikely(count > I->insns_limit))                                              \
			rt_leave(I, count, TRAP_BUDGET, count, 0);                                 \
	} while (0)

/* Out of line, and out of the inline code's way: with clang it leaves its caller's registers alone.
 */
#if __has_attribute(preserve_most)
#define ASIDE static __attribute__((noinline, cold, unused, preserve_most))
#else
#define ASIDE static __attribute__((noinline, cold, unused))
#endif

/* Where the function was called from; what follows a call that never returns may be the next
 * function. */
#define CALLER ((u64)__builtin_return_address(0) - 1)

/* Leaves the policy for good. */
ASIDE __attribute__((noreturn)) void rt_leave(struct inst *I, u64 count, u64 kind, u64 a, u64 b)
{
	FLUSH();
	I->fns[0](I, kind, a, b, CALLER, 0);
	__builtin_unreachable();
}

/*
 * Guarded code: nothing but what the instance may touch. What was looked up is remembered by the
 * address; each piece has at least eight bytes.
 */
#define OUTSIDE(span, at, bytes) ((at) - (span).start > (span).size - (bytes))

/* Returns if the access may be. */
ASIDE void rt_ask(struct inst *I, u64 count, u64 at, u32 bytes, u32 write)
{
	struct guard *g = I->guard;

	if ((write || OUTSIDE(g->arguments, at, bytes)) && g->refuses(I, at, bytes, write)) {
		FLUSH();
		I->fns[0](I, TRAP_ACCESS, at, write, CALLER, 0);
		__builtin_unreachable();
	}
}

#define GUARD(address, bytes, write)                                                               \
	do {                                                                                       \
		u64 at_ = (address);                                                               \
		const struct span *s_ =                                                            \
			&I->guard->places[write][at_ >> PLACE_BITS & (PLACES - 1)];                \
		if (unlikely(OUTSIDE(*s_, at_, bytes)))                                            \
			rt_ask(I, count, at_, bytes, write);                                       \
	} while (0)
/* The word of a mask that has this CPU's bit. */
#define GUARD_MASK(cpu, mask, write)                                                               \
	do {                                                                                       \
		if ((u32)(cpu) < I->nr_cpus)                                                       \
			GUARD((mask) + (u32)(cpu) / 64 * 8, 8, write);                             \
	} while (0)
#define GUARD_CALL(id)                                                                             \
	do {                                                                                       \
		const u64 args_[5] = { r1, r2, r3, r4, r5 };                                       \
		if (unlikely(I->guard->refuses_call(I, id, args_)))                                \
			rt_leave(I, count, TRAP_ACCESS, I->guard->refused[0],                      \
				 I->guard->refused[1]);                                            \
	} while (0)
/* A BPF function's stack, until it returns; a trap gives back those of all that it leaves. */
#define PUSH_STACK()                                                                               \
	do {                                                                                       \
		if (unlikely(I->guard->frames >= I->guard->most_frames))                           \
			rt_leave(I, count, TRAP_DEPTH, I->guard->most_frames, 0);                  \
		stack = I->guard->stack + (u64)STACK_BYTES * I->guard->frames++;                   \
	} while (0)
#define POP_STACK() (I->guard->frames--)

RT u64 rt_array_lookup(struct inst *I, u32 map, u64 key, u64 stride)
{
	struct map *m = I->map + map;
	u32 i = MEM(u32, key);

	return i < m->max_entries ? (u64)m->data + i * stride : 0;
}

RT u64 rt_percpu_array_lookup(struct inst *I, u32 map, u64 key, u64 stride)
{
	struct map *m = I->map + map;
	u32 i = MEM(u32, key);

	return i < m->max_entries ? (u64)m->data + I->cpu * m->cpu_stride + i * stride : 0;
}

/* The element of a task or cgroup storage if it exists; creating is the runtime's. */
RT u64 rt_storage_get(struct inst *I, u32 fn, u32 map, u64 object, u64 index_offset, u64 init,
		      u64 flags)
{
	struct map *m = I->map + map;
	u32 i;

	if (!object)
		return 0;
	i = MEM(u32, object + index_offset);
	if (i < m->max_entries) {
		u64 value = ((u64 *)m->data)[i];

		if (value)
			return value;
	}
	return flags & 1 ? I->fns[fn](I, (u64)m, object, init, flags, 0) : 0;
}

RT u64 rt_iter_num_new(u64 it, u64 start, u64 end)
{
	s32 from = (s32)start, to = (s32)end;

	if (from > to || (s64)to - from > MAX_LOOPS) {
		MEM(u64, it) = 0;
		return from > to ? EINVAL_ : E2BIG_;
	}
	MEM(u32, it) = (u32)from - 1;
	MEM(u32, it + 4) = (u32)to;
	return 0;
}

RT u64 rt_iter_num_next(u64 it)
{
	s32 next = (s32)(MEM(u32, it) + 1);

	if (next >= (s32)MEM(u32, it + 4)) {
		MEM(u64, it) = 0;
		return 0;
	}
	MEM(u32, it) = (u32)next;
	return it;
}

RT u64 rt_mask_test(struct inst *I, u64 cpu, u64 mask)
{
	u32 c = (u32)cpu;

	return c < I->nr_cpus ? MEM(u64, mask + c / 64 * 8) >> (c % 64) & 1 : 0;
}

RT u64 rt_mask_set(struct inst *I, u64 cpu, u64 mask)
{
	u32 c = (u32)cpu;
	u64 old;

	if (c >= I->nr_cpus)
		return 0;
	old = MEM(u64, mask + c / 64 * 8);
	MEM(u64, mask + c / 64 * 8) = old | 1ull << (c % 64);
	return old >> (c % 64) & 1;
}

RT u64 rt_mask_clear(struct inst *I, u64 cpu, u64 mask)
{
	u32 c = (u32)cpu;
	u64 old;

	if (c >= I->nr_cpus)
		return 0;
	old = MEM(u64, mask + c / 64 * 8);
	MEM(u64, mask + c / 64 * 8) = old & ~(1ull << (c % 64));
	return old >> (c % 64) & 1;
}

RT u64 rt_swap(u64 place, u64 value)
{
	u64 old = MEM(u64, place);

	MEM(u64, place) = value;
	return old;
}

RT u64 rt_bswap(u64 value, int bits)
{
	return bits == 16   ? __builtin_bswap16((u16)value)
	       : bits == 32 ? __builtin_bswap32((u32)value)
			    : __builtin_bswap64(value);
}

RT u64 rt_sdiv64(s64 a, s64 b)
{
	return b == 0 ? 0 : b == -1 ? -(u64)a : (u64)(a / b);
}

RT u64 rt_smod64(s64 a, s64 b)
{
	return b == 0 ? (u64)a : b == -1 ? 0 : (u64)(a % b);
}

RT u64 rt_sdiv32(s32 a, s32 b)
{
	return b == 0 ? 0 : b == -1 ? -(u32)a : (u32)(a / b);
}

RT u64 rt_smod32(s32 a, s32 b)
{
	return b == 0 ? (u32)a : b == -1 ? 0 : (u32)(a % b);
}
