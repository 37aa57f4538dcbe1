// SPDX-License-Identifier: GPL-2.0-only
//! `[net]` and `[net.stages]`.
use crate::diag::{At, Error, Result};
use crate::keys;
use crate::model::{Card, Client, Disk, Nanos, Net, NetPath, Stages, Vm};
use crate::quantity;
use crate::section::Section;
use crate::tree::Value;

/// The paths by the names that files use.
pub const PATHS: [(&str, NetPath); 5] = [
    ("none", NetPath::None),
    ("driver-domain", NetPath::DriverDomain),
    ("vhost", NetPath::Vhost),
    ("emulator", NetPath::Emulator),
    ("direct", NetPath::Direct),
];

/// The network; `vms` and `clients`: whose packets it carries.
///
/// # Errors
/// A value out of its range, a path that does not exist, what does not fit together.
pub fn net(file: &Section<'_>, nr_cpus: u32, vms: &[Vm], clients: &[Client]) -> Result<Net> {
    let section = file.table("net", &keys::NET)?;
    let mut path = NetPath::None;
    if let Some((word, at)) = section.string("path")? {
        match PATHS.iter().find(|(name, _)| *name == word) {
            Some((_, found)) => path = *found,
            None => {
                let names = PATHS.map(|p| p.0);
                return Err(Error::at(
                    &at,
                    format!("there is no path `{}` for packets", word.escape_debug()),
                )
                .nearest(&word, names)
                .note(format!("A path is one of: {}", names.join(", "))));
            }
        }
    }
    let link = section.text("link", quantity::bits_per_second)?;
    let latency_ns = section.duration("latency")?;
    let coalesce_ns = section.duration("coalesce")?;
    let irq_ns = section.duration("irq")?;
    let per_packet_host_ns = section.duration("per_packet_host")?;
    let per_packet_guest_ns = section.duration("per_packet_guest")?;
    let mtu = section.text("mtu", |text| match quantity::bytes(text)? {
        bytes @ 64..=65_536 => u32::try_from(bytes).map_err(|e| e.to_string()),
        bytes => Err(format!(
            "a packet of {bytes} bytes; 64 B to 64 KiB are possible"
        )),
    })?;
    let irq_cpus = section.cpus("irq_cpus", nr_cpus)?;
    if let (NetPath::None, Some(entry)) = (path, section.table.get("irq_cpus")) {
        let text = "`net.irq_cpus` says who takes a card's interrupts, and path `none` has no card";
        return Err(Error::at(&entry.key_at, text).label("give `net.path`, say \"vhost\""));
    }
    let stages = stages(&section, path, nr_cpus)?;
    if stages.is_some() {
        whole(&section, vms, clients)?;
    }
    Ok(Net {
        path,
        link_bit_s: link.map_or(0, |(bits, _)| bits),
        latency_ns,
        coalesce_ns,
        irq_ns,
        per_packet_host_ns,
        per_packet_guest_ns,
        mtu: mtu.map_or(1500, |(bytes, _)| bytes),
        irq_cpus,
        stages,
    })
}

/// The cards by the names that files use.
const CARDS: [(&str, Card); 2] = [("virtio", Card::Virtio), ("emulated", Card::Emulated)];

/// More of anything is no queue that a host has.
const MOST_PACKETS: u32 = 1 << 20;

fn stages(net: &Section<'_>, path: NetPath, nr_cpus: u32) -> Result<Option<Stages>> {
    let Some(entry) = net.table.get("stages") else {
        net.node("stages")?;
        return Ok(None);
    };
    if matches!(path, NetPath::None | NetPath::DriverDomain) {
        let text = "`net.stages` are those of the paths vhost, emulator and direct";
        return Err(Error::at(&entry.key_at, text).label("`net.path` is another one"));
    }
    let section = net.table("stages", &keys::STAGES)?;
    let mut card = (Card::Virtio, None);
    if let Some((word, at)) = section.string("card")? {
        match CARDS.iter().find(|(name, _)| *name == word) {
            Some((_, found)) => card = (*found, Some(at)),
            None => {
                let names = CARDS.map(|c| c.0);
                let text = format!("there is no card `{}`", word.escape_debug());
                return Err(Error::at(&at, text)
                    .nearest(&word, names)
                    .note(format!("A card is one of: {}", names.join(", "))));
            }
        }
    }
    if let (Card::Emulated, Some(at), true) = (card.0, &card.1, path != NetPath::Emulator) {
        let text = "an emulated card is the work of the VM's emulator";
        return Err(Error::at(at, text).label("it needs net.path = \"emulator\""));
    }
    let [copy, copy_byte, inject] = match card.0 {
        Card::Virtio => ["6us", "2ns", "4us"],
        Card::Emulated => ["18us", "4ns", "10us"],
    };
    let many = |key: &str| section.count(key, 1, MOST_PACKETS, "");
    let batch_ppm = section.text("per_batch", |text| match quantity::percent_ppm(text)? {
        ppm @ 0..=1_000_000 => Ok(ppm),
        _ => Err("more than all of it is spent once".into()),
    })?;
    let rps_cpus = section.cpus("rps_cpus", nr_cpus)?;
    if let (NetPath::Direct, Some(entry)) = (path, section.table.get("rps_cpus")) {
        let text = "with path `direct` no softirq of the host moves packets";
        return Err(Error::at(&entry.key_at, text).label("leave `rps_cpus` out"));
    }
    Ok(Some(Stages {
        card: card.0,
        driver_ns: section.duration("driver")?,
        bridge_ns: section.duration("bridge")?,
        filter_ns: section.duration("filter")?,
        tap_ns: section.duration("tap")?,
        copy_ns: duration_or(&section, "copy", copy)?,
        copy_byte_ns: duration_or(&section, "copy_byte", copy_byte)?,
        inject_ns: duration_or(&section, "inject", inject)?,
        guest_ns: section.duration("guest")?,
        cold_copy_ns: section.duration("cold_copy")?,
        cold_inject_ns: section.duration("cold_inject")?,
        cold_guest_ns: section.duration("cold_guest")?,
        near_line_ns: section.duration("near_line")?,
        far_line_ns: section.duration("far_line")?,
        own_lines: section.count("own_lines", 0, MOST_PACKETS, "")?,
        wake_here_ns: section.duration("wake_here")?,
        wake_other_ns: section.duration("wake_other")?,
        batch_ppm: batch_ppm.map_or(0, |(ppm, _)| ppm),
        batch: many("batch")?,
        ring: many("ring")?,
        tap_queue: many("tap_queue")?,
        resend_ns: resend(&section)?,
        rps_cpus,
    }))
}

/// A duration whose default depends on other keys.
pub(super) fn duration_or(section: &Section<'_>, key: &str, default: &str) -> Result<Nanos> {
    if section.table.get(key).is_some() {
        return section.duration(key);
    }
    match section.node_or(key, default).value {
        Value::Str(text) => quantity::duration(&text).map_err(Error::new),
        _ => Ok(0),
    }
}

fn resend(section: &Section<'_>) -> Result<Nanos> {
    let found = section.text("resend", |text| match quantity::duration(text)? {
        0 => Err("a dropped packet that is sent again at once is dropped again at once".into()),
        ns => Ok(ns),
    })?;
    Ok(found.map_or(0, |(ns, _)| ns))
}

/// The guest is one of the stages: there is no machine inside whose tasks would take packets.
fn whole(net: &Section<'_>, vms: &[Vm], clients: &[Client]) -> Result<()> {
    let asked = |vm: &&Vm| vm.count > 0 && clients.iter().any(|client| client.to == vm.name);
    let mut vms = vms.iter().filter(asked);
    let Some(vm) = vms.find(|vm| !vm.guest.is_none()) else {
        return Ok(());
    };
    let at = net
        .table
        .get("stages")
        .map_or(&net.at, |entry| &entry.key_at);
    let text = format!(
        "vm.{} has a guest, and with `net.stages` the guest is one of the stages",
        vm.name
    );
    Err(Error::at(at, text).label(format!("give vm.{} guest = \"none\"", vm.name)))
}

/// `coverage` and `backend_affinity` need a thread that moves packets, and vCPUs that are bound one by one.
///
/// # Errors
/// The first VM for which they mean nothing.
pub fn check_threads(file: &Section<'_>, net: &Net, disks: &[Disk], vms: &[Vm]) -> Result<()> {
    let at = |vm: &Vm, key: &str| -> Option<At> {
        let groups = file.named("vm", &keys::VM).ok()?;
        let (_, entry) = groups.into_iter().find(|(name, _)| *name == vm.name)?;
        let Value::Table(table) = &entry.node.value else {
            return None;
        };
        Some(table.get(key)?.key_at.clone())
    };
    let refuse = |vm: &Vm, key: &str, text: &str, label: &str| {
        let text = format!("`vm.{}.{key}` {text}", vm.name);
        Err(match at(vm, key) {
            Some(at) => Error::at(&at, text).label(label.to_string()),
            None => Error::new(format!("{text}: {label}")),
        })
    };
    for vm in vms {
        let threads = net.threads_per_vm() + disks.iter().map(Disk::threads_per_vm).sum::<u32>();
        if !vm.backend_affinity.is_empty() && threads == 0 {
            let text = "binds the thread that moves packets, and on this path a VM has none";
            return refuse(
                vm,
                "backend_affinity",
                text,
                "net.path vhost or emulator has one, a disk with path virtio or emulated, too",
            );
        }
        if vm.coverage_ppm.is_some() && vm.affinity.is_empty() {
            let text = "says how many threads `affinity` holds, and there is none";
            return refuse(vm, "coverage", text, "give `affinity`, say [0]");
        }
        if vm.coverage_ppm.is_some() && !vm.guest.is_none() {
            let text = "binds vCPUs one by one, and those of a guest are bound together";
            return refuse(vm, "coverage", text, "give guest = \"none\"");
        }
    }
    Ok(())
}
