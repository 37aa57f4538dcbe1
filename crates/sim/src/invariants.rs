// SPDX-License-Identifier: GPL-2.0-only
//! What must hold whatever the policy does. Checked at every switch (see `scx::pass`): the task that gets a
//! CPU is runnable, belongs to that CPU's run queue and may run there. Checked at the end of every run: the
//! sums below.
use crate::error::SimError;
use crate::machine::task::{Life, NONE, OpsState, Trap};
use crate::scx::Handle;
use crate::scx::consts::TASK_QUEUED;
use crate::words::SchedClass;

/// Check the machine as a whole; `started` is when the statistics began.
///
/// # Errors
/// The first rule that is broken.
pub fn check(k: Handle) -> Result<(), SimError> {
    let broken = |what: String| SimError::Invariant {
        what,
        at_ns: k.now,
        seed: k.seed,
    };
    // Time: each CPU was idle or busy, all of the time.
    let mut busy = 0;
    for (i, c) in k.cpus.iter().enumerate() {
        let span = k.now - c.since;
        if c.idle_ns + c.busy_ns + c.stolen_ns + span != k.now {
            return Err(broken(format!(
                "CPU {i} accounts for {} ns of {} ns",
                c.idle_ns + c.busy_ns + c.stolen_ns + span,
                k.now
            )));
        }
        busy += c.busy_ns;
    }
    // Nobody runs twice, nobody is lost: a runnable task runs, or is in one queue, or is the policy's.
    let mut queued = vec![0u32; k.dsqs.queues.len()];
    let mut ran = 0;
    let mut on_cpus = vec![0u32; k.tasks.len()];
    k.cpus.iter().for_each(|c| on_cpus[c.curr as usize] += 1);
    for t in k.cpus.len() as u32..k.tasks.len() as u32 {
        let hot = &k.tasks.hot[t as usize];
        ran += hot.runtime;
        if matches!(hot.life, Life::Free | Life::Dead) {
            continue;
        }
        let name = || k.name_of(t);
        let on = on_cpus[t as usize];
        if on > 1 {
            return Err(broken(format!("task {} runs on {on} CPUs", name())));
        }
        if hot.dsq != NONE {
            queued[hot.dsq as usize] += 1;
        }
        if hot.trap == Trap::Stopped && hot.life != Life::Asleep {
            return Err(broken(format!("task {} is frozen and not stopped", name())));
        }
        let flagged = k.tasks.ts(t).scx.flags & TASK_QUEUED != 0;
        let runnable = hot.life == Life::Runnable;
        if hot.class == SchedClass::Ext && flagged != runnable {
            return Err(broken(format!(
                "task {} is queued: {flagged}, runnable: {runnable}",
                name()
            )));
        }
        let somewhere = hot.dsq != NONE || hot.deferred || hot.ops_state == OpsState::Queued;
        if hot.class == SchedClass::Ext && runnable && on == 0 && !somewhere {
            return Err(broken(format!(
                "runnable task {} is nowhere: a lost wake-up",
                name()
            )));
        }
        if !runnable && (on > 0 || somewhere) {
            return Err(broken(format!(
                "task {} sleeps and is queued or runs",
                name()
            )));
        }
    }
    for (q, n) in queued.iter().enumerate() {
        if k.dsqs.queues[q].nr != *n {
            return Err(broken(format!(
                "queue {:#x} counts {} tasks, {n} are in it",
                k.dsqs.queues[q].id, k.dsqs.queues[q].nr
            )));
        }
    }
    // CPU time that nobody used: who idles and who waits, counted anew.
    let idle = (k.cpus.iter()).filter(|c| c.online && c.is_idle()).count() as u32;
    let waiting = (k.tasks.hot.iter())
        .filter(|t| t.could_run_anywhere())
        .count() as u32;
    if k.stats.unused.now() != (idle, waiting) {
        return Err(broken(format!(
            "{idle} CPUs idle and {waiting} threads wait, {:?} are on account",
            k.stats.unused.now()
        )));
    }
    // Who waited for whom: every nanosecond of waiting has a cause.
    if k.stats.blame.is_some()
        && k.stats.settled_at == k.now
        && let Some((class, waited, explained)) = k.stats.unexplained()
    {
        return Err(broken(format!(
            "class {class} waited {waited} ns, of which {explained} ns are attributed"
        )));
    }
    // Work: what tasks ran is what CPUs were busy (exited tasks' numbers may be in use again).
    if k.population.exited == 0 && ran != busy {
        return Err(broken(format!(
            "tasks ran {ran} ns, CPUs were busy {busy} ns"
        )));
    }
    Ok(())
}
