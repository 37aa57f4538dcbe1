// SPDX-License-Identifier: GPL-2.0-only
//! A child that is killed at one of its system calls.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A child holds what another test of this process has open when it is made, a ledger's lock, too: one test at a time
/// makes children.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a child do this up to its `calls`-th entry into or exit from a system call, and kills it there; true: it had
/// come to the end.
pub fn killed_after(calls: usize, work: impl FnOnce()) -> bool {
    // SAFETY: the child goes on with this thread alone, and ends without returning.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: the child's own; nothing is shared.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
        }
        work();
        // SAFETY: nothing of the parent's is run down.
        unsafe { libc::_exit(0) }
    }
    assert!(pid > 0);
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    unsafe {
        libc::waitpid(pid, &raw mut status, 0);
        assert!(libc::WIFSTOPPED(status), "ptrace is not allowed here");
        for _ in 0..calls {
            libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, 0);
            libc::waitpid(pid, &raw mut status, 0);
            if libc::WIFEXITED(status) {
                return true;
            }
        }
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, &raw mut status, 0);
    }
    false
}
