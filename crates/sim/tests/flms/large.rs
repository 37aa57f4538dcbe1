// SPDX-License-Identifier: GPL-2.0-only
//! Large hosts: nobody waits while a CPU of its group is idle, within what the thresholds allow.
use crate::support::Cast;
use crate::world::*;
use berth_scenario::model::Class;
use berth_sim::machine::Shape;

/// Busy vCPUs of VMs of four, on a host that has a CPU for each in its group: CPUs that compute at the end, and vCPUs
/// that do.
fn all_run(cpus: u32, io: u32, compute: u32, wake_place: &str) {
    let mut cast = Cast::default();
    let mut vms = Vec::new();
    for n in 0..io + compute {
        let class = if n < io { Class::Latency } else { Class::Batch };
        for i in 0..4 {
            cast.vcpu(n, i, 0, &BUSY);
        }
        vms.push(vm(n, class, 100, 4));
    }
    let mut m = machine(Shape::flat(cpus), &vms, cast, &[("wake_place", wake_place)]);
    for ms in [500, 1_000, 2_000, 3_000] {
        m.run_until(ms * MS).unwrap();
        let running = peek(&mut m, |p| {
            (0..cpus).filter(|c| p.curr(*c) != 0).count() as u32
        });
        assert_eq!(running, 4 * (io + compute), "at {ms} ms of {cpus} CPUs");
    }
    m.check().unwrap();
}

/// 60 busy vCPUs on 128 CPUs, 32 of them in latency VMs.
#[test]
fn sixty_vcpus_have_a_cpu_each_of_128() {
    all_run(128, 8, 7, "tickle");
    all_run(128, 8, 7, "direct");
}

/// 240 vCPUs on 256 CPUs.
#[test]
fn two_hundred_and_forty_have_one_each_of_256() {
    all_run(256, 30, 30, "tickle");
}

/// Two vCPUs on one CPU, an idle one in their group: it comes once the loads differ by more than A allows, and no tick
/// has to send anybody.
#[test]
fn an_idle_cpu_comes_back_when_it_is_worth_the_way() {
    let mut cast = Cast::default();
    for i in 0..2 {
        cast.vcpu(i, 0, 0, &BUSY);
        // Helper threads start where they are born; vCPUs would be placed.
        cast.scripts[i as usize].spec.role = berth_sim::workload::api::Role::Emulator;
    }
    let vms = [vm(0, Class::Batch, 100, 1), vm(1, Class::Batch, 100, 1)];
    let mut m = machine(Shape::flat(2), &vms, cast, &[("tick_moves", "0")]);
    m.run_until(25 * MS).unwrap();
    // At first they do not differ: A holds.
    assert_eq!(peek(&mut m, |p| p.curr(1)), 0);
    m.run_until(120 * MS).unwrap();
    assert_ne!(peek(&mut m, |p| p.curr(1)), 0);
}
