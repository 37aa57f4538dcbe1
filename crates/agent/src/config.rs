// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's configuration: a TOML file. What is wrong with it is said with file, line and key.
//!
//! ```toml
//! mode = "act"                # default "observe": nothing is scheduled
//! policy = "vmfair"           # a shipped policy, a .bpf.c or .bpf.o file, or "optimiser"
//! backend = "auto"            # default "scx"; "auto": the optimiser where the policy cannot act, or was ended;
//!                             # "cgroup": the optimiser, on any kernel
//! only = ["web*"]             # only these VMs have a class; the others get their share
//! stall_ms = 500              # how long a thread may be starved before the policy is unloaded; 0: never looked at
//! socket_group = "berth"      # who besides the agent's user may ask what it does (default: "berth" if there is one)
//! socket_mode = "0660"
//!
//! [set]                       # parameters of the policy
//! slice_us = 2000
//!
//! [[vm]]                      # what is known of VMs beforehand; the first that fits counts
//! name = "web*"
//! class = "latency"
//! score = 1.75                # amp: how much faster on a fast core than on a slow one; [1.9, 1.2] for each vCPU
//!
//! [[promise]]                 # what the optimiser keeps; the first that fits counts
//! name = "web*"
//! service = "target"          # or "normal" (default), "best-effort"
//! guarantee = 0.95            # CPUs that it gets whenever it wants them
//! limit = 2.0                 # CPUs that it gets at most
//!
//! [[pin]]                     # VMs that are pinned when they appear, as by `berth pin`; the first that fits counts
//! name = "web*"
//! policy = "full"             # default "auto"; or "l2", "paper", "none"
//! method = "taskset"          # default "auto"; or "cgroup"
//! cpu = 2                     # the CPU of its first vCPU; default: chosen
//! isolated = true             # isolated CPUs may be taken; default false
//! smt = true                  # the path may be on the other thread of a vCPU's core; default false
//! ```
use crate::backend::Way;
use crate::backend::cgroup::OPTIMISER;
use crate::door::Access;
use crate::pins::standing::PinRule;
use crate::pins::{Method, Pinning};
use crate::rules::{Gains, Promised, Rule, Rules};
use crate::tripwire::LIMIT;
use berth_affinity::{Ask, Policy};
use berth_identity::Class;
use berth_optimiser::{CpuSet, Promise, Service};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;
use toml_edit::{Document, Item, Table, Value};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Observe,
    Act,
}

/// Which policy, as an operator names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub policy: String,
    pub preset: Option<String>,
    /// Parameters as written.
    pub set: BTreeMap<String, String>,
    /// Only the named VMs' threads are given to it; the rest stays with the kernel's own scheduler.
    pub partial: bool,
    pub backend: Way,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub mode: Mode,
    /// If the mode is to act there is one, or there are pins.
    pub choice: Option<Choice>,
    pub rules: Rules,
    /// VMs that are pinned when they appear.
    pub pins: Vec<PinRule>,
    /// None: stalls are not looked for.
    pub stall: Option<Duration>,
    /// Who may connect to its socket.
    pub access: Access,
    /// Line of each key that only the policy or the machine can judge: `policy`, `preset`, `set.slice_us`, `pin.0.cpu`.
    pub lines: BTreeMap<String, usize>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mode: Mode::Observe,
            choice: None,
            rules: Rules::default(),
            pins: Vec::new(),
            stall: Some(LIMIT),
            access: USUAL.clone(),
            lines: BTreeMap::new(),
        }
    }
}

/// Something is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {}{what}", file.display(), shown(line), key.as_ref().map_or(String::new(), |k| format!("{k}: ")))]
pub struct ConfigError {
    pub file: PathBuf,
    /// From 1; none if the file cannot be read at all.
    pub line: Option<usize>,
    pub key: Option<String>,
    pub what: String,
}

fn shown(line: &Option<usize>) -> String {
    line.map_or(String::new(), |line| format!(":{line}"))
}

const KEYS: [&str; 13] = [
    "mode",
    "policy",
    "backend",
    "preset",
    "only",
    "partial",
    "stall_ms",
    "socket_mode",
    "socket_group",
    "set",
    "vm",
    "promise",
    "pin",
];
const PIN_KEYS: [&str; 6] = ["name", "policy", "method", "cpu", "isolated", "smt"];
const PROMISE_KEYS: [&str; 4] = ["name", "service", "guarantee", "limit"];
const VM_KEYS: [&str; 4] = ["name", "class", "io_vcpus", "score"];
/// Longest stall that makes sense: the kernel's own watchdog comes then.
const STALL_MS: std::ops::RangeInclusive<i64> = 0..=30_000;

/// Reads the file.
///
/// # Errors
/// The first thing that is wrong.
pub fn read(file: &Path) -> Result<Config, ConfigError> {
    let wrong = |line, what| ConfigError {
        file: file.into(),
        line,
        key: None,
        what,
    };
    let bytes = std::fs::read(file).map_err(|e| wrong(None, format!("cannot be read: {e}")))?;
    let text = std::str::from_utf8(&bytes).map_err(|e| {
        let before = &bytes[..e.valid_up_to()];
        wrong(Some(line_after(before)), "is not UTF-8 text".into())
    })?;
    parse(file, text)
}

/// The line in which what follows these bytes is.
fn line_after(before: &[u8]) -> usize {
    before.iter().filter(|b| **b == b'\n').count() + 1
}

impl Config {
    /// Finds out by `works` whether there is such a policy, and whether it takes the parameters.
    ///
    /// # Errors
    /// The first key that is wrong.
    pub fn check(
        &self,
        file: &Path,
        works: &dyn Fn(&Choice) -> Result<(), String>,
    ) -> Result<(), ConfigError> {
        let Some(choice) = &self.choice else {
            return Ok(());
        };
        let Err(why) = works(choice) else {
            return Ok(());
        };
        let wrong = |key: &str, what: String| ConfigError {
            file: file.into(),
            line: self.lines.get(key).copied(),
            key: Some(key.into()),
            what,
        };
        let with = |preset: Option<String>, set: BTreeMap<String, String>| {
            let choice = Choice {
                preset,
                set,
                ..choice.clone()
            };
            works(&choice).err()
        };
        if let Some(what) = with(None, BTreeMap::new()) {
            return Err(wrong("policy", what));
        }
        if let Some(what) = with(choice.preset.clone(), BTreeMap::new()) {
            return Err(wrong("preset", what));
        }
        for (name, value) in &choice.set {
            let one = [(name.clone(), value.clone())].into();
            if let Some(what) = with(choice.preset.clone(), one) {
                return Err(wrong(&format!("set.{name}"), what));
            }
        }
        // Only all of them together are wrong.
        Err(wrong("policy", why))
    }

    /// Finds out whether the machine has the CPUs that are named; those that are offline may come. None: not known.
    ///
    /// # Errors
    /// The first CPU that there is not.
    pub fn check_cpus(&self, file: &Path, possible: Option<&CpuSet>) -> Result<(), ConfigError> {
        let Some(possible) = possible else {
            return Ok(());
        };
        let strange = |(at, rule): (usize, &PinRule)| {
            let cpu = rule.pinning.ask.cpu.filter(|cpu| !possible.has(*cpu))?;
            Some(ConfigError {
                file: file.into(),
                line: self.lines.get(&format!("pin.{at}.cpu")).copied(),
                key: Some("pin.cpu".into()),
                what: format!("there is no CPU {cpu} on this machine; it has {possible}"),
            })
        };
        match self.pins.iter().enumerate().find_map(strange) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Reads a text; `file` is for errors.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
    let reader = Reader { file, text };
    let document = Document::parse(text).map_err(|e| {
        let at = e.span().map_or(0, |s| s.start);
        reader.wrong(at, None, e.message().trim().replace('\n', "; "))
    })?;
    reader.config(document.as_table())
}

/// Looked up once: who keeps the groups may be far away.
static USUAL: LazyLock<Access> =
    LazyLock::new(|| usual(rustix::process::geteuid().is_root(), &group));

/// Who may connect if nobody says it: root's agent lets in the group that is made for it, any other only its own.
fn usual(is_root: bool, group: &dyn Fn(&str) -> Option<u32>) -> Access {
    Access {
        group: is_root.then(|| group("berth")).flatten(),
        group_if_possible: true,
        ..Access::default()
    }
}

/// The number of a group.
fn group(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    let mut buffer = vec![0; 64 << 10];
    // SAFETY: places for the answer that outlive the call; all zeroes are such a structure.
    unsafe {
        let mut found: libc::group = std::mem::zeroed();
        let mut result = std::ptr::null_mut();
        libc::getgrnam_r(
            name.as_ptr(),
            &raw mut found,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut result,
        );
        (!result.is_null()).then_some(found.gr_gid)
    }
}

struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
}

type Read<T> = Result<T, ConfigError>;

impl Reader<'_> {
    fn wrong(&self, at: usize, key: Option<&str>, what: impl Into<String>) -> ConfigError {
        ConfigError {
            file: self.file.into(),
            line: Some(self.line(at)),
            key: key.map(String::from),
            what: what.into(),
        }
    }

    fn line(&self, at: usize) -> usize {
        // What is missing at the end is missing in the last line, not in one that is not there.
        let text = self.text.trim_end_matches('\n').as_bytes();
        line_after(text.get(..at).unwrap_or(text))
    }

    fn config(&self, table: &Table) -> Read<Config> {
        self.known(table, &KEYS, "")?;
        let mut config = Config::default();
        let mut act_at = 0;
        if let Some((mode, at)) = self.string(table, "mode")? {
            act_at = at;
            config.mode = match mode.as_str() {
                "observe" => Mode::Observe,
                "act" => Mode::Act,
                _ => return Err(self.wrong(at, Some("mode"), "\"observe\" or \"act\"")),
            };
        }
        let mut choice = Choice::default();
        let policy = self.string(table, "policy")?;
        if let Some((preset, at)) = self.string(table, "preset")? {
            choice.preset = Some(preset);
            config.lines.insert("preset".into(), self.line(at));
        }
        if let Some((on, _)) = self.get(table, "partial", "true or false", |v| v.as_bool())? {
            choice.partial = on;
        }
        choice.set = self.parameters(table, &mut config.lines)?;
        let backend = self.string(table, "backend")?;
        if let Some((word, at)) = &backend {
            let wrong = || self.wrong(*at, Some("backend"), "\"scx\", \"cgroup\" or \"auto\"");
            choice.backend = Way::of(word).ok_or_else(wrong)?;
        }
        // What acts by cgroups has one name.
        let policy = match (policy, &backend) {
            (None, Some((_, at))) if choice.backend == Way::Cgroup => {
                Some((OPTIMISER.to_string(), *at))
            }
            (Some((name, at)), None) if name == OPTIMISER => {
                choice.backend = Way::Cgroup;
                Some((name, at))
            }
            (policy, _) => policy,
        };
        if let (Some((name, at)), Some(_)) = (&policy, &backend)
            && (name == OPTIMISER) != (choice.backend == Way::Cgroup)
        {
            let what = match name == OPTIMISER {
                true => "the optimiser acts by cgroups: backend = \"cgroup\", or none",
                false => "by cgroups only the optimiser acts: policy = \"optimiser\", or none",
            };
            return Err(self.wrong(*at, Some("policy"), what));
        }
        match policy {
            Some((name, at)) if name.trim().is_empty() => {
                return Err(self.wrong(at, Some("policy"), "it has no name"));
            }
            Some((name, at)) => {
                config.lines.insert("policy".into(), self.line(at));
                choice.policy = name;
                config.choice = Some(choice);
            }
            // Whoever only pins acts without.
            None if config.mode == Mode::Act && !table.contains_key("pin") => {
                return Err(self.wrong(act_at, Some("policy"), "missing: act with which?"));
            }
            None => {
                let of_a_policy = ["preset", "set", "partial", "backend"];
                if let Some((key, item)) = of_a_policy.iter().find_map(|k| table.get_key_value(k)) {
                    let at = key.span().or(item.span()).map_or(0, |s| s.start);
                    let what = "of which policy? Name it: policy = \"vmfair\"";
                    return Err(self.wrong(at, Some(key.get()), what));
                }
            }
        }
        if let Some((ms, at)) = self.get(table, "stall_ms", "a whole number", |v| v.as_integer())? {
            if !STALL_MS.contains(&ms) {
                return Err(self.wrong(at, Some("stall_ms"), "0 to 30000"));
            }
            config.stall = (ms > 0).then(|| Duration::from_millis(ms.unsigned_abs()));
        }
        config.access = self.access(table)?;
        config.rules.only = self.names(table)?;
        config.rules.vms = self
            .tables(table, "vm")?
            .map(|vm| self.vm(vm))
            .collect::<Read<_>>()?;
        for vm in self.tables(table, "vm")? {
            config.rules.scores.extend(self.scores(vm)?);
        }
        let promises = self.tables(table, "promise")?;
        config.rules.promises = promises.map(|p| self.promise(p)).collect::<Read<_>>()?;
        for pin in self.tables(table, "pin")? {
            let (rule, cpu_at) = self.pin(pin)?;
            if let Some(at) = cpu_at {
                let key = format!("pin.{}.cpu", config.pins.len());
                config.lines.insert(key, self.line(at));
            }
            config.pins.push(rule);
        }
        Ok(config)
    }

    fn known(&self, table: &Table, keys: &[&str], prefix: &str) -> Read<()> {
        for (key, item) in table {
            if !keys.contains(&key) {
                let at = table.key(key).and_then(|k| k.span()).or(item.span());
                let what = format!("there is no such key; there are {}", keys.join(", "));
                let shown = format!("{prefix}{key}");
                return Err(self.wrong(at.map_or(0, |s| s.start), Some(&shown), what));
            }
        }
        Ok(())
    }

    fn get<T>(
        &self,
        table: &Table,
        key: &str,
        wanted: &str,
        take: impl Fn(&Value) -> Option<T>,
    ) -> Read<Option<(T, usize)>> {
        let Some(item) = table.get(key) else {
            return Ok(None);
        };
        let at = item.span().map_or(0, |s| s.start);
        match item.as_value().and_then(take) {
            Some(value) => Ok(Some((value, at))),
            None => Err(self.wrong(at, Some(key), format!("{wanted}, not {}", item.type_name()))),
        }
    }

    fn string(&self, table: &Table, key: &str) -> Read<Option<(String, usize)>> {
        self.get(table, key, "a string", |v| v.as_str().map(String::from))
    }

    fn access(&self, table: &Table) -> Read<Access> {
        let mut access = Config::default().access;
        if let Some((mode, at)) = self.string(table, "socket_mode")? {
            let number = u32::from_str_radix(&mode, 8).ok();
            // Read and write permissions, the owner's among them.
            let fits = |m: &u32| m & 0o600 == 0o600 && m & !0o666 == 0;
            access.mode = number.filter(fits).ok_or_else(|| {
                self.wrong(
                    at,
                    Some("socket_mode"),
                    "permissions as chmod takes them, such as \"0660\"; 0600 to 0666",
                )
            })?;
        }
        if let Some((name, at)) = self.string(table, "socket_group")? {
            let group = group(&name);
            access.group_if_possible = false;
            access.group = Some(group.ok_or_else(|| {
                let what = format!("there is no group \"{}\"", name.escape_debug());
                self.wrong(at, Some("socket_group"), what)
            })?);
        }
        Ok(access)
    }

    fn names(&self, table: &Table) -> Read<Vec<String>> {
        let list = self.get(table, "only", "a list of names", |v| v.as_array().cloned())?;
        let Some((list, at)) = list else {
            return Ok(Vec::new());
        };
        let name = |v: &Value| match v.as_str() {
            Some(name) if !name.is_empty() => Ok(name.to_string()),
            _ => Err(self.wrong(at, Some("only"), "a list of names, such as [\"web*\"]")),
        };
        let names: Vec<String> = list.iter().map(name).collect::<Read<_>>()?;
        match names.is_empty() {
            true => Err(self.wrong(
                at,
                Some("only"),
                "names no VM; without the key it is all of them",
            )),
            false => Ok(names),
        }
    }

    fn parameters(
        &self,
        table: &Table,
        lines: &mut BTreeMap<String, usize>,
    ) -> Read<BTreeMap<String, String>> {
        let Some(item) = table.get("set") else {
            return Ok(BTreeMap::new());
        };
        let at = item.span().map_or(0, |s| s.start);
        let Some(set) = item.as_table_like() else {
            return Err(self.wrong(at, Some("set"), "a table of parameters"));
        };
        let mut all = BTreeMap::new();
        for (name, item) in set.iter() {
            let text = match item.as_value() {
                Some(Value::String(s)) => s.value().clone(),
                Some(Value::Integer(i)) => i.value().to_string(),
                Some(Value::Float(f)) => f.value().to_string(),
                Some(Value::Boolean(b)) => b.value().to_string(),
                _ => {
                    let at = item.span().map_or(at, |s| s.start);
                    return Err(self.wrong(
                        at,
                        Some(&format!("set.{name}")),
                        "a number or a string",
                    ));
                }
            };
            let at = item.span().map_or(at, |s| s.start);
            lines.insert(format!("set.{name}"), self.line(at));
            all.insert(name.to_string(), text);
        }
        Ok(all)
    }

    fn tables<'t>(&self, table: &'t Table, key: &str) -> Read<impl Iterator<Item = &'t Table>> {
        let list = match table.get(key) {
            None => None,
            Some(Item::ArrayOfTables(list)) => Some(list),
            Some(item) => {
                let at = item.span().map_or(0, |s| s.start);
                return Err(self.wrong(at, Some(key), format!("[[{key}]] tables")));
            }
        };
        Ok(list.into_iter().flat_map(|list| list.iter()))
    }

    fn promise(&self, table: &Table) -> Read<Promised> {
        self.known(table, &PROMISE_KEYS, "promise.")?;
        let start = table.span().map_or(0, |s| s.start);
        let Some((name, _)) = self.string(table, "name")? else {
            return Err(self.wrong(start, Some("promise.name"), "missing: which VMs?"));
        };
        let mut promise = Promise::default();
        if let Some((word, at)) = self.string(table, "service")? {
            let what = "\"target\", \"normal\" or \"best-effort\"";
            let wrong = || self.wrong(at, Some("promise.service"), what);
            promise.service = Service::of(&word).ok_or_else(wrong)?;
        }
        let cpus = |v: &Value| v.as_float().or(v.as_integer().map(|n| n as f64));
        if let Some((cpus, _)) = self.get(table, "guarantee", "a number of CPUs", cpus)? {
            promise.guarantee = cpus;
        }
        let limit = self.get(table, "limit", "a number of CPUs", cpus)?;
        promise.limit = limit.map(|(cpus, _)| cpus);
        // How many vCPUs it has is known when it is there.
        promise
            .check(&name, u32::MAX)
            .map_err(|e| self.wrong(start, Some("promise"), e.to_string()))?;
        Ok(Promised { name, promise })
    }

    /// And where its CPU is named.
    fn pin(&self, table: &Table) -> Read<(PinRule, Option<usize>)> {
        self.known(table, &PIN_KEYS, "pin.")?;
        let start = table.span().map_or(0, |s| s.start);
        let name = match self.string(table, "name")? {
            Some((name, at)) if name.trim().is_empty() => {
                return Err(self.wrong(at, Some("pin.name"), "it is empty: which VMs?"));
            }
            Some((name, _)) => name,
            None => return Err(self.wrong(start, Some("pin.name"), "missing: which VMs?")),
        };
        let mut pinning = Pinning::default();
        if let Some((word, at)) = self.string(table, "policy")? {
            let words = Policy::ALL.map(Policy::word).join(", ");
            let wrong = || self.wrong(at, Some("pin.policy"), format!("one of {words}"));
            pinning.ask.policy = Policy::of(&word).ok_or_else(wrong)?;
        }
        if let Some((word, at)) = self.string(table, "method")? {
            let words = Method::WORDS.join(", ");
            let wrong = || self.wrong(at, Some("pin.method"), format!("one of {words}"));
            pinning.method = Method::of(&word).ok_or_else(wrong)?;
        }
        let flag = |key: &str| self.get(table, key, "true or false", |v| v.as_bool());
        let (isolated, smt) = (flag("isolated")?, flag("smt")?);
        let cpu = self.get(table, "cpu", "the number of a CPU", |v| v.as_integer())?;
        let number = |(cpu, at): (i64, usize)| {
            u32::try_from(cpu).map_err(|_| self.wrong(at, Some("pin.cpu"), "the number of a CPU"))
        };
        pinning.ask = Ask {
            cpu: cpu.map(number).transpose()?,
            isolated: isolated.is_some_and(|(on, _)| on),
            smt: smt.is_some_and(|(on, _)| on),
            ..pinning.ask
        };
        Ok((PinRule { name, pinning }, cpu.map(|(_, at)| at)))
    }

    /// A number, or one for each vCPU.
    fn scores(&self, table: &Table) -> Read<Option<Gains>> {
        let number = |v: &Value| v.as_float().or(v.as_integer().map(|n| n as f64));
        let all = |v: &Value| match v.as_array() {
            Some(list) => list.iter().map(number).collect(),
            None => number(v).map(|one| vec![one]),
        };
        let said: Option<(Vec<f64>, usize)> =
            self.get(table, "score", "a number or a list of them", all)?;
        let (Some((scores, at)), Some((name, _))) = (said, self.string(table, "name")?) else {
            return Ok(None);
        };
        let gains = Gains::new(&name, &scores);
        gains
            .map(Some)
            .map_err(|e| self.wrong(at, Some("vm.score"), e))
    }

    fn vm(&self, table: &Table) -> Read<Rule> {
        self.known(table, &VM_KEYS, "vm.")?;
        let start = table.span().map_or(0, |s| s.start);
        let Some((name, _)) = self.string(table, "name")? else {
            return Err(self.wrong(start, Some("vm.name"), "missing: which VMs?"));
        };
        let class = self.string(table, "class")?;
        if let Some((word, at)) = &class
            && Class::of(word).is_none()
        {
            let what = "\"latency\", \"batch\", \"mixed\" or \"none\"";
            return Err(self.wrong(*at, Some("vm.class"), what));
        }
        let io_vcpus = self.get(table, "io_vcpus", "a whole number", |v| v.as_integer())?;
        let io_vcpus = match io_vcpus {
            None => 0,
            Some((n, at)) => u32::try_from(n)
                .map_err(|_| self.wrong(at, Some("vm.io_vcpus"), "a number of vCPUs"))?,
        };
        Ok(Rule {
            name,
            class: class.map(|c| c.0),
            io_vcpus,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Config, String> {
        parse(Path::new("c.toml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn ways_and_promises() {
        let text = "mode = \"act\"\nbackend = \"cgroup\"\n[[promise]]\nname = \"web*\"\nservice = \"target\"\n\
                    guarantee = 0.95\nlimit = 2\n[[promise]]\nname = \"*\"\nservice = \"best-effort\"\n";
        let config = parsed(text).unwrap();
        let choice = config.choice.unwrap();
        assert_eq!(
            (choice.policy.as_str(), choice.backend),
            ("optimiser", Way::Cgroup)
        );
        let web = config.rules.promise("web1", 300);
        assert_eq!(
            (web.service, web.guarantee, web.limit, web.weight),
            (Service::Target, 0.95, Some(2.0), 300)
        );
        assert_eq!(config.rules.promise("db", 100).service, Service::BestEffort);
        let by_name = parsed("mode = \"act\"\npolicy = \"optimiser\"\n")
            .unwrap()
            .choice
            .unwrap();
        assert_eq!(by_name.backend, Way::Cgroup);
        let auto = parsed("mode = \"act\"\npolicy = \"vmfair\"\nbackend = \"auto\"\n").unwrap();
        assert_eq!(auto.choice.unwrap().backend, Way::Auto);
        for (text, place, says) in [
            ("backend = \"x\"", "c.toml:1: backend", "\"auto\""),
            ("backend = \"auto\"", "c.toml:1: backend", "of which policy"),
            (
                "policy = \"vmfair\"\nbackend = \"cgroup\"",
                "c.toml:1: policy",
                "only the optimiser",
            ),
            (
                "policy = \"optimiser\"\nbackend = \"scx\"",
                "c.toml:1: policy",
                "acts by cgroups",
            ),
            ("promise = 1", "c.toml:1: promise", "[[promise]]"),
            (
                "[[promise]]\nservice = \"target\"",
                "c.toml:1: promise.name",
                "which VMs",
            ),
            (
                "[[promise]]\nname = \"a\"\nservice = \"x\"",
                "c.toml:3: promise.service",
                "best-effort",
            ),
            (
                "[[promise]]\nname = \"a\"\nguarantee = 2\nlimit = 1",
                "c.toml:1: promise",
                "1 below the guarantee of 2",
            ),
            (
                "[[promise]]\nname = \"a\"\nguarantee = -1",
                "c.toml:1: promise",
                "-1",
            ),
            (
                "[[promise]]\nname = \"a\"\nguarantee = nan",
                "c.toml:1: promise",
                "NaN",
            ),
            (
                "[[promise]]\nname = \"a\"\nguarantee = \"1\"",
                "c.toml:3: guarantee",
                "a number of CPUs",
            ),
            (
                "[[promise]]\nname = \"a\"\nweight = 3",
                "c.toml:3: promise.weight",
                "no such key",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(
                error.starts_with(place) && error.contains(says),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn pins_by_rule() {
        let config = parsed(
            "mode = \"act\"\n[[pin]]\nname = \"web*\"\npolicy = \"full\"\nmethod = \"taskset\"\ncpu = 3\n\
             isolated = true\n[[pin]]\nname = \"db\"\nsmt = true\n",
        )
        .unwrap();
        assert_eq!((config.mode, &config.choice), (Mode::Act, &None));
        let rule = |name: &str, ask: Ask, method| PinRule {
            name: name.into(),
            pinning: Pinning { ask, method },
        };
        let full = Ask {
            policy: Policy::Full,
            cpu: Some(3),
            isolated: true,
            smt: false,
        };
        let auto = Ask {
            smt: true,
            ..Ask::default()
        };
        assert_eq!(
            config.pins,
            [
                rule("web*", full, Method::Taskset),
                rule("db", auto, Method::Auto)
            ]
        );
        // What only the machine knows.
        let file = Path::new("c.toml");
        let cpus = |list: &str| {
            let checked = config.check_cpus(file, Some(&list.parse().unwrap()));
            checked.map_err(|e| e.to_string())
        };
        assert_eq!(cpus("0-3"), Ok(()));
        assert_eq!(config.check_cpus(file, None), Ok(()));
        assert_eq!(
            cpus("0-2,4"),
            Err("c.toml:6: pin.cpu: there is no CPU 3 on this machine; it has 0-2,4".into())
        );
    }

    #[test]
    fn pins_that_cannot_be_are_said_with_line_and_key() {
        for (text, said) in [
            ("pin = 1", "c.toml:1: pin: [[pin]] tables"),
            ("pin = []", "c.toml:1: pin: [[pin]] tables"),
            ("[pin]\nname = \"a\"", "c.toml:1: pin: [[pin]] tables"),
            ("\n[[pin]]\ncpu = 1", "c.toml:2: pin.name: missing"),
            ("[[pin]]\nname = \"\"", "c.toml:2: pin.name: it is empty"),
            (
                "[[pin]]\nname = \" \\t\"",
                "c.toml:2: pin.name: it is empty",
            ),
            ("[[pin]]\nname = 7", "c.toml:2: name: a string, not integer"),
            (
                "[[pin]]\nname = \"a\"\npolicy = \"fast\"",
                "c.toml:3: pin.policy: one of none, paper, full, l2, auto",
            ),
            (
                "[[pin]]\nname = \"a\"\nmethod = \"magic\"",
                "c.toml:3: pin.method: one of taskset, cgroup, auto",
            ),
            (
                "[[pin]]\nname = \"a\"\ncpu = -1",
                "c.toml:3: pin.cpu: the number of a CPU",
            ),
            (
                "[[pin]]\nname = \"a\"\ncpu = 4294967296",
                "c.toml:3: pin.cpu: the number of a CPU",
            ),
            (
                "[[pin]]\nname = \"a\"\ncpu = 1.0",
                "c.toml:3: cpu: the number of a CPU, not float",
            ),
            (
                "[[pin]]\nname = \"a\"\ncpu = \"1-3\"",
                "c.toml:3: cpu: the number of a CPU, not string",
            ),
            (
                "[[pin]]\nname = \"a\"\nsmt = 1",
                "c.toml:3: smt: true or false, not integer",
            ),
            (
                "[[pin]]\nname = \"a\"\ncpus = 1",
                "c.toml:3: pin.cpus: there is no such key",
            ),
            (
                "mode = \"act\"\npreset = \"x\"\n[[pin]]\nname = \"a\"",
                "c.toml:2: preset: of which policy?",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(said), "{text:?}: {error}");
        }
        // A CPU that no machine has is a number all the same.
        let far = parsed("[[pin]]\nname = \"a\"\ncpu = 4294967295").unwrap();
        let checked = far.check_cpus(Path::new("c.toml"), Some(&"0-7".parse().unwrap()));
        assert!(checked.is_err());
    }

    #[test]
    fn all_keys() {
        let text = "mode = \"act\"\npolicy = \"vmfair\"\npreset = \"x\"\nonly = [\"web*\", \"db\"]\nstall_ms = \
         0\npartial = true\n\
                    [set]\nslice_us = 2000\npreempt = false\n[[vm]]\nname = \"db\"\nclass = \"mixed\"\nio_vcpus = 2\n";
        let config = parsed(text).unwrap();
        assert_eq!(config.mode, Mode::Act);
        let choice = config.choice.unwrap();
        assert_eq!(
            (choice.policy.as_str(), choice.preset.as_deref()),
            ("vmfair", Some("x"))
        );
        assert_eq!(choice.set["slice_us"], "2000");
        assert_eq!(choice.set["preempt"], "false");
        assert!(choice.partial);
        assert_eq!(config.stall, None);
        assert_eq!(config.rules.only, ["web*", "db"]);
        assert_eq!(
            (
                config.rules.vms[0].io_vcpus,
                config.rules.vms[0].class.as_deref()
            ),
            (2, Some("mixed"))
        );
        assert_eq!(parsed("").unwrap(), Config::default());
    }

    #[test]
    fn roots_agent_lets_in_the_group_that_is_made_for_it() {
        let there = |name: &str| (name == "berth").then_some(77);
        assert_eq!(usual(true, &there).group, Some(77));
        assert_eq!(usual(true, &|_| None).group, None);
        assert_eq!(usual(false, &there).group, None);
        let named = parsed("socket_group = \"root\"\n").unwrap().access;
        assert_eq!((named.group, named.group_if_possible), (Some(0), false));
    }

    #[test]
    fn scores_of_vms() {
        let text = "[[vm]]\nname = \"hpc*\"\nscore = 2\n[[vm]]\nname = \"db\"\nscore = [1.8, 1.25]\n\
                    [[vm]]\nname = \"web\"\n";
        let rules = parsed(text).unwrap().rules;
        assert_eq!(rules.score_milli("hpc-3", 5), Some(2000));
        assert_eq!(rules.score_milli("db", 1), Some(1250));
        assert_eq!(rules.score_milli("web", 0), None);
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_key() {
        for (text, said) in [
            ("mode = \"act\"\n", "c.toml:1: policy: missing"),
            (
                "\nmode = \"on\"\n",
                "c.toml:2: mode: \"observe\" or \"act\"",
            ),
            ("mode = 1", "c.toml:1: mode: a string, not integer"),
            ("\n\nmodes = 1", "c.toml:3: modes: there is no such key"),
            (
                "only = \"web\"",
                "c.toml:1: only: a list of names, not string",
            ),
            ("only = []", "c.toml:1: only: names no VM"),
            ("only = [1]", "c.toml:1: only: a list of names, such as"),
            ("stall_ms = -1", "c.toml:1: stall_ms: 0 to 30000"),
            ("policy = \" \"", "c.toml:1: policy: it has no name"),
            (
                "\n[set]\nslice_us = 1",
                "c.toml:2: set: of which policy? Name it",
            ),
            ("preset = \"x\"", "c.toml:1: preset: of which policy?"),
            ("partial = true", "c.toml:1: partial: of which policy?"),
            ("[set]\n\na = [1]", "c.toml:3: set.a: a number or a string"),
            ("set = 1", "c.toml:1: set: a table"),
            ("vm = 1", "c.toml:1: vm: [[vm]] tables"),
            (
                "mode = \"observe\"\n[[vm]]\nclass = \"batch\"",
                "c.toml:2: vm.name: missing",
            ),
            (
                "[[vm]]\nname = \"a\"\nclass = \"fast\"",
                "c.toml:3: vm.class: \"latency\"",
            ),
            (
                "[[vm]]\nname = \"a\"\nio_vcpus = -1",
                "c.toml:3: vm.io_vcpus: a number",
            ),
            (
                "[[vm]]\nname = \"a\"\nscore = 0.5",
                "c.toml:3: vm.score: 0.5 is not 1 to 100",
            ),
            (
                "[[vm]]\nname = \"a\"\nscore = [1, \"x\"]",
                "c.toml:3: score: a number or a list of them",
            ),
            (
                "[[vm]]\nname = \"a\"\nscore = []",
                "c.toml:3: vm.score: no score",
            ),
            (
                "[[vm]]\nname = \"a\"\nweight = 1",
                "c.toml:3: vm.weight: there is no such key",
            ),
            ("a = \n", "c.toml:1: "),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_has_no_line_and_one_that_is_no_text_has() {
        let none = read(Path::new("/no/such.toml")).unwrap_err().to_string();
        assert!(none.starts_with("/no/such.toml: cannot be read"), "{none}");
        let folder = tempfile::tempdir().unwrap();
        let none = read(folder.path()).unwrap_err();
        assert_eq!(none.line, None, "a folder: {none}");
        let file = folder.path().join("c.toml");
        std::fs::write(&file, b"mode = \"act\"\n\npolicy = \"\xff\"\n").unwrap();
        let said = read(&file).unwrap_err().to_string();
        assert!(said.ends_with("c.toml:3: is not UTF-8 text"), "{said}");
        for (text, line) in [
            ("mode = \"act\"\nonly = web\n", 2),
            ("mode = \"act\"\nonly = [\"web\"", 2),
            ("mode = \"act\"\n\nmode = \"act\"\n", 3),
            ("[set]\na = 1\n\n[set]\nb = 1\n", 4),
            ("mode = \"act\npolicy = 1\n", 1),
            ("[[vm]\n", 1),
            ("\n\n= 3\n", 3),
            ("mode = \"observe\"\npolicy = \"\"\"\nx\n", 3),
        ] {
            let error = parse(&file, text).unwrap_err();
            assert_eq!(error.line, Some(line), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_only_the_policy_can_judge_has_a_line_too() {
        let works = |c: &Choice| match c {
            c if c.policy != "vmfair" => Err("no such policy".to_string()),
            c if c.preset.as_deref() == Some("x") => Err("no such preset".to_string()),
            c if c.set.contains_key("slice") => Err("no such parameter".to_string()),
            _ => Ok(()),
        };
        let said = |text: &str| {
            let config = parse(Path::new("c.toml"), text).unwrap();
            let checked = config.check(Path::new("c.toml"), &works);
            checked.map_err(|e| e.to_string())
        };
        let wrong = |text: &str| said(text).unwrap_err();
        assert_eq!(
            wrong("\npolicy = \"vmfare\"\n"),
            "c.toml:2: policy: no such policy"
        );
        assert_eq!(
            wrong("policy = \"vmfair\"\npreset = \"x\"\n"),
            "c.toml:2: preset: no such preset"
        );
        assert_eq!(
            wrong("policy = \"vmfair\"\n[set]\na = 1\nslice = 2\n"),
            "c.toml:4: set.slice: no such parameter"
        );
        assert_eq!(said("policy = \"vmfair\"\n[set]\na = 1\n"), Ok(()));
        assert_eq!(said(""), Ok(()));
    }
}
