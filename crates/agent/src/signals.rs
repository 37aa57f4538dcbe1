// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon is told by signals: end (SIGTERM, SIGINT), read the configuration again (SIGHUP).
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);
static RELOAD: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(number: libc::c_int) {
    let flag = if number == libc::SIGHUP {
        &RELOAD
    } else {
        &STOP
    };
    flag.store(true, Ordering::Relaxed);
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub stop: &'static AtomicBool,
    pub reload: &'static AtomicBool,
}

/// Takes the signals over.
pub fn take() -> Asked {
    let handler: extern "C" fn(libc::c_int) = on_signal;
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(number, handler as libc::sighandler_t) };
    }
    Asked {
        stop: &STOP,
        reload: &RELOAD,
    }
}
