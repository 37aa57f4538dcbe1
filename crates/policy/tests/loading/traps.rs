// SPDX-License-Identifier: GPL-2.0-only
//! What a policy does wrong comes back as a value, in both executors.
use super::kernel::{Machine, VTABLE, attach};
use super::{enqueue, load, load_trusted};
use berth_policy::abi::{Op, Trap, TrapKind};
use berth_policy::instance::{Instance, InstanceConfig, Mode};
use berth_policy::policy::Policy;

fn instance(policy: &Policy, mode: Mode) -> Box<Instance> {
    let config = InstanceConfig {
        mode,
        budget_insns: 100_000,
        ..InstanceConfig::new(8)
    };
    Instance::new(policy, None, &config, &VTABLE).unwrap()
}

fn trap(policy: &Policy, mode: Mode) -> Trap {
    let mut machine = Machine::new();
    let instance = instance(policy, mode);
    attach(&instance, &mut machine);
    let args = [machine.task(1), 0];
    // SAFETY: a live task of the machine.
    let trap = unsafe { instance.call(Op::Enqueue, &args) }.expect_err("must trap");
    // The instance is still usable.
    // SAFETY: as above.
    assert_eq!(unsafe { instance.call(Op::Dispatch, &args) }, Ok(0));
    trap
}

#[test]
fn null_pointers() {
    let policy = load(&enqueue("u64 *nowhere;", "*nowhere = 1;")).unwrap();
    let native = trap(&policy, Mode::Native);
    assert!(
        matches!(
            native.kind,
            TrapKind::BadAccess {
                address: 0,
                write: true,
                ..
            }
        ),
        "{native:?}"
    );
    assert_eq!(native.function.as_deref(), Some("t_enqueue"));
    let checked = trap(&policy, Mode::Checked);
    assert_eq!(
        checked.kind,
        TrapKind::BadAccess {
            address: 0,
            size: 8,
            write: true
        }
    );
    assert_eq!(checked.line, Some(6), "{checked:?}");
    assert!(
        checked
            .file
            .as_deref()
            .is_some_and(|f| f.ends_with("test.bpf.c")),
        "{checked:?}"
    );
}

#[test]
fn senseless_masks_given_to_the_kernel() {
    for wrong in [0u64, 12_345, 0xdead_0000_0000_beef] {
        let policy = load(&enqueue(
            &format!("u64 mask = {wrong:#x};"),
            "bpf_cpumask_clear((struct bpf_cpumask *)mask);",
        ))
        .unwrap();
        for mode in [Mode::Native, Mode::Checked] {
            let trap = trap(&policy, mode);
            assert!(
                matches!(trap.kind, TrapKind::BadAccess { address, .. } if address == wrong),
                "{mode:?}: {trap:?}"
            );
        }
    }
}

#[test]
fn wild_pointers() {
    let text = enqueue(
        "u64 where = 0xdead00000000beef; u64 sum;",
        "sum += *(volatile u64 *)where;",
    );
    let (policy, trusted) = (load(&text).unwrap(), load_trusted(&text).unwrap());
    // Not canonical: the processor does not tell the address, the guard does.
    for (policy, told) in [(&policy, 0xdead_0000_0000_beef), (&trusted, u64::MAX)] {
        let kind = trap(policy, Mode::Native).kind;
        assert!(
            matches!(kind, TrapKind::BadAccess { address, .. } if address == told),
            "{kind:?}"
        );
    }
    assert!(matches!(
        trap(&policy, Mode::Checked).kind,
        TrapKind::BadAccess {
            address: 0xdead_0000_0000_beef,
            size: 8,
            write: false
        }
    ));
}

#[test]
fn endless_loops_end_at_the_same_count() {
    let policy = load(&enqueue(
        "volatile u64 x; volatile bool stop;",
        "while (!stop)\nx++;",
    ))
    .unwrap();
    let (native, checked) = (trap(&policy, Mode::Native), trap(&policy, Mode::Checked));
    assert!(
        matches!(native.kind, TrapKind::Budget { insns } if insns > 100_000),
        "{native:?}"
    );
    assert_eq!(native.kind, checked.kind);
    assert!(checked.line.is_some());
}

#[test]
fn the_function_is_named_though_nothing_of_it_follows() {
    let operation = |name: &str, body: &str| {
        format!("void BPF_STRUCT_OPS({name}, struct task_struct *p, u64 flags)\n{{\n{body}\n}}\n")
    };
    let source = format!(
        "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\nvolatile u64 x;\n\
         {}{}{}SCX_OPS_DEFINE(t_ops, .running = (void *)t_running, .enqueue = (void *)t_enqueue, \
         .quiescent = (void *)t_quiescent, .name = \"t\");\n",
        operation("t_running", "x = 1;"),
        operation("t_enqueue", "while (1)\nx++;"),
        operation("t_quiescent", "x = 2;"),
    );
    for policy in [load(&source).unwrap(), load_trusted(&source).unwrap()] {
        let native = trap(&policy, Mode::Native);
        assert_eq!(native.function.as_deref(), Some("t_enqueue"), "{native:?}");
    }
}

#[test]
fn traps_in_callbacks_of_loops() {
    let source = enqueue(
        "u64 *nowhere; u64 done;\n\
         static int each(u32 i, void *context) { if (i == 5) *nowhere = 1; done++; return 0; }",
        "bpf_loop(10, each, 0, 0);",
    );
    let policy = load(&source).unwrap();
    for mode in [Mode::Native, Mode::Checked] {
        let mut machine = Machine::new();
        let instance = instance(&policy, mode);
        attach(&instance, &mut machine);
        // SAFETY: a live task of the machine.
        unsafe { instance.call(Op::Enqueue, &[machine.task(1), 0]) }.expect_err("must trap");
        let (done, size) = instance.var("done").unwrap();
        // SAFETY: the variable's eight bytes.
        assert_eq!(
            (unsafe { done.cast::<u64>().read() }, size),
            (5, 8),
            "{mode:?}"
        );
    }
}

#[test]
fn stack_beyond_the_frame() {
    // The verifier would refuse it; the checked mode must see it.
    let source = enqueue(
        "volatile u32 far = 4096;",
        "u64 a[2] = {}; u64 *q = a; asm volatile(\"%0 += %1\" : \"+r\"(q) : \"r\"((u64)far)); *q = 7; __sink(a[0]);",
    );
    let checked = trap(&load(&source).unwrap(), Mode::Checked);
    assert!(
        matches!(
            checked.kind,
            TrapKind::BadAccess {
                size: 8,
                write: true,
                ..
            }
        ),
        "{checked:?}"
    );
}
