// SPDX-License-Identifier: GPL-2.0-only
//! Random numbers and distributions, bit for bit the same in the simulator and in the load generator.
//!
//! * [`Rng`] is xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators",
//!   ACM TOMS 47(4), 2021), its state filled by SplitMix64 from a seed and a [`Stream`].
//! * Every user of randomness has a stream of its own, so that no consumer disturbs another's numbers:
//!   the arrivals of an arm do not depend on what its policy does.
//! * Logarithms and the like come from the `libm` crate and not from the system's C library: the same
//!   scenario and seed give the same numbers on every host.
use crate::model::{Dist, Estimate, Nanos, Sends};

/// Longest duration a sample can have: about 146 years. Heavy tails are cut there.
pub const LONGEST_NS: Nanos = 1 << 62;

/// Who draws the numbers. Ordinals are positions in [`crate::placement::threads`] (threads), in
/// `Scenario::clients` (clients) and over all VM instances in file order (VMs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Durations of the steps of one thread.
    Thread(u32),
    /// Phase of one thread's timer grid.
    Phase(u32),
    /// Arrivals of one client at one VM instance (`open` and `every`).
    Arrivals { client: u16, vm: u32 },
    /// Think times of one user of a closed-loop client at one VM instance.
    User { client: u16, vm: u16, user: u32 },
    /// Sizes of the chunks of a work pool, in the order in which they are taken: the same work, whoever does it.
    /// Home: VM ordinal, or the number of VMs for the host.
    Pool { home: u32, pool: u32 },
    /// Durations of the steps of the thread that a request has started: the requests to a task of a home (as of
    /// `Pool`), in order.
    Request { task: u16, home: u16, number: u32 },
    /// How far a policy is told a wrong size: of threads that requests have started numbered as those, else in the
    /// order in which they are told.
    Estimate { task: u16, home: u16, number: u32 },
    /// Where the records are that threads of a task read or write (disks with random access), in the order in which
    /// they begin. Home: as of `Pool`.
    Records { home: u32, task: u32 },
    /// Where the host's timer ticks lie, seen from the start of the run.
    Ticks,
    /// How long the policy has been in charge when the run starts, and what its clock says then.
    Lead,
}

impl Stream {
    /// A number no other stream has.
    fn id(self) -> u64 {
        match self {
            Stream::Thread(t) => (1 << 60) | u64::from(t),
            Stream::Phase(t) => (2 << 60) | u64::from(t),
            Stream::Arrivals { client, vm } => {
                (3 << 60) | (u64::from(client) << 32) | u64::from(vm)
            }
            Stream::User { client, vm, user } => {
                // 12 bits of client are left beside the tag; scenarios have a handful.
                (4 << 60)
                    | (u64::from(client & 0xfff) << 48)
                    | (u64::from(vm) << 32)
                    | u64::from(user)
            }
            Stream::Pool { home, pool } => {
                (5 << 60) | (u64::from(pool & 0xfff_ffff) << 32) | u64::from(home)
            }
            Stream::Ticks => 6 << 60,
            Stream::Lead => 7 << 60,
            Stream::Records { home, task } => {
                (10 << 60) | (u64::from(task & 0xfff_ffff) << 32) | u64::from(home)
            }
            Stream::Request { task, home, number } => (8 << 60) | of_request(task, home, number),
            Stream::Estimate { task, home, number } => (9 << 60) | of_request(task, home, number),
        }
    }
}

/// 12 bits of task, 16 of home, 32 of number.
fn of_request(task: u16, home: u16, number: u32) -> u64 {
    (u64::from(task & 0xfff) << 48) | (u64::from(home) << 32) | u64::from(number)
}

/// Longest time from a policy's start to that of the work, ns.
const LONGEST_LEAD_NS: u64 = 1_000_000_000;

/// How long a policy has been in charge when the work begins, in nanoseconds below a second: its timers and sampled
/// ticks know nothing of when the work begins. The same rule in simulator and lab.
pub fn lead_ns(seed: u64) -> Nanos {
    Rng::new(seed, Stream::Lead).below(LONGEST_LEAD_NS)
}

/// What a simulated machine's clock says when the work begins, in nanoseconds: it has been up for 10 to 20 seconds.
pub fn uptime_ns(seed: u64) -> Nanos {
    let mut rng = Rng::new(seed, Stream::Lead);
    rng.below(LONGEST_LEAD_NS);
    10 * LONGEST_LEAD_NS + rng.below(10 * LONGEST_LEAD_NS)
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One stream of random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    pub fn new(seed: u64, stream: Stream) -> Rng {
        // The seed is mixed before the stream joins it, so that (seed + 1, stream) and
        // (seed, stream + 1) have nothing in common.
        let mut seed = seed;
        let mut state = splitmix(&mut seed) ^ stream.id();
        let s = std::array::from_fn(|_| splitmix(&mut state));
        Rng { s }
    }

    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.s;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform on the open interval (0, 1), never an end point: 52 bits, in the middle of their cell.
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
    }

    /// Uniform on `0..bound` (0 if `bound` is 0), by multiplication; the bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Exponential with mean 1.
    fn exponential(&mut self) -> f64 {
        -libm::log(self.unit())
    }

    /// What a policy is told of a size, ns: the size, or that times exp(sigma N). At least 1, for 0 tells nothing.
    pub fn estimate(&mut self, of: Estimate, size_ns: Nanos) -> Nanos {
        let told = match of {
            Estimate::Oracle => size_ns,
            Estimate::Lognormal(sigma) => to_ns(size_ns as f64 * libm::exp(sigma * self.normal())),
        };
        told.max(1)
    }

    /// Standard normal (Box and Muller, the cosine branch only: no state between calls).
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(2.0 * std::f64::consts::PI * self.unit())
    }
}

/// Rounded to whole nanoseconds within `0..=LONGEST_NS`; what is not a number counts as 0.
fn to_ns(x: f64) -> Nanos {
    // A cast from float saturates and maps NaN to 0.
    (x.round() as u64).min(LONGEST_NS)
}

/// Probability and means of the two phases of a hyperexponential with balanced means
/// (p1 m1 = p2 m2): Tijms, "Stochastic Models", 1994, appendix B.
fn balanced(mean_ns: f64, cv2: f64) -> (f64, f64, f64) {
    let cv2 = cv2.max(1.0);
    let p = 0.5 * (1.0 + libm::sqrt((cv2 - 1.0) / (cv2 + 1.0)));
    (p, mean_ns / (2.0 * p), mean_ns / (2.0 * (1.0 - p)))
}

impl Dist {
    /// The next duration in nanoseconds, at most [`LONGEST_NS`].
    ///
    /// `nth` counts the draws that this user (thread and step) has made before; only
    /// [`Dist::Values`] looks at it. Each thread reads the values from their start; where each request has a thread,
    /// it is the number of the request.
    pub fn sample(&self, rng: &mut Rng, nth: u64) -> Nanos {
        match self {
            Dist::Const(ns) => (*ns).min(LONGEST_NS),
            Dist::Exp { mean_ns } => to_ns(mean_ns * rng.exponential()),
            Dist::Uniform { lo_ns, hi_ns } => {
                let (lo, hi) = (*lo_ns.min(hi_ns), *lo_ns.max(hi_ns));
                lo.saturating_add(rng.below((hi - lo).saturating_add(1)))
                    .min(LONGEST_NS)
            }
            Dist::Lognormal { median_ns, sigma } => {
                to_ns(median_ns * libm::exp(sigma * rng.normal()))
            }
            Dist::Pareto { min_ns, alpha } => to_ns(min_ns * libm::pow(rng.unit(), -1.0 / alpha)),
            Dist::Hyperexp { mean_ns, cv2 } => {
                let (p, short, long) = balanced(*mean_ns, *cv2);
                let mean = if rng.unit() < p { short } else { long };
                to_ns(mean * rng.exponential())
            }
            Dist::Values(values) => match values.len() as u64 {
                0 => 0,
                n => values[(nth % n) as usize].min(LONGEST_NS),
            },
        }
    }

    /// The mean in nanoseconds; infinite for a Pareto distribution with `alpha` <= 1.
    pub fn mean_ns(&self) -> f64 {
        match self {
            Dist::Const(ns) => *ns as f64,
            Dist::Exp { mean_ns } | Dist::Hyperexp { mean_ns, .. } => *mean_ns,
            Dist::Uniform { lo_ns, hi_ns } => (*lo_ns as f64 + *hi_ns as f64) / 2.0,
            Dist::Lognormal { median_ns, sigma } => median_ns * libm::exp(sigma * sigma / 2.0),
            Dist::Pareto { min_ns, alpha } if *alpha > 1.0 => min_ns * alpha / (alpha - 1.0),
            Dist::Pareto { .. } => f64::INFINITY,
            Dist::Values(v) if v.is_empty() => 0.0,
            Dist::Values(v) => v.iter().map(|x| *x as f64).sum::<f64>() / v.len() as f64,
        }
    }
}

/// Arrival times of an open-loop client at one VM, in nanoseconds after the start of the run,
/// never decreasing, without end. Closed-loop clients have none: there each user's next arrival is
/// [`Dist::sample`] of its think time, drawn from [`Stream::User`], after the last answer.
#[derive(Clone, Debug)]
pub struct Arrivals {
    sends: Sends,
    rng: Rng,
    at_ns: Nanos,
    drawn: u64,
}

impl Arrivals {
    /// `None` for a closed-loop client.
    pub fn new(sends: &Sends, seed: u64, client: u16, vm: u32) -> Option<Arrivals> {
        if matches!(sends, Sends::Closed { .. }) {
            return None;
        }
        let rng = Rng::new(seed, Stream::Arrivals { client, vm });
        Some(Arrivals {
            sends: sends.clone(),
            rng,
            at_ns: 0,
            drawn: 0,
        })
    }
}

impl Iterator for Arrivals {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        let gap = match &self.sends {
            Sends::Open { gap } => gap.sample(&mut self.rng, self.drawn),
            // A random phase first, so that clients and VMs do not march in step.
            Sends::Every { period_ns, .. } if self.drawn == 0 => {
                self.rng.below((*period_ns).max(1))
            }
            Sends::Every {
                period_ns,
                jitter_ppm,
            } => {
                let ppm = u64::from((*jitter_ppm).min(1_000_000));
                let half = (u128::from(*period_ns) * u128::from(ppm) / 1_000_000) as u64;
                (period_ns - half).saturating_add(self.rng.below((2 * half).saturating_add(1)))
            }
            Sends::Batch { count } if self.drawn < u64::from(*count) => 0,
            Sends::Batch { .. } | Sends::Closed { .. } => return None,
        };
        self.drawn += 1;
        self.at_ns = self.at_ns.saturating_add(gap).min(LONGEST_NS);
        Some(self.at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    fn all(mean_ns: f64) -> Vec<Dist> {
        let ns = mean_ns as u64;
        vec![
            Dist::Const(ns),
            Dist::Exp { mean_ns },
            Dist::Uniform {
                lo_ns: ns / 2,
                hi_ns: ns,
            },
            Dist::Lognormal {
                median_ns: mean_ns,
                sigma: 0.8,
            },
            Dist::Pareto {
                min_ns: mean_ns,
                alpha: 3.5,
            },
            Dist::Hyperexp { mean_ns, cv2: 4.0 },
            Dist::Values(vec![ns, 2 * ns, 0]),
        ]
    }

    /// xoshiro256++ from the state 1, 2, 3, 4: the first outputs by hand.
    #[test]
    fn generator_is_xoshiro256_plus_plus() {
        let mut rng = Rng { s: [1, 2, 3, 4] };
        assert_eq!(rng.next_u64(), 41_943_041);
        assert_eq!(rng.next_u64(), 58_720_359);
    }

    /// SplitMix64's published test value for seed 1234567.
    #[test]
    fn seeding_is_splitmix64() {
        let mut state = 1_234_567;
        assert_eq!(splitmix(&mut state), 6_457_827_717_110_365_317);
        assert_eq!(splitmix(&mut state), 3_203_168_211_198_807_973);
    }

    /// These numbers may only change together with a note in the changelog: they change every result.
    #[test]
    fn golden_values() {
        let golden: Vec<Vec<u64>> = all(1e6)
            .iter()
            .map(|d| {
                let mut rng = Rng::new(42, Stream::Thread(3));
                (0..4).map(|i| d.sample(&mut rng, i)).collect()
            })
            .collect();
        assert_eq!(golden, GOLDEN_DISTS);
        let every = Sends::Every {
            period_ns: 1_000_000,
            jitter_ppm: 500_000,
        };
        let open = Sends::Open {
            gap: Dist::Exp { mean_ns: 1e6 },
        };
        let first = |s: &Sends| {
            Arrivals::new(s, 42, 0, 1)
                .unwrap()
                .take(4)
                .collect::<Vec<_>>()
        };
        assert_eq!(first(&every), GOLDEN_EVERY);
        assert_eq!(first(&open), GOLDEN_OPEN);
    }

    const GOLDEN_DISTS: [[u64; 4]; 7] = [
        [1000000, 1000000, 1000000, 1000000],
        [442018, 44027, 2424930, 393985],
        [821369, 978464, 544242, 837182],
        [2064334, 446594, 384542, 819074],
        [1134612, 1012659, 1999380, 1119148],
        [24810, 222014, 259651, 3320953],
        [1000000, 2000000, 0, 1000000],
    ];
    const GOLDEN_EVERY: [u64; 4] = [948288, 2411858, 2963069, 4040549];
    const GOLDEN_OPEN: [u64; 4] = [53097, 90207, 3061999, 3611081];

    #[test]
    fn means_converge() {
        for d in all(1e6) {
            let mut rng = Rng::new(7, Stream::Thread(0));
            let n = 300_000;
            let mean = (0..n).map(|i| d.sample(&mut rng, i) as f64).sum::<f64>() / n as f64;
            let want = d.mean_ns();
            assert!(
                (mean / want - 1.0).abs() < 0.01,
                "{d:?}: {mean} instead of {want}"
            );
        }
    }

    #[test]
    fn hyperexponential_has_the_variance_asked_for() {
        let d = Dist::Hyperexp {
            mean_ns: 1e6,
            cv2: 10.0,
        };
        let mut rng = Rng::new(7, Stream::Thread(0));
        let x: Vec<f64> = (0..400_000)
            .map(|i| d.sample(&mut rng, i) as f64 / 1e6)
            .collect();
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let var = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / x.len() as f64;
        assert!(
            (var / (mean * mean) / 10.0 - 1.0).abs() < 0.05,
            "cv2 is {}",
            var / (mean * mean)
        );
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_streams_differ() {
        let open = Sends::Open {
            gap: Dist::Exp { mean_ns: 2.5e6 },
        };
        let count = |vm| {
            Arrivals::new(&open, 1, 0, vm)
                .unwrap()
                .take_while(|t| *t < 500_000_000_000)
                .count()
        };
        assert!((count(0) as f64 / 200_000.0 - 1.0).abs() < 0.01);
        assert_ne!(count(0), count(1));
        let closed = Sends::Closed {
            users: 1,
            think: Dist::Const(1),
        };
        assert!(Arrivals::new(&closed, 1, 0, 0).is_none());
    }

    #[test]
    fn streams_have_distinct_ids() {
        let mut ids = vec![
            Stream::Thread(0).id(),
            Stream::Phase(0).id(),
            Stream::Thread(1).id(),
            Stream::Ticks.id(),
            Stream::Lead.id(),
        ];
        ids.extend([0, 1].map(|vm| Stream::Arrivals { client: 0, vm }.id()));
        ids.push(Stream::Arrivals { client: 1, vm: 0 }.id());
        ids.extend([0, 1].map(|user| {
            Stream::User {
                client: 0,
                vm: 0,
                user,
            }
            .id()
        }));
        ids.push(
            Stream::User {
                client: 0,
                vm: 1,
                user: 0,
            }
            .id(),
        );
        let n = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), n);
    }

    proptest! {
        #[test]
        fn samples_are_bounded(
            seed: u64,
            stream: u32,
            mean in 0.0f64..1e18,
            alpha in 0.01f64..5.0,
            sigma in 0.0f64..50.0,
            cv2 in 0.0f64..1e6,
        ) {
            let mut rng = Rng::new(seed, Stream::Thread(stream));
            let mut dists = all(mean);
            dists.push(Dist::Pareto { min_ns: mean, alpha });
            dists.push(Dist::Lognormal { median_ns: mean, sigma });
            dists.push(Dist::Hyperexp { mean_ns: mean, cv2 });
            for d in dists {
                for i in 0..20 {
                    prop_assert!(d.sample(&mut rng, i) <= LONGEST_NS);
                }
            }
        }

        #[test]
        fn uniform_stays_inside(seed: u64, a in 0u64..1 << 40, b in 0u64..1 << 40) {
            let mut rng = Rng::new(seed, Stream::Thread(0));
            let x = Dist::Uniform { lo_ns: a, hi_ns: b }.sample(&mut rng, 0);
            prop_assert!(a.min(b) <= x && x <= a.max(b));
        }

        #[test]
        fn arrivals_never_go_back(seed: u64, period in 1u64..1 << 40, jitter in 0u32..2_000_000) {
            let sends = Sends::Every { period_ns: period, jitter_ppm: jitter };
            let times: Vec<u64> = Arrivals::new(&sends, seed, 0, 0).unwrap().take(50).collect();
            prop_assert!(times.windows(2).all(|w| w[0] <= w[1]));
            prop_assert!(times[0] < period);
        }

        #[test]
        fn unit_is_open(seed: u64) {
            let mut rng = Rng::new(seed, Stream::Thread(0));
            for _ in 0..100 {
                let u = rng.unit();
                prop_assert!(u > 0.0 && u < 1.0);
            }
        }
    }
}
