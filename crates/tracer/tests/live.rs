// SPDX-License-Identifier: GPL-2.0-only
//! The tracer on this kernel: two threads share a CPU, one of them never sleeps. Skipped, with the reason, where BPF is
//! not allowed.
use berth_host::model::{
    Evidence, Manager, NameFrom, Proof, Role, Snapshot, TaskId, Thread, Vm, Vmm,
};
use berth_host::pace::cpu_time;
use berth_host::trace::{Cause, Tracer};
use berth_tracer::BpfTracer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

fn start_of(tid: i32) -> u64 {
    let text = std::fs::read(format!("/proc/self/task/{tid}/stat")).unwrap();
    berth_host::procfile::stat(&text).unwrap().start
}

/// A VM that is one thread of this process.
fn vm(number: i32, tid: i32) -> Arc<Vm> {
    let id = TaskId {
        pid: tid,
        tid,
        start: start_of(tid),
    };
    let thread = Thread {
        id,
        name: "t".into(),
        role: Role::Vcpu(0),
        evidence: Evidence::Name,
    };
    Arc::new(Vm {
        name: format!("vm{number}"),
        name_from: NameFrom::Process,
        vmm: Vmm::Unknown,
        manager: Manager::None,
        manager_id: None,
        proof: Proof::Looks,
        pid: tid,
        start: id.start,
        cgroup: "/".into(),
        vcpus: 1,
        threads: vec![thread],
    })
}

/// Pins the calling thread to the first CPU it may use; gives its number.
fn settle() -> i32 {
    // SAFETY: plain structures of the C library, filled before they are read.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        let cpu = (0..1024).find(|c| libc::CPU_ISSET(*c, &set)).unwrap();
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut one);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one);
        libc::syscall(libc::SYS_gettid) as i32
    }
}

#[test]
fn who_waits_for_whom_and_how_long_bursts_are() {
    let mut tracer = match BpfTracer::start() {
        Ok(tracer) => tracer,
        Err(e) => {
            println!("skipped: {e}");
            return;
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    let (send, receive) = channel();
    let hog = {
        let (stop, send) = (stop.clone(), send.clone());
        std::thread::spawn(move || {
            send.send((0, settle())).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    };
    let sleeper = {
        let (stop, rounds) = (stop.clone(), rounds.clone());
        std::thread::spawn(move || {
            send.send((1, settle())).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
                let until = cpu_time() + Duration::from_micros(100);
                while cpu_time() < until {}
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let mut tids = [0, 0];
    for _ in 0..2 {
        let (i, tid) = receive.recv().unwrap();
        tids[i] = tid;
    }
    let vms: Vec<Arc<Vm>> = (0..).zip(tids).map(|(i, tid)| vm(i, tid)).collect();
    let id = |i: usize| (vms[i].pid, vms[i].start);
    let snapshot = Snapshot {
        vms: vms.clone(),
        ..Snapshot::default()
    };
    tracer.follow(&snapshot).unwrap();
    // However long that takes here.
    let begun = rounds.load(Ordering::Relaxed);
    while rounds.load(Ordering::Relaxed) < begun + 500 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let waits = tracer.read().unwrap();
    counters_are_those_of_proc(&mut tracer, &vms);
    stop.store(true, Ordering::Relaxed);
    hog.join().unwrap();
    sleeper.join().unwrap();
    let rounds = rounds.load(Ordering::Relaxed);
    let (h, s) = (&waits[&id(0)], &waits[&id(1)]);
    println!(
        "hog {:?} {:?}\nsleeper {:?} {:?}",
        h.behind, h.worst_ns, s.behind, s.worst_ns
    );
    let woken: u64 = s.wakeups.iter().sum();
    println!(
        "{rounds} rounds, {woken} wake-ups, p50 {:?} p99 {:?}",
        s.quantile_ns(0.5),
        s.quantile_ns(0.99)
    );
    assert!(woken >= 20 && woken <= rounds, "{woken} {rounds}");
    // The sleeper waits for the hog, for the tests beside this one, and for nobody else it could name.
    let to = |w: &berth_host::trace::Waits, cause| w.behind.get(&cause).copied().unwrap_or(0);
    assert!(to(s, Cause::Vm(id(0))) > 0, "{:?}", s.behind);
    assert!(to(h, Cause::Vm(id(1))) > 0, "{:?}", h.behind);
    assert_eq!(to(s, Cause::Vm(id(1))), 0, "nobody waits for himself");
    assert!(s.worst_ns > 0 && s.quantile_ns(0.5).unwrap() > 64.0);
    // Its bursts are around 100 us; the hog's has not ended.
    let bursts = tracer.bursts(&vms[1].threads[0].id).unwrap();
    assert!(bursts.shorter_than(1e6) > 20 * 100_000, "{bursts:?}");
    let none = tracer.bursts(&vms[0].threads[0].id).unwrap();
    assert_eq!(none.ns.iter().sum::<u64>(), 0, "{none:?}");
    // The threads have ended: their numbers mean nobody, and places are given out again.
    tracer.follow(&Snapshot::default()).unwrap();
    assert!(tracer.read().unwrap().is_empty());
}

/// The threads belong to this process, not to the VMs made up for them: number and start tell them.
fn counters_are_those_of_proc(tracer: &mut BpfTracer, vms: &[Arc<Vm>]) {
    let mut told = Vec::new();
    tracer
        .counters(&mut |id, counters, wakeups| told.push((*id, counters, wakeups)))
        .unwrap();
    assert_eq!(told.len(), vms.len(), "{told:?}");
    for vm in vms {
        let id = vm.threads[0].id;
        let (_, early, woken) = told
            .iter()
            .find(|(t, ..)| (t.tid, t.start) == (id.tid, id.start))
            .unwrap();
        assert_eq!(i64::from(told[0].0.pid), i64::from(std::process::id()));
        let file =
            |name: &str| std::fs::read(format!("/proc/self/task/{}/{name}", id.tid)).unwrap();
        let late = berth_host::procfile::schedstat(&file("schedstat")).unwrap();
        let (switches, _) = berth_host::procfile::switches(&file("status")).unwrap();
        assert!(early.run_ns > 0 && early.run_ns <= late.run_ns);
        assert!(early.wait_ns > 0 && early.wait_ns <= late.wait_ns);
        assert!(early.stays > 0 && early.stays <= late.stays);
        // A second between the two readings at most, and 500 rounds a second.
        assert!(
            *woken <= switches && switches - woken < 500,
            "{woken} {switches}"
        );
        assert!(late.run_ns - early.run_ns < 1_000_000_000);
    }
}
