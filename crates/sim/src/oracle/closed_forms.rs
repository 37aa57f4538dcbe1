// SPDX-License-Identifier: GPL-2.0-only
//! Queues with known means on the simulated machine: each seed gives one 95 % confidence interval, and over many
//! seeds the intervals must cover the truth as often as they promise.
//!
//! # Run lengths, chosen beforehand
//!
//! Method and error terms are in [`super::interval`]; S is the mean service time. Everything here was decided
//! from theory and from [`super::reference`] (recursions that share nothing with the engine, other seeds),
//! never from the engine's own coverage.
//!
//! * **20 batches** everywhere: the half-width is then 7 % wider than with infinitely many, and batches can be long.
//! * **M/M/1, M/M/8, first come first served, utilisation 0.8**: relaxation time S / (1 - sqrt(0.8))^2 = 90 S
//!   for M/M/1, 72 arrivals (eight times as many, an eighth as long each, for M/M/8). A warm-up of 3,000 arrivals
//!   (40 relaxation times) leaves a bias of e^-40. Batches of 7,200 arrivals (100 relaxation times): the
//!   correlation error is 1 % of the variance, 0.1 points of coverage. Skewness of the mean over 144,000
//!   arrivals: about 0.15 (reference), 0.5 points at most.
//! * **M/G/1 under processor sharing, utilisation 0.5**: relaxation time about 12 S or 6 arrivals, for the
//!   hyperexponential (CV^2 = 10) some tens. Batches of 2,000 arrivals, warm-up 1,000.
//!   At 0.5 first come first served gives 1.5 S, 2 S and 6.5 S for the three distributions, processor
//!   sharing 2 S for all: insensitivity is a strong statement there, and the shorter memory (1/16 of that at 0.8)
//!   is what makes 1,000 seeds affordable.
//! * **M/M/1 under processor sharing, utilisation 0.8**: the number in the system is the same birth and death process
//!   as first come first served, so the relaxation time is the same 90 S, and so are warm-up (3,000 arrivals) and
//!   batches (7,200 arrivals). A request's stay sees less of the backlog after it than a queue's does, so the lengths
//!   are ample. Slices of S/4, because no limit is needed (next point) and short ones cost time only.
//! * **The limit of short quanta.** Round robin differs from processor sharing by a term proportional to the
//!   quantum q. Each seed is run with q and 2 q on the same arrivals, and request by request 2 T(q) - T(2q)
//!   removes that term (Richardson). What is left is of order q^2: with q = S/20, 0.1 % for constant service
//!   times (reference; q divides S, because a last, partial quantum adds a sawtooth), which is a
//!   tenth of the standard deviation: 0.1 points. Exponential service needs no limit at all: without
//!   memory, the mean is the same for every order that does not look at what is left.
//! * **Closed network (W8 with exponential times)**: relaxation about 10 ms, 60 cycles. Batches of 1,000
//!   responses, warm-up 1,000. (Responses, not cycles per second: a count has extra noise at the ends of
//!   its batch, which would have to be 1 s long to drown it.) Extrapolated from q = 100 us and 50 us; the rest is
//!   0.03 % of the mean against a standard deviation of 1 % (reference).
//! * **Weighted max-min** ([`super::epochs`]): demands are drawn anew every 100 ms, so the shares of one thread in 240
//!   epochs are independent and need no batches against correlation; 20 batches of 12 are taken as everywhere. The
//!   share of one epoch has a standard deviation near 0.3 CPUs, its mean over 240 epochs 0.02, with a skewness of at
//!   most 1.5 / sqrt(240) = 0.1: 0.25 points. Slices of 100 us: at the end of an epoch a thread may be a slice or two
//!   off its fair share, which is 0.002 CPUs if it were always in the same direction, a tenth of the standard
//!   deviation: 0.1 points. A thread that looks for the epoch's end every 100 us takes at most as much of its demand
//!   along: 0.0005 CPUs on average. Warm-up: the first epoch.
use super::epochs::{self, Epochs};
use super::interval::{Interval, batch_means};
use super::load::{self, Closed, Open};
use super::queue;
use super::reference::Request;
use crate::error::SimError;
use crate::machine::Shape;
use crate::run::{Options, load_policy};
use crate::words::Nanos;
use crate::workload::api::Workload;
use crate::{MachineSpec, Simulation};
use berth_policy::error::LoadError;
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::model::{Dist, Hz};
use std::collections::BTreeMap;
use std::path::Path;

/// Mean service time of all open systems.
const SERVICE_NS: Nanos = 10_000_000;
/// Batches per interval.
const BATCHES: usize = 20;
/// Weighted max-min: length and number of epochs, and of slices.
const EPOCH_NS: Nanos = 100_000_000;
const EPOCHS: u64 = 240;
const FAIR_SLICE_NS: Nanos = 100_000;
/// A slice longer than every service.
const ENDLESS_NS: Nanos = 1 << 49;

/// Machines without costs under round robin, every slice ending exactly: the test policy `rr`; for weighted
/// shares `fair`.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    policy: Policy,
    fair: Policy,
}

impl RoundRobin {
    /// Compiles the test policies from their sources in this crate.
    ///
    /// # Errors
    /// No clang, no headers, or the source is gone.
    pub fn compile() -> Result<RoundRobin, LoadError> {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/policies"));
        let compiled =
            |file: &str| Policy::from_source(&folder.join(file), &LoadOptions::default());
        Ok(RoundRobin {
            policy: compiled("rr.bpf.c")?,
            fair: compiled("fair.bpf.c")?,
        })
    }

    /// Does this work with slices of `slice_ns` until `end`, and gives what `result` reads from it.
    ///
    /// # Errors
    /// Whatever ended the run, a broken invariant included.
    pub fn run<W: Workload, R>(
        &self,
        cpus: u32,
        slice_ns: Nanos,
        work: W,
        end: Nanos,
        result: impl FnOnce(&W) -> R,
    ) -> Result<R, SimError> {
        run(&self.policy, cpus, slice_ns, work, end, result)
    }

    /// Shares of one thread of a system of weighted threads, epoch by epoch, in CPUs.
    ///
    /// # Errors
    /// Whatever ended the run, a broken invariant included.
    pub fn shares(&self, system: epochs::System, seed: u64) -> Result<Vec<f64>, SimError> {
        let cpus = system.cpus;
        let work = Epochs::new(system, EPOCH_NS, seed);
        // One epoch to begin with, in which nobody wants anything, and one for warming up.
        let end = (2 + EPOCHS) * EPOCH_NS + 1;
        run(&self.fair, cpus, FAIR_SLICE_NS, work, end, |done| {
            done.shares()[1..].to_vec()
        })
    }
}

/// One machine from start to end.
fn run<W: Workload, R>(
    policy: &Policy,
    cpus: u32,
    slice_ns: Nanos,
    work: W,
    end: Nanos,
    result: impl FnOnce(&W) -> R,
) -> Result<R, SimError> {
    let spec = MachineSpec {
        hz: Hz::Exact,
        ..MachineSpec::new(Shape::flat(cpus))
    };
    let mut machine = Simulation::new(&spec, &[], work);
    let params = BTreeMap::from([("slice_ns".to_string(), slice_ns.to_string())]);
    load_policy(&mut machine, policy, &params, &[], &Options::default())?;
    machine.start();
    machine.run_until(end)?;
    machine.check()?;
    machine.unload()?;
    Ok(result(&machine.workload))
}

/// A system with a known mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    Mm1,
    Mm8,
    PsConstant,
    PsExponential,
    PsBusy,
    PsHyperexponential,
    ClosedPs,
    FairLimits,
    FairSwitches,
}

impl Row {
    pub const ALL: [Row; 9] = [
        Row::Mm1,
        Row::Mm8,
        Row::PsConstant,
        Row::PsExponential,
        Row::PsBusy,
        Row::PsHyperexponential,
        Row::ClosedPs,
        Row::FairLimits,
        Row::FairSwitches,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Row::Mm1 => "M/M/1 FCFS, rho 0.8",
            Row::Mm8 => "M/M/8 FCFS, rho 0.8",
            Row::PsConstant => "M/D/1 PS, rho 0.5",
            Row::PsExponential => "M/M/1 PS, rho 0.5",
            Row::PsBusy => "M/M/1 PS, rho 0.8",
            Row::PsHyperexponential => "M/H2/1 PS (CV2 10), rho 0.5",
            Row::ClosedPs => "closed PS, 64 workers, 16 hogs, 8 CPUs",
            Row::FairLimits => "weighted max-min, random demands, 1 CPU",
            Row::FairSwitches => "weighted max-min, on and off, 3 CPUs",
        }
    }

    /// What is estimated, with its unit.
    pub fn quantity(self) -> &'static str {
        match self {
            Row::ClosedPs => "response, ms",
            Row::FairLimits | Row::FairSwitches => "share, CPUs",
            _ => "response / S",
        }
    }

    pub fn truth(self) -> f64 {
        match self {
            Row::Mm1 => queue::mm1_response(1.0, 0.8),
            Row::Mm8 => queue::mmc_response(8, 1.0, 0.8),
            Row::ClosedPs => queue::closed_ps(64, 4.0, 1.0, 16, 8).response,
            Row::PsBusy => queue::mg1_ps_response(1.0, 0.8),
            Row::FairLimits => epochs::System::limits().expected_share(),
            Row::FairSwitches => epochs::System::switches().expected_share(),
            _ => queue::mg1_ps_response(1.0, 0.5),
        }
    }

    /// The interval of one seed.
    ///
    /// # Errors
    /// Whatever ended a run.
    pub fn interval(self, machine: &RoundRobin, seed: u64) -> Result<Interval, SimError> {
        let s = SERVICE_NS;
        let exponential = Dist::Exp { mean_ns: s as f64 };
        let values = match self {
            Row::Mm1 => {
                let system = System::new(1, 0.8, 3_000, 144_000, exponential);
                system.responses(machine, seed, ENDLESS_NS)?
            }
            Row::Mm8 => {
                let system = System::new(8, 0.8, 3_000, 144_000, exponential);
                system.responses(machine, seed, ENDLESS_NS)?
            }
            Row::PsConstant => {
                let system = System::new(1, 0.5, 1_000, 40_000, Dist::Const(s));
                system.limit(machine, seed, s / 20)?
            }
            Row::PsExponential => {
                let system = System::new(1, 0.5, 1_000, 40_000, exponential);
                system.responses(machine, seed, s / 10)?
            }
            Row::PsBusy => {
                let system = System::new(1, 0.8, 3_000, 144_000, exponential);
                system.responses(machine, seed, s / 4)?
            }
            Row::PsHyperexponential => {
                let service = Dist::Hyperexp {
                    mean_ns: s as f64,
                    cv2: 10.0,
                };
                System::new(1, 0.5, 1_000, 40_000, service).limit(machine, seed, s / 10)?
            }
            Row::ClosedPs => {
                let (one, two) = (
                    closed(machine, seed, 100_000)?,
                    closed(machine, seed, 50_000)?,
                );
                extrapolate(&two, &one)
            }
            Row::FairLimits => machine.shares(epochs::System::limits(), seed)?,
            Row::FairSwitches => machine.shares(epochs::System::switches(), seed)?,
        };
        Ok(Interval::of(&batch_means(&values, BATCHES)))
    }
}

/// 2 x(q) - x(2q), value by value.
fn extrapolate(short: &[f64], long: &[f64]) -> Vec<f64> {
    let pairs = short.iter().zip(long);
    pairs.map(|(short, long)| 2.0 * short - long).collect()
}

/// An open system with Poisson arrivals.
#[derive(Clone, Debug)]
pub struct System {
    cpus: u32,
    rho: f64,
    /// Arrivals at the start that do not count.
    warmup: usize,
    count: usize,
    service: Dist,
}

/// Arrivals after the last that counts, so that its surroundings are no emptier than those of the others.
const TAIL: usize = 1_000;

impl System {
    /// `service` must have the mean `SERVICE_NS`, 10 ms.
    pub fn new(cpus: u32, rho: f64, warmup: usize, count: usize, service: Dist) -> System {
        System {
            cpus,
            rho,
            warmup,
            count,
            service,
        }
    }

    /// The requests of one seed, warm-up and tail included.
    pub fn requests(&self, seed: u64) -> Vec<Request> {
        let n = (self.warmup + self.count + TAIL) as u64;
        let gap = SERVICE_NS as f64 / (self.rho * f64::from(self.cpus));
        load::poisson(seed, n, gap, &self.service)
    }

    /// Response times in units of the mean service time, warm-up and tail removed.
    fn responses(
        &self,
        machine: &RoundRobin,
        seed: u64,
        slice_ns: Nanos,
    ) -> Result<Vec<f64>, SimError> {
        let requests = self.requests(seed);
        let end = requests.last().map_or(0, |r| r.arrival);
        let work = Open::new(requests);
        machine.run(self.cpus, slice_ns, work, end, |done| {
            // The tail is long against any response, so all that count are done.
            let counted = &done.responses()[self.warmup..][..self.count];
            counted
                .iter()
                .map(|ns| *ns as f64 / SERVICE_NS as f64)
                .collect()
        })
    }

    /// The same in the limit of slices near zero.
    fn limit(
        &self,
        machine: &RoundRobin,
        seed: u64,
        slice_ns: Nanos,
    ) -> Result<Vec<f64>, SimError> {
        let short = self.responses(machine, seed, slice_ns)?;
        let long = self.responses(machine, seed, 2 * slice_ns)?;
        Ok(extrapolate(&short, &long))
    }
}

/// Responses that count, and those before them that do not.
const CLOSED_COUNT: usize = 20_000;
const CLOSED_WARMUP: usize = 1_000;

/// Response times of W8 with exponential times, ms; warm-up removed.
///
/// # Errors
/// Whatever ended the run.
pub fn closed(machine: &RoundRobin, seed: u64, slice_ns: Nanos) -> Result<Vec<f64>, SimError> {
    let exp = |ms: f64| Dist::Exp { mean_ns: ms * 1e6 };
    let work = Closed::new(seed, 64, exp(4.0), exp(1.0), 16);
    // Two thirds of the ideal throughput are there with slices of 3 ms already.
    let cycles = (CLOSED_WARMUP + CLOSED_COUNT) as f64;
    let end = 1.5 * cycles / queue::closed_ps(64, 4.0, 1.0, 16, 8).throughput;
    machine.run(8, slice_ns, work, (end * 1e6) as Nanos, |done| {
        let counted = done.responses().iter().skip(CLOSED_WARMUP);
        counted
            .take(CLOSED_COUNT)
            .map(|ns| *ns as f64 / 1e6)
            .collect()
    })
}
