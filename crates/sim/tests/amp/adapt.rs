// SPDX-License-Identifier: GPL-2.0-only
//! Adaptive R (D14) on four fast and eight slow cores, against amp-fair and R = 0 on the same host: what it gains and
//! who pays for it.
use super::{amp, params};
use berth_scenario::{Input, read};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;

/// Work of VMs by their work in equal parts: under R = 0 and under adaptive R.
fn against_equal_parts(measured: &str, vms: &str) -> [BTreeMap<String, f64>; 2] {
    let text = format!(
        "title = \"amp\"\n[run]\nwarmup = \"15s\"\n{measured}\n[compare]\npolicies = [\"amp\"]\n\
         [host]\ncores = 12\ncost = \"none\"\npmu = true\nspeed = [\"4 x 237.5%\", \"8 x 100%\"]\n{vms}\n"
    );
    let input = Input {
        name: "amp".into(),
        shown: "amp".into(),
        text,
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
    let work = |set: &[(&str, &str)]| {
        let options = Options::default();
        let ran = run_one(&scenario.scenario, "amp", amp(), &params(set), 1, &options);
        ran.unwrap_or_else(|e| panic!("{e}")).metrics
    };
    let fair = work(&[("r", "100")]);
    [("r", "0"), ("adaptive", "1")].map(|set| {
        let parts = work(&[set]).into_iter().filter_map(|(name, value)| {
            let vm = name.strip_suffix(".work").filter(|vm| *vm != "host")?;
            Some((vm.to_string(), value / fair[&name]))
        });
        parts.collect()
    })
}

/// In equal parts three of four threads wait at barriers for the one that has no slot, so that fast time is worth
/// nothing to them: by the form they would lose 20 % without it and need R = 50 %. R is to be so low that nine tenths
/// of what R = 0 gains are gained, and nobody loses more than the limit.
#[test]
fn adaptive_r_sees_what_fast_time_is_worth_to_threads_that_wait_for_each_other() {
    let [zero, adaptive] = against_equal_parts(
        "measure = \"30s\"",
        "[vm.first]\nvcpus = 4\nguest = \"none\"\ntasks = [\"runs\"]\n\
         [vm.second]\nvcpus = 4\nguest = \"none\"\ntasks = [\"waits\"]\n\
         [vm.third]\nvcpus = 4\nguest = \"none\"\ntasks = [\"low\"]\n\
         [task.runs]\nmodel = \"busy\"\nstall = \"13.636%\"\n\
         [task.waits]\nmodel = \"barrier\"\ncompute = \"20ms\"\nrounds = 100000\nstall = \"25.974%\"\n\
         [task.low]\nmodel = \"busy\"\nstall = \"84.298%\"",
    );
    println!("{zero:?} {adaptive:?}");
    assert!(
        adaptive["first"] - 1.0 >= 0.9 * (zero["first"] - 1.0),
        "{adaptive:?}, R = 0: {zero:?}"
    );
    assert!(adaptive.values().all(|w| *w >= 0.9), "{adaptive:?}");
}

/// While VMs start the host works, too, and grants are small. That is not what VMs have later: the second would lose
/// 1 - 1 / 1.25 = 20 % by rank, and needs R = 50 %.
#[test]
fn adaptive_r_keeps_its_limit_after_a_start_in_which_the_host_works() {
    let [zero, adaptive] = against_equal_parts(
        "measure = \"20s\"",
        "tasks = [\"boot\"]\n\
         [vm.first]\nvcpus = 4\nguest = \"none\"\ntasks = [\"runs\"]\n\
         [vm.second]\nvcpus = 4\nguest = \"none\"\ntasks = [\"gains\"]\n\
         [task.runs]\nmodel = \"busy\"\nstall = \"13.636%\"\n\
         [task.gains]\nmodel = \"busy\"\nstall = \"42.424%\"\n\
         [task.boot]\nloop = [\"compute 50ms\", \"sleep 50ms\"]\nrounds = 20\nthreads = 24",
    );
    println!("{zero:?} {adaptive:?}");
    // 10 %, and half a percent for slots.
    assert!(
        zero["second"] < 0.85 && adaptive["second"] > 0.895,
        "{adaptive:?}, R = 0: {zero:?}"
    );
}
