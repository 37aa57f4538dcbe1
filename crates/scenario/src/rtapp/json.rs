// SPDX-License-Identifier: GPL-2.0-only
//! JSON as rt-app writes it, into the tree that scenarios are: with comments, with keys that repeat, every value with
//! its place.
use crate::diag::{At, Error, Result, Source};
use crate::tree::{Entry, Node, Table, Value};
use std::sync::Arc;

/// The deepest nesting; rt-app needs five levels.
const DEEPEST: u32 = 32;

/// Reads a text.
///
/// # Errors
/// It is not JSON: what was expected, and where.
pub fn parse(source: &Arc<Source>) -> Result<Node> {
    let mut parser = Parser { source, at: 0 };
    parser.space()?;
    let node = parser.value(0)?;
    parser.space()?;
    match parser.peek() {
        None => Ok(node),
        Some(_) => Err(parser.error("here the file should end")),
    }
}

struct Parser<'a> {
    source: &'a Arc<Source>,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.source.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn from(&self, start: usize) -> At {
        At {
            source: self.source.clone(),
            span: start..self.at,
        }
    }

    /// An error at the character that is next.
    fn error(&self, message: &str) -> Error {
        let len = self.peek().map_or(0, char::len_utf8);
        let at = At {
            source: self.source.clone(),
            span: self.at..self.at + len,
        };
        Error::at(&at, format!("this is not JSON: {message}"))
    }

    /// Skips white space and comments.
    fn space(&mut self) -> Result<()> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            let rest = &rest[blank..];
            let comment = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                match rest.find("*/") {
                    Some(end) => end + 2,
                    None => {
                        self.at += blank;
                        return Err(self.error("this comment does not end"));
                    }
                }
            } else {
                0
            };
            self.at += blank + comment;
            if comment == 0 {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: u32) -> Result<Node> {
        if depth > DEEPEST {
            return Err(self.error("nested too deeply"));
        }
        let start = self.at;
        let value = match self.peek() {
            Some('{') => Value::Table(self.table(depth)?),
            Some('[') => Value::Array(self.array(depth)?),
            Some('"') => Value::Str(self.string()?),
            Some(c) if c == '-' || c.is_ascii_digit() => self.number()?,
            Some(c) if c.is_ascii_alphabetic() => self.word()?,
            _ => return Err(self.error("a value is missing")),
        };
        Ok(Node {
            value,
            at: self.from(start),
        })
    }

    fn table(&mut self, depth: u32) -> Result<Table> {
        self.at += 1;
        let mut entries = Vec::new();
        loop {
            self.space()?;
            let start = self.at;
            match self.peek() {
                Some('}') => {
                    self.at += 1;
                    return Ok(Table { entries });
                }
                Some('"') => {}
                None => return Err(self.error("an object is not closed")),
                Some(_) => return Err(self.error("here a key in quotes is missing")),
            }
            let key = self.string()?;
            let key_at = self.from(start);
            self.space()?;
            if self.peek() != Some(':') {
                return Err(self.error("a key needs `:` and a value"));
            }
            self.at += 1;
            self.space()?;
            let node = self.value(depth + 1)?;
            entries.push(Entry { key, key_at, node });
            self.space()?;
            match self.peek() {
                Some(',') => self.at += 1,
                Some('}') => {}
                None => return Err(self.error("an object is not closed")),
                Some(_) => return Err(self.error("here `,` or `}` is missing")),
            }
        }
    }

    fn array(&mut self, depth: u32) -> Result<Vec<Node>> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.space()?;
            if self.peek() == Some(']') {
                self.at += 1;
                return Ok(items);
            }
            items.push(self.value(depth + 1)?);
            self.space()?;
            match self.peek() {
                Some(',') => self.at += 1,
                Some(']') => {}
                None => return Err(self.error("a list is not closed")),
                Some(_) => return Err(self.error("here `,` or `]` is missing")),
            }
        }
    }

    fn string(&mut self) -> Result<String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let c = match self.peek() {
                None | Some('\n') => return Err(self.error("a string is not closed")),
                Some(c) => c,
            };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(text),
                '\\' => text.push(self.escape()?),
                c => text.push(c),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let Some(c) = self.peek() else {
            return Err(self.error("a string is not closed"));
        };
        let plain = match c {
            '"' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let code = self
                    .rest()
                    .get(1..5)
                    .and_then(|hex| u32::from_str_radix(hex, 16).ok());
                let Some(code) = code else {
                    return Err(self.error("`\\u` takes four digits"));
                };
                self.at += 5;
                // Halves of characters outside the first plane: no name of rt-app has any.
                return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
            }
            _ => return Err(self.error("there is no such escape")),
        };
        self.at += c.len_utf8();
        Ok(plain)
    }

    fn number(&mut self) -> Result<Value> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.')))
            .unwrap_or(rest.len());
        let text = &rest[..end];
        let value = match text.parse::<i64>() {
            Ok(i) => Value::Int(i),
            Err(_) => match text.parse::<f64>() {
                Ok(x) if x.is_finite() => Value::Float(x),
                _ => return Err(self.error("this is not a number")),
            },
        };
        self.at += end;
        Ok(value)
    }

    fn word(&mut self) -> Result<Value> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        let value = match &rest[..end] {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            _ => {
                return Err(
                    self.error("here a number, a string in quotes, true or false is missing")
                );
            }
        };
        self.at += end;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<String, String> {
        let source = Arc::new(Source {
            name: "x.json".into(),
            text: text.into(),
            numbered: true,
        });
        parse(&source)
            .map(|node| node.value.to_toml())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn reads_what_rt_app_files_have() {
        let text = "/* a\n comment */ { \"run\": 1, // us\n \"run\": 2, \"x\": [1, -2.5, true], \"s\": \"a\\u0041\", }";
        assert_eq!(
            parsed(text),
            Ok("{ run = 1, run = 2, x = [1, -2.5, true], s = \"aA\" }".into())
        );
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (text, words) in [
            ("", "a value is missing"),
            ("{", "not closed"),
            ("{ \"a\" 1 }", "needs `:`"),
            ("{ \"a\": 1 \"b\": 2 }", "`,` or `}` is missing"),
            ("{ a: 1 }", "a key in quotes"),
            ("[1, 2", "not closed"),
            ("[1 2]", "`,` or `]`"),
            ("\"abc", "not closed"),
            ("\"a\\x\"", "no such escape"),
            ("\"\\u12\"", "four digits"),
            ("1 2", "should end"),
            ("12ab", "not a number"),
            ("1e999", "not a number"),
            ("null", "is missing"),
            ("/* x", "comment does not end"),
        ] {
            let said = parsed(text).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
            assert!(said.contains("x.json:1"), "{text}: {said}");
        }
        assert!(
            parsed(&"[".repeat(100_000))
                .unwrap_err()
                .contains("too deeply")
        );
    }
}
