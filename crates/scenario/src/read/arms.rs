// SPDX-License-Identifier: GPL-2.0-only
//! `[arm.NAME]` and `[compare]`.
use super::Context;
use crate::diag::{At, Error, Result};
use crate::edit;
use crate::keys;
use crate::model::{Arm, Loader};
use crate::section::{Facts, Section};
use crate::tree::{Entry, Node, Table, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most arms.
const MOST_ARMS: usize = 1000;

pub fn arms(
    context: &Context<'_>,
    file: &Section<'_>,
    root: &Node,
) -> Result<(Vec<Arm>, Option<String>)> {
    let mut arms: Vec<Arm> = Vec::new();
    for (name, entry) in file.named("arm", &keys::ARM)? {
        let section = file.open_named("arm", &keys::ARM, entry)?;
        arms.push(arm(context, &section, root, &name)?);
    }
    if arms.len() > MOST_ARMS {
        return Err(Error::new(format!(
            "there are {} arms, more than {MOST_ARMS}",
            arms.len()
        )));
    }
    let baseline = compare(file, &arms)?;
    Ok((arms, baseline))
}

fn arm(context: &Context<'_>, section: &Section<'_>, root: &Node, name: &str) -> Result<Arm> {
    let policy = match section.table.get("policy") {
        Some(_) => section
            .string("policy")?
            .unwrap_or_else(|| (String::new(), section.at.clone())),
        None => {
            section.node_or("policy", name);
            (name.to_string(), section.at.clone())
        }
    };
    let policy = policy_name(context, &policy.0, &policy.1)?;
    let preset = section.string("preset")?.map(|(p, _)| p);
    let loader = loader(context, section, &policy)?;
    let mut params = BTreeMap::new();
    let mut set = BTreeMap::new();
    let mut changed: Option<Node> = None;
    if let Some(node) = section.node("set")? {
        let Value::Table(table) = &node.value else {
            return Err(section.wrong_type("set", &node));
        };
        for entry in flat(table, "") {
            section.part(&format!("set.{}", entry.key), &entry);
            let Entry {
                key: address,
                key_at: at,
                node,
            } = entry;
            let text = match &node.value {
                Value::Str(s) => s.clone(),
                other => other.to_toml(),
            };
            if let Some(param) = address.strip_prefix("policy.") {
                if matches!(node.value, Value::Array(_) | Value::Date(_))
                    || param.is_empty()
                    || param.contains('.')
                {
                    return Err(Error::at(
                        &node.at,
                        format!("`{address}` is not a parameter with a value"),
                    ));
                }
                params.insert(param.to_string(), text);
                continue;
            }
            let first = address.split('.').next().unwrap_or("");
            if !matches!(
                first,
                "host" | "vm" | "task" | "client" | "net" | "optimiser"
            ) {
                return Err(Error::at(&at, format!("an arm cannot change `{address}`"))
                    .label("only policy, host, vm, task, client, net, optimiser: all else is the same for all"));
            }
            let tree = changed.get_or_insert_with(|| root.clone());
            edit::set(tree, &address, &at, node)?;
            set.insert(address, text);
        }
    }
    let scenario = match changed {
        None => None,
        Some(tree) => {
            let facts = Facts::default();
            Some(Box::new(super::walk(
                context,
                &tree,
                &facts,
                false,
                &mut Vec::new(),
            )?))
        }
    };
    Ok(Arm {
        name: name.to_string(),
        policy,
        preset,
        params,
        loader,
        set,
        scenario,
    })
}

/// Keys that are for schedulers in files.
const LOADER: [&str; 5] = ["rodata", "ops_flags", "resize", "include", "headers"];

fn loader(context: &Context<'_>, section: &Section<'_>, policy: &str) -> Result<Loader> {
    let said = LOADER.iter().find_map(|key| section.table.get(key));
    if let Some(entry) = said.filter(|_| !is_file(policy)) {
        let key = &entry.key;
        return Err(Error::at(
            &entry.key_at,
            format!("`{key}` is for a scheduler in a file, and `{policy}` is none"),
        )
        .label(match policy {
            "linux" => "the kernel's own scheduler has no loader".to_string(),
            _ => format!("its parameters: berth policy show {policy}"),
        }));
    }
    let mut loader = Loader::default();
    for (name, node) in table(section, "rodata")? {
        let text = match &node.value {
            Value::Str(text) => text.clone(),
            Value::Array(items) => {
                let items = items.iter().map(|i| match &i.value {
                    Value::Str(text) => text.clone(),
                    other => other.to_toml(),
                });
                items.collect::<Vec<_>>().join(",")
            }
            Value::Int(_) | Value::Bool(_) => node.value.to_toml(),
            _ => {
                return Err(Error::at(
                    &node.at,
                    format!(
                        "variable `{name}` is not a whole number, a truth, a text or a list of numbers"
                    ),
                ));
            }
        };
        loader.rodata.insert(name, text);
    }
    for (name, node) in table(section, "resize")? {
        let count = match node.value {
            Value::Int(count) => u32::try_from(count).ok().filter(|count| *count > 0),
            _ => None,
        };
        let count = count.ok_or_else(|| {
            Error::at(
                &node.at,
                format!("array `{name}` needs a number of elements"),
            )
            .label("at least 1")
        })?;
        loader.resize.insert(name, count);
    }
    if let Some(flags) = section.strings("ops_flags")? {
        if let Some((_, at)) = flags.iter().find(|(flag, _)| flag.trim() == "none")
            && flags.len() > 1
        {
            return Err(Error::at(
                at,
                "`none` stands alone: no flag is set, or these are",
            ));
        }
        loader.ops_flags = Some(flags.into_iter().map(|(flag, _)| flag).collect());
    }
    for (folder, at) in section.strings("include")?.unwrap_or_default() {
        loader.include.push(beside(context, &folder, &at));
    }
    loader.headers = section.string("headers")?.map(|(version, _)| version);
    Ok(loader)
}

/// Entries of a table of names that are not Berth's.
fn table(section: &Section<'_>, key: &str) -> Result<Vec<(String, Node)>> {
    let Some(node) = section.node(key)? else {
        return Ok(Vec::new());
    };
    match &node.value {
        Value::Table(table) => {
            let entries = flat(table, "").into_iter();
            Ok(entries.map(|entry| (entry.key, entry.node)).collect())
        }
        _ => Err(section.wrong_type(key, &node)),
    }
}

/// Leaves of a table with their addresses: `set.vm.web.count = 4` is the same as `set = { "vm.web.count" = 4 }`.
pub fn flat(table: &Table, prefix: &str) -> Vec<Entry> {
    let mut list = Vec::new();
    for entry in &table.entries {
        let address = if prefix.is_empty() {
            entry.key.clone()
        } else {
            format!("{prefix}.{}", entry.key)
        };
        match &entry.node.value {
            Value::Table(inner) => list.extend(flat(inner, &address)),
            _ => list.push(Entry {
                key: address,
                key_at: entry.key_at.clone(),
                node: entry.node.clone(),
            }),
        }
    }
    list
}

/// A policy as the file names it: a name as it is, a file relative to the scenario's folder.
pub fn policy_name(context: &Context<'_>, text: &str, at: &At) -> Result<String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::at(at, "the policy has no name"));
    }
    if !is_file(text) {
        if crate::tree::is_name(text) {
            return Ok(text.to_string());
        }
        return Err(
            Error::at(at, format!("`{}` is not a policy", text.escape_debug()))
                .label("a name such as vmfair, or a .bpf.c or .bpf.o file"),
        );
    }
    Ok(beside(context, text, at))
}

/// A policy that is a file, by its name.
pub fn is_file(policy: &str) -> bool {
    policy.contains('/') || policy.ends_with(".bpf.c") || policy.ends_with(".bpf.o")
}

/// A path of the scenario's file counts from its folder, one of the command line from where the user is.
fn beside(context: &Context<'_>, path: &str, at: &At) -> String {
    let from_file = Arc::ptr_eq(&at.source, context.source);
    match context.folder {
        Some(folder) if from_file => folder.join(path).to_string_lossy().into_owned(),
        _ => path.to_string(),
    }
}

fn compare(file: &Section<'_>, arms: &[Arm]) -> Result<Option<String>> {
    let section = file.table("compare", &keys::COMPARE)?;
    // Already made into arms (edit::apply); read here for its type and for the record.
    for (policy, at) in section.strings("policies")?.unwrap_or_default() {
        if policy.trim().is_empty() {
            return Err(Error::at(&at, "the policy has no name"));
        }
    }
    match section.string("baseline")? {
        None => {
            let linux = arms.iter().find(|a| a.name == "linux").or(arms.first());
            Ok(linux.filter(|_| arms.len() > 1).map(|a| a.name.clone()))
        }
        Some((name, at)) => {
            check_arm(&name, &at, arms)?;
            Ok(Some(name))
        }
    }
}

/// The name is one of an arm.
pub fn check_arm(name: &str, at: &At, arms: &[Arm]) -> Result<()> {
    if arms.iter().any(|a| a.name == name) {
        return Ok(());
    }
    let list: Vec<_> = arms.iter().map(|a| a.name.as_str()).collect();
    Err(
        Error::at(at, format!("there is no arm `{}`", name.escape_debug()))
            .nearest(name, list.iter().copied())
            .note(format!("The scenario has these arms: {}", list.join(", "))),
    )
}
