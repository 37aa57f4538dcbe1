// SPDX-License-Identifier: GPL-2.0-only
//! `[vm.NAME]`.
use super::Context;
use super::guest::guest;
use super::host::{MOST_CPUS, task_names};
use crate::diag::{At, Error, Result};
use crate::keys;
use crate::model::{Class, Guest, Host, Vm, VmRole};
use crate::quantity;
use crate::section::Section;
use crate::tree::{Node, Value, is_name};
use berth_identity::record::SCORE_MILLI;

/// The most VMs of a group, and vCPUs of all VMs together.
const MOST_VMS: u32 = 100_000;
const MOST_VCPUS: u64 = 1_000_000;

/// What `sched_setattr` takes as a slice, in nanoseconds.
const SLICE_NS: std::ops::RangeInclusive<u64> = 100_000..=100_000_000;

/// Names that metrics use for other things.
const TAKEN: [&str; 3] = ["host", "policy", "linux"];

pub fn vms(context: &Context<'_>, file: &Section<'_>, root: &Node, host: &Host) -> Result<Vec<Vm>> {
    let mut vms: Vec<Vm> = Vec::new();
    let mut vcpus = 0;
    for (name, entry) in file.named("vm", &keys::VM)? {
        if TAKEN.contains(&name.as_str()) {
            return Err(
                Error::at(&entry.key_at, format!("a VM cannot be called `{name}`"))
                    .label("metrics and arms use that name for something else"),
            );
        }
        let section = file.open_named("vm", &keys::VM, entry)?;
        let vm = vm(context, &section, &name, root, host)?;
        vcpus += u64::from(vm.count) * u64::from(vm.all_vcpus());
        if vcpus > MOST_VCPUS {
            return Err(Error::at(
                &entry.key_at,
                format!("the VMs have more than {MOST_VCPUS} vCPUs in all"),
            ));
        }
        check_names(&vms, &vm, &entry.key_at)?;
        vms.push(vm);
    }
    for group in vms.iter().filter_map(|vm| vm.cgroup.as_deref()) {
        // web-1 may be the first of several `web`.
        let number = |end: &str| end.strip_prefix('-')?.parse::<u32>().ok();
        let own = |vm: &str| group == vm || group.strip_prefix(vm).and_then(number).is_some();
        if let Some((name, entry)) = file.named("vm", &keys::VM)?.iter().find(|(n, _)| own(n)) {
            let text = format!("the shared cgroup `{group}` would be one of vm.{name}'s own");
            return Err(
                Error::at(&entry.key_at, text).label("give the cgroup a name that no VM has")
            );
        }
    }
    Ok(vms)
}

fn vm(
    context: &Context<'_>,
    section: &Section<'_>,
    name: &str,
    root: &Node,
    host: &Host,
) -> Result<Vm> {
    let count = section.count("count", 0, MOST_VMS, "")?;
    let vcpus = section.count("vcpus", 1, MOST_CPUS, "a VM needs at least one vCPU")?;
    let class = class(section)?;
    let reserved_vcpus = reserved(section, class, vcpus)?;
    let weight = section.count("weight", 1, 10_000, "as cgroup cpu.weight")?;
    let cap_milli = section.text("cap", |s| match quantity::milli_cpus(s)? {
        0 => Err("a cap of zero would never let it run; leave the key out for no cap".into()),
        milli => Ok(milli),
    })?;
    let affinity = section.cpus("affinity", host.nr_cpus())?;
    let backend_affinity = section.cpus("backend_affinity", host.nr_cpus())?;
    let coverage = section.text("coverage", |text| match quantity::percent_ppm(text)? {
        ppm @ 0..=1_000_000 => Ok(ppm),
        _ => Err("more than all of its threads".into()),
    })?;
    let nice = section
        .integer("nice", -20, 19, "")?
        .and_then(|(n, _)| i32::try_from(n).ok())
        .unwrap_or(0);
    let slice_ns = section.text("slice", |s| match quantity::duration(s)? {
        ns if SLICE_NS.contains(&ns) => Ok(ns),
        _ => Err("the kernel takes slices of 100us to 100ms".into()),
    })?;
    let cgroup = shared_cgroup(section)?;
    let scores_milli = scores(section, vcpus)?;
    let memory_ppm = memory(section, host.nodes)?;
    let tasks = task_names(section, root)?;
    let start_ns = section.duration("start")?;
    let stop = section.text("stop", quantity::duration)?;
    if let Some((stop_ns, at)) = &stop
        && *stop_ns <= start_ns
    {
        return Err(Error::at(at, format!("vm.{name} stops before it starts")));
    }
    let role = match section.string("role")? {
        None => VmRole::Guest,
        Some((word, at)) => match word.as_str() {
            "guest" => VmRole::Guest,
            "driver" => VmRole::Driver,
            _ => {
                return Err(
                    Error::at(&at, format!("there is no role `{}`", word.escape_debug()))
                        .nearest(&word, ["guest", "driver"])
                        .note("A role is guest or driver"),
                );
            }
        },
    };
    let turbo_vcpus = section.count("turbo_vcpus", 0, MOST_CPUS, "")?;
    // Before the guest's own table begins.
    let agent = section.boolean("guest_agent")?.unwrap_or(false);
    let guest = guest(context, section)?;
    if agent {
        agent_fits(section, class, &guest)?;
    }
    Ok(Vm {
        name: name.to_string(),
        count,
        vcpus,
        class,
        reserved_vcpus,
        weight,
        cap_milli: cap_milli.map(|(milli, _)| milli),
        affinity,
        backend_affinity,
        coverage_ppm: coverage.map(|(ppm, _)| ppm),
        nice,
        slice_ns: slice_ns.map(|(ns, _)| ns),
        cgroup,
        scores_milli,
        memory_ppm,
        tasks,
        start_ns,
        stop_ns: stop.map(|(ns, _)| ns),
        guest,
        role,
        turbo_vcpus,
        guest_agent: agent,
    })
}

/// An agent inside needs vCPUs that are reserved, and tasks that can be moved.
fn agent_fits(section: &Section<'_>, class: Class, guest: &Guest) -> Result<()> {
    let at = section.table.get("guest_agent");
    let at = at.map_or(&section.at, |entry| &entry.node.at);
    if class != Class::Mixed {
        return Err(Error::at(at, "`guest_agent` is only for class mixed")
            .label("it moves tasks to reserved vCPUs, and there are none"));
    }
    if guest.is_none() {
        let why = format!("`{}` needs a guest", section.address("guest_agent"));
        return Err(
            Error::at(at, why).label("with guest = \"none\", tasks are vCPUs: none can be moved")
        );
    }
    Ok(())
}

/// A cgroup shared with others is no VM's, and what shares it has neither weight nor cap of its own.
fn shared_cgroup(section: &Section<'_>) -> Result<Option<String>> {
    let Some((name, at)) = section.string("cgroup")? else {
        return Ok(None);
    };
    if !is_name(&name) {
        let text = format!("`{}` is no name for a cgroup", name.escape_debug());
        return Err(Error::at(&at, text).label("letters, digits, - and _"));
    }
    for key in ["weight", "cap"] {
        if let Some(entry) = section.table.get(key) {
            let text = format!("{}.{key} is the whole cgroup's", section.path);
            return Err(Error::at(&entry.key_at, text)
                .label("a VM that shares its cgroup has none of its own: leave it out"));
        }
    }
    Ok(Some(name))
}

/// A node, or the part on each node in order, in parts per million.
fn memory(section: &Section<'_>, nodes: u32) -> Result<Vec<u32>> {
    const ALL: u32 = 1_000_000;
    let Some(node) = section.node("memory")? else {
        return Ok(Vec::new());
    };
    let last = nodes - 1;
    let range = if last == 0 {
        "the host has one node, 0".to_string()
    } else {
        format!("the host has nodes 0 to {last}")
    };
    let mut parts = vec![0; nodes as usize];
    match &node.value {
        Value::Int(number) => {
            let part = usize::try_from(*number).ok();
            let Some(part) = part.and_then(|n| parts.get_mut(n)) else {
                let why = format!("`{}`: there is no node {number}", section.address("memory"));
                return Err(Error::at(&node.at, why).label(range));
            };
            *part = ALL;
            return Ok(parts);
        }
        Value::Array(_) => {}
        _ => return Err(section.wrong_type("memory", &node)),
    }
    let mut sum = 0u64;
    for (i, (text, at)) in (0..).zip(section.strings_of("memory", &node)?) {
        let ppm = quantity::percent_ppm(&text).map_err(|e| Error::at(&at, e))?;
        match parts.get_mut(i) {
            Some(part) => *part = ppm,
            None => return Err(Error::at(&at, format!("there is no node {i}")).label(range)),
        }
        sum += u64::from(ppm);
    }
    if sum != u64::from(ALL) {
        let why = format!(
            "the parts of `{}` are {}% together, but should be 100%",
            section.address("memory"),
            sum as f64 / 1e4
        );
        return Err(Error::at(&node.at, why).label("how much of the memory is on each node"));
    }
    Ok(parts)
}

/// `175%`, or a list of `COUNT x PERCENT` for all vCPUs, in thousandths.
fn scores(section: &Section<'_>, vcpus: u32) -> Result<Vec<u32>> {
    let Some(node) = section.node("score")? else {
        return Ok(Vec::new());
    };
    let one = |text: &str, at: &At| -> Result<u32> {
        let milli = quantity::percent_ppm(text).map_err(|e| Error::at(at, e))? / 1000;
        if SCORE_MILLI.contains(&milli) {
            return Ok(milli);
        }
        let percent = f64::from(milli) / 10.0;
        let why = format!("a score should be 100% to 10000%, not {percent}%");
        Err(Error::at(at, why).label("the speed on a fast core, of that on a slow one"))
    };
    match &node.value {
        Value::Str(text) => return Ok(vec![one(text, &node.at)?]),
        Value::Array(_) => {}
        _ => return Err(section.wrong_type("score", &node)),
    }
    let mut all = Vec::new();
    for (text, at) in section.strings_of("score", &node)? {
        let (count, score) = text.split_once('x').unwrap_or(("1", &text));
        let Ok(count @ 1..=MOST_CPUS) = count.trim().parse::<u32>() else {
            let why = format!(
                "`{}` should be COUNT x PERCENT, e.g. \"2 x 175%\"",
                text.escape_debug()
            );
            return Err(Error::at(&at, why));
        };
        all.extend(std::iter::repeat_n(one(score, &at)?, count as usize));
    }
    match all.len() == vcpus as usize {
        true => Ok(all),
        false => Err(Error::at(
            &node.at,
            format!(
                "`{}` is about {} vCPUs, but the VM has {vcpus}",
                section.address("score"),
                all.len()
            ),
        )),
    }
}

fn class(section: &Section<'_>) -> Result<Class> {
    let Some((word, at)) = section.string("class")? else {
        return Ok(Class::Batch);
    };
    if let Some(class) = Class::of(&word) {
        return Ok(class);
    }
    match word.as_str() {
        "auto" => Err(
            Error::at(&at, "`auto` needs something to watch: only a host has it")
                .label("write latency, batch, mixed or none"),
        ),
        _ => Err(
            Error::at(&at, format!("there is no class `{}`", word.escape_debug()))
                .nearest(&word, Class::ALL.map(Class::word))
                .note("A class is latency, batch, mixed or none"),
        ),
    }
}

fn reserved(section: &Section<'_>, class: Class, vcpus: u32) -> Result<u32> {
    let given = section.integer("reserved_vcpus", 0, MOST_CPUS.into(), "")?;
    let value = given
        .as_ref()
        .and_then(|(v, _)| u32::try_from(*v).ok())
        .unwrap_or(0);
    match (class, &given) {
        (Class::Mixed, None) => {
            let at = section
                .table
                .get("class")
                .map_or(&section.at, |e| &e.node.at);
            Err(Error::at(
                at,
                format!(
                    "[{}] is of class mixed and needs `reserved_vcpus`",
                    section.path
                ),
            )
            .label("how many of its vCPUs do I/O?"))
        }
        (Class::Mixed, Some((_, at))) if vcpus < 2 => Err(Error::at(
            at,
            format!(
                "[{}] is of class mixed and has one vCPU: it needs one to reserve for I/O and one that computes",
                section.path
            ),
        )
        .note("Give it `vcpus = 2` or more, or say what it is: class latency or batch")),
        (Class::Mixed, Some((_, at))) if value == 0 || value >= vcpus => Err(Error::at(
            at,
            format!(
                "`{}.reserved_vcpus` is {value}, but should be 1 to {}: the others compute",
                section.path,
                vcpus - 1
            ),
        )),
        (_, Some((_, at))) if class != Class::Mixed && value > 0 => {
            Err(Error::at(at, "`reserved_vcpus` is only for class mixed"))
        }
        _ => Ok(value),
    }
}

/// The names of a group's VMs (web-1, web-2, ...) must not be those of other groups.
fn check_names(vms: &[Vm], new: &Vm, at: &At) -> Result<()> {
    let has = |group: &Vm, name: &str| {
        let number = name
            .strip_prefix(group.name.as_str())
            .and_then(|rest| rest.strip_prefix('-'));
        group.count > 1
            && number.is_some_and(|n| {
                !n.starts_with('0') && n.parse::<u32>().is_ok_and(|n| n >= 1 && n <= group.count)
            })
    };
    for other in vms {
        if has(other, &new.name) || has(new, &other.name) {
            return Err(Error::at(
                at,
                format!(
                    "vm.{} and vm.{} would have VMs of the same name",
                    other.name, new.name
                ),
            )
            .label(format!(
                "a group of several is called {}-1, {}-2, ...",
                new.name, new.name
            )));
        }
    }
    Ok(())
}
