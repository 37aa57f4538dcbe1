// SPDX-License-Identifier: GPL-2.0-only
//! Who does a job: this process, another one, another machine. All come through one door, [`Runner`].
use crate::error::Failure;
use crate::job::{Cell, Job, Loaded, Outcome, VERSION};
use berth_results::schema::RunRecord;
use berth_sim::trace::SharedSink;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Does jobs, several at the same time. What comes out depends on the job only, not on who did it.
pub trait Runner: Send + Sync {
    /// # Errors
    /// One sentence, see [`Outcome::result`]; or why nobody could do it.
    fn run(&self, job: &Job) -> Result<RunRecord, String>;
}

/// Cells that are remembered at the same time, at most.
const CELLS: usize = 256;

/// Jobs are done by the threads that ask.
#[derive(Default)]
pub struct Here {
    loaded: Arc<Loaded>,
    cells: Mutex<BTreeMap<String, Arc<Cell>>>,
    cancel: Option<&'static AtomicBool>,
    sink: Mutex<Option<SharedSink>>,
}

impl Here {
    /// `cancel`: set from outside to end runs early. `loaded`: policies that need not be loaded again.
    pub fn new(cancel: Option<&'static AtomicBool>, loaded: Arc<Loaded>) -> Here {
        Here {
            loaded,
            cancel,
            ..Here::default()
        }
    }

    /// Tells a sink what happens in the runs from now on (there should be one at a time).
    pub fn tell(&self, sink: SharedSink) {
        *self.sink.lock().unwrap_or_else(|e| e.into_inner()) = Some(sink);
    }

    /// Prepares the runs of a job's arm, without one.
    ///
    /// # Errors
    /// The job is of another version, or a policy cannot be loaded or is another one here.
    pub fn ready(&self, job: &Job) -> Result<(), Failure> {
        self.cell(job).map(|_| ())
    }

    fn cell(&self, job: &Job) -> Result<Arc<Cell>, Failure> {
        let key = job.cell();
        let mut cells = self.cells.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(cell) = cells.get(&key) {
            return Ok(cell.clone());
        }
        let cell = Arc::new(Cell::of(job, &self.loaded)?);
        // Jobs come cell by cell: those of long ago do not come again.
        if cells.len() >= CELLS {
            cells.clear();
        }
        cells.insert(key, cell.clone());
        Ok(cell)
    }
}

impl Runner for Here {
    fn run(&self, job: &Job) -> Result<RunRecord, String> {
        let cell = self.cell(job).map_err(|e| match e {
            Failure::Input(why) | Failure::Run(why) => why,
            Failure::Expect | Failure::Interrupted => "interrupted".into(),
        })?;
        let sink = self.sink.lock().unwrap_or_else(|e| e.into_inner()).clone();
        cell.run(job.seed, self.cancel, sink)
    }
}

/// Each job is done by a command that reads it as JSON and writes its outcome as JSON: `berth job`, or whatever
/// brings both to another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

impl Elsewhere {
    /// A command as one would type it, with a shell's quotes: `ssh big berth job`. No shell is asked.
    ///
    /// # Errors
    /// It is empty, or a quote is open.
    pub fn command(text: &str) -> Result<Elsewhere, String> {
        let words = shlex::split(text).ok_or("a quote is not closed, or a word ends in \\")?;
        let (program, arguments) = words.split_first().ok_or("it is empty")?;
        Ok(Elsewhere {
            program: program.into(),
            arguments: arguments.to_vec(),
        })
    }

    fn outcome(&self, job: &Job) -> Result<Outcome, String> {
        let name = self.program.display();
        let text = serde_json::to_vec(job).map_err(|e| e.to_string())?;
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{name} cannot be started: {e}"))?;
        let written = child.stdin.take().map(|mut pipe| pipe.write_all(&text));
        let done = child
            .wait_with_output()
            .map_err(|e| format!("{name}: {e}"))?;
        if !done.status.success() {
            return Err(format!("{name} did not do the job: {}", done.status));
        }
        match written {
            // Whether it had ended before all was written is luck. It is judged by what it says of the job.
            Some(Err(e)) if e.kind() != ErrorKind::BrokenPipe => {
                return Err(format!("{name} was not told the job: {e}"));
            }
            _ => {}
        }
        serde_json::from_slice(&done.stdout).map_err(|e| format!("{name} gave no outcome: {e}"))
    }
}

impl Runner for Elsewhere {
    fn run(&self, job: &Job) -> Result<RunRecord, String> {
        let outcome = self.outcome(job)?;
        if outcome.version != VERSION {
            return Err(format!(
                "{} is of version {}, and this is {VERSION}: its outcome is not used",
                self.program.display(),
                outcome.version
            ));
        }
        if outcome.job != job.key() {
            return Err(format!(
                "{} gave the outcome of another job",
                self.program.display()
            ));
        }
        outcome.result
    }
}

/// Does one job that is read from `input`, and writes its outcome to `output`: the other side of [`Elsewhere`].
///
/// # Errors
/// What was read is no job of this version, or its policy cannot be loaded; or the outcome cannot be written.
pub fn serve(mut input: impl Read, mut output: impl Write) -> Result<(), Failure> {
    let mut text = String::new();
    input
        .read_to_string(&mut text)
        .map_err(|e| Failure::Input(format!("cannot read the job: {e}")))?;
    let job: Job = serde_json::from_str(&text).map_err(|e| {
        Failure::Input(format!(
            "what was read is no job of version {VERSION}: {e}; a job is written by the same version of berth"
        ))
    })?;
    let cell = Cell::of(&job, &Loaded::default())?;
    let outcome = Outcome::new(&job, cell.run(job.seed, None, None));
    let failed = |e: String| Failure::Run(format!("cannot write the outcome: {e}"));
    let text = serde_json::to_string(&outcome).map_err(|e| failed(e.to_string()))?;
    writeln!(output, "{text}")
        .and_then(|()| output.flush())
        .map_err(|e| failed(e.to_string()))
}
