// SPDX-License-Identifier: GPL-2.0-only
//! `amp` in the simulator against the closed forms of its specification (section 7): the table, and 200 random points.
use berth_experiment::model::amp::{Point, Question, answer};
use berth_experiment::simulator::Running;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

fn points(question: &Question) -> Vec<Point> {
    let running = Running::new(0, &NEVER);
    answer(question, &running).unwrap_or_else(|e| panic!("{e:?}"))
}

#[test]
fn every_point_of_the_table_is_simulated_as_it_is_calculated() {
    let points = points(&Question::default());
    // Five efficiencies, three R; adaptive R for each.
    assert_eq!(points.len(), 20);
    for p in points {
        assert!(p.agrees(), "{p:?}");
    }
}

/// Ten e1, four e2 each, five R each.
#[test]
fn two_hundred_random_points_are_simulated_as_they_are_calculated() {
    let mut state = 7_u64;
    // Of 0 to 1, from a linear congruential generator (Knuth's MMIX).
    let mut part = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut checked = 0;
    for _ in 0..10 {
        let e1 = 1.0 + 1.375 * part();
        let question = Question {
            e1,
            e2: (0..4).map(|_| 1.0 + (e1 - 1.0) * part()).collect(),
            r_percent: (0..5).map(|_| (101.0 * part()).floor()).collect(),
            ..Question::default()
        };
        for p in points(&question).iter().filter(|p| !p.adaptive) {
            assert!(p.agrees(), "{p:?}");
            checked += 1;
        }
    }
    assert_eq!(checked, 200);
}
