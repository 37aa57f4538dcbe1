// SPDX-License-Identifier: GPL-2.0-only
//! Lets VMs run for a part of each period only, by freezing their cgroups for the rest of it: what is left where a host
//! has no caps. It stops a VM's I/O, too.
//!
//! What a cgroup was before is in the ledger before this begins ([`berth_actuator::Acting::lend`]), so that whoever
//! undoes what a killed agent did thaws first of all.
use berth_actuator::{Error, Knob};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// In each of which a VM runs once and is frozen once.
pub const PERIOD: Duration = Duration::from_millis(100);
/// It runs for at least so long in each.
const LEAST: Duration = Duration::from_millis(1);
/// One that could not be thawed is tried again so soon.
const AGAIN: Duration = Duration::from_millis(10);
/// Failures that are kept until they are asked for.
const FAILURES: usize = 32;

/// The file that freezes a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Freeze {
    /// `cgroup.freeze` of version 2.
    V2(Knob),
    /// `freezer.state` of version 1.
    V1(Knob),
}

impl Freeze {
    pub fn knob(&self) -> &Knob {
        let (Freeze::V2(knob) | Freeze::V1(knob)) = self;
        knob
    }

    /// What is in the file of a group that runs, and of one that does not.
    pub fn words(&self) -> [&'static str; 2] {
        match self {
            Freeze::V2(_) => ["0", "1"],
            Freeze::V1(_) => ["THAWED", "FROZEN"],
        }
    }
}

type Writing = dyn Fn(&Knob, &str) -> Result<(), Error> + Send;

/// Writes a value.
pub struct Write(pub Box<Writing>);

impl std::fmt::Debug for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Write")
    }
}

/// What could not be written.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    /// Those that have not been told yet, each once.
    said: Vec<String>,
}

enum Word {
    /// This part of each period from now on, above 0 and below 1.
    Run(Freeze, f64),
    /// All of it, and whoever asks is told when it does.
    Thaw(Knob, Sender<()>),
}

/// A thread that freezes and thaws; dropped, it thaws all and ends.
#[derive(Debug)]
pub struct Freezer {
    words: Option<Sender<Word>>,
    thread: Option<JoinHandle<()>>,
    failures: Arc<Mutex<Failures>>,
}

impl Freezer {
    /// # Errors
    /// The thread cannot be started.
    pub fn start(write: Write) -> std::io::Result<Freezer> {
        let (words, hears) = channel();
        let turns = Turns::new(write);
        let failures = turns.failures.clone();
        let thread = std::thread::Builder::new()
            .name("berth-freezer".into())
            .spawn(move || turns.run(&hears))?;
        Ok(Freezer {
            words: Some(words),
            thread: Some(thread),
            failures,
        })
    }

    /// How often a group could not be frozen or thawed, and why, as far as that has not been told before.
    pub fn failures(&self) -> (u64, Vec<String>) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        (failures.count, std::mem::take(&mut failures.said))
    }

    /// Lets this group run for that part of each period.
    pub fn run(&self, group: Freeze, part: f64) {
        self.say(Word::Run(group, part));
    }

    /// Lets a group run all of the time; when this returns, it does.
    pub fn thaw(&self, knob: &Knob) {
        let (done, wait) = channel();
        self.say(Word::Thaw(knob.clone(), done));
        let _ = wait.recv();
    }

    fn say(&self, word: Word) {
        if let Some(words) = &self.words {
            // The thread ends only with this.
            let _ = words.send(word);
        }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        drop(self.words.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Turn {
    group: Freeze,
    runs: Duration,
    frozen: bool,
    /// When it freezes or thaws next.
    next: Instant,
    /// When its period began.
    began: Instant,
}

struct Turns {
    write: Write,
    all: BTreeMap<Knob, Turn>,
    failures: Arc<Mutex<Failures>>,
}

impl Turns {
    fn new(write: Write) -> Turns {
        Turns {
            write,
            all: BTreeMap::new(),
            failures: Arc::default(),
        }
    }

    fn run(mut self, words: &Receiver<Word>) {
        loop {
            let now = Instant::now();
            let next = self.all.values().map(|turn| turn.next).min();
            let wait = next.map_or(Duration::from_secs(3600), |at| {
                at.saturating_duration_since(now)
            });
            match words.recv_timeout(wait) {
                Ok(word) => self.hear(word, Instant::now()),
                Err(RecvTimeoutError::Timeout) => self.turn(Instant::now()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn hear(&mut self, word: Word, now: Instant) {
        match word {
            Word::Run(group, part) => {
                let runs = PERIOD.mul_f64(part.clamp(0.0, 1.0)).max(LEAST);
                let turn = self
                    .all
                    .entry(group.knob().clone())
                    .or_insert_with(|| Turn {
                        group,
                        runs,
                        frozen: false,
                        next: now + runs,
                        began: now,
                    });
                turn.runs = runs;
            }
            Word::Thaw(knob, done) => {
                if let Some(turn) = self.all.remove(&knob) {
                    self.thaw(&turn);
                }
                let _ = done.send(());
            }
        }
    }

    /// Freezes and thaws those whose time has come.
    fn turn(&mut self, now: Instant) {
        let (write, failures) = (&self.write, &self.failures);
        self.all.retain(|knob, turn| {
            if turn.next > now {
                return true;
            }
            let [runs, frozen] = turn.group.words();
            let word = if turn.frozen { runs } else { frozen };
            match (write.0)(knob, word) {
                Ok(()) => turn.frozen = !turn.frozen,
                Err(Error::Gone { .. }) => return false,
                Err(e) => {
                    note(failures, &e);
                    // It runs, and is left to for this period; or it does not, and must.
                    let wait = if turn.frozen { AGAIN } else { PERIOD };
                    (turn.began, turn.next) = (now, now + wait);
                    return true;
                }
            }
            match turn.frozen {
                // Late or not, it is thawed when its period is over.
                true => turn.next = turn.began + PERIOD,
                false => (turn.began, turn.next) = (now, now + turn.runs),
            }
            true
        });
    }

    /// What could not be thawed whoever undoes the rest tries again, and says.
    fn thaw(&self, turn: &Turn) {
        if !turn.frozen {
            return;
        }
        match (self.write.0)(turn.group.knob(), turn.group.words()[0]) {
            Ok(()) | Err(Error::Gone { .. }) => {}
            Err(e) => note(&self.failures, &e),
        }
    }
}

fn note(failures: &Mutex<Failures>, error: &Error) {
    let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
    failures.count += 1;
    let why = error.to_string();
    if failures.said.len() < FAILURES && !failures.said.contains(&why) {
        failures.said.push(why);
    }
}

impl Drop for Turns {
    /// However it ends, nobody stays frozen.
    fn drop(&mut self) {
        self.all.values().for_each(|turn| self.thaw(turn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    type Said = Arc<Mutex<Vec<(String, String)>>>;

    fn group(name: &str) -> Freeze {
        Freeze::V2(Knob::Group {
            group: name.into(),
            file: "cgroup.freeze".into(),
        })
    }

    fn turns() -> (Said, Turns) {
        let said: Said = Arc::default();
        let ours = said.clone();
        let write = move |knob: &Knob, value: &str| {
            let Knob::Group { group, .. } = knob else {
                unreachable!()
            };
            ours.lock().unwrap().push((group.clone(), value.into()));
            let what = knob.to_string();
            match group.as_str() {
                "gone" => Err(Error::Gone { what }),
                group if group == format!("never {value}") => Err(Error::Refused {
                    what,
                    why: "busy".into(),
                }),
                _ => Ok(()),
            }
        };
        (said, Turns::new(Write(Box::new(write))))
    }

    /// How long of a second `vm` was frozen, looked at each millisecond of a clock that is played.
    fn frozen_ms(part: f64) -> u128 {
        let (said, mut turns) = turns();
        let start = Instant::now();
        turns.hear(Word::Run(group("vm"), part), start);
        let mut frozen = 0;
        for ms in 0..1000 {
            turns.turn(start + Duration::from_millis(ms));
            let last = said.lock().unwrap().last().map(|(_, value)| value == "1");
            frozen += u128::from(last == Some(true));
        }
        frozen
    }

    #[test]
    fn a_vm_runs_for_its_part_of_each_period() {
        for (part, frozen) in [(0.25, 750), (0.5, 500), (0.9, 100)] {
            // A millisecond of each period is where it is looked.
            assert!(
                frozen_ms(part).abs_diff(frozen) <= 10,
                "{part}: {}",
                frozen_ms(part)
            );
        }
        // Never not at all.
        assert!(frozen_ms(0.0) < 1000 && frozen_ms(f64::MIN_POSITIVE) <= 990);
    }

    #[test]
    fn nobody_stays_frozen() {
        let (said, mut turns) = turns();
        let start = Instant::now();
        for name in ["a", "b", "gone"] {
            turns.hear(Word::Run(group(name), 0.5), start);
        }
        turns.turn(start + PERIOD / 2);
        // One that is gone is not written to again.
        assert_eq!(turns.all.len(), 2);
        let (done, wait) = channel();
        turns.hear(
            Word::Thaw(group("a").knob().clone(), done),
            start + PERIOD / 2,
        );
        assert!(wait.try_recv().is_ok());
        drop(turns);
        let said = said.lock().unwrap();
        let last = |name: &str| {
            said.iter()
                .rev()
                .find(|(group, _)| group == name)
                .map(|(_, v)| v.clone())
        };
        assert_eq!((last("a"), last("b")), (Some("0".into()), Some("0".into())));
    }

    #[test]
    fn what_cannot_be_frozen_or_thawed_is_counted_and_told_once() {
        let (said, mut turns) = turns();
        let start = Instant::now();
        // One that is never frozen, and one that is and cannot be thawed.
        for name in ["never 1", "never 0"] {
            turns.hear(Word::Run(group(name), 0.5), start);
        }
        for ms in 0..1000 {
            turns.turn(start + Duration::from_millis(ms));
        }
        let of = |name: &str| {
            said.lock()
                .unwrap()
                .iter()
                .filter(|(g, _)| g == name)
                .count()
        };
        // Tried once in each period; and again and again until it runs.
        assert!((9..=11).contains(&of("never 1")), "{}", of("never 1"));
        assert!(of("never 0") > 50, "{}", of("never 0"));
        drop(std::mem::take(&mut turns.all));
        let failures = turns.failures.lock().unwrap();
        assert!(failures.count > 60, "{failures:?}");
        assert_eq!(failures.said.len(), 2, "{failures:?}");
        assert!(
            failures
                .said
                .iter()
                .all(|why| why.contains("cannot be set: busy"))
        );
    }

    #[test]
    fn a_thread_of_its_own_does_it_and_thaws_at_its_end() {
        let (said, _) = turns();
        let ours = said.clone();
        let freezer = Freezer::start(Write(Box::new(move |_, value| {
            ours.lock().unwrap().push((String::new(), value.into()));
            Ok(())
        })))
        .unwrap();
        freezer.run(group("vm"), 0.2);
        while !said.lock().unwrap().iter().any(|(_, v)| v == "1") {
            std::thread::sleep(Duration::from_millis(1));
        }
        freezer.thaw(group("vm").knob());
        assert_eq!(said.lock().unwrap().last().unwrap().1, "0");
        let so_far = said.lock().unwrap().len();
        freezer.run(group("vm"), 0.2);
        drop(freezer);
        let said = said.lock().unwrap();
        assert!(said.len() == so_far || said.last().unwrap().1 == "0");
    }
}
