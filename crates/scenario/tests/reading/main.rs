// SPDX-License-Identifier: GPL-2.0-only
//! Files to models, and what is said about wrong ones.
use berth_scenario::model::*;
use berth_scenario::{Edit, Input, Loaded, read, shipped, show, support};

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

#[test]
fn hardware_keys() {
    let host = |text: &str| {
        let task = "[vm.a]\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\"\n";
        Input {
            name: "t".into(),
            shown: "t.toml".into(),
            text: format!("{text}\n{task}"),
            folder: None,
        }
    };
    let cost = |text: &str| read(&host(text), &[]).unwrap().scenario.host.cost;
    assert_eq!(cost(""), berth_scenario::cost::assumed());
    assert_eq!(cost("[host]\ncost = \"none\""), Default::default());
    let flat = cost("[host.cost]\nmigrate = { same_llc = \"9us\" }");
    assert_eq!((flat.migrate_same_llc_ns, flat.cache), (9000, None));
    let both = cost(
        "[host]\ncores = 3\nthreads = 2\nspeed = [\"1 x 100%\", \"2 x 55%\"]\nsmt_speed = \"70%\"\n\
         cache = { core = \"2MiB\", from_llc = \"10GB/s\" }\n[host.cost]\nvm_exit = \"2us\"",
    );
    let speeds: Vec<_> = both
        .kinds
        .iter()
        .map(|k| (&k.cores[..], k.speed_ppm))
        .collect();
    assert_eq!(speeds, [(&[0][..], 1_000_000), (&[1, 2], 550_000)]);
    assert_eq!(
        (both.smt_ppm, both.vm_exit_ns, both.vm_entry_ns),
        (700_000, 2000, 500)
    );
    let cache = both.cache.unwrap();
    assert_eq!(
        (cache.core_bytes, cache.from_llc, cache.llc_bytes),
        (2 << 20, 10_000, 32 << 20)
    );
    for (text, words) in [
        (
            "[host]\nspeed = [\"3 x 50%\"]",
            "about 3 cores, but the host has 4",
        ),
        ("[host]\nspeed = \"0%\"", "1% to 1000%"),
        (
            "[host]\nspeed = [\"2 x 1000%\", \"2 x 9%\"]",
            "the fastest core is 111 times as fast as the slowest",
        ),
        ("[host]\nspeed = [\"x\"]", "COUNT x PERCENT"),
        ("[host]\nsmt_speed = \"120%\"", "10% to 100%"),
        ("[host]\ncache = \"big\"", "\"none\" or a table"),
        ("[host.cache]\nfrom_llc = \"1kB/s\"", "at least 1MB/s"),
        ("[host.cost]\nprofile = \"fast\"", "default, lab, this-host"),
    ] {
        let error = read(&host(text), &[]).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    // Printed in full and read again, nothing changes.
    let input = host("[host]\ncache = \"none\"\nspeed = \"50%\"");
    let first = read(&input, &[]).unwrap();
    let text = berth_scenario::show::full(&first.facts);
    let again = read(&Input { text, ..input }, &[]).unwrap();
    assert_eq!(first.scenario, again.scenario);
}

#[test]
fn scores_of_vms() {
    let vm = |keys: &str| Input {
        name: "scores".into(),
        shown: "scores.toml".into(),
        text: format!("[vm.a]\nvcpus = 3\n{keys}\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\""),
        folder: None,
    };
    let of = |keys: &str| {
        let read = read(&vm(keys), &[]).unwrap();
        let text = berth_scenario::show::full(&read.facts);
        let shown = Input {
            text,
            ..vm(keys).clone()
        };
        let again = berth_scenario::read(&shown, &[]).unwrap();
        assert_eq!(read.scenario, again.scenario);
        [0, 1, 2].map(|vcpu| read.scenario.vms[0].score_milli(vcpu))
    };
    assert_eq!(of(""), [None; 3]);
    assert_eq!(of("score = \"175%\""), [Some(1750); 3]);
    assert_eq!(
        of("score = [\"2 x 187.5%\", \"100%\"]"),
        [Some(1875), Some(1875), Some(1000)]
    );
    for (keys, words) in [
        ("score = 2", "takes percentage, or a list"),
        ("score = \"175\"", "write for instance 50%"),
        ("score = \"99%\"", "100% to 10000%, not 99%"),
        ("score = \"0%\"", "100% to 10000%"),
        ("score = \"10001%\"", "100% to 10000%"),
        ("score = [\"0 x 110%\"]", "COUNT x PERCENT"),
        ("score = [\"2 x 110%\"]", "about 2 vCPUs, but the VM has 3"),
        ("score = []", "about 0 vCPUs, but the VM has 3"),
        ("score = [1]", "score"),
    ] {
        let error = read(&vm(keys), &[]).unwrap_err().to_string();
        assert!(
            error.contains(words) && error.contains("scores.toml:"),
            "{keys}: {error}"
        );
    }
}

#[test]
fn memory_of_vms() {
    let text = |host: &str, keys: &str| Input {
        name: "memory".into(),
        shown: "memory.toml".into(),
        text: format!(
            "[host]\n{host}\n[vm.a]\n{keys}\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\""
        ),
        folder: None,
    };
    let two = "packages = 2";
    let of = |host: &str, keys: &str, edits: &[Edit]| {
        let read = read(&text(host, keys), edits).unwrap_or_else(|e| panic!("{e}"));
        let shown = Input {
            text: berth_scenario::show::full(&read.facts),
            ..text(host, keys)
        };
        let again =
            berth_scenario::read(&shown, &[]).unwrap_or_else(|e| panic!("{e}\n{}", shown.text));
        assert_eq!(read.scenario, again.scenario);
        let scenario = read.scenario;
        (
            scenario.vms[0].memory_ppm.clone(),
            scenario.host.cost.remote_ppm,
        )
    };
    assert_eq!(of(two, "", &[]), (vec![], 0));
    assert_eq!(of(two, "memory = 1", &[]), (vec![0, 1_000_000], 0));
    let parts = "memory = [\"30%\", \"70%\"]";
    assert_eq!(of(two, parts, &[]).0, [300_000, 700_000]);
    // Of a node that is left out, none.
    assert_eq!(of(two, "memory = [\"100%\"]", &[]).0, [1_000_000, 0]);
    assert_eq!(of("", "memory = 0", &[]).0, [1_000_000]);
    let remote = |times: &str| of(&format!("{two}\nremote_memory = {times}"), parts, &[]).1;
    assert_eq!(
        [remote("1"), remote("1.0"), remote("1.5"), remote("100")],
        [0, 0, 1_500_000, 100_000_000]
    );
    // Without effect where no node is another one.
    assert_eq!(of("remote_memory = 2", "", &[]).1, 2_000_000);
    let set = |edit: &str| of(two, parts, &[Edit::Set(edit.into())]);
    assert_eq!(set("vm.a.memory=0").0, [1_000_000, 0]);
    assert_eq!(set("vm.a.memory=[\"10%\", \"90%\"]").0, [100_000, 900_000]);
    assert_eq!(set("host.remote_memory=1.25").1, 1_250_000);
    let times = "`host.remote_memory` is";
    for (host, keys, words) in [
        (
            two,
            "memory = 2",
            "there is no node 2|the host has nodes 0 to 1",
        ),
        (two, "memory = -1", "there is no node -1"),
        (
            "",
            "memory = 1",
            "there is no node 1|the host has one node, 0",
        ),
        (two, "memory = \"1\"", "`vm.a.memory` takes node, or list"),
        (two, "memory = 0.5", "`vm.a.memory` takes node, or list"),
        (
            two,
            "memory = [\"50%\", \"40%\"]",
            "are 90% together, but should be 100%",
        ),
        (two, "memory = [\"50%\", \"60%\"]", "are 110% together"),
        (two, "memory = []", "are 0% together"),
        (two, "memory = [\"150%\", \"-50%\"]", "-50"),
        (two, "memory = [0.5, 0.5]", "is a list of strings"),
        (two, "memory = [\"50\", \"50\"]", "write for instance 50%"),
        (
            two,
            "memory = [\"50%\", \"40%\", \"10%\"]",
            "there is no node 2",
        ),
        (
            "packages = 2\nremote_memory = 0.9",
            "",
            &format!("{times} 0.9, but should be 1 to 100"),
        ),
        (
            "packages = 2\nremote_memory = 0",
            "",
            &format!("{times} 0, "),
        ),
        (
            "packages = 2\nremote_memory = -2",
            "",
            &format!("{times} -2, "),
        ),
        (
            "packages = 2\nremote_memory = nan",
            "",
            &format!("{times} NaN, "),
        ),
        (
            "packages = 2\nremote_memory = inf",
            "",
            &format!("{times} inf, "),
        ),
        (
            "packages = 2\nremote_memory = \"150%\"",
            "",
            "takes number, 1 to 100, not",
        ),
    ] {
        let error = read(&text(host, keys), &[]).unwrap_err().to_string();
        let said = words.split('|').all(|words| error.contains(words));
        assert!(
            said && error.contains("memory.toml:"),
            "{host} {keys}: {error}"
        );
    }
}

#[test]
fn kinds_of_cores() {
    let task = "[vm.a]\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\"";
    let host = |text: &str| Input {
        name: "kinds".into(),
        shown: "kinds.toml".into(),
        text: format!("{text}\n{task}"),
        folder: None,
    };
    // Two last-level caches with two fast and four slow cores each; the rest by count.
    let input = host(
        "[host]\ncores = 12\nllcs = 2\nthreads = 2\n[host.kind.slow]\ncores = 8\nspeed = \"50%\"\nfrequency = \"80%\"\n\
         [host.kind.fast]\ncores = \"0-1,6-7\"\nsmt_speed = \"60%\"",
    );
    let first = read(&input, &[]).unwrap();
    let kinds = &first.scenario.host.cost.kinds;
    assert_eq!(kinds[0].cores, [2, 3, 4, 5, 8, 9, 10, 11]);
    assert_eq!(kinds[1].cores, [0, 1, 6, 7]);
    let said: Vec<_> = kinds
        .iter()
        .map(|k| (&k.name[..], k.speed_ppm, k.frequency_ppm, k.smt_ppm))
        .collect();
    assert_eq!(
        said,
        [
            ("slow", 500_000, 800_000, 0),
            ("fast", 1_000_000, 1_000_000, 600_000)
        ]
    );
    let text = berth_scenario::show::full(&first.facts);
    assert!(text.contains("[host.kind.fast]"), "{text}");
    let again = read(
        &Input {
            text,
            ..input.clone()
        },
        &[],
    )
    .unwrap();
    assert_eq!(first.scenario, again.scenario);
    let edits = [Edit::Set("host.kind.slow.speed=40%".into())];
    assert_eq!(
        read(&input, &edits).unwrap().scenario.host.cost.kinds[0].speed_ppm,
        400_000
    );
    // The lab brakes slow cores; a host has its own kinds, and the refusal says which line asks for others.
    support::check(&first.scenario, support::Place::Lab, &|_| None).unwrap();
    let refused = support::check(&first.scenario, support::Place::Host, &|address| {
        first.at(address)
    });
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("host.kind.slow, line 6"), "{said}");
    let fast = "[host.kind.fast]\ncores = 2";
    for (text, words) in [
        (format!("{fast}\nsped = \"50%\""), "did you mean `speed`"),
        (format!("{fast}\nspeed = \"0%\""), "1% to 1000%"),
        (format!("{fast}\nspeed = \"1001%\""), "1% to 1000%"),
        (
            format!("{fast}\n[host.kind.slow]\ncores = 2\nspeed = \"2%\"\nfrequency = \"40%\""),
            "the fastest core is 125 times as fast as the slowest",
        ),
        (format!("{fast}\nspeed = \"100001%\""), "more than 100000%"),
        (format!("{fast}\nspeed = 2"), "takes percent"),
        (format!("{fast}\nfrequency = \"120%\""), "1% to 100%"),
        (
            format!("{fast}\nsmt_speed = \"120%\""),
            "`host.kind.fast.smt_speed`",
        ),
        (
            fast.into(),
            "2 of the host's 4 cores are of no kind, the first is core 2",
        ),
        (
            format!("{fast}\n[host.kind.slow]\ncores = 3"),
            "the host has 4 cores, 1 too few",
        ),
        ("[host.kind.fast]\ncores = 0".into(), "a count of 1 to 4"),
        ("[host.kind.fast]\ncores = \"3-4\"".into(), "from 0 to 3"),
        (
            "[host.kind.a]\ncores = \"0-2\"\n[host.kind.b]\ncores = \"2-3\"".into(),
            "core 2 is of kind `a` and of kind `b`",
        ),
        ("[host.kind.fast]\nspeed = \"50%\"".into(), "needs `cores`"),
        (
            format!("[host]\nspeed = \"50%\"\n{fast}"),
            "both `host.speed` and kinds",
        ),
        ("[host]\nkind = 3".into(), "write [host.kind.NAME]"),
    ] {
        let error = read(&host(&text), &[]).unwrap_err().to_string();
        assert!(
            error.contains(words) && error.contains("kinds.toml:"),
            "{text}: {error}"
        );
    }
}

/// Last-level caches of a kind's own: which cores share one, and what is refused.
#[test]
fn caches_of_kinds() {
    let task = "[vm.a]\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\"";
    let host = |text: &str| Input {
        name: "caches".into(),
        shown: "caches.toml".into(),
        text: format!("{text}\n{task}"),
        folder: None,
    };
    let of_core = |input: &Input| {
        let host = read(input, &[])
            .unwrap_or_else(|e| panic!("{e}"))
            .scenario
            .host;
        CoreKind::llc_of_core(&host.cost.kinds, host.packages, host.cores)
    };
    // Dense cores share two, the others one.
    let dense = "[host]\ncores = 12\n[host.kind.classic]\ncores = 4\nllcs = 1\n[host.kind.dense]\ncores = 8\nllcs = 2";
    let input = host(dense);
    assert_eq!(
        of_core(&input),
        Some(vec![0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
    );
    // Cores of kinds that say nothing have one together, in each package; numbers go by the lowest core.
    let low = "[host]\npackages = 2\ncores = 4\n[host.kind.fast]\ncores = \"1,5\"\n[host.kind.low]\ncores = \"0,4\"\n\
               llcs = 2\n[host.kind.slow]\ncores = 4";
    assert_eq!(of_core(&host(low)), Some(vec![0, 1, 1, 1, 2, 3, 3, 3]));
    assert_eq!(
        of_core(&host("[host.kind.all]\ncores = 4")),
        None,
        "host.llcs says it"
    );
    // The whole file can be read again.
    let first = read(&input, &[]).unwrap();
    let text = berth_scenario::show::full(&first.facts);
    let again = read(
        &Input {
            text,
            ..input.clone()
        },
        &[],
    );
    assert_eq!(first.scenario, again.unwrap().scenario);
    // A lab VM's caches are all of a size.
    let refused = support::check(&first.scenario, support::Place::Lab, &|address| {
        first.at(address)
    });
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("host.kind.classic.llcs, line 5"), "{said}");
    let fast = "[host.kind.fast]\ncores = 2";
    let slow = "[host.kind.slow]\ncores = 2";
    for (text, words) in [
        (
            format!("[host]\nllcs = 2\n{fast}\nllcs = 1\n{slow}"),
            "the host has both `host.llcs` and kinds with caches of their own\n  caches.toml:5\n",
        ),
        (
            format!("[host]\nllcs = 1\n{fast}\nllcs = 1\n{slow}"),
            "the host has both `host.llcs` and kinds with caches of their own\n  caches.toml:5\n",
        ),
        (
            format!("[host]\ncores = 6\n{fast}\n[host.kind.slow]\ncores = 4\nllcs = 3"),
            "4 cores cannot be spread evenly over 3 last-level caches\n  caches.toml:7\n",
        ),
        (
            format!("{fast}\nllcs = 4\n{slow}"),
            "2 cores cannot be spread evenly over 4 last-level caches\n  caches.toml:3\n",
        ),
        (
            format!("{fast}\nllcs = 0\n{slow}"),
            "`host.kind.fast.llcs` is 0, but should be 1 to 4096\n  caches.toml:3\n",
        ),
        (format!("{fast}\nllcs = \"1\"\n{slow}"), "takes count"),
        (
            "[host]\npackages = 2\ncores = 3\n[host.kind.a]\ncores = \"0-3\"\nllcs = 2\n[host.kind.b]\ncores = 2"
                .into(),
            "a last-level cache would be of two packages: cores 2 and 3\n  caches.toml:6\n",
        ),
    ] {
        let error = read(&host(&text), &[]).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

/// Frequencies among which a policy chooses.
#[test]
fn frequency_steps_of_kinds() {
    let task = "[vm.a]\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\"";
    let host = |keys: &str| Input {
        name: "steps".into(),
        shown: "steps.toml".into(),
        text: format!("[host.kind.all]\ncores = 4\n{keys}\n{task}"),
        folder: None,
    };
    let input = host("steps = [\"1.9GHz\", \"800MHz\", \"1400000kHz\"]");
    let first = read(&input, &[]).unwrap();
    let kind = &first.scenario.host.cost.kinds[0];
    assert_eq!(kind.steps_khz, [800_000, 1_400_000, 1_900_000]);
    let text = show::full(&first.facts);
    let again = Input {
        text,
        ..input.clone()
    };
    assert_eq!(first.scenario, read(&again, &[]).unwrap().scenario);
    let none = Edit::Set("host.kind.all.steps=[\"2GHz\"]".into());
    let one = read(&input, &[none]).unwrap();
    assert_eq!(one.scenario.host.cost.kinds[0].steps_khz, [2_000_000]);
    let refused = support::check(&first.scenario, support::Place::Lab, &|address| {
        first.at(address)
    });
    let said = refused.unwrap_err().to_string();
    let expected = "the lab has no frequency steps: host.kind.all.steps, line 3";
    assert!(said.contains(expected), "{said}");
    for (keys, words) in [
        (
            "steps = []",
            "should have 1 to 64 frequencies\n  steps.toml:3\n",
        ),
        (
            "steps = [\"1.9\"]",
            "has no unit: write 1.9MHz or 1.9GHz\n  steps.toml:3\n",
        ),
        (
            "steps = [\"1GHz\", \"2%\"]",
            "`%` is not a unit of frequency",
        ),
        ("steps = [\"0GHz\"]", "outside 1MHz to 100GHz"),
        ("steps = [\"-1GHz\"]", "is negative"),
        (
            "steps = [\"1GHz\", \"1000MHz\"]",
            "has this frequency twice\n  steps.toml:3\n",
        ),
        (
            "steps = [\"10MHz\", \"2GHz\"]",
            "below 1% of its highest frequency\n  steps.toml:3\n",
        ),
        ("steps = \"1GHz\"", "takes list of frequencies, not"),
        ("steps = [1]", "is a list of strings\n  steps.toml:3\n"),
        (
            "steps = [\"1GHz\"]\nfrequency = \"50%\"",
            "kind `all` has both `frequency` and `steps`\n  steps.toml:3\n",
        ),
    ] {
        let error = read(&host(keys), &[]).unwrap_err().to_string();
        assert!(error.contains(words), "{keys}: {error}");
    }
}

/// What a phase of a task may say, and in which order.
#[test]
fn phases_of_tasks() {
    let text = |step: &str| {
        format!("[vm.a]\ntasks = [\"t\"]\n[task.t]\nloop = [\"{step}\", \"compute 1ms\"]\n")
    };
    let stall = |step: &str| load(&text(step)).scenario.tasks["t"].steps[0].clone();
    let of = |ppm, ipc_milli, working_set| {
        Step::Stall(berth_scenario::step::Stall {
            ppm,
            ipc_milli,
            working_set,
        })
    };
    assert_eq!(stall("stall 55%"), of(550_000, None, None));
    assert_eq!(stall("stall 0% ipc 0.8"), of(0, Some(800), None));
    let both = of(550_000, Some(800), Some(8 << 20));
    assert_eq!(stall("stall 55% ipc 0.8 working_set 8MiB"), both);
    assert_eq!(stall("stall 55%  working_set 8MiB ipc 0.8"), both);
    assert_eq!(stall("stall 5% working_set 0B"), of(50_000, None, Some(0)));
    for (step, words) in [
        ("stall", "`stall` takes the part of its time for which"),
        ("stall 101%", "`stall` takes 0% to 100%"),
        (
            "stall 5% ipc",
            "behind `stall` may stand `ipc` and a number",
        ),
        (
            "stall 5% ipc 17",
            "behind `stall` may stand `ipc` and a number",
        ),
        (
            "stall 5% ipc 1 ipc 1",
            "behind `stall` may stand `ipc` and a number",
        ),
        ("stall 5% working_set", "and `working_set` and a size"),
        ("stall 5% working_set 5", "`5` has no unit"),
        ("stall 5% working_set 2000GiB", "larger than 1024GiB"),
        ("stall 5% set 5MiB", "behind `stall` may stand `ipc`"),
    ] {
        let said = refusal(&text(step));
        assert!(
            said.contains(words) && said.contains("t.toml:4"),
            "{step}: {said}"
        );
    }
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
