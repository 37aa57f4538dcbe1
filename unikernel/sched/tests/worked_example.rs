// SPDX-License-Identifier: GPL-2.0-only
//! Six tasks by hand: the schedules of the M-RSF paper's algorithm and of its baselines, piece by piece.
use unikernel_sched::machine::{self, Clock, Job, Piece, Run};
use unikernel_sched::{Config, Map, Policy};

/// A to F, all at 0, in this order; their mean is 5, so slices are.
const SIZES: [u64; 6] = [7, 2, 11, 4, 1, 5];

fn jobs() -> Vec<Job> {
    SIZES.map(Job::batch).to_vec()
}

fn run(config: &Config) -> Run {
    machine::run(config, &jobs(), Clock::Real).unwrap()
}

fn completions(run: &Run) -> [u64; 6] {
    core::array::from_fn(|job| run.outcomes[job].completion_ns)
}

/// `A0-7 B7-9`, by start; with several CPUs each piece with its own, `0:A0-7`.
fn trace(run: &Run, cpus: bool) -> String {
    let mut pieces = run.pieces.clone();
    pieces.sort_by_key(|piece| (if cpus { piece.cpu } else { 0 }, piece.start_ns));
    let word = |p: &Piece| {
        let cpu = if cpus {
            format!("{}:", p.cpu)
        } else {
            String::new()
        };
        format!(
            "{cpu}{}{}-{}",
            (b'A' + p.job as u8) as char,
            p.start_ns,
            p.end_ns
        )
    };
    pieces.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Mean wait and turn-around, in sixths.
fn sixths(run: &Run) -> (u64, u64) {
    let in_sixths = |mean: f64| (mean * 6.0).round() as u64;
    (
        in_sixths(run.mean_wait_ns(&jobs())),
        in_sixths(run.mean_turnaround_ns(&jobs())),
    )
}

#[test]
fn fcfs_on_one_cpu() {
    let run = run(&Config::new(Policy::Fcfs, 1, 5));
    assert_eq!(trace(&run, false), "A0-7 B7-9 C9-20 D20-24 E24-25 F25-30");
    assert_eq!(sixths(&run), (85, 115));
}

#[test]
fn rr_on_one_cpu() {
    let run = run(&Config::new(Policy::Rr, 1, 5));
    assert_eq!(
        trace(&run, false),
        "A0-5 B5-7 C7-12 D12-16 E16-17 F17-22 A22-24 C24-29 C29-30"
    );
    assert_eq!(sixths(&run), (86, 116));
}

#[test]
fn mrsf_on_one_cpu() {
    let run = run(&Config::new(Policy::Mrsf, 1, 5));
    assert_eq!(
        trace(&run, false),
        "E0-1 B1-3 D3-7 F7-12 A12-17 C17-22 A22-24 C24-29 C29-30"
    );
    assert_eq!(completions(&run), [24, 3, 30, 7, 1, 12]);
    assert_eq!(sixths(&run), (47, 77));
    // F ends as its slice does: not demoted.
    assert_eq!(run.outcomes.map_levels(), [1, 0, 2, 0, 0, 0]);
}

#[test]
fn mrsf_with_a_cpu_for_each_queue() {
    let run = run(&Config {
        map: Map::PerQueue,
        ..Config::new(Policy::Mrsf, 5, 5)
    });
    assert_eq!(
        trace(&run, true),
        "0:E0-1 0:F1-6 1:B0-2 1:A2-7 2:D0-4 2:C4-9 3:A7-9 3:C9-14 4:C14-15"
    );
    assert_eq!(sixths(&run), (7, 37));
}

#[test]
fn mrsf_on_three_cpus_that_share() {
    let run = run(&Config::new(Policy::Mrsf, 3, 5));
    assert_eq!(completions(&run), [9, 2, 15, 4, 1, 6]);
    assert_eq!(sixths(&run), (7, 37));
    // Q2's and Q3's pieces run on the first CPU.
    assert!(
        trace(&run, true).starts_with("0:E0-1 0:F1-6 0:A7-9 0:C9-14 0:C14-15 1:"),
        "{}",
        trace(&run, true)
    );
}

#[test]
fn mrsf_with_a_barrier_between_levels() {
    let config = Config {
        map: Map::PerQueue,
        barrier: true,
        ..Config::new(Policy::Mrsf, 5, 5)
    };
    let run = run(&config);
    assert_eq!(
        trace(&run, true),
        "0:E0-1 0:F1-6 1:B0-2 1:A2-7 2:D0-4 2:C4-9 3:A9-11 3:C11-16 4:C16-17"
    );
    assert_eq!(sixths(&run), (11, 41));
}

#[test]
fn fcfs_and_rr_on_three_cpus() {
    let fcfs = run(&Config::new(Policy::Fcfs, 3, 5));
    assert_eq!(completions(&fcfs), [7, 2, 11, 6, 7, 12]);
    assert_eq!(sixths(&fcfs), (15, 45));
    let rr = run(&Config::new(Policy::Rr, 3, 5));
    assert_eq!(completions(&rr), [8, 2, 12, 6, 6, 10]);
    assert_eq!(sixths(&rr), (14, 44));
}

/// Dealt to five queues: A and F to the first (FCFS), B to the second (RR), C (FCFS), D (RR), E (FCFS).
#[test]
fn mqms_with_a_cpu_for_each_queue() {
    let run = run(&Config::new(Policy::Mqms, 5, 5));
    assert_eq!(
        trace(&run, true),
        "0:A0-7 0:F7-12 1:B0-2 2:C0-11 3:D0-4 4:E0-1"
    );
    assert_eq!(sixths(&run), (7, 37));
}

/// One CPU with all five queues goes by who is there longest: FCFS, as nobody in an RR queue needs more than a slice.
#[test]
fn mqms_on_one_cpu() {
    let run = run(&Config::new(Policy::Mqms, 1, 5));
    assert_eq!(trace(&run, false), "A0-7 B7-9 C9-20 D20-24 E24-25 F25-30");
}

/// X comes at 0 and takes 12, Y at 11 and takes 1: X is in Q3 then, and is not preempted.
#[test]
fn an_arrival_does_not_preempt() {
    let jobs = [
        Job::batch(12),
        Job {
            arrival_ns: 11,
            size_ns: 1,
            estimate_ns: 1,
        },
    ];
    let config = Config::new(Policy::Mrsf, 1, 5);
    let run = machine::run(&config, &jobs, Clock::Real).unwrap();
    assert_eq!(trace(&run, false), "A0-5 A5-10 A10-12 B12-13");
    // With a slice of Q3 of 1 it waits for what is left of that: nothing, as 11 is the end of one.
    let sliced = Config {
        q3_slice_ns: Some(1),
        ..config
    };
    let run = machine::run(&sliced, &jobs, Clock::Real).unwrap();
    assert_eq!(trace(&run, false), "A0-5 A5-10 A10-11 B11-12 A12-13");
}

/// Two CPUs whose emulator has one clock: while both are busy each runs at half speed, and slices are of the clock.
#[test]
fn a_shared_clock() {
    let jobs = [Job::batch(4), Job::batch(10)];
    let run =
        |policy, slice| machine::run(&Config::new(policy, 2, slice), &jobs, Clock::Shared).unwrap();
    assert_eq!(trace(&run(Policy::Fcfs, 5), true), "0:A0-8 1:B0-14");
    // Slices of 5 are 2.5 of work each; then A needs 1.5 more, 3 of the clock. Of two idle CPUs the first takes B.
    assert_eq!(
        trace(&run(Policy::Rr, 5), true),
        "0:A0-5 0:A5-8 0:B10-14 1:B0-5 1:B5-10"
    );
}

trait Levels {
    fn map_levels(&self) -> [usize; 6];
}

impl Levels for Vec<machine::Outcome> {
    fn map_levels(&self) -> [usize; 6] {
        core::array::from_fn(|job| self[job].level)
    }
}
