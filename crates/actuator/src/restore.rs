// SPDX-License-Identifier: GPL-2.0-only
//! Undoes what a ledger tells of.
use crate::acting::{Outcome, Report};
use crate::cpus::same;
use crate::error::Error;
use crate::knob::{Host, Knob};
use crate::ledger::{Entry, Ledger};
use std::collections::{BTreeMap, BTreeSet};

/// A process that makes threads faster than they can be put back is given up after so many rounds.
const ROUNDS: usize = 20;

/// Puts back what was there, the last change first. What somebody else has changed since is left alone. What cannot be
/// undone now stays in the ledger, for the next time.
///
/// # Errors
/// The ledger cannot be written; what could be undone is.
pub fn restore(host: &impl Host, ledger: &mut Ledger) -> Result<Report, Error> {
    undo(host, ledger, &|_| true)
}

/// The same for several ledgers, in this order. Whoever is frozen by any of them runs again first.
///
/// # Errors
/// One of them cannot be written; what could be undone is, in all of them.
pub fn restore_all(host: &impl Host, ledgers: &mut [Ledger]) -> Result<Report, Error> {
    for ledger in &*ledgers {
        thaw(host, ledger, &|_| true);
    }
    let (mut all, mut wrong) = (Report::default(), None);
    for ledger in ledgers {
        match restore(host, ledger) {
            Ok(report) => {
                all.outcomes.extend(report.outcomes);
                all.of_another_boot += report.of_another_boot;
            }
            Err(e) => wrong = wrong.or(Some(e)),
        }
    }
    wrong.map_or(Ok(all), Err)
}

/// In which order kinds of values are undone. A group that was made goes before its values, which whoever was born in
/// it may keep from being what they were. A thread gets its affinity back when its CPU set is what it was, since that
/// bounds it (and, before Linux 6.2, overwrites it); interrupts are balanced again when they are where they were.
fn rank(knob: &Knob) -> u32 {
    match knob {
        Knob::Member { .. } => 0,
        Knob::Made { .. } => 1,
        Knob::Group { .. } | Knob::Unit { .. } => 2,
        Knob::Affinity { .. } => 3,
        Knob::Irq { .. } | Knob::Queue { .. } => 4,
        Knob::Unbalanced { .. } => 5,
    }
}

/// The same for some of it.
pub fn undo(
    host: &impl Host,
    ledger: &mut Ledger,
    which: &dyn Fn(&Entry) -> bool,
) -> Result<Report, Error> {
    let mut report = Report {
        of_another_boot: ledger.of_another_boot(),
        ..Report::default()
    };
    let (mut left, mut undone) = (BTreeSet::new(), Vec::new());
    let mut half_done = Vec::new();
    thaw(host, ledger, which);
    // Whose a value is must be known before anything is put back that changes it.
    let mut entries: Vec<(&Entry, Result<String, Error>)> = ledger
        .entries()
        .iter()
        .rev()
        .filter(|e| which(e))
        .map(|e| (e, host.read(&e.knob)))
        .collect();
    entries.sort_by_key(|(e, _)| rank(&e.knob));
    for (entry, before) in entries {
        let outcome = put_back(host, entry, before);
        match outcome {
            Outcome::Instead(_) => {
                left.insert(entry.knob.clone());
                half_done.push(entry.knob.clone());
            }
            Outcome::Refused(_) | Outcome::Denied(_) => {
                left.insert(entry.knob.clone());
            }
            Outcome::Foreign(_) | Outcome::Gone => {}
            _ => undone.push(entry),
        }
        report.add(&entry.knob, outcome);
    }
    // What was about to be set when its VM ended is in the file alone.
    if report.outcomes.is_empty() && !ledger.entries().is_empty() {
        return Ok(report);
    }
    heirs(host, ledger, &undone);
    ledger.keep(|e| !which(e) || left.contains(&e.knob));
    // What is there now nobody else has set: next time it is put back all the same.
    for knob in half_done {
        if let Some(entry) = ledger.of(&knob) {
            entry.next = Some(entry.was.clone());
        }
    }
    ledger.save()?;
    Ok(report)
}

/// Who is frozen runs again before anything is asked that may take its time. What becomes of it is told later.
fn thaw(host: &impl Host, ledger: &Ledger, which: &dyn Fn(&Entry) -> bool) {
    for entry in ledger.entries().iter().filter(|e| which(e)) {
        if !entry.between.is_empty() && host.read(&entry.knob).is_ok_and(|now| entry.ours(&now)) {
            let _ = host.put_back(&entry.knob, &entry.was);
        }
    }
}

/// What was born with a value that was set, after the ledger was written last: it gets what its process's first thread
/// had, or, if that was never set, the thread with whose value it was born.
fn heirs(host: &impl Host, ledger: &Ledger, undone: &[&Entry]) {
    let mut families: BTreeMap<i32, Vec<&Entry>> = BTreeMap::new();
    for entry in undone {
        if let Knob::Affinity { pid, .. } = &entry.knob {
            families.entry(*pid).or_default().push(entry);
        }
    }
    for entries in families.values() {
        let leader = |e: &&&Entry| matches!(e.knob, Knob::Affinity { pid, tid, .. } if pid == tid);
        let leader = entries.iter().find(leader);
        for _ in 0..ROUNDS {
            let parent = |kin: &Knob| {
                let value = host.read(kin).ok()?;
                let inherited = |e: &&&Entry| e.may_be_inherited(&value);
                entries.iter().find(inherited)
            };
            let mut any = false;
            for kin in host.kin(&entries[0].knob) {
                if ledger.get(&kin).is_some() {
                    continue;
                }
                if let Some(parent) = parent(&kin) {
                    any = true;
                    // One that has ended meanwhile needs nothing; one that cannot be set is tried again in the next
                    // round.
                    let _ = host.put_back(&kin, &leader.unwrap_or(parent).was);
                }
            }
            if !any {
                break;
            }
        }
    }
}

fn put_back(host: &impl Host, entry: &Entry, before: Result<String, Error>) -> Outcome {
    let knob = &entry.knob;
    let before = match before {
        Ok(before) => before,
        Err(e) => return Outcome::of(&e),
    };
    let half_way = knob.half_way(&entry.was).is_some_and(|v| same(&v, &before));
    // Whoever was killed while he set it did not live to see what the kernel made of his value.
    let half_done = entry.next.is_some();
    if !entry.ours(&before) && !same(&before, &entry.was) && !half_way && !half_done {
        return Outcome::Foreign(before);
    }
    // It may have become so with another one that was put back. Of a thread the kernel remembers what was asked for
    // last, and goes back to it when a CPU comes that was gone: only asking for what was there before ends that.
    let remembered = matches!(knob, Knob::Affinity { .. });
    if !remembered && before == entry.was && host.read(knob).is_ok_and(|now| now == entry.was) {
        return Outcome::Already;
    }
    let written = host.put_back(knob, &entry.was);
    match (written, host.read(knob)) {
        (_, Err(Error::Gone { .. })) | (Err(Error::Gone { .. }), _) => Outcome::Gone,
        (_, Ok(there)) if same(&there, &entry.was) => Outcome::Set,
        (Err(e), _) | (Ok(()), Err(e)) => Outcome::of(&e),
        (Ok(()), Ok(there)) => Outcome::Instead(there),
    }
}
