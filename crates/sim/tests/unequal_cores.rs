// SPDX-License-Identifier: GPL-2.0-only
//! Cores of several kinds under `vmfair` (work, not time, is shared; whoever waits for requests has the fast cores;
//! none of them is idle while a slower one works) and `eevdf` (Linux's capacity-aware wake-up, misfits, packing).
use berth_policy::policy::Policy;
use berth_scenario::model::{Class, CoreKind};
use berth_sim::Simulation;
use berth_sim::run::{Options, load_policy};
use berth_sim::scx::identity::VmSpec;
use berth_sim::trace::Kind;
use berth_sim::workload::api::Action;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use support::{Cast, host_of, kinds};

#[allow(dead_code, reason = "other tests look into maps")]
mod support;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Speeds of a fast, an efficient and a low-power core, parts per million.
const SPEEDS: [u32; 3] = [1_000_000, 550_000, 300_000];

fn policy(name: &str) -> &'static Policy {
    static LOADED: OnceLock<[Policy; 2]> = OnceLock::new();
    let [vmfair, eevdf] = LOADED.get_or_init(|| ["vmfair", "eevdf"].map(support::policy));
    if name == "vmfair" { vmfair } else { eevdf }
}

struct Vm {
    class: Class,
    weight: u32,
    vcpus: u32,
}

fn machine(
    (name, set): (&str, &[(&str, &str)]),
    kinds: Vec<CoreKind>,
    vms: &[Vm],
    cast: Cast,
) -> Simulation<Cast> {
    let spec = host_of(kinds);
    let vms: Vec<VmSpec> = (0..)
        .zip(vms)
        .map(|(i, vm)| VmSpec {
            name: format!("v{i}"),
            group: i,
            class: vm.class,
            weight: vm.weight,
            cap_milli: None,
            vcpus: vm.vcpus,
        })
        .collect();
    let set: BTreeMap<String, String> = set
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    let mut m = Simulation::new(&spec, &vms, cast);
    load_policy(&mut m, policy(name), &set, &vms, &Options::default()).unwrap();
    m.start();
    m
}

/// VMs of busy vCPUs with these weights.
fn hogs(weights: &[u32], vcpus: u32) -> (Vec<Vm>, Cast) {
    let mut cast = Cast::default();
    let mut vms = Vec::new();
    for (vm, weight) in (0..).zip(weights) {
        vms.push(Vm {
            class: Class::Batch,
            weight: *weight,
            vcpus,
        });
        for v in 0..vcpus {
            cast.vcpu(vm, v, 0, &[Action::ComputeForever]);
        }
    }
    (vms, cast)
}

/// Work of each VM after so long, but for what runs now.
fn work(mut m: Simulation<Cast>, vms: usize, ns: u64) -> Vec<f64> {
    m.run_until(ns).unwrap();
    m.check().unwrap();
    let k = m.kernel();
    (0..vms).map(|v| k.stats.vms[v].work_ns as f64).collect()
}

#[track_caller]
fn about(value: f64, expected: f64, within: f64) {
    let off = value / expected - 1.0;
    assert!(off.abs() <= within, "{value} is not {expected}: {off:+.4}");
}

/// Weights are of work: three VMs with more hogs than CPUs, on two fast cores, two efficient ones and a low-power one,
/// which do 3.4 CPUs' work.
#[test]
fn vms_get_work_by_weight() {
    for weights in [[100, 100, 100], [100, 200, 300]] {
        let (vms, cast) = hogs(&weights, 5);
        let m = machine(("vmfair", &[]), kinds(&[2, 2, 1], &SPEEDS), &vms, cast);
        let time = 20_000 * MS;
        let work = work(m, 3, time);
        let all = f64::from(weights.iter().sum::<u32>());
        for (work, weight) in work.iter().zip(weights) {
            about(*work, 3.4 * time as f64 * f64::from(weight) / all, 0.01);
        }
    }
}

/// Cores that differ by less than a tenth from the next are of one kind, and then nothing is done by kind: who wakes
/// stays where it was, and does not go to the fastest.
#[test]
fn favoured_cores_are_no_kind() {
    for (speeds, by_kind) in [([1_000_000, 950_000, 900_000], false), (SPEEDS, true)] {
        let (vms, mut cast) = hogs(&[100, 100], 1);
        // One that waits for requests, born on the slowest core.
        cast.scripts[0].actions = vec![
            Action::Compute { ns: 100 * US },
            Action::SleepUntil { at: MS },
        ];
        cast.scripts[0].on = 2;
        let vms: Vec<Vm> = vms
            .into_iter()
            .zip([Class::Latency, Class::Batch])
            .map(|(vm, class)| Vm { class, ..vm })
            .collect();
        let mut m = machine(("vmfair", &[]), kinds(&[1, 1, 1], &speeds), &vms, cast);
        m.run_until(100 * MS).unwrap();
        let hot = &m.kernel().tasks.hot[m.workload.ids[0] as usize];
        assert_eq!(hot.cpu == 0, by_kind, "{speeds:?}: CPU {}", hot.cpu);
    }
}

/// A small generator of numbers (SplitMix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// On random hosts with random VMs, at no instant, but for what it takes to move a thread: a core is idle while a
/// slower one works; a latency VM's thread, within its share, runs on a slower core while a faster one runs batch.
#[test]
fn fast_cores_work_first_and_are_for_those_who_wait_for_requests() {
    for seed in 0..300u64 {
        let mut state = seed;
        let mut below = |n: u64| random(&mut state) % n;
        let cores = [1 + below(4), below(5), 1 + below(3)].map(|n| n as u32);
        let of_cpu: Vec<usize> = (0..3)
            .flat_map(|kind| vec![kind; cores[kind] as usize])
            .collect();
        let mut cast = Cast::default();
        let mut vms = Vec::new();
        for vm in 0..1 + below(5) as u32 {
            let class = [Class::Latency, Class::Batch][below(2) as usize];
            let vcpus = 1 + below(4) as u32;
            vms.push(Vm {
                class,
                weight: 100,
                vcpus,
            });
            for v in 0..vcpus {
                let busy = class == Class::Batch && below(2) == 0;
                let actions = match (busy, class) {
                    (true, _) => vec![Action::ComputeForever],
                    (_, Class::Batch) => vec![
                        Action::Compute {
                            ns: 50 * US + below(20 * MS),
                        },
                        Action::SleepUntil {
                            at: 100 * US + below(30 * MS),
                        },
                    ],
                    _ => vec![
                        Action::Compute {
                            ns: 50 * US + below(500 * US),
                        },
                        Action::SleepUntil {
                            at: 5 * MS + below(10 * MS),
                        },
                    ],
                };
                cast.vcpu(vm, v, below(50 * MS), &actions);
            }
        }
        let latency: Vec<bool> = vms
            .iter()
            .flat_map(|vm| vec![vm.class == Class::Latency; vm.vcpus as usize])
            .collect();
        let mut m = machine(("vmfair", &[]), kinds(&cores, &SPEEDS), &vms, cast);
        m.run_until(100 * MS).unwrap();
        let ids = m.workload.ids.clone();
        let thread = |task: u32| ids.iter().position(|id| *id == task);
        let mut on: Vec<Option<usize>> = m.kernel().cpus.iter().map(|c| thread(c.curr)).collect();
        m.record();
        m.run_until(1_500 * MS).unwrap();
        m.check().unwrap();
        let mut bad_since = None;
        for e in m.trace().iter().filter(|e| e.kind == Kind::Switch) {
            if let Some((since, what)) = bad_since {
                let ns = e.at_ns - since;
                assert!(
                    ns <= 10 * US,
                    "seed {seed}: {what} for {ns} ns at {} ({cores:?})",
                    e.at_ns
                );
            }
            on[e.cpu as usize] = thread(e.task);
            let what = wrong(&of_cpu, &on, &latency);
            bad_since = match (what, bad_since) {
                (Some(_), Some(since)) => Some(since),
                (Some(what), None) => Some((e.at_ns, what)),
                (None, _) => None,
            };
        }
    }
}

/// What is wrong with who is on which CPU?
fn wrong(of_cpu: &[usize], on: &[Option<usize>], latency: &[bool]) -> Option<&'static str> {
    for (fast, on_fast) in of_cpu.iter().zip(on) {
        let slower = of_cpu.iter().zip(on).filter(|(kind, _)| *kind > fast);
        for on_slow in slower.filter_map(|(_, on)| *on) {
            match on_fast {
                None => return Some("a core is idle and a slower one works"),
                Some(t) if !latency[*t] && latency[on_slow] => {
                    return Some("batch runs on a faster core than latency");
                }
                Some(_) => (),
            }
        }
    }
    None
}

/// A thread on a slow core with a fast one idle, under `eevdf`: `share` of 10 ms computing on the fast core's account,
/// then asleep. On which CPU is it after a second? CPU 0 is slow.
fn settles_on(share: f64, unequal: &str) -> u32 {
    let mut cast = Cast::default();
    let actions = if share < 1.0 {
        let ns = (10e6 * share) as u64;
        let asleep = 10 * MS - (ns as f64 / 0.55) as u64;
        vec![Action::Compute { ns }, Action::SleepUntil { at: asleep }]
    } else {
        vec![Action::ComputeForever]
    };
    cast.vcpu(0, 0, 0, &actions);
    let vms = [Vm {
        class: Class::Batch,
        weight: 100,
        vcpus: 1,
    }];
    let kinds = kinds(&[1, 1], &[550_000, 1_000_000]);
    let mut m = machine(("eevdf", &[("unequal", unequal)]), kinds, &vms, cast);
    m.run_until(1_000 * MS).unwrap();
    m.check().unwrap();
    m.kernel().tasks.hot[m.workload.ids[0] as usize].cpu
}

/// Linux: a thread fits a CPU if it uses less than 80 % of it: 44 % of the fast core for one of 55 %. Its use is a mean
/// that is highest when it falls asleep, here by a fourteenth or less.
#[test]
fn a_thread_that_does_not_fit_goes_to_a_fast_core() {
    assert_eq!(settles_on(0.35, "capacity"), 0);
    assert_eq!(settles_on(0.48, "capacity"), 1);
    assert_eq!(settles_on(1.0, "capacity"), 1);
    assert_eq!(settles_on(1.0, "none"), 0);
    // By priority the idle fast core takes whatever runs.
    assert_eq!(settles_on(0.35, "packing"), 1);
    assert_eq!(settles_on(1.0, "packing"), 1);
}
