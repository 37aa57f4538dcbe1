// SPDX-License-Identifier: GPL-2.0-only
//! What is decided of processes is done, remembered, and undone.
//!
//! A process has the CPUs of its side by the affinity of each of its threads. What is born with it, threads and
//! children, is found at the next look: a child starts where processes compute, or, if it is no user's, is put back at
//! once. Somebody else's change of any thread makes the process his.
use crate::look::{Eyes, Look, Reading};
use crate::sides::{Reserved, Sides, Wrong};
use berth_actuator::{Acting, Host, Knob, Outcome, Report, list};
use berth_host::procfile::printable;
use berth_mixed::{Change, Observation, Process, Reason, Seen, Settings, Side, Sorter, Standing};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Cgroups that are remembered for those who are born and lose their parents between two looks, at most.
const CGROUPS: usize = 4096;
const CHANGED: &str = "its CPUs were changed by somebody else: it is left alone";
/// Who makes children faster than they can be put back is given up after so many rounds.
const ROUNDS: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("/proc cannot be read: {0}")]
    Proc(io::Error),
    #[error("the kernel does not say on which CPUs processes may run: {0}")]
    Whole(io::Error),
    #[error(transparent)]
    Sides(#[from] Wrong),
    #[error(transparent)]
    Actuator(#[from] berth_actuator::Error),
    #[error(transparent)]
    Mixed(#[from] berth_mixed::Error),
}

/// What happened at one look.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Round {
    pub at_ns: u64,
    pub moved: Vec<Moved>,
    /// Who is left alone from now on though he was moved or was to be, a sentence each.
    pub left: Vec<String>,
    /// Who was to change sides and had ended before he could, a sentence each.
    pub gone: Vec<String>,
}

/// A process that went to a side; in a dry run, that would have gone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    pub pid: u32,
    /// Its name, as it can be shown.
    pub name: String,
    pub to: Side,
    pub cpus: String,
    pub reason: Reason,
    /// The reason as a sentence.
    pub why: String,
}

/// One process as it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    pub pid: u32,
    pub start: u64,
    pub name: String,
    pub uid: u32,
    /// In the last period, of one vCPU.
    pub used: Option<f64>,
    pub side: Option<Side>,
    pub reason: Reason,
    pub why: String,
}

/// What became of what was moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// Threads that have again what they had.
    pub back: usize,
    /// What was left to whoever has changed it since, or could not be undone, a sentence each.
    pub left: Vec<String>,
}

/// Sets of CPUs that were given.
type Given = BTreeSet<BTreeSet<u32>>;

/// A process on one of the sides.
#[derive(Clone, Debug)]
struct Mine {
    name: String,
    cpus: BTreeSet<u32>,
    /// Threads that have them, or had when they were seen last.
    threads: BTreeSet<(i32, u64)>,
    /// Those that the kernel does not let go elsewhere.
    stay: BTreeSet<(i32, u64)>,
}

/// A process that is left alone, whatever it does, until it ends.
#[derive(Clone, Debug)]
struct Left {
    standing: Standing,
    why: String,
}

/// The agent of one VM.
#[derive(Debug)]
pub struct GuestAgent<H: Host, E> {
    eyes: E,
    sorter: Sorter,
    reserved: Reserved,
    /// CPUs of a process that nobody has pinned; none: all that there are.
    unpinned: Option<BTreeSet<u32>>,
    /// None: a dry run.
    hands: Option<Acting<H>>,
    mine: BTreeMap<Process, Mine>,
    /// CPUs that a process was given, or was born with since somebody was given them: its children may have them, too.
    had: BTreeMap<Process, Given>,
    left: BTreeMap<Process, Left>,
    /// Those whose CPUs were looked at before anything was moved, or once since: not born with what was set here.
    old: BTreeSet<Process>,
    begun: bool,
    /// What was given to processes of a cgroup.
    cgroups: BTreeMap<String, Given>,
    /// What a thread that nobody had pinned was before it was moved.
    was: Option<String>,
    names: BTreeMap<Process, String>,
}

fn knob(process: Process, thread: (i32, u64)) -> Knob {
    Knob::Affinity {
        pid: process.number.cast_signed(),
        tid: thread.0,
        start: thread.1,
    }
}

/// Whether these CPUs, as far as they are online, were given.
fn is_given(now: &BTreeSet<u32>, had: &Given, whole: &BTreeSet<u32>) -> bool {
    had.iter().any(|cpus| cpus & whole == *now)
}

impl<H: Host, E: Eyes> GuestAgent<H, E> {
    /// `hands`: none, and nothing is moved.
    ///
    /// # Errors
    /// A setting out of its range; CPUs that cannot be reserved so.
    pub fn new(
        settings: Settings,
        reserved: &Reserved,
        unpinned: Option<BTreeSet<u32>>,
        mut eyes: E,
        hands: Option<Acting<H>>,
    ) -> Result<GuestAgent<H, E>, Error> {
        let sorter = Sorter::new(settings)?;
        let whole = eyes.whole().map_err(Error::Whole)?;
        // From now on these, whatever comes and goes.
        let reserved = Reserved::These(Sides::new(&whole, reserved)?.reserved);
        Ok(GuestAgent {
            eyes,
            sorter,
            reserved,
            unpinned,
            hands,
            mine: BTreeMap::new(),
            had: BTreeMap::new(),
            left: BTreeMap::new(),
            old: BTreeSet::new(),
            begun: false,
            cgroups: BTreeMap::new(),
            was: None,
            names: BTreeMap::new(),
        })
    }

    /// The two sides now.
    ///
    /// # Errors
    /// A reserved CPU has gone, or no other one is left.
    pub fn sides(&mut self) -> Result<Sides, Error> {
        let whole = self.eyes.whole().map_err(Error::Whole)?;
        Ok(Sides::new(&whole, &self.reserved)?)
    }

    /// Looks once, and moves whom it is time to move.
    ///
    /// # Errors
    /// There is nothing to look at; the CPUs are not there any more; what is changed cannot be remembered.
    pub fn round(&mut self) -> Result<Round, Error> {
        let look = self.eyes.look().map_err(Error::Proc)?;
        let sides = self.sides()?;
        let mut round = Round {
            at_ns: look.at_ns,
            ..Round::default()
        };
        self.forget(&look)?;
        if !self.begun {
            self.old = look.processes.iter().map(Reading::process).collect();
            self.begun = true;
        }
        let by_pid = by_pid(&look);
        let mut processes = Vec::with_capacity(look.processes.len());
        for reading in &look.processes {
            let parent = by_pid.get(&reading.ppid).copied();
            processes.push(Seen {
                process: reading.process(),
                uid: reading.uid,
                ran_ns: reading.ran_ns,
                standing: self.standing(reading, parent, &sides, &mut round)?,
            });
        }
        self.names = (look.processes.iter())
            .map(|r| (r.process(), printable(&r.name)))
            .collect();
        let at_ns = look.at_ns;
        let decision = self.sorter.observe(&Observation { at_ns, processes })?;
        let readings: BTreeMap<Process, &Reading> =
            (look.processes.iter()).map(|r| (r.process(), r)).collect();
        self.carry_out(&decision.changes, &readings, &sides, &mut round)?;
        Ok(round)
    }

    /// All processes as they stand, by number.
    pub fn lines(&self) -> Vec<Line> {
        let line = |row: berth_mixed::Row| Line {
            pid: row.process.number,
            start: row.process.start,
            name: self.names.get(&row.process).cloned().unwrap_or_default(),
            uid: row.uid,
            used: row.used,
            side: row.side,
            reason: row.reason,
            why: match (self.left.get(&row.process), row.reason) {
                (Some(left), Reason::Pinned | Reason::Denied) => left.why.clone(),
                (_, reason) => reason.to_string(),
            },
        };
        self.sorter.rows().map(line).collect()
    }

    /// Puts everything back, also what was born meanwhile.
    ///
    /// # Errors
    /// What is changed cannot be remembered, or /proc not be read; what could be undone is.
    pub fn end(mut self) -> Result<Ended, Error> {
        let mut ended = Ended::default();
        let seen = self.put_back(&mut ended);
        let Some(hands) = self.hands.take() else {
            return Ok(ended);
        };
        // What is left are values that could not be put back.
        let report = hands.end()?;
        ended.add(&report);
        seen.map(|()| ended)
    }

    /// What was moved stays so, and is remembered: whoever opens the ledger next undoes it.
    pub fn leave(self) {}

    fn put_back(&mut self, ended: &mut Ended) -> Result<(), Error> {
        for round in 0..ROUNDS {
            let look = self.eyes.look().map_err(Error::Proc)?;
            let whole = self.eyes.whole().map_err(Error::Whole)?;
            let by_pid = by_pid(&look);
            let mut knobs = BTreeSet::new();
            for reading in &look.processes {
                let process = reading.process();
                let parent = by_pid.get(&reading.ppid).copied();
                let is_ours = self.mine.contains_key(&process)
                    || !self.old.contains(&process) && self.is_born(reading, parent, &whole);
                if is_ours {
                    let born = self.take_up(reading, &whole)?;
                    knobs.extend(born.into_iter().map(|t| knob(process, t)));
                }
            }
            if round == 0 {
                let all = self.mine.iter();
                knobs.extend(all.flat_map(|(p, m)| m.threads.iter().map(|t| knob(*p, *t))));
            }
            let Some(hands) = self.hands.as_mut().filter(|_| !knobs.is_empty()) else {
                break;
            };
            let report = hands.undo(&knobs)?;
            ended.add(&report);
        }
        Ok(())
    }

    /// Threads of a process that have what it was given, and are not known yet: remembered.
    fn take_up(
        &mut self,
        reading: &Reading,
        whole: &BTreeSet<u32>,
    ) -> Result<BTreeSet<(i32, u64)>, Error> {
        let process = reading.process();
        let was = self.was_of(process);
        let mut born = BTreeSet::new();
        let (Some(hands), Some(was), Some(mine), Some(had)) = (
            self.hands.as_mut(),
            was,
            self.mine.get_mut(&process),
            self.had.get(&process),
        ) else {
            return Ok(born);
        };
        for thread in &reading.threads {
            let known = mine.threads.contains(thread) || mine.stay.contains(thread);
            let given = |now: BTreeSet<u32>| is_given(&now, had, whole);
            if !known && self.eyes.affinity(thread.0).is_some_and(given) {
                born.insert(*thread);
            }
        }
        let knobs = born.iter().map(|t| (knob(process, *t), was.clone()));
        hands.inherit(&knobs.collect::<Vec<_>>())?;
        mine.threads.extend(&born);
        Ok(born)
    }

    /// What a thread of this process would be if nothing had been moved.
    fn was_of(&self, process: Process) -> Option<String> {
        let hands = self.hands.as_ref()?;
        let mine = self.mine.get(&process);
        let own = mine.and_then(|m| m.threads.iter().find_map(|t| hands.was(&knob(process, *t))));
        own.map(String::from).or(self.was.clone())
    }

    /// Whoever has ended, and threads that have, are not remembered any more.
    fn forget(&mut self, look: &Look) -> Result<(), Error> {
        let mut there: BTreeMap<Process, BTreeSet<(i32, u64)>> = BTreeMap::new();
        for reading in &look.processes {
            there.insert(reading.process(), reading.threads.iter().copied().collect());
        }
        let mut gone = BTreeSet::new();
        for (process, mine) in &mut self.mine {
            let threads = there.get(process);
            let ended = |t: &&(i32, u64)| threads.is_none_or(|there| !there.contains(t));
            gone.extend(
                mine.threads
                    .iter()
                    .filter(ended)
                    .map(|t| knob(*process, *t)),
            );
            if let Some(threads) = threads {
                mine.threads.retain(|t| threads.contains(t));
                mine.stay.retain(|t| threads.contains(t));
            }
        }
        self.mine.retain(|process, _| there.contains_key(process));
        self.had.retain(|process, _| there.contains_key(process));
        self.left.retain(|process, _| there.contains_key(process));
        self.old.retain(|process| there.contains_key(process));
        if let Some(hands) = &mut self.hands
            && !gone.is_empty()
        {
            hands.undo(&gone)?;
        }
        Ok(())
    }

    /// Whether a process may be moved.
    fn standing(
        &mut self,
        reading: &Reading,
        parent: Option<Process>,
        sides: &Sides,
        round: &mut Round,
    ) -> Result<Standing, Error> {
        let process = reading.process();
        if let Some(left) = self.left.get(&process) {
            return Ok(left.standing);
        }
        if self.mine.contains_key(&process) {
            return self.is_still(reading, sides, round);
        }
        let is_users = reading.uid >= self.sorter.settings().uid_from;
        let born = !self.old.contains(&process) && self.is_born(reading, parent, &sides.whole);
        self.old.insert(process);
        if born {
            self.take_up(reading, &sides.whole)?;
            if !is_users {
                let report = self.let_go(process)?;
                round
                    .left
                    .extend(told(&printable(&reading.name), process, &report));
            }
            return Ok(Standing::Free);
        }
        if !is_users {
            return Ok(Standing::Free);
        }
        if !reading.permitted {
            return Ok(Standing::Denied);
        }
        let whole = self.unpinned.as_ref().unwrap_or(&sides.whole);
        let mut threads = reading.threads.iter();
        let free = threads.all(|(tid, _)| self.eyes.affinity(*tid).is_none_or(|now| now == *whole));
        Ok(if free {
            Standing::Free
        } else {
            Standing::Pinned
        })
    }

    /// Whether a process that is new has its CPUs by birth: it has what its parent was given, or somebody in its cgroup
    /// (its parent may have ended).
    fn is_born(
        &mut self,
        reading: &Reading,
        parent: Option<Process>,
        whole: &BTreeSet<u32>,
    ) -> bool {
        if self.hands.is_none() || self.left.contains_key(&reading.process()) {
            return false;
        }
        let Some(now) = self.eyes.affinity(reading.pid) else {
            return false;
        };
        // Most have what nobody was given.
        if now == *whole || self.had.is_empty() && self.cgroups.is_empty() {
            return false;
        }
        let is = |had: &&Given| is_given(&now, had, whole);
        let of_parent = parent.and_then(|p| self.had.get(&p)).filter(is).cloned();
        let of_cgroup = || {
            let cgroup = self.eyes.cgroup(reading)?;
            self.cgroups.get(&cgroup).filter(is).cloned()
        };
        let Some(had) = of_parent.or_else(of_cgroup) else {
            return false;
        };
        let mine = Mine {
            cpus: now,
            ..Mine::of(reading)
        };
        self.mine.insert(reading.process(), mine);
        self.had.insert(reading.process(), had);
        true
    }

    /// Whether a process on a side has what it was given; new threads are given it, too.
    fn is_still(
        &mut self,
        reading: &Reading,
        sides: &Sides,
        round: &mut Round,
    ) -> Result<Standing, Error> {
        let process = reading.process();
        self.take_up(reading, &sides.whole)?;
        let side = self.sorter.side(process);
        let (Some(mine), Some(hands), Some(side)) =
            (self.mine.get_mut(&process), &self.hands, side)
        else {
            return Ok(Standing::Free);
        };
        // CPUs may have come or gone.
        mine.cpus = sides.of(side).clone();
        self.had
            .entry(process)
            .or_default()
            .insert(mine.cpus.clone());
        let unpinned = self.unpinned.as_ref().unwrap_or(&sides.whole);
        let (mut wanted, mut theirs) = (Vec::new(), false);
        for thread in reading.threads.iter().filter(|t| !mine.stay.contains(t)) {
            let now = self.eyes.affinity(thread.0);
            let Some(now) = now.filter(|now| *now != mine.cpus) else {
                continue;
            };
            let knob = knob(process, *thread);
            match hands.holds(&knob) {
                // It has ended, or has what was given earlier.
                Err(_) => continue,
                Ok(true) => {}
                // Made by one that had not been moved yet.
                Ok(false) if !mine.threads.contains(thread) && now == *unpinned => {}
                Ok(false) => theirs = true,
            }
            wanted.push((knob, list(&mine.cpus)));
        }
        if theirs {
            let name = printable(&reading.name);
            round
                .left
                .push(format!("{} ({name}): {CHANGED}", process.number));
            let report = self.let_go(process)?;
            round.left.extend(told(&name, process, &report));
            let (standing, why) = (Standing::Pinned, CHANGED.into());
            self.left.insert(process, Left { standing, why });
            return Ok(standing);
        }
        let owners = vec![process; wanted.len()];
        self.set(&wanted, &owners, round)?;
        Ok(self
            .left
            .get(&process)
            .map_or(Standing::Free, |left| left.standing))
    }

    fn let_go(&mut self, process: Process) -> Result<Report, Error> {
        let mine = self.mine.remove(&process);
        match (&mut self.hands, mine) {
            (Some(hands), Some(mine)) => {
                let knobs = mine.threads.iter().map(|t| knob(process, *t));
                Ok(hands.undo(&knobs.collect())?)
            }
            _ => Ok(Report::default()),
        }
    }

    fn carry_out(
        &mut self,
        changes: &[Change],
        readings: &BTreeMap<Process, &Reading>,
        sides: &Sides,
        round: &mut Round,
    ) -> Result<(), Error> {
        let (mut wanted, mut owners, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        for change in changes {
            let process = change.process;
            let Some(reading) = readings.get(&process) else {
                continue;
            };
            let name = printable(&reading.name);
            let Some(to) = change.to else {
                let report = self.let_go(process)?;
                if !report.outcomes.is_empty() {
                    let why = change.reason;
                    round
                        .left
                        .push(format!("{} ({name}): {why}", process.number));
                }
                round.left.extend(told(&name, process, &report));
                continue;
            };
            let cpus = sides.of(to);
            moved.push((
                process,
                Moved {
                    pid: process.number,
                    name,
                    to,
                    cpus: list(cpus),
                    reason: change.reason,
                    why: change.reason.to_string(),
                },
            ));
            if self.hands.is_none() {
                continue;
            }
            let mine = self
                .mine
                .entry(process)
                .or_insert_with(|| Mine::of(reading));
            mine.cpus = cpus.clone();
            self.had.entry(process).or_default().insert(cpus.clone());
            for thread in reading.threads.iter().filter(|t| !mine.stay.contains(t)) {
                wanted.push((knob(process, *thread), list(cpus)));
                owners.push(process);
            }
            if let Some(cgroup) = self.eyes.cgroup(reading) {
                self.cgroups.entry(cgroup).or_default().insert(cpus.clone());
                while self.cgroups.len() > CGROUPS {
                    self.cgroups.pop_first();
                }
            }
        }
        let gone = self.set(&wanted, &owners, round)?;
        let any = |p: &Process| self.mine.get(p).is_some_and(|m| !m.threads.is_empty());
        let there = |p: &Process| self.hands.is_none() || any(p);
        for (process, of) in moved {
            if !gone.contains(&process) {
                round.moved.extend(there(&process).then_some(of));
            } else if of.reason != Reason::Starts {
                // Of those that start many end at once, and nobody waits for their moves.
                let (pid, name, to) = (of.pid, of.name, of.to.word());
                let gone = format!(
                    "{pid} ({name}): it ended before it could go to {to} {}",
                    of.cpus
                );
                round.gone.push(gone);
            }
        }
        Ok(())
    }

    /// Sets what is wanted of the threads of these owners. Whose threads cannot be set, or have become somebody else's,
    /// is left alone as a whole. Gives those of whom no thread is there any more.
    fn set(
        &mut self,
        wanted: &[(Knob, String)],
        owners: &[Process],
        round: &mut Round,
    ) -> Result<BTreeSet<Process>, Error> {
        let Some(hands) = self.hands.as_mut().filter(|_| !wanted.is_empty()) else {
            return Ok(BTreeSet::new());
        };
        let report = hands.set(wanted)?;
        let mut gone: BTreeSet<Process> = owners.iter().copied().collect();
        for ((_, outcome), process) in report.outcomes.iter().zip(owners) {
            if *outcome != Outcome::Gone {
                gone.remove(process);
            }
        }
        let mut leave: BTreeMap<Process, Left> = BTreeMap::new();
        for ((knob, outcome), process) in report.outcomes.iter().zip(owners) {
            let Knob::Affinity { tid, start, .. } = knob else {
                continue;
            };
            let Some(mine) = self.mine.get_mut(process) else {
                continue;
            };
            let mut left = |standing, why: String| {
                leave.insert(*process, Left { standing, why });
            };
            match outcome {
                Outcome::Set | Outcome::Already => {
                    mine.threads.insert((*tid, *start));
                    if self.was.is_none() {
                        self.was = hands.was(knob).map(String::from);
                    }
                }
                Outcome::Gone => {}
                Outcome::Refused(why) => {
                    mine.stay.insert((*tid, *start));
                    if *tid == process.number.cast_signed() {
                        left(Standing::Denied, why.clone());
                    }
                }
                Outcome::Denied(_) => {
                    left(Standing::Denied, "may not be moved by this user".into())
                }
                Outcome::Foreign(_) => left(Standing::Pinned, CHANGED.into()),
                Outcome::Instead(cpus) => {
                    mine.threads.insert((*tid, *start));
                    left(
                        Standing::Pinned,
                        format!(
                            "the kernel gives it CPUs {}: it is left alone",
                            cpus.escape_debug()
                        ),
                    );
                }
            }
        }
        for (process, left) in leave {
            let name = (self.mine.get(&process)).map_or(String::new(), |m| m.name.clone());
            let report = self.let_go(process)?;
            round
                .left
                .push(format!("{} ({name}): {}", process.number, left.why));
            round.left.extend(told(&name, process, &report));
            self.left.insert(process, left);
        }
        Ok(gone)
    }
}

fn by_pid(look: &Look) -> BTreeMap<i32, Process> {
    look.processes
        .iter()
        .map(|r| (r.pid, r.process()))
        .collect()
}

/// What could not be put back of a process.
fn told(name: &str, process: Process, report: &Report) -> impl Iterator<Item = String> + use<> {
    let of = format!("{} ({name})", process.number);
    let complaints = report.complaints().into_iter();
    complaints.map(move |complaint| format!("{of}: {complaint}"))
}

impl Mine {
    fn of(reading: &Reading) -> Mine {
        Mine {
            name: printable(&reading.name),
            cpus: BTreeSet::new(),
            threads: BTreeSet::new(),
            stay: BTreeSet::new(),
        }
    }
}

impl Ended {
    fn add(&mut self, report: &Report) {
        let back = |o: &Outcome| matches!(o, Outcome::Set | Outcome::Already);
        self.back += report.outcomes.iter().filter(|(_, o)| back(o)).count();
        for complaint in report.complaints() {
            if !self.left.contains(&complaint) {
                self.left.push(complaint);
            }
        }
    }
}
