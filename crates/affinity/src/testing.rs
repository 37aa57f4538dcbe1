// SPDX-License-Identifier: GPL-2.0-only
//! Plans on machines on paper.
use crate::plan::{Placed, Refusal, Seat, Wanted, plan};
use crate::{Ask, Cpu, Host, Irq, Part, Policy, Queue, Thread, Vm};
use berth_optimiser::CpuSet;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Two packages with a node, an L3 and four cores of two threads each; an L2 per core. CPU n and n + 8 are a core.
fn machine() -> Host {
    let cpu = |cpu: u32| Cpu {
        cpu,
        core: cpu % 8,
        l2: cpu % 8,
        llc: cpu % 8 / 4 * 4,
        node: cpu % 8 / 4,
        capacity: 1024,
        isolated: false,
        busy: 0.0,
    };
    Host {
        cpus: (0..16).map(cpu).collect(),
        taken: BTreeMap::new(),
        possible: CpuSet::of(0..32),
    }
}

/// The paper's: two packages of two cores, an L2 for each package, no second threads.
fn paper() -> Host {
    let cpu = |cpu: u32| Cpu {
        cpu,
        core: cpu,
        l2: cpu / 2 * 2,
        llc: cpu / 2 * 2,
        node: 0,
        capacity: 1024,
        isolated: false,
        busy: 0.0,
    };
    Host {
        cpus: (0..4).map(cpu).collect(),
        ..Host::default()
    }
}

fn thread(tid: i32, part: Part) -> Thread {
    Thread {
        tid,
        part,
        in_process: true,
        allowed: None,
    }
}

/// A VM whose process is 100: emulator, vCPUs from 110, vhost workers from 120, a helper.
fn vm(vcpus: u32, vhosts: u32) -> Vm {
    let mut threads = vec![thread(100, Part::Emulator)];
    threads.extend((0..vcpus).map(|n| thread(110 + n as i32, Part::Vcpu(n))));
    threads.extend((0..vhosts).map(|n| thread(120 + n as i32, Part::Vhost)));
    threads.push(thread(140, Part::Helper));
    let irq = |n: u32, queue| Irq {
        irq: 40 + n,
        device: "eth0".into(),
        queue,
        managed: false,
        users: 1,
    };
    let queue = |device: &str, name: String| Queue {
        device: device.into(),
        name,
        users: 1,
    };
    let mut irqs = vec![irq(0, None)];
    irqs.extend((0..vhosts.max(1)).map(|n| irq(n + 1, Some(n))));
    let mut queues = vec![queue("tap0", "rx-0".into())];
    queues.extend((0..vhosts.max(1)).map(|n| queue("eth0", format!("rx-{n}"))));
    Vm {
        name: "web".into(),
        threads,
        irqs,
        queues,
        node: None,
    }
}

fn ask(policy: Policy) -> Ask {
    Ask {
        policy,
        ..Ask::default()
    }
}

fn placed(host: &Host, vm: &Vm, ask: &Ask) -> Result<Placed, Refusal> {
    let wanted = Wanted {
        vm,
        ask,
        acts: ask.policy,
        now: None,
    };
    plan(host, &[wanted]).remove(0)
}

fn cpus(placed: &Placed) -> BTreeMap<i32, u32> {
    placed.threads.iter().copied().collect()
}

#[test]
fn none_binds_nothing() {
    let placed = placed(&machine(), &vm(2, 1), &ask(Policy::None)).unwrap();
    assert!(placed.threads.is_empty() && placed.irqs.is_empty() && placed.queues.is_empty());
}

#[test]
fn paper_binds_the_process_and_nothing_else() {
    let mut vm = vm(1, 1);
    let with_cpu = |cpu| Ask {
        cpu: Some(cpu),
        ..ask(Policy::Paper)
    };
    for cpu in [0, 3] {
        let placed = placed(&paper(), &vm, &with_cpu(cpu)).unwrap();
        // Since Linux 6.4 a vhost worker is a thread of the process.
        assert_eq!(cpus(&placed), [(100, cpu), (110, cpu), (120, cpu)].into());
        assert!(placed.irqs.is_empty() && placed.queues.is_empty() && placed.warnings.is_empty());
    }
    // Before it was a thread of the kernel's.
    vm.threads[2].in_process = false;
    let placed = placed(&paper(), &vm, &with_cpu(3)).unwrap();
    assert_eq!(cpus(&placed), [(100, 3), (110, 3)].into());
    assert!(
        placed
            .left
            .iter()
            .any(|l| l.what == "thread 120" && l.why.contains("no thread of its process"))
    );
    assert!(
        placed
            .left
            .iter()
            .any(|l| l.what == "thread 140" && l.why.contains("KVM"))
    );
}

#[test]
fn paper_with_several_vcpus_warns() {
    let placed = placed(&paper(), &vm(3, 0), &ask(Policy::Paper)).unwrap();
    assert_eq!(BTreeSet::from_iter(cpus(&placed).into_values()).len(), 1);
    assert!(
        placed.warnings.iter().any(|w| w.contains("holds a lock")),
        "{:?}",
        placed.warnings
    );
}

#[test]
fn full_has_the_whole_path_on_one_cpu() {
    let mut vm = vm(1, 1);
    vm.threads[2].in_process = false;
    let placed = placed(&machine(), &vm, &ask(Policy::Full)).unwrap();
    // Not CPU 0, and the lowest that is free otherwise.
    assert_eq!(cpus(&placed), [(100, 1), (110, 1), (120, 1)].into());
    assert_eq!(placed.irqs, [(41, 1)]);
    let queues: Vec<_> = placed
        .queues
        .iter()
        .map(|(d, q, c)| (&**d, &**q, *c))
        .collect();
    assert_eq!(queues, [("tap0", "rx-0", 1), ("eth0", "rx-0", 1)]);
    assert!(
        placed
            .left
            .iter()
            .any(|l| l.what == "interrupt 40 of eth0" && l.why.contains("no queue"))
    );
}

#[test]
fn full_with_several_vcpus_has_the_path_on_one_more() {
    let placed = placed(&machine(), &vm(2, 2), &ask(Policy::Full)).unwrap();
    let expected = [(100, 3), (110, 1), (111, 2), (120, 3), (121, 3)];
    assert_eq!(cpus(&placed), expected.into());
    assert_eq!(placed.irqs, [(41, 3), (42, 3)]);
}

#[test]
fn l2_has_the_path_beside_it_on_another_core() {
    // The paper's machine: two cores below one L2.
    let with_cpu = Ask {
        cpu: Some(2),
        ..ask(Policy::L2)
    };
    let placed_there = placed(&paper(), &vm(1, 1), &with_cpu).unwrap();
    assert_eq!(cpus(&placed_there), [(100, 3), (110, 2), (120, 3)].into());
    assert_eq!(placed_there.irqs, [(41, 3)]);
    // Not the other thread of its core, unless asked.
    let host = machine();
    let with_cpu = Ask {
        cpu: Some(5),
        ..with_cpu
    };
    let other = placed(&host, &vm(1, 1), &with_cpu).unwrap();
    assert_eq!(
        other.seat,
        Seat {
            vcpus: vec![5],
            path: vec![4]
        }
    );
    let smt = Ask {
        smt: true,
        ..with_cpu
    };
    let sibling = placed(&host, &vm(1, 1), &smt).unwrap();
    assert_eq!(
        sibling.seat,
        Seat {
            vcpus: vec![5],
            path: vec![13]
        }
    );
}

#[test]
fn queues_have_a_cpu_each() {
    let placed = placed(&machine(), &vm(3, 2), &ask(Policy::L2)).unwrap();
    let Seat { vcpus, path } = &placed.seat;
    assert_eq!((vcpus.len(), path.len()), (3, 2));
    let cpus = cpus(&placed);
    assert_eq!(
        (cpus[&120], cpus[&121], cpus[&100]),
        (path[0], path[1], path[0])
    );
    assert_eq!(placed.irqs, [(41, path[0]), (42, path[1])]);
    assert_eq!(placed.queues[2].2, path[1]);
    let all: BTreeSet<u32> = vcpus.iter().chain(path).copied().collect();
    assert_eq!(all.len(), 5, "{:?}", placed.seat);
}

#[test]
fn by_node_load_second_threads_and_kinds_of_cores() {
    let mut host = machine();
    let on_one = Vm {
        node: Some(1),
        ..vm(1, 1)
    };
    let chosen = |host: &Host, vm: &Vm| placed(host, vm, &ask(Policy::Full)).unwrap().seat.vcpus[0];
    assert_eq!(chosen(&host, &on_one), 4);
    // Load: of the four on its node, the one that is idle, and whose other thread is.
    for (cpu, busy) in [(4, 0.5), (5, 0.9), (6, 0.0), (14, 1.0), (7, 0.2)] {
        host.cpus[cpu].busy = busy;
    }
    // 6: idle, but half of it (0.5); 7: 0.8; 15: idle with a sibling that is 20 % busy: 0.9.
    assert_eq!(chosen(&host, &on_one), 15);
    // An idle CPU goes before one on the node that others are bound to.
    for cpu in [4, 5, 6, 7, 12, 13, 14, 15] {
        host.taken.insert(cpu, 1);
    }
    assert_eq!(chosen(&host, &on_one), 1);
    let placed = placed(&host, &on_one, &ask(Policy::Full)).unwrap();
    assert!(placed.why.contains("node 1 are taken"), "{}", placed.why);
    // Where all are busy that is said, and else not.
    let says = |host: &Host| {
        let placed = self::placed(host, &vm(1, 1), &ask(Policy::Full)).unwrap();
        placed.warnings.iter().any(|w| w.contains("makes no room"))
    };
    let mut full = host.clone();
    full.cpus.iter_mut().for_each(|c| c.busy = 0.95);
    assert!(says(&full) && !says(&host));
    // Slow cores: two fifths of the speed of idle ones are less than a fast one's that is half busy.
    let mut kinds = paper();
    for (cpu, capacity) in [(0, 400), (1, 400), (2, 1024), (3, 1024)] {
        kinds.cpus[cpu].capacity = capacity;
    }
    kinds.cpus[2].busy = 0.5;
    kinds.cpus[3].busy = 0.8;
    assert_eq!(chosen(&kinds, &vm(1, 0)), 2);
    // Alone on its node, CPU 0 is better than another node's.
    kinds.cpus[0].node = 7;
    let on_zero = Vm {
        node: Some(7),
        ..vm(1, 0)
    };
    assert_eq!(chosen(&kinds, &on_zero), 0);
}

#[test]
fn isolated_offline_and_missing_cpus_are_refused() {
    let mut host = machine();
    host.cpus[3].isolated = true;
    host.cpus.retain(|c| c.cpu != 6);
    let with = |cpu, isolated| Ask {
        cpu: Some(cpu),
        isolated,
        ..ask(Policy::Full)
    };
    let why = |a: &Ask| placed(&host, &vm(1, 0), a).unwrap_err().to_string();
    assert!(
        why(&with(3, false)).contains("isolated"),
        "{}",
        why(&with(3, false))
    );
    assert!(placed(&host, &vm(1, 0), &with(3, true)).is_ok());
    assert!(why(&with(6, false)).contains("offline; online are 0-5,7-15"));
    assert!(why(&with(99, false)).contains("no CPU 99 on this machine; it has 0-31"));
    // Nobody is put there unless it is asked for.
    let asks = vec![ask(Policy::Full); 20];
    let vms = vec![vm(1, 0); 20];
    let wanted: Vec<_> = vms
        .iter()
        .zip(&asks)
        .map(|(vm, ask)| wanted(vm, ask))
        .collect();
    assert!(
        plan(&host, &wanted)
            .into_iter()
            .all(|p| p.unwrap().seat.vcpus != [3])
    );
    assert_eq!(
        placed(
            &host,
            &Vm {
                threads: Vec::new(),
                ..vm(1, 0)
            },
            &ask(Policy::Full)
        ),
        Err(Refusal::NoVcpus)
    );
}

fn wanted<'a>(vm: &'a Vm, ask: &'a Ask) -> Wanted<'a> {
    Wanted {
        vm,
        ask,
        acts: ask.policy,
        now: None,
    }
}

#[test]
fn inside_of_the_sets_that_a_manager_gave() {
    let host = machine();
    let mut bound = vm(2, 1);
    for t in &mut bound.threads {
        t.allowed = match t.part {
            Part::Vcpu(0) => "9".parse().ok(),
            Part::Vcpu(_) => "2,10".parse().ok(),
            _ => "4-5".parse().ok(),
        };
    }
    let l2 = placed(&host, &bound, &ask(Policy::L2)).unwrap();
    assert_eq!(
        l2.seat,
        Seat {
            vcpus: vec![9, 2],
            path: vec![4]
        }
    );
    let error = placed(&host, &bound, &ask(Policy::Paper)).unwrap_err();
    assert!(
        error.to_string().contains("l2 gives each vCPU one"),
        "{error}"
    );
    let outside = Ask {
        cpu: Some(3),
        ..ask(Policy::L2)
    };
    let error = placed(&host, &bound, &outside).unwrap_err().to_string();
    assert!(
        error.contains("which is 9") && error.contains("virsh vcpupin"),
        "{error}"
    );
}

#[test]
fn shared_and_managed_interrupts_are_left() {
    let mut vm = vm(1, 2);
    vm.irqs[1].managed = true;
    vm.irqs[2].users = 3;
    vm.queues[2].users = 3;
    let placed = placed(&machine(), &vm, &ask(Policy::Full)).unwrap();
    assert!(placed.irqs.is_empty());
    let left = |what: &str| {
        placed
            .left
            .iter()
            .find(|l| l.what == what)
            .map(|l| l.why.clone())
            .unwrap_or_default()
    };
    assert!(left("interrupt 41 of eth0").contains("manages"));
    assert!(left("interrupt 42 of eth0").contains("serves 3 VMs"));
    assert!(left("queue rx-1 of eth0").contains("serves 3 VMs"));
    assert_eq!(placed.queues.len(), 2);
}

#[test]
fn too_few_cores_are_said() {
    let mut one = paper();
    one.cpus.truncate(1);
    let l2 = placed(&one, &vm(2, 1), &ask(Policy::L2)).unwrap();
    assert_eq!(
        l2.seat,
        Seat {
            vcpus: vec![0, 0],
            path: vec![0]
        }
    );
    assert!(
        l2.warnings.iter().any(|w| w.contains("no other core")),
        "{:?}",
        l2.warnings
    );
    assert!(
        l2.warnings
            .iter()
            .any(|w| w.contains("shared with something else"))
    );
}

/// Threads, in any order, with any sets.
fn any_vm() -> impl Strategy<Value = Vm> {
    let set = || {
        prop_oneof![
            3 => Just(None),
            1 => proptest::collection::btree_set(0u32..16, 1..8).prop_map(CpuSet::of),
        ]
    };
    (
        1u32..5,
        0u32..4,
        proptest::option::of(0u32..3),
        proptest::collection::vec(set(), 12),
    )
        .prop_map(|(vcpus, vhosts, node, sets)| {
            let mut vm = Vm {
                node,
                ..vm(vcpus, vhosts)
            };
            for (thread, set) in vm.threads.iter_mut().zip(sets) {
                thread.allowed = set;
            }
            vm
        })
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let policy = proptest::sample::select(&Policy::ALL[..4]);
    (
        policy,
        proptest::option::weighted(0.2, 0u32..20),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(policy, cpu, isolated, smt)| Ask {
            policy,
            cpu,
            isolated,
            smt,
        })
}

proptest! {
    /// Single VMs of one vCPU: no two on one CPU while another one is idle.
    #[test]
    fn nobody_shares_while_a_cpu_is_idle(
        n in 1usize..40,
        busy in proptest::collection::vec(0.0f64..1.0, 16),
        l2 in any::<bool>(),
    ) {
        let mut host = machine();
        for (cpu, busy) in host.cpus.iter_mut().zip(busy) {
            cpu.busy = busy;
        }
        let ask = ask(if l2 { Policy::L2 } else { Policy::Full });
        let vms: Vec<Vm> = (0..n).map(|i| Vm { name: format!("vm{i}"), ..vm(1, 1) }).collect();
        let wanted: Vec<_> = vms.iter().map(|vm| wanted(vm, &ask)).collect();
        let mut on: BTreeMap<u32, usize> = BTreeMap::new();
        for placed in plan(&host, &wanted) {
            let seat = placed.unwrap().seat;
            for cpu in seat.vcpus.iter().chain(&seat.path) {
                *on.entry(*cpu).or_default() += 1;
            }
        }
        let seats: usize = on.values().sum();
        let most = on.values().copied().max().unwrap_or(0);
        let least = if on.len() < 16 { 0 } else { on.values().copied().min().unwrap_or(0) };
        // A second thread of the vCPU's own core is no place for its path.
        let slack = usize::from(l2);
        prop_assert!(most - least <= 1 + slack, "{on:?}");
        prop_assert!(!(seats <= 14 && most > 1), "{on:?}");
    }

    /// Whatever is asked: nobody goes where it may not, CPUs are online, and what is asked again changes nothing.
    #[test]
    fn plans_are_sound_and_stay(
        vms in proptest::collection::vec((any_vm(), any_ask()), 1..6),
        isolated in proptest::collection::btree_set(0usize..16, 0..4),
        offline in proptest::collection::btree_set(0u32..16, 0..6),
    ) {
        let mut host = machine();
        for cpu in &isolated {
            host.cpus[*cpu].isolated = true;
        }
        host.cpus.retain(|c| !offline.contains(&c.cpu));
        let wanted: Vec<_> = vms.iter().map(|(vm, ask)| wanted(vm, ask)).collect();
        let first = plan(&host, &wanted);
        prop_assert_eq!(first.len(), vms.len());
        for (placed, (vm, ask)) in first.iter().zip(&vms) {
            let Ok(placed) = placed else { continue };
            let online = |cpu: &u32| host.cpus.iter().any(|c| c.cpu == *cpu && (ask.isolated || !c.isolated));
            prop_assert!(placed.seat.vcpus.iter().chain(&placed.seat.path).all(online));
            let mut seen = BTreeSet::new();
            for (tid, cpu) in &placed.threads {
                let thread = vm.threads.iter().find(|t| t.tid == *tid).unwrap();
                prop_assert!(thread.allowed.as_ref().is_none_or(|a| a.has(*cpu)));
                prop_assert!(online(cpu) && seen.insert(*tid));
                prop_assert!(thread.part != Part::Helper);
            }
            if let Some(cpu) = ask.cpu {
                prop_assert!(ask.policy == Policy::None || placed.seat.vcpus[0] == cpu);
            }
        }
        let seats: Vec<Option<Seat>> = first.iter().map(|p| p.as_ref().ok().map(|p| p.seat.clone())).collect();
        let again: Vec<_> = wanted
            .iter()
            .zip(&seats)
            .map(|(w, now)| Wanted { now: now.as_ref(), ..w.clone() })
            .collect();
        let idle = host.cpus.iter().filter(|c| !c.isolated).count();
        let used: BTreeSet<u32> = seats.iter().flatten().flat_map(|s| s.vcpus.iter().chain(&s.path)).copied().collect();
        // With room to spare, or nobody to make room for, all stay.
        let given: usize = seats.iter().flatten().map(|s| s.vcpus.len() + s.path.len()).sum();
        let all_placed = first.iter().all(Result::is_ok);
        if all_placed && given == used.len() && used.len() <= idle {
            for (a, b) in first.iter().zip(plan(&host, &again)) {
                prop_assert_eq!(a.as_ref().ok().map(|p| &p.threads), b.as_ref().ok().map(|p| &p.threads));
            }
        }
    }
}
