// SPDX-License-Identifier: GPL-2.0-only
//! The worst wait of each group, with what ran around it.
use crate::account::On;
use crate::cast::Cast;
use crate::observe::{Record, Replay};
use berth_results::detail::{HOST, STRIP_AFTER_NS, STRIP_BEFORE_NS, Strip, WorstWait, strip_cpus};
use std::collections::BTreeMap;

/// A stay in a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    pub tid: u32,
    /// Where it was switched in, or where it stands.
    pub cpu: u16,
    pub from: u64,
    pub to: u64,
    pub unfinished: bool,
}

/// What runs and is no thread of the scenario.
const OUTSIDE: &str = "kernel threads and clients";

/// The longest stay of each group as a result; `start` is the start of the run.
pub(crate) fn worst(records: &[Record], seen: &Replay, cast: &Cast, start: u64) -> Vec<WorstWait> {
    let of = |(group, stay): (&u32, &Stay)| {
        let strip = cut(records, stay, cast, seen, start);
        let from_ns = stay.from.saturating_sub(start);
        let to_ns = stay.to.saturating_sub(start);
        WorstWait {
            group: cast.group_name(*group).to_string(),
            thread: cast.members[&stay.tid].name.clone(),
            cpu: stay.cpu.into(),
            from_ns,
            to_ns,
            unfinished: stay.unfinished,
            behind: strip.behind(stay.cpu.into(), from_ns, to_ns),
            strip: Some(strip),
        }
    };
    seen.longest.iter().map(of).collect()
}

fn cut(records: &[Record], stay: &Stay, cast: &Cast, seen: &Replay, start: u64) -> Strip {
    let from = stay.to.saturating_sub(STRIP_BEFORE_NS).max(start);
    let to = stay.to + STRIP_AFTER_NS;
    let shown = strip_cpus(stay.cpu.into(), seen.cpus);
    let mut strip = Strip {
        from_ns: from - start,
        to_ns: to - start,
        cpus: shown.clone().collect(),
        ..Strip::default()
    };
    let mut indices = BTreeMap::<u32, u64>::new();
    let mut ran = Vec::new();
    let mut put = |cpu: u16, on: On, begin: u64, end: u64| {
        // No thread has the id 0.
        let tid = match on {
            On::Idle => return,
            On::Outside => 0,
            On::Thread(tid) => tid,
        };
        let (begin, end) = (begin.max(from), end.min(to));
        if end <= begin || !shown.contains(&cpu.into()) {
            return;
        }
        let next = strip.threads.len() as u64;
        let index = *indices.entry(tid).or_insert_with(|| {
            strip.threads.push(match cast.members.get(&tid) {
                Some(m) => {
                    let group = cast.group_name(cast.group_of(m.entry));
                    (m.name.clone(), group.to_string())
                }
                None => (OUTSIDE.into(), HOST.into()),
            });
            next
        });
        ran.push([cpu.into(), index, begin - from, end - begin]);
    };
    let mut since = BTreeMap::<u16, (u64, On)>::new();
    let until = records.partition_point(|r| r.ns <= to);
    for r in records[..until].iter().filter(|r| r.is_switch()) {
        if let Some((begin, on)) = since.insert(r.cpu, (r.ns, r.next_on(cast))) {
            put(r.cpu, on, begin, r.ns);
        }
    }
    for (cpu, (begin, on)) in since {
        put(cpu, on, begin, to);
    }
    ran.sort_unstable_by_key(|r| (r[0], r[2]));
    strip.ran = ran;
    strip
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tests::{cast, switch, waking};
    use crate::observe::{IDLE, RUNNABLE, WAS_IDLE, replay};

    #[test]
    fn the_longest_stay_and_what_ran_meanwhile() {
        let ms = 1_000_000;
        let records = [
            waking(100 * ms, 1),
            switch(100 * ms, 0, 0, 1, WAS_IDLE),
            waking(110 * ms, 2),
            switch(120 * ms, 0, 1, 0, RUNNABLE),
            switch(121 * ms, 0, 0, 1, 0),
            switch(150 * ms, 0, 1, 2, RUNNABLE),
            switch(170 * ms, 0, 2, 1, 0),
            switch(172 * ms, 0, 1, 0, IDLE),
        ];
        let cast = cast(&[1, 2]);
        let seen = replay(&records, &cast, (105 * ms, 200 * ms));
        let all = worst(&records, &seen, &cast, 50 * ms);
        // VM b waited 40 ms, VM a 20 ms.
        let told: Vec<_> = all
            .iter()
            .map(|w| (w.group.as_str(), w.from_ns / ms, w.to_ns / ms))
            .collect();
        assert_eq!(told, [("a", 100, 120), ("b", 60, 100)]);
        let w = &all[1];
        let behind: Vec<_> = w
            .behind
            .iter()
            .map(|(n, ns)| (n.as_str(), ns / ms))
            .collect();
        assert_eq!(behind, [("a/0", 39), (OUTSIDE, 1)]);
        let strip = w.strip.as_ref().unwrap();
        assert_eq!((strip.from_ns / ms, strip.to_ns / ms), (55, 105));
        let ran: Vec<_> = strip
            .ran
            .iter()
            .map(|[_, i, at, ns]| (strip.threads[*i as usize].0.as_str(), at / ms, ns / ms))
            .collect();
        assert_eq!(
            ran,
            [
                ("a/0", 0, 15),
                (OUTSIDE, 15, 1),
                ("a/0", 16, 29),
                ("b/0", 45, 5)
            ]
        );
    }
}
