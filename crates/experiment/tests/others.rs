// SPDX-License-Identifier: GPL-2.0-only
//! Schedulers of others: in the style of the kernel's and the scx project's examples, with what those use (maps in
//! maps, arenas, objects in trees, timers, masks, queues), as the loaders of those with their names start them. The
//! part of the CPU time that the heavy VMs have is what one computes by hand.
use berth_experiment::foreign::{self, Machine};
use berth_policy::loader::calls::{Call, When};
use berth_policy::loader::{Setup, ready};
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::model::{Host, Loader, Scenario};
use berth_scenario::{Input, read};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Weights of nice 0 and -5 in Linux's table, per cent of nice 0.
const NICE: (f64, f64) = (100.0, 305.0);

/// Two light hogs and two heavy ones on a CPU.
const HOGS: &str = "[host]\ncores = 1\n[vm.light]\ncount = 2\ntasks = [\"hog\"]\n\
                    [vm.heavy]\ncount = 2\nnice = -5\ntasks = [\"hog\"]\n";
const MANY: &str = "[host]\ncores = 1\n[vm.light]\ncount = 8\ntasks = [\"hog\"]\n\
                    [vm.heavy]\ncount = 8\nnice = -5\ntasks = [\"hog\"]\n";
const GROUPS: &str = "[host]\ncores = 1\n[vm.light]\ncount = 2\ntasks = [\"hog\"]\n\
                      [vm.heavy]\ncount = 2\nweight = 300\ntasks = [\"hog\"]\n";
/// One thread, and two of another VM.
const PAIR: &str = "[host]\ncores = 2\n[vm.light]\ntasks = [\"hog\"]\n\
                    [vm.heavy]\nvcpus = 2\ntasks = [\"two\"]\n[task.two]\nmodel = \"busy\"\nthreads = 2\n";

/// Scheduler, scenario, part of the heavy VMs, all that both have in CPUs.
const OTHERS: [(&str, &str, f64, f64); 14] = [
    // By weighted virtual time: in one queue, one for each CPU, with data in an arena, on few warm CPUs.
    ("simple", HOGS, NICE.1 / (NICE.0 + NICE.1), 1.0),
    ("percpu_vtime", HOGS, NICE.1 / (NICE.0 + NICE.1), 1.0),
    ("arena_tasks", HOGS, NICE.1 / (NICE.0 + NICE.1), 1.0),
    ("nest", HOGS, NICE.1 / (NICE.0 + NICE.1), 1.0),
    // The same, where a CPU that its loader names takes the others from who has had its slice.
    ("tickless", HOGS, NICE.1 / (NICE.0 + NICE.1), 1.0),
    // First come, first served; by one CPU for all; by kinds of bursts, of which there is one here.
    ("sticky", HOGS, 0.5, 1.0),
    ("central", HOGS, 0.5, 1.0),
    ("burst_split", HOGS, 0.5, 1.0),
    // Turns as long as the weight says, in whole ticks of 4 ms: 40 ms and what a switch takes are 11, 122 are 31.
    ("arena_queue", HOGS, 31.0 / (31.0 + 11.0), 1.0),
    // 4 from the third queue, then 8 from the fourth.
    ("qmap", HOGS, 8.0 / 12.0, 1.0),
    // 2 of the middle band, 3 of the heavy one.
    ("fifo_bands", MANY, 3.0 / 5.0, 1.0),
    // By the weight of cgroups.
    ("flatcg", GROUPS, 3.0 / 4.0, 1.0),
    ("share_tree", GROUPS, 3.0 / 4.0, 1.0),
    // Both CPUs for one cgroup, then for the other, which has one thread for them.
    ("pair", PAIR, 2.0 / 3.0, 1.5),
];

/// Those that a row of the table is for.
const WITH_LOADER: [&str; 7] = [
    "simple", "nest", "tickless", "central", "qmap", "flatcg", "pair",
];

fn source(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["tests/policies", "../policy/tests/policies"];
    let mut places = folders
        .map(|f| here.join(f).join(format!("{name}.bpf.c")))
        .into_iter();
    places
        .find(|p| p.exists())
        .unwrap_or_else(|| panic!("there is no {name}"))
}

/// 20 s of these VMs.
fn scenario_of(vms: &str) -> Scenario {
    let text = format!(
        "title = \"others\"\n[run]\nwarmup = \"0s\"\nmeasure = \"20s\"\n[compare]\npolicies = [\"vtime\"]\n\
         {vms}[task.hog]\nmodel = \"busy\"\n"
    );
    let input = Input {
        name: "others".into(),
        shown: "others".into(),
        text,
        folder: None,
    };
    let read = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
    read.scenario
}

#[test]
fn schedulers_of_others_share_as_computed_by_hand() {
    let mut wrong = Vec::new();
    for (name, scenario, wanted, cpus) in OTHERS {
        let host = scenario_of(scenario);
        let none = BTreeMap::new();
        let path = source(name).display().to_string();
        let machine = Machine::host(&host.host);
        let ready = foreign::ready(&path, &Loader::default(), &machine);
        let ready = ready.unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let by_loader = ready.notes.iter().any(|n| n.contains("are as scx_"));
        assert_eq!(
            by_loader,
            WITH_LOADER.contains(&name),
            "{name}: {:?}",
            ready.notes
        );
        let policy = Policy::from_object(&ready.object, &LoadOptions::default());
        let policy = policy.unwrap_or_else(|e| panic!("{name}: {e}"));
        let run = run_one(&host, name, &policy, &none, 1, &Options::default());
        let metrics = match run {
            Ok(run) => run.metrics,
            Err(e) => {
                wrong.push(format!("{name}: {e}"));
                continue;
            }
        };
        let (light, heavy) = (metrics["light.cpu"], metrics["heavy.cpu"]);
        let (share, all) = (heavy / (heavy + light), heavy + light);
        if (share - wanted).abs() > 0.01 || (all - cpus).abs() > 0.01 * cpus {
            wrong.push(format!(
                "{name}: {share} of {all} CPUs instead of {wanted} of {cpus}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a loader leaves undone is noticed: a slice of nothing, a scheduler whose programs nobody runs.
#[test]
fn without_their_loaders_they_are_others() {
    let hogs = scenario_of(HOGS);
    let run = |name: &str| {
        let object = foreign::object(&source(name).display().to_string(), &Loader::default());
        let policy = Policy::from_object(&object.unwrap(), &LoadOptions::default()).unwrap();
        let options = Options::default();
        run_one(&hogs, name, &policy, &BTreeMap::new(), 1, &options)
    };
    let metrics = run("nest").unwrap().metrics;
    let share = metrics["heavy.cpu"] / (metrics["heavy.cpu"] + metrics["light.cpu"]);
    assert!((share - 0.5).abs() < 0.01, "{share}");
    let said = run("tickless")
        .err()
        .map(|e| e.to_string())
        .unwrap_or_default();
    assert!(said.contains("ops.init() failed (-22)"), "{said}");
}

/// A scheduler whose loader runs this program before the start.
fn with_program(source: &Path, program: &str, arguments: Vec<i32>) -> Policy {
    let object = foreign::object(&source.display().to_string(), &Loader::default());
    let setup = Setup {
        cpus: 1,
        kernel: (7, 2),
        calls: vec![Call {
            program: program.into(),
            arguments,
            when: When::Before,
        }],
        ..Setup::default()
    };
    let object = ready(&object.unwrap(), &setup).unwrap().object;
    Policy::from_object(&object, &LoadOptions::default()).unwrap()
}

/// Translated and interpreted.
const CHECKED: [bool; 2] = [false, true];

fn in_mode(checked: bool) -> Options {
    Options {
        checked,
        ..Options::default()
    }
}

/// Functions of the scheduler core find no scheduler before it is there, and do nothing to it, as on a kernel: the lab
/// runs the same program.
#[test]
fn before_the_start_there_is_no_scheduler() {
    let policy = with_program(&source("early"), "early", Vec::new());
    let hogs = scenario_of(HOGS);
    for checked in CHECKED {
        let none = BTreeMap::new();
        let run = run_one(&hogs, "early", &policy, &none, 1, &in_mode(checked));
        let metrics = run.unwrap_or_else(|e| panic!("{checked}: {e}")).metrics;
        let all = metrics["light.cpu"] + metrics["heavy.cpu"];
        assert!((all - 1.0).abs() < 0.01, "{checked}: {all}");
    }
}

/// A program reads its context and nothing that lies around it, wherever the context is.
#[test]
fn beyond_a_programs_context_there_is_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("far.bpf.c");
    let text = std::fs::read_to_string(source("early")).unwrap();
    let program = "\nstruct by { s32 bytes; };\nSEC(\"syscall\")\nint far(struct by *by)\n{\n\
                   \treturn 0 & *(volatile u8 *)((void *)by + by->bytes);\n}\n";
    std::fs::write(&file, text + program).unwrap();
    let mut scenario = scenario_of(HOGS);
    (scenario.run.warmup_ns, scenario.run.measure_ns) = (0, 1_000_000);
    let policy = with_program(&file, "far", vec![0]);
    let run = |policy: &Policy, checked| {
        let none = BTreeMap::new();
        run_one(&scenario, "far", policy, &none, 1, &in_mode(checked)).map(|_| ())
    };
    let offsets = (1..64).flat_map(|i| [-1024 * i, 1024 * i + 8, 8 * i]);
    for checked in CHECKED {
        run(&policy, checked).unwrap();
        for by in offsets.clone() {
            let policy = with_program(&file, "far", vec![by]);
            let said = run(&policy, checked).err().map(|e| e.to_string());
            let said = said.unwrap_or_else(|| panic!("{checked}: {by} bytes from its context"));
            assert!(
                said.contains("which it may not touch"),
                "{checked}, {by}: {said}"
            );
        }
    }
}

/// Calls that cannot be made end the scheduler with their name.
#[test]
fn what_a_program_of_a_loader_gives_is_looked_at() {
    let host = |cores| {
        Machine::host(&Host {
            cores,
            ..Host::default()
        })
    };
    let path = source("tickless").display().to_string();
    // Its timer is to be on a CPU that this host lacks.
    let ready = foreign::ready(&path, &Loader::default(), &host(4)).unwrap();
    let policy = Policy::from_object(&ready.object, &LoadOptions::default()).unwrap();
    let hogs = scenario_of(HOGS);
    let options = Options::default();
    let ran = run_one(&hogs, "tickless", &policy, &BTreeMap::new(), 1, &options);
    let said = ran.err().map(|e| e.to_string()).unwrap_or_default();
    let wanted = "start_timer(3), which its loader runs, is to run on CPU 3 of 1";
    assert!(said.contains(wanted), "{said}");
}
