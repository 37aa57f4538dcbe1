// SPDX-License-Identifier: GPL-2.0-only
//! Undoes what a ledger tells of.
use crate::acting::{Outcome, Report};
use crate::cpus::same;
use crate::error::Error;
use crate::knob::{Host, Knob};
use crate::ledger::{Entry, Ledger};
use std::collections::BTreeSet;

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

/// The same for some of it.
pub fn undo(
    host: &impl Host,
    ledger: &mut Ledger,
    which: &dyn Fn(&Entry) -> bool,
) -> Result<Report, Error> {
    let mut report = Report::default();
    let (mut left, mut undone) = (BTreeSet::new(), Vec::new());
    for entry in ledger.entries().iter().rev().filter(|e| which(e)) {
        let outcome = put_back(host, entry);
        match outcome {
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
    ledger.save()?;
    Ok(report)
}

/// What was born with a value that was set, after the ledger was written last.
fn heirs(host: &impl Host, ledger: &Ledger, undone: &[&Entry]) {
    let mut families: BTreeSet<i32> = BTreeSet::new();
    for entry in undone {
        let Knob::Affinity { pid, .. } = &entry.knob else {
            continue;
        };
        if !families.insert(*pid) {
            continue;
        }
        for _ in 0..ROUNDS {
            let value = |kin: &Knob| host.read(kin).unwrap_or_default();
            let heir =
                |kin: &Knob| ledger.get(kin).is_none() && entry.may_be_inherited(&value(kin));
            let heirs: Vec<Knob> = host.kin(&entry.knob).into_iter().filter(heir).collect();
            for kin in &heirs {
                // One that has ended meanwhile needs nothing; one that cannot be set is tried again in the next round.
                let _ = host.write(kin, &entry.was);
            }
            if heirs.is_empty() {
                break;
            }
        }
    }
}

fn put_back(host: &impl Host, entry: &Entry) -> Outcome {
    let knob = &entry.knob;
    let there = match host.read(knob) {
        Ok(there) => there,
        Err(e) => return Outcome::of(&e),
    };
    if there == entry.was {
        return Outcome::Already;
    }
    let half_way = knob.half_way(&entry.was).is_some_and(|v| same(&v, &there));
    if !entry.ours(&there) && !same(&there, &entry.was) && !half_way {
        return Outcome::Foreign(there);
    }
    let written = host.write(knob, &entry.was);
    match (written, host.read(knob)) {
        (_, Err(Error::Gone { .. })) | (Err(Error::Gone { .. }), _) => Outcome::Gone,
        (_, Ok(there)) if same(&there, &entry.was) => Outcome::Set,
        (Err(e), _) | (Ok(()), Err(e)) => Outcome::of(&e),
        (Ok(()), Ok(there)) => Outcome::Refused(format!("{knob} stays {}", there.escape_debug())),
    }
}
