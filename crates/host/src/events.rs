// SPDX-License-Identifier: GPL-2.0-only
//! Which processes made threads, as the kernel tells it (the process connector, a netlink socket): a VM is noticed when
//! it makes its vCPUs, without waiting for the next scan. Needs `CAP_NET_ADMIN` in the machine's own namespaces and a
//! kernel with `CONFIG_PROC_EVENTS`; where there are no events, scans have to do.
//!
//! A filter in the kernel drops all other events: hosts start and end thousands of processes a second. For the end of a
//! process there is [`crate::pidfd`].
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

// Numbers of `include/uapi/linux/netlink.h`, `connector.h`, `cn_proc.h`.
const NETLINK_CONNECTOR: i32 = 11;
const NLMSG_DONE: u16 = 3;
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const PROC_EVENT_NONE: u32 = 0;
const PROC_EVENT_FORK: u32 = 1;

/// Lengths of `struct nlmsghdr` and `struct cn_msg`: what is before an event in a message.
const NL_HEADER: usize = 16;
const CN_HEADER: usize = 20;
const EVENT: usize = NL_HEADER + CN_HEADER;
/// In an event: what comes after kind, CPU and time.
const DATA: usize = EVENT + 16;
/// Of a fork: the new thread, and its process.
const CHILD: usize = DATA + 8;
const CHILD_PROCESS: usize = DATA + 12;
/// Room for events that have not been read.
const BUFFER: i32 = 1 << 20;
/// How long the kernel may take to say that it will tell.
const PATIENCE: Duration = Duration::from_millis(200);

/// A stream of events.
#[derive(Debug)]
pub struct ProcessEvents(OwnedFd);

/// What one reading of the stream gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Processes that made a thread. Some may have ended.
    pub processes: BTreeSet<i32>,
    /// Events were dropped because nobody read them: only a scan tells what happened.
    pub lost: bool,
    refused: Option<i32>,
    answered: bool,
}

impl ProcessEvents {
    /// Begins to listen.
    ///
    /// # Errors
    /// The kernel has no such events, or they are not ours to see (`PermissionDenied`).
    pub fn open() -> io::Result<ProcessEvents> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: plain numbers; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, NETLINK_CONNECTOR) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, owned by nobody else.
        let events = ProcessEvents(unsafe { OwnedFd::from_raw_fd(fd) });
        events.set_buffer();
        events.set_filter()?;
        events.join()?;
        events.ask()?;
        let end = Instant::now() + PATIENCE;
        loop {
            let told = events.read()?;
            match told.refused {
                Some(number) => return Err(io::Error::from_raw_os_error(number)),
                None if told.answered => return Ok(events),
                None => {}
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // Older kernels are silent to who is not in their first namespaces.
                return Err(io::Error::from(io::ErrorKind::PermissionDenied));
            }
            events.wait(left);
        }
    }

    /// All that was told since the last reading; does not wait.
    ///
    /// # Errors
    /// The socket cannot be used any more.
    pub fn read(&self) -> io::Result<Told> {
        let mut told = Told::default();
        let mut message = [0u8; 4096];
        loop {
            // SAFETY: the kernel writes at most as many bytes as the buffer has.
            let n = unsafe {
                let to = message.as_mut_ptr().cast();
                libc::recv(self.0.as_raw_fd(), to, message.len(), 0)
            };
            if let Ok(n) = usize::try_from(n) {
                told.take(&message[..n]);
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(told),
                Some(libc::EINTR) => {}
                Some(libc::ENOBUFS) => told.lost = true,
                _ => return Err(error),
            }
        }
    }

    fn wait(&self, most: Duration) {
        let mut waits = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let ms = i32::try_from(most.as_millis()).unwrap_or(i32::MAX).max(1);
        // SAFETY: one structure that outlives the call.
        unsafe { libc::poll(&mut waits, 1, ms) };
    }

    /// Room beyond the limit for ordinary users; less will do.
    fn set_buffer(&self) {
        for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
            let _ = set_option(self.0.as_fd(), option, &BUFFER);
        }
    }

    /// Lets pass: new threads that are no new process, and the kernel's answer.
    fn set_filter(&self) -> io::Result<()> {
        let code = |code: u32| u16::try_from(code).unwrap_or(0);
        let load = |at: usize| libc::sock_filter {
            code: code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS),
            jt: 0,
            jf: 0,
            k: u32::try_from(at).unwrap_or(u32::MAX),
        };
        // A filter reads numbers as if they had come over a network.
        let equal = |k: u32, jt: u8, jf: u8| libc::sock_filter {
            code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
            jt,
            jf,
            k: k.to_be(),
        };
        let give = |k: u32| libc::sock_filter {
            code: code(libc::BPF_RET | libc::BPF_K),
            jt: 0,
            jf: 0,
            k,
        };
        let mut program = [
            load(EVENT),
            equal(PROC_EVENT_NONE, 5, 0),
            equal(PROC_EVENT_FORK, 0, 5),
            load(CHILD),
            libc::sock_filter {
                code: code(libc::BPF_MISC | libc::BPF_TAX),
                jt: 0,
                jf: 0,
                k: 0,
            },
            load(CHILD_PROCESS),
            libc::sock_filter {
                code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X),
                jt: 1,
                jf: 0,
                k: 0,
            },
            give(u32::MAX),
            give(0),
        ];
        let filter = libc::sock_fprog {
            len: u16::try_from(program.len()).unwrap_or(0),
            filter: program.as_mut_ptr(),
        };
        set_option(self.0.as_fd(), libc::SO_ATTACH_FILTER, &filter)
    }

    fn join(&self) -> io::Result<()> {
        // SAFETY: zero is a valid value of every field.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = u16::try_from(libc::AF_NETLINK).unwrap_or(0);
        address.nl_groups = CN_IDX_PROC;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: an address of the given length that outlives the call.
        let done = unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), length) };
        match done {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn ask(&self) -> io::Result<()> {
        let mut message = Vec::with_capacity(EVENT + 4);
        let length = u32::try_from(EVENT + 4).unwrap_or(0);
        message.extend(length.to_ne_bytes());
        message.extend(NLMSG_DONE.to_ne_bytes());
        // Flags, sequence, sender.
        message.extend([0; 10]);
        message.extend(CN_IDX_PROC.to_ne_bytes());
        message.extend(CN_VAL_PROC.to_ne_bytes());
        // Sequence and acknowledgement.
        message.extend([0; 8]);
        message.extend(4u16.to_ne_bytes());
        message.extend(0u16.to_ne_bytes());
        message.extend(PROC_CN_MCAST_LISTEN.to_ne_bytes());
        // SAFETY: the kernel reads at most as many bytes as the message has.
        let n = unsafe {
            let from = message.as_ptr().cast();
            libc::send(self.0.as_raw_fd(), from, message.len(), 0)
        };
        match n {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for ProcessEvents {
    /// To wait for events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Told {
    /// Reads one message; what cannot be one is ignored.
    fn take(&mut self, message: &[u8]) {
        let word = |at: usize| -> Option<u32> {
            let bytes = message.get(at..at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let process = |at: usize| word(at).map(u32::cast_signed).filter(|pid| *pid > 0);
        match word(EVENT) {
            Some(PROC_EVENT_NONE) => {
                self.answered = true;
                self.refused = word(DATA)
                    .filter(|number| *number != 0)
                    .map(u32::cast_signed);
            }
            Some(PROC_EVENT_FORK) => self.processes.extend(process(CHILD_PROCESS)),
            _ => {}
        }
    }
}

fn set_option<T>(socket: BorrowedFd<'_>, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: a value of the given length that outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (value as *const T).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn message(kind: u32, data: &[u32]) -> Vec<u8> {
        let mut m = vec![0; EVENT];
        m.extend(kind.to_ne_bytes());
        m.extend([0; 12]);
        m.extend(data.iter().flat_map(|w| w.to_ne_bytes()));
        m
    }

    #[test]
    fn messages_are_read_and_nonsense_is_not() {
        let mut told = Told::default();
        told.take(&message(PROC_EVENT_FORK, &[1, 1, 8, 7]));
        told.take(&message(2, &[9, 9]));
        told.take(&message(PROC_EVENT_FORK, &[1, 1, 8, u32::MAX]));
        told.take(&message(PROC_EVENT_FORK, &[1, 1]));
        told.take(&message(0x4000, &[5, 5]));
        told.take(&[0; 20]);
        assert_eq!(told.processes, [7].into());
        assert!(!told.answered && told.refused.is_none());
        told.take(&message(PROC_EVENT_NONE, &[1]));
        assert_eq!((told.answered, told.refused), (true, Some(1)));
    }

    #[test]
    fn this_machine_tells_of_threads_and_of_nothing_else() {
        let events = match ProcessEvents::open() {
            Ok(events) => events,
            Err(e) => return println!("skipped: no process events: {e}"),
        };
        let me = std::process::id().cast_signed();
        std::thread::spawn(|| ()).join().unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        while !events.read().unwrap().processes.contains(&me) {
            assert!(Instant::now() < end, "nothing was told");
            events.wait(Duration::from_millis(50));
        }
        let mut child = Command::new("true").spawn().unwrap();
        let program = child.id().cast_signed();
        child.wait().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(!events.read().unwrap().processes.contains(&program));
    }
}
