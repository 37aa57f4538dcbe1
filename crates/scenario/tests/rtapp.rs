// SPDX-License-Identifier: GPL-2.0-only
//! rt-app files: what they become, and what is said about those that cannot.
use berth_scenario::model::*;
use berth_scenario::{Input, placement, read, rtapp};
use proptest::prelude::*;

fn input(text: &str) -> Input {
    Input {
        name: "load".into(),
        shown: "load.json".into(),
        text: text.into(),
        folder: None,
    }
}

fn import(text: &str) -> Scenario {
    let toml = rtapp::import(&input(text)).unwrap_or_else(|e| panic!("{e}\n--\n{text}"));
    let loaded = read(&input(&toml), &[]).unwrap_or_else(|e| panic!("{e}\n--\n{toml}"));
    assert_eq!(loaded.warnings, Vec::<String>::new(), "{toml}");
    loaded.scenario
}

fn refusal(text: &str) -> String {
    match rtapp::import(&input(text)) {
        Ok(toml) => panic!("was imported:\n{text}\nas\n{toml}"),
        Err(e) => e.to_string(),
    }
}

/// One thread with these events.
fn thread(events: &str) -> String {
    format!("{{ \"tasks\": {{ \"t\": {{ {events} }} }} }}")
}

fn name(text: &str) -> String {
    text.to_string()
}

#[test]
fn a_whole_file() {
    let s = import(
        r#"{
        /* two tasks that know nothing of each other */
        "tasks" : {
            "render" : {
                "instance" : 2, "delay" : 500, "priority" : -5, "cpus" : [0, 5],
                "run" : 1000,
                "timer" : { "ref" : "unique", "period" : 16000 }
            },
            "logger 1" : {
                "loop" : 3,
                "phases" : {
                    "light" : { "loop" : 2, "runtime" : 10, "sleep" : 20 },
                    "heavy" : { "cpus" : [1], "run0" : 100, "run1" : 200, "yield" : "" }
                }
            }
        },
        "global" : { "duration" : 2, "calibration" : "CPU0", "default_policy" : "SCHED_OTHER",
            "ftrace" : "none", "pi_enabled" : false }
    }"#,
    );
    assert_eq!((s.run.warmup_ns, s.run.measure_ns), (0, 2_000_000_000));
    assert_eq!(s.host.nr_cpus(), 6, "CPU 5 is named");
    let render = &s.tasks["render"];
    assert_eq!((render.threads, render.nice), (Some(2), -5));
    assert_eq!(render.affinity, [0, 5]);
    assert_eq!(render.first, [Step::Sleep(Dist::Const(500_000))]);
    assert_eq!(
        render.steps,
        [
            Step::Compute(Dist::Const(1_000_000)),
            Step::Timer {
                period_ns: 16_000_000,
                grid: Grid::Start,
            }
        ]
    );
    let round = [
        Step::SetAffinity(vec![]),
        Step::Compute(Dist::Const(10_000)),
        Step::Sleep(Dist::Const(20_000)),
        Step::SetAffinity(vec![]),
        Step::Compute(Dist::Const(10_000)),
        Step::Sleep(Dist::Const(20_000)),
        Step::SetAffinity(vec![1]),
        Step::Compute(Dist::Const(100_000)),
        Step::Compute(Dist::Const(200_000)),
        Step::Yield,
    ];
    let logger = &s.tasks["logger-1"].steps;
    assert_eq!(logger.len(), 31);
    assert_eq!(logger[..10], round);
    assert_eq!(logger[20..30], round);
    assert_eq!(logger[30], Step::Exit);
    let vms: Vec<_> = s
        .vms
        .iter()
        .map(|v| (v.name.as_str(), v.vcpus, v.weight))
        .collect();
    assert_eq!(vms, [("render", 2, 100), ("logger-1", 1, 100)]);
    assert!(s.vms.iter().all(|vm| vm.guest.is_none()));
    // The threads of one process, of no class.
    let together = |vm: &Vm| vm.cgroup.as_deref() == Some("rt-app") && vm.class == Class::None;
    assert!(s.vms.iter().all(together));
}

#[test]
fn every_task_has_results_of_its_own() {
    let s = import(
        r#"{ "tasks" : {
            "a" : { "run" : 5, "lock" : "m", "wait" : { "ref" : "c", "mutex" : "m" }, "unlock" : "m" },
            "alone" : { "run" : 5, "sleep" : 5 },
            "b" : { "sync" : { "ref" : "c", "mutex" : "m" }, "sleep" : 7 },
            "c" : { "suspend" : "", "run" : 1, "fork" : "d" },
            "d" : { "instance" : 0, "loop" : 1, "run" : 1, "iorun" : 4096 },
            "e" : { "resume" : "c", "sleep" : 3, "broad" : "x", "signal" : "x" },
            "f" : { "barrier" : "z", "run" : 1 },
            "g" : { "barrier" : "z", "run" : 1 }
        } }"#,
    );
    let vms: Vec<_> = s
        .vms
        .iter()
        .map(|v| (v.name.as_str(), v.tasks.join(" ")))
        .collect();
    assert_eq!(
        vms,
        [
            ("a", name("a")),
            ("alone", name("alone")),
            ("b", name("b")),
            ("c", name("c")),
            ("d", name("d")),
            ("e", name("e")),
            ("f", name("f")),
            ("g", name("g"))
        ]
    );
    // They meet all the same, and what `c` starts is one of `d`.
    assert_eq!(placement::meeting_places(&s), [0; 8]);
    let threads = placement::threads(&s).unwrap();
    let of = |t: &placement::HostThread| t.vm.as_ref().unwrap().name.clone();
    assert!(threads.iter().all(|t| of(t) != "d"), "none at its start");
    let parent = threads.iter().find(|t| of(t) == "c").unwrap();
    assert_eq!(of(&placement::forked(&s, parent, "d").unwrap()), "d");
    let shared = |n: &str| n.to_string();
    assert_eq!(
        s.tasks["b"].steps[..6],
        [
            Step::Lock { name: shared("m") },
            Step::Signal { name: shared("c") },
            Step::Unlock { name: shared("m") },
            Step::Wait { name: shared("c") },
            Step::Lock { name: shared("m") },
            Step::Unlock { name: shared("m") },
        ]
    );
    assert_eq!(
        s.tasks["c"].steps[0],
        Step::Wait {
            name: shared("resume-c")
        }
    );
    assert_eq!(s.tasks["c"].steps[2], Step::Fork(shared("d")));
    assert_eq!(
        s.tasks["e"].steps[0],
        Step::Broadcast {
            name: shared("resume-c")
        }
    );
    assert_eq!(s.tasks["f"].steps[0], Step::Barrier { name: shared("z") });
    assert_eq!(
        s.tasks["d"].steps[1],
        Step::Write {
            name: shared("io"),
            bytes: 4096
        }
    );
}

#[test]
fn names_of_tasks_and_of_the_cgroup_do_not_meet() {
    let s = import(
        r#"{ "tasks" : { "rt-app" : { "run" : 5 }, "idle" : { "instance" : 0, "run" : 5 } } }"#,
    );
    let vms: Vec<_> = s
        .vms
        .iter()
        .map(|v| (&*v.name, v.cgroup.as_deref()))
        .collect();
    // What nobody starts is left out.
    assert_eq!(vms, [("rt-app", Some("rt-app_"))]);
    assert_eq!(s.tasks.len(), 1);
    let s = import(&thread(
        r#""run" : 5, "timer" : { "ref" : "x", "period" : 9, "mode" : "absolute" }"#,
    ));
    let timer = Step::Timer {
        period_ns: 9_000,
        grid: Grid::StartCatchUp,
    };
    assert_eq!(s.tasks["t"].steps[1], timer);
}

#[test]
fn a_phase_without_end_is_the_loop_and_the_rest_comes_once() {
    let s = import(&thread(
        r#""phases" : { "up" : { "loop" : 2, "run" : 1 }, "on" : { "loop" : -1, "run" : 2, "sleep" : 3 },
            "never" : { "run" : 4 } }"#,
    ));
    assert_eq!(
        s.tasks["t"].first,
        vec![Step::Compute(Dist::Const(1000)); 2]
    );
    assert_eq!(
        s.tasks["t"].steps,
        [
            Step::Compute(Dist::Const(2000)),
            Step::Sleep(Dist::Const(3000))
        ]
    );
}

/// One row per kind of mistake: the file, and words that the answer must have.
#[test]
fn mistakes() {
    let t = thread;
    let rows: &[(String, &[&str])] = &[
        (name(""), &["not JSON", "load.json:1"]),
        (name("[]"), &["an object with `tasks`"]),
        (name("{}"), &["needs `tasks`"]),
        (
            name(r#"{ "taks" : {} }"#),
            &["unknown key `taks`", "did you mean `tasks`?"],
        ),
        (name(r#"{ "tasks" : {} }"#), &["has no tasks"]),
        (
            name(r#"{ "tasks" : 5 }"#),
            &["`tasks` is an object, not a whole number"],
        ),
        (
            name(r#"{ "tasks" : { "t" : 5 } }"#),
            &["`tasks.t` is an object"],
        ),
        (
            name("{ \"tasks\" : { \"t\" : {\n \"slepp\" : 5 } } }"),
            &[
                "unknown key `tasks.t.slepp`",
                "did you mean `sleep`?",
                "load.json:2",
            ],
        ),
        (
            t(r#""phases" : { "p" : { "rum0" : 5 } }"#),
            &["unknown key `tasks.t.phases.p.rum0`", "did you mean `run`?"],
        ),
        (
            t(r#""run" : "5""#),
            &["`tasks.t.run` is a whole number, not a string"],
        ),
        (t(r#""run" : -5"#), &["`tasks.t.run` is -5", "0 to"]),
        (
            t(r#""mem" : 5"#),
            &["`tasks.t.mem`: memory traffic has no counterpart"],
        ),
        (t(r#""util_min" : 5, "run" : 5"#), &["utilisation clamping"]),
        (t(r#""taskgroup" : "/a", "run" : 5"#), &["groups of tasks"]),
        (
            t(r#""dl-runtime" : 5, "run" : 5"#),
            &["deadline scheduling"],
        ),
        (
            t(r#""policy" : "SCHED_FIFO", "run" : 5"#),
            &["`tasks.t.policy` is SCHED_FIFO", "SCHED_OTHER only"],
        ),
        (
            t(r#""policy" : "SCHED_OTHR", "run" : 5"#),
            &["did you mean SCHED_OTHER?"],
        ),
        (
            t(r#""priority" : 50, "run" : 5"#),
            &["`tasks.t.priority` is 50", "-20 to 19"],
        ),
        (t(r#""cpus" : [], "run" : 5"#), &["list of CPU numbers"]),
        (t(r#""cpus" : "0-3", "run" : 5"#), &["list of CPU numbers"]),
        (t(r#""cpus" : [5000], "run" : 5"#), &["list of CPU numbers"]),
        (
            t(r#""instance" : -1, "run" : 5"#),
            &["`tasks.t.instance` is -1"],
        ),
        (t(r#""yield" : """#), &["takes no time"]),
        (t(r#""run" : 0"#), &["takes no time"]),
        (t(""), &["no events"]),
        (
            t(r#""loop" : 4000000000, "run" : 1"#),
            &["4000000000 steps, more than 10000"],
        ),
        (
            t(r#""phases" : { "p" : { "run" : 5 } }, "run" : 5"#),
            &["both phases and events"],
        ),
        (
            t(r#""phases" : { "p" : { "run" : 5 } }, "rn" : 5"#),
            &["unknown key `tasks.t.rn`"],
        ),
        (
            t(r#""timer" : { "ref" : "x" }, "run" : 5"#),
            &["needs `ref` and `period`"],
        ),
        (
            t(r#""timer" : { "ref" : "x", "period" : 5, "mode" : "absolut" }, "run" : 5"#),
            &["`tasks.t.timer.mode` is absolut", "relative or absolute"],
        ),
        (
            t(r#""timer" : { "ref" : "x", "perod" : 5 }, "run" : 5"#),
            &[
                "unknown key `tasks.t.timer.perod`",
                "did you mean `period`?",
            ],
        ),
        (
            t(r#""instance" : 2, "timer" : { "ref" : "x", "period" : 5 }"#),
            &["timer `x` is shared"],
        ),
        (
            t(
                r#""timer0" : { "ref" : "x", "period" : 5 }, "timer1" : { "ref" : "x", "period" : 6 }"#,
            ),
            &["timer `x` has two periods"],
        ),
        (
            t(r#""timer0" : { "ref" : "x", "period" : 5 },
                    "timer1" : { "ref" : "x", "period" : 5, "mode" : "absolute" }"#),
            &["timer `x` has two modes"],
        ),
        (
            t(
                r#""timer0" : { "ref" : "x", "period" : 5 }, "timer1" : { "ref" : "y", "period" : 5 }"#,
            ),
            &["period of another timer"],
        ),
        (
            t(r#""wait" : { "ref" : "x" }"#),
            &["needs `ref` and `mutex`"],
        ),
        (t(r#""wait" : "x""#), &["`tasks.t.wait` is an object"]),
        (
            t(r#""lock" : 5, "run" : 5"#),
            &["`tasks.t.lock` is a string"],
        ),
        (
            t(r#""fork" : "tt", "run" : 5"#),
            &["no task `tt` to fork", "did you mean `t`?"],
        ),
        (
            t(r#""resume" : "x", "run" : 5"#),
            &["no task `x` to resume"],
        ),
        (
            t(r#""suspend" : "x", "run" : 5"#),
            &["only suspend the task itself"],
        ),
        (
            name(r#"{ "tasks" : { "t" : { "run" : 5 } }, "global" : { "duraton" : 5 } }"#),
            &["unknown key `global.duraton`", "did you mean `duration`?"],
        ),
        (
            name(r#"{ "tasks" : { "t" : { "run" : 5 } }, "global" : { "duration" : 0 } }"#),
            &["nothing would run"],
        ),
        (
            name(r#"{ "tasks" : { "t" : { "run" : 5 } }, "global" : { "pi_enabled" : true } }"#),
            &["priority inheritance"],
        ),
        (
            name(r#"{ "tasks" : { "t" : { "run" : 5 }, "t" : { "run" : 5 } } }"#),
            &["two tasks `t`"],
        ),
    ];
    for (text, words) in rows {
        let said = refusal(text);
        for word in *words {
            assert!(
                said.contains(word),
                "of\n{text}\n-- was said:\n{said}\n-- without: {word}"
            );
        }
    }
}

#[test]
fn a_huge_file_is_refused_at_once() {
    let path = std::env::temp_dir().join(format!("berth-rtapp-{}.json", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(100 << 20).unwrap();
    let said = Input::from_file(&path).unwrap_err().to_string();
    assert!(said.contains("larger than 4 MiB"), "{said}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn files_are_told_apart_by_how_they_begin() {
    assert!(rtapp::is_json(" \n/* x */ // y\n {"));
    assert!(!rtapp::is_json("# x\n[host]"));
    assert!(!rtapp::is_json(""));
}

const WHOLE: &str = r#"{ "tasks" : { "a" : { "instance" : 2, "delay" : 5, "phases" : { "p" : { "loop" : 3, "run" : 5,
    "lock" : "m", "unlock" : "m",
    "timer" : { "ref" : "unique", "period" : 50, "mode" : "relative" } },
        "q" : { "cpus" : [1, 2], "sleep" : 4, "barrier" : "b" } } },
    "b" : { "loop" : 2, "wait" : { "ref" : "c", "mutex" : "m" }, "sync" : { "ref" : "c", "mutex" : "m" },
        "barrier" : "b" },
    "c" : { "suspend" : "", "resume" : "c", "fork" : "a", "priority" : 4, "yield" : "", "iorun" : 5 } },
    "global" : { "duration" : -1, "default_policy" : "SCHED_OTHER" }, "resources" : {} }"#;

fn try_it(text: &str) {
    match rtapp::import(&input(text)) {
        // What is imported is a scenario that reads, or says why not.
        Ok(toml) => {
            if let Err(error) = read(&input(&toml), &[]) {
                let said = error.to_string();
                assert!(
                    !said.contains("not TOML") && !said.contains("unknown key"),
                    "{text}\n{toml}\n{said}"
                );
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_damage(places in prop::collection::vec((any::<prop::sample::Index>(), 0..6_usize, "[-0-9a-z\"{}\\[\\]:,. \
     /*\\\\ä]{0,6}"), 1..5)) {
        let mut text: Vec<char> = WHOLE.chars().collect();
        for (place, len, piece) in places {
            let at = place.index(text.len());
            let to = (at + len).min(text.len());
            drop(text.splice(at..to, piece.chars()));
        }
        try_it(&text.into_iter().collect::<String>());
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        try_it(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_events(events in prop::collection::vec((prop::sample::select(vec![
        "run", "runtime", "sleep", "iorun", "yield", "lock", "unlock",
        "signal", "broad", "barrier", "fork", "timer", "loop", "cpus", "priority", "instance", "delay",
    ]), 0..30_i64, any::<bool>()), 1..10)) {
        let events: Vec<String> = events.iter().enumerate().map(|(i, (key, n, text))| {
            let once = matches!(*key, "loop" | "cpus" | "priority" | "instance" | "delay");
            let key = if once { (*key).to_string() } else { format!("{key}{i}") };
            let value = match (key.trim_end_matches(char::is_numeric), text) {
                ("yield" | "lock" | "unlock" | "signal" | "broad" | "barrier", _) => format!("\"m{}\"", n % 2),
                ("fork", _) => "\"t\"".to_string(),
                ("timer", _) => format!("{{ \"ref\" : \"unique{n}\", \"period\" : {} }}", n + 1),
                ("cpus", _) => format!("[{n}]"),
                _ => n.to_string(),
            };
            format!("\"{key}\" : {value}")
        }).collect();
        try_it(&thread(&events.join(", ")));
    }
}
