// SPDX-License-Identifier: GPL-2.0-only
//! Schedulers of others: their objects as their own loaders would hand them to a kernel. What the loaders of the scx
//! project's schedulers set is in `loaders.toml`.
mod machine;
mod table;

pub use machine::Machine;

use crate::error::Failure;
use crate::policies;
use berth_policy::compile::{self, CompileOptions};
use berth_policy::error::LoadError;
use berth_policy::loader::{self, Setup};
use berth_policy::scx_headers;
use berth_scenario::model::Loader;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use table::{Value, of_exit, table};

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

/// A scheduler's object, ready for a kernel, and what should be known of it.
#[derive(Clone, Debug)]
pub struct Ready {
    pub object: Vec<u8>,
    pub notes: Vec<String>,
}

/// A scheduler that cannot be had.
#[derive(Debug)]
pub struct Refused {
    /// The arm's key that it is about: `rodata`, `ops_flags`, `resize`, `include`, `headers`, or `policy` itself.
    pub key: &'static str,
    pub why: Failure,
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        refused.why
    }
}

impl From<Failure> for Refused {
    fn from(why: Failure) -> Refused {
        Refused { key: "policy", why }
    }
}

fn refused(policy: &str, error: &LoadError) -> Refused {
    Refused {
        key: match error {
            LoadError::Setup { key, .. } => key,
            _ => "policy",
        },
        why: policies::wrong(policy, error),
    }
}

/// No scheduler is larger.
const MOST_BYTES: u64 = 64 << 20;

/// The compiled object of a policy in a file.
///
/// # Errors
/// There is no such file, it does not compile, or there are no such headers.
pub fn object(policy: &str, loader: &Loader) -> Result<Vec<u8>, Refused> {
    let path = Path::new(policy);
    // A pipe would be waited for, and a device has no end.
    if let Ok(there) = std::fs::metadata(path)
        && !(there.is_file() && there.len() <= MOST_BYTES)
    {
        return Err(Refused::from(Failure::Input(format!(
            "{policy}: {}",
            match there.is_file() {
                true => "too large for a scheduler: more than 64 MiB",
                false => "not a file",
            }
        ))));
    }
    if policy.ends_with(".o") {
        return std::fs::read(path)
            .map_err(|e| Failure::Input(format!("cannot read {policy}: {e}")).into());
    }
    let compiled = compile::compile(path, &options(loader).map_err(|e| refused(policy, &e))?);
    let wrong = |e: LoadError| match (policies::wrong(policy, &e), &loader.headers) {
        (Failure::Input(said), None) => Failure::Input(match headers_of(policy) {
            Some((package, version)) => format!(
                "{said}\n  The package around it has {package} {version}: try --headers {version}"
            ),
            None => said,
        }),
        (said, _) => said,
    };
    compiled.map_err(|e| wrong(e).into())
}

/// What the compiler warns of in a policy's source, if that is what the file has.
///
/// # Errors
/// As [`object`].
pub fn warnings(policy: &str, loader: &Loader) -> Result<String, Refused> {
    if policy.ends_with(".o") {
        return Ok(String::new());
    }
    let options = options(loader).map_err(|e| refused(policy, &e))?;
    compile::warnings(Path::new(policy), &options).map_err(|e| refused(policy, &e))
}

/// How a source is compiled.
///
/// # Errors
/// There are no such headers.
pub fn options(loader: &Loader) -> Result<CompileOptions, LoadError> {
    // A compiler says nothing of folders that are not there.
    if let Some(folder) = loader.include.iter().find(|f| !Path::new(f).is_dir()) {
        let why = format!("headers are to be looked for in `{folder}`, which is no folder");
        return Err(LoadError::Setup {
            key: "include",
            why,
        });
    }
    Ok(CompileOptions {
        include: loader.include.iter().map(PathBuf::from).collect(),
        scx: loader
            .headers
            .as_deref()
            .map(scx_headers::of_version)
            .transpose()
            .map_err(|e| LoadError::Setup {
                key: "headers",
                why: e.to_string(),
            })?,
        ..CompileOptions::default()
    })
}

/// The object of a policy in a file as its loader would hand it to a kernel on this machine. What was asked for wins
/// over what the loader is known to set.
///
/// # Errors
/// As [`object`]; there is no such variable, flag or array, or it cannot have that value.
pub fn ready(policy: &str, asked: &Loader, machine: &Machine) -> Result<Ready, Refused> {
    let object = object(policy, asked)?;
    let known = loader::scheduler(&object);
    let known = known.and_then(|name| table().get(&name));
    let mut setup = Setup {
        values: BTreeMap::new(),
        ops_flags: asked.ops_flags.clone(),
        resize: asked.resize.clone(),
        cpus: machine.capacities.len() as u32,
        kernel: machine.kernel,
        calls: Vec::new(),
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
    let there = there.map_err(|e| refused(policy, &e))?;
    let programs = loader::programs(&object);
    let carried = loader::calls_of(&object);
    let for_sources = !asked.include.is_empty() || asked.headers.is_some();
    if policy.ends_with(".o") && for_sources {
        notes.push(format!(
            "policy {policy}: it is compiled already: -I and --headers are for sources"
        ));
    }
    let of_this = known.is_some_and(|known| known.is_of(&there, &programs));
    if let Some(known) = known {
        let all = known.rodata.iter().chain(&known.older);
        let mine = |(name, value): &(&String, &Value)| {
            let asked_of_machine = matches!(value, Value::Word(_));
            (of_this || asked_of_machine) && there.iter().any(|(n, _)| n == *name)
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
        let numa = known.besides_numa.iter().filter(|_| machine.nodes > 1);
        let besides = known.besides.iter().chain(numa);
        let besides: String = besides.map(|b| format!("; not done: {b}")).collect();
        if of_this && carried.is_empty() {
            let calls = known.runs.iter().filter_map(|run| machine.calls(run));
            setup.calls = calls.flatten().collect();
        }
        notes.push(match of_this {
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
    let calls = setup.calls.iter().chain(&carried);
    let run: Vec<&str> = calls.map(|c| c.program.as_str()).collect();
    let (run, left): (Vec<String>, Vec<String>) = programs
        .into_iter()
        .partition(|program| run.contains(&program.as_str()));
    if !run.is_empty() {
        notes.push(format!(
            "policy {policy}: programs run, as its loader would: {}",
            run.join(", ")
        ));
    }
    // A loader that is known runs no others by default.
    if !left.is_empty() && !of_this {
        notes.push(format!(
            "policy {policy}: programs that its own loader may run, and nothing does here: {}",
            left.join(", ")
        ));
    }
    setup.values.extend(asked.rodata.clone());
    let ready = loader::ready(&object, &setup).map_err(|e| refused(policy, &e))?;
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
    fn only_names_that_say_nothing() {
        assert!(says_nothing("a/main.bpf.o") && says_nothing("bpf.bpf.c"));
        assert!(!says_nothing("domain.bpf.o") && !says_nothing("main"));
    }
}
