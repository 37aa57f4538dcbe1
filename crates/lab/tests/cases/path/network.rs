// SPDX-License-Identifier: GPL-2.0-only
//! The network of the lab's VM, asked of the kernel by netlink: a bridge, a cable to the client's network namespace,
//! addresses, neighbours; and taps, by their own file.
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

type Link = [u8; 6];

const ATTRIBUTE_ADDRESS: u16 = 1;
const ATTRIBUTE_NAME: u16 = 3;
const ATTRIBUTE_MASTER: u16 = 10;
const ATTRIBUTE_INFO: u16 = 18;
const ATTRIBUTE_NAMESPACE: u16 = 28;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
const PERMANENT: u16 = 0x80;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
/// A tap, no header of its own, virtio's header.
const TAP: u16 = 0x0002 | 0x1000 | 0x4000;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

/// `struct ifinfomsg`.
fn about_link(index: u32, up: bool) -> Vec<u8> {
    let flag = if up { libc::IFF_UP as u32 } else { 0 };
    [0, index, flag, flag]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect()
}

/// Asks in the network namespace of the calling thread, and waits for the answer.
fn ask(what: &str, kind: u16, body: &[u8]) -> Result<(), String> {
    let refused = |e: io::Error| format!("{what}: {e}");
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE;
    let mut message = ((body.len() + 16) as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((flags as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    let mut answer = [0_u8; 4096];
    // SAFETY: buffers that outlive the calls; the socket is this function's own.
    let got = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let socket = libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE);
        if socket < 0 {
            return Err(refused(io::Error::last_os_error()));
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let fd = socket.as_raw_fd();
        if libc::send(fd, message.as_ptr().cast(), message.len(), 0) < 0 {
            return Err(refused(io::Error::last_os_error()));
        }
        libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0)
    };
    if got < 20 {
        return Err(refused(io::Error::last_os_error()));
    }
    // Of an answer: a header of 16 bytes, and the error.
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        error => Err(refused(io::Error::from_raw_os_error(-error))),
    }
}

pub fn index(name: &str) -> Result<u32, String> {
    let c = CString::new(name).map_err(|e| e.to_string())?;
    // SAFETY: a C string that outlives the call.
    match unsafe { libc::if_nametoindex(c.as_ptr()) } {
        0 => Err(format!("{name}: {}", io::Error::last_os_error())),
        index => Ok(index),
    }
}

fn add(what: &str, parts: &[Vec<u8>]) -> Result<(), String> {
    ask(
        what,
        libc::RTM_NEWLINK,
        &[about_link(0, false), parts.concat()].concat(),
    )
}

pub fn add_bridge(name: &str) -> Result<(), String> {
    let info = attribute(ATTRIBUTE_INFO, &text(INFO_KIND, "bridge"));
    add(name, &[text(ATTRIBUTE_NAME, name), info])
}

/// A cable: one end here, the other in another network namespace.
pub fn add_cable(name: &str, there: &File, peer: &str, link: Link) -> Result<(), String> {
    let namespace = there.as_raw_fd().cast_unsigned().to_ne_bytes();
    let peer = [
        about_link(0, false),
        text(ATTRIBUTE_NAME, peer),
        attribute(ATTRIBUTE_ADDRESS, &link),
        attribute(ATTRIBUTE_NAMESPACE, &namespace),
    ];
    let data = attribute(INFO_DATA, &attribute(VETH_PEER, &peer.concat()));
    let info = [text(INFO_KIND, "veth"), data].concat();
    add(
        name,
        &[text(ATTRIBUTE_NAME, name), attribute(ATTRIBUTE_INFO, &info)],
    )
}

/// Switches it on; `bridge`: as a port of that one.
pub fn up(name: &str, bridge: Option<&str>) -> Result<(), String> {
    let mut body = about_link(index(name)?, true);
    if let Some(bridge) = bridge {
        body.extend(attribute(ATTRIBUTE_MASTER, &index(bridge)?.to_ne_bytes()));
    }
    ask(name, libc::RTM_NEWLINK, &body)
}

/// An address of 24 bits of network.
pub fn add_address(name: &str, address: [u8; 4]) -> Result<(), String> {
    let mut body = vec![libc::AF_INET as u8, 24, 0, 0];
    body.extend(index(name)?.to_ne_bytes());
    for kind in [libc::IFA_LOCAL, libc::IFA_ADDRESS] {
        body.extend(attribute(kind, &address));
    }
    ask(name, libc::RTM_NEWADDR, &body)
}

/// Whose an address is: nobody is asked for it.
pub fn add_neighbour(name: &str, address: [u8; 4], link: Link) -> Result<(), String> {
    let mut body = vec![libc::AF_INET as u8, 0, 0, 0];
    body.extend(index(name)?.to_ne_bytes());
    body.extend(PERMANENT.to_ne_bytes());
    body.extend([0, 0]);
    body.extend(attribute(libc::NDA_DST, &address));
    body.extend(attribute(libc::NDA_LLADDR, &link));
    ask(name, libc::RTM_NEWNEIGH, &body)
}

/// A tap of this name, with headers of so many bytes before its frames.
pub fn tap(name: &str, header_bytes: i32) -> Result<File, String> {
    let path = "/dev/net/tun";
    let tun = File::options().read(true).write(true).open(path);
    let tun = tun.map_err(|e| format!("{path}: {e}"))?;
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&TAP.to_ne_bytes());
    // SAFETY: `struct ifreq` is 40 bytes; both outlive the calls.
    let done = unsafe {
        libc::ioctl(tun.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) == 0
            && libc::ioctl(tun.as_raw_fd(), TUNSETVNETHDRSZ, &raw const header_bytes) == 0
    };
    match done {
        true => Ok(tun),
        false => Err(format!("tap {name}: {}", io::Error::last_os_error())),
    }
}
