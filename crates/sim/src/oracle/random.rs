// SPDX-License-Identifier: GPL-2.0-only
//! Random scenarios, made from a sequence of choices.
//!
//! The generator asks `choose(n)` for numbers below n; 0 is always the simplest choice. A property test
//! supplies a list of numbers (and zeros after its end), so that shorter lists and smaller numbers are simpler
//! scenarios and failures shrink by themselves; other users supply a random stream. Every scenario made here is
//! valid: the generator's business is variety, not errors.
use berth_scenario::model::*;
use berth_scenario::step::{Kind, Stall};
use std::collections::BTreeMap;

/// Choices from a list, then zeros.
pub fn from_list(list: &[u32]) -> impl FnMut(u32) -> u32 + '_ {
    let mut rest = list.iter();
    move |n| rest.next().map_or(0, |x| x % n.max(1))
}

/// Choices from a random stream.
pub fn from_seed(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut rng =
        berth_scenario::dist::Rng::new(seed, berth_scenario::dist::Stream::Phase(u32::MAX));
    move |n| rng.below(u64::from(n.max(1))) as u32
}

/// One random scenario with one arm; `policy` is the arm's.
pub fn scenario(policy: &str, choose: &mut dyn FnMut(u32) -> u32) -> Scenario {
    let run = Run {
        warmup_ns: [0, 7_000_000, 20_000_000][choose(3) as usize],
        measure_ns: 20_000_000 * u64::from(1 + choose(8)),
        seeds: 1,
    };
    let end = run.warmup_ns + run.measure_ns;
    let mut host = host(choose, end);
    let mut make = Maker {
        cpus: host.nr_cpus(),
        tasks: BTreeMap::new(),
        clients: Vec::new(),
    };
    let vms: Vec<Vm> = (0..1 + choose(5))
        .map(|i| make.vm(i, end, choose))
        .collect();
    for i in 0..choose(3) {
        let name = format!("host{i}");
        let steps = make.ordinary(&name, choose);
        make.add(&name, Some(1), steps, choose);
        host.tasks.push(name);
    }
    Scenario {
        name: "random".into(),
        title: "Random".into(),
        run,
        host,
        vms,
        tasks: make.tasks,
        clients: make.clients,
        arms: vec![Arm {
            name: policy.into(),
            policy: policy.into(),
            preset: None,
            params: BTreeMap::new(),
            loader: Default::default(),
            set: BTreeMap::new(),
            scenario: None,
        }],
        ..Scenario::default()
    }
}

fn host(choose: &mut dyn FnMut(u32) -> u32, end: Nanos) -> Host {
    let nodes = 1 + choose(2);
    let llcs = 1 + choose(2);
    let mut host = Host {
        nodes,
        packages: nodes,
        llcs,
        cores: llcs * (1 + choose(3)),
        threads: 1 + choose(2),
        hz: [Hz::Ticks(1000), Hz::Exact, Hz::Ticks(250), Hz::Ticks(100)][choose(4) as usize],
        ..Host::default()
    };
    if choose(2) == 1 {
        host.cost = HostCost {
            switch_ns: u64::from(choose(3000)),
            migrate_same_core_ns: u64::from(choose(1000)),
            migrate_same_llc_ns: u64::from(choose(5000)),
            migrate_same_package_ns: 0,
            migrate_same_node_ns: u64::from(choose(20_000)),
            migrate_other_node_ns: u64::from(choose(50_000)),
            wake_ipi_ns: u64::from(choose(5000)),
            ..HostCost::default()
        };
    }
    if choose(2) == 1 {
        let cores = host.packages * host.cores;
        host.cost.smt_ppm = 400_000 + 100_000 * choose(7);
        let speeds: Vec<u32> = (0..cores).map(|_| 300_000 + 77_777 * choose(12)).collect();
        host.cost.kinds = CoreKind::by_speed(&speeds);
        host.cost.cache = Some(Cache {
            core_bytes: u64::from(choose(1 << 20)),
            llc_bytes: u64::from(choose(4 << 20)),
            from_llc: 1 + u64::from(choose(20_000)),
            from_memory: 1 + u64::from(choose(9_000)),
            from_other_node: 1 + u64::from(choose(4_000)),
            working_set: u64::from(choose(512 << 10)),
        });
    }
    let cpus = host.nr_cpus();
    if cpus > 1 {
        let mut at = 0;
        for _ in 0..choose(4) {
            let cpu = 1 + choose(cpus - 1);
            at += 1 + u64::from(choose(1000)) * end / 3000;
            let online = host
                .hotplug
                .iter()
                .rev()
                .find(|h| h.cpu == cpu)
                .is_some_and(|h| !h.online);
            host.hotplug.push(Hotplug {
                at_ns: at,
                cpu,
                online,
            });
        }
    }
    host
}

fn disk(choose: &mut dyn FnMut(u32) -> u32) -> Disk {
    let block = 512 << choose(6);
    let cache = block * u64::from(choose(400));
    let seek = 1_000 * u64::from(choose(300));
    let cached = cache > 0;
    Disk {
        name: "own".into(),
        path: [
            DiskPath::Virtio,
            DiskPath::Emulated,
            DiskPath::Direct,
            DiskPath::DriverDomain,
        ][choose(4) as usize],
        size_bytes: 1 << 30,
        file_bytes: 4096 + u64::from(choose(4 << 20)),
        access: [Access::Sequential, Access::Random][choose(2) as usize],
        bit_s: 1_000_000 * u64::from(1 + choose(8_000)),
        seek_near_ns: seek,
        seek_far_ns: seek * u64::from(1 + choose(5)),
        request_bytes: block << choose(6),
        cache_bytes: cache,
        block_bytes: block,
        read_ahead_bytes: block * u64::from(choose(100)) * u64::from(cached),
        write_back_ns: 1_000_000 * u64::from(choose(50)) * u64::from(cached),
        dirty_ppm: (1 + choose(900_000)) * u32::from(cached),
        syscall_ns: u64::from(choose(5_000)),
        copy_ns: u64::from(choose(1_000)),
        submit_ns: u64::from(choose(30_000)),
        per_request_host_ns: u64::from(choose(30_000)),
        irq_ns: u64::from(choose(5_000)),
    }
}

/// A random scenario with one more VM, whose threads (a vCPU each) take steps of this kind, and those that go with it.
pub fn scenario_with(kind: Kind, policy: &str, choose: &mut dyn FnMut(u32) -> u32) -> Scenario {
    let mut all = scenario(policy, choose);
    let work = Step::Compute(duration(choose));
    let pause = Step::Sleep(slow(duration(choose)));
    let name = || String::from("own");
    let twice = |steps: Vec<Step>| vec![steps.clone(), steps];
    let child = Task {
        name: "own_child".into(),
        threads: Some(1),
        steps: vec![work.clone(), Step::Exit],
        ..Task::default()
    };
    let (mut guest, mut stop_ns) = (Guest::default().policy, None);
    let loops = match kind {
        Kind::Compute => vec![vec![work]],
        Kind::Busy => vec![vec![Step::Busy]],
        Kind::Sleep => vec![vec![work, pause]],
        Kind::Timer => vec![vec![
            Step::Timer {
                period_ns: 100_000 * u64::from(1 + choose(100)),
                grid: [Grid::Random, Grid::Start, Grid::StartCatchUp][choose(3) as usize],
            },
            work,
        ]],
        Kind::Send | Kind::Receive | Kind::Reply => {
            let send = Step::Send {
                to: name(),
                bytes: u64::from(choose(10_000)),
            };
            let receive = vec![Step::Receive(name()), work.clone(), Step::Reply];
            vec![vec![work, pause, send], receive]
        }
        Kind::Yield => twice(vec![work, Step::Yield]),
        Kind::SetNice => vec![vec![work, Step::SetNice(choose(40) as i32 - 20), pause]],
        Kind::SetAffinity => {
            let cpu = choose(all.host.nr_cpus());
            vec![vec![
                Step::SetAffinity(vec![cpu]),
                work.clone(),
                Step::SetAffinity(vec![]),
                work,
            ]]
        }
        Kind::Stall => {
            let ppm = choose(1_000_001);
            let ipc_milli = (!ppm.is_multiple_of(2)).then(|| 10 + choose(4_000));
            let stall = Stall {
                ppm,
                ipc_milli,
                working_set: ppm.is_multiple_of(3).then_some(u64::from(ppm)),
            };
            vec![vec![Step::Stall(stall), work, pause]]
        }
        Kind::Fork => {
            all.tasks.insert(child.name.clone(), child.clone());
            vec![vec![work, Step::Fork(child.name), pause]]
        }
        Kind::Exit => vec![vec![work, pause, Step::Exit]],
        Kind::Lock => twice(vec![
            Step::Lock { name: name() },
            work,
            Step::Unlock { name: name() },
            pause,
        ]),
        Kind::Spin | Kind::Unlock => twice(vec![
            Step::Spin { name: name() },
            work,
            Step::Unlock { name: name() },
            pause,
        ]),
        Kind::Barrier => twice(vec![work, Step::Barrier { name: name() }]),
        Kind::Wait | Kind::Signal => {
            let wait = vec![Step::Wait { name: name() }, work.clone()];
            vec![wait, vec![work, pause, Step::Signal { name: name() }]]
        }
        Kind::Broadcast => {
            let wait = vec![Step::Wait { name: name() }, work.clone()];
            vec![
                wait.clone(),
                wait,
                vec![work, pause, Step::Broadcast { name: name() }],
            ]
        }
        Kind::Chunks => {
            let each = duration(choose);
            let chunks = Step::Chunks {
                name: name(),
                chunks: 1 + choose(20),
                each,
            };
            twice(vec![work, chunks, Step::Barrier { name: name() }])
        }
        Kind::Read | Kind::Write => {
            let disk = disk(choose);
            let bytes = 1 + u64::from(choose(disk.file_bytes.min(1 << 20) as u32));
            let name = disk.name.clone();
            let write = Step::Write { name, bytes };
            let name = disk.name.clone();
            let read = Step::Read { name, bytes };
            let (first, second) = match kind {
                Kind::Read => (read, write),
                _ => (write, read),
            };
            if disk.path == DiskPath::DriverDomain {
                all.vms.push(Vm {
                    name: "dom0".into(),
                    role: VmRole::Driver,
                    ..Vm::default()
                });
            }
            all.disks.push(disk);
            guest = [Guest::default().policy, "none".into()][choose(2) as usize].clone();
            stop_ns = [None, Some(20_000_000)][choose(2) as usize];
            let both = vec![first.clone(), second, work.clone()];
            vec![vec![first, work], both]
        }
    };
    let mut vm = Vm {
        name: "own".into(),
        vcpus: loops.len() as u32,
        guest: Guest {
            policy: guest,
            ..Guest::default()
        },
        stop_ns,
        ..Vm::default()
    };
    for (i, steps) in loops.into_iter().enumerate() {
        let task = Task {
            name: format!("own{i}"),
            threads: Some(1),
            steps,
            ..Task::default()
        };
        vm.tasks.push(task.name.clone());
        all.tasks.insert(task.name.clone(), task);
    }
    all.vms.push(vm);
    all
}

struct Maker {
    cpus: u32,
    tasks: BTreeMap<String, Task>,
    clients: Vec<Client>,
}

impl Maker {
    fn vm(&mut self, i: u32, end: Nanos, choose: &mut dyn FnMut(u32) -> u32) -> Vm {
        let name = format!("vm{i}");
        let mut vm = Vm {
            name: name.clone(),
            count: 1 + choose(3),
            vcpus: 1 + choose(4),
            class: [Class::Batch, Class::Latency, Class::Mixed, Class::None][choose(4) as usize],
            reserved_vcpus: 0,
            weight: [100, 200, 50, 1, 1000, 10_000][choose(6) as usize],
            cap_milli: None,
            affinity: self.affinity(choose),
            nice: [0, 5, -5, 19, -20][choose(5) as usize],
            tasks: Vec::new(),
            start_ns: [0, 0, end / 7, end / 2][choose(4) as usize],
            ..Vm::default()
        };
        if vm.class == Class::Mixed {
            vm.vcpus = vm.vcpus.max(2);
            vm.reserved_vcpus = 1 + choose(vm.vcpus - 1);
        }
        if choose(4) == 3 {
            vm.stop_ns = Some(vm.start_ns + 1 + u64::from(choose(100)) * end / 100);
        }
        // One thread per ordinary task; what is left over may serve a pool.
        let mut free = vm.vcpus;
        for t in 0..1 + choose(vm.vcpus) {
            let task = format!("{name}t{t}");
            if choose(3) == 2 {
                self.pool(&task, &vm, choose);
                vm.tasks.push(task);
                // Pools share all vCPUs that are left, so one is enough.
                break;
            }
            let steps = self.ordinary(&task, choose);
            self.add(&task, Some(1), steps, choose);
            vm.tasks.push(task);
            free -= 1;
            if free == 0 {
                break;
            }
        }
        vm
    }

    /// A pool and the client that feeds it.
    fn pool(&mut self, name: &str, vm: &Vm, choose: &mut dyn FnMut(u32) -> u32) {
        let queue = format!("{name}c");
        let mut steps = vec![
            Step::Receive(queue.clone()),
            Step::Compute(duration(choose)),
        ];
        match choose(4) {
            1 => steps.push(Step::Yield),
            2 => {
                steps.push(Step::Reply);
                steps.push(Step::Compute(duration(choose)));
            }
            3 => steps.push(Step::SetNice(choose(40) as i32 - 20)),
            _ => (),
        }
        if !steps.contains(&Step::Reply) {
            steps.push(Step::Reply);
        }
        let threads = [None, Some(1), Some(9)][choose(3) as usize];
        self.add(name, threads, steps, choose);
        let sends = match choose(3) {
            0 => Sends::Open {
                gap: slow(duration(choose)),
            },
            1 => Sends::Every {
                period_ns: 200_000 + 10_000 * u64::from(choose(1000)),
                jitter_ppm: choose(1_000_001),
            },
            _ => Sends::Closed {
                users: 1 + choose(8),
                think: slow(duration(choose)),
            },
        };
        self.clients.push(Client {
            name: queue,
            to: vm.name.clone(),
            sends,
            request_bytes: 1024,
            reply_bytes: 1024,
            window_bytes: None,
            at_most: None,
        });
    }

    /// Steps of a task that is not a pool; its children, if it has any, become tasks too.
    fn ordinary(&mut self, name: &str, choose: &mut dyn FnMut(u32) -> u32) -> Vec<Step> {
        let compute = Step::Compute(duration(choose));
        match choose(9) {
            0 => vec![Step::Busy],
            1 => vec![compute, Step::Sleep(duration(choose))],
            2 => vec![
                Step::Timer {
                    period_ns: 100_000 * u64::from(1 + choose(100)),
                    grid: Grid::Random,
                },
                compute,
            ],
            3 => vec![compute, Step::Yield],
            4 => vec![
                compute,
                Step::SetNice(choose(40) as i32 - 20),
                Step::Sleep(duration(choose)),
            ],
            5 => vec![
                Step::SetAffinity(self.affinity(choose)),
                compute.clone(),
                Step::SetAffinity(self.affinity(choose)),
                compute,
            ],
            6 => {
                let child = format!("{name}k");
                let steps = vec![Step::Compute(duration(choose)), Step::Exit];
                self.add(&child, Some(1), steps, choose);
                vec![
                    compute,
                    Step::Fork(child),
                    Step::Sleep(slow(duration(choose))),
                ]
            }
            7 => vec![
                compute.clone(),
                compute,
                Step::Sleep(duration(choose)),
                Step::Exit,
            ],
            _ => vec![compute],
        }
    }

    fn add(
        &mut self,
        name: &str,
        threads: Option<u32>,
        steps: Vec<Step>,
        choose: &mut dyn FnMut(u32) -> u32,
    ) {
        let task = Task {
            name: name.into(),
            threads,
            nice: [0, 0, 3, -3][choose(4) as usize],
            affinity: Vec::new(),
            steps,
            ..Task::default()
        };
        self.tasks.insert(name.into(), task);
    }

    /// Mostly all CPUs; else some, at least one.
    fn affinity(&self, choose: &mut dyn FnMut(u32) -> u32) -> Vec<u32> {
        if choose(4) != 3 {
            return Vec::new();
        }
        let one = choose(self.cpus);
        (0..self.cpus)
            .filter(|cpu| *cpu == one || choose(2) == 1)
            .collect()
    }
}

/// 20 us to some milliseconds.
fn duration(choose: &mut dyn FnMut(u32) -> u32) -> Dist {
    let ns = 20_000 * u64::from(1 + choose(200));
    let mean_ns = ns as f64;
    match choose(6) {
        0 => Dist::Const(ns),
        1 => Dist::Exp { mean_ns },
        2 => Dist::Uniform {
            lo_ns: ns / 2,
            hi_ns: 2 * ns,
        },
        3 => Dist::Lognormal {
            median_ns: mean_ns,
            sigma: 0.8,
        },
        4 => Dist::Hyperexp { mean_ns, cv2: 8.0 },
        _ => Dist::Values(vec![ns, ns / 3, 0, 2 * ns]),
    }
}

/// The same at least 50 us apart on average, for things that must not come too often.
fn slow(d: Dist) -> Dist {
    match d {
        Dist::Values(mut values) => {
            values.iter_mut().for_each(|v| *v += 50_000);
            Dist::Values(values)
        }
        d if d.mean_ns() < 50_000.0 => Dist::Exp { mean_ns: 50_000.0 },
        d => d,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::placement;
    use proptest::prelude::*;

    #[test]
    fn no_choices_make_the_simplest_scenario() {
        let s = scenario("gfifo", &mut from_list(&[]));
        assert_eq!((s.host.nr_cpus(), s.vms.len(), s.clients.len()), (1, 1, 0));
        assert_eq!(s.tasks["vm0t0"].steps, [Step::Busy]);
    }

    #[test]
    fn all_kinds_of_steps_and_clients_occur() {
        let all: Vec<Scenario> = (0..300)
            .map(|seed| scenario("gfifo", &mut from_seed(seed)))
            .collect();
        let text: String = all.iter().map(|s| format!("{s:?}")).collect();
        for word in [
            "Busy",
            "Sleep",
            "Timer",
            "Receive",
            "Reply",
            "Yield",
            "SetNice",
            "SetAffinity",
            "Fork",
            "Exit",
            "Open",
            "Every",
            "Closed",
            "Exact",
            "online: true",
            "online: false",
            "stop_ns: Some",
        ] {
            assert!(text.contains(word), "no {word}");
        }
    }

    #[test]
    fn every_kind_of_step_that_a_place_can_do_is_drawn() {
        for kind in Kind::ALL {
            let s = scenario_with(kind, "gfifo", &mut from_seed(1));
            let placed = placement::threads(&s);
            assert!(placed.is_ok(), "{kind:?}: {placed:?}");
            let own = &s.vms.last().unwrap().tasks;
            let mut steps = own.iter().flat_map(|t| &s.tasks[t].steps);
            let drawn = steps.any(|step| step.kind() == kind);
            assert!(drawn, "{kind:?}");
        }
    }

    proptest! {
        #[test]
        fn every_scenario_can_be_placed(list in proptest::collection::vec(any::<u32>(), 0..150)) {
            let s = scenario("gfifo", &mut from_list(&list));
            let threads = placement::threads(&s);
            prop_assert!(threads.is_ok(), "{:?}", threads);
            prop_assert!(s.host.hotplug.windows(2).all(|w| w[0].at_ns <= w[1].at_ns));
            prop_assert!(s.host.hotplug.iter().all(|h| h.cpu > 0 && h.cpu < s.host.nr_cpus()));
        }
    }
}
