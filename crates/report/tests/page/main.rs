// SPDX-License-Identifier: GPL-2.0-only
//! The report as a file; in a real browser: `browser`.
mod browser;

use berth_report::html;
use berth_results::detail::{Distribution, Strip, Wait, WorstWait};
use berth_results::expect::{Bound, Limit, check};
use berth_results::experiment::{Arm, Experiment, FORMAT, Group, Provenance, Results, Setup};
use berth_results::schema::{Place, RunRecord};
use std::collections::BTreeMap;

/// A name that would be a program if anything forgot to make it harmless.
const EVIL: &str = "<script>document.title='owned'</script>\"'&";

fn results(place: Place, factor: f64) -> Results {
    let mut runs = Vec::new();
    for (arm, latency, work) in [
        ("linux", 14.1, 1.0),
        ("flms", 1.3 * factor, 0.979),
        ("same", 14.1, 1.0),
    ] {
        for seed in 1..=6_u64 {
            let wobble = 1.0 + 0.02 * (seed as f64 - 3.0) + 0.003 * ((seed * 7) % 5) as f64 * work;
            let p99 = latency
                * 1e6
                * if arm == "same" {
                    1.0 + 0.3 * (seed as f64 - 3.5)
                } else {
                    wobble
                };
            let metrics = BTreeMap::from([
                ("web.response.p99".to_string(), p99),
                ("web.response.p50".to_string(), p99 / 20.0),
                (
                    "build.work".to_string(),
                    3.2e10 * work * (1.0 + 0.0001 * seed as f64),
                ),
                ("host.switches_per_cpu".to_string(), 610.0 + seed as f64),
                ("host.moves.same_core".to_string(), 40.0),
                ("host.moves.same_llc".to_string(), 30.0),
                ("host.moves.other_llc".to_string(), 0.0),
                ("host.moves.other_package".to_string(), 25.0),
                ("host.moves.other_node".to_string(), 10.0),
                (format!("{EVIL}-1.cpu"), 0.5),
            ]);
            let mut run = RunRecord::new(place, arm, seed, metrics);
            run.notes = vec![format!("a note with {EVIL}")];
            let wait = |waiter: &str, cause: &str, ns| Wait {
                waiter: waiter.into(),
                cause: cause.into(),
                ns,
            };
            run.waits = vec![
                wait("web", "build", (p99 * 100.0) as u64),
                wait("build", "web", 5_000_000),
                wait(EVIL, "(idle)", 1_000_000),
            ];
            let times = (0..400u64).map(|i| ((p99 as u64 / 400 + 1) * i + 1000, 400 - i));
            run.times = BTreeMap::from([("web.response".into(), Distribution::of(times))]);
            run.series = BTreeMap::from([("web.cpu".into(), vec![0.4, 0.5, 0.45, 0.5])]);
            run.worst = vec![WorstWait {
                group: "web".into(),
                thread: format!("{EVIL}/0"),
                cpu: 1,
                from_ns: 8_204_000_000,
                to_ns: 8_241_600_000,
                unfinished: false,
                behind: vec![("build-3/1".into(), 30_000_000)],
                strip: (seed == 1).then(|| Strip {
                    from_ns: 8_196_600_000,
                    to_ns: 8_246_600_000,
                    cpus: vec![0, 1],
                    threads: vec![
                        ("build-3/1".into(), "build".into()),
                        (EVIL.into(), "web".into()),
                    ],
                    ran: vec![
                        [0, 1, 0, 9_000_000],
                        [1, 0, 0, 45_000_000],
                        [1, 1, 45_000_000, 5_000_000],
                    ],
                }),
            }];
            runs.push(run);
        }
    }
    let arm = |name: &str| Arm {
        name: name.into(),
        policy: name.into(),
        hash: None,
        model: None,
        absent: None,
    };
    let group = |name: &str, class: &str| Group {
        name: name.into(),
        class: class.into(),
        vms: 1,
        vcpus: 2,
    };
    Results {
        format: FORMAT,
        place,
        provenance: Provenance {
            version: "0.1.0".into(),
            command: format!("berth sim '{EVIL}'"),
            kernel: "7.2".into(),
            vcpus: String::new(),
            machine: "linux-x86_64".into(),
            scenario: format!("title = \"{EVIL}\""),
        },
        complete: true,
        experiments: vec![Experiment {
            setup: Setup {
                name: "t".into(),
                title: format!("Noisy {EVIL}"),
                cpus: 2,
                groups: vec![
                    group("web", "latency"),
                    group("build", "batch"),
                    group(EVIL, "mixed"),
                ],
                warmup_ns: 1_000_000_000,
                measure_ns: 10_000_000_000,
                seeds: (1..=6).collect(),
            },
            variant: vec![],
            arms: vec![arm("linux"), arm("flms"), arm("same")],
            baseline: Some("linux".into()),
            runs,
            expects: vec![],
            findings: Default::default(),
            notes: vec![],
        }],
    }
}

/// What a reader sees: no tags, entities resolved.
fn visible(page: &str) -> String {
    let body = &page[page.find("<body>").unwrap()..page.find("<script>").unwrap()];
    let mut text = String::new();
    let mut inside = false;
    for c in body.chars() {
        match c {
            '<' => inside = true,
            '>' => inside = false,
            c if !inside => text.push(c),
            _ => (),
        }
    }
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}

#[test]
fn the_sentence_comes_first_and_is_honest() {
    let page = html::page(&[&results(Place::Sim, 1.0)]);
    let text = visible(&page);
    let lead = &page[page.find("class=\"lead\"").unwrap()..];
    let lead = &lead[..lead.find("</p>").unwrap()];
    assert!(
        lead.contains("<b>flms</b>") && lead.contains("instead of"),
        "{lead}"
    );
    // Gain and loss in the same sentence.
    assert!(
        lead.contains("class=\"gain\"")
            && lead.contains("class=\"loss\"")
            && lead.contains("less work"),
        "{lead}"
    );
    // An arm that cannot be told apart has no colour.
    let other = &page[page.find("class=\"others\"").unwrap()..];
    let other = &other[..other.find("</p>").unwrap()];
    assert!(
        other.contains("not told apart") && !other.contains("class=\"gain\""),
        "{other}"
    );
    let order = [
        "Gain against price",
        "Latency as a picture",
        "Who waited for whom",
        "The worst wait",
        "Share over time",
        "Moves by distance",
        "All metrics",
        "How it was made",
    ];
    let places: Vec<usize> = order
        .iter()
        .map(|h| text.find(h).unwrap_or_else(|| panic!("{h}")))
        .collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn what_comes_from_outside_is_harmless() {
    let page = html::page(&[&results(Place::Sim, 1.0), &results(Place::Lab, 1.2)]);
    // One script, ours; no address of anything to load.
    assert_eq!(page.matches("<script").count(), 1);
    for word in ["http://", "https://", "src=", "url(", "@import", "href="] {
        assert!(!page.contains(word), "{word}");
    }
    let text = visible(&page);
    assert!(text.contains(EVIL) && text.contains("Simulator beside real kernel"));
    // Every figure has its data.
    assert_eq!(
        page.matches("class=\"copy\"").count(),
        page.matches("<details class=\"data\">").count()
    );
    assert!(page.matches("class=\"copy\"").count() >= 12);
}

/// Moves: each distance once, those of other nodes not twice.
#[test]
fn moves_by_distance() {
    let page = html::page(&[&results(Place::Sim, 1.0)]);
    let text = visible(&page);
    for row in [
        "flms,SMT sibling,40.000",
        "flms,another cache of the package,0.000",
        "flms,another package of the node,15.000",
        "flms,another node,10.000",
    ] {
        assert!(text.contains(row), "{row}");
    }
    let legend = &page[page.find("Moves by distance").unwrap()..];
    let legend = &legend[..legend.find("<svg").unwrap()];
    assert!(legend.contains("another node") && !legend.contains("another cache"));
    // Nothing was counted, or nothing moved: no picture.
    let mut none = results(Place::Sim, 1.0);
    for run in &mut none.experiments[0].runs {
        run.metrics.retain(|name, _| !name.contains(".moves."));
    }
    assert!(!html::page(&[&none]).contains("Moves by distance"));
}

/// What the scenario expects stands beside both places' values.
#[test]
fn bounds_stand_beside_simulator_and_real_kernel() {
    let mut both = [results(Place::Sim, 1.0), results(Place::Lab, 20.0)];
    for r in &mut both {
        let e = &mut r.experiments[0];
        let bound = Bound {
            metric: "web.response.p99".into(),
            arm: "flms".into(),
            at_most: true,
            limit: Limit::Absolute(2e6),
        };
        e.expects = vec![check(&bound, e, Some("linux"))];
    }
    let text = visible(&html::page(&[&both[0], &both[1]]));
    let part = &text[text.find("Simulator beside real kernel").unwrap()..];
    assert!(part.contains("stated beforehand"), "{part}");
    let row = "flms at most 2.00 ms simulated: holds real kernel: does not hold";
    let plain: String = part.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plain.contains(row), "{plain}");
}

#[test]
fn incomplete_results_still_make_a_page() {
    let mut r = results(Place::Sim, 1.0);
    r.experiments[0].baseline = None;
    assert!(visible(&html::page(&[&r])).contains("nothing to compare"));
    r.experiments[0].runs.clear();
    r.complete = false;
    assert!(visible(&html::page(&[&r])).contains("Not complete"));
    for run_of in ["linux", "flms"] {
        let mut r = results(Place::Sim, 1.0);
        r.experiments[0]
            .runs
            .retain(|x| x.arm == run_of && x.seed == 1);
        r.experiments[0].runs.iter_mut().for_each(|x| {
            x.waits.clear();
            x.times.clear();
            x.worst.clear();
            x.series.clear();
        });
        assert!(html::page(&[&r]).ends_with("</html>\n"));
    }
    r.experiments.clear();
    assert!(html::page(&[&r]).contains("How it was made"));
    assert!(html::page(&[]).contains("<title>Berth"));
}

/// Arms have one set of colours, VM groups and distances another.
#[test]
fn arms_and_groups_do_not_share_colours() {
    let page = html::page(&[&results(Place::Sim, 1.0)]);
    let style = &page[page.find("<style>").unwrap()..page.find("</style>").unwrap()];
    let colours = |name: char| -> Vec<String> {
        let mark = format!("--{name}");
        let all = style.match_indices(&mark).filter_map(|(at, _)| {
            let (key, value) = style[at + 3..].split_once(':')?;
            let value = value.split(';').next()?.trim();
            let numbered = key.len() == 1 && key.starts_with(|c: char| c.is_ascii_digit());
            (numbered && value.starts_with('#')).then(|| value.to_string())
        });
        all.collect()
    };
    let (arms, groups) = (colours('k'), colours('g'));
    // In light, in dark and on paper.
    assert_eq!((arms.len(), groups.len()), (24, 24), "{arms:?} {groups:?}");
    assert!(
        arms.iter().all(|c| !groups.contains(c)),
        "{arms:?} {groups:?}"
    );
    let part = |from: &str, to: &str| {
        let from = page.find(from).unwrap();
        &page[from..from + page[from..].find(to).unwrap()]
    };
    let strips = part("The worst wait", "Share over time");
    assert!(
        strips.contains("class=\"ran g1\"") && !strips.contains("swatch k"),
        "{strips}"
    );
    let moves = part("Moves by distance", "All metrics");
    assert!(
        !moves.contains("class=\"k") && moves.contains("swatch d0"),
        "{moves}"
    );
    // What outlines mean is said.
    assert!(strips.contains("outlined"), "{strips}");
    assert!(part("Who waited for whom", "The worst wait").contains("dashed"));
}

/// So many VMs that each waited for each other one.
fn among(vms: u64) -> Results {
    let mut all = results(Place::Sim, 1.0);
    let e = &mut all.experiments[0];
    let name = |vm: u64| format!("database-{vm}");
    for run in &mut e.runs {
        let pairs = (1..=vms).flat_map(|a| (1..=vms).map(move |b| (a, b)));
        run.waits = pairs
            .map(|(a, b)| Wait {
                waiter: name(a),
                cause: name(b),
                ns: a * b * 1_000_000_000,
            })
            .collect();
    }
    all
}

/// Nobody waits for answers: groups `a` and `b` share two CPUs, and `flms` gives `a` the more the more it weighs.
fn shared(second: bool) -> Results {
    let mut all = swept(second);
    for e in &mut all.experiments {
        let weight: f64 = e.variant[0].split('=').nth(1).unwrap().parse().unwrap();
        let group = |name: &str| Group {
            name: name.into(),
            class: "batch".into(),
            vms: 1,
            vcpus: 2,
        };
        e.setup.groups = vec![group("a"), group("b")];
        e.expects.clear();
        for run in &mut e.runs {
            let part = match run.arm.as_str() {
                "flms" => 0.2 * weight,
                _ => 0.5,
            };
            let whole = 1.0e10 * (1.0 + 0.001 * run.seed as f64);
            run.metrics = BTreeMap::from([
                ("a.work".to_string(), whole * part),
                ("b.work".to_string(), whole * (1.0 - part)),
                ("a.cpu".to_string(), 2.0 * part),
                ("b.cpu".to_string(), 2.0 * (1.0 - part)),
            ]);
        }
    }
    all
}

#[test]
fn who_does_more_work_is_said_where_nobody_waits() {
    let text = visible(&html::page(&[&shared(false)]));
    for said in [
        "The order of policies changes (linux and flms, flms and same) over vm.web.count: most a.work: not told apart \
         from 1 to 2, flms at 4.",
        "most b.work: flms from 1 to 2, not told apart at 4.",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("nobody waits"), "{text}");
    let page = html::page(&[&shared(true)]);
    let text = visible(&page);
    assert!(
        text.contains("Who has the most a.work")
            && text.contains("With task.a = 2ms: the order")
            && text.contains("flms at 4. The order"),
        "{text}"
    );
    let map = &page[page.find("class=\"map\"").unwrap()..];
    let map = &map[..map.find("</table>").unwrap()];
    assert_eq!(map.matches(">flms<").count(), 2, "{map}");
}

#[test]
fn plots_of_one_metric_have_one_unit() {
    // Beside seconds the other panel's milliseconds are seconds, too.
    let mut all = shared(true);
    for e in all
        .experiments
        .iter_mut()
        .filter(|e| e.variant[1] == "task.a=1ms")
    {
        for run in &mut e.runs {
            run.metrics.values_mut().for_each(|x| *x /= 100.0);
        }
    }
    let page = html::page(&[&all]);
    assert!(page.contains("a.work%20(s)") && !page.contains("a.work%20(ms)"));
    // Numbers stand where they are; what has no common unit does not, which is said.
    let over = |values: [&str; 3]| {
        let mut all = shared(false);
        for (e, value) in all.experiments.iter_mut().zip(values) {
            e.variant = vec![format!("x.y={value}")];
        }
        visible(&html::page(&[&all]))
    };
    assert!(over(["1", "3", "5000"]).contains("over x.y (logarithmic)."));
    assert!(over(["500us", "1ms", "2s"]).contains("over x.y (logarithmic)."));
    assert!(over(["1", "2", "3"]).contains("over x.y."));
    assert!(over(["1", "2%", "3ms"]).contains("over x.y, at equal distances."));
}

#[test]
fn nothing_is_said_to_differ_by_nothing() {
    let mut all = shared(false);
    let nearly = |all: &mut Results, by: f64| {
        let e = &mut all.experiments[0];
        e.variant.clear();
        e.setup.groups[0].class = "latency".into();
        for run in &mut e.runs {
            let than = if run.arm == "flms" {
                1.0 + by * run.seed as f64
            } else {
                1.0
            };
            let seed = run.seed as f64;
            run.metrics = BTreeMap::from([
                ("a.response.p99".to_string(), 1.0e6 * seed * than),
                ("a.cpu".to_string(), 1.0),
                ("b.work".to_string(), 1.0e9 * seed * than),
                ("host.switches_per_cpu".to_string(), 600.0),
            ]);
        }
    };
    all.experiments.truncate(1);
    let style = berth_report::Style {
        colour: false,
        width: 100,
    };
    let both = |all: &Results| {
        let e = &all.experiments[0];
        let words = berth_report::whole(e, Place::Sim, None, &style);
        (words, visible(&html::page(&[all])))
    };
    nearly(&mut all, 0.0);
    let (words, page) = both(&all);
    for text in [&words, &page] {
        assert!(text.contains("not told apart (within 0.01 %)"), "{text}");
        assert!(text.contains("does as much work (within 0.01 %)"), "{text}");
        assert!(
            text.contains("as many switches") && !text.contains("1.00 ×"),
            "{text}"
        );
        assert!(!text.contains("0.00 to"), "{text}");
    }
    nearly(&mut all, 0.0005);
    let (words, page) = both(&all);
    for text in [&words, &page] {
        assert!(
            text.contains("% longer") && !text.contains("1.00 ×"),
            "{text}"
        );
    }
    // One seed: no interval, and no column that promises one.
    nearly(&mut all, 0.0001);
    all.experiments[0].runs.retain(|r| r.seed == 1);
    all.experiments[0].setup.seeds = vec![1];
    let (words, page) = both(&all);
    for text in [&words, &page] {
        assert!(
            text.contains("does as much work") && !text.contains(" 0.0 %"),
            "{text}"
        );
    }
    assert!(
        words.contains("p99 as long") && !words.contains("95 % CI"),
        "{words}"
    );
}

/// Three values of one address, or two of each of two; the leader changes with the first.
fn swept(second: bool) -> Results {
    let mut all = results(Place::Sim, 1.0);
    let plain = all.experiments.remove(0);
    let values = [("1", 1.0), ("2", 1.0), ("4", 40.0)];
    for (value, worse) in values {
        for other in ["a=1ms", "a=2ms"] {
            let mut e = plain.clone();
            e.variant = vec![format!("vm.web.count={value}")];
            match second {
                true => e.variant.push(format!("task.{other}")),
                false if other == "a=2ms" => continue,
                false => (),
            }
            for run in e.runs.iter_mut().filter(|r| r.arm == "flms") {
                run.metrics.values_mut().for_each(|x| *x *= worse);
            }
            all.experiments.push(e);
        }
    }
    all
}

#[test]
fn what_was_varied_is_drawn() {
    let page = html::page(&[&swept(false)]);
    let text = visible(&page);
    assert!(text.contains("Over vm.web.count"), "{text}");
    let lead = "The order of policies changes (linux and flms, flms and same) over vm.web.count: lowest \
                web.response.p99: flms from 1 to 2";
    assert!(text.contains(lead), "{text}");
    let pictures = page.matches("class=\"sweep\"").count();
    assert!(
        pictures >= 2 && page.contains("img-src data:"),
        "{pictures}"
    );
    // Two addresses: a picture for each value of the one with fewer, and the data of each.
    let both = html::page(&[&swept(true)]);
    assert_eq!(both.matches("class=\"sweep\"").count(), 2 * pictures);
    let text = visible(&both);
    assert!(
        text.contains("Over vm.web.count and task.a") && text.contains("With task.a = 2ms:"),
        "{text}"
    );
    assert!(text.contains("task.a=1ms,4,flms,"), "{text}");
    // And a map of who leads where.
    assert!(
        both.contains("class=\"map\"") && text.contains("Who has the lowest web.response.p99"),
        "{text}"
    );
    let map = &both[both.find("class=\"map\"").unwrap()..];
    let map = &map[..map.find("</table>").unwrap()];
    assert_eq!(
        (map.matches("<td").count(), map.matches(">flms<").count()),
        (6, 4),
        "{map}"
    );
    assert!(
        both.contains("vm.web.count%20where%20task.a%20=%202ms"),
        "{both}"
    );
    // One arm has nobody to be told apart from.
    let mut alone = swept(true);
    for e in &mut alone.experiments {
        e.arms.retain(|arm| arm.name == "flms");
        e.runs.retain(|run| run.arm == "flms");
    }
    let alone = html::page(&[&alone]);
    let text = visible(&alone);
    assert!(alone.contains("class=\"sweep\""), "{alone}");
    assert!(
        !text.contains("Who has the lowest") && !text.contains("order of policies"),
        "{text}"
    );
    // Words are no numbers, and nothing varied is nothing drawn.
    let mut words = swept(false);
    for (i, e) in words.experiments.iter_mut().enumerate() {
        e.variant = vec![format!("host.kernel=k{i}")];
    }
    let worded = html::page(&[&words]);
    assert!(!worded.contains("class=\"sweep\""));
    let said = "Not drawn: host.kernel takes words";
    assert!(visible(&worded).contains(said), "{}", visible(&worded));
    // Values that differ by more than a factor of 30 stand on a logarithmic axis.
    assert!(
        page.contains("web.response.p99%20(ms)%2C%20logarithmic"),
        "{page}"
    );
    // Three addresses are not drawn, and it is said.
    let mut three = swept(true);
    for (i, e) in three.experiments.iter_mut().enumerate() {
        e.variant.push(format!("host.cores={}", 1 + i % 2));
    }
    let text = visible(&html::page(&[&three]));
    assert!(text.contains("Not drawn: 3 addresses vary"), "{text}");
    assert!(!html::page(&[&results(Place::Sim, 1.0)]).contains("class=\"sweep\""));
}

#[test]
fn two_results_side_by_side() {
    use berth_report::versus::versus;
    let a = results(Place::Sim, 1.0);
    let mut b = results(Place::Sim, 1.0);
    b.provenance.scenario = "[vm.web]\ncount = 2  # here\n".into();
    for run in b.experiments[0].runs.iter_mut().filter(|r| r.arm == "flms") {
        *run.metrics.get_mut("web.response.p99").unwrap() *= 2.0;
    }
    let both = versus(&a, &b);
    let said = both.inputs.join("\n");
    assert!(said.contains("vm.web.count: - -> 2"), "{said}");
    let differ: Vec<_> = both.rows.iter().filter(|r| r.differs).collect();
    assert_eq!(differ.len(), 1, "{differ:#?}");
    assert_eq!(
        (differ[0].arm.as_str(), differ[0].metric.as_str()),
        ("flms", "web.response.p99")
    );
    assert!((differ[0].ratio.unwrap().ratio - 2.0).abs() < 1e-9);
    let style = berth_report::Style {
        colour: false,
        width: 100,
    };
    let text = both.text(false, &style);
    assert!(
        text.contains("2.000 (2.000 to 2.000)") && text.contains("not told apart"),
        "{text}"
    );
    let same = versus(&a, &a);
    assert!(same.inputs.is_empty() && same.rows.iter().all(|r| !r.differs));
    b.experiments[0].arms[1].name = "other".into();
    assert_eq!(versus(&a, &b).only_in_a, ["flms"]);
    // Many names are in lines that fit, in the order of the sweep.
    let mut many = results(Place::Sim, 1.0);
    let one = many.experiments.remove(0);
    for value in 1..=20 {
        let variant = vec![format!("vm.web.count={value}")];
        many.experiments.push(Experiment {
            variant,
            ..one.clone()
        });
    }
    let both = versus(&a, &many);
    assert_eq!(both.only_in_b[0], "linux vm.web.count=1");
    assert_eq!(both.only_in_b[5], "same vm.web.count=2");
    let text = both.text(false, &style);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines.contains(&"  Only in B:") && lines.len() > 10,
        "{text}"
    );
    assert!(lines.iter().all(|l| l.len() <= 100), "{text}");
}
