// SPDX-License-Identifier: GPL-2.0-only
//! Which part of the kernel an address belongs to, by `/proc/kallsyms`: its module, or, of code that is built in, what
//! its names begin with.
use std::collections::BTreeMap;

/// Parts whose code may be built in, by how the names of their functions begin. The first that fits.
const BUILT_IN: [(&str, &[&str]); 11] = [
    (
        "kvm",
        &[
            "kvm_",
            "__kvm_",
            "vmx_",
            "svm_",
            "vcpu_",
            "handle_ept_",
            "kvm_mmu_",
        ],
    ),
    ("bridge", &["br_", "__br_"]),
    (
        "nf_conntrack",
        &["nf_conntrack", "__nf_conntrack", "nf_ct_", "__nf_ct_"],
    ),
    ("netfilter", &["nf_", "__nf_", "nft_", "ipt_", "xt_"]),
    ("tun", &["tun_", "__tun_"]),
    ("macvtap", &["tap_", "macvtap_", "macvlan_"]),
    ("vhost", &["vhost_", "__vhost_"]),
    ("veth", &["veth_", "__veth_"]),
    (
        "virtio_net",
        &["virtnet_", "skb_xmit_done", "skb_recv_done"],
    ),
    (
        "net",
        &[
            "napi_",
            "__napi_",
            "net_",
            "netif_",
            "__netif_",
            "dev_",
            "__dev_",
            "skb_",
            "__skb_",
            "sock_",
            "ip_",
            "ip6_",
            "tcp_",
            "udp_",
            "inet_",
            "eth_",
            "gro_",
            "enqueue_to_backlog",
            "process_backlog",
            "get_rps_cpu",
        ],
    ),
    (
        "scheduler",
        &[
            "sched_",
            "__sched",
            "schedule",
            "try_to_wake_up",
            "enqueue_task",
            "pick_next",
            "update_curr",
        ],
    ),
];

/// What is none of them.
pub const OTHER: &str = "kernel";

/// The kernel's functions by address.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Address and number of the part, ascending.
    starts: Vec<(u64, u32)>,
    parts: Vec<String>,
}

impl Symbols {
    /// Reads `/proc/kallsyms`; none: addresses are hidden from this user (`kptr_restrict`).
    pub fn read(text: &str) -> Option<Symbols> {
        let mut symbols = Symbols::default();
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            if !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            let Ok(address) = u64::from_str_radix(address, 16) else {
                continue;
            };
            let module = words
                .next()
                .and_then(|m| m.strip_prefix('[')?.strip_suffix(']'));
            let part = module.map_or_else(|| built_in(name), String::from);
            let next = numbers.len() as u32;
            let number = *numbers.entry(part).or_insert(next);
            symbols.starts.push((address, number));
        }
        if symbols.starts.iter().all(|(address, _)| *address == 0) {
            return None;
        }
        symbols.starts.sort_unstable();
        symbols.parts = vec![String::new(); numbers.len()];
        for (name, number) in numbers {
            symbols.parts[number as usize] = name;
        }
        Some(symbols)
    }

    /// The part that an address belongs to.
    pub fn part(&self, address: u64) -> &str {
        let after = self.starts.partition_point(|(start, _)| *start <= address);
        let before = after.checked_sub(1).and_then(|i| self.starts.get(i));
        before.map_or(OTHER, |(_, number)| &self.parts[*number as usize])
    }
}

/// Parts of the kernel that a module of this name is of, or has the name of.
pub(super) fn is_part(module: &str) -> bool {
    BUILT_IN.iter().any(|(part, _)| *part == module)
}

pub(super) fn built_in(name: &str) -> String {
    let fits = |(_, begins): &&(&str, &[&str])| begins.iter().any(|b| name.starts_with(b));
    BUILT_IN
        .iter()
        .find(fits)
        .map_or(OTHER, |(part, _)| part)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_what_is_built_in() {
        let text = "ffffffff81000000 T _stext\nffffffff81001000 t br_handle_frame\nffffffff81002000 D br_data\n\
                    ffffffff81003000 T nf_conntrack_in\nffffffff81004000 T nf_hook_slow\nnonsense\n\
                    ffffffffc0001000 t e1000_clean\t[e1000e]\nffffffffc0002000 t kvm_vcpu_run [kvm]\n";
        let symbols = Symbols::read(text).unwrap();
        for (address, part) in [
            (0, OTHER),
            (0xffff_ffff_8100_0fff, OTHER),
            (0xffff_ffff_8100_1000, "bridge"),
            // Data is no function: it belongs to the one before.
            (0xffff_ffff_8100_2fff, "bridge"),
            (0xffff_ffff_8100_3001, "nf_conntrack"),
            (0xffff_ffff_8100_4001, "netfilter"),
            (0xffff_ffff_c000_1fff, "e1000e"),
            (u64::MAX, "kvm"),
        ] {
            assert_eq!(symbols.part(address), part, "{address:x}");
        }
        assert!(Symbols::read("0000000000000000 T _stext\n").is_none());
        assert!(Symbols::read("").is_none());
    }
}
