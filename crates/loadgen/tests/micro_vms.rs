// SPDX-License-Identifier: GPL-2.0-only
//! Scenarios whose vCPUs are those of real micro-VMs, on this machine's `/dev/kvm`; skipped with a word where there is
//! none. Nothing here depends on how fast or how busy the machine is.
#![cfg(all(target_arch = "x86_64", not(feature = "no-micro-vms")))]
use berth_loadgen::{LoadError, Options, Outcome, Vcpus, run};
use berth_scenario::model::*;
use std::sync::Mutex;

const MS: u64 = 1_000_000;

/// Every run wants the whole machine.
static ONE: Mutex<()> = Mutex::new(());

fn task(name: &str, threads: Option<u32>, steps: Vec<Step>) -> (String, Task) {
    let task = Task {
        name: name.into(),
        threads,
        steps,
        ..Task::default()
    };
    (name.into(), task)
}

fn vm(name: &str, vcpus: u32, tasks: &[&str]) -> Vm {
    Vm {
        name: name.into(),
        vcpus,
        tasks: tasks.iter().map(|t| t.to_string()).collect(),
        ..Vm::default()
    }
}

fn client(name: &str, to: &str, sends: Sends) -> Client {
    Client {
        name: name.into(),
        to: to.into(),
        sends,
        request_bytes: 64,
        reply_bytes: 64,
        window_bytes: None,
        at_most: None,
    }
}

fn name(text: &str) -> String {
    text.to_string()
}

fn go(vms: Vec<Vm>, tasks: Vec<(String, Task)>, clients: Vec<Client>) -> Option<Outcome> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let scenario = Scenario {
        vms,
        tasks: tasks.into_iter().collect(),
        clients,
        ..Scenario::default()
    };
    let mut options = Options {
        warmup_ns: 100 * MS,
        measure_ns: 500 * MS,
        vcpus: Vcpus::Kvm,
        ..Options::default()
    };
    match run(&scenario, 1, &mut options) {
        Ok(outcome) => {
            println!("{:#?} {:?}", outcome.metrics, outcome.notes);
            Some(outcome)
        }
        Err(LoadError::Kvm(e)) if e.to_string().starts_with("/dev/kvm") => {
            println!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn requests_wake_a_guest_that_answers_while_another_burns() {
    let serve = vec![
        Step::Receive(name("users")),
        Step::Compute(Dist::Const(50_000)),
        Step::Reply,
    ];
    let sends = Sends::Closed {
        users: 1,
        think: Dist::Const(5 * MS),
    };
    let Some(outcome) = go(
        vec![vm("web", 1, &["worker"]), vm("hog", 1, &["burn"])],
        vec![
            task("worker", Some(2), serve),
            task("burn", None, vec![Step::Busy]),
        ],
        vec![client("users", "web", sends)],
    ) else {
        return;
    };
    let m = &outcome.metrics;
    // One user: as many answers as rounds, and each found the guest asleep.
    let answers = m["web.response.count"];
    assert!((3.0..=100.0).contains(&answers), "{answers}");
    assert!(m["web.wakeup.p50"] > 0.0 && m["web.response.p50"] >= 50_000.0);
    assert!(m["hog.work"] > 0.0 && m["web.work"] > 0.0);
    // The answers in the window, give or take those at its ends.
    let work = m["web.work"] / 50_000.0;
    assert!((work - answers).abs() <= 2.0, "{work} {answers}");
    let names: Vec<_> = outcome
        .threads
        .iter()
        .map(|(t, _)| t.name.as_str())
        .collect();
    assert_eq!(names, ["web/0", "hog/0"]);
}

#[test]
fn timers_locks_barriers_and_events_hold_inside_a_guest() {
    let pair = |steps: Vec<Step>| steps;
    let locker = pair(vec![
        Step::Lock { name: name("m") },
        Step::Compute(Dist::Const(20_000)),
        Step::Unlock { name: name("m") },
        Step::Spin { name: name("s") },
        Step::Unlock { name: name("s") },
        Step::Barrier { name: name("b") },
    ]);
    let beat = vec![
        Step::Timer {
            period_ns: 5 * MS,
            grid: Grid::Random,
        },
        Step::Compute(Dist::Uniform {
            lo_ns: 1_000,
            hi_ns: 50_000,
        }),
        Step::Broadcast { name: name("e") },
    ];
    let waits = vec![
        Step::Wait { name: name("e") },
        Step::Compute(Dist::Const(10_000)),
    ];
    let Some(outcome) = go(
        vec![
            vm("pairs", 2, &["locker"]),
            vm("timers", 3, &["beat", "waits"]),
        ],
        vec![
            task("locker", Some(2), locker),
            task("beat", Some(1), beat),
            task("waits", Some(2), waits),
        ],
        vec![],
    ) else {
        return;
    };
    let m = &outcome.metrics;
    assert!(m["pairs.work"] > 0.0, "the pair went round");
    assert!(m["timers.work"] > 0.0 && m["timers.wakeup.p50"] > 0.0);
}

#[test]
fn a_request_wakes_the_vcpu_that_serves_it_and_no_other() {
    // The first vCPU sleeps nearly always; the interrupt must go to the second.
    let serve = vec![Step::Receive(name("users")), Step::Reply];
    let nap = vec![Step::Sleep(Dist::Const(400 * MS))];
    let sends = Sends::Closed {
        users: 1,
        think: Dist::Const(2 * MS),
    };
    let Some(outcome) = go(
        vec![vm("web", 2, &["nap", "worker"])],
        vec![task("nap", Some(1), nap), task("worker", Some(1), serve)],
        vec![client("users", "web", sends)],
    ) else {
        return;
    };
    // Woken by chance only, there would be two.
    let answers = outcome.metrics["web.response.count"];
    assert!(answers >= 10.0, "{answers}");
}

#[test]
fn many_tasks_share_a_vcpu_by_the_guests_scheduler() {
    // Two that never sleep, and one that must still get its turn between them.
    let Some(outcome) = go(
        vec![
            vm("busy", 1, &["burn", "asks"]),
            vm("other", 1, &["answers"]),
        ],
        vec![
            task("burn", Some(2), vec![Step::Busy]),
            task(
                "asks",
                Some(1),
                vec![
                    Step::Sleep(Dist::Const(2 * MS)),
                    Step::Send {
                        to: name("answers"),
                        bytes: 1,
                    },
                ],
            ),
            task(
                "answers",
                Some(1),
                vec![
                    Step::Receive(name("asked")),
                    Step::Compute(Dist::Const(1_000)),
                ],
            ),
        ],
        vec![],
    ) else {
        return;
    };
    let m = &outcome.metrics;
    assert!(m["busy.work"] > 0.0);
    assert!(m["other.work"] > 0.0, "its messages came through");
    assert_eq!(outcome.threads.len(), 2);
}

#[test]
fn what_a_guest_cannot_do_is_refused_or_done_by_threads() {
    let scenario = Scenario {
        vms: vec![vm("v", 1, &["t"])],
        tasks: [
            task("t", Some(1), vec![Step::Fork(name("u")), Step::Exit]),
            task("u", Some(1), vec![Step::Exit]),
        ]
        .into(),
        ..Scenario::default()
    };
    let mut options = Options {
        measure_ns: 20 * MS,
        vcpus: Vcpus::Kvm,
        ..Options::default()
    };
    let said = run(&scenario, 1, &mut options).unwrap_err().to_string();
    assert_eq!(said, "a micro-VM cannot do the step `fork` of task.t");
    options.vcpus = Vcpus::Auto;
    let notes = run(&scenario, 1, &mut options).unwrap().notes;
    assert!(
        notes
            .iter()
            .any(|n| n.contains("plain threads") && n.contains("`fork`")),
        "{notes:?}"
    );
}
