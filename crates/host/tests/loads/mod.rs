// SPDX-License-Identifier: GPL-2.0-only
//! Loads of VMs, generated: what the host's counters would show of guests whose work is known.
//!
//! Each vCPU is a queue that serves what its tasks bring: open-loop requests (timers, packets, also in bursts),
//! closed-loop bursts (build jobs, batch with IO), duty cycles, hogs, and the housekeeping of a guest's kernel. Bursts,
//! wake-ups and packets come out of the queue; nothing about them is drawn. Other VMs take a part of the CPU that
//! changes all the time. Between latency and batch the ranges leave a gap (a background job of a few per cent of a CPU,
//! requests of 5 ms): there is no truth to be right about. Nor is there where others take so much that requests queue
//! up: such a vCPU never sleeps.
use berth_host::class::{Bursts, Class, VcpuSample, VmSample};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which set: other seeds, and all but the first wider and shifted in every range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    Training,
    /// Looked at while the classifier was made.
    HeldOut,
    /// Seeds that were written down after the classifier was done, and run once ([`JUDGES`]).
    Judges,
}

/// Where the seeds of [`Set::Judges`] come from: the letters "Berth" and a 22, for issue 22, which brought capped and
/// starved loads. Written down, and committed, before any load of theirs was ever run; not to be changed.
pub const JUDGES: u64 = 0x42_65_72_74_68_16;

/// A small generator of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In (0, 1).
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Every factor between the two is as likely.
    pub fn scale(&mut self, low: f64, high: f64) -> f64 {
        self.uniform(low.ln(), high.ln()).exp()
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Log-normal of this mean.
    fn around(&mut self, mean: f64, sigma: f64) -> f64 {
        mean * (sigma * self.normal() - sigma * sigma / 2.0).exp()
    }
}

/// What runs on a vCPU. Times in seconds.
#[derive(Clone, Debug)]
pub enum Task {
    /// Never sleeps.
    Hog,
    /// Requests at a rate, `service` long on average, spread by `sigma`; `packets` if they come through vhost.
    /// With `on_off`, only in bursts of about this length, with pauses as long.
    Serve {
        rate: f64,
        service: f64,
        sigma: f64,
        packets: bool,
        on_off: Option<f64>,
    },
    /// Runs, sleeps, runs.
    Bursts { burst: f64, sleep: f64, sigma: f64 },
}

/// A VM whose work is known.
#[derive(Clone, Debug)]
pub struct Load {
    pub kind: &'static str,
    pub truth: Class,
    pub vcpus: Vec<Vec<Task>>,
    /// How long KVM polls for a wake-up at a halt, in seconds.
    poll: f64,
    /// Part of its demand that others take, on average.
    steal: f64,
    /// CPU time that each vCPU may use in each [`PERIOD`], in seconds; none: no cap.
    quota: Option<f64>,
    /// vhost's wake-ups per request: less than two where packets are coalesced.
    coalesced: f64,
    seed: u64,
}

/// Work that arrives at a vCPU, by time in nanoseconds, then by task.
type Arrival = Reverse<(u64, usize)>;

#[derive(Clone, Copy, Default)]
struct Second {
    run: f64,
    wait: f64,
    wakeups: u64,
    halts: u64,
    packets: f64,
    bursts: Bursts,
}

const NS: f64 = 1e9;
/// Periods of caps in a second, as Linux's `cpu.max` has them.
const PERIODS: usize = 10;
const PERIOD: f64 = 1.0 / PERIODS as f64;

impl Load {
    /// What the host sees of it, second by second.
    pub fn samples(&self, seconds: usize) -> Vec<VmSample> {
        let mut random = Random::new(self.seed ^ 0xabcd);
        let mut level = self.steal;
        // The load of others wanders; what they leave changes by a quarter up and down.
        let steal: Vec<f64> = (0..seconds)
            .map(|_| {
                level += 0.2 * (self.steal - level) + 0.08 * (1.0 - self.steal) * random.normal();
                level.clamp(0.0, self.steal.max(0.9))
            })
            .collect();
        let per_vcpu: Vec<Vec<Second>> = self
            .vcpus
            .iter()
            .map(|tasks| self.one(tasks, &steal, &mut random))
            .collect();
        let has_vhost = self
            .vcpus
            .iter()
            .flatten()
            .any(|t| matches!(t, Task::Serve { packets: true, .. }));
        (0..seconds)
            .map(|s| {
                let sum =
                    |f: &dyn Fn(&Second) -> f64| -> f64 { per_vcpu.iter().map(|v| f(&v[s])).sum() };
                VmSample {
                    seconds: 1.0,
                    vcpus: per_vcpu
                        .iter()
                        .enumerate()
                        .map(|(i, v)| VcpuSample {
                            index: i as u32,
                            run_ns: (v[s].run * NS) as u64,
                            wait_ns: (v[s].wait * NS) as u64,
                            wakeups: v[s].wakeups,
                            bursts: Some(v[s].bursts),
                        })
                        .collect(),
                    packets: has_vhost.then(|| (sum(&|v| v.packets) * self.coalesced) as u64),
                    halts: Some(sum(&|v| v.halts as f64) as u64),
                }
            })
            .collect()
    }

    fn one(&self, tasks: &[Task], steal: &[f64], random: &mut Random) -> Vec<Second> {
        let mut out = vec![Second::default(); steal.len()];
        let end = steal.len() as f64;
        let mut heap: BinaryHeap<Arrival> = BinaryHeap::new();
        // On until this time, then off until the next.
        let mut on: Vec<(f64, f64)> = vec![(f64::INFINITY, 0.0); tasks.len()];
        for (i, task) in tasks.iter().enumerate() {
            if let Task::Serve {
                on_off: Some(length),
                ..
            } = task
            {
                on[i] = (random.exponential(*length), 0.0);
            }
            let first = match task {
                Task::Hog => 0.0,
                Task::Serve { rate, .. } => random.exponential(1.0 / rate),
                Task::Bursts { sleep, burst, .. } => random.uniform(0.0, sleep + burst),
            };
            heap.push(Reverse(((first * NS) as u64, i)));
        }
        let mut free = -1.0f64;
        let mut burst = 0.0f64;
        // The period in which it ran last, and for how long there.
        let mut spent = (0, 0.0);
        while let Some(Reverse((at, i))) = heap.pop() {
            let at = at as f64 / NS;
            if at >= end {
                break;
            }
            let second = &mut out[at as usize];
            if at > free {
                second.halts += 1;
                if at - free > self.poll {
                    second.wakeups += 1;
                } else {
                    // Polled all the while.
                    second.run += at - free;
                    burst += at - free;
                }
                second.bursts.add((burst * NS) as u64);
                burst = 0.0;
            }
            let start = free.max(at);
            let mut does = |work: f64| {
                burst += work;
                self.work(start, work, steal, &mut spent, &mut out)
            };
            match &tasks[i] {
                Task::Hog => free = does(f64::INFINITY),
                Task::Serve {
                    rate,
                    service,
                    sigma,
                    packets,
                    on_off,
                } => {
                    free = does(random.around(*service, *sigma));
                    out[at as usize].packets += f64::from(u8::from(*packets));
                    let mut next = at + random.exponential(1.0 / rate);
                    if let Some(length) = on_off {
                        while next > on[i].0 {
                            let pause = random.exponential(*length);
                            next += pause;
                            on[i].0 += pause + random.exponential(*length);
                        }
                    }
                    heap.push(Reverse(((next * NS) as u64, i)));
                }
                Task::Bursts {
                    burst: length,
                    sleep,
                    sigma,
                } => {
                    free = does(random.around(*length, *sigma));
                    let next = free + random.around(*sleep, *sigma);
                    if next < end {
                        heap.push(Reverse(((next * NS) as u64, i)));
                    }
                }
            }
            free = free.min(end * 2.0);
        }
        out
    }

    /// Runs `work` from `at`, as fast as others and the cap let it; gives the end.
    fn work(
        &self,
        mut at: f64,
        mut work: f64,
        steal: &[f64],
        spent: &mut (usize, f64),
        out: &mut [Second],
    ) -> f64 {
        if let Some(quota) = self.quota {
            return capped(quota, at, work, steal, spent, out);
        }
        while work > 0.0 {
            let Some(taken) = steal.get(at as usize) else {
                return at + work;
            };
            let second = at as usize;
            let rest = (second + 1) as f64 - at;
            let run = (rest * (1.0 - taken)).min(work);
            let wall = run / (1.0 - taken);
            out[second].run += run;
            out[second].wait += wall - run;
            work -= run;
            at = if run >= work + run {
                at + wall
            } else {
                (second + 1) as f64
            };
        }
        at
    }
}

/// The same with a quota for each period.
fn capped(
    quota: f64,
    mut at: f64,
    mut work: f64,
    steal: &[f64],
    spent: &mut (usize, f64),
    out: &mut [Second],
) -> f64 {
    const NOTHING: f64 = 1e-9;
    let mut period = (at / PERIOD) as usize;
    while work > NOTHING {
        let Some(taken) = steal.get(period / PERIODS) else {
            return at + work;
        };
        if spent.0 != period {
            *spent = (period, 0.0);
        }
        let rest = ((period + 1) as f64 * PERIOD - at).max(0.0);
        let run = (rest * (1.0 - taken)).min(work).min(quota - spent.1);
        let done = run >= work;
        let wall = match done {
            true => run / (1.0 - taken),
            // Till the next period: of others' doing, or throttled.
            false => rest,
        };
        let second = &mut out[period / PERIODS];
        second.run += run;
        second.wait += wall - run;
        spent.1 += run;
        work -= run;
        at += wall;
        if done {
            return at;
        }
        period += 1;
    }
    at
}

/// So many loads of a set, all kinds in turn.
pub fn loads(set: Set, count: usize) -> Vec<Load> {
    let mut judges = Random::new(JUDGES);
    let mut seed = |i: usize| match set {
        Set::Judges => judges.next() >> 1,
        _ => i as u64,
    };
    (0..count).map(|i| load(set, i % KINDS, seed(i))).collect()
}

pub const KINDS: usize = 23;

const CAPPED: usize = 16;
const STARVED: usize = 17;
const CAPPED_DUTY: usize = 18;
const STARVED_IO: usize = 19;
const CAPPED_WEB: usize = 20;
const OVERLOADED_WEB: usize = 21;
const OVERLOADED_MIX: usize = 22;

/// A load of one kind.
pub fn load(set: Set, kind: usize, seed: u64) -> Load {
    let held = set != Set::Training;
    let seed = seed + if set == Set::HeldOut { 1 << 33 } else { 0 };
    let mut r = Random::new(seed);
    let r = &mut r;
    // A range, made wider for what nothing was fitted on.
    let wide = if held { 1.4 } else { 1.0 };
    let vcpus = 1 + r.below(if held { 8 } else { 6 });
    let steal = match (r.unit() < 0.3, kind) {
        // A host with several times more work than CPUs.
        (_, STARVED | STARVED_IO) => r.uniform(0.75, if held { 0.98 } else { 0.95 }),
        (_, OVERLOADED_WEB | OVERLOADED_MIX) => r.uniform(0.6, if held { 0.9 } else { 0.85 }),
        (true, _) => 0.0,
        (false, _) => r.uniform(0.0, if held { 0.7 } else { 0.6 }),
    };
    let house = |r: &mut Random| Task::Serve {
        rate: r.scale(1.0, 15.0 * wide),
        service: r.scale(20e-6, 200e-6),
        sigma: 1.0,
        packets: false,
        on_off: None,
    };
    let hog = |_: &mut Random| vec![Task::Hog];
    // Requests, at most so busy: of what others leave, or they would queue up without end.
    let serve = |r: &mut Random, rate: (f64, f64), service: (f64, f64), busy: f64| {
        let service = r.scale(service.0 / wide, service.1 * wide);
        let rate = r
            .scale(rate.0 / wide, rate.1 * wide)
            .min(busy * (1.0 - steal) / service);
        (rate, service)
    };
    let web = |r: &mut Random, on_off: Option<f64>, sigma: f64| {
        let (rate, service) = serve(
            r,
            (60.0, 2000.0),
            (60e-6, 1.2e-3),
            if held { 0.65 } else { 0.6 },
        );
        Task::Serve {
            rate,
            service,
            sigma,
            packets: true,
            on_off,
        }
    };
    let echo = |r: &mut Random, packets: bool| {
        let (rate, service) = serve(r, (80.0, 1000.0), (15e-6, 150e-6), 0.5);
        Task::Serve {
            rate,
            service,
            sigma: 0.3,
            packets,
            on_off: None,
        }
    };
    let lookbusy = |r: &mut Random| {
        let period = r.scale(0.05 / wide, 1.0 * wide);
        let busy = r.uniform(0.3, 0.9);
        Task::Bursts {
            burst: period * busy,
            sleep: period * (1.0 - busy),
            sigma: 0.1,
        }
    };
    let each = |r: &mut Random, n: usize, f: &dyn Fn(&mut Random) -> Vec<Task>| -> Vec<Vec<Task>> {
        (0..n).map(|_| f(r)).collect()
    };
    let with_io = |r: &mut Random| Task::Bursts {
        burst: r.scale(0.02 / wide, 0.4 * wide),
        sleep: r.scale(0.001 / wide, 0.05 * wide),
        sigma: 0.8,
    };
    let mut quota = None;
    let (name, truth, vcpus) = match kind % KINDS {
        0 => (
            "hogs",
            Class::Batch,
            each(r, vcpus, &|r| vec![Task::Hog, house(r)]),
        ),
        1 => {
            // Not all vCPUs are busy.
            let mut v = each(r, 1 + vcpus / 2, &hog);
            v.extend(each(r, vcpus, &|r| vec![house(r)]));
            ("some hogs", Class::Batch, v)
        }
        2 => (
            "duty cycle",
            Class::Batch,
            each(r, vcpus, &|r| vec![lookbusy(r), house(r)]),
        ),
        3 => {
            let f = |r: &mut Random| vec![with_io(r), house(r)];
            ("batch with IO", Class::Batch, each(r, vcpus, &f))
        }
        4 => {
            let f = |r: &mut Random| {
                let job = |r: &mut Random| Task::Bursts {
                    burst: r.scale(0.008, 0.06 * wide),
                    sleep: r.scale(0.001, 0.02),
                    sigma: 0.6,
                };
                vec![job(r), job(r), house(r)]
            };
            ("build", Class::Batch, each(r, vcpus, &f))
        }
        5 => (
            "web",
            Class::Latency,
            each(r, vcpus, &|r| vec![web(r, None, 0.7), house(r)]),
        ),
        6 => (
            "echo by interrupts",
            Class::Latency,
            each(r, vcpus, &|r| vec![echo(r, true)]),
        ),
        7 => (
            "timers",
            Class::Latency,
            each(r, vcpus, &|r| vec![echo(r, false), house(r)]),
        ),
        8 => {
            let length = r.scale(0.5 / wide, 10.0 * wide);
            (
                "bursty web",
                Class::Latency,
                each(r, vcpus, &|r| vec![web(r, Some(length), 0.7)]),
            )
        }
        9 => (
            "nearly idle",
            Class::Latency,
            each(r, vcpus, &|r| vec![house(r)]),
        ),
        10 => (
            "heavy-tailed web",
            Class::Latency,
            each(r, vcpus, &|r| vec![web(r, None, 1.3), house(r)]),
        ),
        11 => {
            let f = |r: &mut Random| {
                let (rate, service) = serve(r, (5e3, 15e3), (8e-6, 25e-6), 0.5);
                vec![Task::Serve {
                    rate,
                    service,
                    sigma: 0.3,
                    packets: true,
                    on_off: None,
                }]
            };
            (
                "very many requests",
                Class::Latency,
                each(r, 1 + vcpus / 4, &f),
            )
        }
        12 => {
            // A backup, a package manager: some per cent of a CPU, in long bursts.
            let mut v = each(r, vcpus, &|r| vec![web(r, None, 0.7), house(r)]);
            v[0].push(Task::Bursts {
                burst: r.scale(0.01, 0.1),
                sleep: r.scale(3.0, 10.0),
                sigma: 0.3,
            });
            ("web with a background job", Class::Latency, v)
        }
        13 => {
            let mut v = each(r, 1 + vcpus / 2, &|r| vec![web(r, None, 0.7), house(r)]);
            v.extend(each(r, 1 + vcpus / 2, &|r| vec![Task::Hog, house(r)]));
            ("hogs beside web", Class::Mixed, v)
        }
        14 => {
            let visible = r.unit() < 0.9;
            let f = |r: &mut Random| vec![Task::Hog, echo(r, visible)];
            ("hog and echo on one vCPU", Class::Mixed, each(r, vcpus, &f))
        }
        CAPPED => {
            // All vCPUs together have from a twentieth of a CPU to a half.
            quota = Some(r.scale(0.05 / wide, 0.5) / vcpus as f64 * PERIOD);
            let f = |r: &mut Random| vec![Task::Hog, house(r)];
            ("capped hogs", Class::Batch, each(r, vcpus, &f))
        }
        STARVED => (
            "starved hogs",
            Class::Batch,
            each(r, vcpus, &|r| vec![Task::Hog, house(r)]),
        ),
        CAPPED_DUTY => {
            quota = Some(r.scale(0.1 / wide, 0.25) * PERIOD);
            let f = |r: &mut Random| vec![lookbusy(r), house(r)];
            ("capped duty cycle", Class::Batch, each(r, vcpus, &f))
        }
        STARVED_IO => {
            let f = |r: &mut Random| vec![with_io(r), house(r)];
            ("starved batch with IO", Class::Batch, each(r, vcpus, &f))
        }
        CAPPED_WEB => {
            let v = each(r, vcpus, &|r| vec![web(r, None, 0.7), house(r)]);
            // A cap that leaves room, as who sells VMs sets it; a burst of requests meets it now and then.
            let busiest = v.iter().map(|tasks| match tasks[0] {
                Task::Serve { rate, service, .. } => rate * service,
                _ => 0.0,
            });
            quota = Some(busiest.fold(0.0, f64::max) * r.scale(1.5, 4.0) * PERIOD);
            ("capped web", Class::Latency, v)
        }
        OVERLOADED_WEB => {
            let f = |r: &mut Random| vec![web(r, None, 0.7), house(r)];
            (
                "web on an overloaded host",
                Class::Latency,
                each(r, vcpus, &f),
            )
        }
        OVERLOADED_MIX => {
            let mut v = each(r, 1 + vcpus / 2, &|r| vec![web(r, None, 0.7), house(r)]);
            v.extend(each(r, 1 + vcpus / 2, &|r| vec![Task::Hog, house(r)]));
            ("hogs beside web, host overloaded", Class::Mixed, v)
        }
        _ => {
            let visible = r.unit() < 0.9;
            let f = |r: &mut Random| vec![lookbusy(r), echo(r, visible)];
            (
                "duty cycle and echo on one vCPU",
                Class::Mixed,
                each(r, vcpus, &f),
            )
        }
    };
    Load {
        kind: name,
        truth,
        vcpus,
        poll: [0.0, 50e-6, 200e-6][r.below(3)],
        steal,
        quota,
        coalesced: r.uniform(1.2, 2.0),
        seed,
    }
}
