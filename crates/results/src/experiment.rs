// SPDX-License-Identifier: GPL-2.0-only
//! One experiment: a scenario's arms with all seeds in one place, and how it was made.
use crate::schema::{Place, RunRecord};
use crate::stats::{self, BySeed, Estimate, Ratio};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering::{Greater, Less};
use std::collections::BTreeSet;

/// Version of the results files.
pub const FORMAT: u32 = 2;

/// A results file: what was asked for and what came out, one [`Experiment`] per variant (`--vary`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    pub place: Place,
    pub provenance: Provenance,
    /// False: interrupted, or a run failed; what there is, is whole.
    pub complete: bool,
    pub experiments: Vec<Experiment>,
}

/// What is needed to make the same results again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version of Berth.
    pub version: String,
    /// The command that makes it again.
    pub command: String,
    /// Kernel: the model's profile in the simulator, `uname -r` in the lab and on a host.
    pub kernel: String,
    /// What vCPUs were in the lab: `kvm` or `threads`; empty elsewhere.
    #[serde(default)]
    pub vcpus: String,
    /// Operating system and architecture of the machine.
    pub machine: String,
    /// The scenario with every default filled in and every change of the command line applied.
    pub scenario: String,
}

/// One variant of a scenario, in one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    pub setup: Setup,
    /// What `--vary` set, as `ADDRESS=VALUE`; empty for a plain run.
    pub variant: Vec<String>,
    pub arms: Vec<Arm>,
    /// The arm that the others are compared with here.
    pub baseline: Option<String>,
    pub runs: Vec<RunRecord>,
    /// The bounds of the scenario and whether they hold.
    pub expects: Vec<crate::expect::Verdict>,
    /// What a paper reports beside what came out here.
    #[serde(default)]
    pub findings: Vec<crate::findings::Finding>,
    /// Notes on the whole experiment.
    pub notes: Vec<String>,
}

/// What a reader must know of the scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    pub name: String,
    pub title: String,
    pub cpus: u32,
    pub groups: Vec<Group>,
    pub warmup_ns: u64,
    pub measure_ns: u64,
    pub seeds: Vec<u64>,
}

/// A group of equal VMs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    /// `latency`, `batch`, `mixed` or `none`.
    pub class: String,
    pub vms: u32,
    /// Of each.
    pub vcpus: u32,
}

/// One compared arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    pub name: String,
    pub policy: String,
    /// Of the policy's object; none for the place's own scheduler.
    pub hash: Option<String>,
    /// The policy that does the work of the kernel's own scheduler here.
    #[serde(default)]
    pub model: Option<String>,
    /// Why it has no runs here, if it has none on purpose.
    pub absent: Option<String>,
}

impl Arm {
    /// Its name in tables; says so where a model stands in for the kernel's own scheduler.
    pub fn label(&self) -> String {
        match self.model.as_deref() {
            Some("eevdf") => format!("{} (EEVDF model)", self.name),
            Some("cfs") => format!("{} (CFS model)", self.name),
            Some(policy) => format!("{} (model {policy})", self.name),
            None => self.name.clone(),
        }
    }
}

impl Experiment {
    /// Values of a metric of an arm, by seed.
    pub fn values(&self, arm: &str, metric: &str) -> BySeed {
        let runs = self.runs.iter().filter(|r| r.arm == arm);
        runs.filter_map(|r| Some((r.seed, *r.metrics.get(metric)?)))
            .collect()
    }

    /// Mean and interval of a metric of an arm.
    pub fn estimate(&self, arm: &str, metric: &str) -> Option<Estimate> {
        stats::estimate(&self.values(arm, metric).into_values().collect::<Vec<_>>())
    }

    /// Largest value over the seeds.
    pub fn largest(&self, arm: &str, metric: &str) -> Option<f64> {
        self.values(arm, metric).into_values().reduce(f64::max)
    }

    /// A metric of `arm` divided by that of `other`, paired by seed.
    pub fn ratio(&self, arm: &str, other: &str, metric: &str) -> Option<Ratio> {
        stats::paired_ratio(&self.values(arm, metric), &self.values(other, metric))
    }

    /// All metrics of any run, in order.
    pub fn metrics(&self) -> BTreeSet<&str> {
        self.runs
            .iter()
            .flat_map(|r| r.metrics.keys().map(String::as_str))
            .collect()
    }

    /// The arm with the lowest mean of `metric`, if it is lower than that of every other arm with 95 % confidence.
    pub fn lowest(&self, metric: &str) -> Option<&str> {
        self.first_by(metric, 1.0)
    }

    /// The arm with the highest mean of `metric`, if it is higher than that of every other arm with 95 % confidence.
    pub fn highest(&self, metric: &str) -> Option<&str> {
        self.first_by(metric, -1.0)
    }

    /// The lowest one of `sign` times the metric.
    fn first_by(&self, metric: &str, sign: f64) -> Option<&str> {
        let measured: Vec<(&str, f64)> = self
            .arms
            .iter()
            .filter_map(|a| Some((a.name.as_str(), sign * self.estimate(&a.name, metric)?.mean)))
            .collect();
        let (best, _) = *measured.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let beats_all = measured
            .iter()
            .filter(|(name, _)| *name != best)
            .all(|(name, _)| {
                let (ours, theirs) = (self.values(best, metric), self.values(name, metric));
                stats::told_apart(&ours, &theirs) == Some(if sign > 0.0 { Less } else { Greater })
            });
        (measured.len() > 1 && beats_all).then_some(best)
    }

    /// Of the worst waits only that of each arm and group keeps its strip: the others are as long and seldom looked at.
    pub fn keep_worst_strips(&mut self) {
        let mut longest = std::collections::BTreeMap::<(String, String), (u64, u64)>::new();
        for run in &self.runs {
            for w in &run.worst {
                let best = longest.entry((run.arm.clone(), w.group.clone()));
                let best = best.or_insert((w.ns(), run.seed));
                if w.ns() > best.0 {
                    *best = (w.ns(), run.seed);
                }
            }
        }
        for run in &mut self.runs {
            for w in &mut run.worst {
                let best = longest.get(&(run.arm.clone(), w.group.clone()));
                if best.is_none_or(|b| b.1 != run.seed) {
                    w.strip = None;
                }
            }
        }
    }

    /// Notes of the experiment and of its runs, each once, in order.
    pub fn all_notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for note in self
            .notes
            .iter()
            .chain(self.runs.iter().flat_map(|r| &r.notes))
        {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        notes
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Arms with one metric `web.response.p99` per seed.
    pub fn experiment(arms: &[(&str, &[f64])]) -> Experiment {
        let runs = arms.iter().flat_map(|(arm, values)| {
            values.iter().enumerate().map(|(i, v)| {
                let metrics = BTreeMap::from([("web.response.p99".to_string(), *v)]);
                let mut run = RunRecord::new(Place::Sim, arm, i as u64 + 1, metrics);
                run.notes.push("same note".into());
                run
            })
        });
        Experiment {
            setup: Setup {
                name: "t".into(),
                title: "T".into(),
                cpus: 4,
                groups: vec![Group {
                    name: "web".into(),
                    class: "latency".into(),
                    vms: 2,
                    vcpus: 2,
                }],
                warmup_ns: 0,
                measure_ns: 1_000_000_000,
                seeds: vec![1, 2, 3],
            },
            variant: vec![],
            arms: arms
                .iter()
                .map(|(name, _)| Arm {
                    name: name.to_string(),
                    policy: name.to_string(),
                    hash: None,
                    model: None,
                    absent: None,
                })
                .collect(),
            baseline: Some(arms[0].0.to_string()),
            runs: runs.collect(),
            expects: vec![],
            findings: vec![],
            notes: vec![],
        }
    }

    #[test]
    fn best_only_if_certain() {
        let e = experiment(&[
            ("a", &[10.0, 11.0, 12.0]),
            ("b", &[5.0, 5.6, 6.1]),
            ("c", &[]),
        ]);
        assert_eq!(e.lowest("web.response.p99"), Some("b"));
        let e = experiment(&[("a", &[10.0, 11.0, 12.0]), ("b", &[5.0, 30.0, 1.0])]);
        assert_eq!(e.lowest("web.response.p99"), None);
        let e = experiment(&[("a", &[10.0]), ("b", &[5.0])]);
        assert_eq!(
            e.lowest("web.response.p99"),
            None,
            "one seed proves nothing"
        );
        // Ten times less with each seed, and the differences vary: sentences go by the ratio, and so does this.
        let e = experiment(&[("a", &[10.0, 1000.0, 100.0]), ("b", &[1.0, 100.0, 10.0])]);
        assert_eq!(e.lowest("web.response.p99"), Some("b"));
        assert_eq!(e.highest("web.response.p99"), Some("a"));
        // Of what can be 0 there is no ratio.
        let e = experiment(&[("a", &[10.0, 11.0, 12.0]), ("b", &[0.0, 1.0, 2.0])]);
        assert_eq!(e.lowest("web.response.p99"), Some("b"));
        let e = experiment(&[("a", &[10.0, 11.0])]);
        assert_eq!(
            e.lowest("web.response.p99"),
            None,
            "nothing to be better than"
        );
        assert_eq!(e.lowest("none"), None);
        assert_eq!(e.all_notes(), ["same note"]);
    }
}
