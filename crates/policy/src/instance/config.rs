// SPDX-License-Identifier: GPL-2.0-only
//! What an instance is made for.
use crate::profile::Kconfig;
use std::collections::BTreeMap;

/// How the policy's code is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Translated to machine code.
    #[default]
    Native,
    /// Interpreted, every access checked: slower, and a trap names function, file and line.
    Checked,
}

/// Instructions a single callback may execute unless told otherwise.
pub const DEFAULT_BUDGET: u64 = 10_000_000;

/// Value put into a read-only variable before the policy starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Const {
    Int(i128),
    /// Copied to the variable's start; must not be longer than it.
    Bytes(Vec<u8>),
}

/// What an instance is made for.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// CPUs of the machine: size of per-CPU maps and masks.
    pub nr_cpus: u32,
    /// CONFIG_* values of this machine; the rest comes from the policy's kernel profile.
    pub kconfig: BTreeMap<String, Kconfig>,
    /// Variables by name (any section), set before the policy starts.
    pub consts: BTreeMap<String, Const>,
    /// Declared parameters by name, as the user wrote them.
    pub params: BTreeMap<String, String>,
    /// Other `max_entries` by map name.
    pub map_entries: BTreeMap<String, u32>,
    pub mode: Mode,
    /// Instructions one callback may execute; [`DEFAULT_BUDGET`].
    pub budget_insns: u64,
    /// Of `bpf_get_prandom_u32` and of masks' "any" choices.
    pub seed: u64,
}

impl InstanceConfig {
    /// Defaults for a machine of `nr_cpus` CPUs.
    pub fn new(nr_cpus: u32) -> Self {
        InstanceConfig {
            nr_cpus,
            kconfig: BTreeMap::new(),
            consts: BTreeMap::new(),
            params: BTreeMap::new(),
            map_entries: BTreeMap::new(),
            mode: Mode::Native,
            budget_insns: DEFAULT_BUDGET,
            seed: 0,
        }
    }
}
