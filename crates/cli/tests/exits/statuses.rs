// SPDX-License-Identifier: GPL-2.0-only
//! What wrong input gets, what is asked about, and exit statuses.
use super::*;

#[test]
fn wrong_input_is_status_2_and_runs_nothing() {
    let place = Place::new(SHORT);
    let rows: &[(&[&str], &str)] = &[
        (&["sim", "no-such"], "there is no scenario `no-such`"),
        (&["sim", "nothere.toml"], "there is no such file"),
        (&["sim", "."], "not a file"),
        (
            &["sim", "short.toml", "--set", "vm.web.vcpu=2"],
            "did you mean `vcpus`?",
        ),
        (
            &["sim", "short.toml", "--set", "run.measure=5"],
            "write \"5us\"",
        ),
        (&["sim", "short.toml", "--set", "host.cores=0"], "1 to 4096"),
        (
            &["sim", "short.toml", "--set", "host.cores=5000"],
            "1 to 4096",
        ),
        (
            &["sim", "short.toml", "--set", "vm.web.vcpus=0"],
            "at least one vCPU",
        ),
        (
            &["sim", "short.toml", "--set", "vm.web.weight=0"],
            "1 to 10000",
        ),
        (
            &["sim", "short.toml", "--set", "vm.web.affinity=[]"],
            "could run nowhere",
        ),
        (
            &["sim", "short.toml", "--set", "host.kernel=5.4"],
            "Linux 5.4 has no sched_ext",
        ),
        (
            &["sim", "short.toml", "--set", "host.kernel=6.14"],
            "the simulator has: 6.18",
        ),
        (
            &["sim", "short.toml", "--set", "policy.slize_us=5"],
            "has no parameter `slize_us`; did you mean `slice_us`?",
        ),
        (
            &["sim", "short.toml", "--set", "policy.slice_us=0"],
            "| --set policy.slice_us=0",
        ),
        (
            &[
                "sim",
                "short.toml",
                "--arm",
                "linux",
                "--set",
                "policy.slice_us=500",
            ],
            "takes no parameters, and no other arm runs",
        ),
        (
            &["sim", "short.toml", "--vary", "vm.web.count=1,,2"],
            "a value is missing",
        ),
        (
            &["sim", "short.toml", "--arm", "vmfare"],
            "did you mean `vmfair`?",
        ),
        (
            &["sim", "short.toml", "--policy", "./nothere.bpf.c"],
            "nothere.bpf.c",
        ),
        (
            &["sim", "short.toml", "--policy", "vmfairr"],
            "did you mean `vmfair`?",
        ),
        (&["policy", "show", "vmfairr"], "did you mean `vmfair`?"),
        (
            &["policy", "check", "short.toml"],
            "there is no policy `short.toml` (for the file, write ./short.toml)",
        ),
        (
            &["policy", "check", "./short.toml"],
            "neither C source (.bpf.c) nor a compiled object (.bpf.o)",
        ),
        (
            &["scenario", "check", "nothere.toml"],
            "there is no such file",
        ),
        (&["scenario", "help", "vms"], "did you mean `vm`?"),
        (&["sim", "short.toml", "--seeds", "many"], "invalid value"),
        (&["sim"], "which scenario?"),
        (
            &["results", "show", "nothing"],
            "there are no results in nothing",
        ),
        (&["simulate"], "unrecognized subcommand"),
    ];
    for (arguments, words) in rows {
        let said = place.fails(2, arguments);
        assert!(
            said.contains(words),
            "berth {arguments:?} said:\n{said}\n-- without: {words}"
        );
        assert!(!said.contains("panicked"), "{said}");
    }
    assert!(!place.has_results());
}

#[test]
fn policies_that_cannot_be_loaded() {
    let place = Place::new(SHORT);
    let said = place.fails(2, &["sim", "short.toml", "--policy", &policy("broken")]);
    assert!(
        said.contains("broken.bpf.c:3:14: error: expected expression"),
        "{said}"
    );
    let said = place.fails(2, &["policy", "check", &policy("unknown")]);
    assert!(said.contains("scx_bpf_guess_best_cpu"), "{said}");
    assert!(!place.has_results());
}

#[test]
fn a_scheduler_that_is_a_program_has_no_runs_in_the_simulator() {
    let place = Place::new(SHORT);
    let table = place.works(&["sim", "short.toml", "--arm", "gfifo,scx_elsewhere"]);
    let why = "scx_elsewhere is a program that loads its policy itself: `berth lab` runs it";
    assert!(table.contains(why), "{table}");
    assert!(table.contains("gfifo"), "{table}");
}

#[test]
fn policies_that_misbehave_end_with_status_3_and_the_rest_is_kept() {
    let place = Place::new(SHORT);
    let rows = [
        ("endless", "endless.bpf.c:11"),
        ("wild", "0x40"),
        (
            "wider",
            "bytes beyond `turns` (section .data.turns), which has the 32 bytes",
        ),
        ("never", "runnable task stall"),
    ];
    for (name, words) in rows {
        let length = if name == "never" {
            "run.measure=9s"
        } else {
            "run.measure=100ms"
        };
        let said = place.fails(
            3,
            &[
                "sim",
                "short.toml",
                "--seed",
                "1",
                "--set",
                length,
                "--policy",
                &policy(name),
            ],
        );
        assert!(
            said.contains(&format!("arm {name}, seed 1: policy {name}")),
            "{said}"
        );
        assert!(said.contains(words), "{name}: {said}");
        assert!(said.contains("2 of 3 runs are kept"), "{said}");
        let results = place.results();
        assert_eq!(results["complete"], false);
        assert_eq!(
            results["experiments"][0]["runs"].as_array().unwrap().len(),
            2
        );
    }
}

/// The costs of this host: refused with the command that measures them, then measured, then used.
#[test]
fn costs_of_this_host() {
    let place = Place::new(&format!("[host.cost]\nprofile = \"this-host\"\n{SHORT}"));
    let berth = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.env("XDG_CONFIG_HOME", place.dir.path());
        let out = command.output().unwrap();
        (
            out.status.code(),
            String::from_utf8(out.stderr).unwrap(),
            out.stdout,
        )
    };
    let short = ["sim", "short.toml", "-q"];
    let (status, said, _) = berth(&short);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("`berth host --measure-costs` measures it"));
    assert!(said.contains("berth/this-host.toml") && said.contains("short.toml:2"));
    let (status, said, _) = berth(&["host", "--measure-costs"]);
    assert_eq!(status, Some(0), "{said}");
    let file = place.dir.path().join("berth/this-host.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\n[cost]\nswitch_ns"), "{text}");
    let (status, said, _) = berth(&short);
    assert_eq!(status, Some(0), "{said}");
    std::fs::write(&file, "[cost]\nswitch = 5\n").unwrap();
    let (status, said, _) = berth(&short);
    assert!(status == Some(2) && said.contains("switch"), "{said}");
    let (status, said, _) = berth(&["host", "--measure-costs", "/proc/nope"]);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("/proc/nope"));
}

#[test]
fn variants() {
    let place = Place::new(SHORT);
    let text = place.works(&[
        "sim",
        "short.toml",
        "--vary",
        "vm.hog.count=1,4",
        "--seeds",
        "1",
    ]);
    assert!(
        text.contains("with vm.hog.count=1") && text.contains("with vm.hog.count=4"),
        "{text}"
    );
    assert_eq!(place.results()["experiments"].as_array().unwrap().len(), 2);
    // Where the longest wait of them all is, and that command shows it.
    let look = text.lines().find_map(|l| l.trim().strip_prefix("Look "));
    let look: Vec<&str> = look.unwrap().split_whitespace().skip(1).collect();
    assert!(
        look[..4] == ["sim", "short.toml", "--set", "vm.hog.count=4"],
        "{look:?}"
    );
    place.works(&look);
}

#[test]
fn expectations_decide_the_status() {
    let expect = |bound: &str| {
        format!(
            "{SHORT}\n[[expect]]\nmetric = \"web.response.p99\"\narm = \"vmfair\"\nat_most = \"{bound}\"\n"
        )
    };
    let text = Place::new(&expect("10s")).works(&["sim", "short.toml"]);
    assert!(
        text.contains("ok   web.response.p99 of vmfair at most 10.0 s"),
        "{text}"
    );
    let place = Place::new(&expect("1ns"));
    let out = place.berth(&["sim", "short.toml"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        String::from_utf8(out.stdout)
            .unwrap()
            .contains("FAIL web.response.p99")
    );
    assert!(place.has_results());
}

/// What M-RSF and its model cannot take, by name; where a form has no value it says so and has the others.
#[test]
fn values_of_mrsf_out_of_range_are_told() {
    let place = Place::new(&SHORT.replace("\"gfifo\", \"vmfair\"", "\"mrsf\""));
    for (option, value, words) in [
        ("--servers", "0", "the number of servers is 0"),
        ("--room", "2", "goes from the number of servers, 3"),
        ("--load", "0", "the load is 0.0: it goes from 0.001 to 2"),
        ("--load", "1e-6", "it goes from 0.001 to 2"),
        ("--load", "-1", "it goes from 0.001 to 2"),
        ("--room", "-1", "goes from the number of servers, 3"),
        ("--servers", "-1", "it goes from 1 to 64"),
        ("--seeds", "-1", "2 to 1000"),
        ("--slice", "0", "a slice of 0"),
        ("--slice", "-1", "a slice of -1"),
    ] {
        let said = place.fails(2, &["model", "mrsf", option, value]);
        assert!(said.contains(words), "{said}");
    }
    for (set, words) in [
        ("policy.subqueues=0", "1 to 8"),
        ("policy.slice1=0", "1 to 100000"),
        ("policy.lambda_us=-1", "0 to 100000000"),
        ("policy.estimate=guess", "label, ema, none"),
        ("policy.aging=1e9", "0 to 1000000"),
    ] {
        let said = place.fails(2, &["sim", "short.toml", "--set", set]);
        assert!(said.contains(words), "{said}");
    }
    let full = place.works(&["model", "mrsf", "--load", "1", "--seeds", "0"]);
    assert!(full.contains("0/0") && !full.contains("NaN"), "{full}");
    // No run of a queue that fills for ages; large numbers stay numbers, in columns of their own.
    let long = place.works(&["model", "mrsf", "--load", "1", "--room", "1000"]);
    assert!(long.contains("not judged"), "{long}");
    let large = [
        "model", "mrsf", "--load", "2", "--room", "100000", "--seeds", "0",
    ];
    let large = place.works(&large);
    let row = large
        .lines()
        .find(|line| line.contains(" 100000 "))
        .unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    let numbers = words[..10]
        .iter()
        .all(|word| word.parse::<f64>().is_ok_and(f64::is_finite));
    assert!(numbers, "{row}");
}

/// A CPU for each queue, where there are fewer: said under the table, and only there.
#[test]
fn more_queues_than_cpus_are_noted() {
    let place = Place::new(&SHORT.replace("\"gfifo\", \"vmfair\"", "\"mrsf\""));
    for (cpus, noted) in [(2, true), (5, false)] {
        let cores = format!("host.cores={cpus}");
        let said = place.works(&[
            "sim",
            "short.toml",
            "--seed",
            "1",
            "--set",
            &cores,
            "--set",
            "policy.cpus=per_queue",
        ]);
        assert_eq!(
            said.contains("note: mrsf: more queues than CPUs"),
            noted,
            "{said}"
        );
    }
}

/// So are those of a policy inside a VM; what it counts is there by the group's name.
#[test]
fn more_queues_than_cpus_inside_are_noted() {
    for (vcpus, noted) in [(2, true), (5, false)] {
        let guest = format!(
            "vcpus = {vcpus}\nguest = {{ policy = \"mrsf\", set = {{ cpus = \"per_queue\" }} }}"
        );
        let crowd = "threads = 8\nloop = [\"compute 1ms\", \"sleep 100us\"]";
        let scenario = SHORT.replace("vcpus = 2", &guest);
        let place = Place::new(&scenario.replace("model = \"busy\"", crowd));
        let said = place.works(&["sim", "short.toml", "--arm", "vmfair", "--seed", "1"]);
        let note = "note: vmfair inside web: more queues than CPUs";
        assert_eq!(said.contains(note), noted, "{said}");
    }
}

/// A policy inside a VM that faults: the VM, the policy and the line.
#[test]
fn guest_policies_that_misbehave() {
    for (name, words) in [("endless", "endless.bpf.c:11"), ("wild", "wild.bpf.c:12")] {
        let guest = format!("vcpus = 2\nguest = {:?}", policy(name));
        let crowd = "threads = 5\nloop = [\"compute 1ms\", \"sleep 100us\"]";
        let scenario = SHORT.replace("vcpus = 2", &guest);
        let place = Place::new(&scenario.replace("model = \"busy\"", crowd));
        let said = place.fails(3, &["sim", "short.toml", "--arm", "vmfair", "--seed", "1"]);
        assert!(said.contains("VM ") && said.contains(words), "{said}");
        assert!(said.contains("(inside the guest)"), "{said}");
    }
}

/// A million combinations: how long that takes, and nothing is run without `--yes`.
#[test]
fn very_many_combinations_are_asked_about() {
    let place = Place::new(SHORT);
    let numbers: Vec<String> = (1..=1000).map(|n| n.to_string()).collect();
    let weights = format!("vm.web.weight={}", numbers.join(","));
    let counts = format!("vm.hog.weight={}", numbers.join(","));
    let vary = ["--vary", &weights, "--vary", &counts];
    let said = place.fails(2, &[&["sim", "short.toml"][..], &vary].concat());
    assert!(
        said.contains("1 000 000 combinations are 4 000 000 runs: about"),
        "{said}"
    );
    assert!(said.contains("--yes") && !place.has_results(), "{said}");
}

#[cfg(feature = "kernel")]
#[test]
fn what_the_lab_cannot_do_is_refused_before_anything_is_fetched() {
    let place = Place::new(SHORT);
    let refused = |arguments: &[&str], why: &str| {
        let out = place
            .command(arguments)
            .env("XDG_CACHE_HOME", place.dir.path().join("empty"))
            .output()
            .unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && !said.contains("kernel 7"), "{said}");
        assert!(!place.dir.path().join("empty").exists());
    };
    refused(
        &["lab", "hotplug", "--arm", "vmfair"],
        "the lab has no CPUs that come and go: host.hotplug, line",
    );
    refused(
        &[
            "lab",
            "short.toml",
            "--set",
            "host.cores=64",
            "--arm",
            "vmfair",
        ],
        "at most 4",
    );
    refused(&["lab", "short.toml", "--timeout", "0"], "--timeout");
    refused(
        &["lab", "short.toml", "--arm", "linux,scx_nowhere"],
        "Install it: cargo install scx_nowhere --locked",
    );
}

#[test]
fn a_check_goes_on_after_what_is_wrong() {
    let place = Place::new(SHORT);
    for (verb, good) in [("scenario", "short.toml"), ("policy", "gfifo")] {
        let out = place.berth(&[verb, "check", "gone-1", good, "gone-2"]);
        let (shown, said) = (out.stdout, out.stderr);
        let (shown, said) = (String::from_utf8(shown), String::from_utf8(said));
        let (shown, said) = (shown.unwrap(), said.unwrap());
        assert_eq!(out.status.code(), Some(2), "{shown}{said}");
        assert!(shown.contains(&format!("ok   {good}")), "{shown}");
        assert!(said.contains("gone-1") && said.contains("gone-2"), "{said}");
    }
}

#[test]
fn words_about_scenarios_and_policies() {
    let place = Place::new(SHORT);
    assert!(
        place
            .works(&["scenario", "list"])
            .contains("noisy-neighbour")
    );
    assert!(
        place
            .works(&["scenario", "check", "short.toml", "weights"])
            .contains("ok   short.toml · 4 CPUs · 4 VMs")
    );
    let full = place.works(&["scenario", "show", "short.toml", "--full"]);
    assert!(
        full.contains("weight = 100") && full.contains("# default") && full.contains("# line"),
        "{full}"
    );
    assert!(
        place
            .works(&["scenario", "show", "weights"])
            .starts_with("# Weights")
    );
    let _: serde_json::Value =
        serde_json::from_str(&place.works(&["scenario", "show", "short.toml", "--json"])).unwrap();
    assert!(
        place
            .works(&["scenario", "help", "steps"])
            .contains("compute exp(300us)")
    );
    let list = place.works(&["policy", "list"]);
    assert!(list.contains("vmfair") && list.contains("gfifo"), "{list}");
    let show = place.works(&["policy", "show", "vmfair"]);
    assert!(
        show.contains("slice_us") && show.contains("3000 us"),
        "{show}"
    );
    assert!(show.contains("bytes of each thread"), "{show}");
    assert!(
        place
            .works(&["policy", "show", "gfifo", "--source"])
            .contains("BPF_STRUCT_OPS")
    );
    assert!(
        place
            .works(&["policy", "supported"])
            .contains("scx_bpf_dsq_insert")
    );
    assert!(
        place
            .works(&["policy", "check", "vmfair"])
            .starts_with("ok   vmfair")
    );
    for page in [
        ["policy", "supported"],
        ["policy", "list"],
        ["scenario", "help"],
    ] {
        let page = place.works(&[page[0], page[1], "--markdown"]);
        assert!(page.starts_with("# ") && page.len() > 1000, "{page}");
    }
    assert!(place.works(&["--help"]).contains("Examples:"));
}

/// `vm.NAME.guest.preset`: its values count, the scenario's own win, an unknown one is refused.
#[test]
fn presets_of_guests() {
    let place = Place::new(
        "[run]\nwarmup = \"0s\"\nmeasure = \"300ms\"\nseeds = 1\n[host]\ncores = 1\n[vm.web]\nvcpus = 2\n\
         tasks = [\"work\"]\n[vm.web.guest]\npolicy = \"credit\"\n[task.work]\nthreads = 6\n\
         loop = [\"compute exp(3ms)\", \"sleep exp(2ms)\"]\n[compare]\npolicies = [\"vtime\"]\n",
    );
    let said = place.fails(
        2,
        &["sim", "short.toml", "--set", "vm.web.guest.preset=xen-3"],
    );
    assert!(
        said.contains("vm.web.guest") && said.contains("xen-3.4"),
        "{said}"
    );
    let hash = |set: &[&str]| {
        let mut arguments = vec!["sim", "short.toml"];
        set.iter().for_each(|s| arguments.extend(["--set", s]));
        place.works(&arguments);
        place.results()["experiments"][0]["runs"][0]["hash"]
            .as_str()
            .unwrap()
            .to_string()
    };
    let (plain, preset) = (hash(&[]), hash(&["vm.web.guest.preset=xen-3.4"]));
    assert_ne!(plain, preset);
    assert_eq!(preset.len(), 16);
}

#[test]
fn what_is_given_twice_is_refused() {
    let place = Place::new(SHORT);
    let file = policy("endless");
    let simulated = |options: &str| {
        let mut arguments = vec!["sim", "short.toml", "-q"];
        arguments.extend(options.split(' '));
        place.fails(2, &arguments)
    };
    for (options, wanted) in [
        (
            "--set vm.hog.count=1 --set vm.hog.count=2",
            "vm.hog.count is given twice: --set vm.hog.count=1 and --set vm.hog.count=2",
        ),
        (
            "--vary vm.hog.weight=1..3 --vary vm.hog.weight=4,5",
            "vm.hog.weight is given twice: --vary vm.hog.weight=1..3 and --vary vm.hog.weight=4,5",
        ),
        (
            "--vary vm.hog.weight=1..3 --set vm.hog.weight=4",
            "vm.hog.weight is given twice: --set vm.hog.weight=4 and --vary vm.hog.weight=1..3",
        ),
        (
            "--vary vm.*.weight=1..3 --set vm.hog.weight=4",
            "vm.hog.weight is given twice: --set vm.hog.weight=4 and --vary vm.*.weight=1..3",
        ),
        ("--vary vm.hog.weigth=1,2", "--vary vm.hog.weigth=1"),
        ("--vary vm.hog.weight=0,2", "--vary vm.hog.weight=0"),
        (
            "--arm linux --vary policy.slice_us=5",
            "--vary policy.slice_us=5",
        ),
        ("--vary vm.hog.weight=1..", "8..64..8"),
        ("--vary vm.hog.weight=..5", "8..64..8"),
        ("--vary vm.hog.weight=1-4", "--vary vm.hog.weight=1..4"),
        ("--vary vm.hog.weight=1..100..xx", "8..64..8"),
        ("--vary vm.hog.weight=0..1e30..1e-9", "8..64..8"),
    ] {
        let said = simulated(options);
        assert!(said.contains(wanted), "{options}: {said}");
    }
    for (options, wanted) in [
        (
            "--rodata x=5ms --rodata x=6ms",
            "x is given twice: --rodata x=5ms and --rodata x=6ms",
        ),
        (
            "--resize x=5 --resize x=5",
            "x is given twice: --resize x=5 and --resize x=5",
        ),
        ("--ops-flags none,ENQ_LAST", "`none` stands alone"),
    ] {
        let said = simulated(&format!("--policy {file} {options}"));
        assert!(said.contains(wanted), "{options}: {said}");
    }
    let shown = "scenario show short.toml --set vm.hog.count=1 --set vm.hog.count=2";
    let shown: Vec<&str> = shown.split(' ').collect();
    assert!(place.fails(2, &shown).contains("is given twice"));
    assert!(!place.has_results());
    // One for all, and then another for one of them.
    place.works(&[
        "sim",
        "short.toml",
        "-q",
        "--set",
        "vm.*.weight=50",
        "--set",
        "vm.hog.weight=20",
    ]);
}

#[test]
fn a_cap_is_kept_or_the_policy_refused() {
    let place = Place::new(&SHORT.replace("[vm.web]\n", "[vm.web]\ncap = \"0.5 CPUs\"\n"));
    let said = place.fails(2, &["sim", "short.toml", "-q"]);
    for part in [
        "arm gfifo",
        "VM web",
        "berth_vms",
        "linux, amp, credit, eevdf",
        "vmfair",
    ] {
        assert!(said.contains(part), "no {part} in: {said}");
    }
    assert!(!said.contains("vtime"), "{said}");
    let kept = r#"["linux", "amp", "credit", "eevdf", "flms", "lottery", "vmfair"]"#;
    let capped = SHORT.replace("[vm.web]\n", "[vm.web]\ncap = \"0.5 CPUs\"\n");
    let place = Place::new(&capped.replace(r#"["gfifo", "vmfair"]"#, kept));
    let out = place.berth(&["sim", "short.toml", "-q"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
}

#[test]
fn a_check_finds_what_a_run_would_refuse() {
    let place = Place::new(SHORT);
    let check = |set: &str| place.fails(2, &["scenario", "check", "short.toml", "--set", set]);
    let said = check("compare.policies=[\"gfifo\", \"./nothere.bpf.c\"]");
    assert!(
        said.contains("nothere.bpf.c") && said.contains("--set"),
        "{said}"
    );
    let said = check("host.kernel=\"9.9\"");
    assert!(said.contains("9.9") && said.contains("6.18"), "{said}");
    let file = SHORT.replace("[\"gfifo\", \"vmfair\"]", "[\"vmfare\"]");
    std::fs::write(place.dir.path().join("other.toml"), file).unwrap();
    let said = place.fails(2, &["scenario", "check", "other.toml"]);
    assert!(
        said.contains("other.toml:22") && said.contains("vmfair"),
        "{said}"
    );
    assert!(
        place
            .works(&["scenario", "check", "short.toml"])
            .contains("2 arms")
    );
    let one = ["scenario", "check", "short.toml", "--set", "host.cores=1"];
    assert!(place.works(&one).contains("1 CPU ·"));
}

#[test]
fn what_takes_minutes_is_asked_for() {
    let place = Place::new(SHORT);
    let many = "client.users.sends=poisson(1000000000/s)";
    let run = [
        "sim",
        "short.toml",
        "-q",
        "--set",
        "run.measure=100s",
        "--set",
        many,
    ];
    let said = place.fails(2, &run);
    assert!(
        said.contains("minutes or more") || said.contains("hours or more"),
        "{said}"
    );
    assert!(said.contains("--yes") && !place.has_results(), "{said}");
    let check = [
        "scenario",
        "check",
        "short.toml",
        "--set",
        "run.measure=100s",
        "--set",
        many,
    ];
    assert!(place.works(&check).contains("or more"));
}

/// What takes long for its time or its VMs, and what has more VMs than a policy has room for.
#[test]
fn long_times_and_many_vms_are_found_before() {
    let place = Place::new(
        "[run]\nwarmup = \"0s\"\nseeds = 1\n[host]\ncores = 1\n[vm.v]\ncount = 2\ntasks = [\"burn\"]\n\
         [task.burn]\nmodel = \"busy\"\n[compare]\npolicies = [\"linux\", \"vmfair\"]\n",
    );
    let long = ["run.measure=2400h", "host.cores=4", "vm.v.count=8"].map(|s| ["--set", s]);
    let long = [&["sim", "short.toml", "-q"][..], long.as_flattened()].concat();
    let said = place.fails(2, &long);
    assert!(
        said.contains("minutes or more") && said.contains("--yes"),
        "{said}"
    );
    let check = ["scenario", "check", "short.toml", "--set"];
    for (count, room) in [(4096, 4095), (100_000, 4095)] {
        let set = format!("vm.v.count={count}");
        let said = place.fails(2, &[&check[..], &[&set]].concat());
        let words = format!("has {count} VMs, and policy linux has room for {room}");
        assert!(
            said.contains(&words) && said.contains("vm.v.count"),
            "{said}"
        );
    }
    place.works(&[&check[..], &["vm.v.count=4095"]].concat());
    // As many do run.
    let most = ["--set", "vm.v.count=4095", "--set", "run.measure=1ms"];
    place.works(&[&["sim", "short.toml", "-q"][..], &most].concat());
    assert!(place.has_results());
}
