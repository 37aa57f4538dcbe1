// SPDX-License-Identifier: GPL-2.0-only
//! `best_node`, the reconstruction of the best NUMA node: its invariants.
use crate::nodes::{FULL, Hogs, counter, counts, homes, two_nodes};
use crate::support::Cast;
use crate::world::{MS, assert_near, hogs, measured, peek};
use berth_sim::Simulation;

const PERIOD: u64 = 1_000 * MS;

fn heavy(vcpus: u32, on_first: u32) -> Hogs {
    Hogs {
        vcpus,
        stalled: FULL / 2,
        on_first,
    }
}

/// One that reads no memory.
fn light(vcpus: u32) -> Hogs {
    Hogs {
        vcpus,
        stalled: 0,
        on_first: FULL / 2,
    }
}

/// What is told of memory is taken back: counters are left.
fn forget(m: &mut Simulation<Cast>, vms: u32) {
    peek(m, |p| {
        let told = p.0.map("berth_memory_by_vm").unwrap();
        for slot in 1..=vms {
            told.update(&slot.to_ne_bytes(), &[0; 64], 0).unwrap();
            p.set("places_by_vm", slot, "told", u64::MAX);
        }
    });
}

/// All memory on one node and nobody else there: it is there within two periods, told of it or not.
#[test]
fn a_vm_ends_where_its_memory_is() {
    for told in [true, false] {
        for node in [0, 1] {
            let mut m = two_nodes("best_node", 4, &[heavy(2, FULL * (1 - node))], 1, &[]);
            if !told {
                m.run_until(MS).unwrap();
                forget(&mut m, 1);
            }
            m.run_until(2 * PERIOD + MS).unwrap();
            assert_eq!(homes(&mut m, 1), [node], "told: {told}");
            m.run_until(6 * PERIOD).unwrap();
            assert_eq!(homes(&mut m, 1), [node], "told: {told}");
            let moves = counter(&mut m, "moves");
            assert_eq!(moves, u64::from(node), "it began on node 0");
            m.check().unwrap();
        }
    }
}

/// Two that read much, with memory on both nodes, do not stay on one.
#[test]
fn who_read_much_end_on_different_nodes() {
    let half = FULL / 2;
    // By room they begin on node 0, 1, 0 and 1.
    let vms = [light(1), heavy(2, half), light(2), heavy(1, half)];
    for told in [true, false] {
        let mut m = two_nodes("best_node", 8, &vms, 1, &[]);
        m.run_until(MS).unwrap();
        assert_eq!(homes(&mut m, 4), [0, 1, 0, 1]);
        if !told {
            forget(&mut m, 4);
        }
        m.run_until(2 * PERIOD + MS).unwrap();
        let there = homes(&mut m, 4);
        assert_ne!(there[1], there[3], "{there:?}");
        // And stay there.
        m.run_until(8 * PERIOD).unwrap();
        assert_eq!(homes(&mut m, 4), there);
        m.check().unwrap();
    }
}

/// A gain of 8 % moves nobody, one of 12 % does.
#[test]
fn small_gains_move_nobody() {
    for (on_first, home) in [(460_000, 0), (440_000, 1)] {
        let mut m = two_nodes("best_node", 4, &[heavy(1, on_first)], 1, &[]);
        m.run_until(5 * PERIOD).unwrap();
        assert_eq!(homes(&mut m, 1), [home], "{on_first}");
    }
}

/// At most one move of a VM in a period, whatever happens.
#[test]
fn a_vm_moves_once_in_a_period_at_most() {
    let half = FULL / 2;
    let vms = [
        heavy(1, 0),
        heavy(1, 0),
        heavy(2, FULL),
        heavy(1, half),
        light(1),
        heavy(2, half),
    ];
    let set = [("hysteresis_percent", "0"), ("contention_percent", "200")];
    let mut m = two_nodes("best_node", 6, &vms, 1, &set);
    let mut moves = [[0; 6]; 12];
    let mut before = Vec::new();
    for at in 1..12_000 {
        m.run_until(at * MS).unwrap();
        let now = homes(&mut m, 6);
        for vm in 0..6 {
            let moved = before.get(vm).is_some_and(|home| *home != now[vm]);
            // Rounds begin at whole seconds.
            moves[at as usize / 1_000][vm] += u32::from(moved);
        }
        before = now;
    }
    assert!(moves.iter().flatten().all(|n| *n <= 1), "{moves:?}");
    assert!(moves.iter().flatten().any(|n| *n == 1));
}

/// A node takes as many vCPUs as it has CPUs: the third stays out.
#[test]
fn a_full_node_takes_nobody() {
    let mut m = two_nodes("best_node", 4, &[heavy(2, 0); 3], 1, &[]);
    m.run_until(5 * PERIOD).unwrap();
    assert_eq!(counts(&mut m, 3), [2, 4]);
    assert!(counter(&mut m, "full") > 0);
}

/// With seven vCPUs for four CPUs, a node of two takes four.
#[test]
fn room_grows_with_the_load() {
    let mut vms = vec![light(1); 7];
    vms[0] = heavy(1, 0);
    let mut m = two_nodes("best_node", 2, &vms, 1, &[]);
    m.run_until(MS).unwrap();
    assert_eq!((homes(&mut m, 1), counts(&mut m, 7)), (vec![0], [4, 3]));
    m.run_until(PERIOD + 100_000).unwrap();
    assert_eq!(homes(&mut m, 1), [1]);
    // Nobody reads but this one, which all others would rather not be with: one that has room has gone.
    m.run_until(3 * PERIOD).unwrap();
    assert_eq!((homes(&mut m, 1), counts(&mut m, 7)), (vec![1], [4, 3]));
}

/// Who has more vCPUs than a node has CPUs stays where Credit puts it.
#[test]
fn who_fits_nowhere_is_left_to_credit() {
    let mut m = two_nodes("best_node", 4, &[heavy(6, FULL)], 1, &[]);
    m.run_until(3 * PERIOD).unwrap();
    let home = peek(&mut m, |p| p.get("places_by_vm", 1, "home"));
    assert_eq!((home, counter(&mut m, "moves")), (0, 0));
    assert!(counter(&mut m, "large") > 0);
    let busy = peek(&mut m, |p| (0..8).filter(|cpu| p.curr(*cpu) != 0).count());
    assert_eq!(busy, 6);
}

/// Inside nodes it is Credit: equal hogs have what they have there, and more work comes of it.
#[test]
fn shares_are_those_of_credit() {
    let text = hogs(
        "packages = 2\ncores = 2\npmu = true\nremote_memory = 1.5",
        &[100; 8],
    );
    // By room they begin on nodes 0 and 1 in turn.
    let text = (0..8).fold(text, |text, i| {
        let parts = ["[\"90%\", \"10%\"]", "[\"10%\", \"90%\"]"][i % 2];
        let vm = format!("[vm.v{i}]\n");
        text.replace(&vm, &format!("{vm}memory = {parts}\n"))
    });
    let text = text.replace("\"busy\"", "\"busy\"\nstall = \"40%\"");
    let ours = measured("best_node", &[], "20s", &text);
    for vm in 0..8 {
        let key = format!("v{vm}.cpu");
        assert_near(ours[&key], 0.5, 0.02, &key);
        // A tenth elsewhere, half as long again for it.
        let rate = ours[&format!("v{vm}.work")] / 20e9 / ours[&key];
        assert_near(rate, 1.0 / (0.6 + 0.4 * 1.05), 0.01, "rate");
    }
}

/// Without counters and told nothing, everybody stays, and it says so.
#[test]
fn without_anything_to_go_by_everybody_stays() {
    let text = hogs("packages = 2\ncores = 4", &[100; 6]);
    let run = measured("best_node", &[], "4s", &text);
    let of = |name: &str| run[&format!("policy.{name}")];
    assert!(of("looks") > 4.0);
    assert_eq!([of("unknown"), of("moves")], [of("looks"), 0.0]);
}
