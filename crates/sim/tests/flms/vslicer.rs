// SPDX-License-Identifier: GPL-2.0-only
//! `vslicer`, the reconstruction of vSlicer: its invariants.
use crate::support::Cast;
use crate::world::{
    BUSY, MS, assert_near, hogs, index_of, longest_gap, measured, napper, on, peek, runtime, vm,
};
use berth_scenario::model::Class;
use berth_sim::Simulation;
use berth_sim::machine::Shape;

fn beside_three(more: &str) -> String {
    format!("{}{more}", hogs("cores = 1", &[100, 100, 100]))
}

const BUSY_LS: &str = "[vm.ls]\nclass = \"latency\"\ntasks = [\"hog\"]\n";

/// Invariants 1 and 3: a quarter for each of four; in a round of four slices, 120 ms, six turns of the one that is
/// latency-sensitive instead of one, each with a switch to it and one from it.
#[test]
fn a_latency_vcpu_has_its_share_in_short_turns() {
    let text = beside_three(BUSY_LS);
    let m = measured("vslicer", &[], "20s", &text);
    for vm in ["ls", "v0", "v1", "v2"] {
        assert_near(m[&format!("{vm}.cpu")], 0.25, 0.01, vm);
    }
    let credit = measured("credit", &[], "20s", &text);
    let more = m["host.switches"] - credit["host.switches"];
    let turns = 1000.0 / 120.0 * 6.0;
    assert!(
        (turns..=2.0 * turns).contains(&more),
        "{more} more switches a second"
    );
}

/// Four hogs on a CPU, the first of them latency-sensitive.
fn four_hogs(policy: &str, set: &[(&str, &str)]) -> Box<Simulation<Cast>> {
    let mut cast = Cast::default();
    for i in 0..4 {
        cast.vcpu(i, 0, 0, &BUSY);
    }
    let class = |i| if i == 0 { Class::Latency } else { Class::Batch };
    let vms: Vec<_> = (0..4).map(|i| vm(i, class(i), 100, 1)).collect();
    on(policy, Shape::flat(1), &vms, cast, set)
}

/// The longest time without the latency-sensitive one on a CPU, us.
fn gap(policy: &str, set: &[(&str, &str)]) -> u64 {
    let mut m = four_hogs(policy, set);
    m.run_until(10 * MS).unwrap();
    let ls = peek(&mut m, |p| index_of(p, 0));
    let longest = longest_gap(&mut m, 0, ls, 1_000 * MS, 5_000 * MS, 100_000);
    m.check().unwrap();
    longest / 1_000
}

/// Invariant 5: in no 20 ms, the length of a frame, it has more than its quarter and a turn of 5 ms.
#[test]
fn a_latency_vcpu_is_never_ahead_by_more_than_a_turn() {
    let mut m = four_hogs("vslicer", &[]);
    let (mut had, mut most) = (Vec::new(), 0);
    for at in 1_000..5_000 {
        m.run_until(at * MS).unwrap();
        had.push(runtime(&m, 0));
        if let Some(before) = had.len().checked_sub(21) {
            most = most.max(had[had.len() - 1] - had[before]);
        }
    }
    assert!((5 * MS..=10 * MS).contains(&most), "{most} ns in 20 ms");
    m.check().unwrap();
}

/// Invariant 2.
#[test]
fn a_busy_latency_vcpu_waits_for_a_frame_less_its_turn() {
    let longest = gap("vslicer", &[]);
    assert!((14_800..=15_200).contains(&longest), "{longest} us");
    let longest = gap("vslicer", &[("turns", "3")]);
    assert!((29_800..=30_200).contains(&longest), "{longest} us");
    let longest = gap("credit", &[]);
    assert!(longest >= 89_800, "{longest} us");
}

/// Invariant 4.
#[test]
fn one_that_sleeps_waits_for_the_rate_limit_at_most() {
    let text = beside_three(&napper("web", "latency", "20ms", "200us"));
    let m = measured("vslicer", &[], "20s", &text);
    assert!(m["web.wakeup.max"] <= 1.05e6, "{}", m["web.wakeup.max"]);
    // Its turn is used up after 5 ms in a frame of 20: what it wants beyond that waits its turn.
    let text = beside_three(&napper("web", "latency", "20ms", "6ms"));
    let m = measured("vslicer", &[], "20s", &text);
    assert_near(m["web.cpu"], 0.25, 0.02, "its share");
}
