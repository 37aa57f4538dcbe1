// SPDX-License-Identifier: GPL-2.0-only
//! Presets: named sets of parameter values that a policy declares beside its parameters, as a BTF declaration tag
//! `berth:preset name=xen-3.4 set=a=1,b=2 help=...` (policies/include/berth/param.bpf.h) on a variable of a section of
//! their own, which loaders pass over: a preset is a name for values and no part of what the policy is.
use crate::error::{LoadError, Result};
use crate::ir::Program;
use crate::params::Param;
use std::collections::BTreeMap;

/// A named set of values.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Preset {
    pub name: String,
    /// One sentence.
    pub help: String,
    /// Parameter and value, in that parameter's unit; parameters that are not named keep their defaults.
    pub values: BTreeMap<String, String>,
}

/// The section.
pub const SECTION: &str = ".berth.presets";

const PREFIX: &str = "berth:preset ";

/// Whether this declaration is that of a preset.
pub fn is_one(tag: &str) -> bool {
    tag.starts_with(PREFIX)
}

/// All presets of a program, in the object's order.
///
/// # Errors
/// A declaration that cannot be read, a name given twice, a value for a parameter the policy has not, or one out of
/// its bounds.
pub fn declared(program: &Program, params: &[Param]) -> Result<Vec<Preset>> {
    let mut presets: Vec<Preset> = Vec::new();
    for text in program
        .presets
        .iter()
        .filter_map(|t| t.strip_prefix(PREFIX))
    {
        let preset = parse(text)?;
        if presets.iter().any(|p| p.name == preset.name) {
            return Err(broken(&preset.name, "is declared twice"));
        }
        check(&preset, params)?;
        presets.push(preset);
    }
    Ok(presets)
}

fn broken(name: &str, why: &str) -> LoadError {
    LoadError::Broken(format!("preset {name} {why}"))
}

fn parse(text: &str) -> Result<Preset> {
    let (head, help) = text.split_once("help=").unwrap_or((text, ""));
    let word = |key: &str| head.split_whitespace().find_map(|w| w.strip_prefix(key));
    let name = word("name=").unwrap_or("");
    if name.is_empty() {
        return Err(broken(text, "has no name"));
    }
    let mut values = BTreeMap::new();
    for pair in word("set=")
        .unwrap_or("")
        .split(',')
        .filter(|p| !p.is_empty())
    {
        let (param, value) = pair
            .split_once('=')
            .ok_or_else(|| broken(name, &format!("says `{pair}`, which is not name=value")))?;
        if values
            .insert(param.to_string(), value.to_string())
            .is_some()
        {
            return Err(broken(name, &format!("sets {param} twice")));
        }
    }
    Ok(Preset {
        name: name.to_string(),
        help: help.trim().to_string(),
        values,
    })
}

fn check(preset: &Preset, params: &[Param]) -> Result<()> {
    for (name, value) in &preset.values {
        let param = params
            .iter()
            .find(|p| p.name == *name)
            .ok_or_else(|| broken(&preset.name, &format!("sets `{name}`, no parameter")))?;
        param
            .value(value)
            .map_err(|e| broken(&preset.name, &e.to_string()))?;
    }
    Ok(())
}

/// The values an arm asks for: its preset's, then its own, which win.
///
/// # Errors
/// There is no such preset; the message lists those there are.
pub fn resolve(
    presets: &[Preset],
    preset: Option<&str>,
    set: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>> {
    let mut values = match preset {
        None => BTreeMap::new(),
        Some(name) => match presets.iter().find(|p| p.name == name) {
            Some(found) => found.values.clone(),
            None => {
                let known: Vec<&str> = presets.iter().map(|p| p.name.as_str()).collect();
                let known = match known.is_empty() {
                    true => "none".to_string(),
                    false => known.join(", "),
                };
                return Err(LoadError::Setting(format!(
                    "no preset `{name}` (it has: {known})"
                )));
            }
        },
    };
    values.extend(set.clone());
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(name: &str) -> Param {
        Param {
            name: name.into(),
            unit: "us".into(),
            words: Vec::new(),
            default: 5,
            min: 0,
            max: 10,
            live: false,
            help: String::new(),
        }
    }

    #[test]
    fn presets_are_read_and_checked() {
        let p = parse("name=xen-3.4 set=a=1,b=2 help=The rules, as set=before").unwrap();
        assert_eq!(
            (p.name.as_str(), p.help.as_str()),
            ("xen-3.4", "The rules, as set=before")
        );
        assert_eq!(p.values["b"], "2");
        assert!(check(&p, &[param("a"), param("b")]).is_ok());
        let e = check(&p, &[param("a")]).unwrap_err().to_string();
        assert!(e.contains("xen-3.4") && e.contains("`b`"), "{e}");
        let far = parse("name=x set=a=11 help=").unwrap();
        assert!(check(&far, &[param("a")]).is_err());
        assert!(parse("set=a=1 help=x").is_err());
        assert!(parse("name=x set=a help=x").is_err());
        assert!(parse("name=x set=a=1,a=2").is_err());
        assert!(
            parse("name=plain help=Nothing set")
                .unwrap()
                .values
                .is_empty()
        );
    }

    #[test]
    fn an_arms_own_values_win_and_unknown_presets_are_listed() {
        let presets = [
            parse("name=one set=a=1,b=2 help=x").unwrap(),
            parse("name=two help=y").unwrap(),
        ];
        let own = BTreeMap::from([("b".to_string(), "7".to_string())]);
        let got = resolve(&presets, Some("one"), &own).unwrap();
        assert_eq!((got["a"].as_str(), got["b"].as_str()), ("1", "7"));
        assert_eq!(resolve(&presets, None, &own).unwrap(), own);
        let e = resolve(&presets, Some("three"), &own).unwrap_err();
        assert!(e.to_string().contains("one, two"), "{e}");
    }
}
