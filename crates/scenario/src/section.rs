// SPDX-License-Identifier: GPL-2.0-only
//! The typed walk over one table: unknown keys, types, units, defaults, and a record of what was used.
use crate::diag::{At, Error, Result, Source};
use crate::keys::{Default, Kind};
use crate::model::Nanos;
use crate::quantity;
use crate::tree::{Entry, Node, Table, Value, is_name};
use std::cell::RefCell;
use std::sync::Arc;

/// What was read, in reading order: the complete scenario as `show --full` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A table's header.
    Header(String),
    /// A key, its value as TOML, and where it comes from (`line 12`, `default`, `--set ...`).
    Value {
        key: String,
        toml: String,
        origin: String,
        /// Where it stands; none for a default.
        at: Option<At>,
    },
    /// A key that is not set, and what that means.
    Absent { key: String, means: String },
    /// Where a part of a value stands: an entry of an arm's `set`. Not printed: its value is, whole.
    Part {
        address: String,
        key_at: At,
        value_at: At,
    },
}

#[derive(Default)]
pub struct Facts {
    list: RefCell<Vec<Fact>>,
}

impl Facts {
    fn push(&self, fact: Fact) {
        self.list.borrow_mut().push(fact);
    }

    pub fn into_list(self) -> Vec<Fact> {
        self.list.into_inner()
    }
}

/// A table being read.
pub struct Section<'a> {
    pub kind: &'static Kind,
    /// `vm.web`; empty for the file itself.
    pub path: String,
    pub table: &'a Table,
    /// The table's header, or the whole file where the table is absent.
    pub at: At,
    facts: &'a Facts,
}

/// The table that stands for an absent one.
pub static EMPTY: Table = Table {
    entries: Vec::new(),
};

impl<'a> Section<'a> {
    /// Opens a table: every key must be one of its kind.
    ///
    /// # Errors
    /// An unknown key, or one whose feature this release does not have.
    pub fn open(
        kind: &'static Kind,
        path: &str,
        table: &'a Table,
        at: &At,
        facts: &'a Facts,
    ) -> Result<Section<'a>> {
        for entry in &table.entries {
            match kind.key(&entry.key) {
                Some(key) => {
                    if let Default::Later(feature) = key.default {
                        return Err(Error::at(
                            &entry.key_at,
                            format!("this release does not have {feature}"),
                        )
                        .label(format!("`{}` is for a later one", entry.key)));
                    }
                }
                None => return Err(unknown_key(kind, path, &entry.key, &entry.key_at)),
            }
        }
        if !kind.header.is_empty() {
            let header = if kind.header.starts_with("[[") {
                format!("[[{path}]]")
            } else {
                format!("[{path}]")
            };
            facts.push(Fact::Header(header));
        }
        Ok(Section {
            kind,
            path: path.to_string(),
            table,
            at: at.clone(),
            facts,
        })
    }

    /// The address of a key: `vm.web.count`.
    pub fn address(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_string()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The value of a key, from the file or its default; `None` where the default is in words.
    ///
    /// # Errors
    /// The key is required and absent.
    pub fn node(&self, key: &str) -> Result<Option<Node>> {
        if let Some(entry) = self.table.get(key) {
            let node = entry.node.clone();
            self.record(
                key,
                &node.value,
                node.at.short(),
                Some(entry.key_at.clone()),
            );
            return Ok(Some(node));
        }
        match self.kind.key(key).map(|k| k.default) {
            Some(Default::Is(text)) => {
                let node = default_node(text);
                self.record(key, &node.value, "default".into(), None);
                Ok(Some(node))
            }
            Some(Default::Required) => {
                let place = self.kind.place(&self.path);
                let takes = self.kind.key(key).map_or("", |k| k.takes);
                Err(Error::at(&self.at, format!("{place} needs `{key}`"))
                    .note(format!("`{key}` takes: {takes}")))
            }
            Some(Default::Said(means)) => {
                self.facts.push(Fact::Absent {
                    key: key.to_string(),
                    means: means.to_string(),
                });
                Ok(None)
            }
            Some(Default::Later(_)) | None => Ok(None),
        }
    }

    /// The value of a key whose default depends on other keys.
    pub fn node_or(&self, key: &str, default: &str) -> Node {
        let (node, origin, at) = match self.table.get(key) {
            Some(entry) => (
                entry.node.clone(),
                entry.node.at.short(),
                Some(entry.key_at.clone()),
            ),
            None => (default_node(default), "default".into(), None),
        };
        self.record(key, &node.value, origin, at);
        node
    }

    /// Opens the table below `key`; an empty one where it is absent.
    ///
    /// # Errors
    /// Something else than a table stands there, or what [`Section::open`] refuses.
    pub fn table(&self, key: &str, kind: &'static Kind) -> Result<Section<'a>> {
        let path = self.address(key);
        match self.table.get(key) {
            None => Section::open(kind, &path, &EMPTY, &self.at, self.facts),
            Some(entry) => match &entry.node.value {
                Value::Table(table) => Section::open(kind, &path, table, &entry.key_at, self.facts),
                _ => Err(self.wrong_type(key, &entry.node)),
            },
        }
    }

    /// Reads every table of a list of tables (`[[expect]]`), one after the other.
    ///
    /// # Errors
    /// Something else stands there, what [`Section::open`] refuses, or an error of `read`.
    pub fn tables<T>(
        &self,
        key: &str,
        kind: &'static Kind,
        mut read: impl FnMut(Section<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let Some(entry) = self.table.get(key) else {
            return Ok(Vec::new());
        };
        let path = self.address(key);
        let wrong = |node: &Node| {
            Error::at(
                &node.at,
                format!("`{path}` is a list of tables, not {}", node.value.what()),
            )
            .label(format!("write [[{path}]]"))
        };
        let Value::Array(items) = &entry.node.value else {
            return Err(wrong(&entry.node));
        };
        items
            .iter()
            .map(|item| match &item.value {
                Value::Table(table) => {
                    read(Section::open(kind, &path, table, &item.at, self.facts)?)
                }
                _ => Err(wrong(item)),
            })
            .collect()
    }

    /// Opens every table of a group of named tables (`[vm.NAME]`), with the name and its place.
    ///
    /// # Errors
    /// A name that cannot be one, or what [`Section::open`] refuses.
    pub fn named(&self, key: &str, kind: &'static Kind) -> Result<Vec<(String, &'a Entry)>> {
        let Some(group) = self.table.get(key) else {
            return Ok(Vec::new());
        };
        let Value::Table(table) = &group.node.value else {
            return Err(Error::at(
                &group.node.at,
                format!("`{key}` is {}", group.node.value.what()),
            )
            .label(format!("write {}", kind.header)));
        };
        for entry in &table.entries {
            if !is_name(&entry.key) {
                return Err(Error::at(
                    &entry.key_at,
                    format!("`{}` cannot name a thing", entry.key.escape_debug()),
                )
                .label("letters, digits, - and _"));
            }
            if !matches!(entry.node.value, Value::Table(_)) {
                let names: Vec<_> = kind.names().collect();
                return Err(Error::at(
                    &entry.key_at,
                    format!(
                        "`{key}.{}` is {}, not a table",
                        entry.key,
                        entry.node.value.what()
                    ),
                )
                .label(format!("keys belong below a header {}", kind.header))
                .note(format!("{} may have: {}", kind.label, names.join(", "))));
            }
        }
        Ok(table.entries.iter().map(|e| (e.key.clone(), e)).collect())
    }

    /// Opens one of the tables that [`Section::named`] lists.
    ///
    /// # Errors
    /// What [`Section::open`] refuses.
    pub fn open_named(
        &self,
        key: &str,
        kind: &'static Kind,
        entry: &'a Entry,
    ) -> Result<Section<'a>> {
        let table = match &entry.node.value {
            Value::Table(table) => table,
            _ => &EMPTY,
        };
        Section::open(
            kind,
            &self.address(&format!("{key}.{}", entry.key)),
            table,
            &entry.key_at,
            self.facts,
        )
    }

    fn record(&self, key: &str, value: &Value, origin: String, at: Option<At>) {
        self.facts.push(Fact::Value {
            key: key.to_string(),
            toml: value.to_toml(),
            origin,
            at,
        });
    }

    /// Remembers where an entry of the value of a key stands.
    pub fn part(&self, key: &str, entry: &Entry) {
        self.facts.push(Fact::Part {
            address: self.address(key),
            key_at: entry.key_at.clone(),
            value_at: entry.node.at.clone(),
        });
    }

    /// "expected ..., found ..." at a value.
    pub fn wrong_type(&self, key: &str, node: &Node) -> Error {
        let takes = self.kind.key(key).map_or("something else", |k| k.takes);
        let error = Error::at(
            &node.at,
            format!(
                "`{}` takes {takes}, not {}",
                self.address(key),
                node.value.what()
            ),
        );
        match &node.value {
            Value::Str(text) => match two_numbers(text) {
                Some((from, to)) => error.note(format!(
                    "to vary it over a range: --vary {}={from}..{to}",
                    self.address(key)
                )),
                None => error,
            },
            _ => error,
        }
    }

    /// A string with `parse` applied; its error is reported at the value.
    pub fn text<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> std::result::Result<T, String>,
    ) -> Result<Option<(T, At)>> {
        let Some(node) = self.node(key)? else {
            return Ok(None);
        };
        let Value::Str(text) = &node.value else {
            let mut error = self.wrong_type(key, &node);
            // The common slip: a number without quotes and unit.
            if let Value::Int(_) | Value::Float(_) = node.value {
                let number = node.value.to_toml();
                error = match self.kind.key(key).map(|k| k.takes) {
                    Some("duration") => error.label(format!(
                        "write \"{number}us\", \"{number}ms\" or \"{number}s\""
                    )),
                    Some("size") => error.label(format!("write \"{number}B\" or \"{number}KiB\"")),
                    Some("percent") => error.label(format!("write \"{number}%\"")),
                    Some("amount of CPUs") => error.label(format!("write \"{number} CPUs\"")),
                    _ => error,
                };
            }
            return Err(error);
        };
        match parse(text) {
            Ok(value) => Ok(Some((value, node.at.clone()))),
            Err(message) => Err(Error::at(
                &node.at,
                format!("`{}`: {message}", self.address(key)),
            )),
        }
    }

    pub fn string(&self, key: &str) -> Result<Option<(String, At)>> {
        self.text(key, |s| Ok(s.to_string()))
    }

    /// A duration; keys without one in the file have a default, or are 0.
    pub fn duration(&self, key: &str) -> Result<Nanos> {
        Ok(self.text(key, quantity::duration)?.map_or(0, |(v, _)| v))
    }

    pub fn bytes(&self, key: &str) -> Result<u64> {
        Ok(self.text(key, quantity::bytes)?.map_or(0, |(v, _)| v))
    }

    /// A whole number within bounds, both included; `why` explains the bounds.
    pub fn integer(&self, key: &str, low: i64, high: i64, why: &str) -> Result<Option<(i64, At)>> {
        let Some(node) = self.node(key)? else {
            return Ok(None);
        };
        let Value::Int(value) = node.value else {
            let error = self.wrong_type(key, &node);
            return Err(match &node.value {
                Value::Str(s) if s.trim().parse::<i64>().is_ok() => {
                    error.label(format!("write {} without quotes", s.trim()))
                }
                _ => error,
            });
        };
        if value < low || value > high {
            let range = if high == i64::from(u32::MAX) {
                format!("at least {low}")
            } else {
                format!("{low} to {high}")
            };
            let error = Error::at(
                &node.at,
                format!("`{}` is {value}, but should be {range}", self.address(key)),
            );
            return Err(if why.is_empty() {
                error
            } else {
                error.label(why)
            });
        }
        Ok(Some((value, node.at)))
    }

    /// A count within bounds; keys without one in the file have a default, or are `low`.
    pub fn count(&self, key: &str, low: u32, high: u32, why: &str) -> Result<u32> {
        let found = self.integer(key, low.into(), high.into(), why)?;
        Ok(found
            .and_then(|(v, _)| u32::try_from(v).ok())
            .unwrap_or(low))
    }

    pub fn boolean(&self, key: &str) -> Result<Option<bool>> {
        let Some(node) = self.node(key)? else {
            return Ok(None);
        };
        match node.value {
            Value::Bool(b) => Ok(Some(b)),
            _ => Err(self.wrong_type(key, &node)),
        }
    }

    /// A number that is finite and above zero.
    ///
    /// # Errors
    /// Something else stands there, or it is required and absent.
    pub fn positive(&self, key: &str) -> Result<Option<f64>> {
        let Some(node) = self.node(key)? else {
            return Ok(None);
        };
        let value = match node.value {
            Value::Int(value) => value as f64,
            Value::Float(value) => value,
            _ => return Err(self.wrong_type(key, &node)),
        };
        if value.is_finite() && value > 0.0 {
            return Ok(Some(value));
        }
        let address = self.address(key);
        Err(Error::at(
            &node.at,
            format!("`{address}` is {value}, but should be above 0"),
        ))
    }

    /// A list of strings, each with its place.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<(String, At)>>> {
        let node = self.node(key)?;
        node.map(|node| self.strings_of(key, &node)).transpose()
    }

    /// The same of a value that has been read already ([`Section::node`]), for keys that take other things besides.
    pub fn strings_of(&self, key: &str, node: &Node) -> Result<Vec<(String, At)>> {
        let Value::Array(items) = &node.value else {
            let error = self.wrong_type(key, node);
            return Err(match &node.value {
                Value::Str(s) => {
                    error.label(format!("write [{}]", Value::Str(s.clone()).to_toml()))
                }
                _ => error,
            });
        };
        items
            .iter()
            .map(|item| match &item.value {
                Value::Str(s) => Ok((s.clone(), item.at.clone())),
                other => Err(Error::at(
                    &item.at,
                    format!("`{}` is a list of strings", self.address(key)),
                )
                .label(format!("this is {}", other.what()))),
            })
            .collect()
    }

    /// Host CPUs: `[0, 1]`, `"0-3,8"`, `2` or `"all"`. Empty: not said, or all.
    pub fn cpus(&self, key: &str, nr_cpus: u32) -> Result<Vec<u32>> {
        let Some(node) = self.node(key)? else {
            return Ok(Vec::new());
        };
        let mut cpus = Vec::new();
        let one = |item: &Node, cpu: i64| match u32::try_from(cpu).ok().filter(|c| *c < nr_cpus) {
            Some(cpu) => Ok(cpu),
            None => Err(no_such_cpu(&item.at, &cpu.to_string(), nr_cpus)),
        };
        match &node.value {
            Value::Int(cpu) => cpus.push(one(&node, *cpu)?),
            Value::Str(text) => match cpu_list(text, nr_cpus) {
                Ok(None) => return Ok(Vec::new()),
                Ok(Some(list)) => cpus = list,
                Err(message) => {
                    return Err(Error::at(
                        &node.at,
                        format!("`{}`: {message}", self.address(key)),
                    ));
                }
            },
            Value::Array(items) => {
                for item in items {
                    let Value::Int(cpu) = item.value else {
                        return Err(Error::at(
                            &item.at,
                            format!("`{}` is a list of CPU numbers", self.address(key)),
                        )
                        .label(format!("this is {}", item.value.what())));
                    };
                    cpus.push(one(item, cpu)?);
                }
            }
            _ => return Err(self.wrong_type(key, &node)),
        }
        cpus.sort_unstable();
        cpus.dedup();
        if cpus.is_empty() {
            return Err(Error::at(
                &node.at,
                format!(
                    "`{}` is empty: its threads could run nowhere",
                    self.address(key)
                ),
            )
            .label("name at least one CPU, or leave the key out for all"));
        }
        Ok(cpus)
    }
}

/// `1-4`, as ranges are written elsewhere.
fn two_numbers(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.split_once('-')?;
    from.parse().ok().zip(to.parse().ok())
}

fn no_such_cpu(at: &At, cpu: &str, nr_cpus: u32) -> Error {
    Error::at(
        at,
        format!(
            "the host has no CPU {cpu}: its {nr_cpus} CPUs are 0 to {}",
            nr_cpus.saturating_sub(1)
        ),
    )
}

/// `0-3,8` -> the CPUs; `all` -> none.
pub fn cpu_list(text: &str, nr_cpus: u32) -> std::result::Result<Option<Vec<u32>>, String> {
    if text.trim() == "all" {
        return Ok(None);
    }
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let number = |s: &str| -> std::result::Result<u32, String> {
            let cpu: u32 = s
                .trim()
                .parse()
                .map_err(|_| format!("`{part}` is not a CPU or a range such as 0-3"))?;
            if cpu < nr_cpus {
                return Ok(cpu);
            }
            Err(format!(
                "the host has no CPU {cpu}: its {nr_cpus} CPUs are 0 to {}",
                nr_cpus.saturating_sub(1)
            ))
        };
        match part.split_once('-') {
            None => cpus.push(number(part)?),
            Some((a, b)) => {
                let (a, b) = (number(a)?, number(b)?);
                if a > b {
                    return Err(format!("the range `{part}` is empty"));
                }
                cpus.extend(a..=b);
            }
        }
    }
    if cpus.is_empty() {
        return Err("an empty list of CPUs: the threads could run nowhere".into());
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(Some(cpus))
}

/// The error for a key that its table does not have.
pub fn unknown_key(kind: &Kind, path: &str, key: &str, at: &At) -> Error {
    let place = kind.place(path);
    let names: Vec<_> = kind.names().collect();
    Error::at(at, format!("unknown key `{key}` in {place}"))
        .nearest(key, names.iter().copied())
        .note(format!(
            "{} may have: {}{}",
            kind.label,
            names.join(", "),
            match kind.help {
                "" => String::new(),
                help => format!("   (berth scenario help {help})"),
            }
        ))
}

fn default_node(text: &str) -> Node {
    let source = Arc::new(Source {
        name: "default".into(),
        text: text.to_string(),
        numbered: false,
    });
    crate::tree::parse_argument(&source, 0)
}
