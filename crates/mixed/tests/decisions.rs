// SPDX-License-Identifier: GPL-2.0-only
//! What the sorter decides: by hand, and against a second way of finding it from the whole history.
use berth_mixed::{
    Change, Decision, Error, Observation, Process, Reason, Row, Seen, Settings, Side, Sorter,
    Standing,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;

fn process(number: u32) -> Process {
    Process {
        number,
        start: u64::from(number) * 7,
    }
}

/// A process of a user that has used so much in all, in percent of seconds.
fn seen(number: u32, percent: u64) -> Seen {
    Seen {
        process: process(number),
        uid: 1000,
        ran_ns: percent * SECOND / 100,
        standing: Standing::Free,
    }
}

fn at(second: u64, processes: Vec<Seen>) -> Observation {
    Observation {
        at_ns: second * SECOND,
        processes,
    }
}

/// One process that uses these percentages, a second each: what is decided at each observation.
fn course(settings: Settings, used: &[u64]) -> Vec<Option<Change>> {
    let mut sorter = Sorter::new(settings).unwrap();
    let mut ran = 0;
    let mut all = Vec::new();
    for second in 0..=used.len() {
        if second > 0 {
            ran += used[second - 1];
        }
        let decision = sorter
            .observe(&at(second as u64, vec![seen(1, ran)]))
            .unwrap();
        assert!(decision.changes.len() <= 1 && decision.ended.is_empty());
        all.push(decision.changes.into_iter().next());
    }
    all
}

fn sides(settings: Settings, used: &[u64]) -> String {
    let letter = |c: &Option<Change>| match c.as_ref().map(|c| c.to) {
        None => '.',
        Some(Some(Side::Compute)) => 'c',
        Some(Some(Side::Reserved)) => 'r',
        Some(None) => '-',
    };
    course(settings, used).iter().map(letter).collect()
}

#[test]
fn by_hand() {
    let d = Settings::default();
    // It starts where it computes; after three light periods it is moved, after three that are not, it is back.
    assert_eq!(sides(d, &[1, 2, 3, 1, 50, 50, 50, 50]), "c..r...c.");
    // Neither threshold belongs to its side: exactly 5 % is not light, exactly 20 % is not heavy.
    assert_eq!(sides(d, &[5, 5, 5, 5]), "c....");
    assert_eq!(sides(d, &[4, 4, 4, 20, 20, 20, 20]), "c..r....");
    // One period of another kind, and it begins anew.
    assert_eq!(sides(d, &[1, 1, 6, 1, 1, 1]), "c.....r");
    assert_eq!(sides(d, &[1, 1, 1, 30, 30, 10, 30, 30, 30]), "c..r.....c");
    // In between it stays, for ever.
    assert_eq!(sides(d, &[1, 1, 1, 10, 10, 10, 10]), "c..r....");
    // Several threads: more than one vCPU.
    assert_eq!(sides(d, &[1, 1, 1, 300, 300, 300]), "c..r..c");
    let quick = Settings { periods: 1, ..d };
    assert_eq!(sides(quick, &[1, 21, 1, 10]), "crcr.");
}

#[test]
fn reasons_are_data_and_sentences() {
    let all = course(Settings::default(), &[1, 3, 2, 40, 25, 90]);
    let reasons: Vec<Reason> = all.into_iter().flatten().map(|c| c.reason).collect();
    let [
        Reason::Starts,
        Reason::Light { most, periods: 3 },
        Reason::Heavy { least, periods: 3 },
    ] = reasons[..]
    else {
        panic!("{reasons:?}");
    };
    assert!((most - 0.03).abs() < 1e-9 && (least - 0.25).abs() < 1e-9);
    let words: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "starts where processes compute",
            "used at most 3.0 % of a vCPU in each of 3 periods",
            "used at least 25.0 % of a vCPU in each of 3 periods",
        ]
    );
}

#[test]
fn the_systems_the_pinned_and_the_forbidden_are_left_alone() {
    let mut sorter = Sorter::new(Settings::default()).unwrap();
    let all = || {
        vec![
            Seen {
                uid: 999,
                ..seen(1, 0)
            },
            Seen {
                standing: Standing::Pinned,
                ..seen(2, 0)
            },
            Seen {
                standing: Standing::Denied,
                ..seen(3, 0)
            },
        ]
    };
    for second in 0..10 {
        assert_eq!(sorter.observe(&at(second, all())).unwrap().changes, []);
    }
    let reasons: Vec<Reason> = sorter.rows().map(|r| r.reason).collect();
    assert_eq!(
        reasons,
        [Reason::System { uid: 999 }, Reason::Pinned, Reason::Denied]
    );
    assert!(sorter.rows().all(|r| r.side.is_none()));
}

#[test]
fn what_becomes_somebody_elses_is_let_go() {
    let mut sorter = Sorter::new(Settings::default()).unwrap();
    for second in 0..4 {
        sorter.observe(&at(second, vec![seen(1, 0)])).unwrap();
    }
    assert_eq!(sorter.side(process(1)), Some(Side::Reserved));
    let pinned = Seen {
        standing: Standing::Pinned,
        ..seen(1, 0)
    };
    let change = |d: &Decision| d.changes.first().map(|c| (c.from, c.to, c.reason));
    let decision = sorter.observe(&at(4, vec![pinned])).unwrap();
    assert_eq!(
        change(&decision),
        Some((Some(Side::Reserved), None, Reason::Pinned))
    );
    // Free again, it starts as one that was never seen.
    let decision = sorter.observe(&at(5, vec![seen(1, 0)])).unwrap();
    assert_eq!(
        change(&decision),
        Some((None, Some(Side::Compute), Reason::Starts))
    );
    for second in 6..8 {
        let decision = sorter.observe(&at(second, vec![seen(1, 0)])).unwrap();
        assert_eq!(change(&decision), None);
    }
    let decision = sorter.observe(&at(8, vec![seen(1, 0)])).unwrap();
    assert_eq!(change(&decision).unwrap().1, Some(Side::Reserved));
    // It becomes another user's.
    let root = Seen {
        uid: 0,
        ..seen(1, 0)
    };
    let decision = sorter.observe(&at(9, vec![root])).unwrap();
    assert_eq!(
        change(&decision),
        Some((Some(Side::Reserved), None, Reason::System { uid: 0 }))
    );
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    let mut sorter = Sorter::new(Settings::default()).unwrap();
    for second in 0..4 {
        sorter.observe(&at(second, vec![seen(1, 0)])).unwrap();
    }
    let mut other = seen(1, 0);
    other.process.start += 1;
    let decision = sorter.observe(&at(4, vec![other.clone()])).unwrap();
    assert_eq!(decision.ended, [process(1)]);
    assert_eq!(decision.changes[0].process, other.process);
    assert_eq!(decision.changes[0].to, Some(Side::Compute));
}

#[test]
fn wrong_observations_change_nothing() {
    let mut sorter = Sorter::new(Settings::default()).unwrap();
    sorter.observe(&at(1, vec![seen(1, 0)])).unwrap();
    let before: Vec<Row> = sorter.rows().collect();
    let twice = at(2, vec![seen(2, 0), seen(1, 0), seen(2, 1)]);
    assert_eq!(sorter.observe(&twice), Err(Error::Twice(2)));
    for second in [1, 0] {
        let refused = sorter.observe(&at(second, Vec::new()));
        assert!(matches!(refused, Err(Error::Order { .. })), "{refused:?}");
    }
    assert_eq!(sorter.rows().collect::<Vec<_>>(), before);
    // A count that goes back is no use, and no light period.
    for second in 2..6 {
        sorter
            .observe(&at(second, vec![seen(1, 100 - 10 * second)]))
            .unwrap();
    }
    let rows: Vec<Row> = sorter.rows().collect();
    assert_eq!((rows[0].used, rows[0].side), (None, Some(Side::Compute)));
}

/// What may be seen of a process in one period: nothing, or what it used (percent) and how it stands.
type Look = Option<(u64, u32, Standing)>;

fn look() -> impl Strategy<Value = Look> {
    let used = prop_oneof![
        4 => 0..5u64, 2 => Just(5u64), 3 => 5..=20u64, 4 => 21..30u64, 1 => 100..900u64
    ];
    let uid = prop_oneof![8 => Just(1000u32), 4 => 1000..=u32::MAX, 1 => 0..1000u32];
    let standing = prop_oneof![
        12 => Just(Standing::Free), 1 => Just(Standing::Pinned), 1 => Just(Standing::Denied)
    ];
    prop::option::weighted(0.95, (used, uid, standing))
}

fn settings() -> impl Strategy<Value = Settings> {
    (0..8u32, 0..25u32, 1..5u32).prop_map(|(light, more, periods)| Settings {
        light: f64::from(light) / 100.0,
        heavy: f64::from(light + more) / 100.0,
        periods,
        ..Settings::default()
    })
}

/// The looks at some processes, as observations.
fn observations(looks: &[Vec<Look>]) -> Vec<Observation> {
    let mut ran = vec![0; looks.len()];
    let periods = looks.iter().map(Vec::len).max().unwrap_or(0);
    (0..periods)
        .map(|second| {
            let mut processes = Vec::new();
            for (i, looks) in looks.iter().enumerate() {
                let Some((used, uid, standing)) = looks.get(second).copied().flatten() else {
                    continue;
                };
                ran[i] += used;
                processes.push(Seen {
                    uid,
                    standing,
                    ..seen(i as u32, ran[i])
                });
            }
            at(second as u64, processes)
        })
        .collect()
}

/// The side after all looks, from the whole history: since when it has been free without a break, and then the last of
/// the longest runs that counts.
fn expected(looks: &[Look], settings: &Settings) -> Option<Side> {
    let free =
        |l: &Look| l.is_some_and(|(_, uid, s)| uid >= settings.uid_from && s == Standing::Free);
    let since = looks.iter().rposition(|l| !free(l)).map_or(0, |i| i + 1);
    // At the first look it is not known yet what it uses.
    looks[since..].first()?;
    let used: Vec<f64> = looks[since + 1..]
        .iter()
        .flatten()
        .map(|(percent, ..)| (*percent * SECOND / 100) as f64 / SECOND as f64)
        .collect();
    let n = settings.periods as usize;
    let all = |w: &[f64], f: &dyn Fn(f64) -> bool| w.iter().all(|u| f(*u));
    let light = used
        .windows(n)
        .rposition(|w| all(w, &|u| u < settings.light));
    let heavy = used
        .windows(n)
        .rposition(|w| all(w, &|u| u > settings.heavy));
    Some(match (light, heavy) {
        (Some(l), Some(h)) if l > h => Side::Reserved,
        (Some(_), None) => Side::Reserved,
        _ => Side::Compute,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn sides_are_what_the_history_says(
        settings in settings(),
        looks in prop::collection::vec(prop::collection::vec(look(), 1..40), 1..4),
    ) {
        let mut sorter = Sorter::new(settings).unwrap();
        for (second, seen) in observations(&looks).iter().enumerate() {
            sorter.observe(seen).unwrap();
            for (i, looks) in looks.iter().enumerate() {
                let so_far = &looks[..looks.len().min(second + 1)];
                let there = looks.get(second).is_some_and(Option::is_some);
                let side = expected(so_far, &settings).filter(|_| there);
                prop_assert_eq!(sorter.side(process(i as u32)), side, "process {} at {}", i, second);
            }
        }
    }

    #[test]
    fn no_process_goes_to_and_fro(
        settings in settings(),
        looks in prop::collection::vec(look(), 1..60),
    ) {
        let mut sorter = Sorter::new(settings).unwrap();
        // Since the last change: how many observations, and to where.
        let mut last: Option<(u32, Option<Side>)> = None;
        for seen in observations(&[looks]) {
            let decision = sorter.observe(&seen).unwrap();
            prop_assert!(decision.changes.len() <= 1);
            last = last.map(|(n, to)| (n + 1, to)).filter(|_| !seen.processes.is_empty());
            let Some(change) = decision.changes.into_iter().next() else { continue };
            prop_assert_eq!(change.from, last.and_then(|(_, to)| to));
            prop_assert_ne!(change.from, change.to);
            if let (Some(_), Some(_), Some((n, _))) = (change.from, change.to, last) {
                prop_assert!(n >= settings.periods);
            }
            let of = &seen.processes[0];
            if change.to.is_some() {
                prop_assert!(of.uid >= settings.uid_from && of.standing == Standing::Free);
            }
            let fits = match change.reason {
                Reason::Starts => (change.from, change.to) == (None, Some(Side::Compute)),
                Reason::Light { most, periods } => {
                    change.to == Some(Side::Reserved) && most < settings.light && periods >= settings.periods
                }
                Reason::Heavy { least, periods } => {
                    change.from == Some(Side::Reserved) && least > settings.heavy && periods >= settings.periods
                }
                Reason::System { .. } | Reason::Pinned | Reason::Denied => change.to.is_none(),
            };
            prop_assert!(fits, "{change:?}");
            last = Some((0, change.to));
        }
    }

    #[test]
    fn each_is_decided_on_alone_and_in_any_order(
        settings in settings(),
        looks in prop::collection::vec(prop::collection::vec(look(), 20..21), 1..5),
    ) {
        let mut together = Sorter::new(settings).unwrap();
        let mut backwards = Sorter::new(settings).unwrap();
        let mut alone: BTreeMap<Process, Sorter> = BTreeMap::new();
        for mut seen in observations(&looks) {
            let decision = together.observe(&seen).unwrap();
            let mut changes = Vec::new();
            for i in 0..looks.len() as u32 {
                let one = seen.processes.iter().filter(|s| s.process == process(i)).cloned().collect();
                let own = Observation { at_ns: seen.at_ns, processes: one };
                let sorter = alone.entry(process(i)).or_insert_with(|| Sorter::new(settings).unwrap());
                changes.extend(sorter.observe(&own).unwrap().changes);
            }
            prop_assert_eq!(&decision.changes, &changes);
            seen.processes.reverse();
            prop_assert_eq!(backwards.observe(&seen).unwrap(), decision);
        }
    }

    #[test]
    fn any_observation_is_taken_or_refused(
        at_ns in prop::collection::vec(0..1000u64, 1..20),
        ran_ns in prop::collection::vec(any::<u64>(), 20),
    ) {
        let mut sorter = Sorter::new(Settings::default()).unwrap();
        let mut last = None;
        for (at_ns, ran_ns) in at_ns.into_iter().zip(ran_ns) {
            let seen = Observation { at_ns, processes: vec![Seen { ran_ns, ..seen(1, 0) }] };
            let taken = sorter.observe(&seen).is_ok();
            prop_assert_eq!(taken, last.is_none_or(|last| at_ns > last));
            last = Some(if taken { at_ns } else { last.unwrap_or(at_ns) });
            prop_assert!(sorter.rows().all(|r| r.used.is_none_or(|u| u >= 0.0)));
        }
    }

    #[test]
    fn decisions_are_read_as_they_were_written(looks in prop::collection::vec(look(), 1..20)) {
        let mut sorter = Sorter::new(Settings::default()).unwrap();
        for seen in observations(&[looks]) {
            let text = serde_json::to_string(&seen).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Observation>(&text).unwrap(), &seen);
            let decision = sorter.observe(&seen).unwrap();
            let text = serde_json::to_string(&decision).unwrap();
            prop_assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision);
        }
    }
}
