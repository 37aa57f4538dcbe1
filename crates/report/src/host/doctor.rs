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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_per_check_what_follows_below_it_and_the_verdict_last() {
        let check = |state, name, found: &str, advice: Option<&str>| Check {
            name,
            state,
            found: found.into(),
            advice: advice.map(String::from),
        };
        let long = "words ".repeat(30);
        let checks = [
            check(State::Ok, "kernel", "7.2.12", None),
            check(State::Warn, "BTF", &long, Some("Do something.")),
            check(State::Refuse, "isolcpus", "2-3", None),
        ];
        let style = |colour| Style { colour, width: 80 };
        let text = doctor(&checks, &style(false));
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("  ok    kernel                7.2.12"),
            "{text}"
        );
        assert!(lines[1].starts_with("  warn  BTF"), "{text}");
        // What does not fit goes on below itself, advice too.
        let indent = " ".repeat(30);
        assert!(lines[2].starts_with(&format!("{indent}words")), "{text}");
        assert!(
            lines.contains(&format!("{indent}Do something.").as_str()),
            "{text}"
        );
        assert!(
            lines.iter().any(|l| l.starts_with("  no    isolcpus")),
            "{text}"
        );
        assert!(lines.iter().all(|l| text::width(l) <= 80), "{text}");
        let last = verdict(&checks);
        assert!(
            text.trim_end()
                .ends_with(last.split(' ').next_back().unwrap()),
            "{text}"
        );
        // Colour repeats only what a word says.
        let painted = doctor(&checks, &style(true));
        assert_ne!(painted, text);
        let plain: String = painted
            .split('\x1b')
            .map(|p| {
                p.split_once('m')
                    .filter(|(c, _)| c.starts_with('['))
                    .map_or(p, |c| c.1)
            })
            .collect();
        assert_eq!(plain, text);
    }
}
