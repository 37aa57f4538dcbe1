// SPDX-License-Identifier: GPL-2.0-only
//! Who waited for whom on a real kernel, where the answer is known: one CPU, a thread that always wants it, and one
//! that sleeps and works.
use super::{NEVER, check, is_long, options};
use berth_lab::assets::Assets;
use berth_lab::run::{LabArm, run};
use std::path::PathBuf;

const TEXT: &str = r#"
title = "A sleeper and a hog"
[host]
cores = 1
[vm.web]
tasks = ["sleeper"]
[vm.hog]
class = "batch"
tasks = ["burn"]
[task.sleeper]
loop = ["sleep 5ms", "compute 2ms"]
[task.burn]
model = "busy"
[compare]
policies = ["linux"]
"#;

/// The hog waits exactly while something else has the CPU: all of the window that it did not run, cut by who did. Who
/// ran is the kernel's own count of CPU time, which the account does not look at.
pub fn known(assets: &Assets) -> Result<String, String> {
    let input = berth_scenario::Input {
        name: "waits".to_string(),
        shown: "waits.toml".to_string(),
        text: TEXT.to_string(),
        folder: None::<PathBuf>,
    };
    let loaded = berth_scenario::read(&input, &[]).map_err(|e| e.to_string())?;
    let mut scenario = loaded.scenario;
    scenario.run.warmup_ns = 200_000_000;
    scenario.run.measure_ns = 1_000_000_000;
    let mut policies = vec![("fifo", super::policy(Default::default()))];
    // All that is asked of it is asked of the other, too.
    if is_long() {
        policies.push(("linux", None));
    }
    let mut said = Vec::new();
    for (name, policy) in policies {
        let arm = LabArm {
            name: name.to_string(),
            scenario: scenario.clone(),
            policy,
        };
        let records =
            run(&[arm], &[1], &options(), assets, &|_| (), &NEVER).map_err(|e| e.to_string())?;
        let r = &records[0];
        let metric = |metric: &str| r.metrics.get(metric).copied().unwrap_or(f64::NAN);
        let waited = |waiter: &str, cause: Option<&str>| {
            let rows = r.waits.iter().filter(|w| w.waiter == waiter);
            let rows = rows.filter(|w| cause.is_none_or(|c| w.cause == c));
            rows.map(|w| w.ns).sum::<u64>() as f64 / 1e9
        };
        // A hundredth of the window: ticks and system calls are on somebody's CPU time.
        let near = |what: &str, got: f64, want: f64| {
            check(
                (got - want).abs() < 0.01,
                format!(
                    "{name}: {what} is {got:.4} s, expected {want:.4} s: {:?}",
                    r.waits
                ),
            )
        };
        near(
            "what the hog waited",
            waited("hog", None),
            1.0 - metric("hog.cpu"),
        )?;
        near(
            "what it waited for web",
            waited("hog", Some("web")),
            metric("web.cpu"),
        )?;
        for vm in ["hog", "web"] {
            // schedstat: waiting / (waiting + running).
            let share = metric(&format!("{vm}.run_delay.share"));
            let schedstat = metric(&format!("{vm}.cpu")) * share / (1.0 - share);
            near(&format!("{vm}'s run delay"), waited(vm, None), schedstat)?;
        }
        let for_hog = waited("web", Some("hog")) / waited("web", None);
        check(
            for_hog > 0.9 || waited("web", None) < 0.01,
            format!(
                "{name}: web waited for the hog {for_hog:.2} of its waiting: {:?}",
                r.waits
            ),
        )?;
        for group in ["web", "hog"] {
            let w = r.worst.iter().find(|w| w.group == group);
            let w = w.ok_or(format!("{name}: no worst wait of {group}"))?;
            let strip = w.strip.as_ref().ok_or("its strip is missing")?;
            check(
                (w.ns() as f64 / metric(&format!("{group}.run_delay.max")) - 1.0).abs() < 0.01
                    && strip.from_ns <= w.to_ns
                    && w.to_ns <= strip.to_ns
                    && !strip.ran.is_empty(),
                format!("{name}: worst wait of {group}: {w:?}"),
            )?;
        }
        let web = r.worst.iter().find(|w| w.group == "web");
        let behind = web.and_then(|w| w.behind.first());
        check(
            name != "fifo" || behind.is_some_and(|(thread, _)| thread == "hog/0"),
            format!("{name}: web's worst wait was behind {behind:?}"),
        )?;
        said.push(format!(
            "{name}: the hog waited {:.3} s for web, which ran {:.3} s",
            waited("hog", Some("web")),
            metric("web.cpu")
        ));
    }
    Ok(said.join("; "))
}
