// SPDX-License-Identifier: GPL-2.0-only
//! Short runs on this machine's own kernel. Nothing here depends on how fast or how busy it is: identities between the
//! figures are checked, and what happens in so much CPU time ([`in_time`]).
use berth_loadgen::{LoadError, Options, Outcome, Teller, run};
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

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
        Step::Timer {
            period_ns: 5 * MS,
            grid: Grid::Random,
        },
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

/// A thread for each of a batch of requests, told of before it begins: what the simulator draws, each once; and then
/// it does just that.
#[test]
fn each_request_has_a_thread_whose_size_is_told() {
    const REQUESTS: u32 = 40;
    let of = |estimate, steps| Task {
        per_request: true,
        estimate: Some(estimate),
        ..task("job", None, steps).1
    };
    let size = Dist::Exp { mean_ns: 200e3 };
    let steps = vec![
        Step::Receive("users".into()),
        Step::Compute(size.clone()),
        Step::Yield,
        Step::Compute(size.clone()),
        Step::Reply,
        Step::Compute(Dist::Const(MS / 10)),
    ];
    let mut s = scenario();
    s.tasks = [("job".to_string(), of(Estimate::Lognormal(1.0), steps))].into();
    s.host.tasks = vec![];
    s.vms = vec![vm("jobs", 2, 1, "job")];
    s.clients = vec![client("users", "jobs", Sends::Batch { count: REQUESTS })];
    (s.run.warmup_ns, s.run.measure_ns) = (0, 200 * MS);
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let mut options = Options {
        tell: Teller(Some(Arc::new(move |tid, job| {
            heard.lock().unwrap().push((tid, *job));
            Ok(())
        }))),
        ..Options::default()
    };
    let all = f64::from(2 * REQUESTS);
    let outcome = in_time(&mut s, &mut options, |outcome, _| {
        told.lock().unwrap().drain(..).collect::<Vec<_>>().len() == all as usize
            && outcome.metrics["jobs.response.count"] == all
    });
    let m = &outcome.metrics;
    for quantity in ["response.offered", "waiting.count", "begin.count"] {
        assert_eq!(m[&format!("jobs.{quantity}")], all, "{quantity}");
    }
    assert_eq!(m["jobs-2.waiting.count"], f64::from(REQUESTS));
    assert!(m["jobs.waiting.mean"] <= m["jobs.response.mean"], "{m:?}");
    assert!(m["jobs.begin.mean"] <= m["jobs.response.mean"], "{m:?}");

    // Once more, for the sizes.
    let outcome = go(&s, &mut options).unwrap();
    let told = std::mem::take(&mut *told.lock().unwrap());
    let ids: BTreeSet<i32> = told.iter().map(|(tid, _)| *tid).collect();
    assert_eq!(ids.len(), told.len());
    assert_eq!(ids, outcome.threads.iter().map(|(_, tid)| *tid).collect());
    let (mut due, mut work) = (Vec::new(), 0);
    for home in 0..2 {
        for number in 0..REQUESTS {
            let task = 0;
            let mut rng = Rng::new(1, Stream::Request { task, home, number });
            let ns = size.sample(&mut rng, 0) + size.sample(&mut rng, 0) + MS / 10;
            let mut rng = Rng::new(1, Stream::Estimate { task, home, number });
            due.push(rng.estimate(Estimate::Lognormal(1.0), ns));
            work += ns;
        }
    }
    let mut sizes: Vec<u64> = told.iter().map(|(_, job)| job.size_ns).collect();
    sizes.sort_unstable();
    due.sort_unstable();
    assert_eq!(sizes, due);
    assert!(told.iter().all(|(_, job)| job.each));
    if outcome.metrics["jobs.response.count"] == all {
        // Each burst is right to some microseconds; the last of a thread may be missing at the end of the run.
        let did = outcome.metrics["jobs.work"];
        let off = all * 1e-3 * MS as f64 + 20e6;
        assert!((did - work as f64).abs() <= off, "{did} for {work}");
    }
}

/// Threads that take requests tell of the next one before they wait for it; a loop is told of once.
#[test]
fn sizes_of_servers_are_told_ahead() {
    let serve = |q: &str| {
        vec![
            Step::Receive(q.into()),
            Step::Compute(Dist::Const(100_000)),
            Step::Reply,
        ]
    };
    let mut s = scenario();
    let mut server = task("server", Some(1), serve("users")).1;
    let mut beat = task(
        "beat",
        Some(1),
        vec![
            Step::Compute(Dist::Const(50_000)),
            Step::Sleep(Dist::Const(MS)),
        ],
    )
    .1;
    server.estimate = Some(Estimate::Oracle);
    beat.estimate = Some(Estimate::Oracle);
    s.tasks = [("server".to_string(), server), ("beat".to_string(), beat)].into();
    s.host.tasks = vec![];
    s.vms = vec![vm("served", 1, 1, "server"), vm("beats", 1, 1, "beat")];
    s.clients = vec![client("users", "served", Sends::Batch { count: 10 })];
    (s.run.warmup_ns, s.run.measure_ns) = (0, 100 * MS);
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let mut options = Options {
        tell: Teller(Some(Arc::new(move |tid, job| {
            heard.lock().unwrap().push((tid, *job));
            Ok(())
        }))),
        ..Options::default()
    };
    let outcome = in_time(&mut s, &mut options, |outcome, _| {
        let done = outcome.metrics["served.response.count"] == 10.0;
        if !done {
            told.lock().unwrap().clear();
        }
        done
    });
    let told = told.lock().unwrap();
    let of = |vm: &str| {
        let mut threads = outcome.threads.iter();
        let (_, tid) = threads
            .find(|(thread, _)| thread.name == format!("{vm}/0"))
            .unwrap();
        let told = told.iter().filter(|(of, _)| of == tid);
        told.map(|(_, job)| (job.size_ns, job.each))
            .collect::<Vec<_>>()
    };
    // One more than were answered: it waits for the next.
    assert_eq!(of("served"), [(100_000, true); 11]);
    assert_eq!(of("beats"), [(50_000, false)]);
}
