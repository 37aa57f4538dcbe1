// SPDX-License-Identifier: GPL-2.0-only
//! Watches by BPF how long the threads of VMs wait for a CPU, for whom, and how long they run before they sleep: the
//! [`berth_host::trace::Tracer`] of a kernel with BTF, for root. `bpf/tracer.bpf.c` keeps the sums, this reads them.
use berth_host::class::{Bursts, OCTAVES};
use berth_host::classes::VmId;
use berth_host::model::{Role, Snapshot, TaskId};
use berth_host::trace::{BUCKETS, Cause, Tracer, Waits};
use berth_scx::{ScxError, Watcher};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tracer.bpf.o"));
// As in the object.
const MAX_THREADS: u32 = 32_768;
const MAX_VMS: u32 = 4096;
const HOST: u32 = 0xffff_fffe;
const IDLE: u32 = 0xffff_fffd;
/// `struct traced`: since, burst, state, unused, bursts.
const THREAD_BYTES: usize = 8 + 8 + 8 + 8 * OCTAVES;
const VM_BYTES: usize = 8 * BUCKETS + 8;

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
        Ok(BpfTracer {
            watcher: Watcher::load(OBJECT)?,
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
                    self.watcher
                        .set("vms", &number.to_ne_bytes(), &[0; VM_BYTES])?;
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
                self.watcher
                    .set("threads", &slot.to_ne_bytes(), &[0; THREAD_BYTES])?;
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
        let threads = self.watcher.first("threads", self.slots.next as usize)?;
        for (id, (slot, _)) in &self.threads {
            let Some(bytes) = threads.get(*slot as usize) else {
                continue;
            };
            let mut bursts = Bursts::default();
            for (i, ns) in bursts.ns.iter_mut().enumerate() {
                *ns = word(bytes, 24 + 8 * i);
            }
            self.bursts.insert(*id, bursts);
        }
        let vms = self.watcher.first("vms", self.numbers.next as usize)?;
        let names: BTreeMap<u32, VmId> = self.vms.iter().map(|(id, n)| (*n, *id)).collect();
        let mut out: BTreeMap<VmId, Waits> = BTreeMap::new();
        for (number, id) in &names {
            let Some(bytes) = vms.get(*number as usize) else {
                continue;
            };
            let mut waits = Waits::default();
            for (i, n) in waits.wakeups.iter_mut().enumerate() {
                *n = word(bytes, 8 * i);
            }
            waits.worst_ns = word(bytes, 8 * BUCKETS);
            if waits.worst_ns > 0 {
                // The next reading tells the worst since this one. A wait in between may be lost, sums are not.
                let mut rest = bytes.clone();
                rest.truncate(VM_BYTES);
                rest[8 * BUCKETS..].fill(0);
                self.watcher.set("vms", &number.to_ne_bytes(), &rest)?;
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
