// SPDX-License-Identifier: GPL-2.0-only
//! Speed of the engine with real policies, as ratios to a bare loop run in the same process.
//!
//! `cargo run --release -p berth-sim --example bench -- [--json FILE] [--repeat N] [--quick]
//! [--w8|--callbacks|--jobs|--two-levels|--train] [--only WORDS]`
//!
//! W8: 8 CPUs, 64 tasks that compute 1 ms and sleep 4 ms, 16 that only compute, 60 simulated seconds, slices of
//! 3 ms, starts staggered by 61 us; one level, a shipped policy translated from its object, statistics and
//! invariants on, trace not kept. A row is the median of N runs (5), engine and bare loop taking turns, in CPU
//! time of the thread, so that a busy machine disturbs little. Tables go to standard output.
//!
//! `--train` runs other worlds than those that are measured, for `tools/profiled`: a program is not to be measured on
//! what it was made for.
mod bare;
mod callback;
mod engine;
mod hogs;
mod jobs;
mod two_levels;

use std::fmt::Write as _;
use std::process::ExitCode;

/// CPU time of the calling thread, s.
pub fn cpu_seconds() -> f64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the answer; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut ts) };
    ts.tv_sec as f64 + ts.tv_nsec as f64 / 1e9
}

/// Result of `f`, and the CPU seconds it took.
pub fn timed<R>(f: impl FnOnce() -> R) -> (R, f64) {
    let begin = cpu_seconds();
    let result = f();
    (result, cpu_seconds() - begin)
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    TwoLevels,
    W8,
    Callbacks,
    Jobs,
    Training,
}

struct Arguments {
    json: Option<String>,
    repeat: usize,
    quick: bool,
    /// The only part to run.
    part: Option<Part>,
    /// Only rows whose name has this in it.
    only: String,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        json: None,
        repeat: 5,
        quick: false,
        part: None,
        only: String::new(),
    };
    let mut rest = std::env::args().skip(1);
    while let Some(option) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{option} needs a value"));
        match option.as_str() {
            "--json" => parsed.json = Some(value()?),
            "--repeat" => {
                let n = value()?.parse::<usize>();
                parsed.repeat = n.map_err(|_| "--repeat needs a number".to_string())?.max(1);
            }
            "--quick" => parsed.quick = true,
            "--two-levels" => parsed.part = Some(Part::TwoLevels),
            "--w8" => parsed.part = Some(Part::W8),
            "--callbacks" => parsed.part = Some(Part::Callbacks),
            "--jobs" => parsed.part = Some(Part::Jobs),
            "--train" => parsed.part = Some(Part::Training),
            "--only" => parsed.only = value()?,
            other => {
                return Err(format!(
                    "unknown option {other}: --json FILE, --repeat N, --quick, --w8, --callbacks, --jobs, \
                     --two-levels, --train, --only WORDS"
                ));
            }
        }
    }
    Ok(parsed)
}

/// One line of the table.
struct Line {
    what: String,
    sim_seconds: f64,
    /// CPU seconds of the row and of the bare loop beside it.
    seconds: f64,
    bare_seconds: f64,
    switches: u64,
    cycles: u64,
    insns_per_switch: f64,
}

impl Line {
    fn rate(&self) -> f64 {
        self.sim_seconds / self.seconds
    }

    fn switches_per_second(&self) -> f64 {
        self.switches as f64 / self.seconds
    }

    /// Speed as a share of the bare loop's.
    fn ratio(&self) -> f64 {
        self.bare_seconds / self.seconds
    }

    fn markdown(&self) -> String {
        format!(
            "| {} | {:.1} | {:.2} | {:.0} | {} | {:.0} | 1/{:.1} |",
            self.what,
            self.rate(),
            self.switches_per_second() / 1e6,
            1e9 / self.switches_per_second(),
            self.cycles,
            self.insns_per_switch,
            1.0 / self.ratio()
        )
    }

    fn json(&self) -> String {
        format!(
            "{{\"what\": \"{}\", \"sim_s_per_cpu_s\": {:.3}, \"switches_per_cpu_s\": {:.0}, \"cycles\": {}, \
             \"insns_per_switch\": {:.2}, \"ratio_to_bare\": {:.4}}}",
            self.what,
            self.rate(),
            self.switches_per_second(),
            self.cycles,
            self.insns_per_switch,
            self.ratio()
        )
    }
}

/// Median of `repeat` runs of the engine and of the bare loop, in turns.
fn compare(
    what: &str,
    w: &bare::W8,
    tick_ns: Option<u64>,
    repeat: usize,
    engine: impl Fn() -> Fallible<engine::Ran>,
) -> Fallible<Line> {
    let (mut times, mut bare_times) = (Vec::new(), Vec::new());
    let mut last = engine::Ran::default();
    for _ in 0..repeat {
        let (counts, seconds) = timed(|| bare::run(w, tick_ns));
        std::hint::black_box(counts);
        bare_times.push(seconds);
        last = engine()?;
        times.push(last.seconds);
    }
    Ok(Line {
        what: what.to_string(),
        sim_seconds: w.end_ns as f64 / 1e9,
        seconds: median(times),
        bare_seconds: median(bare_times),
        switches: last.switches,
        cycles: last.cycles,
        insns_per_switch: last.insns as f64 / last.switches.max(1) as f64,
    })
}

/// The bare loop itself, with ticks or without; in turns with the one without.
fn bare_line(what: &str, w: &bare::W8, tick_ns: Option<u64>, repeat: usize) -> Line {
    let (mut times, mut bare_times) = (Vec::new(), Vec::new());
    let mut counts = bare::Counts::default();
    for _ in 0..repeat {
        let (plain, seconds) = timed(|| bare::run(w, None));
        std::hint::black_box(plain);
        bare_times.push(seconds);
        let (ran, seconds) = timed(|| bare::run(w, tick_ns));
        counts = ran;
        times.push(seconds);
    }
    Line {
        what: what.to_string(),
        sim_seconds: w.end_ns as f64 / 1e9,
        seconds: median(times),
        bare_seconds: median(bare_times),
        switches: counts.switches,
        cycles: counts.cycles,
        insns_per_switch: 0.0,
    }
}

/// The rows with guests whose name has `only` in it: the best of `repeat` runs each, the rows in turns, with the bare
/// loop among them. On a machine with neighbours the best is nearest to what the program takes. The rows with `eevdf`
/// inside are what users have by default: guests are Linux.
fn two_levels(repeat: usize, quick: bool, only: &str) -> Fallible<Vec<String>> {
    let mut json = Vec::new();
    println!(
        "| two levels | sim-s per CPU-s | M events/s | of bare | ns per event | M switches/s | bytes per vCPU | at the \
         end | trace hash |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let small = |host, guest, hz| two_levels::Case {
        cpus: 8,
        vms: 8,
        hz,
        host,
        guest,
        end_ns: if quick { 2 } else { 20 } * 1_000_000_000,
    };
    let large = |host, guest, hz| two_levels::Case {
        cpus: 1000,
        vms: 2500,
        end_ns: if quick { 100 } else { 1_000 } * 1_000_000,
        ..small(host, guest, hz)
    };
    let mut cases = Vec::new();
    for (host, guest) in [("vtime", "vtime"), ("vmfair", "vtime")] {
        for hz in [None, Some(250)] {
            cases.push(small(host, guest, hz));
        }
    }
    for hz in [None, Some(250)] {
        cases.push(large("vtime", "vtime", hz));
    }
    for host in ["eevdf", "credit", "vmfair"] {
        cases.push(small(host, "eevdf", Some(250)));
        cases.push(large(host, "eevdf", Some(250)));
    }
    cases.retain(|case| case.name().contains(only));
    let mut best: Vec<Option<two_levels::Ran>> = vec![None; cases.len()];
    let w8 = bare::W8::new(8, if quick { 6 } else { 60 } * 1_000_000_000);
    let mut bare_rate = 0.0f64;
    for _ in 0..repeat {
        let (counts, seconds) = timed(|| bare::run(&w8, None));
        bare_rate = bare_rate.max(counts.events as f64 / seconds);
        for (case, best) in cases.iter().zip(&mut best) {
            let ran = two_levels::run(case)?;
            let first = best.get_or_insert(ran);
            first.seconds = first.seconds.min(ran.seconds);
        }
    }
    for (case, ran) in cases.iter().zip(best.iter().flatten()) {
        println!("{}", ran.markdown(&case.name(), bare_rate));
        json.push(ran.json(&case.name(), bare_rate));
    }
    println!("\nBare loop: {:.1} M events/s.\n", bare_rate / 1e6);
    Ok(json)
}

/// Worlds of one level and of two that are not measured: other sizes and pairs of policies. What they came to is
/// printed, and nothing that a clock has to do with.
fn train() -> Fallible<()> {
    let pairs = [("vmfair", "eevdf"), ("eevdf", "vtime"), ("vtime", "vmfair")];
    let sizes = [(5, 7, 1_000), (60, 150, 60)];
    for hz in [None, Some(300)] {
        for ((host, guest), (cpus, vms, ms)) in pairs.iter().flat_map(|p| sizes.map(|s| (*p, s))) {
            let case = two_levels::Case {
                cpus,
                vms,
                hz,
                host,
                guest,
                end_ns: ms * 1_000_000,
            };
            let ran = two_levels::run(&case)?;
            println!("{}: {} events, {:016x}", case.name(), ran.events, ran.hash);
        }
        for policy in ["flms", "vtime", "credit"] {
            let ran = engine::Program::load(policy)?.w8(&bare::W8::new(5, 2_000_000_000), hz)?;
            println!("{policy}: {} switches, {} cycles", ran.switches, ran.cycles);
        }
    }
    Ok(())
}

/// The rows of W8 whose name has `only` in it: median time of `repeat` runs each, in turns with the bare loop.
fn w8(repeat: usize, quick: bool, only: &str) -> Fallible<Vec<Line>> {
    let w8 = bare::W8::new(8, if quick { 6 } else { 60 } * 1_000_000_000);
    let mut lines = vec![
        bare_line("bare loop", &w8, None, repeat),
        bare_line("bare loop + 250 Hz ticks", &w8, Some(4_000_000), repeat),
    ];
    println!(
        "| W8 | sim-s per CPU-s | M switches/s | ns per switch | cycles | BPF insns per switch | of bare |"
    );
    println!("|---|---|---|---|---|---|---|");
    lines.iter().for_each(|l| println!("{}", l.markdown()));
    let mut report = |line: Line| {
        println!("{}", line.markdown());
        lines.push(line);
    };
    for policy in ["vmfair", "vtime", "gfifo"] {
        let program = engine::Program::load(policy)?;
        for (words, hz) in [("slices end exactly", None), ("ticks at 250 Hz", Some(250))] {
            let what = format!("{policy}, {words}");
            if !what.contains(only) {
                continue;
            }
            report(compare(&what, &w8, None, repeat, || program.w8(&w8, hz))?);
        }
    }
    if !quick {
        let large = bare::W8::new(1024, 1_000_000_000);
        for policy in ["vmfair", "vtime"] {
            let what = format!("{policy}, ticks at 250 Hz, 1,024 CPUs, 10,240 tasks");
            if !what.contains(only) {
                continue;
            }
            let program = engine::Program::load(policy)?;
            report(compare(&what, &large, None, 3.min(repeat), || {
                program.w8(&large, Some(250))
            })?);
        }
    }
    println!();
    Ok(lines)
}

fn run() -> Fallible<()> {
    let arguments = arguments()?;
    let (repeat, quick) = (arguments.repeat, arguments.quick);
    if arguments.part == Some(Part::Training) {
        return train();
    }
    let wanted = |part| arguments.part.is_none_or(|only| only == part);
    let guests = if wanted(Part::TwoLevels) {
        two_levels(repeat, quick, &arguments.only)?
    } else {
        Vec::new()
    };
    let lines = if wanted(Part::W8) {
        w8(repeat, quick, &arguments.only)?
    } else {
        Vec::new()
    };
    let callbacks = if wanted(Part::Callbacks) {
        let costs = callback::measure(if quick { 100 } else { 2_500 }, repeat)?;
        println!("| callback | instances | ns per call | BPF insns per call |");
        println!("|---|---|---|---|");
        costs.iter().for_each(|c| println!("{}", c.markdown()));
        costs
    } else {
        Vec::new()
    };
    let jobs = if wanted(Part::Jobs) {
        let costs = jobs::measure(quick, repeat, &arguments.only)?;
        println!(
            "\n| jobs | queued, or in all | CPU s | ns each | BPF insns each | times a switch of the bare loop |"
        );
        println!("|---|---|---|---|---|---|");
        costs.iter().for_each(|c| println!("{}", c.markdown()));
        costs
    } else {
        Vec::new()
    };
    if let Some(path) = arguments.json {
        let mut text = String::from("{\"w8\": [");
        let list = |items: Vec<String>| items.join(",\n  ");
        let _ = write!(
            text,
            "\n  {}],\n\"two_levels\": [\n  {}],\n\"callbacks\": [\n  {}],\n\"jobs\": [\n  {}]}}\n",
            list(lines.iter().map(Line::json).collect()),
            list(guests),
            list(callbacks.iter().map(callback::Cost::json).collect()),
            list(jobs.iter().map(jobs::Cost::json).collect())
        );
        if let Some(folder) = std::path::Path::new(&path).parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, text)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench: {e}");
            ExitCode::FAILURE
        }
    }
}
