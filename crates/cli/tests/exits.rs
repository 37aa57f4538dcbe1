// SPDX-License-Identifier: GPL-2.0-only
//! The command as a user meets it: what wrong input gets, exit statuses, what is kept.
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A run that is over in no time.
const SHORT: &str = r#"
[run]
warmup = "10ms"
measure = "200ms"
seeds = 2
[vm.web]
class = "latency"
vcpus = 2
tasks = ["worker"]
[vm.hog]
count = 3
vcpus = 2
tasks = ["burn"]
[task.worker]
loop = ["receive users", "compute exp(300us)", "reply"]
[task.burn]
model = "busy"
[client.users]
to = "web"
sends = "poisson(400/s)"
[compare]
policies = ["gfifo", "vmfair"]
"#;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new(scenario: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("short.toml"), scenario).unwrap();
        Place { dir }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command
            .current_dir(self.dir.path())
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    fn berth(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs it, expects this status, gives what it said on standard error.
    fn fails(&self, status: i32, arguments: &[&str]) -> String {
        let out = self.berth(arguments);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(
            out.status.code(),
            Some(status),
            "berth {arguments:?} said: {said}"
        );
        assert!(said.contains("error: ") || status == 1, "{said}");
        said
    }

    /// Runs it, expects success, gives standard output.
    fn works(&self, arguments: &[&str]) -> String {
        let out = self.berth(arguments);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(
            out.status.code(),
            Some(0),
            "berth {arguments:?} said: {said}"
        );
        String::from_utf8(out.stdout).unwrap()
    }

    fn results(&self) -> serde_json::Value {
        let path = self.dir.path().join("berth-out/short/sim.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn has_results(&self) -> bool {
        self.dir.path().join("berth-out").exists()
    }
}

fn policy(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/policies/{name}.bpf.c"))
        .display()
        .to_string()
}

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
            "slice_us",
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

#[test]
fn a_run_from_start_to_end() {
    let place = Place::new(SHORT);
    let text = place.works(&["sim", "short.toml"]);
    for words in [
        "short · 4 CPUs",
        "web: response time",
        "vmfair against gfifo",
        "Report   berth-out/short/1/report.html",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(!text.contains('\x1b'), "no colour: not a terminal");
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    let results = place.results();
    assert_eq!(results["complete"], true);
    assert_eq!(results["provenance"]["command"], "berth sim short.toml");

    // The same again, in whatever order the runs are done, gives the same.
    place.works(&["sim", "short.toml", "--workers", "1"]);
    assert_eq!(place.results()["experiments"], results["experiments"]);

    // The provenance's scenario is the scenario.
    std::fs::write(
        place.dir.path().join("again.toml"),
        results["provenance"]["scenario"].as_str().unwrap(),
    )
    .unwrap();
    let json: serde_json::Value =
        serde_json::from_str(&place.works(&["sim", "again.toml", "--json"])).unwrap();
    assert_eq!(
        json["experiments"][0]["runs"],
        results["experiments"][0]["runs"]
    );

    let shown = place.works(&["results", "show", "berth-out/again", "--provenance"]);
    assert!(
        shown.contains("web: response time") && shown.contains("made by  berth sim again.toml"),
        "{shown}"
    );
    let said = place.fails(2, &["results", "show", "berth-out/again", "--side-by-side"]);
    assert!(
        said.contains("has no results of the lab: berth lab again"),
        "{said}"
    );
    let csv = place.works(&["sim", "short.toml", "--csv", "--seed", "2"]);
    assert!(
        csv.starts_with(
            "place,variant,arm,seed,vm,quantity,statistic,metric,unit,value\nsim,,gfifo,2,"
        ),
        "{csv}"
    );
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

#[test]
fn what_cannot_be_written_after_all_is_told_and_the_table_shown_all_the_same() {
    let place = Place::new(SHORT);
    // In the way of the newest results.
    std::fs::create_dir_all(place.dir.path().join("berth-out/short/sim.json")).unwrap();
    let out = place.berth(&["sim", "short.toml"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(
        String::from_utf8(out.stdout)
            .unwrap()
            .contains("web: response time")
    );
    assert!(
        String::from_utf8(out.stderr)
            .unwrap()
            .contains("cannot write")
    );
}

#[test]
fn a_full_disk_behind_standard_output_is_status_3() {
    let place = Place::new(SHORT);
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let out = place
        .command(&["sim", "short.toml", "--json"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(3));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("cannot write to standard output"), "{said}");
    assert!(place.has_results());
}

#[test]
fn a_cache_folder_that_cannot_be_used_is_told() {
    let place = Place::new(SHORT);
    // A file where the cache wants a folder: nothing can be unpacked.
    std::fs::write(place.dir.path().join("cache"), "in the way").unwrap();
    let file = policy("never");
    let out = place
        .command(&["policy", "check", &file])
        .env("XDG_CACHE_HOME", place.dir.path().join("cache"))
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("set BERTH_CACHE"), "{said}");
}

#[cfg(feature = "kernel")]
#[test]
fn a_cache_folder_of_the_lab_that_cannot_be_used_is_told() {
    let place = Place::new(SHORT);
    std::fs::write(place.dir.path().join("cache"), "in the way").unwrap();
    let out = place
        .command(&["lab", "short.toml", "--arm", "vmfair"])
        .env("BERTH_CACHE", place.dir.path().join("cache/berth"))
        .output()
        .unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("set BERTH_CACHE to one"), "{said}");
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

/// Waits until a program has used so much CPU time, however long that takes here. It must not end before.
fn until_worked(child: &mut Child, time: Duration) {
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    let used = || {
        // SAFETY: all-zero is a valid time, which the kernel fills, as it does the clock's number.
        unsafe {
            let (mut clock, mut used) = (0, std::mem::zeroed::<libc::timespec>());
            assert_eq!(libc::clock_getcpuclockid(pid, &raw mut clock), 0);
            assert_eq!(libc::clock_gettime(clock, &raw mut used), 0, "it has ended");
            Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
        }
    };
    while used() < time {
        // One that has ended is a clock that stands still.
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "it has ended too early: {ended:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ctrl_c_keeps_what_is_finished() {
    let place = Place::new(SHORT);
    // `--yes`: on a busy machine so many runs are asked about, on an idle one they are not.
    let mut child = place
        .command(&["sim", "short.toml", "--seeds", "100000", "--workers", "1"])
        .arg("--yes")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until_worked(&mut child, Duration::from_secs(2));
    // The shell's own `kill`: a bare machine has no program of that name.
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -INT {}", child.id())])
        .status()
        .unwrap();
    assert!(sent.success());
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(130), "{said}");
    assert!(said.contains("of 200000 runs are kept"), "{said}");
    // It ended, so it ended early: all of them would take hours.
    let results = place.results();
    assert_eq!(results["complete"], false);
    assert!(
        !results["experiments"][0]["runs"]
            .as_array()
            .unwrap()
            .is_empty()
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

#[test]
fn ctrl_c_ends_one_long_simulation_and_keeps_the_earlier_ones() {
    let place = Place::new(SHORT);
    // The second variant would take days.
    let mut child = place
        .command(&["sim", "short.toml", "--seeds", "1", "--workers", "1"])
        .args(["--vary", "run.measure=20ms,3000000s"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until_worked(&mut child, Duration::from_secs(2));
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -INT {}", child.id())])
        .status()
        .unwrap();
    assert!(sent.success());
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(130), "{said}");
    assert!(said.contains("2 of 4 runs are kept"), "{said}");
    assert_eq!(place.results()["complete"], false);
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
fn traces() {
    let place = Place::new(SHORT);
    // Of one run only.
    let said = place.fails(2, &["sim", "short.toml", "--trace", "all"]);
    assert!(
        said.contains("choose with --arm NAME and --seed N"),
        "{said}"
    );
    let said = place.fails(2, &["sim", "short.toml", "--trace", "9s"]);
    assert!(said.contains("is no time span"), "{said}");
    let one = [
        "sim",
        "short.toml",
        "--arm",
        "vmfair",
        "--seed",
        "1",
        "--trace",
    ];
    place.works(&[&one[..], &["..100ms"]].concat());
    let file = place.dir.path().join("berth-out/short/1/vmfair-1.pftrace");
    assert!(std::fs::metadata(&file).unwrap().len() > 500);
    let hash = place.results()["experiments"][0]["runs"][0]["hash"].clone();
    // A full disk: the results are the same, and kept.
    std::fs::remove_dir_all(place.dir.path().join("berth-out")).unwrap();
    let said = place.fails(
        3,
        &[&one[..], &["all", "--trace-out", "/dev/full"]].concat(),
    );
    assert!(
        said.contains("/dev/full is not whole") && said.contains("the results are kept"),
        "{said}"
    );
    assert_eq!(place.results()["experiments"][0]["runs"][0]["hash"], hash);
}

#[test]
fn no_trace_replaces_what_is_there() {
    let place = Place::new(SHORT);
    let one = "sim short.toml -q --arm vmfair --seed 1 --trace";
    let traced = |more: &[&str]| {
        let arguments: Vec<&str> = one.split(' ').chain(more.iter().copied()).collect();
        place.berth(&arguments)
    };
    let folder = place.dir.path().join("berth-out/short");
    let read = |path: &str| std::fs::read(folder.join(path)).unwrap();
    let out = traced(&["..50ms"]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(
        said.contains("trace berth-out/short/1/vmfair-1.pftrace: "),
        "{said}"
    );
    let first = read("1/vmfair-1.pftrace");
    assert!(traced(&["..100ms"]).status.success());
    assert!(read("2/vmfair-1.pftrace").len() > first.len());
    // The same once more: no new folder, and no second copy of the trace.
    assert!(traced(&["..100ms"]).status.success());
    assert_eq!(read("1/vmfair-1.pftrace"), first);
    let names = |folder: &Path| {
        let all = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = all
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let whole = ["report.html", "sim.csv", "sim.json", "sim.parquet"];
    assert_eq!(
        names(&folder),
        [&["1", "2", "latest"], &whole[..]].concat(),
        "nothing is left of how it was made"
    );
    assert_eq!(
        names(&folder.join("2")),
        [&whole[..], &["vmfair-1.pftrace"]].concat()
    );
    // Another trace of that name, of the user's: it stays.
    std::fs::write(folder.join("2/vmfair-1.pftrace"), "mine").unwrap();
    assert!(traced(&["..100ms"]).status.success());
    assert_eq!(read("2/vmfair-1.pftrace"), b"mine");
    assert!(read("2/vmfair-1-2.pftrace").len() > first.len());

    // A file that is named is refused if it is there, the scenario among all.
    std::fs::remove_dir_all(place.dir.path().join("berth-out")).unwrap();
    std::fs::write(place.dir.path().join("t.txt"), "mine").unwrap();
    for (file, kept) in [("short.toml", SHORT), ("t.txt", "mine")] {
        let out = traced(&["all", "--trace-out", file]);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("--trace-out {file}")) && said.contains("is there already"),
            "{said}"
        );
        let there = std::fs::read_to_string(place.dir.path().join(file)).unwrap();
        assert_eq!(there, kept);
    }
    assert!(!place.has_results());
    assert!(
        traced(&["all", "--trace-out", "new/t.pftrace"])
            .status
            .success()
    );
    assert!(place.dir.path().join("new/t.pftrace").is_file());
}

#[test]
fn an_output_folder_that_cannot_be_had_is_noticed_before_the_first_run() {
    let place = Place::new(SHORT);
    std::fs::write(place.dir.path().join("file"), "mine").unwrap();
    std::os::unix::fs::symlink("/nothing/here", place.dir.path().join("nowhere")).unwrap();
    // These would take days.
    let long = "sim short.toml -q --yes --set run.measure=3000000s --out";
    for out in ["file", "file/below", "nowhere", "/proc/x"] {
        let arguments: Vec<&str> = long.split(' ').chain([out]).collect();
        let said = place.fails(3, &arguments);
        assert!(
            said.contains("cannot write") && said.contains("nothing was run"),
            "{said}"
        );
    }
    // Looking leaves nothing behind.
    assert!(!place.has_results());
    place.fails(2, &["sim", "short.toml", "--set", "vm.web.vcpu=2"]);
    assert!(!place.has_results());
}

#[test]
fn a_standard_error_that_cannot_be_written_ends_nothing() {
    let place = Place::new(SHORT);
    let full = || Stdio::from(std::fs::File::create("/dev/full").unwrap());
    let status = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.stdout(Stdio::null()).stderr(full());
        command.status().unwrap().code()
    };
    assert_eq!(status(&["sim", "no-such"]), Some(2));
    assert_eq!(status(&["sim", "short.toml", "--nonsense"]), Some(2));
    // A trace is told of, and so is an arm that has no parameters.
    let noted = "sim short.toml -q --arm vmfair,linux --set policy.slice_us=1000";
    let noted: Vec<&str> = noted.split(' ').collect();
    assert_eq!(status(&noted), Some(0));
    assert!(place.has_results());
    let one = "sim short.toml -q --arm vmfair --seed 1 --trace all";
    let one: Vec<&str> = one.split(' ').collect();
    assert_eq!(status(&one), Some(0));
    assert!(
        place
            .dir
            .path()
            .join("berth-out/short/2/vmfair-1.pftrace")
            .is_file()
    );
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

#[test]
fn results_are_never_written_over() {
    let place = Place::new(SHORT);
    let run = ["sim", "short.toml", "-q"];
    let out = place.works(&run);
    assert!(out.contains("berth-out/short/1/report.html"), "{out}");
    place.works(&run);
    let folder = place.dir.path().join("berth-out/short");
    assert!(!folder.join("2").exists(), "the same again");
    let out = place.works(&["sim", "short.toml", "-q", "--set", "vm.hog.count=1"]);
    assert!(out.contains("berth-out/short/2/report.html"), "{out}");
    assert!(folder.join("1/sim.csv").is_file() && folder.join("latest/sim.parquet").is_file());
    let compare = [
        "results",
        "compare",
        "berth-out/short/1",
        "berth-out/short/latest",
    ];
    let said = place.works(&compare);
    assert!(
        said.contains("vm.hog.count: 3 -> 1") && said.contains("metrics not told apart"),
        "{said}"
    );
    let json = place.works(&[&compare[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["rows"].as_array().unwrap().len() > 20);
    let said = place.fails(2, &["results", "compare", "berth-out/short/1", "berth-out"]);
    assert!(said.contains("there are no results"), "{said}");
    // What is no results file, or another version's, is not called absent.
    let write = |name: &str, text: &str| std::fs::write(place.dir.path().join(name), text).unwrap();
    let whole = std::fs::read_to_string(folder.join("1/sim.json")).unwrap();
    write("cut.json", &whole[..whole.len() / 2]);
    write("empty.json", "{}");
    write("newer.json", "{\"format\": 99, \"all\": \"new\"}");
    write("copy.json", &whole);
    let with = |name: &str| ["results", "compare", "berth-out/short/1", name].map(String::from);
    for (name, why) in [
        ("cut.json", "EOF while parsing"),
        ("empty.json", "missing field `format`"),
        ("newer.json", "its format is 99"),
    ] {
        let arguments = with(name);
        let said = place.fails(2, &arguments.each_ref().map(String::as_str));
        assert!(
            said.contains(&format!("{name} is not a results file")) && said.contains(why),
            "{said}"
        );
    }
    let arguments = with("copy.json");
    let said = place.works(&arguments.each_ref().map(String::as_str));
    assert!(said.contains("Made in the same way"), "{said}");
    let arguments = with("berth-out/short/2/sim.csv");
    let said = place.works(&arguments.each_ref().map(String::as_str));
    assert!(said.contains("vm.hog.count: 3 -> 1"), "{said}");
}
