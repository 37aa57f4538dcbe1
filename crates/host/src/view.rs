// SPDX-License-Identifier: GPL-2.0-only
//! What a host looked like over a stretch of time: the facts behind `berth ls`, `explain`, `top` and their `--json`.
use crate::class::{Rules, Verdict};
use crate::classes::{Classes, VmId};
use crate::counters::{Rates, Refreshed, Sampler};
use crate::discover::Scanner;
use crate::machine::Machine;
use crate::model::{Role, Snapshot, Thread, Vm};
use crate::pace::{Pace, cpu_time};
use crate::places::{KindShare, Places};
use crate::root::Root;
use crate::trace::{Tracer, Waited, Waits};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A host over a stretch of time.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    pub machine: Machine,
    /// The stretch, in seconds.
    pub seconds: f64,
    /// By name.
    pub vms: Vec<VmView>,
    /// VMs that ended within the stretch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<Ended>,
    /// What ran beside the VMs.
    pub host: HostView,
    /// What could not be seen and what would make it seen; sentences.
    pub notes: Vec<String>,
}

/// One VM over the stretch.
#[derive(Clone, Debug, Serialize)]
pub struct VmView {
    #[serde(flatten)]
    pub vm: Arc<Vm>,
    /// All its threads together; `None` if it was not there twice.
    pub rates: Option<Rates>,
    /// Of the time it wanted to run, the part it stood in a queue (0 to 1).
    pub run_delay: Option<f64>,
    /// Rates of `vm.threads`, in the same order.
    pub thread_rates: Vec<Option<Rates>>,
    /// What it seems to be for; `None` if it was watched too shortly.
    pub class: Option<Verdict>,
    /// On which kinds of cores its vCPUs ran; empty on hosts of one kind, or if it was looked at too seldom.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindShare>,
    /// How it waited and for whom; `None` if no tracer watches.
    pub waited: Option<Waited>,
}

/// A VM that is no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ended {
    pub name: String,
    pub manager_id: Option<String>,
    pub pid: i32,
}

impl Ended {
    /// Whether an operator calls it so: by its name, its manager's number, or its process.
    pub fn is(&self, name: &str) -> bool {
        self.name == name
            || self.manager_id.as_deref() == Some(name)
            || self.pid.to_string() == name
    }
}

/// What is no VM.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct HostView {
    /// CPUs used beside the VMs.
    pub cpus: Option<f64>,
    pub processes: usize,
}

impl VmView {
    /// Threads that are no vCPU.
    pub fn others(&self) -> usize {
        let other = |t: &&Thread| !matches!(t.role, Role::Vcpu(_));
        self.vm.threads.iter().filter(other).count()
    }

    /// Threads with their rates.
    pub fn threads(&self) -> impl Iterator<Item = (&Thread, Option<Rates>)> {
        self.vm
            .threads
            .iter()
            .zip(self.thread_rates.iter().copied())
    }
}

/// What a refresh may cost: beyond it, figures get older instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// CPU time for looking for VMs and their threads, in the mean over refreshes ([`Pace`]); `None`: at every refresh.
    pub scan: Option<Duration>,
    /// The same for what a tracer saw and what follows from it: all figures of VMs.
    pub tracer: Option<Duration>,
    /// Time for reading counters; `None`: all of them are read.
    pub counters: Option<Duration>,
    /// Files of threads that are held open ([`Sampler::keep`]).
    pub keep: usize,
    /// Files of /proc and debugfs read for the classes of VMs ([`Classes::limit`]); `None`: all.
    pub class: Option<usize>,
}

impl Bounds {
    /// Less than 1 % of a CPU at one refresh a second with 2,000 VMs of 8 threads (`examples/cost.rs`), for a process
    /// that may open so many files.
    pub fn light(files: usize) -> Bounds {
        // 6 KiB of kernel memory each: 36 MiB.
        const KEEP: usize = 6000;
        // What the rest of the program needs.
        const OTHERS: usize = 100;
        Bounds {
            scan: Some(Duration::from_millis(3)),
            tracer: Some(Duration::from_millis(3)),
            counters: Some(Duration::from_millis(2)),
            keep: files.saturating_sub(OTHERS).min(KEEP),
            class: Some(200),
        }
    }
}

/// Watches a host.
pub struct Watcher {
    bounds: Bounds,
    scans: Pace,
    traces: Pace,
    tracer: Option<Box<dyn Tracer>>,
    /// Why the tracer that was there is not any more.
    lost: Option<String>,
    /// What the tracer said last, and what happened between its last two readings.
    waits: BTreeMap<VmId, Waits>,
    between: BTreeMap<VmId, Waits>,
    root: Root,
    scanner: Scanner,
    sampler: Sampler,
    classes: Classes,
    places: Places,
    snapshot: Snapshot,
    /// Since the last but one refresh.
    ended: Vec<Ended>,
    busy: Option<(Instant, u64)>,
    host_cpus: Option<f64>,
    seconds: f64,
}

impl Watcher {
    pub fn new(root: Root) -> Watcher {
        Watcher {
            bounds: Bounds::default(),
            scans: Pace::default(),
            traces: Pace::default(),
            scanner: Scanner::new(root.clone()),
            sampler: Sampler::new(root.clone()),
            classes: Classes::new(root.clone(), Rules::default()),
            places: Places::new(&Machine::read(&root).kinds),
            snapshot: Snapshot::default(),
            ended: Vec::new(),
            tracer: None,
            lost: None,
            waits: BTreeMap::new(),
            between: BTreeMap::new(),
            busy: None,
            host_cpus: None,
            seconds: 0.0,
            root,
        }
    }

    /// Looks for VMs and reads counters, within the bounds.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn refresh(&mut self) -> io::Result<Refreshed> {
        for pid in self.sampler.take_lost() {
            self.scanner.doubt(pid);
        }
        if let Some(snapshot) = self.scans.step(|| self.scanner.scan()) {
            let before = std::mem::replace(&mut self.snapshot, snapshot?);
            self.ended = ended(&before, &self.snapshot);
        }
        // Taken out while it runs: the work needs the watcher whole.
        let mut traces = std::mem::take(&mut self.traces);
        let done = match self.tracer.is_some() {
            true => traces.step(|| self.gauge(true)),
            false => Some(self.gauge(false)),
        };
        self.traces = traces;
        let done = done.transpose()?.unwrap_or_else(|| Refreshed {
            read: 0,
            left: self.snapshot.vms.iter().map(|vm| vm.threads.len()).sum(),
        });
        let now = (self.root.now(), busy_ns(&self.root).unwrap_or(0));
        if let Some((at, before)) = self.busy.replace(now) {
            self.seconds = (now.0 - at).as_secs_f64();
            let busy = now.1.saturating_sub(before) as f64 / 1e9 / self.seconds;
            self.host_cpus = (now.1 > 0 && self.seconds > 0.0).then_some(busy);
        }
        Ok(done)
    }

    /// Brings all figures of the VMs up to date, with what the tracer saw or without.
    fn gauge(&mut self, traced: bool) -> io::Result<Refreshed> {
        if traced && let Err(e) = self.trace() {
            self.tracer = None;
            self.lost = Some(format!("The tracer was given up: {e}"));
        }
        let done = self.count()?;
        let scanner = &self.scanner;
        let halts = |pid| scanner.kvm_counter(pid, "halt_exits");
        let tracer = self.tracer.as_deref();
        let bursts = |id: &crate::model::TaskId| tracer?.bursts(id);
        self.classes
            .feed(&self.snapshot, &self.sampler, &halts, Some(&bursts))?;
        Ok(done)
    }

    /// Reads the counters: all by the tracer, if there is one that can.
    fn count(&mut self) -> io::Result<Refreshed> {
        if let Some(tracer) = &mut self.tracer {
            match self.sampler.ask(&self.snapshot, &mut **tracer) {
                Ok(done) if done.left == 0 => return Ok(done),
                Ok(_) => {}
                Err(e) => {
                    self.tracer = None;
                    self.lost = Some(format!("The tracer was given up: {e}"));
                }
            }
        }
        self.sampler.refresh(&self.snapshot, self.bounds.counters)
    }

    /// Bounds the cost of refreshes from now on; without it everything is read.
    pub fn bound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        (self.scans, self.traces) = (Pace::new(bounds.scan), Pace::new(bounds.tracer));
        self.sampler.keep(bounds.keep);
        self.classes.limit(bounds.class.unwrap_or(usize::MAX));
    }

    /// Watches with a tracer, too.
    pub fn set_tracer(&mut self, tracer: Box<dyn Tracer>) {
        self.tracer = Some(tracer);
    }

    fn trace(&mut self) -> io::Result<()> {
        let Some(tracer) = &mut self.tracer else {
            return Ok(());
        };
        let now = tracer.read()?;
        // One that is new began at zero.
        let zero = Waits::default();
        let since =
            |(id, waits): (&VmId, &Waits)| (*id, waits.since(self.waits.get(id).unwrap_or(&zero)));
        self.between = now.iter().map(since).collect();
        self.waits = now;
        tracer.follow(&self.snapshot)
    }

    fn waited(&self, vm: &Vm, names: &BTreeMap<VmId, &str>) -> Option<Waited> {
        self.tracer.as_ref()?;
        let id = (vm.pid, vm.start);
        let name = |id: VmId| names.get(&id).map(|name| (*name).to_string());
        Some(Waited::of(id, self.between.get(&id)?, &name))
    }

    /// Looks at what the class needs, and leaves the stretch of [`Watcher::view`] as it is.
    ///
    /// # Errors
    /// /proc cannot be read.
    fn feed_class(&mut self) -> io::Result<()> {
        // Its own readings: those of the sampler are where the stretch begins.
        let mut sampler = Sampler::new(self.root.clone());
        sampler.refresh(&self.snapshot, None)?;
        let scanner = &self.scanner;
        let halts = |pid| scanner.kvm_counter(pid, "halt_exits");
        self.classes.feed(&self.snapshot, &sampler, &halts, None)?;
        Ok(())
    }

    /// Looks where the vCPUs are, for so long; costs a twentieth of a CPU at most. With kinds of cores alone.
    fn look_around(&mut self, time: Duration) {
        let until = self.root.now() + time;
        loop {
            let left = until.saturating_duration_since(self.root.now());
            if left <= PLACES_EVERY || !self.places.are_several() {
                return self.root.sleep(left);
            }
            let before = cpu_time();
            self.places.look(&self.root, &self.snapshot);
            let cost = cpu_time().saturating_sub(before);
            self.root.sleep((cost * 19).clamp(PLACES_EVERY, left));
        }
    }

    /// The VMs as last seen.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What happened between the last two refreshes.
    pub fn view(&self) -> View {
        let names = self.snapshot.vms.iter();
        let names = names.map(|vm| ((vm.pid, vm.start), vm.name.as_str()));
        let names = names.collect();
        let vms = self.snapshot.vms.iter();
        let vms: Vec<VmView> = vms.map(|vm| self.of(vm, &names)).collect();
        let used: f64 = vms.iter().filter_map(|v| v.rates).map(|r| r.cpus).sum();
        let mut notes = self.snapshot.blind.words();
        let counted = self.snapshot.vms.iter().flat_map(|vm| &vm.threads);
        if self.sampler.zeros_seen()
            && counted
                .filter_map(|t| self.sampler.counters(&t.id))
                .all(|c| c.stays == 0)
        {
            notes.push(
                "This kernel counts no run delay (it is built without CONFIG_SCHED_INFO).".into(),
            );
        }
        notes.extend(self.lost.clone());
        View {
            machine: Machine::read(&self.root),
            seconds: self.seconds,
            host: HostView {
                cpus: self.host_cpus.map(|busy| (busy - used).max(0.0)),
                processes: self.snapshot.other_processes,
            },
            vms,
            ended: self.ended.clone(),
            notes,
        }
    }

    fn of(&self, vm: &Arc<Vm>, names: &BTreeMap<VmId, &str>) -> VmView {
        let thread_rates = self.sampler.rates_of(vm);
        let rates = Rates::sum(thread_rates.iter().flatten());
        VmView {
            rates,
            run_delay: rates.and_then(|r| r.run_delay()),
            thread_rates,
            class: self.classes.verdict(vm),
            kinds: self.places.of((vm.pid, vm.start)),
            waited: self.waited(vm, names),
            vm: vm.clone(),
        }
    }
}

/// Who was there before and is not now.
fn ended(before: &Snapshot, now: &Snapshot) -> Vec<Ended> {
    let there: BTreeSet<VmId> = now.vms.iter().map(|vm| (vm.pid, vm.start)).collect();
    let gone = before
        .vms
        .iter()
        .filter(|vm| !there.contains(&(vm.pid, vm.start)));
    gone.map(|vm| Ended {
        name: vm.name.clone(),
        manager_id: vm.manager_id.clone(),
        pid: vm.pid,
    })
    .collect()
}

/// Between two looks for the class, where there is time for several.
const CLASS_EVERY: Duration = Duration::from_secs(1);

/// Between two looks where vCPUs are, at least.
const PLACES_EVERY: Duration = Duration::from_millis(20);

/// Looks at a host for so long; rates are over all of it.
///
/// # Errors
/// /proc cannot be read.
pub fn look(root: &Root, apart: Duration) -> io::Result<View> {
    look_with(root, apart, None)
}

/// The same with a tracer.
///
/// # Errors
/// /proc cannot be read.
pub fn look_with(
    root: &Root,
    apart: Duration,
    tracer: Option<Box<dyn Tracer>>,
) -> io::Result<View> {
    let mut watcher = Watcher::new(root.clone());
    watcher.tracer = tracer;
    watcher.refresh()?;
    let until = root.now() + apart;
    loop {
        let left = until.saturating_duration_since(root.now());
        if left <= CLASS_EVERY * 2 {
            watcher.look_around(left);
            watcher.refresh()?;
            return Ok(watcher.view());
        }
        watcher.look_around(CLASS_EVERY);
        watcher.feed_class()?;
    }
}

/// Time all CPUs together were busy since boot, in nanoseconds, by `/proc/stat`.
fn busy_ns(root: &Root) -> Option<u64> {
    let text = root.proc_text("stat")?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guest time is in user.
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|i| fields.get(*i)).sum();
    // 1/100 s on every architecture (USER_HZ).
    busy.checked_mul(10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Bursts;
    use crate::fixture::Fixture;
    use crate::model::TaskId;
    use crate::pace::cpu_time;
    use crate::procfile::Counters;
    use crate::time::Played;
    use std::cell::Cell;
    use std::rc::Rc;

    /// Takes its time with every reading.
    struct Slow {
        cost: Duration,
        thread: TaskId,
        readings: Rc<Cell<u32>>,
    }

    impl Tracer for Slow {
        fn follow(&mut self, _: &Snapshot) -> io::Result<()> {
            Ok(())
        }

        fn read(&mut self) -> io::Result<BTreeMap<VmId, Waits>> {
            let end = cpu_time() + self.cost;
            while cpu_time() < end {}
            self.readings.set(self.readings.get() + 1);
            Ok(BTreeMap::new())
        }

        fn counters(&mut self, each: &mut dyn FnMut(&TaskId, Counters, u64)) -> io::Result<()> {
            let run_ns = u64::from(self.readings.get()) * 1000;
            let counters = Counters {
                run_ns,
                ..Counters::default()
            };
            each(&self.thread, counters, 1);
            Ok(())
        }

        fn bursts(&self, _: &TaskId) -> Option<Bursts> {
            None
        }
    }

    #[test]
    fn who_ended_while_it_was_watched_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let vm = |pid, name| {
            format!("process {pid} lkvm\nargs lkvm run --name {name}\nfd 3 anon_inode:kvm-vm\n")
        };
        let host = Fixture::parse(&(vm(5, "short") + &vm(6, "long"))).unwrap();
        host.unpack(folder.path()).unwrap();
        let process = folder.path().join("proc/5");
        let ends = Played::new(move |_| {
            let _ = std::fs::remove_dir_all(&process);
        });
        let root = Root::at(folder.path()).with_time(Arc::new(ends));
        let view = look(&root, Duration::from_secs(1)).unwrap();
        assert_eq!((view.vms.len(), view.ended.len()), (1, 1));
        let ended = &view.ended[0];
        assert!(
            ended.is("short") && ended.is("5") && !ended.is("long"),
            "{ended:?}"
        );
    }

    #[test]
    fn a_costly_tracer_is_read_less_often_and_its_figures_stay() {
        let folder = tempfile::tempdir().unwrap();
        let host = "process 5 lkvm\nargs lkvm run --name v\nfd 3 anon_inode:kvm-vm\n";
        Fixture::parse(host).unwrap().unpack(folder.path()).unwrap();
        let root = Root::at(folder.path());
        let thread = Scanner::new(root.clone()).scan().unwrap().vms[0].threads[0].id;
        let readings = Rc::new(Cell::new(0));
        let mut watcher = Watcher::new(root);
        watcher.bound(Bounds {
            tracer: Some(Duration::from_millis(1)),
            ..Bounds::default()
        });
        watcher.set_tracer(Box::new(Slow {
            cost: Duration::from_millis(4),
            thread,
            readings: readings.clone(),
        }));
        let mut said = 0;
        for i in 0..41 {
            said += watcher.refresh().unwrap().read;
            // The first two are there at once: rates take two.
            assert_eq!(watcher.view().vms[0].rates.is_some(), i > 0, "{i}");
        }
        assert!((8..=12).contains(&readings.get()), "{}", readings.get());
        assert_eq!(said, readings.get() as usize);
    }
}
