// SPDX-License-Identifier: GPL-2.0-only
//! What the events of this machine cost, measured by threads under the scheduler that is running: the cost profile
//! `this-host` of the simulator. Takes some seconds and up to two CPUs; what else runs here disturbs it, and
//! [`Costs::disturbed`] says so.
use crate::sys;
use berth_scenario::cost::assumed;
use berth_scenario::model::{Cache, Nanos};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::{fs, io};

/// Sleeps and wake-ups of each kind, and the time between two.
const WAKES: usize = 1_000;
const GAP_NS: Nanos = 700_000;
/// Yields of each thread.
const YIELDS: u32 = 20_000;
/// Length of a look at a CPU's speed, in CPU time, and how many of them.
const SPIN_NS: Nanos = 50_000_000;
const SPINS: usize = 3;
const CPUS: &str = "/sys/devices/system/cpu";

/// What was measured; times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// A timer on an idle CPU: how late the thread runs, median and 90th percentile.
    pub wake: [Nanos; 2],
    /// A wake-up from one CPU to an idle other one, the same; none on a machine with one CPU.
    pub remote: Option<[Nanos; 2]>,
    /// CPU time of a thread per sleep.
    pub sleep: Nanos,
    /// A switch between two threads, besides the system call that asked for it.
    pub switch: Nanos,
    /// Speed of an SMT thread with a busy sibling, in parts per million of alone; none without SMT.
    pub smt_ppm: Option<u32>,
    /// Sizes of the core's own cache and of the one shared by cores, in bytes.
    pub caches: Option<[u64; 2]>,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum CostError {
    #[error("measuring this machine: {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    #[error("interrupted")]
    Interrupted,
}

fn system(what: &'static str) -> impl Fn(io::Error) -> CostError {
    move |source| CostError::System { what, source }
}

/// Measures this machine on the first CPU that may be used, and for what needs two on another core.
///
/// # Errors
/// A system call is refused, or `stop` is set meanwhile.
pub fn measure(stop: &AtomicBool) -> Result<Costs, CostError> {
    measure_by(WAKES, stop)
}

fn measure_by(wakes: usize, stop: &AtomicBool) -> Result<Costs, CostError> {
    let mine = sys::affinity().map_err(system("the CPUs of this process"))?;
    let first = mine.first().copied().unwrap_or(0);
    let of_core = siblings(first);
    let usable = |cpu: &u32| *cpu != first && mine.contains(cpu);
    let other = mine.iter().find(|c| usable(c) && !of_core.contains(c));
    let sibling = of_core.iter().find(|c| usable(c)).copied();
    // Neighbours of one core answer faster than CPUs do on average: the other core, if there is one.
    let other = other.copied().or(sibling);
    let (wake, sleep) = alone(first, || sleeps(wakes, stop))?;
    let remote = match other {
        Some(other) => Some(remote(first, other, wakes, stop)?),
        None => None,
    };
    let switch = switch(first)?;
    let smt_ppm = match sibling {
        Some(sibling) => Some(smt(first, sibling)?),
        None => None,
    };
    if stop.load(Ordering::Relaxed) {
        return Err(CostError::Interrupted);
    }
    Ok(Costs {
        wake,
        remote,
        sleep,
        switch,
        smt_ppm,
        caches: caches(&Path::new(CPUS).join(format!("cpu{first}/cache"))),
    })
}

/// Runs on a thread of its own, bound to one CPU.
fn alone<T: Send>(
    cpu: u32,
    work: impl FnOnce() -> Result<T, CostError> + Send,
) -> Result<T, CostError> {
    let done = std::thread::scope(|s| {
        s.spawn(|| {
            sys::set_affinity(&[cpu]).map_err(system("a thread's CPU"))?;
            sys::exact_timers();
            work()
        })
        .join()
    });
    done.unwrap_or_else(|_| Err(system("a thread")(io::Error::other("panicked"))))
}

/// Median and 90th percentile.
fn percentiles(mut values: Vec<Nanos>) -> [Nanos; 2] {
    values.sort_unstable();
    let at = |percent: usize| values.get(values.len() * percent / 100).copied();
    [50, 90].map(|p| at(p).unwrap_or(0))
}

/// How late sleeps end, and what each takes of CPU time.
fn sleeps(wakes: usize, stop: &AtomicBool) -> Result<([Nanos; 2], Nanos), CostError> {
    let nobody = AtomicU32::new(0);
    let mut late = Vec::with_capacity(wakes);
    let before = sys::cpu_ns();
    for _ in 0..wakes {
        let until = sys::now_ns() + GAP_NS;
        sys::wait(&[(&nobody, 0)], Some(until)).map_err(system("a sleep"))?;
        late.push(sys::now_ns().saturating_sub(until));
        if stop.load(Ordering::Relaxed) {
            return Err(CostError::Interrupted);
        }
    }
    let each = (sys::cpu_ns() - before) / wakes.max(1) as u64;
    Ok((percentiles(late), each))
}

/// How long after a thread of one CPU woke it, a thread of another runs.
fn remote(from: u32, to: u32, wakes: usize, stop: &AtomicBool) -> Result<[Nanos; 2], CostError> {
    let (letters, sent) = (AtomicU32::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let receive = || {
        let mut late = Vec::with_capacity(wakes);
        let mut seen = 0;
        while !over.load(Ordering::Acquire) {
            // Not for ever, should the sender fail.
            let until = sys::now_ns() + 100 * GAP_NS;
            sys::wait(&[(&letters, seen)], Some(until)).map_err(system("a wait"))?;
            let now = sys::now_ns();
            let n = letters.load(Ordering::Acquire);
            if n != seen {
                seen = n;
                late.push(now.saturating_sub(sent.load(Ordering::Acquire)));
            }
        }
        Ok(percentiles(late))
    };
    let send = || {
        let nobody = AtomicU32::new(0);
        for _ in 0..wakes {
            let until = sys::now_ns() + GAP_NS;
            sys::wait(&[(&nobody, 0)], Some(until)).map_err(system("a sleep"))?;
            sent.store(sys::now_ns(), Ordering::Release);
            sys::change_and_wake(&letters, 1);
            if stop.load(Ordering::Relaxed) {
                return Err(CostError::Interrupted);
            }
        }
        Ok(())
    };
    std::thread::scope(|s| {
        let receiver = s.spawn(|| alone(to, receive));
        let sent = alone(from, send);
        over.store(true, Ordering::Release);
        sys::change_and_wake(&letters, 1);
        let received = receiver
            .join()
            .unwrap_or_else(|_| Err(system("a thread")(io::Error::other("panicked"))));
        sent.and(received)
    })
}

/// CPU time and switches of so many yields.
fn yields() -> (Nanos, u64) {
    let (time, switches) = (sys::cpu_ns(), sys::switches());
    for _ in 0..YIELDS {
        sys::yield_now();
    }
    (sys::cpu_ns() - time, sys::switches() - switches)
}

/// What a switch costs: two threads of one CPU that yield to each other, less one that yields to nobody.
fn switch(cpu: u32) -> Result<Nanos, CostError> {
    let (call_ns, _) = alone(cpu, || Ok(yields()))?;
    let start = Barrier::new(2);
    let pair = || {
        alone(cpu, || {
            start.wait();
            Ok(yields())
        })
    };
    let [a, b] = std::thread::scope(|s| {
        let other = s.spawn(pair);
        let mine = pair();
        let other = other
            .join()
            .unwrap_or_else(|_| Err(system("a thread")(io::Error::other("panicked"))));
        [mine, other]
    });
    let ((a_ns, a_switches), (b_ns, b_switches)) = (a?, b?);
    let more = (a_ns + b_ns).saturating_sub(2 * call_ns);
    Ok(more / (a_switches + b_switches).max(1))
}

/// Rounds of a small loop per microsecond of CPU time, the best of some looks.
fn speed() -> u64 {
    let mut best = 1;
    for _ in 0..SPINS {
        let start = sys::cpu_ns();
        let (mut rounds, mut x) = (0u64, 0x9e37_79b9_7f4a_7c15_u64);
        let spent = loop {
            for _ in 0..10_000 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
            }
            std::hint::black_box(x);
            rounds += 10_000;
            let spent = sys::cpu_ns() - start;
            if spent >= SPIN_NS {
                break spent;
            }
        };
        best = best.max(rounds * 1_000 / spent);
    }
    best
}

/// Speed of one CPU while its sibling is busy, in parts per million of alone.
fn smt(cpu: u32, sibling: u32) -> Result<u32, CostError> {
    let full = alone(cpu, || Ok(speed()))?;
    let busy = AtomicBool::new(true);
    let shared = std::thread::scope(|s| {
        let spin = || {
            while busy.load(Ordering::Relaxed) {
                std::hint::black_box(speed_of_a_moment());
            }
            Ok(())
        };
        let other = s.spawn(move || alone(sibling, spin));
        let mine = alone(cpu, || Ok(speed()));
        busy.store(false, Ordering::Relaxed);
        let _ = other.join();
        mine
    })?;
    Ok((shared.min(full) * 1_000_000 / full) as u32)
}

fn speed_of_a_moment() -> u64 {
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..100_000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

/// CPUs of the same core, this one included.
fn siblings(cpu: u32) -> Vec<u32> {
    let file = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
    list(&fs::read_to_string(file).unwrap_or_default())
}

/// The numbers of `0-1,8`.
fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<u32>().ok()?..=to.parse().ok()?)
    };
    let parts = text.trim().split(',');
    parts.filter_map(range).flatten().collect()
}

/// Sizes of the second-level cache and of the last one, from a CPU's folder `cache`.
fn caches(folder: &Path) -> Option<[u64; 2]> {
    let read = |i: u32, file: &str| {
        let text = fs::read_to_string(folder.join(format!("index{i}/{file}"))).ok()?;
        Some(text.trim().to_string())
    };
    let bytes = |text: String| {
        let digits = text.trim_end_matches(['K', 'M']);
        let unit = match text.strip_prefix(digits) {
            Some("K") => 1 << 10,
            Some("M") => 1 << 20,
            _ => 1,
        };
        Some(digits.parse::<u64>().ok()? * unit)
    };
    let mut levels: Vec<(u32, u64)> = (0..8)
        .filter_map(|i| {
            let level = read(i, "level")?.parse().ok()?;
            let data = read(i, "type")? != "Instruction";
            let size = bytes(read(i, "size")?)?;
            (data && level > 1).then_some((level, size))
        })
        .collect();
    levels.sort_unstable();
    let (core, last) = (levels.first()?, levels.last()?);
    (core.0 < last.0).then_some([core.1, last.1])
}

impl Costs {
    /// Why the figures are doubtful, if they are: other work of this machine shows in them.
    pub fn disturbed(&self) -> Option<String> {
        let all = [Some(self.wake), self.remote];
        let uneven = all
            .into_iter()
            .flatten()
            .find(|[p50, p90]| p90 > &(4 * p50));
        uneven.map(|[p50, p90]| {
            format!(
                "this machine has other work: of its wake-ups one in ten took longer than {:.1} us, half of them less \
                 than \
                 {:.1} us; measure again when it is idle",
                p90 as f64 / 1e3,
                p50 as f64 / 1e3
            )
        })
    }

    /// The profile's text, as [`berth_scenario::profile::Profile`] reads it.
    pub fn profile(&self, kernel: &str) -> String {
        let assumed = assumed();
        let [wake, _] = self.wake;
        let ipi = self.remote.map_or(0, |[p50, _]| p50.saturating_sub(wake));
        let mut rows = vec![
            (
                "switch_ns",
                self.switch,
                "two threads of one CPU that yield to each other",
            ),
            (
                "wake_ns",
                wake,
                "a sleeper's timer on an idle CPU: wake-up to running, median",
            ),
            (
                "tick_ns",
                wake,
                "taken as a wake-up's, which has the same parts: interrupt, scheduler, switch",
            ),
            (
                "wake_ipi_ns",
                ipi,
                "what a wake-up from another CPU takes longer than that",
            ),
            (
                "sleep_ns",
                self.sleep,
                "CPU time of a thread besides its work, per sleep",
            ),
            (
                "tick_jitter_ns",
                assumed.tick_jitter_ns,
                "assumed, not measured",
            ),
            ("vm_entry_ns", assumed.vm_entry_ns, "assumed, not measured"),
            ("vm_exit_ns", assumed.vm_exit_ns, "assumed, not measured"),
        ];
        if let Some(ppm) = self.smt_ppm {
            let why = "speed of an SMT thread with a busy sibling, in parts per million";
            rows.push(("smt_ppm", ppm.into(), why));
        }
        let mut out = String::from(
            "# SPDX-License-Identifier: GPL-2.0-only\n\
             # Costs of this machine, for `host.cost.profile = \"this-host\"`: made by `berth host --measure-costs`, \
             by threads\n\
             # under the scheduler that was running. Nanoseconds. What policies' code costs is not measured \
             here.\n\n[cost]\n",
        );
        for (key, value, why) in rows {
            let _ = writeln!(out, "{key:<12} = {value:<6} # {why}");
        }
        if let Some([core_bytes, llc_bytes]) = self.caches {
            let c = Cache {
                core_bytes,
                llc_bytes,
                ..Cache::default()
            };
            let _ = write!(
                out,
                "\n[cost.cache] # sizes as the kernel tells them, the rest assumed\ncore_bytes = {}\nllc_bytes = {}\n\
                 from_llc = {}\nfrom_memory = {}\nfrom_other_node = {}\nworking_set = {}\n",
                c.core_bytes,
                c.llc_bytes,
                c.from_llc,
                c.from_memory,
                c.from_other_node,
                c.working_set
            );
        }
        let _ = write!(
            out,
            "\n[measured]\nkernel = {kernel:?}\n\"wake, 90th percentile, ns\" = {}\n",
            self.wake[1]
        );
        if let Some([p50, p90]) = self.remote {
            let _ = write!(
                out,
                "\"wake from another CPU, median, ns\" = {p50}\n\"wake from another CPU, 90th percentile, ns\" = \
                 {p90}\n"
            );
        }
        if let Some(doubt) = self.disturbed() {
            let _ = writeln!(out, "doubt = {doubt:?}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::profile::Profile;

    #[test]
    fn a_profile_is_what_was_measured_and_can_be_read() {
        let mut costs = Costs {
            wake: [3_000, 5_000],
            remote: Some([4_500, 9_000]),
            sleep: 1_700,
            switch: 600,
            smt_ppm: Some(640_000),
            caches: Some([1 << 20, 32 << 20]),
        };
        let cost = Profile::parse(&costs.profile("7.2.1")).unwrap().cost;
        assert_eq!((cost.wake_ns, cost.wake_ipi_ns), (3_000, 1_500));
        assert_eq!(
            (cost.sleep_ns, cost.switch_ns, cost.smt_ppm),
            (1_700, 600, 640_000)
        );
        assert_eq!(cost.cache, Some(Cache::default()));
        assert_eq!(costs.disturbed(), None);
        // One CPU, no SMT, no word about caches; and a machine that is busy.
        costs = Costs {
            wake: [3_000, 13_000],
            remote: None,
            smt_ppm: None,
            caches: None,
            ..costs
        };
        let text = costs.profile("7.2.1");
        let cost = Profile::parse(&text).unwrap().cost;
        assert_eq!((cost.wake_ipi_ns, cost.smt_ppm, cost.cache), (0, 0, None));
        assert!(text.contains("doubt = \"this machine has other work"));
    }

    #[test]
    fn lists_of_cpus_and_sizes_of_caches() {
        assert_eq!(list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(list(""), [0; 0]);
        let folder = tempfile::tempdir().unwrap();
        let caches_of = [
            ("1", "Data", "32K"),
            ("1", "Instruction", "32K"),
            ("2", "Unified", "512K"),
            ("3", "Unified", "16M"),
        ];
        for (i, (level, kind, size)) in caches_of.into_iter().enumerate() {
            let index = folder.path().join(format!("index{i}"));
            fs::create_dir(&index).unwrap();
            for (file, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(index.join(file), format!("{text}\n")).unwrap();
            }
        }
        assert_eq!(caches(folder.path()), Some([512 << 10, 16 << 20]));
        assert_eq!(caches(&folder.path().join("index0")), None);
    }

    /// On any machine: everything takes some time, and who is told to stop stops.
    #[test]
    fn this_machine_is_measured() {
        let costs = measure_by(50, &AtomicBool::new(false)).unwrap();
        assert!(
            costs.wake[0] > 0 && costs.wake[0] <= costs.wake[1],
            "{costs:?}"
        );
        assert!(costs.sleep > 0, "{costs:?}");
        assert!(
            costs.smt_ppm.is_none_or(|ppm| ppm <= 1_000_000),
            "{costs:?}"
        );
        let stopped = measure(&AtomicBool::new(true));
        assert!(matches!(stopped, Err(CostError::Interrupted)));
    }
}
