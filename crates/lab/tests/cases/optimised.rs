// SPDX-License-Identifier: GPL-2.0-only
//! A scenario's `[optimiser]` in the lab, as `berth lab --vcpus kvm` runs it: what is promised under the kernel's own
//! scheduler; and that it puts everything back while its VMs still run. A boot each.
use super::agent::{load, until};
use super::path::{GROUPS, enable};
use super::{NEVER, check, coarse, host, is_long, options, read_scenario, with_micro_vms};
use berth_host::discover::Scanner;
use berth_host::model::Vm;
use berth_host::root::Root;
use berth_lab::Vcpus;
use berth_lab::assets::Assets;
use berth_lab::optimiser::Beside;
use berth_lab::run::{LabArm, LabOptions, run};
use berth_results::schema::RunRecord;
use berth_scenario::model::Scenario;
use berth_scx::Loaded;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A VM that computes and is guaranteed most of a CPU, so many that are not that who looks waits, too, and one that
/// wakes often. Without the optimiser the VM has a thirteenth of two CPUs.
const VMS: &str = r#"
[vm.target]
tasks = ["burn"]
[vm.hog]
count = 12
tasks = ["burn"]
[vm.lat]
class = "latency"
tasks = ["tick"]
[task.burn]
model = "busy"
[task.tick]
loop = ["sleep 5ms", "compute 20us"]
[optimiser]
reserve = "6%"
[optimiser.vm.target]
service = "target"
guarantee = "0.9 CPUs"
[compare]
policies = ["linux"]
"#;
/// It decides when it has looked twice, a second apart, and changes a VM again two seconds later.
const WARMUP_NS: u64 = 4_000_000_000;
const MEASURE_NS: u64 = 1_000_000_000;

pub fn optimised(assets: &Assets) -> Result<String, String> {
    let mut scenario = read_scenario("cores = 2", VMS)?;
    (scenario.run.warmup_ns, scenario.run.measure_ns) = (WARMUP_NS, MEASURE_NS);
    let arm = LabArm {
        name: "optimised".into(),
        scenario: scenario.clone(),
        policy: None,
    };
    let options = LabOptions {
        vcpus: Vcpus::Kvm,
        ..options()
    };
    let records =
        run(&[arm], &[1], &options, assets, &|_| (), &NEVER).map_err(|e| e.to_string())?;
    let shares = promised(&records[0])?;
    let job = json!(scenario);
    // Of what is put back nobody asks when.
    let options = if is_long() { options } else { coarse() };
    let left = with_micro_vms(assets, "optimised", host(1, 1, 1, 2, 1), job, options)?;
    Ok(format!("{shares}; {}", left.as_str().unwrap_or("")))
}

/// What the optimiser promises, of the figures of a run.
fn promised(run: &RunRecord) -> Result<String, String> {
    let of = |metric: &str| {
        let value = run.metrics.get(metric).copied();
        value.ok_or_else(|| format!("no {metric} in {:?}", run.metrics))
    };
    let target = of("target.cpu")?;
    let (hogs, jain) = (of("hog.cpu")?, of("hog.jain")?);
    let said = format!("target {target:.3} CPUs, hogs {hogs:.3}, Jain {jain:.3}");
    check(target >= 0.9, format!("less than its guarantee: {said}"))?;
    check(
        hogs > 0.9 && jain > 0.95,
        format!("the rest is not used, or not divided evenly: {said}"),
    )?;
    let first = run.decisions.first().ok_or("it decided nothing")?;
    check(
        (500_000_000..2_000_000_000).contains(&first.at_ns),
        format!("its first decision at {} ns", first.at_ns),
    )?;
    let mut changes = run.decisions.iter().flat_map(|d| &d.changes);
    let alone = |cpus: &berth_optimiser::CpuSet| cpus.count() == 1;
    check(
        changes.any(|c| c.vm == "target" && c.to.cpus.as_ref().is_some_and(alone)),
        format!("no CPU of its own: {:?}", run.decisions),
    )?;
    check(
        of("host.changes")? < 5.0,
        format!("it goes on changing: {:?}", run.decisions),
    )?;
    let complaints: Vec<&String> = run
        .notes
        .iter()
        .filter(|n| n.starts_with("the optimiser") || n.contains("kernel complained"))
        .collect();
    check(complaints.is_empty(), format!("{complaints:?}"))?;
    Ok(said)
}

/// Of each VM: its group's files, and where its threads may run.
type State = BTreeMap<String, Vec<String>>;

/// Those whose vCPUs are all there.
pub(super) fn vms() -> Result<Vec<Arc<Vm>>, String> {
    let all = Scanner::new(Root::live()).scan();
    let mut vms = all.map_err(|e| e.to_string())?.vms;
    vms.retain(|vm| !vm.name.starts_with("init-") && vm.vcpus > 0 && vm.known_vcpus() == vm.vcpus);
    Ok(vms)
}

fn state() -> Result<State, String> {
    let read = |path: String| fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"));
    let mut all = State::new();
    for vm in vms()? {
        let mut values = Vec::new();
        for file in ["cpuset.cpus", "cpu.weight", "cpu.max"] {
            values.push(read(format!("/sys/fs/cgroup{}/{file}", vm.cgroup))?);
        }
        for vcpu in vm.threads.iter().filter(|t| t.role.vcpu().is_some()) {
            let status = read(format!("/proc/{}/task/{}/status", vm.pid, vcpu.id.tid))?;
            let line = status.lines().find(|l| l.starts_with("Cpus_allowed_list"));
            values.push(line.unwrap_or("").to_string());
        }
        all.insert(vm.name.clone(), values);
    }
    Ok(all)
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let scenario: Scenario = serde_json::from_value(input.clone()).map_err(|e| e.to_string())?;
    let mut of_the_load = Scenario {
        optimiser: None,
        ..scenario.clone()
    };
    // Longer than what follows.
    of_the_load.run.measure_ns = 120 * MEASURE_NS;
    enable(Path::new("/sys/fs/cgroup"))?;
    let load = load(of_the_load, 1);
    until("14 VMs are there", &mut || Ok(vms()?.len() == 14))?;
    enable(Path::new(GROUPS))?;
    let before = state()?;
    let beside = Beside::start(&scenario, "berth")?.ok_or("it is not on")?;
    until("all are set", &mut || {
        Ok(state()?.values().all(|of_vm| !of_vm[0].trim().is_empty()))
    })?;
    let seen = beside.finish()?;
    let after = state()?;
    load.end()?;
    check(
        before == after,
        format!("after: {after:?}, before: {before:?}"),
    )?;
    check(seen.warnings.is_empty(), format!("{:?}", seen.warnings))?;
    let changes: usize = seen.decisions.iter().map(|(_, d)| d.changes.len()).sum();
    Ok(json!(format!(
        "{changes} changes put back under running VMs"
    )))
}
