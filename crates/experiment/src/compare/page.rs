// SPDX-License-Identifier: GPL-2.0-only
//! The pages about the sets: what came out in all, and every row.
use super::sets::Compared;
use crate::error::{Done, Failure};
use berth_compare::known::Known;
use berth_compare::{Bounds, Row, block, markdown};
use berth_results::write;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::path::PathBuf;

/// Below the heading of a page.
const MADE_BY: &str = "Made by `make fidelity` (`berth compare crates/compare/set --sealed crates/compare/sealed \
     --markdown\ndocs/fidelity-table.md`); do not edit. Simulator / kernel; bold: the bound is broken; in brackets: \
     not \
     judged; ±: half of\nthe kernel's 95 % interval, where it could hold the bound (open). Answered: requests answered \
     / \
     due in the measured time.";

/// Where the pages go; none: not written.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// Every row.
    pub table: Option<PathBuf>,
    /// What came out in all and the largest errors, between the lines `begin fidelity` and `end fidelity` of a page.
    pub summary: Option<PathBuf>,
}

fn failed(e: impl Display) -> Failure {
    Failure::Run(e.to_string())
}

/// Writes the pages that were asked for.
///
/// # Errors
/// A page cannot be written, or has no place for the summary.
pub fn publish(
    pages: &Pages,
    bounds: &Bounds,
    known: &Known,
    open: &Compared,
    sealed: Option<&Compared>,
) -> Done {
    let top = top(bounds, known, open, sealed);
    if let Some(path) = &pages.table {
        let page = table(&top, bounds, known, open, sealed);
        write::atomic(path, page.as_bytes()).map_err(failed)?;
    }
    if let Some(path) = &pages.summary {
        let wrong = |e: &dyn Display| Failure::Input(format!("{}: {e}", path.display()));
        let page = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
        let top = top.replace("\n### ", "\n#### ").replace("\n## ", "\n### ");
        let top = format!("#{top}");
        let page = block::replaced(&page, "fidelity", &top).map_err(|e| wrong(&e))?;
        write::atomic(path, page.as_bytes()).map_err(failed)?;
    }
    Ok(())
}

/// What came out in all, of both sets; the largest errors; what is not recorded.
fn top(bounds: &Bounds, known: &Known, open: &Compared, sealed: Option<&Compared>) -> String {
    let reasons = |scenario: &str, row: &Row| known.why(scenario, row);
    let mut top = String::from("## The open set\n\n");
    top += &markdown::headline(&open.all, bounds);
    top += &format!(
        "\n### The ten largest errors\n\n{}",
        markdown::largest(&open.all, &reasons)
    );
    if let Some(sealed) = sealed {
        top += &format!(
            "\n## The sealed set\n\n{}",
            markdown::headline(&sealed.all, bounds)
        );
    }
    // Scenarios that lack the same stand in one line.
    let mut all_missing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (scenario, what) in [Some(open), sealed]
        .into_iter()
        .flatten()
        .flat_map(|c| &c.missing)
    {
        let of = all_missing.entry(what).or_default();
        of.push(format!("`{scenario}`"));
    }
    if !all_missing.is_empty() {
        let _ = write!(top, "\n## Not recorded yet\n\n");
        for (what, scenarios) in all_missing {
            let _ = writeln!(top, "- {what}: {}", scenarios.join(", "));
        }
    }
    for (set, compared) in [("open", Some(open)), ("sealed", sealed)] {
        let stale = compared.map(|c| c.stale.iter().cloned().collect::<Vec<_>>());
        if let Some(stale) = stale.filter(|s| !s.is_empty()) {
            let arms = stale.join(", ");
            let _ = writeln!(
                top,
                "\nIn the {set} set the kernel ran an earlier version of {arms}, in some scenarios at least."
            );
        }
    }
    top
}

/// The page with every row.
fn table(
    top: &str,
    bounds: &Bounds,
    known: &Known,
    open: &Compared,
    sealed: Option<&Compared>,
) -> String {
    let reasons = |scenario: &str, row: &Row| known.why(scenario, row);
    let unsought = |_: &str, _: &Row| {
        Some("sealed: reported, and its causes are not looked for here".to_string())
    };
    let mut page = format!(
        "# Fidelity: the table\n\n{MADE_BY}\n\n{top}\n## By quantity: the open set\n\n{}\n## Scenarios of the open \
         set\n\n{}",
        markdown::summary(&open.all, bounds),
        markdown::scenarios(&open.all, &reasons)
    );
    if let Some(sealed) = sealed {
        let _ = write!(
            page,
            "\n## By quantity: the sealed set\n\n{}\n## Scenarios of the sealed set\n\n{}",
            markdown::summary(&sealed.all, bounds),
            markdown::scenarios(&sealed.all, &unsought)
        );
    }
    page
}
