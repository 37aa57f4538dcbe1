// SPDX-License-Identifier: GPL-2.0-only
//! The bare loop: the least that simulates W8, as the yardstick for the engine.
//!
//! Two binary heaps of the standard library (pending events by time, ready tasks by virtual time), a task's
//! state in one small struct, one global fair queue, slices that end exactly. No cpumasks, cgroups, policy,
//! statistics, trace, invariants or ticks: a limit, not a competitor. With `tick_ns` every CPU has a periodic
//! tick event that does nothing but count.
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// W8 and its larger siblings: per CPU 8 workers (compute, sleep) and 2 hogs.
#[derive(Clone, Copy, Debug)]
pub struct W8 {
    pub cpus: u32,
    pub workers: u32,
    pub hogs: u32,
    pub compute_ns: u64,
    pub sleep_ns: u64,
    pub slice_ns: u64,
    /// Task i starts at i times this.
    pub stagger_ns: u64,
    pub end_ns: u64,
}

impl W8 {
    pub fn new(cpus: u32, end_ns: u64) -> W8 {
        W8 {
            cpus,
            workers: 8 * cpus,
            hogs: 2 * cpus,
            compute_ns: 1_000_000,
            sleep_ns: 4_000_000,
            slice_ns: 3_000_000,
            stagger_ns: 61_000,
            end_ns,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    pub switches: u64,
    pub cycles: u64,
    pub ticks: u64,
}

#[derive(Clone, Copy)]
struct Task {
    vtime: u64,
    left: u64,
    hog: bool,
}

pub fn run(w: &W8, tick_ns: Option<u64>) -> Counts {
    let n = w.workers + w.hogs;
    let mut counts = Counts::default();
    // Event ids: CPUs, then tasks' wake-ups, then ticks.
    let mut events: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut ready: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut tasks: Vec<Task> = (0..n)
        .map(|i| Task {
            vtime: 0,
            left: w.compute_ns,
            hog: i >= w.workers,
        })
        .collect();
    let mut running = vec![(u32::MAX, 0u64); w.cpus as usize];
    let mut idle: Vec<u32> = (0..w.cpus).rev().collect();
    for i in 0..n {
        events.push(Reverse((u64::from(i) * w.stagger_ns, w.cpus + i)));
    }
    if let Some(tick) = tick_ns {
        for cpu in 0..w.cpus {
            events.push(Reverse((tick, w.cpus + n + cpu)));
        }
    }
    let mut newest = 0;
    while let Some(Reverse((now, id))) = events.pop() {
        if now > w.end_ns {
            break;
        }
        counts.events += 1;
        if id >= w.cpus + n {
            counts.ticks += 1;
            events.push(Reverse((now + tick_ns.unwrap_or(u64::MAX / 2), id)));
            continue;
        }
        let cpu = if id < w.cpus {
            let (task, started) = running[id as usize];
            let t = &mut tasks[task as usize];
            let ran = now - started;
            t.vtime += ran;
            if !t.hog {
                t.left -= ran;
            }
            if t.left == 0 {
                counts.cycles += 1;
                t.left = w.compute_ns;
                events.push(Reverse((now + w.sleep_ns, w.cpus + task)));
            } else {
                ready.push(Reverse((t.vtime, task)));
            }
            id
        } else {
            let task = id - w.cpus;
            let t = &mut tasks[task as usize];
            // A sleeper is at most one slice behind.
            t.vtime = t.vtime.max(u64::saturating_sub(newest, w.slice_ns));
            ready.push(Reverse((t.vtime, task)));
            match idle.pop() {
                Some(cpu) => cpu,
                None => continue,
            }
        };
        let Some(Reverse((vtime, task))) = ready.pop() else {
            running[cpu as usize].0 = u32::MAX;
            idle.push(cpu);
            continue;
        };
        newest = newest.max(vtime);
        if running[cpu as usize].0 != task {
            counts.switches += 1;
        }
        running[cpu as usize] = (task, now);
        let t = &tasks[task as usize];
        let slice = if t.hog {
            w.slice_ns
        } else {
            w.slice_ns.min(t.left)
        };
        events.push(Reverse((now + slice, cpu)));
    }
    counts
}
