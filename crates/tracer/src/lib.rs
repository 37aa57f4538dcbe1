// SPDX-License-Identifier: GPL-2.0-only
//! Watches by BPF how long the threads of VMs wait for a CPU, for whom, and how long they run before they sleep: the
//! [`berth_host::trace::Tracer`] of a kernel with BTF, for root. `bpf/tracer.bpf.c` keeps the sums, this reads them.
//! [`CallCounter`] counts calls of the kernel's functions on a VM's path.
mod calls;

use berth_host::class::Bursts;
use berth_host::classes::VmId;
use berth_host::model::{Role, Snapshot, TaskId};
use berth_host::procfile::Counters;
use berth_host::trace::{BUCKETS, Cause, Tracer, Waits};
use berth_scx::{ScxError, Shared, Watcher};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::Ordering;

pub use calls::{CallCounter, CallsError};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tracer.bpf.o"));
// As in the object.
const MAX_THREADS: u32 = 32_768;
const MAX_VMS: u32 = 4096;
const HOST: u32 = 0xffff_fffe;
const IDLE: u32 = 0xffff_fffd;
/// Word of `struct traced` at which `bursts` begins: since, burst, state with a gap.
const THREAD_BURSTS: usize = 3;
/// Word of `struct guest` that is `worst`, behind the buckets.
const VM_WORST: usize = BUCKETS;
/// `struct told`.
const TOLD_BYTES: usize = 48;
/// Nanoseconds of a clock tick as /proc counts them (`USER_HZ`).
const TICK_NS: u64 = 10_000_000;

/// Numbers that are given out and come back.
#[derive(Debug)]
struct Numbers {
    next: u32,
    most: u32,
    free: Vec<u32>,
}

impl Numbers {
    fn new(most: u32) -> Numbers {
        Numbers {
            next: 0,
            most,
            free: Vec::new(),
        }
    }

    fn take(&mut self) -> Option<u32> {
        if let Some(free) = self.free.pop() {
            return Some(free);
        }
        let number = self.next;
        (number < self.most).then(|| {
            self.next += 1;
            number
        })
    }
}

/// The tracer at work; dropping it ends it.
pub struct BpfTracer {
    watcher: Watcher,
    /// `struct traced` of each thread, by slot.
    traced: Shared,
    /// `struct guest` of each VM, by number.
    guests: Shared,
    /// What the iterator wrote, to be used again.
    told: Vec<u8>,
    slots: Numbers,
    numbers: Numbers,
    /// Place in `threads`, and the VM, of each thread.
    threads: BTreeMap<TaskId, (u32, VmId)>,
    vms: BTreeMap<VmId, u32>,
    bursts: BTreeMap<TaskId, Bursts>,
}

fn io_error(e: ScxError) -> io::Error {
    io::Error::other(e.to_string())
}

impl BpfTracer {
    /// Loads and attaches it; nobody is watched yet.
    ///
    /// # Errors
    /// No right to load BPF programs (root, or CAP_BPF and CAP_PERFMON), a kernel without BTF.
    pub fn start() -> Result<BpfTracer, ScxError> {
        let watcher = Watcher::load(OBJECT)?;
        Ok(BpfTracer {
            traced: watcher.share("threads")?,
            guests: watcher.share("vms")?,
            told: Vec::new(),
            watcher,
            slots: Numbers::new(MAX_THREADS),
            numbers: Numbers::new(MAX_VMS),
            threads: BTreeMap::new(),
            vms: BTreeMap::new(),
            bursts: BTreeMap::new(),
        })
    }

    fn forget_who_left(&mut self, snapshot: &Snapshot) -> Result<(), ScxError> {
        let vms: BTreeSet<VmId> = snapshot.vms.iter().map(|vm| (vm.pid, vm.start)).collect();
        let there: BTreeSet<TaskId> = snapshot
            .vms
            .iter()
            .flat_map(|vm| vm.threads.iter().map(|t| t.id))
            .collect();
        let gone: Vec<TaskId> = self
            .threads
            .keys()
            .filter(|id| !there.contains(id))
            .copied()
            .collect();
        let reused: BTreeSet<i32> = there.iter().map(|id| id.tid).collect();
        for id in gone {
            if let Some((slot, _)) = self.threads.remove(&id) {
                // The thread's end removed it already, unless it only left its VM.
                if !reused.contains(&id.tid) {
                    self.watcher.remove("members", &id.tid.to_ne_bytes())?;
                }
                self.slots.free.push(slot);
            }
            self.bursts.remove(&id);
        }
        let gone: Vec<VmId> = self
            .vms
            .keys()
            .filter(|id| !vms.contains(id))
            .copied()
            .collect();
        for id in gone {
            if let Some(number) = self.vms.remove(&id) {
                // What others waited for it is no longer told apart from what they wait for the next of its number.
                for (key, _) in self.watcher.all("blame")? {
                    let (waiter, cause) = pair(&key);
                    if waiter == number || cause == number {
                        self.watcher.remove("blame", &key)?;
                    }
                }
                self.numbers.free.push(number);
            }
        }
        Ok(())
    }

    fn meet(&mut self, snapshot: &Snapshot) -> Result<(), ScxError> {
        for vm in &snapshot.vms {
            let id = (vm.pid, vm.start);
            let number = match self.vms.get(&id) {
                Some(number) => *number,
                None => {
                    let Some(number) = self.numbers.take() else {
                        continue;
                    };
                    self.guests.clear(number as usize);
                    self.vms.insert(id, number);
                    number
                }
            };
            for thread in &vm.threads {
                if self.threads.contains_key(&thread.id) {
                    continue;
                }
                let Some(slot) = self.slots.take() else {
                    continue;
                };
                self.traced.clear(slot as usize);
                let vcpu = u32::from(matches!(thread.role, Role::Vcpu(_)));
                let member = [slot, number, vcpu].map(u32::to_ne_bytes).concat();
                self.watcher
                    .set("members", &thread.id.tid.to_ne_bytes(), &member)?;
                self.threads.insert(thread.id, (slot, id));
            }
        }
        Ok(())
    }

    fn sums(&mut self) -> Result<BTreeMap<VmId, Waits>, ScxError> {
        for (id, (slot, _)) in &self.threads {
            let words = self.traced.element(*slot as usize);
            let mut bursts = Bursts::default();
            let from = words.iter().skip(THREAD_BURSTS);
            for (ns, word) in bursts.ns.iter_mut().zip(from) {
                *ns = word.load(Ordering::Relaxed);
            }
            self.bursts.insert(*id, bursts);
        }
        let names: BTreeMap<u32, VmId> = self.vms.iter().map(|(id, n)| (*n, *id)).collect();
        let mut out: BTreeMap<VmId, Waits> = BTreeMap::new();
        for (number, id) in &names {
            let words = self.guests.element(*number as usize);
            let mut waits = Waits::default();
            for (n, word) in waits.wakeups.iter_mut().zip(words) {
                *n = word.load(Ordering::Relaxed);
            }
            // The next reading tells the worst since this one. A wait in between may be lost, sums are not.
            if let Some(worst) = words.get(VM_WORST) {
                waits.worst_ns = worst.swap(0, Ordering::Relaxed);
            }
            out.insert(*id, waits);
        }
        for (key, value) in self.watcher.all("blame")? {
            let (waiter, cause) = pair(&key);
            let Some(waits) = names.get(&waiter).and_then(|id| out.get_mut(id)) else {
                continue;
            };
            let cause = match cause {
                HOST => Cause::Host,
                IDLE => Cause::Idle,
                vm => names.get(&vm).map_or(Cause::Unknown, |id| Cause::Vm(*id)),
            };
            *waits.behind.entry(cause).or_default() += word(&value, 0);
        }
        Ok(out)
    }
}

impl Tracer for BpfTracer {
    fn follow(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.forget_who_left(snapshot)
            .and_then(|()| self.meet(snapshot))
            .map_err(io_error)
    }

    fn read(&mut self) -> io::Result<BTreeMap<VmId, Waits>> {
        self.sums().map_err(io_error)
    }

    fn counters(&mut self, each: &mut dyn FnMut(&TaskId, Counters, u64)) -> io::Result<()> {
        self.watcher
            .iterate("tell", &mut self.told)
            .map_err(io_error)?;
        for record in self.told.chunks_exact(TOLD_BYTES) {
            let (pid, tid) = pair(record);
            let numbers = (i32::try_from(pid), i32::try_from(tid));
            if let (Ok(pid), Ok(tid)) = numbers {
                let start = word(record, 8) / TICK_NS;
                let counters = Counters {
                    run_ns: word(record, 16),
                    wait_ns: word(record, 24),
                    stays: word(record, 32),
                };
                each(&TaskId { pid, tid, start }, counters, word(record, 40));
            }
        }
        Ok(())
    }

    fn bursts(&self, thread: &TaskId) -> Option<Bursts> {
        self.bursts.get(thread).copied()
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    eight.map_or(0, u64::from_ne_bytes)
}

fn pair(key: &[u8]) -> (u32, u32) {
    let both = word(key, 0).to_ne_bytes();
    let half = |at: usize| both[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
    (half(0), half(4))
}
