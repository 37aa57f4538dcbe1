// SPDX-License-Identifier: GPL-2.0-only
//! Configurations that are right, and what is said of those that are not.
use super::access::usual;
use super::*;
use crate::pins::{Method, Pinning};
use berth_affinity::{Ask, Policy};
use berth_optimiser::Service;
use proptest::prelude::*;

fn parsed(text: &str) -> Result<Config, String> {
    parse(Path::new("c.toml"), text).map_err(|e| e.to_string())
}

#[test]
fn ways_and_promises() {
    let text = "mode = \"act\"\nbackend = \"cgroup\"\n[[promise]]\nname = \"web*\"\nservice = \"target\"\n\
                guarantee = 0.95\nlimit = 2\n[[promise]]\nname = \"*\"\nservice = \"best-effort\"\n";
    let config = parsed(text).unwrap();
    let choice = config.choice.unwrap();
    assert_eq!(
        (choice.policy.as_str(), choice.backend),
        ("optimiser", Way::Cgroup)
    );
    let web = config.rules.promise("web1", 300);
    assert_eq!(
        (web.service, web.guarantee, web.limit, web.weight),
        (Service::Target, 0.95, Some(2.0), 300)
    );
    assert_eq!(config.rules.promise("db", 100).service, Service::BestEffort);
    let by_name = parsed("mode = \"act\"\npolicy = \"optimiser\"\n")
        .unwrap()
        .choice
        .unwrap();
    assert_eq!(by_name.backend, Way::Cgroup);
    let auto = parsed("mode = \"act\"\npolicy = \"vmfair\"\nbackend = \"auto\"\n").unwrap();
    assert_eq!(auto.choice.unwrap().backend, Way::Auto);
    for (text, place, says) in [
        ("backend = \"x\"", "c.toml:1: backend", "\"auto\""),
        ("backend = \"auto\"", "c.toml:1: backend", "of which policy"),
        (
            "policy = \"vmfair\"\nbackend = \"cgroup\"",
            "c.toml:1: policy",
            "only the optimiser",
        ),
        (
            "policy = \"optimiser\"\nbackend = \"scx\"",
            "c.toml:1: policy",
            "acts by cgroups",
        ),
        ("promise = 1", "c.toml:1: promise", "[[promise]]"),
        (
            "[[promise]]\nservice = \"target\"",
            "c.toml:1: promise.name",
            "which VMs",
        ),
        (
            "[[promise]]\nname = \"a\"\nservice = \"x\"",
            "c.toml:3: promise.service",
            "best-effort",
        ),
        (
            "[[promise]]\nname = \"a\"\nguarantee = 2\nlimit = 1",
            "c.toml:1: promise",
            "1 below the guarantee of 2",
        ),
        (
            "[[promise]]\nname = \"a\"\nguarantee = -1",
            "c.toml:1: promise",
            "-1",
        ),
        (
            "[[promise]]\nname = \"a\"\nguarantee = nan",
            "c.toml:1: promise",
            "NaN",
        ),
        (
            "[[promise]]\nname = \"a\"\nguarantee = \"1\"",
            "c.toml:3: guarantee",
            "a number of CPUs",
        ),
        (
            "[[promise]]\nname = \"a\"\nweight = 3",
            "c.toml:3: promise.weight",
            "no such key",
        ),
    ] {
        let error = parsed(text).unwrap_err();
        assert!(
            error.starts_with(place) && error.contains(says),
            "{text}: {error}"
        );
    }
}

#[test]
fn pins_by_rule() {
    let config = parsed(
        "mode = \"act\"\n[[pin]]\nname = \"web*\"\npolicy = \"full\"\nmethod = \"taskset\"\ncpu = 3\n\
         isolated = true\n[[pin]]\nname = \"db\"\nsmt = true\n",
    )
    .unwrap();
    assert_eq!((config.mode, &config.choice), (Mode::Act, &None));
    let rule = |name: &str, ask: Ask, method| PinRule {
        name: name.into(),
        pinning: Pinning { ask, method },
    };
    let full = Ask {
        policy: Policy::Full,
        cpu: Some(3),
        isolated: true,
        smt: false,
    };
    let auto = Ask {
        smt: true,
        ..Ask::default()
    };
    assert_eq!(
        config.pins,
        [
            rule("web*", full, Method::Taskset),
            rule("db", auto, Method::Auto)
        ]
    );
    // What only the machine knows.
    let file = Path::new("c.toml");
    let cpus = |list: &str| {
        let checked = config.check_cpus(file, Some(&list.parse().unwrap()));
        checked.map_err(|e| e.to_string())
    };
    assert_eq!(cpus("0-3"), Ok(()));
    assert_eq!(config.check_cpus(file, None), Ok(()));
    assert_eq!(
        cpus("0-2,4"),
        Err("c.toml:6: pin.cpu: there is no CPU 3 on this machine; it has 0-2,4".into())
    );
}

#[test]
fn pins_that_cannot_be_are_said_with_line_and_key() {
    for (text, said) in [
        ("pin = 1", "c.toml:1: pin: [[pin]] tables"),
        ("pin = []", "c.toml:1: pin: [[pin]] tables"),
        ("[pin]\nname = \"a\"", "c.toml:1: pin: [[pin]] tables"),
        ("\n[[pin]]\ncpu = 1", "c.toml:2: pin.name: missing"),
        ("[[pin]]\nname = \"\"", "c.toml:2: pin.name: it is empty"),
        (
            "[[pin]]\nname = \" \\t\"",
            "c.toml:2: pin.name: it is empty",
        ),
        ("[[pin]]\nname = 7", "c.toml:2: name: a string, not integer"),
        (
            "[[pin]]\nname = \"a\"\npolicy = \"fast\"",
            "c.toml:3: pin.policy: one of none, paper, full, l2, auto",
        ),
        (
            "[[pin]]\nname = \"a\"\nmethod = \"magic\"",
            "c.toml:3: pin.method: one of taskset, cgroup, auto",
        ),
        (
            "[[pin]]\nname = \"a\"\ncpu = -1",
            "c.toml:3: pin.cpu: the number of a CPU",
        ),
        (
            "[[pin]]\nname = \"a\"\ncpu = 4294967296",
            "c.toml:3: pin.cpu: the number of a CPU",
        ),
        (
            "[[pin]]\nname = \"a\"\ncpu = 1.0",
            "c.toml:3: cpu: the number of a CPU, not float",
        ),
        (
            "[[pin]]\nname = \"a\"\ncpu = \"1-3\"",
            "c.toml:3: cpu: the number of a CPU, not string",
        ),
        (
            "[[pin]]\nname = \"a\"\nsmt = 1",
            "c.toml:3: smt: true or false, not integer",
        ),
        (
            "[[pin]]\nname = \"a\"\ncpus = 1",
            "c.toml:3: pin.cpus: there is no such key",
        ),
        (
            "mode = \"act\"\npreset = \"x\"\n[[pin]]\nname = \"a\"",
            "c.toml:2: preset: of which policy?",
        ),
    ] {
        let error = parsed(text).unwrap_err();
        assert!(error.starts_with(said), "{text:?}: {error}");
    }
    // A CPU that no machine has is a number all the same.
    let far = parsed("[[pin]]\nname = \"a\"\ncpu = 4294967295").unwrap();
    let checked = far.check_cpus(Path::new("c.toml"), Some(&"0-7".parse().unwrap()));
    assert!(checked.is_err());
}

#[test]
fn all_keys() {
    let text = "mode = \"act\"\npolicy = \"vmfair\"\npreset = \"x\"\nonly = [\"web*\", \"db\"]\nstall_ms = \
     0\npartial = true\n\
                [set]\nslice_us = 2000\npreempt = false\n[[vm]]\nname = \"db\"\nclass = \"mixed\"\nio_vcpus = 2\n";
    let config = parsed(text).unwrap();
    assert_eq!(config.mode, Mode::Act);
    let choice = config.choice.unwrap();
    assert_eq!(
        (choice.policy.as_str(), choice.preset.as_deref()),
        ("vmfair", Some("x"))
    );
    assert_eq!(choice.set["slice_us"], "2000");
    assert_eq!(choice.set["preempt"], "false");
    assert!(choice.partial);
    assert_eq!(config.stall, None);
    assert_eq!(config.rules.only, ["web*", "db"]);
    assert_eq!(
        (
            config.rules.vms[0].io_vcpus,
            config.rules.vms[0].class.as_deref()
        ),
        (2, Some("mixed"))
    );
    assert_eq!(parsed("").unwrap(), Config::default());
}

#[test]
fn roots_agent_lets_in_the_group_that_is_made_for_it() {
    let there = |name: &str| (name == "berth").then_some(77);
    assert_eq!(usual(true, &there).group, Some(77));
    assert_eq!(usual(true, &|_| None).group, None);
    assert_eq!(usual(false, &there).group, None);
    let named = parsed("socket_group = \"root\"\n").unwrap().access;
    assert_eq!((named.group, named.group_if_possible), (Some(0), false));
}

#[test]
fn scores_of_vms() {
    let text = "[[vm]]\nname = \"hpc*\"\nscore = 2\n[[vm]]\nname = \"db\"\nscore = [1.8, 1.25]\n\
                [[vm]]\nname = \"web\"\n";
    let rules = parsed(text).unwrap().rules;
    assert_eq!(rules.score_milli("hpc-3", 5), Some(2000));
    assert_eq!(rules.score_milli("db", 1), Some(1250));
    assert_eq!(rules.score_milli("web", 0), None);
}

#[test]
fn what_is_wrong_is_said_with_line_and_key() {
    for (text, said) in [
        ("mode = \"act\"\n", "c.toml:1: policy: missing"),
        (
            "\nmode = \"on\"\n",
            "c.toml:2: mode: \"observe\" or \"act\"",
        ),
        ("mode = 1", "c.toml:1: mode: a string, not integer"),
        ("\n\nmodes = 1", "c.toml:3: modes: there is no such key"),
        (
            "only = \"web\"",
            "c.toml:1: only: a list of names, not string",
        ),
        ("only = []", "c.toml:1: only: names no VM"),
        ("only = [1]", "c.toml:1: only: a list of names, such as"),
        ("stall_ms = -1", "c.toml:1: stall_ms: 0 to 30000"),
        ("policy = \" \"", "c.toml:1: policy: it has no name"),
        (
            "\n[set]\nslice_us = 1",
            "c.toml:2: set: of which policy? Name it",
        ),
        ("preset = \"x\"", "c.toml:1: preset: of which policy?"),
        ("partial = true", "c.toml:1: partial: of which policy?"),
        ("[set]\n\na = [1]", "c.toml:3: set.a: a number or a string"),
        ("set = 1", "c.toml:1: set: a table"),
        ("vm = 1", "c.toml:1: vm: [[vm]] tables"),
        (
            "mode = \"observe\"\n[[vm]]\nclass = \"batch\"",
            "c.toml:2: vm.name: missing",
        ),
        (
            "[[vm]]\nname = \"a\"\nclass = \"fast\"",
            "c.toml:3: vm.class: \"latency\"",
        ),
        (
            "[[vm]]\nname = \"a\"\nio_vcpus = -1",
            "c.toml:3: vm.io_vcpus: a number",
        ),
        (
            "[[vm]]\nname = \"a\"\nscore = 0.5",
            "c.toml:3: vm.score: 0.5 is not 1 to 100",
        ),
        (
            "[[vm]]\nname = \"a\"\nscore = [1, \"x\"]",
            "c.toml:3: score: a number or a list of them",
        ),
        (
            "[[vm]]\nname = \"a\"\nscore = []",
            "c.toml:3: vm.score: no score",
        ),
        (
            "[[vm]]\nname = \"a\"\nweight = 1",
            "c.toml:3: vm.weight: there is no such key",
        ),
        ("a = \n", "c.toml:1: "),
    ] {
        let error = parsed(text).unwrap_err();
        assert!(error.starts_with(said), "{text:?}: {error}");
    }
}

#[test]
fn a_file_that_cannot_be_read_has_no_line_and_one_that_is_no_text_has() {
    let none = read(Path::new("/no/such.toml")).unwrap_err().to_string();
    assert!(none.starts_with("/no/such.toml: cannot be read"), "{none}");
    let folder = tempfile::tempdir().unwrap();
    let none = read(folder.path()).unwrap_err();
    assert_eq!(none.line, None, "a folder: {none}");
    let file = folder.path().join("c.toml");
    std::fs::write(&file, b"mode = \"act\"\n\npolicy = \"\xff\"\n").unwrap();
    let said = read(&file).unwrap_err().to_string();
    assert!(said.ends_with("c.toml:3: is not UTF-8 text"), "{said}");
    for (text, line) in [
        ("mode = \"act\"\nonly = web\n", 2),
        ("mode = \"act\"\nonly = [\"web\"", 2),
        ("mode = \"act\"\n\nmode = \"act\"\n", 3),
        ("[set]\na = 1\n\n[set]\nb = 1\n", 4),
        ("mode = \"act\npolicy = 1\n", 1),
        ("[[vm]\n", 1),
        ("\n\n= 3\n", 3),
        ("mode = \"observe\"\npolicy = \"\"\"\nx\n", 3),
    ] {
        let error = parse(&file, text).unwrap_err();
        assert_eq!(error.line, Some(line), "{text:?}: {error}");
    }
}

#[test]
fn what_only_the_policy_can_judge_has_a_line_too() {
    let works = |c: &Choice| match c {
        c if c.policy != "vmfair" => Err("no such policy".to_string()),
        c if c.preset.as_deref() == Some("x") => Err("no such preset".to_string()),
        c if c.set.contains_key("slice") => Err("no such parameter".to_string()),
        _ => Ok(()),
    };
    let said = |text: &str| {
        let config = parse(Path::new("c.toml"), text).unwrap();
        let checked = config.check(Path::new("c.toml"), &works);
        checked.map_err(|e| e.to_string())
    };
    let wrong = |text: &str| said(text).unwrap_err();
    assert_eq!(
        wrong("\npolicy = \"vmfare\"\n"),
        "c.toml:2: policy: no such policy"
    );
    assert_eq!(
        wrong("policy = \"vmfair\"\npreset = \"x\"\n"),
        "c.toml:2: preset: no such preset"
    );
    assert_eq!(
        wrong("policy = \"vmfair\"\n[set]\na = 1\nslice = 2\n"),
        "c.toml:4: set.slice: no such parameter"
    );
    assert_eq!(said("policy = \"vmfair\"\n[set]\na = 1\n"), Ok(()));
    assert_eq!(said(""), Ok(()));
}

/// A line such as there may be, or none such.
fn line() -> impl Strategy<Value = String> {
    const KEYS: &str = "policy|preset|set|backend|observe|partial|only|stall_ms|act|name|class|io_vcpus|cpu|method|smt|\
        isolated|score|service|guarantee|limit|socket_mode|socket_group|x";
    const VALUES: &str =
        "[-0-9.e]{0,9}|\"[a-z0-9*%-]{0,7}\"|\\[[0-9\", a]{0,7}\\]|\\{.{0,5}\\}|true|1e999|.{0,5}";
    prop_oneof![
        "\\[{1,2}(vm|pin|promise|set|x)\\]{1,2}",
        (KEYS, VALUES).prop_map(|(key, value)| format!("{key} = {value}")),
        ".{0,12}",
    ]
}

proptest! {
    /// Whatever stands there: it is taken, or it is said what is wrong first; if in a line, in one that there is.
    #[test]
    fn whatever_stands_there_is_taken_or_refused(lines in proptest::collection::vec(line(), 0..12)) {
        let text = lines.join("\n");
        if let Err(e) = parse(Path::new("c.toml"), &text) {
            prop_assert!(!e.what.is_empty());
            prop_assert!(e.line.is_none_or(|l| (1..=lines.len().max(1)).contains(&l)), "{e}");
        }
    }
}
