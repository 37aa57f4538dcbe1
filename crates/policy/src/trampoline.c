/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Entering translated policy code and leaving it early. A policy that touches memory it must not
 * touch, or that does not return, is left by a long jump to the innermost entry of this thread:
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

struct frame {
	void *jump[5];
	struct frame *outer;
};

struct range {
	u64 start, end;
	struct range *next;
};

static _Thread_local struct frame *innermost;
static _Thread_local struct outcome last;
static _Atomic(struct range *) ranges;
static struct sigaction old_segv, old_bus;

/* Of this thread's last trap. */
struct outcome berth_outcome(void)
{
	return last;
}

/* Runs an operation, whose only argument is the address of its arguments. */
__attribute__((noinline)) struct answer berth_enter_op(native_fn fn, void *inst, const u64 *args)
{
	struct frame f;

	f.outer = innermost;
	if (__builtin_setjmp(f.jump)) {
		innermost = innermost->outer;
		return (struct answer){ 0, 1 };
	}
	innermost = &f;
	u64 result = fn(inst, (u64)args, 0, 0, 0, 0);

	innermost = f.outer;
	return (struct answer){ result, 0 };
}

/* Runs fn with its arguments. */
__attribute__((noinline)) struct answer berth_enter(native_fn fn, void *inst, const u64 *args)
{
	struct frame f;

	f.outer = innermost;
	if (__builtin_setjmp(f.jump)) {
		innermost = innermost->outer;
		return (struct answer){ 0, 1 };
	}
	innermost = &f;
	u64 result = fn(inst, args[0], args[1], args[2], args[3], args[4]);

	innermost = f.outer;
	return (struct answer){ result, 0 };
}

static _Noreturn void leave(u64 kind, u64 a, u64 b, u64 pc)
{
	last = (struct outcome){ kind, a, b, pc };
	__builtin_longjmp(innermost->jump, 1);
}

/* Function table entry 0: called by translated code. */
u64 berth_trap(void *inst, u64 kind, u64 a, u64 b, u64 unused1, u64 unused2)
{
	(void)inst;
	(void)unused1;
	(void)unused2;
	if (!innermost)
		abort();
	leave(kind, a, b, (u64)__builtin_return_address(0));
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

	if (innermost) {
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
