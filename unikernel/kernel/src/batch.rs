// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that come at one instant, burn the CPU time they were drawn, and end: the M-RSF paper's experiment 4.
use crate::machine::clock;
use crate::machine::exit::Code;
use crate::report::{self, Served};
use crate::say;
use crate::switch::{self, New};
use alloc::boxed::Box;
use alloc::vec::Vec;
use unikernel_service::options::Options;
use unikernel_service::stack::Refused;
use unikernel_service::workload::{Size, Sizes};

/// Runs them, tells their times.
pub fn run(options: &Options) -> Code {
    clock::measure_work();
    let sizes: Vec<Size> = Sizes::new(options.seed, options.mean_us, options.sigma())
        .take(options.tasks as usize)
        .collect();
    switch::keep_outcomes(sizes.len());
    let tasks = sizes.iter().zip(0..).map(|(size, id)| {
        let work_us = size.work_us;
        New {
            id,
            estimate_us: size.estimate_us,
            class: 0,
            body: Box::new(move || clock::work_us(work_us)),
        }
    });
    let tasks = tasks.collect();
    let start_us = clock::now_us();
    switch::admit(tasks);
    switch::wait_for_tasks();
    let elapsed_us = clock::now_us() - start_us;
    let outcomes = switch::outcomes();
    for line in report::text(options, &Served::default(), Refused::default()).lines() {
        say!("{line}");
    }
    let count = outcomes.len().max(1) as u64;
    let mean_us =
        |of: &dyn Fn(&switch::Outcome) -> u64| outcomes.iter().map(of).sum::<u64>() / count / 1000;
    let turnaround_us = mean_us(&|outcome| outcome.times_ns[2] - outcome.times_ns[0]);
    let work_us = sizes.iter().map(|size| size.work_us).sum::<u64>();
    say!(
        "batch: tasks={} work_us={work_us} elapsed_us={elapsed_us} turnaround_us_mean={turnaround_us} \
         wait_us_mean={} first_run_us_mean={} turnaround_us_max={} turns_per_ms={} hash={:016x}",
        outcomes.len(),
        turnaround_us.saturating_sub(work_us / count),
        mean_us(&|outcome| outcome.times_ns[1] - outcome.times_ns[0]),
        outcomes
            .iter()
            .map(|outcome| outcome.times_ns[2] - outcome.times_ns[0])
            .max()
            .unwrap_or(0)
            / 1000,
        clock::turns_per_ms(),
        hash(&outcomes),
    );
    if outcomes.len() == sizes.len() {
        Code::Done
    } else {
        Code::Failed
    }
}

/// FNV-1a over who was done when, in that order.
fn hash(outcomes: &[switch::Outcome]) -> u64 {
    let words = outcomes
        .iter()
        .flat_map(|o| [o.id, o.times_ns[1], o.times_ns[2], o.level as u64]);
    let bytes = words.flat_map(u64::to_le_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
