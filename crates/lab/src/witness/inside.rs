// SPDX-License-Identifier: GPL-2.0-only
//! Inside the real guest: its first process. Does the tasks of the watched VM, says on the console where it is (the VM
//! around it acts on that), and writes what it saw to the second serial port.
use super::job::{BEGIN, END, ERROR, FLOOR_DONE, GUEST_JOB, GuestAnswer, GuestJob, READY};
use super::tasks::{self, Notes, Shared, Worker, now_ns, sleep_until, whole};
use super::watched::Watched;
use crate::guest;
use berth_results::guest::Seen;
use berth_scenario::dist::Arrivals;
use berth_scenario::model::Step;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where the scheduler's features and its slice stand.
const FEATURES: &str = "/sys/kernel/debug/sched/features";
const SLICE: &str = "/sys/kernel/debug/sched/base_slice_ns";

/// Whether this process is the first one of a guest that is a witness.
pub fn is_inside() -> bool {
    std::process::id() == 1 && Path::new(GUEST_JOB).exists()
}

/// Does the job and powers the guest off.
pub fn main() -> ! {
    guest::mount_all();
    let caught = std::panic::catch_unwind(work);
    let answer = match caught {
        Ok(Ok(answer)) => answer,
        Ok(Err(e)) => failed(e),
        Err(_) => failed("the guest's first process panicked; see its console".into()),
    };
    if let Err(e) = guest::send(&answer) {
        println!("{ERROR} the answer cannot be sent: {e}");
    }
    guest::power_off()
}

fn failed(error: String) -> GuestAnswer {
    println!("{ERROR} {error}");
    GuestAnswer {
        error: Some(error),
        ..GuestAnswer::default()
    }
}

/// Sets or clears HRTICK, the timer by which slices end.
pub(super) fn set_hrtick(on: bool) -> Result<(), String> {
    let word = if on { "HRTICK" } else { "NO_HRTICK" };
    fs::write(FEATURES, word).map_err(|e| format!("{FEATURES}: {word}: {e}"))
}

fn work() -> Result<GuestAnswer, String> {
    let text = fs::read(GUEST_JOB).map_err(|e| format!("{GUEST_JOB}: {e}"))?;
    let job: GuestJob = serde_json::from_slice(&text).map_err(|e| format!("{GUEST_JOB}: {e}"))?;
    set_hrtick(job.hrtick)?;
    let scenario = &job.scenario;
    let watched = Watched::of(scenario).map_err(|e| e.to_string())?;
    let list: Vec<_> = watched
        .vm
        .tasks
        .iter()
        .filter_map(|name| scenario.tasks.get(name))
        .collect();
    let shared = Arc::new(Shared::new(list.iter().copied(), tasks::turns_per_us()));
    println!("{READY}");
    let start = now_ns() + job.settle_ns;
    let floor = (start, start + job.floor_ns);
    let begin = floor.1 + job.settle_ns;
    let window = (begin, begin + scenario.run.measure_ns);

    let mut threads: Vec<(String, Arc<Notes>)> = Vec::new();
    let mut handles = Vec::new();
    let mut busy = Vec::new();
    let ordinal = scenario.vms.iter().position(|v| v.name == watched.vm.name);
    for task in list {
        for _ in 0..task.threads.unwrap_or(watched.vm.vcpus) {
            let notes = Arc::<Notes>::default();
            let requests = (task.name == watched.echo.name)
                .then(|| {
                    // VMs before it in the file have numbers of their own.
                    let before = scenario.vms.iter().take(ordinal.unwrap_or(0));
                    let vm = before.map(|v| v.count).sum();
                    Arrivals::new(&watched.client.sends, job.seed, 0, vm)
                })
                .flatten()
                .map(|arrivals| (arrivals, start));
            let worker = Worker {
                shared: Arc::clone(&shared),
                notes: Arc::clone(&notes),
                task: task.clone(),
                rng: Worker::rng(job.seed, threads.len() as u32),
                requests,
            };
            let is_busy = matches!(task.steps[..], [Step::Busy]);
            if is_busy {
                busy.push(Arc::clone(&notes));
            }
            threads.push((task.name.clone(), notes));
            let spawned = std::thread::Builder::new()
                .name(task.name.clone())
                .spawn(move || worker.run())
                .map_err(|e| format!("task {}: {e}", task.name))?;
            if is_busy {
                handles.push(spawned);
            }
        }
    }

    sleep_until(floor.1);
    println!("{FLOOR_DONE}");
    sleep_until(window.0);
    println!("{BEGIN}");
    let before = (turns(&threads), stat()?);
    sleep_until(window.1);
    let after = (turns(&threads), stat()?);
    println!("{END}");
    shared.stop.store(true, Ordering::Relaxed);
    // Busy threads end at the next chunk and leave their holes; whoever sleeps need not be waited for.
    for handle in handles {
        handle
            .join()
            .map_err(|_| "a thread of the guest panicked".to_string())?;
    }

    let mut ran_ns = BTreeMap::<String, f64>::new();
    for ((name, _), (a, b)) in threads.iter().zip(before.0.iter().zip(&after.0)) {
        let ns = (b - a) as f64 * 1e3 / shared.turns_per_us;
        *ran_ns.entry(name.clone()).or_default() += ns;
    }
    let holes: Vec<_> = busy
        .iter()
        .map(|notes| whole(&notes.holes).clone())
        .collect();
    let answered: Vec<_> = threads
        .iter()
        .filter(|(name, _)| *name == watched.echo.name)
        .flat_map(|(_, notes)| whole(&notes.answers).clone())
        .collect();
    let (all, stolen) = (after.1.0 - before.1.0, after.1.1 - before.1.1);
    Ok(GuestAnswer {
        kernel: guest::release(),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        slice_ns: fs::read_to_string(SLICE)
            .ok()
            .and_then(|s| s.trim().parse().ok()),
        floor: tasks::answers(&answered, floor, &holes),
        seen: Seen {
            answers: tasks::answers(&answered, window, &holes),
            steal: None,
            ran_ns,
        },
        counted_steal: if all > 0 {
            stolen as f64 / all as f64
        } else {
            0.0
        },
        error: None,
    })
}

fn turns(threads: &[(String, Arc<Notes>)]) -> Vec<u64> {
    let of = |(_, notes): &(String, Arc<Notes>)| notes.turns.load(Ordering::Relaxed);
    threads.iter().map(of).collect()
}

/// All time of all CPUs, and what was stolen of it, in the kernel's ticks.
fn stat() -> Result<(u64, u64), String> {
    let text = fs::read_to_string("/proc/stat").map_err(|e| format!("/proc/stat: {e}"))?;
    parse_stat(&text).ok_or_else(|| "/proc/stat has no line `cpu`".to_string())
}

fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|l| l.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user time.
    Some((fields.iter().take(8).sum(), *fields.get(7)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_field() {
        let text = "cpu  10 0 5 80 0 1 4 300 7 7\ncpu0 1 2 3\n";
        assert_eq!(parse_stat(text), Some((400, 300)));
        assert_eq!(parse_stat("cpu0 1\n"), None);
    }
}
