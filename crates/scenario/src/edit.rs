// SPDX-License-Identifier: GPL-2.0-only
//! Changes to the file before it is read: `--set`, `--vary`, added policies, and what arms change.
use crate::diag::{At, Error, Result, Source};
use crate::read::is_file;
use crate::tree::{Entry, Node, Table, Value, is_name, parse_argument};
pub use crate::vary::{Variant, combinations, first, variants};
use std::path::Path;
use std::sync::Arc;

/// A change asked for on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// `--set ADDRESS=VALUE`.
    Set(String),
    /// The same with one of the values of a `--vary`.
    Vary(String),
    /// `--policy NAME-or-FILE`: one more arm.
    AddPolicy(String),
    /// The arm's name of a policy that is a file, where its own says nothing (`main.bpf.o`).
    Named { policy: String, arm: String },
    /// What the loaders of schedulers in files set, in every arm that has one.
    Loader(LoaderEdit),
}

/// An option for schedulers in files, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoaderEdit {
    /// `--rodata NAME=VALUE`.
    Rodata(String),
    /// `--ops-flags NAME,NAME`.
    OpsFlags(String),
    /// `--resize NAME=COUNT`.
    Resize(String),
    /// `-I FOLDER`.
    Include(String),
    /// `--headers VERSION`.
    Headers(String),
}

/// The argument as a source of values, and where its value starts.
pub(crate) fn argument(option: &str, text: &str) -> (Arc<Source>, usize) {
    let whole = format!("{option} {text}");
    let start = option.len() + 1;
    (
        Arc::new(Source {
            name: "command line".into(),
            text: whole,
            numbered: false,
        }),
        start,
    )
}

/// Splits `ADDRESS=VALUE` into the address with its place, and the value.
pub(crate) fn assignment(option: &str, text: &str) -> Result<(String, At, Node)> {
    let (source, start) = argument(option, text);
    let whole = At {
        source: source.clone(),
        span: start..source.text.len(),
    };
    let Some(equals) = text.find('=') else {
        return Err(
            Error::at(&whole, format!("`{text}` does not say what to set")).label(format!(
                "write {option} ADDRESS=VALUE, e.g. {option} vm.web.count=4"
            )),
        );
    };
    let address = text[..equals].trim();
    if text[equals + 1..].trim().is_empty() {
        return Err(
            Error::at(&whole, format!("`{address}` is set to nothing")).label("a value is missing")
        );
    }
    let at = At {
        source: source.clone(),
        span: start..start + equals,
    };
    Ok((
        address.to_string(),
        at,
        parse_argument(&source, start + equals + 1),
    ))
}

/// Every address is said once: of two values one would count, and what is said of the run would be wrong.
///
/// # Errors
/// Two changes set the same: the same address, or one with `*` that holds an earlier one. After `vm.*.weight` another
/// weight for one of the VMs is fine.
pub fn once(set: &[String], vary: &[String]) -> Result<()> {
    let all = set.iter().map(|text| ("--set", text));
    let all: Vec<(&str, &String)> = all.chain(vary.iter().map(|t| ("--vary", t))).collect();
    let twice = |i: usize| {
        let (option, text) = all[i];
        let address = text.split('=').next().unwrap_or("").trim();
        let earlier = all[..i].iter().find(|(_, earlier)| {
            let earlier = earlier.split('=').next().unwrap_or("").trim();
            let (own, mut parts) = (address.split('.').count(), earlier.split('.'));
            own == parts.clone().count()
                && address.split('.').all(|p| {
                    let there = parts.next();
                    p == "*" || there == Some(p)
                })
        })?;
        Some((option, text, *earlier))
    };
    match (0..all.len()).find_map(twice) {
        Some((option, text, earlier)) => Err(given_twice((option, text), earlier)),
        None => Ok(()),
    }
}

/// Two options that set the same.
fn given_twice(later: (&str, &str), earlier: (&str, &String)) -> Error {
    let (source, start) = argument(later.0, later.1);
    let at = At {
        source,
        span: start..start + later.1.len(),
    };
    let name = earlier.1.split('=').next().unwrap_or("").trim();
    Error::at(
        &at,
        format!(
            "{name} is given twice: {} {} and {} {}",
            earlier.0, earlier.1, later.0, later.1
        ),
    )
    .label("only one of them can count")
}

/// Variables and arrays of schedulers in files, too, are set once.
fn loaders_once(edits: &[Edit]) -> Result<()> {
    let named = |edit: &Edit| match edit {
        Edit::Loader(LoaderEdit::Rodata(text)) => Some(("--rodata", text.clone())),
        Edit::Loader(LoaderEdit::Resize(text)) => Some(("--resize", text.clone())),
        _ => None,
    };
    let all: Vec<(&str, String)> = edits.iter().filter_map(named).collect();
    let name = |text: &str| text.split('=').next().unwrap_or("").trim().to_string();
    for (i, (option, text)) in all.iter().enumerate() {
        let mut earlier = all[..i].iter();
        if let Some((of, there)) = earlier.find(|(o, t)| o == option && name(t) == name(text)) {
            return Err(given_twice((option, text), (of, there)));
        }
    }
    Ok(())
}

/// Applies the changes of the command line, and makes every compared policy an arm of its own.
///
/// # Errors
/// An address that leads nowhere.
pub fn apply(root: &mut Node, edits: &[Edit]) -> Result<()> {
    loaders_once(edits)?;
    let mut late = Vec::new();
    for edit in edits {
        let (option, text) = match edit {
            Edit::Set(text) => ("--set", text),
            Edit::Vary(text) => ("--vary", text),
            _ => continue,
        };
        let (address, at, node) = assignment(option, text)?;
        if address.starts_with("policy.") || address.starts_with("arm.") {
            late.push((address, at, node));
        } else {
            set(root, &address, &at, node)?;
        }
    }
    for edit in edits {
        if let Edit::AddPolicy(policy) = edit {
            let (source, start) = argument("--policy", policy);
            let at = At {
                source,
                span: start..start + policy.len(),
            };
            add_policy(root, policy, &at);
        }
    }
    let named = |policy: &str| {
        edits.iter().find_map(|edit| match edit {
            // A path of the scenario's file has the folder in front by now.
            Edit::Named { policy: p, arm } if Path::new(p).ends_with(policy) => Some(arm.clone()),
            _ => None,
        })
    };
    arms_from_policies(root, &named);
    for edit in edits {
        if let Edit::Loader(edit) = edit {
            set_loader(root, edit)?;
        }
    }
    for (address, at, node) in late {
        match address.strip_prefix("policy.") {
            None => set(root, &address, &at, node)?,
            // A parameter, in every arm that has any.
            Some(_) => {
                for name in names(root, "arm") {
                    let is_linux =
                        text_of(root, &["arm", &name, "policy"]).unwrap_or(name.clone()) == "linux";
                    if !is_linux {
                        set(
                            root,
                            &format!("arm.{name}.set.{address}"),
                            &at,
                            node.clone(),
                        )?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn add_policy(root: &mut Node, policy: &str, at: &At) {
    // Without a list in the file, the file's own arms stay and come first, as the baseline is the first of them;
    // without arms the default list is written out.
    let own = names(root, "arm");
    let compare = child(root, "compare", at);
    let Some(compare) = compare else { return };
    let node = |name: String| Node {
        value: Value::Str(name),
        at: at.clone(),
    };
    let first = match own.is_empty() {
        true => default_policies(),
        false => own.into_iter().map(node).collect(),
    };
    if compare.get("policies").is_none() {
        let node = Node {
            value: Value::Array(first),
            at: at.clone(),
        };
        compare.entries.push(Entry {
            key: "policies".into(),
            key_at: at.clone(),
            node,
        });
    }
    if let Some(Entry {
        node: Node {
            value: Value::Array(list),
            ..
        },
        ..
    }) = compare.get_mut("policies")
    {
        list.push(Node {
            value: Value::Str(policy.to_string()),
            at: at.clone(),
        });
    }
}

/// What is compared when the file says nothing.
fn default_policies() -> Vec<Node> {
    let default = Arc::new(Source {
        name: "default".into(),
        text: "linux vmfair".into(),
        numbered: false,
    });
    [(0, 5, "linux"), (6, 12, "vmfair")]
        .map(|(start, end, name)| Node {
            value: Value::Str(name.into()),
            at: At {
                source: default.clone(),
                span: start..end,
            },
        })
        .to_vec()
}

/// `compare.policies` is the short form of arms: each entry without an arm of that name becomes one.
fn arms_from_policies(root: &mut Node, named: &dyn Fn(&str) -> Option<String>) {
    let at = root.at.clone();
    let listed = match root_table(root)
        .and_then(|t| t.get("compare"))
        .map(|e| &e.node.value)
    {
        Some(Value::Table(t)) => match t.get("policies").map(|e| &e.node.value) {
            Some(Value::Array(items)) => Some(items.clone()),
            Some(_) => return,
            None => None,
        },
        Some(_) => return,
        None => None,
    };
    let listed = match listed {
        Some(listed) => listed,
        None if names(root, "arm").is_empty() => default_policies(),
        None => return,
    };
    let Some(arms) = child(root, "arm", &at) else {
        return;
    };
    let mut ordered: Vec<Entry> = Vec::new();
    let mut taken: Vec<(String, String)> = Vec::new();
    for item in &listed {
        let Value::Str(policy) = &item.value else {
            continue;
        };
        if taken.iter().any(|(p, _)| p == policy) {
            continue;
        }
        // Files of one name in two folders are two policies.
        let wanted = named(policy).unwrap_or_else(|| arm_name(policy));
        let is_taken = |name: &String| taken.iter().any(|(_, n)| n == name);
        let numbered = (2..).map(|i| format!("{wanted}-{i}"));
        let name = std::iter::once(wanted.clone())
            .chain(numbered)
            .find(|name| !is_taken(name));
        let name = name.unwrap_or(wanted);
        taken.push((policy.clone(), name.clone()));
        match arms.entries.iter().position(|e| e.key == name) {
            Some(i) => ordered.push(arms.entries.remove(i)),
            None => {
                let policy = Entry {
                    key: "policy".into(),
                    key_at: item.at.clone(),
                    node: item.clone(),
                };
                let node = Node {
                    value: Value::Table(Table {
                        entries: vec![policy],
                    }),
                    at: item.at.clone(),
                };
                ordered.push(Entry {
                    key: name,
                    key_at: item.at.clone(),
                    node,
                });
            }
        }
    }
    ordered.append(&mut arms.entries);
    arms.entries = ordered;
}

/// The arm that a policy gets in the short form: its name, or the stem of its file.
pub fn arm_name(policy: &str) -> String {
    let file = policy.rsplit('/').next().unwrap_or(policy);
    let stem = file
        .strip_suffix(".bpf.c")
        .or_else(|| file.strip_suffix(".bpf.o"))
        .unwrap_or(file);
    let name: String = stem
        .chars()
        .map(|c| if is_name(&c.to_string()) { c } else { '-' })
        .collect();
    if name.is_empty() {
        "policy".into()
    } else {
        name
    }
}

/// Sets a key of every arm whose policy is a file.
///
/// # Errors
/// There is no such arm, or the option is not what it should be.
fn set_loader(root: &mut Node, edit: &LoaderEdit) -> Result<()> {
    let (option, key, text) = match edit {
        LoaderEdit::Rodata(text) => ("--rodata", "rodata", text),
        LoaderEdit::OpsFlags(text) => ("--ops-flags", "ops_flags", text),
        LoaderEdit::Resize(text) => ("--resize", "resize", text),
        LoaderEdit::Include(text) => ("-I", "include", text),
        LoaderEdit::Headers(text) => ("--headers", "headers", text),
    };
    let (source, start) = argument(option, text);
    let at = At {
        source: source.clone(),
        span: start..start + text.len(),
    };
    let mut arms: Vec<String> = names(root, "arm");
    arms.retain(|name| {
        let policy = text_of(root, &["arm", name, "policy"]);
        is_file(&policy.unwrap_or_else(|| name.clone()))
    });
    if arms.is_empty() {
        return Err(Error::at(
            &at,
            format!("{option} is for schedulers in files, and no arm has one"),
        )
        .label("add one: --policy FILE"));
    }
    let string = |text: &str| Node {
        value: Value::Str(text.trim().to_string()),
        at: at.clone(),
    };
    for name in arms {
        let Some(arm) = child(root, "arm", &at).and_then(|t| table_in(t, &name, &at)) else {
            continue;
        };
        match edit {
            LoaderEdit::Rodata(_) | LoaderEdit::Resize(_) => {
                let (variable, place, value) = assignment(option, text)?;
                // Whatever it looks like: a list has commas, a time its unit.
                let value = match (edit, &value.value) {
                    (LoaderEdit::Rodata(_), _) => {
                        string(text.split_once('=').map_or("", |(_, v)| v))
                    }
                    _ => value,
                };
                if let Some(table) = table_in(arm, key, &at) {
                    put(table, &variable, &place, value);
                }
            }
            LoaderEdit::OpsFlags(_) => {
                let flags = text.split(',').map(string).collect();
                let value = Value::Array(flags);
                put(
                    arm,
                    key,
                    &at,
                    Node {
                        value,
                        at: at.clone(),
                    },
                );
            }
            LoaderEdit::Include(_) => {
                let mut folders = match arm.get(key).map(|e| &e.node.value) {
                    Some(Value::Array(folders)) => folders.clone(),
                    _ => Vec::new(),
                };
                folders.push(string(text));
                let value = Value::Array(folders);
                put(
                    arm,
                    key,
                    &at,
                    Node {
                        value,
                        at: at.clone(),
                    },
                );
            }
            LoaderEdit::Headers(_) => put(arm, key, &at, string(text)),
        }
    }
    Ok(())
}

fn root_table(root: &Node) -> Option<&Table> {
    match &root.value {
        Value::Table(t) => Some(t),
        _ => None,
    }
}

/// Names of the tables below `key`.
pub fn names(root: &Node, key: &str) -> Vec<String> {
    match root_table(root)
        .and_then(|t| t.get(key))
        .map(|e| &e.node.value)
    {
        Some(Value::Table(t)) => t.entries.iter().map(|e| e.key.clone()).collect(),
        _ => Vec::new(),
    }
}

pub fn text_of(root: &Node, path: &[&str]) -> Option<String> {
    let mut node = root;
    for key in path {
        node = &root_table(node)?.get(key)?.node;
    }
    match &node.value {
        Value::Str(s) => Some(s.clone()),
        _ => None,
    }
}

/// The table below `key`, made if absent; none if something else stands there.
fn child<'n>(node: &'n mut Node, key: &str, at: &At) -> Option<&'n mut Table> {
    let Value::Table(table) = &mut node.value else {
        return None;
    };
    table_in(table, key, at)
}

fn table_in<'n>(table: &'n mut Table, key: &str, at: &At) -> Option<&'n mut Table> {
    if table.get(key).is_none() {
        let node = Node {
            value: Value::Table(Table::default()),
            at: at.clone(),
        };
        table.entries.push(Entry {
            key: key.into(),
            key_at: at.clone(),
            node,
        });
    }
    match table.get_mut(key) {
        Some(Entry {
            node: Node {
                value: Value::Table(t),
                ..
            },
            ..
        }) => Some(t),
        _ => None,
    }
}

/// Sets what stands at an address (`vm.web.count`, `vm.*.weight`) to a value.
///
/// # Errors
/// The address names a VM, task, client or arm that there is not, or leads through something that is no table.
pub fn set(root: &mut Node, address: &str, at: &At, value: Node) -> Result<()> {
    let parts: Vec<&str> = address.split('.').collect();
    if parts
        .iter()
        .any(|p| p.is_empty() || (*p != "*" && !is_name(p)))
    {
        return Err(Error::at(at, format!("`{address}` is not an address"))
            .label("for instance vm.web.count"));
    }
    if parts.len() == 1 && parts[0] != "title" {
        return Err(Error::at(at, format!("`{address}` is a whole table"))
            .label("say which key, e.g. vm.web.count"));
    }
    if matches!(parts[0], "vm" | "task" | "client" | "arm") {
        if parts.len() < 3 {
            let like = format!("say which key, e.g. {}.{}", address, "count");
            return Err(Error::at(at, format!("`{address}` is a whole table")).label(like));
        }
        let there = names(root, parts[0]);
        if parts[1] == "*" {
            for name in there {
                let address = format!("{}.{name}.{}", parts[0], parts[2..].join("."));
                set(root, &address, at, value.clone())?;
            }
            return Ok(());
        }
        if !there.iter().any(|n| n == parts[1]) {
            let list = if there.is_empty() {
                "none".into()
            } else {
                there.join(", ")
            };
            return Err(
                Error::at(at, format!("there is no {} `{}`", parts[0], parts[1]))
                    .nearest(parts[1], there.iter().map(String::as_str))
                    .note(format!("The scenario has these: {list}")),
            );
        }
    }
    let Value::Table(mut table) = std::mem::replace(&mut root.value, Value::Bool(false)) else {
        return Ok(());
    };
    let done = set_in(&mut table, &parts, address, at, value);
    root.value = Value::Table(table);
    done
}

fn set_in(table: &mut Table, parts: &[&str], address: &str, at: &At, value: Node) -> Result<()> {
    // Addresses below an arm's `set` are keys of that table as they are.
    let (key, rest) = match parts {
        ["arm", name, "set", rest @ ..] if !rest.is_empty() => {
            let arms = table_in(table, "arm", at);
            let set = arms
                .and_then(|t| table_in(t, name, at))
                .and_then(|t| table_in(t, "set", at));
            return match set {
                Some(set) => {
                    put(set, &rest.join("."), at, value);
                    Ok(())
                }
                None => Err(Error::at(
                    at,
                    format!("`{address}` leads through something that is no table"),
                )),
            };
        }
        [key, rest @ ..] => (*key, rest),
        [] => return Ok(()),
    };
    if rest.is_empty() {
        put(table, key, at, value);
        return Ok(());
    }
    // `host.cost = "none"` and `host.cache = "none"` give way to a table.
    if let Some(entry) = table.get_mut(key)
        && (key == "cost" || key == "cache")
        && matches!(entry.node.value, Value::Str(_))
    {
        entry.node.value = Value::Table(Table::default());
    }
    // `guest = "linux"` is short for a table with that policy.
    if key == "guest"
        && let Some(entry) = table.get_mut(key)
        && matches!(entry.node.value, Value::Str(_))
    {
        let policy = Entry {
            key: "policy".into(),
            key_at: entry.key_at.clone(),
            node: entry.node.clone(),
        };
        entry.node.value = Value::Table(Table {
            entries: vec![policy],
        });
    }
    match table_in(table, key, at) {
        Some(inner) => set_in(inner, rest, address, at, value),
        None => Err(Error::at(
            at,
            format!("`{address}` leads through `{key}`, which is no table"),
        )),
    }
}

fn put(table: &mut Table, key: &str, at: &At, node: Node) {
    match table.get_mut(key) {
        Some(entry) => {
            entry.key_at = at.clone();
            entry.node = node;
        }
        None => table.entries.push(Entry {
            key: key.into(),
            key_at: at.clone(),
            node,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_arms() {
        assert_eq!(arm_name("vmfair"), "vmfair");
        assert_eq!(arm_name("../x/my fair.bpf.c"), "my-fair");
        assert_eq!(arm_name("/"), "policy");
    }
}
