// SPDX-License-Identifier: GPL-2.0-only
//! A tap that a VM may hold.
use std::fs::File;
use std::os::fd::AsRawFd;

/// A tap of this process's network namespace; none: no tap can be had.
pub fn tap() -> Option<File> {
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let tun = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .ok()?;
    let mut request = [0u8; 40];
    request[..4].copy_from_slice(b"tapx");
    // IFF_TAP and IFF_NO_PI.
    request[16..18].copy_from_slice(&0x1002u16.to_ne_bytes());
    // SAFETY: `struct ifreq` is 40 bytes, which outlive the call.
    let done = unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
    (done == 0).then_some(tun)
}
