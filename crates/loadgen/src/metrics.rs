// SPDX-License-Identifier: GPL-2.0-only
//! From counters and histograms to the metrics of the results schema.
use crate::procfs::{MachineCounters, ThreadCounters};
use crate::shared::{Shared, Slot};
use crate::{procfs, sys};
use berth_results::evenness;
use berth_scenario::placement;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Latencies seen by one thread, in nanoseconds.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(from = "Counts", into = "Counts")]
pub struct Latencies {
    wakeup: Histogram<u64>,
    response: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        // Three significant digits, up to an hour; both are constants that the library accepts.
        let new = || Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("valid bounds");
        Latencies {
            wakeup: new(),
            response: new(),
        }
    }
}

/// Latencies as they travel between processes: value and how often.
#[derive(serde::Serialize, serde::Deserialize)]
struct Counts {
    wakeup: Vec<(u64, u64)>,
    response: Vec<(u64, u64)>,
}

impl From<Latencies> for Counts {
    fn from(l: Latencies) -> Counts {
        let of = |h: &Histogram<u64>| {
            let recorded = h.iter_recorded();
            recorded
                .map(|v| (v.value_iterated_to(), v.count_at_value()))
                .collect()
        };
        Counts {
            wakeup: of(&l.wakeup),
            response: of(&l.response),
        }
    }
}

impl From<Counts> for Latencies {
    fn from(counts: Counts) -> Latencies {
        let mut l = Latencies::default();
        for (ns, n) in counts.wakeup {
            l.wakeup.saturating_record_n(ns, n);
        }
        for (ns, n) in counts.response {
            l.response.saturating_record_n(ns, n);
        }
        l
    }
}

impl Latencies {
    pub fn wakeup(&mut self, ns: u64) {
        self.wakeup.saturating_record(ns.max(1));
    }

    /// `n` wake-ups at once.
    pub fn wakeups(&mut self, ns: u64, n: u64) {
        self.wakeup.saturating_record_n(ns.max(1), n);
    }

    pub fn response(&mut self, ns: u64) {
        self.response.saturating_record(ns.max(1));
    }

    pub fn add(&mut self, other: &Latencies) {
        // Same bounds, so adding cannot fail.
        let _ = self.wakeup.add(&other.wakeup);
        let _ = self.response.add(&other.response);
    }
}

/// Everything the kernel and the threads have counted until one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub at_ns: u64,
    /// When it was taken whole: reading holds up whoever wants this CPU.
    pub done_ns: u64,
    machine: Option<MachineCounters>,
    /// By thread ordinal: counters, useful work.
    threads: Vec<(Option<ThreadCounters>, u64)>,
}

impl Snapshot {
    pub fn take(shared: &Shared) -> Snapshot {
        let read = |slot: &Slot| {
            let tid = slot.tid.get();
            let last = *slot.last_counters.lock().unwrap_or_else(|e| e.into_inner());
            // An ended thread's id may belong to another one by now: its own last word counts.
            let counters = last.or_else(|| (tid != 0).then(|| procfs::thread(tid)).flatten());
            (counters, slot.work())
        };
        let at_ns = sys::now_ns();
        let machine = procfs::machine();
        let threads = shared.slots().iter().map(|s| read(s)).collect();
        Snapshot {
            at_ns,
            done_ns: sys::now_ns(),
            machine,
            threads,
        }
    }
}

/// True of what the kernel counts by itself; whoever watches each switch takes it back.
pub const NO_STAYS: &str =
    "run_delay percentiles: the kernel counts only the sum of all stays in a run queue";

#[derive(Default)]
struct Sum {
    cpu_ns: u64,
    delay_ns: u64,
    timeslices: u64,
    work_ns: u64,
    /// The least and the most that one thread worked.
    extremes: Option<(u64, u64)>,
    migrations: Option<u64>,
    latencies: Latencies,
}

fn put(out: &mut BTreeMap<String, f64>, name: String, value: f64) {
    if value.is_finite() {
        out.insert(name, value);
    }
}

fn histogram(out: &mut BTreeMap<String, f64>, name: &str, h: &Histogram<u64>) {
    if h.is_empty() {
        return;
    }
    put(out, format!("{name}.mean"), h.mean());
    for (stat, q) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)] {
        put(out, format!("{name}.{stat}"), h.value_at_quantile(q) as f64);
    }
    put(out, format!("{name}.max"), h.max() as f64);
}

/// The metrics of the window between two snapshots, and notes on what cannot be known.
pub fn metrics(
    shared: &Shared,
    begin: &Snapshot,
    end: &Snapshot,
    latencies: &BTreeMap<u32, Latencies>,
) -> (BTreeMap<String, f64>, Vec<String>) {
    let mut out = BTreeMap::new();
    let mut notes = vec![NO_STAYS.to_string()];
    let window_ns = (end.at_ns - begin.at_ns).max(1) as f64;
    let seconds = window_ns / 1e9;
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    let mut offered: BTreeMap<String, u64> = BTreeMap::new();
    for vm in placement::instances(&shared.scenario) {
        let group = &shared.scenario.vms[vm.group].name;
        let alone = *group == vm.name;
        for name in [Some(group), (!alone).then_some(&vm.name)]
            .into_iter()
            .flatten()
        {
            *offered.entry(name.clone()).or_default() += shared.offered(vm.ordinal);
        }
    }
    let mut unknown = false;
    for slot in shared.slots() {
        let Some(vm) = &slot.thread.vm else { continue };
        let i = slot.ordinal as usize;
        let (now, work) = end.threads.get(i).copied().unwrap_or_default();
        let (before, work_before) = begin.threads.get(i).copied().unwrap_or_default();
        unknown |= now.is_none();
        let (now, before) = (now.unwrap_or_default(), before.unwrap_or_default());
        let group = &shared.scenario.vms[vm.group].name;
        let mut names = vec![group.clone()];
        if *group != vm.name {
            names.push(vm.name.clone());
        }
        for name in names {
            let sum = sums.entry(name).or_default();
            sum.cpu_ns += now.cpu_ns.saturating_sub(before.cpu_ns);
            sum.delay_ns += now.delay_ns.saturating_sub(before.delay_ns);
            sum.timeslices += now.timeslices.saturating_sub(before.timeslices);
            let worked = work - work_before.min(work);
            sum.work_ns += worked;
            let (least, most) = sum.extremes.unwrap_or((worked, worked));
            sum.extremes = Some((least.min(worked), most.max(worked)));
            if let Some(m) = now.migrations {
                *sum.migrations.get_or_insert(0) +=
                    m.saturating_sub(before.migrations.unwrap_or(0));
            }
            if let Some(seen) = latencies.get(&slot.ordinal) {
                sum.latencies.add(seen);
            }
        }
    }
    if unknown {
        notes.push("CPU time and run delay are missing for some threads: /proc/PID/task/TID/schedstat was not \
         readable".into());
    }
    if sums.values().any(|s| s.migrations.is_none()) {
        notes.push("migrations are unknown: this kernel has no /proc/PID/sched".into());
    }
    for (name, sum) in &sums {
        histogram(&mut out, &format!("{name}.wakeup"), &sum.latencies.wakeup);
        histogram(
            &mut out,
            &format!("{name}.response"),
            &sum.latencies.response,
        );
        if !shared.scenario.clients.is_empty() {
            put(
                &mut out,
                format!("{name}.response.count"),
                sum.latencies.response.len() as f64,
            );
            let due = offered.get(name).copied().unwrap_or(0);
            put(&mut out, format!("{name}.response.offered"), due as f64);
        }
        put(
            &mut out,
            format!("{name}.run_delay.mean"),
            sum.delay_ns as f64 / sum.timeslices as f64,
        );
        let wanted = (sum.delay_ns + sum.cpu_ns) as f64;
        put(
            &mut out,
            format!("{name}.run_delay.share"),
            sum.delay_ns as f64 / wanted,
        );
        put(
            &mut out,
            format!("{name}.cpu"),
            sum.cpu_ns as f64 / window_ns,
        );
        put(&mut out, format!("{name}.work"), sum.work_ns as f64);
        if let Some((least, most)) = sum.extremes.filter(|(_, most)| *most > 0) {
            let spread = most as f64 / least as f64;
            put(&mut out, format!("{name}.spread"), spread);
        }
        if let Some(migrations) = sum.migrations {
            put(
                &mut out,
                format!("{name}.migrations"),
                migrations as f64 / seconds,
            );
        }
    }
    for group in &shared.scenario.vms {
        evenness::add(&mut out, &group.name, group.count);
    }
    if let (Some(now), Some(before)) = (end.machine, begin.machine) {
        let cpus = now.cpus.max(1) as f64;
        let idle = now.idle_ns.saturating_sub(before.idle_ns) as f64 / (cpus * window_ns);
        put(&mut out, "host.idle".into(), idle.min(1.0));
        let switches = now.switches.saturating_sub(before.switches) as f64 / seconds;
        put(&mut out, "host.switches".into(), switches);
        put(&mut out, "host.switches_per_cpu".into(), switches / cpus);
    } else {
        notes.push(
            "idle time and switches of the host are unknown: /proc/stat was not readable".into(),
        );
    }
    (out, notes)
}
