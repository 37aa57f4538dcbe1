// SPDX-License-Identifier: GPL-2.0-only
//! One number for very many runs: equal as long as nothing depends on the build, on the number of workers, on
//! addresses or on the time of day.
use super::random;
use crate::engine::hash::TraceHash;
use crate::error::SimError;
use crate::replicate::{Job, Replicate, jobs};
use crate::run::{Options, run_one};
use berth_policy::policy::Policy;
use berth_results::schema::RunRecord;
use berth_scenario::step::Kind;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// Random scenario number `seed`, run with seed `seed`, under this policy. Every other one has a step of a kind, each
/// kind in turn, and the devices that it takes.
///
/// # Errors
/// Whatever ended the run.
pub fn one(name: &str, policy: &Policy, seed: u64) -> Result<RunRecord, SimError> {
    let choose = &mut random::from_seed(seed);
    let scenario = match seed % 2 {
        0 => random::scenario(name, choose),
        _ => {
            let kind = Kind::ALL[(seed / 2) as usize % Kind::ALL.len()];
            random::scenario_with(kind, name, choose)
        }
    };
    let none = BTreeMap::new();
    run_one(&scenario, name, policy, &none, seed, &Options::default())
}

/// Hash over the records (metrics bit for bit) of `scenarios` random scenarios under all these policies.
pub fn hash(policies: &[(String, Policy)], scenarios: u64, workers: usize) -> String {
    let cancel = AtomicBool::new(false);
    let replicate = Replicate {
        workers,
        cancel: &cancel,
        progress: &|_| (),
    };
    let outcome = replicate.run(&jobs(policies.len(), 1..=scenarios), |job: Job| {
        let (name, policy) = &policies[job.arm];
        one(name, policy, job.seed)
    });
    let mut hash = TraceHash::default();
    let mut bytes = |b: &[u8]| b.iter().for_each(|b| hash.add(u64::from(*b)));
    for (_, result) in &outcome.runs {
        match result {
            Ok(record) => {
                bytes(record.hash.as_bytes());
                for (metric, value) in &record.metrics {
                    bytes(metric.as_bytes());
                    bytes(&value.to_bits().to_le_bytes());
                }
            }
            Err(e) => bytes(e.to_string().as_bytes()),
        }
    }
    format!("{:016x}", hash.finish())
}
