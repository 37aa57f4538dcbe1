// SPDX-License-Identifier: GPL-2.0-only
//! What the terminal shows, from made-up numbers.
use berth_report::{Style, side_by_side::side_by_side, whole};
use berth_results::expect::{Bound, Limit, check};
use berth_results::experiment::{Arm, Experiment, FORMAT, Group, Provenance, Results, Setup};
use berth_results::schema::{Place, RunRecord};
use std::collections::BTreeMap;

fn experiment(place: Place, arms: &[(&str, Option<f64>)]) -> Experiment {
    let mut runs = Vec::new();
    for (arm, factor) in arms {
        for seed in 1..=5_u64 {
            let Some(factor) = factor else { continue };
            let wobble = 1.0 + 0.02 * (seed as f64 - 3.0) + 0.005 * factor * (seed % 2) as f64;
            let ms = |x: f64| x * 1e6 * factor * wobble;
            let metrics = BTreeMap::from([
                ("web.response.p50".into(), ms(0.62)),
                ("web.response.p99".into(), ms(14.1)),
                ("web.response.max".into(), ms(38.0)),
                ("build.work".into(), 3.2e10 * (0.97 + 0.03 * factor)),
                ("host.switches_per_cpu".into(), 1240.0 / factor),
            ]);
            runs.push(RunRecord::new(place, arm, seed, metrics));
        }
    }
    let group = |name: &str, class: &str, vms| Group {
        name: name.into(),
        class: class.into(),
        vms,
        vcpus: 2,
    };
    let absent = "the simulator has no model of it in this release; the lab has it";
    Experiment {
        setup: Setup {
            name: "noisy-neighbour".into(),
            title: "Noisy neighbour".into(),
            cpus: 4,
            groups: vec![group("web", "latency", 2), group("build", "batch", 4)],
            warmup_ns: 2_000_000_000,
            measure_ns: 10_000_000_000,
            seeds: (1..=5).collect(),
        },
        variant: vec![],
        arms: arms
            .iter()
            .map(|(name, factor)| Arm {
                name: name.to_string(),
                policy: name.to_string(),
                hash: None,
                model: None,
                absent: factor.is_none().then(|| absent.to_string()),
            })
            .collect(),
        baseline: Some("gfifo".into()),
        runs,
        expects: vec![],
        findings: vec![],
        notes: vec![],
    }
}

fn plain(width: usize) -> Style {
    Style {
        colour: false,
        width,
    }
}

fn widest(text: &str) -> usize {
    text.lines()
        .map(berth_report::text::width)
        .max()
        .unwrap_or(0)
}

#[test]
fn the_whole_picture() {
    let mut e = experiment(
        Place::Sim,
        &[("linux", None), ("gfifo", Some(1.0)), ("vmfair", Some(0.1))],
    );
    let bound = |arm: &str, at_most, limit| Bound {
        metric: "web.response.p99".into(),
        arm: arm.into(),
        at_most,
        limit,
    };
    e.expects = vec![
        check(
            &bound("vmfair", true, Limit::Absolute(5e6)),
            &e,
            Some("gfifo"),
        ),
        check(
            &bound("vmfair", false, Limit::TimesBaseline(0.9)),
            &e,
            Some("gfifo"),
        ),
        check(
            &bound("linux", true, Limit::Absolute(5e6)),
            &e,
            Some("gfifo"),
        ),
    ];
    let text = whole(&e, Place::Sim, Some("gfifo"), &plain(100));
    println!("{text}");
    assert!(widest(&text) <= 100, "{text}");
    let first = text.lines().next().unwrap();
    assert_eq!(
        first,
        "Noisy neighbour · 4 CPUs · 6 VMs, 12 vCPUs (3.0 per CPU) · 10 s × 5 seeds · simulated"
    );
    assert!(text.contains("▸ vmfair"), "{text}");
    assert!(
        text.contains("web p99 10.0 × shorter (10.0 to 10.1)"),
        "{text}"
    );
    assert!(text.contains("build does 2.7 % less work"), "{text}");
    assert!(text.contains("10.0 × the switches"), "{text}");
    assert!(
        text.contains("ok   web.response.p99 of vmfair at most 5.00 ms"),
        "{text}"
    );
    assert!(
        text.contains("FAIL web.response.p99 of vmfair at least 0.9 × gfifo"),
        "{text}"
    );
    assert!(
        text.contains("-    web.response.p99 of linux at most 5.00 ms"),
        "{text}"
    );
    assert!(
        text.contains("linux `-`: the simulator has no model"),
        "{text}"
    );
    let linux = text
        .lines()
        .find(|l| l.trim_start().starts_with("linux "))
        .unwrap();
    assert_eq!(
        linux.split_whitespace().filter(|w| *w == "-").count(),
        5,
        "{linux}"
    );
    assert!(!text.contains('\x1b'));
    assert!(
        text.lines().all(|l| l == l.trim_end()),
        "no blanks at line ends"
    );
}

#[test]
fn narrow_terminals_lose_columns_not_sense() {
    let e = experiment(Place::Sim, &[("gfifo", Some(1.0)), ("vmfair", Some(0.1))]);
    let table = berth_report::table::table(&e, &plain(80));
    assert!(widest(&table) <= 80, "{table}");
    assert!(
        table.contains("p99 ± 95 % CI") && table.contains("of baseline"),
        "{table}"
    );
    let table = berth_report::table::table(&e, &plain(30));
    assert!(table.contains("p99"), "the leading column stays: {table}");
}

#[test]
fn colour_only_repeats() {
    let e = experiment(Place::Sim, &[("gfifo", Some(1.0)), ("vmfair", Some(0.1))]);
    let coloured = whole(
        &e,
        Place::Sim,
        Some("gfifo"),
        &Style {
            colour: true,
            width: 100,
        },
    );
    assert!(coloured.contains('\x1b'));
    let bare = coloured.replace("\x1b[1m", "").replace("\x1b[0m", "");
    assert_eq!(bare, whole(&e, Place::Sim, Some("gfifo"), &plain(100)));
}

#[test]
fn one_arm_or_none() {
    let mut e = experiment(Place::Sim, &[("vmfair", Some(0.1))]);
    e.baseline = None;
    let text = whole(&e, Place::Sim, None, &plain(100));
    assert!(
        text.contains("CPUs") && !text.contains("against") && !text.contains('▸'),
        "{text}"
    );
    let e = experiment(Place::Sim, &[("linux", None)]);
    assert!(whole(&e, Place::Sim, None, &plain(100)).contains("linux"));
}

#[test]
fn undecided_differences_are_not_sold() {
    let mut e = experiment(Place::Sim, &[("gfifo", Some(1.0)), ("vmfair", Some(1.0))]);
    for (i, run) in e.runs.iter_mut().filter(|r| r.arm == "vmfair").enumerate() {
        let factor = if i % 2 == 0 { 1.3 } else { 0.8 };
        for value in run.metrics.values_mut() {
            *value *= factor;
        }
    }
    let text = whole(&e, Place::Sim, Some("gfifo"), &plain(100));
    assert!(
        text.contains("web p99 not told apart (") && text.contains("work not told apart (-"),
        "{text}"
    );
    assert!(!text.contains('▸'), "{text}");
}

#[test]
fn sim_beside_lab() {
    let sim = experiment(
        Place::Sim,
        &[("linux", None), ("gfifo", Some(1.0)), ("vmfair", Some(0.1))],
    );
    let mut lab = experiment(Place::Lab, &[("linux", Some(1.2)), ("vmfair", Some(0.2))]);
    lab.baseline = Some("linux".into());
    let text = side_by_side(&sim, &lab);
    println!("{text}");
    assert!(widest(&text) <= 100, "{text}");
    assert!(text.contains("build: work of vmfair's"), "{text}");
    let line = |arm: &str| {
        text.lines()
            .find(|l| l.trim_start().starts_with(arm))
            .unwrap()
            .to_string()
    };
    assert_eq!(line("linux").matches(" - ").count(), 3, "{text}");
    assert!(line("vmfair").matches("100.0 %").count() == 2, "{text}");
}

/// Who answers 3 of 120 requests in each run, and those at once.
fn hardly_answering() -> Experiment {
    let mut e = experiment(Place::Sim, &[("gfifo", Some(1.0)), ("vmfair", Some(0.1))]);
    for run in &mut e.runs {
        let answered = if run.arm == "vmfair" { 3.0 } else { 120.0 };
        run.metrics.insert("web.response.count".into(), answered);
        run.metrics.insert("web.response.offered".into(), 120.0);
    }
    e
}

#[test]
fn who_hardly_answers_is_no_best_arm_and_is_told_so_first() {
    let e = hardly_answering();
    let text = whole(&e, Place::Sim, Some("gfifo"), &plain(100));
    assert!(widest(&text) <= 100, "{text}");
    assert!(!text.contains('▸'), "{text}");
    let line = |arm: &str| text.lines().find(|l| l.starts_with(&format!("  {arm} ")));
    assert!(line("vmfair").unwrap().contains(" 15/600"), "{text}");
    assert!(line("gfifo").unwrap().contains(" 600/600"), "{text}");
    let said = text.lines().find(|l| l.starts_with("    answers")).unwrap();
    let first = "    answers only 2.5 % of web's requests (15 of 600) · web p99 10.0 × shorter";
    assert!(said.starts_with(first), "{text}");
    let both = side_by_side(&e, &e);
    assert_eq!(both.matches("15/600").count(), 2, "{both}");
    let results = Results {
        format: FORMAT,
        place: Place::Sim,
        provenance: Provenance {
            version: String::new(),
            command: String::new(),
            kernel: String::new(),
            vcpus: String::new(),
            machine: String::new(),
            scenario: String::new(),
        },
        complete: true,
        experiments: vec![e],
    };
    let page = berth_report::html::page(&[&results]);
    assert!(page.contains("<small>of 15/600 answered</small>"), "{page}");
    let (warning, gain) = (page.find("answers only 2.5 %"), page.find("requests take"));
    assert!(warning.is_some() && warning < gain, "{page}");
    assert!(!page.contains("class=\"gain\">10.0"), "{page}");
}

#[test]
fn where_cpus_of_the_lab_idle_cpu_time_stands_in_for_work() {
    let of = |place, idle: f64| {
        let mut e = experiment(place, &[("gfifo", Some(1.0)), ("vmfair", Some(0.1))]);
        for run in &mut e.runs {
            // Work rises with the other arm's idle CPUs, CPU time does not.
            let cpu = if run.arm == "vmfair" { 3.0 } else { 4.0 };
            run.metrics.insert("build.cpu".into(), cpu);
            run.metrics.insert("host.idle".into(), idle);
        }
        e
    };
    for (place, idle) in [(Place::Lab, 0.02), (Place::Sim, 0.3), (Place::Host, 0.3)] {
        let text = whole(&of(place, idle), place, Some("gfifo"), &plain(100));
        assert!(text.contains("build: work"), "{text}");
        assert!(!text.contains("CPU time"), "{text}");
    }
    let lab = of(Place::Lab, 0.03);
    let text = whole(&lab, Place::Lab, Some("gfifo"), &plain(100));
    assert!(text.contains("build: CPU time"), "{text}");
    assert!(text.contains("build gets 25.0 % less CPU time"), "{text}");
    assert!(text.contains("idle up to 3.0 % of the time"), "{text}");
    assert!(text.contains("makes the others"), "{text}");
    let both = side_by_side(&of(Place::Sim, 0.0), &lab);
    assert!(both.contains("build: CPU time of gfifo's"), "{both}");
    // One CPU has no others.
    let mut one = of(Place::Lab, 0.3);
    one.setup.cpus = 1;
    let text = whole(&one, Place::Lab, Some("gfifo"), &plain(100));
    assert!(text.contains("build: work"), "{text}");
}
