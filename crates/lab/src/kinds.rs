// SPDX-License-Identifier: GPL-2.0-only
//! Cores of several kinds in a VM whose CPUs are all alike: the slower ones are braked, and on which of them VMs ran.
//!
//! A real-time thread on each slower CPU takes it for a part of every millisecond. All programs lose the same by it,
//! so that mechanisms can be seen here and efficiencies cannot. The fastest kind has whole CPUs, whatever its speed is
//! in the scenario. Policies are told the capacities.
use crate::cast::Cast;
use crate::error::LabError;
use crate::observe::Record;
use berth_scenario::model::{Class, CoreKind, Host, Scenario};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Period of a brake.
const PERIOD_NS: u64 = 1_000_000;
/// The kernel lets real-time threads have 95 % of a CPU; a bit of it stays for others than brakes.
const LEAST_PERCENT: u64 = 10;
/// Speed of cores that are of no kind, parts per million.
const FULL: u64 = 1_000_000;

/// What a VM with this host is to be braked to.
///
/// # Errors
/// A kind is too slow for a brake, or cores have several threads.
pub fn check(host: &Host) -> Result<(), LabError> {
    if host.cost.kinds.is_empty() {
        return Ok(());
    }
    if host.threads > 1 {
        return Err(LabError::Scenario(
            "its cores are of several kinds and have several threads each: the lab brakes whole cores; use --set \
             host.threads=1, or `berth sim`"
                .to_string(),
        ));
    }
    let (speeds, fastest) = speeds(host);
    match speeds.iter().all(|s| s * 100 >= fastest * LEAST_PERCENT) {
        true => Ok(()),
        false => Err(LabError::Scenario(format!(
            "a core has less than {LEAST_PERCENT} % of the speed of the fastest one, and the lab cannot brake more \
             than that"
        ))),
    }
}

fn kind_of(host: &Host, cpu: u32) -> Option<&CoreKind> {
    host.cost.kinds.iter().find(|k| k.cores.contains(&cpu))
}

/// Speeds of all CPUs at the frequency at which they run, and the highest of them.
fn speeds(host: &Host) -> (Vec<u64>, u64) {
    let speed = |cpu: u32| {
        let kind = kind_of(host, cpu);
        kind.map_or(FULL, |k| {
            u64::from(k.speed_ppm) * u64::from(k.frequency_ppm) / FULL
        })
    };
    let speeds: Vec<u64> = (0..host.nr_cpus()).map(speed).collect();
    let fastest = speeds.iter().copied().max().unwrap_or(FULL).max(1);
    (speeds, fastest)
}

/// What policies are told of each CPU, 1 to 1024; empty if all are alike.
pub fn capacities(host: &Host) -> Vec<u32> {
    if host.cost.kinds.is_empty() {
        return Vec::new();
    }
    let speed = |cpu| kind_of(host, cpu).map_or(FULL, |k| u64::from(k.speed_ppm));
    let speeds: Vec<u64> = (0..host.nr_cpus()).map(speed).collect();
    let fastest = speeds.iter().copied().max().unwrap_or(FULL).max(1);
    let capacity = |speed: &u64| (speed * 1024 / fastest).max(1) as u32;
    speeds.iter().map(capacity).collect()
}

/// Threads that brake slow CPUs; dropping it releases them.
pub struct Brake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Brake {
    /// Inside the VM. Does nothing where all CPUs are alike.
    ///
    /// # Errors
    /// No threads, or the kernel refuses one a CPU of its own or real time.
    pub fn start(host: &Host) -> io::Result<Brake> {
        let mut brake = Brake {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        if host.cost.kinds.is_empty() {
            return Ok(brake);
        }
        let (speeds, fastest) = speeds(host);
        for (cpu, speed) in (0..).zip(speeds).filter(|(_, speed)| *speed < fastest) {
            let (busy_ns, stop) = (PERIOD_NS - PERIOD_NS * speed / fastest, brake.stop.clone());
            let (ready, is_ready) = std::sync::mpsc::channel();
            let work = move || {
                let prepared = prepare(cpu);
                let failed = prepared.is_err();
                let _ = ready.send(prepared);
                match failed {
                    true => Ok(()),
                    false => hold(busy_ns, &stop),
                }
            };
            let name = format!("brake/{cpu}");
            let thread = std::thread::Builder::new().name(name).spawn(work)?;
            brake.threads.push(thread);
            is_ready
                .recv()
                .unwrap_or(Err(io::ErrorKind::BrokenPipe.into()))?;
        }
        Ok(brake)
    }

    /// Releases the CPUs.
    ///
    /// # Errors
    /// A brake could not wait: its CPU was not braked to the end.
    pub fn finish(mut self) -> io::Result<()> {
        self.release()
    }

    fn release(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ends = self.threads.drain(..).map(|t| t.join());
        let ends: Vec<_> = ends.collect();
        ends.into_iter()
            .try_for_each(|end| end.unwrap_or(Err(io::ErrorKind::Other.into())))
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

/// The calling thread has this CPU, before all ordinary threads.
fn prepare(cpu: u32) -> io::Result<()> {
    // SAFETY: plain system calls; sets and parameters are valid for their lengths.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        if libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) != 0 {
            return Err(io::Error::last_os_error());
        }
        let lowest = libc::sched_param { sched_priority: 1 };
        if libc::sched_setscheduler(0, libc::SCHED_FIFO, &lowest) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Now, of `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Has the CPU for so long of each period.
fn hold(busy_ns: u64, stop: &AtomicBool) -> io::Result<()> {
    let mut begin = now_ns();
    while !stop.load(Ordering::Relaxed) {
        while now_ns() < begin + busy_ns {
            std::hint::spin_loop();
        }
        // Periods that are over are left out: no brake makes up for what it missed.
        let now = now_ns();
        begin = (begin + PERIOD_NS).max(now - now % PERIOD_NS);
        let next = libc::timespec {
            tv_sec: (begin / 1_000_000_000) as i64,
            tv_nsec: (begin % 1_000_000_000) as i64,
        };
        // SAFETY: `next` is valid; the rest that is left is not asked for.
        let error = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &next,
                std::ptr::null_mut(),
            )
        };
        if error != 0 && error != libc::EINTR {
            return Err(io::Error::from_raw_os_error(error));
        }
    }
    Ok(())
}

/// What a CPU does.
#[derive(Clone, Copy, PartialEq)]
enum Doing {
    /// Not seen yet, or something outside the scenario.
    Else,
    Idle,
    /// A thread of this entry of the cast.
    Entry(u32),
}

/// What entries ran on kinds of cores, in the window.
struct Ran {
    /// CPU time by entry and kind, ns.
    on_ns: Vec<Vec<u64>>,
    /// Of it on slower CPUs while one of the fastest was idle, or ran a VM of class batch.
    missed_ns: Vec<u64>,
}

/// `NAME.fast`, `NAME.on_kind.KIND` and `NAME.missed_fast` of VMs and groups, as in the simulator: by CPU time. The
/// brake's is nobody's.
pub(crate) fn metrics(
    records: &[Record],
    cast: &Cast,
    scenario: &Scenario,
    window: (u64, u64),
) -> BTreeMap<String, f64> {
    let kinds = &scenario.host.cost.kinds;
    let mut out = BTreeMap::new();
    let all_of_a_kind = (0..cast.cpus).all(|cpu| kind_of(&scenario.host, cpu).is_some());
    if kinds.len() < 2 || !all_of_a_kind {
        return out;
    }
    let fastest = (0..kinds.len()).max_by_key(|k| (kinds[*k].speed_ppm, usize::MAX - k));
    let fastest = fastest.unwrap_or(0);
    let batch: Vec<bool> = cast
        .vms
        .iter()
        .map(|(_, group)| scenario.vms[*group as usize].class == Class::Batch)
        .collect();
    let ran = ran(records, cast, scenario, fastest, &batch, window);
    let mut objects: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (entry, (vm, group)) in cast.vms.iter().enumerate() {
        let group = cast.group_name(*group);
        objects.entry(group).or_default().push(entry);
        if vm != group {
            objects.entry(vm).or_default().push(entry);
        }
    }
    for (name, entries) in objects {
        let on = |kind: usize| entries.iter().map(|e| ran.on_ns[*e][kind]).sum::<u64>() as f64;
        let all: f64 = (0..kinds.len()).map(on).sum();
        let span = (window.1 - window.0).max(1) as f64;
        out.insert(format!("{name}.fast"), on(fastest) / span);
        if all == 0.0 {
            continue;
        }
        for (i, kind) in kinds.iter().enumerate() {
            let kind = match kind.name.is_empty() {
                true => (i + 1).to_string(),
                false => kind.name.clone(),
            };
            out.insert(format!("{name}.on_kind.{kind}"), on(i) / all);
        }
        if !entries.iter().all(|e| batch[*e]) {
            let missed: u64 = entries.iter().map(|e| ran.missed_ns[*e]).sum();
            out.insert(format!("{name}.missed_fast"), missed as f64 / all);
        }
    }
    out
}

fn ran(
    records: &[Record],
    cast: &Cast,
    scenario: &Scenario,
    fastest: usize,
    batch: &[bool],
    (begin, end): (u64, u64),
) -> Ran {
    let kinds = &scenario.host.cost.kinds;
    let kind_of = |cpu: usize| kinds.iter().position(|k| k.cores.contains(&(cpu as u32)));
    let kind_of: Vec<usize> = (0..cast.cpus as usize)
        .map(|cpu| kind_of(cpu).unwrap_or(fastest))
        .collect();
    let entries = cast.vms.len();
    let mut ran = Ran {
        on_ns: vec![vec![0; kinds.len()]; entries],
        missed_ns: vec![0; entries],
    };
    let mut doing = vec![Doing::Else; kind_of.len()];
    let free = |what: Doing| match what {
        Doing::Idle => true,
        Doing::Entry(e) => batch.get(e as usize).is_some_and(|b| *b),
        Doing::Else => false,
    };
    let mut at = begin;
    // What all CPUs did since the last switch of any.
    let mut until = |now: u64, doing: &[Doing]| {
        let ns = now.clamp(at, end) - at;
        at += ns;
        if ns == 0 {
            return;
        }
        let mut cpus = kind_of.iter().zip(doing);
        let is_free = cpus.any(|(kind, what)| *kind == fastest && free(*what));
        for (kind, what) in kind_of.iter().zip(doing) {
            let Doing::Entry(e) = *what else { continue };
            if let Some(of) = ran.on_ns.get_mut(e as usize) {
                of[*kind] += ns;
                ran.missed_ns[e as usize] += if is_free && *kind != fastest { ns } else { 0 };
            }
        }
    };
    for r in records.iter().filter(|r| r.is_switch()) {
        until(r.ns, &doing);
        if let Some(now) = doing.get_mut(r.cpu as usize) {
            *now = match r.next_on(cast) {
                crate::account::On::Idle => Doing::Idle,
                crate::account::On::Outside => Doing::Else,
                crate::account::On::Thread(tid) => Doing::Entry(cast.members[&tid].entry),
            };
        }
    }
    until(end, &doing);
    ran
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tests::{cast, switch};
    use crate::observe::{IDLE, RUNNABLE, WAS_IDLE};

    fn scenario(more: &str) -> Scenario {
        let vm = |name: &str, class: &str| {
            format!("[vm.{name}]\nclass = \"{class}\"\nguest = \"none\"\ntasks = [\"t\"]\n")
        };
        let text = format!(
            "title = \"kinds\"\n[compare]\npolicies = [\"linux\"]\n[task.t]\nmodel = \"busy\"\n{}{}{}{more}",
            vm("a", "latency"),
            vm("b", "latency"),
            vm("c", "batch")
        );
        let input = berth_scenario::Input {
            name: "kinds".into(),
            shown: "kinds".into(),
            text,
            folder: None,
        };
        berth_scenario::read(&input, &[]).unwrap().scenario
    }

    const TWO: &str = "[host]\ncores = 2\n[host.kind.fast]\ncores = \"0\"\nspeed = \"237.5%\"\n\
                       [host.kind.slow]\ncores = \"1\"\n";

    #[test]
    fn time_counts_for_the_kind_and_as_missed_while_a_fast_cpu_is_free() {
        let mut who = cast(&[1, 2, 3]);
        who.cpus = 2;
        let records = [
            switch(0, 1, 0, 1, WAS_IDLE), // a on the slow CPU; nothing is known of the other
            switch(100, 0, 0, 2, 0),      // b on the fast one
            switch(200, 0, 2, 0, IDLE),   // which is idle: a misses it
            switch(250, 1, 1, 99, RUNNABLE), // the brake
            switch(300, 1, 99, 1, 0),
            switch(400, 0, 0, 3, WAS_IDLE), // batch: a could have it
            switch(700, 0, 3, 2, RUNNABLE),
        ];
        let m = metrics(&records, &who, &scenario(TWO), (50, 1_000));
        let is = |name: &str, expected: f64| {
            let got = m.get(name).copied();
            assert!(
                got.is_some_and(|got| (got - expected).abs() < 1e-9),
                "{name}: {got:?}, not {expected}"
            );
        };
        // 50 to 250 and 300 to 1000; 200 to 250, 300 to 700 beside a free one.
        is("a.on_kind.slow", 1.0);
        is("a.missed_fast", 450.0 / 900.0);
        is("a.fast", 0.0);
        is("b.on_kind.fast", 1.0);
        is("b.fast", 400.0 / 950.0);
        is("c.on_kind.fast", 1.0);
        assert!(!m.contains_key("c.missed_fast"));
    }

    #[test]
    fn capacities_and_what_cannot_be_braked() {
        let host = |more: &str| scenario(more).host;
        assert_eq!(capacities(&host(TWO)), [1024, 431]);
        assert_eq!(capacities(&host("[host]\ncores = 2\n")), [0; 0]);
        assert!(check(&host(TWO)).is_ok());
        let slow = "[host]\ncores = 2\nspeed = [\"1 x 100%\", \"1 x 5%\"]\n";
        let error = check(&host(slow)).unwrap_err().to_string();
        assert!(error.contains("less than 10 %"), "{error}");
        let threads = TWO.replace("cores = 2\n", "cores = 2\nthreads = 2\n");
        let error = check(&host(&threads)).unwrap_err().to_string();
        assert!(error.contains("host.threads=1"), "{error}");
    }
}
