// SPDX-License-Identifier: GPL-2.0-only
//! `[task.NAME]` with its models, and `[client.NAME]`.
use super::Context;
use super::host::MOST_CPUS;
use crate::diag::{At, Error, Result};
use crate::edit::names;
use crate::keys;
use crate::model::{Client, Dist, Sends, Step, Task, Vm};
use crate::phrase::{Phrase, never_positive};
use crate::quantity;
use crate::section::Section;
use crate::tree::{Node, Value};
use std::collections::BTreeMap;

/// Where each task and client and each step of a task stands.
#[derive(Default)]
pub struct Places {
    pub steps: BTreeMap<String, Vec<At>>,
    pub headers: BTreeMap<String, At>,
    pub clients: BTreeMap<String, At>,
}

/// The models, with the keys that each takes.
const MODELS: [(&str, &[&str]); 4] = [
    ("busy", &[]),
    ("lookbusy", &["load", "period"]),
    ("periodic", &["compute", "period"]),
    ("echo", &["compute", "from"]),
];

/// The longest loop.
const MOST_STEPS: usize = 10_000;

pub fn tasks(
    context: &Context<'_>,
    file: &Section<'_>,
    root: &Node,
    vms: &[Vm],
    nr_cpus: u32,
) -> Result<(BTreeMap<String, Task>, Places)> {
    let mut tasks = BTreeMap::new();
    let mut places = Places::default();
    for (name, entry) in file.named("task", &keys::TASK)? {
        let section = file.open_named("task", &keys::TASK, entry)?;
        let threads =
            section.integer("threads", 1, 65_536, "leave the key out for one per vCPU")?;
        let (steps, at, model) = work(context, &section, root, vms, nr_cpus, &name)?;
        let nice = section
            .integer("nice", -20, 19, "")?
            .and_then(|(n, _)| i32::try_from(n).ok())
            .unwrap_or(0);
        let affinity = section.cpus("affinity", nr_cpus)?;
        let threads = threads.and_then(|(n, _)| u32::try_from(n).ok());
        places.steps.insert(name.clone(), at);
        places.headers.insert(name.clone(), entry.key_at.clone());
        tasks.insert(
            name.clone(),
            Task {
                name,
                threads,
                nice,
                affinity,
                steps,
                model,
            },
        );
    }
    for (name, entry) in file.named("client", &keys::CLIENT)? {
        places.clients.insert(name, entry.key_at.clone());
    }
    Ok((tasks, places))
}

type Work = (Vec<Step>, Vec<At>, Option<String>);

fn work(
    context: &Context<'_>,
    section: &Section<'_>,
    root: &Node,
    vms: &[Vm],
    nr_cpus: u32,
    name: &str,
) -> Result<Work> {
    match (section.table.get("loop"), section.table.get("model")) {
        (Some(list), Some(_)) => Err(Error::at(&list.key_at, format!("[task.{name}] has both a loop and a model"))
            .label("a model brings its own steps")),
        (None, None) => Err(Error::at(&section.at, format!("[task.{name}] does nothing"))
            .label("it needs a `loop` of steps, or a `model`")
            .note("For instance: loop = [\"receive users\", \"compute exp(300us)\", \"reply\"]   or   model = \"busy\"")),
        (Some(_), None) => {
            model_keys(section, "", &[])?;
            let (steps, places) = steps(context, section, nr_cpus)?;
            Ok((steps, places, None))
        }
        (None, Some(_)) => model(context, section, root, vms, name),
    }
}

/// Keys of models that the one in use does not take are errors.
fn model_keys(section: &Section<'_>, model: &str, takes: &[&str]) -> Result<()> {
    for (other, keys) in MODELS {
        for key in keys.iter().filter(|k| !takes.contains(k)) {
            if let Some(entry) = section.table.get(key) {
                let of = if model.is_empty() {
                    "A task with a loop".into()
                } else {
                    format!("model {model}")
                };
                return Err(
                    Error::at(&entry.key_at, format!("{of} does not take `{key}`"))
                        .label(format!("it belongs to model {other}")),
                );
            }
        }
    }
    Ok(())
}

fn steps(
    context: &Context<'_>,
    section: &Section<'_>,
    nr_cpus: u32,
) -> Result<(Vec<Step>, Vec<At>)> {
    let list = section.strings("loop")?.unwrap_or_default();
    let at = section
        .table
        .get("loop")
        .map_or(&section.at, |e| &e.node.at);
    if list.is_empty() {
        return Err(Error::at(
            at,
            format!("the loop of [{}] has no steps", section.path),
        ));
    }
    if list.len() > MOST_STEPS {
        return Err(Error::at(
            at,
            format!(
                "the loop of [{}] has more than {MOST_STEPS} steps",
                section.path
            ),
        ));
    }
    let mut steps = Vec::new();
    let mut received = false;
    for (text, at) in &list {
        let step = Phrase {
            whole: text,
            at,
            folder: context.folder,
        }
        .step(nr_cpus)?;
        received |= matches!(step, Step::Receive(_));
        if step == Step::Reply && !received {
            return Err(Error::at(
                at,
                "`reply` answers a request, but the loop has received none before it",
            )
            .label("put a `receive` before it"));
        }
        if matches!(steps.last(), Some(Step::Busy | Step::Exit)) {
            return Err(Error::at(at, "this step is never reached")
                .label("the step before it does not end"));
        }
        steps.push(step);
    }
    // A thread that never lets time pass would stop the clock.
    let passes = |step: &Step| match step {
        Step::Compute(dist) | Step::Sleep(dist) => !never_positive(dist),
        Step::Busy | Step::Timer { .. } | Step::Receive(_) | Step::Exit => true,
        _ => false,
    };
    if !steps.iter().any(passes) {
        return Err(Error::at(
            at,
            format!(
                "the loop of [{}] takes no time: it would spin for ever in no time at all",
                section.path
            ),
        )
        .label("add a compute, sleep, timer or receive"));
    }
    Ok((steps, list.into_iter().map(|(_, at)| at).collect()))
}

fn model(
    context: &Context<'_>,
    section: &Section<'_>,
    root: &Node,
    vms: &[Vm],
    name: &str,
) -> Result<Work> {
    let Some((model, at)) = section.string("model")? else {
        return Ok((Vec::new(), Vec::new(), None));
    };
    let Some((_, takes)) = MODELS.iter().find(|(m, _)| *m == model) else {
        let list: Vec<_> = MODELS.iter().map(|m| m.0).collect();
        return Err(
            Error::at(&at, format!("there is no model `{}`", model.escape_debug()))
                .nearest(&model, list.iter().copied())
                .note(format!("Models are: {}", list.join(", "))),
        );
    };
    model_keys(section, &model, takes)?;
    let text = |key: &str, default: &str| -> Result<(String, At)> {
        let node = section.node_or(key, default);
        match &node.value {
            Value::Str(s) => Ok((s.clone(), node.at.clone())),
            _ => Err(section.wrong_type(key, &node)),
        }
    };
    let period = |default: &str| -> Result<u64> {
        let (text, at) = text("period", default)?;
        match quantity::duration(&text) {
            Ok(0) => Err(Error::at(&at, "a period of zero")),
            Ok(ns) => Ok(ns),
            Err(message) => Err(Error::at(
                &at,
                format!("`{}.period`: {message}", section.path),
            )),
        }
    };
    let compute = |default: &str| -> Result<Dist> {
        let (text, at) = text("compute", default)?;
        Phrase {
            whole: &text,
            at: &at,
            folder: context.folder,
        }
        .dist(&text)
    };
    let steps = match model.as_str() {
        "busy" => vec![Step::Busy],
        "lookbusy" => {
            let (load, load_at) = text("load", "50%")?;
            let ppm = quantity::percent_ppm(&load)
                .map_err(|m| Error::at(&load_at, format!("`{}.load`: {m}", section.path)))?;
            let period_ns = period("100ms")?;
            match ppm {
                0 | 1_000_001.. => {
                    return Err(Error::at(&load_at, format!("a load of {load} cannot be"))
                        .label("above 0%, at most 100%"));
                }
                1_000_000 => vec![Step::Busy],
                _ => {
                    let busy = (u128::from(period_ns) * u128::from(ppm) / 1_000_000) as u64;
                    vec![
                        Step::Timer { period_ns },
                        Step::Compute(Dist::Const(busy.max(1))),
                    ]
                }
            }
        }
        "periodic" => vec![
            Step::Timer {
                period_ns: period("100ms")?,
            },
            Step::Compute(compute("1ms")?),
        ],
        _ => {
            let from = echo_from(section, root, vms, name, &at)?;
            vec![
                Step::Receive(from),
                Step::Compute(compute("50us")?),
                Step::Reply,
            ]
        }
    };
    let places = vec![at; steps.len()];
    Ok((steps, places, Some(model)))
}

/// Whose requests an echo answers: `from`, or the one client that sends to a VM with this task.
fn echo_from(
    section: &Section<'_>,
    root: &Node,
    vms: &[Vm],
    name: &str,
    at: &At,
) -> Result<String> {
    if section.table.get("from").is_some() {
        return Ok(section.string("from")?.map_or_else(String::new, |(s, _)| s));
    }
    let mut senders = Vec::new();
    for client in names(root, "client") {
        let to = match crate::edit::text_of(root, &["client", &client, "to"]) {
            Some(to) => to,
            None => continue,
        };
        if vms
            .iter()
            .any(|vm| vm.name == to && vm.tasks.iter().any(|t| t == name))
        {
            senders.push(client);
        }
    }
    match &senders[..] {
        [one] => {
            section.node_or("from", one);
            Ok(one.clone())
        }
        [] => Err(Error::at(
            at,
            format!("[task.{name}] answers nobody: no client sends to a VM that runs it"),
        )),
        _ => Err(Error::at(
            at,
            format!(
                "[task.{name}] could answer several clients: {}",
                senders.join(", ")
            ),
        )
        .label("say which with `from`")),
    }
}

pub fn clients(context: &Context<'_>, file: &Section<'_>, root: &Node) -> Result<Vec<Client>> {
    let vms = names(root, "vm");
    let mut clients = Vec::new();
    for (name, entry) in file.named("client", &keys::CLIENT)? {
        let section = file.open_named("client", &keys::CLIENT, entry)?;
        let (to, to_at) = section
            .string("to")?
            .unwrap_or_else(|| (String::new(), section.at.clone()));
        if !vms.contains(&to) {
            let list = if vms.is_empty() {
                "none".into()
            } else {
                vms.join(", ")
            };
            return Err(
                Error::at(&to_at, format!("there is no VM `{}`", to.escape_debug()))
                    .nearest(&to, vms.iter().map(String::as_str))
                    .note(format!("The scenario has these groups of VMs: {list}")),
            );
        }
        let (text, at) = section
            .string("sends")?
            .unwrap_or_else(|| (String::new(), section.at.clone()));
        let sends = Phrase {
            whole: &text,
            at: &at,
            folder: context.folder,
        }
        .sends()?;
        if let Sends::Closed { users, .. } = sends
            && users > MOST_CPUS * 256
        {
            return Err(Error::at(&at, "too many users"));
        }
        let request_bytes = section.bytes("request")?;
        let reply_bytes = section.bytes("reply")?;
        clients.push(Client {
            name,
            to,
            sends,
            request_bytes,
            reply_bytes,
        });
    }
    Ok(clients)
}
