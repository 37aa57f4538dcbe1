// SPDX-License-Identifier: GPL-2.0-only
//! Windows of measurement have sharp edges.
use crate::machine::task::{Trap, Waits};
use crate::scx::kernel::Handle;

/// Account what is running and waiting up to now, so that a window has sharp edges.
pub fn settle(mut k: Handle) {
    let now = k.now;
    let kernel = &mut *k;
    if let Some(blame) = &mut kernel.stats.blame {
        blame.settle(now);
    }
    for hot in kernel.tasks.hot.iter().filter(|hot| hot.waits != Waits::No) {
        kernel.stats.still_waits(hot.stats, hot.queued_at, now);
    }
    for hot in (kernel.tasks.hot.iter()).filter(|hot| hot.trap == Trap::Stopped) {
        kernel.stats.frozen(hot.stats, hot.queued_at, now);
    }
    kernel.stats.settled_at = now;
    for cpu in 0..k.cpus.len() as u32 {
        if k.cpus[cpu as usize].is_idle() {
            continue;
        }
        k.sync_work(cpu);
        let now = k.now;
        let c = &mut k.cpus[cpu as usize];
        let span = now - c.since;
        c.since = now;
        if c.paused {
            c.stolen_ns += span;
            continue;
        }
        c.busy_ns += span;
        let curr = c.curr as usize;
        k.tasks.hot[curr].runtime += span;
        let entry = k.tasks.hot[curr].stats;
        k.stats.ran(entry, cpu, now, span);
    }
}
