// SPDX-License-Identifier: GPL-2.0-only
//! Where it is remembered what is changed on a host, who undoes it when this process is killed, and that no other one
//! acts on the same host. What a killed one has left is undone by whoever comes next, acting or not.
use berth_actuator::guardian::Guarded;
use berth_actuator::ledger::{Ledger, this_boot};
use berth_actuator::live::Live;
use berth_actuator::lock::{self, Lock};
use berth_actuator::{Acting as Hands, Error, Outcome, Report, restore_all};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Of root's agents, wherever their sockets are.
const LOCK: &str = "/run/berth.lock";
/// How long a guardian that is at work is waited for, and the end of whoever was killed.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error(transparent)]
    Actuator(#[from] Error),
    #[error("the guardian cannot be started: {0}")]
    Guardian(io::Error),
}

/// Where an agent remembers what it changes: what the optimiser does in one folder, what pins do in one beside it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The optimiser's.
    changes: PathBuf,
    of_pins: bool,
    /// The program that becomes the guardian if it is called with `guardian` and the folder; none: nobody.
    guardian: Option<PathBuf>,
    /// None: others may act beside it.
    alone: Option<Arc<Alone>>,
}

/// The file that one process may hold, since two would fight: shared by all that this one does.
#[derive(Debug)]
struct Alone {
    path: PathBuf,
    held: Mutex<Weak<Lock>>,
}

/// Hands that act, and what is held meanwhile.
pub struct Begun {
    pub hands: Hands<Live>,
    pub hold: Hold,
    /// What an earlier process had left, a sentence each.
    pub left: Vec<String>,
}

/// To be dropped after the hands: there is nothing left for the guardian then.
pub struct Hold {
    guardian: Option<Guarded>,
    _alone: Option<Arc<Lock>>,
}

impl Hold {
    /// Whether the guardian has gone.
    pub fn is_unguarded(&mut self) -> bool {
        self.guardian.as_mut().is_some_and(|g| !g.watches())
    }
}

impl Place {
    /// `changes`: a folder that is made if it is not there; `lock`: a file that one process may hold.
    pub fn new(changes: PathBuf, guardian: Option<PathBuf>, lock: Option<PathBuf>) -> Place {
        let alone = |path| {
            Arc::new(Alone {
                path,
                held: Mutex::default(),
            })
        };
        Place {
            changes,
            of_pins: false,
            guardian,
            alone: lock.map(alone),
        }
    }

    /// Beside the agent's socket; the guardian is this program. Root's agents are one on a host; another user's are one
    /// where he has a folder below `/run/user`.
    pub fn beside(socket: &Path) -> Place {
        let user = rustix::process::geteuid();
        let own = PathBuf::from(format!("/run/user/{}", user.as_raw()));
        let has_own =
            || std::fs::metadata(&own).is_ok_and(|m| m.is_dir() && m.uid() == user.as_raw());
        let lock = match user.is_root() {
            true => Some(LOCK.into()),
            false => has_own().then(|| own.join("berth.lock")),
        };
        let changes = socket.parent().unwrap_or(Path::new("/")).join("changes");
        Place::new(changes, std::env::current_exe().ok(), lock)
    }

    /// The same for pins.
    pub fn pins(&self) -> Place {
        Place {
            of_pins: true,
            ..self.clone()
        }
    }

    /// The folder.
    pub fn state(&self) -> PathBuf {
        let [pins, changes] = both(&self.changes);
        if self.of_pins { pins } else { changes }
    }

    /// All folders in which agents of this host may have left something, with sockets elsewhere, too; what is on top of
    /// the rest first.
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut all = vec![self.changes.clone()];
        let others = self
            .alone
            .iter()
            .flat_map(|alone| lock::folders(&alone.path));
        all.extend(others.filter(|f| *f != self.changes));
        all.iter().flat_map(|changes| both(changes)).collect()
    }

    /// Keeps others from acting on this host, as long as what it gives is there.
    ///
    /// # Errors
    /// Another process acts: who.
    pub fn alone(&self) -> Result<Option<Arc<Lock>>, Error> {
        let Some(alone) = &self.alone else {
            return Ok(None);
        };
        let mut held = alone.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = held.upgrade() {
            return Ok(Some(lock));
        }
        let lock = Arc::new(Lock::take(&alone.path, &self.changes)?);
        *held = Arc::downgrade(&lock);
        Ok(Some(lock))
    }

    /// Opens the ledger, undoes what is left, starts the guardian.
    ///
    /// # Errors
    /// Another process acts; the ledger cannot be written; there is no guardian to be had.
    pub fn begin(&self) -> Result<Begun, PlaceError> {
        let alone = self.alone()?;
        let mut left = Vec::new();
        if let Some(lock) = &alone {
            undo_others(lock, &mut left)?;
        }
        let (hands, report) = Hands::begin(Live::new(), patiently(&self.state())?)?;
        left.extend(words(&report));
        let start = |program: &PathBuf| {
            let mut command = Command::new(program);
            command.arg("guardian").arg(self.state());
            Guarded::start(&mut command).map_err(PlaceError::Guardian)
        };
        let guardian = self.guardian.as_ref().map(start).transpose()?;
        Ok(Begun {
            hands,
            hold: Hold {
                guardian,
                _alone: alone,
            },
            left,
        })
    }

    /// Undoes what agents of this host that were killed have left, whoever is frozen first. Gives what is worth saying:
    /// what was undone, and what could not be.
    pub fn undo_left(&self) -> Vec<String> {
        let left: Vec<PathBuf> = self
            .folders()
            .into_iter()
            .filter(|f| Ledger::is_there(f))
            .collect();
        if left.is_empty() {
            return Vec::new();
        }
        let not = |why: String| {
            let folders: Vec<String> = left.iter().map(|f| f.display().to_string()).collect();
            vec![format!(
                "what an earlier process has left set is not undone ({}): {why}",
                folders.join(", ")
            )]
        };
        // Held while it is undone: nobody begins to act on top of it.
        match waiting(is_ending, || self.alone()) {
            Ok(_alone) => undone(&left),
            Err(e) => not(e.to_string()),
        }
    }
}

/// Pins lie on top of what else was set.
fn both(changes: &Path) -> [PathBuf; 2] {
    [changes.with_file_name("pins"), changes.into()]
}

/// What has become of several ledgers.
#[derive(Debug, Default)]
pub struct Undone {
    pub report: Report,
    /// Folders in which another process acts, or undoes; nothing was done there.
    pub held: Vec<(PathBuf, Error)>,
    /// What could not be read or written; nothing, or not all, was done there.
    pub wrong: Vec<Error>,
}

impl Undone {
    /// Why not all is undone.
    pub fn failures(&self) -> impl Iterator<Item = &Error> {
        self.held.iter().map(|(_, e)| e).chain(&self.wrong)
    }
}

/// Undoes what these folders tell of. Whoever is frozen by any of them runs again first; one that cannot be read keeps
/// nobody from being undone by another.
pub fn undo(folders: &[PathBuf]) -> Undone {
    let (mut ledgers, mut undone) = (Vec::new(), Undone::default());
    for folder in folders {
        match this_boot().and_then(|boot| Ledger::open(folder, &boot)) {
            Ok(ledger) => ledgers.push(ledger),
            Err(e @ Error::Held { .. }) => undone.held.push((folder.clone(), e)),
            Err(e) => undone.wrong.push(e),
        }
    }
    match restore_all(&Live::new(), &mut ledgers) {
        Ok(report) => undone.report = report,
        Err(e) => undone.wrong.push(e),
    }
    undo_ending(&mut undone);
    undone
}

/// Those that are held by who is ending, after all others, and all in the time of one.
fn undo_ending(undone: &mut Undone) {
    let end = Instant::now() + PATIENCE;
    for (folder, why) in std::mem::take(&mut undone.held) {
        let open = |boot: String| waiting_until(end, is_ending, || Ledger::open(&folder, &boot));
        let opened = match is_ending(&why) {
            true => this_boot().and_then(open),
            false => Err(why),
        };
        match opened.and_then(|ledger| restore_all(&Live::new(), &mut [ledger])) {
            Ok(report) => undone.report.append(report),
            Err(e @ Error::Held { .. }) => undone.held.push((folder, e)),
            Err(e) => undone.wrong.push(e),
        }
    }
}

/// The same when an agent begins, in sentences: a guardian that is at work is waited for, after what others tell of.
fn undone(folders: &[PathBuf]) -> Vec<String> {
    let Undone {
        report,
        held,
        wrong,
    } = undo(folders);
    let tell = |e: Error| format!("{e}; berth restore tries again");
    let mut said = words(&report);
    said.extend(wrong.into_iter().map(tell));
    for (folder, _) in held {
        let opened = patiently(&folder).and_then(|l| restore_all(&Live::new(), &mut [l]));
        match opened {
            Ok(report) => said.extend(words(&report)),
            Err(e) => said.push(tell(e)),
        }
    }
    said
}

/// Before anything is set here, what agents with sockets elsewhere have left is undone: else it would be remembered as
/// what was there before.
fn undo_others(lock: &Lock, said: &mut Vec<String>) -> Result<(), Error> {
    for changes in lock.others() {
        for folder in both(&changes).iter().filter(|f| Ledger::is_there(f)) {
            match patiently(folder) {
                Ok(ledger) => said.extend(words(&restore_all(&Live::new(), &mut [ledger])?)),
                Err(e @ Error::Held { .. }) => return Err(e),
                // A folder that is not ours any more: nothing of it is read.
                Err(e) => said.push(e.to_string()),
            }
        }
        if !both(&changes).iter().any(|f| Ledger::is_there(f)) {
            let _ = lock.forget(&changes);
        }
    }
    Ok(())
}

/// Opens a ledger; a guardian that is at work is waited for.
fn patiently(folder: &Path) -> Result<Ledger, Error> {
    let boot = this_boot()?;
    waiting(
        |e| matches!(e, Error::Held { .. }),
        || Ledger::open(folder, &boot),
    )
}

/// What is killed lets go of its files a moment after it has gone.
fn is_ending(held: &Error) -> bool {
    matches!(held, Error::Held { by: None, .. })
}

/// Takes something; where that fails in this way, it is tried again for a while.
fn waiting<T>(
    passes: impl Fn(&Error) -> bool,
    take: impl Fn() -> Result<T, Error>,
) -> Result<T, Error> {
    waiting_until(Instant::now() + PATIENCE, passes, take)
}

fn waiting_until<T>(
    end: Instant,
    passes: impl Fn(&Error) -> bool,
    take: impl Fn() -> Result<T, Error>,
) -> Result<T, Error> {
    loop {
        match take() {
            Err(e) if passes(&e) && Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
            taken => return taken,
        }
    }
}

/// What was undone, in sentences.
fn words(report: &Report) -> Vec<String> {
    let mut said = Vec::new();
    let back = |o: &Outcome| matches!(o, Outcome::Set | Outcome::Already | Outcome::Gone);
    let n = report.outcomes.iter().filter(|(_, o)| back(o)).count();
    if n > 0 {
        said.push(format!(
            "{n} changes of an earlier process that was killed have been undone"
        ));
    }
    if report.of_another_boot > 0 {
        said.push(format!(
            "{} changes of another boot of this machine are forgotten: nothing is left of them",
            report.of_another_boot
        ));
    }
    said.extend(report.complaints());
    said
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use berth_actuator::live::start_of;
    use berth_actuator::{Acting, Host, Knob};
    use std::process::Child;

    /// A child that is being made holds for a moment what other tests have open, their locks, too.
    static ONE: Mutex<()> = Mutex::new(());

    /// One test at a time makes children, or lets go of a lock that it takes again.
    pub(crate) fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    struct Idle(Child);

    impl Drop for Idle {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn idle() -> (Idle, Knob) {
        let child = Command::new("sleep").arg("100000").spawn().unwrap();
        let pid = child.id() as i32;
        let start = start_of(Path::new("/proc"), pid, pid).unwrap();
        let knob = Knob::Affinity {
            pid,
            tid: pid,
            start,
        };
        (Idle(child), knob)
    }

    /// As an agent that is killed leaves it, its guardian, too.
    fn leaves(place: &Place, knob: &Knob) {
        let alone = place.alone().unwrap();
        let ledger = Ledger::open(&place.state(), &this_boot().unwrap()).unwrap();
        let (mut acting, _) = Acting::begin(Live::new(), ledger).unwrap();
        acting.set(&[(knob.clone(), "0".into())]).unwrap();
        drop((acting, alone));
        assert!(Ledger::is_there(&place.state()));
    }

    fn place(folder: &Path, name: &str) -> Place {
        let own = folder.join(name);
        let _ = std::fs::create_dir(&own);
        Place::new(own.join("changes"), None, Some(folder.join("lock")))
    }

    #[test]
    fn whoever_comes_next_undoes_what_was_left_wherever_it_is() {
        let _one = one_at_a_time();
        let folder = tempfile::tempdir().unwrap();
        let (_idle, knob) = idle();
        let was = Live::new().read(&knob).unwrap();
        for by_pins in [false, true] {
            let dead = place(folder.path(), "dead");
            let dead = if by_pins { dead.pins() } else { dead };
            // With the same socket, with another one, and before it acts itself.
            leaves(&dead, &knob);
            let said = place(folder.path(), "dead").undo_left();
            assert!(
                said.len() == 1 && said[0].starts_with("1 changes"),
                "{said:?}"
            );
            assert_eq!(Live::new().read(&knob).unwrap(), was);
            leaves(&dead, &knob);
            let said = place(folder.path(), "other").undo_left();
            assert!(
                said.len() == 1 && said[0].starts_with("1 changes"),
                "{said:?}"
            );
            assert_eq!(Live::new().read(&knob).unwrap(), was);
            leaves(&dead, &knob);
            let begun = place(folder.path(), "other").begin().unwrap();
            assert!(begun.left.len() == 1, "{:?}", begun.left);
            assert_eq!(Live::new().read(&knob).unwrap(), was);
        }
        assert!(place(folder.path(), "dead").undo_left().is_empty());
    }

    #[test]
    fn the_end_of_one_that_is_killed_is_waited_for() {
        let _one = one_at_a_time();
        let folder = tempfile::tempdir().unwrap();
        let (_idle, knob) = idle();
        let was = Live::new().read(&knob).unwrap();
        let dead = place(folder.path(), "dead");
        // What holds the lock, what holds the ledger.
        for file in [folder.path().join("lock"), dead.state().join("lock")] {
            leaves(&dead, &knob);
            let text = std::fs::read_to_string(&file).unwrap();
            let folders = text.split_once('\n').map_or("", |(_, f)| f);
            std::fs::write(&file, format!("1 0\n{folders}")).unwrap();
            let held = std::fs::File::open(&file).unwrap();
            held.lock().unwrap();
            let ends = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                drop(held);
            });
            match file.starts_with(dead.state()) {
                false => drop(place(folder.path(), "other").undo_left()),
                true => assert_eq!(undo(&[dead.state()]).failures().count(), 0),
            }
            assert_eq!(Live::new().read(&knob).unwrap(), was, "{}", file.display());
            ends.join().unwrap();
        }
    }

    #[test]
    fn one_that_cannot_be_read_keeps_nobody_from_being_undone() {
        let _one = one_at_a_time();
        let folder = tempfile::tempdir().unwrap();
        let (_idle, knob) = idle();
        let was = Live::new().read(&knob).unwrap();
        let (dead, broken) = (place(folder.path(), "dead"), folder.path().join("broken"));
        drop(Ledger::open(&broken, &this_boot().unwrap()).unwrap());
        for garbage in ["no ledger at all", ""] {
            std::fs::write(broken.join("changes.json"), garbage).unwrap();
            leaves(&dead, &knob);
            // Whichever comes first.
            for folders in [
                [broken.clone(), dead.state()],
                [dead.state(), broken.clone()],
            ] {
                let undone = undo(&folders);
                assert_eq!(undone.failures().count(), 1, "{undone:?}");
                assert_eq!(Live::new().read(&knob).unwrap(), was);
            }
            // And whoever holds one.
            leaves(&dead, &knob);
            std::fs::remove_file(broken.join("changes.json")).unwrap();
            let held = Ledger::open(&broken, &this_boot().unwrap()).unwrap();
            let undone = undo(&[broken.clone(), dead.state()]);
            assert_eq!(
                (undone.held.len(), undone.wrong.len()),
                (1, 0),
                "{undone:?}"
            );
            assert_eq!(Live::new().read(&knob).unwrap(), was);
            drop(held);
        }
    }

    #[test]
    fn of_two_the_second_is_refused_by_the_firsts_name() {
        let _one = one_at_a_time();
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (place(folder.path(), "a"), place(folder.path(), "b"));
        let acts = first.begin().unwrap();
        // Pins of the same agent are no second one.
        let pins = first.pins().begin().unwrap();
        let us = format!("process {} (", std::process::id());
        for place in [second.clone(), second.pins()] {
            let why = place.begin().err().unwrap().to_string();
            assert!(why.contains(&us), "{why}");
        }
        drop(acts);
        assert!(second.begin().is_err(), "there are pins still");
        drop(pins);
        assert!(second.begin().is_ok());
    }

    #[test]
    fn beside_one_that_acts_nothing_is_undone_and_that_is_said() {
        let _one = one_at_a_time();
        let folder = tempfile::tempdir().unwrap();
        let (_idle, knob) = idle();
        let (dead, acts) = (place(folder.path(), "dead"), place(folder.path(), "acts"));
        leaves(&dead, &knob);
        let there = Live::new().read(&knob).unwrap();
        // As if it had begun without looking for that.
        let held = acts.alone().unwrap();
        let said = place(folder.path(), "dead").undo_left();
        assert!(
            said.len() == 1 && said[0].contains("is not undone") && said[0].contains("process "),
            "{said:?}"
        );
        assert_eq!(Live::new().read(&knob).unwrap(), there);
        drop(held);
        place(folder.path(), "dead").undo_left();
    }
}
