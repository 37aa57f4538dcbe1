// SPDX-License-Identifier: GPL-2.0-only
//! One run as a value: all that its result depends on. It can be written down, handed to another process or machine,
//! and its outcome taken back; equal jobs give equal outcomes.
use crate::error::Failure;
use crate::foreign::{self, Machine, Refused};
use crate::policies;
use berth_policy::identity;
use berth_policy::policy::Policy;
use berth_results::schema::RunRecord;
use berth_scenario::model::{Arm, Loader, Scenario};
use berth_sim::run::{GuestPolicy, Options, kernel_scheduler, run_one};
use berth_sim::trace::SharedSink;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// The version of what runs jobs: that of Berth, and a hash of the sources that results depend on.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("BERTH_SOURCES"));

/// One arm of a scenario with one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// [`VERSION`] of who made it.
    pub version: String,
    /// As the arm sees it: settings applied, defaults filled in, files read.
    pub scenario: Scenario,
    pub arm: String,
    pub policy: JobPolicy,
    /// Of each VM group of the scenario: the scheduler inside, where there is one.
    pub guests: Vec<Option<JobPolicy>>,
    /// Interpret policies and check each of their accesses.
    pub checked: bool,
    pub seed: u64,
}

/// A policy and its parameters, as a job names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPolicy {
    /// A shipped name, `linux`, or what its file was called.
    pub name: String,
    /// See [`berth_policy::identity`].
    pub hash: String,
    /// The object's bytes, hexadecimal, of a policy that is not shipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// A preset's values are among them.
    pub params: BTreeMap<String, String>,
}

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`VERSION`] of who ran it.
    pub version: String,
    /// [`Job::key`] of the job.
    pub job: String,
    /// The record, or one sentence: the policy was ejected or did something wrong, or the simulator broke a rule of
    /// its own.
    pub result: Result<RunRecord, String>,
}

impl Job {
    /// An arm's job, of seed 0. What a scenario has besides the world that is simulated (other arms, claims,
    /// expectations, the number of seeds) is left out: a change of it changes no result.
    pub fn new(scenario: &Scenario, arm: &Arm, checked: bool) -> Job {
        let scenario = Scenario {
            arms: Vec::new(),
            baseline: None,
            expects: Vec::new(),
            calibrate: None,
            reproduces: None,
            ..scenario.for_arm(arm).clone()
        };
        Job {
            version: VERSION.into(),
            scenario,
            arm: arm.name.clone(),
            policy: JobPolicy::named(&arm.policy),
            guests: Vec::new(),
            checked,
            seed: 0,
        }
    }

    /// BLAKE3, hexadecimal, of what the result depends on besides the version.
    pub fn key(&self) -> String {
        let mut bare = self.clone();
        bare.version.clear();
        bare.scenario.run.seeds = 0;
        // Their hashes stand for them.
        bare.policy.object = None;
        bare.guests
            .iter_mut()
            .flatten()
            .for_each(|g| g.object = None);
        let text = serde_json::to_vec(&bare).unwrap_or_default();
        blake3::hash(&text).to_hex().to_string()
    }

    /// [`Job::key`] without the seed: jobs that share what is prepared for a run.
    pub(crate) fn cell(&self) -> String {
        Job {
            seed: 0,
            ..self.clone()
        }
        .key()
    }
}

impl Outcome {
    /// What came of this job here.
    pub fn new(job: &Job, result: Result<RunRecord, String>) -> Outcome {
        Outcome {
            version: VERSION.into(),
            job: job.key(),
            result,
        }
    }
}

impl JobPolicy {
    fn named(name: &str) -> JobPolicy {
        JobPolicy {
            name: name.into(),
            hash: String::new(),
            object: None,
            params: BTreeMap::new(),
        }
    }
}

/// Policies that were loaded, by hash and kernel line. Arms, guests and seeds share them.
#[derive(Default)]
pub struct Loaded(Mutex<BTreeMap<(String, String), Policy>>);

impl Loaded {
    /// Loads a policy by name or file, as its loader would for this machine, and says what a job must know to load it
    /// again elsewhere, and what should be known of it.
    ///
    /// # Errors
    /// As [`policies::load`] and [`foreign::ready`].
    pub fn by_name(
        &self,
        name: &str,
        loader: &Loader,
        machine: &Machine,
        kernel: &str,
    ) -> Result<(Policy, JobPolicy, Vec<String>), Refused> {
        let options = policies::options(kernel)?;
        let key = |hash: &str| (hash.to_string(), kernel.to_string());
        let mut job = JobPolicy::named(name);
        let mut notes = Vec::new();
        let bytes = match policies::is_file(name) {
            true => {
                let ready = foreign::ready(name, loader, machine)?;
                notes = ready.notes;
                job.object = Some(hexadecimal(&ready.object));
                job.hash = identity::hash(&ready.object);
                Some(ready.object)
            }
            // The name is its key until it is loaded: what is shipped has one hash.
            false => None,
        };
        let mut loaded = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let known = loaded.get(&key(if bytes.is_some() { &job.hash } else { name }));
        let policy = match (known, &bytes) {
            (Some(policy), _) => policy.clone(),
            (None, Some(bytes)) => policies::from_object(name, bytes, &options)?,
            (None, None) => policies::load(name, &options)?,
        };
        job.hash = policy.hash().to_string();
        if bytes.is_none() {
            loaded.insert(key(name), policy.clone());
        }
        loaded.insert(key(&job.hash), policy.clone());
        Ok((policy, job, notes))
    }

    /// The policy that a job names.
    fn of(&self, named: &JobPolicy, kernel: &str) -> Result<Policy, Failure> {
        let key = (named.hash.clone(), kernel.to_string());
        let mut loaded = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(policy) = loaded.get(&key) {
            return Ok(policy.clone());
        }
        let options = policies::options(kernel)?;
        let policy = match &named.object {
            Some(text) => {
                let bytes = bytes(text).ok_or_else(|| {
                    Failure::Input(format!(
                        "policy {}: its object is not hexadecimal",
                        named.name
                    ))
                })?;
                policies::from_object(&named.name, &bytes, &options)?
            }
            None => policies::load(&named.name, &options)?,
        };
        if policy.hash() != named.hash {
            return Err(Failure::Input(format!(
                "policy {} is another one here ({}) than in the job ({})",
                named.name,
                policy.hash(),
                named.hash
            )));
        }
        loaded.insert(key, policy.clone());
        Ok(policy)
    }
}

/// What all seeds of an arm share, ready to run.
pub(crate) struct Cell {
    scenario: Scenario,
    arm: String,
    policy: Policy,
    params: BTreeMap<String, String>,
    options: Options,
}

impl Cell {
    /// # Errors
    /// The job is of another version, or a policy cannot be loaded or is another one here.
    pub(crate) fn of(job: &Job, loaded: &Loaded) -> Result<Cell, Failure> {
        if job.version != VERSION {
            return Err(Failure::Input(format!(
                "the job is of version {}, and this is {VERSION}: both sides must be the same",
                job.version
            )));
        }
        let mut scenario = job.scenario.clone();
        let mut options = Options {
            checked: job.checked,
            ..Options::default()
        };
        if job.policy.name == "linux" {
            kernel_scheduler(&mut scenario.host, &mut options);
        }
        let kernel = &scenario.host.kernel;
        let policy = loaded.of(&job.policy, kernel)?;
        for guest in &job.guests {
            options.guests.push(match guest {
                None => None,
                Some(guest) => Some(GuestPolicy {
                    policy: loaded.of(guest, kernel)?,
                    params: guest.params.clone(),
                }),
            });
        }
        Ok(Cell {
            scenario,
            arm: job.arm.clone(),
            policy,
            params: job.policy.params.clone(),
            options,
        })
    }

    /// # Errors
    /// One sentence, see [`Outcome::result`].
    pub(crate) fn run(
        &self,
        seed: u64,
        cancel: Option<&'static AtomicBool>,
        sink: Option<SharedSink>,
    ) -> Result<RunRecord, String> {
        let options = Options {
            cancel,
            sink,
            ..self.options.clone()
        };
        run_one(
            &self.scenario,
            &self.arm,
            &self.policy,
            &self.params,
            seed,
            &options,
        )
        .map_err(|e| e.to_string())
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let pair = |i: usize| u8::from_str_radix(text.get(i..i + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(pair).collect()
}
