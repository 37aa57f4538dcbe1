// SPDX-License-Identifier: GPL-2.0-only
//! Ctrl-C: the first stops soon, keeping what is finished; the second stops at once.
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Set once the user has asked to stop. Also for the termination signal.
pub fn flag() -> &'static AtomicBool {
    // A handler that cannot be installed leaves the default: Ctrl-C ends the program.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    &ASKED
}
