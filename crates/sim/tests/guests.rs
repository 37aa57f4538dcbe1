// SPDX-License-Identifier: GPL-2.0-only
//! Scenarios whose VMs have a scheduler inside.
use berth_policy::policy::{LoadOptions, Policy};
use berth_results::schema::RunRecord;
use berth_scenario::model::Scenario;
use berth_scenario::{Input, read};
use berth_sim::SimError;
use berth_sim::run::{GuestPolicy, Options, run_one};
use shipped::policy as shipped;
use std::collections::BTreeMap;

#[path = "support/shipped.rs"]
mod shipped;

fn scenario(text: &str) -> Scenario {
    let input = Input {
        name: "t".into(),
        shown: "t.toml".into(),
        text: text.into(),
        folder: None,
    };
    read(&input, &[]).unwrap_or_else(|e| panic!("{e}")).scenario
}

/// A run under `host`, with `guest` in every VM that does not say `guest = "none"`.
fn run(text: &str, host: &str, guest: &Policy) -> Result<RunRecord, SimError> {
    run_scenario(scenario(text), host, guest)
}

fn run_scenario(scenario: Scenario, host: &str, guest: &Policy) -> Result<RunRecord, SimError> {
    let inside = |vm: &berth_scenario::model::Vm| {
        (!vm.guest.is_none()).then(|| GuestPolicy {
            policy: guest.clone(),
            params: vm.guest.params.clone(),
        })
    };
    let options = Options {
        guests: scenario.vms.iter().map(inside).collect(),
        ..Options::default()
    };
    run_one(
        &scenario,
        "a",
        &shipped(host),
        &BTreeMap::new(),
        1,
        &options,
    )
}

const RUN: &str = "[run]\nwarmup = \"100ms\"\nmeasure = \"2s\"\n";

/// An idle host: the response is the work, through guest, halts and wake-ups.
#[test]
fn a_request_takes_its_work_when_nobody_disturbs() {
    let text = format!(
        "{RUN}[host]\ncores = 4\n[vm.web]\nvcpus = 2\ntasks = [\"serve\"]\n\
         [task.serve]\nthreads = 5\nloop = [\"receive users\", \"compute 300us\", \"reply\"]\n\
         [client.users]\nto = \"web\"\nsends = \"closed(2 users, think 2ms)\"\n[net]\npath = \"none\"\n"
    );
    let mut scenario = scenario(&text);
    scenario.host.cost = Default::default();
    let record = run_scenario(scenario, "vtime", &shipped("vtime")).unwrap();
    let m = |name: &str| record.metrics[name];
    assert_eq!(
        (m("web.response.mean"), m("web.response.max")),
        (300_000.0, 300_000.0)
    );
    assert!(m("web.response.count") > 1700.0);
    assert_eq!(m("web.steal"), 0.0);
    assert!((m("web.run") + m("web.halt") - 1.0).abs() < 1e-9);
    assert!((m("web.run") * 2.0 - m("web.cpu")).abs() < 1e-6);
}

/// More threads than vCPUs, which no folding can do; the guest shares its vCPUs among them.
#[test]
fn a_noisy_neighbour_steals_from_a_guest() {
    let text = format!(
        "{RUN}[host]\ncores = 2\n[vm.web]\nvcpus = 2\ntasks = [\"serve\", \"log\"]\n\
         [vm.noise]\ncount = 2\nvcpus = 2\ntasks = [\"burn\"]\n\
         [task.burn]\nmodel = \"busy\"\nthreads = 3\n[task.log]\nthreads = 4\nloop = [\"timer every 10ms\", \"compute \
         100us\"]\n\
         [task.serve]\nthreads = 4\nloop = [\"receive users\", \"compute 300us\", \"reply\"]\n\
         [client.users]\nto = \"web\"\nsends = \"closed(2 users, think 2ms)\"\n"
    );
    let record = run(&text, "vtime", &shipped("vtime")).unwrap();
    let m = |name: &str| record.metrics[name];
    assert!(m("web.steal") > 0.01, "{}", m("web.steal"));
    assert!(m("noise.steal") > 0.2, "{}", m("noise.steal"));
    assert!(m("noise-1.guest.switches") > 50.0);
    let sum = m("noise-1.run") + m("noise-1.steal") + m("noise-1.halt");
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    assert!(m("web.response.p99") > m("web.response.p50"));
    // Equal arguments, equal records.
    let again = run(&text, "vtime", &shipped("vtime")).unwrap();
    assert_eq!((again.hash, again.metrics), (record.hash, record.metrics));
}

/// Every shipped policy, on both levels, with everything at once: network, locks, barriers, VMs that come and go.
#[test]
fn every_shipped_policy_runs_on_both_levels() {
    let text = "[run]\nwarmup = \"50ms\"\nmeasure = \"400ms\"\n[host]\ncores = 3\ntasks = [\"tick\"]\n\
         [vm.web]\ncount = 2\nvcpus = 2\ntasks = [\"serve\"]\n[vm.late]\nvcpus = 3\ntasks = [\"par\", \"spin\"]\nstart \
         = \"20ms\"\nstop = \"300ms\"\n\
         [vm.old]\nvcpus = 1\nguest = \"none\"\ntasks = [\"burn\"]\n\
         [task.tick]\nloop = [\"timer every 5ms\", \"compute 200us\"]\n[task.burn]\nmodel = \"busy\"\n\
         [task.par]\nthreads = 5\nloop = [\"compute uniform(100us, 2ms)\", \"barrier b\"]\n\
         [task.spin]\nthreads = 4\nloop = [\"spin s\", \"compute 50us\", \"unlock s\", \"sleep 100us\"]\n\
         [task.serve]\nthreads = 3\nloop = [\"receive users\", \"compute 200us\", \"reply\"]\n\
         [client.users]\nto = \"web\"\nsends = \"poisson(700/s)\"\n";
    for b in berth_builtin::all() {
        for (host, guest) in [(b.name, "vtime"), ("vtime", b.name)] {
            let record = run(text, host, &shipped(guest));
            let record = record.unwrap_or_else(|e| panic!("{host} with {guest} inside: {e}"));
            let answered = record.metrics["web.response.count"];
            assert!(answered > 400.0, "{host} with {guest} inside: {answered}");
        }
    }
}

/// What a user is told when a guest's scheduler is wrong (its first line is line 6).
fn told(body: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wrong.bpf.c");
    let source = format!(
        "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\nu64 *nowhere;\n\
         void BPF_STRUCT_OPS(wrong_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n{body}\n}}\n\
         SCX_OPS_DEFINE(wrong_ops, .enqueue = (void *)wrong_enqueue, .timeout_ms = 1000, .name = \"wrong\");\n"
    );
    std::fs::write(&path, source).unwrap();
    let policy = Policy::from_path(&path, &LoadOptions::default()).unwrap();
    let text = "[run]\nwarmup = \"0s\"\nmeasure = \"3s\"\n[host]\ncores = 2\n[vm.web]\ncount = 2\nvcpus = 2\n\
         tasks = [\"work\"]\n[task.work]\nthreads = 5\nloop = [\"compute 5ms\", \"sleep 1ms\"]\n";
    run(text, "vtime", &policy)
        .expect_err("the policy is wrong")
        .to_string()
}

#[test]
fn a_guest_policy_that_is_wrong_is_named_with_vm_and_line() {
    let cases: [(&str, &[&str]); 4] = [
        (
            "*(volatile u64 *)nowhere = 1;",
            &["NULL", "wrong.bpf.c:6", "wrong_enqueue"],
        ),
        (
            "while (*(volatile u64 *)&p->scx.weight) ;",
            &["instructions", "wrong.bpf.c:6"],
        ),
        ("scx_bpf_kick_cpu(4711, 0);", &["4711", "wrong.bpf.c:6"]),
        // Nobody is ever dispatched: the guest's watchdog.
        (";", &["stall", "failed to run"]),
    ];
    for (body, words) in cases {
        let told = told(body);
        for word in words.iter().chain(&["VM web-1", "policy wrong"]) {
            assert!(told.contains(word), "`{told}` does not say `{word}`");
        }
        assert!(!told.contains('\n'), "one sentence: {told}");
    }
}

/// An echo beside a task that computes, in a guest of one vCPU that `competitors` VMs take turns with: mean response
/// and p99, ms. (Real guests, two emulated CPUs, slices of 1.4 ms by ticks: means of 1.6, 3.9 and 5.8 ms for one to
/// three competitors, with a floor of 0.4: docs/guests.md.)
#[test]
fn an_echo_beside_a_hog_in_a_guest_answers_within_turns_of_its_vcpu() {
    for (competitors, mean, p99) in [(1, 3.2, 14.0), (2, 7.8, 21.0), (3, 11.7, 26.0)] {
        let text = format!(
            "[run]\nwarmup = \"2s\"\nmeasure = \"30s\"\n[host]\ncores = 2\nkernel = \"7.0\"\n\
             [vm.a]\nvcpus = 1\naffinity = [1]\ntasks = [\"hog\", \"echo\"]\n\
             [vm.b]\nvcpus = 1\ncount = {competitors}\naffinity = [1]\ntasks = [\"hog\"]\n\
             [task.hog]\nmodel = \"busy\"\n[task.echo]\nmodel = \"echo\"\ncompute = \"100us\"\n\
             [client.p]\nto = \"a\"\nsends = \"every 100ms +- 50%\"\n[net]\npath = \"none\"\n"
        );
        let record = run(&text, berth_builtin::LINUX_MODEL, &shipped("eevdf")).unwrap();
        let ms = |name: &str| record.metrics[name] / 1e6;
        let (m, p) = (ms("a.response.mean"), ms("a.response.p99"));
        assert!(m < mean && m * 4.0 > mean, "{competitors}: mean {m} ms");
        assert!(p < p99, "{competitors}: p99 {p} ms");
        let steal = record.metrics["a.steal"];
        let due = competitors as f64 / (competitors + 1) as f64;
        assert!((steal - due).abs() < 0.01, "{competitors}: {steal}");
    }
}

/// More busy threads than vCPUs than CPUs: all progress alike, since the guest's scheduler does not take its vCPUs'
/// absence for run time.
#[test]
fn an_overcommitted_guest_goes_on_switching() {
    let text = format!(
        "{RUN}[host]\ncores = 1\n[vm.a]\nvcpus = 4\ntasks = [\"b\"]\n[task.b]\nmodel = \"busy\"\nthreads = 6\n"
    );
    for host in ["vmfair", "eevdf", "vtime", "credit"] {
        let record = run(&text, host, &shipped("eevdf")).unwrap();
        let switches = record.metrics["a.guest.switches"];
        assert!(switches > 20.0, "{host}: {switches}");
    }
}

/// Pause-loop exits under KVM's rule cost a spinning VM no share; under Xen's rule, which is `credit`'s, it gives its
/// CPUs away.
#[test]
fn a_spinning_vm_keeps_its_share_under_kvm() {
    let text = |way: &str| {
        format!(
            "{RUN}[host]\ncores = 4\n{way}[vm.par]\nvcpus = 4\ntasks = [\"locker\"]\n\
             [vm.hog]\nvcpus = 4\ntasks = [\"burn\"]\n[task.burn]\nmodel = \"busy\"\n\
             [task.locker]\nloop = [\"compute exp(50us)\", \"spin big\", \"compute 10us\", \"unlock big\"]\n"
        )
    };
    let had = |host: &str, way: &str| {
        let record = run(&text(way), host, &shipped("eevdf")).unwrap();
        record.metrics["par.cpu"]
    };
    for host in ["eevdf", "vmfair", "vtime"] {
        let kvm = had(host, "");
        assert!((kvm - 2.0).abs() < 0.1, "{host}: {kvm} CPUs");
    }
    assert!(had("eevdf", "ple_yield = \"xen\"\n") < 0.5);
    let (said, xen) = (had("credit", ""), had("credit", "ple_yield = \"xen\"\n"));
    assert_eq!(said, xen, "credit's is Xen's way");
    assert_ne!(said, had("credit", "ple_yield = \"kvm\"\n"));
}

/// A guest's slice is over in the same tick as its vCPU's: the switch is due 1 us later, when the vCPU has no CPU. The
/// guest's watchdog, which looks meanwhile, must not make it.
#[test]
fn a_switch_that_is_due_waits_for_its_vcpu() {
    let text = "[run]\nwarmup = \"10ms\"\nmeasure = \"60s\"\n[host]\ncores = 2\n[host.cost]\ntick = \"1us\"\n\
         [vm.a]\ncount = 3\nvcpus = 2\ntasks = [\"burn\"]\n[task.burn]\nmodel = \"busy\"\nthreads = 4\n";
    let record = run(text, "credit", &shipped("eevdf")).unwrap();
    let cpu = record.metrics["a.cpu"];
    assert!((1.999..=2.0).contains(&cpu), "{cpu}");
}
