// SPDX-License-Identifier: GPL-2.0-only
//! `vm.NAME.guest`: a policy's name, or the table `[vm.NAME.guest]`.
use super::Context;
use super::arms::policy_name;
use super::host::hz;
use crate::diag::{Error, Result};
use crate::keys;
use crate::model::Guest;
use crate::section::Section;
use crate::tree::Value;
use std::collections::BTreeMap;

pub fn guest(context: &Context<'_>, vm: &Section<'_>) -> Result<Guest> {
    if let Some(entry) = vm.table.get("guest")
        && let Value::Str(policy) = &entry.node.value
    {
        vm.node("guest")?;
        return Ok(Guest {
            policy: policy_name(context, policy, &entry.node.at)?,
            ..Guest::default()
        });
    }
    let section = vm.table("guest", &keys::GUEST)?;
    let policy = match section.string("policy")? {
        Some((policy, at)) => policy_name(context, &policy, &at)?,
        None => Guest::default().policy,
    };
    let preset = section.string("preset")?.map(|(name, _)| name);
    let mut params = BTreeMap::new();
    if let Some(node) = section.node("set")? {
        let Value::Table(table) = &node.value else {
            return Err(section.wrong_type("set", &node));
        };
        for entry in &table.entries {
            section.part(&format!("set.{}", entry.key), entry);
            let text = match &entry.node.value {
                Value::Str(text) => text.clone(),
                Value::Int(_) | Value::Float(_) | Value::Bool(_) => entry.node.value.to_toml(),
                _ => {
                    return Err(Error::at(
                        &entry.node.at,
                        format!(
                            "`{}` is not a parameter with a value",
                            entry.key.escape_debug()
                        ),
                    ));
                }
            };
            params.insert(entry.key.clone(), text);
        }
    }
    let hz = hz(&section)?;
    let hrtick = section.boolean("hrtick")?.unwrap_or(false);
    let steal_accounting = section.boolean("steal_accounting")?.unwrap_or(true);
    let ple = section.boolean("ple")?.unwrap_or(true);
    Ok(Guest {
        policy,
        preset,
        params,
        hz,
        hrtick,
        steal_accounting,
        ple,
        ple_window_ns: section.duration("ple_window")?,
        halt_poll_ns: section.duration("halt_poll")?,
    })
}
