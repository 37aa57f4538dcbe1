// SPDX-License-Identifier: GPL-2.0-only
//! Schedulers of others: their objects as their own loaders would hand them to a kernel. What the loaders of the scx
//! project's schedulers set is in `foreign.toml`.
use crate::error::Failure;
use crate::policies;
use berth_policy::compile::{self, CompileOptions};
use berth_policy::error::LoadError;
use berth_policy::loader::{self, Setup};
use berth_policy::scx_headers;
use berth_scenario::model::{Host, Loader};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What loaders ask of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub smt: bool,
    pub nodes: u32,
    /// Of each CPU, 1 to 1024.
    pub capacities: Vec<u32>,
    /// Major and minor version.
    pub kernel: (u16, u16),
}

/// The largest capacity, as the kernel has it.
const CAPACITY: u64 = 1024;

impl Machine {
    /// A host of a scenario.
    pub fn host(host: &Host) -> Machine {
        let speed = |core: u32| {
            let mut kinds = host.cost.kinds.iter();
            kinds
                .find(|k| k.cores.contains(&core))
                .map_or(1_000_000, |k| k.speed_ppm)
        };
        let speeds: Vec<u32> = (0..host.nr_cpus())
            .map(|cpu| speed(cpu / host.threads.max(1)))
            .collect();
        let fastest = u64::from(speeds.iter().copied().max().unwrap_or(1).max(1));
        let capacity = |speed: &u32| (u64::from(*speed) * CAPACITY / fastest).max(1) as u32;
        Machine {
            smt: host.threads > 1,
            nodes: host.nodes,
            capacities: speeds.iter().map(capacity).collect(),
            kernel: version(&host.kernel),
        }
    }

    /// The machine that this runs on.
    pub fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let last = |list: &str| {
            let last = list.trim().rsplit([',', '-']).next();
            last.and_then(|n| n.parse::<u32>().ok())
                .map_or(1, |n| n + 1)
        };
        let cpus = last(&read("/sys/devices/system/cpu/possible"));
        let capacity = |cpu| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
            read(&path).trim().parse().unwrap_or(CAPACITY as u32)
        };
        Machine {
            smt: read("/sys/devices/system/cpu/smt/active").trim() == "1",
            nodes: last(&read("/sys/devices/system/node/online")),
            capacities: (0..cpus).map(capacity).collect(),
            kernel: version(&read("/proc/sys/kernel/osrelease")),
        }
    }

    /// CPUs all alike.
    pub fn even(cpus: u32, kernel: &str) -> Machine {
        Machine {
            smt: false,
            nodes: 1,
            capacities: vec![CAPACITY as u32; cpus as usize],
            kernel: version(kernel),
        }
    }

    /// A value of the table for this machine.
    fn value(&self, value: &Value) -> Option<String> {
        let list = |numbers: Vec<u32>| {
            let words: Vec<_> = numbers.iter().map(u32::to_string).collect();
            words.join(",")
        };
        Some(match value {
            Value::Truth(truth) => truth.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Word(word) => match word.as_str() {
                "cpus" => self.capacities.len().to_string(),
                "nodes" => self.nodes.to_string(),
                "smt" => self.smt.to_string(),
                "several nodes" => (self.nodes > 1).to_string(),
                "one node" => (self.nodes <= 1).to_string(),
                "all alike" => self.capacities.windows(2).all(|w| w[0] == w[1]).to_string(),
                // CPUs in pairs, the first half with the second.
                "pair cpus" | "pair ids" | "pair places" => {
                    let cpus = self.capacities.len() as u32;
                    let half = cpus / 2;
                    let of = |cpu: u32| match word.as_str() {
                        "pair cpus" => (cpu + half) % cpus,
                        "pair ids" => cpu % half,
                        _ => cpu / half,
                    };
                    let even = cpus > 0 && cpus.is_multiple_of(2);
                    return even.then(|| list((0..cpus).map(of).collect()));
                }
                "capacities" => list(self.capacities.clone()),
                "fastest first" => {
                    let mut cpus: Vec<u32> = (0..self.capacities.len() as u32).collect();
                    cpus.sort_by_key(|cpu| std::cmp::Reverse(self.capacities[*cpu as usize]));
                    list(cpus)
                }
                _ => return None,
            },
        })
    }
}

/// Major and minor of a kernel line; the newest that Berth has if it is none.
fn version(kernel: &str) -> (u16, u16) {
    let mut parts = kernel.split('.').map_while(|part| part.parse().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => (major, minor),
        _ => berth_policy::profile::KernelProfile::default().version,
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Truth(bool),
    Number(i64),
    /// Something of the machine.
    Word(String),
}

/// What a loader does with its default options.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    /// Package and version.
    loader: String,
    /// None: those of the object.
    ops_flags: Option<Vec<String>>,
    /// On machines with several NUMA nodes.
    #[serde(default)]
    ops_flags_numa: Vec<String>,
    /// All variables of this version, or (`some`) only those that the loader changes, in any version.
    rodata: BTreeMap<String, Value>,
    #[serde(default)]
    some: bool,
    /// Variables of older versions.
    #[serde(default)]
    older: BTreeMap<String, Value>,
    /// What it does besides, and Berth does not.
    besides: Option<String>,
    /// The same on machines with SMT.
    besides_smt: Option<String>,
}

impl Known {
    /// Whether an object with these variables is of this version: it has those of the table and, where the table has
    /// all, no others.
    fn is_of(&self, there: &[(String, String)]) -> bool {
        let has = |name: &String| there.iter().any(|(n, _)| n == name);
        let known = |name: &str| of_exit(name) || self.rodata.contains_key(name);
        self.some || self.rodata.keys().all(has) && there.iter().all(|(name, _)| known(name))
    }
}

/// What the macros of the scx project's headers keep of how a scheduler ended: nobody's to set.
fn of_exit(name: &str) -> bool {
    name.starts_with("uei_") || name.starts_with("__COMPAT_")
}

/// The headers that a source was written for, where the package around it says so.
fn headers_of(policy: &str) -> Option<(String, String)> {
    let source = std::fs::canonicalize(policy).ok()?;
    let mut around = source.ancestors().skip(1).take(4);
    let text = around.find_map(|f| std::fs::read_to_string(f.join("Cargo.toml")).ok())?;
    let manifest: toml_edit::DocumentMut = text.parse().ok()?;
    let version = |package: &str| {
        let tables = ["build-dependencies", "dependencies"];
        tables.into_iter().find_map(|table| {
            let entry = manifest.get(table)?.get(package)?;
            let version = entry.as_str().or_else(|| entry.get("version")?.as_str())?;
            let version = version.trim_start_matches(['=', '^', '~', ' ']).to_string();
            let whole = version.split('.').count() == 3;
            whole.then(|| (package.to_string(), version))
        })
    };
    ["scx_cargo", "scx_utils"].into_iter().find_map(version)
}

/// Loaders by their scheduler's name (`ops.name`).
fn table() -> &'static BTreeMap<String, Known> {
    static TABLE: OnceLock<BTreeMap<String, Known>> = OnceLock::new();
    TABLE.get_or_init(|| toml_edit::de::from_str(include_str!("foreign.toml")).unwrap_or_default())
}

/// A scheduler's object, ready for a kernel, and what should be known of it.
#[derive(Clone, Debug)]
pub struct Ready {
    pub object: Vec<u8>,
    pub notes: Vec<String>,
}

/// No scheduler is larger.
const MOST_BYTES: u64 = 64 << 20;

/// The compiled object of a policy in a file.
///
/// # Errors
/// There is no such file, it does not compile, or there are no such headers.
pub fn object(policy: &str, loader: &Loader) -> Result<Vec<u8>, Failure> {
    let path = Path::new(policy);
    let wrong = |e: LoadError| policies::wrong(policy, &e);
    // A pipe would be waited for, and a device has no end.
    if let Ok(there) = std::fs::metadata(path)
        && !(there.is_file() && there.len() <= MOST_BYTES)
    {
        return Err(Failure::Input(format!(
            "{policy}: {}",
            match there.is_file() {
                true => "too large for a scheduler: more than 64 MiB",
                false => "not a file",
            }
        )));
    }
    if policy.ends_with(".o") {
        return std::fs::read(path)
            .map_err(|e| Failure::Input(format!("cannot read {policy}: {e}")));
    }
    let compiled = compile::compile(path, &options(loader).map_err(wrong)?);
    compiled.map_err(|e| match (wrong(e), &loader.headers, headers_of(policy)) {
        (Failure::Input(said), None, Some((package, version))) => Failure::Input(format!(
            "{said}\n  The package around it has {package} {version}: try --headers {version}"
        )),
        (said, ..) => said,
    })
}

/// How a source is compiled.
///
/// # Errors
/// There are no such headers.
pub fn options(loader: &Loader) -> Result<CompileOptions, LoadError> {
    // A compiler says nothing of folders that are not there.
    if let Some(folder) = loader.include.iter().find(|f| !Path::new(f).is_dir()) {
        let why = format!("headers are to be looked for in `{folder}`, which is no folder");
        return Err(LoadError::Setting(why));
    }
    Ok(CompileOptions {
        include: loader.include.iter().map(PathBuf::from).collect(),
        scx: loader
            .headers
            .as_deref()
            .map(scx_headers::of_version)
            .transpose()?,
        ..CompileOptions::default()
    })
}

/// The object of a policy in a file as its loader would hand it to a kernel on this machine. What was asked for wins
/// over what the loader is known to set.
///
/// # Errors
/// As [`object`]; there is no such variable, flag or array, or it cannot have that value.
pub fn ready(policy: &str, asked: &Loader, machine: &Machine) -> Result<Ready, Failure> {
    let object = object(policy, asked)?;
    let known = loader::scheduler(&object);
    let known = known.and_then(|name| table().get(&name));
    let mut setup = Setup {
        values: BTreeMap::new(),
        ops_flags: asked.ops_flags.clone(),
        resize: asked.resize.clone(),
        cpus: machine.capacities.len() as u32,
        kernel: machine.kernel,
    };
    let mut notes = Vec::new();
    let none = Loader::default();
    // A scheduler that declares parameters is one of Berth's, or made for it.
    let unset = |setup: &Setup| loader::ready(&object, setup).map(|r| r.unset);
    let there = unset(&Setup {
        ops_flags: None,
        resize: BTreeMap::new(),
        ..setup.clone()
    });
    let there = there.map_err(|e| policies::wrong(policy, &e))?;
    if let Some(known) = known {
        let this = known.is_of(&there);
        let all = known.rodata.iter().chain(&known.older);
        let mine = |(name, value): &(&String, &Value)| {
            let asked_of_machine = matches!(value, Value::Word(_));
            (this || asked_of_machine) && there.iter().any(|(n, _)| n == *name)
        };
        for (name, value) in all.filter(mine) {
            if let Some(value) = machine.value(value) {
                setup.values.insert(name.clone(), value);
            }
        }
        if let (None, Some(flags)) = (&setup.ops_flags, &known.ops_flags) {
            let numa = known.ops_flags_numa.iter().filter(|_| machine.nodes > 1);
            let all = loader::flags(machine.kernel);
            let flags = flags.iter().chain(numa);
            // As a loader does: flags that this kernel lacks are left out.
            let flags: Vec<_> = flags
                .filter(|f| all.contains(&f.as_str()))
                .cloned()
                .collect();
            setup.ops_flags = Some(flags);
        }
        let changed = if *asked == none {
            ""
        } else {
            "; what you set wins"
        };
        let smt = known.besides_smt.iter().filter(|_| machine.smt);
        let besides: String = known
            .besides
            .iter()
            .chain(smt)
            .map(|b| format!("; not done: {b}"))
            .collect();
        notes.push(match this {
            true => format!(
                "policy {policy}: variables and flags are as {} sets them by default{changed}{besides}",
                known.loader
            ),
            false => format!(
                "policy {policy}: of another version than {}: flags, and what its loader asks of the machine, are as \
                 there{changed}{besides}",
                known.loader
            ),
        });
    }
    setup.values.extend(asked.rodata.clone());
    let ready = loader::ready(&object, &setup).map_err(|e| policies::wrong(policy, &e))?;
    let unset: Vec<_> = ready.unset.iter().filter(|(n, _)| !of_exit(n)).collect();
    if !unset.is_empty() {
        let words: Vec<_> = unset.iter().map(|(n, v)| format!("{n} = {v}")).collect();
        notes.push(format!(
            "policy {policy}: as compiled, though its own loader may set them (--rodata NAME=VALUE): {}",
            words.join(", ")
        ));
    }
    let resized: Vec<_> = ready.resized.iter().filter(|(n, _)| !of_exit(n)).collect();
    if !resized.is_empty() {
        let words: Vec<_> = resized.iter().map(|(n, c)| format!("{n} to {c}")).collect();
        notes.push(format!(
            "policy {policy}: arrays resized, as its loader would: {}",
            words.join(", ")
        ));
    }
    Ok(Ready {
        object: ready.object,
        notes,
    })
}

/// Files whose names say nothing of the scheduler: what the scx project's build calls them.
fn says_nothing(policy: &str) -> bool {
    let file = policy.rsplit('/').next().unwrap_or(policy);
    let stem = file
        .strip_suffix(".bpf.c")
        .or_else(|| file.strip_suffix(".bpf.o"));
    matches!(stem, Some("main" | "bpf"))
}

/// The name that the arm of a policy gets from its scheduler, where the file's says nothing. One that cannot be read
/// keeps the file's: what is wrong with it is said when it is loaded.
pub fn arm_name(policy: &str, asked: &Loader) -> Option<String> {
    if !says_nothing(policy) {
        return None;
    }
    let name = loader::scheduler(&object(policy, asked).ok()?)?;
    Some(berth_scenario::edit::arm_name(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        let table = table();
        assert!(table.len() >= 5, "{}", table.len());
        let mut host = Host::default();
        let machine = Machine::host(&host);
        for (name, known) in table {
            assert!(known.loader.starts_with(&format!("scx_{name} ")), "{name}");
            for (variable, value) in known.rodata.iter().chain(&known.older) {
                assert!(machine.value(value).is_some(), "{name}.{variable}");
            }
            let flags = known
                .ops_flags
                .iter()
                .flatten()
                .chain(&known.ops_flags_numa);
            let all = loader::flags((7, 2));
            flags.for_each(|flag| assert!(all.contains(&flag.as_str()), "{name}: {flag}"));
        }
        let word = |word: &str| Value::Word(word.into());
        let four = Machine::even(4, "7.2");
        let pairs = ["pair cpus", "pair ids", "pair places"];
        let pairs = pairs.map(|pair| four.value(&word(pair)).unwrap());
        assert_eq!(pairs, ["2,3,0,1", "0,1,0,1", "0,0,1,1"]);
        assert_eq!(Machine::even(3, "7.2").value(&word("pair cpus")), None);
        host.nodes = 2;
        host.packages = 2;
        let two = Machine::host(&host);
        assert_eq!(
            two.value(&Value::Word("several nodes".into())).unwrap(),
            "true"
        );
        assert_eq!(
            two.value(&Value::Word("fastest first".into())).unwrap(),
            "0,1,2,3,4,5,6,7"
        );
    }

    #[test]
    fn only_names_that_say_nothing() {
        assert!(says_nothing("a/main.bpf.o") && says_nothing("bpf.bpf.c"));
        assert!(!says_nothing("domain.bpf.o") && !says_nothing("main"));
    }
}
