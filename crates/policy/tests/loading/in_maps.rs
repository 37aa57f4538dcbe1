// SPDX-License-Identifier: GPL-2.0-only
//! Maps in maps: which map an element is, and what is refused.
use super::{enqueue, in_both, load, words};

/// Calls `enqueue` with the body in both executors; what it left in the words of `seen`.
fn seen(globals: &str, body: &str) -> Vec<u64> {
    let globals = format!("u64 seen[8];\n{globals}");
    let policy = load(&enqueue(&globals, body)).unwrap();
    let [native, checked] = in_both(&policy, 8, |instance, call| {
        call().unwrap();
        words(instance)
    });
    assert_eq!(native, checked);
    native
}

fn refused(globals: &str, body: &str) -> String {
    match load(&enqueue(globals, body)) {
        Ok(_) => panic!("it is loaded: {globals}"),
        Err(e) => e.to_string(),
    }
}

const QUEUES: &str = "struct queue { __uint(type, BPF_MAP_TYPE_QUEUE); __uint(max_entries, 2); __type(value, u32); } \
                      q0 SEC(\".maps\"), q1 SEC(\".maps\");\n";

#[test]
fn an_array_begins_with_the_maps_of_the_object() {
    let globals = format!(
        "{QUEUES}struct {{ __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 4); __uint(key_size, 4);\n\
         __uint(value_size, 4); __array(values, struct queue); }} bands SEC(\".maps\") = {{\n\
         .values = {{ [0] = &q1, [2] = &q0 }} }};"
    );
    let body = "u32 i, v;\n\
                bpf_for(i, 0, 5) { u32 k = i; void *q = bpf_map_lookup_elem(&bands, &k); v = 10 + i;\n\
                if (q) { seen[i] = 1; bpf_map_push_elem(q, &v, 0); bpf_map_push_elem(q, &v, 0);\n\
                seen[i] = bpf_map_push_elem(q, &v, 0); } }\n\
                if (!bpf_map_pop_elem(&q1, &v)) seen[5] = v;\n\
                if (!bpf_map_pop_elem(&q0, &v)) seen[6] = v;";
    let full = -7i64 as u64;
    assert_eq!(seen(&globals, body), [full, 0, full, 0, 0, 10, 12, 0]);
}

#[test]
fn a_hash_has_them_by_their_number() {
    let globals = "struct one { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, u32);\n\
                   __type(value, u64); } a SEC(\".maps\"), b SEC(\".maps\");\n\
                   struct { __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS); __uint(max_entries, 9); __type(key, u32);\n\
                   __array(values, struct one); } by SEC(\".maps\") = { .values = { &a, &b } };";
    let body = "u32 i, zero = 0; u64 *v = bpf_map_lookup_elem(&b, &zero); if (v) *v = 77;\n\
                bpf_for(i, 0, 4) { u32 k = i; void *m = bpf_map_lookup_elem(&by, &k);\n\
                if (m) { v = bpf_map_lookup_elem(m, &zero); seen[i] = v ? *v + 1 : 5; } }";
    assert_eq!(seen(globals, body), [1, 78, 0, 0, 0, 0, 0, 0]);
}

/// What its own loader would fill (a queue for each cgroup, say).
#[test]
fn an_array_without_maps_has_one_of_its_template_for_each_element() {
    let globals = "struct { __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 3000); __uint(key_size, 4);\n\
         __uint(value_size, 4); __array(values, struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 8);\n\
         __type(key, u32); __type(value, u64); }); } each SEC(\".maps\");";
    let body = "u32 at[3] = { 0, 2999, 3000 }; int i; u64 v;\n\
                bpf_for(i, 0, 3) { u32 k = at[i & 3]; void *m = bpf_map_lookup_elem(&each, &k); u64 *e;\n\
                if (!m) { seen[i] = 9; continue; } v = 100 + i; bpf_map_update_elem(m, &k, &v, 0);\n\
                e = bpf_map_lookup_elem(m, &k); seen[i] = e ? *e : 1;\n\
                k = 0; m = bpf_map_lookup_elem(&each, &k); seen[4] = m ? bpf_map_sum_elem_count(m) : 7; }";
    let globals = format!(
        "{globals}\n__s64 bpf_map_sum_elem_count(const struct bpf_map *map) __ksym __weak;"
    );
    assert_eq!(seen(&globals, body), [100, 101, 9, 0, 1, 0, 0, 0]);
}

#[test]
fn an_element_is_no_memory_of_the_policys() {
    let globals = format!(
        "{QUEUES}struct {{ __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 1); __uint(key_size, 4);\n\
         __array(values, struct queue); }} bands SEC(\".maps\") = {{ .values = {{ &q0 }} }};"
    );
    let body = "u32 k = 0; volatile u64 *q = bpf_map_lookup_elem(&bands, &k); if (q) *q = 1;";
    let policy = load(&enqueue(&globals, body)).unwrap();
    in_both(&policy, 8, |instance, call| {
        call().expect_err("it is refused");
        // The host sees maps, not where they are.
        let bands = instance.map("bands").unwrap();
        assert_eq!(bands.lookup(&0u32.to_le_bytes()), None);
        assert_eq!(bands.len(), 1);
    });
}

#[test]
fn what_maps_in_maps_cannot_be() {
    let outer = |entries: u32, inner: &str| {
        format!(
            "struct {{ __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, {entries}); \
             __uint(key_size, 4); __array(values, struct {{ {inner} }}); }} outer SEC(\".maps\");"
        )
    };
    let body = "u32 k = 0; bpf_map_lookup_elem(&outer, &k);";
    let queue = "__uint(type, BPF_MAP_TYPE_QUEUE); __uint(max_entries, 2); __type(value, u32);";
    let said = refused(&outer(100_000, queue), body);
    assert!(said.contains("map outer has 100000"), "{said}");
    let nested = "__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 2); __uint(key_size, 4); \
                  __array(values, struct { __uint(type, BPF_MAP_TYPE_QUEUE); });";
    let said = refused(&outer(2, nested), body);
    assert!(said.contains("maps in maps in maps (map outer)"), "{said}");
    let trie = "__uint(type, BPF_MAP_TYPE_LPM_TRIE); __uint(max_entries, 2); __uint(key_size, 8); \
                __uint(value_size, 4);";
    let said = refused(&outer(2, trie), body);
    assert!(said.contains("type 11, LPM_TRIE (map in outer)"), "{said}");
}
