// SPDX-License-Identifier: GPL-2.0-only
//! rt-app files (JSON) as scenarios.
//!
//! The grammar is rt-app's tutorial (`doc/tutorial.txt` of scheduler-tools/rt-app); what of it means something here:
//!
//! - A task becomes a task of the same name, `instance` its threads, `delay` a sleep before its loop; phases and their
//!   loops are written out as steps.
//! - Each task is a VM without a guest, so that it has results of its own. All share one cgroup, and with it locks,
//!   conditions and barriers: they are the threads of one process, and `priority` counts among them.
//! - `run` and `runtime` are the same: the simulator's CPUs have one speed unless `host` says otherwise.
//! - A `timer` has its points from the thread's start on, a `delay` aside. Who is late goes on at once; then the next
//!   point is a period away (`relative`), or the grid stays until the thread has caught up (`absolute`).
//! - `suspend` and `resume` are an event named after the thread, `sync` the sequence that rt-app documents for it.
//! - `iorun` writes so many bytes to the disk `io`: rt-app's `io_device` is what the table [disk.io] says.
//! - Logging, calibration and memory locking have no meaning here and are left out; everything else that is not
//!   understood is an error that names it.
pub mod json;
mod task;

use crate::diag::{Error, Result, Source, nearest};
use crate::read::Input;
use crate::tree::{Entry, Node, Table, Value, is_name};
use std::collections::BTreeMap;
use std::sync::Arc;
use task::Task;

/// Whether a text is JSON rather than TOML: its first character that is no comment opens an object.
pub fn is_json(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        let comment = if rest.starts_with("/*") {
            rest.find("*/").map(|end| end + 2)
        } else if rest.starts_with("//") {
            rest.find('\n')
        } else {
            return rest.starts_with('{');
        };
        match comment {
            Some(end) => rest = rest[end..].trim_start(),
            None => return true,
        }
    }
}

/// Keys of `global` that say something about the workload; the others are about logs and calibration.
const LEFT_OUT: [&str; 11] = [
    "calibration",
    "lock_pages",
    "logdir",
    "log_basename",
    "log_size",
    "ftrace",
    "gnuplot",
    "io_device",
    "mem_buffer_size",
    "cumulative_slack",
    "frag",
];

/// What the whole file says.
struct Global {
    /// Seconds; none: without end.
    duration_s: Option<u32>,
}

/// Makes the text of a scenario out of an rt-app file. `input.text` is the JSON.
///
/// # Errors
/// The first thing that is no JSON, unknown, or has no counterpart here, with its path and place.
pub fn import(input: &Input) -> Result<String> {
    let source = Arc::new(Source {
        name: input.shown.clone(),
        text: input.text.clone(),
        numbered: true,
    });
    let root = json::parse(&source)?;
    let Value::Table(root_table) = &root.value else {
        return Err(Error::at(
            &root.at,
            "an rt-app file is an object with `tasks`",
        ));
    };
    let mut global = Global { duration_s: None };
    let mut tasks: Option<&Entry> = None;
    for entry in &root_table.entries {
        match entry.key.as_str() {
            "tasks" if tasks.is_some() => {
                return Err(Error::at(&entry.key_at, "there are two `tasks`"));
            }
            "tasks" => tasks = Some(entry),
            "global" => global = read_global(entry)?,
            // Resources are made when they are first named.
            "resources" => {}
            other => return Err(unknown(entry, "", other, &["tasks", "global", "resources"])),
        }
    }
    let Some(tasks) = tasks else {
        return Err(Error::at(&root.at, "an rt-app file needs `tasks`"));
    };
    let mut all: Vec<Task> = Vec::new();
    let mut names = BTreeMap::new();
    let table = object(tasks, "tasks")?;
    for entry in &table.entries {
        let name = name_for(&entry.key, &names);
        if names.insert(entry.key.clone(), name.clone()).is_some() {
            return Err(Error::at(
                &entry.key_at,
                format!("there are two tasks `{}`", entry.key.escape_debug()),
            ));
        }
        all.push(Task::new(entry, name)?);
    }
    if all.is_empty() {
        return Err(Error::at(&tasks.node.at, "`tasks` has no tasks"));
    }
    for task in &mut all {
        task.resolve(&names)?;
    }
    task::check_timers(&all)?;
    Ok(write(input, &global, &all))
}

fn read_global(entry: &Entry) -> Result<Global> {
    let mut global = Global { duration_s: None };
    for entry in &object(entry, "global")?.entries {
        match entry.key.as_str() {
            "duration" => {
                let seconds = integer(entry, "global", -1, 8_640_000)?;
                global.duration_s = u32::try_from(seconds).ok();
                if global.duration_s == Some(0) {
                    return Err(Error::at(
                        &entry.node.at,
                        "a duration of 0 seconds: nothing would run",
                    ));
                }
            }
            "default_policy" => task::policy(entry, "global")?,
            "pi_enabled" => match entry.node.value {
                Value::Bool(false) | Value::Int(0) => {}
                _ => {
                    return Err(Error::at(
                        &entry.key_at,
                        "`global.pi_enabled`: locks have no priority inheritance here",
                    ));
                }
            },
            key if LEFT_OUT.contains(&key) => {}
            other => {
                let mut known = vec!["duration", "default_policy", "pi_enabled"];
                known.extend(LEFT_OUT);
                return Err(unknown(entry, "global", other, &known));
            }
        }
    }
    Ok(global)
}

/// The error for a key that is not known.
fn unknown(entry: &Entry, path: &str, key: &str, known: &[&str]) -> Error {
    let shown = join(path, key);
    let error = Error::at(
        &entry.key_at,
        format!("unknown key `{}`", shown.escape_debug()),
    );
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_' || c == '-');
    match nearest(stem, known.iter().copied()) {
        Some(near) => error.label(format!("did you mean `{near}`?")),
        None => error,
    }
    .note(format!("Here may stand: {}", known.join(", ")))
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_string()
    } else {
        format!("{path}.{key}")
    }
}

fn object<'a>(entry: &'a Entry, path: &str) -> Result<&'a Table> {
    match &entry.node.value {
        Value::Table(table) => Ok(table),
        other => Err(Error::at(
            &entry.node.at,
            format!(
                "`{}` is an object, not {}",
                path.escape_debug(),
                other.what()
            ),
        )),
    }
}

fn integer(entry: &Entry, path: &str, low: i64, high: i64) -> Result<i64> {
    let shown = join(path, &entry.key);
    match entry.node.value {
        Value::Int(i) if (low..=high).contains(&i) => Ok(i),
        Value::Int(i) => Err(Error::at(
            &entry.node.at,
            format!(
                "`{}` is {i}, but should be {low} to {high}",
                shown.escape_debug()
            ),
        )),
        _ => Err(Error::at(
            &entry.node.at,
            format!(
                "`{}` is a whole number, not {}",
                shown.escape_debug(),
                entry.node.value.what()
            ),
        )),
    }
}

fn text<'a>(node: &'a Node, shown: &str) -> Result<&'a str> {
    match &node.value {
        Value::Str(text) => Ok(text),
        other => Err(Error::at(
            &node.at,
            format!(
                "`{}` is a string, not {}",
                shown.escape_debug(),
                other.what()
            ),
        )),
    }
}

/// A name that can stand in an address, for one that rt-app allows.
fn name_for(name: &str, taken: &BTreeMap<String, String>) -> String {
    let mut plain: String = name
        .chars()
        .map(|c| if is_name(&c.to_string()) { c } else { '-' })
        .collect();
    // Names that metrics use for other things, and none at all.
    if plain.is_empty() || matches!(plain.as_str(), "host" | "policy" | "linux") {
        plain = format!("task-{plain}");
    }
    while taken.values().any(|other| *other == plain) {
        plain.push('_');
    }
    plain
}

/// The scenario as text.
fn write(input: &Input, global: &Global, tasks: &[Task]) -> String {
    let mut out = format!(
        "# {}, imported from rt-app. rt-app does not describe the machine: set host.cores to that of yours.\n\
         # Logging, calibration and memory locking of the original are left out.\n\n",
        one_line(&input.shown)
    );
    out.push_str(&format!(
        "title = {}\n\n[run]\nwarmup  = \"0s\"\n",
        quoted(&input.name)
    ));
    let measure = global.duration_s.unwrap_or(10);
    out.push_str(&format!("measure = \"{measure}s\"\n\n"));
    let highest = tasks
        .iter()
        .flat_map(Task::cpus)
        .max()
        .map_or(0, |cpu| cpu + 1);
    out.push_str(&format!("[host]\ncores = {}\n", highest.max(4)));
    let cgroup = name_for("rt-app", &taken(tasks));
    // Of one with 0 instances nothing runs unless others start it.
    let runs = |task: &&Task| task.instances > 0 || tasks.iter().any(|t| t.starts(&task.name));
    for task in tasks.iter().filter(runs) {
        out.push_str(&format!(
            "\n[vm.{}]\nvcpus  = {}\nclass  = \"none\"\ncgroup = {}\nguest  = \"none\"\ntasks  = [{}]\n",
            task.name,
            task.instances.max(1),
            quoted(&cgroup),
            quoted(&task.name)
        ));
    }
    for task in tasks.iter().filter(runs) {
        task.write(&mut out);
    }
    // rt-app's threads ask the kernel they run on.
    if tasks.iter().any(Task::writes) {
        out.push_str("\n[disk.io]\npath = \"direct\"\n");
    }
    out
}

/// Names that are no cgroup's.
fn taken(tasks: &[Task]) -> BTreeMap<String, String> {
    let names = tasks.iter().map(|t| &t.name);
    names.map(|n| (n.clone(), n.clone())).collect()
}

fn quoted(text: &str) -> String {
    Value::Str(one_line(text)).to_toml()
}

fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
