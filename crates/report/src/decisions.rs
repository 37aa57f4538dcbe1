// SPDX-License-Identifier: GPL-2.0-only
//! What the optimiser did in the first run that has some of it: when, to whom, why.
use crate::Style;
use crate::text::plain_duration;
use berth_optimiser::{Change, CpuSet, Decision, Setting};
use berth_results::experiment::Experiment;
use berth_results::schema::RunRecord;

/// Changes that are shown; all are in the results.
const SHOWN: usize = 8;

/// A line for each change of the first run with decisions, VMs that are set alike in one.
pub fn lines(e: &Experiment, style: &Style) -> String {
    let run = e.runs.iter().find(|r| !r.decisions.is_empty());
    run.map_or(String::new(), |run| of_run(run, style))
}

fn of_run(run: &RunRecord, style: &Style) -> String {
    let mut all: Vec<String> = Vec::new();
    for decision in &run.decisions {
        all.extend(
            decision
                .misfits
                .iter()
                .map(|m| format!("{}: {m}", time(decision))),
        );
        all.extend(alike(decision));
    }
    if all.is_empty() {
        all.push("nothing had to be changed".into());
    }
    let mut out = format!("  The optimiser, {} with seed {}:\n", run.arm, run.seed);
    let more = all.len().saturating_sub(SHOWN);
    for text in all.iter().take(SHOWN) {
        for (i, line) in crate::sentences::wrap(text, style.width.saturating_sub(8))
            .iter()
            .enumerate()
        {
            let indent = if i == 0 { "    " } else { "      " };
            out.push_str(&format!("{indent}{line}\n"));
        }
    }
    if more > 0 {
        out.push_str(&format!("    and {more} more: --json has all\n"));
    }
    out
}

fn time(decision: &Decision) -> String {
    plain_duration(decision.at_ns)
}

/// The changes of a decision; VMs that are set from the same to the same are named together.
fn alike(decision: &Decision) -> Vec<String> {
    let mut groups: Vec<(String, Vec<&Change>)> = Vec::new();
    for change in &decision.changes {
        let what = difference(&change.from, &change.to);
        match groups.iter_mut().find(|(text, _)| *text == what) {
            Some((_, members)) => members.push(change),
            None => groups.push((what, vec![change])),
        }
    }
    let line = |(what, members): (String, Vec<&Change>)| {
        let others = match members.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let why: Vec<String> = members[0].reasons.iter().map(ToString::to_string).collect();
        format!(
            "{}: {}{others}: {what}: {}",
            time(decision),
            members[0].vm,
            why.join("; ")
        )
    };
    groups.into_iter().map(line).collect()
}

/// What is different: `CPUs all -> 1, weight 100 -> 1855`.
fn difference(from: &Setting, to: &Setting) -> String {
    let cpus = |set: &Option<CpuSet>| set.as_ref().map_or("all".into(), CpuSet::to_string);
    let number = |n: Option<f64>| n.map_or("none".into(), |n| format!("{n:.3}"));
    let pairs = [
        ("CPUs", cpus(&from.cpus), cpus(&to.cpus)),
        ("weight", from.weight.to_string(), to.weight.to_string()),
        ("cap", number(from.cap), number(to.cap)),
        ("runs", number(from.run_fraction), number(to.run_fraction)),
    ];
    let other = pairs.into_iter().filter(|(_, from, to)| from != to);
    let list: Vec<String> = other
        .map(|(what, from, to)| format!("{what} {from} -> {to}"))
        .collect();
    list.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_optimiser::Reason;
    use berth_results::schema::Place;

    #[test]
    fn vms_that_are_set_alike_are_named_together() {
        let change = |vm: &str, cpu: u32, reason: Reason| Change {
            vm: vm.into(),
            from: Setting::untouched(100),
            to: Setting {
                cpus: CpuSet::of([cpu]),
                weight: if cpu == 1 { 1855 } else { 100 },
                ..Setting::untouched(100)
            },
            reasons: vec![reason],
        };
        let pool = Reason::Pool { cpus: 1 };
        let own = Reason::Dedicated {
            cpus: 1,
            demand: 1.0,
        };
        let decision = Decision {
            at_ns: 1_500_000_000,
            changes: vec![
                change("a", 0, pool.clone()),
                change("b", 0, pool),
                change("c", 1, own),
            ],
            ..Decision::default()
        };
        let mut run = RunRecord::new(Place::Sim, "eevdf", 3, Default::default());
        run.decisions = vec![decision.clone(); 5];
        let style = Style {
            colour: false,
            width: 100,
        };
        let text = of_run(&run, &style);
        let first: Vec<&str> = text.lines().take(3).collect();
        assert_eq!(first[0], "  The optimiser, eevdf with seed 3:");
        assert!(
            first[1].starts_with("    1.5 s: a and 1 more: CPUs all -> 0: "),
            "{text}"
        );
        assert!(
            first[2].starts_with("    1.5 s: c: CPUs all -> 1, weight 100 -> 1855: a target"),
            "{text}"
        );
        assert!(text.ends_with("    and 2 more: --json has all\n"), "{text}");
    }
}
