// SPDX-License-Identifier: GPL-2.0-only
//! JSON for people and programs: objects over several lines, lists of numbers in one.
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

/// Indents objects; lists stay in their line, but for the objects in them.
#[derive(Default)]
struct Lines {
    depth: usize,
    empty: bool,
}

impl Lines {
    fn new_line<W: ?Sized + Write>(&self, w: &mut W) -> io::Result<()> {
        w.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| w.write_all(b" "))
    }
}

impl Formatter for Lines {
    fn begin_object<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.empty = true;
        w.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if !self.empty {
            self.new_line(w)?;
        }
        self.empty = false;
        w.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        if !first {
            w.write_all(b",")?;
        }
        self.empty = false;
        self.new_line(w)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        w.write_all(if first { b"" } else { b", " })
    }
}

/// The value as JSON, ending with a new line.
///
/// # Errors
/// The value's own; none for structures of numbers, text, lists and maps with text keys.
pub fn to_string<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(
        &mut bytes,
        Lines::default(),
    ))?;
    bytes.push(b'\n');
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_stay_in_a_line() {
        let value = serde_json::json!({"a": [1, 2, [3]], "b": {}, "c": [{"d": "x"}]});
        let text = super::to_string(&value).unwrap();
        assert_eq!(
            text,
            "{\n \"a\": [1, 2, [3]],\n \"b\": {},\n \"c\": [{\n  \"d\": \"x\"\n }]\n}\n"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }
}
