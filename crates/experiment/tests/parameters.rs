// SPDX-License-Identifier: GPL-2.0-only
//! What is wrong with a policy's parameter or preset is shown where it stands, in the file or on the command line.
use berth_experiment::Request;
use berth_experiment::error::Failure;
use berth_experiment::simulator::{Running, simulated};
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

/// What is said of a scenario with these arms and changes.
fn refusal(arms: &str, set: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.toml");
    let head = "[vm.a]\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\"";
    std::fs::write(&file, format!("{head}\n{arms}\n")).unwrap();
    let request = Request {
        scenario: file.display().to_string(),
        set: set.iter().map(|s| s.to_string()).collect(),
        seed: Some(1),
        ..Request::default()
    };
    match simulated(&request, &Running::new(1, &NEVER)) {
        Err(Failure::Input(said)) => said.replace(&file.display().to_string(), "p.toml"),
        other => panic!("{arms} {set:?}: {other:?}"),
    }
}

#[test]
fn in_the_file() {
    for (arms, said) in [
        (
            "[arm.a]\npolicy = \"amp\"\nset = { \"policy.r\" = 101 }",
            "arm a: parameter r = `101`: must be from 0 to 100 percent\n  p.toml:7\n    7 | set = { \"policy.r\" = \
             101 }\n      |                      ^^^",
        ),
        (
            "[arm.a]\npolicy = \"amp\"\n[arm.a.set.policy]\nmode = \"fair\"\nr = -1",
            "must be from 0 to 100 percent\n  p.toml:9\n    9 | r = -1\n      |     ^^",
        ),
        (
            "[arm.a]\npolicy = \"amp\"\n[arm.a.set]\npolicy.mode = \"foo\"",
            "parameter mode = `foo`: must be one of vm, vcpu, fair\n  p.toml:8\n    8 | policy.mode = \"foo\"\n      \
             |               ^^^^^",
        ),
        (
            "[arm.a]\npolicy = \"amp\"\nset = { \"policy.rr\" = 1 }",
            "policy amp has no parameter `rr`; did you mean `r`?\n  p.toml:7\n    7 | set = { \"policy.rr\" = 1 }\n\
             \x20     |         ^^^^^^^^^^^\n  It has: ",
        ),
        (
            "[arm.a]\npolicy = \"credit\"\npreset = \"xen-9\"",
            "no preset `xen-9`",
        ),
        (
            "[arm.a]\npolicy = \"flms\"\npreset = \"groups+slice\"",
            "; did you mean `groups+slices`?",
        ),
        (
            "[arm.a]\npolicy = \"flms\"\nset = { \"policy.balancing\" = \"step\" }",
            "must be one of paper, steps, credit; did you mean `steps`?",
        ),
        (
            "[arm.a]\npolicy = \"credit\"\npreset = \"xen-9\"",
            "\n  p.toml:7\n    7 | preset = \"xen-9\"\n      | ^^^^^^",
        ),
        (
            "[arm.linux]\nset = { \"policy.slice_us\" = 1 }",
            "which takes no parameters",
        ),
        (
            "[arm.linux]\nset = { \"policy.slice_us\" = 1 }",
            "\n  p.toml:6\n    6 | set = { \"policy.slice_us\" = 1 }\n      |         ^^^",
        ),
        (
            "[vm.g]\ntasks = [\"t\"]\n[vm.g.guest]\npolicy = \"rr\"\n[vm.g.guest.set]\nslice_us = \"x\"\n[arm.gfifo]",
            "\n  p.toml:10\n   10 | slice_us = \"x\"\n      |            ^^^",
        ),
        (
            "[vm.g]\ntasks = [\"t\"]\n[vm.g.guest]\npolicy = \"rr\"\npreset = \"none\"\n[arm.gfifo]",
            "\n  p.toml:9\n    9 | preset = \"none\"",
        ),
    ] {
        let got = refusal(arms, &[]);
        assert!(got.contains(said), "{arms}\n--\n{got}\n--\n{said}");
    }
}

#[test]
fn on_the_command_line() {
    let arms = "[arm.a]\npolicy = \"amp\"\nset = { \"policy.r\" = 10 }\n[arm.gfifo]";
    for (set, said) in [
        (
            "policy.r=101",
            "arm a: parameter r = `101`: must be from 0 to 100 percent\n  command line\n      | --set \
             policy.r=101\n      |                ^^^",
        ),
        (
            "arm.a.set.policy.r=-1",
            "      | --set arm.a.set.policy.r=-1\n      |                          ^^",
        ),
        (
            "arm.a.set.policy.r=many",
            "      | --set arm.a.set.policy.r=many\n",
        ),
        (
            "arm.a.set.policy.mode=foo",
            "      | --set arm.a.set.policy.mode=foo\n",
        ),
        (
            "arm.a.preset=none",
            "      | --set arm.a.preset=none\n      |       ^^^^^^^^^^^^",
        ),
        (
            "arm.a.set.policy.rr=1",
            "      | --set arm.a.set.policy.rr=1\n      |       ^^^^^^^^^^^^^^^^^^^",
        ),
    ] {
        let got = refusal(arms, &[set]);
        assert!(got.contains(said), "{set}\n--\n{got}\n--\n{said}");
    }
}
