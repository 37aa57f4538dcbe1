// SPDX-License-Identifier: GPL-2.0-only
//! Which functions of the kernel are on the path of VMs, and can be watched: by tracefs'
//! `available_filter_functions_addrs` (Linux 6.5).
use super::symbols::{OTHER, built_in, is_part};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

/// Where tracefs may be mounted.
const LISTS: [&str; 2] = [
    "/sys/kernel/tracing/available_filter_functions_addrs",
    "/sys/kernel/debug/tracing/available_filter_functions_addrs",
];
/// What the names of modules on the path begin with, besides those named as parts.
const MODULES: [&str; 8] = [
    "kvm_", "vhost_", "nf_", "nft_", "xt_", "ipt", "br_", "macvlan",
];
/// No part of the path: most calls of these are everybody's.
const NOT: [&str; 2] = [OTHER, "scheduler"];

/// So far behind its beginning, in bytes, a function calls the tracer at most: there may be a landing pad before.
const AFTER: u64 = 16;

/// Functions, by their places: where each begins, its name, and the part of the kernel that it is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    pub addresses: Vec<u64>,
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

    /// Of the list's text: where the function calls the tracer, its name, in brackets its module, a line each.
    /// `symbols`: `/proc/kallsyms`, by which it is known where it begins.
    pub fn of(text: &str, symbols: &str, drivers: &BTreeSet<String>) -> Functions {
        let mut begins: HashMap<&str, Vec<u64>> = HashMap::new();
        for line in symbols.lines() {
            let mut words = line.split_whitespace();
            let (address, name) = (words.next().and_then(address), words.nth(1));
            if let (Some(address), Some(name)) = (address, name) {
                begins.entry(name).or_default().push(address);
            }
        }
        let mut found: BTreeMap<u64, (&str, String)> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(at), Some(name)) = (words.next().and_then(address), words.next()) else {
                continue;
            };
            let module = words
                .next()
                .and_then(|m| m.strip_prefix('[')?.strip_suffix(']'));
            let part = match module {
                Some(module) => on_the_path(module, drivers).then(|| module.to_string()),
                None => Some(built_in(name)).filter(|part| !NOT.contains(&part.as_str())),
            };
            let near = |begin: &&u64| (**begin..=**begin + AFTER).contains(&at);
            let begin = begins.get(name).and_then(|all| all.iter().find(near));
            if let (Some(part), Some(begin)) = (part, begin) {
                found.insert(*begin, (name, part));
            }
        }
        let mut functions = Functions::default();
        for (address, (name, part)) in found {
            functions.addresses.push(address);
            functions.names.push(name.into());
            functions.parts.push(part);
        }
        functions
    }

    /// Those of some parts only.
    pub fn of_parts(self, parts: &[&str]) -> Functions {
        let mut functions = Functions::default();
        let all = self.addresses.into_iter().zip(self.names).zip(self.parts);
        for ((address, name), part) in all.filter(|(_, part)| parts.contains(&part.as_str())) {
            functions.addresses.push(address);
            functions.names.push(name);
            functions.parts.push(part);
        }
        functions
    }
}

fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|a| *a > 0)
}

fn on_the_path(module: &str, drivers: &BTreeSet<String>) -> bool {
    is_part(module) || drivers.contains(module) || MODULES.iter().any(|m| module.starts_with(m))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_parts_and_drivers_of_the_path() {
        let list = [
            ("do_exit", ""),
            ("br_handle_frame", ""),
            ("schedule", ""),
            ("kvm_vcpu_run", " [kvm]"),
            ("vmx_run", " [kvm_intel]"),
            ("tun_net_xmit", " [tun]"),
            ("e1000_clean", " [e1000e]"),
            ("igb_poll", " [igb]"),
            ("ext4_sync", " [ext4]"),
            ("help", " [ext4]"),
            ("help", " [tun]"),
            ("half", " [tun"),
        ];
        // Each calls the tracer 4 bytes behind its beginning, but the last.
        let (mut text, mut symbols) =
            (String::from("nonsense\n0 br_hidden\n"), String::from("x\n"));
        for (i, (name, module)) in list.iter().enumerate() {
            let begin = 0x1000 * (i as u64 + 1);
            let far = if *name == "half" { 64 } else { 4 };
            text += &format!("{:x} {name}{module}\n", begin + far);
            symbols += &format!("{begin:x} t {name}\t{}\n", module.trim());
        }
        let drivers = BTreeSet::from(["e1000e".to_string()]);
        let found = Functions::of(&text, &symbols, &drivers);
        let rows = found.addresses.iter().zip(&found.names).zip(&found.parts);
        let rows: Vec<(u64, &str, &str)> = rows
            .map(|((a, n), p)| (*a, n.as_str(), p.as_str()))
            .collect();
        let bridge = (0x2000, "br_handle_frame", "bridge");
        assert_eq!(
            rows,
            [
                bridge,
                (0x4000, "kvm_vcpu_run", "kvm"),
                (0x5000, "vmx_run", "kvm_intel"),
                (0x6000, "tun_net_xmit", "tun"),
                (0x7000, "e1000_clean", "e1000e"),
                // Of two functions of one name the one that is meant.
                (0xb000, "help", "tun"),
            ]
        );
        assert_eq!(found.clone().of_parts(&["bridge"]).addresses, [bridge.0]);
        assert_eq!(Functions::of("", "", &drivers), Functions::default());
    }
}
