// SPDX-License-Identifier: GPL-2.0-only
//! VMs that mean the others no good, what they are due all the same, and what became of those beside them.
//!
//! A host has a latency VM (the victim), a batch VM that sleeps and wakes (quiet), two batch VMs of the weights 100 and
//! 300 that always run, and one attacker of weight 100. What each of the last three is due follows from what the first
//! two used, by water-filling ([`super::share`]).
use super::share::{Claim, max_min};
use crate::error::SimError;
use crate::run::{Options, run_one};
use berth_policy::policy::Policy;
use berth_scenario::model::Scenario;
use berth_scenario::{Input, read};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What the attacker's threads do.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// They always run.
    Run,
    /// So much work, then so much sleep, us.
    Cycle { work_us: u32, sleep_us: u32 },
    /// So much work, then `sched_yield`, us.
    Yield { work_us: u32 },
    /// They always run, in a VM that ends after so long, when the next one starts, ms.
    Live { ms: u32 },
}

/// One way of taking what is not one's own.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    pub name: &'static str,
    /// vCPUs, and threads, one for each.
    threads: u32,
    does: Does,
}

const fn cycle(name: &'static str, threads: u32, work_us: u32, sleep_us: u32) -> Attack {
    let does = Does::Cycle { work_us, sleep_us };
    Attack {
        name,
        threads,
        does,
    }
}

const fn attack(name: &'static str, threads: u32, does: Does) -> Attack {
    Attack {
        name,
        threads,
        does,
    }
}

/// Ticks are 4 ms apart.
pub const ATTACKS: [Attack; 14] = [
    attack("always runs", 4, Does::Run),
    attack("many vCPUs", 32, Does::Run),
    cycle("sleeps before the tick", 4, 3_900, 100),
    cycle("sleeps four times a tick", 4, 900, 100),
    cycle("sleeps for an instant", 4, 2_900, 5),
    cycle("storm of 2 us", 2, 2, 10),
    cycle("storm of 10 us", 2, 10, 10),
    cycle("bursts of 1 ms", 4, 1_000, 3_000),
    cycle("bursts of 3 ms", 4, 3_000, 9_000),
    cycle("bursts of 40 ms", 4, 40_000, 120_000),
    cycle("a herd", 32, 4_000, 500_000),
    attack("yields each 5 us", 4, Does::Yield { work_us: 5 }),
    attack("yields each 500 us", 4, Does::Yield { work_us: 500 }),
    attack("comes and goes", 4, Does::Live { ms: 500 }),
];

const WARMUP_MS: u32 = 500;
const MEASURE_MS: u32 = 1_500;
/// Of the two that always run.
const WEIGHTS: [f64; 2] = [100.0, 300.0];
/// What a thread of the victim and of quiet wants: 200 us of work after 5 ms of sleep.
const SERVES: f64 = 0.2 / 5.2;

impl Attack {
    /// CPUs that it would use if it were alone. Of short work the switches are a part that counts.
    fn wants(&self) -> f64 {
        let threads = f64::from(self.threads);
        match self.does {
            Does::Cycle { work_us, sleep_us } if work_us >= 100 => {
                threads * f64::from(work_us) / f64::from(work_us + sleep_us)
            }
            _ => threads,
        }
    }

    /// Its tables in a scenario.
    fn tables(&self, class: &str) -> String {
        let threads = self.threads;
        let task = match self.does {
            Does::Run | Does::Live { .. } => "model = \"busy\"".into(),
            Does::Cycle { work_us, sleep_us } => {
                format!("loop = [\"compute {work_us}us\", \"sleep {sleep_us}us\"]")
            }
            Does::Yield { work_us } => format!("loop = [\"compute {work_us}us\", \"yield\"]"),
        };
        let mut text = format!("[task.attack]\nthreads = {threads}\n{task}\n");
        let Does::Live { ms } = self.does else {
            return text + &vm("mallory", threads, 100.0, class, "attack");
        };
        for (i, start) in (0..WARMUP_MS + MEASURE_MS).step_by(ms as usize).enumerate() {
            text += &vm(&format!("mallory-{i}"), threads, 100.0, class, "attack");
            writeln!(text, "start = \"{start}ms\"\nstop = \"{}ms\"", start + ms).unwrap();
        }
        text
    }
}

fn vm(name: &str, vcpus: u32, weight: f64, class: &str, task: &str) -> String {
    format!(
        "[vm.{name}]\nvcpus = {vcpus}\nweight = {weight}\nclass = \"{class}\"\ntasks = [\"{task}\"]\n"
    )
}

/// The host with so many CPUs, and with the attacker, who claims this class.
///
/// # Panics
/// If this is no scenario, which a test would have seen.
#[must_use]
pub fn scenario(cores: u32, attack: Option<(&Attack, &str)>) -> Scenario {
    let text = text(cores, attack);
    let input = Input {
        name: "enemies".into(),
        shown: "enemies".into(),
        text,
        folder: None,
    };
    let loaded = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
    loaded.scenario
}

fn text(cores: u32, attack: Option<(&Attack, &str)>) -> String {
    format!(
        "title = \"enemies\"\n[run]\nwarmup = \"{WARMUP_MS}ms\"\nmeasure = \"{MEASURE_MS}ms\"\n\
         [compare]\npolicies = [\"vmfair\"]\n[host]\ncores = {cores}\n[task.hog]\nmodel = \"busy\"\n\
         [task.serve]\nloop = [\"sleep exp(5ms)\", \"compute exp(200us)\"]\n{}{}{}{}{}",
        vm("victim", 1, 100.0, "latency", "serve"),
        vm("quiet", 2, 100.0, "batch", "serve"),
        vm("hog-a", 2 * cores, WEIGHTS[0], "batch", "hog"),
        vm("hog-b", 2 * cores, WEIGHTS[1], "batch", "hog"),
        attack.map_or(String::new(), |(attack, class)| attack.tables(class)),
    )
}

fn metrics(
    name: &str,
    policy: &Policy,
    scenario: &Scenario,
    seed: u64,
) -> Result<BTreeMap<String, f64>, SimError> {
    let none = BTreeMap::new();
    Ok(run_one(scenario, name, policy, &none, seed, &Options::default())?.metrics)
}

/// The 99th percentile of the victim's waits for a CPU when it wakes and nobody attacks, us.
///
/// # Errors
/// Whatever ended the run.
pub fn calm_p99_us(name: &str, policy: &Policy, cores: u32, seed: u64) -> Result<f64, SimError> {
    Ok(metrics(name, policy, &scenario(cores, None), seed)?["victim.wakeup.p99"] / 1e3)
}

/// What became of everybody.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// What the attacker had beyond what it was due, as a part of the host; below 0: it had less.
    pub gain: f64,
    /// What one of those that always run lacked of what it was due, the worse one, as a part of the host.
    pub lack: f64,
    /// What quiet had of what it wanted; some runs want more than the mean, 1.
    pub quiet: f64,
    /// The 99th percentile of the victim's waits for a CPU when it wakes, us.
    pub victim_p99_us: f64,
}

impl Outcome {
    /// From what a run of [`scenario`] measured, simulated or not.
    ///
    /// # Panics
    /// If there is no `victim`, `quiet` or `hog-*` in it.
    #[must_use]
    pub fn of(cores: u32, attack: &Attack, m: &BTreeMap<String, f64>) -> Outcome {
        let had: f64 = m
            .iter()
            .filter(|(k, _)| k.starts_with("mallory") && k.ends_with(".cpu"))
            .map(|(_, v)| v)
            .sum();
        let left = f64::from(cores) - m["victim.cpu"] - m["quiet.cpu"];
        let claim = |weight, limit| Claim { weight, limit };
        let hogs = WEIGHTS.map(|weight| claim(weight, f64::from(2 * cores)));
        let due = |limit| max_min(left, &[hogs[0], hogs[1], claim(100.0, limit)]);
        let theirs = due(had);
        let lack = (theirs[0] - m["hog-a.cpu"]).max(theirs[1] - m["hog-b.cpu"]);
        Outcome {
            gain: (had - due(attack.wants())[2]) / f64::from(cores),
            lack: lack / f64::from(cores),
            quiet: m["quiet.cpu"] / (2.0 * SERVES),
            victim_p99_us: m["victim.wakeup.p99"] / 1e3,
        }
    }
}

/// An attack under a policy, by a VM that claims this class.
///
/// # Errors
/// Whatever ended the run.
pub fn run(
    (name, policy): (&str, &Policy),
    cores: u32,
    attack: &Attack,
    class: &str,
    seed: u64,
) -> Result<Outcome, SimError> {
    let m = metrics(name, policy, &scenario(cores, Some((attack, class))), seed)?;
    Ok(Outcome::of(cores, attack, &m))
}
