// SPDX-License-Identifier: GPL-2.0-only
//! The stored recordings: complete, readable, within their rows' bounds, and a comparison that sees what is
//! wrong with a log.
use berth_conformance::golden::{LINES, load};
use berth_conformance::log::{Line, Log, check_spans, compare};
use berth_conformance::row::Op;
use berth_conformance::rows::rows;

#[test]
fn every_row_is_recorded_on_the_newest_line() {
    let newest = LINES[LINES.len() - 1];
    for row in rows() {
        assert!(
            load(newest, &row).unwrap().is_some(),
            "{} has no recording on {newest}",
            row.name
        );
    }
}

#[test]
fn recordings_survive_writing_and_reading_and_keep_their_bounds() {
    for line in LINES {
        for row in rows() {
            let Some(golden) = load(line, &row).unwrap() else {
                continue;
            };
            assert!(
                golden.kernel.starts_with(line),
                "{} is from {}",
                row.name,
                golden.kernel
            );
            assert_eq!(
                Log::parse(&golden.log.to_string()).unwrap(),
                golden.log,
                "{}",
                row.name
            );
            check_spans(&row, &golden.log).unwrap();
            compare(&row, &golden.log, &golden.log).unwrap();
            assert_eq!(
                golden.log.exit.is_some(),
                row.ejects.is_some(),
                "{} on {line}",
                row.name
            );
        }
    }
}

#[test]
fn a_missing_a_doubled_and_a_swapped_call_are_seen() {
    for row in rows() {
        let Some(golden) = load("7.2", &row).unwrap() else {
            continue;
        };
        let log = &golden.log;
        for i in 0..log.lines.len() {
            let mut wrong = log.clone();
            wrong.lines.remove(i);
            assert!(
                compare(&row, log, &wrong).is_err(),
                "{}: call {i} is missing",
                row.name
            );
            let mut wrong = log.clone();
            wrong.lines.insert(i, log.lines[i].clone());
            assert!(
                compare(&row, log, &wrong).is_err(),
                "{}: call {i} is doubled",
                row.name
            );
            let next = log.lines.get(i + 1);
            let untimed = |line: &Line| Line {
                at_ns: 0,
                ..line.clone()
            };
            let here = untimed(&log.lines[i]);
            let same_cpu = next.is_some_and(|n| n.cpu == here.cpu && untimed(n) != here);
            if same_cpu {
                let mut wrong = log.clone();
                wrong.lines.swap(i, i + 1);
                assert!(
                    compare(&row, log, &wrong).is_err(),
                    "{}: call {i} is late",
                    row.name
                );
            }
        }
        let mut wrong = log.clone();
        wrong.exit = Some(log.exit.unwrap_or(0) + 1);
        assert!(compare(&row, log, &wrong).is_err());
    }
}

#[test]
fn bounds_on_times_are_checked() {
    let row = rows()
        .into_iter()
        .find(|r| r.name == "10-ticks-end-slices")
        .unwrap();
    let mut log = load("7.2", &row).unwrap().unwrap().log;
    let stop = log
        .lines
        .iter()
        .position(|l| l.op == Op::Stopping.name())
        .unwrap();
    log.lines[stop].at_ns -= 5_000_000;
    assert!(check_spans(&row, &log).is_err());
}

#[test]
fn names_are_unique_and_labels_exist() {
    let all = rows();
    let mut names: Vec<_> = all.iter().map(|r| r.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
    for row in &all {
        assert!(
            row.rules.len() <= berth_conformance::row::MAX_RULES,
            "{}",
            row.name
        );
        for rule in &row.rules {
            let known = "*-".contains(rule.label) || row.cast.iter().any(|a| a.label == rule.label);
            assert!(known, "{}: a rule for {}", row.name, rule.label);
        }
    }
}
