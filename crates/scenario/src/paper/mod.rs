// SPDX-License-Identifier: GPL-2.0-only
//! A paper as data: a folder with `paper.toml` (its experiments as they are run here), `claims.toml` (what it
//! reports), `page.md` (the frame of its page) and scenarios.
mod keys;
mod read;
mod table;

pub use read::{FILE, all, named, read};

use crate::claims::Claim;
use crate::diag::At;
use crate::model::Nanos;
use std::path::PathBuf;

/// A paper.
#[derive(Clone, Debug)]
pub struct Paper {
    /// Its folder's name.
    pub name: String,
    pub folder: PathBuf,
    pub title: String,
    /// Who, where, when.
    pub cites: String,
    /// What it says, in our words.
    pub about: String,
    /// Of every run.
    pub seeds: u32,
    /// Seeds, from the first one, that `--check` runs; none: all, and the page is made anew.
    pub check_seeds: Option<u32>,
    pub experiments: Vec<Experiment>,
    /// Over several of them.
    pub tables: Vec<Table>,
    pub claims: Vec<Claim>,
}

/// One experiment of a paper.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub id: String,
    pub title: String,
    pub note: Option<String>,
    pub runs: Vec<Run>,
    pub figure: Option<Figure>,
    pub traces: Vec<Trace>,
}

/// A scenario, what is changed of it, and the table of what comes out.
#[derive(Clone, Debug)]
pub struct Run {
    pub name: String,
    /// In the paper's folder.
    pub scenario: String,
    pub note: Option<String>,
    /// The columns; the first one is what the others are compared with.
    pub arms: Vec<String>,
    /// The arms were named: the scenario has others.
    pub chosen: bool,
    pub set: Vec<String>,
    pub vary: Vec<String>,
    /// A run of its own with each of these; empty: one with none.
    pub each: Vec<String>,
    pub fit: bool,
    /// Names of claims.
    pub judges: Vec<String>,
    /// Of the table's first column.
    pub head: String,
    pub rows: Vec<Row>,
    /// The parts of the benchmark whose index its rows show; empty: they show none.
    pub parts: Vec<Part>,
    /// What its rows with speeds of VMs are relative to; none: they show none.
    pub speedup: Option<Speedup>,
    /// Its place in paper.toml.
    pub at: At,
}

/// How many CPUs of each kind each VM uses over time: one run for each arm.
#[derive(Clone, Debug)]
pub struct Trace {
    pub name: String,
    /// In the paper's folder.
    pub scenario: String,
    pub arms: Vec<String>,
    pub set: Vec<String>,
    pub seed: u64,
    pub step_ns: Nanos,
}

/// What runs of several experiments have: a line for each run.
#[derive(Clone, Debug)]
pub struct Table {
    pub id: String,
    pub title: String,
    pub note: Option<String>,
    /// Of the first column.
    pub head: String,
    pub columns: Vec<Column>,
    pub lines: Vec<Line>,
}

/// A column of a [`Table`].
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub head: String,
    pub shows: Shows,
}

/// What a column of a [`Table`] shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Shows {
    /// An arm's metric, in units of `per` base units: a row of every run of the table has it.
    Metric {
        arm: String,
        metric: String,
        per: f64,
    },
    /// The next of the line's words.
    Words,
}

/// A line of a [`Table`]: a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub label: String,
    pub experiment: String,
    pub run: String,
    /// As many as there are columns of words.
    pub words: Vec<String>,
}

/// A part of a benchmark. The benchmark's index is the weighted geometric mean of the parts' metrics, each divided by
/// what scores 1; each part is a run of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub name: String,
    /// What makes a scenario this part.
    pub set: Vec<String>,
    pub metric: String,
    /// Base units of the metric that score 1.
    pub per: f64,
    /// Above 0.
    pub weight: f64,
}

impl Part {
    /// The metric of the index of all parts; that of one is `index.NAME`.
    pub const INDEX: &str = "index";

    /// The metric that the index has of this part.
    pub fn of_index(&self) -> String {
        format!("{}.{}", Part::INDEX, self.name)
    }
}

/// The speed of each VM relative to its speed under another arm, in the same seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Speedup {
    /// That arm; it is one of the run's.
    pub against: String,
    pub of: Speed,
}

/// What a VM's speed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// `VM.work`.
    Work,
    /// One by `VM.completion`.
    Completion,
}

impl Speed {
    /// The quantity it is made of.
    pub fn quantity(self) -> &'static str {
        match self {
            Speed::Work => "work",
            Speed::Completion => "completion",
        }
    }
}

impl Speedup {
    /// Metrics of all VMs of a run together: arithmetic and geometric mean, the largest, 1 less the smallest.
    pub const ALL: [&str; 4] = [
        "speedup.mean",
        "speedup.geomean",
        "speedup.max",
        "slowdown.max",
    ];

    /// The metric of a VM, or of the mean of a group of VMs.
    pub fn of_vm(name: &str) -> String {
        format!("speedup.of.{name}")
    }

    /// It names one of these metrics.
    pub fn names(metric: &str) -> bool {
        matches!(metric.split('.').next(), Some("speedup" | "slowdown"))
    }
}

/// A row of a table for each variant of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub metric: String,
    pub label: String,
    /// Base units per unit shown.
    pub per: f64,
}

/// A picture of what the tables of an experiment have.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub form: Form,
    pub over: Over,
    /// Names of runs.
    pub runs: Vec<String>,
    /// Labels of rows; empty: all.
    pub rows: Vec<String>,
    /// Empty: all.
    pub arms: Vec<String>,
    pub variant: Option<String>,
    pub x: String,
    pub y: String,
}

/// How means are drawn. Another form (a distribution, heat over time, a scatter) is another word here and another file
/// beside `report/plot/bars.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Bars,
    Lines,
}

/// What stands along the x axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Rows,
    Variants,
}

impl Paper {
    /// The experiment of this id, however its letters are written.
    pub fn experiment(&self, id: &str) -> Option<&Experiment> {
        let mut all = self.experiments.iter();
        all.find(|e| e.id.eq_ignore_ascii_case(id))
    }
}
