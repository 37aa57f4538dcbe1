// SPDX-License-Identifier: GPL-2.0-only
//! Boots by themselves: the VM's topology, a scenario's run with and without the virtual clock and sched_ext, the same
//! bytes twice, and boots that fail.
use super::{NEVER, check, coarse, ensure, host, inside, options, policy, read_scenario, roam};
use berth_lab::LabError;
use berth_lab::assets::Assets;
use berth_lab::job::Work;
use berth_lab::run::{LabArm, LabOptions, Single, run, single};
use berth_lab::vm::Mode;
use berth_scx::{LoadOptions, Loaded};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub fn topology(assets: &Assets) -> Result<String, String> {
    let answer = inside(assets, "topology", host(2, 2, 1, 1, 2), None, json!(null))?;
    let o = &answer.result;
    check(o["online"] == "0-3", format!("CPUs: {o}"))?;
    check(
        o["siblings"] == json!(["0-1", "0-1", "2-3", "2-3"]),
        format!("SMT: {o}"),
    )?;
    check(
        o["packages"] == json!(["0", "0", "1", "1"]),
        format!("packages: {o}"),
    )?;
    check(o["nodes"] == json!(["0-1", "2-3"]), format!("nodes: {o}"))?;
    let answer = inside(assets, "topology", host(1, 1, 2, 4, 1), None, json!(null))?;
    let o = &answer.result;
    check(
        o["llc"] == json!(["0-1", "0-1", "2-3", "2-3"]),
        format!("last-level caches: {o}"),
    )?;
    Ok(String::new())
}

pub fn topology_inside(_input: &Value, _policy: Option<&mut Loaded>) -> Result<Value, String> {
    let read = |p: String| {
        std::fs::read_to_string(format!("/sys/devices/system/{p}"))
            .map_or(String::new(), |s| s.trim().to_string())
    };
    let of_cpus = |name: &str| -> Vec<String> {
        (0..4).map(|c| read(format!("cpu/cpu{c}/{name}"))).collect()
    };
    let nodes = (0..2).map(|n| read(format!("node/node{n}/cpulist")));
    Ok(json!({
        "online": read("cpu/online".to_string()),
        "siblings": of_cpus("topology/core_cpus_list"),
        "packages": of_cpus("topology/physical_package_id"),
        "llc": of_cpus("cache/index3/shared_cpu_list"),
        "nodes": nodes.collect::<Vec<_>>(),
    }))
}

pub fn fast(assets: &Assets) -> Result<String, String> {
    roam();
    let arm = LabArm {
        name: "linux".to_string(),
        scenario: scenario("cores = 2")?,
        policy: None,
    };
    let fast = LabOptions {
        mode: Mode::Fast,
        ..options()
    };
    let records = run(&[arm], &[1], &fast, assets, &|_| (), &NEVER).map_err(|e| e.to_string())?;
    let cpu = records[0].metrics.get("hog.cpu").copied().unwrap_or(0.0);
    check(
        (1.5..2.1).contains(&cpu),
        format!("four hogs on two CPUs used {cpu} CPUs"),
    )?;
    Ok(format!("four hogs used {cpu:.2} of 2 CPUs"))
}

/// CFS: two hogs on a CPU take turns of the 4 ms from tick to tick, and the observer sees them.
pub fn without_sched_ext(_: &Assets) -> Result<String, String> {
    let assets = ensure("6.1").map_err(|e| e.to_string())?;
    let release = &assets.kernel.release;
    check(!assets.kernel.sched_ext, format!("{release} has sched_ext"))?;
    let arm = LabArm {
        name: "linux".to_string(),
        scenario: scenario("cores = 1")?,
        policy: None,
    };
    let records =
        run(&[arm], &[1], &options(), &assets, &|_| (), &NEVER).map_err(|e| e.to_string())?;
    let metric = |name: &str| records[0].metrics.get(name).copied().unwrap_or(0.0);
    let (cpu, delay_ms) = (metric("hog.cpu"), metric("hog.run_delay.p50") / 1e6);
    check(
        (0.99..1.001).contains(&cpu),
        format!("four hogs used {cpu} CPUs"),
    )?;
    // Three others have a turn before it.
    check(
        (11.9..12.2).contains(&delay_ms),
        format!("a hog waits {delay_ms} ms"),
    )?;
    Ok(format!(
        "{release}: four hogs wait {delay_ms:.2} ms for a turn"
    ))
}

fn scenario(host: &str) -> Result<berth_scenario::model::Scenario, String> {
    let mut s = read_scenario(
        host,
        "[vm.hog]\nvcpus = 4\nclass = \"batch\"\ntasks = [\"burn\"]\n[task.burn]\nmodel = \"busy\"\n\
         [compare]\npolicies = [\"linux\"]\n",
    )?;
    s.run.warmup_ns = 200_000_000;
    s.run.measure_ns = 1_000_000_000;
    Ok(s)
}

pub fn same_bytes(assets: &Assets) -> Result<String, String> {
    let arm = LabArm {
        name: "fifo".to_string(),
        scenario: scenario("cores = 2")?,
        policy: policy(LoadOptions::default()),
    };
    let verify = LabOptions {
        verify: true,
        ..options()
    };
    let records = run(&[arm], &[1], &verify, assets, &|_| (), &NEVER).map_err(|e| e.to_string())?;
    let notes = records[0].notes.join("; ");
    check(
        notes.contains("verified") || notes.contains("differed from the other two"),
        notes,
    )?;
    Ok(records[0].hash.clone())
}

pub fn failures(assets: &Assets) -> Result<String, String> {
    let what = Single {
        host: host(1, 1, 1, 1, 1),
        policy: None,
        work: Work::Program {
            argv: vec!["/nowhere".to_string()],
        },
    };
    let boot = single(&what, &coarse(), assets, &NEVER).map_err(|e| e.to_string())?;
    let said = boot.answer.error.unwrap_or_default();
    check(
        said.contains("/nowhere"),
        format!("missing program: {said}"),
    )?;
    let hurried = LabOptions {
        timeout: Duration::from_secs(1),
        ..coarse()
    };
    match single(&what, &hurried, assets, &NEVER) {
        Err(LabError::Timeout { .. }) => {}
        other => return Err(format!("one second sufficed? {other:?}")),
    }
    // No first process: the kernel panics, and QEMU nevertheless ends with status 0.
    let no_init = LabOptions {
        program: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"),
        ..coarse()
    };
    match single(&what, &no_init, assets, &NEVER) {
        Err(LabError::Panic { .. }) => {}
        other => return Err(format!("no panic without a first process? {other:?}")),
    }
    let stop = AtomicBool::new(true);
    match single(&what, &coarse(), assets, &stop) {
        Err(LabError::Interrupted) => Ok(String::new()),
        other => Err(format!("not interrupted: {other:?}")),
    }
}
