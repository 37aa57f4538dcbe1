// SPDX-License-Identifier: GPL-2.0-only
//! Request by request, the machine gives the response times that independent recursions give.
use berth_scenario::dist::{Arrivals, Rng, Stream};
use berth_scenario::model::{Client, Dist, Hz, Scenario, Sends, Step};
use berth_sim::machine::Shape;
use berth_sim::oracle::{load, random, reference};
use berth_sim::workload::scenario::ScenarioWorkload;
use berth_sim::{MachineSpec, Simulation};

/// Without a policy the kernel model has one global queue and slices of 20 ms.
const SLICE_NS: u64 = 20_000_000;

fn without_policy(cpus: u32, requests: &[reference::Request]) -> Vec<u64> {
    let spec = MachineSpec {
        hz: Hz::Exact,
        ..MachineSpec::new(Shape::flat(cpus))
    };
    let mut machine = Simulation::new(&spec, &[], load::Open::new(requests.to_vec()));
    machine.load(Default::default());
    machine.start();
    let last = requests.last().map_or(0, |r| r.arrival);
    machine.run_until(last + 60_000_000_000).unwrap();
    machine.check().unwrap();
    machine.workload.responses().to_vec()
}

fn services(mean_ns: f64) -> [Dist; 3] {
    [
        Dist::Const(mean_ns as u64),
        Dist::Exp { mean_ns },
        Dist::Hyperexp { mean_ns, cv2: 10.0 },
    ]
}

#[test]
fn one_cpu_is_round_robin_to_the_nanosecond() {
    for service in services(60e6) {
        for seed in 1..=3 {
            let requests = load::poisson(seed, 5_000, 80e6, &service);
            let got = without_policy(1, &requests);
            assert_eq!(
                got,
                reference::round_robin(SLICE_NS, &requests),
                "{service:?}, seed {seed}"
            );
        }
    }
}

#[test]
fn many_cpus_are_first_come_first_served_to_the_nanosecond() {
    for service in [
        Dist::Const(19_000_000),
        Dist::Uniform {
            lo_ns: 1,
            hi_ns: 19_999_999,
        },
    ] {
        for cpus in [1, 2, 8] {
            let gap = service.mean_ns() / (0.85 * f64::from(cpus));
            let requests = load::poisson(u64::from(cpus), 20_000, gap, &service);
            let got = without_policy(cpus, &requests);
            assert_eq!(
                got,
                reference::fcfs(cpus as usize, &requests),
                "{service:?}, {cpus} CPUs"
            );
        }
    }
}

/// A VM of `vcpus` vCPUs on as many CPUs, whose pool serves one client; ticks, because nobody is preempted.
fn served(vcpus: u32, service: &Dist, sends: Sends) -> Scenario {
    let mut s = random::scenario("none", &mut random::from_list(&[]));
    s.host.cores = vcpus;
    s.vms[0].vcpus = vcpus;
    let task = s.tasks.values_mut().next().unwrap();
    task.threads = None;
    task.steps = vec![
        Step::Receive("users".into()),
        Step::Compute(service.clone()),
        Step::Reply,
    ];
    s.clients = vec![Client {
        name: "users".into(),
        to: s.vms[0].name.clone(),
        sends,
        request_bytes: 1,
        reply_bytes: 1,
        window_bytes: None,
        at_most: None,
    }];
    s
}

/// Response times in the order of the replies.
fn run(scenario: &Scenario, seed: u64, end: u64) -> Vec<u64> {
    let mut work = ScenarioWorkload::new(scenario, seed).unwrap();
    work.record_responses();
    let spec = MachineSpec::new(Shape::flat(scenario.host.nr_cpus()));
    let vms = berth_sim::run::vm_specs(scenario);
    let mut machine = Simulation::new(&spec, &vms, work);
    machine.load(Default::default());
    machine.start();
    machine.run_until(end).unwrap();
    machine.check().unwrap();
    machine.workload.responses().to_vec()
}

/// The scenario's clients, queues and pools: one vCPU is Lindley's recursion, with the very random numbers that the
/// load generator on a real kernel would draw.
#[test]
fn a_vm_of_one_vcpu_is_a_queue_with_one_server() {
    let sends = Sends::Open {
        gap: Dist::Exp { mean_ns: 1.25e6 },
    };
    for service in services(1e6) {
        for seed in 1..=3 {
            let mut services = Rng::new(seed, Stream::Thread(0));
            let requests: Vec<_> = Arrivals::new(&sends, seed, 0, 0)
                .unwrap()
                .take(4_000)
                .enumerate()
                .map(|(i, arrival)| reference::Request {
                    arrival,
                    service: service.sample(&mut services, i as u64),
                })
                .collect();
            let got = run(
                &served(1, &service, sends.clone()),
                seed,
                requests[3_999].arrival,
            );
            let want = reference::fcfs(1, &requests);
            assert!(got.len() > 3_500, "{} requests done", got.len());
            assert_eq!(got, want[..got.len()], "{service:?}, seed {seed}");
        }
    }
}

/// Several vCPUs: constant service times leave no doubt about who serves whom.
#[test]
fn a_vm_of_many_vcpus_is_a_queue_with_many_servers() {
    let service = Dist::Const(1_000_000);
    for vcpus in [2, 5] {
        let sends = Sends::Open {
            gap: Dist::Exp {
                mean_ns: 1.1e6 / f64::from(vcpus),
            },
        };
        let requests: Vec<_> = Arrivals::new(&sends, 7, 0, 0)
            .unwrap()
            .take(4_000)
            .map(|arrival| reference::Request {
                arrival,
                service: 1_000_000,
            })
            .collect();
        let got = run(&served(vcpus, &service, sends), 7, requests[3_999].arrival);
        let want = reference::fcfs(vcpus as usize, &requests);
        assert!(got.len() > 3_500, "{} requests done", got.len());
        assert_eq!(got, want[..got.len()], "{vcpus} vCPUs");
    }
}

/// A closed loop: one user is never delayed; with more users than vCPUs, somebody always is.
#[test]
fn users_wait_for_their_answers() {
    let service = Dist::Const(300_000);
    let closed = |users| Sends::Closed {
        users,
        think: Dist::Const(0),
    };
    let alone = run(&served(1, &service, closed(1)), 1, 30_000_000);
    assert_eq!(alone, vec![300_000; 100]);
    let four = run(&served(1, &service, closed(4)), 1, 30_000_000);
    assert_eq!(four[..4], [300_000, 600_000, 900_000, 1_200_000]);
    assert!(four[4..].iter().all(|r| *r == 1_200_000), "{four:?}");
}

/// A VM that stops takes its requests with it; no invariant is offended, and nothing is answered any more.
#[test]
fn a_stopped_vm_answers_nothing() {
    let sends = Sends::Open {
        gap: Dist::Const(200_000),
    };
    let mut s = served(1, &Dist::Const(300_000), sends);
    s.vms[0].stop_ns = Some(10_000_000);
    // The first request comes after 200 us.
    assert_eq!(run(&s, 1, 50_000_000).len(), 32);
}
