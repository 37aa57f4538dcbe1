// SPDX-License-Identifier: GPL-2.0-only
//! Counters of the threads of VMs, and what happened between two readings of them.
use crate::dir::{Dir, Record};
use crate::model::{Role, Snapshot, TaskId, Vm};
use crate::procfile::{self, Counters};
use crate::root::Root;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

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

/// Reads counters, again and again, within a budget of CPU time.
///
/// A refresh goes on where the last one stopped when its budget was used up: on a host with very many threads figures get
/// older, the cost does not get higher. Rates are over the time between the readings of each thread.
#[derive(Debug)]
pub struct Sampler {
    root: Root,
    /// Last reading, and what happened between it and the one before.
    threads: BTreeMap<TaskId, (Reading, Option<Rates>)>,
    /// The thread behind the last one read.
    next: Option<TaskId>,
    blind: bool,
    /// Files that are held open, at most so many: a reading then costs no opening and closing.
    files: BTreeMap<TaskId, Record>,
    keep: usize,
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
            threads: BTreeMap::new(),
            next: None,
            blind: false,
            files: BTreeMap::new(),
            keep: 0,
        }
    }

    /// Holds the files of up to so many threads open between readings. Each costs the kernel a
    /// file and, once read, a page.
    pub fn keep(&mut self, files: usize) {
        self.keep = files;
    }

    /// Reads the counters of the VMs' threads, at most for `budget` of time.
    ///
    /// # Errors
    /// /proc cannot be opened. Threads that have ended are no error.
    pub fn refresh(
        &mut self,
        snapshot: &Snapshot,
        budget: Option<Duration>,
    ) -> io::Result<Refreshed> {
        let proc = self.root.proc()?;
        let mut ids: Vec<TaskId> = snapshot
            .vms
            .iter()
            .flat_map(|vm| vm.threads.iter().map(|t| t.id))
            .collect();
        ids.sort_unstable();
        self.threads.retain(|id, _| ids.binary_search(id).is_ok());
        self.files.retain(|id, _| ids.binary_search(id).is_ok());
        let first = self
            .next
            .map_or(0, |next| ids.partition_point(|id| *id < next));
        if first < ids.len() {
            ids.rotate_left(first);
        }
        let started = Instant::now();
        let mut done = Refreshed::default();
        let mut folder: Option<(i32, Dir)> = None;
        self.next = None;
        for (i, id) in ids.iter().enumerate() {
            // The clock costs a hundredth of a reading.
            let at = Instant::now();
            if budget.is_some_and(|b| at - started >= b) {
                self.next = Some(*id);
                done.left = ids.len() - i;
                break;
            }
            let kept = self.files.contains_key(id);
            if !kept && folder.as_ref().is_none_or(|(pid, _)| *pid != id.pid) {
                folder = proc
                    .dir(&format!("{}/task", id.pid))
                    .ok()
                    .map(|d| (id.pid, d));
            }
            let task = folder.as_ref().filter(|f| f.0 == id.pid).map(|f| &f.1);
            if kept || task.is_some() {
                self.read(task, *id, at);
                done.read += 1;
            } else {
                // Its process has ended.
                self.threads.remove(id);
            }
        }
        Ok(done)
    }

    fn read(&mut self, task: Option<&Dir>, id: TaskId, at: Instant) {
        let mut buf = [0; 4096];
        // One that is read for the second time is worth keeping.
        if let Some(task) = task
            && self.files.len() < self.keep
            && self.threads.contains_key(&id)
            && let Ok(file) = task.record(&format!("{}/schedstat", id.tid))
        {
            self.files.insert(id, file);
        }
        let text = match (self.files.get(&id), task) {
            (Some(file), _) => file.read(&mut buf),
            (None, Some(task)) => task.read_record(&format!("{}/schedstat", id.tid), &mut buf),
            (None, None) => return,
        };
        let Some(counters) = text.ok().and_then(procfile::schedstat) else {
            self.threads.remove(&id);
            self.files.remove(&id);
            return;
        };
        // A kernel without scheduler statistics says 0 0 0 for threads that have run.
        self.blind |= counters == Counters::default() && id.tid == id.pid;
        let now = Reading { at, counters };
        let rates = self
            .threads
            .get(&id)
            .and_then(|(last, _)| between(last, &now));
        self.threads.insert(id, (now, rates));
    }

    /// What a thread did between its last two readings.
    pub fn thread(&self, id: &TaskId) -> Option<Rates> {
        self.threads.get(id)?.1
    }

    /// Counters of a thread at its last reading.
    pub fn counters(&self, id: &TaskId) -> Option<Counters> {
        Some(self.threads.get(id)?.0.counters)
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

    /// True if a thread was seen whose counters are all zero: this kernel may keep none (`CONFIG_SCHED_INFO`).
    pub fn zeros_seen(&self) -> bool {
        self.blind
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
        let root = Root::at(folder.path());
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
        std::thread::sleep(Duration::from_millis(5));
        sampler.refresh(&snapshot, None).unwrap();
        let all = sampler.vm(vm, None).unwrap();
        let vcpus = sampler
            .vm(vm, Some(&|r| matches!(r, Role::Vcpu(_))))
            .unwrap();
        assert!((all.run_delay().unwrap() - 5.0 / 6.0).abs() < 0.01);
        assert!((vcpus.run_delay().unwrap() - 2.0 / 3.0).abs() < 0.01);
    }

    #[test]
    fn a_budget_that_is_used_up_goes_on_where_it_stopped() {
        let (_folder, snapshot, mut sampler) = host(30);
        let none = sampler.refresh(&snapshot, Some(Duration::ZERO)).unwrap();
        assert_eq!((none.read, none.left), (0, 60));
        let mut rounds = 0;
        while sampler.threads.len() < 60 {
            let done = sampler
                .refresh(&snapshot, Some(Duration::from_micros(200)))
                .unwrap();
            assert_eq!(done.read + done.left, 60);
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
        assert_eq!(sampler.files.len(), 1);
        assert!(
            sampler.counters(&first).unwrap().stays > 0
                && sampler.counters(&second).unwrap().stays > 0
        );
        for child in &mut sleeps {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        sampler.refresh(&snapshot, None).unwrap();
        assert!(sampler.files.is_empty());
        assert_eq!(
            (sampler.counters(&first), sampler.counters(&second)),
            (None, None)
        );
    }
}
