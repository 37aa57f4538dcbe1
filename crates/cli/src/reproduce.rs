// SPDX-License-Identifier: GPL-2.0-only
//! `berth reproduce`: the experiments of papers, run, judged and written down.
use crate::exit::{Done, Failure};
use crate::{interrupt, output};
use berth_experiment::kept::Kept;
use berth_experiment::reproduce::files::{self, Made, SUMMARY};
use berth_experiment::reproduce::judge::Judged;
use berth_experiment::reproduce::told::Told;
use berth_experiment::reproduce::{
    Reproduced, Wanted, named, page, reproduce, seal, summary, table,
};
use berth_experiment::runner::Elsewhere;
use berth_experiment::simulator::Running;
use berth_report::say;
use berth_scenario::claims::Verdict;
use berth_scenario::paper::{self, Experiment, Paper};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A paper: the name of its folder [default: all that have experiments]
    paper: Option<String>,

    /// One experiment of it: shown, and no page is written
    experiment: Option<String>,

    /// List papers, experiments and how many claims have which verdict, and run nothing
    #[arg(long, conflicts_with_all = ["quick", "check", "experiment"])]
    list: bool,

    /// Short runs with two seeds, to see that everything works: nothing is judged, and pages go to berth-out/papers
    #[arg(long, conflicts_with = "check")]
    quick: bool,

    /// Write nothing; exit status 1 if a page or a kept verdict is not what this version gives
    #[arg(long)]
    check: bool,

    /// What came out as JSON on standard output, instead of tables
    #[arg(long)]
    json: bool,

    /// Runs at once [default: one per CPU of this machine]; results do not depend on it
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    jobs: usize,

    /// Each run is done by this command, which reads a job and writes its outcome, e.g. "ssh big berth job"
    #[arg(long, value_name = "COMMAND", value_parser = Elsewhere::command)]
    runner: Option<Elsewhere>,

    /// The folder of papers
    #[arg(long, value_name = "FOLDER", default_value = "papers")]
    papers: PathBuf,

    /// The folder of pages and figures [default: docs/papers; of quick runs berth-out/papers]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// The folder of kept runs [default: runs in berth's cache folder]
    #[arg(long, value_name = "FOLDER")]
    kept: Option<PathBuf>,

    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "Examples:
  berth reproduce --list                 papers and their experiments
  berth reproduce flms                   all experiments of a paper; writes docs/papers/flms.md and its figures
  berth reproduce flms EF6               one of them, shown
  berth reproduce flms --quick           does everything work? Short runs, nothing is judged
  berth reproduce --check                are the pages and verdicts of this version?

Runs are kept as they are finished: after Ctrl-C the same command goes on, and a run is not done twice. Those of another
version are not used. A verdict and its reason stand in papers/NAME/claims.toml, written by hand; runs judge anew.";

pub fn run(args: &Args) -> Done {
    let everything = paper::all(&args.papers);
    let chosen = match &args.paper {
        Some(name) => vec![paper::named(&args.papers, name)?],
        None => everything.clone()?,
    };
    if args.list {
        return list(args, &chosen);
    }
    let only = match (&args.experiment, chosen.first()) {
        (Some(id), Some(paper)) => Some(named(paper, id)?),
        _ => None,
    };
    runnable(args, &chosen)?;
    let kept = match &args.kept {
        Some(folder) => Kept::at(folder),
        None => Kept::of_user()?,
    };
    let running = Running {
        kept: Some(kept.clone()),
        elsewhere: args.runner.clone(),
        talk: !args.quiet && std::io::stderr().is_terminal(),
        ..Running::new(args.jobs, interrupt::flag())
    };
    let mut made = Vec::new();
    let mut wrong = Vec::new();
    let mut done = Vec::new();
    for paper in chosen.iter().filter(|p| !p.experiments.is_empty()) {
        let wanted = Wanted {
            paper,
            only,
            quick: args.quick,
            sealed: paper.check_seeds.filter(|_| args.check && only.is_none()),
        };
        let say = |text: &str| {
            if !args.quiet {
                say!("{text}");
            }
        };
        let all = reproduce(&wanted, &running, &say).inspect_err(|failure| {
            if matches!(failure, Failure::Interrupted) {
                say!("interrupted: what was finished is kept, and the same command goes on from there");
            }
        })?;
        wrong.extend(
            all.judged
                .iter()
                .filter_map(|judged| judged.differs(&paper.name)),
        );
        if !args.json && !args.check {
            show(&all);
        }
        match (only, wanted.sealed) {
            (None, None) => made.extend(files::of_paper(&all)?),
            (None, Some(seeds)) => {
                let broken = seal::broken(&folder(args), &all, seeds)?;
                wrong.extend(broken.map(|what| anew(&what)));
            }
            (Some(_), _) => {}
        }
        done.push(all);
    }
    kept.notes().iter().for_each(|note| say!("note: {note}"));
    if args.json {
        output::json(&done.iter().map(Told::of).collect::<Vec<_>>())?;
    }
    // The summary is of all papers, whichever is run.
    if only.is_none() && !args.quick {
        made.push(Made {
            name: SUMMARY.into(),
            text: summary::summary(&everything?),
        });
    }
    write(args, &made, &mut wrong)?;
    for what in &wrong {
        say!("error: {what}");
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::Expect),
    }
}

/// Writes the files, or says which are not what they should be.
fn write(args: &Args, made: &[Made], wrong: &mut Vec<String>) -> Done {
    let out = folder(args);
    if args.check {
        let differing = made.iter().filter_map(|made| files::differs(&out, made));
        wrong.extend(differing.map(|what| anew(&what)));
        return Ok(());
    }
    for path in files::write(&out, made, args.quick)? {
        say!("wrote {}", path.display());
    }
    Ok(())
}

/// The folder of pages.
fn folder(args: &Args) -> PathBuf {
    args.out.clone().unwrap_or_else(|| match args.quick {
        true => PathBuf::from("berth-out/papers"),
        false => PathBuf::from("docs/papers"),
    })
}

/// A page that is not what it should be, and what then.
fn anew(what: &str) -> String {
    format!("{what}\n  make papers writes it anew; look what has changed")
}

/// There is something to run.
fn runnable(args: &Args, chosen: &[Paper]) -> Done {
    if chosen.iter().any(|paper| !paper.experiments.is_empty()) {
        return Ok(());
    }
    let (name, claims) = chosen
        .first()
        .map_or(("", 0), |p| (p.name.as_str(), p.claims.len()));
    Err(Failure::Input(format!(
        "the paper {name} has no experiment yet, only {claims} claims that wait for something: {}",
        args.papers.join(name).join("claims.toml").display()
    )))
}

/// Experiments as they are shown in a terminal.
fn show(all: &Reproduced<'_>) {
    for measured in &all.experiments {
        let Experiment { id, title, .. } = measured.experiment;
        let own: Vec<&Judged> = all.judged.iter().filter(|j| j.experiment == *id).collect();
        let mut text = format!("{id}: {title}\n\n{}", table::tables(measured));
        if all.quick || !own.is_empty() {
            text.push_str(&format!("\n{}", page::verdicts(all, &own)));
        }
        output::print(&format!("{text}\n"));
    }
}

/// Papers, their experiments and claims.
fn list(args: &Args, papers: &[Paper]) -> Done {
    let listed: Vec<Listed> = papers.iter().map(Listed::of).collect();
    if args.json {
        return output::json(&listed);
    }
    let mut text = String::new();
    for (paper, listed) in papers.iter().zip(&listed) {
        let counts: Vec<String> = listed
            .verdicts
            .iter()
            .map(|(word, n)| format!("{n} {word}"))
            .collect();
        text.push_str(&format!("{}  {}\n", paper.name, paper.title));
        text.push_str(&format!(
            "  {} claims: {}\n",
            listed.claims,
            counts.join(", ")
        ));
        for experiment in &paper.experiments {
            text.push_str(&format!("  {:<6} {}\n", experiment.id, experiment.title));
        }
    }
    output::print(&text);
    Ok(())
}

/// A paper in the list.
#[derive(Serialize)]
struct Listed {
    paper: String,
    title: String,
    experiments: Vec<String>,
    claims: usize,
    /// As kept; those that there are.
    verdicts: Vec<(&'static str, usize)>,
}

impl Listed {
    fn of(paper: &Paper) -> Listed {
        let count = |verdict: Verdict| {
            let claims = paper.claims.iter();
            (
                verdict.words(),
                claims.filter(|c| c.standing() == verdict).count(),
            )
        };
        Listed {
            paper: paper.name.clone(),
            title: paper.title.clone(),
            experiments: paper.experiments.iter().map(|e| e.id.clone()).collect(),
            claims: paper.claims.len(),
            verdicts: Verdict::ALL
                .into_iter()
                .map(count)
                .filter(|(_, n)| *n > 0)
                .collect(),
        }
    }
}
