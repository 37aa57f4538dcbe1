/* SPDX-License-Identifier: GPL-2.0-only */
/* Maps of every kind and variables in every kind of section, for programs that are made up. */
#include <scx/common.bpf.h>
#include <bpf_arena_common.bpf.h>
#include <lib/arena_map.h>

char _license[] SEC("license") = "GPL";

struct value {
	u64 a, b;
	struct bpf_timer timer;
	struct bpf_cpumask __kptr *mask;
	u32 c;
};

#define MAP(name, kind, entries, key_type, value_type)                                             \
	struct {                                                                                   \
		__uint(type, kind);                                                                \
		__uint(max_entries, entries);                                                      \
		__type(key, key_type);                                                             \
		__type(value, value_type);                                                         \
	} name SEC(".maps")

MAP(array, BPF_MAP_TYPE_ARRAY, 5, u32, struct value);
MAP(percpu, BPF_MAP_TYPE_PERCPU_ARRAY, 3, u32, u64);
MAP(hash, BPF_MAP_TYPE_HASH, 6, u64, struct value);
MAP(percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, 4, u32, u32);
MAP(lru, BPF_MAP_TYPE_LRU_HASH, 4, u32, u64);

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 4);
	__type(value, u64);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 4);
	__type(value, struct value);
} stack SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 8);
	__uint(key_size, 4);
	__uint(value_size, 4);
} events SEC(".maps");

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
	__type(value, u32);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_HASH);
			__uint(max_entries, 4);
			__type(key, u32);
			__type(value, u64);
		});
} maps SEC(".maps");

u64 zeros[20];
u64 numbers[4] = { 1, 2, 3, 4 };
const volatile u32 fixed[7] = { 7 };
u8 alone[3] SEC(".data.alone");
u64 __arena_global shared[40];

SEC("syscall") int nothing(void *context)
{
	return zeros[0] + numbers[0] + fixed[0] + alone[0] + shared[0];
}
