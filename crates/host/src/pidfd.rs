// SPDX-License-Identifier: GPL-2.0-only
//! A process held by a file descriptor: it tells at once when the process ends, and never means another one that got
//! the same number.
use crate::procfile;
use crate::root::Root;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A process, for as long as this is kept, and no other.
#[derive(Debug)]
pub struct Held(OwnedFd);

impl Held {
    /// Holds the process of this number that began at `start` (clock ticks since boot).
    ///
    /// # Errors
    /// There is none (any more), `ESRCH`; too many files are open, `EMFILE`.
    pub fn open(pid: i32, start: u64) -> io::Result<Held> {
        // SAFETY: two numbers; the result is checked.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, owned by nobody else.
        let held = Held(unsafe { OwnedFd::from_raw_fd(fd) });
        // Asked after it was opened: whoever has the number now and has not ended is who is held.
        let mut buf = [0; 4096];
        let proc = Root::live().proc()?;
        let text = proc.read_record(&format!("{pid}/stat"), &mut buf)?;
        let is_it = procfile::stat(text).is_some_and(|s| s.start == start);
        match is_it && !held.has_ended() {
            true => Ok(held),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }

    /// Whether the process has ended; its parent may not have taken note.
    pub fn has_ended(&self) -> bool {
        let mut waits = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one structure that outlives the call.
        unsafe { libc::poll(&mut waits, 1, 0) == 1 }
    }
}

impl AsFd for Held {
    /// Readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn start_of(pid: i32) -> u64 {
        let mut buf = [0; 4096];
        let proc = Root::live().proc().unwrap();
        let text = proc.read_record(&format!("{pid}/stat"), &mut buf).unwrap();
        procfile::stat(text).unwrap().start
    }

    #[test]
    fn it_is_the_process_that_was_meant_until_its_end() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id().cast_signed();
        let start = start_of(pid);
        let held = Held::open(pid, start).unwrap();
        assert!(!held.has_ended());
        let other = Held::open(pid, start + 1).unwrap_err();
        assert_eq!(other.raw_os_error(), Some(libc::ESRCH));
        child.kill().unwrap();
        // Not waited for yet.
        while !held.has_ended() {
            std::thread::yield_now();
        }
        assert!(Held::open(pid, start).is_err(), "it has ended");
        child.wait().unwrap();
        assert!(held.has_ended());
    }
}
