// SPDX-License-Identifier: GPL-2.0-only
//! The simulator against the recordings of real kernels.
use berth_conformance::report::{self, Caught, KNOWN, MODEL_LINE, Report, Verdict};
use berth_conformance::rows::rows;
use berth_conformance::{golden, recorder};
use berth_policy::policy::{LoadOptions, Policy};
use berth_sim::scx::Mutation;
use std::sync::LazyLock;

static RECORDER: LazyLock<Policy> = LazyLock::new(|| {
    let object = recorder::object().unwrap();
    Policy::from_object(&object, &LoadOptions::default()).unwrap()
});
static REPORT: LazyLock<Report> = LazyLock::new(|| report::report(&RECORDER).unwrap());

#[test]
fn every_row_agrees_with_every_kernel_line_or_its_difference_is_explained() {
    let mut wrong = Vec::new();
    for (row, verdicts) in &REPORT.rows {
        for (line, verdict) in verdicts {
            let known = KNOWN.iter().any(|(l, r, _)| (l, r) == (line, row));
            match verdict {
                Verdict::Same if known => wrong.push(format!(
                    "{row} agrees with {line} now: take it off the list"
                )),
                Verdict::Differs(why) if !known => wrong.push(format!("{row} on {line}: {why}")),
                Verdict::NotRecorded => wrong.push(format!("{row} is not recorded on {line}")),
                _ => (),
            }
        }
    }
    assert!(
        !KNOWN.iter().any(|(line, _, _)| *line == MODEL_LINE),
        "the model must agree with its own line"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_wrong_model_is_rejected() {
    let survivors: Vec<String> = REPORT
        .mutations
        .iter()
        .filter(|(_, caught)| !matches!(caught, Caught::By(_)))
        .map(|(m, _)| format!("{} (row {}): {}", m.name(), m.row(), m.wrong().trim()))
        .collect();
    assert!(
        survivors.is_empty(),
        "not rejected:\n{}",
        survivors.join("\n")
    );
}

#[test]
fn every_row_about_cgroups_rejects_a_wrong_model_about_its_rule() {
    for row in rows().iter().filter(|r| !r.groups.is_empty()) {
        let golden = golden::load(MODEL_LINE, row).unwrap().unwrap();
        let about = |m: &&Mutation| m.row() == report::number(row);
        let rejected = (Mutation::ALL.iter())
            .filter(about)
            .any(|m| report::rejects(row, &golden.log, *m, &RECORDER));
        assert!(rejected, "{} rejects none of them", row.name);
    }
}

#[test]
fn the_docs_show_this_report() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let current = page == report::markdown(&REPORT);
    assert!(
        current,
        "docs/conformance.md is old: cargo run -p berth-conformance -- table > docs/conformance.md"
    );
}
