// SPDX-License-Identifier: GPL-2.0-only
//! What a change costs: the affinity of 100 real processes is set and read back, then undone, beside the bare system
//! call and beside writing and reading `/proc` alone. `cargo run --release -p berth-actuator --example change_cost`
use berth_actuator::ledger::{Ledger, this_boot};
use berth_actuator::live::{Live, start_of};
use berth_actuator::{Acting, Host, Knob};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const VMS: usize = 100;
const ROUNDS: u32 = 20;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut idle: Vec<Child> = (0..VMS)
        .map(|_| Command::new("sleep").arg("1000").spawn().expect("sleep"))
        .collect();
    let knob = |child: &Child| {
        let pid = child.id() as i32;
        let start = start_of(Path::new("/proc"), pid, pid).expect("it has just been started");
        Knob::Affinity {
            pid,
            tid: pid,
            start,
        }
    };
    let wanted: Vec<(Knob, String)> = idle.iter().map(|c| (knob(c), "0".into())).collect();
    let (mut set, mut undone, mut bare) = (Duration::MAX, Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let ledger = Ledger::open(&folder.path().join("state"), &this_boot().expect("/proc"))
            .expect("a ledger");
        let (mut acting, _) = Acting::begin(Live::new(), ledger).expect("a ledger");
        let start = Instant::now();
        let report = acting.set(&wanted).expect("a ledger");
        set = set.min(start.elapsed());
        assert!(report.complaints().is_empty(), "{report:?}");
        let start = Instant::now();
        acting.end().expect("a ledger");
        undone = undone.min(start.elapsed());
        let (live, start) = (Live::new(), Instant::now());
        for (knob, _) in &wanted {
            live.write(knob, "all").expect("a thread");
        }
        bare = bare.min(start.elapsed());
    }
    for child in &mut idle {
        let _ = child.kill();
        let _ = child.wait();
    }
    let ms = |t: Duration| t.as_secs_f64() * 1e3;
    println!("{VMS} threads, the best of {ROUNDS}:");
    println!(
        "  set and read back   {:7.2} ms, {:.1} x the writes alone",
        ms(set),
        ms(set) / ms(bare)
    );
    println!(
        "  undone              {:7.2} ms, {:.1} x",
        ms(undone),
        ms(undone) / ms(bare)
    );
    println!("  the writes alone    {:7.2} ms", ms(bare));
}
