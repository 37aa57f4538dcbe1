// SPDX-License-Identifier: GPL-2.0-only
//! Bounds that are known to be broken, each with the reason: what is published, and what a check tells from news.
use crate::judge::{Comparison, Row, Verdict};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The list, `known.toml`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    #[serde(default)]
    broken: Vec<Entry>,
}

/// Rows that are known to be broken. What is left out matches anything.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    scenario: Option<String>,
    arm: Option<String>,
    #[serde(rename = "vm")]
    group: Option<String>,
    /// As in the tables; `order` for that of the policies.
    quantity: String,
    why: String,
}

const HEAD: &str = "# SPDX-License-Identifier: GPL-2.0-only
# Bounds that are broken, each with the reason as far as it is known. `berth compare --check` fails on any other.
# A row that holds again leaves this list; `--renew-known` writes it anew and keeps the reasons.
";
/// Of a row that nobody has looked into.
const NEW: &str = "not looked into yet";

/// A list that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct KnownError {
    path: PathBuf,
    reason: String,
}

impl Entry {
    fn matches(&self, scenario: &str, arm: &str, group: &str, quantity: &str) -> bool {
        let is = |mine: &Option<String>, other: &str| mine.as_deref().is_none_or(|m| m == other);
        is(&self.scenario, scenario)
            && is(&self.arm, arm)
            && is(&self.group, group)
            && self.quantity == quantity
    }
}

impl Known {
    /// Reads the list; an empty one if there is no such file.
    ///
    /// # Errors
    /// It cannot be read or understood.
    pub fn read(path: &Path) -> Result<Known, KnownError> {
        let wrong = |reason: String| KnownError {
            path: path.to_path_buf(),
            reason,
        };
        match std::fs::read_to_string(path) {
            Ok(text) => Known::parse(&text).map_err(wrong),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Known::default()),
            Err(e) => Err(wrong(e.to_string())),
        }
    }

    fn parse(text: &str) -> Result<Known, String> {
        toml_edit::de::from_str(text).map_err(|e| e.to_string())
    }

    /// Why this row is broken, if that is known.
    pub fn why(&self, scenario: &str, row: &Row) -> Option<String> {
        let found = self
            .broken
            .iter()
            .find(|e| e.matches(scenario, &row.arm, &row.group, row.quantity.name()));
        found.map(|e| e.why.clone())
    }

    /// What is in the list and not broken (any more), one line each.
    pub fn mended(&self, all: &[Comparison]) -> Vec<String> {
        let broken = |e: &&Entry| {
            all.iter().any(|c| {
                let rows = c
                    .broken()
                    .any(|r| e.matches(&c.scenario, &r.arm, &r.group, r.quantity.name()));
                let order = c.ranking.verdict == Verdict::Broken
                    && e.quantity == "order"
                    && e.scenario.as_deref().is_none_or(|s| s == c.scenario);
                rows || order
            })
        };
        let line = |e: &Entry| {
            let any = |part: &Option<String>| part.clone().unwrap_or_else(|| "any".into());
            let (scenario, arm, vm) = (any(&e.scenario), any(&e.arm), any(&e.group));
            format!("{scenario}: {} of {vm} under {arm}", e.quantity)
        };
        let mended = self.broken.iter().filter(|e| !broken(e));
        mended.map(line).collect()
    }

    /// Why the order of the policies is broken there, if that is known.
    fn why_order(&self, scenario: &str) -> Option<String> {
        let is = |e: &&Entry| {
            e.quantity == "order" && e.scenario.as_deref().is_none_or(|s| s == scenario)
        };
        self.broken.iter().find(is).map(|e| e.why.clone())
    }

    /// The list as a file, of what is broken now: reasons stay where there is one, and what holds again is left out.
    pub fn renewed(&self, all: &[Comparison]) -> String {
        let mut out = String::from(HEAD);
        let mut put = |scenario: &str, row: Option<&Row>, quantity: &str, why: Option<String>| {
            let why = why.unwrap_or_else(|| NEW.into());
            out.push_str(&format!("\n[[broken]]\nscenario = {scenario:?}\n"));
            if let Some(row) = row {
                out.push_str(&format!("arm = {:?}\nvm = {:?}\n", row.arm, row.group));
            }
            out.push_str(&format!("quantity = {quantity:?}\nwhy = {why:?}\n"));
        };
        for c in all {
            for row in c.broken() {
                let why = self.why(&c.scenario, row);
                put(&c.scenario, Some(row), row.quantity.name(), why);
            }
            if c.ranking.verdict == Verdict::Broken {
                put(&c.scenario, None, "order", self.why_order(&c.scenario));
            }
        }
        out
    }

    /// What is broken and not in the list, one line each.
    pub fn news(&self, all: &[Comparison]) -> Vec<String> {
        let mut news = Vec::new();
        for c in all {
            for row in c.broken().filter(|r| self.why(&c.scenario, r).is_none()) {
                let shown = |v| crate::table::value(row.quantity, v);
                news.push(format!(
                    "{}: {} of {} under {}: {} simulated, {} on the kernel",
                    c.scenario,
                    row.quantity,
                    row.group,
                    row.arm,
                    shown(row.sim),
                    shown(row.lab)
                ));
            }
            if c.ranking.verdict == Verdict::Broken && self.why_order(&c.scenario).is_none() {
                news.push(format!(
                    "{}: order of the policies, tau {:.2}",
                    c.scenario,
                    c.ranking.tau.unwrap_or(0.0)
                ));
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Bounds;
    use crate::judge::compare;
    use crate::table::tests::experiment;

    #[test]
    fn what_is_listed_is_no_news() {
        let bounds = Bounds::built_in().unwrap();
        let lab = experiment(1, &[("a", 1.0), ("b", 0.9)]);
        let sim = experiment(1, &[("a", 1.2), ("b", 0.9)]);
        let all = [compare(&sim, &lab, &bounds)];
        // 20 % off: share and switches, nothing else.
        assert_eq!(Known::default().news(&all).len(), 2);
        let text = "[[broken]]\nscenario = \"t\"\nquantity = \"switches\"\nwhy = \"because\"\n";
        let known = Known::parse(text).unwrap();
        let news = known.news(&all);
        assert_eq!(news.len(), 1, "{news:?}");
        assert!(news[0].contains("share of web under a"), "{news:?}");
        assert!(known.mended(&all).is_empty());
        let within = Known::parse(&text.replace("switches", "run delay p99")).unwrap();
        assert_eq!(within.mended(&all).len(), 1);
        let other = Known::parse(&text.replace("\"t\"", "\"u\"")).unwrap();
        assert_eq!(other.news(&all).len(), 2);
        let renewed = known.renewed(&all);
        assert!(
            renewed.contains("quantity = \"switches\"\nwhy = \"because\""),
            "{renewed}"
        );
        assert!(
            renewed.contains("vm = \"web\"\nquantity = \"share\"\nwhy = \"not looked"),
            "{renewed}"
        );
        let renewed = Known::parse(&renewed).unwrap();
        assert!(renewed.news(&all).is_empty() && renewed.mended(&all).is_empty());
        assert!(Known::parse("[[broken]]\nquantity = \"switches\"\n").is_err());
    }
}
