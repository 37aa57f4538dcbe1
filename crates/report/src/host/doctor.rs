// SPDX-License-Identifier: GPL-2.0-only
//! `berth doctor`.
use super::notes;
use crate::{Style, text};
use berth_host::doctor::{Check, State, verdict};

/// A line per check, what follows from it below, and the verdict.
pub fn doctor(checks: &[Check], style: &Style) -> String {
    let mut out = String::new();
    for check in checks {
        let (word, painted) = match check.state {
            State::Ok => ("ok", style.green("ok")),
            State::Note => ("note", "note".into()),
            State::Warn => ("warn", style.bold("warn")),
            State::Refuse => ("no", style.red("no")),
        };
        let mark = " ".repeat(6usize.saturating_sub(word.len()));
        let name = text::left(check.name, 22);
        let indent = " ".repeat(30);
        let folded = notes(
            std::slice::from_ref(&check.found),
            style.width.saturating_sub(30),
        );
        for (i, line) in folded.lines().enumerate() {
            match i {
                0 => out.push_str(&format!("  {painted}{mark}{name}{}\n", line.trim_start())),
                _ => out.push_str(&format!("{indent}{}\n", line.trim_start())),
            }
        }
        if let Some(advice) = &check.advice {
            for line in notes(std::slice::from_ref(advice), style.width.saturating_sub(30)).lines()
            {
                out.push_str(&format!("{indent}{}\n", line.trim_start()));
            }
        }
    }
    out.push('\n');
    out.push_str(&notes(&[verdict(checks)], style.width));
    out
}
