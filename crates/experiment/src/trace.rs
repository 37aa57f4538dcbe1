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
use std::fs::File;
use std::io::BufWriter;
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
    stream: Arc<Mutex<Stream>>,
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
    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(
        path: &Path,
        window: Window,
        vms: Vec<String>,
        kernel: &str,
    ) -> Result<Trace, Failure> {
        let failed = |e: std::io::Error| {
            Failure::Run(format!("cannot write the trace {}: {e}", path.display()))
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let file = BufWriter::with_capacity(1 << 18, File::create(path).map_err(failed)?);
        let stream = Stream {
            window,
            writer: Some(Writer::new(file, kernel)),
            vms,
            current: BTreeMap::new(),
            begun: false,
        };
        Ok(Trace {
            path: path.to_path_buf(),
            stream: Arc::new(Mutex::new(stream)),
        })
    }

    /// Opens the trace of a plan's only run: `file`, or ARM-SEED.pftrace in `folder`.
    ///
    /// # Errors
    /// The plan has several runs; the file cannot be made.
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
        let own = || {
            let name = arm.arm.name.replace('/', "_");
            folder.join(format!("{name}-{seed}.pftrace"))
        };
        let file = file.map_or_else(own, Path::to_path_buf);
        let vms = berth_sim::run::vm_specs(&variant.scenario);
        let vms = vms.into_iter().map(|vm| vm.name).collect();
        Trace::create(&file, window, vms, &variant.scenario.host.kernel)
    }

    pub fn path(&self) -> &Path {
        &self.path
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
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = stream.writer.take() else {
            return Err(Failure::Run("the trace was finished before".into()));
        };
        writer.finish().map_err(|e| {
            Failure::Run(format!(
                "the trace {} is not whole: {e}; the results are kept",
                self.path.display()
            ))
        })
    }
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
