// SPDX-License-Identifier: GPL-2.0-only
//! Numbers that change hands at the wrong moment, and names of any bytes.
use super::*;
use crate::knob::ALL;
use std::ffi::CString;
use std::sync::mpsc;

fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// `/proc/PID` of a process, as far as it is looked at.
fn process(proc: &Path, pid: i32, start: u64, parent: i32, group: &str) {
    let stat = format!("{pid} (vm) S {}{start}\n", "0 ".repeat(18));
    put(&proc.join(format!("{pid}/task/{pid}/stat")), &stat);
    put(
        &proc.join(format!("{pid}/status")),
        &format!("Tgid:\t{pid}\nPPid:\t{parent}\n"),
    );
    put(
        &proc.join(format!("{pid}/cgroup")),
        &format!("3:cpuset:{group}\n0::/\n"),
    );
}

/// Threads and processes have numbers of one kind, and the kernel shows a thread as if it were a process to whoever
/// knows its number. A VM and its vCPU end; a stranger gets the number of the vCPU, and a thread of the stranger
/// that of the VM, within one clock tick: that is not the vCPU, or the stranger would stay bound for ever once that
/// thread has ended.
#[test]
fn a_thread_that_has_the_number_of_a_process_is_none() {
    let (tell, told) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: asks for a number.
        tell.send(unsafe { libc::gettid() }).unwrap();
        let _ = ends.recv();
    });
    let (tid, pid) = (told.recv().unwrap(), std::process::id() as i32);
    let as_process = tid;
    let proc = Path::new("/proc");
    assert!(proc.join(format!("{tid}/task/{pid}/stat")).exists());
    let (of_thread, of_process) = (start_of(proc, pid, tid), start_of(proc, pid, pid));
    assert!(of_thread.is_some() && of_process.is_some());
    for (tid, start) in [(tid, of_thread), (pid, of_process)] {
        let knob = Knob::Affinity {
            pid: as_process,
            tid,
            start: start.unwrap(),
        };
        let live = Live::new();
        assert!(
            matches!(live.read(&knob), Err(Error::Gone { .. })),
            "{knob}"
        );
        assert!(
            matches!(live.write(&knob, ALL), Err(Error::Gone { .. })),
            "{knob}"
        );
    }
    drop(end);
    thread.join().unwrap();
}

/// A VM ends between the look and the write, and its number is a stranger's when it is written: he goes back to where
/// his parent is, and nothing is remembered as done.
#[test]
fn a_stranger_who_was_put_into_a_group_by_mistake_goes_home() {
    let folder = tempfile::tempdir().unwrap();
    let (proc, groups) = (folder.path().join("proc"), folder.path().join("groups"));
    process(&proc, 7, 1, 5, "/berth-7-1");
    process(&proc, 5, 1, 1, "/home");
    put(&groups.join("cpuset/home/cgroup.procs"), "");
    // A pipe in the place of the file: whoever opens it waits for its reader.
    let pipe = groups.join("cpuset/berth-7-1/cgroup.procs");
    std::fs::create_dir_all(pipe.parent().unwrap()).unwrap();
    let name = CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: a C string that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let live = Live {
        proc: proc.clone(),
        ..Live::at(&groups, true)
    };
    let knob = Knob::Member {
        pid: 7,
        start: 1,
        hierarchy: "cpuset".into(),
    };
    let (tell, told) = mpsc::channel();
    let writer = std::thread::spawn(move || {
        // SAFETY: a number of this thread.
        tell.send(unsafe { libc::gettid() }).unwrap();
        live.write(&knob, "/berth-7-1")
    });
    let tid = told.recv().unwrap();
    // It has looked, and waits in `openat2`.
    let waits = format!("{} ", libc::SYS_openat2);
    let call = format!("/proc/self/task/{tid}/syscall");
    while !std::fs::read_to_string(&call).is_ok_and(|text| text.starts_with(&waits)) {
        assert!(!writer.is_finished(), "it does not write");
        std::thread::yield_now();
    }
    process(&proc, 7, 2, 5, "/berth-7-1");
    assert_eq!(std::fs::read_to_string(&pipe).unwrap(), "7");
    let error = writer.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    let home = std::fs::read_to_string(groups.join("cpuset/home/cgroup.procs")).unwrap();
    assert_eq!(home, "7");
}

/// A thread may call itself by bytes that are no text, and by what looks like fields of its own status.
#[test]
fn names_of_any_bytes_hide_no_thread() {
    for name in [&b"\xff\xfe) 7\n"[..], b"a\nCpus_allo", b")))) S 1 2"] {
        let name = CString::new(name).unwrap();
        let done = std::thread::spawn(move || {
            // SAFETY: a C string that outlives the call; a number of this thread.
            let tid = unsafe {
                libc::prctl(libc::PR_SET_NAME, name.as_ptr());
                libc::gettid()
            };
            let pid = std::process::id() as i32;
            let start = start_of(Path::new("/proc"), pid, tid).expect("its start");
            let knob = Knob::Affinity { pid, tid, start };
            let live = Live::new();
            let before = live.read(&knob).unwrap();
            let first = cpus::read(&before).map_or(0, |cpus| *cpus.first().unwrap());
            live.write(&knob, &first.to_string()).unwrap();
            let there = live.read(&knob).unwrap();
            live.put_back(&knob, &before).unwrap();
            // On a machine of one CPU that is all of them.
            assert!(there == first.to_string() || there == ALL, "{there}");
            assert_eq!(live.read(&knob).unwrap(), before);
            assert_eq!(status_number(Path::new("/proc"), tid, "Tgid:"), Some(pid));
        });
        done.join().unwrap();
    }
}
