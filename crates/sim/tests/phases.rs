// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that wait for memory: their rate on cores of several kinds, alone and inside guests; when VMs are done; what
//! performance counters say.
use berth_scenario::model::Vm;
use berth_scenario::{Input, read};
use berth_sim::run::{GuestPolicy, Options, run_one};
use std::collections::BTreeMap;

#[path = "support/shipped.rs"]
mod support;

const S: f64 = 1e9;

/// Two fast cores of 2.375 of a slow one, two slow ones.
const HOST: &str = "[host]\ncores = 4\nhz = 1000\ncost = \"none\"\n[host.kind.slow]\ncores = \"2-3\"\n\
                    [host.kind.fast]\ncores = \"0-1\"\nspeed = \"237.5%\"\n";

fn input(duration: &str, text: &str) -> Input {
    let text = format!(
        "title = \"phases\"\n[run]\nwarmup = \"0s\"\nmeasure = \"{duration}\"\n\
         [compare]\npolicies = [\"credit\"]\n{text}"
    );
    Input {
        name: "phases".into(),
        shown: "phases".into(),
        text,
        folder: None,
    }
}

fn run(duration: &str, text: &str) -> BTreeMap<String, f64> {
    let input = input(duration, text);
    let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
    let (policy, none) = (support::policy("credit"), BTreeMap::new());
    let inside = |vm: &Vm| {
        (!vm.guest.is_none()).then(|| GuestPolicy {
            policy: support::policy("vtime"),
            params: BTreeMap::new(),
        })
    };
    let options = Options {
        guests: scenario.scenario.vms.iter().map(inside).collect(),
        ..Options::default()
    };
    run_one(&scenario.scenario, "credit", &policy, &none, 1, &options)
        .unwrap_or_else(|e| panic!("{e}\n{}", input.text))
        .metrics
}

/// e = 1 / (m + (1 - m) / 2.375): the classes H, M and L.
const CLASSES: [(&str, f64); 4] = [
    ("0%", 2.375),
    ("13.6%", 2.001),
    ("55.2%", 1.350),
    ("84.3%", 1.100),
];

#[test]
fn what_a_task_gains_from_a_fast_core_follows_from_its_stalls() {
    for guest in ["\"none\"", "{ hz = 250 }"] {
        for (stall, e) in CLASSES {
            let text = format!(
                "{HOST}[task.work]\nmodel = \"busy\"\nstall = \"{stall}\"\n\
                 [vm.fast]\nvcpus = 1\ntasks = [\"work\"]\naffinity = \"0\"\nguest = {guest}\n\
                 [vm.slow]\nvcpus = 1\ntasks = [\"work\"]\naffinity = \"2\"\nguest = {guest}\n"
            );
            let m = run("2s", &text);
            assert!(
                (m["slow.work"] - 2.0 * S).abs() < 1e-4 * S,
                "{guest} {stall}: {m:?}"
            );
            let gain = m["fast.work"] / m["slow.work"];
            assert!((gain - e).abs() < 1e-3, "{guest} {stall}: {gain}");
        }
    }
}

/// One vCPU on a fast core, two tasks inside that take turns: the vCPU goes at the rate of the one that runs.
#[test]
fn a_vcpu_has_the_phase_of_the_task_that_runs_inside() {
    let text = format!(
        "{HOST}[task.computes]\nloop = [\"compute 9.5ms\", \"barrier turn\"]\n\
         [task.waits]\nstall = \"100%\"\nloop = [\"compute 4ms\", \"barrier turn\"]\n\
         [vm.a]\nvcpus = 1\ntasks = [\"computes\", \"waits\"]\naffinity = \"0\"\nguest = {{ hz = 250 }}\n"
    );
    let m = run("8s", &text);
    // A round takes 9.5 / 2.375 + 4 ms and does 13.5 ms of work.
    let expected = 8.0 * S / 8.0 * 13.5;
    assert!(
        (m["a.work"] / expected - 1.0).abs() < 2e-3,
        "{} {expected}",
        m["a.work"]
    );
}

/// The same rounds by one task that changes its phase.
#[test]
fn a_task_goes_from_phase_to_phase() {
    for guest in ["\"none\"", "{ hz = 250 }"] {
        let text = format!(
            "{HOST}[task.work]\nloop = [\"stall 0%\", \"compute 9.5ms\", \"stall 100%\", \"compute 4ms\"]\n\
             [vm.fast]\nvcpus = 1\ntasks = [\"work\"]\naffinity = \"0\"\nguest = {guest}\n\
             [vm.slow]\nvcpus = 1\ntasks = [\"work\"]\naffinity = \"2\"\nguest = {guest}\n"
        );
        let m = run("8s", &text);
        for (work, expected) in [("fast.work", 13.5 * S), ("slow.work", 8.0 * S)] {
            let off = m[work] / expected - 1.0;
            assert!(off.abs() < 1e-3, "{guest} {work}: {} {expected}", m[work]);
        }
    }
}

#[test]
fn fixed_work_is_complete_when_its_last_thread_has_ended() {
    for guest in ["\"none\"", "{ hz = 250 }"] {
        let text = format!(
            "{HOST}[task.work]\nloop = [\"compute 9.5ms\"]\nrounds = 100\n\
             [vm.fast]\nvcpus = 2\ntasks = [\"work\"]\naffinity = \"0-1\"\nguest = {guest}\n\
             [vm.slow]\nvcpus = 2\ntasks = [\"work\"]\naffinity = \"2-3\"\nguest = {guest}\n\
             [task.more]\nloop = [\"compute 1ms\"]\nrounds = 100000\n\
             [vm.never]\nvcpus = 1\ntasks = [\"more\"]\naffinity = \"3\"\nguest = {guest}\n"
        );
        let m = run("3s", &text);
        assert!((m["fast.completion"] - 0.4 * S).abs() < 1e-3 * S, "{m:?}");
        // One of its threads has half a core.
        assert!((m["slow.completion"] - 1.9 * S).abs() < 0.07 * S, "{m:?}");
        assert!(!m.contains_key("never.completion"));
    }
}

/// A static split waits for the slowest, a serial part for one thread.
#[test]
fn barriers_go_at_the_pace_of_the_slowest() {
    for (model, work, round_ms, work_ms) in [
        (
            "model = \"barrier\"\ncompute = \"20ms\"",
            "barrier",
            20.0,
            80.0,
        ),
        (
            "model = \"serial\"\ncompute = \"20ms\"\nserial = \"19ms\"",
            "serial",
            28.0,
            99.0,
        ),
    ] {
        let text = format!(
            "{HOST}[task.work]\n{model}\n[vm.a]\nvcpus = 4\ntasks = [\"work\"]\nguest = \"none\"\naffinity = \"0-3\"\n"
        );
        let m = run("28s", &text);
        // The serial part is on a fast core (8 ms) or on a slow one (19 ms).
        let rounds = m["a.work"] / (work_ms * 1e6);
        let most = 28_000.0 / round_ms;
        let least = if work == "serial" {
            28_000.0 / 39.0
        } else {
            most
        };
        assert!(
            rounds < most + 1.0 && rounds > least - 1.0,
            "{work}: {rounds}"
        );
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for (task, why) in [
        ("model = \"busy\"\nrounds = 3", "never comes to its end"),
        ("model = \"busy\"\nstall = \"101%\"", "0% to 100%"),
        ("model = \"busy\"\nipc = 0", "0.01 to 16"),
        ("model = \"busy\"\nipc = \"much\"", "ipc"),
        ("loop = [\"stall 101%\", \"compute 1ms\"]", "0% to 100%"),
        (
            "loop = [\"stall 1% ipc 17\", \"compute 1ms\"]",
            "0.01 to 16",
        ),
        (
            "loop = [\"stall 1% 0.8\", \"compute 1ms\"]",
            "`ipc` and a number",
        ),
    ] {
        let text =
            format!("[host]\ncores = 1\n[task.a]\n{task}\n[vm.v]\nvcpus = 1\ntasks = [\"a\"]\n");
        let said = read(&input("1s", &text), &[]).unwrap_err().to_string();
        assert!(said.contains(why), "{task}: {said}");
    }
}
