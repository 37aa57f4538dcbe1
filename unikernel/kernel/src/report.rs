// SPDX-License-Identifier: GPL-2.0-only
//! Counters as text, a line `name value` each: for who asks over UDP, and at the end.
use crate::machine::clock;
use crate::switch;
use alloc::string::String;
use core::fmt::Write;
use unikernel_service::options::Options;
use unikernel_service::stack::Refused;

/// What was served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// Requests that were taken in.
    pub requests: u64,
    /// Replies that were handed to the network.
    pub replies: u64,
    /// Requests for more work than is allowed.
    pub refused: u64,
    /// Requests for which there was no memory for a task.
    pub dropped: u64,
    /// From a request to its reply, in all and the longest, us.
    pub response_us: (u64, u64),
}

/// The counters.
pub fn text(options: &Options, served: &Served, refused: Refused) -> String {
    let counts = switch::counts();
    let scheduler = counts.scheduler;
    let mean_us = served.response_us.0 / served.replies.max(1);
    let mut text = String::with_capacity(1024);
    let mut line = |name: &str, value: u64| {
        // A string takes everything.
        let _ = writeln!(text, "{name} {value}");
    };
    line("uptime_us", clock::now_us());
    line("cpus", counts.cpus as u64);
    line("requests", served.requests);
    line("replies", served.replies);
    line("requests_refused", served.refused);
    line("requests_dropped", served.dropped);
    line("frames_refused", refused.frames);
    line("senders_refused", refused.senders);
    line("answers_dropped", refused.answers);
    line("response_us_mean", mean_us);
    line("response_us_max", served.response_us.1);
    line("tasks_alive", counts.alive);
    line("tasks_admitted", scheduler.admitted);
    line("decisions", scheduler.decisions);
    line("slices_expired", scheduler.expired);
    line("demotions", scheduler.demoted);
    line("queued_max", scheduler.queued_max);
    line("switches", counts.switches);
    line("interrupted", counts.interrupted);
    line("wakes", counts.wakes);
    line("main_us", counts.main_ns / 1000);
    for (level, finished) in scheduler.finished.iter().enumerate() {
        let _ = writeln!(text, "finished_level_{} {finished}", level + 1);
    }
    for (cpu, busy_ns) in counts.tasks_ns.iter().take(counts.cpus).enumerate() {
        let _ = writeln!(text, "tasks_us_cpu_{cpu} {}", busy_ns / 1000);
    }
    for (queue, length) in switch::lengths().into_iter().enumerate() {
        let _ = writeln!(text, "queue_{queue} {length}");
    }
    let _ = writeln!(text, "sched {}", options.policy.name());
    text
}
