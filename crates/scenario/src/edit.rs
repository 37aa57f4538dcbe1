// SPDX-License-Identifier: GPL-2.0-only
//! Changes to the file before it is read: `--set`, `--vary`, added policies, and what arms change.
use crate::diag::{At, Error, Result, Source};
use crate::tree::{Entry, Node, Table, Value, is_name, parse_argument};
use std::sync::Arc;

/// A change asked for on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// `--set ADDRESS=VALUE`.
    Set(String),
    /// `--policy NAME-or-FILE`: one more arm.
    AddPolicy(String),
}

/// The argument as a source of values, and where its value starts.
fn argument(option: &str, text: &str) -> (Arc<Source>, usize) {
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
fn assignment(option: &str, text: &str) -> Result<(String, At, Node)> {
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

/// Applies the changes of the command line, and makes every compared policy an arm of its own.
///
/// # Errors
/// An address that leads nowhere.
pub fn apply(root: &mut Node, edits: &[Edit]) -> Result<()> {
    let mut late = Vec::new();
    for edit in edits {
        if let Edit::Set(text) = edit {
            let (address, at, node) = assignment("--set", text)?;
            if address.starts_with("policy.") || address.starts_with("arm.") {
                late.push((address, at, node));
            } else {
                set(root, &address, &at, node)?;
            }
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
    arms_from_policies(root);
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
    // Without a list in the file, the file's own arms stay, and the default list is written out first.
    let has_arms = !names(root, "arm").is_empty();
    let compare = child(root, "compare", at);
    let Some(compare) = compare else { return };
    let first = if has_arms {
        Vec::new()
    } else {
        default_policies()
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
fn arms_from_policies(root: &mut Node) {
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
    let mut ordered = Vec::new();
    for item in &listed {
        let Value::Str(policy) = &item.value else {
            continue;
        };
        let name = arm_name(policy);
        if ordered.iter().any(|e: &Entry| e.key == name) {
            continue;
        }
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

/// One point of a `--vary`: what is set, as `ADDRESS=VALUE`. Empty for a plain run.
pub type Variant = Vec<String>;

/// The most combinations of `--vary`.
const MOST_COMBINATIONS: u64 = 10_000_000;

/// How many combinations several `--vary` come to.
///
/// # Errors
/// As [`variants`].
pub fn combinations(vary: &[String]) -> Result<u64> {
    let mut all = 1_u64;
    for text in vary {
        let (_, values, whole) = varied(text)?;
        all = all.saturating_mul(values.len() as u64);
        if all > MOST_COMBINATIONS {
            return Err(Error::at(
                &whole,
                format!("these are more than {MOST_COMBINATIONS} combinations"),
            )
            .label("vary less at once"));
        }
    }
    Ok(all)
}

/// The first combination.
///
/// # Errors
/// As [`variants`].
pub fn first(vary: &[String]) -> Result<Variant> {
    vary.iter()
        .map(|text| {
            let (address, values, _) = varied(text)?;
            Ok(format!("{address}={}", values.first().unwrap_or(&"")))
        })
        .collect()
}

/// Address and values of one `--vary`, and where it stands.
fn varied(text: &str) -> Result<(String, Vec<&str>, At)> {
    let (address, _, _) = assignment("--vary", text)?;
    let values = split_values(text.split_once('=').map_or("", |(_, v)| v));
    let (source, start) = argument("--vary", text);
    let whole = At {
        source,
        span: start..start + text.len(),
    };
    if values.iter().any(|v| v.is_empty()) {
        return Err(Error::at(&whole, "a value is missing between two commas"));
    }
    Ok((address, values, whole))
}

/// All combinations of several `--vary ADDRESS=a,b,c`, the last varying fastest.
///
/// # Errors
/// No `=`, an empty value, or more than 10 million combinations.
pub fn variants(vary: &[String]) -> Result<Vec<Variant>> {
    combinations(vary)?;
    let mut all: Vec<Variant> = vec![Vec::new()];
    for text in vary {
        let (address, values, _) = varied(text)?;
        all = all
            .iter()
            .flat_map(|variant| {
                let address = &address;
                values.iter().map(move |value| {
                    let mut variant = variant.clone();
                    variant.push(format!("{address}={value}"));
                    variant
                })
            })
            .collect();
    }
    Ok(all)
}

/// Splits at commas outside brackets and quotes.
fn split_values(text: &str) -> Vec<&str> {
    let (mut list, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0_i32, false);
    for (i, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                list.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    list.push(text[start..].trim());
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cartesian_product() {
        let all = variants(&[
            "vm.web.count=1,2".into(),
            "task.t.loop=[\"compute exp(1ms)\"],[]".into(),
        ])
        .unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all[1], ["vm.web.count=1", "task.t.loop=[]"]);
        assert_eq!(
            all[2],
            ["vm.web.count=2", "task.t.loop=[\"compute exp(1ms)\"]"]
        );
        assert_eq!(variants(&[]).unwrap(), [Variant::new()]);
        assert!(variants(&["x".into()]).is_err());
        assert!(variants(&["a.b=1,,2".into()]).is_err());
        let many = "a.b=".to_string() + &vec!["1"; 300].join(",");
        let many = [many.clone(), many.clone(), many];
        assert!(variants(&many).is_err());
        assert_eq!(combinations(&many[..2]).unwrap(), 90_000);
        assert_eq!(
            first(&["a.b=7,8".into(), "c.d=[1, 2],3".into()]).unwrap(),
            ["a.b=7", "c.d=[1, 2]"]
        );
    }

    #[test]
    fn names_of_arms() {
        assert_eq!(arm_name("vmfair"), "vmfair");
        assert_eq!(arm_name("../x/my fair.bpf.c"), "my-fair");
        assert_eq!(arm_name("/"), "policy");
    }
}
