// SPDX-License-Identifier: GPL-2.0-only
//! Which functions of the kernel are on the path of VMs, and can be watched: by tracefs' `available_filter_functions`.
use super::symbols::{OTHER, built_in, is_part};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

/// Where tracefs may be mounted.
const LISTS: [&str; 2] = [
    "/sys/kernel/tracing/available_filter_functions",
    "/sys/kernel/debug/tracing/available_filter_functions",
];
/// What the names of modules on the path begin with, besides those named as parts.
const MODULES: [&str; 8] = [
    "kvm_", "vhost_", "nf_", "nft_", "xt_", "ipt", "br_", "macvlan",
];
/// No part of the path: most calls of these are everybody's.
const NOT: [&str; 2] = [OTHER, "scheduler"];

/// Functions, by their places, and the part of the kernel of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    pub names: Vec<String>,
    pub parts: Vec<String>,
}

impl Functions {
    /// Those of this machine, with the drivers of its network cards.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn on_the_path() -> io::Result<Functions> {
        let [first, second] = LISTS.map(std::fs::read_to_string);
        let list = first.or_else(|e| second.map_err(|_| e))?;
        let symbols = std::fs::read_to_string("/proc/kallsyms")?;
        let cards = std::fs::read_dir("/sys/class/net");
        let drivers = cards.into_iter().flatten().flatten().filter_map(|card| {
            let module = std::fs::read_link(card.path().join("device/driver/module")).ok()?;
            Some(module.file_name()?.to_string_lossy().replace('-', "_"))
        });
        Ok(Functions::of(&list, &symbols, &drivers.collect()))
    }

    /// Of the list's text: a function a line, behind it in brackets its module. A name that several symbols have, also
    /// such as cannot be watched (`symbols`: `/proc/kallsyms`), is left out: the kernel would take the first one.
    pub fn of(text: &str, symbols: &str, drivers: &BTreeSet<String>) -> Functions {
        let mut times: HashMap<&str, u32> = HashMap::new();
        for name in symbols
            .lines()
            .filter_map(|line| line.split_whitespace().nth(2))
        {
            *times.entry(name).or_default() += 1;
        }
        let several = |name: &str| times.get(name).is_some_and(|n| *n > 1);
        let mut parts: BTreeMap<&str, Option<String>> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some(name) = words.next().filter(|name| !several(name)) else {
                continue;
            };
            let module = words
                .next()
                .and_then(|m| m.strip_prefix('[')?.strip_suffix(']'));
            let part = match module {
                Some(module) => on_the_path(module, drivers).then(|| module.to_string()),
                None => Some(built_in(name)).filter(|part| !NOT.contains(&part.as_str())),
            };
            parts
                .entry(name)
                .and_modify(|there| *there = None)
                .or_insert(part);
        }
        let found = parts
            .into_iter()
            .filter_map(|(name, part)| Some((name.to_string(), part?)));
        let (names, parts) = found.unzip();
        Functions { names, parts }
    }
}

fn on_the_path(module: &str, drivers: &BTreeSet<String>) -> bool {
    is_part(module) || drivers.contains(module) || MODULES.iter().any(|m| module.starts_with(m))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_parts_and_drivers_of_the_path() {
        let text = "do_exit\nbr_handle_frame\nbr_twice\nschedule\nkvm_vcpu_run [kvm]\nvmx_run [kvm_intel]\ntun_net_xmit [tun]\n\
                    e1000_clean [e1000e]\nigb_poll [igb]\next4_sync [ext4]\nhelp [nf_nat]\nhelp [ext4]\nhelp [tun]\n\
                    \nhalf [tun\n";
        let drivers = BTreeSet::from(["e1000e".to_string()]);
        let symbols =
            "0 t br_handle_frame\n0 t br_twice\n0 d br_twice\t[tun]\n0 T do_exit\nnonsense\n";
        let found = Functions::of(text, symbols, &drivers);
        let both: Vec<_> = found.names.iter().zip(&found.parts).collect();
        let both: Vec<(&str, &str)> = both.iter().map(|(n, p)| (n.as_str(), p.as_str())).collect();
        assert_eq!(
            both,
            [
                ("br_handle_frame", "bridge"),
                ("e1000_clean", "e1000e"),
                ("kvm_vcpu_run", "kvm"),
                ("tun_net_xmit", "tun"),
                ("vmx_run", "kvm_intel"),
            ]
        );
        assert_eq!(Functions::of("", "", &drivers), Functions::default());
    }
}
