// SPDX-License-Identifier: GPL-2.0-only
//! Simulated guests and their witness: it says what the run says, and its bounds can tell right from wrong.
use berth_compare::guests::judge::{Guest, Row, judge};
use berth_compare::guests::{Cases, GuestBounds, GuestRecord};
use berth_compare::judge::Verdict;
use berth_policy::policy::LoadOptions;
use berth_results::guest::Seen;
use berth_results::schema::RunRecord;
use berth_scenario::{Edit, Input, read};
use berth_sim::run::{GuestPolicy, Options, kernel_scheduler, run_one};
use berth_sim::witness::Witness;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("guests")
}

/// A case of the folder with these changes, under the model of the kernel's own scheduler, `guest` inside.
fn simulated(case: &str, guest: &str, edits: &[&str], seed: u64) -> (Seen, RunRecord) {
    let input = Input::from_file(&folder().join(format!("{case}.toml"))).unwrap();
    let edits: Vec<Edit> = edits.iter().map(|e| Edit::Set(e.to_string())).collect();
    let mut scenario = read(&input, &edits).unwrap().scenario;
    scenario.run.measure_ns = 20_000_000_000;
    let load = |name: &str| {
        let found = match name {
            "linux" => berth_builtin::linux_model(),
            name => berth_builtin::find(name).unwrap(),
        };
        found.load(&LoadOptions::default()).unwrap()
    };
    let inside = GuestPolicy {
        policy: load(guest),
        params: BTreeMap::new(),
    };
    let witness = Witness::new(&scenario, seed).unwrap();
    let mut options = Options {
        sink: Some(witness.sink()),
        guests: scenario.vms.iter().map(|_| Some(inside.clone())).collect(),
        ..Options::default()
    };
    kernel_scheduler(&mut scenario.host, &mut options);
    let policy = load("linux");
    let run = run_one(
        &scenario,
        "linux",
        &policy,
        &BTreeMap::new(),
        seed,
        &options,
    );
    let record = run.unwrap_or_else(|e| panic!("{case}: {e}"));
    (witness.finish(&record), record)
}

#[test]
fn the_witness_says_what_the_run_says() {
    for (case, vcpus) in [("04-idle-3", 1.0), ("06-hog-1", 1.0), ("17-two-vcpus", 2.0)] {
        let (seen, record) = simulated(case, "vmfair", &[], 3);
        let metric = |name: &str| record.metrics[&format!("a.{name}")];
        let response = seen.response().unwrap();
        // Requests due in the window, and replies in it: the two ends may differ by one.
        let counted = metric("response.count");
        assert!((seen.answers.len() as f64 - counted).abs() <= 1.0, "{case}");
        let off = response.mean / metric("response.mean");
        assert!((0.99..1.01).contains(&off), "{case}: {off}");
        assert!(
            seen.answers
                .iter()
                .all(|a| a.work_ns >= 75_000 && a.work_ns <= a.latency_ns)
        );
        // Tasks ran as long as the vCPUs did, less the guest's own work between them.
        let ran: f64 = seen.ran_ns.values().sum();
        let had = metric("run") * vcpus * 20e9;
        assert!(
            ran <= had * 1.000_001 && ran > 0.95 * had,
            "{case}: {ran} of {had}"
        );
    }
}

const GUEST: Guest = Guest {
    vcpus: 1,
    tick_ns: 4e6,
    busy: true,
};

/// Without the phase of the host's ticks, which makes means of 0.5 or of 1.1 ms, by seed.
const STEADY: &str = "host.hz=\"exact\"";

/// What these bounds reject of a simulated guest, where the witness's own record of a right one is the truth.
fn rejected(truth: &Seen, guest: &str, edits: &[&str]) -> BTreeSet<String> {
    let mut record = GuestRecord::of(truth);
    record.slice_ns = 700_000;
    let edits = [&[STEADY], edits].concat();
    let (seen, _) = simulated("16-weights", guest, &edits, 2);
    let rows = judge(&seen, &record, GUEST, &GuestBounds::built_in().unwrap());
    let broken = |r: &Row| r.verdict == Verdict::Broken;
    rows.iter()
        .filter(|r| broken(r))
        .map(|r| r.what.name())
        .collect()
}

#[test]
fn every_quantity_rejects_a_wrong_guest() {
    let (truth, _) = simulated("16-weights", "vmfair", &[STEADY], 1);
    assert_eq!(rejected(&truth, "vmfair", &[]), BTreeSet::new());
    // First come, first served, 20 ms at a time.
    let first = rejected(&truth, "gfifo", &[]);
    for what in [
        "response mean",
        "response p50",
        "response p90",
        "hog ran in a wait",
    ] {
        assert!(first.contains(what), "{what}: {first:?}");
    }
    assert!(!first.contains("steal"), "{first:?}");
    let weight = rejected(&truth, "vmfair", &["vm.b.weight=150"]);
    assert!(weight.contains("steal"), "{weight:?}");
    let threads = rejected(&truth, "vmfair", &["task.hog.threads=2"]);
    for what in ["share of hog", "share of nice"] {
        assert!(threads.contains(what), "{what}: {threads:?}");
    }
    assert!(!threads.contains("steal"), "{threads:?}");
}

#[test]
fn every_record_is_that_of_a_case() {
    let cases = Cases::read(&folder()).unwrap();
    assert!(cases.iter().count() >= 12);
    let records = folder().join("records");
    let mut of_cases = BTreeSet::new();
    for case in cases.iter() {
        let path = case.record(&records);
        if let Some(record) = GuestRecord::read(&path).unwrap() {
            let faults = record.faults(case, &GuestBounds::built_in().unwrap().recording);
            // What stands in was not made by this program, which knows neither floor nor load of it.
            assert!(
                record.stands_in || faults.is_empty(),
                "{}: {faults:?}",
                case.name
            );
            of_cases.insert(path);
        }
    }
    for entry in std::fs::read_dir(&records).unwrap() {
        let path = entry.unwrap().path();
        assert!(of_cases.contains(&path), "{} is no case's", path.display());
    }
}
