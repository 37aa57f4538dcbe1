// SPDX-License-Identifier: GPL-2.0-only
//! From counters and histograms to the metrics of the results schema.
use crate::births::Birth;
use crate::procfs::{MachineCounters, ThreadCounters};
use crate::shared::{Shared, Slot};
use crate::{procfs, sys};
use berth_results::evenness;
use berth_scenario::placement::{self, VmInstance};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Values that are kept one by one: a thread of a request has a handful, and a histogram is a third of a megabyte.
const FEW: usize = 16;

/// Latencies of one kind, in nanoseconds.
#[derive(Clone, Debug)]
enum Values {
    Few(Vec<u64>),
    Many(Box<Histogram<u64>>),
}

impl Default for Values {
    fn default() -> Self {
        Values::Few(Vec::new())
    }
}

impl Values {
    fn record(&mut self, ns: u64, times: u64) {
        match self {
            Values::Few(all) if times == 1 && all.len() < FEW => all.push(ns.max(1)),
            _ => self.many().saturating_record_n(ns.max(1), times),
        }
    }

    fn many(&mut self) -> &mut Histogram<u64> {
        if let Values::Few(all) = self {
            // Three significant digits, up to an hour; both are constants that the library accepts.
            let new = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
            let mut new = Box::new(new.expect("valid bounds"));
            all.iter().for_each(|ns| new.saturating_record(*ns));
            *self = Values::Many(new);
        }
        match self {
            Values::Many(histogram) => histogram,
            Values::Few(_) => unreachable!("it has just been replaced"),
        }
    }

    fn add(&mut self, other: &Values) {
        match other {
            Values::Few(all) => all.iter().for_each(|ns| self.record(*ns, 1)),
            // Same bounds, so adding cannot fail.
            Values::Many(histogram) => _ = self.many().add(&**histogram),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Values::Few(all) => all.len() as u64,
            Values::Many(histogram) => histogram.len(),
        }
    }

    /// Each value and how often.
    fn counts(mut self) -> Vec<(u64, u64)> {
        let recorded = self.many().iter_recorded();
        recorded
            .map(|v| (v.value_iterated_to(), v.count_at_value()))
            .collect()
    }
}

impl FromIterator<(u64, u64)> for Values {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(all: I) -> Self {
        let mut values = Values::default();
        all.into_iter().for_each(|(ns, n)| values.record(ns, n));
        values
    }
}

/// Latencies seen by one thread.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "Counts", into = "Counts")]
pub struct Latencies {
    wakeup: Values,
    response: Values,
    /// Of threads of requests: response less computing, and from arrival to their first step.
    waiting: Values,
    begin: Values,
}

/// Latencies as they travel between processes, of micro-VMs: value and how often.
#[derive(serde::Serialize, serde::Deserialize)]
struct Counts {
    wakeup: Vec<(u64, u64)>,
    response: Vec<(u64, u64)>,
}

impl From<Latencies> for Counts {
    fn from(l: Latencies) -> Counts {
        Counts {
            wakeup: l.wakeup.counts(),
            response: l.response.counts(),
        }
    }
}

impl From<Counts> for Latencies {
    fn from(counts: Counts) -> Latencies {
        Latencies {
            wakeup: counts.wakeup.into_iter().collect(),
            response: counts.response.into_iter().collect(),
            ..Latencies::default()
        }
    }
}

impl Latencies {
    pub fn wakeup(&mut self, ns: u64) {
        self.wakeup.record(ns, 1);
    }

    /// `n` wake-ups at once.
    pub fn wakeups(&mut self, ns: u64, n: u64) {
        self.wakeup.record(ns, n);
    }

    pub fn response(&mut self, ns: u64) {
        self.response.record(ns, 1);
    }

    pub fn waiting(&mut self, ns: u64) {
        self.waiting.record(ns, 1);
    }

    pub fn begin(&mut self, ns: u64) {
        self.begin.record(ns, 1);
    }

    pub fn add(&mut self, other: &Latencies) {
        self.wakeup.add(&other.wakeup);
        self.response.add(&other.response);
        self.waiting.add(&other.waiting);
        self.begin.add(&other.begin);
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
    /// The same of threads of requests, by who starts them.
    births: Vec<(ThreadCounters, u64)>,
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
        let births = shared.births.all.iter().map(Birth::counters).collect();
        Snapshot {
            at_ns,
            done_ns: sys::now_ns(),
            machine,
            threads,
            births,
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
    /// That are there all the time.
    threads: u32,
}

impl Sum {
    fn count(&mut self, now: &ThreadCounters, before: &ThreadCounters) {
        self.cpu_ns += now.cpu_ns.saturating_sub(before.cpu_ns);
        self.delay_ns += now.delay_ns.saturating_sub(before.delay_ns);
        self.timeslices += now.timeslices.saturating_sub(before.timeslices);
    }
}

/// Under which names a VM counts: its group's, and its own, if that is another.
fn names_of(shared: &Shared, vm: &VmInstance) -> Vec<String> {
    let group = &shared.scenario.vms[vm.group].name;
    let mut names = vec![group.clone()];
    if *group != vm.name {
        names.push(vm.name.clone());
    }
    names
}

fn put(out: &mut BTreeMap<String, f64>, name: String, value: f64) {
    if value.is_finite() {
        out.insert(name, value);
    }
}

fn histogram(out: &mut BTreeMap<String, f64>, name: &str, values: &Values) {
    if values.len() == 0 {
        return;
    }
    let mut values = values.clone();
    let h = values.many();
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
        for name in names_of(shared, &vm) {
            *offered.entry(name).or_default() += shared.offered(vm.ordinal);
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
        for name in names_of(shared, vm) {
            let sum = sums.entry(name).or_default();
            sum.count(&now, &before);
            sum.threads += 1;
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
    for (i, birth) in shared.births.all.iter().enumerate() {
        let Some(vm) = &birth.thread.vm else { continue };
        let (now, work) = end.births.get(i).copied().unwrap_or_default();
        let (before, work_before) = begin.births.get(i).copied().unwrap_or_default();
        let seen = birth.latencies();
        for name in names_of(shared, vm) {
            let sum = sums.entry(name).or_default();
            sum.count(&now, &before);
            sum.work_ns += work - work_before.min(work);
            sum.latencies.add(&seen);
        }
    }
    if unknown {
        notes.push("CPU time and run delay are missing for some threads: /proc/PID/task/TID/schedstat was not \
         readable".into());
    }
    if sums
        .values()
        .any(|s| s.threads > 0 && s.migrations.is_none())
    {
        notes.push("migrations are unknown: this kernel has no /proc/PID/sched".into());
    }
    for (name, sum) in &sums {
        histogram(&mut out, &format!("{name}.wakeup"), &sum.latencies.wakeup);
        histogram(
            &mut out,
            &format!("{name}.response"),
            &sum.latencies.response,
        );
        for (what, of) in [
            ("waiting", &sum.latencies.waiting),
            ("begin", &sum.latencies.begin),
        ] {
            histogram(&mut out, &format!("{name}.{what}"), of);
            if of.len() > 0 {
                put(&mut out, format!("{name}.{what}.count"), of.len() as f64);
            }
        }
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
