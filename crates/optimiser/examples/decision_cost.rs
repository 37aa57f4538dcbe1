// SPDX-License-Identifier: GPL-2.0-only
//! `cargo run --release -p berth-optimiser --example decision_cost`: how long a decision takes, in milliseconds and as
//! a multiple of what sorting as many numbers takes on the same machine in the same run.
use berth_optimiser::{Cpu, Load, Observation, Optimiser, Promise, Service, Settings, VmSeen};
use std::hint::black_box;
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000_000_000;
const ROUNDS: u64 = 21;

/// Numbers without a pattern, the same in each run.
struct Mixed(u64);

impl Mixed {
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A busy host of nodes of 64 CPUs with caches of 8: every eighth VM is wide, every tenth a target.
fn host(vms: u32, cpus: u32, round: u64, mixed: &mut Mixed) -> Observation {
    let cpu = |cpu| Cpu {
        cpu,
        core: cpu / 2,
        llc: cpu / 8,
        node: cpu / 64,
        capacity: 1024,
    };
    let mean = 2.0 * f64::from(cpus) / f64::from(vms);
    let vm = |i: u32| {
        let vcpus = if i.is_multiple_of(8) { 8 } else { 2 };
        let wanted = (mean * 2.0 * mixed.part()).min(f64::from(vcpus));
        let target = i.is_multiple_of(10);
        VmSeen {
            name: format!("vm-{i:05}"),
            vcpus,
            promise: Promise {
                service: if target {
                    Service::Target
                } else {
                    Service::Normal
                },
                guarantee: if target { 0.95 * mean.min(1.0) } else { 0.0 },
                limit: None,
                weight: 100 + i % 7 * 50,
            },
            pinned: None,
            load: Load {
                ran_ns: (wanted * 0.4 * SECOND as f64) as u64,
                run_delay_ns: (wanted * 0.6 * SECOND as f64) as u64,
            },
        }
    };
    Observation {
        at_ns: round * 2 * SECOND,
        span_ns: SECOND,
        cpus: (0..cpus).map(cpu).collect(),
        vms: (0..vms).map(vm).collect(),
        host: Load::default(),
        pressure: None,
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn main() {
    println!(
        "{:>7} {:>6} {:>12} {:>12} {:>9} {:>8}",
        "VMs", "CPUs", "decision ms", "sort ms", "ratio", "changes"
    );
    for (vms, cpus) in [(500, 64), (10_000, 1024)] {
        let mut mixed = Mixed(1);
        let Ok(mut optimiser) = Optimiser::new(Settings::default()) else {
            return;
        };
        let (mut decisions, mut sorts, mut changes) = (Vec::new(), Vec::new(), 0);
        for round in 1..=ROUNDS {
            let seen = host(vms, cpus, round, &mut mixed);
            let numbers: Vec<f64> = (0..vms).map(|_| mixed.part()).collect();
            let begin = Instant::now();
            let decision = black_box(optimiser.observe(black_box(&seen)));
            decisions.push(begin.elapsed());
            match decision {
                Ok(decision) => changes += decision.map_or(0, |d| d.changes.len()),
                Err(e) => return println!("{e}"),
            }
            let begin = Instant::now();
            let mut sorted = black_box(numbers);
            sorted.sort_unstable_by(f64::total_cmp);
            black_box(&sorted);
            sorts.push(begin.elapsed());
        }
        let (decision, sort) = (median(decisions), median(sorts));
        let each = changes as u64 / ROUNDS;
        println!(
            "{vms:>7} {cpus:>6} {decision:>12.3} {sort:>12.4} {:>9.0} {each:>8}",
            decision / sort
        );
    }
}
