// SPDX-License-Identifier: GPL-2.0-only
//! D11b: where a vCPU of the group for I/O goes when it wakes. A hog holds CPU 0; a light vCPU whose last CPU that is
//! wakes now and then while other CPUs of the group are idle.
use crate::support::Cast;
use crate::world::*;
use berth_scenario::model::Class;
use berth_sim::machine::Shape;
use berth_sim::workload::api::Role;

/// Two packages of two cores of two threads; all but the last are SP.
const SHAPE: Shape = Shape {
    nodes: 1,
    packages: 2,
    llcs: 1,
    cores: 2,
    threads: 2,
};

/// The CPU on which the light vCPU is just after it has woken for the second time, with hogs on these CPUs, and whether
/// it runs there. `same_package` and `other_package` of 1000: no idle CPU of another core would come for it.
fn second_turn(hogs: &[u32], params: &[(&str, &str)]) -> (u32, bool) {
    let mut cast = Cast::default();
    let mut vms = vec![vm(0, Class::Batch, 7, 1)];
    cast.vcpu(0, 0, 0, &BUSY);
    // At 0 and 20 ms, each time for 0.1 ms. A helper thread with a device's part is born where it is to be.
    cast.vcpu(1, 0, 0, &naps(MS / 10, 19_900_000));
    cast.scripts[1].spec.role = Role::Iothread;
    vms.push(vm(1, Class::Latency, 100, 1));
    cast.masks = vec![vec![7], vec![]];
    for (i, cpu) in hogs.iter().enumerate() {
        let n = 2 + i as u32;
        cast.vcpu(n, 0, 10 * MS, &BUSY);
        vms.push(vm(n, Class::Latency, 100, 1));
        cast.masks.push(vec![*cpu]);
    }
    let mut m = machine(SHAPE, &vms, cast, params);
    m.run_until(19 * MS).unwrap();
    peek(&mut m, |p| {
        assert_eq!(sp(p, 8), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(p.vcpu(index_of(p, 1), "cpu"), 0);
    });
    m.run_until(20 * MS + MS / 20).unwrap();
    m.check().unwrap();
    peek(&mut m, |p| {
        let v = index_of(p, 1);
        let cpu = p.vcpu(v, "cpu") as u32;
        (cpu, p.curr(cpu) == v)
    })
}

const TICKLE: (&str, &str) = ("wake_place", "tickle");
const DIRECT: (&str, &str) = ("wake_place", "direct");
const NEVER: [(&str, &str); 2] = [("same_package", "1000"), ("other_package", "1000")];

fn with(place: (&'static str, &'static str)) -> Vec<(&'static str, &'static str)> {
    [&[place][..], &NEVER].concat()
}

/// Its own CPU, if that is idle, in both readings.
#[test]
fn an_idle_cpu_of_its_own_is_taken() {
    assert_eq!(second_turn(&[], &with(TICKLE)), (0, true));
    assert_eq!(second_turn(&[], &with(DIRECT)), (0, true));
}

/// `direct` puts it on the nearest idle one: core, package, other; of equals the lowest.
#[test]
fn direct_goes_to_the_nearest_idle_cpu() {
    assert_eq!(second_turn(&[0], &with(DIRECT)), (1, true));
    assert_eq!(second_turn(&[0, 1], &with(DIRECT)), (2, true));
    assert_eq!(second_turn(&[0, 1, 2], &with(DIRECT)), (3, true));
    assert_eq!(second_turn(&[0, 1, 2, 3], &with(DIRECT)), (4, true));
    // Nobody idle: it waits where it was.
    let all = [0, 1, 2, 3, 4, 5, 6];
    assert_eq!(second_turn(&all, &with(DIRECT)), (0, false));
}

/// `tickle`, the preset `paper`: it waits where it was, and an idle CPU of the group is asked to come, which runs the
/// eight steps: without a threshold it takes it; with one that the loads do not pass it does not.
#[test]
fn tickle_leaves_it_to_an_idle_cpu_that_may_refuse() {
    assert_eq!(second_turn(&[0, 1], &with(TICKLE)), (0, false));
    let (cpu, runs) = second_turn(
        &[0, 1],
        &[TICKLE, ("same_package", "0"), ("other_package", "0")],
    );
    // Loads are 0 until the first T_busy is over: no difference at all is still refused.
    assert_eq!((cpu, runs), (0, false));
    // From its own core there is no threshold.
    assert_eq!(second_turn(&[0], &with(TICKLE)), (1, true));
}

/// The default is the preset `paper`, which is `tickle`.
#[test]
fn the_paper_is_read_as_tickle() {
    assert_eq!(second_turn(&[0, 1], &NEVER), (0, false));
    let presets = flms().presets();
    let of = |name: &str| {
        let found = presets.iter().find(|p| p.name == name).unwrap();
        found.values["wake_place"].clone()
    };
    assert_eq!(
        (of("paper"), of("paper-direct")),
        ("tickle".into(), "direct".into())
    );
}
