// SPDX-License-Identifier: GPL-2.0-only
//! Recording rows on a real kernel in the lab's virtual machine: one boot per kind of machine.
//!
//! This program is also the machine's first process; the lab runs it again as `/init record-here ...`, and
//! what that prints comes back as the boot's answer.
use crate::golden::{self, Golden, GoldenError};
use crate::kernel::{self, Speed};
use crate::log::Log;
use crate::row::{Machine, Row};
use crate::rows::rows;
use berth_lab::assets::{self, Assets, KernelRule};
use berth_lab::initramfs::Archive;
use berth_lab::job::{JOB, Job, Work};
use berth_lab::vm::{MEMORY_MB, Mode, Vm};
use berth_lab::{LabError, Progress, run::base_archive};
use berth_scenario::model::{Host, Hz};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where the recorder's object lies in the machine.
const OBJECT: &str = "/recorder.bpf.o";
/// Recordings that must agree, and how often to try.
const NEEDED: usize = 3;
const TRIES: usize = 9;

/// A row's recording, or why there is none.
pub type Recorded = BTreeMap<&'static str, Result<(Golden, String), String>>;

#[derive(Debug, thiserror::Error)]
pub enum VmError {
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Golden(#[from] GoldenError),
    #[error("the virtual machine's answer: {0}")]
    Answer(String),
}

/// Rows whose name begins with one of these (all, if there are none).
pub fn select(wanted: &[String]) -> Vec<Row> {
    let asked =
        |row: &Row| wanted.is_empty() || wanted.iter().any(|w| row.name.starts_with(w.as_str()));
    rows().into_iter().filter(asked).collect()
}

/// Inside the machine: records the rows of this kind of machine and prints them.
///
/// # Errors
/// The object cannot be read. A row that cannot be recorded is printed as such.
pub fn record_here(object: &Path, machine: &str, wanted: &[String]) -> Result<(), String> {
    let bytes = std::fs::read(object).map_err(|e| format!("{}: {e}", object.display()))?;
    // SAFETY: plain flags. Page faults in the middle of a row would be noise; without the right to lock
    // memory there is some.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    // Else the kernel moves an exiting thread to another task group, a change that no VM's thread sees.
    // A kernel without automatic groups has no such file, and nothing to switch off.
    let _ = std::fs::write("/proc/sys/kernel/sched_autogroup_enabled", "0");
    let speed = Speed::measure();
    for row in select(wanted)
        .iter()
        .filter(|r| r.machine.name() == machine)
    {
        match kernel::record(row, &bytes, speed, NEEDED, TRIES) {
            Ok((log, agreed, tries)) => {
                print!(
                    "=== {}\n{agreed} of {tries} recordings agree\n{log}",
                    row.name
                );
            }
            // The verifier's words have many lines; a row's reason has one.
            Err(e) => print!("!!! {}\n{}\n", row.name, e.to_string().replace('\n', " | ")),
        }
    }
    Ok(())
}

fn parse(text: &str, kernel: &str) -> Recorded {
    let all = rows();
    let mut recorded = Recorded::new();
    let starts: Vec<usize> = text
        .match_indices("=== ")
        .chain(text.match_indices("!!! "))
        .map(|(i, _)| i)
        .filter(|i| *i == 0 || text.as_bytes()[i - 1] == b'\n')
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    for (n, start) in starts.iter().enumerate() {
        let part = &text[*start..starts.get(n + 1).copied().unwrap_or(text.len())];
        let (head, rest) = part.split_once('\n').unwrap_or((part, ""));
        let Some(row) = all.iter().find(|r| r.name == &head[4..]) else {
            continue;
        };
        let (first, body) = rest.split_once('\n').unwrap_or((rest, ""));
        let result = match (head.starts_with('='), Log::parse(body)) {
            (false, _) => Err(first.to_string()),
            (true, Err(e)) => Err(e.to_string()),
            (true, Ok(log)) => Ok((
                Golden {
                    kernel: kernel.to_string(),
                    log,
                },
                first.to_string(),
            )),
        };
        recorded.insert(row.name, result);
    }
    recorded
}

fn host(machine: Machine) -> Host {
    Host {
        nodes: machine.nodes,
        packages: machine.nodes,
        llcs: 1,
        cores: machine.cores / machine.nodes,
        threads: machine.threads,
        hz: Hz::Ticks(250),
        kernel: String::new(),
        ..Host::default()
    }
}

/// Records rows on a kernel of this line (`7.2`), one boot after the other. `program` is this crate's binary,
/// which becomes the machine's first process; `say` hears what happens; `keep` gets each boot's rows at once.
///
/// # Errors
/// No such kernel, no emulator, a boot that fails, whatever `keep` says. A row that cannot be recorded is in
/// the result.
pub fn record(
    line: &str,
    object: &[u8],
    wanted: &[String],
    program: &Path,
    say: &(dyn Fn(String) + Sync),
    keep: &mut dyn FnMut(&Recorded) -> Result<(), VmError>,
) -> Result<Recorded, VmError> {
    let stop = AtomicBool::new(false);
    let listener = |progress: Progress| {
        if let Progress::Say(text) = progress {
            say(text);
        }
    };
    let assets: Assets = assets::ensure(&KernelRule::parse(line)?, false, &listener, &stop)?;
    let base = base_archive(program, &assets)?;
    let machines: BTreeSet<Machine> = select(wanted).iter().map(|r| r.machine).collect();
    let mut recorded = Recorded::new();
    for machine in machines {
        say(format!(
            "{}, machine {}",
            assets.kernel.release,
            machine.name()
        ));
        let mut argv: Vec<String> = ["/init", "record-here", OBJECT, &machine.name()]
            .map(String::from)
            .into();
        argv.extend_from_slice(wanted);
        let job = Job {
            settle_ms: 12_000,
            modules: Vec::new(),
            policy: None,
            work: Work::Program { argv },
        };
        let mut archive = Archive::new();
        let text =
            serde_json::to_vec(&job).map_err(|e| VmError::Answer(format!("the job: {e}")))?;
        archive.file(JOB, &text);
        archive.file(OBJECT, object);
        let host = host(machine);
        let vm = Vm {
            qemu: &assets.qemu,
            kernel: &assets.kernel,
            host: &host,
            mode: Mode::Deterministic,
            nested: false,
            possible_cpus: None,
            memory_mb: MEMORY_MB,
            timeout: Duration::from_secs(900),
            stop: &stop,
        };
        let boot = vm.boot(&[&base, &archive.finish()])?;
        if let Some(error) = boot.answer.error {
            return Err(VmError::Answer(error));
        }
        let rows = parse(&boot.answer.output, &boot.answer.kernel);
        keep(&rows)?;
        recorded.extend(rows);
    }
    Ok(recorded)
}

/// Stores what was recorded, and says what was not.
///
/// # Errors
/// A file cannot be written.
pub fn store(line: &str, recorded: &Recorded, say: &dyn Fn(String)) -> Result<(), VmError> {
    for row in rows() {
        match recorded.get(row.name) {
            Some(Ok((golden, agreement))) => {
                golden::store(line, &row, golden, agreement)?;
            }
            Some(Err(why)) => say(format!("not recorded: {}: {why}", row.name)),
            None => (),
        }
    }
    Ok(())
}
