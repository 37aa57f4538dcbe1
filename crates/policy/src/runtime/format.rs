// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's format strings as policies use them in prints, errors and `bpf_snprintf`.
use super::{memory::c_string, readable};
use crate::instance::Instance;

/// Longest format string or `%s` operand taken.
const TEXT_MAX: usize = 4096;

/// Format with operands in an array of u64 (`data_len` bytes). `None`: a bad format, unreadable memory, or
/// a number of operands that does not fit.
pub fn format(inst: &Instance, fmt: u64, data: u64, data_len: u32) -> Option<String> {
    let count = data_len as usize / 8;
    if !data_len.is_multiple_of(8) || (count > 0 && !readable(inst, data, data_len)) {
        return None;
    }
    let operands: Vec<u64> = (0..count)
        // SAFETY: checked.
        .map(|i| unsafe { (data as *const u64).add(i).read_unaligned() })
        .collect();
    format_with(inst, fmt, &operands)
}

/// Format with operands given directly; more operands than conversions are ignored.
pub fn format_with(inst: &Instance, fmt: u64, operands: &[u64]) -> Option<String> {
    let fmt = c_string(inst, fmt, TEXT_MAX)?;
    let mut operands = operands.iter().copied();
    let mut out = String::new();
    let mut i = 0;
    while i < fmt.len() {
        let literal = fmt[i..].iter().take_while(|b| **b != b'%').count();
        out.push_str(&String::from_utf8_lossy(&fmt[i..i + literal]));
        i += literal;
        if i == fmt.len() {
            break;
        }
        i += 1;
        if fmt.get(i) == Some(&b'%') {
            out.push('%');
            i += 1;
            continue;
        }
        let (mut left, mut zero, mut alternate, mut width, mut long) =
            (false, false, false, 0usize, false);
        while let Some(flag @ (b'-' | b'0' | b'#' | b'+' | b' ')) = fmt.get(i) {
            match flag {
                b'-' => left = true,
                b'0' => zero = true,
                b'#' => alternate = true,
                _ => {}
            }
            i += 1;
        }
        while let Some(digit) = fmt.get(i).filter(|b| b.is_ascii_digit()) {
            width = (width * 10 + usize::from(digit - b'0')).min(TEXT_MAX);
            i += 1;
        }
        if fmt.get(i) == Some(&b'.') {
            i += 1;
            while fmt.get(i).is_some_and(u8::is_ascii_digit) {
                i += 1;
            }
        }
        while let Some(b'l' | b'h' | b'z') = fmt.get(i) {
            long |= fmt[i] != b'h';
            i += 1;
        }
        let conversion = *fmt.get(i)?;
        i += 1;
        let value = operands.next()?;
        let text = match conversion {
            b'd' | b'i' if long => (value as i64).to_string(),
            b'd' | b'i' => (value as i32).to_string(),
            b'u' if long => value.to_string(),
            b'u' => (value as u32).to_string(),
            b'x' | b'X' => {
                let value = if long { value } else { u64::from(value as u32) };
                let digits = if conversion == b'x' {
                    format!("{value:x}")
                } else {
                    format!("{value:X}")
                };
                if alternate {
                    format!("0x{digits}")
                } else {
                    digits
                }
            }
            b'c' => char::from(value as u8).to_string(),
            b's' => match c_string(inst, value, TEXT_MAX) {
                Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                None => "(efault)".into(),
            },
            // Addresses differ from run to run and never reach a result.
            b'p' => {
                while fmt.get(i).is_some_and(u8::is_ascii_alphanumeric) {
                    i += 1;
                }
                if value == 0 {
                    "(null)".into()
                } else {
                    "(pointer)".into()
                }
            }
            _ => return None,
        };
        let pad = width.saturating_sub(text.chars().count());
        if left {
            out.push_str(&text);
            out.extend(std::iter::repeat_n(' ', pad));
        } else if zero && conversion != b's' {
            let (sign, digits) = text
                .strip_prefix('-')
                .map_or(("", text.as_str()), |d| ("-", d));
            out.push_str(sign);
            out.extend(std::iter::repeat_n('0', pad));
            out.push_str(digits);
        } else {
            out.extend(std::iter::repeat_n(' ', pad));
            out.push_str(&text);
        }
    }
    Some(out)
}
