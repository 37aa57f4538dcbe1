// SPDX-License-Identifier: GPL-2.0-only
//! How evenly VMs have CPU time: `NAME.jain` and `NAME.least` of a group, from `NAME-1.cpu` and so on; `host.jain` of
//! several groups, by their weights.
//!
//! Source: R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness and discrimination", DEC-TR-301, 1984.
use std::collections::BTreeMap;

/// Adds both metrics of a group of so many VMs, if there are several and each one's CPU time is there.
pub fn add(metrics: &mut BTreeMap<String, f64>, group: &str, vms: u32) {
    if vms < 2 {
        return;
    }
    let cpu = |i: u32| metrics.get(&format!("{group}-{i}.cpu")).copied();
    let Some(cpus) = (1..=vms).map(cpu).collect::<Option<Vec<f64>>>() else {
        return;
    };
    let least = cpus.iter().copied().fold(f64::INFINITY, f64::min);
    metrics.insert(format!("{group}.least"), least);
    if let Some(jain) = jain(&cpus) {
        metrics.insert(format!("{group}.jain"), jain);
    }
}

/// Adds `host.jain`: of the CPU time of these groups' VMs, each one's divided by its weight, if there are several and
/// each one's is known. `groups`: name, VMs and weight of each. Where VMs want different times of their own accord,
/// that is no fault of the scheduler.
pub fn add_all<'a>(
    metrics: &mut BTreeMap<String, f64>,
    groups: impl IntoIterator<Item = (&'a str, u32, u32)>,
) {
    let mut shares = Vec::new();
    for (group, vms, weight) in groups {
        for i in 1..=vms {
            let name = match vms {
                1 => format!("{group}.cpu"),
                _ => format!("{group}-{i}.cpu"),
            };
            let Some(cpu) = metrics.get(&name) else {
                return;
            };
            shares.push(cpu / f64::from(weight));
        }
    }
    if shares.len() > 1
        && let Some(jain) = jain(&shares)
    {
        metrics.insert("host.jain".into(), jain);
    }
}

/// 1 if all are equal, one by their number if one has all; none if nobody has anything.
pub fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_s_index() {
        assert_eq!(jain(&[0.5; 4]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        // 36 / (3 * 14)
        assert!((jain(&[1.0, 2.0, 3.0]).unwrap() - 6.0 / 7.0).abs() < 1e-12);
        assert_eq!(jain(&[0.0; 3]), None);
    }

    #[test]
    fn of_a_group_whose_vms_are_all_known() {
        let cpus = [("a-1.cpu", 0.5), ("a-2.cpu", 0.1), ("b-1.cpu", 1.0)];
        let mut metrics: BTreeMap<String, f64> =
            cpus.map(|(name, cpu)| (name.to_string(), cpu)).into();
        for (group, vms) in [("a", 2), ("b", 2), ("c", 1)] {
            add(&mut metrics, group, vms);
        }
        assert_eq!(metrics["a.least"], 0.1);
        assert!((metrics["a.jain"] - 0.36 / 0.52).abs() < 1e-12);
        assert_eq!(metrics.len(), 5);
        // Nothing is known of b's second VM.
        add_all(&mut metrics, [("a", 2, 100), ("b", 2, 100)]);
        assert_eq!(metrics.len(), 5);
        metrics.insert("c.cpu".into(), 0.4);
        add_all(&mut metrics, [("a", 2, 100), ("c", 1, 400)]);
        // 0.5, 0.1 and a quarter of 0.4.
        assert!((metrics["host.jain"] - 0.49 / (3.0 * 0.27)).abs() < 1e-12);
        add_all(&mut metrics, [("c", 1, 400)]);
        assert_eq!(metrics.len(), 7);
    }
}
