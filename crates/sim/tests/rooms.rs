// SPDX-License-Identifier: GPL-2.0-only
//! The rooms of the simulator (a folder of `src`, or a file directly in it) stand one on the other: no circle of `use`
//! goes through two of them. Circles of files inside a room are few, and say here why they are there.
//!
//! Read from the sources: `use` and paths from `crate`, `super` and `self`; names that a room's `mod.rs` hands on count
//! for the file they come from. Unit tests are left out: they may use what lies above.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Circles inside a room: its files, and why.
const INSIDE: &[(&[&str], &str)] = &[(
    &[
        "scx::dispatch",
        "scx::idle",
        "scx::kernel",
        "scx::kick",
        "scx::lifecycle",
        "scx::ops",
        "scx::tick",
    ],
    "a kernel is one object: these subjects keep their part of its state beside what they do with it",
)];

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The modules: path (`scx::dsq`) and text, without comments and unit tests.
#[derive(Default)]
struct Sources {
    text: BTreeMap<String, String>,
    /// Modules that are a folder's `mod.rs`.
    heads: BTreeSet<String>,
}

/// Code only: no comments, nothing under `#[cfg(test)]` (modules of tests are the end of their file).
fn code(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            if lines
                .next()
                .is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'))
            {
                break;
            }
            continue;
        }
        out += line.split("//").next().unwrap_or_default();
        out.push('\n');
    }
    out
}

impl Sources {
    fn read(dir: &Path, module: &str, out: &mut Sources) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let name = if module.is_empty() {
                stem.to_string()
            } else {
                format!("{module}::{stem}")
            };
            if path.is_dir() {
                Sources::read(&path, &name, out);
            } else if stem != "lib" && stem != "testing" {
                let text = code(&std::fs::read_to_string(&path).unwrap());
                let head = stem == "mod";
                let name = if head { module.to_string() } else { name };
                if head {
                    out.heads.insert(name.clone());
                }
                out.text.insert(name, text);
            } else if stem == "lib" {
                out.text.insert(
                    String::new(),
                    code(&std::fs::read_to_string(&path).unwrap()),
                );
            }
        }
    }

    fn parent(module: &str) -> &str {
        module.rsplit_once("::").map_or("", |(p, _)| p)
    }

    /// The folder a module's file lies in; a file directly in `src` is a room of its own.
    fn room<'a>(&self, module: &'a str) -> &'a str {
        let parent = Sources::parent(module);
        if self.heads.contains(module) || parent.is_empty() {
            module
        } else {
            parent
        }
    }

    /// What follows `from` in its text up to `;`, with braces taken apart: one path each.
    fn paths(tree: &str, prefix: &str, out: &mut Vec<String>) {
        let tree = tree.trim();
        let Some((head, rest)) = tree.split_once('{') else {
            let path = tree.split(" as ").next().unwrap_or_default().trim();
            return out.push(format!("{prefix}{path}"));
        };
        let (mut depth, mut part) = (0, String::new());
        for c in rest.strip_suffix('}').unwrap_or(rest).chars() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if c == ',' && depth == 0 {
                Sources::paths(&part, &format!("{prefix}{head}"), out);
                part.clear();
            } else {
                part.push(c);
            }
        }
        if !part.trim().is_empty() {
            Sources::paths(&part, &format!("{prefix}{head}"), out);
        }
    }

    /// Paths of the crate that a module names, from its root.
    fn named(&self, module: &str) -> Vec<String> {
        let text = &self.text[module];
        let here = |path: &str| -> String {
            let mut at = module.to_string();
            let mut path = path;
            if let Some(rest) = path.strip_prefix("crate::") {
                return rest.to_string();
            }
            while let Some(rest) = path.strip_prefix("super::") {
                at = Sources::parent(&at).to_string();
                path = rest;
            }
            let path = path.strip_prefix("self::").unwrap_or(path);
            if at.is_empty() {
                path.to_string()
            } else {
                format!("{at}::{path}")
            }
        };
        let mut found = Vec::new();
        for (i, _) in text.match_indices("use ") {
            let Some(tree) = text[i + 4..].split(';').next() else {
                continue;
            };
            let mut paths = Vec::new();
            Sources::paths(&tree.replace('\n', " "), "", &mut paths);
            let ours = |p: &&String| {
                ["crate::", "super::", "self::"]
                    .iter()
                    .any(|s| p.starts_with(s))
            };
            found.extend(paths.iter().filter(ours).map(|p| here(p)));
            // What a `mod.rs` hands on from its own files.
            let own = |p: &&String| {
                p.split("::")
                    .next()
                    .is_some_and(|s| self.text.contains_key(&here(s)))
            };
            if text[..i].ends_with("pub ") {
                found.extend(
                    paths
                        .iter()
                        .filter(|p| !ours(p))
                        .filter(own)
                        .map(|p| here(p)),
                );
            }
        }
        for (i, _) in text.match_indices("crate::") {
            let path: String = text[i + 7..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || "_:".contains(*c))
                .collect();
            found.push(path.trim_end_matches(':').to_string());
        }
        found
    }

    /// The module that a path from the root leads to, through what `mod.rs` files hand on.
    fn target(&self, path: &str) -> Option<String> {
        let mut module = path;
        while !self.text.contains_key(module) || module.is_empty() {
            if module.is_empty() {
                break;
            }
            module = Sources::parent(module);
        }
        let item = path[module.len()..]
            .trim_start_matches("::")
            .split("::")
            .next()?;
        if (self.heads.contains(module) || module.is_empty()) && !item.is_empty() {
            let handed = |p: &String| {
                p.rsplit("::").next() == Some(item) && p.len() > item.len() && p != path
            };
            if let Some(to) = self.named(module).into_iter().find(handed) {
                return self.target(&to);
            }
        }
        (!module.is_empty()).then(|| module.to_string())
    }

    /// Who names whom, file by file.
    fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for module in self.text.keys().filter(|m| !m.is_empty()) {
            let to = self
                .named(module)
                .iter()
                .filter_map(|p| self.target(p))
                .filter(|t| t != module)
                .collect();
            graph.insert(module.clone(), to);
        }
        graph
    }

    /// Methods that a file gives to a type of another room are called without naming the file: an edge that nobody
    /// sees.
    fn hidden(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (module, text) in &self.text {
            for (i, _) in text.match_indices("\nimpl") {
                let block = text[i + 1..].split("\n}").next().unwrap_or_default();
                let (head, body) = block.split_once('{').unwrap_or((block, ""));
                let name = head
                    .rsplit("> ")
                    .next()
                    .unwrap_or_default()
                    .trim_start_matches("impl ")
                    .trim();
                let name = name.split('<').next().unwrap_or_default();
                if head.contains(" for ") || !body.contains("\n    pub") {
                    continue;
                }
                let paths = self.named(module);
                let Some(path) = paths.iter().find(|p| p.rsplit("::").next() == Some(name)) else {
                    continue;
                };
                let of = self.target(path).unwrap_or_default();
                if self.room(&of) != self.room(module) {
                    found.push(format!(
                        "{module} gives public methods to {name}, a type of {of}"
                    ));
                }
            }
        }
        found
    }
}

/// Who can be reached from here, itself only through others.
fn reach(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut left = vec![from.to_string()];
    while let Some(at) = left.pop() {
        for next in graph.get(&at).into_iter().flatten() {
            if seen.insert(next.clone()) {
                left.push(next.clone());
            }
        }
    }
    seen
}

/// Those that reach one another, each circle once.
fn circles(graph: &Graph) -> BTreeSet<BTreeSet<String>> {
    let all: BTreeMap<_, _> = graph.keys().map(|m| (m, reach(graph, m))).collect();
    let on = all.iter().filter(|(m, to)| to.contains(**m));
    on.map(|(m, to)| {
        to.iter()
            .filter(|t| all.get(t).is_some_and(|b| b.contains(*m)))
            .cloned()
            .collect()
    })
    .collect()
}

fn sources() -> Sources {
    let mut sources = Sources::default();
    Sources::read(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")),
        "",
        &mut sources,
    );
    sources
}

#[test]
fn no_circle_goes_through_two_rooms() {
    let sources = sources();
    let files = sources.graph();
    assert!(
        files["scx::pass"].contains("scx::kernel"),
        "the sources are read"
    );
    let mut rooms = Graph::new();
    for (from, to) in &files {
        let room = sources.room(from);
        let others = to.iter().map(|t| sources.room(t)).filter(|t| *t != room);
        rooms
            .entry(room.to_string())
            .or_default()
            .extend(others.map(String::from));
    }
    let mut said = sources.hidden();
    for circle in circles(&rooms) {
        said.push(format!("rooms in a circle: {circle:?}, by"));
        for (from, to) in &files {
            for to in to.iter().filter(|t| sources.room(t) != sources.room(from)) {
                if circle.contains(sources.room(from)) && circle.contains(sources.room(to)) {
                    said.push(format!("    {from} -> {to}"));
                }
            }
        }
    }
    assert!(said.is_empty(), "{}", said.join("\n"));
}

#[test]
fn circles_inside_a_room_are_known() {
    let found = circles(&sources().graph());
    let known: BTreeSet<BTreeSet<String>> = INSIDE
        .iter()
        .map(|(files, _)| files.iter().map(|f| f.to_string()).collect())
        .collect();
    assert!(INSIDE.iter().all(|(_, why)| !why.is_empty()));
    assert_eq!(
        found, known,
        "a circle of files is new or gone: change INSIDE of this test, and say why"
    );
}
