// SPDX-License-Identifier: GPL-2.0-only
//! Objects of a policy's own, in trees and lists, and as kernel pointers in maps.
use super::{enqueue, in_both, load, words};
use berth_policy::abi::{Trap, TrapKind};

const NODES: &str = "u64 seen[16];\n\
    struct item { struct bpf_rb_node rb; struct bpf_list_node link; u64 key, born; };\n\
    private(T) struct bpf_spin_lock lock; private(T) struct bpf_rb_root tree __contains(item, rb);\n\
    private(L) struct bpf_list_head list __contains(item, link);\n\
    struct box { struct item __kptr *node; };\n\
    struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 4); __type(key, u32); __type(value, struct box); }\n\
    boxes SEC(\".maps\");\n\
    static bool less(struct bpf_rb_node *a, const struct bpf_rb_node *b) {\n\
    return container_of(a, struct item, rb)->key < container_of(b, struct item, rb)->key; }\n";

type Result = std::result::Result<Vec<u64>, Trap>;

/// What both executors leave in `seen` after so many calls.
fn run(body: &str, calls: u32) -> [Result; 2] {
    let policy = load(&enqueue(NODES, body)).unwrap();
    in_both(&policy, 8, |instance, call| {
        for _ in 0..calls {
            call()?;
        }
        Ok(words(instance))
    })
}

fn seen(body: &str, calls: u32) -> Vec<u64> {
    let [native, checked] = run(body, calls);
    let native = native.unwrap();
    assert_eq!(native, checked.unwrap());
    native
}

#[test]
fn a_tree_is_in_order() {
    // Keys 5, 2, 5, 9, 2: equals stay in the order in which they came.
    let body = "u64 keys[5] = { 5, 2, 5, 9, 2 }; struct bpf_rb_node *first; struct item *n; u32 i;\n\
                bpf_for(i, 0, 5) { n = bpf_obj_new(struct item); if (!n) return;\n\
                n->key = keys[i & 7]; n->born = i; seen[15] += bpf_rbtree_add(&tree, &n->rb, less) != 0; }\n\
                bpf_for(i, 0, 6) { first = bpf_rbtree_first(&tree); if (!first) { seen[i] = 99; break; }\n\
                first = bpf_rbtree_remove(&tree, first); if (!first) break;\n\
                n = container_of(first, struct item, rb); seen[i] = n->key * 10 + n->born; bpf_obj_drop(n); }";
    assert_eq!(seen(body, 4)[..6], [21, 24, 50, 52, 93, 99]);
    assert_eq!(seen(body, 1)[15], 0);
}

#[test]
fn a_list_has_two_ends() {
    let body = "struct bpf_list_node *at; struct item *n; u32 i;\n\
                bpf_for(i, 0, 4) { n = bpf_obj_new(struct item); if (!n) return; n->key = i;\n\
                if (i & 1) bpf_list_push_front(&list, &n->link); else bpf_list_push_back(&list, &n->link); }\n\
                bpf_for(i, 0, 5) { at = i & 1 ? bpf_list_pop_back(&list) : bpf_list_pop_front(&list);\n\
                if (!at) { seen[i] = 99; break; }\n\
                n = container_of(at, struct item, link); seen[i] = n->key; bpf_obj_drop(n); }";
    // 3 1 0 2
    assert_eq!(seen(body, 3)[..5], [3, 2, 1, 0, 99]);
}

#[test]
fn an_object_goes_with_its_map_element() {
    let body = "struct box none = {}, *box; struct item *n; u32 k = 1;\n\
                bpf_map_update_elem(&boxes, &k, &none, 0); box = bpf_map_lookup_elem(&boxes, &k); if (!box) return;\n\
                n = bpf_obj_new(struct item); if (!n) return; n->key = 7; seen[1] += n->born; n->born = 1;\n\
                n = bpf_kptr_xchg(&box->node, n); seen[2] += !!n; if (n) bpf_obj_drop(n);\n\
                bpf_map_delete_elem(&boxes, &k); seen[0]++;";
    // As often as there is no memory for, were they not given back; and always new.
    assert_eq!(seen(body, 5000)[..3], [5000, 0, 0]);
}

#[test]
fn what_is_gone_or_another_is_no_object() {
    // Memory of this test, at whatever distance from an object: any other place there could be the instance's own.
    let foreign = [0_u64; 8];
    let gone = "struct item *n = bpf_obj_new(struct item); if (!n) return;\n\
                bpf_obj_drop(n); seen[0] = n->key; seen[1] = *(volatile u64 *)((char *)n + (foreign - (u64)n));";
    let beyond = "struct item *n = bpf_obj_new(struct item); if (!n) return;\n\
                *(volatile u64 *)((char *)n + (foreign - (u64)n)) = 1;";
    for (body, writes) in [(gone, false), (beyond, true)] {
        let policy = load(&enqueue(&format!("{NODES}u64 foreign;\n"), body)).unwrap();
        let traps = in_both(&policy, 8, |instance, call| {
            let (at, _) = instance.var("foreign").unwrap();
            // SAFETY: the variable's word.
            unsafe { at.cast::<u64>().write(foreign.as_ptr() as u64) };
            call().expect_err(body)
        });
        for trap in traps {
            assert!(
                matches!(trap.kind, TrapKind::BadAccess { write, .. } if write == writes),
                "{trap:?}"
            );
        }
    }
    // In the tree twice, not in it, and no object at all.
    let body = "struct item *n = bpf_obj_new(struct item); struct bpf_rb_node own = {}; if (!n) return;\n\
                seen[0] = bpf_rbtree_add(&tree, &n->rb, less); seen[1] = bpf_rbtree_add(&tree, &n->rb, less) != 0;\n\
                seen[2] = bpf_rbtree_add(&tree, &own, less) != 0; seen[3] = !!bpf_rbtree_remove(&tree, &n->rb);\n\
                seen[4] = !!bpf_rbtree_remove(&tree, &n->rb); bpf_obj_drop(n); bpf_obj_drop((void *)&own);\n\
                seen[5] = !!bpf_rbtree_first(&tree);";
    assert_eq!(seen(body, 2)[..6], [0, 1, 1, 1, 0, 0]);
}
