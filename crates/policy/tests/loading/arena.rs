// SPDX-License-Identifier: GPL-2.0-only
//! Arenas: pages that a policy asks for, pointers in them, its own variables there, and what is beyond them.
use super::kernel::{Machine, VTABLE, attach};
use super::{enqueue, load, load_trusted};
use berth_policy::abi::{Op, Trap, TrapKind};
use berth_policy::emit::Guarding;
use berth_policy::instance::{Instance, InstanceConfig, Mode};
use berth_policy::policy::Policy;

/// An arena as the scx project's schedulers have it, and words to look at.
const ARENA: &str = "#include <bpf_arena_common.bpf.h>\n#include <lib/arena_map.h>\nu64 seen[8];\n";

fn instance(policy: &Policy, mode: Mode, machine: &mut Machine) -> Box<Instance> {
    let config = InstanceConfig {
        mode,
        ..InstanceConfig::new(8)
    };
    let instance = Instance::new(policy, None, &config, &VTABLE).unwrap();
    attach(&instance, machine);
    instance
}

fn call(instance: &Instance, machine: &mut Machine) -> Result<u64, Trap> {
    let args = [machine.task(1), 0];
    // SAFETY: a live task of the machine.
    unsafe { instance.call(Op::Enqueue, &args) }
}

fn words(instance: &Instance, name: &str) -> Vec<u64> {
    let (at, size) = instance.var(name).unwrap();
    // SAFETY: the variable's words.
    unsafe { std::slice::from_raw_parts(at.cast::<u64>(), size / 8) }.to_vec()
}

/// Guarded, trusted, checked: what `enqueue` left after it was called so many times.
fn seen(globals: &str, body: &str, calls: u32) -> Vec<u64> {
    let text = enqueue(&format!("{ARENA}{globals}"), body);
    let (guarded, trusted) = (load(&text).unwrap(), load_trusted(&text).unwrap());
    let all = [
        (&guarded, Mode::Native),
        (&trusted, Mode::Native),
        (&guarded, Mode::Checked),
    ];
    let mut all = all.map(|(policy, mode)| {
        let mut machine = Machine::new();
        let instance = instance(policy, mode, &mut machine);
        for _ in 0..calls {
            let result = call(&instance, &mut machine);
            result.unwrap_or_else(|t| panic!("{:?} {mode:?}: {t:?}", policy.guarding()));
        }
        (words(&instance, "seen"), instance.insns())
    });
    // What is added to a pointer into an arena no verifier looks at.
    assert_eq!(trusted.guarding(), Guarding::Guarded);
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
    std::mem::take(&mut all[0].0)
}

/// All three say that it is an access of this kind, as often as it is tried.
fn refused(globals: &str, body: &str, writes: bool) {
    let text = enqueue(&format!("{ARENA}{globals}"), body);
    let (guarded, trusted) = (load(&text).unwrap(), load_trusted(&text).unwrap());
    for (policy, mode) in [
        (&guarded, Mode::Native),
        (&trusted, Mode::Native),
        (&guarded, Mode::Checked),
    ] {
        let mut machine = Machine::new();
        let instance = instance(policy, mode, &mut machine);
        for _ in 0..20 {
            let trap = call(&instance, &mut machine).expect_err(body);
            assert!(
                matches!(trap.kind, TrapKind::BadAccess { write, .. } if write == writes),
                "{body}, {:?} {mode:?}: {trap:?}",
                policy.guarding()
            );
        }
    }
}

#[test]
fn a_list_in_pages() {
    let globals = "struct item { struct item __arena *next; u64 value; };\n\
                   struct item __arena *first; u32 used; struct item __arena *page;\n\
                   static struct item __arena *fresh(void) {\n\
                   if (!page || used == 256) {\n\
                   page = bpf_arena_alloc_pages(&arena, NULL, 1, NUMA_NO_NODE, 0); used = 0; }\n\
                   return page ? page + used++ : NULL; }\n";
    let body = "struct item __arena *n = fresh(), *at; u64 sum = 0, count = 0;\n\
                if (!n) { seen[7]++; return; }\n\
                n->value = seen[0]++; n->next = first; first = n;\n\
                for (at = first; at && can_loop; at = at->next) { sum += at->value; count++; }\n\
                seen[1] = sum; seen[2] = count; seen[3] = (u64)n >> 32; __sync_fetch_and_add(&n->value, 1);\n\
                seen[4] = (u32)(u64)n;";
    let found = seen(globals, body, 300);
    // Each value is one more since it was summed up, but for the last.
    assert_eq!(&found[..3], &[300, 299 * 300 / 2 + 299, 300]);
    // As in a kernel: where the object says, page after page.
    let place = ((1u64 << 44) + 4096 + (299 - 256) * 16, 1 << 12);
    assert_eq!((found[3], found[4]), (place.0 >> 32, place.0 as u32 as u64));
    assert_eq!(found[7], 0);
}

#[test]
fn variables_of_the_object() {
    let globals =
        "u64 __arena_global counter = 5; u64 __arena_global table[1000]; u64 __arena *held;";
    let body = "u64 i; bpf_for(i, 0, 1000) table[i] += i;\n\
                counter++; held = &table[999]; seen[0] = counter; seen[1] = *held; seen[2] = table[500];\n\
                seen[3] = (u64)&table[1] - (u64)&table[0];";
    assert_eq!(seen(globals, body, 3)[..4], [8, 2997, 1500, 8]);
    // Each instance has its own, and the host sees them.
    let policy = load(&enqueue(&format!("{ARENA}{globals}"), body)).unwrap();
    let mut machine = Machine::new();
    let mut all: Vec<_> = (0..100)
        .map(|_| instance(&policy, Mode::Native, &mut machine))
        .collect();
    call(&all[7], &mut machine).unwrap();
    assert_eq!(words(&all[7], "counter"), [6]);
    drop(all.remove(7));
    for other in &all {
        assert_eq!(words(other, "counter"), [5]);
        assert_eq!(words(other, "table")[999], 0);
    }
}

#[test]
fn pages_come_and_go() {
    let body = "void __arena *a = bpf_arena_alloc_pages(&arena, NULL, 3, NUMA_NO_NODE, 0), *b;\n\
                u64 __arena *w = a;\n\
                if (!a) return;\n\
                seen[0] = w[0]; w[0] = 1; w[1535] = 2; seen[1] = w[1535];\n\
                bpf_arena_free_pages(&arena, a, 3);\n\
                b = bpf_arena_alloc_pages(&arena, a, 1, NUMA_NO_NODE, 0); seen[2] = a == b; w = b;\n\
                if (b) seen[3] = w[0];\n\
                seen[4] = !bpf_arena_alloc_pages(&arena, a, 1, NUMA_NO_NODE, 0);\n\
                seen[5] = bpf_arena_reserve_pages(&arena, a + 4096, 2);\n\
                seen[6] = bpf_arena_reserve_pages(&arena, a, 1);\n\
                bpf_arena_free_pages(&arena, a, 3);";
    let busy = -16i32 as u32 as u64;
    let found = seen("", body, 5);
    assert_eq!(&found[..6], &[0, 2, 1, 0, 1, 0]);
    assert_eq!(found[6] as u32 as u64, busy);
}

#[test]
fn beyond_the_pages() {
    let page = "u64 __arena *w = bpf_arena_alloc_pages(&arena, NULL, 1, NUMA_NO_NODE, 0); u64 far = seen[7] + ";
    // Past the page, a GiB beyond all of the arena, as far before it.
    for (distance, write) in [
        ("1048576", true),
        ("(1ULL << 29) + (1ULL << 27)", true),
        ("-(1ULL << 27)", false),
    ] {
        let body = match write {
            true => format!("{page}{distance}; if (w) w[far] = 1;"),
            false => format!("{page}{distance}; if (w) seen[0] = w[far];"),
        };
        refused("", &body, write);
    }
    // What was given back, also when it has just been used.
    let body = "u64 __arena *w = bpf_arena_alloc_pages(&arena, NULL, 1, NUMA_NO_NODE, 0); if (!w) return;\n\
                w[0] = 7; bpf_arena_free_pages(&arena, w, 1); seen[0] = w[0];";
    refused("", body, false);
    // NULL is no page, though the first one's lower half is zero.
    let body = "u64 __arena *w = (void __arena *)seen[7];\n\
                bpf_arena_alloc_pages(&arena, NULL, 1, NUMA_NO_NODE, 0); *w = 1;";
    refused("", body, true);
    // A helper as a long arm; and the address of something else in place of an arena.
    let body = "u64 __arena *w = bpf_arena_alloc_pages(&arena, NULL, 1, NUMA_NO_NODE, 0); u64 from = 1;\n\
                bpf_probe_read_kernel((void *)(w + 512), 8, &from);";
    refused("", body, true);
    refused(
        "",
        "bpf_arena_alloc_pages(&seen, NULL, 1, NUMA_NO_NODE, 0);",
        false,
    );
}

#[test]
fn a_pointer_that_was_not_cast() {
    let body = "u64 __arena *w = bpf_arena_alloc_pages(&arena, NULL, 1, NUMA_NO_NODE, 0);\n\
                asm volatile(\"*(u64 *)(%0 + 8) = %0\" :: \"r\"(w) : \"memory\");";
    refused("", body, true);
    let policy = load(&enqueue(ARENA, body)).unwrap();
    let mut machine = Machine::new();
    let instance = instance(&policy, Mode::Checked, &mut machine);
    let trap = call(&instance, &mut machine).expect_err("it is refused");
    let TrapKind::BadAccess { address, .. } = trap.kind else {
        panic!("{trap:?}");
    };
    let said = instance.beyond(address).unwrap();
    assert!(said.contains("map arena that was not cast"), "{said}");
    assert_eq!(instance.beyond(address - (1 << 32)), None);
}

fn not_loaded(globals: &str, body: &str) -> String {
    match load(&enqueue(globals, body)) {
        Ok(_) => panic!("it is loaded: {globals}"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn what_is_refused() {
    let without = "#include <bpf_arena_common.bpf.h>\nu64 __arena *held;";
    let said = not_loaded(without, "if (held) *held = 1;");
    assert!(said.contains("without an arena map"), "{said}");
    let variable = "#include <bpf_arena_common.bpf.h>\nu64 __arena_global v;";
    let said = not_loaded(variable, "v++;");
    assert!(said.contains("without an arena map"), "{said}");
    let other = "struct { __uint(type, BPF_MAP_TYPE_ARENA); __uint(map_flags, BPF_F_MMAPABLE); \
                 __uint(max_entries, 10); } other SEC(\".maps\");";
    let said = not_loaded(&format!("{ARENA}{other}"), "");
    assert!(said.contains("more than one arena"), "{said}");
    let said = not_loaded(&other.replace("10", "0x200000"), "");
    assert!(said.contains("at most 4 GiB"), "{said}");
    // The headers' mark.
    let mark = "const volatile bool __SCX_MARKER_arena_scalar __weak = true;";
    let said = not_loaded(mark, "");
    assert!(said.contains("SCX_ARENA_SCALAR"), "{said}");
}
