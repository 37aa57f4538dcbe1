// SPDX-License-Identifier: GPL-2.0-only
//! Exit statuses: one table for all verbs, of which `--help` and `docs/exit-status.md` are made. Scripts and monitors
//! rely on them: they do not change.
pub use berth_experiment::{Done, Failure};
use berth_report::say;
use std::process::ExitCode;

/// What the statuses of a verb mean. 0: it is done.
struct Row {
    verb: &'static str,
    done: &'static str,
    /// Status 1; none: it never ends so.
    no: Option<&'static str>,
    /// Status 2.
    wrong: &'static str,
    /// Status 3.
    failed: &'static str,
    /// Status 130; none: Ctrl-C ends it as any program, with nothing to keep.
    interrupted: Option<&'static str>,
}

/// What the statuses mean wherever nothing else is said.
const GENERAL: [(u8, &str); 5] = [
    (0, "done"),
    (1, "the answer is no: what was asked about does not hold"),
    (2, "wrong usage or input, or this host does not allow it"),
    (3, "it failed: a run, the kernel, or what was to be written"),
    (130, "interrupted; what was finished is kept"),
];

const WRONG: &str = "wrong usage or input";
const RUN: &str = "a run failed, or results cannot be written";
const OUTPUT: &str = "the output cannot be written";
const NO_HOST: &str = "wrong usage, or no VMs can be looked for there";
const KEPT: Option<&str> = Some("interrupted (what was finished is kept)");
const EXPECT: Option<&str> = Some("an [[expect]] does not hold");
const BOUND: Option<&str> = Some("a bound is broken (with --check)");

/// A verb that shows something.
const fn shows(verb: &'static str, wrong: &'static str) -> Row {
    Row {
        verb,
        done: "done",
        no: None,
        wrong,
        failed: OUTPUT,
        interrupted: None,
    }
}

/// A verb that has runs done.
const fn runs(verb: &'static str, no: Option<&'static str>) -> Row {
    Row {
        verb,
        done: "done",
        no,
        wrong: WRONG,
        failed: RUN,
        interrupted: KEPT,
    }
}

const TABLE: [Row; 28] = [
    runs("sim", EXPECT),
    runs("lab", EXPECT),
    runs("compare", BOUND),
    Row {
        failed: "a guest did not boot, a recording was refused or the build failed (what is kept is compared all the \
                 same)",
        ..runs("guests", BOUND)
    },
    shows("ls", NO_HOST),
    shows("top", NO_HOST),
    shows(
        "explain",
        "wrong usage, no VM of that name or several, or no VMs can be looked for there",
    ),
    shows(
        "record",
        "wrong usage, the file cannot be written there, or no VMs can be looked for there",
    ),
    Row {
        done: "a policy can be loaded here",
        no: Some("no policy can be loaded here: a line says `no`"),
        ..shows("doctor", NO_HOST)
    },
    Row {
        interrupted: Some(
            "interrupted (what was finished is kept; the load has ended and its cgroups are gone)",
        ),
        ..runs("host", EXPECT)
    },
    Row {
        done: "it is loaded",
        failed: "the kernel refused the policy, or the agent does not answer",
        ..shows(
            "start",
            "wrong usage, or this host or the agent does not allow it",
        )
    },
    Row {
        done: "unloaded, or there was nothing to stop",
        failed: "the agent does not answer",
        ..shows("stop", "wrong usage, or the agent does not allow it")
    },
    Row {
        done: "an agent runs and has no trouble",
        no: Some("no agent runs, or it is in trouble: a policy is not loaded that should be"),
        failed: "the agent does not answer",
        ..shows("status", "wrong usage, or this user may not ask the agent")
    },
    Row {
        done: "ended when asked; with --check: the configuration is right",
        failed: "the kernel refused the configuration's policy, or it cannot go on",
        ..shows(
            "daemon",
            "wrong usage or configuration, another agent runs, or this host does not allow what mode = \"act\" says",
        )
    },
    Row {
        failed: "nothing could be decided, or the output cannot be written",
        interrupted: Some("interrupted"),
        ..shows(
            "optimise",
            "wrong usage or configuration, or no VMs can be looked for there",
        )
    },
    Row {
        done: "it is pinned, all of it",
        no: Some("pinned, but for what is said: not permitted, or refused by the kernel"),
        failed: "the agent does not answer, or what is changed cannot be remembered",
        ..shows(
            "pin",
            "wrong usage, no VM of that name or several, or it cannot be placed as asked: nothing is set",
        )
    },
    Row {
        done: "undone, or there was nothing to undo",
        no: Some("some of it could not be undone, or was left to whoever has set it since"),
        failed: "the agent does not answer",
        ..shows("unpin", "wrong usage, or no VM of that name or several")
    },
    Row {
        interrupted: Some("interrupted (what was seen until then is shown)"),
        ..shows(
            "profile",
            "wrong usage, no VM of that name or several, or this user may not sample the kernel",
        )
    },
    Row {
        no: Some("a VM cannot be placed as asked"),
        ..shows(
            "plan",
            "wrong usage, no VM of that name or several, or no VMs can be looked for there",
        )
    },
    Row {
        done: "undone, or there was nothing to undo",
        no: Some("some of it could not be undone, or was left to whoever has set it since"),
        failed: "what was changed cannot be read, or not be forgotten",
        ..shows("restore", "wrong usage, or an agent acts on this host")
    },
    Row {
        done: "what it moved is back, all of it (with --once: moved; with --dry-run: shown)",
        no: Some(
            "some processes may not be moved by this user, or are left to whoever has moved them since",
        ),
        failed: "processes cannot be looked at, a reserved CPU has gone, or what is moved cannot be remembered",
        ..shows(
            "guest-agent",
            "wrong usage, CPUs that cannot be reserved so, or another guest agent acts: nothing is moved",
        )
    },
    shows(
        "policy",
        "wrong usage, no such policy, or one that is wrong",
    ),
    Row {
        no: Some("a kept verdict (with --check: or a page) is not what this version gives"),
        ..runs("reproduce", None)
    },
    Row {
        done: "the simulation is the formula: amp within 0.5 %, mrsf within 1.5 intervals of 95 %, where it judges",
        interrupted: Some("interrupted"),
        ..runs("model", Some("the simulation is not the formula"))
    },
    shows("results", "wrong usage, or no such results"),
    shows(
        "scenario",
        "wrong usage, no such scenario, or one that is wrong",
    ),
    Row {
        done: "done (the outcome says if the run failed)",
        failed: "the outcome cannot be written",
        ..shows("job", "no job of this version")
    },
    Row {
        done: "nothing is left that was set",
        failed: "not all could be undone: berth restore says what",
        ..shows("guardian", WRONG)
    },
];

impl Row {
    /// Its statuses with what they mean.
    fn all(&self) -> impl Iterator<Item = (u8, &'static str)> {
        let [zero, one, two, three, ctrl_c] = GENERAL.map(|(status, _)| status);
        let all = [
            (zero, Some(self.done)),
            (one, self.no),
            (two, Some(self.wrong)),
            (three, Some(self.failed)),
            (ctrl_c, self.interrupted),
        ];
        all.into_iter().filter_map(|(s, what)| Some((s, what?)))
    }

    fn line(&self) -> String {
        let all: Vec<String> = self.all().map(|(s, what)| format!("{s} {what}")).collect();
        format!("Exit status: {}.", all.join("; "))
    }
}

/// The table below the help of the whole command: what all have in common, and what a no is to whom.
fn summary() -> String {
    let mut text = "Exit status (berth VERB --help: what it means there):\n".to_string();
    for (status, what) in GENERAL {
        text += &format!("  {status:<4} {what}\n");
        if status != 1 {
            continue;
        }
        let mut reasons: Vec<&str> = Vec::new();
        for no in TABLE.iter().filter_map(|row| row.no) {
            if reasons.contains(&no) {
                continue;
            }
            reasons.push(no);
            let verbs: Vec<&str> = TABLE
                .iter()
                .filter(|r| r.no == Some(no))
                .map(|r| r.verb)
                .collect();
            text += &format!("         {}: {no}\n", verbs.join(", "));
        }
    }
    text
}

/// Every verb's help, and that of its parts, with the line of its row, and that of the whole with all of it.
pub fn explained(command: clap::Command) -> clap::Command {
    let with = |command: clap::Command, text: String| {
        let before = command.get_after_help().map(|help| format!("{help}\n\n"));
        command.after_help(before.unwrap_or_default() + &text)
    };
    let there = |row: &&Row| command.find_subcommand(row.verb).is_some();
    let rows: Vec<&Row> = TABLE.iter().filter(there).collect();
    let all = rows.into_iter().fold(command, |command, row| {
        command.mut_subcommand(row.verb, |verb| {
            let parts: Vec<String> = verb
                .get_subcommands()
                .map(|c| c.get_name().into())
                .collect();
            let verb = with(verb, row.line());
            parts.into_iter().fold(verb, |verb, part| {
                verb.mut_subcommand(part, |part| with(part, row.line()))
            })
        })
    });
    with(all, summary())
}

/// Checks each of `items`, past those that are wrong; every wrong one is reported.
///
/// # Errors
/// All that is wrong with them, or at once what is not about an input.
pub fn each<T>(items: &[T], check: impl Fn(&T) -> Done) -> Done {
    let mut wrong = Vec::new();
    for item in items {
        match check(item) {
            Ok(()) => {}
            Err(Failure::Input(message)) => wrong.push(message),
            Err(other) => return Err(other),
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::Input(wrong.join("\n")))
}

/// Prints what went wrong and gives the exit status.
pub fn code(done: Done) -> ExitCode {
    let (message, status) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Expect) => (None, 1),
        Err(Failure::Input(message)) => (Some(message), 2),
        Err(Failure::Run(message)) => (Some(message), 3),
        Err(Failure::Interrupted) => (None, 130),
    };
    if let Some(message) = message {
        say!("error: {message}");
    }
    ExitCode::from(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// The page's table.
    fn markdown() -> String {
        let mut text = "| verb | 0 | 1 | 2 | 3 | 130 |\n|---|---|---|---|---|---|\n".to_string();
        for row in &TABLE {
            let said = |status| {
                row.all()
                    .find(|(s, _)| *s == status)
                    .map_or("", |(_, what)| what)
            };
            let cells = GENERAL.map(|(status, _)| said(status).replace("; ", ", "));
            text += &format!("| `{}` | {} |\n", row.verb, cells.join(" | "));
        }
        text
    }

    #[test]
    fn every_verb_has_a_row_and_says_it_in_its_help() {
        let command = explained(crate::Berth::command());
        for verb in command.get_subcommands() {
            let name = verb.get_name();
            let row = TABLE.iter().find(|row| row.verb == name);
            let row = row.unwrap_or_else(|| panic!("{name} has no row in the table"));
            for command in std::iter::once(verb).chain(verb.get_subcommands()) {
                let help = command.clone().render_help().to_string();
                assert_eq!(help.matches("Exit status:").count(), 1, "{name}: {help}");
                let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(words(&help).contains(&words(&row.line())), "{name}: {help}");
            }
        }
    }

    #[test]
    fn the_summary_has_each_reason_for_a_no_once() {
        let text = summary();
        for no in TABLE.iter().filter_map(|row| row.no) {
            assert_eq!(text.matches(&format!(": {no}\n")).count(), 1, "{text}");
        }
    }

    #[test]
    fn the_page_has_the_table() {
        let page = include_str!("../../../docs/exit-status.md");
        for (status, what) in GENERAL {
            assert!(
                page.contains(&format!("- **{status}**: {what}\n")),
                "{status}: {what}"
            );
        }
        assert!(
            page.contains(&markdown()),
            "the page wants this table:\n{}",
            markdown()
        );
    }
}
