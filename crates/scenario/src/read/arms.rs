// SPDX-License-Identifier: GPL-2.0-only
//! `[arm.NAME]` and `[compare]`.
use super::Context;
use crate::diag::{At, Error, Result};
use crate::edit;
use crate::keys;
use crate::model::Arm;
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
    let mut params = BTreeMap::new();
    let mut set = BTreeMap::new();
    let mut changed: Option<Node> = None;
    if let Some(node) = section.node("set")? {
        let Value::Table(table) = &node.value else {
            return Err(section.wrong_type("set", &node));
        };
        for Entry {
            key: address,
            key_at: at,
            node,
        } in flat(table, "")
        {
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
        set,
        scenario,
    })
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
    let is_file = text.contains('/') || text.ends_with(".bpf.c") || text.ends_with(".bpf.o");
    if !is_file {
        if crate::tree::is_name(text) {
            return Ok(text.to_string());
        }
        return Err(
            Error::at(at, format!("`{}` is not a policy", text.escape_debug()))
                .label("a name such as vmfair, or a .bpf.c or .bpf.o file"),
        );
    }
    // Paths of the command line count from where the user is.
    let from_file = Arc::ptr_eq(&at.source, context.source);
    Ok(match context.folder {
        Some(folder) if from_file => folder.join(text).to_string_lossy().into_owned(),
        _ => text.to_string(),
    })
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
