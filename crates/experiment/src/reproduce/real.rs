// SPDX-License-Identifier: GPL-2.0-only
//! Runs of a paper on a real kernel. `berth reproduce --lab` boots the lab and keeps what came out in the paper's
//! folder; a page is made of that, without a VM. What is kept of another scenario, other arms or seeds is refused.
use super::Wanted;
use crate::error::Failure;
use crate::plan::{Plan, plan};
use crate::policies;
use crate::request::Request;
use berth_results::experiment::Experiment as Outcome;
use berth_results::schema::{Place, RunRecord};
use berth_scenario::paper::{Real, Run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Version of the files.
const FORMAT: u32 = 1;
/// Significant digits that are kept of a value: more than pages show.
const DIGITS: usize = 6;

/// What is kept of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    format: u32,
    /// Its release, and what vCPUs were.
    kernel: String,
    vcpus: String,
    /// Of the scenario's text, what is changed of it, and the arms.
    scenario: String,
    variants: Vec<VariantRecord>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantRecord {
    set: Vec<String>,
    runs: Vec<Kept>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    arm: String,
    seed: u64,
    metrics: BTreeMap<String, f64>,
}

/// What a run gave that was kept, and by which kernel: an outcome for each variant.
///
/// # Errors
/// Nothing is kept, or what is kept is of something else.
pub fn kept(
    wanted: &Wanted<'_>,
    run: &Run,
    real: &Real,
    command: &str,
) -> Result<(String, Vec<Outcome>), Failure> {
    let path = path(wanted, real);
    let paper = &wanted.paper.name;
    let wrong = |why: &str| {
        let shown = path.display();
        Failure::Input(format!(
            "{shown}: {why}\n  berth reproduce {paper} --lab runs it anew, in throw-away VMs"
        ))
    };
    let text = std::fs::read_to_string(&path).map_err(|e| wrong(&e.to_string()))?;
    let record: Record = serde_json::from_str(&text).map_err(|e| wrong(&e.to_string()))?;
    if record.format != FORMAT {
        return Err(wrong("another version of Berth wrote it"));
    }
    let plan = planned(wanted, run, real)?;
    let variants = record.variants.iter().map(|v| &v.set);
    let same =
        record.scenario == hash(wanted, run)? && variants.eq(plan.variants.iter().map(|v| &v.set));
    if !same {
        return Err(wrong("it is of another scenario, other settings or arms"));
    }
    let seeds: Vec<u64> = plan.seeds.clone();
    for variant in &record.variants {
        for arm in &run.arms {
            let of_arm = variant.runs.iter().filter(|kept| kept.arm == *arm);
            let has: Vec<u64> = of_arm.map(|kept| kept.seed).collect();
            if has != seeds {
                return Err(wrong(&format!(
                    "arm {arm} has not the seeds 1 to {}",
                    real.seeds
                )));
            }
        }
    }
    let one = |kept: Kept| RunRecord::new(Place::Lab, &kept.arm, kept.seed, kept.metrics);
    let records = record.variants.into_iter();
    let records = records.map(|v| v.runs.into_iter().map(one).collect());
    let results = plan.results(
        Place::Lab,
        &record.kernel,
        command.to_string(),
        records.collect(),
        true,
    );
    Ok((record.kernel, results.experiments))
}

fn path(wanted: &Wanted<'_>, real: &Real) -> PathBuf {
    wanted.paper.folder.join(&real.file)
}

fn planned(wanted: &Wanted<'_>, run: &Run, real: &Real) -> Result<Plan, Failure> {
    let request = Request {
        scenario: wanted
            .paper
            .folder
            .join(&run.scenario)
            .display()
            .to_string(),
        set: run.set.clone(),
        vary: run.vary.clone(),
        arms: run.arms.clone(),
        seeds: Some(real.seeds),
        ..Request::default()
    };
    plan(&request, &policies::shipped(), None)
}

/// Of what the run is: the scenario's text, what is changed of it, the arms.
fn hash(wanted: &Wanted<'_>, run: &Run) -> Result<String, Failure> {
    let path = wanted.paper.folder.join(&run.scenario);
    let text =
        std::fs::read(&path).map_err(|e| Failure::Input(format!("{}: {e}", path.display())))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&text);
    for list in [&run.set, &run.vary, &run.arms] {
        hasher.update(format!("{list:?}").as_bytes());
    }
    Ok(hasher.finalize().to_hex().as_str()[..16].to_string())
}

/// Runs on a real kernel, and what is kept of them.
#[cfg(feature = "kernel")]
mod recording {
    use super::*;
    use crate::lab::{Boots, boot, failed};
    use std::collections::BTreeSet;

    /// Boots the lab for the runs on a real kernel of the chosen experiments, and writes down what they give: the
    /// files. `say` is told what is being done.
    ///
    /// # Errors
    /// Wrong input, an interrupt, a boot that failed, a disk that is full.
    pub fn record(
        wanted: &Wanted<'_>,
        boots: &Boots,
        say: &dyn Fn(&str),
    ) -> Result<Vec<PathBuf>, Failure> {
        let mut written = Vec::new();
        let all = wanted.paper.experiments.iter();
        let chosen = all.filter(|e| wanted.only.is_none_or(|only| only.id == e.id));
        for experiment in chosen {
            for run in &experiment.runs {
                let Some(real) = &run.real else { continue };
                say(&format!(
                    "{} {}: {}",
                    wanted.paper.name, experiment.id, run.name
                ));
                let record = one(wanted, run, real, boots)?;
                let mut text = serde_json::to_string_pretty(&record)
                    .map_err(|e| Failure::Run(e.to_string()))?;
                text.push('\n');
                let path = path(wanted, real);
                berth_results::write::atomic(&path, text.as_bytes())
                    .map_err(|e| Failure::Run(format!("{}: {e}", path.display())))?;
                written.push(path);
            }
        }
        match written.is_empty() {
            true => Err(Failure::Input(format!(
                "nothing that was chosen of the paper {} runs on a real kernel",
                wanted.paper.name
            ))),
            false => Ok(written),
        }
    }

    fn one(wanted: &Wanted<'_>, run: &Run, real: &Real, boots: &Boots) -> Result<Record, Failure> {
        let mut plan = planned(wanted, run, real)?;
        let scenario = hash(wanted, run)?;
        let mut done = boot(&mut plan, boots)?;
        std::mem::replace(&mut done.outcome, Ok(())).map_err(failed)?;
        let rows = run.rows.iter().map(|row| row.metric.as_str());
        let claims = wanted.paper.claims.iter();
        let judged = claims.filter(|claim| run.judges.contains(&claim.id));
        let metrics: BTreeSet<&str> = rows
            .chain(judged.filter_map(|c| c.metric.as_deref()))
            .collect();
        let results = done.results(&plan, String::new(), true);
        let keep = |record: &RunRecord| {
            let value = |metric: &&str| {
                let value = *record.metrics.get(*metric)?;
                let rounded = format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value);
                Some((metric.to_string(), rounded))
            };
            Kept {
                arm: record.arm.clone(),
                seed: record.seed,
                metrics: metrics.iter().filter_map(value).collect(),
            }
        };
        let variant = |(outcome, settings): (&Outcome, Vec<String>)| {
            let mut runs: Vec<Kept> = outcome.runs.iter().map(keep).collect();
            let place = |kept: &Kept| run.arms.iter().position(|arm| *arm == kept.arm);
            runs.sort_by_key(|kept| (place(kept), kept.seed));
            VariantRecord {
                set: settings,
                runs,
            }
        };
        let settings = plan.variants.iter().map(|v| v.set.clone());
        Ok(Record {
            format: FORMAT,
            kernel: results.provenance.kernel.clone(),
            vcpus: results.provenance.vcpus.clone(),
            scenario,
            variants: results
                .experiments
                .iter()
                .zip(settings)
                .map(variant)
                .collect(),
        })
    }
}

#[cfg(feature = "kernel")]
pub use recording::record;
