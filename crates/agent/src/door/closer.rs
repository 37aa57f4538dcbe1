// SPDX-License-Identifier: GPL-2.0-only
//! Closes what strangers could put something into, in a thread of its own.
//!
//! A descriptor that somebody has sent along lies in the socket until it is read, and is closed together with it, by
//! whoever closes the socket. That may take as long as its sender likes: a TCP connection with SO_LINGER and a peer
//! that reads nothing. Such waits end with a signal, which a timer of this thread sends.
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Longest wait for one of them, ns.
const PATIENCE_NS: i64 = 2_000_000;

/// The thread. It goes on after the last [`Closer`] is dropped, until all is closed.
#[derive(Clone, Debug)]
pub struct Closer {
    to: Sender<OwnedFd>,
    pending: Arc<AtomicUsize>,
}

impl Closer {
    /// # Errors
    /// No room for a thread or a timer.
    pub fn new() -> io::Result<Closer> {
        let (to, from) = channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let (started, start) = channel();
        let counted = pending.clone();
        std::thread::Builder::new()
            .name("door-closer".into())
            .spawn(move || match Timer::new() {
                Ok(timer) => {
                    let _ = started.send(Ok(()));
                    close_all(&from, &timer, &counted);
                }
                Err(e) => drop(started.send(Err(e))),
            })?;
        start.recv().map_err(io::Error::other)??;
        Ok(Closer { to, pending })
    }

    /// Descriptors that are not closed yet.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// It is closed there, when it is dropped.
    pub fn keep<T: Into<OwnedFd>>(&self, file: T) -> Careful<T> {
        Careful {
            file: Some(file),
            closer: self.clone(),
        }
    }
}

fn close_all(from: &Receiver<OwnedFd>, timer: &Timer, pending: &AtomicUsize) {
    for file in from {
        timer.set(PATIENCE_NS);
        drop(file);
        timer.set(0);
        pending.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Dropped, it is closed by the [`Closer`].
#[derive(Debug)]
pub struct Careful<T: Into<OwnedFd>> {
    /// There until it is dropped.
    file: Option<T>,
    closer: Closer,
}

impl<T: Into<OwnedFd>> Deref for Careful<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.file.as_ref().expect("it is not dropped yet")
    }
}

impl<T: Into<OwnedFd> + AsFd> AsFd for Careful<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.deref().as_fd()
    }
}

impl<T: Into<OwnedFd>> Drop for Careful<T> {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        self.closer.pending.fetch_add(1, Ordering::Relaxed);
        if let Err(unsent) = self.closer.to.send(file.into()) {
            // The thread is gone, which it never is: rather a descriptor too many than a wait.
            std::mem::forget(unsent.0);
        }
    }
}

/// Interrupts the thread that made it.
struct Timer(libc::timer_t);

impl Timer {
    fn new() -> io::Result<Timer> {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        let signal = libc::SIGRTMIN();
        let mut timer = std::ptr::null_mut();
        // SAFETY: all-zero structures are valid ones; the handler does nothing; the kernel writes one timer_t.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            match libc::sigaction(signal, &action, std::ptr::null_mut()) {
                0 => libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer),
                failed => failed,
            }
        };
        match done {
            0 => Ok(Timer(timer)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Interrupts after so long, and again each time after as long; 0: no more.
    fn set(&self, ns: i64) {
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: ns,
        };
        let every = libc::itimerspec {
            it_interval: time,
            it_value: time,
        };
        // SAFETY: the timer is there as long as `self`, the structure is as large as it says.
        unsafe { libc::timer_settime(self.0, 0, &every, std::ptr::null_mut()) };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: it was made by `timer_create`, and is not used any more.
        unsafe { libc::timer_delete(self.0) };
    }
}
