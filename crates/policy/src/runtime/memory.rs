// SPDX-License-Identifier: GPL-2.0-only
//! Guarded copies (`bpf_probe_read*`) and string helpers.
use super::{kernel_fns, readable, writable};
use crate::instance::Instance;
use crate::maps::{E2BIG, EFAULT, EINVAL};

const ERANGE: i64 = -34;

/// Copy, or zero the target and return -EFAULT.
fn read(inst: &Instance, dst: u64, size: u64, src: u64) -> u64 {
    let size = size as u32;
    if size == 0 {
        return 0;
    }
    if !writable(inst, dst, size) {
        return EFAULT as u64;
    }
    // SAFETY: both ranges were checked.
    unsafe {
        if src < 4096 || !readable(inst, src, size) {
            (dst as *mut u8).write_bytes(0, size as usize);
            return EFAULT as u64;
        }
        std::ptr::copy(src as *const u8, dst as *mut u8, size as usize);
    }
    0
}

/// Bytes of the NUL-terminated string at `address`, at most `limit`; `None` if it cannot be read.
pub(super) fn c_string(inst: &Instance, address: u64, limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while out.len() < limit {
        let at = address + out.len() as u64;
        if at < 4096 || !readable(inst, at, 1) {
            return None;
        }
        // SAFETY: checked.
        match unsafe { (at as *const u8).read() } {
            0 => return Some(out),
            byte => out.push(byte),
        }
    }
    Some(out)
}

/// Copy a string including its NUL, cut at `size`; returns the length with NUL.
fn read_str(inst: &Instance, dst: u64, size: u64, src: u64) -> u64 {
    let size = size as u32 as usize;
    if size == 0 {
        return 0;
    }
    if !writable(inst, dst, size as u32) {
        return EFAULT as u64;
    }
    let dst = dst as *mut u8;
    // SAFETY: `size` bytes were checked, the string has at most `size - 1`.
    unsafe {
        match c_string(inst, src, size - 1) {
            Some(text) => {
                dst.copy_from(text.as_ptr(), text.len());
                dst.add(text.len()).write(0);
                text.len() as u64 + 1
            }
            None => {
                dst.write_bytes(0, size);
                EFAULT as u64
            }
        }
    }
}

/// A number as `strtol` of the kernel reads it: value, negative, bytes used.
fn number(inst: &Instance, text: u64, len: u64, base: u64) -> Result<(u64, bool, u64), i64> {
    if !matches!(base, 0 | 8 | 10 | 16) {
        return Err(EINVAL);
    }
    let bytes = c_string(inst, text, len as usize).ok_or(EFAULT)?;
    let mut i = bytes.iter().take_while(|b| b.is_ascii_whitespace()).count();
    let negative = bytes.get(i) == Some(&b'-');
    i += usize::from(negative);
    let prefix = |p: &[u8]| bytes[i..].len() > 2 && bytes[i..i + 2].eq_ignore_ascii_case(p);
    let base = match base {
        0 if prefix(b"0x") => 16,
        0 if bytes.get(i) == Some(&b'0') => 8,
        0 => 10,
        b => b as u32,
    };
    if base == 16 && prefix(b"0x") {
        i += 2;
    }
    let digits = bytes[i..]
        .iter()
        .take_while(|b| (**b as char).is_digit(base))
        .count();
    if digits == 0 {
        return Err(EINVAL);
    }
    let text = std::str::from_utf8(&bytes[i..i + digits]).map_err(|_| EINVAL)?;
    let value = u64::from_str_radix(text, base).map_err(|_| ERANGE)?;
    Ok((value, negative, (i + digits) as u64))
}

fn store(inst: &Instance, place: u64, value: u64) -> bool {
    let ok = writable(inst, place, 8);
    if ok {
        // SAFETY: checked.
        unsafe { (place as *mut u64).write_unaligned(value) };
    }
    ok
}

kernel_fns! {
    fn bpf_probe_read(inst, _raw, dst, size, src) { read(inst, dst, size, src) }
    fn bpf_probe_read_user(inst, _raw, dst, size, src) { read(inst, dst, size, src) }
    fn bpf_probe_read_kernel(inst, _raw, dst, size, src) { read(inst, dst, size, src) }
    fn bpf_probe_read_str(inst, _raw, dst, size, src) { read_str(inst, dst, size, src) }
    fn bpf_probe_read_user_str(inst, _raw, dst, size, src) { read_str(inst, dst, size, src) }
    fn bpf_probe_read_kernel_str(inst, _raw, dst, size, src) { read_str(inst, dst, size, src) }
    fn bpf_strncmp(inst, _raw, a, size, b) {
        let size = size as u32 as usize;
        let (Some(a), Some(b)) = (c_string(inst, a, size), c_string(inst, b, size)) else {
            return EFAULT as u64;
        };
        // The kernel returns the difference of the first bytes that differ; both end at NUL or `size`.
        let i = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
        let byte = |s: &[u8]| i64::from(s.get(i).copied().unwrap_or(0));
        (byte(&a) - byte(&b)).signum() as u64
    }
    fn bpf_strtol(inst, _raw, text, len, flags, result) {
        match number(inst, text, len, flags & 31) {
            Err(rc) => rc as u64,
            Ok((value, negative, used)) => {
                let limit = i64::MAX as u64 + u64::from(negative);
                if value > limit {
                    return ERANGE as u64;
                }
                let value = if negative { value.wrapping_neg() } else { value };
                if store(inst, result, value) { used } else { EFAULT as u64 }
            }
        }
    }
    fn bpf_strtoul(inst, _raw, text, len, flags, result) {
        match number(inst, text, len, flags & 31) {
            Err(rc) => rc as u64,
            Ok((_, true, _)) => EINVAL as u64,
            Ok((value, false, used)) => {
                if store(inst, result, value) { used } else { EFAULT as u64 }
            }
        }
    }
    fn bpf_snprintf(inst, _raw, out, size, fmt, data, data_len) {
        let size = size as u32;
        let Some(text) = super::format::format(inst, fmt, data, data_len as u32) else {
            return EINVAL as u64;
        };
        if text.len() as u64 > u64::from(u32::MAX) {
            return E2BIG as u64;
        }
        if size > 0 {
            if !writable(inst, out, size) {
                return EFAULT as u64;
            }
            let copy = text.len().min(size as usize - 1);
            // SAFETY: checked.
            unsafe {
                (out as *mut u8).copy_from(text.as_ptr(), copy);
                (out as *mut u8).add(copy).write(0);
            }
        }
        text.len() as u64 + 1
    }
}
