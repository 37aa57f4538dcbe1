// SPDX-License-Identifier: GPL-2.0-only
//! `brm`, the reconstruction of bias random vCPU migration: its invariants.
use crate::nodes::{FULL, Hogs, counter, counts, homes, two_nodes};
use crate::support::Cast;
use crate::world::{MS, assert_near, hogs, measured};
use berth_scenario::dist::{Rng, Stream};
use berth_sim::Simulation;

/// The first step, when nobody knows yet how many vCPUs there are, and the time between two with eight of them.
const FIRST_NS: u64 = 30_200_000;
const STEP_NS: u64 = 3_750_000;

fn single(on_first: u32) -> Hogs {
    Hogs {
        vcpus: 1,
        stalled: FULL / 2,
        on_first,
    }
}

/// Penalty of all on these nodes: the parts of their memory that are elsewhere (A 1; no footprint is larger than a
/// cache and nothing is shared, so that B and G have no weight).
fn penalty(vms: &[Hogs], homes: &[u32]) -> u32 {
    let away = |(vm, home): (&Hogs, &u32)| match home {
        0 => FULL - vm.on_first,
        _ => vm.on_first,
    };
    vms.iter().zip(homes).map(away).sum()
}

/// The least there is with four vCPUs on each node, by trying all ways.
fn least(vms: &[Hogs]) -> u32 {
    let ways = (0u32..1 << vms.len()).filter(|way| way.count_ones() as usize * 2 == vms.len());
    let of = |way: u32| {
        let homes: Vec<u32> = (0..vms.len()).map(|vm| way >> vm & 1).collect();
        penalty(vms, &homes)
    };
    ways.map(of).min().unwrap()
}

/// How a machine comes near the optimum.
struct Way {
    /// After how many steps the penalty is first within a tenth of the least, if within 60.
    steps: Option<u32>,
    /// Is it there after 30 steps?
    after_30: bool,
    /// vCPUs that have changed their node by then.
    moved: u32,
    /// Steps of 60 at which the last move could not be judged yet.
    waits: u64,
}

fn way(vms: &[Hogs], seed: u64) -> Way {
    let mut m = two_nodes("brm", 4, vms, seed, &[]);
    let goal = least(vms) + least(vms) / 10;
    let (mut way, mut before) = (
        Way {
            steps: None,
            after_30: false,
            moved: 0,
            waits: 0,
        },
        Vec::new(),
    );
    for step in 0..=60 {
        // Just before the next step.
        m.run_until(FIRST_NS + u64::from(step) * STEP_NS - MS)
            .unwrap();
        let now = homes(&mut m, 8);
        let there = penalty(vms, &now) <= goal;
        if there && way.steps.is_none() {
            way.steps = Some(step);
        }
        if step <= 30 {
            way.after_30 = there;
            way.moved += before.iter().zip(&now).filter(|(a, b)| a != b).count() as u32;
        }
        before = now;
    }
    assert_eq!(
        counter(&mut m, "steps"),
        60,
        "a step is as long as is said here"
    );
    way.waits = counter(&mut m, "waits");
    m.check().unwrap();
    way
}

/// Eight VMs with their memory spread at random.
fn random(seed: u64) -> Vec<Hogs> {
    let mut rng = Rng::new(seed, Stream::Phase(7));
    let mut part = || single(rng.below(u64::from(FULL) + 1) as u32);
    (0..8).map(|_| part()).collect()
}

/// Invariant 1: 95 of 100 seeds, from any start, are within a tenth of the optimum after at most 30 steps.
#[test]
fn thirty_steps_lead_to_the_optimum() {
    let ways: Vec<Way> = (1..=200).map(|seed| way(&random(seed), seed)).collect();
    let mut steps: Vec<u32> = ways.iter().map(|w| w.steps.unwrap_or(u32::MAX)).collect();
    let mut moved: Vec<u32> = ways.iter().map(|w| w.moved).collect();
    steps.sort_unstable();
    moved.sort_unstable();
    let in_time = steps.iter().filter(|s| **s <= 30).count();
    let stay = ways.iter().filter(|w| w.after_30).count();
    println!(
        "of 200 within 30 steps: {in_time}; there after 30: {stay}; steps: median {}, 95 % {}, never in 60: {}; \
         changes of node in 30 steps: median {}; steps without a look: {}",
        steps[100],
        steps[190],
        steps.iter().filter(|s| **s == u32::MAX).count(),
        moved[100],
        ways.iter().map(|w| w.waits).sum::<u64>(),
    );
    assert!(in_time >= 190, "{in_time} of 200 in time: {steps:?}");
}

/// Four that belong to each node, in an order that is wrong for half of them.
fn halves() -> Vec<Hogs> {
    let all = [FULL, FULL, 0, FULL, 0, 0, FULL, 0];
    all.map(single).to_vec()
}

fn tried(m: &mut Simulation<Cast>) -> [u64; 3] {
    ["steps", "moves", "explored"].map(|name| counter(m, name))
}

/// Invariant 2: nobody leaves the optimum but to look elsewhere, and is back after a step.
#[test]
fn at_the_optimum_it_only_explores() {
    let mut m = two_nodes("brm", 4, &halves(), 3, &[]);
    m.run_until(2_000 * MS).unwrap();
    let before = tried(&mut m);
    let mut away = 0;
    let steps = 2_600;
    for step in 1..=steps {
        m.run_until(2_000 * MS + step * STEP_NS).unwrap();
        away += u64::from(penalty(&halves(), &homes(&mut m, 8)) > 0);
    }
    let [looked, moved, explored] = tried(&mut m);
    let (looked, explored) = (looked - before[0], explored - before[2]);
    assert_eq!(moved, before[1]);
    // 5 %, and four standard deviations.
    let most = looked as f64 * 0.05 + 4.0 * (looked as f64 * 0.05 * 0.95).sqrt();
    assert!(
        explored > 0 && (explored as f64) < most,
        "{explored} of {looked}"
    );
    assert!(
        away <= 2 * explored,
        "{away} steps away, {explored} explored"
    );
    m.check().unwrap();
}

/// Invariant 3, for VMs of several vCPUs, that want to be on one node, too.
#[test]
fn no_node_gets_more_vcpus_than_cpus() {
    for sizes in [&[1u32; 8][..], &[3, 3, 2], &[5, 1, 2], &[3, 2]] {
        let vms: Vec<Hogs> = sizes
            .iter()
            .map(|vcpus| Hogs {
                vcpus: *vcpus,
                ..single(FULL)
            })
            .collect();
        let mut m = two_nodes("brm", 4, &vms, 5, &[]);
        for at in 1..400 {
            m.run_until(at * 2 * MS).unwrap();
            let counts = counts(&mut m, vms.len() as u32);
            assert!(
                counts.iter().all(|n| *n <= 4),
                "{sizes:?}: {counts:?} at {at}"
            );
        }
        m.check().unwrap();
    }
}

/// Invariant 4: equal hogs have what they have under Credit.
#[test]
fn shares_are_those_of_credit() {
    let text = format!(
        "{}pmu = true\nremote_memory = 1.5\n",
        "packages = 2\ncores = 2\n"
    );
    let memory = |text: String| {
        (0..8).fold(text, |text, i| {
            let vm = format!("[vm.v{i}]\n");
            text.replace(&vm, &format!("{vm}memory = {}\n", i % 3 % 2))
        })
    };
    let text = memory(hogs(&text, &[100; 8])).replace("\"busy\"", "\"busy\"\nstall = \"40%\"");
    let ours = measured("brm", &[], "20s", &text);
    let credit = measured("credit", &[], "20s", &text);
    for vm in 0..8 {
        let key = format!("v{vm}.cpu");
        assert_near(ours[&key], 0.5, 0.02, &key);
        assert_near(credit[&key], 0.5, 0.02, &key);
    }
    let work = |run: &std::collections::BTreeMap<String, f64>| {
        (0..8).map(|vm| run[&format!("v{vm}.work")]).sum::<f64>()
    };
    println!("work: {} CPUs, under Credit {}", work(&ours), work(&credit));
}

/// Invariant 5: where memory costs nobody anything, vCPUs move to explore and for nothing else.
#[test]
fn without_penalties_it_only_explores() {
    let vms = [Hogs {
        stalled: 0,
        ..single(FULL)
    }; 8];
    let mut m = two_nodes("brm", 4, &vms, 9, &[]);
    m.run_until(10_000 * MS).unwrap();
    let [looked, moved, explored] = tried(&mut m);
    assert!(looked > 2_600, "{looked}");
    assert_eq!((moved, counter(&mut m, "undone")), (0, 0));
    let most = looked as f64 * 0.05 + 4.0 * (looked as f64 * 0.05 * 0.95).sqrt();
    assert!(
        explored > 0 && (explored as f64) < most,
        "{explored} of {looked}"
    );
}

/// Nobody counts: everybody stays, and it says so.
#[test]
fn without_counters_everybody_stays() {
    let mut text = hogs("packages = 2\ncores = 4", &[100; 8]);
    text = text.replace("[vm.v3]\n", "[vm.v3]\nmemory = 0\n");
    let run = measured("brm", &[], "2s", &text);
    let of = |name: &str| run[&format!("policy.{name}")];
    assert!(of("steps") > 250.0);
    assert_eq!(of("blind"), of("steps"));
    assert_eq!([of("moves"), of("explored")], [0.0; 2]);
}

/// To read who runs on takes nothing of its slice: hogs of one CPU have as many turns as under Credit.
#[test]
fn a_look_ends_no_slice() {
    let text = hogs("packages = 2\ncores = 1\npmu = true", &[100; 6]);
    let ours = measured("brm", &[("explore_percent", "0")], "10s", &text);
    let credit = measured("credit", &[], "10s", &text);
    let [ours, credit] = [ours, credit].map(|run| run["host.switches"]);
    assert_near(ours / credit, 1.0, 0.02, "switches");
}

/// A CPU whose node has nobody for it takes one of the other node after 10 ms; later, it idles.
#[test]
fn a_cpu_that_idles_for_long_takes_others() {
    // Two on each node, and two more that only node 0 can have; those of node 1 end half a second on.
    let text = hogs("packages = 2\ncores = 2\npmu = true", &[100; 4]);
    let text = ["[vm.v1]\n", "[vm.v3]\n"].iter().fold(text, |text, vm| {
        text.replace(vm, &format!("{vm}stop = \"1s\"\n"))
    });
    let text = format!("{text}[vm.w]\nvcpus = 2\naffinity = [0, 1]\ntasks = [\"hog\"]\n");
    let idle = |lend_ms: &str| {
        let set = [("lend_ms", lend_ms), ("explore_percent", "0")];
        let run = measured("brm", &set, "4s", &text);
        (run["host.idle"], run["policy.lent"] > 0.0)
    };
    let (lent, some) = idle("10");
    // 10 ms of two CPUs, and until the timer looks.
    assert!(lent < 0.5 * 0.040 / 4.0 && some, "{lent}");
    let (kept, some) = idle("10000");
    assert_near(kept, 0.5 * 3.5 / 4.0, 0.001, "idle");
    assert!(!some);
}
