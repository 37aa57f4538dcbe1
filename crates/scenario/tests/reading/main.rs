// SPDX-License-Identifier: GPL-2.0-only
//! Files to models, and what is said about wrong ones.
use berth_scenario::model::*;
use berth_scenario::{Edit, Input, Loaded, read, shipped, show, support};

mod hardware;
mod mistakes;

fn input(text: &str) -> Input {
    Input {
        name: "t".into(),
        shown: "t.toml".into(),
        text: text.into(),
        folder: None,
    }
}

fn load(text: &str) -> Loaded {
    read(&input(text), &[]).unwrap_or_else(|e| panic!("{e}\n--\n{text}"))
}

fn refusal(text: &str) -> String {
    match read(&input(text), &[]) {
        Ok(_) => panic!("was accepted:\n{text}"),
        Err(e) => e.to_string(),
    }
}

fn set(text: &str, edits: &[&str]) -> Result<Scenario, String> {
    let edits: Vec<_> = edits.iter().map(|e| Edit::Set(e.to_string())).collect();
    read(&input(text), &edits)
        .map(|l| l.scenario)
        .map_err(|e| e.to_string())
}

const SMALL: &str = r#"
[vm.web]
count = 2
tasks = ["hog"]
[task.hog]
model = "busy"
[arm.a]
policy = "vmfair"
[arm.b]
policy = "gfifo"
"#;

#[test]
fn noisy_neighbour() {
    let input = shipped::find("noisy-neighbour").unwrap();
    let Loaded {
        scenario, warnings, ..
    } = read(&input, &[]).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(scenario.title, "Noisy neighbour");
    assert_eq!(
        scenario.run,
        Run {
            warmup_ns: 2_000_000_000,
            measure_ns: 10_000_000_000,
            seeds: 10
        }
    );
    assert_eq!(scenario.host.nr_cpus(), 4);
    assert_eq!(scenario.host.hz, Hz::Ticks(250));
    let web = &scenario.vms[0];
    assert_eq!(
        (
            web.name.as_str(),
            web.count,
            web.vcpus,
            web.class,
            web.weight
        ),
        ("web", 2, 2, Class::Latency, 100)
    );
    let worker = &scenario.tasks["worker"];
    assert_eq!(worker.threads, Some(4));
    assert_eq!(
        worker.steps,
        [
            Step::Receive("users".into()),
            Step::Compute(Dist::Exp { mean_ns: 3e5 }),
            Step::Reply
        ]
    );
    assert_eq!(scenario.tasks["compile"].steps, [Step::Busy]);
    assert_eq!(
        scenario.clients[0].sends,
        Sends::Open {
            gap: Dist::Exp { mean_ns: 2.5e6 }
        }
    );
    assert_eq!(scenario.clients[0].reply_bytes, 8192);
    let arms: Vec<_> = scenario.arms.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(arms, ["linux", "credit", "vmfair", "flms"]);
    assert_eq!(scenario.baseline.as_deref(), Some("linux"));
    assert_eq!(scenario.expects[0].at_most, Some(Bound::Absolute(1e7)));
    assert_eq!(
        scenario.expects[1].at_least,
        Some(Bound::TimesBaseline(0.9))
    );
}

#[test]
fn every_shipped_scenario_is_clean_and_survives_full() {
    for (name, text) in shipped::SHIPPED {
        let first =
            read(&shipped::find(name).unwrap(), &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(first.warnings, Vec::<String>::new(), "{name}");
        assert!(
            shipped::question(text).len() > 40,
            "{name} says what it asks"
        );
        let mut again = input(&show::full(&first.facts));
        again.name = name.to_string();
        let second = read(&again, &[]).unwrap_or_else(|e| panic!("{name} in full: {e}"));
        assert_eq!(first.scenario, second.scenario, "{name}");
    }
}

#[test]
fn defaults_of_an_empty_file() {
    let Loaded {
        scenario, warnings, ..
    } = load("");
    assert_eq!(scenario.host.nr_cpus(), 4);
    assert_eq!(scenario.host.cost.switch_ns, 1000);
    assert_eq!(scenario.arms.len(), 2);
    assert_eq!(scenario.baseline.as_deref(), Some("linux"));
    assert!(warnings[0].contains("nothing runs"));
}

#[test]
fn the_error_of_the_guide() {
    let text = "[host]\ncores = 4\n\n[vm.web]\ncount = 2\nvcpu = 2\n";
    let expected = "unknown key `vcpu` in [vm.web]
  t.toml:6
    6 | vcpu = 2
      | ^^^^ did you mean `vcpus`?
  A VM may have: count, vcpus, class, weight, cap";
    let got = refusal(text).replace("reserved_vcpus, ", "");
    assert!(got.starts_with(expected), "{got}");
    assert!(got.ends_with("(berth scenario help vm)"), "{got}");
}

/// One row per kind of mistake: the file, and words that the answer must have.
#[test]
fn models_become_steps() {
    let text = r#"
        [vm.v]
        vcpus = 4
        tasks = ["l", "p", "e", "full"]
        [task.l]
        threads = 1
        model = "lookbusy"
        load = "25%"
        period = "20ms"
        [task.full]
        threads = 1
        model = "lookbusy"
        load = "100%"
        [task.p]
        threads = 1
        model = "periodic"
        compute = "exp(2ms)"
        [task.e]
        threads = 1
        model = "echo"
        [client.ping]
        to = "v"
        sends = "every 100ms"
    "#;
    let s = load(text).scenario;
    assert_eq!(
        s.tasks["l"].steps,
        [
            Step::Timer {
                period_ns: 20_000_000,
                grid: Grid::Random,
            },
            Step::Compute(Dist::Const(5_000_000))
        ]
    );
    assert_eq!(s.tasks["full"].steps, [Step::Busy]);
    assert_eq!(
        s.tasks["p"].steps,
        [
            Step::Timer {
                period_ns: 100_000_000,
                grid: Grid::Random,
            },
            Step::Compute(Dist::Exp { mean_ns: 2e6 })
        ]
    );
    assert_eq!(
        s.tasks["e"].steps,
        [
            Step::Receive("ping".into()),
            Step::Compute(Dist::Const(50_000)),
            Step::Reply
        ]
    );
}

#[test]
fn arms_change_what_they_say() {
    let text = r#"
        [vm.web]
        tasks = ["hog"]
        [vm.db]
        tasks = ["hog"]
        [task.hog]
        model = "busy"
        [arm.plain]
        policy = "vmfair"
        [arm.tuned]
        policy = "vmfair"
        preset = "fast"
        set = { "policy.slice" = "5ms", "policy.depth" = 3 }
        [arm.heavy]
        policy = "vmfair"
        set = { "vm.*.weight" = 300, "host.cost.switch" = "0us" }
    "#;
    let s = load(text).scenario;
    assert_eq!(s.baseline.as_deref(), Some("plain"));
    assert_eq!(s.arms[1].params["slice"], "5ms");
    assert_eq!(s.arms[1].params["depth"], "3");
    assert_eq!(s.arms[1].preset.as_deref(), Some("fast"));
    assert!(s.arms[1].scenario.is_none());
    let heavy = s.for_arm(&s.arms[2]);
    assert_eq!(
        heavy.vms.iter().map(|v| v.weight).collect::<Vec<_>>(),
        [300, 300]
    );
    assert_eq!(heavy.host.cost.switch_ns, 0);
    assert_eq!(s.vms[0].weight, 100);
    assert_eq!(s.arms[2].set["vm.*.weight"], "300");
}

#[test]
fn edits_of_the_command_line() {
    let s = set(
        SMALL,
        &[
            "vm.web.count=4",
            "host.cores=8",
            "run.measure=500ms",
            "vm.*.weight=7",
        ],
    )
    .unwrap();
    assert_eq!(
        (
            s.vms[0].count,
            s.host.cores,
            s.run.measure_ns,
            s.vms[0].weight
        ),
        (4, 8, 500_000_000, 7)
    );
    for one in ["0", "[0]", "\"0\""] {
        let s = set(SMALL, &[&format!("vm.web.affinity={one}")]).unwrap();
        assert_eq!(s.vms[0].affinity, [0], "{one}");
    }
    let s = set(SMALL, &["task.hog.loop=[\"compute 1ms\", \"sleep 1ms\"]"]);
    assert!(s.unwrap_err().contains("both a loop and a model"));
    let s = set(SMALL, &["policy.slice=5ms"]).unwrap();
    assert!(s.arms.iter().all(|a| a.params["slice"] == "5ms"));
    let s = set(SMALL, &["arm.a.set.vm.web.count=9"]).unwrap();
    assert_eq!(s.for_arm(&s.arms[0]).vms[0].count, 9);
    assert_eq!(s.for_arm(&s.arms[1]).vms[0].count, 2);
    let s = set(
        "",
        &[
            "compare.policies=[\"gfifo\"]",
            "policy.slice=1ms",
            "host.cost.migrate.same_llc=9us",
        ],
    )
    .unwrap();
    assert_eq!(s.arms[0].params["slice"], "1ms");
    assert_eq!(s.host.cost.migrate_same_llc_ns, 9000);

    for (edit, words) in [
        ("vm.web.count=0.5", "takes count, not a decimal number"),
        ("vm.web.vcpus=0", "a VM needs at least one vCPU"),
        ("vm.web.vcpu=1", "did you mean `vcpus`?"),
        ("vm.wep.count=1", "did you mean `web`?"),
        ("vm.web=1", "is a whole table"),
        ("host=1", "is a whole table"),
        ("vm..count=1", "is not an address"),
        ("vm.web.count", "does not say what to set"),
        ("vm.web.count=", "set to nothing"),
        ("vm.web.count.x=1", "which is no table"),
        ("vm.web.vcpus=1-4", "--vary vm.web.vcpus=1..4"),
        ("run.measure=5", "write \"5us\""),
        ("=", ""),
        ("nonsense.x=1", "unknown key `nonsense`"),
    ] {
        let said = set(SMALL, &[edit]).unwrap_err();
        assert!(said.contains(words), "{edit}: {said}");
        assert!(
            said.contains("command line") && said.contains(&format!("--set {edit}")),
            "{edit}: {said}"
        );
    }
}

#[test]
fn added_policies_are_arms() {
    let add = |text: &str, policy: &str| {
        let s = read(&input(text), &[Edit::AddPolicy(policy.into())])
            .unwrap()
            .scenario;
        s.arms
            .into_iter()
            .map(|a| (a.name, a.policy))
            .collect::<Vec<_>>()
    };
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    assert_eq!(
        add("", "x/my.bpf.c"),
        [
            pair("linux", "linux"),
            pair("vmfair", "vmfair"),
            pair("my", "x/my.bpf.c")
        ]
    );
    assert_eq!(
        add("[compare]\npolicies = [\"gfifo\"]", "my.bpf.o"),
        [pair("gfifo", "gfifo"), pair("my", "my.bpf.o")]
    );
    let arms = add(SMALL, "c");
    assert_eq!(
        arms.iter()
            .map(|a| a.0.as_str())
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        3
    );
}

#[test]
fn full_shows_origins() {
    let loaded = read(&input(SMALL), &[Edit::Set("vm.web.weight=50".into())]).unwrap();
    let full = show::full(&loaded.facts);
    let line = |start: &str| {
        full.lines()
            .find(|l| l.starts_with(start))
            .unwrap_or_else(|| panic!("no {start} in\n{full}"))
            .to_string()
    };
    assert!(line("count = 2").ends_with("# line 3"));
    assert!(line("weight = 50").ends_with("# command line"));
    assert!(line("seeds = 10").ends_with("# default"));
    assert!(line("# cap: no cap").ends_with("# default"));
    assert_eq!(read(&input(&full), &[]).unwrap().scenario, loaded.scenario);
}

#[test]
fn values_from_a_file() {
    let folder = tempdir();
    std::fs::write(folder.join("x.csv"), "# service times\n300us\n\n1ms\n").unwrap();
    std::fs::write(folder.join("bad.csv"), "300\n").unwrap();
    let text = |file: &str| {
        format!("[vm.v]\ntasks = [\"t\"]\n[task.t]\nloop = ['compute file(\"{file}\")']\n")
    };
    let read_it = |file: &str| {
        let mut input = input(&text(file));
        input.folder = Some(folder.clone());
        read(&input, &[])
            .map(|l| l.scenario.tasks["t"].steps.clone())
            .map_err(|e| e.to_string())
    };
    assert_eq!(
        read_it("x.csv"),
        Ok(vec![Step::Compute(Dist::Values(vec![300_000, 1_000_000]))])
    );
    assert!(
        read_it("bad.csv")
            .unwrap_err()
            .contains("bad.csv line 1: `300` has no unit")
    );
    assert!(read_it("none.csv").unwrap_err().contains("cannot read"));
    assert!(read_it(".").unwrap_err().contains("should be a file"));
    std::fs::remove_dir_all(&folder).unwrap();
}

fn tempdir() -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("berth-scenario-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn a_shared_cgroup_may_begin_like_a_vm() {
    let text = SMALL.replace("count = 2", "cgroup = \"web-all\"");
    assert_eq!(
        load(&text).scenario.vms[0].cgroup.as_deref(),
        Some("web-all")
    );
}

#[test]
fn guests_and_what_spinning_vcpus_do() {
    let plain = load(SMALL).scenario;
    assert_eq!(plain.host.ple_yield, None);
    let guest = &plain.vms[0].guest;
    assert!(guest.steal_accounting && guest.ple && !guest.hrtick);
    let said =
        "[host]\nple_yield = \"xen\"\n[vm.web.guest]\nsteal_accounting = false\nhrtick = true\n";
    let said = load(&format!("{SMALL}{said}"));
    assert_eq!(said.scenario.host.ple_yield, Some(PleYield::Xen));
    let guest = &said.scenario.vms[0].guest;
    assert!(!guest.steal_accounting && guest.hrtick);
    let text = show::full(&said.facts);
    assert_eq!(load(&text).scenario, said.scenario);
}

/// Stages of a packet's way: what the card makes of defaults, the whole file read again, and what the lab refuses.
#[test]
fn stages_of_the_network_are_the_simulators() {
    let vm = "[vm.web]\nguest = \"none\"\ntasks = [\"e\"]\n[task.e]\nmodel = \"echo\"\n\
              [client.c]\nto = \"web\"\nsends = \"every 1ms\"\n";
    let input = |text: String| Input {
        name: "s".into(),
        shown: "s.toml".into(),
        text,
        folder: None,
    };
    let of = |stages: &str| {
        let text = format!("{vm}[net]\npath = \"emulator\"\n[net.stages]\n{stages}\n");
        read(&input(text), &[]).unwrap()
    };
    let stages = |loaded: &Loaded| loaded.scenario.net.stages.clone().unwrap();
    let (virtio, emulated) = (of(""), of("card = \"emulated\""));
    assert_eq!(
        (stages(&virtio).copy_ns, stages(&virtio).inject_ns),
        (6_000, 4_000)
    );
    let slow = stages(&emulated);
    assert_eq!(
        (slow.copy_ns, slow.copy_byte_ns, slow.inject_ns),
        (18_000, 4, 10_000)
    );
    assert_eq!(
        stages(&of("card = \"emulated\"\ncopy = \"1us\"")).copy_ns,
        1_000
    );
    let again = read(&input(show::full(&emulated.facts)), &[]).unwrap();
    assert_eq!(emulated.scenario, again.scenario);

    let refused = |text: String| {
        let loaded = read(&input(text), &[]).unwrap();
        let at = |address: &str| loaded.at(address);
        support::check(&loaded.scenario, support::Place::Sim, &at).unwrap();
        let said = support::check(&loaded.scenario, support::Place::Lab, &at);
        said.unwrap_err().to_string()
    };
    // The path itself is refused first where the file names it.
    let net = "[net]\npath = \"emulator\"\n";
    assert!(refused(format!("{vm}{net}[net.stages]\n")).contains("no network"));
    let mut scenario = virtio.scenario.clone();
    scenario.net.irq_cpus = vec![1];
    scenario.vms[0].coverage_ppm = Some(500_000);
    scenario.vms[0].affinity = vec![0];
    scenario.vms[0].backend_affinity = vec![0];
    let asked: Vec<String> = support::uses(&scenario)
        .into_iter()
        .map(|u| u.address)
        .collect();
    for address in [
        "net.stages",
        "net.irq_cpus",
        "vm.web.coverage",
        "vm.web.backend_affinity",
    ] {
        assert!(asked.iter().any(|a| a == address), "{address}: {asked:?}");
    }
}
