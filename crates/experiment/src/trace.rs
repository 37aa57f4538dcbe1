// SPDX-License-Identifier: GPL-2.0-only
//! `berth sim --trace`: what happens in a run, as a file for Perfetto.
use crate::error::Failure;
use crate::plan::{Plan, in_words};
use berth_report::perfetto::{Left, Writer, Written};
use berth_scenario::model::Nanos;
use berth_scenario::quantity::duration;
use berth_sim::machine::task::Life;
use berth_sim::trace::{Event, Kind, SharedSink, Sink};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Time since the start of the run that is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: Nanos,
    pub to: Nanos,
}

impl Window {
    /// `8.1s..8.3s`, `..200ms`, `8s..`, `all`.
    ///
    /// # Errors
    /// What is wrong with it, in one sentence.
    pub fn parse(text: &str) -> Result<Window, String> {
        if text == "all" {
            return Ok(Window {
                from: 0,
                to: Nanos::MAX,
            });
        }
        let Some((from, to)) = text.split_once("..") else {
            return Err(format!(
                "`{}` is no time span: 8.1s..8.3s, or `all`",
                text.escape_debug()
            ));
        };
        let at = |text: &str, empty: Nanos| match text.trim() {
            "" => Ok(empty),
            text => duration(text),
        };
        let window = Window {
            from: at(from, 0)?,
            to: at(to, Nanos::MAX)?,
        };
        if window.to <= window.from {
            return Err(format!("{text} ends before it begins"));
        }
        Ok(window)
    }
}

/// A trace that is being written.
pub struct Trace {
    path: PathBuf,
    /// Where it goes once the run's results have a folder; none: it was named, and stays where it is.
    home: Option<Home>,
    stream: Arc<Mutex<Stream>>,
}

/// The scenario's folder of results, and the name in the run's own one.
struct Home {
    folder: PathBuf,
    name: String,
}

struct Stream {
    window: Window,
    /// None: it has been finished.
    writer: Option<Writer<BufWriter<File>>>,
    /// Names of VMs; the entry after the last is the host's.
    vms: Vec<String>,
    /// What each CPU runs, by machine: needed where the window begins.
    current: BTreeMap<u32, Vec<u32>>,
    begun: bool,
}

impl Trace {
    fn create(
        path: PathBuf,
        home: Option<Home>,
        window: Window,
        vms: Vec<String>,
        kernel: &str,
    ) -> Result<Trace, Failure> {
        let failed = |e: std::io::Error| {
            Failure::Run(format!("cannot write the trace {}: {e}", path.display()))
        };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let file = match File::create_new(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                may_be_named(&path)?;
                OpenOptions::new().write(true).open(&path)
            }
            made => made,
        };
        let file = BufWriter::with_capacity(1 << 18, file.map_err(failed)?);
        let stream = Stream {
            window,
            writer: Some(Writer::new(file, kernel)),
            vms,
            current: BTreeMap::new(),
            begun: false,
        };
        Ok(Trace {
            path,
            home,
            stream: Arc::new(Mutex::new(stream)),
        })
    }

    /// Opens the trace of a plan's only run: `file`, which must not be there yet, or, for [`Trace::keep`],
    /// ARM-SEED.pftrace in the run's own folder below `folder`, the scenario's.
    ///
    /// # Errors
    /// The plan has several runs; the file is there already, or cannot be made.
    pub fn of_run(
        plan: &Plan,
        window: Window,
        file: Option<&Path>,
        folder: &Path,
    ) -> Result<Trace, Failure> {
        let variant = plan.variants.first();
        let arm = variant.and_then(|v| Some((v, v.arms.iter().find(|a| a.absent.is_none())?)));
        let (Some((variant, arm)), 1, Some(seed)) = (arm, plan.runs(), plan.seeds.first()) else {
            return Err(Failure::Input(format!(
                "--trace is of one run, and this would be {}: choose with --arm NAME and --seed N",
                in_words(plan.runs())
            )));
        };
        let vms = berth_sim::run::vm_specs(&variant.scenario);
        let vms = vms.into_iter().map(|vm| vm.name).collect();
        let (path, home) = match file {
            Some(file) => (file.to_path_buf(), None),
            None => {
                let name = format!("{}-{seed}", arm.arm.name.replace('/', "_"));
                // Which number the run's folder has is known when it has ended.
                let beside = folder.join(format!(".{name}.pftrace.{}", std::process::id()));
                let home = Home {
                    folder: folder.to_path_buf(),
                    name,
                };
                (beside, Some(home))
            }
        };
        Trace::create(path, home, window, vms, &variant.scenario.host.kernel)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As [`Trace::finish`]; one that was not named then lies in `numbered`, the run's folder of results, or, if it has
    /// none, in a new one. Gives where it lies. Nothing that is there is replaced.
    ///
    /// # Errors
    /// As [`Trace::finish`]; it cannot be brought there.
    pub fn keep(mut self, numbered: Option<&Path>) -> Result<(PathBuf, Written), Failure> {
        let mut path = self.path.clone();
        let home = self.home.take();
        let written = self.rest();
        if let Some(home) = home {
            let failed = |e: &dyn std::fmt::Display| {
                Failure::Run(format!("the trace stays in {}: {e}", path.display()))
            };
            let folder = match numbered {
                Some(folder) => folder.to_path_buf(),
                None => berth_results::write::next(&home.folder).map_err(|e| failed(&e))?,
            };
            path = settle(&path, &folder, &home.name).map_err(|e| failed(&e))?;
        }
        match written {
            Ok(written) => Ok((path, written)),
            Err(e) => Err(not_whole(&path, &e)),
        }
    }

    /// What the simulator tells it to.
    pub fn sink(&self) -> SharedSink {
        SharedSink::new(self.stream.clone())
    }

    /// The rest to disk; how large it has become.
    ///
    /// # Errors
    /// The first error of writing: a full disk, for example. What was written until then stays.
    pub fn finish(self) -> Result<Written, Failure> {
        let path = self.path.clone();
        self.rest().map_err(|e| not_whole(&path, &e))
    }

    fn rest(self) -> std::io::Result<Written> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = stream.writer.take();
        let writer = writer.ok_or_else(|| std::io::Error::other("it was finished before"))?;
        writer.finish()
    }
}

fn not_whole(path: &Path, e: &std::io::Error) -> Failure {
    Failure::Run(format!(
        "the trace {} is not whole: {e}; the results are kept",
        path.display()
    ))
}

/// A trace may get this name: nothing is there, or something that keeps nothing (a device, a pipe).
///
/// # Errors
/// A file is there: whatever it is, somebody may want it.
pub fn may_be_named(path: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(path).and_then(|_| fs::metadata(path)) {
        Err(e) if e.kind() == ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => Ok(()),
        Ok(there) if !there.is_file() && !there.is_dir() => Ok(()),
        _ => Err(Failure::Input(format!(
            "--trace-out {}: something of that name is there already, and nothing is written over: name another file, \
             or remove that one",
            path.display()
        ))),
    }
}

/// Brings a finished trace into a folder as NAME.pftrace, or under the first name with a number that nobody has; one
/// that has the same contents does for it.
fn settle(from: &Path, folder: &Path, name: &str) -> std::io::Result<PathBuf> {
    let numbered = (2..).map(|i| format!("{name}-{i}.pftrace"));
    for name in std::iter::once(format!("{name}.pftrace")).chain(numbered) {
        let to = folder.join(name);
        // Unlike a rename a link never replaces anything; not every file system has them.
        let moved = match fs::hard_link(from, &to) {
            Ok(()) => fs::remove_file(from),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                if !same(from, &to) {
                    continue;
                }
                fs::remove_file(from)
            }
            Err(_) => match File::create_new(&to) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => Err(e),
                Ok(_) => fs::rename(from, &to),
            },
        };
        return moved.map(|()| to);
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Two files have the same contents.
fn same(one: &Path, other: &Path) -> bool {
    let equal = || -> std::io::Result<bool> {
        let (mut a, mut b) = (File::open(one)?, File::open(other)?);
        if a.metadata()?.len() != b.metadata()?.len() {
            return Ok(false);
        }
        let (mut x, mut y) = (Vec::new(), Vec::new());
        loop {
            x.clear();
            y.clear();
            a.by_ref().take(1 << 20).read_to_end(&mut x)?;
            b.by_ref().take(1 << 20).read_to_end(&mut y)?;
            if x != y || x.is_empty() {
                return Ok(x == y);
            }
        }
    };
    equal().unwrap_or(false)
}

impl Stream {
    /// The CPUs as they are when the window begins.
    fn begin(&mut self) {
        self.begun = true;
        let Some(w) = &mut self.writer else { return };
        for (machine, cpus) in &self.current {
            for (cpu, task) in (0..).zip(cpus) {
                let next = (*task != cpu).then_some(*task);
                w.switch(*machine, self.window.from, cpu, Left::Asleep, next);
            }
        }
    }
}

impl Sink for Stream {
    fn born(&mut self, machine: u32, task: u32, name: &str, entry: u32) {
        let process = match machine {
            0 => self.vms.get(entry as usize).map_or("host", String::as_str),
            guest => self
                .vms
                .get(guest as usize - 1)
                .map_or("guest", String::as_str),
        };
        let process = process.to_string();
        if let Some(w) = &mut self.writer {
            w.thread(machine, task, name, &process);
        }
    }

    fn event(&mut self, machine: u32, e: &Event, life: &dyn Fn(u32) -> Life) {
        if !self.begun && e.at_ns >= self.window.from {
            self.begin();
        }
        let inside = self.begun && e.at_ns <= self.window.to;
        match e.kind {
            Kind::Switch => {
                let cpus = self.current.entry(machine).or_default();
                // A CPU's idle task has its number; so has a CPU not heard of.
                while cpus.len() <= e.cpu as usize {
                    cpus.push(cpus.len() as u32);
                }
                let last = std::mem::replace(&mut cpus[e.cpu as usize], e.task);
                if !inside {
                    return;
                }
                let left = match life(last) {
                    Life::Runnable => Left::Runnable,
                    Life::Dead => Left::Dead,
                    Life::Asleep | Life::Free => Left::Asleep,
                };
                let next = (e.task != e.cpu).then_some(e.task);
                if let Some(w) = &mut self.writer {
                    w.switch(machine, e.at_ns, e.cpu, left, next);
                }
            }
            Kind::Wake if inside => {
                if let Some(w) = &mut self.writer {
                    w.wake(machine, e.at_ns, e.cpu, e.task);
                }
            }
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_settles_where_nothing_is() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("1");
        fs::create_dir(&folder).unwrap();
        let settled = |contents: &str| {
            let from = dir.path().join("beside");
            fs::write(&from, contents).unwrap();
            let to = settle(&from, &folder, "a-1").unwrap();
            assert!(!from.exists());
            (
                to.file_name().unwrap().to_string_lossy().into_owned(),
                fs::read(to).unwrap(),
            )
        };
        assert_eq!(settled("x"), ("a-1.pftrace".into(), b"x".into()));
        assert_eq!(settled("y"), ("a-1-2.pftrace".into(), b"y".into()));
        assert_eq!(settled("y"), ("a-1-2.pftrace".into(), b"y".into()));
        assert_eq!(settled("xx"), ("a-1-3.pftrace".into(), b"xx".into()));
        assert_eq!(settled("x").0, "a-1.pftrace");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
    }

    #[test]
    fn what_is_there_is_no_name_for_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("nothing", at("nowhere")).unwrap();
        for taken in ["", "file", "link", "nowhere"] {
            assert!(may_be_named(&at(taken)).is_err(), "{taken}");
        }
        may_be_named(&at("new")).unwrap();
        may_be_named(Path::new("/dev/null")).unwrap();
    }

    #[test]
    fn windows() {
        let w = |from, to| Ok(Window { from, to });
        assert_eq!(Window::parse("8.1s..8.3s"), w(8_100_000_000, 8_300_000_000));
        assert_eq!(Window::parse("..200ms"), w(0, 200_000_000));
        assert_eq!(Window::parse("all"), w(0, u64::MAX));
        for wrong in ["8s", "2s..1s", "1..2", "a..b", "1s..1s"] {
            assert!(Window::parse(wrong).is_err(), "{wrong}");
        }
    }
}
