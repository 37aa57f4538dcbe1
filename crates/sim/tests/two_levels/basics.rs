// SPDX-License-Identifier: GPL-2.0-only
//! Small cases with the answer known to the nanosecond.
use crate::play::{Act, Part, Play, Room, Stage, had};
use crate::shipped;
use berth_policy::needs::Needs;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::{MachineSpec, Simulation};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

#[test]
fn a_lone_guest_behaves_as_a_machine() {
    // One vCPU alone on one CPU: computes 3 ms, sleeps 7 ms; halted meanwhile.
    let stage = Stage::new(1, vec![Room::new(1)]);
    let parts = vec![Part::new(
        Some(0),
        &[Act::Mark, Act::Compute(3 * MS), Act::Sleep(7 * MS)],
    )];
    let mut m = stage.open(parts);
    m.run_until(S - 1).unwrap();
    m.check().unwrap();
    let marks: Vec<u64> = (0..100).map(|i| i * 10 * MS).collect();
    assert_eq!(m.workload.marks(0), marks);
    assert_eq!(m.world().times(0), (300 * MS, 0, 700 * MS - 1));
}

#[test]
fn costs_of_entry_and_exit_lengthen_each_round() {
    let mut stage = Stage::new(1, vec![Room::new(1)]);
    stage.entry_ns = 1000;
    stage.exit_ns = 500;
    let parts = vec![Part::new(
        Some(0),
        &[Act::Mark, Act::Compute(3 * MS), Act::Sleep(7 * MS)],
    )];
    let mut m = stage.open(parts);
    m.run_until(S).unwrap();
    m.check().unwrap();
    // The timer wakes the thread (it has halted): into the guest, then the interrupt is taken; it costs an exit
    // and the way back before the task goes on.
    let marks = m.workload.marks(0);
    let gaps: Vec<u64> = marks.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps[1..].iter().all(|g| *g == 10 * MS + 1000), "{gaps:?}");
}

#[test]
fn two_guests_share_one_cpu() {
    let stage = Stage::new(1, vec![Room::new(1), Room::new(1)]);
    let hog = |vm| Part::new(Some(vm), &[Act::Busy]);
    let mut m = stage.open(vec![hog(0), hog(1), hog(1)]);
    m.run_until(10 * S).unwrap();
    m.check().unwrap();
    let shares: Vec<f64> = (0..3).map(|i| had(&m, i) as f64 / 10e9).collect();
    for (share, want) in shares.iter().zip([0.5, 0.25, 0.25]) {
        assert!((share - want).abs() < 0.005, "{shares:?}");
    }
    let (run, steal, halt) = m.world().times(0);
    assert_eq!((run + steal, halt), (10 * S, 0));
}

#[test]
fn tasks_of_a_guest_spread_over_its_vcpus() {
    // Four hogs in a VM with four vCPUs, four CPUs: each has one to itself.
    let stage = Stage::new(4, vec![Room::new(4)]);
    let parts = vec![Part::new(Some(0), &[Act::Busy]); 4];
    let mut m = stage.open(parts);
    m.run_until(S).unwrap();
    m.check().unwrap();
    for i in 0..4 {
        assert_eq!(had(&m, i), S, "task {i}");
    }
}

#[test]
fn a_timer_of_a_preempted_vcpu_is_taken_when_it_runs_again() {
    // The guest's task sleeps 1 ms while a second one keeps the vCPU busy; a host hog shares the CPU.
    let mut stage = Stage::new(1, vec![Room::new(1)]);
    stage.host_params = vec![("slice_us", "5000".into())];
    stage.guest_params = vec![("slice_us", "1000".into())];
    let parts = vec![
        Part::new(None, &[Act::Busy]),
        Part::new(Some(0), &[Act::Busy]),
        Part::new(Some(0), &[Act::Mark, Act::Compute(MS / 10), Act::Sleep(MS)]),
    ];
    let mut m = stage.open(parts);
    m.run_until(S).unwrap();
    m.check().unwrap();
    let (run, steal, halt) = m.world().times(0);
    assert_eq!(halt, 0);
    assert_eq!(run + steal, S);
    assert!((run as f64 / 5e8 - 1.0).abs() < 0.02, "{run}");
    // Never woken while the vCPU was away, yet woken again and again.
    assert!(m.workload.marks(2).len() >= 20);
    let longest = m.workload.marks(2).windows(2).map(|w| w[1] - w[0]).max();
    assert!(longest > Some(5 * MS), "{longest:?}");
}

/// What a policy reads of a task that runs, `se.sum_exec_runtime` and the time since `se.exec_start`, is what the task
/// has had, however much was stolen from its vCPU.
#[test]
fn no_stolen_time_is_in_what_a_policy_reads_of_a_task() {
    let mut stage = Stage::new(1, vec![Room::new(2)]);
    stage.host_params = vec![("slice_us", "3000".into())];
    stage.guest_params = vec![("slice_us", "7000".into())];
    let mut parts = vec![Part::new(None, &[Act::Busy]).on(&[0])];
    parts.extend((0..5).map(|_| Part::new(Some(0), &[Act::Busy])));
    let mut m = stage.open(parts);
    let (mut looks, mut told) = (0, String::new());
    for at in (1..=800).map(|i| i * 1_234_567) {
        m.run_until(at).unwrap();
        for part in 1..=5 {
            let had = had(&m, part);
            let (task, k) = (m.workload.task(part), m.guest(0).expect("a guest"));
            // SAFETY: a task of the guest, which does nothing meanwhile.
            let se = unsafe { &(*k.tasks.ptr(task)).se };
            let Some(c) = k.cpus.iter().find(|c| c.curr == task) else {
                assert_eq!(se.sum_exec_runtime, had, "at {at} ns");
                continue;
            };
            if c.paused {
                assert_eq!(se.sum_exec_runtime, had, "stolen from at {at} ns");
                continue;
            }
            // By the clock that stands still while time is stolen.
            let read = se.sum_exec_runtime + at - c.stolen_ns - se.exec_start;
            told = format!(
                "at {at} ns {had} ns, read {read}, {} ns stolen",
                c.stolen_ns
            );
            assert_eq!(read, had, "{told}");
            looks += 1;
        }
    }
    assert!(
        looks > 400,
        "{looks} of tasks that run, the last one {told}"
    );
}

#[test]
fn equal_seeds_give_equal_traces() {
    let run = || {
        let mut stage = Stage::new(2, vec![Room::new(2), Room::new(3)]);
        stage.exit_ns = 700;
        stage.entry_ns = 300;
        stage.halt_poll_ns = 5_000;
        let sleeper = |vm, ns| Part::new(Some(vm), &[Act::Compute(ns), Act::Sleep(3 * ns)]);
        let parts = (0..10)
            .map(|i| sleeper(i % 2, 10_000 + 777 * u64::from(i)))
            .chain([Part::new(Some(1), &[Act::Busy])])
            .collect();
        let mut m = stage.open(parts);
        m.run_until(S).unwrap();
        m.check().unwrap();
        m.trace_hash()
    };
    let first = run();
    assert_eq!(first, run());
}

/// Slices are worth their overhead whoever takes the CPU away: `eevdf` with slices that end exactly passes its
/// scheduler some times per slice, not once a nanosecond.
#[test]
fn eevdf_does_not_creep_when_the_host_preempts_it() {
    for weights in [[0, 0, 0], [-5, 0, 3], [-19, 5, 19]] {
        for host in ["eevdf", "vtime"] {
            for vcpus in [1, 2] {
                let mut stage = Stage::new(vcpus, vec![Room::new(vcpus), Room::new(vcpus)]);
                (stage.host, stage.guest) = (host, "eevdf");
                stage.rooms[1].nice = weights[0];
                let mut parts = Vec::new();
                for vm in 0..2 {
                    parts.extend(weights.map(|nice| Part::new(Some(vm), &[Act::Busy]).nice(nice)));
                    parts.push(Part::new(Some(vm), &[Act::Compute(MS), Act::Sleep(3 * MS)]));
                }
                let mut m = stage.open(parts);
                m.run_until(S).unwrap();
                m.check().unwrap();
                let events = m.world().events;
                // Some four per ms; it was 14,000 where rounding kept a thread short of its deadline.
                let told = format!("{weights:?} under {host}: {events} events in a second");
                assert!(events < 10_000, "{told}");
            }
        }
    }
}

#[test]
fn what_policies_cannot_reach_changes_nothing() {
    for (host, guest) in [("vtime", "vtime"), ("vmfair", "eevdf"), ("credit", "gfifo")] {
        let run = |sized: bool| {
            let mut stage = Stage::new(2, vec![Room::new(4), Room::new(2)]);
            (stage.host, stage.guest, stage.sized) = (host, guest, sized);
            let parts = (0..9u64).map(|i| {
                let act = [
                    Act::Mark,
                    Act::Compute(MS / 3 * (i + 1)),
                    Act::Sleep(2 * MS),
                ];
                let all = if i < 6 { &act[..] } else { &[Act::Busy] };
                Part::new(Some(i as u32 % 2), all)
            });
            let mut m = stage.open(parts.collect());
            m.run_until(S).unwrap();
            m.check().unwrap();
            let k = m.guest(0).unwrap();
            let bytes: usize = k.tasks.regions().map(|(_, bytes)| bytes).sum();
            (m.trace_hash(), bytes)
        };
        let (whole, sized) = (run(false), run(true));
        assert_eq!(whole.0, sized.0, "{guest} under {host}");
        assert!(sized.1 < whole.1, "{sized:?} of {whole:?}");
    }
}

#[test]
fn a_policy_that_reaches_more_than_there_is_is_refused() {
    let spec = MachineSpec {
        needs: Needs::default(),
        ..MachineSpec::new(Shape::flat(2))
    };
    let mut m = Simulation::new(&spec, &[], Play::new(Vec::new()));
    let mut load = |name| {
        let none = Default::default();
        load_policy(
            &mut m,
            &shipped::policy(name),
            &none,
            &[],
            &Options::default(),
        )
    };
    let error = load("eevdf").unwrap_err().to_string();
    assert!(error.contains("`Policy::needs`"), "{error}");
    load("vtime").unwrap();
}
