// SPDX-License-Identifier: GPL-2.0-only
//! Values of a policy's global variables.
use crate::layout::Kind;

/// What to store in a variable.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Value {
    /// Exactly the variable's bytes.
    Bytes(Vec<u8>),
    /// A number, converted to the variable's size and signedness.
    Number(i128),
    /// As a person writes it: a decimal or 0x number, true/false, an enumerator's number, or the text of a char array.
    Text(String),
}

impl Value {
    /// The bytes for a variable of this kind and size, or why the value does not fit.
    pub(crate) fn encode(&self, kind: &Kind, size: usize) -> Result<Vec<u8>, String> {
        match self {
            Value::Bytes(b) if b.len() == size => Ok(b.clone()),
            Value::Bytes(b) => Err(format!("{} bytes given, it has {size}", b.len())),
            Value::Number(n) => number(*n, kind, size),
            Value::Text(t) => text(t, kind, size),
        }
    }
}

fn text(t: &str, kind: &Kind, size: usize) -> Result<Vec<u8>, String> {
    match kind {
        Kind::Text => {
            if t.len() >= size {
                return Err(format!(
                    "`{t}` has {} bytes, at most {} fit",
                    t.len(),
                    size - 1
                ));
            }
            let mut b = vec![0; size];
            b[..t.len()].copy_from_slice(t.as_bytes());
            Ok(b)
        }
        Kind::Bool if t == "true" => number(1, kind, size),
        Kind::Bool if t == "false" => number(0, kind, size),
        Kind::Bool => Err(format!("`{t}` is neither true nor false")),
        _ => {
            let parsed = match t.strip_prefix("0x") {
                Some(hex) => i128::from_str_radix(hex, 16),
                None => t.parse(),
            };
            let n = parsed.map_err(|_| format!("`{t}` is not a whole number"))?;
            number(n, kind, size)
        }
    }
}

fn number(n: i128, kind: &Kind, size: usize) -> Result<Vec<u8>, String> {
    let bits = 8 * size as u32;
    let (lo, hi) = match kind {
        Kind::Bool => (0, 1),
        Kind::Unsigned if size <= 8 => (0, (1i128 << bits) - 1),
        Kind::Signed if size <= 8 => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        _ => return Err("it is not a number".to_string()),
    };
    if n < lo || n > hi {
        return Err(format!("{n} is not between {lo} and {hi}"));
    }
    Ok(n.to_le_bytes()[..size].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_or_say_why_not() {
        let v = |t: &str, k, s| Value::Text(t.to_string()).encode(&k, s);
        assert_eq!(v("258", Kind::Unsigned, 4).unwrap(), [2, 1, 0, 0]);
        assert_eq!(v("0xff", Kind::Unsigned, 1).unwrap(), [255]);
        assert_eq!(v("-1", Kind::Signed, 2).unwrap(), [255, 255]);
        assert_eq!(
            v("18446744073709551615", Kind::Unsigned, 8).unwrap(),
            [255; 8]
        );
        assert!(
            v("256", Kind::Unsigned, 1)
                .unwrap_err()
                .contains("between 0 and 255")
        );
        assert!(v("-1", Kind::Unsigned, 8).is_err());
        assert!(
            v("5 ms", Kind::Unsigned, 8)
                .unwrap_err()
                .contains("not a whole number")
        );
        assert!(v("3", Kind::Other, 16).is_err());
    }

    #[test]
    fn booleans_and_texts() {
        let v = |t: &str, k, s| Value::Text(t.to_string()).encode(&k, s);
        assert_eq!(v("true", Kind::Bool, 1).unwrap(), [1]);
        assert!(v("yes", Kind::Bool, 1).is_err());
        assert_eq!(v("lat", Kind::Text, 5).unwrap(), b"lat\0\0");
        assert!(v("latency", Kind::Text, 7).is_err());
        assert!(Value::Bytes(vec![1]).encode(&Kind::Other, 2).is_err());
    }
}
