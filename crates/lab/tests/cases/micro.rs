// SPDX-License-Identifier: GPL-2.0-only
//! Real micro-VMs under nested KVM, in virtual time.
use super::{NEVER, check, is_long, options, policy};
use berth_lab::Vcpus;
use berth_lab::assets::Assets;
use berth_lab::run::{LabArm, LabOptions, LabPolicy, run};
use berth_results::schema::RunRecord;
use berth_scenario::model::Scenario;
use berth_scx::LoadOptions;

/// A VM that answers one user, and two that burn, on two CPUs; locks and barriers between two vCPUs.
const TEXT: &str = r#"
[host]
cores = 2
[vm.web]
class = "latency"
tasks = ["worker"]
[vm.hog]
vcpus = 2
tasks = ["burn"]
[vm.pair]
vcpus = 2
tasks = ["locker"]
[task.worker]
threads = 1
loop = ["receive users", "compute 50us", "reply"]
[task.burn]
model = "busy"
[task.locker]
loop = ["lock m", "compute 20us", "unlock m", "barrier b", "sleep 200us"]
[client.users]
to = "web"
sends = "poisson(200/s)"
request = "1KiB"
reply = "1KiB"
[run]
warmup = "200ms"
measure = "800ms"
"#;

/// Two VMs in one cgroup, known by their processes: each may have one of the two CPUs. Thread by thread, the first
/// one's vCPU would have a quarter of both.
const ONE_CGROUP: &str = r#"
[host]
cores = 2
[vm.small]
cgroup = "both"
tasks = ["burn"]
[vm.large]
cgroup = "both"
vcpus = 3
tasks = ["burn"]
[task.burn]
model = "busy"
[run]
warmup = "200ms"
measure = "800ms"
"#;

/// A vCPU for each of four CPUs that computes, and so each has one to itself.
const EACH_ITS_CPU: &str = r#"
[host]
cores = 4
[vm.hog]
vcpus = 4
tasks = ["burn"]
[task.burn]
model = "busy"
[run]
warmup = "200ms"
measure = "800ms"
"#;

fn scenario(text: &str) -> Result<Scenario, String> {
    let input = berth_scenario::Input {
        name: "micro".to_string(),
        shown: "micro.toml".to_string(),
        text: text.to_string(),
        folder: None,
    };
    let read = berth_scenario::read(&input, &[]).map_err(|e| e.to_string())?;
    Ok(read.scenario)
}

/// Figures that hold whatever the scheduler does.
fn sound(record: &RunRecord) -> Result<(), String> {
    let m = |name: &str| record.metrics.get(name).copied().unwrap_or(0.0);
    let answers = m("web.response.count");
    check(
        (100.0..220.0).contains(&answers),
        format!("{}: {answers} answers of about 160", record.arm),
    )?;
    check(
        m("web.response.p50") >= 50_000.0 && m("web.wakeup.p50") > 0.0,
        format!("{}: an answer takes its work", record.arm),
    )?;
    // The guests' own counter beside the kernel's. In emulation all CPUs share one stream of instructions, so
    // that a loop measured while both are busy runs faster where one is idle: the bounds are wide.
    let (work, cpu) = (m("hog.work") / 800e6, m("hog.cpu"));
    check(
        work > 0.4 * cpu && work < 1.1 * cpu && cpu > 0.5,
        format!("{}: hogs worked {work:.3} of {cpu:.3} CPUs", record.arm),
    )?;
    check(
        m("pair.work") > 0.0,
        format!("{}: the pair stands still", record.arm),
    )?;
    let real = record
        .notes
        .iter()
        .any(|n| n.contains("real KVM micro-VMs"));
    check(real, format!("{}: {:?}", record.arm, record.notes))
}

/// Runs under a policy (twice), other VMs under one that knows VMs; with `BERTH_LAB_LONG=1` on the kernel's own
/// scheduler, too.
pub fn micro_vms(assets: &Assets) -> Result<String, String> {
    let vmfair = berth_builtin::find("vmfair").map(|p| LabPolicy::Object {
        object: p.object().to_vec(),
        options: LoadOptions::default(),
    });
    let run_one = |name: &str, text, policy, verify| -> Result<RunRecord, String> {
        let arm = LabArm {
            name: name.to_string(),
            scenario: scenario(text)?,
            policy,
        };
        let options = LabOptions {
            verify,
            vcpus: Vcpus::Kvm,
            ..options()
        };
        let records = run(&[arm], &[1], &options, assets, &|_| (), &NEVER);
        let mut records = records.map_err(|e| e.to_string())?;
        records.pop().ok_or_else(|| format!("{name}: no record"))
    };
    let mut all = vec![run_one("fifo", TEXT, policy(LoadOptions::default()), true)?];
    if is_long() {
        all.push(run_one("linux", TEXT, None, false)?);
    }
    let in_one_cgroup = run_one("vmfair", ONE_CGROUP, vmfair, false)?;
    all.iter().try_for_each(sound)?;
    let notes = all[0].notes.join("; ");
    check(
        notes.contains("verified") || notes.contains("differed from the other two"),
        format!("fifo: {notes}"),
    )?;
    let p99 = |record: &RunRecord| {
        let us = record.metrics["web.wakeup.p99"] / 1e3;
        format!("{us:.0} us by {}", record.arm)
    };
    let p99s: Vec<String> = all.iter().map(p99).collect();
    let small = in_one_cgroup.metrics["small.cpu"];
    check(
        small > 0.9,
        format!("vmfair: a VM in a cgroup with another has {small} of 2 CPUs"),
    )?;
    Ok(format!(
        "wake-up p99 {}; {small:.2} CPUs for one of two VMs in one cgroup by vmfair",
        p99s.join(", ")
    ))
}

/// The emulator's CPUs compute about equally fast while all are busy (`turns.rs`), in guests too; and what a guest's
/// work is measured by is right. Two of them; with BERTH_LAB_LONG=1 four, too.
pub fn equal_turns(assets: &Assets) -> Result<String, String> {
    let two = EACH_ITS_CPU.replace("= 4", "= 2");
    let all = [
        ("two", two.as_str(), 2.0, 1.1),
        ("four", EACH_ITS_CPU, 4.0, 1.5),
    ];
    let hosts = if is_long() { &all[..] } else { &all[..1] };
    let arms = hosts.iter().map(|(name, text, ..)| {
        Ok(LabArm {
            name: name.to_string(),
            scenario: scenario(text)?,
            policy: None,
        })
    });
    let arms = arms.collect::<Result<Vec<_>, String>>()?;
    let options = LabOptions {
        vcpus: Vcpus::Kvm,
        ..options()
    };
    let records = run(&arms, &[1], &options, assets, &|_| (), &NEVER).map_err(|e| e.to_string())?;
    check(
        records.len() == hosts.len(),
        format!("{} runs of {}", records.len(), hosts.len()),
    )?;
    let mut said = Vec::new();
    for (record, &(_, _, cpus, at_most)) in records.iter().zip(hosts) {
        let (spread, work) = (
            record.metrics["hog.spread"],
            record.metrics["hog.work"] / 800e6,
        );
        check(
            spread < at_most,
            format!("{cpus} CPUs: one had {spread:.2} times the turns of another"),
        )?;
        check(
            work > 0.9 * cpus && work < 1.05 * cpus,
            format!("{cpus} CPUs did the work of {work:.2}: {:?}", record.notes),
        )?;
        said.push(format!("{cpus} CPUs: {spread:.2}, work {work:.2}"));
    }
    Ok(format!("most by least turns on {}", said.join("; on ")))
}
