// SPDX-License-Identifier: GPL-2.0-only
//! `[run]` and `[host]`.
use crate::diag::{At, Error, Result};
use crate::keys;
use crate::model::{Host, HostCost, Hotplug, Hz, Run};
use crate::quantity;
use crate::section::Section;
use crate::tree::{Node, Value};

/// The most CPUs of a host, and vCPUs of a VM.
pub const MOST_CPUS: u32 = 4096;

/// To another core below the same cache, unless the file says.
const SAME_LLC_NS: u64 = 3_000;

pub fn run(file: &Section<'_>) -> Result<Run> {
    let section = file.table("run", &keys::RUN)?;
    let warmup_ns = section.duration("warmup")?;
    let measure_ns = section.duration("measure")?;
    if measure_ns == 0 {
        let at = section
            .table
            .get("measure")
            .map_or(&section.at, |e| &e.node.at);
        return Err(Error::at(
            at,
            "`run.measure` is zero: nothing would be measured",
        ));
    }
    let seeds = section.count("seeds", 1, 100_000, "")?;
    Ok(Run {
        warmup_ns,
        measure_ns,
        seeds,
    })
}

pub fn host(file: &Section<'_>, root: &Node) -> Result<Host> {
    let section = file.table("host", &keys::HOST)?;
    let packages = section.count("packages", 1, MOST_CPUS, "")?;
    let cores = section.count("cores", 1, MOST_CPUS, "per package")?;
    let threads = section.count("threads", 1, 64, "per core")?;
    let cpus = u64::from(packages) * u64::from(cores) * u64::from(threads);
    if cpus > u64::from(MOST_CPUS) {
        let key = ["cores", "packages", "threads"]
            .iter()
            .find_map(|k| section.table.get(k));
        let at = key.map_or(&section.at, |e| &e.node.at);
        return Err(Error::at(
            at,
            format!("the host has {cpus} CPUs, more than {MOST_CPUS}"),
        )
        .label(format!(
            "{packages} packages x {cores} cores x {threads} threads"
        )));
    }
    let llcs = section.count("llcs", 1, MOST_CPUS, "per package")?;
    if !cores.is_multiple_of(llcs) {
        let at = section
            .table
            .get("llcs")
            .map_or(&section.at, |e| &e.node.at);
        return Err(Error::at(
            at,
            format!("{cores} cores cannot be spread evenly over {llcs} last-level caches"),
        ));
    }
    let nodes = match section.integer("nodes", 1, MOST_CPUS.into(), "")? {
        None => packages,
        Some((nodes, at)) => {
            let nodes = u32::try_from(nodes).unwrap_or(1);
            if !packages.is_multiple_of(nodes) {
                return Err(Error::at(
                    &at,
                    format!("{packages} packages cannot be spread evenly over {nodes} nodes"),
                )
                .label("host.packages should be a multiple of host.nodes"));
            }
            nodes
        }
    };
    let hz = hz(&section)?;
    let kernel = kernel(&section)?;
    let tasks = task_names(&section, root)?;
    let nr_cpus = u32::try_from(cpus).unwrap_or(MOST_CPUS);
    let cost = cost(&section)?;
    let hotplug = hotplug(&section, nr_cpus)?;
    Ok(Host {
        nodes,
        packages,
        llcs,
        cores,
        threads,
        hz,
        tasks,
        kernel,
        cost,
        hotplug,
    })
}

/// `hz` of the host or of a guest.
pub fn hz(section: &Section<'_>) -> Result<Hz> {
    match section.node("hz")? {
        None => Ok(Hz::Ticks(250)),
        Some(node) => match &node.value {
            Value::Int(hz @ 10..=10_000) => Ok(Hz::Ticks(u32::try_from(*hz).unwrap_or(250))),
            Value::Int(hz) => Err(Error::at(
                &node.at,
                format!(
                    "`{}` is {hz}, but should be 10 to 10000",
                    section.address("hz")
                ),
            )),
            Value::Str(s) if s == "exact" => Ok(Hz::Exact),
            _ => Err(section.wrong_type("hz", &node)),
        },
    }
}

fn kernel(section: &Section<'_>) -> Result<String> {
    let Some(node) = section.node("kernel")? else {
        return Ok(String::new());
    };
    let text = match &node.value {
        Value::Str(text) => text.clone(),
        // `--set host.kernel=7.2` looks like a number.
        Value::Float(_) => node
            .at
            .source
            .text
            .get(node.at.span.clone())
            .unwrap_or("")
            .to_string(),
        _ => return Err(section.wrong_type("kernel", &node)),
    };
    let numbers: Vec<&str> = text.split('.').collect();
    let is_version = (2..=3).contains(&numbers.len())
        && numbers
            .iter()
            .all(|n| (1..=3).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit()));
    if !is_version {
        return Err(Error::at(
            &node.at,
            format!(
                "`{}` is not a kernel version such as 7.2",
                text.escape_debug()
            ),
        ));
    }
    Ok(text)
}

fn cost(host: &Section<'_>) -> Result<HostCost> {
    if let Some(entry) = host.table.get("cost")
        && let Value::Str(text) = &entry.node.value
    {
        if text == "none" {
            host.node("cost")?;
            return Ok(HostCost::default());
        }
        return Err(Error::at(
            &entry.node.at,
            format!(
                "`host.cost` is \"none\" or a table, not `{}`",
                text.escape_debug()
            ),
        ));
    }
    let section = host.table("cost", &keys::COST)?;
    let switch_ns = section.duration("switch")?;
    let wake_ipi_ns = section.duration("wake_ipi")?;
    let migrate = section.table("migrate", &keys::MIGRATE)?;
    let migrate_same_core_ns = migrate.duration("same_core")?;
    // Caches of one package: who says what a package costs and nothing of its caches means both.
    let package = migrate.text("same_package", quantity::duration)?;
    let llc = migrate.text("same_llc", quantity::duration)?;
    let migrate_same_node_ns = migrate.duration("same_node")?;
    let migrate_same_package_ns = package.as_ref().map_or(migrate_same_node_ns, |(ns, _)| *ns);
    let migrate_same_llc_ns = match (llc, package) {
        (Some((ns, _)), _) | (None, Some((ns, _))) => ns,
        (None, None) => SAME_LLC_NS,
    };
    Ok(HostCost {
        switch_ns,
        wake_ipi_ns,
        migrate_same_core_ns,
        migrate_same_llc_ns,
        migrate_same_package_ns,
        migrate_same_node_ns,
        migrate_other_node_ns: migrate.duration("other_node")?,
    })
}

fn hotplug(host: &Section<'_>, nr_cpus: u32) -> Result<Vec<Hotplug>> {
    let mut events: Vec<(Hotplug, At)> = host.tables("hotplug", &keys::HOTPLUG, |section| {
        let at_ns = section.duration("at")?;
        let why = format!("the host's {nr_cpus} CPUs are 0 to {}", nr_cpus - 1);
        let cpu = section.integer("cpu", 0, i64::from(nr_cpus) - 1, &why)?;
        let online = section.boolean("online")?.unwrap_or(false);
        let cpu = cpu.and_then(|(c, _)| u32::try_from(c).ok()).unwrap_or(0);
        Ok((Hotplug { at_ns, cpu, online }, section.at))
    })?;
    events.sort_by_key(|(e, _)| e.at_ns);
    let mut online = vec![true; nr_cpus as usize];
    for (event, at) in &events {
        let slot = &mut online[event.cpu as usize];
        if *slot == event.online {
            let state = if event.online { "online" } else { "offline" };
            return Err(Error::at(
                at,
                format!("CPU {} is {state} already at that time", event.cpu),
            ));
        }
        *slot = event.online;
        if !online.contains(&true) {
            return Err(Error::at(at, "the last CPU cannot go offline"));
        }
    }
    Ok(events.into_iter().map(|(e, _)| e).collect())
}

/// A `tasks` list, each name being a task of the file, none twice.
pub fn task_names(section: &Section<'_>, root: &Node) -> Result<Vec<String>> {
    let there = crate::edit::names(root, "task");
    let mut names = Vec::new();
    for (name, at) in section.strings("tasks")?.unwrap_or_default() {
        if !there.contains(&name) {
            let list = if there.is_empty() {
                "none".into()
            } else {
                there.join(", ")
            };
            return Err(
                Error::at(&at, format!("there is no task `{}`", name.escape_debug()))
                    .nearest(&name, there.iter().map(String::as_str))
                    .note(format!("The scenario has these tasks: {list}")),
            );
        }
        if names.contains(&name) {
            return Err(Error::at(&at, format!("task `{name}` is named twice"))
                .label("for more threads, set the task's `threads`"));
        }
        names.push(name);
    }
    Ok(names)
}
