// SPDX-License-Identifier: GPL-2.0-only
//! The agent inside a mixed VM: what it is worth and when, reckoned by hand on a machine without costs.
use berth_results::schema::RunRecord;
use berth_scenario::model::Scenario;
use berth_scenario::{Input, read};
use berth_sim::run::{GuestPolicy, Options, run_one};
use shipped::policy as shipped;
use std::collections::BTreeMap;

#[path = "support/shipped.rs"]
mod shipped;

const MS: f64 = 1e6;

fn scenario(text: &str) -> Scenario {
    let input = Input {
        name: "t".into(),
        shown: "t.toml".into(),
        text: text.into(),
        folder: None,
    };
    let mut scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}")).scenario;
    scenario.host.cost = Default::default();
    scenario
}

/// A run from `from` to `until`, ms, with a scheduler inside.
fn run_under(text: &str, guest: &str, from: u64, until: u64) -> RunRecord {
    let run = format!(
        "[run]\nwarmup = \"{from}ms\"\nmeasure = \"{}ms\"\n{text}",
        until - from
    );
    let scenario = scenario(&run);
    let inside = |vm: &berth_scenario::model::Vm| {
        (!vm.guest.is_none()).then(|| GuestPolicy {
            policy: shipped(guest),
            params: BTreeMap::new(),
        })
    };
    let options = Options {
        guests: scenario.vms.iter().map(inside).collect(),
        ..Options::default()
    };
    run_one(
        &scenario,
        "a",
        &shipped("gfifo"),
        &BTreeMap::new(),
        1,
        &options,
    )
    .unwrap()
}

fn run(text: &str, from: u64, until: u64) -> RunRecord {
    run_under(text, "gfifo", from, until)
}

/// Two vCPUs with a CPU each, one reserved; three workers that compute without end. Its own scheduler is first come,
/// first served, by slices of 20 ms.
fn vm(agent: &str, tasks: &str, more: &str) -> String {
    format!(
        "[host]\ncores = 2\nhz = \"exact\"\n\
         [vm.m]\nvcpus = 2\nclass = \"mixed\"\nreserved_vcpus = 1\ntasks = [\"work\", {tasks}]\n{agent}\n\
         guest = {{ hz = \"exact\" }}\n\
         [task.work]\nmodel = \"busy\"\nthreads = 3\n{more}"
    )
}

/// A shell, say: somebody types each 50 ms, and it takes 1 ms to answer.
const SHELL: &str = "[task.shell]\nthreads = 1\nuid = 1000\nloop = [\"receive keys\", \"compute 1ms\", \"reply\"]\n\
                     [client.keys]\nto = \"m\"\nsends = \"closed(1 users, think 50ms)\"\n";

/// From the end of one answer on, workers have slices of 20 ms. The next key comes after 50 ms, in the middle of the
/// third slice: 10 ms of it are left, and two workers are before the shell, 20 ms each. So it waits for 50 ms, and
/// answers after 51, before it is moved; it has been light for three periods 3 s after the boot, and answers in 1 ms
/// from then on.
#[test]
fn a_light_task_need_not_wait_for_those_that_compute() {
    let text = vm("guest_agent = true", "\"shell\"", SHELL);
    let before = run(&text, 500, 2_900).metrics;
    let response = |m: &BTreeMap<String, f64>| (m["m.response.mean"], m["m.response.max"]);
    assert_eq!(response(&before), (51.0 * MS, 51.0 * MS));
    assert_eq!((before["m.guest.moved"], before["m.cpu"]), (0.0, 1.0));
    let after = run(&text, 3_200, 6_200).metrics;
    assert_eq!(response(&after), (1.0 * MS, 1.0 * MS));
    // 1 ms in 51 beside the vCPU that computes.
    assert!(
        (after["m.cpu"] - 1.0 - 1.0 / 51.0).abs() < 1e-3,
        "{}",
        after["m.cpu"]
    );
    // Once, in a second around it.
    assert_eq!(run(&text, 2_500, 3_500).metrics["m.guest.moved"], 1.0);
    // What computes has no less of it.
    assert!(after["m.work"] / 3.0 >= before["m.work"] / 2.4);
}

/// The tasks of the system, and those of a VM without an agent, are where they always were.
#[test]
fn without_an_agent_or_a_user_nothing_is_moved() {
    let none = run(&vm("", "\"shell\"", SHELL), 500, 2_900).metrics;
    assert_eq!(none["m.response.max"], 1.0 * MS);
    assert!(!none.contains_key("m.guest.moved"));
    let system = SHELL.replace("uid = 1000\n", "uid = 999\n");
    let system = vm("guest_agent = true", "\"shell\"", &system);
    let all = run(&system, 500, 6_000).metrics;
    assert_eq!(all["m.response.max"], 1.0 * MS);
    assert_eq!(all["m.guest.moved"], 0.0);
    let off = run(&vm("guest_agent = false", "\"shell\"", SHELL), 500, 2_900);
    let no_word = run(&vm("", "\"shell\"", SHELL), 500, 2_900);
    assert_eq!((off.hash, off.metrics), (no_word.hash, no_word.metrics));
}

/// A user's task sleeps until 4.5 s and computes from then on. It is moved at 3 s; it has used more than 20 % in the
/// periods that end at 5, 6 and 7 s (half of the first), and goes back at 7.
#[test]
fn one_that_begins_to_compute_goes_back() {
    let late = format!(
        "{SHELL}[task.late]\nthreads = 1\nuid = 1001\nfirst = [\"sleep 4500ms\"]\nloop = [\"compute 1ms\"]\n"
    );
    let text = vm("guest_agent = true", "\"shell\", \"late\"", &late);
    let m = |from, until| run(&text, from, until).metrics;
    let shell = 1.0 / 51.0;
    let cpu = m(3_200, 4_400)["m.cpu"];
    assert!((cpu - 1.0 - shell).abs() < 2e-3, "{cpu}");
    // It has the reserved vCPU, and the shell waits for it.
    let between = m(4_600, 6_900);
    assert_eq!(between["m.cpu"], 2.0);
    assert!(between["m.response.mean"] > 2.0 * MS);
    let after = m(7_200, 10_200);
    assert!(
        (after["m.cpu"] - 1.0 - shell).abs() < 1e-3,
        "{}",
        after["m.cpu"]
    );
    assert_eq!(after["m.response.max"], 1.0 * MS);
    // Two go there, one comes back.
    assert_eq!(m(2_500, 8_500)["m.guest.moved"], 3.0 / 6.0);
}

/// Between the thresholds it stays: a task that uses a tenth of a vCPU stays where it started, and one that was moved
/// and then uses a tenth stays there.
#[test]
fn in_between_it_stays() {
    let tenth = "[task.tenth]\nthreads = 1\nuid = 1000\nloop = [\"sleep 9ms\", \"compute 1ms\"]\n\
                 [task.then]\nthreads = 1\nuid = 1000\nfirst = [\"sleep 4s\"]\n\
                 loop = [\"sleep 9ms\", \"compute 1ms\"]\n";
    // Nobody else is there: it uses as much as it wants.
    let text = vm("guest_agent = true", "\"tenth\", \"then\"", tenth).replace("\"work\", ", "");
    let m = run(&text, 500, 12_500).metrics;
    assert_eq!(m["m.guest.moved"], 1.0 / 12.0);
}

/// Threads are born where their process is; what has CPUs of its own is left alone.
#[test]
fn threads_follow_and_pins_stay() {
    let requests = SHELL.replace("threads = 1\n", "per_request = true\n");
    let text = vm("guest_agent = true", "\"shell\"", &requests);
    assert_eq!(run(&text, 500, 2_900).metrics["m.response.max"], 51.0 * MS);
    let after = run(&text, 3_200, 6_200).metrics;
    assert_eq!(after["m.response.max"], 1.0 * MS);
    let pinned = SHELL.replace("threads = 1\n", "threads = 1\naffinity = [0]\n");
    let text = vm("guest_agent = true", "\"shell\"", &pinned);
    let m = run(&text, 500, 8_000).metrics;
    assert_eq!((m["m.response.mean"], m["m.guest.moved"]), (51.0 * MS, 0.0));
    // It says itself where it runs, in a step.
    let own = SHELL.replace("loop = [", "first = [\"affinity 0,1\"]\nloop = [");
    let text = vm("guest_agent = true", "\"shell\"", &own);
    assert_eq!(run(&text, 500, 8_000).metrics["m.guest.moved"], 0.0);
}

/// Under every scheduler inside, with VMs that come and go, more VMs than CPUs, and forks; every invariant is on, and
/// equal arguments give equal records.
#[test]
fn it_runs_in_any_guest() {
    let text = "[host]\ncores = 3\n\
         [vm.m]\ncount = 2\nvcpus = 3\nclass = \"mixed\"\nreserved_vcpus = 1\nguest_agent = true\n\
         tasks = [\"work\", \"shell\", \"makes\", \"starts\"]\nstart = \"100ms\"\n\
         [vm.ends]\nvcpus = 2\nclass = \"mixed\"\nreserved_vcpus = 1\nguest_agent = true\ntasks = [\"work\"]\n\
         stop = \"2500ms\"\n\
         [task.work]\nthreads = 3\nuid = 1000\nloop = [\"compute 30ms\", \"sleep 1ms\"]\n\
         [task.shell]\nthreads = 2\nuid = 1000\nloop = [\"receive keys\", \"compute 1ms\", \"reply\"]\n\
         [task.makes]\nthreads = 1\nuid = 1000\nloop = [\"fork made\", \"sleep 300ms\"]\n\
         [task.starts]\nuid = 1000\nper_request = true\nloop = [\"receive calls\", \"compute 500us\", \"reply\"]\n\
         [task.made]\nuid = 1000\nloop = [\"compute 2ms\", \"exit\"]\n\
         [client.keys]\nto = \"m\"\nsends = \"poisson(10/s)\"\n\
         [client.calls]\nto = \"m\"\nsends = \"poisson(10/s)\"\n";
    for b in berth_builtin::all() {
        let record = run_under(text, b.name, 1_000, 6_000);
        let moved = record.metrics["m.guest.moved"];
        assert!(moved >= 0.4, "{}: {moved}", b.name);
        if b.name == "vtime" {
            let again = run_under(text, b.name, 1_000, 6_000);
            assert_eq!((again.hash, again.metrics), (record.hash, record.metrics));
        }
    }
}
