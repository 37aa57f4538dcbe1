// SPDX-License-Identifier: GPL-2.0-only
//! The complete scenario as text: every default filled in, each with where it comes from.
//!
//! The text is itself a scenario: reading it gives the same model.
use crate::section::Fact;

/// The column where origins stand, unless the value is longer.
const COLUMN: usize = 44;

/// Prints facts as TOML with origins in comments.
pub fn full(facts: &[Fact]) -> String {
    let mut out = String::new();
    for (i, fact) in facts.iter().enumerate() {
        match fact {
            Fact::Header(header) => {
                if i > 0 {
                    out.push('\n');
                }
                out.push_str(header);
                out.push('\n');
            }
            Fact::Value {
                key, toml, origin, ..
            } => {
                let text = format!("{key} = {toml}");
                out.push_str(&format!("{text:<COLUMN$} # {origin}\n"));
            }
            Fact::Part { .. } => {}
            Fact::Absent { key, means } => {
                let text = format!("# {key}: {means}");
                out.push_str(&format!("{text:<COLUMN$} # default\n"));
            }
        }
    }
    out
}
