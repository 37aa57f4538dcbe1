// SPDX-License-Identifier: GPL-2.0-only
//! The cases: each boots once or twice. Functions named `*_inside` run in the VM.
mod agent;
mod any_kernel;
mod asleep;
mod attacked;
mod batch;
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
mod sizes;
mod survival;
mod traced;
mod verbs;
mod waits;
mod witness;

use berth_lab::assets::{self, Assets, KernelRule};
use berth_lab::job::{Answer, Work};
use berth_lab::run::{LabArm, LabOptions, LabPolicy, Single, run, single};
use berth_lab::vm::{Boot, Mode};
use berth_lab::{LabError, Progress};
use berth_scenario::model::Host;
use berth_scx::{LoadOptions, Loaded, ScxError, Value as Setting};
use serde_json::{Value, json};
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
    ("what cannot be loaded is refused by name", refusals),
    ("programs that a loader runs", loader::calls),
    ("before the start there is no scheduler", loader::early),
    ("a policy that starves a thread is ejected", victim),
    ("the VM has the scenario's topology", topology),
    ("a scenario runs without the virtual clock", fast),
    ("Linux 6.1, which has no sched_ext", without_sched_ext),
    ("who waited for whom", waits::known),
    ("sizes of a scenario's requests are told", sizes::told),
    ("a real guest answers under nested KVM", witness::answers),
    ("a guest that does not boot says why", witness::no_kernel),
    ("two boots give the same bytes", same_bytes),
    ("emulated CPUs have about equal turns", micro::equal_turns),
    (
        "the tracer beside what micro-VMs saw themselves",
        traced::beside_the_guests,
    ),
    ("a kernel that crashes and a VM that is too slow", failures),
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
    [("a policy is steered while it runs", steer), shipped]
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
pub use braked::inside as braked_inside;
pub use cycles::inside as cycles_inside;
pub use limits::inside as limits_inside;
pub use modes::inside as modes_inside;
pub use noticed::called_as_guardian;
pub use optimised::inside as optimised_inside;
pub use path::{called_as_vm, inside as path_inside};
pub use programs::{called_as_one as called_as_program, inside as programs_inside};
pub use rivals::inside as rivals_inside;
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

fn number(bytes: &[u8]) -> u64 {
    let mut b = [0; 8];
    b[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    u64::from_ne_bytes(b)
}

// --- a policy is steered while it runs, and started again where memory was short

fn steer(assets: &Assets) -> Result<String, String> {
    let text = |name: &str, value: &str| (name.to_string(), Setting::Text(value.to_string()));
    let load = LoadOptions {
        // It does not start at the first try, for want of memory.
        variables: [
            text("slice_ns", "3000000"),
            text("fail_task", "-12"),
            text("fail_once", "1"),
        ]
        .into(),
        ..LoadOptions::default()
    };
    let answer = inside(
        assets,
        "steer",
        host(1, 1, 1, 2, 1),
        policy(load),
        json!({}),
    )?;
    let o = &answer.result;
    check(
        o["seen_slice"] == 3_000_000,
        format!("load-time variable: {o}"),
    )?;
    let again = format!("{} 2: ", berth_scx::STARTED_AGAIN);
    let mut notes = answer.notes.iter();
    check(
        notes.any(|n| n.starts_with(&again) && n.contains("init_task() failed (-12)")),
        format!("that it started again is not said: {:?}", answer.notes),
    )?;
    check(
        o["constant_in_rodata"] != 0,
        format!("SCX_SLICE_DFL was not filled: {o}"),
    )?;
    check(
        o["bumped"] == json!([7, 15]),
        format!("syscall program: {o}"),
    )?;
    check(o["live"] == 42, format!("live variable: {o}"))?;
    check(
        o["enqueued"].as_u64() > Some(0) && o["run"].as_u64() > Some(0),
        format!("counters: {o}"),
    )?;
    check(
        o["wrong"].as_str().is_some_and(|w| w.contains("read-only")),
        format!("writing .rodata: {o}"),
    )?;
    let p = answer.policy.as_ref().ok_or("no policy report")?;
    check(p.lasted && p.name == "fifo", format!("{p:?}"))?;
    check(
        p.exit.ended() && !p.exit.is_error(),
        format!("after unloading: {}", p.exit),
    )?;
    Ok(answer.kernel)
}

pub fn steer_inside(_input: &Value, policy: Option<&mut Loaded>) -> Result<Value, String> {
    let policy = policy.ok_or("no policy")?;
    let said = |e: ScxError| e.to_string();
    std::thread::sleep(Duration::from_millis(300));
    let mut context = 5u64.to_ne_bytes();
    policy
        .set_variable("live_knob", &Setting::Number(10))
        .map_err(said)?;
    let returned = policy.run("bump", &mut context).map_err(said)?;
    policy
        .set_variable("live_knob", &Setting::Text("42".to_string()))
        .map_err(said)?;
    let wrong = match policy.set_variable("slice_ns", &Setting::Number(1)) {
        Ok(()) => "accepted".to_string(),
        Err(e) => e.to_string(),
    };
    let counters = policy.counters("counters").map_err(said)?;
    let get = |name: &str| policy.variable(name).map(|b| number(&b)).map_err(said);
    Ok(json!({
        "bumped": [returned, number(&context)],
        "live": get("live_knob")?,
        "seen_slice": get("seen_slice")?,
        "constant_in_rodata": get("__SCX_SLICE_DFL")?,
        "enqueued": counters[0],
        "run": counters[1],
        "wrong": wrong,
    }))
}

// --- what cannot be loaded is refused by name

fn refusals(assets: &Assets) -> Result<String, String> {
    let object = OBJECT.get().expect("compiled first");
    let text: String = object.iter().map(|b| format!("{b:02x}")).collect();
    let answer = inside(assets, "refusals", host(1, 1, 1, 1, 1), None, json!(text))?;
    let o = &answer.result;
    for (what, words) in [
        ("garbage", "not a BPF object"),
        ("variable", "no variable `slice_nz`"),
        ("value", "is not between 0 and"),
        ("ops", "no scheduler named `other`"),
        ("map", "no map `counterz`"),
        ("init", "did not start"),
        ("always", "ops.init_task() failed (-12)"),
        ("another", "ops.init_task() failed (-22)"),
        ("busy", "another sched_ext scheduler is running (fifo)"),
    ] {
        let said = o[what].as_str().unwrap_or("nothing");
        check(said.contains(words), format!("{what}: {said}"))?;
    }
    check(
        o["after"] == "disabled",
        format!("something stayed loaded: {o}"),
    )?;
    Ok(String::new())
}

pub fn refusals_inside(input: &Value, _policy: Option<&mut Loaded>) -> Result<Value, String> {
    let hex = input.as_str().unwrap_or("");
    let object: Vec<u8> = (0..hex.len() / 2)
        .filter_map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok())
        .collect();
    let attempt = |object: &[u8], options: LoadOptions| match Loaded::load(object, &options) {
        Ok(_) => "it was loaded".to_string(),
        Err(e) => e.to_string(),
    };
    let variables = |of: &[(&str, i128)]| LoadOptions {
        variables: of
            .iter()
            .map(|(n, v)| (n.to_string(), Setting::Number(*v)))
            .collect(),
        ..LoadOptions::default()
    };
    let variable = |name: &str, value: i128| variables(&[(name, value)]);
    let mut out = json!({
        "garbage": attempt(b"not an object", LoadOptions::default()),
        "variable": attempt(&object, variable("slice_nz", 1)),
        "value": attempt(&object, variable("slice_ns", -1)),
        "ops": attempt(&object, LoadOptions { ops: Some("other".to_string()), ..LoadOptions::default() }),
        "map": attempt(&object, LoadOptions {
            map_entries: [("counterz".to_string(), 3)].into(), ..LoadOptions::default() }),
        "init": attempt(&object, variable("fail_init", -12)),
        "always": attempt(&object, variable("fail_task", -12)),
        "another": attempt(&object, variables(&[("fail_task", -22), ("fail_once", 0xf22)])),
    });
    let first = Loaded::load(&object, &LoadOptions::default()).map_err(|e| e.to_string())?;
    out["busy"] = json!(attempt(&object, LoadOptions::default()));
    drop(first);
    std::thread::sleep(Duration::from_millis(200));
    let state = berth_scx::status().map_err(|e| e.to_string())?.state;
    out["after"] = json!(state.to_string());
    Ok(out)
}

// --- a policy that starves a thread is ejected

fn victim(assets: &Assets) -> Result<String, String> {
    let load = LoadOptions {
        variables: [("stall".to_string(), Setting::Text("true".to_string()))].into(),
        timeout_ms: Some(1_000),
        ..LoadOptions::default()
    };
    let answer = inside(
        assets,
        "victim",
        host(1, 1, 1, 2, 1),
        policy(load),
        json!({}),
    )?;
    let p = answer.policy.as_ref().ok_or("no policy report")?;
    check(!p.lasted && p.exit.is_error(), format!("{p:?}"))?;
    check(
        p.exit.reason.contains("stall") && p.exit.message.contains("victim"),
        format!("exit record: {}", p.exit),
    )?;
    check(
        answer.notes.iter().any(|n| n.contains("stall")),
        format!("the kernel's complaint is no note: {:?}", answer.notes),
    )?;
    Ok(p.exit.to_string())
}

pub fn victim_inside(_input: &Value, policy: Option<&mut Loaded>) -> Result<Value, String> {
    let policy = policy.ok_or("no policy")?;
    let victim = std::thread::Builder::new().name("victim".to_string());
    let thread = victim
        .spawn(|| std::thread::sleep(Duration::from_millis(10)))
        .map_err(|e| e.to_string())?;
    let record = policy
        .watch(Duration::from_secs(10))
        .map_err(|e| e.to_string())?;
    // The kernel's own scheduler lets it run again.
    thread.join().map_err(|_| "the thread panicked")?;
    match record {
        Some(r) => Ok(json!(r.to_string())),
        None => Err("the watchdog let it be for ten seconds".to_string()),
    }
}

// --- the VM has the scenario's topology

fn topology(assets: &Assets) -> Result<String, String> {
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

// --- a scenario runs, also without the virtual clock

fn fast(assets: &Assets) -> Result<String, String> {
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
fn without_sched_ext(_: &Assets) -> Result<String, String> {
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

// --- two boots give the same bytes

fn same_bytes(assets: &Assets) -> Result<String, String> {
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

// --- a kernel that crashes and a VM that is too slow

fn failures(assets: &Assets) -> Result<String, String> {
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
