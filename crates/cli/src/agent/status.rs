// SPDX-License-Identifier: GPL-2.0-only
//! What the agent does, in words.
use crate::output;
use berth_agent::agent::{ClassFrom as Said, Status, VmStatus};
use berth_agent::backend::Way;
use berth_agent::remarks::in_few_lines;
use berth_identity::{Class, Scored};
use std::collections::BTreeMap;

/// So many VMs are a table that one reads.
const SHOWN: usize = 40;

/// What the agent does, for people; with `all` VMs, however many there are.
pub fn text(status: &Status, all: bool) -> String {
    let mut out = String::new();
    match &status.policy {
        Some(p) => {
            let set: Vec<String> = p
                .parameters
                .iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect();
            let set = if set.is_empty() {
                "defaults".into()
            } else {
                set.join(" ")
            };
            let mode = if p.partial {
                ", only threads of the named VMs"
            } else {
                ""
            };
            let object = match p.backend {
                Way::Cgroup => "by cgroups and affinity".into(),
                _ => berth_agent::agent::short(&p.hash).to_string(),
            };
            out += &format!(
                "policy {} ({object}), {set}, for {:.0} s{mode}\n",
                p.name, p.seconds
            );
            if let Some((policy, why)) = &p.instead_of {
                out += &format!("in place of {policy}: {why}\n");
            }
            for warning in &p.warnings {
                out += &format!("note: {warning}\n");
            }
            // A policy that gives fast cores to who gains most from them has found none.
            if p.counters
                .get("symmetric")
                .is_some_and(|rounds| *rounds > 0)
            {
                out += "note: this host's cores are all alike: nobody is scored, time is shared\n";
            }
        }
        None if status.pins.is_empty() && !status.ruled.rules.is_empty() => {
            out += "no policy is loaded; VMs are pinned by rule: ";
            out += &format!("{}\n", status.ruled.rules.join(", "));
        }
        None if status.pins.is_empty() => out += "no policy is loaded: Berth only watches\n",
        None => out += "no policy is loaded; what is pinned stands below\n",
    }
    if let Some(why) = &status.trouble {
        out += &format!("trouble: {why}\n");
    }
    if !status.only.is_empty() {
        out += &format!("only {}\n", status.only.join(", "));
    }
    let (vms, left) = shown(&status.vms, all);
    if !vms.is_empty() {
        out += &format!(
            "\n  {:<24} {:<8} {:<4} {:>6} {:>6} {:>6} {:>8}\n",
            "VM", "CLASS", "BY", "WEIGHT", "CAP", "VCPUS", "THREADS"
        );
    }
    for vm in &vms {
        let cap = vm.cap.map_or("-".to_string(), |c| format!("{c:.2}"));
        out += &format!(
            "  {:<24} {:<8} {:<4} {:>6} {:>6} {:>6} {:>8}\n",
            vm.name,
            vm.class,
            vm.class_from.word(),
            vm.weight,
            cap,
            vm.vcpus,
            vm.threads
        );
    }
    if !left.is_empty() {
        out += &format!("  and {} more ({}): --all\n", left.len(), classes(&left));
    }
    for vm in &vms {
        if let Some(decided) = &vm.decided {
            out += &format!("  {} {}\n", vm.name, output::decided(decided));
        }
    }
    for vm in &vms {
        out += &vm
            .scored
            .map_or(String::new(), |s| scored(&vm.name, &s) + "\n");
    }
    for vm in &vms {
        if let Some((class, why)) = &vm.seems {
            let name = &vm.name;
            let otherwise = match *class == vm.class {
                true => "",
                false => ", which is not what it has been given",
            };
            out += &format!("  {name} behaves like {class}{otherwise}: {why}\n");
        }
    }
    for pin in &status.pins {
        out += &format!("\n{}", crate::pin::text(pin));
    }
    if let Some(why) = &status.ruled.aside {
        let rules = status.ruled.rules.join(", ");
        out += &format!("\nrules for pins ({rules}) are not in force: {why}\n");
    }
    for (vm, why) in &status.ruled.not {
        out += &format!("  {vm} is not pinned, though a rule is for it: {why}\n");
    }
    for line in in_few_lines(status.by_process.iter().map(|(vm, why)| (&**vm, &**why))) {
        out += &format!("  {}\n", line.known_by_process());
    }
    for line in in_few_lines(status.left_out.iter().map(|(vm, why)| (&**vm, &**why))) {
        out += &format!("  {}\n", line.left_alone());
    }
    out
}

/// Those to show, and the others. Of many VMs first those of whom somebody, or what they do, has said something.
fn shown(vms: &[VmStatus], all: bool) -> (Vec<&VmStatus>, Vec<&VmStatus>) {
    let mut first: Vec<&VmStatus> = vms.iter().collect();
    if all || vms.len() <= SHOWN {
        return (first, Vec::new());
    }
    let usual =
        |vm: &VmStatus| vm.class == Class::Batch.word() && vm.class_from != Said::Configuration;
    first.sort_by_key(|vm| (!vm.named, usual(vm)));
    let left = first.split_off(SHOWN);
    (first, left)
}

/// How many there are of each class.
fn classes(vms: &[&VmStatus]) -> String {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for vm in vms {
        *count.entry(&vm.class).or_default() += 1;
    }
    let each: Vec<String> = count
        .iter()
        .map(|(class, n)| format!("{n} {class}"))
        .collect();
    each.join(", ")
}

/// What a VM is reckoned to gain from fast cores.
fn scored(vm: &str, scored: &Scored) -> String {
    let score = f64::from(scored.score_milli) / 1000.0;
    let source = scored.source();
    let odd = match scored.left_out {
        0 => String::new(),
        n => format!("; counters of {n} vCPUs jumped or stood still and were left out"),
    };
    format!("  {vm} is {score:.2} times as fast on a fast core, by: {source}{odd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_said() {
        let seen = Scored {
            score_milli: 1100,
            given: 0,
            pmu: 1,
            utilisation: 3,
            left_out: 2,
        };
        assert_eq!(
            scored("db", &seen),
            "  db is 1.10 times as fast on a fast core, by: counters (1), utilisation (3); counters of 2 vCPUs jumped \
             or stood still and were left out"
        );
    }

    /// A host of 2,000 VMs has a status that fits a screen or two, and says of whom it does not speak.
    #[test]
    fn very_many_vms_are_told_in_few_lines() {
        let vm = |i: u32| VmStatus {
            name: format!("vm{i}"),
            class: match i {
                0..50 => "none",
                999 | 1999 => "latency",
                _ => "batch",
            }
            .into(),
            class_from: if i == 1500 {
                Said::Configuration
            } else {
                Said::Default
            },
            seems: None,
            weight: 100,
            cap: None,
            vcpus: 1,
            threads: 3,
            known_after_ms: None,
            named: i >= 50,
            decided: None,
            scored: None,
        };
        let vms: Vec<VmStatus> = (0..2000).map(vm).collect();
        let remarks = |why: &str| {
            vms.iter()
                .map(|vm| (vm.name.clone(), why.to_string()))
                .collect()
        };
        let status = Status {
            policy: None,
            by_process: remarks("no cgroup of its own"),
            left_out: remarks("x"),
            vms: vms.clone(),
            only: Vec::new(),
            trouble: None,
            pins: Vec::new(),
            ruled: Default::default(),
        };
        let said = text(&status, false);
        assert!(said.lines().count() <= SHOWN + 6, "{said}");
        let rows: Vec<&str> = said.lines().skip(3).take(4).map(|l| &l[2..9]).collect();
        assert_eq!(rows, ["vm999  ", "vm1500 ", "vm1999 ", "vm50   "]);
        assert!(
            said.contains("and 1960 more (1910 batch, 50 none): --all"),
            "{said}"
        );
        assert!(
            said.contains("VMs vm0, vm1, vm2 and 1997 more are left alone: x"),
            "{said}"
        );
        let all = text(&status, true);
        assert!(all.lines().count() > 2000 && !all.contains("--all"));
    }
}
