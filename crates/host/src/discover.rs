// SPDX-License-Identifier: GPL-2.0-only
//! Finds the VMs of a host, of any VMM, without configuration; scan after scan, cheaply.
//!
//! A scan reads all of a process once. Later scans only list numbers and inodes, and read again what is new, what is
//! another process or thread now, and what was not certain yet. The threads of a VM are listed when their number has
//! changed (the links of its folder `task`), when something is in doubt ([`Scanner::doubt`]), and otherwise every
//! [`LIST_AGAIN`]th scan: a thread that ends while another begins is noticed late, and never mistaken for it, since it
//! is known by its start too. A process that is no VM is looked at again while it is young, while it holds `/dev/kvm`,
//! when debugfs names it, and otherwise every [`LOOK_AGAIN`]th scan.
use crate::debugfs::Table;
use crate::dir::{Dir, Short};
use crate::files::{self, KvmFiles};
use crate::model::{Blind, Evidence, Proof, Role, Snapshot, TaskId, Thread, Vm};
use crate::name::{self, Identity};
use crate::procfile::{self, number};
use crate::qmp::{Answer, Asker, Question};
use crate::roles::{self, Facts, Whole};
use crate::root::Root;
use crate::threads::{self, Threads};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

mod look;
use look::{Found, Look, has_ended, readers};

/// Scans between two looks at a process that never looked like a VM.
pub const LOOK_AGAIN: u64 = 32;
/// Scans between two listings of the threads of a process that has as many of them as before.
pub const LIST_AGAIN: u64 = 32;
/// Scans during which a new process, or a VM with something uncertain, is looked at every time.
const YOUNG: u64 = 20;
/// Scans after a change of its threads at which a VM's monitor is asked, until it answers: one that is just starting
/// does not listen yet.
const TRIES: [u64; 4] = [0, 2, 6, 14];
/// Parents that are followed to find the VM a helper belongs to.
const GENERATIONS: usize = 8;

/// Finds VMs. Keeps what it knows between scans.
#[derive(Debug)]
pub struct Scanner {
    root: Root,
    known: BTreeMap<i32, Known>,
    /// Which process a folder of debugfs belongs to.
    makers: BTreeMap<String, i32>,
    /// As of the last scan.
    debugfs: Table,
    scans: u64,
    /// Processes whose threads are listed at the next scan.
    doubts: BTreeSet<i32>,
    /// Processes came, went or changed since the last snapshot was made.
    dirty: bool,
    /// The last snapshot.
    last: Snapshot,
    /// Who started before this is not young, in clock ticks since boot.
    old: u64,
    /// Numbers and inodes in /proc, to be used again.
    numbers: Vec<(i32, u64)>,
    /// Asks QEMU's monitors; there once there was somebody to ask.
    asker: Option<Asker>,
}

/// When a process is looked at.
#[derive(Clone, Copy, Debug)]
struct When {
    scans: u64,
    /// Its threads are to be listed, even if they are as many as before.
    list: bool,
}

/// A process.
#[derive(Debug)]
struct Known {
    inode: u64,
    start: u64,
    ppid: i32,
    /// Until this scan it is looked at every time.
    young: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A thread of the kernel; with the process it says it works for.
    Kernel {
        serves: Option<i32>,
    },
    /// No VM, as far as is known.
    Plain {
        device: bool,
        hidden: bool,
        scope: Option<String>,
    },
    Vm(Box<Machine>),
}

/// A process that runs a VM.
#[derive(Debug)]
struct Machine {
    identity: Identity,
    proof: Proof,
    cgroup: String,
    files: Option<KvmFiles>,
    threads: Threads,
    helpers: BTreeMap<i32, Helper>,
    /// Sockets of QEMU's monitor, to be asked while roles are uncertain.
    monitors: Vec<String>,
    /// The monitor has answered since threads came or went.
    told: bool,
    /// Scan of the last change.
    changed: u64,
    /// Roles rest on hints.
    uncertain: bool,
    vm: Arc<Vm>,
}

/// Another process, or a thread of the kernel, that works for a VM.
#[derive(Debug)]
struct Helper {
    inode: u64,
    evidence: Evidence,
    threads: Threads,
}

impl Scanner {
    pub fn new(root: Root) -> Scanner {
        Scanner {
            root,
            known: BTreeMap::new(),
            makers: BTreeMap::new(),
            debugfs: Table::default(),
            scans: 0,
            doubts: BTreeSet::new(),
            dirty: true,
            last: Snapshot::default(),
            old: 0,
            numbers: Vec::new(),
            asker: None,
        }
    }

    /// The threads of this process are listed at the next scan, even if they are as many as before.
    pub fn doubt(&mut self, pid: i32) {
        self.doubts.insert(pid);
    }

    /// Looks at the host once.
    ///
    /// # Errors
    /// /proc cannot be listed, or is not mounted at the first scan. Processes that end meanwhile, or that cannot be
    /// read, are no error.
    pub fn scan(&mut self) -> io::Result<Snapshot> {
        let proc = self.root.proc()?;
        let mut now = std::mem::take(&mut self.numbers);
        now.clear();
        let mut empty = true;
        proc.list(|name, inode| {
            empty = false;
            if let Some(pid) = number(name).and_then(|n| i32::try_from(n).ok()) {
                now.push((pid, inode));
            }
        })?;
        if empty && self.scans == 0 {
            let why = "it is empty: nothing is mounted there (mount -t proc proc /proc)";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        now.sort_unstable();
        let alive = |pid: &i32| now.binary_search_by_key(pid, |n| n.0).is_ok();
        let before = self.known.len();
        self.known.retain(|pid, _| alive(pid));
        self.dirty |= self.known.len() != before;
        let debugfs = Table::read(&self.root, &proc, &mut self.makers);
        self.scans += 1;
        if self.root.is_live() {
            self.old = old();
        }
        let answers: Vec<Answer> = self.asker.iter().flat_map(Asker::answers).collect();
        for answer in answers {
            self.hear(answer);
        }
        let doubts = std::mem::take(&mut self.doubts);
        let look = Look {
            proc: &proc,
            debugfs: &debugfs,
            scans: self.scans,
        };
        // Somebody waits for the first one; what later ones cost is the caller's own CPU time, by which they are paced.
        let mut found = match self.scans {
            1 => look.at_many(&now, readers(now.len())),
            _ => BTreeMap::new(),
        };
        for (pid, inode) in &now {
            let when = When {
                scans: self.scans,
                list: doubts.contains(pid)
                    || (self.scans + u64::from(pid.unsigned_abs())).is_multiple_of(LIST_AGAIN),
            };
            self.look(look, (*pid, *inode), when, found.remove(pid));
        }
        self.numbers = now;
        self.debugfs = debugfs;
        self.ask_monitors();
        self.find_helpers(&proc);
        if std::mem::take(&mut self.dirty) {
            self.last = self.snapshot();
        }
        Ok(self.last.clone())
    }

    /// Something says that this process may be a VM now: it is looked at by the next scans, as a new one is.
    pub fn suspect(&mut self, pid: i32) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.young = self.scans + YOUNG;
        }
    }

    /// A counter of KVM (`halt_exits`) of a process's VMs since their start; `None` without debugfs.
    pub fn kvm_counter(&self, pid: i32, counter: &str) -> Option<u64> {
        self.debugfs.counter(pid, counter)
    }

    /// Brings one process up to date; `found` is what was seen of it just now, if it was looked at.
    fn look(
        &mut self,
        look: Look<'_>,
        (pid, inode): (i32, u64),
        when: When,
        found: Option<Option<Found>>,
    ) {
        let Look {
            proc,
            debugfs,
            scans,
        } = look;
        if let Some(known) = self.known.get_mut(&pid)
            && known.inode == inode
        {
            let fresh = match &mut known.kind {
                Kind::Kernel { .. } => true,
                Kind::Plain { device, .. } => {
                    let due = (scans + u64::from(pid.unsigned_abs())).is_multiple_of(LOOK_AGAIN);
                    let young = scans < known.young;
                    !(due || young || *device || debugfs.names(pid))
                }
                // Gone, or no VM any more: seen below.
                Kind::Vm(machine) => match machine.follow(proc, debugfs, (pid, inode), when) {
                    Ok(rebuilt) => {
                        self.dirty |= rebuilt;
                        true
                    }
                    Err(_) => false,
                },
            };
            if fresh {
                return;
            }
        }
        let young = self.known.get(&pid).filter(|k| k.inode == inode);
        let young = young.map(|k| k.young);
        let found =
            found.unwrap_or_else(|| look.inspect(pid, |parent| self.works_for_a_vm(parent)));
        match found {
            Some(Found { start, ppid, kind }) => {
                let until = match start < self.old {
                    true => scans,
                    false => scans + YOUNG,
                };
                let known = Known {
                    inode,
                    start,
                    ppid,
                    young: young.unwrap_or(until),
                    kind,
                };
                let before = self.known.get(&pid);
                self.dirty |= before.is_none_or(|before| !before.looks_like(&known));
                self.known.insert(pid, known);
            }
            None => self.dirty |= self.known.remove(&pid).is_some(),
        }
    }

    /// Takes what a monitor said.
    fn hear(&mut self, answer: Answer) {
        if let Some(known) = self.known.get_mut(&answer.pid)
            && known.start == answer.start
            && let Kind::Vm(machine) = &mut known.kind
            && let Some(vcpus) = answer.vcpus
        {
            // Kept with the threads as they are now: one that ends takes it along, whoever gets its number.
            for seen in &mut machine.threads.seen {
                seen.facts.qmp = vcpus.get(&seen.facts.tid).copied();
            }
            machine.told = true;
            machine.changed = self.scans;
        }
    }

    /// Has the monitors of VMs asked of whose vCPUs nothing certain is known. Not those of a recorded tree.
    fn ask_monitors(&mut self) {
        if !self.root.is_live() {
            return;
        }
        for (pid, known) in &mut self.known {
            if let Kind::Vm(machine) = &mut known.kind
                && machine.uncertain
                && !machine.told
                && !machine.monitors.is_empty()
                && TRIES.contains(&(self.scans - machine.changed))
            {
                if self.asker.is_none() {
                    self.asker = Asker::start().ok();
                }
                if let Some(asker) = &self.asker {
                    asker.ask(Question {
                        pid: *pid,
                        start: known.start,
                        monitors: machine.monitors.clone(),
                    });
                }
            }
        }
    }

    /// True if a process of this number, or one of its parents, is a VM.
    fn works_for_a_vm(&self, pid: i32) -> bool {
        self.vm_above(pid).is_some()
    }

    /// The VM that a process is, or that one of its parents is.
    fn vm_above(&self, mut pid: i32) -> Option<i32> {
        for _ in 0..GENERATIONS {
            let known = self.known.get(&pid)?;
            if matches!(known.kind, Kind::Vm(_)) {
                return Some(pid);
            }
            pid = known.ppid;
        }
        None
    }

    /// Follows the processes and kernel threads that work for a VM.
    fn find_helpers(&mut self, proc: &Dir) {
        let mut found = self.dirty.then(|| self.helpers());
        let scans = self.scans;
        let mut dirty = false;
        for (pid, known) in &mut self.known {
            let Kind::Vm(machine) = &mut known.kind else {
                continue;
            };
            let mut changed = false;
            if let Some(found) = &mut found {
                changed = machine.meet_helpers(&found.remove(pid).unwrap_or_default());
            }
            if machine.follow_helpers(proc, scans) || changed {
                machine.changed = scans;
                dirty |= machine.rebuild(*pid);
            }
        }
        self.dirty |= dirty;
    }

    /// Who works for whom: by the process of the VM, number, inode and evidence of each.
    fn helpers(&self) -> BTreeMap<i32, Vec<(i32, u64, Evidence)>> {
        let mut scopes: BTreeMap<&str, i32> = BTreeMap::new();
        let mut shared = BTreeSet::new();
        for (pid, known) in &self.known {
            if let Kind::Vm(machine) = &known.kind
                && let Some(scope) = name::scope(&machine.cgroup)
                && scopes.insert(scope, *pid).is_some()
            {
                shared.insert(scope);
            }
        }
        let mut found: BTreeMap<i32, Vec<(i32, u64, Evidence)>> = BTreeMap::new();
        for (pid, known) in &self.known {
            let (vm, evidence) = match &known.kind {
                Kind::Kernel { serves: Some(vm) } => (Some(*vm), Evidence::KernelThread),
                Kind::Plain { scope, .. } => {
                    let scope = scope.as_deref().filter(|s| !shared.contains(s));
                    let by_scope = scope.and_then(|s| scopes.get(s).copied());
                    (self.vm_above(known.ppid).or(by_scope), Evidence::Parent)
                }
                _ => continue,
            };
            if let Some(vm) = vm {
                let helper = (*pid, known.inode, evidence);
                found.entry(vm).or_default().push(helper);
            }
        }
        found
    }

    fn snapshot(&self) -> Snapshot {
        let mut vms = Vec::new();
        let mut snapshot = Snapshot::default();
        for known in self.known.values() {
            match &known.kind {
                Kind::Vm(machine) => {
                    snapshot.blind.files += usize::from(machine.files.is_none());
                    // Start of the process, not of a thread: the identity of the VM.
                    debug_assert_eq!(machine.vm.start, known.start);
                    vms.push(machine.vm.clone());
                }
                Kind::Plain { hidden, .. } => {
                    snapshot.other_processes += 1;
                    snapshot.blind.files += usize::from(*hidden);
                }
                Kind::Kernel { .. } => {}
            }
        }
        snapshot.blind = Blind {
            hidden: !self.known.is_empty() && !self.known.contains_key(&1),
            // SAFETY: asks for a number.
            as_root: self.root.is_live() && unsafe { libc::geteuid() } == 0,
            ..snapshot.blind
        };
        make_names_unique(&mut vms);
        vms.sort_by(|a, b| a.name.cmp(&b.name));
        snapshot.vms = vms;
        snapshot
    }
}

impl Known {
    /// True if nothing that others see tells them apart: neither is a VM, and both work for the same.
    fn looks_like(&self, other: &Known) -> bool {
        let kinds = match (&self.kind, &other.kind) {
            (
                Kind::Plain { hidden, scope, .. },
                Kind::Plain {
                    hidden: h,
                    scope: s,
                    ..
                },
            ) => hidden == h && scope == s,
            _ => false,
        };
        kinds && self.inode == other.inode && self.ppid == other.ppid
    }
}

impl Machine {
    /// Brings a VM up to date; gives true if others see it differently now.
    ///
    /// # Errors
    /// The process has ended, or its VM has.
    fn follow(
        &mut self,
        proc: &Dir,
        debugfs: &Table,
        (pid, inode): (i32, u64),
        when: When,
    ) -> io::Result<bool> {
        let first = self.first_thread(pid);
        let task = Short::of(format_args!("{pid}/task"));
        let changed = self.threads.follow(proc, &task, when.list)?;
        if self.threads.seen.len() <= 1 && has_ended(proc, pid) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let turn = when.scans + u64::from(pid.unsigned_abs());
        // A manager puts its VM into a cgroup after it has started; anybody may put it into another one later.
        let young = when.scans - self.changed < YOUNG;
        if (changed || young || turn.is_multiple_of(LOOK_AGAIN)) && self.has_moved(proc, pid) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        if changed {
            // Its first thread is another: so is the process.
            if self.first_thread(pid) != first {
                return Err(io::Error::from(io::ErrorKind::NotFound));
            }
            self.changed = when.scans;
            // A vCPU may have come.
            self.told = false;
        } else if !self.uncertain
            || (when.scans - self.changed >= YOUNG && !turn.is_multiple_of(LOOK_AGAIN))
        {
            return Ok(false);
        }
        let process = proc.dir(&pid.to_string())?;
        // The number may be that of another process since it was listed, or of a thread of one.
        if process.inode()? != inode {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        // A vCPU that was added has a file too.
        if let Some(before) = &self.files
            && let Ok(files) = files::of(&process)
        {
            // It has given its VM up, or away: looked at from scratch.
            if before.vms > 0 && files.vms == 0 {
                return Err(io::Error::from(io::ErrorKind::NotFound));
            }
            self.files = Some(files);
        }
        Ok(self.settle(&process, debugfs, pid, false))
    }

    /// It is in another cgroup now: looked at from scratch.
    fn has_moved(&self, proc: &Dir, pid: i32) -> bool {
        let mut buf = [0; 4096];
        let path = Short::of(format_args!("{pid}/cgroup"));
        let now = proc.read_record(&path, &mut buf);
        now.is_ok_and(|text| procfile::main_cgroup(text) != self.cgroup)
    }

    /// Inode and start of the thread that has the number of the process.
    fn first_thread(&self, pid: i32) -> Option<(u64, u64)> {
        let first = self.threads.seen.iter().find(|t| t.facts.tid == pid)?;
        Some((first.inode, first.facts.start))
    }

    /// Gives every thread its role; gives true if others see the VM differently now.
    fn settle(&mut self, process: &Dir, debugfs: &Table, pid: i32, just_read: bool) -> bool {
        let vcpus = debugfs.vcpus(pid);
        for seen in &mut self.threads.seen {
            seen.facts.debugfs = vcpus.get(&seen.facts.tid).copied();
        }
        let none = BTreeMap::new();
        let fds = self.files.as_ref().map_or(&none, |f| &f.vcpus);
        let libvirt = self.cgroup.ends_with("/emulator");
        threads::look_closer(process, &mut self.threads.seen, fds, libvirt, just_read);
        self.rebuild(pid)
    }

    /// Forgets helpers that are no more, and meets new ones; true if anything changed.
    fn meet_helpers(&mut self, now: &[(i32, u64, Evidence)]) -> bool {
        let before = self.helpers.len();
        self.helpers
            .retain(|pid, h| now.iter().any(|n| (n.0, n.1) == (*pid, h.inode)));
        let mut changed = self.helpers.len() != before;
        for (pid, inode, evidence) in now {
            self.helpers.entry(*pid).or_insert_with(|| {
                changed = true;
                Helper {
                    inode: *inode,
                    evidence: *evidence,
                    threads: Threads::default(),
                }
            });
        }
        changed
    }

    /// Brings the threads of the helpers up to date; true if anything changed.
    fn follow_helpers(&mut self, proc: &Dir, scans: u64) -> bool {
        let mut changed = false;
        for (pid, helper) in &mut self.helpers {
            let task = Short::of(format_args!("{pid}/task"));
            let list = (scans + u64::from(pid.unsigned_abs())).is_multiple_of(LIST_AGAIN);
            if !helper.threads.follow(proc, &task, list).unwrap_or(false) {
                continue;
            }
            changed = true;
            // Asked afterwards: a number that means the same process still has meant it all the time.
            let is_it = proc
                .dir(&Short::of(format_args!("{pid}")))
                .and_then(|p| p.inode());
            if is_it.ok() != Some(helper.inode) {
                helper.threads = Threads::default();
            }
        }
        changed
    }

    /// Makes the description others see; true if it is another than before.
    fn rebuild(&mut self, pid: i32) -> bool {
        let files = self.files.as_ref();
        let held = files.map(|f| f.vcpus.values().copied().collect::<BTreeSet<u32>>());
        let whole = Whole {
            pid,
            // Of a VM that does not use KVM nothing is known by its files.
            vcpus: held.filter(|_| self.proof == Proof::Kvm),
        };
        let facts: Vec<Facts> = self.threads.seen.iter().map(|t| t.facts.clone()).collect();
        let roles = roles::assign(&whole, &facts);
        self.uncertain = whole.vcpus.as_ref().is_some_and(|indexes| {
            let sure = |r: &&(Role, Evidence)| matches!(r.0, Role::Vcpu(_)) && r.1 <= Evidence::Qmp;
            roles.iter().filter(sure).count() < indexes.len()
        }) || whole.vcpus.as_ref().is_none_or(BTreeSet::is_empty);
        let mut all: Vec<Thread> = facts
            .iter()
            .zip(roles)
            .map(|(f, (role, evidence))| thread(pid, f, role, evidence))
            .collect();
        for (pid, helper) in &self.helpers {
            for seen in &helper.threads.seen {
                let role = match helper.evidence {
                    Evidence::KernelThread if seen.facts.comm.starts_with(b"vhost-") => Role::Vhost,
                    Evidence::KernelThread => Role::Other,
                    _ => Role::Emulator,
                };
                all.push(thread(*pid, &seen.facts, role, helper.evidence));
            }
        }
        all.sort_by_key(|t| (t.role, t.id.tid));
        let known = all
            .iter()
            .filter(|t| matches!(t.role, Role::Vcpu(_)))
            .count();
        let vcpus = whole.vcpus.map_or(known, |held| held.len().max(known));
        let vm = Vm {
            vcpus: u32::try_from(vcpus).unwrap_or(u32::MAX),
            threads: all,
            cgroup: procfile::printable(self.cgroup.as_bytes()),
            name: self.identity.name.clone(),
            manager_id: self.vm.manager_id.clone(),
            ..*self.vm
        };
        let changed = *self.vm != vm;
        if changed {
            self.vm = Arc::new(vm);
        }
        changed
    }
}

fn empty_vm(pid: i32, start: u64, identity: &Identity, proof: Proof) -> Vm {
    Vm {
        name: identity.name.clone(),
        name_from: identity.name_from,
        vmm: identity.vmm,
        manager: identity.manager,
        manager_id: identity.manager_id.clone(),
        proof,
        pid,
        start,
        cgroup: String::new(),
        vcpus: 0,
        threads: Vec::new(),
    }
}

fn thread(pid: i32, facts: &Facts, role: Role, evidence: Evidence) -> Thread {
    Thread {
        id: TaskId {
            pid,
            tid: facts.tid,
            start: facts.start,
        },
        name: procfile::printable(&facts.comm),
        role,
        evidence,
    }
}

/// A minute ago, in clock ticks since boot.
fn old() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut t) };
    u64::try_from(t.tv_sec).unwrap_or(0).saturating_sub(60) * 100
}

/// Two VMs may have one name (of two managers, two namespaces): the process id tells them apart.
fn make_names_unique(vms: &mut [Arc<Vm>]) {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for vm in vms.iter() {
        *count.entry(vm.name.clone()).or_default() += 1;
    }
    for vm in vms {
        if count.get(&vm.name).is_some_and(|n| *n > 1) {
            let vm = Arc::make_mut(vm);
            vm.name = format!("{}@{}", vm.name, vm.pid);
        }
    }
}
