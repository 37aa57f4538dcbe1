// SPDX-License-Identifier: GPL-2.0-only
//! Every policy for hosts against Linux, and `vmfair` against every other one, in all that a user would name: where
//! does it win, where does it lose?
//!
//! `cargo run --release -p berth-experiment --example against -- [--hosts N] [--seeds N] [--everybody]
//! [--policy NAME,...] [--page FILE] [SCENARIO ...]`
//! `cargo run --release -p berth-experiment --example against -- [--hosts N] --write FOLDER`: the random hosts as files
//!
//! Over the ready scenarios, the papers' and 200 random hosts (or the scenarios that are named), five seeds each; to be
//! run in the repository's folder. In the papers' an arm of a policy's name keeps what it has of its own (FLMS a VM of
//! class latency in EF1, vTurbo an extra vCPU in EF6 and EF7), all others run with defaults and without an optimiser;
//! M-RSF's are left out, since they compare schedulers of tasks.
//!
//! A user names how long requests take (mean and p99) and how many are answered, how long work takes to its end, what
//! each group of VMs that nobody asks gets done in the CPU time that its weight is worth, and what all get done
//! together. A group that clients ask and that uses more under the other policy than its weight is worth is no
//! witness: what it loses may be owed to others (with `--everybody` all are, and all work counts). A difference counts
//! where its 95 % interval over the seeds lies beyond 5 %, and where it is of time, if it is 50 us or more. With
//! `--page` the tables take the place of what is between `<!-- begin against -->` and `<!-- end against -->` in the
//! file; with `--policy`, after a change of one, only its rows do, which is all that it can change.
mod hosts;
mod page;

use berth_experiment::error::Failure;
use berth_experiment::plan::{Plan, planned};
use berth_experiment::policies;
use berth_experiment::request::Request;
use berth_experiment::simulator::{Running, whole};
use berth_results::experiment::Experiment;
use berth_results::stats::{BySeed, paired_ratio};
use berth_scenario::model::{Scenario, Vm};
use berth_scenario::{Input, shipped};
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);
const BASE: &str = "linux";
/// What Berth proposes for a host.
const OURS: &str = "vmfair";
const POLICIES: [&str; 18] = [
    OURS,
    "credit",
    "credit2",
    "flms",
    "amp",
    "lottery",
    "vtime",
    "gfifo",
    "cfs",
    "o1",
    "rr",
    "zeng",
    "vslicer",
    "vturbo",
    "iobound",
    "ecredit",
    "brm",
    "best_node",
];
const SEEDS: u32 = 5;
/// Where the papers' scenarios are, below the repository.
const PAPERS: &str = "papers";
/// Beyond this ratio a difference is named, and where it is of time from this many nanoseconds on.
const NAMED: f64 = 1.05;
const LEAST_NS: f64 = 50_000.0;

struct Arguments {
    hosts: u64,
    seeds: u32,
    /// Whoever is beyond its weight's share counts, too.
    everybody: bool,
    /// Whose rows are asked for, of [`POLICIES`].
    policies: Vec<&'static str>,
    page: Option<PathBuf>,
    write: Option<PathBuf>,
    scenarios: Vec<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        hosts: 200,
        seeds: SEEDS,
        everybody: false,
        policies: POLICIES.to_vec(),
        page: None,
        write: None,
        scenarios: Vec::new(),
    };
    let mut rest = std::env::args().skip(1);
    while let Some(word) = rest.next() {
        let mut number = |most: u64| {
            let n = rest.next().unwrap_or_default().parse().ok();
            n.filter(|n| *n <= most)
                .ok_or(format!("{word} needs a number up to {most}"))
        };
        match word.as_str() {
            "--hosts" => parsed.hosts = number(100_000)?,
            "--seeds" => parsed.seeds = number(1000)?.max(2) as u32,
            "--everybody" => parsed.everybody = true,
            "--policy" => parsed.policies = one_of(&rest.next().ok_or("--policy needs names")?)?,
            "--page" => parsed.page = Some(rest.next().ok_or("--page needs a file")?.into()),
            "--write" => parsed.write = Some(rest.next().ok_or("--write needs a folder")?.into()),
            option if option.starts_with('-') => {
                return Err(format!(
                    "unknown option {option}: [--hosts N] [--seeds N] [--everybody] [--policy NAME,...] \
                     [--page FILE | --write FOLDER] [SCENARIO ...]"
                ));
            }
            name => parsed.scenarios.push(name.into()),
        }
    }
    Ok(parsed)
}

/// The policies of these names, in the order of [`POLICIES`].
fn one_of(names: &str) -> Result<Vec<&'static str>, String> {
    let names: Vec<&str> = names.split(',').collect();
    if let Some(unknown) = names.iter().find(|name| !POLICIES.contains(name)) {
        let known = POLICIES.join(", ");
        return Err(format!("--policy: {unknown:?} is none of {known}"));
    }
    Ok(POLICIES.into_iter().filter(|p| names.contains(p)).collect())
}

/// What a user would name of a group of VMs, or of all.
#[derive(Clone, Copy, PartialEq)]
enum Quantity {
    /// Less is better, ns.
    Time,
    /// More is better.
    Amount,
}

struct Named {
    what: String,
    quantity: Quantity,
    /// The group has no more than its weight's share.
    within: bool,
    values: BySeed,
}

fn mean(values: &BySeed) -> f64 {
    values.values().sum::<f64>() / values.len().max(1) as f64
}

fn weight(vm: &Vm) -> f64 {
    f64::from(vm.weight * vm.count)
}

/// CPUs that each group's weight is worth while everybody wants more; what counts of it, with `--everybody` all.
fn due(scenario: &Scenario, everybody: bool) -> Vec<f64> {
    if everybody {
        return vec![f64::INFINITY; scenario.vms.len()];
    }
    let sum: f64 = scenario.vms.iter().map(weight).sum();
    let cpus = f64::from(scenario.host.nr_cpus());
    let of = |vm| cpus * weight(vm) / sum;
    scenario.vms.iter().map(of).collect()
}

/// All that a user would name of a policy's runs, `due` CPUs for each group.
fn named(e: &Experiment, arm: &str, scenario: &Scenario, due: &[f64]) -> Vec<Named> {
    let mut all = Vec::new();
    let mut together = BySeed::new();
    for (vm, due) in scenario.vms.iter().zip(due) {
        let of = |what: &str| e.values(arm, &format!("{}.{what}", vm.name));
        let (work, cpus, answered) = (of("work"), of("cpu"), of("requests"));
        for (seed, work) in &work {
            *together.entry(*seed).or_default() += work;
        }
        let asked = !answered.is_empty();
        let within = !asked || mean(&cpus) <= *due;
        let mut put = |what: &str, quantity, values: BySeed| {
            if !values.is_empty() {
                let what = format!("{}.{what}", vm.name);
                all.push(Named {
                    what,
                    quantity,
                    within,
                    values,
                });
            }
        };
        for what in ["response.mean", "response.p99", "completion"] {
            put(what, Quantity::Time, of(what));
        }
        if asked {
            put("requests", Quantity::Amount, answered);
        } else {
            // What it gets done in the CPU time that its weight is worth.
            let part = |seed| cpus.get(seed).map_or(1.0, |cpus| (due / cpus).min(1.0));
            let within = work.iter().map(|(seed, work)| (*seed, work * part(seed)));
            put("work", Quantity::Amount, within.collect());
        }
    }
    all.push(Named {
        what: "all.work".into(),
        quantity: Quantity::Amount,
        within: true,
        values: together,
    });
    all
}

/// How much worse: above 1 worse than the other by so many times, below 1 better; none: not to be named.
fn worse(mine: &Named, base: &Named) -> Option<f64> {
    if !base.within {
        return None;
    }
    let ratio = paired_ratio(&mine.values, &base.values)?;
    let (low, high) = ratio.interval?;
    let apart = (mean(&mine.values) - mean(&base.values)).abs();
    if (low <= NAMED && high >= 1.0 / NAMED)
        || (mine.quantity == Quantity::Time && apart < LEAST_NS)
    {
        return None;
    }
    Some(match mine.quantity {
        Quantity::Time => ratio.ratio,
        Quantity::Amount => 1.0 / ratio.ratio,
    })
}

/// What came of one policy beside another on one host.
#[derive(Default)]
struct Outcome {
    /// What is worse or better than under the other, and how many times as bad.
    named: Vec<(String, f64)>,
    /// p99 of responses by that of the other, of latency VMs.
    p99: Vec<f64>,
    refused: Option<String>,
}

struct Host {
    name: String,
    /// Each of the policies beside Linux.
    beside_linux: Vec<Outcome>,
    /// [`OURS`] beside each of the others.
    beside_others: Vec<Outcome>,
}

/// One policy's runs, or why there are none.
type Runs = Result<(Experiment, Scenario), String>;

/// A scenario's runs under one policy.
fn runs(input: &Input, policy: &str, seeds: u32) -> Runs {
    // What is compared is policies.
    let optimised = input.name.starts_with(PAPERS) && input.text.contains("\n[optimiser]");
    let request = Request {
        set: Vec::from_iter(optimised.then(|| "optimiser.on=false".into())),
        scenario: input.name.clone(),
        arms: vec![policy.into()],
        seeds: Some(seeds),
        ..Request::default()
    };
    let mut plan: Plan =
        planned(input, &request, &policies::shipped(), None).map_err(|f| why(&f))?;
    let scenario = plan.variants[0].scenario.clone();
    let results = whole(&mut plan, &Running::new(0, &NEVER), String::new());
    let experiment = results.map_err(|f| why(&f))?.experiments.swap_remove(0);
    Ok((experiment, scenario))
}

fn why(failure: &Failure) -> String {
    match failure {
        Failure::Input(text) | Failure::Run(text) => text.lines().next().unwrap_or_default().into(),
        other => format!("{other:?}"),
    }
}

/// One policy beside another, by their names and runs.
fn beside((policy, mine): (&str, &Runs), (other, base): (&str, &Runs), due: &[f64]) -> Outcome {
    let mut outcome = Outcome::default();
    let ((mine, of_mine), (base, of_base)) = match (mine, base) {
        (Ok(mine), Ok(base)) => (mine, base),
        (Err(why), _) | (_, Err(why)) => {
            outcome.refused = Some(why.clone());
            return outcome;
        }
    };
    let base = named(base, other, of_base, due);
    for mine in named(mine, policy, of_mine, due) {
        let Some(base) = base.iter().find(|b| b.what == mine.what) else {
            continue;
        };
        if let Some(times) = worse(&mine, base) {
            outcome.named.push((mine.what.clone(), times));
        }
        if mine.what.ends_with("response.p99") && base.within {
            let ratio = paired_ratio(&mine.values, &base.values);
            outcome.p99.extend(ratio.map(|r| r.ratio));
        }
    }
    outcome
}

fn host(input: &Input, asked: &Arguments) -> Result<Host, String> {
    let (seeds, everybody) = (asked.seeds, asked.everybody);
    let linux = runs(input, BASE, seeds);
    let due = match &linux {
        Ok((_, scenario)) => due(scenario, everybody),
        Err(why) => return Err(format!("{}: {why}", input.name)),
    };
    let ours = runs(input, OURS, seeds);
    let others: Vec<(&str, Runs)> = others(&asked.policies)
        .map(|policy| (policy, runs(input, policy, seeds)))
        .collect();
    let mine = asked
        .policies
        .contains(&OURS)
        .then_some((OURS, &ours))
        .into_iter();
    let others = others.iter().map(|(policy, runs)| (*policy, runs));
    let of_linux = mine
        .chain(others.clone())
        .map(|one| beside(one, (BASE, &linux), &due));
    let beside_linux = of_linux.collect();
    let of_others = others.map(|one| beside((OURS, &ours), one, &due));
    let name = input.name.strip_prefix(PAPERS).unwrap_or(&input.name);
    Ok(Host {
        name: name
            .trim_start_matches('/')
            .trim_end_matches(".toml")
            .into(),
        beside_others: of_others.collect(),
        beside_linux,
    })
}

/// Those of the policies that are not [`OURS`].
fn others<'a>(policies: &'a [&'static str]) -> impl Iterator<Item = &'static str> + 'a {
    policies.iter().copied().filter(|policy| *policy != OURS)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A row for each pair of policies over some hosts, by the names in the first column.
fn summary(
    hosts: &[Host],
    (first, rows): (&str, &[&str]),
    of: impl Fn(&Host) -> &[Outcome],
    out: &mut String,
) {
    let _ = write!(
        out,
        "| {first} | better in something | worse in something | worse in nothing, better in something | p99 of \
         responses, of the other's: median, worst | worst of all | did not run |\n|---|---|---|---|---|---|---|\n"
    );
    for (i, row) in rows.iter().enumerate() {
        let outcomes: Vec<(&String, &Outcome)> =
            hosts.iter().map(|h| (&h.name, &of(h)[i])).collect();
        let count = |f: &dyn Fn(&Outcome) -> bool| outcomes.iter().filter(|(_, o)| f(o)).count();
        let better = |o: &Outcome| o.named.iter().any(|n| n.1 < 1.0);
        let worse = |o: &Outcome| o.named.iter().any(|n| n.1 > 1.0);
        let p99: Vec<f64> = outcomes
            .iter()
            .flat_map(|(_, o)| o.p99.iter().copied())
            .collect();
        let most = p99.iter().copied().fold(f64::NAN, f64::max);
        let worst = outcomes
            .iter()
            .flat_map(|(host, o)| o.named.iter().map(move |n| (host, n)))
            .max_by(|a, b| a.1.1.total_cmp(&b.1.1))
            .filter(|w| w.1.1 > 1.0);
        let worst = worst.map_or("—".into(), |(host, (what, times))| {
            format!("{host}: {what}, {times:.2} times")
        });
        let _ = writeln!(
            out,
            "| {row} | {} | {} | {} | {:.2}, {most:.2} | {worst} | {} |",
            count(&better),
            count(&worse),
            count(&|o| better(o) && !worse(o)),
            median(p99).unwrap_or(f64::NAN),
            count(&|o| o.refused.is_some()),
        );
    }
    let _ = writeln!(out, "\nOf {} hosts.\n", hosts.len());
}

/// All in which the default is worse.
fn losses(hosts: &[Host], out: &mut String) {
    let _ = write!(
        out,
        "| host | worse under vmfair than under Linux, times as bad | better |\n|---|---|---|\n"
    );
    for h in hosts {
        let words = |worse: bool| {
            let mut list: Vec<&(String, f64)> = h.beside_linux[0]
                .named
                .iter()
                .filter(|n| (n.1 > 1.0) == worse)
                .collect();
            list.sort_by(|a, b| b.1.total_cmp(&a.1));
            let words: Vec<String> = list
                .iter()
                .map(|(what, times)| format!("{what} {times:.2}"))
                .collect();
            words.join(", ")
        };
        let bad = words(true);
        if !bad.is_empty() {
            let _ = writeln!(out, "| {} | {bad} | {} |", h.name, words(false));
        }
    }
}

/// The files of the papers' scenarios, in order, but those of M-RSF.
fn of_papers() -> Result<Vec<String>, String> {
    let said = |e: std::io::Error| format!("{PAPERS}: {e}; run it in the repository's folder");
    let mut files = Vec::new();
    for paper in std::fs::read_dir(PAPERS).map_err(said)? {
        let paper = paper.map_err(said)?.path();
        if !paper.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(paper).map_err(said)? {
            files.push(file.map_err(said)?.path());
        }
    }
    let scenario = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        path.extension().is_some_and(|e| e == "toml")
            && name != "paper.toml"
            && name != "claims.toml"
            && !path.starts_with(format!("{PAPERS}/mrsf"))
    };
    files.retain(scenario);
    files.sort();
    Ok(files.iter().map(|f| f.display().to_string()).collect())
}

fn run() -> Result<(), String> {
    let asked = arguments()?;
    let (count, scenarios) = (asked.hosts, &asked.scenarios);
    if let Some(folder) = &asked.write {
        let said = |e: std::io::Error| format!("{}: {e}", folder.display());
        std::fs::create_dir_all(folder).map_err(said)?;
        for seed in 0..count {
            let file = folder.join(format!("host-{seed}.toml"));
            std::fs::write(file, hosts::random(seed)).map_err(said)?;
        }
        return Ok(());
    }
    let all = asked.policies.len() == POLICIES.len();
    if asked.page.is_some() && !all && asked.policies.contains(&OURS) {
        return Err(format!(
            "--policy: {OURS} is part of every table; leave it out"
        ));
    }
    if asked.page.is_some() && !all && (asked.seeds != SEEDS || asked.everybody) {
        return Err(
            "--policy: the page's other rows are of five seeds, without --everybody".into(),
        );
    }
    let mut inputs = Vec::new();
    if scenarios.is_empty() {
        for (name, _) in shipped::SHIPPED {
            inputs.push(shipped::find(name).map_err(|e| e.to_string())?);
        }
    }
    for name in scenarios {
        inputs.push(shipped::find(name).map_err(|e| e.to_string())?);
    }
    let ready = inputs.len();
    if scenarios.is_empty() {
        for file in of_papers()? {
            let input = shipped::find(&file).map_err(|e| e.to_string())?;
            inputs.push(Input {
                name: file,
                ..input
            });
        }
    }
    let random = if scenarios.is_empty() { count } else { 0 };
    inputs.extend((0..random).map(|seed| Input {
        name: format!("random {seed}"),
        shown: format!("random host {seed}"),
        text: hosts::random(seed),
        folder: None,
    }));
    let talk = std::io::stderr().is_terminal();
    // Ready ones, papers', random ones.
    let mut hosts: [Vec<Host>; 3] = Default::default();
    let first_random = inputs.len() - random as usize;
    for (i, input) in inputs.iter().enumerate() {
        if talk {
            eprint!("\r{i} of {} hosts ", inputs.len());
        }
        let part = usize::from(i >= ready) + usize::from(i >= first_random);
        hosts[part].push(host(input, &asked)?);
    }
    if talk {
        eprint!("\r{:30}\r", "");
    }
    let mut text = String::new();
    let titles = ["Ready scenarios", "Scenarios of the papers", "Random hosts"];
    let others: Vec<&str> = others(&asked.policies).collect();
    let of_linux = ("policy, beside `linux`", asked.policies.as_slice());
    let others = ("`vmfair`, beside", others.as_slice());
    for (title, part) in titles.iter().zip(&hosts) {
        if !part.is_empty() {
            let _ = writeln!(text, "{title}:\n");
            summary(part, of_linux, |h| &h.beside_linux, &mut text);
            summary(part, others, |h| &h.beside_others, &mut text);
        }
    }
    let hosts: Vec<Host> = hosts.into_iter().flatten().collect();
    if asked.policies.contains(&OURS) {
        losses(&hosts, &mut text);
    }
    for h in &hosts {
        for (policy, o) in asked.policies.iter().zip(&h.beside_linux) {
            if let Some(why) = &o.refused {
                eprintln!("{}: {policy}: {why}", h.name);
            }
        }
    }
    let Some(page) = asked.page else {
        print!("{text}");
        return Ok(());
    };
    let said = |e: std::io::Error| format!("{}: {e}", page.display());
    let old = std::fs::read_to_string(&page).map_err(said)?;
    let new = if all {
        page::with_tables(&old, &text)
    } else {
        page::with_rows(&old, &text)
    };
    let new = new.map_err(|e| format!("{}: {e}", page.display()))?;
    std::fs::write(&page, new).map_err(said)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("against: {e}");
            ExitCode::FAILURE
        }
    }
}
