// SPDX-License-Identifier: GPL-2.0-only
//! `[run]` and `[host]`.
use crate::cost;
use crate::diag::{At, Error, Result};
use crate::keys;
use crate::model::{Cache, CoreKind, Host, HostCost, Hotplug, Hz, PleYield, Run};
use crate::quantity;
use crate::section::{Section, cpu_list};
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
    let ple_yield = ple_yield(&section)?;
    let nr_cpus = u32::try_from(cpus).unwrap_or(MOST_CPUS);
    // Plain keys before tables: the order of the printed file.
    let remote_ppm = remote_memory(&section)?;
    let smt_ppm = smt_speed(&section)?;
    let mut kinds = speeds(&section, packages * cores)?;
    let pmu_noise_ppm = pmu(&section)?;
    let no_cache = no_cache(&section)?;
    if section.table.get("kind").is_some() {
        kinds = kinds_of_cores(&section, packages, packages * cores)?;
    } else {
        section.node("kind")?;
    }
    let mut cost = costs(&section)?;
    cost.remote_ppm = remote_ppm;
    cost.smt_ppm = smt_ppm.unwrap_or(cost.smt_ppm);
    cost.kinds = kinds;
    cost.pmu_noise_ppm = pmu_noise_ppm;
    if no_cache {
        cost.cache = None;
    } else if section.table.get("cache").is_some() {
        cost.cache = Some(cache(&section.table("cache", &keys::CACHE)?)?);
    }
    tick_jitter(&section, hz, &cost)?;
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
        ple_yield,
        hotplug,
    })
}

/// Ticks must keep their order.
fn tick_jitter(host: &Section<'_>, hz: Hz, cost: &HostCost) -> Result<()> {
    let hz = match hz {
        Hz::Ticks(hz) => hz,
        // Guests may have ticks, at least so many.
        Hz::Exact => 10,
    };
    let most = HostCost::most_tick_jitter_ns(hz);
    if cost.tick_jitter_ns <= most {
        return Ok(());
    }
    let said = host.table.get("cost").map(|e| match &e.node.value {
        Value::Table(cost) => cost.get("tick_jitter").map_or(&e.node.at, |e| &e.node.at),
        _ => &e.node.at,
    });
    let why = format!(
        "a tick_jitter of {} ns is too much for {hz} ticks a second: at most {most} ns, a 64th of the time between two",
        cost.tick_jitter_ns
    );
    Err(Error::at(said.unwrap_or(&host.at), why)
        .label("a smaller host.cost.tick_jitter, or a lower host.hz"))
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

fn ple_yield(section: &Section<'_>) -> Result<Option<PleYield>> {
    match section.string("ple_yield")? {
        None => Ok(None),
        Some((word, at)) => match word.as_str() {
            "kvm" => Ok(Some(PleYield::Kvm)),
            "xen" => Ok(Some(PleYield::Xen)),
            _ => {
                let why = format!(
                    "`host.ple_yield` is \"kvm\" or \"xen\", not `{}`",
                    word.escape_debug()
                );
                Err(Error::at(&at, why).nearest(&word, ["kvm", "xen"]))
            }
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

fn costs(host: &Section<'_>) -> Result<HostCost> {
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
    let mut cost = match section.string("profile")? {
        Some((name, at)) => cost::named(&name).map_err(|e| Error::at(&at, e))?,
        None => cost::assumed(),
    };
    for (key, ns) in [
        ("switch", &mut cost.switch_ns),
        ("wake_ipi", &mut cost.wake_ipi_ns),
        ("tick", &mut cost.tick_ns),
        ("tick_jitter", &mut cost.tick_jitter_ns),
        ("vm_entry", &mut cost.vm_entry_ns),
        ("vm_exit", &mut cost.vm_exit_ns),
    ] {
        if let Some((said, _)) = section.text(key, quantity::duration)? {
            *ns = said;
        }
    }
    let has_migrate = section.table.get("migrate").is_some();
    if !has_migrate {
        section.node("migrate")?;
        return Ok(cost);
    }
    let migrate = section.table("migrate", &keys::MIGRATE)?;
    cost.cache = None;
    // Caches of one package: who says what a package costs and nothing of its caches means both.
    let package = migrate.text("same_package", quantity::duration)?;
    let llc = migrate.text("same_llc", quantity::duration)?;
    cost.migrate_same_core_ns = migrate.duration("same_core")?;
    cost.migrate_same_node_ns = migrate.duration("same_node")?;
    cost.migrate_same_package_ns =
        (package.as_ref()).map_or(cost.migrate_same_node_ns, |(ns, _)| *ns);
    cost.migrate_same_llc_ns = match (llc, package) {
        (Some((ns, _)), _) | (None, Some((ns, _))) => ns,
        (None, None) => SAME_LLC_NS,
    };
    cost.migrate_other_node_ns = migrate.duration("other_node")?;
    Ok(cost)
}

fn smt_speed(host: &Section<'_>) -> Result<Option<u32>> {
    match host.text("smt_speed", quantity::percent_ppm)? {
        Some((ppm, at)) if !(FULL_SPEED / 10..=FULL_SPEED).contains(&ppm) => {
            let why = format!("`{}` should be 10% to 100%", host.address("smt_speed"));
            Err(Error::at(&at, why))
        }
        said => Ok(said.map(|(ppm, _)| ppm)),
    }
}

/// In parts per million; 0: as one's own.
fn remote_memory(host: &Section<'_>) -> Result<u32> {
    let Some(node) = host.node("remote_memory")? else {
        return Ok(0);
    };
    let times = match node.value {
        Value::Int(times) => times as f64,
        Value::Float(times) => times,
        _ => return Err(host.wrong_type("remote_memory", &node)),
    };
    if !(1.0..=100.0).contains(&times) {
        let address = host.address("remote_memory");
        let why = format!("`{address}` is {times}, but should be 1 to 100");
        return Err(Error::at(&node.at, why).label("no other node's memory is nearer"));
    }
    let ppm = (times * f64::from(FULL_SPEED)).round() as u32;
    Ok(if ppm == FULL_SPEED { 0 } else { ppm })
}

/// `pmu` and `pmu_noise`.
fn pmu(host: &Section<'_>) -> Result<Option<u32>> {
    const MOST: u32 = FULL_SPEED / 5;
    let there = host.boolean("pmu")?.unwrap_or(false);
    let noise = host.text("pmu_noise", quantity::percent_ppm)?;
    if let Some((ppm, at)) = &noise
        && *ppm > MOST
    {
        let why = format!("`{}` should be 0% to 20%", host.address("pmu_noise"));
        return Err(Error::at(at, why));
    }
    Ok(there.then(|| noise.map_or(30_000, |(ppm, _)| ppm)))
}

/// `cache = "none"`.
fn no_cache(host: &Section<'_>) -> Result<bool> {
    match host.table.get("cache").map(|e| &e.node) {
        None => host.node("cache").map(|_| false),
        Some(node) => match &node.value {
            Value::Str(text) if text == "none" => host.node("cache").map(|_| true),
            Value::Str(text) => Err(Error::at(
                &node.at,
                format!(
                    "`host.cache` is \"none\" or a table, not `{}`",
                    text.escape_debug()
                ),
            )),
            _ => Ok(false),
        },
    }
}

/// Full speed in parts per million.
const FULL_SPEED: u32 = 1_000_000;

/// `100%`, or a list of `COUNT x PERCENT` for all cores.
fn speeds(host: &Section<'_>, cores: u32) -> Result<Vec<CoreKind>> {
    let Some(node) = host.node("speed")? else {
        return Ok(Vec::new());
    };
    if let Some(kind) = host.table.get("kind")
        && host.table.get("speed").is_some()
    {
        let why = "the host has both `host.speed` and kinds of cores";
        return Err(Error::at(&kind.key_at, why).label("say the speed in each [host.kind.NAME]"));
    }
    let one = |text: &str, at: &At| -> Result<u32> {
        let ppm = quantity::percent_ppm(text).map_err(|e| Error::at(at, e))?;
        core_speed(ppm, at)
    };
    let all = match &node.value {
        Value::Str(text) => vec![one(text, &node.at)?; cores as usize],
        Value::Array(_) => {
            let mut all = Vec::new();
            for (text, at) in host.strings_of("speed", &node)? {
                let (count, speed) = text.split_once('x').unwrap_or(("1", &text));
                let Ok(count @ 1..=MOST_CPUS) = count.trim().parse::<u32>() else {
                    let why = format!(
                        "`{}` should be COUNT x PERCENT, e.g. \"4 x 100%\"",
                        text.escape_debug()
                    );
                    return Err(Error::at(&at, why));
                };
                all.extend(std::iter::repeat_n(one(speed, &at)?, count as usize));
            }
            all
        }
        _ => return Err(host.wrong_type("speed", &node)),
    };
    if all.len() != cores as usize {
        let why = format!(
            "`host.speed` is about {} cores, but the host has {cores}",
            all.len()
        );
        return Err(Error::at(&node.at, why));
    }
    let kinds = CoreKind::by_speed(&all);
    comparable(&kinds, &node.at)?;
    Ok(kinds)
}

/// No core is more than a hundred times as fast as another.
fn comparable(kinds: &[CoreKind], at: &At) -> Result<()> {
    const MOST_TIMES: u64 = 100;
    let works = |k: &CoreKind| u64::from(k.speed_ppm) * u64::from(k.frequency_ppm);
    let (least, most) = (kinds.iter().map(works).min(), kinds.iter().map(works).max());
    match (least, most) {
        (Some(least), Some(most)) if most > MOST_TIMES * least => {
            let times = most as f64 / least.max(1) as f64;
            let why = format!(
                "the fastest core is {times:.0} times as fast as the slowest, {MOST_TIMES} times at most can be"
            );
            Err(Error::at(at, why))
        }
        _ => Ok(()),
    }
}

fn core_speed(ppm: u32, at: &At) -> Result<u32> {
    if (FULL_SPEED / 100..=10 * FULL_SPEED).contains(&ppm) {
        return Ok(ppm);
    }
    let percent = f64::from(ppm) / 1e4;
    let why = format!("a core's speed should be 1% to 1000%, not {percent}%");
    Err(Error::at(at, why))
}

/// Which cores a kind asks for.
enum Cores {
    Count(u32),
    These(Vec<u32>),
}

/// `[host.kind.NAME]`, each core in one of them.
fn kinds_of_cores(host: &Section<'_>, packages: u32, cores: u32) -> Result<Vec<CoreKind>> {
    let mut kinds: Vec<(CoreKind, Cores, At)> = Vec::new();
    let mut said_llcs = Vec::new();
    for (name, entry) in host.named("kind", &keys::KIND)? {
        let section = host.open_named("kind", &keys::KIND, entry)?;
        let (asked, at) = cores_of_kind(&section, cores)?;
        let speed = section.text("speed", quantity::percent_ppm)?;
        let speed_ppm = speed.map_or(Ok(FULL_SPEED), |(ppm, at)| core_speed(ppm, &at))?;
        let frequency_ppm = match section.text("frequency", quantity::percent_ppm)? {
            Some((ppm, at)) if !(FULL_SPEED / 100..=FULL_SPEED).contains(&ppm) => {
                let why = format!("`{}` should be 1% to 100%", section.address("frequency"));
                return Err(
                    Error::at(&at, why).label("what is faster than others has more `speed`")
                );
            }
            said => said.map_or(FULL_SPEED, |(ppm, _)| ppm),
        };
        let steps_khz = frequency_steps(&section)?;
        let smt_ppm = smt_speed(&section)?.unwrap_or(0);
        let llcs = section.integer("llcs", 1, MOST_CPUS.into(), "")?;
        if host.table.get("llcs").is_some()
            && let Some(said) = section.table.get("llcs")
        {
            let why = "the host has both `host.llcs` and kinds with caches of their own";
            return Err(Error::at(&said.key_at, why)
                .label("leave out host.llcs: kinds that do not say share one in each package"));
        }
        let kind = CoreKind {
            name,
            cores: Vec::new(),
            speed_ppm,
            frequency_ppm,
            smt_ppm,
            llcs: llcs.as_ref().map_or(0, |(n, _)| *n as u32),
            steps_khz,
        };
        kinds.push((kind, asked, at));
        said_llcs.push(llcs.map(|(_, at)| at));
    }
    let mut of: Vec<Option<usize>> = vec![None; cores as usize];
    for (i, (kind, asked, at)) in kinds.iter().enumerate() {
        let Cores::These(list) = asked else { continue };
        for core in list {
            if let Some(other) = of[*core as usize].replace(i) {
                let (other, own) = (&kinds[other].0.name, &kind.name);
                let why = format!("core {core} is of kind `{other}` and of kind `{own}`");
                return Err(Error::at(at, why).label("each core is of one kind"));
            }
        }
    }
    for (i, (_, asked, at)) in kinds.iter().enumerate() {
        let Cores::Count(count) = asked else { continue };
        for left in (1..=*count).rev() {
            let Some(free) = of.iter_mut().find(|k| k.is_none()) else {
                let why = format!("the host has {cores} cores, {left} too few for this kind");
                return Err(
                    Error::at(at, why).label("more host.cores (per package), or fewer of a kind")
                );
            };
            *free = Some(i);
        }
    }
    if let Some(core) = of.iter().position(Option::is_none) {
        let nr = of.iter().filter(|k| k.is_none()).count();
        let why =
            format!("{nr} of the host's {cores} cores are of no kind, the first is core {core}");
        let at = host.table.get("cores").map_or(&host.at, |e| &e.node.at);
        return Err(Error::at(at, why).label("host.cores should be as many as the kinds have"));
    }
    let mut kinds: Vec<CoreKind> = kinds.into_iter().map(|(kind, ..)| kind).collect();
    for (core, kind) in (0..).zip(of.into_iter().flatten()) {
        kinds[kind].cores.push(core);
    }
    for (kind, at) in kinds.iter().zip(said_llcs) {
        let Some(at) = at else { continue };
        caches_of_kind(kind, packages, cores).map_err(|why| Error::at(&at, why))?;
    }
    let at = host.table.get("kind").map_or(&host.at, |e| &e.key_at);
    comparable(&kinds, at)?;
    Ok(kinds)
}

/// `steps` of a kind, ascending.
fn frequency_steps(kind: &Section<'_>) -> Result<Vec<u32>> {
    const MOST_STEPS: usize = 64;
    let Some(list) = kind.strings("steps")? else {
        return Ok(Vec::new());
    };
    let said = kind.table.get("steps");
    let at = said.map_or(&kind.at, |e| &e.node.at);
    if kind.table.get("frequency").is_some() {
        let why = format!(
            "kind `{}` has both `frequency` and `steps`",
            kind.path.rsplit('.').next().unwrap_or("")
        );
        return Err(Error::at(said.map_or(at, |e| &e.key_at), why)
            .label("with steps it runs at the highest, or at the one that a policy asks for"));
    }
    let address = kind.address("steps");
    if list.is_empty() || list.len() > MOST_STEPS {
        let why = format!("`{address}` should have 1 to {MOST_STEPS} frequencies");
        return Err(Error::at(at, why));
    }
    let mut steps: Vec<(u32, At)> = Vec::new();
    for (text, at) in list {
        let khz =
            quantity::kilohertz(&text).map_err(|e| Error::at(&at, format!("`{address}`: {e}")))?;
        if steps.iter().any(|(other, _)| *other == khz) {
            return Err(Error::at(
                &at,
                format!("`{address}` has this frequency twice"),
            ));
        }
        steps.push((khz, at));
    }
    steps.sort_by_key(|(khz, _)| *khz);
    let highest = steps.last().map_or(0, |(khz, _)| u64::from(*khz));
    if let Some((_, at)) = steps
        .first()
        .filter(|(khz, _)| u64::from(*khz) * 100 < highest)
    {
        let why = format!("`{address}` should not go below 1% of its highest frequency");
        return Err(Error::at(at, why));
    }
    Ok(steps.into_iter().map(|(khz, _)| khz).collect())
}

/// What is wrong with a kind's last-level caches on a host with so many cores in so many packages.
fn caches_of_kind(kind: &CoreKind, packages: u32, cores: u32) -> std::result::Result<(), String> {
    let (has, llcs) = (kind.cores.len(), kind.llcs as usize);
    if !has.is_multiple_of(llcs) {
        return Err(format!(
            "{has} cores cannot be spread evenly over {llcs} last-level caches"
        ));
    }
    let per_package = (cores / packages.max(1)).max(1);
    for group in kind.cores.chunks(has / llcs) {
        if let Some(pair) = group
            .windows(2)
            .find(|c| c[0] / per_package != c[1] / per_package)
        {
            let (a, b) = (pair[0], pair[1]);
            return Err(format!(
                "a last-level cache would be of two packages: cores {a} and {b}"
            ));
        }
    }
    Ok(())
}

fn cores_of_kind(kind: &Section<'_>, cores: u32) -> Result<(Cores, At)> {
    let Some(node) = kind.node("cores")? else {
        return Ok((Cores::Count(0), kind.at.clone()));
    };
    let asked = match &node.value {
        Value::Int(count) => (1..=i64::from(cores))
            .contains(count)
            .then_some(Cores::Count(*count as u32)),
        Value::Str(text) => cpu_list(text, cores).ok().flatten().map(Cores::These),
        _ => return Err(kind.wrong_type("cores", &node)),
    };
    match asked {
        Some(asked) => Ok((asked, node.at)),
        None => {
            let address = kind.address("cores");
            let why = format!(
                "`{address}` is {}, but the host has {cores} cores",
                node.value.to_toml()
            );
            let last = cores.saturating_sub(1);
            let label = format!(
                "a count of 1 to {cores}, or a list of cores from 0 to {last} such as \"0-1,6\""
            );
            Err(Error::at(&node.at, why).label(label))
        }
    }
}

fn cache(section: &Section<'_>) -> Result<Cache> {
    let size = |key: &str| section.bytes(key);
    let rate = |key: &str| -> Result<u64> {
        let said = section.text(key, quantity::bits_per_second)?;
        let mb_s = said.as_ref().map_or(0, |(bits, _)| bits / 8_000_000);
        match said {
            Some((_, at)) if mb_s == 0 => {
                let why = format!("`{}` should be at least 1MB/s", section.address(key));
                Err(Error::at(&at, why))
            }
            _ => Ok(mb_s),
        }
    };
    Ok(Cache {
        core_bytes: size("core")?,
        llc_bytes: size("llc")?,
        from_llc: rate("from_llc")?,
        from_memory: rate("from_memory")?,
        from_other_node: rate("from_other_node")?,
        working_set: size("working_set")?,
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
