// SPDX-License-Identifier: GPL-2.0-only
//! One network device: its interrupts and queues, and the memory node that it is on.
use super::{last_of_link, names};
use crate::dir::Dir;
use crate::root::Root;
use serde::{Deserialize, Serialize};

/// Interrupts and queues of a device that are looked at.
const MOST: usize = 4096;

/// An interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irq {
    pub irq: u32,
    /// What it is for, as in `/proc/interrupts`.
    pub name: String,
    /// The queue that it tells of; none: configuration and the like.
    pub queue: Option<u32>,
    /// The kernel places it itself, and refuses others' wishes; none: only an attempt will tell.
    pub managed: Option<bool>,
    /// CPUs that it may be sent to, as a list.
    pub cpus: String,
    /// CPUs that it is sent to, if the kernel says.
    pub effective: Option<String>,
}

/// A queue: `rx-0`, `tx-0`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    pub name: String,
    /// CPUs as the kernel's mask; none: that cannot be set.
    pub mask: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    /// The kernel's number of it; none: it is no network device here.
    pub index: Option<u32>,
    pub node: Option<u32>,
    /// It has hardware of its own.
    pub physical: bool,
    pub irqs: Vec<Irq>,
    pub queues: Vec<Queue>,
}

/// Whether a network device is hardware.
pub fn is_physical(sys: &Dir, name: &str) -> bool {
    last_of_link(sys, &format!("class/net/{name}/device")).is_some()
}

/// A network device.
pub fn of(root: &Root, sys: &Dir, name: &str) -> Device {
    let folder = format!("class/net/{name}");
    let index = sys.text(&format!("{folder}/ifindex"));
    let mut queues = Vec::new();
    for queue in names(sys, &format!("{folder}/queues")) {
        let file = match queue.split_once('-').map(|(kind, _)| kind) {
            Some("rx") => "rps_cpus",
            Some("tx") => "xps_cpus",
            _ => continue,
        };
        queues.push(Queue {
            mask: sys
                .text(&format!("{folder}/queues/{queue}/{file}"))
                .filter(|m| !m.is_empty()),
            name: queue,
        });
    }
    let number = |q: &Queue| {
        q.name
            .rsplit('-')
            .next()
            .and_then(|n| n.parse::<u32>().ok())
    };
    queues.sort_by_key(number);
    queues.truncate(MOST);
    let physical = is_physical(sys, name);
    // A virtio device hangs on the bus's device that has the interrupts.
    let hardware = [format!("{folder}/device"), format!("{folder}/device/..")];
    let hardware = hardware.iter().filter(|_| physical);
    let mut irqs = Vec::new();
    let mut node = None;
    for folder in hardware {
        if irqs.is_empty() {
            irqs = interrupts(root, sys, folder);
        }
        node = node.or_else(|| memory_node(sys, folder));
    }
    Device {
        name: name.into(),
        index: index.and_then(|i| i.parse().ok()),
        node,
        physical,
        irqs,
        queues,
    }
}

/// A device that is passed through, by its address.
pub fn passed(root: &Root, sys: &Dir, address: &str) -> Device {
    let folder = format!("bus/pci/devices/{address}");
    Device {
        name: address.into(),
        index: None,
        node: memory_node(sys, &folder),
        physical: true,
        irqs: interrupts(root, sys, &folder),
        queues: Vec::new(),
    }
}

/// The kernel says -1 where there is none.
fn memory_node(sys: &Dir, folder: &str) -> Option<u32> {
    sys.text(&format!("{folder}/numa_node"))?.parse().ok()
}

fn interrupts(root: &Root, sys: &Dir, folder: &str) -> Vec<Irq> {
    let mut numbers: Vec<u32> = names(sys, &format!("{folder}/msi_irqs"))
        .iter()
        .filter_map(|n| n.parse().ok())
        .collect();
    // Without messages it has one line.
    let line = || sys.text(&format!("{folder}/irq"))?.parse::<u32>().ok();
    if numbers.is_empty() {
        numbers.extend(line().filter(|irq| *irq > 0));
    }
    numbers.sort_unstable();
    numbers.truncate(MOST);
    let one = |irq: u32| {
        // One that nobody asked for has no name, and is never sent.
        let name = sys
            .text(&format!("kernel/irq/{irq}/actions"))
            .filter(|n| !n.is_empty())?;
        let of = |file: &str| root.proc_text(&format!("irq/{irq}/{file}"));
        let state = sys.text(&format!("kernel/debug/irq/irqs/{irq}"));
        Some(Irq {
            irq,
            queue: queue_of(&name),
            managed: state.map(|s| s.contains("IRQD_AFFINITY_MANAGED")),
            cpus: of("smp_affinity_list").unwrap_or_default(),
            effective: of("effective_affinity_list").filter(|e| !e.is_empty()),
            name,
        })
    };
    numbers.into_iter().filter_map(one).collect()
}

/// Words in the names of interrupts that are of no queue.
const OTHERS: [&str; 10] = [
    "async", "config", "ctrl", "control", "admin", "mgm", "misc", "link", "fault", "other",
];

/// The queue in the name of an interrupt: `eth0-TxRx-3`, `virtio2-input.0`, `mlx5_comp3@pci:0000:3b:00.0`,
/// `vfio-msix[3](0000:3b:00.0)`; of a card with one line, 0.
pub fn queue_of(name: &str) -> Option<u32> {
    let name = name.split('@').next().unwrap_or(name);
    if let Some(rest) = name.strip_prefix("vfio-") {
        return match rest.split_once('[') {
            Some((_, rest)) => rest.split(']').next()?.parse().ok(),
            None => Some(0),
        };
    }
    let lower = name.to_lowercase();
    if OTHERS.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (before, number) = name.split_at_checked(name.len() - digits)?;
    match before.ends_with(['-', '.', '_']) || before.ends_with("comp") {
        true => number.parse().ok(),
        // The device's own name.
        false => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_by_the_names_of_interrupts() {
        for (name, queue) in [
            ("eth0-TxRx-3", Some(3)),
            ("iavf-ens3-TxRx-12", Some(12)),
            ("virtio2-input.0", Some(0)),
            ("virtio2-output.7", Some(7)),
            ("mlx5_comp3@pci:0000:3b:00.0", Some(3)),
            ("mlx5_async0@pci:0000:3b:00.0", None),
            ("virtio2-config", None),
            ("ena-mgmnt@pci:0000:00:05.0", None),
            ("i40e-0000:3b:00.0:misc", None),
            ("eth0", Some(0)),
            ("enp2s0f1", Some(0)),
            ("vfio-msix[3](0000:3b:00.0)", Some(3)),
            ("vfio-intx(0000:3b:00.0)", Some(0)),
            ("x-99999999999999999999", None),
            ("vfio-msix[", None),
            ("é-1", Some(1)),
        ] {
            assert_eq!(queue_of(name), queue, "{name}");
        }
    }
}
