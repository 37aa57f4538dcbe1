// SPDX-License-Identifier: GPL-2.0-only
//! What was seen of a host, as a scenario file: the same VMs, weights, caps and pins, and for every vCPU a task that
//! runs and sleeps as it did. What was not recorded stands in it as comments.
use crate::discover::Scanner;
use crate::explain::{self, Explanation};
use crate::model::{Role, Snapshot, TaskId, Vm};
use crate::procfile::{self, cpu_list, cpu_text};
use crate::root::Root;
use crate::view::{self, View, VmView};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::time::{Duration, Instant};

/// Wake-ups of the vCPUs so far, and when they were read.
#[derive(Clone, Debug)]
struct Wakeups {
    at: Instant,
    threads: BTreeMap<TaskId, u64>,
}

impl Wakeups {
    /// Reads them; threads that have ended are left out.
    fn read<'a>(root: &Root, vms: impl Iterator<Item = &'a Vm>) -> Wakeups {
        let mut threads = BTreeMap::new();
        let mut buf = [0; 4096];
        if let Ok(proc) = root.proc() {
            for thread in vms.flat_map(|vm| &vm.threads) {
                let id = thread.id;
                let path = format!("{}/task/{}/status", id.pid, id.tid);
                let text = proc.read_record(&path, &mut buf).ok();
                if let Some((n, _)) = text.and_then(procfile::switches) {
                    threads.insert(id, n);
                }
            }
        }
        Wakeups {
            at: root.now(),
            threads,
        }
    }

    /// Those of a scan.
    fn of(root: &Root, snapshot: &Snapshot) -> Wakeups {
        Wakeups::read(root, snapshot.vms.iter().map(|vm| &**vm))
    }

    /// Per second, by thread, between two readings.
    fn rates(&self, before: &Wakeups) -> BTreeMap<TaskId, f64> {
        let seconds = (self.at - before.at).as_secs_f64();
        let rate = |(id, n): (&TaskId, &u64)| {
            let n = n.checked_sub(*before.threads.get(id)?)?;
            (seconds > 0.0).then_some((*id, n as f64 / seconds))
        };
        self.threads.iter().filter_map(rate).collect()
    }
}

/// Looks at a host for so long; what was seen, and the scenario file.
///
/// # Errors
/// /proc cannot be read.
pub fn record(root: &Root, over: Duration) -> io::Result<(View, String)> {
    let vms = Scanner::new(root.clone()).scan()?;
    let before = Wakeups::of(root, &vms);
    let view = view::look(root, over)?;
    let after = Wakeups::read(root, view.vms.iter().map(|v| &*v.vm));
    let explain = |vm| explain::explain(root, &view, vm);
    let explanations: Vec<_> = view.vms.iter().map(explain).collect();
    let text = scenario(&view, &explanations, &after.rates(&before));
    Ok((view, text))
}

/// A vCPU that uses less, in CPUs, has no task.
const IDLE: f64 = 0.001;
/// One that wants more of a CPU than this never sleeps.
const BUSY: f64 = 0.97;

/// What one thread does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Busy,
    /// Runs so long, then sleeps so long, in nanoseconds, on average.
    Bursts {
        run: f64,
        sleep: f64,
    },
}

impl Work {
    /// From CPUs used and waited for, and wake-ups per second.
    fn fit(cpus: f64, waiting: f64, wakeups: f64) -> Option<Work> {
        let wanted = cpus + waiting;
        match () {
            _ if cpus < IDLE => None,
            _ if wanted >= BUSY => Some(Work::Busy),
            // It slept less than once a second: as if once.
            _ => {
                let wakeups = wakeups.max(1.0);
                Some(Work::Bursts {
                    run: cpus / wakeups * 1e9,
                    sleep: (1.0 - wanted) / wakeups * 1e9,
                })
            }
        }
    }

    /// Works that are nearly alike have one key: a factor of 1.4 in length, a tenth in load.
    fn key(self) -> (i64, i64) {
        match self {
            Work::Busy => (i64::MAX, 0),
            Work::Bursts { run, sleep } => (
                (run.log2() * 2.0).round() as i64,
                (run / (run + sleep) * 10.0).round() as i64,
            ),
        }
    }
}

/// The scenario file. `explanations` are of the VMs of `view`, in the same order.
fn scenario(view: &View, explanations: &[Explanation], wakeups: &BTreeMap<TaskId, f64>) -> String {
    let cpus = view.machine.cpus.len().max(1);
    let mut out = format!(
        "# Recorded on {}, over {:.1} s: {} VMs, scheduler {}.\n\
         # Each vCPU's task runs and sleeps as long as the vCPU did on average, exponentially distributed; when it \
         waited\n\
         # for a CPU, it would have gone on running.\n\
         # Not recorded: what the VMs' work waits for (requests, disks, other VMs), its real distribution, caches and \
         SMT,\n\
         # kinds of cores, and what vhost and the VMM's own threads do (their CPU time is said at each VM).\n\n\
         title = {}\n\n[host]\ncores = {cpus}\n",
        view.machine.name,
        view.seconds,
        view.vms.len(),
        view.machine.scheduler.name(),
        quoted(&format!("Recorded on {}", view.machine.name)),
    );
    let mut tasks = String::new();
    let mut names = BTreeSet::new();
    if let Some(load) = host_load(view, cpus) {
        out.push_str("tasks = [\"host-rest\"]   # everything that is no VM\n");
        let _ = write!(
            tasks,
            "\n[task.host-rest]\nthreads = {cpus}\nmodel   = \"lookbusy\"\nload    = \"{:.1}%\"\n",
            load * 100.0
        );
        names.insert("host-rest".to_string());
    }
    for (vm, e) in view.vms.iter().zip(explanations) {
        let name = name_for(&vm.vm.name, &mut names);
        one(
            vm,
            e,
            &name,
            wakeups,
            &view.machine.cpus,
            &mut out,
            &mut tasks,
        );
    }
    out + &tasks
}

/// What the host itself used of each CPU.
fn host_load(view: &View, cpus: usize) -> Option<f64> {
    let load = view.host.cpus? / cpus as f64;
    (load >= 0.005).then_some(load.min(0.99))
}

fn one(
    vm: &VmView,
    e: &Explanation,
    name: &str,
    wakeups: &BTreeMap<TaskId, f64>,
    online: &[u32],
    out: &mut String,
    tasks: &mut String,
) {
    let mut groups: BTreeMap<(i64, i64), Vec<Work>> = BTreeMap::new();
    let mut idle = 0;
    let mut beside = 0.0;
    for (thread, rates) in vm.threads() {
        let Some(rates) = rates else { continue };
        if !matches!(thread.role, Role::Vcpu(_)) {
            beside += rates.cpus;
            continue;
        }
        // Without the wake-ups, stays on a CPU: as many or more.
        let woken = wakeups
            .get(&thread.id)
            .copied()
            .unwrap_or(rates.stays_per_s);
        match Work::fit(rates.cpus, rates.waiting, woken) {
            Some(work) => groups.entry(work.key()).or_default().push(work),
            None => idle += 1,
        }
    }
    let task_names: Vec<String> = (0..groups.len())
        .map(|i| {
            if groups.len() == 1 {
                format!("{name}-work")
            } else {
                format!("{name}-work{}", i + 1)
            }
        })
        .collect();
    let _ = write!(out, "\n[vm.{name}]");
    if name != vm.vm.name {
        let _ = write!(out, "   # {}", vm.vm.name);
    }
    out.push('\n');
    let _ = writeln!(out, "vcpus  = {}", vm.vm.vcpus.max(1));
    if let Some(verdict) = &vm.class {
        let _ = writeln!(out, "class  = \"{}\"   # by what it did", verdict.class);
    }
    if let Some(weight) = e.share.weight {
        let _ = writeln!(out, "weight = {}", weight.clamp(1, 10_000));
    }
    if let Some(cap) = e.share.cap {
        let _ = writeln!(out, "cap    = \"{:.3} CPUs\"", cap.max(0.001));
    }
    if let Some(cpus) = pins(e, vm, online) {
        let _ = writeln!(out, "affinity = \"{cpus}\"");
    }
    let list: Vec<String> = task_names.iter().map(|t| format!("\"{t}\"")).collect();
    let _ = writeln!(out, "tasks  = [{}]", list.join(", "));
    if idle > 0 {
        let _ = writeln!(out, "# {idle} of its vCPUs did nothing.");
    }
    if beside >= IDLE {
        let _ = writeln!(
            out,
            "# Beside its vCPUs (vhost, iothread, emulator) it used {beside:.3} CPUs: not recorded."
        );
    }
    let missing = vm.vm.vcpus.saturating_sub(vm.vm.known_vcpus());
    if missing > 0 {
        let _ = writeln!(
            out,
            "# The threads of {missing} of its vCPUs were not known: their work is missing."
        );
    }
    for (name, works) in task_names.iter().zip(groups.values()) {
        let _ = write!(tasks, "\n[task.{name}]\nthreads = {}\n", works.len());
        let mean = |f: &dyn Fn(&Work) -> f64| works.iter().map(f).sum::<f64>() / works.len() as f64;
        let length = |sleeps: bool| {
            mean(&move |w| match w {
                Work::Busy => 0.0,
                Work::Bursts { run, sleep } => {
                    if sleeps {
                        *sleep
                    } else {
                        *run
                    }
                }
            })
        };
        match works[0] {
            Work::Busy => tasks.push_str("model   = \"busy\"\n"),
            Work::Bursts { .. } => {
                let (run, sleep) = (length(false).max(1000.0), length(true).max(1000.0));
                let _ = writeln!(
                    tasks,
                    "loop    = [\"compute exp({run:.0}ns)\", \"sleep exp({sleep:.0}ns)\"]"
                );
            }
        }
    }
}

/// The CPUs its vCPUs may use, counted among those that are online; `None` if all, or if they differ.
fn pins(e: &Explanation, vm: &VmView, online: &[u32]) -> Option<String> {
    let vcpu = |tid: &i32| {
        vm.vm
            .threads
            .iter()
            .any(|t| t.id.tid == *tid && matches!(t.role, Role::Vcpu(_)))
    };
    let mut all: BTreeSet<u32> = BTreeSet::new();
    for (cpus, _) in e.allowed.iter().filter(|(_, tids)| tids.iter().any(vcpu)) {
        all.extend(cpu_list(cpus.as_bytes())?);
    }
    let ranks: Vec<u32> = (0..)
        .zip(online)
        .filter(|(_, cpu)| all.contains(cpu))
        .map(|(rank, _)| rank)
        .collect();
    (!ranks.is_empty() && ranks.len() < online.len()).then(|| cpu_text(&ranks))
}

/// A name that a scenario may have, and nobody else has.
fn name_for(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut base: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .collect();
    if !base.starts_with(|c: char| c.is_ascii_alphabetic()) {
        base.insert_str(0, "vm-");
    }
    let mut name = base.clone();
    let mut n = 2;
    while !taken.insert(name.clone()) {
        name = format!("{base}_{n}");
        n += 1;
    }
    name
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .filter(|c| !c.is_control())
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            c => vec![c],
        })
        .collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Share;
    use crate::counters::Rates;
    use crate::fixture::Fixture;
    use berth_scenario::{Input, read};
    use proptest::prelude::*;

    fn recorded(names: &[&str], rates: &dyn Fn(usize) -> (Rates, f64)) -> String {
        let folder = tempfile::tempdir().unwrap();
        let mut text = String::from(
            "file proc/sys/kernel/hostname kvm07\nfile sys/devices/system/cpu/online 0-3\n",
        );
        for (i, name) in names.iter().enumerate() {
            let pid = 10 + 10 * i;
            text.push_str(&format!(
                "process {pid} lkvm\nargs lkvm run --name \"{name}\"\nfd 3 anon_inode:kvm-vm\nfd 4 \
                 anon_inode:kvm-vcpu:0\n\
                 fd 5 anon_inode:kvm-vcpu:1\nthread {} kvm-vcpu-0 run=4\nthread {} kvm-vcpu-1 run=5\n",
                pid + 1,
                pid + 2
            ));
        }
        Fixture::parse(&text)
            .unwrap()
            .unpack(folder.path())
            .unwrap();
        let root = Root::at(folder.path());
        let mut view = crate::view::look(&root, Duration::from_millis(1)).unwrap();
        view.host.cpus = Some(0.1);
        let mut wakeups = BTreeMap::new();
        for (i, vm) in view.vms.iter_mut().enumerate() {
            let (rates, woken) = rates(i);
            vm.thread_rates.fill(Some(rates));
            wakeups.extend(vm.vm.threads.iter().map(|t| (t.id, woken)));
        }
        let explain = |vm: &VmView| Explanation {
            share: Share {
                weight: Some(20_000),
                cap: Some(1.5),
            },
            allowed: vec![(
                "1,3".into(),
                vm.vm.threads.iter().map(|t| t.id.tid).collect(),
            )],
            ..crate::explain::explain(&root, &view, vm)
        };
        let explanations: Vec<Explanation> = view.vms.iter().map(explain).collect();
        scenario(&view, &explanations, &wakeups)
    }

    fn check(text: &str) -> berth_scenario::model::Scenario {
        let input = Input {
            name: "recorded".into(),
            shown: "recorded.toml".into(),
            text: text.into(),
            folder: None,
        };
        read(&input, &[])
            .unwrap_or_else(|e| panic!("{e}\n{text}"))
            .scenario
    }

    #[test]
    fn what_was_seen_stands_in_the_file() {
        let text = recorded(&["web", "two words", "two-words"], &|i| match i {
            0 => (
                Rates {
                    cpus: 0.9,
                    waiting: 0.1,
                    stays_per_s: 300.0,
                },
                0.0,
            ),
            1 => (
                Rates {
                    cpus: 0.2,
                    waiting: 0.0,
                    stays_per_s: 500.0,
                },
                400.0,
            ),
            _ => (Rates::default(), 0.0),
        });
        let s = check(&text);
        assert_eq!(
            (s.title.as_str(), s.host.cores, s.vms.len()),
            ("Recorded on kvm07", 4, 3)
        );
        let (first, second, third) = (&s.vms[0], &s.vms[1], &s.vms[2]);
        assert_eq!(
            (first.vcpus, first.weight, first.cap_milli),
            (2, 10_000, Some(1500))
        );
        assert!(!s.tasks[&first.tasks[0]].steps.is_empty(), "{text}");
        // 0.2 CPUs in 400 bursts a second: 0.5 ms each, and 2 ms of sleep.
        assert!(
            text.contains("compute exp(500000ns)") && text.contains("sleep exp(2000000ns)"),
            "{text}"
        );
        assert!(!second.tasks.is_empty() && third.tasks.is_empty());
        assert!(
            text.contains("affinity = \"1,3\"") && text.contains("[vm.two-words_2]"),
            "{text}"
        );
        assert_eq!(quoted("a\"b\\\n"), r#""a\"b\\""#);
        assert!(text.contains("[task.host-rest]") && text.contains("Not recorded"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        #[test]
        fn whatever_was_seen_is_a_scenario(
            name in "[a-zA-Z0-9äß._-]{1,40}",
            cpus in 0.0f64..1.2,
            waiting in 0.0f64..1.0,
            woken in 0.0f64..200_000.0,
        ) {
            let rates = Rates { cpus, waiting, stays_per_s: woken };
            check(&recorded(&[&name, "x"], &|_| (rates, woken)));
        }
    }
}
