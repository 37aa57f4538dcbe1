// SPDX-License-Identifier: GPL-2.0-only
//! `[task.NAME]` with its models, and `[client.NAME]`.
use super::host::MOST_CPUS;
use super::{Context, models};
use crate::diag::{At, Error, Result};
use crate::edit::names;
use crate::keys;
use crate::model::{Client, Dist, Estimate, Sends, Step, Task, Vm};
use crate::phrase::{Asked, Phrase};
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
        let first = first(context, &section, nr_cpus)?;
        let working_set = section.text("working_set", quantity::bytes)?;
        let stall_ppm = stall(&section)?;
        let ipc_milli = ipc(&section)?;
        let rounds = rounds(&section, &steps)?;
        let per_request = per_request(&section, &steps, &first)?;
        let estimate = estimate(&section)?;
        let uid = section.count("uid", 0, u32::MAX, "a user's number")?;
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
                first,
                working_set: working_set.map(|(bytes, _)| bytes),
                stall_ppm,
                ipc_milli,
                rounds,
                per_request,
                estimate,
                uid,
                model,
            },
        );
    }
    for (name, entry) in file.named("client", &keys::CLIENT)? {
        places.clients.insert(name, entry.key_at.clone());
    }
    Ok((tasks, places))
}

fn stall(section: &Section<'_>) -> Result<u32> {
    const ALL: u32 = 1_000_000;
    match section.text("stall", quantity::percent_ppm)? {
        Some((ppm, at)) if ppm > ALL => {
            let why = format!("`{}` should be 0% to 100%", section.address("stall"));
            Err(Error::at(&at, why).label("of the task's time"))
        }
        said => Ok(said.map_or(0, |(ppm, _)| ppm)),
    }
}

/// Thousandths.
fn ipc(section: &Section<'_>) -> Result<Option<u32>> {
    let Some(entry) = section.table.get("ipc") else {
        return Ok(None);
    };
    let node = section.node("ipc")?.unwrap_or_else(|| entry.node.clone());
    let value = match &node.value {
        Value::Float(x) => *x,
        Value::Int(n) => *n as f64,
        _ => return Err(section.wrong_type("ipc", &node)),
    };
    if !crate::step::IPC.contains(&value) {
        let why = format!("`{}` should be 0.01 to 16", section.address("ipc"));
        return Err(Error::at(&node.at, why).label("instructions per cycle"));
    }
    Ok(Some((value * 1000.0).round() as u32))
}

fn rounds(section: &Section<'_>, steps: &[Step]) -> Result<Option<u64>> {
    let Some((rounds, at)) = section.integer("rounds", 1, 1_000_000_000, "")? else {
        return Ok(None);
    };
    let why = if steps.iter().any(Step::is_last) {
        "a loop that never comes to its end has no rounds"
    } else if steps.iter().any(|s| s.takes().is_some()) {
        "who answers requests has as many rounds as they are sent"
    } else {
        return Ok(u64::try_from(rounds).ok());
    };
    Err(Error::at(&at, why).label("leave `rounds` out"))
}

/// A thread for each request: what such a task cannot have.
fn per_request(section: &Section<'_>, steps: &[Step], first: &[Step]) -> Result<bool> {
    if section.boolean("per_request")? != Some(true) {
        return Ok(false);
    }
    let at = |key: &str| section.table.get(key).map(|entry| entry.key_at.clone());
    let own = at("per_request").unwrap_or_else(|| section.at.clone());
    let waits = steps.iter().filter(|s| s.takes().is_some()).count();
    if waits != 1 || steps[0].takes().is_none() {
        let why = "a task with a thread per request begins with `receive`, and receives once";
        return Err(Error::at(&own, why).label("its thread has the request in hand when it begins"));
    }
    for key in ["threads", "rounds"] {
        if let Some(at) = at(key) {
            return Err(
                Error::at(&at, format!("`{key}` and `per_request` exclude each other"))
                    .label("there are as many threads as requests, and each ends with its loop"),
            );
        }
    }
    if !first.is_empty() {
        let at = at("first").unwrap_or(own);
        return Err(
            Error::at(&at, "`first` and `per_request` exclude each other")
                .label("put the steps behind `receive`"),
        );
    }
    Ok(true)
}

/// `oracle`, `lognormal(1.25)`.
fn estimate(section: &Section<'_>) -> Result<Option<Estimate>> {
    let read = |text: &str| {
        let text = text.trim();
        if text == "oracle" {
            return Ok(Estimate::Oracle);
        }
        let sigma = text
            .strip_prefix("lognormal(")
            .and_then(|t| t.strip_suffix(')'));
        match sigma.map(quantity::plain) {
            Some(Ok(sigma)) if sigma <= 10.0 => Ok(Estimate::Lognormal(sigma)),
            Some(Ok(_)) => Err("a sigma above 10 has no useful values".to_string()),
            Some(Err(why)) => Err(why),
            None => Err(format!(
                "`{}` should be oracle, or lognormal(1.25): the size itself, or off by a factor exp(1.25 N)",
                text.escape_debug()
            )),
        }
    };
    Ok(section
        .text("estimate", read)?
        .map(|(estimate, _)| estimate))
}

pub type Work = (Vec<Step>, Vec<At>, Option<String>);

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
            .note("For instance: loop = [\"receive users\", \"compute exp(300us)\", \"reply\"]   or   model = \
             \"busy\"")),
        (Some(_), None) => {
            models::keys(section, "", &[])?;
            let (steps, places) = steps(context, section, nr_cpus)?;
            Ok((steps, places, None))
        }
        (None, Some(_)) => models::model(context, section, root, vms, name),
    }
}

/// Steps done once, before the loop.
fn first(context: &Context<'_>, section: &Section<'_>, nr_cpus: u32) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (text, at) in section.strings("first")?.unwrap_or_default() {
        let step = Phrase {
            whole: &text,
            at: &at,
            folder: context.folder,
        }
        .step(nr_cpus)?;
        if !step.may_be_first() {
            return Err(Error::at(
                &at,
                format!("`{}` belongs in the loop, not before it", step.word()),
            ));
        }
        steps.push(step);
    }
    Ok(steps)
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
        received |= step.takes().is_some();
        if step == Step::Reply && !received {
            return Err(Error::at(
                at,
                "`reply` answers a request, but the loop has received none before it",
            )
            .label("put a `receive` before it"));
        }
        if steps.last().is_some_and(Step::is_last) {
            return Err(Error::at(at, "this step is never reached")
                .label("the step before it does not end"));
        }
        steps.push(step);
    }
    if !steps.iter().any(Step::passes_time) {
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
        let request_bytes = section.bytes("request")?;
        let reply_bytes = section.bytes("reply")?;
        let (sends, window_bytes) = match sends {
            Asked::Window(bytes) => {
                let (sends, bytes) = window(bytes, request_bytes, &at)?;
                (sends, Some(bytes))
            }
            Asked::Sends(sends) => (sends, None),
        };
        if let Sends::Closed { users, .. } = sends
            && users > MOST_CPUS * 256
        {
            return Err(Error::at(&at, "too many users"));
        }
        let at_most = match section.integer("at_most", 1, 1_000_000, "")? {
            Some((_, at)) if matches!(sends, Sends::Closed { .. }) => {
                return Err(Error::at(
                    &at,
                    "`at_most` is for clients that do not wait for answers",
                )
                .label("a closed loop has as many requests as users, at most"));
            }
            said => said.and_then(|(n, _)| u32::try_from(n).ok()),
        };
        clients.push(Client {
            name,
            to,
            sends,
            request_bytes,
            reply_bytes,
            window_bytes,
            at_most,
        });
    }
    Ok(clients)
}

/// A stream as a closed loop: as many users as requests fit the window, who do not think.
fn window(bytes: u64, request_bytes: u64, at: &At) -> Result<(Sends, u64)> {
    if request_bytes == 0 {
        return Err(Error::at(
            at,
            "a stream of requests of 0 bytes: any number of them would fit its window",
        )
        .label("set `request`"));
    }
    let users = bytes / request_bytes;
    if users == 0 {
        return Err(Error::at(
            at,
            format!("a window of {bytes} bytes is smaller than one request of {request_bytes}"),
        ));
    }
    let users = u32::try_from(users).unwrap_or(u32::MAX);
    let think = Dist::Const(0);
    Ok((Sends::Closed { users, think }, bytes))
}
