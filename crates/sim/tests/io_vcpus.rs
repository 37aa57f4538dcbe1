// SPDX-License-Identifier: GPL-2.0-only
//! vCPUs that are there for I/O take the interrupts of their VM (FLMS, decision D14b of its specification), for threads
//! on other vCPUs, too: by hand, on a machine without costs.
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
    for disk in &mut scenario.disks {
        (disk.syscall_ns, disk.submit_ns, disk.irq_ns) = (0, 0, 0);
        (disk.copy_ns, disk.per_request_host_ns) = (0, 0);
    }
    scenario
}

/// One CPU for a VM of two vCPUs and one that always computes, first come, first served, by slices of 20 ms. What
/// serves keys, or reads, is bound to vCPU 0.
fn metrics(class: &str, tasks: &str) -> BTreeMap<String, f64> {
    let text = format!(
        "[run]\nwarmup = \"1s\"\nmeasure = \"3s\"\n[host]\ncores = 1\nhz = \"exact\"\n\
         [vm.m]\nvcpus = 2\n{class}\nguest = {{ hz = \"exact\" }}\n\
         [vm.hog]\nvcpus = 1\ntasks = [\"burn\"]\nguest = \"none\"\n\
         [task.burn]\nmodel = \"busy\"\n{tasks}"
    );
    let scenario = scenario(&text);
    let inside = |vm: &berth_scenario::model::Vm| {
        (!vm.guest.is_none()).then(|| GuestPolicy {
            policy: shipped("gfifo"),
            params: BTreeMap::new(),
        })
    };
    let options = Options {
        guests: scenario.vms.iter().map(inside).collect(),
        ..Options::default()
    };
    let host = shipped("gfifo");
    let run = run_one(&scenario, "a", &host, &BTreeMap::new(), 1, &options);
    run.unwrap().metrics
}

const MIXED: &str = "class = \"mixed\"\nreserved_vcpus = 1";

const KEYS: &str = "[task.shell]\nthreads = 1\naffinity = [0]\nloop = [\"receive keys\", \"compute 1ms\", \"reply\"]\n\
                    [client.keys]\nto = \"m\"\nsends = \"closed(1 users, think 50ms)\"\n";

/// A key comes 50 ms after the end of an answer, from which on the other VM has slices of 20 ms: it waits for 10. The
/// reserved vCPU takes no time, and wakes vCPU 0, which waits for one slice more. A VM of another class is interrupted
/// where the shell is.
#[test]
fn an_interrupt_waits_for_the_reserved_vcpu() {
    let of = |class: &str| metrics(&format!("{class}\ntasks = [\"shell\"]"), KEYS);
    let response = |m: BTreeMap<String, f64>| (m["m.response.mean"], m["m.response.max"]);
    assert_eq!(response(of(MIXED)), (31.0 * MS, 31.0 * MS));
    let other = "class = \"latency\"";
    assert_eq!(response(of(other)), (11.0 * MS, 11.0 * MS));
}

/// The disk takes 1 ms while the other VM has its slice of 20: then the interrupt comes, for a mixed VM to the reserved
/// vCPU, and one slice later vCPU 0 goes on. A thread of the VMM waits for a slice before the disk, and for one after.
#[test]
fn a_disk_too_interrupts_the_reserved_vcpu() {
    for (path, ms) in [("direct", 20.0), ("virtio", 60.0)] {
        let reads = format!(
            "[task.reader]\nthreads = 1\naffinity = [0]\nloop = [\"read sda 4KiB\", \"compute 1ms\"]\n\
             [disk.sda]\npath = \"{path}\"\nbandwidth = \"4.096MB/s\"\nseek = \"0s\"\ncache = \"0B\"\n\
             file = \"4KiB\"\n"
        );
        let longest =
            |class: &str| metrics(&format!("{class}\ntasks = [\"reader\"]"), &reads)["m.disk.max"];
        assert_eq!(longest("class = \"latency\""), ms * MS, "{path}");
        assert_eq!(longest(MIXED), (ms + 20.0) * MS, "{path}");
    }
}
