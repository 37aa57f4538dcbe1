// SPDX-License-Identifier: GPL-2.0-only
//! The clients as a real-time thread of the host, as the cost profile `lab` has them.
use berth_policy::policy::LoadOptions;
use berth_scenario::profile::Profile;
use berth_scenario::{Input, read};
use berth_sim::run::{Options, kernel_scheduler, run_one};
use std::collections::BTreeMap;

/// Metrics of one second on one CPU, with these VMs and this worker, under a policy, or `linux`.
fn metrics(policy: &str, vms: &str, work: &str, sends: &str) -> BTreeMap<String, f64> {
    let text = format!(
        "title = \"clients\"\n[run]\nwarmup = \"500ms\"\nmeasure = \"1s\"\n[host]\ncores = 1\n[host.cost]\nprofile = \
         \"lab\"\n\
         {vms}\n[task.burn]\nmodel = \"busy\"\n[task.nap]\nloop = [\"sleep 10ms\", \"compute \
         100us\"]\n[task.worker]\nthreads = 1\nloop = [\"receive users\", \"{work}\", \"reply\"]\n\
         [client.users]\nto = \"web\"\nsends = \"{sends}\"\n[compare]\npolicies = [\"vtime\"]\n"
    );
    let input = Input {
        name: "clients".into(),
        shown: "clients".into(),
        text,
        folder: None,
    };
    let mut scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}")).scenario;
    let mut options = Options::default();
    let policy = match policy {
        "linux" => {
            kernel_scheduler(&mut scenario.host, &mut options);
            "eevdf"
        }
        policy => policy,
    };
    let loaded = berth_builtin::find(policy).unwrap();
    let loaded = loaded.load(&LoadOptions::default()).unwrap();
    let run = run_one(&scenario, policy, &loaded, &BTreeMap::new(), 1, &options);
    run.unwrap_or_else(|e| panic!("{e}")).metrics
}

const WEB: &str = "[vm.web]\nclass = \"latency\"\ntasks = [\"worker\"]\nguest = \"none\"\n";
const HOG: &str = "[vm.hog]\nclass = \"batch\"\ntasks = [\"burn\"]\nguest = \"none\"\n";

/// The figure that the profile's costs were made of.
#[test]
fn who_is_asked_has_the_cpu_when_the_clients_thread_leaves_it() {
    let found = metrics("linux", WEB, "compute 100us", "every 10ms");
    let cost = Profile::named("lab").unwrap().cost;
    let measured = (cost.wake_ns + cost.request_ns) as f64;
    let p50 = found["web.wakeup.p50"];
    assert!(
        (p50 / measured - 1.0).abs() < 0.01,
        "{p50} of {measured} ns"
    );
    assert_eq!(found["web.wakeup.count"], 100.0);
}

/// Under a policy a request's wake-up takes longer than a timer's by the same: its code's time is in both.
#[test]
fn a_policys_part_of_a_request_is_that_of_a_wake_up() {
    let nap = "[vm.nap]\ntasks = [\"nap\"]\nguest = \"none\"\n";
    let request = Profile::named("lab").unwrap().cost.request_ns as f64;
    for policy in ["gfifo", "vtime", "vmfair", "credit"] {
        let found = metrics(policy, &format!("{WEB}{nap}"), "compute 100us", "every 7ms");
        let more = found["web.wakeup.p50"] - found["nap.wakeup.p50"];
        assert!(
            (more / request - 1.0).abs() < 0.1,
            "{policy}: {more} of {request} ns, {found:?}"
        );
    }
}

/// A worker that always has something in its queue: each request takes its CPU for a moment.
#[test]
fn whom_the_clients_thread_interrupts_neither_waits_nor_is_switched() {
    for policy in ["linux", "vtime", "vmfair", "credit"] {
        let found = metrics(policy, WEB, "compute 2ms", "every 1ms");
        assert_eq!(found["web.switches"], 0.0, "{policy}");
        assert_eq!(found["web.run_delay.count"], 0.0, "{policy}");
        // It has what the thread leaves: 1,000 times 20 us less, and some ticks'.
        let work = found["web.work"];
        assert!((0.95e9..0.985e9).contains(&work), "{policy}: {work} ns");
    }
}

/// Linux chooses anew when a real-time thread leaves: who has just been woken, not the hog that was interrupted.
#[test]
fn the_model_of_linux_chooses_anew_after_a_real_time_thread() {
    let found = metrics(
        "linux",
        &format!("{WEB}{HOG}"),
        "compute exp(500us)",
        "poisson(300/s)",
    );
    assert!(found["web.wakeup.p50"] < 25_000.0, "{found:?}");
}

/// An answer wakes the thread, on the host and inside a VM.
#[test]
fn users_that_wait_for_answers_ask_again() {
    for guest in ["none", "vtime"] {
        let vms = format!("{WEB}{HOG}").replacen("none", guest, 1);
        let found = metrics(
            "vmfair",
            &vms,
            "compute 100us",
            "closed(1 users, think 10ms)",
        );
        // A cycle: thinking, the way to the worker, its work, the way back.
        let asked = found["web.response.count"];
        assert!((90.0..99.0).contains(&asked), "{guest:?}: {asked}");
    }
}

/// Its clients ask no more: the thread neither works for them nor wakes anybody.
#[test]
fn a_vm_that_has_stopped_is_asked_nothing() {
    let stopped = WEB.replace("guest", "stop = \"1s\"\nguest");
    let run =
        |web: &str, sends: &str| metrics("linux", &format!("{web}{HOG}"), "compute 100us", sends);
    let unasked = run(WEB, "every 100s");
    let alive = run(WEB, "every 11ms");
    let stopped = run(&stopped, "every 11ms");
    let asked = stopped["web.wakeup.count"];
    assert!((45.0..=46.0).contains(&asked), "{asked}");
    // What a request takes from the hog is not taken any more once the VM has stopped.
    let took =
        |run: &BTreeMap<String, f64>, requests| (unasked["hog.work"] - run["hog.work"]) / requests;
    let (each, before) = (
        took(&alive, alive["web.wakeup.count"]),
        took(&stopped, asked),
    );
    assert!(
        (before / each - 1.0).abs() < 0.02,
        "{before} and {each} ns a request"
    );
}
