// SPDX-License-Identifier: GPL-2.0-only
//! The table of the docs: every row in the simulator against every kernel line, and every model that is wrong
//! on purpose against the rows that must reject it.
use crate::golden::{self, GoldenError, LINES};
use crate::log::{Log, compare};
use crate::row::Row;
use crate::rows::rows;
use crate::sim::{self, PlayError};
use berth_policy::policy::Policy;
use berth_sim::scx::Mutation;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Kernel line that the model follows.
pub const MODEL_LINE: &str = "7.2";

/// Line, row, and why the row differs there; every other row must agree.
pub const KNOWN: &[(&str, &str, &str)] = &[
    (
        "6.18",
        "23-release-stays",
        "a CPU that leaves a sched_ext task makes a dispatch pass even when a higher class takes it, so each takeover \
         is a new one",
    ),
    (
        "6.18",
        "29-default",
        "the idle sibling of prev is not preferred yet",
    ),
    (
        "6.18",
        "33-class",
        "set_weight is called when a task leaves sched_ext too, and its slice is kept",
    ),
    ("6.18", "44-idle", "it has no cgroup_set_idle"),
    (
        "7.0",
        "29-default",
        "the idle sibling of prev is not preferred yet",
    ),
    (
        "7.0",
        "33-class",
        "set_weight is called when a task leaves sched_ext too, and its slice is kept",
    ),
    (
        "7.3",
        "12-spurious",
        "an insert that is ignored leaves the task's slice alone: a slice is kept aside until its insert counts",
    ),
    (
        "7.3",
        "13-changed",
        "an insert that is dropped leaves the task's slice alone",
    ),
    (
        "7.3",
        "44-idle",
        "what is written to cpu.idle is told only if it is another value",
    ),
];

/// What the comparison of one row on one line found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Same,
    Differs(String),
    NotRecorded,
}

/// What became of a wrong model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caught {
    /// The first row that rejects it.
    By(&'static str),
    /// No row about it rejects it.
    Survives,
    /// No row of the table is about it yet.
    NoRow,
}

/// The whole report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Row name -> kernel line -> verdict.
    pub rows: BTreeMap<&'static str, BTreeMap<&'static str, Verdict>>,
    /// In the order of the checklist.
    pub mutations: Vec<(Mutation, Caught)>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Golden(#[from] GoldenError),
    #[error(transparent)]
    Play(#[from] PlayError),
}

/// Number of the checklist's row: `1` for `01-expired`, `31b` for `31b-move`.
pub fn number(row: &Row) -> &'static str {
    row.name
        .split('-')
        .next()
        .unwrap_or("")
        .trim_start_matches('0')
}

/// The model's log as that line would have written it. Two things are newer than lines before the model's, in every
/// row: `ops.dequeue` for tasks in the policy's queues (older lines call it only for tasks that the policy
/// holds outside of any queue, which no row has), and the flag SCHED_CHANGE.
pub fn as_line(line: &str, log: &Log) -> Log {
    let mut log = log.clone();
    let at = |line| LINES.iter().position(|l| *l == line);
    if at(line) >= at(MODEL_LINE) {
        return log;
    }
    log.lines.retain(|l| l.op != "dequeue");
    for l in &mut log.lines {
        if l.args == "sched_change" {
            l.args = "flags=0".into();
        }
    }
    log
}

/// Plays every row, right and wrong, and compares.
///
/// # Errors
/// A recording that cannot be read, a recorder that cannot be loaded.
pub fn report(recorder: &Policy) -> Result<Report, ReportError> {
    let mut verdicts = BTreeMap::new();
    for row in rows() {
        let model = sim::play(&row, recorder, None)?;
        let mut by_line = BTreeMap::new();
        for line in LINES {
            let verdict = match golden::load(line, &row)? {
                None => Verdict::NotRecorded,
                Some(golden) => match compare(&row, &golden.log, &as_line(line, &model)) {
                    Ok(()) => Verdict::Same,
                    Err(difference) => Verdict::Differs(difference.to_string()),
                },
            };
            by_line.insert(line, verdict);
        }
        verdicts.insert(row.name, by_line);
    }
    let mut mutations = Vec::new();
    for mutation in Mutation::ALL {
        mutations.push((*mutation, caught(*mutation, recorder)?));
    }
    Ok(Report {
        rows: verdicts,
        mutations,
    })
}

/// Which row about this mistake rejects it.
///
/// # Errors
/// As [`report`].
pub fn caught(mutation: Mutation, recorder: &Policy) -> Result<Caught, ReportError> {
    let mut result = Caught::NoRow;
    for row in rows().iter().filter(|r| number(r) == mutation.row()) {
        let Some(golden) = golden::load(MODEL_LINE, row)? else {
            continue;
        };
        result = Caught::Survives;
        // Only a row that the right model passes says something about a wrong one.
        if compare(row, &golden.log, &sim::play(row, recorder, None)?).is_err() {
            continue;
        }
        if rejects(row, &golden.log, mutation, recorder) {
            return Ok(Caught::By(row.name));
        }
    }
    Ok(result)
}

/// Does a row, by its recording, tell a model with this mistake from the kernel?
pub fn rejects(row: &Row, golden: &Log, mutation: Mutation, recorder: &Policy) -> bool {
    // A wrong model may well break one of the simulator's own invariants, even by a panic: that is a
    // rejection too.
    let play = || sim::play(row, recorder, Some(mutation));
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(play));
    !played.is_ok_and(|played| played.is_ok_and(|log| compare(row, golden, &log).is_ok()))
}

/// The report as a page of the docs.
pub fn markdown(report: &Report) -> String {
    let mut page = String::from(
        "# Conformance: the simulator's kernel model against the kernel

Made by `cargo run -p berth-conformance -- table`; do not edit.

One policy (`crates/conformance/recorder.bpf.c`) writes down every call the kernel makes and does what a
script says. The same object and the same cast of threads run on a real kernel in the lab's virtual machine
and in the simulator. On one CPU the sequences of calls must be identical, arguments included; on several
CPUs the sequences of each thread and of each CPU. Times are compared only where a row is about time.
Recordings are kept in `crates/conformance/golden/`; `cargo run -p berth-conformance --features lab --
record 7.2` makes them again. A row is recorded until three recordings agree.

The model follows 7.2; recordings of 7.3 are held against the same. For the older lines two things that are newer are
left out of its log: `ops.dequeue` for tasks in the policy's queues, and the flag `SCHED_CHANGE`. A policy that 7.2
refuses to load (31b-enqueue) is loaded and ejected by the older lines and by the model: the row asks that nobody
accepts it.

Rows from 41 are about cgroups. The threads of the cast sit in `machine.slice/vm0` and `vm1` (threaded cgroups: all are
threads of one process), and write to `cpu.weight`, `cpu.max`, `cpu.max.burst`, `cpu.idle`, `cgroup.threads` and
`cgroup.procs` themselves. The kernel's cgroups are mounted with `favordynmods`: without it a thread that moves another
one sleeps for an RCU grace period first, which says nothing about the policy.

| row | rule |",
    );
    for line in LINES {
        let _ = write!(page, " {line} |");
    }
    page.push_str("\n|---|---|");
    page.push_str(&"---|".repeat(LINES.len()));
    page.push('\n');
    let mut notes = Vec::new();
    for row in rows() {
        let _ = write!(page, "| {} | {} |", row.name, row.title);
        for line in LINES {
            let verdict = report.rows.get(row.name).and_then(|r| r.get(line));
            let cell = match verdict {
                Some(Verdict::Same) => "same".to_string(),
                Some(Verdict::Differs(why)) => {
                    let known = KNOWN.iter().find(|(l, r, _)| (*l, *r) == (line, row.name));
                    let reason = known.map_or("not explained yet", |(_, _, reason)| reason);
                    notes.push(format!("{} on {line}: {reason}. In {why}", row.name));
                    format!("differs ({})", notes.len())
                }
                _ => "-".to_string(),
            };
            let _ = write!(page, " {cell} |");
        }
        page.push('\n');
    }
    if !notes.is_empty() {
        page.push_str("\nWhy, and the first call that differs:\n\n");
        for (i, note) in notes.iter().enumerate() {
            let _ = writeln!(page, "{}. {note}", i + 1);
        }
    }
    page.push_str(
        "\n## Models that are wrong on purpose\n\nA row is worth something only if it rejects a model that makes the \
         usual mistake.\n\n\
         | rule | mistake | rejected by |\n|---|---|---|\n",
    );
    for (mutation, caught) in &report.mutations {
        let by = match caught {
            Caught::By(row) => row,
            Caught::NoRow => "no row yet",
            Caught::Survives => "**not rejected**",
        };
        let _ = writeln!(
            page,
            "| {} | {} | {by} |",
            mutation.row(),
            mutation.wrong().trim()
        );
    }
    page
}
