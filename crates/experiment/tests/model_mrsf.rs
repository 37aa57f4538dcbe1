// SPDX-License-Identifier: GPL-2.0-only
//! The simulator against M/M/c/N (M-RSF, section 5): thirty points of load, room and number of servers.
use berth_experiment::model::mrsf::{Question, Verdict, answer};
use berth_experiment::simulator::Running;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

#[test]
fn thirty_queues_are_simulated_as_they_are_calculated() {
    let (mut points, mut outside) = (0, 0);
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
            outside += usize::from((wait.mean - p.queue.wait).abs() > wait.half);
            assert!(
                matches!(p.verdict, Verdict::Agrees | Verdict::TooWide { .. }),
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
    // A 95 % interval leaves one of twenty out: more than four of thirty in 1.6 % of such tests.
    assert!(outside <= 4, "{outside}");
}

/// Near and above saturation the queue fills slowly: the run waits until it has, or nothing is judged.
#[test]
fn queues_that_fill_slowly_are_waited_for() {
    let question = Question {
        loads: vec![1.0, 1.05],
        rooms: vec![30, 1000],
        servers: 3,
        seeds: 4,
    };
    let points = answer(&question, &Running::new(0, &NEVER)).unwrap_or_else(|e| panic!("{e:?}"));
    let verdicts: Vec<&Verdict> = points.iter().map(|p| &p.verdict).collect();
    let judged = |v: &Verdict| matches!(v, Verdict::Agrees | Verdict::TooWide { .. });
    assert!(
        judged(verdicts[0]) && judged(verdicts[2]) && judged(verdicts[3]),
        "{points:?}"
    );
    assert!(
        matches!(verdicts[1], Verdict::TooLong { arrivals } if *arrivals > 1e7),
        "{points:?}"
    );
}
