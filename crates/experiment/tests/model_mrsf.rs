// SPDX-License-Identifier: GPL-2.0-only
//! The simulator against M/M/c/N (M-RSF, section 5): thirty points of load, room and number of servers.
use berth_experiment::model::mrsf::{Question, answer};
use berth_experiment::simulator::Running;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

#[test]
fn thirty_queues_are_simulated_as_they_are_calculated() {
    let mut points = 0;
    for servers in [1, 3, 5] {
        let question = Question {
            loads: vec![0.3, 0.5, 0.8, 0.9, 1.2],
            rooms: vec![10, 40],
            servers,
            seeds: 8,
        };
        for p in answer(&question, &Running::new(0, &NEVER)).unwrap_or_else(|e| panic!("{e:?}")) {
            let (wait, lost) = (p.wait.unwrap(), p.lost.unwrap());
            assert!(
                wait.half < 0.25 * p.queue.wait + 0.01,
                "too wide to say anything: {p:?}"
            );
            assert!(
                (wait.mean - p.queue.wait).abs() <= wait.half && p.agrees(),
                "{p:?}"
            );
            assert!(
                (lost.mean - p.queue.lost).abs() <= 1.5 * lost.half + 1e-4,
                "{p:?}"
            );
            points += 1;
        }
    }
    assert_eq!(points, 30);
}
