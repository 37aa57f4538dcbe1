// SPDX-License-Identifier: GPL-2.0-only
//! Request by request, the machine gives the response times that independent recursions give.
use berth_scenario::model::{Dist, Hz};
use berth_sim::machine::Shape;
use berth_sim::oracle::{load, reference};
use berth_sim::{Machine, MachineSpec};

/// Without a policy the kernel model has one global queue and slices of 20 ms.
const SLICE_NS: u64 = 20_000_000;

fn without_policy(cpus: u32, requests: &[reference::Request]) -> Vec<u64> {
    let spec = MachineSpec {
        hz: Hz::Exact,
        ..MachineSpec::new(Shape::flat(cpus))
    };
    let mut machine = Machine::new(&spec, &[], load::Open::new(requests.to_vec()));
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
