// SPDX-License-Identifier: GPL-2.0-only
//! Counters of the threads of VMs, and what happened between two readings of them.
use crate::dir::{Dir, Record, Short};
use crate::model::{Role, Snapshot, TaskId, Thread, Vm};
use crate::pace::cpu_time;
use crate::procfile::{self, Counters};
use crate::root::Root;
use crate::trace::Tracer;
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a `schedstat` file at most: three numbers of 64 bits.
const SCHEDSTAT: usize = 64;
/// One clock tick, as `/proc` counts.
const TICK_NS: u64 = 10_000_000;

/// What happened in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// CPUs used: time on a CPU per time, summed over the threads.
    pub cpus: f64,
    /// CPUs waited for: time in run queues per time, summed over the threads.
    pub waiting: f64,
    /// Stays on a CPU per second.
    pub stays_per_s: f64,
}

impl Rates {
    /// Of the time it wanted to run, the part it stood in a queue. `None` if it never wanted to.
    pub fn run_delay(&self) -> Option<f64> {
        let wanted = self.cpus + self.waiting;
        (wanted > 0.0).then(|| self.waiting / wanted)
    }

    /// Mean wait in a run queue, in nanoseconds. `None` if it never stood in one.
    pub fn mean_wait_ns(&self) -> Option<f64> {
        (self.stays_per_s > 0.0).then(|| self.waiting / self.stays_per_s * 1e9)
    }

    /// All of them together; `None` if there is none.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Rates>) -> Option<Rates> {
        all.fold(None, |sum, rates| {
            let mut sum = sum.unwrap_or_default();
            sum.add(rates);
            Some(sum)
        })
    }

    fn add(&mut self, other: &Rates) {
        self.cpus += other.cpus;
        self.waiting += other.waiting;
        self.stays_per_s += other.stays_per_s;
    }
}

/// One reading of a thread's counters.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    counters: Counters,
}

/// One thread that is followed.
#[derive(Debug)]
struct Followed {
    id: TaskId,
    /// Its file, held open.
    file: Option<Record>,
    /// Its CPU time is known by clock ticks alone: the kernel counts nothing else.
    by_ticks: bool,
    last: Option<Reading>,
    /// What happened between the last reading and the one before.
    rates: Option<Rates>,
    /// Voluntary context switches, if a tracer told them at the last reading.
    wakeups: Option<u64>,
    /// Readings without a change, one after the other.
    idle: u8,
    /// Refreshes that leave it out, from now on.
    rests: u8,
}

/// A thread that has not run for long is left out of so many refreshes at most, where time is short.
const RESTS: u8 = 7;

/// Reads counters, again and again, within a budget of CPU time.
///
/// A refresh goes on where the last one stopped when its budget was used up: on a host with very many threads figures
/// get older, the cost does not get higher; those of threads that do not run anyway get older first. Rates are over the
/// time between the readings of each thread.
#[derive(Debug)]
pub struct Sampler {
    root: Root,
    /// By thread.
    threads: Vec<Followed>,
    /// The VMs whose threads these are.
    vms: Vec<Arc<Vm>>,
    /// Where the next refresh begins.
    next: usize,
    /// When a tracer told counters that no refresh has followed yet.
    told: Option<Instant>,
    /// The last refresh did not come to the end.
    short: bool,
    blind: bool,
    /// Files are held open for at most so many threads: a reading then costs no opening and closing.
    keep: usize,
    kept: usize,
    lost: Vec<i32>,
}

/// What a refresh did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refreshed {
    pub read: usize,
    /// Threads left for the next refresh.
    pub left: usize,
}

impl Sampler {
    pub fn new(root: Root) -> Sampler {
        Sampler {
            root,
            threads: Vec::new(),
            vms: Vec::new(),
            next: 0,
            told: None,
            short: false,
            blind: false,
            keep: 0,
            kept: 0,
            lost: Vec::new(),
        }
    }

    /// Holds the files of up to so many threads open between readings. Each costs the kernel some 6 KiB.
    pub fn keep(&mut self, files: usize) {
        self.keep = files;
    }

    /// Reads the counters of the VMs' threads, at most for `budget` of CPU time.
    ///
    /// # Errors
    /// /proc cannot be opened. Threads that have ended are no error.
    pub fn refresh(
        &mut self,
        snapshot: &Snapshot,
        budget: Option<Duration>,
    ) -> io::Result<Refreshed> {
        self.follow(snapshot);
        let proc = self.root.proc()?;
        let started = cpu_time();
        let mut at = self.root.now();
        let mut done = Refreshed::default();
        let mut folder: Option<(i32, Dir)> = None;
        let all = self.threads.len();
        let first = std::mem::take(&mut self.next);
        let told = self.told.take();
        let short = std::mem::take(&mut self.short) && budget.is_some();
        for i in 0..all {
            let place = (first + i) % all;
            // The clocks cost as much as a reading from an open file.
            if i % 8 == 0 {
                at = self.root.now();
                if budget.is_some_and(|b| cpu_time().saturating_sub(started) >= b) {
                    self.next = place;
                    self.short = true;
                    done.left = all - i;
                    break;
                }
            }
            let thread = &mut self.threads[place];
            if told.is_some() && thread.last.map(|last| last.at) == told {
                continue;
            }
            if short && thread.rests > 0 {
                thread.rests -= 1;
                continue;
            }
            let pid = thread.id.pid;
            if thread.file.is_none() && folder.as_ref().is_none_or(|f| f.0 != pid) {
                let task = proc.dir(&Short::of(format_args!("{pid}/task")));
                folder = task.ok().map(|dir| (pid, dir));
            }
            let task = folder.as_ref().filter(|f| f.0 == pid).map(|f| &f.1);
            let keeps = self.kept < self.keep;
            match thread.read(task, keeps) {
                Some(counters) => {
                    self.kept += usize::from(keeps && thread.file.is_some());
                    self.blind |= thread.by_ticks;
                    thread.take(at, counters, None);
                    done.read += 1;
                }
                None => {
                    // It has ended, or its process has.
                    self.kept -= usize::from(thread.file.is_some());
                    thread.forget();
                    self.lost.push(pid);
                }
            }
        }
        Ok(done)
    }

    /// Takes counters that a tracer told; threads that it did not are left to [`Sampler::refresh`].
    ///
    /// # Errors
    /// Those of the tracer.
    pub fn ask(&mut self, snapshot: &Snapshot, tracer: &mut dyn Tracer) -> io::Result<Refreshed> {
        self.follow(snapshot);
        let at = self.root.now();
        let mut done = Refreshed::default();
        tracer.counters(&mut |id, counters, wakeups| {
            if let Ok(place) = self.threads.binary_search_by_key(id, |t| t.id) {
                self.threads[place].take(at, counters, Some(wakeups));
                done.read += 1;
            }
        })?;
        self.told = Some(at);
        done.left = self.threads.len().saturating_sub(done.read);
        Ok(done)
    }

    /// Brings the list of threads up to date.
    fn follow(&mut self, snapshot: &Snapshot) {
        let (old, new) = (&self.vms, &snapshot.vms);
        if old.len() == new.len() && old.iter().zip(new).all(|(a, b)| Arc::ptr_eq(a, b)) {
            return;
        }
        self.vms.clone_from(new);
        let mut ids: Vec<TaskId> = new
            .iter()
            .flat_map(|vm| vm.threads.iter().map(|t| t.id))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        let next = self.threads.get(self.next).map(|t| t.id);
        let mut old = std::mem::take(&mut self.threads).into_iter().peekable();
        self.threads.reserve(ids.len());
        for id in ids {
            while old.next_if(|t| t.id < id).is_some() {}
            let known = old.next_if(|t| t.id == id);
            self.threads
                .push(known.unwrap_or_else(|| Followed::new(id)));
        }
        drop(old);
        self.kept = self.threads.iter().filter(|t| t.file.is_some()).count();
        self.next = next.map_or(0, |next| self.threads.partition_point(|t| t.id < next));
    }

    /// Processes of whom a thread could not be read since the last call: who they are should be looked at again.
    pub fn take_lost(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.lost)
    }

    fn find(&self, id: &TaskId) -> Option<&Followed> {
        let place = self.threads.binary_search_by_key(id, |t| t.id).ok()?;
        self.threads.get(place)
    }

    /// What a thread did between its last two readings.
    pub fn thread(&self, id: &TaskId) -> Option<Rates> {
        self.find(id)?.rates
    }

    /// The same for each of a VM's threads, in their order.
    pub fn rates_of(&self, vm: &Vm) -> Vec<Option<Rates>> {
        // Most are threads of one process, next to each other in the list.
        let first = self.threads.partition_point(|t| t.id.pid < vm.pid);
        let own = self.threads.get(first..).unwrap_or(&[]);
        let own = &own[..own.iter().take_while(|t| t.id.pid == vm.pid).count()];
        let of = |thread: &Thread| match thread.id.pid == vm.pid {
            true => {
                let place = own.binary_search_by_key(&thread.id, |t| t.id).ok()?;
                own.get(place)?.rates
            }
            false => self.thread(&thread.id),
        };
        vm.threads.iter().map(of).collect()
    }

    /// Counters of a thread at its last reading.
    pub fn counters(&self, id: &TaskId) -> Option<Counters> {
        Some(self.find(id)?.last?.counters)
    }

    /// When a thread was read last, and what was read: counters and, if a tracer told them, voluntary context switches.
    pub fn reading(&self, id: &TaskId) -> Option<(Instant, Counters, Option<u64>)> {
        let thread = self.find(id)?;
        let last = thread.last?;
        Some((last.at, last.counters, thread.wakeups))
    }

    /// What a VM did, its vCPUs or all its threads; `None` as long as nothing was read twice.
    pub fn vm(&self, vm: &Vm, only: Option<&dyn Fn(Role) -> bool>) -> Option<Rates> {
        let mut sum = None;
        for thread in &vm.threads {
            if only.is_none_or(|wanted| wanted(thread.role))
                && let Some(rates) = self.thread(&thread.id)
            {
                sum.get_or_insert(Rates::default()).add(&rates);
            }
        }
        sum
    }

    /// True if a thread was seen that has run, by its clock ticks, and whose counters are all zero: this kernel keeps
    /// none (`CONFIG_SCHED_INFO`). CPU time is then known to 10 ms, and waits are not.
    pub fn zeros_seen(&self) -> bool {
        self.blind
    }
}

impl Followed {
    fn new(id: TaskId) -> Followed {
        Followed {
            id,
            file: None,
            by_ticks: false,
            last: None,
            rates: None,
            wakeups: None,
            idle: 0,
            rests: 0,
        }
    }

    /// Reads its counters, by its file or by the folder of its process's threads. The file is kept, if it may be, from
    /// the second reading on.
    fn read(&mut self, task: Option<&Dir>, keep: bool) -> Option<Counters> {
        let mut buf = [0; SCHEDSTAT];
        if let Some(file) = &self.file {
            return procfile::schedstat(file.read(&mut buf).ok()?);
        }
        let task = task?;
        if !self.by_ticks {
            let name = Short::of(format_args!("{}/schedstat", self.id.tid));
            let file = task.record(&name);
            let counters = file
                .as_ref()
                .ok()
                .and_then(|f| procfile::schedstat(f.read(&mut buf).ok()?));
            if let Some(counters) = counters.filter(|c| *c != Counters::default()) {
                self.file = file.ok().filter(|_| keep && self.last.is_some());
                return Some(counters);
            }
        }
        // A kernel without scheduler statistics has no such file, or says 0 0 0 for threads that have run, too.
        let mut buf = [0; 4096];
        let text = task.read_record(&Short::of(format_args!("{}/stat", self.id.tid)), &mut buf);
        let ran = procfile::stat(text.ok()?)?.ran;
        self.by_ticks |= ran > 0;
        Some(Counters {
            run_ns: ran.saturating_mul(TICK_NS),
            ..Counters::default()
        })
    }

    fn take(&mut self, at: Instant, counters: Counters, wakeups: Option<u64>) {
        let now = Reading { at, counters };
        let changed = self.last.is_none_or(|last| last.counters != counters);
        self.rates = self.last.as_ref().and_then(|last| between(last, &now));
        self.last = Some(now);
        self.wakeups = wakeups;
        self.idle = if changed { 0 } else { (self.idle + 1).min(3) };
        self.rests = (1u8 << self.idle).saturating_sub(1).min(RESTS);
    }

    fn forget(&mut self) {
        *self = Followed::new(self.id);
    }
}

/// Rates between two readings; `None` if the counters ran backwards (another thread) or no time passed.
fn between(last: &Reading, now: &Reading) -> Option<Rates> {
    let seconds = (now.at - last.at).as_secs_f64();
    let (a, b) = (&last.counters, &now.counters);
    let run = b.run_ns.checked_sub(a.run_ns)?;
    let wait = b.wait_ns.checked_sub(a.wait_ns)?;
    let stays = b.stays.checked_sub(a.stays)?;
    (seconds > 0.0).then(|| Rates {
        cpus: run as f64 / 1e9 / seconds,
        waiting: wait as f64 / 1e9 / seconds,
        stays_per_s: stays as f64 / seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Scanner;
    use crate::fixture::Fixture;
    use crate::time::Played;

    fn counters(run_ns: u64, wait_ns: u64, stays: u64) -> Counters {
        Counters {
            run_ns,
            wait_ns,
            stays,
        }
    }

    #[test]
    fn rates_between_two_readings() {
        let at = Instant::now();
        let first = Reading {
            at,
            counters: counters(5, 5, 5),
        };
        let second = Reading {
            at: at + Duration::from_secs(2),
            counters: counters(1_000_000_005, 500_000_005, 1005),
        };
        let rates = between(&first, &second).unwrap();
        assert_eq!(
            (rates.cpus, rates.waiting, rates.stays_per_s),
            (0.5, 0.25, 500.0)
        );
        assert!((rates.run_delay().unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert!((rates.mean_wait_ns().unwrap() - 500_000.0).abs() < 1e-6);
        assert_eq!(between(&second, &first), None);
        assert_eq!(between(&first, &first), None);
        assert_eq!(Rates::default().run_delay(), None);
    }

    #[test]
    fn without_scheduler_statistics_clock_ticks_count() {
        let (folder, snapshot, mut sampler) = host(1);
        let vcpu = snapshot.vms[0]
            .threads
            .iter()
            .find(|t| t.role.vcpu().is_some())
            .unwrap();
        let task = folder
            .path()
            .join(format!("proc/{}/task/{}", vcpu.id.pid, vcpu.id.tid));
        let ticks = |ran: u64| {
            let text = format!(
                "1 (kvm-vcpu-0) R 1 1 1 0 -1 0 0 0 0 0 {ran} 7 0 0 20 0 1 0 {} 0 0",
                vcpu.id.start
            );
            std::fs::write(task.join("stat"), text).unwrap();
        };
        for file in ["0 0 0\n", ""] {
            match file {
                "" => std::fs::remove_file(task.join("schedstat")).unwrap(),
                text => std::fs::write(task.join("schedstat"), text).unwrap(),
            }
            ticks(100);
            sampler.refresh(&snapshot, None).unwrap();
            assert_eq!(
                sampler.counters(&vcpu.id),
                Some(counters(1_070_000_000, 0, 0))
            );
            ticks(150);
            sampler.root.sleep(Duration::from_secs(1));
            sampler.refresh(&snapshot, None).unwrap();
            assert_eq!(
                sampler.counters(&vcpu.id),
                Some(counters(1_570_000_000, 0, 0))
            );
            assert!(sampler.thread(&vcpu.id).is_some_and(|r| r.cpus > 0.0));
            assert!(sampler.zeros_seen());
        }
        // One that has not run yet says nothing of the kernel.
        let (_f, snapshot, mut sampler) = host(1);
        sampler.refresh(&snapshot, None).unwrap();
        assert!(!sampler.zeros_seen());
    }

    fn host(vms: usize) -> (tempfile::TempDir, Snapshot, Sampler) {
        let folder = tempfile::tempdir().unwrap();
        let mut text = String::new();
        for i in 0..vms {
            let pid = 100 + 10 * i;
            text.push_str(&format!(
                "process {pid} lkvm\nargs lkvm run --name v{i}\nfd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\n\
                 thread {} kvm-vcpu-0 run=4 sched=1000,0,1\n",
                pid + 1
            ));
        }
        Fixture::parse(&text)
            .unwrap()
            .unpack(folder.path())
            .unwrap();
        let root = Root::at(folder.path()).with_time(Arc::new(Played::new(|_| ())));
        let snapshot = Scanner::new(root.clone()).scan().unwrap();
        (folder, snapshot, Sampler::new(root))
    }

    #[test]
    fn a_vm_is_the_sum_of_its_threads() {
        let (folder, snapshot, mut sampler) = host(1);
        sampler.refresh(&snapshot, None).unwrap();
        let vm = &snapshot.vms[0];
        assert_eq!(sampler.vm(vm, None), None);
        for (tid, line) in [(100, "0 3000000 3"), (101, "1001000 2000000 2")] {
            let path = folder.path().join(format!("proc/100/task/{tid}/schedstat"));
            std::fs::write(path, line).unwrap();
        }
        sampler.root.sleep(Duration::from_millis(5));
        sampler.refresh(&snapshot, None).unwrap();
        let all = sampler.vm(vm, None).unwrap();
        let vcpus = sampler
            .vm(vm, Some(&|r| matches!(r, Role::Vcpu(_))))
            .unwrap();
        assert!((all.run_delay().unwrap() - 5.0 / 6.0).abs() < 0.01);
        assert!((vcpus.run_delay().unwrap() - 2.0 / 3.0).abs() < 0.01);
    }

    #[test]
    fn each_thread_has_its_own_rates_also_of_a_process_that_works_for_the_vm() {
        let (folder, snapshot, mut sampler) = host(3);
        // The first VM's last thread belongs to the process of the last VM, and a thread that was never read has none.
        let mut vm = (*snapshot.vms[0]).clone();
        vm.threads.push(snapshot.vms[2].threads[1].clone());
        let mut unread = vm.threads[0].clone();
        unread.id.tid += 7;
        vm.threads.insert(0, unread);
        for i in 0..2u32 {
            for pid in [100, 110, 120] {
                for tid in [pid, pid + 1] {
                    let path = folder
                        .path()
                        .join(format!("proc/{pid}/task/{tid}/schedstat"));
                    std::fs::write(path, format!("{} 0 1", i * tid * 1000)).unwrap();
                }
            }
            sampler.root.sleep(Duration::from_millis(5));
            sampler.refresh(&snapshot, None).unwrap();
        }
        let rates = sampler.rates_of(&vm);
        let one_by_one: Vec<_> = vm.threads.iter().map(|t| sampler.thread(&t.id)).collect();
        assert_eq!(rates, one_by_one);
        assert!(rates[0].is_none() && rates[1..].iter().all(Option::is_some));
        assert!(rates[3].unwrap().cpus > rates[1].unwrap().cpus);
    }

    #[test]
    fn a_budget_that_is_used_up_goes_on_where_it_stopped() {
        let (_folder, snapshot, mut sampler) = host(30);
        let none = sampler.refresh(&snapshot, Some(Duration::ZERO)).unwrap();
        assert_eq!((none.read, none.left), (0, 60));
        let mut rounds = 0;
        while sampler.threads.iter().any(|t| t.last.is_none()) {
            let done = sampler
                .refresh(&snapshot, Some(Duration::from_micros(200)))
                .unwrap();
            assert!(done.read + done.left <= 60);
            rounds += 1;
            assert!(rounds < 10_000);
        }
    }

    #[test]
    fn files_that_are_kept_say_the_same_and_end_with_their_thread() {
        let child = || {
            std::process::Command::new("sleep")
                .arg("60")
                .spawn()
                .unwrap()
        };
        let mut sleeps = [child(), child()];
        let thread = |pid: u32| {
            let pid = i32::try_from(pid).unwrap();
            let id = TaskId {
                pid,
                tid: pid,
                start: 0,
            };
            crate::model::Thread {
                id,
                name: String::new(),
                role: Role::Emulator,
                evidence: crate::model::Evidence::Rest,
            }
        };
        let (_folder, snapshot, _) = host(1);
        let mut vm = (*snapshot.vms[0]).clone();
        vm.threads = sleeps.iter().map(|c| thread(c.id())).collect();
        let (first, second) = (vm.threads[0].id, vm.threads[1].id);
        let snapshot = Snapshot {
            vms: vec![std::sync::Arc::new(vm)],
            ..Snapshot::default()
        };
        let mut sampler = Sampler::new(Root::live());
        sampler.keep(1);
        for _ in 0..4 {
            sampler.refresh(&snapshot, None).unwrap();
        }
        assert_eq!(sampler.kept, 1);
        assert!(
            sampler.counters(&first).unwrap().stays > 0
                && sampler.counters(&second).unwrap().stays > 0
        );
        for child in &mut sleeps {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        sampler.refresh(&snapshot, None).unwrap();
        assert_eq!(sampler.kept, 0);
        assert_eq!(
            (sampler.counters(&first), sampler.counters(&second)),
            (None, None)
        );
    }
}
