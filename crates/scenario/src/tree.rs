// SPDX-License-Identifier: GPL-2.0-only
//! The file as a tree of values, each with the place it comes from.
//!
//! Edits of the command line (`--set`) and of arms change this tree before anything is read from it, and carry
//! their own place, so that a wrong value is reported the same way wherever it was written.
use crate::diag::{At, Error, Result, Source};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Node {
    pub value: Value,
    pub at: At,
}

#[derive(Clone, Debug)]
pub enum Value {
    Str(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// Dates and times: no key of a scenario takes one.
    Date(String),
    Array(Vec<Node>),
    Table(Table),
}

/// A table in file order.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    pub key_at: At,
    pub node: Node,
}

impl Table {
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.key == key)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.key == key)
    }
}

impl Value {
    /// What it is, for "expected ..., found ...".
    pub fn what(&self) -> &'static str {
        match self {
            Value::Str(_) => "a string",
            Value::Int(_) => "a whole number",
            Value::Float(_) => "a decimal number",
            Value::Bool(_) => "true or false",
            Value::Date(_) => "a date",
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// As TOML on one line.
    pub fn to_toml(&self) -> String {
        match self {
            Value::Str(s) => toml_edit::Value::from(s.as_str()).to_string(),
            Value::Int(i) => i.to_string(),
            Value::Float(x) => toml_edit::Value::from(*x).to_string(),
            Value::Bool(b) => b.to_string(),
            Value::Date(d) => d.clone(),
            Value::Array(items) => {
                format!(
                    "[{}]",
                    items
                        .iter()
                        .map(|n| n.value.to_toml())
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            }
            Value::Table(t) if t.entries.is_empty() => "{}".into(),
            Value::Table(t) => {
                let entries: Vec<_> = t
                    .entries
                    .iter()
                    .map(|e| format!("{} = {}", key_text(&e.key), e.node.value.to_toml()))
                    .collect();
                format!("{{ {} }}", entries.join(", "))
            }
        }
    }
}

/// A key as TOML writes it, quoted where it must be.
pub fn key_text(key: &str) -> String {
    if is_name(key) {
        key.to_string()
    } else {
        toml_edit::Value::from(key).to_string()
    }
}

/// What may name a VM, task, client or arm, and stands bare in an address.
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Reads a TOML text into a tree.
///
/// # Errors
/// The text is not TOML: the parser's message at its place.
pub fn parse(source: &Arc<Source>) -> Result<Node> {
    let whole = At {
        source: source.clone(),
        span: 0..0,
    };
    // The parser's own guard against deep nesting is per value; a file needs at most a few levels anyway.
    let document = toml_edit::Document::parse(source.text.as_str()).map_err(|e| {
        let at = At {
            source: source.clone(),
            span: e.span().unwrap_or(0..0),
        };
        let message = e.message().trim().replace('\n', ", ");
        Error::at(&at, format!("this is not TOML: {message}"))
    })?;
    Ok(Node {
        value: Value::Table(table(source, document.as_table())),
        at: whole,
    })
}

/// Reads one value of the command line: TOML if it is that (`4`, `[1, 2]`, `"x"`), else the bare text (`300us`).
pub fn parse_argument(source: &Arc<Source>, start: usize) -> Node {
    let text = source.text[start..].trim();
    let offset = source.text.len() - source.text[start..].trim_start().len();
    let at = At {
        source: source.clone(),
        span: offset..offset + text.len(),
    };
    let parsed = match text.parse::<toml_edit::Value>() {
        // A date is never meant; a bare text may look like one.
        Ok(v) if !v.is_datetime() => plain(&at, &v),
        _ => Node {
            value: Value::Str(text.to_string()),
            at: at.clone(),
        },
    };
    Node {
        value: parsed.value,
        at,
    }
}

/// A value without spans of its own: everything in it stands at `at`.
fn plain(at: &At, value: &toml_edit::Value) -> Node {
    value_node(at, value, &|_| at.clone())
}

fn table(source: &Arc<Source>, from: &toml_edit::Table) -> Table {
    let mut entries = Vec::new();
    for (name, item) in from.iter() {
        let key_span = from.get_key_value(name).and_then(|(k, _)| k.span());
        let item_span = item.span();
        let span = item_span.clone().or(key_span.clone()).unwrap_or(0..0);
        let at = At {
            source: source.clone(),
            span,
        };
        let Some(node) = item_node(source, item, at.clone()) else {
            continue;
        };
        let key_at = At {
            source: source.clone(),
            span: key_span.or(item_span).unwrap_or(0..0),
        };
        entries.push(Entry {
            key: name.to_string(),
            key_at,
            node,
        });
    }
    Table { entries }
}

fn item_node(source: &Arc<Source>, item: &toml_edit::Item, at: At) -> Option<Node> {
    match item {
        toml_edit::Item::None => None,
        toml_edit::Item::Value(v) => Some(value_node(&at, v, &|span| At {
            source: source.clone(),
            span: span.unwrap_or(at.span.clone()),
        })),
        toml_edit::Item::Table(t) => Some(Node {
            value: Value::Table(table(source, t)),
            at,
        }),
        toml_edit::Item::ArrayOfTables(a) => {
            let nodes = a.iter().map(|t| {
                let at = At {
                    source: source.clone(),
                    span: t.span().unwrap_or(at.span.clone()),
                };
                Node {
                    value: Value::Table(table(source, t)),
                    at,
                }
            });
            Some(Node {
                value: Value::Array(nodes.collect()),
                at,
            })
        }
    }
}

fn value_node(
    at: &At,
    value: &toml_edit::Value,
    place: &dyn Fn(Option<std::ops::Range<usize>>) -> At,
) -> Node {
    let value = match value {
        toml_edit::Value::String(s) => Value::Str(s.value().clone()),
        toml_edit::Value::Integer(i) => Value::Int(*i.value()),
        toml_edit::Value::Float(x) => Value::Float(*x.value()),
        toml_edit::Value::Boolean(b) => Value::Bool(*b.value()),
        toml_edit::Value::Datetime(d) => Value::Date(d.value().to_string()),
        toml_edit::Value::Array(a) => Value::Array(
            a.iter()
                .map(|v| value_node(&place(v.span()), v, place))
                .collect(),
        ),
        toml_edit::Value::InlineTable(t) => {
            let entries = t.iter().map(|(key, v)| {
                let key_at = place(t.get_key_value(key).and_then(|(k, _)| k.span()));
                Entry {
                    key: key.to_string(),
                    key_at,
                    node: value_node(&place(v.span()), v, place),
                }
            });
            Value::Table(Table {
                entries: entries.collect(),
            })
        }
    };
    Node {
        value,
        at: at.clone(),
    }
}
