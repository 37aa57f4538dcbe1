// SPDX-License-Identifier: GPL-2.0-only
//! Somebody without rights pins a VM of his own. A thread of it is another user's, and so are the queues of its path:
//! these are left as they are, and said.
use super::nobody::NOBODY;
use super::vm::{Vm, call_me, idle};
use super::{Operator, everywhere, name, queues, text, until};
use serde_json::Value;

/// Marks a VM that is nobody's.
pub const OF_NOBODY: &str = "of nobody";
/// A thread of it that is root's.
const ROOTS: &str = "roots-helper";

/// All threads of this process from now on are nobody's, but for one.
pub fn become_nobody() {
    let (named, is_named) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        call_me(ROOTS);
        let _ = named.send(());
        idle()
    });
    let _ = is_named.recv();
    let id = NOBODY as libc::c_long;
    // SAFETY: by the bare system calls, of this thread alone and of those that it begins later. Its owner may look at
    // the process all the same.
    let done = unsafe {
        libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>())
            | libc::syscall(libc::SYS_setresgid, id, id, id)
            | libc::syscall(libc::SYS_setresuid, id, id, id)
            | libc::c_long::from(libc::prctl(libc::PR_SET_DUMPABLE, 1))
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// The thread that is root's.
fn roots(vm: &Vm) -> i32 {
    let named = |tid: &i32| {
        let comm = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", vm.0.id()));
        comm.is_ok_and(|comm| comm.trim() == ROOTS)
    };
    let threads = vm.threads();
    threads.iter().map(|t| t.0).find(named).unwrap()
}

pub fn what_a_user_may_not_set_is_left_and_said(network: bool) {
    // SAFETY: only a number.
    if unsafe { libc::geteuid() } != 0 {
        return println!("not tried: only root can be somebody else");
    }
    let (vm, operator) = (Vm::begin(name(), OF_NOBODY), Operator::nobody());
    let (all, before, roots) = (everywhere(), queues(), roots(&vm));
    let mut denied = vec![format!("thread {roots} may not be set: ")];
    if network {
        assert_eq!(before.len(), 2);
        let queue = |device| format!("queue rx-0 of {device} cannot be set: ");
        denied.extend(["tapx", "vethx"].map(queue));
    }
    let each_once = |said: &str| {
        for what in &denied {
            assert_eq!(said.matches(what).count(), 1, "{what:?} in {said}");
        }
    };
    let denials = ["(os error 1)", "(os error 13)"];
    let mut times = 0;
    let how = ["--policy", "full", "--method", "taskset", "--cpu", "1"];
    let only_his = || {
        let right = |t: &(i32, String)| t.1 == if t.0 == roots { all.as_str() } else { "1" };
        assert!(vm.threads().iter().all(right), "{:?}", vm.threads());
        assert_eq!(queues(), before);
    };
    // Once more is the same.
    for _ in 0..2 {
        let out = operator.agent("pin", &[&[name(), "--json"], &how[..]].concat());
        assert_eq!(out.status.code(), Some(1), "{out:?}");
        let pinned: Value = serde_json::from_slice(&out.stdout).unwrap();
        // A queue that sends is among them, where there are several.
        let said = pinned["complaints"].as_array().unwrap();
        let is_denied = |c: &Value| denials.iter().any(|d| c.as_str().unwrap().ends_with(d));
        assert!(said.iter().all(is_denied), "{pinned}");
        each_once(&pinned["complaints"].to_string());
        times = said.len();
        assert_eq!(pinned["set"], vm.threads().len() - 1, "{pinned}");
        only_his();
    }
    let out = operator.agent("pin", &[&[name()], &how[..]].concat());
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    each_once(&text(&out));
    assert_eq!(text(&out).matches("not done: ").count(), times);
    let status = text(&operator.agent("status", &[]));
    each_once(&status);
    assert!(!status.contains("somebody else"), "{status}");
    let unpinned = operator.agent("unpin", &[name()]);
    assert_eq!(unpinned.status.code(), Some(0), "{unpinned:?}");
    assert!(vm.all_at(&all), "{:?}", vm.threads());
    assert!(queues() == before && !operator.remembers());
    until("the agent ends with its last pin", || {
        operator.processes().0.is_empty()
    });
}
