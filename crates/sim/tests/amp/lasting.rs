// SPDX-License-Identifier: GPL-2.0-only
//! `amp` with its default parameters for longer than a plan: nobody is left behind, whatever plans, hotplug and dom0's
//! threads do. What is asked of shares is what Xen's own scheduler gives on such hosts, a tenth aside.
use super::{amp, params, random};
use berth_scenario::{Edit, Input, read};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;
use std::path::Path;

/// Metrics of a run of amp with these parameters.
fn run(what: &str, text: &str, edits: &[Edit], set: &[(&str, &str)]) -> BTreeMap<String, f64> {
    let input = Input {
        name: "amp".into(),
        shown: "amp".into(),
        text: text.into(),
        folder: None,
    };
    let scenario = read(&input, edits).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let options = Options::default();
    let ran = run_one(&scenario.scenario, "amp", amp(), &params(set), 3, &options);
    ran.unwrap_or_else(|e| panic!("{what}: {e}")).metrics
}

fn longest_wait_ms(metrics: &BTreeMap<String, f64>, groups: &[&str]) -> f64 {
    let of = groups
        .iter()
        .map(|g| metrics[&format!("{g}.run_delay.max")]);
    of.fold(0.0, f64::max) / 1e6
}

/// Plans, which come every 2.5 s, are no reason to starve: VMs of equal weight on hosts of two and three kinds of
/// cores, with 1.5 to 3 of their vCPUs for each CPU.
#[test]
fn vms_that_always_run_have_their_due() {
    let mut state = 5;
    let mut from_to = |from: u64, to: u64| from + random(&mut state) % (to - from + 1);
    let (mut least, mut longest) = (f64::MAX, 0.0_f64);
    for host in 0..18 {
        let kinds = match host % 3 {
            0 => vec![
                (from_to(1, 6), 237.5),
                (from_to(2, 10), 150.0),
                (from_to(1, 4), 100.0),
            ],
            _ => vec![(from_to(1, 6), 237.5), (from_to(2, 10), 100.0)],
        };
        let cpus: u64 = kinds.iter().map(|k| k.0).sum();
        let vms = from_to(cpus * 3 / 2 + 1, cpus * 3);
        let gaining = from_to(1, vms - 1);
        let speeds: Vec<_> = kinds
            .iter()
            .map(|(n, s)| format!("\"{n} x {s}%\""))
            .collect();
        let text = format!(
            "title = \"amp\"\n[run]\nwarmup = \"5s\"\nmeasure = \"40s\"\n[compare]\npolicies = [\"amp\"]\n\
             [host]\ncores = {cpus}\npmu = true\nspeed = [{}]\n[vm.v]\ncount = {gaining}\nguest = \"none\"\n\
             tasks = [\"gains\"]\n\
             [vm.w]\ncount = {}\nguest = \"none\"\ntasks = [\"waits\"]\n\
             [task.gains]\nmodel = \"busy\"\nstall = \"13.636%\"\n\
             [task.waits]\nmodel = \"busy\"\nstall = \"55.219%\"\n",
            speeds.join(", "),
            vms - gaining
        );
        for mode in ["vm", "fair"] {
            let what = format!("host {host}: {kinds:?}, {gaining} of {vms} VMs gain, {mode}");
            let metrics = run(&what, &text, &[], &[("mode", mode)]);
            let due = cpus as f64 / vms as f64;
            for (name, cpu) in &metrics {
                let is_vm = name.ends_with(".cpu") && name.contains('-');
                if is_vm {
                    least = least.min(cpu / due);
                    assert!(*cpu > 0.9 * due, "{what}: {name} {cpu}, due {due}");
                }
            }
            let wait = longest_wait_ms(&metrics, &["v", "w"]);
            longest = longest.max(wait);
            assert!(wait < 500.0, "{what}: {wait} ms");
        }
    }
    println!("least share {least:.3} of what is due, longest wait {longest:.0} ms");
}

/// Who has a slot on a fast core and the rest of its time on slow ones, round by round, because the ranking stays: it
/// waits there behind others' slices of 30 ms, so it is offered to a CPU whose vCPU owes credit.
#[test]
fn who_has_both_kinds_in_each_round_has_its_due() {
    let text = "title = \"amp\"\n[run]\nwarmup = \"5s\"\nmeasure = \"20s\"\n[compare]\npolicies = [\"amp\"]\n\
                [host]\ncores = 7\npmu = true\nspeed = [\"4 x 237.5%\", \"3 x 100%\"]\n\
                [vm.v]\ncount = 2\nguest = \"none\"\ntasks = [\"gains\"]\n\
                [vm.w]\ncount = 9\nguest = \"none\"\ntasks = [\"waits\"]\n\
                [task.gains]\nmodel = \"busy\"\nstall = \"13.636%\"\n\
                [task.waits]\nmodel = \"busy\"\nstall = \"55.219%\"\n";
    let metrics = run("both kinds", text, &[], &[("hardened", "1")]);
    let due = 7.0 / 11.0;
    for vm in 1..=9 {
        let part = metrics[&format!("w-{vm}.cpu")] / due;
        assert!(part > 0.95, "w-{vm} has {part} of its due");
    }
}

/// The only fast core goes away while a vCPU has it, and others wait there: they go on elsewhere at once.
#[test]
fn the_last_fast_core_may_go() {
    for vms in [1, 4, 9] {
        let text = format!(
            "title = \"amp\"\n[run]\nwarmup = \"1s\"\nmeasure = \"20s\"\n[compare]\npolicies = [\"amp\"]\n\
             [host]\ncores = 6\npmu = true\nspeed = [\"1 x 237.5%\", \"5 x 100%\"]\n\
             [[host.hotplug]]\nat = \"5s\"\ncpu = 0\nonline = false\n\
             [vm.v]\ncount = {vms}\nguest = \"none\"\ntasks = [\"busy\"]\n[task.busy]\nmodel = \"busy\"\n"
        );
        for mode in ["vm", "fair"] {
            let what = format!("{vms} VMs, {mode}");
            let metrics = run(&what, &text, &[], &[("mode", mode)]);
            // A round and two slices.
            let wait = longest_wait_ms(&metrics, &["v"]);
            assert!(wait < 100.0, "{what}: {wait} ms");
        }
    }
}

/// Threads of dom0, which keep to the slow cores, may be many: a vCPU that waits behind them is found by a fast core
/// that has nothing to do. The paper's VMs on ten fast and two slow cores.
#[test]
fn threads_of_dom0_hide_nobody() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/amp/mixes.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let set = [
        "run.measure=20s",
        "host.speed=[\"5 x 237.5%\", \"1 x 100%\", \"5 x 237.5%\", \"1 x 100%\"]",
    ];
    let edits = set.map(|s| Edit::Set(s.into()));
    for mode in ["vm", "fair"] {
        let metrics = run(mode, &text, &edits, &[("mode", mode)]);
        let wait = longest_wait_ms(&metrics, &["freqmine", "pmake", "canneal"]);
        assert!(wait < 100.0, "{mode}: {wait} ms");
    }
}
