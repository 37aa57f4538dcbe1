// SPDX-License-Identifier: GPL-2.0-only
//! When CPUs tick, and what is late where CPUs are emulated one after the other.
use berth_policy::policy::LoadOptions;
use berth_scenario::edit::Edit;
use berth_scenario::profile::Profile;
use berth_scenario::{Input, read};
use berth_sim::run::{GuestPolicy, Options, kernel_scheduler, run_one};
use std::collections::BTreeMap;

type Metrics = BTreeMap<String, f64>;

/// Metrics of a scenario under a policy, or `linux`; `guest`: the scheduler inside its VMs that have one.
fn run(text: &str, policy: &str, guest: Option<&str>, edits: &[&str], seed: u64) -> Metrics {
    let input = Input {
        name: "ticks".into(),
        shown: "ticks.toml".into(),
        text: text.into(),
        folder: None,
    };
    let edits: Vec<Edit> = edits.iter().map(|e| Edit::Set(e.to_string())).collect();
    let mut scenario = read(&input, &edits)
        .unwrap_or_else(|e| panic!("{e}"))
        .scenario;
    let load = |name| {
        let found = berth_builtin::find(name).unwrap();
        found.load(&LoadOptions::default()).unwrap()
    };
    let inside = guest.map(|name| GuestPolicy {
        policy: load(name),
        params: BTreeMap::new(),
    });
    let mut options = Options {
        guests: vec![inside; scenario.vms.len()],
        ..Options::default()
    };
    let policy = match policy {
        "linux" => {
            kernel_scheduler(&mut scenario.host, &mut options);
            "eevdf"
        }
        policy => policy,
    };
    let run = run_one(
        &scenario,
        policy,
        &load(policy),
        &BTreeMap::new(),
        seed,
        &options,
    );
    run.unwrap_or_else(|e| panic!("{e}")).metrics
}

/// The same without guests.
fn metrics(text: &str, policy: &str, edits: &[&str], seed: u64) -> Metrics {
    run(text, policy, None, edits, seed)
}

const THREE_HOGS: &str = "title = \"three hogs\"\n[run]\nwarmup = \"1s\"\nmeasure = \"10s\"\n[host]\ncores = 2\n\
    [vm.hog]\ncount = 3\nguest = \"none\"\ntasks = [\"burn\"]\n[task.burn]\nmodel = \"busy\"\n";

/// Two CPUs whose hogs began together change them together for ever, if ticks are never late: the third finds a CPU in
/// the same instant in which the one before it left. (On the kernel they wait 8 to 16 ms in the median.)
#[test]
fn cpus_that_begin_together_do_not_stay_in_step() {
    for seed in 1..=4 {
        let found = metrics(THREE_HOGS, "gfifo", &[], seed);
        let p50 = found["hog.run_delay.p50"];
        assert!((4e6..21e6).contains(&p50), "seed {seed}: {p50} ns");
        // A slice of 20 ms is not used up at the fifth tick after the one that began it, but in some thirtieth of all
        // cases.
        let switches = found["hog.switches"];
        assert!((83.0..87.0).contains(&switches), "{switches} a second");
    }
    let never_late = ["host.cost.tick_jitter=0ns", "host.cost.tick=0ns"];
    let found = metrics(THREE_HOGS, "gfifo", &never_late, 1);
    assert!(found["hog.run_delay.p50"] < 1e4, "{found:?}");
    let found = metrics(THREE_HOGS, "gfifo", &never_late[1..], 1);
    assert!((83.0..100.0).contains(&found["hog.switches"]), "{found:?}");
}

/// The same seed, the same ticks.
#[test]
fn lateness_is_the_seeds() {
    let of = |seed| metrics(THREE_HOGS, "vmfair", &[], seed);
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}

/// Costs of the lab's machine: what a sleeper waits in the mean, alone, on the second CPU beside a busy first one, and
/// on the first beside a busy second one.
#[test]
fn emulated_cpus_take_turns() {
    let run = |sleeper: u32, hog: bool| {
        let text = format!(
            "title = \"turns\"\n[run]\nwarmup = \"500ms\"\nmeasure = \"4s\"\n[host]\ncores = 2\n[host.cost]\nprofile = \
             \"lab\"\n\
             [vm.sleeper]\nguest = \"none\"\naffinity = [{sleeper}]\ntasks = [\"work\"]\n\
             [vm.hog]\ncount = {}\nguest = \"none\"\naffinity = [{}]\ntasks = [\"burn\"]\n\
             [task.work]\nloop = [\"compute exp(300us)\", \"sleep exp(700us)\"]\n[task.burn]\nmodel = \"busy\"\n",
            u32::from(hog),
            1 - sleeper
        );
        metrics(&text, "linux", &[], 1)["sleeper.wakeup.mean"]
    };
    let cost = Profile::named("lab").unwrap().cost;
    let (wake, turn) = (cost.wake_ns as f64, cost.turn_ns as f64);
    let due = [
        (0, false, wake),
        (1, false, wake),
        (0, true, wake + turn / 4.0),
        (1, true, wake + turn / 2.0),
    ];
    for (sleeper, hog, due) in due {
        let found = run(sleeper, hog);
        assert!(
            (found / due - 1.0).abs() < 0.03,
            "CPU {sleeper}, hog {hog}: {found} of {due}"
        );
    }
}

/// vCPUs on the first CPU, which never waits for its turn: nor do they among themselves.
#[test]
fn vcpus_take_no_turns_of_their_own() {
    let p50 = |server: u32| {
        let text = format!(
            "title = \"guest\"\n[run]\nwarmup = \"100ms\"\nmeasure = \"2s\"\n[host]\ncores = 2\n[host.cost]\nprofile = \
             \"lab\"\n\
             [vm.web]\nvcpus = 2\naffinity = [0]\ntasks = [\"serve\", \"nap\"]\n\
             [task.serve]\nthreads = 1\naffinity = [{server}]\nloop = [\"receive users\", \"compute 100us\", \
             \"reply\"]\n\
             [task.nap]\nthreads = 1\naffinity = [{}]\nloop = [\"compute 30us\", \"sleep 3ms\"]\n\
             [client.users]\nto = \"web\"\nsends = \"every 7ms\"\n",
            1 - server
        );
        run(&text, "gfifo", Some("gfifo"), &[], 1)["web.response.p50"]
    };
    let (first, second) = (p50(0), p50(1));
    assert!((first / second - 1.0).abs() < 0.03, "{first} and {second}");
}

/// Of a mixed VM with a scheduler inside, what answers requests has the reserved vCPU for itself.
#[test]
fn tasks_of_a_mixed_vm_keep_to_their_vcpus() {
    let text = |class: &str| {
        format!(
            "title = \"mixed\"\n[run]\nwarmup = \"100ms\"\nmeasure = \"2s\"\n[host]\ncores = 4\n\
             [vm.db]\nvcpus = 4\n{class}\nguest = \"gfifo\"\ntasks = [\"query\", \"burn\"]\n\
             [task.query]\nthreads = 2\nloop = [\"receive users\", \"compute 100us\", \"reply\"]\n\
             [task.burn]\nmodel = \"busy\"\nthreads = 4\n[client.users]\nto = \"db\"\nsends = \"every 10ms\"\n"
        )
    };
    let p99 = |class: &str, edits: &[&str]| run(&text(class), "gfifo", Some("gfifo"), edits, 1)["db.response.p99"];
    let mixed = "class = \"mixed\"\nreserved_vcpus = 1";
    // Four hogs on the other three vCPUs: nobody computes on the reserved one.
    assert!(p99(mixed, &[]) < 0.3e6, "{}", p99(mixed, &[]));
    assert!(p99("class = \"latency\"", &[]) > 2e6);
    // Who says where, has it so.
    assert!(p99(mixed, &["task.query.affinity=[0]"]) > 2e6);
    // So do those that a task forks: four more that compute have the other three.
    let text = "title = \"forks\"\n[run]\nwarmup = \"100ms\"\nmeasure = \"1s\"\n[host]\ncores = 4\n\
        [vm.db]\nvcpus = 4\nclass = \"mixed\"\nreserved_vcpus = 1\ntasks = [\"parent\"]\n\
        [task.parent]\nthreads = 1\nfirst = [\"fork burn\", \"fork burn\", \"fork burn\", \"fork burn\"]\nloop = \
        [\"sleep 1s\"]\n\
        [task.burn]\nmodel = \"busy\"\n";
    let cpu = run(text, "gfifo", Some("gfifo"), &[], 1)["db.cpu"];
    assert!((2.99..3.01).contains(&cpu), "{cpu} CPUs");
}
