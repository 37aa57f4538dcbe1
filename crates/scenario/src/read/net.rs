// SPDX-License-Identifier: GPL-2.0-only
//! `[net]`.
use crate::diag::{Error, Result};
use crate::keys;
use crate::model::{Net, NetPath};
use crate::quantity;
use crate::section::Section;

/// The paths by the names that files use.
pub const PATHS: [(&str, NetPath); 5] = [
    ("none", NetPath::None),
    ("driver-domain", NetPath::DriverDomain),
    ("vhost", NetPath::Vhost),
    ("emulator", NetPath::Emulator),
    ("direct", NetPath::Direct),
];

pub fn net(file: &Section<'_>) -> Result<Net> {
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
    Ok(Net {
        path,
        link_bit_s: link.map_or(0, |(bits, _)| bits),
        latency_ns,
        coalesce_ns,
        irq_ns,
        per_packet_host_ns,
        per_packet_guest_ns,
        mtu: mtu.map_or(1500, |(bytes, _)| bytes),
    })
}
