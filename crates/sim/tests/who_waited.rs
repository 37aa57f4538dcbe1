// SPDX-License-Identifier: GPL-2.0-only
//! Who waited for whom, held against an account of the trace that shares nothing with the simulator's; and the
//! worst waits against the metrics.
use berth_policy::policy::LoadOptions;
use berth_results::detail::{COSTS, IDLE};
use berth_results::schema::RunRecord;
use berth_scenario::{Input, Loaded, read};
use berth_sim::run::{Options, load_policy, machine_spec, run_one, settle, vm_specs};
use berth_sim::sim::Simulation;
use berth_sim::trace::Kind;
use berth_sim::workload::scenario::ScenarioWorkload;
use std::collections::BTreeMap;

const TEXT: &str = r#"
title = "one CPU"
[host]
cores = 1
task = ["daemon"]
[host.cost]
switch = "3us"
[vm.web]
count = 2
vcpus = 2
tasks = ["worker"]
[vm.build]
vcpus = 2
class = "batch"
tasks = ["busy"]
[task.busy]
model = "busy"
[task.worker]
threads = 2
loop = ["sleep exp(3ms)", "compute exp(300us)"]
[task.daemon]
loop = ["sleep 5ms", "compute 200us"]
[compare]
policies = ["vmfair"]
[run]
warmup = "0s"
measure = "1s"
"#;

fn loaded(text: &str) -> Loaded {
    let input = Input {
        name: "t".into(),
        shown: "t".into(),
        text: text.into(),
        folder: None,
    };
    read(&input, &[]).unwrap_or_else(|e| panic!("{e}"))
}

fn policy(name: &str) -> berth_policy::policy::Policy {
    let found = berth_builtin::find(name).expect("shipped");
    found.load(&LoadOptions::default()).expect("loads")
}

/// On one CPU a trace says all: who woke when, and who had the CPU. Every wait is cut by hand here.
#[test]
fn one_cpu_by_hand() {
    let text = TEXT.replace("task = [", "tasks = [");
    let scenario = loaded(&text).scenario;
    for name in ["vmfair", "vtime", "gfifo"] {
        let opts = Options::default();
        let vms = vm_specs(&scenario);
        let workload = ScenarioWorkload::new(&scenario, 3).unwrap();
        let mut m = Simulation::new(&machine_spec(&scenario.host, 3, &opts), &vms, workload);
        m.record();
        load_policy(&mut m, &policy(name), &BTreeMap::new(), &vms, &opts).unwrap();
        m.start();
        m.run_until(1_000_000_000).unwrap();
        let k = m.kernel();
        settle(k);
        m.check().unwrap();
        let nr = vms.len() + 1;
        let (idle, costs) = (nr, nr + 1);
        let entry = |task: u32| k.tasks.hot[task as usize].stats as usize;

        // What had the CPU, from when on; and the waits.
        let mut segments: Vec<(u64, usize)> = vec![(0, idle)];
        let mut since = BTreeMap::<u32, u64>::new();
        let mut waits: Vec<(usize, u64, u64)> = Vec::new();
        let (mut on_cpu, mut last) = (0u32, 0u32);
        let asleep_after = |task: u32, at: u64, trace: &[berth_sim::trace::Event]| {
            // A task that left the CPU slept if its next event is a wake-up.
            let next = trace.iter().find(|e| {
                e.at_ns >= at && e.task == task && matches!(e.kind, Kind::Wake | Kind::Switch)
            });
            next.is_some_and(|e| e.kind == Kind::Wake)
        };
        let trace = m.trace();
        for (i, e) in trace.iter().enumerate() {
            match e.kind {
                Kind::Wake => {
                    since.insert(e.task, e.at_ns);
                }
                Kind::Switch => {
                    let rest = &trace[i + 1..];
                    if on_cpu != 0 && !asleep_after(on_cpu, e.at_ns, rest) {
                        let ever = rest.iter().any(|f| f.task == on_cpu);
                        // Nothing more of it until the end: it still waits, or sleeps. Hogs never sleep.
                        if ever || k.tasks.name(on_cpu).starts_with("build") {
                            since.insert(on_cpu, e.at_ns);
                        }
                    }
                    if e.task != 0 {
                        let from = since.remove(&e.task).expect("it waited");
                        waits.push((entry(e.task), from, e.at_ns));
                        if last != e.task {
                            segments.push((e.at_ns, costs));
                            segments.push((e.at_ns + 3_000, entry(e.task)));
                        } else {
                            segments.push((e.at_ns, entry(e.task)));
                        }
                        last = e.task;
                    } else {
                        segments.push((e.at_ns, idle));
                    }
                    on_cpu = e.task;
                }
                _ => (),
            }
        }
        waits.extend(
            since
                .iter()
                .map(|(t, from)| (entry(*t), *from, 1_000_000_000)),
        );
        // A switch within the costs of the one before ends them.
        let mut table = vec![vec![0u64; nr + 2]; nr];
        let mut cut: Vec<(u64, usize)> = Vec::new();
        for s in segments {
            while cut.last().is_some_and(|l| l.0 > s.0) {
                cut.pop();
            }
            cut.push(s);
        }
        for (waiter, from, to) in waits {
            for (i, (at, cause)) in cut.iter().enumerate() {
                let end = cut.get(i + 1).map_or(u64::MAX, |n| n.0);
                let overlap = end.min(to).saturating_sub((*at).max(from));
                table[waiter][*cause] += overlap;
            }
        }
        let blame = k.stats.blame.as_ref().expect("accounts are kept");
        for (waiter, row) in table.iter().enumerate() {
            let got: Vec<u64> = (0..nr + 2).map(|c| blame.between(waiter, c)).collect();
            assert_eq!(&got, row, "{name}: row {waiter}");
            assert_eq!(
                row.iter().sum::<u64>(),
                k.stats.vms[waiter].waited_ns,
                "{name}"
            );
        }
        // Under `vmfair` web takes the CPU from build: it waits for it for 1 % of the time, not for a tenth.
        for row in &table[..3] {
            let each = row[..3].iter().all(|&ns| ns > 1_000_000);
            assert!(each, "{name}: every VM waits for every VM: {table:?}");
        }
        assert!(
            table[2][costs] > 0 && table[0][nr - 1] > 0,
            "{name}: {table:?}"
        );
    }
}

fn record(text: &str, arm: &str) -> RunRecord {
    let scenario = loaded(text).scenario;
    run_one(
        &scenario,
        arm,
        &policy(arm),
        &BTreeMap::new(),
        1,
        &Options::default(),
    )
    .unwrap_or_else(|e| panic!("{e}"))
}

const FOUR: &str = r#"
title = "four CPUs"
[host]
cores = 4
[vm.web]
count = 2
vcpus = 2
class = "latency"
tasks = ["worker"]
[vm.build]
count = 4
vcpus = 2
class = "batch"
tasks = ["busy"]
[task.busy]
model = "busy"
[task.worker]
threads = 4
loop = ["receive users", "compute exp(300us)", "reply"]
[client.users]
to = "web"
sends = "poisson(400/s)"
[compare]
policies = ["gfifo", "vmfair", "vtime"]
[run]
warmup = "300ms"
measure = "1s"
"#;

/// The matrix's rows are the run delay that the metrics tell, and the worst wait is the longest of the histogram.
#[test]
fn details_agree_with_the_metrics() {
    for arm in ["gfifo", "vmfair", "vtime"] {
        let r = record(FOUR, arm);
        for group in ["web", "build"] {
            let row: u64 = r
                .waits
                .iter()
                .filter(|w| w.waiter.starts_with(group))
                .map(|w| w.ns)
                .sum();
            let (share, cpu) = (
                r.metrics[&format!("{group}.run_delay.share")],
                r.metrics[&format!("{group}.cpu")],
            );
            let waited = share / (1.0 - share) * cpu * 1e9;
            assert!(
                (row as f64 - waited).abs() < waited * 1e-6 + 10.0,
                "{arm} {group}: {row} {waited}"
            );
            let times = &r.times[&format!("{group}.run_delay")];
            let max = *times.upto_ns.last().unwrap();
            match r.worst.iter().find(|w| w.group == group) {
                // Nobody ever waited: latency VMs under vmfair, with as many CPUs as vCPUs.
                None => assert_eq!(max, 0, "{arm} {group}"),
                // Unfinished waits are in no histogram.
                Some(w) => {
                    let (ns, max) = (w.ns() as f64, max as f64);
                    assert!(w.unfinished || (ns <= max && ns > max * 0.93), "{w:?}");
                    assert!(w.thread.starts_with(group), "{w:?}");
                }
            }
            let series = &r.series[&format!("{group}.cpu")];
            let mean = series.iter().sum::<f64>() / series.len() as f64;
            assert!((mean - cpu).abs() < 1e-3 && series.len() == 40);
        }
        let count = r.times["web.response"].total();
        assert_eq!(count as f64, r.metrics["web.response.count"]);
        let worst = &r.worst[0];
        let strip = worst.strip.as_ref().unwrap();
        assert!(
            strip.to_ns > worst.to_ns && strip.cpus == [0, 1, 2, 3],
            "{worst:?}"
        );
        // Nothing overlaps, and the waiting thread runs on its CPU when the wait is over.
        for pair in strip.ran.windows(2) {
            assert!(pair[0][0] != pair[1][0] || pair[0][2] + pair[0][3] <= pair[1][2]);
        }
        let ends = strip.ran.iter().any(|[cpu, t, at, _]| {
            *cpu == u64::from(worst.cpu)
                && strip.from_ns + at == worst.to_ns
                && strip.threads[*t as usize].0 == worst.thread
        });
        assert!(ends || worst.unfinished, "{arm}: {worst:?}");
        assert!(r.waits.iter().any(|w| w.cause == IDLE || w.cause == COSTS));
    }
}

/// A thread that never gets a CPU waits, too.
#[test]
fn starving_counts() {
    let text = "title = \"starving\"\n[host]\ncores = 1\n[vm.a]\nvcpus = 3\nclass = \"batch\"\ntasks = [\"busy\"]\n\
        [task.busy]\nmodel = \"busy\"\n[compare]\npolicies = [\"gfifo\"]\n[run]\nwarmup = \"1s\"\nmeasure = \"1s\"\n";
    let r = record(text, "gfifo");
    let total: u64 = r.waits.iter().map(|w| w.ns).sum();
    // Three hogs on one CPU: two of them wait at any time.
    assert_eq!(total, 2_000_000_000);
    let causes: Vec<&str> = r.waits.iter().map(|w| w.cause.as_str()).collect();
    assert_eq!(causes, ["a", COSTS]);
}
