// SPDX-License-Identifier: GPL-2.0-only
//! What becomes of results and traces, finished or interrupted, and of what cannot be written.
use super::*;

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
