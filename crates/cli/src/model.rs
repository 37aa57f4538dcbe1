// SPDX-License-Identifier: GPL-2.0-only
//! `berth model`: closed forms of papers beside simulation.
use crate::exit::{Done, Failure};
use crate::{interrupt, output};
use berth_experiment::model::amp::{self, Point, Question};
use berth_experiment::simulator::Running;
use berth_report::text::{fixed, left, right};
use clap::Subcommand;
use std::io::IsTerminal;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    model: Model,
}

#[derive(Subcommand)]
enum Model {
    /// Two VMs on a fast and a slow core: what amp achieves, and what it costs who gains less
    Amp(AmpArgs),
}

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
struct AmpArgs {
    /// Efficiency of VM one: its speed on the fast core, a slow core's being 1 (1 to 2.375)
    #[arg(long, value_name = "E", default_value_t = 2.0)]
    e1: f64,

    /// Efficiencies of VM two, which gains less (1 to e1) [default: 1 to e1 in four steps]
    #[arg(long, value_name = "E,E,...", value_delimiter = ',')]
    e2: Vec<f64>,

    /// R: percent of the fast core's time that is shared in equal parts
    #[arg(long, value_name = "R,R,...", value_delimiter = ',', default_values_t = [0.0, 50.0, 100.0])]
    r: Vec<f64>,

    /// The slowdown that adaptive R allows, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    limit: f64,

    /// Deviation of instructions per cycle, drawn anew every 2.5 s, in percent; the closed forms know none
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    noise: f64,

    /// A picture of the throughput, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// All points as JSON on standard output, instead of the table
    #[arg(long)]
    json: bool,

    /// Runs at once [default: one per CPU of this machine]; results do not depend on it
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    jobs: usize,

    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "Examples:
  berth model amp                                the paper's figure 4
  berth model amp --e1 1.8 --e2 1.1,1.4 --r 25   other programs, another R
  berth model amp --noise 3                      counters that are off by 3 %
  berth model amp --plot amp.svg                 a picture, too";

pub fn run(args: &Args) -> Done {
    let Model::Amp(args) = &args.model;
    let quarter = (args.e1 - 1.0) / 4.0;
    let question = Question {
        e1: args.e1,
        e2: match args.e2.is_empty() {
            true => (0..5).map(|i| 1.0 + f64::from(i) * quarter).collect(),
            false => args.e2.clone(),
        },
        r_percent: args.r.clone(),
        limit_percent: args.limit,
        noise_percent: args.noise,
    };
    let running = Running {
        talk: !args.quiet && std::io::stderr().is_terminal(),
        ..Running::new(args.jobs, interrupt::flag())
    };
    let points = amp::answer(&question, &running)?;
    if args.json {
        output::json(&points)?;
    } else {
        output::print(&table(&question, &points));
    }
    if let Some(path) = &args.plot {
        std::fs::write(path, amp::plot(&points))
            .map_err(|e| Failure::Run(format!("cannot write {}: {e}", path.display())))?;
    }
    match points.iter().all(Point::agrees) {
        true => Ok(()),
        false => Err(Failure::Expect),
    }
}

fn table(question: &Question, points: &[Point]) -> String {
    let mut text = format!(
        "Two VMs that always run, a fast core and a slow one; VM one is {} times as fast on the fast core\n\n\
         {}{}{}\n{}\n",
        question.e1,
        left("", 18),
        left("throughput", 30),
        "slowdown of who loses most",
        "    e2          R   closed form   simulated       closed form   simulated",
    );
    let mut adaptive = false;
    for p in points {
        if p.adaptive && !adaptive {
            adaptive = true;
            text.push_str(&format!(
                "\nAdaptive R: the smallest at which nobody loses more than {} %\n",
                question.limit_percent
            ));
        }
        let percent = |part: f64| format!("{} %", fixed(100.0 * part, 1));
        let mark = if p.agrees() { "" } else { "   differs" };
        text.push_str(&format!(
            "{}{}{}{}{}{}{mark}\n",
            right(&fixed(p.e2, 3), 6),
            right(&percent(p.r_percent / 100.0), 11),
            right(&fixed(p.closed_form.throughput, 4), 14),
            right(&fixed(p.simulated.throughput, 4), 12),
            right(&percent(p.closed_form.max_slowdown), 18),
            right(&percent(p.simulated.max_slowdown), 12),
        ));
    }
    text
}
