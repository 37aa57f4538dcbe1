// SPDX-License-Identifier: GPL-2.0-only
//! `berth restore`, and the guardian, which does the same when an agent was killed.
use crate::exit::{Done, Failure};
use crate::{guest_agent, output};
use berth_actuator::live::Live;
use berth_actuator::{Error, Outcome, Report, guardian};
use berth_agent::control;
use berth_agent::place::{self, Place};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where it is remembered what was changed [default: `pins` and `changes` beside the agent's socket, and where
    /// other agents of this host have acted since it was started, and where `berth guest-agent` has]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,

    /// As JSON: each value, and what has become of it
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  berth restore                                  what an agent that was killed has left set is put back
  berth restore --state /run/user/1000/changes   of an agent with a socket of its own

While an agent acts, it undoes its changes itself (berth stop). For the end of one that was just killed it is waited
(5 s at most). What somebody else has set since is left alone.";

#[derive(clap::Args)]
pub struct GuardianArgs {
    state: PathBuf,
}

pub fn run(args: &Args) -> Done {
    let states = match &args.state {
        Some(state) => vec![state.clone()],
        None => {
            let mut all = Place::beside(Path::new(control::SOCKET)).folders();
            all.push(guest_agent::folder(None).join(guest_agent::CHANGES));
            all
        }
    };
    let states: Vec<PathBuf> = states.into_iter().filter(|s| s.exists()).collect();
    let undone = place::undo(&states);
    let nothing = undone.report == Report::default();
    let failures: Vec<&Error> = undone.failures().collect();
    // That there is nothing to undo is not known if something could not be read.
    if args.json {
        output::json(&undone.report)?;
    } else if !nothing || failures.is_empty() {
        output::print(&text(&undone.report));
    }
    if !failures.is_empty() {
        let all: Vec<String> = failures.iter().map(ToString::to_string).collect();
        return Err(
            match failures.iter().all(|e| matches!(e, Error::Held { .. })) {
                true => Failure::Input(all.join("\n")),
                false => Failure::Run(all.join("\n")),
            },
        );
    }
    match undone.report.complaints().is_empty() {
        true => Ok(()),
        false => Err(Failure::Expect),
    }
}

fn text(report: &Report) -> String {
    let back = |o: &Outcome| matches!(o, Outcome::Set | Outcome::Already);
    let back = report.outcomes.iter().filter(|(_, o)| back(o)).count();
    let gone = report
        .outcomes
        .iter()
        .filter(|(_, o)| *o == Outcome::Gone)
        .count();
    let mut text = String::new();
    if report.of_another_boot > 0 {
        text += &format!(
            "{} changes of another boot of this machine are not undone: nothing is left of them, and what has their \
             names now is something else\n",
            report.of_another_boot
        );
    }
    text += &match report.outcomes.len() {
        0 => "nothing to undo: Berth has left nothing set on this host\n".to_string(),
        _ => format!("{back} put back"),
    };
    if gone > 0 {
        text += &format!(", {gone} of what has ended since");
    }
    if !report.outcomes.is_empty() {
        text.push('\n');
    }
    for complaint in report.complaints() {
        text += &format!("  {complaint}\n");
    }
    text
}

pub fn guard(args: &GuardianArgs) -> Done {
    match guardian::watch(&Live::new(), &args.state) {
        Ok(report) => {
            let complaints = report.map(|r| r.complaints()).unwrap_or_default();
            match complaints.is_empty() {
                true => Ok(()),
                false => Err(Failure::Run(complaints.join("\n"))),
            }
        }
        Err(e) => Err(Failure::Run(e.to_string())),
    }
}
