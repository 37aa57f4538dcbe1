// SPDX-License-Identifier: GPL-2.0-only
//! From a configuration's text to what it says, key by key.
use super::access::group;
use super::{Choice, Config, ConfigError, Mode, line_after};
use crate::backend::Way;
use crate::backend::cgroup::OPTIMISER;
use crate::door::Access;
use crate::pins::standing::PinRule;
use crate::pins::{Method, Pinning};
use crate::rules::{Gains, Promised, Rule};
use berth_affinity::{Ask, Policy};
use berth_identity::Class;
use berth_optimiser::{Promise, Service};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use toml_edit::{Item, Table, Value};

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

pub(super) struct Reader<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
}

type Read<T> = Result<T, ConfigError>;

impl Reader<'_> {
    pub(super) fn wrong(
        &self,
        at: usize,
        key: Option<&str>,
        what: impl Into<String>,
    ) -> ConfigError {
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

    pub(super) fn config(&self, table: &Table) -> Read<Config> {
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
