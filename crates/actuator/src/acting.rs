// SPDX-License-Identifier: GPL-2.0-only
//! Sets values: remembered before, read back after.
use crate::cpus::same;
use crate::error::Error;
use crate::knob::{Host, Knob};
use crate::ledger::{Entry, Ledger};
use crate::restore::{restore, undo};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What has become of one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Written, and read back.
    Set,
    /// It was so already.
    Already,
    /// The kernel took this instead.
    Instead(String),
    /// Somebody else has set it to this since we did: it is his now.
    Foreign(String),
    /// The VM, thread or group has ended.
    Gone,
    /// It is what it was, because of this.
    Refused(String),
    /// The same, and others will fare alike: this process may not set it.
    Denied(String),
}

impl Outcome {
    /// Of an attempt that failed.
    pub(crate) fn of(error: &Error) -> Outcome {
        match error {
            Error::Gone { .. } => Outcome::Gone,
            Error::Denied { .. } => Outcome::Denied(error.to_string()),
            error => Outcome::Refused(error.to_string()),
        }
    }
}

/// What has become of each value, in the order asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub outcomes: Vec<(Knob, Outcome)>,
    /// Changes that were remembered of another boot of this machine: nothing is left of them, and nothing is undone.
    pub of_another_boot: usize,
}

impl Report {
    /// Those that are not as they should be, a sentence each.
    pub fn complaints(&self) -> Vec<String> {
        let told = |(knob, outcome): &(Knob, Outcome)| match outcome {
            Outcome::Set | Outcome::Already | Outcome::Gone => None,
            Outcome::Instead(value) => Some(format!("{knob} became {}", value.escape_debug())),
            Outcome::Foreign(value) => Some(format!(
                "{knob} was set to {} by somebody else, and is left alone",
                value.escape_debug()
            )),
            Outcome::Refused(why) | Outcome::Denied(why) => Some(why.clone()),
        };
        self.outcomes.iter().filter_map(told).collect()
    }

    /// With what another one says.
    pub fn append(&mut self, other: Report) {
        self.outcomes.extend(other.outcomes);
        self.of_another_boot += other.of_another_boot;
    }

    pub(crate) fn add(&mut self, knob: &Knob, outcome: Outcome) {
        self.outcomes.push((knob.clone(), outcome));
    }
}

/// A host on which this process acts. Dropped, what it set stays, and stays remembered: [`Acting::end`] undoes it, or
/// [`restore`] by whoever opens the ledger next.
#[derive(Debug)]
pub struct Acting<H: Host> {
    host: H,
    ledger: Ledger,
}

impl<H: Host> Acting<H> {
    /// Undoes first what an earlier process has left.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn begin(host: H, mut ledger: Ledger) -> Result<(Acting<H>, Report), Error> {
        let report = restore(&host, &mut ledger)?;
        Ok((Acting { host, ledger }, report))
    }

    pub fn host(&self) -> &H {
        &self.host
    }

    /// Sets values, in this order; one that cannot be set does not keep others from being set. The ledger is on disk
    /// before the first of them is, and again after the last, with what became of them: the kernel may have taken
    /// something else.
    ///
    /// # Errors
    /// The ledger cannot be written: before, and nothing was set; or after, and what was set is remembered as what was
    /// about to be.
    pub fn set(&mut self, wanted: &[(Knob, String)]) -> Result<Report, Error> {
        let before: Vec<Option<Outcome>> = wanted
            .iter()
            .map(|(knob, value)| self.intend(knob, value))
            .collect();
        let any = before.iter().any(Option::is_none);
        if any && let Err(e) = self.ledger.save() {
            self.ledger.take_back();
            return Err(e);
        }
        let mut report = Report::default();
        for ((knob, value), before) in wanted.iter().zip(before) {
            let outcome = before.unwrap_or_else(|| self.carry_out(knob, value));
            report.add(knob, outcome);
        }
        self.ledger.keep(|e| e.now.is_some() || e.next.is_some());
        if any {
            self.ledger.save()?;
        }
        Ok(report)
    }

    /// Remembers a value that is one of these now, the first, and that somebody else in this process sets back and
    /// forth between them from now on.
    ///
    /// # Errors
    /// The ledger cannot be written; then it may not be set.
    pub fn lend(&mut self, knob: &Knob, between: &[&str]) -> Result<Outcome, Error> {
        let there = match self.host.read(knob) {
            Ok(there) => there,
            Err(e) => return Ok(Outcome::of(&e)),
        };
        if self.ledger.of(knob).is_some_and(|entry| entry.ours(&there)) {
            return Ok(Outcome::Already);
        }
        if !between.first().is_some_and(|first| same(first, &there)) {
            return Ok(Outcome::Foreign(there));
        }
        self.ledger.keep(|e| e.knob != *knob);
        self.ledger.add(Entry {
            knob: knob.clone(),
            now: Some(there.clone()),
            was: there,
            next: None,
            past: Vec::new(),
            between: between.iter().map(ToString::to_string).collect(),
        });
        if let Err(e) = self.ledger.save() {
            self.ledger.keep(|e| e.knob != *knob);
            return Err(e);
        }
        Ok(Outcome::Set)
    }

    /// Values with which something was born after they were set here: what they would be otherwise is what they were
    /// where they come from.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn adopt(&mut self, born: &[(Knob, Knob)]) -> Result<(), Error> {
        let mut any = false;
        for (knob, parent) in born {
            let known = self.ledger.of(knob).is_some();
            if let Some(parent) = self.ledger.of(parent).cloned()
                && !known
            {
                self.ledger.add(Entry {
                    knob: knob.clone(),
                    ..parent
                });
                any = true;
            }
        }
        if any { self.ledger.save() } else { Ok(()) }
    }

    /// The same where whoever had the value first may have ended: what each would be otherwise is given.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn inherit(&mut self, born: &[(Knob, String)]) -> Result<(), Error> {
        let mut any = false;
        for (knob, was) in born {
            let known = self.ledger.of(knob).is_some();
            if !known && let Ok(there) = self.host.read(knob) {
                self.ledger.add(Entry {
                    knob: knob.clone(),
                    was: was.clone(),
                    now: Some(there),
                    next: None,
                    past: Vec::new(),
                    between: Vec::new(),
                });
                any = true;
            }
        }
        if any { self.ledger.save() } else { Ok(()) }
    }

    /// Puts these back to what they were.
    ///
    /// # Errors
    /// The ledger cannot be written; what could be undone is.
    pub fn undo(&mut self, knobs: &BTreeSet<Knob>) -> Result<Report, Error> {
        undo(&self.host, &mut self.ledger, &|e| knobs.contains(&e.knob))
    }

    /// What was set here, and what it was before.
    pub fn was(&self, knob: &Knob) -> Option<&str> {
        Some(&self.ledger.get(knob)?.was)
    }

    /// Groups whose CPU set was set here, with the list that they had before; of one that was made here: none.
    pub fn cpu_sets(&self) -> BTreeMap<String, String> {
        let one = |entry: &Entry| match &entry.knob {
            Knob::Group { group, file } if file == "cpuset.cpus" => {
                Some((group.clone(), entry.was.clone()))
            }
            _ => None,
        };
        let made = |entry: &Entry| match &entry.knob {
            Knob::Made { group } => Some((group.clone(), String::new())),
            _ => None,
        };
        let entries = || self.ledger.entries().iter();
        entries()
            .filter_map(one)
            .chain(entries().filter_map(made))
            .collect()
    }

    /// Whether what was set here is what is there now; false: nothing was, or somebody else has set it since.
    ///
    /// # Errors
    /// It is not there any more, or cannot be read.
    pub fn holds(&self, knob: &Knob) -> Result<bool, Error> {
        let there = self.host.read(knob)?;
        Ok(self.ledger.get(knob).is_some_and(|e| e.ours(&there)))
    }

    /// Remembers what is about to be set; some outcome: nothing is.
    fn intend(&mut self, knob: &Knob, value: &str) -> Option<Outcome> {
        let there = match self.host.read(knob) {
            Ok(there) => there,
            Err(Error::Gone { .. }) => {
                self.forget(knob);
                return Some(Outcome::Gone);
            }
            Err(e) => return Some(Outcome::of(&e)),
        };
        match self.ledger.of(knob) {
            Some(entry) if !entry.ours(&there) => {
                self.forget(knob);
                Some(Outcome::Foreign(there))
            }
            // One that the kernel has moved is asked for anew, else it moves it back when it can.
            Some(entry) if entry.next.is_none() && same(&there, value) => Some(Outcome::Already),
            Some(entry) => {
                entry.next = Some(value.into());
                None
            }
            None if same(&there, value) => Some(Outcome::Already),
            None => {
                self.ledger.add(Entry {
                    knob: knob.clone(),
                    was: there,
                    now: None,
                    next: Some(value.into()),
                    past: Vec::new(),
                    between: Vec::new(),
                });
                None
            }
        }
    }

    /// Writes what is remembered, and reads it back.
    fn carry_out(&mut self, knob: &Knob, value: &str) -> Outcome {
        let written = self.host.write(knob, value);
        let there = match (&written, self.host.read(knob)) {
            (Err(Error::Gone { .. }), _) | (_, Err(Error::Gone { .. })) => {
                self.forget(knob);
                return Outcome::Gone;
            }
            // It may be anything: what is remembered stays.
            (_, Err(e)) => return Outcome::of(&e),
            (_, Ok(there)) => there,
        };
        let Some(entry) = self.ledger.of(knob) else {
            return Outcome::Gone;
        };
        entry.next = None;
        let unchanged = same(&there, entry.now.as_ref().unwrap_or(&entry.was));
        if let Err(e) = written
            && unchanged
        {
            return Outcome::of(&e);
        }
        if unchanged && !same(&there, value) {
            return Outcome::Refused(format!("{knob} stays {}", there.escape_debug()));
        }
        let outcome = match same(&there, value) {
            true => Outcome::Set,
            false => Outcome::Instead(there.clone()),
        };
        entry.written(there);
        outcome
    }

    fn forget(&mut self, knob: &Knob) {
        if let Some(entry) = self.ledger.of(knob) {
            (entry.now, entry.next) = (None, None);
        }
    }

    /// The kernel itself has changed these, for want of CPUs: what is there now counts as set here, and what was there
    /// before still does, for the kernel goes back to it when it can.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn acknowledge(&mut self, knobs: &BTreeSet<Knob>) -> Result<(), Error> {
        let mut any = false;
        for knob in knobs {
            if let Some(entry) = self.ledger.of(knob)
                && let Ok(there) = self.host.read(knob)
                && !entry.ours(&there)
            {
                entry.next = Some(there);
                any = true;
            }
        }
        if any { self.ledger.save() } else { Ok(()) }
    }

    /// What somebody else has changed of what was set here; from now on it is his.
    pub fn yielded(&mut self) -> Report {
        let mut report = Report::default();
        let mut lost = BTreeSet::new();
        for entry in self.ledger.entries() {
            match self.host.read(&entry.knob) {
                Ok(there) if entry.ours(&there) => continue,
                Ok(there) => report.add(&entry.knob, Outcome::Foreign(there)),
                Err(Error::Gone { .. }) => report.add(&entry.knob, Outcome::Gone),
                Err(_) => continue,
            }
            lost.insert(entry.knob.clone());
        }
        self.ledger.keep(|e| !lost.contains(&e.knob));
        report
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// The ledger cannot be written; what could be undone is.
    pub fn end(mut self) -> Result<Report, Error> {
        restore(&self.host, &mut self.ledger)
    }
}
