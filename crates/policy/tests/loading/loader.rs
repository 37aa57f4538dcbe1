// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduler's own loader would set: variables, flags, lengths of arrays, in the object's bytes.
use super::{enqueue, kernel};
use berth_policy::abi::Op;
use berth_policy::btf::Btf;
use berth_policy::compile::{CompileOptions, compile};
use berth_policy::identity;
use berth_policy::instance::{Instance, InstanceConfig, Mode};
use berth_policy::loader::{Ready, Setup, flags, ready, scheduler};
use berth_policy::policy::{LoadOptions, Policy};

const GLOBALS: &str = r#"
enum kind { SMALL = 3, LARGE = 70000 };
struct pair { u32 left; s16 right[2]; };
const volatile u64 slice_ns;
const volatile bool eager = true;
const volatile s32 least = -5;
const volatile enum kind kind = SMALL;
const volatile u64 preferred[4] = { 7, 6 };
const volatile char name[8] = "abc";
const volatile struct pair pair;
const u32 fixed = 9;
u64 begins = 5;
u64 counted;
u64 seen[16];
u64 per_cpu[1] SEC(".data.per_cpu");
u64 gone[1] SEC(".bss.gone");
u64 other[3] SEC(".data.elsewhere");
"#;

/// Writes what it finds into `seen`, and the last CPU's elements of both arrays.
const BODY: &str = r#"
	seen[0] = slice_ns; seen[1] = eager; seen[2] = (s64)least; seen[3] = kind;
	seen[4] = preferred[0]; seen[5] = preferred[2]; seen[6] = name[0]; seen[7] = pair.right[1];
	seen[8] = begins;
	u64 *at = MEMBER_VPTR(seen, [9]);
	u32 last = 3;
	u64 *mine = (u64 *)((char *)per_cpu + last * 8);
	barrier_var(mine);
	if (at) *at = 1;
	*mine += 41;
	seen[10] = *mine;
"#;

fn object() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("foreign.bpf.c");
    std::fs::write(&path, enqueue(GLOBALS, BODY)).unwrap();
    compile(&path, &CompileOptions::default()).unwrap()
}

fn setup(values: &[(&str, &str)]) -> Setup {
    let values = values.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    Setup {
        values: values.collect(),
        cpus: 4,
        kernel: (7, 2),
        ..Setup::default()
    }
}

/// What `enqueue` found.
fn seen(object: &[u8], mode: Mode) -> Result<Vec<u64>, String> {
    let policy = Policy::from_object(object, &LoadOptions::default()).map_err(|e| e.to_string())?;
    let machine = &mut *kernel::Machine::new();
    let config = InstanceConfig {
        mode,
        ..InstanceConfig::new(4)
    };
    let instance =
        Instance::new(&policy, None, &config, &kernel::VTABLE).map_err(|e| e.to_string())?;
    kernel::attach(&instance, machine);
    let args = [machine.task(1), 1];
    // SAFETY: a live task of the machine.
    unsafe { instance.call(Op::Enqueue, &args) }.map_err(|e| format!("{e:?}"))?;
    let (at, len) = instance.var("seen").ok_or("no variable")?;
    // SAFETY: a variable of the instance, which nobody changes now.
    let bytes = unsafe { std::slice::from_raw_parts(at, len) };
    let words = bytes.chunks_exact(8);
    Ok(words
        .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
        .collect())
}

#[test]
fn an_array_that_was_made_longer_has_a_value_for_each_element() {
    let object = object();
    let made = ready(&object, &setup(&[("per_cpu", "1, 2, 3, 500")])).unwrap();
    for mode in [Mode::Native, Mode::Checked] {
        assert_eq!(seen(&made.object, mode).unwrap()[10], 541);
    }
    let said = ready(&object, &setup(&[("per_cpu", "1, 2, 3, 4, 5")])).unwrap_err();
    assert!(
        said.to_string().contains("5 values, and the array has 4"),
        "{said}"
    );
}

#[test]
fn values_arrive_in_both_executors() {
    let object = object();
    let values = [
        ("slice_ns", "5ms"),
        ("eager", "false"),
        ("least", "-123456"),
        ("kind", "LARGE"),
        ("preferred", "3, 2, 0x10"),
        ("name", "xyz"),
        ("pair.right[1]", "7"),
        ("begins", "6"),
    ];
    let Ready {
        object: set,
        unset,
        resized,
    } = ready(&object, &setup(&values)).unwrap();
    assert_eq!(unset, []);
    assert_eq!(
        resized,
        [("per_cpu".to_string(), 4), ("gone".to_string(), 4)]
    );
    let wanted = [
        5_000_000,
        0,
        -123_456i64 as u64,
        70_000,
        3,
        16,
        u64::from(b'x'),
        7,
        6,
        1,
        41,
    ];
    for mode in [Mode::Native, Mode::Checked] {
        assert_eq!(seen(&set, mode).unwrap()[..11], wanted, "{mode:?}");
    }
    // As compiled it is one element long: what its loader would have resized is not there.
    let one = ready(
        &object,
        &Setup {
            cpus: 1,
            ..setup(&[])
        },
    )
    .unwrap();
    assert!(
        seen(&one.object, Mode::Checked)
            .unwrap_err()
            .contains("per_cpu")
            || seen(&one.object, Mode::Native).is_err()
    );
}

#[test]
fn what_is_not_set_is_listed_with_its_value() {
    let ready = ready(&object(), &setup(&[("slice_ns", "1"), ("pair.left", "1")])).unwrap();
    let listed: Vec<_> = ready
        .unset
        .iter()
        .map(|(n, v)| format!("{n} = {v}"))
        .collect();
    let mut sorted = listed.clone();
    sorted.sort();
    let wanted = [
        "eager = true",
        "kind = SMALL",
        "least = -5",
        "name = \"abc\"",
        "preferred = 7, 6, 0, 0 (4 values)",
    ];
    assert_eq!(sorted, wanted);
}

#[test]
fn nothing_set_changes_nothing() {
    let object = object();
    let same = ready(
        &object,
        &Setup {
            cpus: 1,
            ..setup(&[])
        },
    )
    .unwrap();
    assert_eq!(same.object, object);
    // A value that is there already is another object only if it is another value.
    let again = ready(
        &object,
        &Setup {
            cpus: 1,
            ..setup(&[("least", "-5")])
        },
    )
    .unwrap();
    assert_eq!(identity::hash(&again.object), identity::hash(&object));
    let other = ready(
        &object,
        &Setup {
            cpus: 1,
            ..setup(&[("least", "-6")])
        },
    )
    .unwrap();
    assert_ne!(identity::hash(&other.object), identity::hash(&object));
}

#[test]
fn flags_are_the_schedulers() {
    let object = object();
    let with = |names: &[&str], kernel| {
        let ops_flags = Some(names.iter().map(|n| n.to_string()).collect());
        ready(
            &object,
            &Setup {
                ops_flags,
                kernel,
                ..setup(&[])
            },
        )
    };
    let flags_of = |object: &[u8]| {
        let policy = Policy::from_object(object, &LoadOptions::default()).unwrap();
        policy.program().structs[0].flags
    };
    let set = with(&["ENQ_LAST", "SCX_OPS_SWITCH_PARTIAL"], (7, 2)).unwrap();
    assert_eq!(flags_of(&set.object), 2 | 8);
    assert_eq!(flags_of(&with(&["none"], (7, 2)).unwrap().object), 0);
    let said = with(&["ALWAYS_ENQ_IMMED"], (6, 18))
        .unwrap_err()
        .to_string();
    assert!(said.contains("6.18") && said.contains("ENQ_LAST"), "{said}");
    assert!(with(&["ALL_FLAGS"], (7, 2)).is_err() && with(&["enq_last"], (7, 2)).is_err());
    assert!(flags((7, 2)).contains(&"ALWAYS_ENQ_IMMED"));
    assert_eq!(scheduler(&object).as_deref(), Some("t"));
}

#[test]
fn resized_objects_hold_together() {
    let object = object();
    let resize = [("per_cpu".to_string(), 1000), ("other".to_string(), 2)].into();
    let set = ready(
        &object,
        &Setup {
            resize,
            ..setup(&[])
        },
    )
    .unwrap();
    let btf = Btf::of_object(&set.object).unwrap();
    assert_eq!(btf.datasec(".data.per_cpu")[0].2, 8000);
    assert_eq!(btf.datasec(".data.elsewhere")[0].2, 16);
    assert_eq!(seen(&set.object, Mode::Native).unwrap()[10], 41);
    // A second time, from what came out.
    let resize = [("per_cpu".to_string(), 5)].into();
    let again = ready(
        &set.object,
        &Setup {
            resize,
            ..setup(&[])
        },
    )
    .unwrap();
    assert_eq!(seen(&again.object, Mode::Checked).unwrap()[10], 41);
}

#[test]
fn what_cannot_be_set_says_why() {
    let object = object();
    for (name, value, wanted) in [
        ("slice", "1", "there is no variable `slice`"),
        ("slice", "1", "slice_ns"),
        ("slice_ns", "-9223372036854775809", "from 0 to"),
        (
            "slice_ns",
            "18446744073709551616",
            "from 0 to 18446744073709551615",
        ),
        ("slice_ns", "-1", "from 0 to"),
        ("slice_ns", "soon", "no time such as 5ms"),
        ("eager", "2", "true or false"),
        ("kind", "HUGE", "not a whole number"),
        ("preferred", "1,2,3,4,5", "5 values, and the array has 4"),
        ("preferred[4]", "1", "4 elements"),
        ("name", "longer than it", "at most 7 bytes"),
        ("pair", "1", "left, right"),
        ("pair.middle", "1", "no field `middle`"),
        ("counted", "1", "begins as 0"),
        ("least", "2147483648", "from -2147483648 to 2147483647"),
        ("eager", "maybe", "true or false"),
    ] {
        let said = ready(&object, &setup(&[(name, value)]))
            .unwrap_err()
            .to_string();
        assert!(said.contains(wanted), "{name} = {value}: {said}");
    }
    for (name, count) in [
        ("seen", 3),
        ("nothing", 3),
        ("per_cpu", 0),
        ("per_cpu", u32::MAX),
    ] {
        let resize = [(name.to_string(), count)].into();
        let said = ready(
            &object,
            &Setup {
                resize,
                ..setup(&[])
            },
        )
        .unwrap_err()
        .to_string();
        assert!(said.contains("per_cpu"), "{name}: {said}");
    }
}

/// Damaged objects give an error or an object, never a panic, whatever is set of them.
#[test]
fn damaged_objects_do_no_harm() {
    let good = object();
    let mut all = setup(&[("slice_ns", "5"), ("pair.right[0]", "1"), ("name", "q")]);
    all.ops_flags = Some(vec!["ENQ_LAST".into()]);
    all.resize = [("other".to_string(), 9)].into();
    for len in (0..good.len()).step_by(good.len() / 17 + 1) {
        let _ = ready(&good[..len], &all);
    }
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..60 {
        let mut bad = good.clone();
        for _ in 0..=round % 4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Every second one in the headers and tables at the two ends.
            let at = match round % 2 {
                0 => random as usize % bad.len(),
                _ => bad.len() - 1 - random as usize % 2048.min(bad.len()),
            };
            bad[at] = (random >> 32) as u8;
        }
        let _ = ready(&bad, &all);
    }
}
