// SPDX-License-Identifier: GPL-2.0-only
//! One task of an rt-app file: its properties, phases and events, as steps.
use super::{integer, join, name_for, object, quoted, text, unknown};
use crate::diag::{At, Error, Result, nearest};
use crate::tree::{Entry, Table, Value};
use std::collections::BTreeMap;

/// The most steps that a task's phases may come to, loops written out.
const MOST_STEPS: usize = 10_000;

/// Longest time of an event, in microseconds: 100 days.
const LONGEST_US: i64 = 8_640_000_000_000;

/// The most threads of a task.
const MOST_THREADS: i64 = 4096;

const EVENTS: [&str; 16] = [
    "run", "runtime", "sleep", "timer", "lock", "unlock", "wait", "signal", "broad", "sync",
    "barrier", "suspend", "resume", "yield", "fork", "iorun",
];

/// Known to rt-app, without a counterpart here.
const WITHOUT: [(&str, &str); 11] = [
    ("mem", "memory traffic"),
    ("dl-runtime", "deadline scheduling"),
    ("dl-period", "deadline scheduling"),
    ("dl-deadline", "deadline scheduling"),
    ("period", "deadline scheduling"),
    ("deadline", "deadline scheduling"),
    ("util_min", "utilisation clamping"),
    ("util_max", "utilisation clamping"),
    ("membind_nodes", "binding of memory to nodes"),
    ("nodes_membind", "binding of memory to nodes"),
    ("taskgroup", "groups of tasks"),
];

/// What a step does to others, and its words.
#[derive(Clone, Debug)]
enum Event {
    /// Words as they stand in a loop.
    Plain(String),
    /// Words in front, and a name of something that tasks share.
    Shared(&'static str, String),
    /// The name of a task, as the file has it.
    Fork(String, At),
    /// The same, and its path.
    Resume(String, At),
}

#[derive(Clone, Debug)]
struct Timer {
    reference: String,
    period_us: i64,
    /// Of mode `absolute`.
    catches_up: bool,
    at: At,
}

#[derive(Debug)]
pub struct Task {
    pub name: String,
    /// As in the file.
    original: String,
    pub instances: u32,
    delay_us: i64,
    nice: i64,
    cpus: Vec<u32>,
    /// Once, then over and over.
    first: Vec<Event>,
    steps: Vec<Event>,
    /// It ends instead of starting over.
    ends: bool,
    timers: Vec<Timer>,
    at: At,
}

/// What may stand at the level of tasks and of phases.
#[derive(Clone, Debug, Default)]
struct Properties {
    loops: Option<i64>,
    nice: Option<i64>,
    cpus: Option<Vec<u32>>,
}

impl Task {
    pub fn new(entry: &Entry, name: String) -> Result<Task> {
        let path = format!("tasks.{}", entry.key);
        let table = object(entry, &path)?;
        let mut task = Task {
            name,
            original: entry.key.clone(),
            instances: 1,
            delay_us: 0,
            nice: 0,
            cpus: Vec::new(),
            first: Vec::new(),
            steps: Vec::new(),
            ends: false,
            timers: Vec::new(),
            at: entry.key_at.clone(),
        };
        let mut phases = None;
        let mut inline: Option<&Entry> = None;
        let mut own = Properties::default();
        for entry in &table.entries {
            match entry.key.as_str() {
                "instance" => {
                    let n = integer(entry, &path, 0, MOST_THREADS)?;
                    task.instances = u32::try_from(n).unwrap_or(1);
                }
                "delay" => task.delay_us = integer(entry, &path, 0, LONGEST_US)?,
                "phases" => phases = Some(entry),
                _ if own.read(entry, &path)? => {}
                _ => inline = inline.or(Some(entry)),
            }
        }
        task.nice = own.nice.unwrap_or(0);
        task.cpus = own.cpus.clone().unwrap_or_default();
        match (phases, inline) {
            (Some(phases), Some(event)) => {
                // Something unknown is the likelier slip.
                if event_of(&event.key).is_none() {
                    return Err(unknown_in(event, &path, true));
                }
                return Err(Error::at(
                    &event.key_at,
                    format!(
                        "`{}` has both phases and events of its own",
                        path.escape_debug()
                    ),
                )
                .label(format!("move it into a phase ({})", phases.key)));
            }
            (Some(phases), None) => task.phases(phases, &path, own.loops)?,
            (None, _) => {
                // The task's own loop is that of its only phase.
                let events = task.events(table, &path, true)?;
                task.put(&[(events, 1)], own.loops.unwrap_or(-1), &path)?;
            }
        }
        Ok(task)
    }

    fn phases(&mut self, entry: &Entry, path: &str, loops: Option<i64>) -> Result<()> {
        let path = join(path, "phases");
        let mut all = Vec::new();
        let mut moved = false;
        for entry in &object(entry, &path)?.entries {
            let path = join(&path, &entry.key);
            let table = object(entry, &path)?;
            let mut own = Properties::default();
            for entry in &table.entries {
                own.read(entry, &path)?;
            }
            let mut events = Vec::new();
            // A phase without CPUs of its own has the task's.
            if own.cpus.is_some() || moved {
                let cpus = own.cpus.as_ref().unwrap_or(&self.cpus);
                events.push(Event::Plain(format!("affinity {}", list(cpus))));
                moved = own.cpus.is_some();
            }
            if let Some(nice) = own.nice {
                events.push(Event::Plain(format!("nice {nice}")));
            }
            events.extend(self.events(table, &path, false)?);
            all.push((events, own.loops.unwrap_or(1)));
        }
        if moved && let Some((events, _)) = all.first_mut() {
            // The next round of the phases starts with the task's CPUs again.
            let back = Event::Plain(format!("affinity {}", list(&self.cpus)));
            let there = matches!(events.first(), Some(Event::Plain(words)) if words.starts_with("affinity"));
            if !there {
                events.insert(0, back);
            }
        }
        self.put(&all, loops.unwrap_or(-1), &path)
    }

    /// Phases with their loops, and the task's own: steps done once, and steps of a loop.
    fn put(&mut self, phases: &[(Vec<Event>, i64)], loops: i64, path: &str) -> Result<()> {
        let mut round = Vec::new();
        let mut endless = None;
        for (events, times) in phases {
            if *times < 0 {
                endless = Some(events);
                break;
            }
            self.repeat(&mut round, events, *times, path)?;
        }
        match endless {
            // Nothing behind it is ever reached.
            Some(events) => {
                self.first = round;
                self.steps = events.clone();
            }
            None if loops < 0 => self.steps = round,
            None => {
                let mut steps = Vec::new();
                self.repeat(&mut steps, &round, loops, path)?;
                self.steps = steps;
                self.ends = true;
            }
        }
        if self.steps.is_empty() && !self.ends {
            return Err(Error::at(
                &self.at,
                format!(
                    "`{}` has no events: it would do nothing for ever",
                    path.escape_debug()
                ),
            ));
        }
        if !self.ends && !self.steps.iter().any(Event::takes_time) {
            return Err(Error::at(
                &self.at,
                format!(
                    "`{}` takes no time: it would spin for ever in no time at all",
                    path.escape_debug()
                ),
            )
            .label("a run, sleep, timer or wait is missing"));
        }
        Ok(())
    }

    fn repeat(
        &self,
        into: &mut Vec<Event>,
        events: &[Event],
        times: i64,
        path: &str,
    ) -> Result<()> {
        let times = usize::try_from(times).unwrap_or(0);
        let steps = events
            .len()
            .saturating_mul(times)
            .saturating_add(into.len());
        if steps > MOST_STEPS {
            return Err(Error::at(
                &self.at,
                format!(
                    "the loops of `{}` come to {steps} steps, more than {MOST_STEPS}",
                    path.escape_debug()
                ),
            )
            .label("loop -1 (for ever) takes none; else fewer rounds"));
        }
        for _ in 0..times {
            into.extend(events.iter().cloned());
        }
        Ok(())
    }

    fn events(&mut self, table: &Table, path: &str, of_task: bool) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        for entry in &table.entries {
            let property = Properties::is_one(&entry.key)
                || (of_task && matches!(entry.key.as_str(), "instance" | "delay"));
            if !property {
                self.event(&mut events, entry, path, of_task)?;
            }
        }
        Ok(events)
    }

    fn event(
        &mut self,
        into: &mut Vec<Event>,
        entry: &Entry,
        path: &str,
        of_task: bool,
    ) -> Result<()> {
        let Some(kind) = event_of(&entry.key) else {
            return Err(unknown_in(entry, path, of_task));
        };
        let shown = join(path, &entry.key);
        let plain = |words: String| Event::Plain(words);
        let name = || text(&entry.node, &shown).map(resource);
        match kind {
            "run" | "runtime" | "sleep" => {
                let us = integer(entry, path, 0, LONGEST_US)?;
                let word = if kind == "sleep" { "sleep" } else { "compute" };
                into.push(plain(format!("{word} {us}us")));
            }
            "iorun" => {
                let bytes = integer(entry, path, 1, 1 << 30)?;
                into.push(plain(format!("write io {bytes}B")));
            }
            "yield" => into.push(plain("yield".into())),
            "timer" => {
                let timer = timer(entry, &shown)?;
                let late = if timer.catches_up { " catching up" } else { "" };
                let period = timer.period_us;
                into.push(plain(format!("timer every {period}us from start{late}")));
                self.timers.push(timer);
            }
            "lock" => into.push(Event::Shared("lock", name()?)),
            "unlock" => into.push(Event::Shared("unlock", name()?)),
            "signal" => into.push(Event::Shared("signal", name()?)),
            "broad" => into.push(Event::Shared("broadcast", name()?)),
            "barrier" => into.push(Event::Shared("barrier", name()?)),
            "wait" | "sync" => {
                let (reference, mutex) = reference(entry, &shown)?;
                let shared = |word, name: &String| Event::Shared(word, name.clone());
                if kind == "sync" {
                    into.push(shared("lock", &mutex));
                    into.push(shared("signal", &reference));
                }
                into.push(shared("unlock", &mutex));
                into.push(shared("wait", &reference));
                into.push(shared("lock", &mutex));
                if kind == "sync" {
                    into.push(shared("unlock", &mutex));
                }
            }
            "suspend" => {
                let who = text(&entry.node, &shown)?;
                if !who.is_empty() && who != self.original {
                    return Err(Error::at(
                        &entry.node.at,
                        format!(
                            "`{}` can only suspend the task itself, `{}`",
                            shown.escape_debug(),
                            self.original.escape_debug()
                        ),
                    ));
                }
                into.push(Event::Shared("wait", suspended(&self.name)));
            }
            "resume" => {
                let who = text(&entry.node, &shown)?.to_string();
                into.push(Event::Resume(who, entry.node.at.clone()));
            }
            _ => {
                let who = text(&entry.node, &shown)?.to_string();
                into.push(Event::Fork(who, entry.node.at.clone()));
            }
        }
        Ok(())
    }

    /// Turns names of tasks into those that the scenario uses.
    pub fn resolve(&mut self, names: &BTreeMap<String, String>) -> Result<()> {
        let known = |name: &str, at: &At, what: &str| match names.get(name) {
            Some(found) => Ok(found.clone()),
            None => Err(Error::at(
                at,
                format!("there is no task `{}` to {what}", name.escape_debug()),
            )
            .nearest(name, names.keys().map(String::as_str))),
        };
        for event in self.first.iter_mut().chain(&mut self.steps) {
            match event {
                Event::Fork(name, at) => *name = known(name, at, "fork")?,
                Event::Resume(name, at) => {
                    *event = Event::Shared("broadcast", suspended(&known(name, at, "resume")?));
                }
                Event::Plain(_) | Event::Shared(..) => {}
            }
        }
        Ok(())
    }

    /// CPUs that it names anywhere.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        let events = self.first.iter().chain(&self.steps);
        let moves = events.filter_map(|e| match e {
            Event::Plain(words) => words.strip_prefix("affinity "),
            _ => None,
        });
        let moves = moves.flat_map(|list| list.split(',').filter_map(|cpu| cpu.parse().ok()));
        self.cpus.iter().copied().chain(moves)
    }

    /// It has a step that starts a thread of this task.
    pub fn starts(&self, task: &str) -> bool {
        let mut events = self.first.iter().chain(&self.steps);
        events.any(|e| matches!(e, Event::Fork(name, _) if name == task))
    }

    /// It writes to the device of the file.
    pub fn writes(&self) -> bool {
        let mut events = self.first.iter().chain(&self.steps);
        events.any(|e| matches!(e, Event::Plain(words) if words.starts_with("write ")))
    }

    pub fn write(&self, out: &mut String) {
        out.push_str(&format!("\n[task.{}]\n", self.name));
        out.push_str(&format!("threads = {}\n", self.instances));
        if self.nice != 0 {
            out.push_str(&format!("nice = {}\n", self.nice));
        }
        if !self.cpus.is_empty() {
            out.push_str(&format!("affinity = {}\n", quoted(&list(&self.cpus))));
        }
        let mut first: Vec<String> = Vec::new();
        if self.delay_us > 0 {
            first.push(format!("sleep {}us", self.delay_us));
        }
        first.extend(self.first.iter().map(Event::words));
        if !first.is_empty() {
            out.push_str(&format!("first = [{}]\n", lines(&first)));
        }
        let mut steps: Vec<String> = self.steps.iter().map(Event::words).collect();
        if self.ends {
            steps.push("exit".into());
        }
        out.push_str(&format!("loop = [{}]\n", lines(&steps)));
    }
}

/// rt-app's timers of one name are one timer wherever the name stands, unless it begins with `unique`.
pub fn check_timers(tasks: &[Task]) -> Result<()> {
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    for task in tasks {
        for (i, timer) in task.timers.iter().enumerate() {
            let name = timer.reference.as_str();
            let before = &task.timers[..i];
            let wrong = |message: String| Err(Error::at(&timer.at, message));
            if before
                .iter()
                .any(|t| t.reference == name && t.period_us != timer.period_us)
            {
                return wrong(format!(
                    "timer `{}` has two periods; here a timer is a grid of one period",
                    name.escape_debug()
                ));
            }
            if before
                .iter()
                .any(|t| t.reference == name && t.catches_up != timer.catches_up)
            {
                return wrong(format!("timer `{}` has two modes", name.escape_debug()));
            }
            if before
                .iter()
                .any(|t| t.reference != name && t.period_us == timer.period_us)
            {
                return wrong(format!(
                    "timer `{}` has the period of another timer of this task; here they would be one grid",
                    name.escape_debug()
                ));
            }
            if name.starts_with("unique") {
                continue;
            }
            let other = *users.entry(name).or_insert(&task.name);
            if other != task.name || task.instances > 1 {
                return Err(Error::at(
                    &timer.at,
                    format!(
                        "timer `{}` is shared by several threads",
                        name.escape_debug()
                    ),
                )
                .label("here each thread has its own: call it unique..."));
            }
        }
    }
    Ok(())
}

impl Properties {
    fn is_one(key: &str) -> bool {
        matches!(key, "loop" | "policy" | "priority" | "cpus")
    }

    /// Whether the key is one of these; if so, it is read.
    fn read(&mut self, entry: &Entry, path: &str) -> Result<bool> {
        match entry.key.as_str() {
            "loop" => self.loops = Some(integer(entry, path, -1, i64::from(u32::MAX))?),
            "policy" => policy(entry, path)?,
            "priority" => self.nice = Some(integer(entry, path, -20, 19)?),
            "cpus" => self.cpus = Some(cpus(entry, &join(path, "cpus"))?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Checks a scheduling policy: only the ordinary one has a counterpart.
pub fn policy(entry: &Entry, path: &str) -> Result<()> {
    const OTHERS: [&str; 5] = [
        "SCHED_OTHER",
        "SCHED_IDLE",
        "SCHED_RR",
        "SCHED_FIFO",
        "SCHED_DEADLINE",
    ];
    let shown = join(path, &entry.key);
    let name = text(&entry.node, &shown)?;
    if name == "SCHED_OTHER" {
        return Ok(());
    }
    let error = Error::at(
        &entry.node.at,
        format!(
            "`{}` is {}: threads of a scenario are SCHED_OTHER only",
            shown.escape_debug(),
            name.escape_debug()
        ),
    );
    Err(match nearest(name, OTHERS) {
        Some(near) if near != name => error.label(format!("did you mean {near}?")),
        _ => error,
    })
}

fn cpus(entry: &Entry, shown: &str) -> Result<Vec<u32>> {
    let wrong = |at: &At| {
        Error::at(
            at,
            format!(
                "`{}` is a list of CPU numbers, 0 to 4095",
                shown.escape_debug()
            ),
        )
    };
    let Value::Array(items) = &entry.node.value else {
        return Err(wrong(&entry.node.at));
    };
    let mut cpus = Vec::new();
    for item in items {
        match item.value {
            Value::Int(cpu @ 0..=4095) => cpus.push(u32::try_from(cpu).unwrap_or(0)),
            _ => return Err(wrong(&item.at)),
        }
    }
    if cpus.is_empty() {
        return Err(wrong(&entry.node.at));
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// `run0` is the event `run`: keys of an object have to differ, so rt-app lets them end in a number.
fn event_of(key: &str) -> Option<&'static str> {
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_' || c == '-');
    EVENTS.into_iter().find(|event| *event == stem)
}

fn unknown_in(entry: &Entry, path: &str, of_task: bool) -> Error {
    let stem = entry
        .key
        .trim_end_matches(|c: char| c.is_ascii_digit() || c == '_' || c == '-');
    if let Some((key, what)) = WITHOUT
        .iter()
        .find(|(key, _)| *key == stem || *key == entry.key)
    {
        return Error::at(
            &entry.key_at,
            format!(
                "`{}`: {what} has no counterpart in a scenario",
                join(path, &entry.key).escape_debug()
            ),
        )
        .label(format!("`{key}` is not supported"));
    }
    let mut known: Vec<&str> = EVENTS.to_vec();
    known.extend(["loop", "policy", "priority", "cpus"]);
    if of_task {
        known.extend(["instance", "delay", "phases"]);
    }
    unknown(entry, path, &entry.key, &known)
}

fn timer(entry: &Entry, shown: &str) -> Result<Timer> {
    let mut found = Timer {
        reference: String::new(),
        period_us: 0,
        catches_up: false,
        at: entry.key_at.clone(),
    };
    for entry in &object(entry, shown)?.entries {
        match entry.key.as_str() {
            "ref" => found.reference = text(&entry.node, &join(shown, "ref"))?.to_string(),
            "period" => found.period_us = integer(entry, shown, 1, LONGEST_US)?,
            "mode" => match text(&entry.node, &join(shown, "mode"))? {
                "relative" => {}
                "absolute" => found.catches_up = true,
                other => {
                    let why = format!("`{shown}.mode` is {}", other.escape_debug());
                    return Err(Error::at(&entry.node.at, why).label("relative or absolute"));
                }
            },
            other => return Err(unknown(entry, shown, other, &["ref", "period", "mode"])),
        }
    }
    if found.reference.is_empty() || found.period_us == 0 {
        return Err(Error::at(
            &entry.node.at,
            format!("`{}` needs `ref` and `period`", shown.escape_debug()),
        ));
    }
    Ok(found)
}

/// `{ "ref": condition, "mutex": lock }`.
fn reference(entry: &Entry, shown: &str) -> Result<(String, String)> {
    let (mut reference, mut mutex) = (None, None);
    for entry in &object(entry, shown)?.entries {
        match entry.key.as_str() {
            "ref" => reference = Some(resource(text(&entry.node, &join(shown, "ref"))?)),
            "mutex" => mutex = Some(resource(text(&entry.node, &join(shown, "mutex"))?)),
            other => return Err(unknown(entry, shown, other, &["ref", "mutex"])),
        }
    }
    match (reference, mutex) {
        (Some(reference), Some(mutex)) => Ok((reference, mutex)),
        _ => Err(Error::at(
            &entry.node.at,
            format!("`{}` needs `ref` and `mutex`", shown.escape_debug()),
        )),
    }
}

/// The name of a lock, condition or barrier.
fn resource(name: &str) -> String {
    name_for(name, &BTreeMap::new())
}

/// The event that a suspended task waits for.
fn suspended(name: &str) -> String {
    format!("resume-{name}")
}

fn list(cpus: &[u32]) -> String {
    if cpus.is_empty() {
        return "all".into();
    }
    cpus.iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

/// Steps on one line, or one per line where they are many.
fn lines(steps: &[String]) -> String {
    let all: Vec<String> = steps.iter().map(|s| quoted(s)).collect();
    if all.len() <= 4 {
        return all.join(", ");
    }
    format!("\n    {},\n", all.join(",\n    "))
}

impl Event {
    fn words(&self) -> String {
        match self {
            Event::Plain(words) => words.clone(),
            Event::Shared(word, name) => format!("{word} {name}"),
            Event::Fork(name, _) | Event::Resume(name, _) => format!("fork {name}"),
        }
    }

    fn takes_time(&self) -> bool {
        match self {
            Event::Plain(words) => {
                let mut parts = words.split(' ');
                let (word, amount) = (parts.next().unwrap_or(""), parts.next());
                match word {
                    "compute" | "sleep" => amount != Some("0us"),
                    "timer" | "write" => true,
                    _ => false,
                }
            }
            Event::Shared(word, _) => *word == "wait",
            Event::Fork(..) | Event::Resume(..) => false,
        }
    }
}
