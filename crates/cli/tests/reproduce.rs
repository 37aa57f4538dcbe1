// SPDX-License-Identifier: GPL-2.0-only
//! `berth reproduce` as a user meets it: what it writes, what it holds against what is there, what wrong input gets.
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const PAPER: &str = r#"
title = "Echoes"
cites = "nobody, 2026"
about = "An echo beside hogs."
seeds = 3
[[experiment]]
id = "E1"
title = "an echo beside hogs"
[experiment.figure]
form = "lines"
over = "variants"
x = "hogs"
y = "ms"
[[experiment.run]]
name = "hogs"
scenario = "e1.toml"
vary = ["vm.hog.count=1,4"]
judges = ["P-*"]
head = "mean, ms"
rows = [{ metric = "web.response.mean", per = 1e6, label = "web" }]
"#;

const SCENARIO: &str = r#"
[reproduces]
paper = "p"
experiment = "E1"
metric = "web.response.mean"
claims = ["P-*"]
[run]
warmup = "10ms"
measure = "200ms"
[host]
cores = 1
[vm.web]
class = "latency"
tasks = ["worker"]
[vm.hog]
count = 1
tasks = ["burn"]
[task.worker]
loop = ["receive users", "compute 300us", "reply"]
[task.burn]
model = "busy"
[client.users]
to = "web"
sends = "poisson(400/s)"
[compare]
policies = ["gfifo", "vmfair"]
baseline = "gfifo"
"#;

/// Queues grow with the hogs under a common queue; a scheduler that knows VMs answers sooner.
const CLAIMS: &str = r#"
[[claim]]
id = "P-RISES"
says = "an echo takes longer with more hogs"
where = "Fig. 1"
arm = "gfifo"
trend = "rises"
verdict = "reproduced"
why = "One queue for all."

[[claim]]
id = "P-SOONER"
says = "who knows VMs answers sooner"
where = "Fig. 1"
arm = "vmfair"
against = "gfifo"
as = "reduction"
accept = "1% to 100%"
verdict = "reproduced"
why = "A VM that used little goes first."

[[claim]]
id = "Q-LATER"
says = "a disk is faster"
where = "Fig. 2"
needs = "a disk"
"#;

/// A folder with one paper.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir_all(place.path("papers/p")).unwrap();
        place.put("papers/p/paper.toml", PAPER);
        place.put("papers/p/e1.toml", SCENARIO);
        place.put("papers/p/claims.toml", CLAIMS);
        place.put(
            "papers/p/page.md",
            "# Echoes\n\n{{verdicts}}\n{{experiment E1}}\n{{waiting}}\n",
        );
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn get(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn change(&self, name: &str, from: &str, to: &str) {
        let text = self.get(name);
        assert!(text.contains(from), "{name} has no {from}: {text}");
        self.put(name, &text.replacen(from, to, 1));
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command.current_dir(self.dir.path());
        command
            .args(["reproduce", "--kept", "kept"])
            .args(arguments);
        command
    }

    /// Exit status, standard output, error output.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    /// Kept runs.
    fn kept(&self) -> Vec<PathBuf> {
        let list = |folder: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect()
        };
        let shelves = list(&self.path("kept"));
        let files = shelves.iter().flat_map(|shelf| list(shelf));
        files
            .filter(|file| file.extension().is_some_and(|e| e == "json"))
            .collect()
    }
}

#[test]
fn a_paper_is_run_judged_written_and_held() {
    let place = Place::new();
    let (status, shown, said) = place.run(&["p"]);
    assert_eq!(status, 0, "{said}");
    assert!(shown.contains("| web, vm.hog.count=4 | "), "{shown}");
    let page = place.get("docs/papers/p.md");
    assert!(page.contains("![E1: ms over hogs. gfifo: 1: "), "{page}");
    assert!(
        page.contains("`P-RISES` | - |")
            && page.contains("| **reproduced** | One queue for all. |"),
        "{page}"
    );
    assert!(
        page.contains("| a disk is faster (Fig. 2) `Q-LATER` | not yet | it needs a disk |"),
        "{page}"
    );
    assert!(
        place
            .get("docs/papers/figures/p-E1.svg")
            .starts_with("<svg")
    );
    assert!(
        place
            .get("docs/papers/README.md")
            .contains("| all | 3 | 2 | 0 | 0 | 0 | 1 |")
    );
    assert_eq!(place.kept().len(), 12, "2 variants, 2 arms, 3 seeds");

    // As it is: nothing to say, nothing run.
    let (status, _, said) = place.run(&["--check"]);
    assert_eq!(status, 0, "{said}");
    assert!(
        said.contains("12 runs were kept before and not run again"),
        "{said}"
    );

    // A page that is changed by hand.
    place.change("docs/papers/p.md", "# Echoes", "# Echos");
    let (status, _, said) = place.run(&["--check"]);
    assert!(
        status == 1 && said.contains("p.md, line 2") && said.contains("there: # Echos"),
        "{said}"
    );
    assert_eq!(place.run(&["p", "-q"]).0, 0);

    // A verdict that is not what comes out.
    place.change(
        "papers/p/claims.toml",
        "verdict = \"reproduced\"",
        "verdict = \"not reproduced\"",
    );
    let (status, _, said) = place.run(&["--check"]);
    assert_eq!(status, 1, "{said}");
    let words = "P-RISES: this version gives \"reproduced\", kept is \"not reproduced\" (papers/p/claims.toml, line 2)";
    assert!(said.contains(words), "{said}");
    assert_eq!(place.run(&["p"]).0, 1, "it is said without --check, too");
}

/// `--check` runs the first seed of one in three variants only, and finds each way in which a page can be old.
#[test]
fn a_page_with_a_seal_is_held_by_its_first_seed() {
    let place = Place::new();
    let seeds = "seeds = 3\ncheck_seeds = 1";
    place.change("papers/p/paper.toml", "seeds = 3", seeds);
    assert_eq!(place.run(&["p", "-q"]).0, 0);
    assert_eq!(place.kept().len(), 12, "2 variants, 2 arms, 3 seeds");
    std::fs::remove_dir_all(place.path("kept")).unwrap();
    let (status, _, said) = place.run(&["--check"]);
    assert_eq!(status, 0, "{said}");
    assert_eq!(
        place.kept().len(),
        2,
        "the first of 2 variants, 2 arms, 1 seed"
    );

    let page = place.get("docs/papers/p.md");
    let (_, seal) = page.rsplit_once("<!-- seal: ").unwrap();
    let results = seal.split(", ").nth(1).unwrap();
    for (file, from, to, words) in [
        (
            "docs/papers/p.md",
            "# Echoes",
            "# Echos",
            "has been changed",
        ),
        ("docs/papers/p.md", "<!-- seal", "<!-- sail", "has no seal"),
        ("docs/papers/p.md", results, "results 0", "other values"),
        (
            "docs/papers/figures/p-E1.svg",
            "<svg",
            "<svg ",
            "has been changed",
        ),
        (
            "papers/p/claims.toml",
            "One queue",
            "A queue",
            "papers/p has changed",
        ),
        (
            "papers/p/page.md",
            "# Echoes",
            "# Echos",
            "papers/p has changed",
        ),
    ] {
        let before = place.get(file);
        place.change(file, from, to);
        let (status, _, said) = place.run(&["--check"]);
        assert!(status == 1 && said.contains(words), "{file}, {to}: {said}");
        place.put(file, &before);
    }
    assert_eq!(place.run(&["--check"]).0, 0);
}

#[test]
fn an_index_is_of_a_run_for_each_part() {
    let place = Place::new();
    let row = "{ metric = \"web.response.mean\", per = 1e6, label = \"web\" }";
    let rows = ["index", "index.one", "index.two"]
        .map(|metric| format!("{{ metric = \"{metric}\", label = \"{metric}\" }}"));
    place.change("papers/p/paper.toml", row, &rows.join(", "));
    // The claims are about another metric.
    place.change("papers/p/paper.toml", "judges = [\"P-*\"]\n", "");
    let part = |name: &str, cores: u32, weight: u32| {
        format!(
            "[[index]]\nname = \"{name}\"\nset = [\"host.cores={cores}\"]\nmetric = \"hog.work\"\nper = \
             0.2e9\nweight = {weight}\n"
        )
    };
    let parts = format!("seeds = 3\n{}{}", part("one", 1, 3), part("two", 2, 1));
    place.change("papers/p/paper.toml", "seeds = 3", &parts);
    let (status, shown, said) = place.run(&["p", "e1", "--json", "-q"]);
    assert_eq!(status, 0, "{said}");
    assert_eq!(
        place.kept().len(),
        24,
        "2 parts, 2 variants, 2 arms, 3 seeds"
    );
    let all: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let values = &all[0]["experiments"][0]["runs"][0]["values"];
    let of = |metric: &str| {
        let mut found = values.as_array().unwrap().iter();
        let found = found.find(|v| {
            v["metric"] == metric && v["arm"] == "gfifo" && v["variant"] == "vm.hog.count=4"
        });
        found.unwrap()["mean"].as_f64().unwrap()
    };
    // The hogs have what 400 requests a second of 300 us leave: 0.88 of a CPU, 1.88 of two.
    let (one, two) = (of("index.one"), of("index.two"));
    assert!((0.8..0.95).contains(&one) && (1.8..1.95).contains(&two));
    let mean = (one.powi(3) * two).powf(0.25);
    assert!((of("index") / mean - 1.0).abs() < 1e-3, "{values}");
}

#[test]
fn json_has_values_and_verdicts() {
    let place = Place::new();
    let (status, shown, said) = place.run(&["p", "e1", "--json", "-q"]);
    assert_eq!(status, 0, "{said}");
    let all: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let values = all[0]["experiments"][0]["runs"][0]["values"]
        .as_array()
        .unwrap();
    assert_eq!(values.len(), 4);
    assert!(
        values
            .iter()
            .all(|v| v["seeds"] == 3 && v["mean"].as_f64().unwrap() > 3e5)
    );
    assert_eq!(all[0]["claims"][0]["ours"]["verdict"], "reproduced");
    assert!(
        !place.path("docs").exists(),
        "one experiment writes no page"
    );
    let (_, shown, _) = place.run(&["--list", "--json"]);
    let all: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&all[0]["claims"], &all[0]["experiments"][0]),
        (&3.into(), &"E1".into())
    );
}

#[test]
fn quick_runs_judge_nothing_and_overwrite_nothing() {
    let place = Place::new();
    assert_eq!(place.run(&["p", "-q"]).0, 0);
    let whole = place.get("docs/papers/p.md");
    let (status, shown, said) = place.run(&["p", "--quick"]);
    assert_eq!(status, 0, "{said}");
    assert!(
        shown.contains("Nothing is judged from quick runs."),
        "{shown}"
    );
    assert!(shown.contains("--seeds 2"), "{shown}");
    assert!(
        place
            .get("berth-out/papers/p.md")
            .starts_with("<!-- Of quick runs")
    );
    let (status, _, said) = place.run(&["p", "--quick", "--out", "docs/papers"]);
    assert!(status == 2 && said.contains("of whole runs"), "{said}");
    assert_eq!(place.get("docs/papers/p.md"), whole);
}

#[test]
fn wrong_input_gets_the_nearest_name() {
    let place = Place::new();
    place.change("papers/p/paper.toml", "\"E1\"", "\"EX13\"");
    place.change("papers/p/page.md", "E1", "EX13");
    for (arguments, words) in [
        (&["pp"][..], "did you mean `p`?"),
        (&["p", "EX14"], "did you mean `EX13`?"),
        (&["p", "P-RISES"], "that is a claim"),
        (&["--papers", "none"], "--papers FOLDER"),
        (&["p", "--quick", "--check"], "cannot be used with"),
    ] {
        let (status, _, said) = place.run(arguments);
        assert!(
            status == 2 && said.contains(words),
            "{arguments:?}: {status}, {said}"
        );
    }
    place.change("papers/p/claims.toml", "says = \"a disk is faster\"\n", "");
    let (status, _, said) = place.run(&["p"]);
    assert!(
        status == 2 && said.contains("needs `says`") && said.contains("claims.toml:"),
        "{said}"
    );
    // Beside a scenario, too: it was as if there were no claims.
    let out = Command::new(env!("CARGO_BIN_EXE_berth"))
        .current_dir(place.dir.path())
        .args(["sim", "papers/p/e1.toml", "--seeds", "1"])
        .output()
        .unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(
        out.status.code() == Some(2) && said.contains("needs `says`"),
        "{said}"
    );
}

#[test]
fn after_ctrl_c_it_goes_on_and_other_versions_are_not_used() {
    let place = Place::new();
    // The second variant would take days.
    let vary = "vary = [\"vm.hog.count=1,4\"]";
    place.change(
        "papers/p/paper.toml",
        vary,
        "vary = [\"run.measure=20ms,3000000s\"]",
    );
    let child = place
        .command(&["p", "--jobs", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Seed by seed: those of the first variant with the first seed.
    while place.kept().len() < 2 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let kill = format!("kill -INT {}", child.id());
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(130), "{said}");
    assert!(said.contains("what was finished is kept"), "{said}");
    assert!(!place.path("docs").exists());

    place.change("papers/p/paper.toml", "20ms,3000000s", "20ms,25ms");
    let old = place.kept().into_iter().next().unwrap();
    let text = std::fs::read_to_string(&old).unwrap();
    std::fs::write(
        &old,
        text.replacen("\"version\":\"", "\"version\":\"old-", 1),
    )
    .unwrap();
    let (_, _, said) = place.run(&["p"]);
    assert!(said.contains("1 runs were kept before"), "{said}");
    assert!(
        said.contains("1 kept runs are of another version"),
        "{said}"
    );
}
