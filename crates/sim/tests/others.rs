// SPDX-License-Identifier: GPL-2.0-only
//! Schedulers of others: in the style of the kernel's and the scx project's examples, with what those use (maps in
//! maps, arenas, objects in trees, timers, masks, queues), as their loaders start them. The part of the CPU time that
//! the heavy VMs have is what one computes by hand.
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::{Input, read};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;
use std::path::Path;

/// Weights of nice 0 and -5 in Linux's table, per cent of nice 0.
const NICE: (f64, f64) = (100.0, 305.0);

/// Two light hogs and two heavy ones on a CPU.
const HOGS: &str = "[host]\ncores = 1\n[vm.light]\ncount = 2\ntasks = [\"hog\"]\n\
                    [vm.heavy]\ncount = 2\nnice = -5\ntasks = [\"hog\"]\n";
const MANY: &str = "[host]\ncores = 1\n[vm.light]\ncount = 8\ntasks = [\"hog\"]\n\
                    [vm.heavy]\ncount = 8\nnice = -5\ntasks = [\"hog\"]\n";
const GROUPS: &str = "[host]\ncores = 1\n[vm.light]\ncount = 2\ntasks = [\"hog\"]\n\
                      [vm.heavy]\ncount = 2\nweight = 300\ntasks = [\"hog\"]\n";
/// One thread, and two of another VM.
const PAIR: &str = "[host]\ncores = 2\n[vm.light]\ntasks = [\"hog\"]\n\
                    [vm.heavy]\nvcpus = 2\ntasks = [\"two\"]\n[task.two]\nmodel = \"busy\"\nthreads = 2\n";

/// Scheduler, scenario, part of the heavy VMs, all that both have in CPUs.
const OTHERS: [(&str, &str, f64, f64); 13] = [
    // By weighted virtual time: in one queue, one for each CPU, with data in an arena, on few warm CPUs.
    ("shared_vtime", HOGS, NICE.1 / (NICE.0 + NICE.1), 1.0),
    ("percpu_vtime", HOGS, NICE.1 / (NICE.0 + NICE.1), 1.0),
    ("arena_tasks", HOGS, NICE.1 / (NICE.0 + NICE.1), 1.0),
    ("packed", HOGS, NICE.1 / (NICE.0 + NICE.1), 1.0),
    // First come, first served; by one CPU for all; by kinds of bursts, of which there is one here.
    ("sticky", HOGS, 0.5, 1.0),
    ("central", HOGS, 0.5, 1.0),
    ("burst_split", HOGS, 0.5, 1.0),
    // Turns as long as the weight says, in whole ticks of 4 ms: 40 ms and what a switch takes are 11, 122 are 31.
    ("arena_queue", HOGS, 31.0 / (31.0 + 11.0), 1.0),
    // 4 from the third queue, then 8 from the fourth.
    ("five_queues", HOGS, 8.0 / 12.0, 1.0),
    // 2 of the middle band, 3 of the heavy one.
    ("fifo_bands", MANY, 3.0 / 5.0, 1.0),
    // By the weight of cgroups.
    ("cgroup_shares", GROUPS, 3.0 / 4.0, 1.0),
    ("share_tree", GROUPS, 3.0 / 4.0, 1.0),
    // Both CPUs for one cgroup, then for the other, which has one thread for them.
    ("paired", PAIR, 2.0 / 3.0, 1.5),
];

#[test]
fn schedulers_of_others_share_as_computed_by_hand() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policy/tests/policies");
    let mut wrong = Vec::new();
    for (name, scenario, wanted, cpus) in OTHERS {
        let source = folder.join(format!("{name}.bpf.c"));
        let policy = Policy::from_source(&source, &LoadOptions::default());
        let policy = policy.unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = format!(
            "title = \"others\"\n[run]\nwarmup = \"0s\"\nmeasure = \"20s\"\n[compare]\npolicies = [\"vtime\"]\n\
             {scenario}[task.hog]\nmodel = \"busy\"\n"
        );
        let input = Input {
            name: "others".into(),
            shown: "others".into(),
            text,
            folder: None,
        };
        let read = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
        let none = BTreeMap::new();
        let run = run_one(&read.scenario, name, &policy, &none, 1, &Options::default());
        let metrics = match run {
            Ok(run) => run.metrics,
            Err(e) => {
                wrong.push(format!("{name}: {e}"));
                continue;
            }
        };
        let (light, heavy) = (metrics["light.cpu"], metrics["heavy.cpu"]);
        let (share, all) = (heavy / (heavy + light), heavy + light);
        if (share - wanted).abs() > 0.01 || (all - cpus).abs() > 0.01 * cpus {
            wrong.push(format!(
                "{name}: {share} of {all} CPUs instead of {wanted} of {cpus}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
