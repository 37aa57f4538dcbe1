// SPDX-License-Identifier: GPL-2.0-only
//! Threads that are preempted all the time and must not notice: the same arithmetic, in integer and SSE registers and
//! in the red zone below the stack, gives the same bits.
use crate::machine::exit::Code;
use crate::machine::trap;
use crate::say;
use crate::switch::{self, New};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use unikernel_service::options::Options;

const TURNS: u64 = 200_000;

static WRONG: AtomicU64 = AtomicU64::new(0);

/// A leaf, so that its array is below the stack pointer.
#[inline(never)]
fn arithmetic(seed: u64) -> (u64, u64) {
    let mut words = [seed; 12];
    let mut sum = seed as f64;
    for turn in 0..TURNS {
        let at = (turn % 12) as usize;
        words[at] = words[at]
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(words[(at + 5) % 12] ^ turn);
        sum = sum * 1.000_000_1 + (words[at] >> 40) as f64;
    }
    (words.iter().fold(0, |all, word| all ^ word), sum.to_bits())
}

/// Runs them.
pub fn run(options: &Options) -> Code {
    let expected: Vec<_> = (0..options.tasks).map(arithmetic).collect();
    let tasks = expected.into_iter().zip(0..).map(|(expected, id)| New {
        id,
        estimate_us: 0,
        class: 0,
        body: Box::new(move || {
            for _ in 0..3 {
                WRONG.fetch_add(u64::from(arithmetic(id) != expected), Ordering::Relaxed);
                trap::yield_now();
            }
        }),
    });
    switch::admit(tasks.collect());
    switch::wait_for_tasks();
    let (wrong, counts) = (WRONG.load(Ordering::Relaxed), switch::counts());
    say!(
        "stress: tasks={} wrong={wrong} switches={} expired={}",
        options.tasks,
        counts.switches,
        counts.scheduler.expired
    );
    if wrong == 0 { Code::Done } else { Code::Failed }
}
