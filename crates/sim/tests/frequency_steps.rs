// SPDX-License-Identifier: GPL-2.0-only
//! Kinds of cores with frequency steps: at which of them a core runs when a policy asks for a performance, held against
//! arithmetic.
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::model::{CoreKind, HostCost, Hz};
use berth_scenario::{Input, read};
use berth_sim::machine::Shape;
use berth_sim::run::{GuestPolicy, Options, load_policy, run_one, settle};
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use support::Cast;

#[allow(dead_code, reason = "other tests look into maps")]
mod support;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const FULL: u64 = 1_000_000;
const STEPS: [u32; 3] = [800_000, 1_400_000, 1_900_000];

fn policy() -> &'static Policy {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    LOADED.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies/perf.bpf.c");
        Policy::from_path(&path, &LoadOptions::default()).unwrap()
    })
}

/// Cores of these speeds, all with the steps.
fn stepped(speeds: &[u32]) -> HostCost {
    let kind = |(core, speed_ppm): (usize, &u32)| CoreKind {
        name: format!("k{core}"),
        cores: vec![core as u32],
        speed_ppm: *speed_ppm,
        frequency_ppm: 1_000_000,
        smt_ppm: 0,
        llcs: 0,
        steps_khz: STEPS.to_vec(),
    };
    HostCost {
        kinds: speeds.iter().enumerate().map(kind).collect(),
        ..HostCost::default()
    }
}

/// A hog on each of these CPUs of a host with as many cores as there are speeds.
fn machine(
    cost: HostCost,
    threads: u32,
    hogs: &[u32],
    set: &[(&str, u32)],
    policy: &Policy,
) -> Simulation<Cast> {
    let spec = MachineSpec {
        hz: Hz::Exact,
        shape: Shape {
            threads,
            ..Shape::flat(cost.kinds.len() as u32)
        },
        cost,
        ..MachineSpec::new(Shape::flat(1))
    };
    let mut cast = Cast::default();
    for (i, cpu) in (0..).zip(hogs) {
        cast.vcpu(0, i, 0, &[Action::ComputeForever]);
        cast.scripts[i as usize].spec.vm = None;
        cast.masks.push(vec![*cpu]);
    }
    let set: BTreeMap<String, String> = set
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    let mut m = Simulation::new(&spec, &[], cast);
    load_policy(&mut m, policy, &set, &[], &Options::default()).unwrap();
    // The kernel's own slice, for who finds an idle CPU.
    m.kernel().slice_dfl = MS;
    m.start();
    m
}

/// Work of all threads, ns at full speed.
fn work(m: &Simulation<Cast>) -> u64 {
    let k = m.kernel();
    settle(k);
    k.stats.vms.iter().map(|c| c.work_ns).sum()
}

/// A step's part of the highest frequency, parts per million, down.
fn part(step: usize) -> u64 {
    u64::from(STEPS[step]) * FULL / u64::from(STEPS[2])
}

#[test]
fn who_asks_for_nothing_runs_at_the_highest() {
    let gfifo = support::policy("gfifo");
    let mut m = machine(stepped(&[1_000_000, 500_000]), 1, &[0, 1], &[], &gfifo);
    m.run_until(S).unwrap();
    m.check().unwrap();
    assert_eq!(work(&m), S + S / 2);
    let told: Vec<_> = (0..2)
        .map(|cpu| (m.kernel().capacity(cpu), m.kernel().frequency(cpu)))
        .collect();
    assert_eq!(told, [(1024, 1024), (512, 1024)]);
}

/// A core runs at the lowest step that gives what is asked for and a quarter more, of the fastest core's performance.
#[test]
fn the_lowest_step_that_gives_it() {
    for perf in [0, 1, 200, 344, 345, 346, 500, 603, 604, 605, 819, 1024] {
        for (speed, capacity) in [(1_000_000u32, 1024u64), (500_000, 512)] {
            let hog = u32::from(speed != 1_000_000);
            let mut m = machine(
                stepped(&[1_000_000, 500_000]),
                1,
                &[hog],
                &[("first", perf), ("second", perf)],
                policy(),
            );
            m.run_until(S).unwrap();
            m.check().unwrap();
            let wanted = u64::from(perf) * 5 / 4 * u64::from(STEPS[2]);
            let step = STEPS
                .iter()
                .position(|khz| u64::from(*khz) * capacity >= wanted);
            let part = part(step.unwrap_or(2));
            let rate = u64::from(speed) * part / FULL;
            assert_eq!(work(&m), rate * 1000, "{perf} of {speed}");
            let cur = u64::from(m.kernel().frequency(hog));
            assert_eq!(cur, part * 1024 / FULL, "{perf} of {speed}");
            // Whatever was asked for, the core could do all it can.
            assert_eq!(u64::from(m.kernel().capacity(hog)), capacity);
        }
    }
}

/// Two hogs of one CPU in turns of 1 ms, one at the lowest step, one at the highest.
#[test]
fn each_turn_runs_at_what_is_asked_for() {
    for before in [0, 1] {
        let set = [("first", 100), ("second", 1024), ("before", before)];
        let mut m = machine(stepped(&[1_000_000]), 1, &[0, 0], &set, policy());
        m.run_until(S).unwrap();
        m.check().unwrap();
        let expected = S / 2 + part(0) * 500;
        // A run that ends carries less than a nanosecond on.
        assert!(work(&m).abs_diff(expected) <= 2, "{} {expected}", work(&m));
    }
}

/// The threads of a core have one clock: it gives the most that is asked of any, and one of which nothing was asked may
/// want all.
#[test]
fn siblings_have_one_clock() {
    let low = [("first", 100), ("second", 100)];
    for (hogs, set, expected) in [
        (&[0u32, 1][..], &low[..], 2 * part(0) * 1000),
        (&[0], &low, S),
        (
            &[0, 1],
            &[("first", 100), ("second", 600)],
            2 * part(1) * 1000,
        ),
    ] {
        let mut m = machine(stepped(&[1_000_000]), 2, hogs, set, policy());
        m.run_until(S).unwrap();
        m.check().unwrap();
        assert_eq!(work(&m), expected, "{hogs:?} {set:?}");
    }
}

/// Cycles go by the step, also of who waits for memory all the time and works no slower.
#[test]
fn counters_follow() {
    let cost = HostCost {
        pmu_noise_ppm: Some(0),
        ..stepped(&[1_000_000])
    };
    let low = [("first", 100), ("second", 100)];
    for (stalled, done) in [(0, part(0) * 1000), (1_000_000, S)] {
        let mut m = machine(cost.clone(), 1, &[0], &low, policy());
        m.workload.scripts[0].spec.phase.stalled = stalled;
        m.run_until(S).unwrap();
        let mut k = m.kernel();
        assert_eq!(work(&m), done);
        let pmu = k.hardware.as_mut().and_then(|hw| hw.pmu.as_mut());
        let [_, cycles, ..] = pmu.unwrap().read(0, S);
        assert_eq!(cycles, part(0) * 1000, "{stalled}");
    }
}

/// Guests on such a host, with a policy that asks anew at each switch: all invariants hold, and the VM's work is the
/// time that its vCPUs had at the step of that time.
#[test]
fn guests_run_at_the_step_of_their_cpu() {
    let text = "[run]\nwarmup = \"0s\"\nmeasure = \"2s\"\n[host]\ncores = 2\nhz = \"exact\"\ncost = \"none\"\n\
                [host.kind.a]\ncores = 2\nsteps = [\"1.9GHz\", \"800MHz\", \"1.4GHz\"]\n\
                [vm.v]\nvcpus = 2\ncount = 2\ntasks = [\"hog\", \"some\"]\n\
                [task.hog]\nmodel = \"busy\"\n[task.some]\nloop = [\"compute 300us\", \"sleep exp(1ms)\"]\n";
    let input = Input {
        name: "t".into(),
        shown: "t.toml".into(),
        text: text.into(),
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}")).scenario;
    assert_eq!(scenario.host.cost.kinds[0].steps_khz, STEPS);
    let guest = GuestPolicy {
        policy: support::policy("rr"),
        params: BTreeMap::new(),
    };
    let opts = Options {
        guests: vec![Some(guest)],
        ..Options::default()
    };
    let run = |first: u32, second: u32, before: u32| {
        let set = [("first", first), ("second", second), ("before", before)];
        let set: BTreeMap<String, String> = set
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        let record = run_one(&scenario, "a", policy(), &set, 1, &opts).unwrap();
        let again = run_one(&scenario, "a", policy(), &set, 1, &opts).unwrap();
        assert_eq!(record, again);
        record.metrics["v.work"]
    };
    let highest = run(1024, 1024, 0);
    let ratio = |work: f64| work / highest;
    let about = |got: f64, expected: f64| {
        assert!((got / expected - 1.0).abs() < 2e-3, "{got}, not {expected}");
    };
    about(ratio(run(0, 0, 0)), part(0) as f64 / 1e6);
    about(ratio(run(600, 600, 1)), part(1) as f64 / 1e6);
    // Up and down at every switch: in between.
    for before in [0, 1] {
        let mixed = ratio(run(0, 1024, before));
        assert!((part(0) as f64 / 1e6..1.0).contains(&mixed), "{mixed}");
    }
}
