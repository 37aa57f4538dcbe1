// SPDX-License-Identifier: GPL-2.0-only
//! `berth model`: closed forms of papers beside simulation.
use crate::exit::{Done, Failure};
use crate::{interrupt, output};
use berth_experiment::model::amp::{self, Point, Question};
use berth_experiment::model::mrsf;
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
    /// How long tasks wait: the formulas of M-RSF's paper as printed, M/M/c/N, and simulated
    Mrsf(MrsfArgs),
}

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
struct AmpArgs {
    /// Efficiency of VM one: its speed on the fast core, a slow core's being 1 (1 to 2.375)
    #[arg(
        long,
        value_name = "E",
        default_value_t = 2.0,
        allow_negative_numbers = true
    )]
    e1: f64,

    /// Efficiencies of VM two, which gains less (1 to e1) [default: 1 to e1 in four steps]
    #[arg(long, value_name = "E,E,...", value_delimiter = ',')]
    e2: Vec<f64>,

    /// R: percent of the fast core's time that is shared in equal parts
    #[arg(long, value_name = "R,R,...", value_delimiter = ',', default_values_t = [0.0, 50.0, 100.0],
          allow_negative_numbers = true)]
    r: Vec<f64>,

    /// The slowdown that adaptive R allows, in percent
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 10.0,
        allow_negative_numbers = true
    )]
    limit: f64,

    /// Deviation of instructions per cycle, drawn anew every 2.5 s, in percent (at most 20); the closed forms
    /// know none
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
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

#[derive(clap::Args)]
#[command(after_help = MRSF_EXAMPLES)]
struct MrsfArgs {
    /// Loads: arrivals per service that the servers could finish (0.001 to 2)
    #[arg(long, value_name = "U,U,...", value_delimiter = ',', default_values_t = [0.5, 0.8, 0.9, 0.99],
          allow_negative_numbers = true)]
    load: Vec<f64>,

    /// N: so many may be there at once, those in service included
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_values_t = [10, 100],
          allow_negative_numbers = true)]
    room: Vec<i64>,

    /// Servers; the paper's formulas know three only
    #[arg(
        long,
        value_name = "C",
        default_value_t = 3,
        allow_negative_numbers = true
    )]
    servers: i64,

    /// Seeds of each simulation; 0: only the formulas
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        allow_negative_numbers = true
    )]
    seeds: i64,

    /// Slices of M-RSF for the closed forms of a batch, in mean service times
    #[arg(long, value_name = "Q,Q,...", value_delimiter = ',', default_values_t = [0.5, 1.0, 1.5, 2.0],
          allow_negative_numbers = true)]
    slice: Vec<f64>,

    /// All points as JSON on standard output, instead of the tables
    #[arg(long)]
    json: bool,

    /// Runs at once [default: one per CPU of this machine]; results do not depend on it
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    jobs: usize,

    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

const MRSF_EXAMPLES: &str = "Examples:
  berth model mrsf                               the table of expectations, simulated too
  berth model mrsf --load 0.95 --room 20,2000    other loads, other room
  berth model mrsf --servers 5 --seeds 0         only the formulas, of five servers

`differs`: W_q is off by more than 1.5 half widths of the simulation's 95 % interval, and the exit
status is 1. A row says why nothing is judged: the half width is more than a tenth of the value, or
a run that is long enough would be too long";

const EXAMPLES: &str = "Examples:
  berth model amp                                the paper's figure 4
  berth model amp --e1 1.8 --e2 1.1,1.4 --r 25   other programs, another R
  berth model amp --noise 3                      counters that are off by 3 %
  berth model amp --plot amp.svg                 a picture, too";

pub fn run(args: &Args) -> Done {
    match &args.model {
        Model::Amp(args) => of_amp(args),
        Model::Mrsf(args) => of_mrsf(args),
    }
}

fn of_amp(args: &AmpArgs) -> Done {
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

fn of_mrsf(args: &MrsfArgs) -> Done {
    if let Some(slice) = args.slice.iter().find(|q| !(**q > 0.0 && q.is_finite())) {
        return Err(Failure::Input(format!(
            "a slice of {slice}: it should be above 0"
        )));
    }
    let question = mrsf::Question {
        loads: args.load.clone(),
        rooms: args.room.clone(),
        servers: args.servers,
        seeds: args.seeds,
    };
    let running = Running {
        talk: !args.quiet && std::io::stderr().is_terminal(),
        ..Running::new(args.jobs, interrupt::flag())
    };
    let points = mrsf::answer(&question, &running)?;
    if args.json {
        output::json(&points)?;
    } else {
        output::print(&mrsf_tables(args, &points));
    }
    match points.iter().all(mrsf::Point::agrees) {
        true => Ok(()),
        false => Err(Failure::Expect),
    }
}

fn mrsf_tables(args: &MrsfArgs, points: &[mrsf::Point]) -> String {
    let mut text = format!(
        "Poisson arrivals at {} servers, exponential service, in mean service times\n\n\
         {}{}{}{}\n{}\n",
        args.servers,
        left("", 16),
        left("as printed (3 servers)", 31),
        left("M/M/c/N", 48),
        "simulated",
        "   load       N      E(L)         T  sum of (10)       p0      lost       L_q       W_q         L    \
         W_q (95 %)",
    );
    for p in points {
        let of = |value: Option<f64>| value.map_or("0/0".to_string(), narrow);
        let printed = p.printed;
        let simulated = p.wait.map_or("-".to_string(), |w| {
            format!("{} +- {}", narrow(w.mean), narrow(w.half))
        });
        let mark = match p.verdict {
            mrsf::Verdict::Agrees | mrsf::Verdict::None => String::new(),
            mrsf::Verdict::Differs => "   differs".to_string(),
            mrsf::Verdict::TooWide { part } => {
                format!(
                    "   not judged: an interval of {} % is no check",
                    fixed(100.0 * part, 0)
                )
            }
            mrsf::Verdict::TooLong { arrivals } => format!(
                "   not judged: a run that forgets its beginning takes {} million arrivals",
                fixed(arrivals / 1e6, 0)
            ),
        };
        text.push_str(&format!(
            "{}{}{}{}{}{}{}{}{}{}    {simulated}{mark}\n",
            right(&fixed(p.load, 3), 7),
            right(&p.room.to_string(), 8),
            right(&of(printed.map(|p| p.length)), 10),
            right(&of(printed.map(|p| p.delay)), 10),
            right(&of(printed.map(|p| p.sum)), 13),
            right(&narrow(p.queue.empty), 9),
            right(&format!("{:.1e}", p.queue.lost), 10),
            right(&narrow(p.queue.waiting), 10),
            right(&narrow(p.queue.wait), 10),
            right(&narrow(p.queue.present), 10),
        ));
    }
    text.push_str(MRSF_ERRORS);
    text.push_str(
        "\nA batch of n on one CPU, mean waiting time / n (on k CPUs: / k); per_queue's most tasks per mean service \
         time\n  slice     FCFS, RR, MLFQ, LAS     SJF    M-RSF    sustained on 5 CPUs\n",
    );
    for slice in &args.slice {
        let n = 1_000_001;
        let b = mrsf::batch(n, 1, *slice);
        let per = |value: f64| fixed(value / f64::from(n - 1), 4);
        text.push_str(&format!(
            "{}{}{}{}{}\n",
            right(&fixed(*slice, 2), 7),
            right(&per(b.blind), 24),
            right(&per(b.shortest), 8),
            right(&per(b.mrsf), 9),
            right(&fixed(mrsf::sustained(*slice), 2), 23),
        ));
    }
    text.push_str(&format!(
        "  most: {} at a slice of ln 3 = {}\n",
        fixed(mrsf::sustained(mrsf::best_slice()), 2),
        fixed(mrsf::best_slice(), 4),
    ));
    text
}

/// Four decimals, as far as they fit into eight columns.
fn narrow(value: f64) -> String {
    match value.abs() {
        v if v < 999.5 => format!("{value:.4}"),
        v if v < 99_999.5 => format!("{value:.1}"),
        _ => format!("{value:.2e}"),
    }
}

/// Specification of M-RSF, section 5.
const MRSF_ERRORS: &str = "
What is wrong in the paper's formulas:
  1  rho is completed by arrived tasks: 1 in any stable system, where (9) to (11) are 0/0; the 3 servers are not in it
  2  (8) is the law of a queue with room for any number, of states from 3 on; N is not in it
  3  (9) does not follow from (8): it is M/M/1/N times 3, and sums to 3
  4  (10): k wait when k + 3 are there, not k + 1; its last form is not its sum, and grows beyond N
  5  (11) divides by a number without a unit: Little's law needs the rate of accepted arrivals
  6  no policy is in the model: who looks at sizes waits less, and a batch is not steady
";
