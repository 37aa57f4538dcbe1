// SPDX-License-Identifier: GPL-2.0-only
//! The speed of each VM by its speed under another arm, seed by seed, as metrics of the runs (AMP, section 7: a VM's
//! speed is work in a time, or one by the time for its work; its slowdown is 1 less this ratio).
use berth_results::experiment::Experiment;
use berth_results::findings;
use berth_scenario::paper::{Speed, Speedup};
use std::collections::BTreeMap;

/// Adds the metrics of [`Speedup`] to each run, and finds anew what claims are about.
///
/// A run in which a VM has no speed, and one whose seed the other arm does not have, gets none of them.
pub fn add(speedup: &Speedup, experiment: &mut Experiment) {
    let vms = vms(experiment);
    let base: BTreeMap<u64, Option<Vec<f64>>> = experiment
        .runs
        .iter()
        .filter(|run| run.arm == speedup.against)
        .map(|run| (run.seed, speeds(speedup.of, &vms, &run.metrics)))
        .collect();
    for run in &mut experiment.runs {
        let base = base.get(&run.seed).and_then(Option::as_ref);
        let own = speeds(speedup.of, &vms, &run.metrics);
        let (Some(base), Some(own)) = (base, own) else {
            continue;
        };
        let ratios: Vec<f64> = own.iter().zip(base).map(|(own, base)| own / base).collect();
        run.metrics.extend(all(&ratios));
        let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (vm, ratio) in vms.iter().zip(&ratios) {
            groups.entry(&vm.group).or_default().push(*ratio);
            run.metrics.insert(Speedup::of_vm(&vm.name), *ratio);
        }
        for (group, ratios) in groups {
            run.metrics.insert(Speedup::of_vm(group), mean(&ratios));
        }
    }
    let found = experiment.findings.iter();
    let anew = found.map(|finding| findings::find(&finding.claim, experiment));
    experiment.findings = anew.collect();
}

struct Vm {
    group: String,
    name: String,
}

fn vms(experiment: &Experiment) -> Vec<Vm> {
    let of = |group: &berth_results::experiment::Group| {
        let name = group.name.clone();
        let one = group.vms == 1;
        (1..=group.vms).map(move |i| Vm {
            group: name.clone(),
            name: if one {
                name.clone()
            } else {
                format!("{name}-{i}")
            },
        })
    };
    experiment.setup.groups.iter().flat_map(of).collect()
}

/// Of each VM, above 0; none if one has no speed.
fn speeds(of: Speed, vms: &[Vm], metrics: &BTreeMap<String, f64>) -> Option<Vec<f64>> {
    let one = |vm: &Vm| {
        let value = *metrics.get(&format!("{}.{}", vm.name, of.quantity()))?;
        let speed = match of {
            Speed::Work => value,
            Speed::Completion => 1.0 / value,
        };
        (speed.is_finite() && speed > 0.0).then_some(speed)
    };
    vms.iter().map(one).collect()
}

/// Values of [`Speedup::ALL`]; none without VMs.
fn all(ratios: &[f64]) -> Vec<(String, f64)> {
    if ratios.is_empty() {
        return Vec::new();
    }
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let largest = ratios.iter().copied().fold(0.0, f64::max);
    let smallest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let values = [
        mean(ratios),
        mean(&logs).exp(),
        largest,
        (1.0 - smallest).max(0.0),
    ];
    let names = Speedup::ALL.iter().map(|name| name.to_string());
    names.zip(values).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_results::experiment::{Group, Setup};
    use berth_results::schema::{Place, RunRecord};

    /// Two VMs of `a`, one of `b`; for each run the arm, the seed and the value of each VM.
    fn outcome(quantity: &str, runs: &[(&str, u64, [f64; 3])]) -> Experiment {
        let group = |name: &str, vms| Group {
            name: name.into(),
            class: "batch".into(),
            vms,
            vcpus: 1,
        };
        let record = |(arm, seed, values): &(&str, u64, [f64; 3])| {
            let names = ["a-1", "a-2", "b"].map(|vm| format!("{vm}.{quantity}"));
            RunRecord::new(
                Place::Sim,
                arm,
                *seed,
                names.into_iter().zip(*values).collect(),
            )
        };
        Experiment {
            setup: Setup {
                name: "t".into(),
                title: "T".into(),
                cpus: 1,
                groups: vec![group("a", 2), group("b", 1)],
                warmup_ns: 0,
                measure_ns: 1,
                seeds: vec![1, 2],
            },
            variant: Vec::new(),
            arms: Vec::new(),
            baseline: None,
            runs: runs.iter().map(record).collect(),
            expects: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn against_fair(of: Speed) -> Speedup {
        Speedup {
            against: "fair".into(),
            of,
        }
    }

    #[track_caller]
    fn is(e: &Experiment, arm: &str, metric: &str, seed: u64, expected: f64) {
        let value = e.values(arm, metric)[&seed];
        assert!((value - expected).abs() < 1e-12, "{metric}: {value}");
    }

    #[test]
    fn each_vm_is_related_to_itself_in_the_same_seed() {
        let mut e = outcome(
            "work",
            &[
                ("fair", 1, [1.0, 2.0, 4.0]),
                ("vm", 1, [2.0, 2.0, 3.0]),
                ("fair", 2, [1.0, 1.0, 1.0]),
                ("vm", 2, [1.0, 1.0, 2.0]),
            ],
        );
        add(&against_fair(Speed::Work), &mut e);
        is(&e, "vm", "speedup.of.a-1", 1, 2.0);
        is(&e, "vm", "speedup.of.a", 1, 1.5);
        is(&e, "vm", "speedup.of.b", 1, 0.75);
        is(&e, "vm", "speedup.mean", 1, 1.25);
        is(&e, "vm", "speedup.geomean", 1, 1.5_f64.cbrt());
        is(&e, "vm", "speedup.max", 1, 2.0);
        is(&e, "vm", "slowdown.max", 1, 0.25);
        is(&e, "vm", "slowdown.max", 2, 0.0);
        is(&e, "fair", "speedup.mean", 2, 1.0);
    }

    #[test]
    fn who_is_done_in_half_the_time_is_twice_as_fast_and_who_is_not_done_has_no_speed() {
        let mut e = outcome(
            "completion",
            &[("fair", 1, [8.0; 3]), ("vm", 1, [4.0, 8.0, 16.0])],
        );
        e.runs
            .push(RunRecord::new(Place::Sim, "slow", 1, BTreeMap::new()));
        add(&against_fair(Speed::Completion), &mut e);
        is(&e, "vm", "speedup.of.a-1", 1, 2.0);
        is(&e, "vm", "slowdown.max", 1, 0.5);
        assert!(e.values("slow", "speedup.mean").is_empty());
    }
}
