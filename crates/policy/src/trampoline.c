/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Entering translated policy code and leaving it early. A policy that touches memory it must not
 * touch, or that does not return, is left by a jump to the innermost entry of this thread:
 * between the two there are only frames of policy code, so nothing is skipped that would have to be
 * undone.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

typedef uint64_t u64;
typedef u64 (*native_fn)(void *, u64, u64, u64, u64, u64);

enum { TRAP_BUDGET = 1, TRAP_ACCESS = 2 };

/* Why policy code was left. */
struct outcome {
	u64 kind, a, b, pc;
};

/* Two registers: the result of a normal return, and whether there was a trap instead. */
struct answer {
	u64 result, trapped;
};

struct range {
	u64 start, end;
	struct range *next;
};

static _Thread_local struct outcome last;
static _Atomic(struct range *) ranges;
static struct sigaction old_segv, old_bus;

/* Of this thread's last trap. */
struct outcome berth_outcome(void)
{
	return last;
}

/* Runs an operation, whose only argument is the address of its arguments: fn(inst, args, 0, 0, 0,
 * 0). */
struct answer berth_enter_op(void *inst, const u64 *args, native_fn fn);
/* Leaves the innermost operation or function: its entry returns with a trap for an answer. */
_Noreturn void berth_resume(void);

#if defined(__x86_64__)
/* Place of the innermost entry on this thread's stack, or NULL; the entry itself is in
 * enter_x86_64.S. */
_Thread_local void *berth_innermost;
#else
struct frame {
	void *jump[5];
	struct frame *outer;
};

static _Thread_local struct frame *berth_innermost;

struct answer berth_enter_op(void *inst, const u64 *args, native_fn fn)
{
	struct frame f;

	f.outer = berth_innermost;
	if (__builtin_setjmp(f.jump)) {
		berth_innermost = berth_innermost->outer;
		return (struct answer){ 0, 1 };
	}
	berth_innermost = &f;
	u64 result = fn(inst, (u64)args, 0, 0, 0, 0);

	berth_innermost = f.outer;
	return (struct answer){ result, 0 };
}

void berth_resume(void)
{
	__builtin_longjmp(berth_innermost->jump, 1);
}
#endif

/* A function and its arguments. */
struct call {
	native_fn fn;
	const u64 *args;
};

static u64 spread(void *inst, u64 call, u64 unused2, u64 unused3, u64 unused4, u64 unused5)
{
	const struct call *c = (const struct call *)call;

	(void)unused2;
	(void)unused3;
	(void)unused4;
	(void)unused5;
	return c->fn(inst, c->args[0], c->args[1], c->args[2], c->args[3], c->args[4]);
}

/* Runs fn with its arguments. */
struct answer berth_enter(void *inst, const u64 *args, native_fn fn)
{
	const struct call call = { fn, args };

	return berth_enter_op(inst, (const u64 *)&call, spread);
}

static _Noreturn void leave(u64 kind, u64 a, u64 b, u64 pc)
{
	last = (struct outcome){ kind, a, b, pc };
	berth_resume();
}

/* Function table entry 0: called by translated code, at pc. */
u64 berth_trap(void *inst, u64 kind, u64 a, u64 b, u64 pc, u64 unused)
{
	(void)inst;
	(void)unused;
	if (!berth_innermost)
		abort();
	leave(kind, a, b, pc);
}

static u64 program_counter(void *context)
{
#if defined(__x86_64__)
	return (u64)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return ((ucontext_t *)context)->uc_mcontext.pc;
#else
	(void)context;
	return 0;
#endif
}

/* Was the faulting access a store? Known on x86 only; elsewhere it is reported as a load. */
static u64 was_store(void *context)
{
#if defined(__x86_64__)
	return (u64)(((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] >> 1) & 1;
#else
	(void)context;
	return 0;
#endif
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	u64 pc = program_counter(context);
	struct sigaction *old = sig == SIGBUS ? &old_bus : &old_segv;

	if (berth_innermost) {
		for (struct range *r = atomic_load(&ranges); r; r = r->next) {
			if (pc < r->start || pc >= r->end)
				continue;
			/* A non-canonical address is not reported by the processor. */
			leave(TRAP_ACCESS, info->si_code == SI_KERNEL ? ~0ull : (u64)info->si_addr,
			      was_store(context), pc);
		}
	}
	if (old->sa_flags & SA_SIGINFO) {
		old->sa_sigaction(sig, info, context);
	} else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
		old->sa_handler(sig);
	} else {
		signal(sig, SIG_DFL);
		raise(sig);
	}
}

/* Once per process. */
void berth_install_handler(void)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof(sa));
	sa.sa_sigaction = on_fault;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
	sigaction(SIGSEGV, &sa, &old_segv);
	sigaction(SIGBUS, &sa, &old_bus);
}

/* Policy code lives in [start, end): faults there are the policy's. */
int berth_register_code(u64 start, u64 end)
{
	struct range *r = malloc(sizeof(*r));

	if (!r)
		return -1;
	r->start = start;
	r->end = end;
	r->next = atomic_load(&ranges);
	while (!atomic_compare_exchange_weak(&ranges, &r->next, r))
		;
	return 0;
}
