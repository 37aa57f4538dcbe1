// SPDX-License-Identifier: GPL-2.0-only
//! What makes the agent look before it is time to: a process that makes vCPUs, and the end of a VM that it knows. The
//! first by events of the kernel, where they are ours to see; the second by a file descriptor of each VM's process.
//! What both miss, the next look finds.
use crate::register::VmKey;
use berth_host::dir::Dir;
use berth_host::events::ProcessEvents;
use berth_host::files;
use berth_host::model::Snapshot;
use berth_host::pidfd::Held;
use berth_host::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Processes whose files are looked at for one reading of the events; if there are more, all are.
const CLOSER: usize = 32;
/// VMs whose processes are held, at most. The end of others is found by the next look.
const HELD: usize = 4096;

/// Watches for VMs that come and go.
#[derive(Debug)]
pub struct Arrivals {
    all: OwnedFd,
    events: Result<ProcessEvents, String>,
    held: BTreeMap<VmKey, Held>,
}

/// What has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// There is something to see.
    pub look: bool,
    /// Processes that may have become VMs.
    pub suspects: BTreeSet<i32>,
}

impl Arrivals {
    /// Begins to watch. Without events only the end of VMs is noticed ([`Arrivals::blind`]).
    ///
    /// # Errors
    /// The kernel gives no file to wait for.
    pub fn new() -> io::Result<Arrivals> {
        raise_limit();
        // SAFETY: a number; the result is checked.
        let all = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if all < 0 {
            return Err(io::Error::last_os_error());
        }
        let arrivals = Arrivals {
            // SAFETY: just opened, owned by nobody else.
            all: unsafe { OwnedFd::from_raw_fd(all) },
            events: ProcessEvents::open().map_err(|e| e.to_string()),
            held: BTreeMap::new(),
        };
        if let Ok(events) = &arrivals.events {
            arrivals.wait_for(events.as_fd())?;
        }
        Ok(arrivals)
    }

    /// Why new VMs are not noticed before the next look; none if they are.
    pub fn blind(&self) -> Option<&str> {
        self.events.as_ref().err().map(String::as_str)
    }

    /// Holds the processes of these VMs, and lets go of others.
    pub fn follow(&mut self, vms: &Snapshot) {
        let key = |vm: &berth_host::model::Vm| VmKey {
            pid: vm.pid,
            start: vm.start,
        };
        let now: BTreeSet<VmKey> = vms.vms.iter().map(|vm| key(vm)).collect();
        // A file that is closed is no longer waited for.
        self.held.retain(|key, _| now.contains(key));
        for key in now {
            if self.held.len() >= HELD {
                break;
            }
            if self.held.contains_key(&key) {
                continue;
            }
            // One that has ended already, or for which there is no file left, is found gone by the next look.
            let Ok(held) = Held::open(key.pid, key.start) else {
                continue;
            };
            if self.wait_for(held.as_fd()).is_ok() {
                self.held.insert(key, held);
            }
        }
    }

    /// Whether the process of a VM is held and has not ended.
    pub fn holds(&self, vm: VmKey) -> bool {
        self.held.get(&vm).is_some_and(|held| !held.has_ended())
    }

    /// What has happened since the last call.
    pub fn news(&mut self, root: &Root, vms: &Snapshot) -> News {
        let mut news = News::default();
        if let Ok(events) = &self.events {
            match events.read() {
                Ok(told) if told.lost || told.processes.len() > CLOSER => news.look = true,
                Ok(told) => {
                    let proc = root.proc().ok();
                    for pid in told.processes {
                        let known = vms.vms.iter().find(|vm| vm.pid == pid);
                        if let Some(vm) = known {
                            // Of one whose vCPUs are there the next look is soon enough.
                            news.look |= vm.known_vcpus() < vm.vcpus || vm.vcpus == 0;
                        } else if proc.as_ref().is_some_and(|proc| has_kvm(proc, pid)) {
                            news.look = true;
                            news.suspects.insert(pid);
                        }
                    }
                }
                Err(e) => {
                    self.events = Err(e.to_string());
                    news.look = true;
                }
            }
        }
        let before = self.held.len();
        self.held.retain(|_, held| !held.has_ended());
        news.look |= self.held.len() < before;
        news
    }

    fn wait_for(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let mut wanted = libc::epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: 0,
        };
        // SAFETY: two open files and a structure that outlives the call.
        let done = unsafe {
            libc::epoll_ctl(
                self.all.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                file.as_raw_fd(),
                &mut wanted,
            )
        };
        match done {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for Arrivals {
    /// Readable when there may be news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }
}

/// Whether a process has a VM.
fn has_kvm(proc: &Dir, pid: i32) -> bool {
    let process = proc.dir(&pid.to_string());
    let files = process.and_then(|p| files::of(&p));
    files.is_ok_and(|f| f.vms > 0 || !f.vcpus.is_empty())
}

/// A file for each VM: as many as this process may have.
fn raise_limit() {
    // SAFETY: a structure that outlives the calls. With the limit as it was fewer VMs are held.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max.min(1 << 20).max(limit.rlim_cur);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::fixture::Fixture;
    use berth_host::procfile;
    use std::process::Command;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// A host whose only VM is this process; none of its vCPUs is known.
    fn vm(pid: i32) -> Snapshot {
        let folder = tempfile::tempdir().unwrap();
        let text = "process 5 lkvm\nargs lkvm run --name v\nfd 3 anon_inode:kvm-vm\n";
        Fixture::parse(text).unwrap().unpack(folder.path()).unwrap();
        let mut scanner = berth_host::discover::Scanner::new(Root::at(folder.path()));
        let mut found = scanner.scan().unwrap();
        let mut buf = [0; 4096];
        let proc = Root::live().proc().unwrap();
        let text = proc.read_record(&format!("{pid}/stat"), &mut buf).unwrap();
        let vm = Arc::make_mut(&mut found.vms[0]);
        (vm.pid, vm.start) = (pid, procfile::stat(text).unwrap().start);
        found
    }

    fn ready(arrivals: &Arrivals, most: Duration) -> bool {
        let mut waits = libc::pollfd {
            fd: arrivals.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one structure that outlives the call.
        unsafe { libc::poll(&mut waits, 1, i32::try_from(most.as_millis()).unwrap()) == 1 }
    }

    #[test]
    fn the_end_of_a_vm_is_noticed_at_once() {
        let _one = crate::place::tests::one_at_a_time();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let vms = vm(child.id().cast_signed());
        let key = VmKey {
            pid: vms.vms[0].pid,
            start: vms.vms[0].start,
        };
        let mut arrivals = Arrivals::new().unwrap();
        arrivals.follow(&vms);
        assert!(arrivals.holds(key));
        child.kill().unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while arrivals.holds(key) {
            assert!(ready(&arrivals, Duration::from_secs(5)));
            assert!(Instant::now() < end);
        }
        assert!(arrivals.news(&Root::live(), &vms).look);
        child.wait().unwrap();
        arrivals.follow(&Snapshot::default());
        assert!(arrivals.held.is_empty());
    }

    #[test]
    fn a_thread_of_an_incomplete_vm_is_news_and_one_of_a_stranger_is_not() {
        let me = std::process::id().cast_signed();
        let mut arrivals = Arrivals::new().unwrap();
        if let Some(why) = arrivals.blind() {
            return println!("skipped: no process events: {why}");
        }
        let (root, vms) = (Root::live(), vm(me));
        let mut hears = |vms: &Snapshot| {
            let end = Instant::now() + Duration::from_secs(2);
            std::thread::spawn(|| ()).join().unwrap();
            while Instant::now() < end {
                if ready(&arrivals, Duration::from_millis(20)) {
                    let news = arrivals.news(&root, vms);
                    if news.look {
                        return Some(news);
                    }
                } else if vms.vms.is_empty() {
                    return None;
                }
            }
            None
        };
        assert!(hears(&vms).is_some());
        let stranger = hears(&Snapshot::default());
        assert!(
            stranger.is_none_or(|news| !news.suspects.contains(&me)),
            "this process has nothing of KVM"
        );
    }

    /// Who makes threads faster than they are read, so that the kernel drops events, hides no VM: there is a look.
    #[test]
    fn events_that_are_lost_are_news() {
        let mut arrivals = Arrivals::new().unwrap();
        if let Some(why) = arrivals.blind() {
            return println!("skipped: no process events: {why}");
        }
        let nobody = Snapshot::default();
        let events = arrivals.events.as_ref().unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(events, 4096).unwrap();
        let flood = || (0..300).for_each(|_| std::thread::spawn(|| ()).join().unwrap());
        flood();
        assert!(events.read().unwrap().lost);
        flood();
        assert!(ready(&arrivals, Duration::from_secs(5)));
        let news = arrivals.news(&Root::live(), &nobody);
        assert!(news.look, "{news:?}");
        // They are told again from then on.
        assert_eq!(arrivals.blind(), None);
        std::thread::spawn(|| ()).join().unwrap();
        assert!(ready(&arrivals, Duration::from_secs(5)));
    }
}
