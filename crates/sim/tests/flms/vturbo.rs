// SPDX-License-Identifier: GPL-2.0-only
//! `vturbo`, the reconstruction of vTurbo: its invariants. The turbo CPU is the last one.
use crate::support::Cast;
use crate::world::{
    BUSY, IO_KIND, MS, assert_near, hogs, longest_gap, measured, napper, naps, on, peek, runtime,
    vm,
};
use berth_scenario::model::Class;
use berth_sim::Simulation;
use berth_sim::machine::Shape;
use berth_sim::workload::api::Action;

/// VMs of these numbers of vCPUs, of which the last so many are turbo vCPUs.
#[derive(Default)]
struct Host {
    cast: Cast,
    vcpus: Vec<u32>,
}

impl Host {
    fn vm(&mut self, regular: &[&[Action]], turbo: &[&[Action]]) {
        let of = self.vcpus.len() as u32;
        for (i, actions) in regular.iter().chain(turbo).enumerate() {
            self.cast.vcpu(of, i as u32, 0, actions);
            let thread = self.cast.scripts.last_mut().unwrap();
            thread.spec.io = i >= regular.len();
        }
        self.vcpus.push((regular.len() + turbo.len()) as u32);
    }

    fn on(self, cpus: u32) -> Box<Simulation<Cast>> {
        self.with(cpus, &[])
    }

    fn with(self, cpus: u32, set: &[(&str, &str)]) -> Box<Simulation<Cast>> {
        let weights = vec![100; self.vcpus.len()];
        self.weighed(cpus, &weights, set)
    }

    fn weighed(self, cpus: u32, weights: &[u32], set: &[(&str, &str)]) -> Box<Simulation<Cast>> {
        let vms = self.vcpus.iter().zip(weights).enumerate();
        let vms: Vec<_> = vms
            .map(|(i, (n, weight))| vm(i as u32, Class::Mixed, *weight, *n))
            .collect();
        on("vturbo", Shape::flat(cpus), &vms, self.cast, set)
    }
}

/// Invariant 1.
#[test]
fn turbo_vcpus_take_turns_of_a_tenth_of_a_millisecond() {
    let mut host = Host::default();
    for _ in 0..4 {
        host.vm(&[&BUSY], &[&BUSY]);
    }
    let mut m = host.on(2);
    m.run_until(20 * MS).unwrap();
    let first = peek(&mut m, |p| {
        let all = 1..p.var("vcpus_used") as u32;
        let turbo = all.filter(|v| p.vcpu(*v, "kind") == IO_KIND);
        turbo.collect::<Vec<_>>()
    });
    assert_eq!(first.len(), 4);
    let longest = longest_gap(&mut m, 1, first[0], 100 * MS, 200 * MS, 10_000);
    assert!((280_000..=320_000).contains(&longest), "{longest} ns");
    m.check().unwrap();
}

/// Invariants 3 and 5: each on its own CPUs, and the turbo CPU is lost where there is no I/O.
#[test]
fn each_stays_on_its_cpus() {
    let mut host = Host::default();
    for i in 0..4 {
        host.vm(&[&BUSY, &naps(3 * MS, (4 + i) * MS)], &[&naps(200_000, MS)]);
    }
    let mut m = host.on(3);
    for at in (1..5_000).map(|n| n * 100_000) {
        m.run_until(at).unwrap();
        let kinds = peek(&mut m, |p| {
            [0, 1, 2].map(|cpu| (p.curr(cpu), p.vcpu(p.curr(cpu), "kind")))
        });
        for (cpu, (runs, kind)) in kinds.iter().enumerate() {
            assert!(
                at < MS || *runs == 0 || (*kind == IO_KIND) == (cpu == 2),
                "CPU {cpu} at {at}"
            );
        }
    }
    m.check().unwrap();
    let m = measured("vturbo", &[], "2s", &hogs("cores = 4", &[100; 6]));
    let all: f64 = (0..6).map(|i| m[&format!("v{i}.cpu")]).sum();
    assert_near(all, 3.0, 0.001, "CPUs used of four");
}

/// Invariant 2: what an interrupt takes does not depend on the hogs.
#[test]
fn interrupts_do_not_wait_for_hogs() {
    let served = |hogs: usize| {
        let mut host = Host::default();
        host.vm(&[], &[&naps(20_000, 980_000)]);
        for _ in 0..hogs {
            host.vm(&[&BUSY], &[]);
        }
        let mut m = host.on(2);
        m.run_until(2_000 * MS).unwrap();
        runtime(&m, 0)
    };
    assert_eq!(served(0), served(6));
    assert_eq!(served(6), 40 * MS);
}

/// Invariant 4: 2 : 1 of the turbo CPU is made good on the regular one.
#[test]
fn turbo_time_is_charged() {
    let mut host = Host::default();
    host.vm(&[&BUSY], &[&BUSY, &BUSY]);
    host.vm(&[&BUSY], &[&BUSY]);
    let mut m = host.on(2);
    m.run_until(1_000 * MS).unwrap();
    let of = |m: &Simulation<Cast>, threads: &[usize]| {
        threads.iter().map(|t| runtime(m, *t)).sum::<u64>() as f64
    };
    let (a, b) = (of(&m, &[0, 1, 2]), of(&m, &[3, 4]));
    m.run_until(11_000 * MS).unwrap();
    let (a, b) = (of(&m, &[0, 1, 2]) - a, of(&m, &[3, 4]) - b);
    assert_near(a / 10e9, 1.0, 0.02, "the VM with two turbo vCPUs");
    assert_near(b / 10e9, 1.0, 0.02, "the VM with one");
    m.check().unwrap();
}

/// A VM with a turbo vCPU, and requests in a loop: they are served there, whatever computes beside them.
#[test]
fn requests_are_served_by_turbo_vcpus() {
    let text = format!(
        "{}[vm.web]\nturbo_vcpus = 1\nclass = \"latency\"\ntasks = [\"hog\", \"echo\"]\n[task.echo]\n\
         model = \"echo\"\ncompute = \"50us\"\n[client.c]\nto = \"web\"\nsends = \"every 10ms\"\n",
        hogs("cores = 2", &[100; 3])
    );
    let m = measured("vturbo", &[], "2s", &text);
    assert_near(m["web.response.mean"], 50_000.0, 1.0, "mean, ns");
    assert_near(m["web.response.max"], 50_000.0, 1.0, "longest, ns");
    let all: f64 = ["v0", "v1", "v2", "web"]
        .map(|vm| m[&format!("{vm}.cpu")])
        .iter()
        .sum();
    assert_near(
        all,
        1.005,
        0.001,
        "CPUs used: one, and what requests take of the other",
    );
}

const THROTTLED: [(&str, &str); 1] = [("throttle_turbo", "1")];

/// Fairness: six turbo vCPUs of eight would have 3/4 of the turbo CPU, which is more than the third of two CPUs that
/// their VM has earned, and more than its only regular vCPU can pay for.
#[test]
fn a_throttled_vm_has_its_share_and_no_more() {
    // A vCPU weighs as much as any other one, so that the regular ones earn the same.
    let weights = [350, 100, 100];
    let shares = |set: &[(&str, &str)]| {
        let mut host = Host::default();
        host.vm(&[&BUSY], &[&BUSY[..]; 6]);
        host.vm(&[&BUSY], &[&BUSY]);
        host.vm(&[&BUSY], &[&BUSY]);
        let mut m = host.weighed(2, &weights, set);
        let of = |m: &Simulation<Cast>| {
            let sum = |threads: std::ops::Range<usize>| threads.map(|t| runtime(m, t)).sum::<u64>();
            [sum(0..7), sum(7..9), sum(9..11)]
        };
        m.run_until(1_000 * MS).unwrap();
        let before = of(&m);
        m.run_until(11_000 * MS).unwrap();
        m.check().unwrap();
        let after = of(&m);
        [0, 1, 2].map(|vm| (after[vm] - before[vm]) as f64 / 10e9)
    };
    for (vm, share) in shares(&THROTTLED).into_iter().enumerate() {
        assert_near(share, 2.0 / 3.0, 0.02, &format!("CPUs of VM {vm}"));
    }
    let [heavy, ..] = shares(&[]);
    assert_near(heavy, 0.75, 0.001, "CPUs, served all the same");
}

/// A VM whose credit is gone: one period of 30 ms, which it owes, is more than it earns in seconds. Its turbo vCPU has
/// what the other VM's leaves: half of each millisecond, or nothing.
#[test]
fn a_throttled_turbo_vcpu_has_what_others_leave() {
    for (leaves, set, has) in [
        (0, &THROTTLED[..], 0.0),
        (0, &[], 1_000.0),
        (1, &THROTTLED, 1_000.0),
    ] {
        let mut host = Host::default();
        let half = naps(MS / 2, 470_000);
        host.vm(
            &[&BUSY[..]; 3],
            &[if leaves > 0 { &half[..] } else { &BUSY }],
        );
        host.vm(&[&BUSY], &[&BUSY]);
        let mut m = host.weighed(2, &[10_000, 1], set);
        m.run_until(1_000 * MS).unwrap();
        let (mut turbo, mut regular) = (runtime(&m, 5), runtime(&m, 4));
        m.run_until(3_000 * MS).unwrap();
        turbo = runtime(&m, 5) - turbo;
        regular = runtime(&m, 4) - regular;
        m.check().unwrap();
        assert_eq!(regular, 0, "it is OVER");
        // Who wakes there waits for the end of a turn of 0.1 ms, 50 us on average.
        assert_near(
            turbo as f64 / 1e6,
            has,
            100.0,
            &format!("ms, {leaves} {set:?}"),
        );
    }
}

/// Where requests are answered is the scenario's to say: on the turbo vCPU, or after it has taken the interrupt on a
/// regular vCPU, which waits there for another one that has woken, too.
#[test]
fn requests_may_be_handed_to_a_regular_vcpu() {
    let mean = |affinity: &str| {
        let text = format!(
            "{}{}[vm.web]\nvcpus = 2\nclass = \"mixed\"\nreserved_vcpus = 1\ntasks = [\"echo\"]\n[task.echo]\n\
             model = \"echo\"\nthreads = 1\ncompute = \"50us\"\n{affinity}[client.c]\nto = \"web\"\n\
             sends = \"every 10ms\"\n",
            hogs("cores = 2", &[100]),
            napper("other", "batch", "7ms", "3ms")
        );
        measured("vturbo", &[], "2s", &text)["web.response.mean"]
    };
    assert_near(mean(""), 50_000.0, 1.0, "on the turbo vCPU, ns");
    let handed = mean("affinity = \"0\"\n");
    assert!(handed > 200_000.0, "handed on: {handed} ns");
}
