// SPDX-License-Identifier: GPL-2.0-only
//! What Berth can do on a host and what stands in its way: the facts behind `berth doctor`.
use crate::btf;
use crate::cgroup::{self, Version};
use crate::cores::{self, CoreKind};
use crate::machine::{Machine, Scheduler};
use crate::model::{Snapshot, Vm};
use crate::network;
use crate::places;
use crate::procfile::{cpu_list, cpu_text, printable, status_value};
use crate::root::Root;
use crate::view::VmView;
use serde::Serialize;
use std::sync::Arc;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    /// Good to know.
    Note,
    /// Something does not work, or works less well.
    Warn,
    /// Loading a policy with sched_ext must be refused on this host as it is.
    Refuse,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub state: State,
    /// What was found.
    pub found: String,
    /// What follows from it, or what to do.
    pub advice: Option<String>,
}

fn check(name: &'static str, state: State, found: impl Into<String>, advice: &str) -> Check {
    Check {
        name,
        state,
        found: found.into(),
        advice: (!advice.is_empty()).then(|| advice.to_string()),
    }
}

/// The first kernel that Berth's policies are built for.
const KERNEL: (u32, u32) = (6, 18);
/// The first kernel with sched_ext.
const SCHED_EXT: (u32, u32) = (6, 12);

/// All checks. `cookie` gives a thread's core-scheduling cookie, 0 for none; `None` where the kernel has no core
/// scheduling.
pub fn examine(root: &Root, vms: &Snapshot, cookie: &dyn Fn(i32) -> Option<u64>) -> Vec<Check> {
    let machine = Machine::read(root);
    vec![
        kernel(root),
        sched_ext(root, &machine),
        isolated(root),
        core_scheduling(root, vms, cookie),
        type_information(root),
        capabilities(root),
        control_groups(root),
        kvm(root),
        debugfs(root),
        run_delay(root),
        counters(root, &machine),
        cores(root, &machine),
        frequency(root),
    ]
}

/// VMs of which a check tells by name.
const NAMED: usize = 4;

/// On which kinds of cores the VMs run, and for how much of their time, on a host of several.
pub fn whereabouts(vms: &[VmView]) -> Check {
    let name = "cores of VMs";
    let ran = vms.iter().filter(|vm| !vm.kinds.is_empty());
    let mut each: Vec<String> = ran
        .map(|vm| format!("{}: {}", vm.vm.name, places::words(&vm.kinds)))
        .collect();
    if each.is_empty() {
        let advice =
            "Very many VMs are looked at too seldom in a second: `berth ls --over 20 --json`.";
        return check(name, State::Note, "none was seen to run", advice);
    }
    let more = each.len().saturating_sub(NAMED);
    each.truncate(NAMED);
    let mut found = each.join("; ");
    if more > 0 {
        found += &format!("; and {more} more VMs");
    }
    let advice = "Of their vCPUs' time in the last second; `berth ls --json` has it of every VM.";
    check(name, State::Note, found, advice)
}

/// Whether the network paths of the VMs can be seen (`berth pin` binds them).
pub fn networks(root: &Root, vms: &Snapshot) -> Check {
    let name = "network paths";
    let networks = network::of(root, vms);
    let not_seen = |vm: &Arc<Vm>| {
        let what = networks.network(vm)?.not_seen();
        let first = what.into_iter().next()?;
        Some(format!("{}: {first}", vm.name))
    };
    let mut unseen: Vec<String> = vms.vms.iter().filter_map(not_seen).collect();
    if unseen.is_empty() {
        let links = networks.vms.values().map(|n| n.links.len());
        let found = format!("{} links of {} VMs", links.sum::<usize>(), vms.vms.len());
        return check(name, State::Ok, found, "");
    }
    let more = unseen.len().saturating_sub(NAMED);
    unseen.truncate(NAMED);
    let mut found = unseen.join("; ");
    if more > 0 {
        found += &format!("; and {more} more VMs");
    }
    check(
        name,
        State::Note,
        found,
        "`berth pin` binds what can be seen, and says of each VM what is left (berth plan).",
    )
}

/// Whether a policy could be loaded.
pub fn allowed(checks: &[Check]) -> bool {
    checks.iter().all(|c| c.state != State::Refuse)
}

/// [`allowed`] in one sentence.
pub fn verdict(checks: &[Check]) -> String {
    let refused: Vec<&str> = checks
        .iter()
        .filter(|c| c.state == State::Refuse)
        .map(|c| c.name)
        .collect();
    match allowed(checks) {
        true => "Policies can be loaded with sched_ext; watching works.".into(),
        false => format!(
            "No policy can be loaded with sched_ext ({}); watching works, and `berth start optimiser` needs none.",
            refused.join(", ")
        ),
    }
}

/// The first two numbers of a kernel's release.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(root: &Root) -> Check {
    let name = "kernel";
    let Some(text) = root.proc_text("sys/kernel/osrelease") else {
        return check(name, State::Warn, "its release cannot be read", "");
    };
    let text = printable(text.as_bytes());
    match release(&text) {
        Some(r) if r >= KERNEL => check(name, State::Ok, format!("Linux {text}"), ""),
        Some(r) if r >= SCHED_EXT => check(
            name,
            State::Refuse,
            format!("Linux {text}"),
            "sched_ext exists from 6.12; Berth's policies need what 6.18 added to it.",
        ),
        _ => check(
            name,
            State::Refuse,
            format!("Linux {text}"),
            "sched_ext exists from 6.12, Berth's policies need 6.18.",
        ),
    }
}

fn sched_ext(root: &Root, machine: &Machine) -> Check {
    let name = "sched_ext";
    let Some(state) = root.sys_text("kernel/sched_ext/state") else {
        return check(
            name,
            State::Refuse,
            "not in this kernel",
            "It takes a kernel with CONFIG_SCHED_CLASS_EXT.",
        );
    };
    if let Scheduler::Ext(scheduler) = &machine.scheduler {
        return check(
            name,
            State::Refuse,
            format!("{state}: `{scheduler}` schedules this host"),
            "Berth leaves a scheduler that it did not load alone. Stop it first.",
        );
    }
    let count = |file: &str| root.sys_text(&format!("kernel/sched_ext/{file}"));
    let loaded = count("enable_seq").and_then(|n| n.parse::<u64>().ok());
    let found = match loaded {
        Some(0) | None => format!("{}, none loaded", printable(state.as_bytes())),
        Some(n) => format!(
            "{}, none loaded now, {n} loaded since boot",
            printable(state.as_bytes())
        ),
    };
    match count("nr_rejected").and_then(|n| n.parse::<u64>().ok()) {
        Some(n) if n > 0 => check(
            name,
            State::Note,
            format!("{found}; {n} threads were refused"),
            "A scheduler refused them (`disallow`): they stayed with the kernel's own.",
        ),
        _ => check(name, State::Ok, found, ""),
    }
}

fn isolated(root: &Root) -> Check {
    let name = "isolated CPUs";
    let line = root.proc_text("cmdline").unwrap_or_default();
    let asked = line.split_whitespace().find(|w| w.starts_with("isolcpus="));
    let cpus = root.sys_text("devices/system/cpu/isolated");
    let cpus = cpus
        .and_then(|t| cpu_list(t.as_bytes()))
        .unwrap_or_default();
    match asked {
        Some(asked) => check(
            name,
            State::Refuse,
            printable(asked.as_bytes()),
            "The kernel refuses sched_ext together with isolcpus=. Boot without it.",
        ),
        None if !cpus.is_empty() => check(
            name,
            State::Note,
            format!("CPUs {}, by cpusets", cpu_text(&cpus)),
            "They stay out of every plan.",
        ),
        None => check(name, State::Ok, "none", ""),
    }
}

/// Core scheduling lets only threads of one cookie share a core; sched_ext has no part in it, and a host with both can
/// hang.
fn core_scheduling(root: &Root, vms: &Snapshot, cookie: &dyn Fn(i32) -> Option<u64>) -> Check {
    let name = "core scheduling";
    let smt = root.sys_text("devices/system/cpu/smt/active").as_deref() == Some("1");
    let marked: Vec<&str> = vms
        .vms
        .iter()
        .filter(|vm| {
            vm.threads
                .iter()
                .any(|t| cookie(t.id.tid).is_some_and(|c| c != 0))
        })
        .map(|vm| vm.name.as_str())
        .collect();
    match (marked.first(), smt) {
        (None, true) => check(name, State::Ok, "no VM has a cookie; SMT is on", ""),
        (None, false) => check(name, State::Ok, "no VM has a cookie; SMT is off", ""),
        (Some(first), true) => check(
            name,
            State::Refuse,
            format!("{} VMs have cookies ({first}); SMT is on", marked.len()),
            "Together with sched_ext this can hang a host. Switch either off.",
        ),
        (Some(first), false) => check(
            name,
            State::Note,
            format!("{} VMs have cookies ({first}); SMT is off", marked.len()),
            "Without SMT cookies change nothing.",
        ),
    }
}

fn type_information(root: &Root) -> Check {
    let name = "BTF";
    let advice = "Policies cannot be loaded without sound type information. Another build of the kernel has it.";
    let mut bytes = Vec::new();
    let read = root
        .sys()
        .and_then(|sys| sys.read_most("kernel/btf/vmlinux", 64 << 20, &mut bytes));
    if let Err(e) = read {
        return check(
            name,
            State::Refuse,
            format!("/sys/kernel/btf/vmlinux cannot be read: {e}"),
            "It takes a kernel with CONFIG_DEBUG_INFO_BTF.",
        );
    }
    match btf::check(&bytes) {
        Err(e) => check(name, State::Refuse, format!("malformed: {e}"), advice),
        Ok(sound) => {
            let found = format!("sound, {} types", sound.types);
            match sound.sched_ext {
                true => check(name, State::Ok, found, ""),
                false => check(name, State::Note, found, "It does not describe sched_ext."),
            }
        }
    }
}

fn capabilities(root: &Root) -> Check {
    // Numbers of include/uapi/linux/capability.h.
    let needed = [
        (19, "CAP_SYS_PTRACE", "see which processes are VMs"),
        (23, "CAP_SYS_NICE", "place threads"),
        (38, "CAP_PERFMON", "load policies"),
        (39, "CAP_BPF", "load policies"),
    ];
    let status = root.proc_text("self/status").unwrap_or_default();
    let held = status_value(status.as_bytes(), "CapEff");
    let held = held.and_then(|h| u64::from_str_radix(std::str::from_utf8(h).ok()?, 16).ok());
    let Some(held) = held else {
        return check("capabilities", State::Note, "cannot be read", "");
    };
    let missing: Vec<String> = needed
        .iter()
        .filter(|(bit, _, _)| held >> bit & 1 == 0)
        .map(|(_, name, what)| format!("{name} ({what})"))
        .collect();
    match missing.is_empty() {
        true => check("capabilities", State::Ok, "all that is needed", ""),
        false => check(
            "capabilities",
            State::Warn,
            format!("missing: {}", missing.join(", ")),
            "As root: all of it.",
        ),
    }
}

const OLD_GROUPS: &str = "Shares come from cpu.shares, converted, caps from cpu.cfs_quota_us. The agent tells policies \
                          both; the kernel itself tells policies of sched_ext shares of version 2 only.";

fn control_groups(root: &Root) -> Check {
    let name = "cgroups";
    match cgroup::version(root) {
        Version::V2 => check(name, State::Ok, "version 2", ""),
        Version::V1 => check(name, State::Note, "version 1", OLD_GROUPS),
        Version::Hybrid => check(
            name,
            State::Note,
            "hybrid: the controller cpu is in version 1",
            OLD_GROUPS,
        ),
        Version::None => check(
            name,
            State::Warn,
            "not mounted",
            "Shares and caps of VMs are not known.",
        ),
    }
}

fn kvm(root: &Root) -> Check {
    let there = root.sys_text("class/misc/kvm/dev").is_some();
    match there {
        true => check("KVM", State::Ok, "/dev/kvm", ""),
        false => check(
            "KVM",
            State::Note,
            "no /dev/kvm",
            "VMs here are emulated (QEMU's TCG) or not there at all.",
        ),
    }
}

fn debugfs(root: &Root) -> Check {
    let folder = root.sys().and_then(|sys| sys.dir("kernel/debug/kvm"));
    match folder {
        Ok(_) => check("debugfs", State::Ok, "KVM's folder can be read", ""),
        Err(_) => check(
            "debugfs",
            State::Note,
            "KVM's folder cannot be read",
            "Which vCPU a thread is comes from KVM_RUN, guest time or its name instead. To have it: mount -t debugfs \
             none \
             /sys/kernel/debug",
        ),
    }
}

fn run_delay(root: &Root) -> Check {
    let text = root.proc_text("1/schedstat");
    let counted = text
        .as_deref()
        .and_then(|t| crate::procfile::schedstat(t.as_bytes()));
    match counted {
        Some(c) if c.stays > 0 => check("run delay", State::Ok, "counted by the kernel", ""),
        _ => check(
            "run delay",
            State::Warn,
            "not counted by this kernel, or hidden (hidepid)",
            "It takes CONFIG_SCHED_INFO.",
        ),
    }
}

fn counters(root: &Root, machine: &Machine) -> Check {
    let name = "performance counters";
    let folder = root
        .sys()
        .and_then(|sys| sys.dir("bus/event_source/devices"));
    let mut devices = Vec::new();
    if let Ok(folder) = folder {
        let _ = folder.list(|n, _| {
            let n = String::from_utf8_lossy(n).into_owned();
            if n == "cpu" || n.starts_with("cpu_") || n.starts_with("armv8") {
                devices.push(n);
            }
        });
    }
    devices.sort();
    match devices.is_empty() {
        true => check(
            name,
            State::Note,
            "none",
            "Policies that weigh instructions per cycle (amp) do without.",
        ),
        false => check(
            name,
            State::Ok,
            format!("{} ({})", devices.join(", "), machine.cpus_in_words()),
            "",
        ),
    }
}

fn cores(root: &Root, machine: &Machine) -> Check {
    let name = "kinds of cores";
    let Some(first) = machine.kinds.first() else {
        return match cores::spread(root, &machine.cpus) {
            None => check(name, State::Ok, "one", ""),
            Some(spread) => check(
                name,
                State::Note,
                format!(
                    "one, though the slowest CPU ({}) has {} % of the fastest ({}), {}",
                    spread.slowest,
                    spread.percent,
                    spread.fastest,
                    spread.source.words()
                ),
                "No core has less than 90 % of the next faster one: policies that know kinds (vmfair, amp) take them \
                 for alike, and nobody is given the faster ones.",
            ),
        };
    };
    let kind = |kind: &CoreKind| {
        let cores = match kind.cores as usize == kind.cpus.len() {
            true => String::new(),
            false => format!(" ({} cores)", kind.cores),
        };
        let speed = match kind.capacity {
            None | Some(1024) => String::new(),
            Some(capacity) => format!(" at {:.0} %", f64::from(capacity) / 10.24),
        };
        format!("{}: CPUs {}{cores}{speed}", kind.name, cpu_text(&kind.cpus))
    };
    let kinds: Vec<String> = machine.kinds.iter().map(kind).collect();
    check(
        name,
        State::Note,
        format!("{}, {}", kinds.join(", "), first.source.words()),
        "vCPUs run at the speed of the core they are on.",
    )
}

fn frequency(root: &Root) -> Check {
    let name = "CPU frequency";
    let folder = "devices/system/cpu/cpufreq";
    let mut governors: Vec<String> = Vec::new();
    let mut policies = Vec::new();
    if let Ok(dir) = root.sys().and_then(|sys| sys.dir(folder)) {
        let _ = dir.list(|n, _| policies.push(String::from_utf8_lossy(n).into_owned()));
    }
    for policy in policies.iter().filter(|p| p.starts_with("policy")) {
        let of = |file: &str| root.sys_text(&format!("{folder}/{policy}/{file}"));
        if let Some(governor) = of("scaling_governor") {
            let driver = of("scaling_driver").unwrap_or_else(|| "?".into());
            governors.push(printable(format!("{governor} ({driver})").as_bytes()));
        }
    }
    governors.sort();
    governors.dedup();
    let found = governors.join(", ");
    match governors.iter().any(|g| g.starts_with("schedutil")) {
        _ if governors.is_empty() => check(name, State::Ok, "not Linux's business here", ""),
        true => check(
            name,
            State::Note,
            found,
            "schedutil follows the load that the kernel's own scheduler measures. Under a sched_ext policy that sets \
             no target, \
             CPUs run at full speed: more power, sometimes less turbo.",
        ),
        false => check(name, State::Ok, found, ""),
    }
}

/// The core-scheduling cookie of a thread of this machine, 0 for none; `None` where the kernel has no core scheduling
/// or the thread is not ours to ask.
pub fn core_cookie(tid: i32) -> Option<u64> {
    const PR_SCHED_CORE: i32 = 62;
    const PR_SCHED_CORE_GET: u64 = 0;
    const SCOPE_THREAD: u64 = 0;
    let mut cookie = 0u64;
    let tid = u64::try_from(tid).ok()?;
    // SAFETY: the kernel writes one u64 to the address.
    let done = unsafe {
        libc::prctl(
            PR_SCHED_CORE,
            PR_SCHED_CORE_GET,
            tid,
            SCOPE_THREAD,
            &raw mut cookie,
        )
    };
    (done == 0).then_some(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Scanner;
    use crate::fixture::Fixture;

    fn host(text: &str, cookie: u64) -> Vec<Check> {
        let folder = tempfile::tempdir().unwrap();
        let vm = "process 5 lkvm\nargs lkvm run --name a\nfd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\n";
        Fixture::parse(&format!("{vm}{text}"))
            .unwrap()
            .unpack(folder.path())
            .unwrap();
        let root = Root::at(folder.path());
        let vms = Scanner::new(root.clone()).scan().unwrap();
        examine(&root, &vms, &|_| Some(cookie))
    }

    fn state(checks: &[Check], name: &str) -> (State, String) {
        let check = checks.iter().find(|c| c.name == name).unwrap();
        (check.state, check.found.clone())
    }

    #[test]
    fn vms_are_where_their_vcpus_ran() {
        let folder = tempfile::tempdir().unwrap();
        let vm = |i: u32| {
            format!(
                "process {i} lkvm\nargs lkvm run --name v{i}\nfd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\n"
            )
        };
        let vms: String = (10..16).map(vm).collect();
        Fixture::parse(&vms).unwrap().unpack(folder.path()).unwrap();
        let root = Root::at(folder.path());
        let mut view = crate::view::look(&root, std::time::Duration::from_secs(1)).unwrap();
        assert_eq!(view.vms.len(), 6);
        assert_eq!(whereabouts(&view.vms).found, "none was seen to run");
        for vm in &mut view.vms[..5] {
            let share = |(kind, share): (&str, f64)| places::KindShare {
                kind: kind.into(),
                share,
            };
            vm.kinds = [("P", 0.83), ("E", 0.17)].map(share).into();
        }
        let found = whereabouts(&view.vms).found;
        let each = (10..14).map(|i| format!("v{i}: P 83 %, E 17 %; "));
        assert_eq!(found, each.collect::<String>() + "and 1 more VMs");
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        let good = "file proc/sys/kernel/osrelease 7.2.12-amd64\nfile sys/kernel/sched_ext/state disabled\n\
                    file sys/kernel/sched_ext/enable_seq 0\n";
        let checks = host(good, 0);
        assert_eq!(state(&checks, "kernel").0, State::Ok);
        assert_eq!(state(&checks, "sched_ext").0, State::Ok);
        assert_eq!(state(&checks, "core scheduling").0, State::Ok);
        // No BTF in this tree.
        assert_eq!(state(&checks, "BTF").0, State::Refuse);
        assert_eq!(
            verdict(&checks),
            "No policy can be loaded with sched_ext (BTF); watching works, and `berth start optimiser` needs none."
        );

        let foreign =
            "file sys/kernel/sched_ext/state enabled\nfile sys/kernel/sched_ext/root/ops bpfland\n";
        let (refused, found) = state(&host(foreign, 0), "sched_ext");
        assert!(
            refused == State::Refuse && found.contains("bpfland"),
            "{found}"
        );

        let isolated = "file proc/cmdline \"quiet isolcpus=2-3\"\n";
        assert_eq!(state(&host(isolated, 0), "isolated CPUs").0, State::Refuse);

        let smt = "file sys/devices/system/cpu/smt/active 1\n";
        assert_eq!(state(&host(smt, 7), "core scheduling").0, State::Refuse);
        assert_eq!(state(&host("", 7), "core scheduling").0, State::Note);

        let old = "file proc/sys/kernel/osrelease 6.1.0-18\n";
        assert_eq!(state(&host(old, 0), "kernel").0, State::Refuse);
        assert_eq!(state(&host(old, 0), "sched_ext").0, State::Refuse);
    }

    #[test]
    fn this_machine_is_examined() {
        let checks = examine(&Root::live(), &Snapshot::default(), &core_cookie);
        assert_eq!(state(&checks, "run delay").0, State::Ok);
        assert!(checks.iter().all(|c| !c.found.is_empty()));
    }
}
