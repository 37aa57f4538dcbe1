// SPDX-License-Identifier: GPL-2.0-only
//! From a file's text to the model: parse, edit, walk, check.
mod arms;
mod disk;
mod expect;
mod guest;
mod host;
mod models;
mod net;
mod optimiser;
mod paper;
mod queues;
mod tasks;
mod vms;

use crate::diag::{At, Error, Result, Source};
use crate::edit::{self, Edit};
use crate::keys;
use crate::model::{Scenario, VmRole};
use crate::section::{Fact, Facts, Section};
use crate::tree::{self, Node, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use arms::is_file;
pub use expect::absolute as value_of;
pub(crate) use expect::check_metric;
pub use models::MODELS;
pub use net::PATHS;

/// A scenario's text and where it comes from.
#[derive(Clone, Debug)]
pub struct Input {
    /// The scenario's name, e.g. the file's stem; names the output folder.
    pub name: String,
    /// The file as the user called it, for errors.
    pub shown: String,
    pub text: String,
    /// Where files that the scenario names are looked for; none if it is not a file.
    pub folder: Option<PathBuf>,
}

/// A scenario, read.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub scenario: Scenario,
    /// Everything that was read or defaulted, in order; see [`crate::show::full`].
    pub facts: Vec<Fact>,
    /// Legal, but probably not meant.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// Where the file or the command line says what stands at an address (`vm.dom0.role`, `task.t.loop`); none if that
    /// is a default. A table counts as said where any of its keys is.
    pub fn at(&self, address: &str) -> Option<At> {
        place_of(&self.facts, address)
    }
}

/// See [`Loaded::at`].
pub fn place_of(facts: &[Fact], address: &str) -> Option<At> {
    let mut header = "";
    for fact in facts {
        match fact {
            Fact::Header(text) => header = text.trim_matches(|c| c == '[' || c == ']'),
            Fact::Value {
                key, at: Some(at), ..
            } => {
                let rest = if header.is_empty() {
                    Some(address)
                } else {
                    address
                        .strip_prefix(header)
                        .and_then(|r| r.strip_prefix('.'))
                };
                let below = header
                    .strip_prefix(address)
                    .is_some_and(|r| r.is_empty() || r.starts_with('.'));
                if below || rest == Some(key) {
                    return Some(at.clone());
                }
            }
            Fact::Part {
                address: part,
                key_at,
                ..
            } if part == address => return Some(key_at.clone()),
            _ => {}
        }
    }
    None
}

/// As [`place_of`], of the value of a policy's parameter (`arm.NAME.set.policy.slice_us`,
/// `vm.NAME.guest.set.slice_us`).
pub fn place_of_value(facts: &[Fact], address: &str) -> Option<At> {
    facts.iter().find_map(|fact| match fact {
        Fact::Part {
            address: part,
            value_at,
            ..
        } if part == address => Some(value_at.clone()),
        _ => None,
    })
}

/// The largest scenario file.
const LARGEST_TEXT: u64 = 4 << 20;

impl Input {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is not text, or is larger than 4 MiB.
    pub fn from_file(path: &Path) -> Result<Input> {
        let shown = path.display().to_string();
        let refuse = |why: &str| Error::new(format!("cannot read the scenario {shown}: {why}"));
        let meta = std::fs::metadata(path).map_err(|e| refuse(&io_words(&e)))?;
        if !meta.is_file() {
            return Err(refuse("it is not a file"));
        }
        if meta.len() > LARGEST_TEXT {
            return Err(refuse("it is larger than 4 MiB"));
        }
        let bytes = std::fs::read(path).map_err(|e| refuse(&io_words(&e)))?;
        let text = String::from_utf8(bytes).map_err(|e| {
            refuse(&format!(
                "it is not UTF-8 text (byte {})",
                e.utf8_error().valid_up_to()
            ))
        })?;
        let name = path
            .file_stem()
            .map_or_else(|| "scenario".into(), |s| s.to_string_lossy().into_owned());
        let folder = Some(path.parent().unwrap_or(Path::new("")).to_path_buf());
        Ok(Input {
            name,
            shown,
            text,
            folder,
        })
    }
}

fn io_words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

/// Reads a scenario, with the changes of the command line applied first.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn read(input: &Input, edits: &[Edit]) -> Result<Loaded> {
    let source = Arc::new(Source {
        name: input.shown.clone(),
        text: input.text.clone(),
        numbered: true,
    });
    let mut root = tree::parse(&source)?;
    edit::apply(&mut root, edits)?;
    let facts = Facts::default();
    let context = Context {
        name: &input.name,
        folder: input.folder.as_deref(),
        source: &source,
    };
    let mut warnings = Vec::new();
    let scenario = walk(&context, &root, &facts, true, &mut warnings)?;
    Ok(Loaded {
        scenario,
        facts: facts.into_list(),
        warnings,
    })
}

/// What every part of the walk needs.
pub(crate) struct Context<'a> {
    name: &'a str,
    folder: Option<&'a Path>,
    source: &'a Arc<Source>,
}

/// Reads the tree. `with_arms` is false for the scenario of one arm, which has none itself.
fn walk(
    context: &Context<'_>,
    root: &Node,
    facts: &Facts,
    with_arms: bool,
    warnings: &mut Vec<String>,
) -> Result<Scenario> {
    let Value::Table(table) = &root.value else {
        return Err(Error::new("the scenario is empty"));
    };
    let file = Section::open(&keys::FILE, "", table, &root.at, facts)?;
    let title = file
        .string("title")?
        .map_or_else(|| context.name.to_string(), |(t, _)| one_line(&t));
    let run = host::run(&file)?;
    let host = host::host(&file, root)?;
    let vms = vms::vms(context, &file, root, &host)?;
    let (tasks, places) = tasks::tasks(context, &file, root, &vms, host.nr_cpus())?;
    let clients = tasks::clients(context, &file, root)?;
    let net = net::net(&file, host.nr_cpus(), &vms, &clients)?;
    let disks = disk::disks(&file)?;
    net::check_threads(&file, &net, &disks, &vms)?;
    let optimiser = optimiser::optimiser(&file, &vms)?;
    let mut scenario = Scenario {
        name: context.name.to_string(),
        title,
        run,
        host,
        vms,
        tasks,
        clients,
        net,
        disks,
        optimiser,
        arms: Vec::new(),
        baseline: None,
        expects: Vec::new(),
        calibrate: None,
        reproduces: None,
    };
    queues::check(&scenario, &places, warnings)?;
    disk::check(&file, &scenario, &places)?;
    if with_arms {
        let (arms, baseline) = arms::arms(context, &file, root)?;
        scenario.arms = arms;
        scenario.baseline = baseline;
        scenario.expects = expect::expects(&file, &scenario)?;
        scenario.reproduces = paper::reproduces(context, &file, &scenario)?;
        scenario.calibrate = paper::calibrate(context, &file, root, &scenario)?;
        warn(&scenario, warnings);
    }
    Ok(scenario)
}

/// A title is one line, whatever the file says.
fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control())
        .collect::<Vec<_>>()
        .join(" ")
        .trim()
        .to_string()
}

fn warn(scenario: &Scenario, warnings: &mut Vec<String>) {
    let runs_somewhere = |name: &str| {
        scenario
            .vms
            .iter()
            .any(|vm| vm.tasks.iter().any(|t| t == name))
            || scenario.host.tasks.iter().any(|t| t == name)
            || scenario.tasks.values().any(|t| {
                t.steps
                    .iter()
                    .any(|s| *s == crate::model::Step::Fork(name.to_string()))
            })
    };
    for name in scenario.tasks.keys().filter(|name| !runs_somewhere(name)) {
        warnings.push(format!(
            "task.{name} runs nowhere: no VM names it in its `tasks`"
        ));
    }
    for vm in scenario
        .vms
        .iter()
        .filter(|vm| vm.tasks.is_empty() && vm.role != VmRole::Driver)
    {
        warnings.push(format!("vm.{} runs nothing: it has no `tasks`", vm.name));
    }
    if scenario.vms.is_empty() && scenario.host.tasks.is_empty() {
        warnings.push("nothing runs: there is no VM, and the host has no tasks".into());
    }
}
