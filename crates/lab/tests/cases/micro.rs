// SPDX-License-Identifier: GPL-2.0-only
//! Real micro-VMs under nested KVM, in virtual time.
use super::{NEVER, check, options, policy};
use berth_lab::Vcpus;
use berth_lab::assets::Assets;
use berth_lab::run::{LabArm, LabOptions, run};
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

fn scenario() -> Result<Scenario, String> {
    let input = berth_scenario::Input {
        name: "micro".to_string(),
        shown: "micro.toml".to_string(),
        text: TEXT.to_string(),
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
    // The guests' own counter beside the kernel's. In emulation all CPUs share one stream of instructions, and the work
    // loop is measured on a machine that is otherwise idle: with both CPUs busy it is half as fast.
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

/// Runs once on the kernel's own scheduler and once under a policy, each twice.
pub fn micro_vms(assets: &Assets) -> Result<String, String> {
    let arm = |name: &str, policy| -> Result<LabArm, String> {
        Ok(LabArm {
            name: name.to_string(),
            scenario: scenario()?,
            policy,
        })
    };
    let arms = [
        arm("linux", None)?,
        arm("fifo", policy(LoadOptions::default()))?,
    ];
    let twice = LabOptions {
        verify: true,
        vcpus: Vcpus::Kvm,
        ..options()
    };
    let records = run(&arms, &[1], &twice, assets, &|_| (), &NEVER).map_err(|e| e.to_string())?;
    for record in &records {
        sound(record)?;
        let notes = record.notes.join("; ");
        check(
            notes.contains("verified") || notes.contains("differed from the other two"),
            format!("{}: {notes}", record.arm),
        )?;
    }
    let p99 = |i: usize| records[i].metrics["web.wakeup.p99"] / 1e3;
    Ok(format!(
        "wake-up p99 {:.0} us by linux, {:.0} us by fifo",
        p99(0),
        p99(1)
    ))
}
