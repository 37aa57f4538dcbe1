// SPDX-License-Identifier: GPL-2.0-only
//! Changes of a scenario that must change nothing, or exactly what they say: all times times k, CPUs of one class
//! renamed, machine and load doubled, an idle CPU that nobody may use, a computation cut in two.
use berth_policy::policy::{LoadOptions, Policy};
use berth_results::schema::RunRecord;
use berth_scenario::model::*;
use berth_sim::oracle::random;
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;

fn policy(name: &str) -> Policy {
    let builtin = berth_builtin::find(name).expect("a shipped policy");
    builtin.load(&LoadOptions::default()).unwrap()
}

/// Metrics of the VMs (the host's own, like instructions per switch, are not part of a relation).
fn run(scenario: &Scenario, policy: &Policy, slice_us: u64) -> RunRecord {
    let params = BTreeMap::from([("slice_us".to_string(), slice_us.to_string())]);
    run_one(scenario, "arm", policy, &params, 1, &Options::default()).unwrap()
}

/// A machine without costs and ticks, two VMs of workers, hogs and a server with a client.
fn base(cpus: u32) -> Scenario {
    let mut s = random::scenario("arm", &mut random::from_list(&[]));
    s.run.warmup_ns = 10_000_000;
    s.run.measure_ns = 400_000_000;
    s.host.cores = cpus;
    s.host.hz = Hz::Exact;
    let template = s.vms[0].clone();
    let vm = |name: &str, vcpus, tasks: &[&str]| Vm {
        name: name.into(),
        vcpus,
        tasks: tasks.iter().map(|t| t.to_string()).collect(),
        ..template.clone()
    };
    s.vms = vec![
        vm("web", 2, &["serve"]),
        vm("build", cpus + 1, &["hog"]),
        vm("batch", 3, &["work"]),
    ];
    let task = |name: &str, steps: Vec<Step>| {
        let task = Task {
            name: name.into(),
            threads: None,
            nice: 0,
            affinity: vec![],
            steps,
            ..Task::default()
        };
        (name.to_string(), task)
    };
    s.tasks = BTreeMap::from([
        task("hog", vec![Step::Busy]),
        task(
            "work",
            vec![
                Step::Compute(Dist::Uniform {
                    lo_ns: 300_000,
                    hi_ns: 2_000_000,
                }),
                Step::Sleep(Dist::Const(700_000)),
            ],
        ),
        task(
            "serve",
            vec![
                Step::Receive("users".into()),
                Step::Compute(Dist::Const(210_000)),
                Step::Reply,
            ],
        ),
    ]);
    s.clients = vec![Client {
        name: "users".into(),
        to: "web".into(),
        sends: Sends::Open {
            gap: Dist::Values(vec![900_000, 1_300_000, 400_000, 2_100_000]),
        },
        request_bytes: 1,
        reply_bytes: 1,
        window_bytes: None,
        at_most: None,
    }];
    s
}

fn scaled(d: &Dist, k: u64) -> Dist {
    match d {
        Dist::Const(ns) => Dist::Const(k * ns),
        Dist::Values(all) => Dist::Values(all.iter().map(|ns| k * ns).collect()),
        other => panic!("{other:?} does not scale to the nanosecond"),
    }
}

/// Everything takes k times as long, and nothing else changes: not one switch more or less.
#[test]
fn times_scale() {
    let k = 7;
    for name in ["vmfair", "vtime", "gfifo"] {
        let policy = policy(name);
        let mut one = base(2);
        // Uniform numbers are drawn from a range, which does not scale exactly; values do.
        let work = one.tasks.get_mut("work").unwrap();
        work.steps[0] = Step::Compute(Dist::Values(vec![300_000, 1_900_000, 1_100_000]));
        let mut large = one.clone();
        large.run.warmup_ns *= k;
        large.run.measure_ns *= k;
        for task in large.tasks.values_mut() {
            for step in &mut task.steps {
                if let Step::Compute(d) | Step::Sleep(d) = step {
                    *d = scaled(d, k);
                }
            }
        }
        if let Sends::Open { gap } = &mut large.clients[0].sends {
            *gap = scaled(gap, k);
        }
        let parameters = |k: u64| {
            let mut all: BTreeMap<String, String> = BTreeMap::new();
            for p in policy.params().iter().filter(|p| p.unit == "us") {
                // Defaults scale too: slices, credits, periods.
                let us: u64 = p.default.to_string().parse().unwrap();
                all.insert(p.name.clone(), (k * us).to_string());
            }
            // The kernel's own slice, for who runs alone, is 20 ms and does not scale: nobody runs alone here.
            all
        };
        let record = |s: &Scenario, k| {
            run_one(s, "arm", &policy, &parameters(k), 1, &Options::default()).unwrap()
        };
        let (a, b) = (record(&one, 1), record(&large, k));
        // The relation can fail: slices that do not scale are noticed.
        let unscaled = record(&large, 1);
        assert_ne!(
            unscaled.metrics["web.response.mean"], b.metrics["web.response.mean"],
            "{name}"
        );
        for metric in [
            "web.response.count",
            "web.cpu",
            "build.cpu",
            "batch.cpu",
            "host.idle",
        ] {
            assert_eq!(a.metrics[metric], b.metrics[metric], "{name}: {metric}");
        }
        for metric in [
            "web.response.mean",
            "web.response.max",
            "build.work",
            "batch.work",
        ] {
            let (a, b) = (a.metrics[metric], b.metrics[metric]);
            assert!(
                (b / (k as f64 * a) - 1.0).abs() < 1e-12,
                "{name}: {metric} {a} {b}"
            );
        }
        let (a, b) = (a.metrics["host.switches"], b.metrics["host.switches"]);
        assert!(
            (a / (k as f64 * b) - 1.0).abs() < 1e-12,
            "{name}: {a} {b} switches/s"
        );
    }
}

/// Two VMs pinned to one CPU each: which CPU has which number does not matter.
#[test]
fn cpus_of_one_class_can_be_renamed() {
    for name in ["vmfair", "vtime", "gfifo"] {
        let policy = policy(name);
        let pinned = |names: [u32; 2]| {
            let mut s = base(3);
            s.vms[0].affinity = vec![names[0]];
            s.vms[1].affinity = vec![names[0]];
            s.vms[2].affinity = vec![names[1]];
            run(&s, &policy, 1_000).metrics
        };
        let want = pinned([1, 2]);
        assert_eq!(pinned([2, 1]), want, "{name}");
        assert_eq!(pinned([0, 2]), want, "{name}");
        // The relation can fail: sharing one CPU is something else.
        assert_ne!(pinned([1, 1]), want, "{name}");
    }
}

/// The same computation in two steps is the same computation.
#[test]
fn a_computation_can_be_cut_in_two() {
    for name in ["vmfair", "vtime", "gfifo"] {
        let policy = policy(name);
        for hz in [Hz::Exact, Hz::Ticks(250)] {
            let mut whole = base(2);
            whole.host.hz = hz;
            let set = |s: &mut Scenario, task: &str, at: usize, parts: &[u64]| {
                let compute = parts.iter().map(|ns| Step::Compute(Dist::Const(*ns)));
                let steps = &mut s.tasks.get_mut(task).unwrap().steps;
                steps.splice(at..=at, compute);
            };
            let mut cut = whole.clone();
            set(&mut whole, "work", 0, &[1_100_000]);
            set(&mut cut, "work", 0, &[1_000_000, 100_000]);
            set(&mut cut, "serve", 1, &[100_000, 1, 109_999]);
            let (whole, cut) = (run(&whole, &policy, 1_000), run(&cut, &policy, 1_000));
            assert_eq!(whole, cut, "{name}, {hz:?}");
            // The relation can fail: one nanosecond more is noticed.
            let mut longer = base(2);
            longer.host.hz = hz;
            set(&mut longer, "work", 0, &[1_100_001]);
            assert_ne!(
                run(&longer, &policy, 1_000).hash,
                cut.hash,
                "{name}, {hz:?}"
            );
        }
    }
}

/// One more CPU that no task's affinity contains stays idle, and nobody notices.
#[test]
fn an_unusable_idle_cpu_changes_nothing() {
    for name in ["vmfair", "vtime", "gfifo"] {
        let policy = policy(name);
        let with = |cpus: u32| {
            let mut s = base(2);
            s.host.cores = cpus;
            for vm in &mut s.vms {
                vm.affinity = vec![0, 1];
            }
            run(&s, &policy, 1_000).metrics
        };
        let (two, three) = (with(2), with(3));
        for (metric, value) in two.iter().filter(|(m, _)| !m.starts_with("policy.")) {
            let got = three[metric];
            match metric.as_str() {
                "host.idle" => assert!((got - (2.0 * value + 1.0) / 3.0).abs() < 1e-9, "{name}"),
                // Of threads that are bound to no CPUs, which these are on the larger host.
                "host.unused" => assert_eq!(got, 0.0, "{name}"),
                "host.switches_per_cpu" => {
                    assert!((3.0 * got - 2.0 * value).abs() < 1e-6 * value, "{name}");
                }
                _ => assert_eq!(got, *value, "{name}: {metric}"),
            }
        }
    }
}

/// Twice the machine, its halves kept apart, with twice the load: each half is what the whole was.
/// (Not for vmfair: it shares the whole machine by VM, and a VM kept on a half gets what its half leaves.)
#[test]
fn machine_and_load_can_be_doubled() {
    for name in ["vtime", "gfifo"] {
        let policy = policy(name);
        let half = |s: &mut Scenario, cpus: Vec<u32>| {
            s.vms.iter_mut().for_each(|vm| vm.affinity = cpus.clone());
        };
        let mut one = base(1);
        // Random numbers belong to a thread's position: only constants are equal in both halves.
        let steps = &mut one.tasks.get_mut("work").unwrap().steps;
        steps[0] = Step::Compute(Dist::Const(1_100_000));
        half(&mut one, vec![0]);
        let mut two = one.clone();
        two.host.cores = 2;
        let mut other = one.clone();
        half(&mut other, vec![1]);
        for mut vm in other.vms {
            vm.name += "-too";
            two.vms.push(vm);
        }
        two.clients.push(Client {
            to: "web-too".into(),
            ..two.clients[0].clone()
        });
        let (one, two) = (run(&one, &policy, 1_000), run(&two, &policy, 1_000));
        for metric in ["web.cpu", "build.cpu", "batch.cpu"] {
            let twin = metric.replace('.', "-too.");
            let (want, a, b) = (one.metrics[metric], two.metrics[metric], two.metrics[&twin]);
            // One queue serves both halves: who is skipped for its affinity keeps its place, so that each half
            // stays fair within two slices.
            assert!(
                (a - want).abs() < 0.02 && (b - want).abs() < 0.02,
                "{name}: {metric} {want} {a} {b}"
            );
        }
        let sum: f64 = two
            .metrics
            .iter()
            .filter(|(m, _)| m.ends_with(".cpu"))
            .map(|(_, v)| v)
            .sum();
        assert!((sum - 2.0).abs() < 1e-6, "{name}: {sum} CPUs used");
    }
}
