// SPDX-License-Identifier: GPL-2.0-only
//! A paper's experiments, run and judged: `berth reproduce`.
//!
//! [`measure`] does the runs of an experiment, kept ones not twice, [`index`] puts parts of a benchmark together,
//! [`speedup`] relates VMs to themselves under another arm, [`over_time`] follows VMs through one run. [`judge`] says
//! what came of each claim. [`table`] and [`figure`] show what was measured, [`across`] what several experiments have,
//! [`page`] puts them into the paper's frame, [`summary`] counts the verdicts of all papers, [`files`] writes pages or
//! compares them with those that are there, [`told`] gives it all as plain values.
pub mod across;
pub mod figure;
pub mod files;
pub mod index;
pub mod judge;
pub mod measure;
pub mod over_time;
pub mod page;
pub mod seal;
pub mod speedup;
pub mod summary;
pub mod table;
pub mod told;

use crate::error::Failure;
use crate::simulator::Running;
use berth_scenario::diag::nearest;
use berth_scenario::paper::{Experiment, Paper};
use judge::Judged;
use measure::Measured;

/// What is to be done of a paper, and how.
pub struct Wanted<'a> {
    pub paper: &'a Paper,
    /// Only this experiment.
    pub only: Option<&'a Experiment>,
    /// Short runs with few seeds, to see that everything works: nothing is judged from them.
    pub quick: bool,
    /// Only the first seeds, as many as the paper's seal is of, of [its variants](seal::chosen): nothing is judged from
    /// them.
    pub sealed: Option<u32>,
}

/// What came out.
pub struct Reproduced<'a> {
    pub paper: &'a Paper,
    pub quick: bool,
    pub experiments: Vec<Measured<'a>>,
    /// Claims that the runs judge; none of quick ones.
    pub judged: Vec<Judged>,
}

/// Does the runs and judges the claims. `say` is told what is being done.
///
/// # Errors
/// Wrong input, an interrupt (what is finished is kept), or a run that failed.
pub fn reproduce<'a>(
    wanted: &Wanted<'a>,
    running: &Running,
    say: &dyn Fn(&str),
) -> Result<Reproduced<'a>, Failure> {
    let all = wanted.paper.experiments.iter();
    let chosen = all.filter(|e| wanted.only.is_none_or(|only| only.id == e.id));
    let mut experiments = Vec::new();
    let mut judged = Vec::new();
    for experiment in chosen {
        let measured = measure::measure(wanted, experiment, running, say)?;
        if !wanted.quick && wanted.sealed.is_none() {
            judged.extend(judge::judge(&wanted.paper.claims, &measured)?);
        }
        experiments.push(measured);
    }
    Ok(Reproduced {
        paper: wanted.paper,
        quick: wanted.quick,
        experiments,
        judged,
    })
}

/// The experiment that a user means.
///
/// # Errors
/// The paper has none of that name; with the nearest, and all there are.
pub fn named<'a>(paper: &'a Paper, id: &str) -> Result<&'a Experiment, Failure> {
    paper.experiment(id).ok_or_else(|| {
        let ids: Vec<&str> = paper.experiments.iter().map(|e| e.id.as_str()).collect();
        let near = nearest(id, ids.iter().copied());
        // By what a claim is called, too: that is what a reader of a page may have at hand.
        let mut claims = paper.claims.iter();
        let hint = match claims.find(|claim| claim.id == id) {
            Some(_) => "; that is a claim: name the experiment that judges it".to_string(),
            None => near.map_or(String::new(), |n| format!("; did you mean `{n}`?")),
        };
        Failure::Input(format!(
            "the paper {} has no experiment `{}`{hint}\n  Experiments: {}",
            paper.name,
            id.escape_debug(),
            if ids.is_empty() {
                "none yet".into()
            } else {
                ids.join(", ")
            }
        ))
    })
}
