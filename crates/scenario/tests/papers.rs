// SPDX-License-Identifier: GPL-2.0-only
//! The papers' experiments: every file reads without a note, and names claims that exist; every claim has its verdict.
use berth_scenario::model::*;
use berth_scenario::paper::{self, Paper};
use berth_scenario::{Input, Loaded, claims, read, show};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/flms")
}

fn load(name: &str) -> Loaded {
    let input = Input::from_file(&folder().join(name)).unwrap();
    read(&input, &[]).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_experiment_reads_and_survives_full() {
    let mut files = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if !path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("ef")
        {
            continue;
        }
        files += 1;
        let mut input = Input::from_file(&path).unwrap();
        let first = read(&input, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(first.warnings, Vec::<String>::new(), "{}", path.display());
        let reproduces = first.scenario.reproduces.as_ref().unwrap();
        assert_eq!(reproduces.paper, "flms");
        assert!(!reproduces.claims.is_empty());
        input.text = show::full(&first.facts);
        let second = read(&input, &[]).unwrap_or_else(|e| panic!("{}\n{e}", input.text));
        assert_eq!(first.scenario, second.scenario, "{}", path.display());
    }
    assert!(files >= 12, "{files}");
}

/// The example of the guide, as it stands there.
#[test]
fn ping_beside_compute_load() {
    let s = load("ef6-ping.toml").scenario;
    assert_eq!(s.host.nr_cpus(), 8);
    assert_eq!(
        s.host.cost.migrate_same_llc_ns, 20_000,
        "one cache per package"
    );
    assert_eq!(s.host.cost.migrate_same_package_ns, 20_000);
    assert_eq!(s.host.cost.migrate_other_node_ns, 200_000);
    assert_eq!(s.net.path, NetPath::DriverDomain);
    let dom0 = &s.vms[0];
    assert_eq!((dom0.role, dom0.count), (VmRole::Driver, 1));
    assert_eq!(s.vms[1].tasks, ["lookbusy", "echo"]);
    let arms: Vec<_> = s.arms.iter().map(|a| a.name.as_str()).collect();
    let all = [
        "credit",
        "io-bounding",
        "vturbo",
        "kvm",
        "flms",
        "flms-direct",
        // Besides the paper's: rivals, Linux and Berth, and FLMS part by part.
        "credit-short",
        "zeng",
        "vslicer",
        "ecredit",
        "credit2",
        "linux",
        "vmfair",
        "groups",
        "slices",
        "order",
        "steps",
    ];
    assert_eq!(arms, all);
    let arm = |name: &str| s.arms.iter().find(|a| a.name == name).unwrap();
    assert_eq!(arm("io-bounding").params["mode"], "vm");
    let turbo = s.for_arm(arm("vturbo"));
    assert!(turbo.vms.iter().all(|vm| vm.turbo_vcpus == 1));
    let kvm = s.for_arm(arm("kvm"));
    assert_eq!((kvm.net.path, kvm.vms[0].count), (NetPath::Vhost, 0));
    assert_eq!(arm("flms").preset.as_deref(), Some("paper"));
    let fit = s.calibrate.as_ref().unwrap();
    assert_eq!(
        (fit.arm.as_str(), fit.metric.as_str()),
        ("credit", "lsvm.response.mean")
    );
    assert_eq!(fit.target, 16_853_000.0);
    assert_eq!(fit.search["host.packages"], ["1", "2"]);
    assert_eq!(
        fit.search["task.lookbusy.period"],
        ["\"10ms\"", "\"100ms\"", "\"1s\""]
    );
}

/// Whoever a claim is about is an arm of each experiment that names it, unless it says what is missing.
#[test]
fn claims_are_about_arms_that_there_are() {
    let all = claims::read(&folder().join("claims.toml")).unwrap();
    let mut seconds = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if !name.starts_with("ef") {
            continue;
        }
        let scenario = load(&name).scenario;
        let patterns = &scenario.reproduces.as_ref().unwrap().claims;
        let judged = patterns.iter().flat_map(|p| claims::matching(&all, p));
        for claim in judged.filter(|c| c.needs.is_none()) {
            for arm in [&claim.arm, &claim.against, &claim.also]
                .into_iter()
                .flatten()
            {
                let found = scenario.arms.iter().any(|a| a.name == *arm);
                assert!(
                    found,
                    "{name} has no arm {arm}, which {} is about",
                    claim.id
                );
            }
            seconds += usize::from(claim.also.is_some());
        }
    }
    // Both readings of FLMS in EF5 to EF8 and EF11 to EF13.
    assert_eq!(seconds, 14);
}

fn papers() -> Vec<Paper> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers");
    let all = std::fs::read_dir(&folder).unwrap().count();
    let papers = paper::all(&folder).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(papers.len(), all, "a folder without paper.toml");
    papers
}

/// Who is judged has a verdict and a reason; who is not says what it waits for, or why nothing could say it. What no
/// run of the paper judges names the command that does.
#[test]
fn every_claim_of_every_paper_has_its_verdict() {
    for paper in papers() {
        let runs = paper.experiments.iter().flat_map(|e| &e.runs);
        let judged: Vec<&String> = runs.flat_map(|run| &run.judges).collect();
        for claim in &paper.claims {
            let (name, id) = (&paper.name, &claim.id);
            if claim.needs.is_some() {
                continue;
            }
            assert!(
                claim.verdict.is_some() && claim.why.is_some(),
                "{name}: {id} has no verdict"
            );
            let by_a_run = judged.contains(&id);
            let not_testable = claim.verdict == Some(claims::Verdict::NotTestable);
            let by_a_command = claim
                .why
                .as_ref()
                .is_some_and(|why| why.contains("`berth "));
            assert!(
                by_a_run || not_testable || by_a_command,
                "{name}: {id} has a verdict, and no run judges it, nor a command that its reason names"
            );
        }
    }
}

/// No scenario of a paper, and no experiment, is left out of its page.
#[test]
fn every_scenario_and_experiment_is_shown() {
    for paper in papers() {
        let mut files: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(&paper.folder).unwrap() {
            let file = entry.unwrap().file_name().to_string_lossy().into_owned();
            let other = [paper::FILE, "claims.toml"].contains(&file.as_str());
            files.extend((file.ends_with(".toml") && !other).then_some(file));
        }
        for file in files {
            let mut runs = paper.experiments.iter().flat_map(|e| &e.runs);
            assert!(
                runs.any(|run| run.scenario == file),
                "{}: {file} is run by nothing",
                paper.name
            );
        }
        if paper.experiments.is_empty() {
            continue;
        }
        let page = std::fs::read_to_string(paper.folder.join("page.md")).unwrap();
        for id in paper.experiments.iter().map(|e| &e.id) {
            let parts = [
                format!("{{{{experiment {id}}}}}"),
                format!("{{{{tables {id}}}}}"),
            ];
            assert!(
                parts.iter().any(|part| page.contains(part)),
                "{}: {id} is not shown",
                paper.name
            );
        }
    }
}

/// A paper of one experiment, with something in its place.
fn changed(from: &str, to: &str) -> Result<Paper, String> {
    const PAPER: &str = r#"
title = "T"
cites = "nobody, 2026"
about = "Nothing."
[[experiment]]
id = "E1"
title = "pings"
[experiment.figure]
form = "bars"
over = "rows"
rows = ["mean, ms"]
x = "x"
y = "ms"
[[experiment.run]]
name = "plain"
scenario = "e1.toml"
judges = ["P-*"]
head = "web"
rows = [{ metric = "web.response.mean", per = 1e6, label = "mean, ms" }]
"#;
    const SCENARIO: &str = r#"
[reproduces]
paper = "p"
experiment = "E1"
metric = "web.response.mean"
claims = ["P-1"]
[vm.web]
tasks = ["worker"]
[task.worker]
loop = ["receive users", "compute 300us", "reply"]
[client.users]
to = "web"
sends = "poisson(400/s)"
[compare]
policies = ["gfifo", "vmfair"]
"#;
    assert!(from.is_empty() || PAPER.contains(from), "{from}");
    let papers = tempfile::tempdir().unwrap();
    let folder = papers.path().join("p");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("paper.toml"), PAPER.replacen(from, to, 1)).unwrap();
    std::fs::write(folder.join("e1.toml"), SCENARIO).unwrap();
    let claim = "[[claim]]\nid = \"P-1\"\nsays = \"x\"\nwhere = \"1\"\narm = \"gfifo\"\n";
    std::fs::write(folder.join("claims.toml"), claim).unwrap();
    paper::named(papers.path(), "p").map_err(|e| e.to_string())
}

#[test]
fn a_paper_reads() {
    let paper = changed("", "").unwrap();
    let run = &paper.experiments[0].runs[0];
    assert_eq!(run.arms, ["gfifo", "vmfair"], "those of the scenario");
    assert_eq!(run.judges, ["P-1"]);
    assert_eq!((run.rows[0].per, run.fit, run.chosen), (1e6, true, false));
    assert_eq!(
        paper.experiments[0].figure.as_ref().unwrap().runs,
        ["plain"]
    );
    assert!(paper.experiment("e1").is_some() && paper.experiment("E2").is_none());
}

#[test]
fn wrong_papers_are_told_with_line_and_nearest_name() {
    for (from, to, words) in [
        ("title = \"T\"", "titel = \"T\"", "did you mean `title`?"),
        ("title = \"T\"", "", "the paper needs `title`"),
        ("id = \"E1\"", "", "[experiment] needs `id`"),
        ("\"E1\"", "\"E 1\"", "cannot name an experiment"),
        ("\"bars\"", "\"bar\"", "did you mean `bars`?"),
        (
            "rows = [\"mean, ms\"]",
            "rows = [\"meen, ms\"]",
            "did you mean `mean, ms`?",
        ),
        ("e1.toml", "e2.toml", "cannot read the scenario"),
        ("\"P-*\"", "\"P-2\"", "did you mean `P-1`?"),
        (
            "web.response.mean",
            "wed.response.mean",
            "did you mean `web`?",
        ),
        (
            "web.response.mean",
            "web.respons.mean",
            "did you mean `response`?",
        ),
        (
            "judges",
            "arms = [\"gfifa\"]\njudges",
            "did you mean `gfifo`?",
        ),
        ("1e6", "0", "should be above 0"),
        ("web.response.mean", "index", "[[index]] has no `index`"),
        (
            "title = \"T\"",
            "title = \"T\"\nseeds = 3\ncheck_seeds = 4",
            "check_seeds",
        ),
        (
            "judges",
            "vary = [\"vm.web.count\"]\njudges",
            "vm.web.count",
        ),
    ] {
        let said = changed(from, to).map(|_| ()).unwrap_err();
        assert!(said.contains(words), "{to}: {said}");
        assert!(
            said.contains("paper.toml:") || words == "vm.web.count",
            "{to}: {said}"
        );
    }
}

#[test]
fn an_unknown_paper_gets_the_nearest_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers");
    let said = paper::named(&folder, "flsm").unwrap_err().to_string();
    assert!(
        said.contains("did you mean `flms`?") && said.contains("Papers: affinity"),
        "{said}"
    );
    let said = paper::all(&folder.join("none")).unwrap_err().to_string();
    assert!(said.contains("--papers FOLDER"), "{said}");
}
