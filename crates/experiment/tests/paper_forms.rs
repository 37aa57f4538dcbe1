// SPDX-License-Identifier: GPL-2.0-only
//! What a paper may have besides runs: traces over time, and tables over several experiments.
use berth_experiment::reproduce::files::{self, Made};
use berth_experiment::reproduce::told::Told;
use berth_experiment::reproduce::{Reproduced, Wanted, reproduce, seal};
use berth_experiment::simulator::Running;
use berth_scenario::paper::{self, Paper};
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

const PAPER: &str = r#"
title = "Kinds"
cites = "nobody, 2026"
about = "A fast core and a slow one."
seeds = 2
check_seeds = 1
[[experiment]]
id = "E1"
title = "one alone"
[[experiment.run]]
name = "alone"
scenario = "s.toml"
set = ["vm.b.count=0"]
head = "work"
rows = [{ metric = "a.work", label = "a, s", per = 1e9 }]
[[experiment]]
id = "E2"
title = "two"
[[experiment.trace]]
name = "side by side"
scenario = "s.toml"
arms = ["pinned", "slow"]
step = "100ms"
[[experiment.run]]
name = "both"
scenario = "s.toml"
head = "work"
rows = [{ metric = "a.work", label = "a, s", per = 1e9 }]
[[table]]
id = "T1"
title = "Table 1: both"
note = "What there is."
head = "who"
columns = [
  { head = "pinned, ms", arm = "pinned", metric = "a.work", per = 1e6 },
  { head = "paper" },
  { head = "slow, s", arm = "slow", metric = "a.work", per = 1e9 },
]
lines = [
  { label = "one", experiment = "E1", run = "alone", words = ["1 s"] },
  { label = "two", experiment = "E2", run = "both", words = ["-"] },
]
"#;

/// From 250 ms on b works on the slow core, a always on the fast one; nothing is random.
const SCENARIO: &str = r#"
[run]
warmup = "0s"
measure = "450ms"
[host]
cores = 2
hz = "exact"
cost = "none"
speed = ["1 x 200%", "1 x 100%"]
[vm.a]
vcpus = 1
guest = "none"
affinity = [0]
tasks = ["busy"]
[vm.b]
vcpus = 1
guest = "none"
affinity = [1]
start = "250ms"
tasks = ["busy"]
[task.busy]
model = "busy"
[arm.pinned]
policy = "gfifo"
[arm.slow]
policy = "gfifo"
set = { "host.speed" = "100%" }
"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(paper: &str) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let frame = "# Kinds\n\n{{table T1}}\n\n{{experiment E2}}\n";
        for (name, text) in [
            ("paper.toml", paper),
            ("s.toml", SCENARIO),
            ("claims.toml", ""),
            ("page.md", frame),
        ] {
            std::fs::create_dir_all(folder.0.path().join("p")).unwrap();
            std::fs::write(folder.0.path().join("p").join(name), text).unwrap();
        }
        folder
    }

    fn read(&self) -> Result<Paper, String> {
        paper::read(&self.0.path().join("p")).map_err(|e| e.to_string())
    }
}

fn made(paper: &Paper, sealed: Option<u32>) -> Reproduced<'_> {
    let wanted = Wanted {
        paper,
        only: None,
        quick: false,
        sealed,
    };
    let running = Running::new(1, &NEVER);
    reproduce(&wanted, &running, &|_| ()).unwrap_or_else(|e| panic!("{e:?}"))
}

fn text<'m>(made: &'m [Made], name: &str) -> &'m str {
    let found = made.iter().find(|m| m.name == name);
    let names: Vec<&String> = made.iter().map(|m| &m.name).collect();
    &found.unwrap_or_else(|| panic!("{name}: {names:?}")).text
}

#[test]
fn a_trace_says_who_has_which_cores_when() {
    let folder = Folder::new(PAPER);
    let paper = folder.read().unwrap();
    let all = made(&paper, None);
    let [pinned, slow] = &all.experiments[1].traced[0].arms[..] else {
        panic!("two arms")
    };
    assert_eq!(
        (&pinned.arm[..], &pinned.vms[..]),
        ("pinned", &["a".to_string(), "b".into()][..])
    );
    assert_eq!(pinned.kinds, ["fast", "slow"]);
    // Fast: a, b; slow: a, b. Half of the third step and the whole of the last one, which is half as long.
    let steps = [[1.0, 0.0, 0.0, 0.0]; 2].into_iter().chain([
        [1.0, 0.0, 0.0, 0.5],
        [1.0, 0.0, 0.0, 1.0],
        [1.0, 0.0, 0.0, 1.0],
    ]);
    assert_eq!(pinned.steps.len(), 5);
    for (found, expected) in pinned.steps.iter().zip(steps) {
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() < 1e-3, "{:?}", pinned.steps);
        }
    }
    // Cores that are alike are of one kind, which needs no name.
    assert_eq!(
        (slow.kinds.len(), slow.names()),
        (1, vec!["a".to_string(), "b".into()])
    );

    let made_files = files::of_paper(&all).unwrap();
    let page = text(&made_files, "p.md");
    let head = "| side by side: from, s | pinned: a, fast | pinned: b, fast | pinned: a, slow | pinned: b, slow \
                | slow: a | slow: b |";
    assert!(page.contains(head), "{page}");
    assert!(
        page.contains("\n| 0.2 | 1 | 0 | 0 | 0.5 | 1 | 0.5 |\n"),
        "{page}"
    );
    assert!(page.contains("`berth reproduce p E2`"), "{page}");
    for (arm, series) in [("pinned", 4), ("slow", 2)] {
        let name = format!("figures/p-E2-side-by-side-{arm}.svg");
        assert!(page.contains(&format!("]({name})")), "{page}");
        let picture = text(&made_files, &name);
        assert_eq!(
            picture.matches("class=\"line ").count(),
            series,
            "{picture}"
        );
        assert!(!picture.contains("<circle"), "{picture}");
    }
    let told = serde_json::to_value(Told::of(&all)).unwrap();
    let told = &told["experiments"][1]["traces"][0];
    assert_eq!(told["step_ns"], 100_000_000);
    assert_eq!(told["arms"][0]["cpus"].as_array().unwrap().len(), 5);
    assert_eq!(told["arms"][0]["cpus"][0][0][0], 1.0);
}

#[test]
fn a_table_has_a_line_for_each_run_with_words_beside_values() {
    let folder = Folder::new(PAPER);
    let paper = folder.read().unwrap();
    let made_files = files::of_paper(&made(&paper, None)).unwrap();
    let page = text(&made_files, "p.md");
    let expected = "### Table 1: both\n\nWhat there is.\n\n\
                    | who | pinned, ms | paper | slow, s |\n|---|---|---|---|\n\
                    | one | 900 ± 0 | 1 s | 0.45 ± 0 |\n| two | 900 ± 0 | - | 0.45 ± 0 |\n";
    assert!(page.contains(expected), "{page}");
}

/// The seal is of pictures and values of traces, too.
#[test]
fn a_seal_holds_traces() {
    let folder = Folder::new(PAPER);
    let paper = folder.read().unwrap();
    let made_files = files::of_paper(&made(&paper, None)).unwrap();
    let out = tempfile::tempdir().unwrap();
    files::write(out.path(), &made_files, false).unwrap();
    let sealed = made(&paper, Some(1));
    assert_eq!(seal::broken(out.path(), &sealed, 1).unwrap(), None);
    let mut other = made(&paper, Some(1));
    other.experiments[1].traced[0].arms[0].steps[0][0] = 0.5;
    let said = seal::broken(out.path(), &other, 1).unwrap().unwrap();
    assert!(said.contains("other values"), "{said}");
    let picture = out.path().join("figures/p-E2-side-by-side-slow.svg");
    std::fs::write(&picture, "<svg/>").unwrap();
    let said = seal::broken(out.path(), &sealed, 1).unwrap().unwrap();
    assert!(said.contains("a figure of it has been changed"), "{said}");
}

#[test]
fn what_does_not_fit_together_is_told_where_it_stands() {
    for (from, to, says) in [
        (
            "arm = \"slow\"",
            "arm = \"slower\"",
            "run alone: it has no arm `slower`",
        ),
        (
            "metric = \"a.work\", per = 1e6",
            "metric = \"a.cpu\"",
            "run alone: it has no row `a.cpu`",
        ),
        (
            "metric = \"a.work\", per = 1e6",
            "per = 1e6",
            "both `arm` and `metric`",
        ),
        (
            "experiment = \"E1\"",
            "experiment = \"E3\"",
            "the paper has no experiment `E3`",
        ),
        (
            "run = \"both\"",
            "run = \"booth\"",
            "the experiment has no run `booth`",
        ),
        ("words = [\"-\"]", "words = []", "0 `words` instead of 1"),
        (
            "set = [\"vm.b.count=0\"]",
            "vary = [\"vm.b.count=0,1\"]",
            "`alone` is several runs",
        ),
        (
            "arms = [\"pinned\", \"slow\"]",
            "arms = [\"pined\"]",
            "the scenario has no arm `pined`",
        ),
        (
            "step = \"100ms\"",
            "step = \"0s\"",
            "`step` is a duration above 0",
        ),
    ] {
        assert!(PAPER.contains(from), "{from}");
        let said = Folder::new(&PAPER.replacen(from, to, 1)).read();
        let said = said.err().unwrap_or_else(|| panic!("{to} is accepted"));
        assert!(
            said.contains(says) && said.contains("paper.toml:"),
            "{to}: {said}"
        );
    }
    let folder = Folder::new(PAPER);
    let frame = folder.0.path().join("p/page.md");
    std::fs::write(frame, "{{table T2}}\n").unwrap();
    let paper = folder.read().unwrap();
    let said = format!("{:?}", files::of_paper(&made(&paper, None)).err());
    assert!(
        said.contains("no table `T2`") && said.contains("page.md:1"),
        "{said}"
    );
}
