// SPDX-License-Identifier: GPL-2.0-only
//! The trace of hosts with guests, read back: tracks of both levels, and what they cost.
#[path = "../../report/tests/reader/mod.rs"]
mod reader;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Two guests of two vCPUs on two CPUs, every thread busy or nearly.
fn scenario(measure: &str) -> String {
    format!(
        "[run]\nwarmup = \"0s\"\nmeasure = \"{measure}\"\nseeds = 1\n[host]\ncores = 2\ncost = \"none\"\n\
         [vm.web]\ncount = 2\nvcpus = 2\ntasks = [\"work\", \"burn\"]\n[vm.web.guest]\npolicy = \"vtime\"\nhz = \
         \"exact\"\n\
         [task.work]\nthreads = 4\nloop = [\"compute 1ms\", \"sleep 4ms\"]\n[task.burn]\nmodel = \"busy\"\n\
         [compare]\npolicies = [\"vtime\"]\n"
    )
}

fn berth(folder: &Path, arguments: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_berth"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "berth {arguments:?}: {said}");
    said
}

/// Time that each thread had a CPU: (machine, name of the thread) -> ns; and the number of switches per machine.
fn had(bytes: &[u8], end: u64) -> (BTreeMap<(u64, String), u64>, BTreeMap<u64, u64>) {
    let (switches, _) = reader::read(bytes);
    let (mut had, mut count) = (BTreeMap::new(), BTreeMap::new());
    let mut running: BTreeMap<(u64, u64), (u64, String)> = BTreeMap::new();
    for (machine, cpu, at, _, next) in switches {
        *count.entry(machine).or_default() += 1;
        if let Some((since, last)) = running.insert((machine, cpu), (at, next)) {
            assert!(
                at >= since,
                "machine {machine}, CPU {cpu}: {at} after {since}"
            );
            *had.entry((machine, last)).or_default() += at - since;
        }
    }
    for ((machine, _), (since, last)) in running {
        *had.entry((machine, last)).or_default() += end - since;
    }
    (had, count)
}

#[test]
fn host_and_guest_tracks_are_in_the_trace() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("two.toml"), scenario("2s")).unwrap();
    berth(place.path(), &["sim", "two.toml", "--trace", "all"]);
    let file = place.path().join("berth-out/two/1/vtime-1.pftrace");
    let bytes = std::fs::read(&file).unwrap();
    let (had, count) = had(&bytes, 2_000_000_000);
    assert_eq!(count.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    let switches: u64 = count.values().sum();
    assert!(switches > 2_000, "{count:?}");
    let each = bytes.len() as f64 / switches as f64;
    assert!(each <= 24.0, "{each} bytes a switch");

    // What the vCPUs of a VM had on the host is what the results say.
    let text = std::fs::read_to_string(place.path().join("berth-out/two/sim.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&text).unwrap();
    let metrics = &results["experiments"][0]["runs"][0]["metrics"];
    for vm in ["web-1", "web-2"] {
        let on_host: u64 = had
            .iter()
            .filter(|((machine, name), _)| *machine == 0 && name.starts_with(vm))
            .map(|(_, ns)| ns)
            .sum();
        let said = metrics[format!("{vm}.cpu")].as_f64().unwrap();
        let traced = on_host as f64 / 2e9;
        assert!(
            (traced - said).abs() < 1e-6,
            "{vm}: {traced} CPUs, not {said}"
        );
    }
    // A guest's tasks are on its own tracks: four that work, one for each vCPU that burns.
    for machine in [1, 2] {
        let tasks = had
            .keys()
            .filter(|(m, name)| *m == machine && name != "swapper");
        assert_eq!(tasks.count(), 6, "{had:?}");
    }
}

/// `cargo test --release -p berth-cli --test two_level_trace -- --ignored --nocapture`
#[test]
#[ignore = "takes time, and means something only in a release build on a quiet machine"]
fn a_trace_at_most_doubles_the_time() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("two.toml"), scenario("300s")).unwrap();
    let time = |arguments: &[&str]| {
        let begin = Instant::now();
        berth(place.path(), arguments);
        begin.elapsed().as_secs_f64()
    };
    let (mut plain, mut traced) = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        plain = plain.min(time(&["sim", "two.toml"]));
        traced = traced.min(time(&["sim", "two.toml", "--trace", "all"]));
    }
    println!(
        "without {plain:.3} s, with {traced:.3} s: {:.2} times",
        traced / plain
    );
    assert!(traced <= 2.0 * plain, "{plain} s, {traced} s");
}
