// SPDX-License-Identifier: GPL-2.0-only
//! `task.NAME.model`: named behaviours, expanded into steps.
use super::Context;
use super::tasks::Work;
use crate::diag::{At, Error, Result};
use crate::edit::{names, text_of};
use crate::model::{Dist, Grid, Step, Vm};
use crate::phrase::{Phrase, never_positive};
use crate::quantity;
use crate::section::Section;
use crate::tree::{Node, Value};

/// The models: the keys that each takes, and what it does.
pub const MODELS: [(&str, &[&str], &str); 14] = [
    ("busy", &[], "never sleeps"),
    (
        "lookbusy",
        &["load", "period"],
        "busy for `load` of every `period`, with a random phase per thread",
    ),
    (
        "periodic",
        &["compute", "period"],
        "`compute` at every point of a grid, with a random phase per thread",
    ),
    ("batch", &["compute", "sleep"], "`compute`, then `sleep`"),
    (
        "echo",
        &["compute", "from"],
        "answers each request after `compute` (ping)",
    ),
    (
        "web",
        &["compute", "from"],
        "the same, with the work of a web page",
    ),
    (
        "stream",
        &["compute", "from"],
        "takes the packets of a stream, `compute` for each (netperf)",
    ),
    (
        "parallel",
        &["chunks", "compute"],
        "rounds of `chunks` pieces of work that threads steal from each other, then a barrier",
    ),
    (
        "barrier",
        &["compute"],
        "rounds of `compute` by each thread, split for good, then a barrier",
    ),
    (
        "serial",
        &["compute", "serial"],
        "rounds: `serial` by one thread while the others wait, `compute` by each, a barrier",
    ),
    (
        "iozone",
        &["mode", "record", "disk"],
        "reads or writes its VM's file, one record after the other (`mode` read, write)",
    ),
    (
        "sysbench-cpu",
        &["compute", "events"],
        "`compute` per event (primes); with `events` threads end after so many together",
    ),
    (
        "netperf",
        &["mode", "compute", "from"],
        "takes the packets of a stream (`mode` stream), or answers each request (`mode` request)",
    ),
    (
        "webbench",
        &["compute", "from"],
        "a web server: answers each request after `compute`",
    ),
];

/// Keys of models that the one in use does not take are errors.
pub fn keys(section: &Section<'_>, model: &str, takes: &[&str]) -> Result<()> {
    for (other, keys, _) in MODELS {
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

/// The values of a model's keys.
struct Values<'s, 'a> {
    context: &'s Context<'s>,
    section: &'s Section<'a>,
}

impl Values<'_, '_> {
    fn text(&self, key: &str, default: &str) -> Result<(String, At)> {
        let node = self.section.node_or(key, default);
        match &node.value {
            Value::Str(s) => Ok((s.clone(), node.at.clone())),
            _ => Err(self.section.wrong_type(key, &node)),
        }
    }

    fn period(&self, default: &str) -> Result<u64> {
        let (text, at) = self.text("period", default)?;
        match quantity::duration(&text) {
            Ok(0) => Err(Error::at(&at, "a period of zero")),
            Ok(ns) => Ok(ns),
            Err(message) => Err(Error::at(
                &at,
                format!("`{}.period`: {message}", self.section.path),
            )),
        }
    }

    fn dist(&self, key: &str, default: &str) -> Result<Dist> {
        let (text, at) = self.text(key, default)?;
        Phrase {
            whole: &text,
            at: &at,
            folder: self.context.folder,
        }
        .dist(&text)
    }

    /// One of these words, the first by default.
    fn mode(&self, words: &[&str]) -> Result<String> {
        let (mode, at) = self.text("mode", words[0])?;
        if words.contains(&mode.as_str()) {
            return Ok(mode);
        }
        let text = format!("there is no mode `{}`", mode.escape_debug());
        Err(Error::at(&at, text)
            .nearest(&mode, words.iter().copied())
            .note(format!("Here may stand: {}", words.join(", "))))
    }

    /// A record on a disk.
    fn record(&self, root: &Node, at: &At) -> Result<Step> {
        let writes = self.mode(&["read", "write"])? == "write";
        let (text, record_at) = self.text("record", "1MiB")?;
        let bytes = match quantity::bytes(&text) {
            Ok(0) => return Err(Error::at(&record_at, "a record of 0 bytes")),
            Ok(bytes) => bytes,
            Err(why) => {
                let text = format!("`{}.record`: {why}", self.section.path);
                return Err(Error::at(&record_at, text));
            }
        };
        let name = match (self.section.table.get("disk"), super::disk::only(root)) {
            (Some(_), _) => self.text("disk", "")?.0,
            (None, Some(only)) => self.text("disk", &only)?.0,
            (None, None) => {
                let text = "it is not said on which disk";
                return Err(Error::at(at, text).label("give `disk`, and a table [disk.NAME]"));
            }
        };
        Ok(match writes {
            true => Step::Write { name, bytes },
            false => Step::Read { name, bytes },
        })
    }

    fn load(&self) -> Result<u32> {
        let (load, at) = self.text("load", "50%")?;
        let ppm = quantity::percent_ppm(&load)
            .map_err(|m| Error::at(&at, format!("`{}.load`: {m}", self.section.path)))?;
        match ppm {
            0 | 1_000_001.. => Err(Error::at(&at, format!("a load of {load} cannot be"))
                .label("above 0%, at most 100%")),
            ppm => Ok(ppm),
        }
    }
}

fn barrier(name: &str) -> Step {
    Step::Barrier {
        name: name.to_string(),
    }
}

pub fn model(
    context: &Context<'_>,
    section: &Section<'_>,
    root: &Node,
    vms: &[Vm],
    name: &str,
) -> Result<Work> {
    let Some((model, at)) = section.string("model")? else {
        return Ok((Vec::new(), Vec::new(), None));
    };
    let Some((_, takes, _)) = MODELS.iter().find(|(m, ..)| *m == model) else {
        let list: Vec<_> = MODELS.iter().map(|m| m.0).collect();
        return Err(
            Error::at(&at, format!("there is no model `{}`", model.escape_debug()))
                .nearest(&model, list.iter().copied())
                .note(format!("Models are: {}", list.join(", "))),
        );
    };
    keys(section, &model, takes)?;
    let values = Values { context, section };
    let serve = |compute: &str| -> Result<Vec<Step>> {
        let from = from(section, root, vms, name, &at)?;
        let compute = values.dist("compute", compute)?;
        Ok(vec![
            Step::Receive(from),
            Step::Compute(compute),
            Step::Reply,
        ])
    };
    let steps = match model.as_str() {
        "busy" => vec![Step::Busy],
        "lookbusy" => {
            let ppm = values.load()?;
            let period_ns = values.period("100ms")?;
            if ppm == 1_000_000 {
                vec![Step::Busy]
            } else {
                let busy = (u128::from(period_ns) * u128::from(ppm) / 1_000_000) as u64;
                vec![
                    Step::Timer {
                        period_ns,
                        grid: Grid::Random,
                    },
                    Step::Compute(Dist::Const(busy.max(1))),
                ]
            }
        }
        "periodic" => vec![
            Step::Timer {
                period_ns: values.period("100ms")?,
                grid: Grid::Random,
            },
            Step::Compute(values.dist("compute", "1ms")?),
        ],
        "batch" => {
            let compute = values.dist("compute", "100ms")?;
            let sleep = values.dist("sleep", "10ms")?;
            if never_positive(&compute) && never_positive(&sleep) {
                return Err(Error::at(
                    &at,
                    format!(
                        "[task.{name}] takes no time: it would spin for ever in no time at all"
                    ),
                ));
            }
            vec![Step::Compute(compute), Step::Sleep(sleep)]
        }
        "web" | "webbench" => serve("500us")?,
        "stream" => serve("2500ns")?,
        "netperf" => match values.mode(&["stream", "request"])?.as_str() {
            "stream" => serve("2500ns")?,
            _ => serve("10us")?,
        },
        "iozone" => vec![values.record(root, &at)?],
        "sysbench-cpu" => {
            let each = values.dist("compute", "1ms")?;
            if never_positive(&each) {
                return Err(Error::at(&at, "events without any work"));
            }
            match section.integer("events", 1, 1_000_000, "")? {
                None => vec![Step::Compute(each)],
                Some((events, _)) => vec![
                    Step::Chunks {
                        name: name.to_string(),
                        chunks: u32::try_from(events).unwrap_or(1),
                        each,
                    },
                    Step::Exit,
                ],
            }
        }
        "parallel" => {
            let chunks = match section.integer("chunks", 1, 1_000_000, "")? {
                Some((n, _)) => u32::try_from(n).unwrap_or(1),
                None => 64,
            };
            let each = values.dist("compute", "1ms")?;
            if never_positive(&each) {
                return Err(Error::at(&at, "chunks without any work"));
            }
            let pool = name.to_string();
            vec![
                Step::Chunks {
                    name: pool.clone(),
                    chunks,
                    each,
                },
                barrier(&pool),
            ]
        }
        "barrier" => {
            let compute = values.dist("compute", "20ms")?;
            vec![Step::Compute(compute), barrier(name)]
        }
        "serial" => {
            let each = values.dist("serial", "20ms")?;
            let alone = format!("{name} alone");
            vec![
                Step::Chunks {
                    name: alone.clone(),
                    chunks: 1,
                    each,
                },
                barrier(&alone),
                Step::Compute(values.dist("compute", "20ms")?),
                barrier(name),
            ]
        }
        _ => serve("50us")?,
    };
    let places = vec![at; steps.len()];
    Ok((steps, places, Some(model)))
}

/// Whose requests it answers: `from`, or the one client that sends to a VM with this task.
fn from(section: &Section<'_>, root: &Node, vms: &[Vm], name: &str, at: &At) -> Result<String> {
    if section.table.get("from").is_some() {
        return Ok(section.string("from")?.map_or_else(String::new, |(s, _)| s));
    }
    let mut senders = Vec::new();
    for client in names(root, "client") {
        let to = match text_of(root, &["client", &client, "to"]) {
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
