// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest of a micro-VM: a vCPU's whole operating system, in one page and a half of code.
 *
 * Each vCPU starts in guest(), in 64-bit mode on an identity map, with interrupts off and its page
 * in the first argument. It has a list of tasks; a task is a program of ops (see layout.rs, which
 * fills this memory from the host). The scheduler is cooperative: a task runs until it has to wait,
 * ends, or has computed for a slice while others are there; then it is the next one's turn. A task
 * that waits is asked again each time round. With nothing to run the vCPU arms its timer for the
 * earliest deadline and halts; interrupts do nothing but end the halt.
 *
 * The host reads work, halts and latencies from this memory while the guest runs, without any exit.
 *
 * All of the code is compiled into one section without relocations or data, and copied to where the
 * guest runs it.
 */
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

enum op_code {
	OP_COMPUTE,
	OP_BUSY,
	OP_SLEEP,
	OP_TIMER,
	OP_RECEIVE,
	OP_REPLY,
	OP_SEND,
	OP_YIELD,
	OP_LOCK,
	OP_UNLOCK,
	OP_SPIN,
	OP_UNSPIN,
	OP_BARRIER,
	OP_WAIT,
	OP_SIGNAL,
	OP_BROADCAST,
	OP_CHUNKS,
	OP_EXIT,
	OP_LOOP,
	OP_NOTHING,
};

/* What all vCPUs of the VM share. Times are TSC ticks. */
struct vm {
	u64 stop;
	u64 start_tsc;
	u64 measure_begin;
	u64 measure_end;
	u64 end_tsc;
	u64 vcpus; /* how many; their pages begin at vcpu0 */
	u64 vcpu0;
	u64 chunk_loops; /* turns of the work loop that take chunk_ns */
	u64 chunk_ns;
	u64 slice_ns;
};

struct vcpu {
	u64 idle; /* 1: halted, or about to; 2: so, but the host has sent it an interrupt since */
	u64 work_ns;
	u64 apic_id;
	u64 nr_tasks;
	struct task *tasks;
	struct vm *vm;
	u64 irqs;		    /* counted by the interrupt handler, at %gs:48 */
	u64 call_a, call_b, call_c; /* arguments and result of a call to the host */
	u64 *wakeups;		    /* histogram of lateness, see record() */
	u64 halts;
	u64 switches;
	u64 turn;
	u64 armed;  /* deadline that the timer is set to; 0: none */
	u64 number; /* of this vCPU in its VM */
};

struct op {
	u64 code;
	u64 table; /* address of values, routes, or of a lock, barrier, ... */
	u64 n;	   /* entries of the table */
	u64 next;  /* entry to read next */
	u64 arg;
	u64 pad[3];
};

enum { READY, WAITING, DEAD };

struct task {
	struct op *pc;
	struct op *loop;
	u64 state;
	u64 waited;  /* the op at pc has been tried in vain */
	u64 due;     /* when a sleep ends */
	u64 left_ns; /* of a computation that gave way to another task */
	u64 phase;
	u64 ticket;
	u64 arrival, asker; /* message in hand */
	u64 sleeps;	    /* due is valid */
	u64 spins;	    /* spin locks held */
	u64 pad[4];
};

struct slot {
	u64 seq, sent, arrival, asker;
};

/* A bounded queue of many senders and takers: slot i belongs to sender n if seq == n, to taker n if
 * seq == n + 1. */
struct queue {
	u64 head, tail, mask;
	struct slot *slots;
};

struct route {
	struct queue *queue;
	struct op *body;
};

struct lock {
	u64 held, waiters, since;
};

struct spin {
	u64 next, serving;
};

struct barrier {
	u64 members, come, generation, waiters, since;
};

struct condition {
	u64 tickets, served, waiters, since;
};

/* A guest that only answers frames (echo()). Its rings are those of a virtio network card, split,
 * of version 1, at the addresses that both sides know: there is no virtio device to find them by.
 */
struct echo {
	u64 stop;
	u64 slots;   /* of each ring, a power of two */
	u64 buffers; /* slot i of both rings is buffer i: 2048 bytes, a header of 12 first */
	u64 rx_descriptors, rx_available, rx_used;
	u64 tx_descriptors, tx_available, tx_used;
	u64 rx_seen, tx_seen; /* taken from the used rings */
	u64 echoed, others;
	u64 link; /* its own address, the first byte lowest */
};

struct descriptor {
	u64 at;
	u32 bytes;
	u16 flags, next;
};

struct available {
	u16 flags, index, slots[];
};

struct used {
	u16 flags, index;
	struct {
		u32 slot, bytes;
	} slots[];
};

_Static_assert(sizeof(struct vm) == 80 && sizeof(struct vcpu) == 128, "layout.rs");
_Static_assert(sizeof(struct op) == 64 && sizeof(struct task) == 128, "layout.rs");

#define PORT_OVER    0x10
#define PORT_REPLY   0x11
#define PORT_SEND    0x12
#define PORT_CHUNK   0x13
#define PORT_RX	     0x14
#define PORT_TX	     0x15
#define APIC_ICR     0xfee00300ull
#define VECTOR_IPI   0x41u
#define TSC_DEADLINE 0x6e0u
#define NEVER	     (~0ull)
#define SPINS	     4096

#define load(p)	     __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define store(p, v)  __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)

/* The handler of every interrupt: count it, end it at the APIC. */
__asm__(".globl isr\n"
	"isr:\n"
	"	incq %gs:48\n"
	"	pushq %rax\n"
	"	movl $0xfee000b0, %eax\n"
	"	movl $0, (%rax)\n"
	"	popq %rax\n"
	"	iretq\n");

static inline u64 now(void)
{
	u32 lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi) : : "memory");
	return (u64)hi << 32 | lo;
}

static inline void out(unsigned short port)
{
	__asm__ volatile("outb %%al, %%dx" : : "a"(0), "d"(port) : "memory");
}

/* Everything before is seen by all before anything after; a locked add, for hosts that emulate no
 * mfence. */
static inline void full_barrier(void)
{
	u64 word = 0;

	__asm__ volatile("lock; addq $0, %0" : "+m"(word) : : "memory", "cc");
}

static inline void set_bit(u64 *word, u64 bit)
{
	__asm__ volatile("lock; orq %1, %0" : "+m"(*word) : "r"(1ull << bit) : "memory", "cc");
}

static inline void clear_bit(u64 *word, u64 bit)
{
	__asm__ volatile("lock; andq %1, %0" : "+m"(*word) : "r"(~(1ull << bit)) : "memory", "cc");
}

/* The work loop: as many turns, nothing else. */
static inline void loops(u64 n)
{
	__asm__ volatile("1: decq %0; jnz 1b" : "+r"(n) : : "cc");
}

static struct vcpu *vcpu(struct vm *vm, u64 i)
{
	return (struct vcpu *)(vm->vcpu0 + i * 4096);
}

static int over(struct vm *vm)
{
	return load(vm->stop) || now() >= load(vm->end_tsc);
}

/* Counts a wake-up that is `late` ticks late: 128 steps to each doubling. */
static void record(struct vcpu *v, u64 due)
{
	u64 at = now(), late = at > due ? at - due : 0, index = late;

	if (at < v->vm->measure_begin || at >= v->vm->measure_end)
		return;
	if (late >= 128) {
		u64 shift = 63 - (u64)__builtin_clzll(late) - 7;

		index = (shift + 1) * 128 + (late >> shift) - 128;
	}
	v->wakeups[index]++;
}

/* An interrupt for a vCPU that has halted, or is about to. */
static void kick(struct vcpu *v)
{
	volatile u32 *icr = (volatile u32 *)APIC_ICR;

	icr[4] = (u32)v->apic_id << 24;
	icr[0] = VECTOR_IPI | 0x4000;
}

/* Wakes one halted vCPU (or all) of those whose tasks wait for something that is there now. */
static void wake(struct vcpu *v, u64 *waiters, int all)
{
	u64 mask;

	full_barrier();
	mask = load(*waiters) & ~(1ull << v->number);
	for (u64 i = 0; mask && i < v->vm->vcpus; i++) {
		struct vcpu *other = vcpu(v->vm, i);

		if (!(mask >> i & 1) || load(other->idle) != 1)
			continue;
		clear_bit(waiters, i);
		kick(other);
		if (!all)
			return;
	}
}

/* The next value of an op's table. */
static u64 draw(struct op *op)
{
	u64 value = ((u64 *)op->table)[op->next];

	if (++op->next == op->n)
		op->next = 0;
	return value;
}

/*
 * Computes for left_ns; gives 0 when it is done, 1 if it stops before: the run is over, or another
 * task should have a turn. Work is counted after each chunk.
 */
static int compute(struct vcpu *v, struct task *t)
{
	struct vm *vm = v->vm;
	u64 slice = vm->slice_ns;

	while (t->left_ns) {
		u64 ns = t->left_ns < vm->chunk_ns ? t->left_ns : vm->chunk_ns;
		u64 n = ns * vm->chunk_loops / vm->chunk_ns;

		loops(n ? n : 1);
		if (t->left_ns != NEVER)
			t->left_ns -= ns;
		store(v->work_ns, v->work_ns + ns);
		if (over(vm))
			return 1;
		slice = slice > ns ? slice - ns : 0;
		if (!slice && v->nr_tasks > 1 && !t->spins)
			return 1;
	}
	return 0;
}

/* Takes the message that was sent first of all queues the op serves. */
static int receive(struct vcpu *v, struct task *t, struct op *op)
{
	struct route *routes = (struct route *)op->table;

	for (;;) {
		struct route *best = 0;
		u64 oldest = NEVER, at = 0, expected;

		for (u64 i = 0; i < op->n; i++) {
			struct queue *q = routes[i].queue;
			u64 head = load(q->head);
			struct slot *slot = &q->slots[head & q->mask];

			if (load(slot->seq) == head + 1 && slot->sent < oldest) {
				best = &routes[i];
				oldest = slot->sent;
				at = head;
			}
		}
		if (!best)
			return 0;
		expected = at;
		if (__atomic_compare_exchange_n(&best->queue->head, &expected, at + 1, 0,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			struct slot *slot = &best->queue->slots[at & best->queue->mask];

			if (t->waited)
				record(v, slot->sent);
			t->arrival = slot->arrival;
			t->asker = slot->asker;
			store(slot->seq, at + best->queue->mask + 1);
			t->pc = best->body;
			return 1;
		}
	}
}

static int take(struct lock *lock)
{
	u64 expected = 0;

	return __atomic_compare_exchange_n(&lock->held, &expected, 1, 0, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

/* The last one to come lets all go; so does one who leaves, if only it was missing. */
static int release_barrier(struct vcpu *v, struct barrier *b)
{
	if (load(b->come) < load(b->members))
		return 0;
	store(b->come, 0);
	store(b->since, now());
	__atomic_add_fetch(&b->generation, 1, __ATOMIC_ACQ_REL);
	wake(v, &b->waiters, 1);
	return 1;
}

enum { GO_ON, NEXT_TASK, AGAIN };

/* Tries the op at pc: done (GO_ON, pc moved), to be tried again (AGAIN), or done with the turn
 * given away. */
static int step(struct vcpu *v, struct task *t)
{
	struct op *op = t->pc;
	u64 due;

	switch (op->code) {
	case OP_COMPUTE:
		if (!t->left_ns)
			t->left_ns = draw(op);
		/* fall through */
	case OP_BUSY:
		if (op->code == OP_BUSY)
			t->left_ns = NEVER;
		if (compute(v, t))
			return NEXT_TASK;
		break;
	case OP_SLEEP:
	case OP_TIMER:
		if (!t->sleeps) {
			u64 at = now();

			if (op->code == OP_SLEEP) {
				due = at + draw(op);
			} else {
				due = v->vm->start_tsc + t->phase % op->arg;
				if (due <= at)
					due += ((at - due) / op->arg + 1) * op->arg;
			}
			t->due = due;
			t->sleeps = 1;
		}
		if (now() < t->due)
			return AGAIN;
		t->sleeps = 0;
		record(v, t->due);
		break;
	case OP_RECEIVE:
		if (!receive(v, t, op))
			return AGAIN;
		return GO_ON;
	case OP_REPLY:
		if (!t->asker)
			break;
		v->call_a = t->arrival;
		v->call_b = t->asker;
		t->asker = 0;
		out(PORT_REPLY);
		break;
	case OP_SEND:
		v->call_a = op->arg;
		out(PORT_SEND);
		break;
	case OP_YIELD:
		t->pc = op + 1;
		return NEXT_TASK;
	case OP_LOCK: {
		struct lock *lock = (struct lock *)op->table;

		if (!take(lock)) {
			set_bit(&lock->waiters, v->number);
			if (!take(lock))
				return AGAIN;
		}
		if (t->waited)
			record(v, load(lock->since));
		break;
	}
	case OP_UNLOCK: {
		struct lock *lock = (struct lock *)op->table;

		store(lock->since, now());
		store(lock->held, 0);
		wake(v, &lock->waiters, 0);
		break;
	}
	case OP_SPIN: {
		struct spin *spin = (struct spin *)op->table;
		u64 turns = 0;

		if (!t->ticket)
			t->ticket = __atomic_fetch_add(&spin->next, 1, __ATOMIC_ACQ_REL) + 1;
		while (load(spin->serving) + 1 != t->ticket) {
			__asm__ volatile("pause" : : : "memory");
			if (++turns < SPINS)
				continue;
			turns = 0;
			/* The holder may be another task of this vCPU. */
			if (over(v->vm) || v->nr_tasks > 1)
				return NEXT_TASK;
		}
		t->ticket = 0;
		t->spins++;
		break;
	}
	case OP_UNSPIN: {
		struct spin *spin = (struct spin *)op->table;

		t->spins--;
		__atomic_fetch_add(&spin->serving, 1, __ATOMIC_ACQ_REL);
		break;
	}
	case OP_BARRIER: {
		struct barrier *b = (struct barrier *)op->table;

		if (!t->ticket) {
			t->ticket = load(b->generation) + 1;
			if (__atomic_add_fetch(&b->come, 1, __ATOMIC_ACQ_REL) >= load(b->members) &&
			    release_barrier(v, b)) {
				t->ticket = 0;
				break;
			}
		}
		set_bit(&b->waiters, v->number);
		full_barrier();
		if (load(b->generation) < t->ticket)
			return AGAIN;
		t->ticket = 0;
		if (t->waited)
			record(v, load(b->since));
		break;
	}
	case OP_WAIT: {
		struct condition *c = (struct condition *)op->table;

		if (!t->ticket)
			t->ticket = __atomic_fetch_add(&c->tickets, 1, __ATOMIC_ACQ_REL) + 1;
		set_bit(&c->waiters, v->number);
		full_barrier();
		if (load(c->served) < t->ticket)
			return AGAIN;
		t->ticket = 0;
		if (t->waited)
			record(v, load(c->since));
		break;
	}
	case OP_SIGNAL:
	case OP_BROADCAST: {
		struct condition *c = (struct condition *)op->table;
		u64 served = load(c->served), tickets = load(c->tickets);

		store(c->since, now());
		/* A signal that nobody waits for is not kept. */
		while (served < tickets &&
		       !__atomic_compare_exchange_n(&c->served, &served,
						    op->code == OP_SIGNAL ? served + 1 : tickets, 0,
						    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			;
		/* Whose turn it is, is with the tickets: all that sleep look. */
		if (served < tickets)
			wake(v, &c->waiters, 1);
		break;
	}
	case OP_CHUNKS:
		if (!t->left_ns) {
			v->call_a = op->arg;
			v->call_b = !t->ticket;
			out(PORT_CHUNK);
			t->ticket = 1;
			if (!v->call_c) {
				t->ticket = 0;
				break;
			}
			t->left_ns = v->call_c;
		}
		if (compute(v, t))
			return NEXT_TASK;
		return GO_ON;
	case OP_EXIT: {
		/* It comes to no barrier any more. */
		u64 *barriers = (u64 *)op->table;

		for (u64 i = 0; i < op->n; i++) {
			struct barrier *b = (struct barrier *)barriers[i];

			__atomic_sub_fetch(&b->members, 1, __ATOMIC_ACQ_REL);
			if (load(b->come))
				release_barrier(v, b);
		}
		t->state = DEAD;
		return NEXT_TASK;
	}
	case OP_LOOP:
		t->pc = t->loop;
		return GO_ON;
	default:
		break;
	}
	t->pc = op + 1;
	return GO_ON;
}

/* Gives each task a turn; gives whether any got further. */
static int round(struct vcpu *v)
{
	int moved = 0;

	for (u64 i = 0; i < v->nr_tasks; i++) {
		struct task *t = &v->tasks[(v->turn + i) % v->nr_tasks];
		int next = GO_ON;

		if (t->state == DEAD)
			continue;
		while (next == GO_ON && !load(v->vm->stop)) {
			next = step(v, t);
			if (next == AGAIN) {
				t->waited = 1;
			} else {
				t->waited = 0;
				store(v->idle, 0);
				moved = 1;
			}
		}
		v->switches++;
	}
	v->turn++;
	return moved;
}

/* Halts until an interrupt or the earliest deadline; the caller has looked, with `idle` set, that
 * nothing can run. */
static void halt(struct vcpu *v)
{
	u64 due = load(v->vm->end_tsc);

	for (u64 i = 0; i < v->nr_tasks; i++) {
		struct task *t = &v->tasks[i];

		if (t->state != DEAD && t->sleeps && t->due < due)
			due = t->due;
	}
	if (due == NEVER)
		due = 0;
	if (v->armed && now() >= v->armed)
		v->armed = 0;
	if (due != v->armed) {
		__asm__ volatile("wrmsr"
				 :
				 : "c"(TSC_DEADLINE), "a"((u32)due), "d"((u32)(due >> 32))
				 : "memory");
		v->armed = due;
	}
	store(v->halts, v->halts + 1);
	__asm__ volatile("sti; hlt; cli" : : : "memory");
}

/* Where a vCPU that only measures the work loop starts: so many turns, then the host. */
void measure(u64 n)
{
	for (;;) {
		loops(n);
		out(PORT_OVER);
	}
}

void guest(struct vcpu *v)
{
	for (;;) {
		if (over(v->vm)) {
			/* Runs on if the host lets it: it is asked again. */
			out(PORT_OVER);
			continue;
		}
		if (round(v))
			continue;
		store(v->idle, 1);
		full_barrier();
		if (!round(v) && !over(v->vm))
			halt(v);
		store(v->idle, 0);
	}
}

/* Exchanges n bytes at two places. */
static inline void exchange(volatile u8 *a, volatile u8 *b, u64 n)
{
	for (u64 i = 0; i < n; i++) {
		u8 other = a[i];

		a[i] = b[i];
		b[i] = other;
	}
}

/* Makes a frame its own answer, if it is for this guest and UDP over IPv4 without options: the one
 * who sent it is the one it is for. The sums over both stay what they are. */
static int answer(volatile u8 *frame, u64 bytes, u64 link)
{
	if (bytes < 42 || (*(volatile u64 *)frame << 16) != link << 16 || frame[12] != 0x08 ||
	    frame[13] != 0x00 || frame[14] != 0x45 || frame[23] != 17)
		return 0;
	exchange(frame, frame + 6, 6);	     /* link */
	exchange(frame + 26, frame + 30, 4); /* address */
	exchange(frame + 34, frame + 36, 2); /* port */
	return 1;
}

/* Gives a slot to the host. */
static void give(struct echo *e, u64 ring, u64 slot)
{
	volatile struct available *a = (volatile struct available *)ring;
	u16 index = a->index;

	a->slots[index & (e->slots - 1)] = (u16)slot;
	store(a->index, (u16)(index + 1));
}

/* Tells the host that it was given something, unless it looks anyway. */
static void ring_bell(u64 used, unsigned short port)
{
	full_barrier();
	if (!(load(((volatile struct used *)used)->flags) & 1))
		out(port);
}

/* Answers what has come; gives whether anything had. */
static int serve(struct echo *e)
{
	volatile struct used *rx = (volatile struct used *)e->rx_used;
	volatile struct used *tx = (volatile struct used *)e->tx_used;
	volatile struct descriptor *to_send = (volatile struct descriptor *)e->tx_descriptors;
	u64 mask = e->slots - 1, given = 0, sent = 0;

	for (; (u16)e->tx_seen != load(tx->index); e->tx_seen++, given++)
		give(e, e->rx_available, tx->slots[e->tx_seen & mask].slot);
	for (; (u16)e->rx_seen != load(rx->index); e->rx_seen++) {
		u64 slot = rx->slots[e->rx_seen & mask].slot;
		u64 bytes = rx->slots[e->rx_seen & mask].bytes, at = e->buffers + slot * 2048;

		if (bytes < 12 || !answer((volatile u8 *)at + 12, bytes - 12, e->link)) {
			store(e->others, e->others + 1);
			give(e, e->rx_available, slot);
			given++;
			continue;
		}
		*(volatile u64 *)at = 0;
		*(volatile u32 *)(at + 8) = 0;
		to_send[slot].bytes = (u32)bytes;
		give(e, e->tx_available, slot);
		store(e->echoed, e->echoed + 1);
		sent++;
	}
	if (sent)
		ring_bell(e->tx_used, PORT_TX);
	if (given)
		ring_bell(e->rx_used, PORT_RX);
	return sent || given;
}

/* Where the vCPU of a guest that only answers frames starts, interrupts off. */
void echo(struct echo *e)
{
	while (!load(e->stop))
		if (!serve(e))
			__asm__ volatile("sti; hlt; cli" : : : "memory");
	for (;;)
		out(PORT_OVER);
}
