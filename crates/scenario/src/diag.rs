// SPDX-License-Identifier: GPL-2.0-only
//! Errors that say where: file and line, the line itself, carets, what to do.
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A text that values come from: a scenario file, or one argument of the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// Shown in errors: the file's name as the user gave it, or `command line`.
    pub name: String,
    pub text: String,
    /// Lines are counted (files), or not (arguments, defaults).
    pub numbered: bool,
}

/// A range of bytes in a [`Source`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    pub source: Arc<Source>,
    pub span: Range<usize>,
}

impl At {
    /// The line (from 1) the range starts in.
    pub fn line(&self) -> usize {
        let end = floor(&self.source.text, self.span.start);
        let before = &self.source.text.as_bytes()[..end];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// Where it is, in a few words: `line 12`, or the source's name.
    pub fn short(&self) -> String {
        if self.source.numbered {
            format!("line {}", self.line())
        } else {
            self.source.name.clone()
        }
    }

    /// The range of `part`, a slice of the string value that stands at this place.
    ///
    /// Falls back to the whole value where the file writes the string with escapes.
    pub fn narrow(&self, whole: &str, part: &str) -> At {
        let offset = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize);
        if let Some(offset) = offset.filter(|o| o + part.len() <= whole.len()) {
            // Quoted: one byte of quote before the contents. Bare (`--set a=300us`): none.
            for quote in [1, 0] {
                let start = self.span.start + quote;
                if self.source.text.get(start..start + whole.len()) == Some(whole)
                    && start + whole.len() + quote == self.span.end
                {
                    let start = start + offset;
                    let span = start..start + part.len().max(1);
                    return At {
                        source: self.source.clone(),
                        span,
                    };
                }
            }
        }
        self.clone()
    }
}

/// The greatest char boundary not after `i`.
fn floor(text: &str, i: usize) -> usize {
    let mut i = i.min(text.len());
    while !text.is_char_boundary(i) {
        i -= 1;
    }
    i
}

/// What is wrong with a scenario, where, and what would be right.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    message: String,
    at: Option<At>,
    label: String,
    notes: Vec<String>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error about something that has no line (a missing file, a missing table).
    pub fn new(message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            message: message.into(),
            at: None,
            label: String::new(),
            notes: Vec::new(),
        }))
    }

    pub fn at(at: &At, message: impl Into<String>) -> Error {
        let mut error = Error::new(message);
        error.0.at = Some(at.clone());
        error
    }

    /// Words beside the carets.
    pub fn label(mut self, label: impl Into<String>) -> Error {
        self.0.label = label.into();
        self
    }

    /// `did you mean` beside the carets, if one of `names` is near.
    pub fn nearest<'a>(self, wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Error {
        match nearest(wrong, names) {
            Some(name) => self.label(format!("did you mean `{name}`?")),
            None => self,
        }
    }

    /// A line below the excerpt: what is possible, what to do.
    pub fn note(mut self, note: impl Into<String>) -> Error {
        self.0.notes.push(note.into());
        self
    }

    /// The sentence alone, without place and notes.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where, if it is somewhere.
    pub fn place(&self) -> Option<&At> {
        self.0.at.as_ref()
    }
}

/// The name nearest to `wrong`, if any is near enough to be what was meant.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wrong.len() > 64 {
        return None;
    }
    let allowed = (wrong.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(wrong, name), name))
        .filter(|(distance, name)| {
            *distance <= allowed
                || (wrong.len() >= 3 && (name.starts_with(wrong) || wrong.starts_with(name)))
        })
        .min()
        .map(|(_, name)| name)
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            message,
            at,
            label,
            notes,
        } = &*self.0;
        write!(f, "{message}")?;
        if let Some(at) = at {
            excerpt(f, at, label)?;
        } else if !label.is_empty() {
            write!(f, "; {label}")?;
        }
        for note in notes {
            write!(f, "\n  {note}")?;
        }
        Ok(())
    }
}

/// The widest piece of a line that is shown.
const EXCERPT: usize = 84;

fn excerpt(f: &mut fmt::Formatter<'_>, at: &At, label: &str) -> fmt::Result {
    let text = &at.source.text;
    let start = floor(text, at.span.start);
    let end = floor(text, at.span.end.max(start));
    let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
    let before: Vec<char> = text[line_start..start].chars().collect();
    let marked: Vec<char> = text[start..end.clamp(start, line_end)].chars().collect();
    let line: Vec<char> = text[line_start..line_end].trim_end().chars().collect();

    // A long line is cut to a window around the carets.
    let from = if line.len() <= EXCERPT {
        0
    } else {
        before.len().saturating_sub(EXCERPT / 3)
    };
    let to = line.len().min(from + EXCERPT);
    let shown: String = line[from.min(to)..to]
        .iter()
        .map(|c| if c.is_control() { ' ' } else { *c })
        .collect();
    let carets = marked
        .len()
        .clamp(1, EXCERPT.saturating_sub(before.len() - from).max(1));

    let number = if at.source.numbered {
        at.line().to_string()
    } else {
        String::new()
    };
    let margin = number.len().max(2);
    if at.source.numbered {
        write!(f, "\n  {}:{number}", at.source.name)?;
    } else {
        write!(f, "\n  {}", at.source.name)?;
    }
    write!(f, "\n   {number:>margin$} | {shown}")?;
    write!(
        f,
        "\n   {:margin$} | {}{}",
        "",
        " ".repeat(before.len() - from),
        "^".repeat(carets)
    )?;
    if !label.is_empty() {
        write!(f, " {label}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Arc<Source> {
        Arc::new(Source {
            name: "a.toml".into(),
            text: text.into(),
            numbered: true,
        })
    }

    #[test]
    fn shows_line_carets_and_label() {
        let source = source("x = 1\nvcpu = 2\n");
        let error = Error::at(
            &At {
                source,
                span: 6..10,
            },
            "unknown key `vcpu`",
        )
        .nearest("vcpu", ["vcpus", "count"]);
        assert_eq!(
            error.to_string(),
            "unknown key `vcpu`\n  a.toml:2\n    2 | vcpu = 2\n      | ^^^^ did you mean `vcpus`?"
        );
    }

    #[test]
    fn narrows_to_a_part_of_a_string() {
        let source = source("d = \"exp(300)\"");
        let whole = "exp(300)";
        let at = At {
            source,
            span: 4..14,
        };
        assert_eq!(at.narrow(whole, &whole[4..7]).span, 9..12);
        assert_eq!(at.narrow(whole, "elsewhere").span, 4..14);
    }

    #[test]
    fn any_span_prints() {
        let long = "ä".repeat(300) + "\n\tz";
        let source = source(&long);
        for start in 0..long.len() + 3 {
            for len in [0, 1, 7, 1000] {
                let at = At {
                    source: source.clone(),
                    span: start..start + len,
                };
                assert!(Error::at(&at, "m").label("l").to_string().contains('^'));
            }
        }
    }

    #[test]
    fn far_names_are_not_suggested() {
        assert_eq!(nearest("zebra", ["vcpus", "count"]), None);
        assert_eq!(nearest("weigth", ["vcpus", "weight"]), Some("weight"));
    }
}
