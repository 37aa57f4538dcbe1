// SPDX-License-Identifier: GPL-2.0-only
//! Objects that mean harm: whatever they reach for outside their instance is refused, by translated code as by the
//! interpreter.
use super::{enqueue, in_both, load};
use berth_policy::abi::{Trap, TrapKind};
use berth_policy::emit::{self, Guarding};

/// Calls `enqueue` with the body in both executors, on a machine of 1,024 CPUs.
fn attack(globals: &str, body: &str) -> [Trap; 2] {
    let policy = load(&enqueue(globals, body)).unwrap();
    in_both(&policy, 1024, |_, call| {
        let trap = call().expect_err(body);
        // It can be called again, as often as it likes to be refused.
        for _ in 0..100 {
            assert_eq!(call().map_err(|t| t.kind), Err(trap.kind.clone()), "{body}");
        }
        trap
    })
}

/// What both say is an access of this kind, nowhere in particular.
fn refused(globals: &str, body: &str, writes: bool) {
    for trap in attack(globals, body) {
        assert!(
            matches!(trap.kind, TrapKind::BadAccess { write, .. } if write == writes),
            "{body}: {trap:?}"
        );
    }
}

#[test]
fn arrays_that_a_loader_would_have_resized() {
    let globals = "u64 RESIZABLE_ARRAY(data, slots);";
    refused(
        globals,
        "u32 i; bpf_for(i, 0, scx_bpf_nr_cpu_ids() + 1000) ((volatile u64 *)slots)[i] = ~0ULL;",
        true,
    );
    let globals = "u64 RESIZABLE_ARRAY(rodata, limits); u64 sum;";
    refused(
        globals,
        "u32 i; bpf_for(i, 0, 1000) sum += ((volatile u64 *)limits)[i];",
        false,
    );
}

#[test]
fn beyond_ones_own_memory() {
    // So far that none of its own pieces is there by chance: they are allocated beside each other.
    let globals = "u64 here; u64 far = 1 << 30; volatile u64 sum;";
    for distance in ["far", "-far", "(far << 2)", "-(far << 2)"] {
        let at = format!("((volatile u8 *)&here)[(s64){distance}]");
        refused(globals, &format!("{at} = 1;"), true);
        refused(globals, &format!("sum += {at};"), false);
    }
    // Read-only data is what it says.
    refused(
        "const volatile u64 fixed = 7;",
        "*(volatile u64 *)&fixed = 8;",
        true,
    );
}

#[test]
fn beyond_an_array_map_and_its_stack() {
    let globals = "struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 2); __type(key, u32); \
                   __type(value, u64); } m SEC(\".maps\"); u64 far = 1 << 27;";
    let body =
        "u32 k = 1; u64 *v = bpf_map_lookup_elem(&m, &k); if (v) ((volatile u64 *)v)[far] = 1;";
    refused(globals, body, true);
    // What describes the map is not the policy's.
    refused(globals, "*(volatile u64 *)&m = far;", true);
    let stack = "u64 a[4] = {}; u64 i = far << 3; asm volatile(\"\" :: \"r\"(a)); ((volatile u64 *)a)[i] = 1;";
    refused(globals, stack, true);
    let below = stack.replace("[i] = 1", "[-(s64)i] = 1");
    refused(globals, &below, true);
}

#[test]
fn kernel_functions_as_a_long_arm() {
    let globals = "u64 where = 0x400000; u64 from;";
    for (body, writes) in [
        ("bpf_probe_read_kernel((void *)where, 8, &from);", true),
        (
            "u64 t[1]; bpf_loop(4, (void *)where, t, 0); *(volatile u64 *)where = 1;",
            true,
        ),
    ] {
        refused(globals, body, writes);
    }
    let map = "struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 2); __type(key, u32); \
               __type(value, u64); } m SEC(\".maps\"); u64 where = 0x400000;";
    refused(
        map,
        "u32 k = 1; bpf_map_update_elem(&m, &k, (void *)where, 0);",
        false,
    );
    refused(
        map,
        "u64 v = 1; bpf_map_update_elem(&m, (void *)where, &v, 0);",
        false,
    );
    refused(
        map,
        "u32 k = 1; bpf_map_lookup_elem((void *)where, &k);",
        false,
    );
    refused(
        map,
        "bpf_iter_num_new((struct bpf_iter_num *)where, 0, 3);",
        true,
    );
}

#[test]
fn masks_are_as_wide_as_the_machine() {
    // One word of its own, and a CPU sixteen words further.
    let globals = "u64 word; u32 cpu = 1000; u64 sum;";
    for (body, writes) in [
        (
            "bpf_cpumask_set_cpu(cpu, (struct bpf_cpumask *)&word);",
            true,
        ),
        (
            "bpf_cpumask_clear_cpu(cpu, (struct bpf_cpumask *)&word);",
            true,
        ),
        (
            "sum += bpf_cpumask_test_cpu(cpu, (struct cpumask *)&word);",
            false,
        ),
        ("bpf_cpumask_setall((struct bpf_cpumask *)&word);", true),
        ("sum += bpf_cpumask_weight((struct cpumask *)&word);", false),
    ] {
        refused(globals, body, writes);
    }
}

#[test]
fn functions_that_call_each_other_too_deeply() {
    let down = |n: u32| {
        format!(
            "__noinline u64 f{n}(u64 k) {{ u64 a[8] = {{ k }}; asm volatile(\"\" :: \"r\"(a)); return a[0] + f{}(k); \
             }}\n",
            n + 1
        )
    };
    let functions: String = (0..10).rev().map(down).collect();
    let globals = format!("u64 n; __noinline u64 f10(u64 k) {{ return k + n; }}\n{functions}");
    for trap in attack(&globals, "n += f0(enq_flags);") {
        assert_eq!(trap.kind, TrapKind::CallDepth { frames: 8 }, "{trap:?}");
    }
    // A helper's callback that calls the helper again.
    let globals = "u64 n; static int again(u32 i, void *context) { n++; bpf_loop(1, again, context, 0); return 0; }";
    for trap in attack(globals, "u64 c; bpf_loop(1, again, &c, 0);") {
        assert_eq!(trap.kind, TrapKind::CallDepth { frames: 8 }, "{trap:?}");
    }
}

/// Why it is not even loaded.
fn not_loaded(globals: &str, body: &str) -> String {
    match load(&enqueue(globals, body)) {
        Ok(_) => panic!("it is loaded: {globals} {body}"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn names_are_no_program_text() {
    let globals = "u64 n; __noinline u64 f(u64 k) __asm__(\"x**// int evil(void) { /*\");\n\
                   __noinline u64 f(u64 k) { return k + n; }";
    let policy = load(&enqueue(globals, "n += f(enq_flags);")).unwrap();
    let text = emit::translate(policy.program(), "x", Guarding::Guarded).text;
    assert!(
        policy
            .program()
            .funcs
            .iter()
            .any(|f| f.name.contains("evil(void)"))
    );
    assert!(!text.contains("evil(void)"));
}

#[test]
fn the_stack_is_where_it_is() {
    let said = not_loaded("", "asm volatile(\"r10 = 0\" ::: \"memory\");");
    assert!(said.contains("r10"), "{said}");
    // Four times around the numbers of 32 bits, and 2,000 bytes further.
    let around = "asm volatile(\"r2 = r10; r2 += 0x7fffffff; r2 += 0x7fffffff; r2 += 2002; *(u64 *)(r2 + 0) = r2\" ::: \
     \"r2\", \"memory\");";
    refused("", around, true);
}

#[test]
fn sizes_that_are_none() {
    let globals = "u64 where = 0x400000;";
    refused(
        globals,
        "bpf_get_current_comm((void *)where, 0x40000001);",
        true,
    );
    refused(globals, "scx_bpf_events((void *)where, 1ULL << 32);", true);
    let globals = "u64 where = 0x400000; u64 bits[16];";
    refused(
        globals,
        "bpf_cpumask_populate((struct bpf_cpumask *)bits, (void *)where, 1ULL << 32);",
        true,
    );
}

#[test]
fn maps_whose_values_do_not_hold_what_they_say() {
    let globals = "struct big { char gap[100000]; struct bpf_timer t; };\n\
                   struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 2); __type(key, u32); \
                   __type(value, struct big); __uint(value_size, 8); } m SEC(\".maps\");";
    let body = "u32 k = 0; bpf_map_lookup_elem(&m, &k);";
    let said = not_loaded(globals, body);
    assert!(said.contains("outside its values"), "{said}");
    let globals = "struct { __uint(type, BPF_MAP_TYPE_TASK_STORAGE); __uint(map_flags, BPF_F_NO_PREALLOC); \
                   __uint(key_size, 0); __type(value, u64); } m SEC(\".maps\");";
    let said = not_loaded(globals, "bpf_task_storage_get(&m, p, 0, 1);");
    assert!(said.contains("keys of four bytes"), "{said}");
}

#[test]
fn a_forged_iterator_ends() {
    let globals = "u64 sum; u64 bits = 1;";
    let body = "struct bpf_iter_bits it; u32 *forged = (u32 *)&it; int *at; int i;\n\
                bpf_iter_bits_new(&it, &bits, 1);\n\
                forged[0] = 0; forged[1] = 0; forged[2] = ~0U; forged[3] = 0x7fffffff;\n\
                bpf_for(i, 0, 4) { at = bpf_iter_bits_next(&it); if (at) sum += *at; }\n\
                bpf_iter_bits_destroy(&it);";
    let policy = load(&enqueue(globals, body)).unwrap();
    in_both(&policy, 8, |_, call| call().unwrap());
}
