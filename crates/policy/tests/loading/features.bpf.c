/* SPDX-License-Identifier: GPL-2.0-only
 *
 * One program per feature of the runtime. Each returns 0, or the line of the first check that
 * failed. features.rs runs them in both executors.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return __LINE__;                                                           \
	} while (0)

extern int CONFIG_HZ __kconfig;
extern bool CONFIG_NO_SUCH_OPTION __kconfig __weak;

struct value {
	u64 count;
	struct bpf_timer timer;
	struct bpf_cpumask __kptr *mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, struct value);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} percpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 3);
	__type(key, u64);
	__type(value, struct value);
} hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 2);
	__type(value, u32);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct value);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} cgroups SEC(".maps");

const volatile u32 constant = 3;
const volatile u32 nr_cpu_ids = 1;
const volatile char text[8] = "before";
const volatile s64 negative = -5;
s8 small = -1;
u64 zero;

SEC("syscall")
int constants(void *ctx)
{
	CHECK(constant == 77 && nr_cpu_ids == 8);
	CHECK(text[0] == 'a' && text[1] == 0);
	CHECK(negative == -5 && small == -1);
	CHECK(CONFIG_HZ == 1000);
	CHECK(!CONFIG_NO_SUCH_OPTION);
	CHECK(LINUX_KERNEL_VERSION >= KERNEL_VERSION(7, 2, 0));
	CHECK(SCX_DSQ_LOCAL == 0x8000000000000002ULL);
	CHECK(SCX_ENQ_LAST == 1ULL << 41 && SCX_ENQ_RESCUE == 0);
	CHECK(bpf_core_enum_value(enum scx_exit_kind, SCX_EXIT_ERROR_STALL) == 1026);
	CHECK(!bpf_core_enum_value_exists(enum scx_exit_kind, SCX_EXIT_ERROR_REENQ));
	CHECK(bpf_core_type_exists(struct task_struct));
	CHECK(!bpf_core_type_exists(struct sk_buff));
	CHECK(bpf_core_field_size(struct task_struct, migration_disabled) == 2);
	return 0;
}

SEC("syscall")
int arithmetic(void *ctx)
{
	u64 big = zero + 0x8000000000000000ULL, one = zero + 1;
	s32 low = (s32)(zero + 0x80000000);
	u32 word = (u32)zero + 0x12345678;
	u64 x = 5;

	CHECK(big / (zero + 3) == 0x2aaaaaaaaaaaaaaaULL);
	CHECK((s64)big >> 63 == -1);
	CHECK((low >> 4) == (s32)0xf8000000);
	CHECK(__builtin_bswap32(word) == 0x78563412);
	CHECK(__builtin_bswap64(one) == 1ULL << 56);
	CHECK((s64)small == -1 && (u8)small == 255);
	CHECK(__sync_fetch_and_add(&x, 3) == 5 && x == 8);
	CHECK(__sync_val_compare_and_swap(&x, 8, 9) == 8 && x == 9);
	CHECK(__sync_val_compare_and_swap(&x, 8, 10) == 9 && x == 9);
	CHECK(__sync_lock_test_and_set(&x, 1) == 9 && x == 1);
	return 0;
}

SEC("syscall")
int arrays(void *ctx)
{
	u32 i = 3;
	u64 *n;
	struct value *v = bpf_map_lookup_elem(&array, &i), new = { .count = 9 };

	CHECK(v);
	v->count = 7;
	v = bpf_map_lookup_elem(&array, &i);
	CHECK(v && v->count == 7);
	CHECK(!bpf_map_update_elem(&array, &i, &new, BPF_ANY) && v->count == 9);
	CHECK(bpf_map_update_elem(&array, &i, &new, BPF_NOEXIST) == -EEXIST);
	CHECK(bpf_map_delete_elem(&array, &i) == -EINVAL);
	i = 4;
	CHECK(!bpf_map_lookup_elem(&array, &i));
	CHECK(bpf_map_update_elem(&array, &i, &new, 0) == -E2BIG);
	i = 1;
	n = bpf_map_lookup_elem(&percpu, &i);
	CHECK(n && bpf_get_smp_processor_id() == 2);
	*n = 5;
	n = bpf_map_lookup_percpu_elem(&percpu, &i, 2);
	CHECK(n && *n == 5);
	n = bpf_map_lookup_percpu_elem(&percpu, &i, 0);
	CHECK(n && *n == 0);
	CHECK(!bpf_map_lookup_percpu_elem(&percpu, &i, 8));
	return 0;
}

SEC("syscall")
int hashes(void *ctx)
{
	struct value new = { .count = 1 }, *v;
	u64 k;

	bpf_for(k, 0, 3) {
		u64 key = k;

		CHECK(!bpf_map_update_elem(&hash, &key, &new, BPF_NOEXIST));
	}
	k = 9;
	CHECK(bpf_map_update_elem(&hash, &k, &new, 0) == -E2BIG);
	k = 1;
	CHECK(bpf_map_update_elem(&hash, &k, &new, BPF_NOEXIST) == -EEXIST);
	v = bpf_map_lookup_elem(&hash, &k);
	CHECK(v && v->count == 1);
	CHECK(!bpf_map_delete_elem(&hash, &k) && !bpf_map_lookup_elem(&hash, &k));
	CHECK(bpf_map_delete_elem(&hash, &k) == -ENOENT);
	CHECK(bpf_map_update_elem(&hash, &k, &new, BPF_EXIST) == -ENOENT);
	return 0;
}

SEC("syscall")
int queues(void *ctx)
{
	u32 v = 1;

	CHECK(!bpf_map_push_elem(&queue, &v, 0));
	v = 2;
	CHECK(!bpf_map_push_elem(&queue, &v, 0));
	CHECK(bpf_map_push_elem(&queue, &v, 0) == -E2BIG);
	CHECK(!bpf_map_peek_elem(&queue, &v) && v == 1);
	CHECK(!bpf_map_pop_elem(&queue, &v) && v == 1);
	CHECK(!bpf_map_pop_elem(&queue, &v) && v == 2);
	CHECK(bpf_map_pop_elem(&queue, &v) == -ENOENT);
	return 0;
}

SEC("syscall")
int rings(void *ctx)
{
	u64 *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0), last = 8;

	CHECK(record);
	*record = 7;
	bpf_ringbuf_submit(record, 0);
	record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
	CHECK(record);
	bpf_ringbuf_discard(record, 0);
	CHECK(!bpf_ringbuf_output(&ring, &last, sizeof(last), 0));
	CHECK(!bpf_ringbuf_reserve(&ring, 1 << 20, 0));
	return 0;
}

SEC("syscall")
int storages(void *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct value first = { .count = 4 }, *v;
	struct cgroup *c;
	u64 *n;

	CHECK(p && !bpf_task_storage_get(&tasks, p, 0, 0));
	v = bpf_task_storage_get(&tasks, p, &first, BPF_LOCAL_STORAGE_GET_F_CREATE);
	CHECK(v && v->count == 4);
	v->count++;
	v = bpf_task_storage_get(&tasks, p, &first, BPF_LOCAL_STORAGE_GET_F_CREATE);
	CHECK(v && v->count == 5);
	CHECK(!bpf_task_storage_delete(&tasks, p) && !bpf_task_storage_get(&tasks, p, 0, 0));
	CHECK(bpf_task_storage_delete(&tasks, p) == -ENOENT);
	v = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	CHECK(v && v->count == 0);
	c = bpf_cgroup_from_id(1);
	CHECK(c);
	n = bpf_cgrp_storage_get(&cgroups, c, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	CHECK(n && *n == 0);
	bpf_cgroup_release(c);
	return 0;
}

SEC("syscall")
int masks(void *ctx)
{
	struct bpf_cpumask *a = bpf_cpumask_create(), *b = bpf_cpumask_create(), *old;
	u32 i = 0, seen = 0;
	struct value *v = bpf_map_lookup_elem(&array, &i);
	u64 bits = 0x15;
	int *bit;

	CHECK(a && b && a != b && v);
	CHECK(bpf_cpumask_empty(cast_mask(a)) && bpf_cpumask_first(cast_mask(a)) >= 8);
	bpf_cpumask_set_cpu(3, a);
	bpf_cpumask_set_cpu(100, a);
	CHECK(bpf_cpumask_weight(cast_mask(a)) == 1 && bpf_cpumask_test_cpu(3, cast_mask(a)));
	bpf_cpumask_setall(b);
	CHECK(bpf_cpumask_full(cast_mask(b)) && bpf_cpumask_weight(cast_mask(b)) == 8);
	CHECK(bpf_cpumask_subset(cast_mask(a), cast_mask(b)));
	CHECK(!bpf_cpumask_subset(cast_mask(b), cast_mask(a)));
	CHECK(bpf_cpumask_test_and_clear_cpu(3, b) && !bpf_cpumask_test_and_clear_cpu(3, b));
	CHECK(!bpf_cpumask_intersects(cast_mask(a), cast_mask(b)));
	CHECK(!bpf_cpumask_and(b, cast_mask(a), cast_mask(b)));
	bpf_cpumask_or(b, cast_mask(a), cast_mask(b));
	CHECK(bpf_cpumask_equal(cast_mask(a), cast_mask(b)));
	CHECK(bpf_cpumask_first_zero(cast_mask(b)) == 0);
	bpf_cpumask_set_cpu(6, b);
	CHECK(bpf_cpumask_any_distribute(cast_mask(b)) == 3);
	CHECK(bpf_cpumask_any_distribute(cast_mask(b)) == 6);
	CHECK(bpf_cpumask_any_distribute(cast_mask(b)) == 3);
	bpf_cpumask_release(b);
	old = bpf_kptr_xchg(&v->mask, a);
	CHECK(!old && v->mask);
	old = bpf_kptr_xchg(&v->mask, NULL);
	CHECK(old && bpf_cpumask_test_cpu(3, cast_mask(old)));
	/* What stays in the map is released when the element is overwritten. */
	old = bpf_kptr_xchg(&v->mask, old);
	CHECK(!old);
	bpf_for_each(bits, bit, &bits, 1)
		seen |= 1 << *bit;
	CHECK(seen == 0x15);
	return 0;
}

struct walk {
	u64 sum;
	u64 stop_at;
};

static long add_round(u64 i, void *context)
{
	struct walk *w = context;

	w->sum += i;
	return i == w->stop_at;
}

static u64 add_element(struct bpf_map *map, u32 *key, struct value *v, struct walk *w)
{
	w->sum += *key + 10 * v->count;
	return *key == w->stop_at;
}

SEC("syscall")
int loops(void *ctx)
{
	struct walk w = { .stop_at = 100 };
	struct value new = { .count = 1 };
	u32 i, all = 0;

	CHECK(bpf_loop(10, add_round, &w, 0) == 10 && w.sum == 45);
	w.stop_at = 3;
	w.sum = 0;
	CHECK(bpf_loop(10, add_round, &w, 0) == 4 && w.sum == 6);
	CHECK(bpf_loop((1 << 23) + 1, add_round, &w, 0) == -E2BIG);
	CHECK(bpf_loop(1, add_round, &w, 1) == -EINVAL);
	bpf_for(i, 0, 4) {
		u32 key = i;

		CHECK(!bpf_map_update_elem(&array, &key, &new, 0));
		all += i;
	}
	CHECK(all == 6);
	w.sum = 0;
	w.stop_at = 99;
	CHECK(bpf_for_each_map_elem(&array, add_element, &w, 0) == 4 && w.sum == 46);
	w.sum = 0;
	w.stop_at = 1;
	CHECK(bpf_for_each_map_elem(&array, add_element, &w, 0) == 2 && w.sum == 21);
	return 0;
}

SEC("syscall")
int strings(void *ctx)
{
	char out[24] = {}, copy[4] = "xxx";
	u64 args[3] = { 42, -1, 0xab };
	struct task_struct *p = bpf_get_current_task_btf();
	long number = 0;

	CHECK(bpf_snprintf(out, sizeof(out), "%d|%4d|%#llx", args, sizeof(args)) == 13);
	CHECK(!bpf_strncmp(out, 14, "42|  -1|0xab"));
	CHECK(bpf_strncmp(out, 14, "43|") != 0);
	CHECK(bpf_probe_read_kernel_str(copy, sizeof(copy), p->comm) == 4);
	CHECK(copy[0] == 't' && copy[3] == 0);
	CHECK(bpf_probe_read_kernel(copy, sizeof(copy), (void *)16) == -EFAULT && copy[0] == 0);
	CHECK(bpf_strtol("-12 ", 4, 10, &number) == 3 && number == -12);
	CHECK(BPF_CORE_READ(p, real_parent, pid) == 100);
	bpf_printk("line %d", 1);
	return 0;
}

static int on_timer(void *map, u32 *key, struct value *v)
{
	v->count = 1000 + *key;
	return 0;
}

SEC("syscall")
int timers(void *ctx)
{
	u32 i = 2;
	struct value *v = bpf_map_lookup_elem(&array, &i);

	CHECK(v);
	CHECK(!bpf_timer_init(&v->timer, &array, CLOCK_MONOTONIC));
	CHECK(!bpf_timer_set_callback(&v->timer, on_timer));
	CHECK(!bpf_timer_start(&v->timer, 1000, 0));
	return 0;
}

struct numbers {
	u64 a, b, sum;
};

SEC("syscall")
int context(struct numbers *n)
{
	n->sum = n->a + n->b;
	return 0;
}

SEC("syscall")
int locks(void *ctx)
{
	unsigned long flags;

	bpf_rcu_read_lock();
	bpf_preempt_disable();
	bpf_local_irq_save(&flags);
	bpf_local_irq_restore(&flags);
	bpf_preempt_enable();
	bpf_rcu_read_unlock();
	CHECK(bpf_ktime_get_ns() == 555 && scx_bpf_now() == 444);
	CHECK(bpf_get_prandom_u32() != bpf_get_prandom_u32());
	return 0;
}
