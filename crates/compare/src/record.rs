// SPDX-License-Identifier: GPL-2.0-only
//! Records of the real kernel, kept small: what a comparison needs of one scenario, so that the simulator can be held
//! against the kernel again without a VM.
use crate::judge::Quantity;
use berth_results::experiment::{Arm, Experiment, Group, Results, Setup};
use berth_results::requests;
use berth_results::schema::{Place, RunRecord};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Version of the record files.
const FORMAT: u32 = 2;
/// Significant digits kept of each value.
const DIGITS: usize = 5;

/// One scenario on a real kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    format: u32,
    /// Version of the kernel and what ran it.
    pub kernel: String,
    pub title: String,
    pub cpus: u32,
    pub groups: Vec<Group>,
    pub warmup_ns: u64,
    pub measure_ns: u64,
    pub baseline: Option<String>,
    pub arms: BTreeMap<String, ArmRecord>,
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmRecord {
    pub policy: String,
    /// Of the policy's object; none for the kernel's own scheduler.
    pub hash: Option<String>,
    /// Random seeds of its runs, ascending.
    pub seeds: Vec<u64>,
    /// Values by metric, in the order of these seeds.
    pub metrics: BTreeMap<String, Vec<Option<f64>>>,
}

impl ArmRecord {
    /// The value of a metric with a seed.
    fn value(&self, metric: &str, seed: u64) -> Option<f64> {
        let i = self.seeds.iter().position(|s| *s == seed)?;
        *self.metrics.get(metric)?.get(i)?
    }

    /// These runs and an older record's of other seeds.
    fn beside(&self, old: &ArmRecord) -> ArmRecord {
        let seeds: BTreeSet<u64> = self.seeds.iter().chain(&old.seeds).copied().collect();
        let names: BTreeSet<&String> = self.metrics.keys().chain(old.metrics.keys()).collect();
        let values = |metric: &String| {
            let of = |seed: &u64| match self.seeds.contains(seed) {
                true => self.value(metric, *seed),
                false => old.value(metric, *seed),
            };
            (metric.clone(), seeds.iter().map(of).collect())
        };
        ArmRecord {
            policy: self.policy.clone(),
            hash: self.hash.clone(),
            metrics: names.into_iter().map(values).collect(),
            seeds: seeds.iter().copied().collect(),
        }
    }
}

/// A record that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct RecordError {
    path: PathBuf,
    reason: String,
}

impl RecordError {
    pub(crate) fn new(path: &Path, reason: String) -> RecordError {
        RecordError {
            path: path.to_path_buf(),
            reason,
        }
    }
}

/// The metrics that a comparison reads.
fn metrics(groups: &[Group]) -> Vec<String> {
    let of = |g: &Group| {
        let counts = Quantity::ALL.iter().filter_map(|q| q.count(&g.name));
        let values = Quantity::ALL.iter().map(|q| q.metric(&g.name));
        let requests = requests::METRICS.map(|what| format!("{}.{what}", g.name));
        values.chain(counts).chain(requests).collect::<Vec<_>>()
    };
    let mut all: Vec<String> = groups.iter().flat_map(of).collect();
    all.sort();
    all.dedup();
    all
}

/// So many digits that differences of the bounds' size are kept, and files stay readable.
fn rounded(value: f64) -> f64 {
    format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value)
}

impl Record {
    /// What is needed of the results of a scenario.
    pub fn of(results: &Results) -> Option<Record> {
        let e = results.experiments.first()?;
        let arm = |arm: &Arm| {
            let values = |metric: &String| {
                let by_seed = e.values(&arm.name, metric);
                let list: Vec<Option<f64>> = e
                    .setup
                    .seeds
                    .iter()
                    .map(|s| by_seed.get(s).copied().map(rounded))
                    .collect();
                (metric.clone(), list)
            };
            let metrics = metrics(&e.setup.groups)
                .iter()
                .map(values)
                .filter(|(_, list)| list.iter().any(Option::is_some))
                .collect();
            let record = ArmRecord {
                policy: arm.policy.clone(),
                hash: arm.hash.clone(),
                seeds: e.setup.seeds.clone(),
                metrics,
            };
            (arm.name.clone(), record)
        };
        Some(Record {
            format: FORMAT,
            kernel: results.provenance.kernel.clone(),
            title: e.setup.title.clone(),
            cpus: e.setup.cpus,
            groups: e.setup.groups.clone(),
            warmup_ns: e.setup.warmup_ns,
            measure_ns: e.setup.measure_ns,
            baseline: e.baseline.clone(),
            arms: e
                .arms
                .iter()
                .map(arm)
                .filter(|(_, record)| !record.metrics.is_empty())
                .collect(),
        })
    }

    /// As an experiment of the lab, to be compared. Arms come in the order of `order`, then the rest.
    pub fn experiment(&self, name: &str, order: &[String]) -> Experiment {
        let mut arms: Vec<&String> = self.arms.keys().collect();
        arms.sort_by_key(|a| order.iter().position(|o| o == *a).unwrap_or(order.len()));
        let runs = arms.iter().flat_map(|arm| {
            let ArmRecord { metrics, seeds, .. } = &self.arms[*arm];
            seeds.iter().enumerate().map(|(i, seed)| {
                let values = metrics
                    .iter()
                    .filter_map(|(name, values)| Some((name.clone(), (*values.get(i)?)?)))
                    .collect();
                RunRecord::new(Place::Lab, arm, *seed, values)
            })
        });
        Experiment {
            setup: Setup {
                name: name.to_string(),
                title: self.title.clone(),
                cpus: self.cpus,
                groups: self.groups.clone(),
                warmup_ns: self.warmup_ns,
                measure_ns: self.measure_ns,
                seeds: self.seeds(),
            },
            variant: Vec::new(),
            runs: runs.collect(),
            arms: arms
                .iter()
                .map(|name| Arm {
                    name: name.to_string(),
                    policy: self.arms[*name].policy.clone(),
                    hash: self.arms[*name].hash.clone(),
                    model: None,
                    absent: None,
                })
                .collect(),
            baseline: self.baseline.clone(),
            expects: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// All seeds that some arm was recorded with, ascending.
    pub fn seeds(&self) -> Vec<u64> {
        let all: BTreeSet<u64> = self.arms.values().flat_map(|a| a.seeds.clone()).collect();
        all.into_iter().collect()
    }

    /// The seeds of these that an arm has no run of.
    pub fn without(&self, arm: &str, seeds: &[u64]) -> Vec<u64> {
        let has = self.arms.get(arm).map_or(&[][..], |a| &a.seeds);
        let missing = seeds.iter().filter(|s| !has.contains(s));
        missing.copied().collect()
    }

    /// Adds the arms of a later record of the same scenario. Runs of an arm stay beside the new ones if they are of the
    /// same policy and kernel; those of the same seeds are replaced.
    pub fn take_over(&mut self, newer: Record) {
        let mut arms = std::mem::take(&mut self.arms);
        let same_length = (newer.warmup_ns, newer.measure_ns) == (self.warmup_ns, self.measure_ns);
        if newer.kernel != self.kernel || !same_length {
            arms.clear();
        }
        *self = newer;
        for (name, old) in arms {
            match self.arms.remove(&name) {
                None => self.arms.insert(name, old),
                Some(new) if new.hash == old.hash => self.arms.insert(name, new.beside(&old)),
                Some(new) => self.arms.insert(name, new),
            };
        }
    }

    /// Where the record of a scenario file lies: `kernel/NAME.json` beside it.
    pub fn path(scenario: &Path) -> PathBuf {
        let name = scenario
            .file_stem()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        let folder = scenario.parent().unwrap_or(Path::new("."));
        folder.join("kernel").join(format!("{name}.json"))
    }

    /// Reads a record; none if there is no such file.
    ///
    /// # Errors
    /// It cannot be read, or is of another version.
    pub fn read(path: &Path) -> Result<Option<Record>, RecordError> {
        let wrong = |reason: String| RecordError {
            path: path.to_path_buf(),
            reason,
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(wrong(e.to_string())),
        };
        let record: Record = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        if record.format != FORMAT {
            let format = record.format;
            return Err(wrong(format!(
                "a record of format {format}, and this program knows {FORMAT}: make it anew with --record"
            )));
        }
        Ok(Some(record))
    }

    /// Writes the record, one line per metric.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let wrong = |reason: String| RecordError {
            path: path.to_path_buf(),
            reason,
        };
        let text = self.text().map_err(|e| wrong(e.to_string()))?;
        berth_results::write::atomic(path, text.as_bytes()).map_err(|e| wrong(e.to_string()))
    }

    fn text(&self) -> Result<String, serde_json::Error> {
        Ok(compact(&serde_json::to_string_pretty(self)?))
    }
}

/// A record's text: lists of numbers on one line.
pub(crate) fn compact(text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for line in text.lines() {
        let word = line.trim();
        let number = word.trim_end_matches(',');
        let plain = number == "null" || number.parse::<f64>().is_ok();
        if inside && (plain || word.starts_with(']')) {
            out.push_str(word);
            if plain && word.ends_with(',') {
                out.push(' ');
            }
            if word.starts_with(']') {
                out.push('\n');
                inside = false;
            }
            continue;
        }
        inside = line.ends_with('[');
        out.push_str(line);
        if !inside {
            out.push('\n');
        }
    }
    // A list of objects was no list of numbers.
    out.replace("[    {", "[\n    {")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::experiment;
    use berth_results::experiment::{FORMAT as RESULTS, Provenance};

    fn results() -> Results {
        Results {
            format: RESULTS,
            place: Place::Lab,
            provenance: Provenance {
                version: String::new(),
                command: String::new(),
                kernel: "7.2".into(),
                vcpus: "threads".into(),
                machine: String::new(),
                scenario: String::new(),
            },
            complete: true,
            experiments: vec![experiment(1, &[("a", 1.0), ("b", 1.23456789)])],
        }
    }

    #[test]
    fn a_record_comes_back_and_compares_as_the_results_did() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::of(&results()).unwrap();
        let path = Record::path(&dir.path().join("x.toml"));
        assert_eq!(Record::read(&path).unwrap(), None);
        record.write(&path).unwrap();
        let read = Record::read(&path).unwrap().unwrap();
        assert_eq!(read, record);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains(": [5e6, 5e6],") || text.contains("[5000000.0, 5000000.0]"),
            "{text}"
        );
        let e = read.experiment("x", &["b".into(), "a".into()]);
        assert_eq!(e.arms[0].name, "b");
        let share = e.estimate("b", "web.cpu").unwrap().mean;
        assert!((share - 0.5 * 1.23456789).abs() < 1e-4, "{share}");
        std::fs::write(&path, text.replace("\"format\": 2", "\"format\": 9")).unwrap();
        assert!(Record::read(&path).is_err());
    }

    #[test]
    fn arms_of_another_kernel_do_not_stay() {
        let mut old = Record::of(&results()).unwrap();
        let mut newer = old.clone();
        newer.arms.remove("a");
        old.take_over(newer.clone());
        assert_eq!(old.arms.len(), 2);
        newer.kernel = "7.3".into();
        old.take_over(newer);
        assert_eq!(old.arms.len(), 1);
    }

    #[test]
    fn runs_of_other_seeds_stay_beside_new_ones_of_the_same_policy_only() {
        let old = Record::of(&results()).unwrap();
        let mut newer = old.clone();
        let arm = newer.arms.get_mut("b").unwrap();
        (arm.seeds, arm.metrics) = (
            vec![2, 3],
            BTreeMap::from([("web.cpu".into(), vec![Some(0.2), Some(0.3)])]),
        );
        newer.arms.remove("a");
        assert_eq!(old.without("b", &[1, 2, 3]), [3]);
        assert_eq!(old.without("c", &[1, 2]), [1, 2]);
        let mut all = old.clone();
        all.take_over(newer.clone());
        assert_eq!(all.without("b", &[1, 2, 3]), [0; 0]);
        let cpu = &all.arms["b"].metrics["web.cpu"];
        assert_eq!(cpu[0], old.arms["b"].metrics["web.cpu"][0]);
        assert_eq!(cpu[1..], [Some(0.2), Some(0.3)]);
        assert_eq!(all.arms["b"].metrics["web.switches"][2], None);
        let e = all.experiment("x", &[]);
        assert_eq!(e.values("a", "web.cpu").len(), 2);
        assert_eq!(e.values("b", "web.cpu").len(), 3);
        // Another policy: only its own runs.
        newer.arms.get_mut("b").unwrap().hash = Some("other".into());
        let mut all = old.clone();
        all.take_over(newer);
        assert_eq!(all.without("b", &[1, 2, 3]), [1]);
    }
}
