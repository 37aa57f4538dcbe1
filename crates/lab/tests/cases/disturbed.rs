// SPDX-License-Identifier: GPL-2.0-only
//! A daemon whose policy acts, and what others do to the host meanwhile: a VM gets another weight, a CPU goes and
//! comes, root ends the policy by the kernel's own key; the same of a weight that the optimiser has set. Part of the
//! boot of `verbs`, where the VMs `web` and `hog` are.
use super::agent::{state, until};
use super::check;
use super::optimised::vms;
use super::verbs::{berth, log, ran, runs, says, status, vm};
use berth_agent::control::{self, Request};
use berth_scx::State;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The policy that the kernel ends when a CPU goes or comes: those that are shipped and know VMs go on.
pub(super) const KNOWN: &str = "/run/known.bpf.o";
/// It looks each 200 ms: what has changed is known then.
const NOTICED: Duration = Duration::from_millis(250);
/// It asks each 50 ms whether the policy has ended. Then it loads it again, which takes this machine most of the time,
/// and VMs' threads have to run under it.
const AGAIN: Duration = Duration::from_millis(2500);
/// The weight that somebody else sets.
const THEIRS: &str = "777";
/// So long it is looked whether a VM is served.
const SERVED: Duration = Duration::from_millis(500);

/// `vmfair` acts, and `web` is the only VM with a class. In the end another policy does.
pub(super) fn disturbed() -> Result<String, String> {
    let weighed = weighed()?;
    goes_on_with_other_cpus()?;
    does_not_begin()?;
    ended_by_root()?;
    let again = loaded_again()?;
    Ok(format!(
        "a weight known after {:.0} ms; a CPU went and came: loaded again within {:.0} ms; ended by root",
        weighed.as_secs_f64() * 1e3,
        again.as_secs_f64() * 1e3
    ))
}

/// Asks until it is so; how long that took. `berth status` would want more of the CPUs than what is asked about.
fn soon(
    what: &str,
    within: Duration,
    began: Instant,
    holds: &dyn Fn(&Value) -> Result<bool, String>,
) -> Result<Duration, String> {
    loop {
        let answer = control::ask(Path::new(control::SOCKET), &Request::Status, &[]);
        let answer = answer.map_err(|e| e.to_string())?;
        let now = serde_json::to_value(answer.status).map_err(|e| e.to_string())?;
        let took = began.elapsed();
        if holds(&now)? {
            check(took <= within, format!("{what}: only after {took:?}"))?;
            return Ok(took);
        }
        check(
            took <= within + Duration::from_secs(5),
            format!("{what}: never: {now}"),
        )?;
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The file with the weight of `hog`.
fn weight_file() -> Result<String, String> {
    let vms = vms()?;
    let hog = vms.iter().find(|vm| vm.name == "hog").ok_or("no hog")?;
    Ok(format!("/sys/fs/cgroup{}/cpu.weight", hog.cgroup))
}

/// Somebody else sets the weight of a VM: the agent soon knows, each time.
fn weighed() -> Result<Duration, String> {
    let file = weight_file()?;
    check(vm(&status()?, "hog")?["weight"] == 100, "as it was made")?;
    let mut worst = Duration::ZERO;
    for weight in [300, 100] {
        let began = Instant::now();
        fs::write(&file, weight.to_string()).map_err(|e| format!("{file}: {e}"))?;
        let known = |now: &Value| Ok(vm(now, "hog")?["weight"] == weight);
        worst = worst.max(soon(&format!("weight {weight}"), NOTICED, began, &known)?);
    }
    Ok(worst)
}

fn online(is: &str) -> Result<(), String> {
    let file = "/sys/devices/system/cpu/cpu1/online";
    fs::write(file, is).map_err(|e| format!("{file}: {e}"))
}

/// `web` computes for 20 us each 20.02 ms; it gets a quarter of that at least.
fn served() -> Result<(), String> {
    let now = || ran("web")?.ok_or_else(|| "web is gone".to_string());
    let (before, began) = (now()?, Instant::now());
    std::thread::sleep(SERVED);
    let least = began.elapsed().as_nanos() as f64 * (20.0 / 20_020.0) / 4.0;
    let ran_ns = (now()? - before) as f64;
    check(
        ran_ns >= least,
        format!("the latency VM ran {ran_ns} ns, of {least} at least"),
    )
}

/// `vmfair` itself knows what to do when a CPU goes or comes.
fn goes_on_with_other_cpus() -> Result<(), String> {
    let before = status()?["policy"]["seconds"].as_f64();
    for cpu in ["0", "1"] {
        online(cpu)?;
        served()?;
        runs("vmfair")?;
    }
    let now = status()?;
    check(
        now["trouble"].is_null() && now["policy"]["seconds"].as_f64() > before,
        format!("it is not the one that was loaded: {now}"),
    )
}

/// The kernel ends a policy that does not, and the daemon loads it again: it knows the VMs again.
fn loaded_again() -> Result<Duration, String> {
    let class = ["--class", "web*=latency", "--class", "hog=batch"];
    says(0, &[&["start", KNOWN][..], &class].concat(), &["known"])?;
    let knows = |now: &Value| {
        let counted = |of: &str| now["policy"]["counters"][of].as_u64();
        counted("latency") > Some(0) && counted("known") > counted("latency")
    };
    let (said, mut worst) = ("loaded again", Duration::ZERO);
    for (cycle, cpu) in ["0", "1"].iter().enumerate() {
        until("it knows the VMs", &mut || Ok(knows(&status()?)))?;
        let began = Instant::now();
        online(cpu)?;
        // Its counters are those since it was loaded.
        let again = |now: &Value| {
            let seconds = now["policy"]["seconds"].as_f64();
            let anew = seconds.is_some_and(|s| s < began.elapsed().as_secs_f64());
            Ok(anew && knows(now))
        };
        worst = worst.max(soon("it is loaded again", AGAIN, began, &again)?);
        runs("known")?;
        let times = log().matches(said).count();
        check(times == cycle + 1, format!("said {times} times: {}", log()))?;
        served()?;
    }
    says(0, &["status"], &["known", "web", "latency", "hog"])?;
    Ok(worst)
}

/// Root ends any scheduler by the kernel's own key: the daemon goes on, says so, and a start puts an end to it.
fn ended_by_root() -> Result<(), String> {
    fs::write("/proc/sysrq-trigger", "S").map_err(|e| format!("sysrq: {e}"))?;
    let troubled = |now: &Value| Ok(!now["trouble"].is_null());
    soon("it is in trouble", NOTICED, Instant::now(), &troubled)?;
    let why = "the kernel ended policy vmfair: ";
    says(
        1,
        &["status"],
        &["no policy is loaded", &format!("trouble: {why}"), "hog"],
    )?;
    check(log().contains(why), format!("nothing of {why}: {}", log()))?;
    check(state()?.0 == State::Disabled, "the kernel's own scheduler")?;
    served()?;
    berth(0, &["start", "vmfair"])?;
    runs("vmfair")?;
    let now = status()?;
    check(
        now["trouble"].is_null() && vm(&now, "web")?["class"] == "latency",
        format!("after a start: {now}"),
    )?;
    says(0, &["status"], &["policy vmfair"])
}

/// A policy that passes the verifier and does not begin: the one that had to end for it acts again, by its own rules.
fn does_not_begin() -> Result<(), String> {
    let failing = ["start", KNOWN, "--set", "fail_init=1"];
    let class = ["--class", "hog=latency"];
    says(3, &[&failing[..], &class].concat(), &["did not start"])?;
    runs("vmfair")?;
    let now = status()?;
    check(
        now["policy"]["name"] == "vmfair" && now["trouble"].is_null(),
        format!("not the one that acted: {now}"),
    )?;
    check(
        vm(&now, "web")?["class"] == "latency" && vm(&now, "hog")?["class"] == "none",
        format!("not by its rules: {now}"),
    )?;
    says(0, &["status"], &["policy vmfair", "web", "latency", "hog"])?;
    served()
}

/// Somebody else sets a weight that the optimiser has set: it says so, leaves it alone from then on, and so does the
/// undoing. So much is reserved that little work is more than there is.
pub(super) fn left_to_others() -> Result<String, String> {
    let file = weight_file()?;
    let weight = || -> Result<String, String> {
        let text = fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
        Ok(text.trim().to_string())
    };
    let write = |text: &str| fs::write(&file, text).map_err(|e| format!("{file}: {e}"));
    let stays = |when: &str| {
        let now = weight()?;
        check(now == THEIRS, format!("{when} it is {now}, not {THEIRS}"))
    };
    let before = weight()?;
    let optimiser = ["start", "optimiser", "--guarantee", "hog=0.02"];
    let settings = ["--set", "by=weights", "--set", "reserve=0.98"];
    berth(0, &[&optimiser[..], &settings].concat())?;
    until("its weight is set", &mut || Ok(weight()? != before))?;
    let ours = weight()?;
    write(THEIRS)?;
    let began = Instant::now();
    let said = format!("was set to {THEIRS} by somebody else, and is left alone");
    until("it is said", &mut || {
        stays("before it is said")?;
        let now = status()?;
        let remarks = now["policy"]["warnings"].as_array();
        let said = |r: &Value| r.as_str().is_some_and(|r| r.contains(&said));
        Ok(remarks.is_some_and(|r| r.iter().any(said)))
    })?;
    let took = began.elapsed();
    let decisions = || {
        let now = status()?;
        let made = now["policy"]["counters"]["decisions"].as_u64();
        made.ok_or_else(|| format!("no decisions: {now}"))
    };
    for _ in 0..3 {
        let made = decisions()?;
        until("it decides again", &mut || {
            stays("after it is said")?;
            Ok(decisions()? > made)
        })?;
    }
    says(0, &["stop"], &["optimiser is unloaded"])?;
    stays("after the end")?;
    write(&before)?;
    Ok(format!(
        "{THEIRS} of somebody else's in place of {ours}, noticed after {:.1} s, stays",
        took.as_secs_f64()
    ))
}
