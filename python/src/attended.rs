// SPDX-License-Identifier: GPL-2.0-only
//! Work in a thread of its own, while the thread that asked for it stays with Python: the lock is free meanwhile,
//! Ctrl-C stops the work, progress is told.
use crate::errors;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often Python is asked for signals and told of progress.
const BEAT: Duration = Duration::from_millis(50);

/// Flags that nobody uses now. Runs want one that lives for ever.
static FREE: Mutex<Vec<&'static AtomicBool>> = Mutex::new(Vec::new());

/// A flag by which work is stopped.
pub struct Cancel(&'static AtomicBool);

impl Cancel {
    pub fn new() -> Cancel {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Cancel(free.unwrap_or_else(|| Box::leak(Box::new(AtomicBool::new(false)))))
    }

    pub fn flag(&self) -> &'static AtomicBool {
        self.0
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
        FREE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.0);
    }
}

/// How far the work is.
#[derive(Default)]
pub struct Counts {
    pub done: AtomicU64,
    pub all: AtomicU64,
}

/// Does `work`, and calls `progress(done, all)` when something has changed. What came of it, and why it was stopped, if
/// it was: the work then has ended early, by its own means.
///
/// # Errors
/// The work panicked.
pub fn attended<R: Send>(
    py: Python<'_>,
    cancel: &Cancel,
    counts: &Counts,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce() -> R + Send,
) -> PyResult<(R, Option<PyErr>)> {
    let (sender, receiver) = channel::<()>();
    let receiver = Mutex::new(receiver);
    let mut stopped = None;
    let mut told = (0, 0);
    let mut tell = || -> PyResult<()> {
        let now = (
            counts.done.load(Ordering::Relaxed),
            counts.all.load(Ordering::Relaxed),
        );
        if let Some(progress) = progress.filter(|_| now != told) {
            told = now;
            progress.call1(py, now)?;
        }
        Ok(())
    };
    let done = std::thread::scope(|scope| {
        let working = scope.spawn(move || {
            // Gone with the thread: whoever waits for it wakes at once.
            let _sender = sender;
            work()
        });
        loop {
            let over = py.detach(|| {
                let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
                receiver.recv_timeout(BEAT) == Err(RecvTimeoutError::Disconnected)
            });
            if over {
                return py.detach(|| working.join());
            }
            if stopped.is_none() {
                stopped = py.check_signals().and_then(|()| tell()).err();
                if stopped.is_some() {
                    cancel.flag().store(true, Ordering::Relaxed);
                }
            }
        }
    });
    let done = done.map_err(|_| errors::failed("internal error: please report what you did"))?;
    if stopped.is_none() {
        stopped = tell().err();
    }
    Ok((done, stopped))
}
