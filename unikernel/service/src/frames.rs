// SPDX-License-Identifier: GPL-2.0-only
//! Ethernet frames as clients of the unikernel send and read them.
use alloc::vec;
use alloc::vec::Vec;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};

/// Bytes before what a frame carries.
const HEADER: usize = 14;

/// One end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its Ethernet address.
    pub mac: EthernetAddress,
    /// Its IPv4 address.
    pub ip: Ipv4Address,
}

fn write_ethernet(frame: &mut [u8], from: End, to: EthernetAddress, ethertype: EthernetProtocol) {
    let ethernet = EthernetRepr {
        src_addr: from.mac,
        dst_addr: to,
        ethertype,
    };
    ethernet.emit(&mut EthernetFrame::new_unchecked(frame));
}

/// Bytes of a frame with a datagram of `payload` bytes.
pub const fn datagram_bytes(payload: usize) -> usize {
    14 + 20 + 8 + payload
}

/// A datagram from a port of `from` to a port of `to`, of 1472 bytes at most.
pub fn datagram(from: (End, u16), to: (End, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; datagram_bytes(payload.len())];
    write_datagram(&mut frame, from, to, payload);
    frame
}

/// The same, into a frame of [`datagram_bytes`].
pub fn write_datagram(frame: &mut [u8], from: (End, u16), to: (End, u16), payload: &[u8]) {
    let sums = ChecksumCapabilities::default();
    let udp = UdpRepr {
        src_port: from.1,
        dst_port: to.1,
    };
    let ip = Ipv4Repr {
        src_addr: from.0.ip,
        dst_addr: to.0.ip,
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + payload.len(),
        hop_limit: 64,
    };
    write_ethernet(frame, from.0, to.0.mac, EthernetProtocol::Ipv4);
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[HEADER..]);
    ip.emit(&mut packet, &sums);
    let mut inner = UdpPacket::new_unchecked(packet.payload_mut());
    let (source, target) = (from.0.ip.into(), to.0.ip.into());
    let fill = |buffer: &mut [u8]| buffer.copy_from_slice(payload);
    udp.emit(&mut inner, &source, &target, payload.len(), fill, &sums);
}

fn arp(operation: ArpOperation, from: End, to: End, frame_to: EthernetAddress) -> Vec<u8> {
    let arp = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: from.mac,
        source_protocol_addr: from.ip,
        target_hardware_addr: to.mac,
        target_protocol_addr: to.ip,
    };
    let mut frame = vec![0; HEADER + arp.buffer_len()];
    write_ethernet(&mut frame, from, frame_to, EthernetProtocol::Arp);
    arp.emit(&mut ArpPacket::new_unchecked(&mut frame[HEADER..]));
    frame
}

/// Who has `ip`?
pub fn who_has(from: End, ip: Ipv4Address) -> Vec<u8> {
    arp(
        ArpOperation::Request,
        from,
        End {
            mac: EthernetAddress([0; 6]),
            ip,
        },
        EthernetAddress::BROADCAST,
    )
}

/// What a client finds in a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// Somebody asks for its Ethernet address; the answer is this frame.
    Asked(Vec<u8>),
    /// Somebody told the Ethernet address that was asked for.
    Told(End),
    /// A datagram to one of its ports.
    Datagram {
        /// From which port.
        from: u16,
        /// To which.
        to: u16,
        /// What it says.
        payload: &'a [u8],
    },
}

/// Reads a frame to `me`; `None`: it says nothing to it, or its checksums are wrong.
pub fn read(me: End, frame: &[u8]) -> Option<Found<'_>> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    match ethernet.ethertype() {
        EthernetProtocol::Arp => {
            let packet = ArpPacket::new_checked(ethernet.payload()).ok()?;
            let ArpRepr::EthernetIpv4 {
                operation,
                source_hardware_addr: mac,
                source_protocol_addr: ip,
                target_protocol_addr,
                ..
            } = ArpRepr::parse(&packet).ok()?
            else {
                return None;
            };
            match operation {
                _ if target_protocol_addr != me.ip => None,
                ArpOperation::Request => Some(Found::Asked(arp(
                    ArpOperation::Reply,
                    me,
                    End { mac, ip },
                    mac,
                ))),
                ArpOperation::Reply => Some(Found::Told(End { mac, ip })),
                _ => None,
            }
        }
        EthernetProtocol::Ipv4 => {
            let packet = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
            let sums = ChecksumCapabilities::default();
            let ip = Ipv4Repr::parse(&packet, &sums).ok()?;
            if ip.dst_addr != me.ip || ip.next_header != IpProtocol::Udp {
                return None;
            }
            // The frame's own bytes, which outlive the packet.
            let (start, end) = (
                usize::from(packet.header_len()),
                usize::from(packet.total_len()),
            );
            let bytes = frame
                .get(EthernetFrame::<&[u8]>::header_len()..)?
                .get(start..end)?;
            let udp = UdpPacket::new_checked(bytes).ok()?;
            let ports =
                UdpRepr::parse(&udp, &ip.src_addr.into(), &ip.dst_addr.into(), &sums).ok()?;
            Some(Found::Datagram {
                from: ports.src_port,
                to: ports.dst_port,
                payload: udp.payload(),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_read() {
        let a = End {
            mac: EthernetAddress([2, 0, 0, 0, 0, 1]),
            ip: Ipv4Address::new(10, 0, 2, 2),
        };
        let b = End {
            mac: EthernetAddress([2, 0, 0, 0, 0, 2]),
            ip: Ipv4Address::new(10, 0, 2, 15),
        };
        let frame = datagram((a, 2000), (b, 7777), b"hello");
        assert_eq!(
            read(b, &frame),
            Some(Found::Datagram {
                from: 2000,
                to: 7777,
                payload: b"hello"
            })
        );
        assert_eq!(read(a, &frame), None);
        let Some(Found::Asked(answer)) = read(b, &who_has(a, b.ip)) else {
            panic!("nobody was asked")
        };
        assert_eq!(read(a, &answer), Some(Found::Told(b)));
        for cut in 0..frame.len() {
            assert_eq!(read(b, &frame[..cut]), None, "{cut} bytes");
        }
    }
}
