// SPDX-License-Identifier: GPL-2.0-only
//! The tracer on the vCPU threads of micro-VMs, beside what the guests themselves saw: how late the timers of a latency
//! VM were, by its own clock, and how long its thread waited after a wake-up, by BPF. One boot, in virtual time.
use super::{check, host, options, read_scenario, with_micro_vms};
use berth_host::discover::Scanner;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_host::trace::{Cause, Tracer, Waits};
use berth_lab::Vcpus;
use berth_lab::assets::Assets;
use berth_scenario::model::Scenario;
use berth_scx::Loaded;
use berth_tracer::BpfTracer;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// One CPU, for three who want it.
const VMS: &str = r#"
[vm.web]
class = "latency"
tasks = ["tick"]
[vm.hog]
count = 2
tasks = ["burn"]
[task.tick]
loop = ["sleep 10ms", "compute 20us"]
[task.burn]
model = "busy"
"#;
const VM_COUNT: usize = 3;
const SECONDS: u64 = 3;

pub fn beside_the_guests(assets: &Assets) -> Result<String, String> {
    let mut scenario = read_scenario("cores = 1", VMS)?;
    scenario.run.warmup_ns = 0;
    scenario.run.measure_ns = SECONDS * 1_000_000_000;
    let input = json!(scenario);
    let result = with_micro_vms(assets, "traced", host(1, 1, 1, 1, 1), input, options())?;
    let o = &result;
    let n = |name: &str| o[name].as_f64().unwrap_or(-1.0);
    let said = format!(
        "wake-up p50 {:.0} us, p99 {:.0} us by BPF; {:.0} us and {:.0} us by the guest; {:.0} % of the waiting behind \
         the hogs",
        n("traced.p50") / 1e3,
        n("traced.p99") / 1e3,
        n("guest.p50") / 1e3,
        n("guest.p99") / 1e3,
        n("behind.hogs") * 100.0
    );
    // Every timer wakes the thread once; the first ones were before it was watched.
    let timers = SECONDS as f64 * 1e9 / 10.02e6;
    let woken = n("traced.wakeups");
    check(
        woken > 0.5 * timers && woken < 1.3 * timers,
        format!("{woken} wake-ups of about {timers:.0}: {o}"),
    )?;
    // The guest sees what the thread waited, and the timer's own lateness and the way into the guest on top.
    for q in ["p50", "p99"] {
        let (traced, guest) = (n(&format!("traced.{q}")), n(&format!("guest.{q}")));
        // A bucket of the tracer is a quarter of an octave, and its upper end is what is said.
        check(
            traced > 0.0 && traced <= guest * 1.25,
            format!("{q}: {said}"),
        )?;
        check(
            guest <= traced + 500_000.0,
            format!("{q}: the guest waits for what the host does not see: {said}"),
        )?;
    }
    check(n("behind.hogs") > 0.8, format!("{said}: {o}"))?;
    check(n("behind.itself") == 0.0, format!("{o}"))?;
    // A hog waits for the other, mostly.
    check(n("hog.behind.hogs") > 0.7, format!("{o}"))?;
    Ok(said)
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let scenario: Scenario = serde_json::from_value(input.clone()).map_err(|e| e.to_string())?;
    let mut tracer = BpfTracer::start().map_err(|e| e.to_string())?;
    let load = std::thread::spawn(move || {
        let mut how = berth_loadgen::Options {
            cgroup_root: Some("/sys/fs/cgroup/berth".into()),
            warmup_ns: 0,
            measure_ns: scenario.run.measure_ns,
            vcpus: Vcpus::Kvm,
            ..berth_loadgen::Options::default()
        };
        berth_loadgen::run(&scenario, 1, &mut how).map_err(|e| e.to_string())
    });
    let seen = all_vms()?;
    tracer.follow(&seen).map_err(|e| e.to_string())?;
    let outcome = load.join().map_err(|_| "the load panicked")??;
    let waits = tracer.read().map_err(|e| e.to_string())?;
    let of = |name: &str| -> Result<(&Waits, f64, f64), String> {
        let vm = seen.vms.iter().find(|vm| vm.name == name);
        let vm = vm.ok_or_else(|| format!("no VM {name}: {seen:?}"))?;
        let own = (vm.pid, vm.start);
        let waits = waits.get(&own).ok_or("not watched")?;
        let all: u64 = waits.behind.values().sum();
        let part = |wanted: &dyn Fn(&Cause) -> bool| {
            let sum: u64 = waits
                .behind
                .iter()
                .filter(|b| wanted(b.0))
                .map(|b| b.1)
                .sum();
            sum as f64 / all.max(1) as f64
        };
        let hogs = seen.vms.iter().filter(|vm| vm.name.starts_with("hog"));
        let hogs: Vec<_> = hogs.map(|vm| (vm.pid, vm.start)).collect();
        let hogs = part(&|c| matches!(c, Cause::Vm(vm) if *vm != own && hogs.contains(vm)));
        Ok((waits, hogs, part(&|c| *c == Cause::Vm(own))))
    };
    let (web, hogs, itself) = of("web")?;
    let hog = seen.vms.iter().find(|vm| vm.name.starts_with("hog"));
    let (_, hog_behind, _) = of(&hog.ok_or("no hog")?.name)?;
    let guest = |name: &str| outcome.metrics.get(&format!("web.wakeup.{name}")).copied();
    Ok(json!({
        "traced.wakeups": web.wakeups.iter().sum::<u64>(),
        "traced.p50": web.quantile_ns(0.5),
        "traced.p99": web.quantile_ns(0.99),
        "traced.worst": web.worst_ns,
        "guest.p50": guest("p50"),
        "guest.p99": guest("p99"),
        "guest.max": guest("max"),
        "behind.hogs": hogs,
        "behind.itself": itself,
        "hog.behind.hogs": hog_behind,
    }))
}

/// Scans until every VM and its vCPU are known.
fn all_vms() -> Result<Snapshot, String> {
    let mut scanner = Scanner::new(Root::live());
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let seen = scanner.scan().map_err(|e| e.to_string())?;
        // This process itself may have been seen with the VM by which it tried whether there is KVM.
        if seen.vms.iter().filter(|vm| vm.known_vcpus() == 1).count() == VM_COUNT {
            return Ok(seen);
        }
        check(Instant::now() < end, format!("never found: {seen:?}"))?;
        std::thread::sleep(Duration::from_millis(20));
    }
}
