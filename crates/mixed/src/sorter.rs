// SPDX-License-Identifier: GPL-2.0-only
//! One observation after the other, and what is remembered of each process.
use crate::decision::{Change, Decision, Side};
use crate::error::Error;
use crate::observe::{Observation, Process, Seen, Standing};
use crate::reason::Reason;
use crate::settings::Settings;
use serde::Serialize;
use std::collections::BTreeMap;

/// Watches the processes of one mixed VM. It takes every change that it decides as made.
#[derive(Clone, Debug)]
pub struct Sorter {
    settings: Settings,
    last_ns: Option<u64>,
    known: BTreeMap<Process, Known>,
}

/// What is remembered of a process.
#[derive(Clone, Copy, Debug)]
struct Known {
    uid: u32,
    ran_ns: u64,
    /// In the last period, of one vCPU; none: it was not there for a whole one.
    used: Option<f64>,
    run: Run,
    side: Option<Side>,
    reason: Reason,
}

/// Periods of one kind, one after the other up to the last.
#[derive(Clone, Copy, Debug, Default)]
enum Run {
    #[default]
    Neither,
    Light {
        periods: u32,
        most: f64,
    },
    Heavy {
        periods: u32,
        least: f64,
    },
}

/// One process, as it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub process: Process,
    pub uid: u32,
    /// In the last period, of one vCPU; none: it was not there for a whole one.
    pub used: Option<f64>,
    /// None: it is left alone.
    pub side: Option<Side>,
    pub reason: Reason,
}

impl Sorter {
    /// # Errors
    /// The first setting out of its range.
    pub fn new(settings: Settings) -> Result<Sorter, Error> {
        settings.check()?;
        Ok(Sorter {
            settings,
            last_ns: None,
            known: BTreeMap::new(),
        })
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes in what was seen; who changes sides.
    ///
    /// # Errors
    /// The first thing that is wrong with the observation; then nothing of it counts.
    pub fn observe(&mut self, seen: &Observation) -> Result<Decision, Error> {
        let at_ns = seen.at_ns;
        if let Some(last_ns) = self.last_ns
            && at_ns <= last_ns
        {
            return Err(Error::Order { at_ns, last_ns });
        }
        let mut now: BTreeMap<Process, &Seen> = BTreeMap::new();
        for one in &seen.processes {
            if now.insert(one.process, one).is_some() {
                return Err(Error::Twice(one.process.number));
            }
        }
        let span_ns = self.last_ns.replace(at_ns).map(|last_ns| at_ns - last_ns);
        let mut decision = Decision {
            at_ns,
            ..Decision::default()
        };
        let mut before = std::mem::take(&mut self.known);
        for (process, seen) in now {
            let mut known = match before.remove(&process) {
                Some(mut known) => {
                    known.watch(seen, span_ns.unwrap_or(0), &self.settings);
                    known
                }
                None => Known::new(seen),
            };
            let (to, reason) = known.belongs(seen, &self.settings);
            if to != known.side {
                decision.changes.push(Change {
                    process,
                    from: known.side,
                    to,
                    reason,
                });
            }
            (known.side, known.reason) = (to, reason);
            self.known.insert(process, known);
        }
        let ended = before.into_iter().filter(|(_, k)| k.side.is_some());
        decision.ended = ended.map(|(process, _)| process).collect();
        Ok(decision)
    }

    /// All processes as they stand, by process.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.known.iter().map(|(process, known)| Row {
            process: *process,
            uid: known.uid,
            used: known.used,
            side: known.side,
            reason: known.reason,
        })
    }

    /// On which side a process is; none: it is left alone, or is not known.
    pub fn side(&self, process: Process) -> Option<Side> {
        self.known.get(&process)?.side
    }
}

impl Known {
    /// Seen for the first time: it has not been watched yet.
    fn new(seen: &Seen) -> Known {
        Known {
            uid: seen.uid,
            ran_ns: seen.ran_ns,
            used: None,
            run: Run::Neither,
            side: None,
            reason: Reason::Starts,
        }
    }

    /// Takes in what it used in a period.
    fn watch(&mut self, seen: &Seen, span_ns: u64, settings: &Settings) {
        self.uid = seen.uid;
        let before_ns = std::mem::replace(&mut self.ran_ns, seen.ran_ns);
        // A count that goes back tells nothing.
        self.used = (seen.ran_ns.checked_sub(before_ns).filter(|_| span_ns > 0))
            .map(|ran_ns| ran_ns as f64 / span_ns as f64);
        self.run = match (self.used, self.run) {
            (Some(used), run) if used < settings.light => match run {
                Run::Light { periods, most } => Run::Light {
                    periods: periods.saturating_add(1),
                    most: most.max(used),
                },
                _ => Run::Light {
                    periods: 1,
                    most: used,
                },
            },
            (Some(used), run) if used > settings.heavy => match run {
                Run::Heavy { periods, least } => Run::Heavy {
                    periods: periods.saturating_add(1),
                    least: least.min(used),
                },
                _ => Run::Heavy {
                    periods: 1,
                    least: used,
                },
            },
            _ => Run::Neither,
        };
    }

    /// Where it belongs now, and why.
    fn belongs(&mut self, seen: &Seen, settings: &Settings) -> (Option<Side>, Reason) {
        let left_alone = match seen.standing {
            _ if seen.uid < settings.uid_from => Some(Reason::System { uid: seen.uid }),
            Standing::Pinned => Some(Reason::Pinned),
            Standing::Denied => Some(Reason::Denied),
            Standing::Free => None,
        };
        if let Some(reason) = left_alone {
            // Should it be free again, it starts anew.
            self.run = Run::Neither;
            return (None, reason);
        }
        match (self.side, self.run) {
            (None, _) => {
                self.run = Run::Neither;
                (Some(Side::Compute), Reason::Starts)
            }
            (Some(Side::Compute), Run::Light { periods, most }) if periods >= settings.periods => {
                (Some(Side::Reserved), Reason::Light { most, periods })
            }
            (Some(Side::Reserved), Run::Heavy { periods, least })
                if periods >= settings.periods =>
            {
                (Some(Side::Compute), Reason::Heavy { least, periods })
            }
            (side, _) => (side, self.reason),
        }
    }
}
