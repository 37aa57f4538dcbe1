// SPDX-License-Identifier: GPL-2.0-only
//! Cost of a policy's callbacks with few and many instances: `cargo bench -p berth-policy --bench callback`.
//!
//! The policy is `policies/vtime.bpf.c`; a round is select_cpu, enqueue, dispatch, running, stopping on a random
//! instance, with kernel functions that return at once. Stated per callback.
#[path = "../tests/loading/kernel.rs"]
#[allow(dead_code)] // the tests use more of it
mod kernel;

use berth_policy::abi::{Inst, KernelFn, Op};
use berth_policy::instance::{Instance, InstanceConfig, KernelVtable, Mode};
use berth_policy::policy::{LoadOptions, Policy};
use berth_policy::table::{FUNCS, Home};
use kernel::Machine;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

unsafe extern "C" fn nothing(_: *mut Inst, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    1
}

static QUIET: LazyLock<KernelVtable> = LazyLock::new(|| {
    let list: Vec<_> = FUNCS
        .iter()
        .filter(|f| f.home == Home::Kernel)
        .map(|f| (f.name, nothing as KernelFn))
        .collect();
    KernelVtable::new(&list)
        .expect("every row has a function")
        .with_memory(kernel::may_access)
        .with_pieces(kernel::piece)
});

/// A callback, with [`MANY`] instances, ns.
const GOAL_NS: f64 = 50.0;
const MANY: usize = 2_500;

/// Short segments, the best of which counts: other work on the machine disturbs most of them.
const SEGMENTS: u64 = 200;

fn main() {
    let name = std::env::args()
        .skip(1)
        .find(|a| a.ends_with(".c") || a.ends_with(".o"));
    let name = name.unwrap_or_else(|| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/vtime.bpf.c").into()
    });
    let load = |trusted| {
        let options = LoadOptions {
            trusted,
            ..LoadOptions::default()
        };
        Policy::from_path(Path::new(&name), &options).unwrap_or_else(|e| {
            eprintln!("{e}");
            std::process::exit(1);
        })
    };
    let (trusted, guarded) = (load(true), load(false));
    let mut machine = Machine::new();
    let [init, ..] = machine.arguments();
    println!(
        "{:>10} {:>12} {:>14} {:>12}",
        "instances", "code", "ns/callback", "insns/round"
    );
    let mut of_goal = Vec::new();
    for (count, policy, mode, what) in [
        (1, &trusted, Mode::Native, "native"),
        (MANY, &trusted, Mode::Native, "native"),
        (10_000, &trusted, Mode::Native, "native"),
        (1, &guarded, Mode::Native, "guarded"),
        (MANY, &guarded, Mode::Native, "guarded"),
        (1, &guarded, Mode::Checked, "interpreted"),
    ] {
        let config = InstanceConfig {
            mode,
            ..InstanceConfig::new(4)
        };
        let instances: Vec<_> = (0..count)
            .map(|_| {
                let instance = Instance::new(policy, None, &config, &QUIET)
                    .expect("the configuration is valid");
                kernel::attach(&instance, &mut machine);
                for i in 0..4 {
                    // SAFETY: live objects of the machine.
                    unsafe { instance.call(Op::InitTask, &[machine.task(i), init]) }
                        .expect("no trap");
                }
                instance
            })
            .collect();
        let rounds = if mode == Mode::Native {
            2_000_000u64
        } else {
            20_000
        };
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let tasks: Vec<u64> = (0..4).map(|i| machine.task(i)).collect();
        let mut best = f64::MAX;
        let before: u64 = instances.iter().map(|i| i.insns()).sum();
        for _ in 0..SEGMENTS {
            let start = Instant::now();
            for round in 0..rounds / SEGMENTS {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let instance = &instances[(random >> 33) as usize % instances.len()];
                let task = tasks[round as usize % 4];
                // SAFETY: live objects of the machine.
                let results = unsafe {
                    (*instance.raw()).now += 1000;
                    [
                        instance.call(Op::SelectCpu, &[task, 0, 8]),
                        instance.call(Op::Enqueue, &[task, 1]),
                        instance.call(Op::Dispatch, &[0, 0]),
                        instance.call(Op::Running, &[task]),
                        instance.call(Op::Stopping, &[task, 1]),
                    ]
                };
                assert!(results.iter().all(Result::is_ok));
            }
            best = best.min(start.elapsed().as_nanos() as f64 / (rounds / SEGMENTS) as f64);
        }
        let insns = instances.iter().map(|i| i.insns()).sum::<u64>() - before;
        println!(
            "{count:>10} {what:>12} {:>14.1} {:>12.1}",
            best / 5.0,
            insns as f64 / (rounds) as f64
        );
        if count == MANY {
            of_goal.push((what, best / 5.0));
        }
    }
    for (what, ns) in &of_goal {
        let part = ns / GOAL_NS * 100.0;
        println!("{what}: {part:.0} % of the goal, {GOAL_NS} ns with {MANY} instances");
    }
    if let [(_, native), (_, guarded)] = of_goal[..] {
        println!("the guard: {:.1} ns a callback", guarded - native);
    }
}
