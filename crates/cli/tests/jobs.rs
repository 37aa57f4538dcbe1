// SPDX-License-Identifier: GPL-2.0-only
//! A run as a value: done here or by another process it gives the same bytes; what was run is not run again.
use berth_experiment::job::{Job, Outcome, VERSION};
use berth_experiment::plan::plan;
use berth_experiment::runner::{Elsewhere, Here, Runner};
use berth_experiment::simulator::{Running, Simulator};
use berth_experiment::{Request, policies};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

/// A guest with a scheduler of its own, a client, and times that are no round numbers.
const WORLD: &str = r#"
[run]
warmup = "10ms"
measure = "100ms"
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
loop = ["receive users", "compute exp(301.7us)", "reply"]
[task.burn]
model = "busy"
[client.users]
to = "web"
sends = "poisson(401/s)"
[compare]
policies = ["linux", "vmfair"]
"#;

fn world() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("world.toml");
    std::fs::write(&file, WORLD).unwrap();
    (dir, file)
}

/// Every arm's job with seed 1: two shipped policies, and one from a file.
fn jobs(file: &Path) -> Vec<Job> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/gfifo.bpf.c");
    let request = Request {
        scenario: file.display().to_string(),
        policies: vec![own.display().to_string()],
        ..Request::default()
    };
    let running = Running::new(1, &NEVER);
    let mut plan = plan(&request, &policies::shipped(), None).unwrap();
    let simulator = Simulator::prepare(&mut plan, &running).unwrap();
    let arms = 0..plan.variants[0].arms.len();
    arms.map(|arm| simulator.job(0, arm, 1).unwrap()).collect()
}

fn berth(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
    command.current_dir(folder).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

/// What `berth job` does with this on its standard input.
fn given(text: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
        .arg("job")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn another_process_gives_the_same_bytes() {
    let (_dir, file) = world();
    let here = Here::default();
    let elsewhere = Elsewhere {
        program: env!("CARGO_BIN_EXE_berth").into(),
        arguments: vec!["job".into()],
    };
    let jobs = jobs(&file);
    assert_eq!(jobs.len(), 3);
    for job in &jobs {
        let text = serde_json::to_string(job).unwrap();
        let back: Job = serde_json::from_str(&text).unwrap();
        assert_eq!((&back, back.key()), (job, job.key()));
        let mine = here.run(job).unwrap();
        assert!(mine.metrics["web.response.count"] > 10.0);
        let written = |record| serde_json::to_string(&Outcome::new(job, Ok(record))).unwrap();
        let out = given(text.as_bytes());
        assert!(out.status.success());
        let said = String::from_utf8(out.stdout).unwrap();
        assert_eq!(said.trim_end(), written(mine.clone()));
        assert_eq!(written(elsewhere.run(job).unwrap()), written(mine));
    }
    // Jobs differ in their keys, whatever it is that differs.
    let mut keys: Vec<String> = jobs.iter().map(Job::key).collect();
    let mut other = jobs[0].clone();
    other.seed = 2;
    keys.push(other.key());
    other.scenario.run.measure_ns += 1;
    keys.push(other.key());
    other.policy.params.insert("slice_us".into(), "1".into());
    keys.push(other.key());
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 6);
    other = jobs[0].clone();
    other.scenario.run.seeds = 99;
    assert_eq!(
        other.key(),
        jobs[0].key(),
        "how many seeds there are is no part of a run"
    );
}

#[test]
fn what_is_no_job_of_this_version_is_refused() {
    let (_dir, file) = world();
    let mut job = jobs(&file).remove(0);
    job.version = "0.0.1+old".into();
    let refused = |text: &[u8], words: &str| {
        let out = given(text);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
        assert!(out.stdout.is_empty());
    };
    refused(
        &serde_json::to_vec(&job).unwrap(),
        "the job is of version 0.0.1+old, and this is",
    );
    job.version = VERSION.into();
    job.policy.hash = "0".repeat(64);
    refused(&serde_json::to_vec(&job).unwrap(), "is another one here");
    refused(b"{}", "no job of version");
    let nobody = Elsewhere {
        program: "/nobody/here".into(),
        arguments: Vec::new(),
    };
    assert!(nobody.run(&job).unwrap_err().contains("cannot be started"));
}

#[test]
fn a_command_does_the_runs() {
    let (dir, _file) = world();
    let sim = |more: &[&str]| {
        let mut arguments = vec!["sim", "world.toml", "--csv", "-q", "--seeds", "2"];
        arguments.extend(more);
        berth(dir.path(), &arguments)
    };
    // Jobs go past a file on their way, so that it is seen who did them.
    let way = format!(
        "sh -c 'tee -a jobs | \"{}\" job'",
        env!("CARGO_BIN_EXE_berth")
    );
    let there = sim(&["--runner", &way]);
    let said = String::from_utf8_lossy(&there.stderr);
    assert!(there.status.success(), "{said}");
    assert_eq!(
        there.stdout,
        sim(&[]).stdout,
        "who does them does not matter"
    );
    let jobs = std::fs::read_to_string(dir.path().join("jobs")).unwrap();
    let jobs: Vec<Job> = serde_json::Deserializer::from_str(&jobs)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(jobs.len(), 4, "two arms, two seeds");
    let wrong = |command: &str, status: i32, words: &str| {
        let out = sim(&["--runner", command]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{said}");
        assert!(said.contains(words), "{said}");
    };
    wrong("sh -c 'open", 2, "a quote is not closed");
    wrong("", 2, "it is empty");
    wrong("/nobody/here", 3, "cannot be started");
    wrong("false", 3, "false did not do the job: exit status: 1");
    wrong("echo 5", 3, "echo gave no outcome");
}

#[test]
fn who_does_not_read_a_job_is_judged_by_what_it_says() {
    let (_dir, file) = world();
    // With its policy's object a job is more than a pipe holds: it is seen for sure that nobody reads it.
    let job = jobs(&file).pop().unwrap();
    assert!(serde_json::to_vec(&job).unwrap().len() > 1 << 17);
    let refused = |command: &str| {
        let runner = Elsewhere::command(command).unwrap();
        runner.run(&job).unwrap_err()
    };
    let why = refused("echo 5");
    assert!(why.contains("echo gave no outcome"), "{why}");
    let why = refused("false");
    assert!(
        why.contains("false did not do the job: exit status: 1"),
        "{why}"
    );
}

#[test]
fn after_ctrl_c_the_same_command_goes_on() {
    let (dir, _file) = world();
    // Who does the third job presses Ctrl-C first.
    let way = format!(
        "sh -c 'echo job >> jobs; [ $(wc -l < jobs) != 3 ] || kill -INT $PPID; \"{}\" job'",
        env!("CARGO_BIN_EXE_berth")
    );
    let sim = |runner: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command
            .current_dir(dir.path())
            .env("XDG_CACHE_HOME", dir.path().join("cache"));
        command.args([
            "sim",
            "world.toml",
            "--csv",
            "-q",
            "--seeds",
            "4",
            "--workers",
            "1",
        ]);
        command.args(runner).stdin(Stdio::null()).output().unwrap()
    };
    let first = sim(&["--runner", &way]);
    let said = String::from_utf8_lossy(&first.stderr);
    assert_eq!(first.status.code(), Some(130), "{said}");
    assert!(
        said.contains("; the same command goes on from there"),
        "{said}"
    );
    let second = sim(&["--runner", &way]);
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(second.status.success(), "{said}");
    assert!(
        said.contains("runs were kept before and not run again"),
        "{said}"
    );
    let jobs = std::fs::read_to_string(dir.path().join("jobs")).unwrap();
    let done = jobs.lines().count();
    // Two arms, four seeds; the job at the interrupt counts if it was finished.
    assert!((8..=9).contains(&done), "{done} jobs");
    let plain = berth(
        dir.path(),
        &["sim", "world.toml", "--csv", "-q", "--seeds", "4"],
    );
    assert_eq!(second.stdout, plain.stdout, "the same results");
}

#[test]
fn what_was_run_is_not_run_again() {
    let (dir, _file) = world();
    let kept = dir.path().join("kept");
    let run = |seeds: &str| {
        let out = berth(
            dir.path(),
            &[
                "sim",
                "world.toml",
                "--resume",
                "--kept",
                "kept",
                "--csv",
                "-q",
                "--seeds",
                seeds,
            ],
        );
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.success(), "{said}");
        (String::from_utf8(out.stdout).unwrap(), said)
    };
    let plain = berth(
        dir.path(),
        &["sim", "world.toml", "--csv", "-q", "--seeds", "3"],
    );
    assert!(!kept.exists(), "nothing is kept unless it is asked for");
    let (_, said) = run("2");
    assert!(!said.contains("kept"), "{said}");
    let (third, said) = run("3");
    assert!(
        said.contains("4 runs were kept before and not run again"),
        "{said}"
    );
    assert_eq!(
        third.as_bytes(),
        plain.stdout,
        "kept or not, the same results"
    );
    // One of another version, one that is broken.
    let mut files: Vec<PathBuf> = Vec::new();
    for shelf in std::fs::read_dir(&kept).unwrap() {
        for file in std::fs::read_dir(shelf.unwrap().path()).unwrap() {
            files.push(file.unwrap().path());
        }
    }
    assert_eq!(files.len(), 6);
    let text = std::fs::read_to_string(&files[0]).unwrap();
    assert!(text.contains(VERSION));
    std::fs::write(&files[0], text.replace(VERSION, "0.0.1+old")).unwrap();
    std::fs::write(&files[1], &text[..text.len() / 2]).unwrap();
    let (again, said) = run("3");
    assert_eq!(again, third);
    assert!(said.contains("4 runs were kept before"), "{said}");
    assert!(
        said.contains("1 kept runs are of another version than"),
        "{said}"
    );
    let (_, said) = run("3");
    assert!(
        said.contains("6 runs were kept before"),
        "the new ones took their place: {said}"
    );
}
