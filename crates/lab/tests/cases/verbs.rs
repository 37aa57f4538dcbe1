// SPDX-License-Identifier: GPL-2.0-only
//! The command itself beside real micro-VMs, as an operator meets it: `berth start`, `status`, `stop`, `daemon`, and
//! `berth host` with a policy. One boot. The command is `BERTH`, or the one built beside this test.
use super::agent::{load, state, until};
use super::disturbed::{KNOWN, disturbed, left_to_others};
use super::optimised::vms;
use super::path::cpu_ns;
use super::{check, coarse, host, read_scenario, with_micro_vms};
use berth_lab::assets::Assets;
use berth_lab::run::LabOptions;
use berth_policy::compile::{CompileOptions, compile};
use berth_scenario::model::Scenario;
use berth_scx::{Loaded, State};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Where the command is in the VM.
const BERTH: &str = "/bin/berth";
const CONFIG: &str = "/run/daemon.toml";
const SAID: &str = "/run/daemon.log";
/// Longer than what is beside it, of the VM's time. Mostly idle: that passes quickly.
const SECONDS: u64 = 120;
const VMS: &str = r#"
[vm.web]
class = "latency"
tasks = ["tick"]
[vm.hog]
vcpus = 2
tasks = ["burn"]
[task.tick]
loop = ["sleep 20ms", "compute 20us"]
[task.burn]
loop = ["compute 30ms", "sleep 470ms"]
[compare]
policies = ["linux"]
"#;
const SHORT: &str = "title = \"Short\"\n[host]\ncores = 2\n[vm.web]\nclass = \"latency\"\ntasks = [\"tick\"]\n\
    [vm.hog]\nvcpus = 2\ntasks = [\"burn\"]\n[task.tick]\nloop = [\"sleep 5ms\", \"compute 20us\"]\n\
    [task.burn]\nmodel = \"busy\"\n[run]\nwarmup = \"200ms\"\nmeasure = \"1s\"\nseeds = 1\n\
    [compare]\npolicies = [\"linux\", \"vmfair\"]\n";

/// The command of this build.
fn command() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let beside = own.parent().and_then(Path::parent).map(|f| f.join("berth"));
    let named = std::env::var_os("BERTH").map(PathBuf::from);
    named
        .or(beside)
        .filter(|file| file.is_file())
        .ok_or_else(|| "no `berth` beside this test: cargo build -p berth-cli, or set BERTH".into())
}

pub fn verbs(assets: &Assets) -> Result<String, String> {
    let mut scenario = read_scenario("cores = 2", VMS)?;
    scenario.run.warmup_ns = 0;
    scenario.run.measure_ns = SECONDS * 1_000_000_000;
    let with_command = LabOptions {
        beside: vec![(BERTH.to_string(), command()?)],
        ..coarse()
    };
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies/known.bpf.c");
    let known = compile(&known, &CompileOptions::default()).map_err(|e| e.to_string())?;
    let input = json!({ "scenario": scenario, "known": known });
    let result = with_micro_vms(assets, "verbs", host(1, 1, 1, 2, 1), input, with_command)?;
    Ok(result.as_str().unwrap_or("").to_string())
}

/// Runs the command, expects this status; gives all that it said.
pub(super) fn berth(status: i32, arguments: &[&str]) -> Result<String, String> {
    berth_ends(&[status], arguments)
}

/// The same with one of several statuses.
fn berth_ends(statuses: &[i32], arguments: &[&str]) -> Result<String, String> {
    let out = Command::new(BERTH)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{BERTH}: {e}"))?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    let shown = arguments.join(" ");
    check(
        out.status.code().is_some_and(|s| statuses.contains(&s)),
        format!("berth {shown}: {}, not {statuses:?}: {said}", out.status),
    )?;
    Ok(said)
}

pub(super) fn says(status: i32, arguments: &[&str], words: &[&str]) -> Result<(), String> {
    let said = berth(status, arguments)?;
    let missing = words.iter().find(|w| !said.contains(**w));
    match missing {
        Some(word) => Err(format!(
            "berth {}: nothing of `{word}`: {said}",
            arguments.join(" ")
        )),
        None => Ok(()),
    }
}

/// What the agent says; null, and status 1, while there is none.
pub(super) fn status() -> Result<Value, String> {
    let said = berth_ends(&[0, 1], &["status", "--json"])?;
    serde_json::from_str(&said).map_err(|e| format!("berth status --json: {e}: {said}"))
}

/// A VM in a status.
pub(super) fn vm<'a>(status: &'a Value, name: &str) -> Result<&'a Value, String> {
    let vms = status["vms"].as_array().ok_or("a status without VMs")?;
    vms.iter()
        .find(|vm| vm["name"] == name)
        .ok_or_else(|| format!("{name} is not in the status: {status}"))
}

pub(super) fn runs(name: &str) -> Result<(), String> {
    let now = state()?;
    check(
        now.1.as_deref() == Some(name),
        format!("{name} runs: {now:?}"),
    )
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let scenario: Scenario =
        serde_json::from_value(input["scenario"].clone()).map_err(|e| e.to_string())?;
    let known: Vec<u8> =
        serde_json::from_value(input["known"].clone()).map_err(|e| e.to_string())?;
    fs::write(KNOWN, known).map_err(|e| e.to_string())?;
    says(
        1,
        &["status"],
        &["no agent of Berth is running", "scheduler linux"],
    )?;
    says(0, &["stop"], &["nothing to stop"])?;
    refused()?;
    let load = load(scenario, 1);
    let began = Instant::now();
    until("web is there", &mut || Ok(ran("web")?.is_some()))?;
    let before = ran("web")?;
    let said = by_hand().and_then(|()| by_daemon());
    let (after, took) = (ran("web"), began.elapsed().as_secs_f64());
    let ended = load.end();
    let disturbed = said?;
    ended?;
    // Every 20.02 ms it computes for 20 us; of that a quarter at least.
    let ran_ns = after?.ok_or("web is gone")? - before.unwrap_or_default();
    let least = took * 1e9 * (20.0 / 20_020.0) / 4.0;
    check(
        ran_ns as f64 > least,
        format!("the latency VM ran {ran_ns} ns, of {least} at least"),
    )?;
    on_this_host()?;
    check(state()?.0 == State::Disabled, "a policy is left loaded")?;
    Ok(json!(format!(
        "started, switched, changed, stopped; observed, acted, reloaded; {disturbed}; compared ({took:.0} s of the \
         VM's time)"
    )))
}

/// CPU time of a VM until now, if there is one of this name.
pub(super) fn ran(name: &str) -> Result<Option<u64>, String> {
    let vms = vms()?;
    vms.iter()
        .find(|vm| vm.name == name)
        .map(|vm| cpu_ns(vm))
        .transpose()
}

/// Wrong usage: nothing is loaded, no process stays.
fn refused() -> Result<(), String> {
    says(2, &["start", "vmfare"], &["did you mean `vmfair`"])?;
    says(2, &["start", "vmfair", "--set", "slice=1"], &["slice_us"])?;
    says(2, &["start", "vmfair", "--partial"], &["--only"])?;
    fs::write("/run/nonsense.bpf.o", b"no object").map_err(|e| e.to_string())?;
    let said = Command::new(BERTH)
        .args(["start", "/run/nonsense.bpf.o"])
        .output()
        .map_err(|e| e.to_string())?;
    check(
        matches!(said.status.code(), Some(2 | 3)),
        format!("nonsense was loaded: {said:?}"),
    )?;
    check(state()?.0 == State::Disabled, "something was loaded")?;
    says(1, &["status"], &["no agent of Berth is running"])
}

/// `berth start`, `status`, `stop`.
fn by_hand() -> Result<(), String> {
    says(
        0,
        &["start", "vmfair", "--class", "web*=latency"],
        &["vmfair schedules this host now"],
    )?;
    runs("vmfair")?;
    until("the VMs are known", &mut || {
        let now = status()?;
        Ok(vm(&now, "web").is_ok() && vm(&now, "hog").is_ok())
    })?;
    let now = status()?;
    check(now["policy"]["name"] == "vmfair", now.to_string())?;
    let web = vm(&now, "web")?;
    check(
        web["class"] == "latency" && web["vcpus"] == 1 && web["threads"].as_u64() >= Some(2),
        web.to_string(),
    )?;
    check(vm(&now, "hog")?["class"] == "batch", now.to_string())?;
    says(0, &["status"], &["policy vmfair", "web", "latency", "hog"])?;
    // A parameter changes in place, another policy takes over, with the VMs running.
    says(
        0,
        &["start", "vmfair", "--set", "slice_us=1000"],
        &["vmfair"],
    )?;
    check(
        status()?["policy"]["parameters"]["slice_us"] == "1000",
        status()?.to_string(),
    )?;
    says(0, &["start", "credit"], &["in place of what was loaded"])?;
    runs("credit")?;
    let now = status()?;
    check(
        vm(&now, "web")?["class"] == "latency",
        format!("the rules stay: {now}"),
    )?;
    berth(2, &["start", "no-such-policy"])?;
    runs("credit")?;
    // Who is in the socket's group may ask what runs, and only root may change it. Others may not connect.
    let other = |group: u32, verb: &[&str]| {
        let mut command = Command::new(BERTH);
        command.uid(1234).gid(group).args(verb);
        command.output().map_err(|e| e.to_string())
    };
    let asked = other(0, &["status"])?;
    check(asked.status.success(), format!("as a member: {asked:?}"))?;
    let strange = other(1234, &["status"])?;
    check(
        !strange.status.success(),
        format!("as a stranger: {strange:?}"),
    )?;
    let stopped = other(0, &["stop"])?;
    check(
        stopped.status.code() == Some(2),
        format!("stopped by a user: {stopped:?}"),
    )?;
    runs("credit")?;
    says(0, &["stop"], &["credit is unloaded"])?;
    check(state()?.0 == State::Disabled, "stopped")?;
    until("the process that held the policy ends", &mut || {
        Ok(!Path::new("/run/berth/control.sock").exists())
    })
}

struct Daemon(Child);

impl Daemon {
    fn signal(&self, number: i32) {
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(self.0.id().cast_signed(), number) };
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn configure(text: &str) -> Result<(), String> {
    fs::write(CONFIG, text).map_err(|e| e.to_string())
}

pub(super) fn log() -> String {
    fs::read_to_string(SAID).unwrap_or_default()
}

/// `berth daemon`: observes, acts, reads its configuration again.
fn by_daemon() -> Result<String, String> {
    configure("mode = \"act\"\npolicy = \"vmfair\"\nonly = web\n")?;
    let checked = ["daemon", "--check", "--config", CONFIG];
    says(2, &checked, &["daemon.toml:3:"])?;
    configure("mode = \"act\"\npolicy = \"vmfair\"\n[set]\n\nslice = 1\n")?;
    says(2, &checked, &["daemon.toml:5: set.slice: "])?;
    configure("")?;
    says(0, &checked, &["ok"])?;
    let said = fs::File::create(SAID).map_err(|e| e.to_string())?;
    let child = Command::new(BERTH)
        .args(["daemon", "--config", CONFIG])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut daemon = Daemon(child);
    // It observes: it knows the VMs, and nothing is loaded.
    until("the daemon knows the VMs", &mut || {
        Ok(status()?["vms"].as_array().map_or(0, Vec::len) >= 2)
    })?;
    check(status()?["policy"].is_null(), "it observes")?;
    check(state()?.0 == State::Disabled, "nothing is loaded")?;
    says(0, &["stop"], &["no policy of Berth is loaded"])?;
    // A second one does not take its place.
    says(2, &["daemon", "--config", CONFIG], &["another agent"])?;
    // It acts.
    configure(
        "mode = \"act\"\npolicy = \"vmfair\"\nonly = [\"web*\"]\n[[vm]]\nname = \"*\"\nclass = \"latency\"\n",
    )?;
    daemon.signal(libc::SIGHUP);
    until("it acts", &mut || {
        Ok(state()?.1.as_deref() == Some("vmfair"))
    })?;
    let now = status()?;
    check(
        vm(&now, "web")?["class"] == "latency" && vm(&now, "hog")?["class"] == "none",
        format!("only web has a class: {now}"),
    )?;
    // Wrong: what runs stays.
    configure("mode = \"act\"\n\npolicy = 7\n")?;
    daemon.signal(libc::SIGHUP);
    until("it says what is wrong", &mut || {
        Ok(log().contains("daemon.toml:3: policy: a string"))
    })?;
    runs("vmfair")?;
    let disturbed = disturbed()?;
    // `start` and `stop` go to it, and it stays.
    says(0, &["start", "credit"], &["in place of"])?;
    runs("credit")?;
    says(0, &["stop"], &["credit is unloaded"])?;
    check(status()?["policy"].is_null(), "it stays, and observes")?;
    let left = left_to_others()?;
    configure("mode = \"act\"\npolicy = \"vmfair\"\n")?;
    daemon.signal(libc::SIGHUP);
    until("it acts again", &mut || {
        Ok(state()?.1.as_deref() == Some("vmfair"))
    })?;
    daemon.signal(libc::SIGTERM);
    let status = daemon.0.wait().map_err(|e| e.to_string())?;
    check(status.success(), format!("asked to end: {status}"))?;
    check(
        log().contains("policy vmfair unloaded"),
        format!("it says so: {}", log()),
    )?;
    check(state()?.0 == State::Disabled, "nothing is left")?;
    Ok(format!("{disturbed}; {left}"))
}

/// `berth host SCENARIO` with a policy among its arms.
fn on_this_host() -> Result<(), String> {
    fs::write("/run/short.toml", SHORT).map_err(|e| e.to_string())?;
    let said = berth(
        0,
        &["host", "/run/short.toml", "--json", "--out", "/run/out"],
    )?;
    let arms = ["linux", "vmfair"];
    check(
        arms.iter().all(|arm| said.contains(arm)) && !said.contains("no policy can be loaded"),
        format!("berth host: {said}"),
    )
}
