// SPDX-License-Identifier: GPL-2.0-only
//! Short runs on this machine's own kernel. Nothing here depends on how fast or how busy it is: identities between the
//! figures are checked, and what happens in so much CPU time ([`in_time`]).
use berth_loadgen::{LoadError, Options, Outcome, run};
use berth_scenario::model::*;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

fn task(name: &str, threads: Option<u32>, steps: Vec<Step>) -> (String, Task) {
    let task = Task {
        name: name.into(),
        threads,
        nice: 0,
        affinity: vec![],
        steps,
        ..Task::default()
    };
    (name.into(), task)
}

fn vm(name: &str, count: u32, vcpus: u32, task: &str) -> Vm {
    Vm {
        name: name.into(),
        count,
        vcpus,
        class: Class::Batch,
        reserved_vcpus: 0,
        weight: 100,
        cap_milli: None,
        affinity: vec![],
        nice: 0,
        tasks: vec![task.into()],
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

/// Web servers, a hog, a timer, a closed loop, and threads that come and go.
fn scenario() -> Scenario {
    let serve = |q: &str| {
        vec![
            Step::Receive(q.into()),
            Step::Compute(Dist::Exp { mean_ns: 100e3 }),
            Step::Reply,
        ]
    };
    let beat = vec![
        Step::Timer { period_ns: 5 * MS },
        Step::Compute(Dist::Const(50_000)),
        Step::Yield,
    ];
    let parent = vec![
        Step::Sleep(Dist::Const(20 * MS)),
        Step::Fork("child".into()),
        Step::SetNice(1),
    ];
    let child = vec![
        Step::Compute(Dist::Const(MS)),
        Step::Send {
            to: "users".into(),
            bytes: 1,
        },
        Step::Exit,
    ];
    let tasks = [
        task("worker", Some(4), serve("users")),
        task("loop", None, serve("closed")),
        task("hog", None, vec![Step::Busy]),
        task("beat", Some(1), beat),
        task("parent", Some(1), parent),
        task("child", None, child),
    ];
    let mut build = vm("build", 1, 1, "hog");
    build.start_ns = 100 * MS;
    build.stop_ns = Some(600 * MS);
    Scenario {
        name: "t".into(),
        title: "t".into(),
        run: Run {
            warmup_ns: 200 * MS,
            measure_ns: 800 * MS,
            seeds: 1,
        },
        host: Host {
            nodes: 1,
            packages: 1,
            llcs: 1,
            cores: 2,
            threads: 1,
            hz: Hz::Ticks(250),
            tasks: vec!["beat".into()],
            ..Host::default()
        },
        vms: vec![
            vm("web", 2, 2, "worker"),
            vm("db", 1, 1, "loop"),
            build,
            vm("tick", 1, 1, "beat"),
            vm("spawner", 1, 1, "parent"),
        ],
        tasks: tasks.into(),
        clients: vec![
            client(
                "users",
                "web",
                Sends::Open {
                    gap: Dist::Exp { mean_ns: 5e6 },
                },
            ),
            client(
                "closed",
                "db",
                Sends::Closed {
                    users: 3,
                    think: Dist::Exp { mean_ns: 10e6 },
                },
            ),
        ],
        ..Scenario::default()
    }
}

fn go(scenario: &Scenario, options: &mut Options) -> Result<Outcome, LoadError> {
    (options.warmup_ns, options.measure_ns) = (scenario.run.warmup_ns, scenario.run.measure_ns);
    run(scenario, 1, options)
}

/// Runs with a window twice as long until enough has happened in it: a busy machine gives less CPU time in the same
/// time.
fn in_time(
    scenario: &mut Scenario,
    options: &mut Options,
    enough: impl Fn(&Outcome, f64) -> bool,
) -> Outcome {
    loop {
        let outcome = go(scenario, options).unwrap();
        if enough(&outcome, scenario.run.measure_ns as f64) {
            return outcome;
        }
        let longer = 2 * scenario.run.measure_ns;
        assert!(
            longer < 200_000 * MS,
            "nothing goes on: {:?}",
            outcome.metrics
        );
        scenario.run.measure_ns = longer;
    }
}

/// CPU time that the VMs named had at least, in nanoseconds.
fn least_cpu_ns(metrics: &BTreeMap<String, f64>, vms: &[&str], window_ns: f64) -> f64 {
    let cpu_ns = vms
        .iter()
        .map(|vm| metrics[&format!("{vm}.cpu")] * window_ns);
    cpu_ns.fold(f64::MAX, f64::min)
}

#[test]
fn the_figures_of_a_run_fit_together() {
    let mut told = 0;
    let mut scenario = scenario();
    let announce = |threads: &[(berth_scenario::placement::HostThread, i32)]| {
        told = threads.len();
        assert!(threads.iter().all(|(_, tid)| *tid > 0));
        Ok(())
    };
    let mut options = Options {
        on_threads: Some(Box::new(announce)),
        ..Options::default()
    };
    let measured = [
        "web.response",
        "web.wakeup",
        "db.response",
        "tick.wakeup",
        "spawner.wakeup",
    ];
    let all = |outcome: &Outcome, _| {
        let has = |name: &&str| outcome.metrics.contains_key(&format!("{name}.p50"));
        measured.iter().all(has)
    };
    let outcome = in_time(&mut scenario, &mut options, all);
    drop(options);
    assert_eq!(told, 4 + 1 + 1 + 1 + 1 + 1);
    let m = &outcome.metrics;
    for (name, value) in m {
        assert!(value.is_finite() && *value >= 0.0, "{name} = {value}");
    }
    for vm in ["web", "db", "build", "tick", "spawner"] {
        // Counters of running threads are up to a tick old.
        let cpu_ns = m[&format!("{vm}.cpu")] * scenario.run.measure_ns as f64 * 1.125;
        assert!(
            m[&format!("{vm}.work")] <= cpu_ns + 60e6,
            "{vm} worked more than it ran: {m:?}"
        );
        let share = m[&format!("{vm}.run_delay.share")];
        assert!((0.0..=1.0).contains(&share), "{vm} waits {share}");
    }
    assert!(m["host.idle"] <= 1.0);
    for (group, a, b) in [("web", "web-1", "web-2")] {
        for quantity in ["work", "cpu", "response.count"] {
            let sum = m[&format!("{a}.{quantity}")] + m[&format!("{b}.{quantity}")];
            let whole = m[&format!("{group}.{quantity}")];
            assert!(
                (sum - whole).abs() <= 1e-9 * whole.max(1.0),
                "{group}.{quantity}: {sum} is not {whole}"
            );
        }
    }
    for name in measured {
        let stats = ["p50", "p90", "p99", "p999", "max"].map(|s| m[&format!("{name}.{s}")]);
        assert!(stats.windows(2).all(|w| w[0] <= w[1]), "{name}: {stats:?}");
        assert!(m[&format!("{name}.mean")] <= stats[4] * 1.001);
    }
    assert!(
        !m.contains_key("web.run_delay.p99"),
        "the kernel does not tell percentiles of run delay"
    );
    assert!(
        outcome
            .notes
            .iter()
            .any(|n| n.contains("run_delay percentiles"))
    );
}

#[test]
fn a_vm_that_has_stopped_works_no_more() {
    let mut s = scenario();
    s.vms.truncate(0);
    s.clients.clear();
    s.host.tasks.clear();
    s.vms.push(Vm {
        stop_ns: Some(50 * MS),
        ..vm("early", 1, 1, "hog")
    });
    s.run = Run {
        warmup_ns: 150 * MS,
        measure_ns: 100 * MS,
        seeds: 1,
    };
    let m = go(&s, &mut Options::default()).unwrap().metrics;
    // A thread that waits for a CPU when its VM stops needs one once more, to end.
    let cpu_ns = m["early.cpu"] * s.run.measure_ns as f64;
    assert!(m["early.work"] <= 1e6 && cpu_ns <= 2e6, "{m:?}");
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let mut s = scenario();
    s.vms[0].affinity = vec![4000];
    let error = go(&s, &mut Options::default()).unwrap_err().to_string();
    assert!(
        error.starts_with("thread web-1/0 cannot have its CPU affinity"),
        "{error}"
    );
    let mut s = scenario();
    s.host.hotplug.push(Hotplug {
        at_ns: 1,
        cpu: 1,
        online: false,
    });
    assert!(
        go(&s, &mut Options::default())
            .unwrap_err()
            .to_string()
            .contains("host.hotplug")
    );
    let mut s = scenario();
    s.vms[0].tasks.push("hog".into());
    let error = go(&s, &mut Options::default()).unwrap_err().to_string();
    assert!(error.starts_with("task `worker` of vm.web"), "{error}");
    let options = &mut Options {
        cgroup_root: Some("/proc/berth".into()),
        ..Options::default()
    };
    assert!(matches!(
        run(&scenario(), 1, options),
        Err(LoadError::Cgroup { .. })
    ));
}

/// Locks, a barrier, stolen work, signals and steps before the loop: everybody gets somewhere, and the run ends
/// although threads sleep and spin for each other.
#[test]
fn threads_that_wait_for_each_other_get_on_and_end() {
    let name = || "x".to_string();
    let work = || Step::Compute(Dist::Const(MS / 10));
    let parallel = vec![
        Step::Chunks {
            name: name(),
            chunks: 8,
            each: Dist::Const(MS / 10),
        },
        Step::Barrier { name: name() },
    ];
    let locked = vec![
        Step::Lock { name: name() },
        work(),
        Step::Unlock { name: name() },
        Step::Spin { name: "s".into() },
        Step::Unlock { name: "s".into() },
        work(),
    ];
    let wait = vec![Step::Wait { name: name() }, work()];
    let ring = vec![
        Step::Sleep(Dist::Const(MS)),
        Step::Signal { name: name() },
        Step::Broadcast { name: name() },
    ];
    let mut tasks = [
        task("parallel", None, parallel),
        task("locked", Some(2), locked),
        task("wait", Some(2), wait),
        task("ring", Some(1), ring),
    ];
    // The waiters do 50 ms before their loop begins.
    tasks[2].1.first = vec![Step::Compute(Dist::Const(50 * MS))];
    let mut signals = vm("signals", 1, 3, "wait");
    signals.tasks.push("ring".into());
    let mut s = scenario();
    s.tasks = tasks.into();
    s.clients = vec![];
    s.host.tasks = vec![];
    s.run.warmup_ns = 0;
    s.run.measure_ns = 500 * MS;
    s.vms = vec![
        vm("parallel", 1, 2, "parallel"),
        vm("locked", 1, 2, "locked"),
        signals,
    ];
    // With 110 ms, one of the waiters at least is through its 50 ms.
    let vms = ["parallel", "locked", "signals"];
    let had_time =
        |outcome: &Outcome, window_ns| least_cpu_ns(&outcome.metrics, &vms, window_ns) >= 110e6;
    let outcome = in_time(&mut s, &mut Options::default(), had_time);
    let m = &outcome.metrics;
    for vm in vms {
        assert!(m[&format!("{vm}.work")] > 0.0, "{vm}: {m:?}");
    }
    assert!(m["signals.work"] >= 60e6, "{m:?}");
}
