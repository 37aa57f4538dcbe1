// SPDX-License-Identifier: GPL-2.0-only
//! The cases, and what they have in common: each boots once or twice. Functions named `*_inside` run in the VM.
mod agent;
mod any_kernel;
mod asleep;
mod attacked;
mod batch;
mod boots;
mod braked;
mod cycles;
mod disturbed;
mod limits;
mod loader;
mod micro;
mod modes;
mod noticed;
mod optimised;
mod path;
mod programs;
mod rivals;
mod ruled;
mod sizes;
mod survival;
mod traced;
mod verbs;
mod waits;
mod witness;

use berth_lab::assets::{self, Assets, KernelRule};
use berth_lab::job::{Answer, Work};
use berth_lab::run::{LabOptions, LabPolicy, Single, single};
use berth_lab::vm::{Boot, Mode};
use berth_lab::{LabError, Progress};
use berth_scenario::model::Host;
use berth_scx::LoadOptions;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

type Case = fn(&Assets) -> Result<String, String>;

/// On the default kernel, the longest first: nobody waits for one at the end.
const CASES: [(&str, Case); 27] = [
    (
        "what acting without sched_ext survives: a duel, CPUs and cgroups that come and go",
        survival::survived,
    ),
    ("amp on cores of which some are braked", braked::mechanisms),
    (
        "micro-VMs boot and end under a policy, again and again",
        cycles::cycles,
    ),
    (
        "the agent beside micro-VMs: found, switched, killed",
        agent::acting,
    ),
    (
        "the network path of a micro-VM, bound and not: tap, bridge, vhost-net",
        path::measured,
    ),
    ("who acts survives that the machine sleeps", asleep::woken),
    (
        "the agent's commands beside micro-VMs: berth start, status, stop, daemon, host",
        verbs::verbs,
    ),
    (
        "micro-VMs run under nested KVM, under a policy twice the same",
        micro::micro_vms,
    ),
    (
        "vmfair among VMs that mean the others no good",
        attacked::held,
    ),
    (
        "the optimiser beside micro-VMs: set, handed over to, put back",
        any_kernel::optimised,
    ),
    (
        "a scenario's optimiser: what is promised, and put back",
        optimised::optimised,
    ),
    (
        "schedulers that are programs of their own",
        programs::of_their_own,
    ),
    ("what cannot be loaded is refused by name", ruled::refusals),
    ("programs that a loader runs", loader::calls),
    ("before the start there is no scheduler", loader::early),
    ("a policy that starves a thread is ejected", ruled::victim),
    ("the VM has the scenario's topology", boots::topology),
    ("a scenario runs without the virtual clock", boots::fast),
    (
        "Linux 6.1, which has no sched_ext",
        boots::without_sched_ext,
    ),
    ("who waited for whom", waits::known),
    ("sizes of a scenario's requests are told", sizes::told),
    ("a real guest answers under nested KVM", witness::answers),
    ("a guest that does not boot says why", witness::no_kernel),
    ("two boots give the same bytes", boots::same_bytes),
    ("emulated CPUs have about equal turns", micro::equal_turns),
    (
        "the tracer beside what micro-VMs saw themselves",
        traced::beside_the_guests,
    ),
    (
        "a kernel that crashes and a VM that is too slow",
        boots::failures,
    ),
];

/// Kernel lines, the oldest first.
const LINES: &str = "6.18,7.0,7.2,7.3";

/// On each kernel line. All load every policy, which is what takes long: the default kernel to look at shares, the
/// others with tables that are large; on all but the oldest smaller ones, if not `BERTH_LAB_LONG=1`.
fn on_each_kernel(line: &str, is_default: bool) -> [(&'static str, Case); 2] {
    let shipped: (&str, Case) = if is_default {
        ("every shipped policy runs and shares", crate::shipped::run)
    } else if LINES.split(',').next() == Some(line) || is_long() {
        (
            "every shipped policy runs with 1,024 possible CPUs",
            crate::shipped::on_1024_possible_cpus,
        )
    } else {
        (
            "every shipped policy runs with 256 possible CPUs",
            crate::shipped::on_256_possible_cpus,
        )
    };
    [("a policy is steered while it runs", ruled::steer), shipped]
}

/// On the default kernel, with `BERTH_LAB_LONG=1`: it takes minutes.
const LONG: [(&str, Case); 10] = [
    (
        "what acting without sched_ext survives: a duel of an hour",
        survival::duel_of_an_hour,
    ),
    (
        "what acting without sched_ext survives: a CPU that goes and comes, 1,000 times",
        survival::a_thousand_cycles,
    ),
    (
        "what acting without sched_ext survives: 10,000 cgroups",
        survival::ten_thousand_groups,
    ),
    ("what rivals of flms promise", rivals::held),
    ("full and partial mode", modes::modes),
    (
        "the optimiser's limits: a target beside sixteen VMs",
        limits::beside_sixteen,
    ),
    (
        "the optimiser's limits: VMs that come and go",
        limits::come_and_go,
    ),
    (
        "the optimiser's limits: a target that works and sleeps",
        limits::now_and_then,
    ),
    (
        "the optimiser's limits: eight vCPUs beside one",
        limits::by_vm,
    ),
    ("a batch of tasks under the task schedulers", batch::table),
];

static NEVER: AtomicBool = AtomicBool::new(false);
pub use agent::inside as agent_inside;
pub use any_kernel::inside as any_kernel_inside;
pub use asleep::inside as asleep_inside;
pub use attacked::inside as attacked_inside;
pub use batch::inside as batch_inside;
pub use boots::topology_inside;
pub use braked::inside as braked_inside;
pub use cycles::inside as cycles_inside;
pub use limits::inside as limits_inside;
pub use modes::inside as modes_inside;
pub use noticed::called_as_guardian;
pub use optimised::inside as optimised_inside;
pub use path::{called_as_vm, inside as path_inside};
pub use programs::{called_as_one as called_as_program, inside as programs_inside};
pub use rivals::inside as rivals_inside;
pub use ruled::{refusals_inside, steer_inside, victim_inside};
pub use survival::inside as survival_inside;
pub use traced::inside as traced_inside;
pub use verbs::inside as verbs_inside;

static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();

/// All cases, or (`BERTH_LAB_CASES`) those whose name has this text.
pub fn run_all() -> ExitCode {
    let lines = std::env::var("BERTH_LAB_KERNELS").unwrap_or_else(|_| LINES.to_string());
    let wanted = std::env::var("BERTH_LAB_CASES").unwrap_or_default();
    let object = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies/fifo.bpf.c");
    match berth_policy::compile::compile(&object, &berth_policy::compile::CompileOptions::default())
    {
        Ok(o) => OBJECT.get_or_init(|| o),
        Err(e) => {
            println!("FAIL  the test policy does not compile: {e}");
            return ExitCode::FAILURE;
        }
    };
    let assets = match ensure("default") {
        Ok(assets) => assets,
        Err(e) => {
            println!("FAIL  emulator and kernel: {e}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "lab: {}, Linux {}",
        assets.qemu.describe(),
        assets.kernel.release
    );
    let mut jobs: Vec<(String, Job)> = Vec::new();
    for line in lines.split(',').filter(|l| !l.is_empty()) {
        let is_default = assets.kernel.release.starts_with(&format!("{line}."));
        for (what, case) in on_each_kernel(line, is_default) {
            let job = move || case(&ensure(line).map_err(|e| e.to_string())?);
            jobs.push((format!("kernel {line}: {what}"), Box::new(job)));
        }
    }
    let more = if is_long() { LONG.as_slice() } else { &[] };
    for (name, case) in CASES.iter().chain(more) {
        jobs.push((name.to_string(), Box::new(|| case(&assets))));
    }
    jobs.retain(|(name, _)| name.contains(&wanted));
    if jobs.is_empty() {
        println!(
            "FAIL  no case has {wanted:?} in its name (BERTH_LAB_CASES), of those that are run so"
        );
        return ExitCode::FAILURE;
    }
    let failed = side_by_side(&jobs);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        println!("{failed} failed");
        ExitCode::FAILURE
    }
}

pub fn is_long() -> bool {
    std::env::var("BERTH_LAB_LONG").as_deref() == Ok("1")
}

type Job<'a> = Box<dyn Fn() -> Result<String, String> + Sync + 'a>;

/// A VM keeps one processor busy: as many cases at a time as there are, each on its own. How many failed.
fn side_by_side(jobs: &[(String, Job)]) -> usize {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let number = LabOptions::default().jobs;
    // Fewer than CPUs where others have their part of these.
    let own = usable_cpus().len() == number;
    let worker = |cpu: Option<usize>| {
        while let Some((name, job)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(cpu) = cpu {
                stay_on(&[cpu]);
            }
            let started = Instant::now();
            let result = job();
            let seconds = started.elapsed().as_secs_f64();
            match result {
                Ok(said) => println!("ok    {name} ({seconds:.0} s) {said}"),
                Err(why) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    println!("FAIL  {name} ({seconds:.0} s): {why}");
                }
            }
        }
    };
    std::thread::scope(|s| {
        let worker = &worker;
        for n in 0..number {
            let cpu = usable_cpus().get(n).copied().filter(|_| own);
            s.spawn(move || worker(cpu));
        }
    });
    failed.into_inner()
}

/// Those that this program had when it began.
fn usable_cpus() -> &'static [usize] {
    static USABLE: OnceLock<Vec<usize>> = OnceLock::new();
    USABLE.get_or_init(|| {
        // SAFETY: a set of CPUs is plain data, and the call writes one.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
                return Vec::new();
            }
            set
        };
        // SAFETY: within the set.
        let is_in = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
        (0..libc::CPU_SETSIZE as usize).filter(is_in).collect()
    })
}

/// This thread, and the emulators that it starts. The emulator's two threads hand over to each other at each timer of
/// the VM, and each time that one has to wake the other's processor the VM waits: on one they need a tenth less.
fn stay_on(cpus: &[usize]) {
    // SAFETY: a set of CPUs is plain data, and the call reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|cpu| libc::CPU_SET(*cpu, &mut set));
        // If this may not be, it is slower.
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// For VMs whose CPUs run at the same time.
pub fn roam() {
    stay_on(usable_cpus());
}

fn ensure(rule: &str) -> Result<Assets, LabError> {
    let say = |p: Progress| {
        if let Progress::Say(text) = p {
            println!("lab: {text}");
        }
    };
    assets::ensure(&KernelRule::parse(rule)?, false, &say, &NEVER)
}

/// A VM that is not done after this hangs. The longest takes some five minutes on an idle machine, and longer where
/// others want its processors.
const HUNG: Duration = Duration::from_secs(1800);

pub fn options() -> LabOptions {
    LabOptions {
        timeout: HUNG,
        // Others beside it are other cases.
        jobs: 1,
        ..LabOptions::default()
    }
}

/// For what does not depend on how soon it is done.
pub fn coarse() -> LabOptions {
    LabOptions {
        mode: Mode::Coarse,
        ..options()
    }
}

pub fn host(nodes: u32, packages: u32, llcs: u32, cores: u32, threads: u32) -> Host {
    Host {
        nodes,
        packages,
        llcs,
        cores,
        threads,
        ..Host::default()
    }
}

fn policy(options: LoadOptions) -> Option<LabPolicy> {
    Some(LabPolicy::Object {
        object: OBJECT.get().expect("compiled first").clone(),
        options,
    })
}

/// Boots with a custom function inside; the kernel's log must be clean. Gives the function's result.
fn booted(
    assets: &Assets,
    name: &str,
    host: Host,
    input: Value,
    options: &LabOptions,
) -> Result<Value, String> {
    clean(assets, name, host, input, options).map(|boot| boot.answer.result)
}

/// The same; gives all that came back.
fn clean(
    assets: &Assets,
    name: &str,
    host: Host,
    input: Value,
    options: &LabOptions,
) -> Result<Boot, String> {
    let what = Single {
        host,
        policy: None,
        work: Work::Custom {
            name: name.to_string(),
            input,
        },
    };
    let boot = single(&what, options, assets, &NEVER).map_err(|e| e.to_string())?;
    if let Some(e) = &boot.answer.error {
        return Err(format!("{e}\n{}", boot.console));
    }
    check(
        boot.answer.notes.is_empty(),
        format!("the kernel's log: {:?}", boot.answer.notes),
    )?;
    Ok(boot)
}

/// As `booted`, with real vCPUs.
fn with_micro_vms(
    assets: &Assets,
    name: &str,
    host: Host,
    input: Value,
    options: LabOptions,
) -> Result<Value, String> {
    let options = LabOptions {
        vcpus: berth_lab::Vcpus::Kvm,
        ..options
    };
    booted(assets, name, host, input, &options)
}

/// Boots with a custom function inside, which does not depend on how soon it is done.
fn inside(
    assets: &Assets,
    name: &str,
    host: Host,
    policy: Option<LabPolicy>,
    input: Value,
) -> Result<Answer, String> {
    let what = Single {
        host,
        policy,
        work: Work::Custom {
            name: name.to_string(),
            input,
        },
    };
    let boot = single(&what, &coarse(), assets, &NEVER).map_err(|e| e.to_string())?;
    match &boot.answer.error {
        Some(e) => Err(format!("{e}\n{}", boot.console)),
        None => Ok(boot.answer),
    }
}

pub fn check(holds: bool, what: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// A scenario from its file's text: the keys of `[host]`, then the other tables.
pub fn read_scenario(host: &str, rest: &str) -> Result<berth_scenario::model::Scenario, String> {
    let input = berth_scenario::Input {
        name: "lab-test".to_string(),
        shown: "lab-test.toml".to_string(),
        text: format!("title = \"Lab test\"\n[host]\n{host}\n{rest}"),
        folder: None::<PathBuf>,
    };
    berth_scenario::read(&input, &[])
        .map(|done| done.scenario)
        .map_err(|e| e.to_string())
}
