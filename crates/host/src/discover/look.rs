// SPDX-License-Identifier: GPL-2.0-only
//! A look at a process from scratch: is it a VM, and if so, what is to be seen of it. Many processes at once are looked
//! at by several threads.
use super::{Kind, Machine, empty_vm};
use crate::debugfs::Table;
use crate::dir::Dir;
use crate::files;
use crate::model::{Proof, Vmm};
use crate::name;
use crate::procfile::{self, PF_KTHREAD, number};
use crate::qmp;
use crate::roles;
use crate::threads::{Seen, Threads};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// In a scanner's first scan, as many processes are worth a thread more that looks,
const WORTH_A_THREAD: usize = 50;
/// of which there are at most so many: they take CPU time from the VMs.
const THREADS: usize = 4;

/// Looks at processes, during one scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look<'a> {
    pub proc: &'a Dir,
    pub debugfs: &'a Table,
    pub scans: u64,
}

/// What a look at a process from scratch gives.
#[derive(Debug)]
pub(super) struct Found {
    pub start: u64,
    pub ppid: i32,
    pub kind: Kind,
}

/// How many threads look at so many processes that nobody has looked at yet.
pub(super) fn readers(new: usize) -> usize {
    match new / WORTH_A_THREAD {
        0 | 1 => 1,
        worth => {
            let cpus = thread::available_parallelism().map_or(1, |n| n.get());
            worth.min(cpus).min(THREADS)
        }
    }
}

impl Look<'_> {
    /// Looks at new processes (numbers and inodes), with so many threads: nearly all that a host's first scan takes is
    /// in the kernel. Left out is of whom it cannot be said without knowing its parents.
    pub(super) fn at_many(
        &self,
        new: &[(i32, u64)],
        threads: usize,
    ) -> BTreeMap<i32, Option<Found>> {
        if threads < 2 {
            return BTreeMap::new();
        }
        // One after the other, whoever is free: a thread that gets no CPU holds up the others by one process.
        let next = AtomicUsize::new(0);
        let some = || {
            let mut found = Vec::new();
            while let Some((pid, _)) = new.get(next.fetch_add(1, Ordering::Relaxed)) {
                let asked = Cell::new(false);
                let one = self.inspect(*pid, |_| asked.replace(true));
                if !asked.get() {
                    found.push((*pid, one));
                }
            }
            found
        };
        thread::scope(|scope| {
            // Fewer than wanted, if there are no more to be had.
            let others: Vec<_> = (1..threads)
                .filter_map(|_| thread::Builder::new().spawn_scoped(scope, some).ok())
                .collect();
            let mut found: BTreeMap<_, _> = some().into_iter().collect();
            for other in others {
                found.extend(other.join().into_iter().flatten());
            }
            found
        })
    }

    /// Looks at a process from scratch; `None` if it has ended. Asks at most once whether a parent works for a VM.
    pub(super) fn inspect(
        &self,
        pid: i32,
        works_for_a_vm: impl FnOnce(i32) -> bool,
    ) -> Option<Found> {
        let (proc, debugfs) = (self.proc, self.debugfs);
        let process = proc.dir(&pid.to_string()).ok()?;
        let mut buf = [0; 4096];
        let stat = procfile::stat(process.read_record("stat", &mut buf).ok()?)?;
        let (start, ppid) = (stat.start, stat.ppid);
        let found = |kind| Some(Found { start, ppid, kind });
        if stat.flags & PF_KTHREAD != 0 {
            let serves = [&b"vhost-"[..], b"kvm-pit/"]
                .iter()
                .find_map(|prefix| stat.comm.strip_prefix(*prefix))
                .and_then(number)
                .and_then(|pid| i32::try_from(pid).ok());
            return found(Kind::Kernel { serves });
        }
        let comm = procfile::printable(stat.comm);
        let files = files::of(&process).ok();
        // Asked after the files: whoever ends meanwhile has none any more, and hides nothing.
        if matches!(stat.state, b'Z' | b'X') || files.is_none() && has_ended(proc, pid) {
            return None;
        }
        let mut cgroup = [0; 4096];
        let cgroup = process.read_record("cgroup", &mut cgroup).unwrap_or(b"");
        let cgroup = procfile::main_cgroup(cgroup).to_string();
        let holds = files.as_ref().map(|f| (f.vms, f.vcpus.len()));
        let proof = match holds {
            // A device's process may be given the VM's file by its VMM.
            Some((1.., 0)) if works_for_a_vm(ppid) => None,
            Some((1.., _)) => Some(Proof::Kvm),
            _ if debugfs.names(pid) && self.debugfs_agrees(&process, pid) => Some(Proof::Kvm),
            None if stat.guest > 0 => Some(Proof::GuestTime),
            _ => None,
        };
        let hidden = files.is_none();
        let plain = |device| Kind::Plain {
            device,
            hidden,
            scope: name::scope(&cgroup).map(String::from),
        };
        if proof.is_none()
            && !hidden
            && name::vmm(&[], &comm) == Vmm::Unknown
            && !comm.contains("/TCG")
        {
            return found(plain(files.is_some_and(|f| f.device)));
        }
        if is_thread(&process, pid) {
            return None;
        }
        let mut line = Vec::new();
        // Without a command line the process's name has to do.
        let _ = process.read("cmdline", &mut line);
        let args = procfile::arguments(&line);
        let mut threads = Threads::default();
        threads.follow(&process, "task", true).ok()?;
        let proof = proof.or_else(|| looks_like_a_vm(&args, &comm, &threads.seen, hidden));
        let Some(proof) = proof else {
            return found(plain(files.is_some_and(|f| f.device)));
        };
        let identity = name::identify(&args, &comm, pid, &cgroup);
        let mut machine = Machine {
            proof,
            cgroup,
            files,
            threads,
            helpers: BTreeMap::new(),
            monitors: match identity.vmm {
                Vmm::Qemu => qmp::monitors(&args),
                _ => Vec::new(),
            },
            told: false,
            changed: self.scans,
            uncertain: true,
            vm: Arc::new(empty_vm(pid, start, &identity, proof)),
            identity,
        };
        machine.settle(&process, debugfs, pid, true);
        found(Kind::Vm(Box::new(machine)))
    }

    /// debugfs counts in the first PID namespace; it is believed if its threads are this process's.
    fn debugfs_agrees(&self, process: &Dir, pid: i32) -> bool {
        let vcpus = self.debugfs.vcpus(pid);
        let Ok(task) = process.dir("task") else {
            return false;
        };
        !vcpus.is_empty() && vcpus.keys().all(|tid| task.dir(&tid.to_string()).is_ok())
    }
}

/// True if a process is gone, or only waits for its parent to take note.
pub(super) fn has_ended(proc: &Dir, pid: i32) -> bool {
    let mut buf = [0; 4096];
    let text = proc.read_record(&format!("{pid}/stat"), &mut buf);
    let stat = text.ok().and_then(procfile::stat);
    stat.is_none_or(|s| matches!(s.state, b'Z' | b'X'))
}

/// True if the number is that of another process's thread: the process that was listed has ended meanwhile, its number
/// was given to a thread, and /proc shows that too when asked for it.
fn is_thread(process: &Dir, pid: i32) -> bool {
    let mut buf = [0; 4096];
    let status = process.read_record("status", &mut buf).unwrap_or(b"");
    let leader = procfile::status_value(status, "Tgid").and_then(number);
    leader.is_some_and(|leader| i32::try_from(leader) != Ok(pid))
}

/// What can be said of a process whose files say nothing: they are hidden, or it does not use KVM.
fn looks_like_a_vm(args: &[String], comm: &str, threads: &[Seen], hidden: bool) -> Option<Proof> {
    let vmm = name::vmm(args, comm);
    let mut named = threads
        .iter()
        .filter(|t| roles::vcpu_name(&t.facts.comm).is_some());
    let looks = match hidden {
        true => vmm != Vmm::Unknown && named.next().is_some(),
        // Emulated CPUs; a KVM vCPU would have a file.
        false => vmm == Vmm::Qemu && named.any(|t| t.facts.comm.ends_with(b"/TCG")),
    };
    looks.then_some(Proof::Looks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Scanner;
    use crate::fixture::{Call, Fixture, TaskText};
    use crate::root::Root;

    const VMS: i32 = 40;

    fn task(tid: i32, comm: &str, call: Call) -> TaskText {
        TaskText {
            tid,
            comm: comm.into(),
            ppid: 1,
            start: u64::from(tid.unsigned_abs()),
            call,
            ..TaskText::default()
        }
    }

    /// VMs of two vCPUs, a shell for each, and a device's process that one of them has given its file.
    fn host() -> tempfile::TempDir {
        let mut fixture = Fixture::default();
        for i in 0..VMS {
            let pid = 100 + 10 * i;
            fixture.process(&task(pid, "qemu-system-x86", Call::Another));
            fixture.process(&task(5000 + i, "bash", Call::Another));
            fixture.files.insert(
                format!("proc/{pid}/cmdline"),
                format!("/usr/bin/qemu-system-x86_64\0-name\0guest=vm{i},debug-threads=on\0")
                    .into(),
            );
            let mut link = |fd: i32, to: &str| {
                let path = format!("proc/{pid}/fd/{fd}");
                fixture.links.insert(path, to.into())
            };
            link(10, "anon_inode:kvm-vm");
            link(20, "anon_inode:kvm-vcpu:0");
            link(21, "anon_inode:kvm-vcpu:1");
            for vcpu in 0..2 {
                let thread = task(
                    pid + 1 + vcpu,
                    &format!("CPU {vcpu}/KVM"),
                    Call::Run(20 + vcpu),
                );
                fixture.thread(pid, &thread);
            }
        }
        let device = TaskText {
            ppid: 100,
            ..task(9000, "device", Call::Another)
        };
        fixture.process(&device);
        let path = "proc/9000/fd/5".to_string();
        fixture.links.insert(path, "anon_inode:kvm-vm".into());
        let folder = tempfile::tempdir().unwrap();
        fixture.unpack(folder.path()).unwrap();
        folder
    }

    #[test]
    fn several_threads_see_what_one_sees() {
        let folder = host();
        let root = Root::at(folder.path());
        let (proc, debugfs) = (root.proc().unwrap(), Table::default());
        let look = Look {
            proc: &proc,
            debugfs: &debugfs,
            scans: 1,
        };
        let all = (0..VMS).flat_map(|i| [100 + 10 * i, 5000 + i]);
        let all: Vec<(i32, u64)> = all.chain([9000, 9999]).map(|pid| (pid, 0)).collect();
        let alone = |pid: i32| format!("{:?}", look.inspect(pid, |_| false));
        assert!(look.at_many(&all, 1).is_empty());
        for threads in 2..=5 {
            let found = look.at_many(&all, threads);
            // Whose parents decide is left to who knows them.
            assert!(!found.contains_key(&9000), "{threads} threads");
            assert_eq!(found.len(), all.len() - 1, "{threads} threads");
            for (pid, found) in found {
                assert_eq!(format!("{found:?}"), alone(pid), "{threads} threads, {pid}");
            }
        }
        let mut scanner = Scanner::new(root);
        let snapshot = scanner.scan().unwrap();
        assert_eq!(snapshot.vms.len(), 40);
        assert!(snapshot.vms.iter().all(|vm| vm.known_vcpus() == 2));
        let mut helpers = snapshot.vms.iter().flat_map(|vm| &vm.threads);
        assert!(helpers.any(|t| t.id.tid == 9000));
    }

    #[test]
    fn a_thread_more_is_for_many_processes() {
        assert_eq!(readers(0), 1);
        assert_eq!(readers(2 * WORTH_A_THREAD - 1), 1);
        assert!((1..=THREADS).contains(&readers(100_000)));
    }
}
