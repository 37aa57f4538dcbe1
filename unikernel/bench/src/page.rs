// SPDX-License-Identifier: GPL-2.0-only
//! What is shown at once, and the tables of `docs/unikernel.md`.
use anyhow::Result;
use std::fmt::Write;
use std::path::PathBuf;
use unikernel_bench::experiments::{self as run, Arm, Way};
use unikernel_bench::figures::{Mean, median};
use unikernel_bench::guest::Guest;
use unikernel_bench::peer::Linux;

/// A judgement, said as it is made.
fn judge(holds: bool, what: &str) -> bool {
    println!(
        "  {} {what}",
        if holds { "holds:" } else { "DOES NOT HOLD:" }
    );
    holds
}

/// Some minutes' worth at most, each line as it is known. Whether all judgements hold.
pub fn show() -> Result<bool> {
    let mut all = true;
    let microvm = Guest::new("microvm", 1, "");
    let ready: Vec<f64> = (0..5)
        .map(|_| run::ready_ms(&microvm))
        .collect::<Result<_>>()?;
    println!(
        "ready after {:.0} ms of wall time (median of 5, microvm, 1 vCPU, emulated by TCG)",
        median(&ready)
    );
    match run::kvm() {
        Ok(()) => println!("KVM: it runs"),
        Err(why) => println!("KVM: not here: {why:#}"),
    }
    println!(
        "\nExperiment 4: a batch of 500 tasks, mean 1 ms, one seed; deterministic emulation, times are emulated"
    );
    let batch = |arm: Arm, cpus| -> Result<run::Batch> {
        let ran = run::batch(arm, cpus, 500, 1)?;
        println!(
            "  {:<28} {cpus} vCPU  turn-around {:7.1} ms, on paper {:7.1} ms",
            arm.name, ran.turnaround_ms, ran.paper_ms
        );
        Ok(ran)
    };
    let [mrsf, fcfs, rr] = [
        batch(run::SHARED, 1)?,
        batch(run::FCFS, 1)?,
        batch(run::RR, 1)?,
    ];
    let [literal, mqms] = [batch(run::LITERAL, 5)?, batch(run::MQMS, 5)?];
    let again = run::batch(run::LITERAL, 5, 500, 1)?;
    all &= judge(
        literal.ended.lines == again.ended.lines,
        "two runs are identical, word for word",
    );
    all &= judge(
        mrsf.turnaround_ms < fcfs.turnaround_ms.min(rr.turnaround_ms),
        "mrsf is before fcfs and rr on one vCPU",
    );
    all &= judge(
        literal.turnaround_ms < mqms.turnaround_ms,
        "mrsf with a vCPU for each queue is before mqms on five",
    );
    let near = |ran: &run::Batch| (ran.turnaround_ms / ran.paper_ms - 1.0).abs() < 0.05;
    all &= judge(
        [&mrsf, &fcfs, &rr].into_iter().all(near),
        "on one vCPU each is within 5 % of paper",
    );
    println!(
        "\nExperiment 5: 40 clients inside the guest, 10,000 requests of 20 us, 5 vCPUs; times are emulated"
    );
    for arm in [run::PRODUCT, run::MQMS, run::FCFS] {
        let ran = run::closed(arm, 5, 10_000, 1)?;
        let [mean, _, p99] = ran.response_us;
        println!(
            "  {:<28} {:6.0} replies/s, response mean {mean:.0} us, p99 {p99:.0} us",
            arm.name, ran.rate
        );
    }
    println!("\nA client on this machine, 64 bytes, wall time (whatever else runs here counts)");
    for (way, words) in [
        (Way::Loopback, "UDP on the loopback"),
        (Way::Frames, "frames to the card"),
    ] {
        let (seen, _) = run::echo(&microvm, way, 64, 20_000)?;
        println!(
            "  {words}: {:.0} replies/s, p50 {:.0} us, lost {}",
            seen.rate(),
            seen.quantile(0.5),
            seen.lost
        );
        all &= judge(seen.lost <= seen.replies / 20, "at most one in 20 is lost");
    }
    Ok(all)
}

/// The unikernel's echo beside that of a Linux guest, by the clock on the wall, in turn.
pub fn beside_linux(linux: &Linux, runs: usize, replies: usize) -> Result<String> {
    let mut text = String::from(
        "| way | runs | microvm, no tasks | microvm, a task each | q35, no tasks | q35, a task each | Linux, q35 | q35 \
         without and with tasks, of Linux |\n|---|---|---|---|---|---|---|---|\n",
    );
    let own = |machine, options| Guest::new(machine, 1, options);
    let guests = [
        own("microvm", "work=inline"),
        own("microvm", ""),
        own("q35", "work=inline"),
        own("q35", ""),
        linux.guest(1),
    ];
    for (way, words) in [(Way::Frames, "frames"), (Way::Loopback, "loopback")] {
        let mut rates: [Vec<f64>; 5] = Default::default();
        for _ in 0..runs {
            for (guest, rates) in guests.iter().zip(&mut rates) {
                rates.push(run::echo(guest, way, 64, replies)?.0.rate());
            }
        }
        let told = rates.each_ref().map(|r| {
            let (least, most) = ends(r);
            format!("{:.0} ({least:.0} to {most:.0})", median(r))
        });
        eprintln!("  {words}: {}", told.join(", "));
        let [.., plain, tasks, linux] = &rates;
        let of_linux = [plain, tasks].map(|own| {
            let ratios: Vec<f64> = own.iter().zip(linux).map(|(own, l)| own / l).collect();
            format!("{:.2}", median(&ratios))
        });
        writeln!(
            text,
            "| {words} | {runs} | {} | {} |",
            told.join(" | "),
            of_linux.join(", ")
        )?;
    }
    Ok(text)
}

/// The least and the most.
fn ends(values: &[f64]) -> (f64, f64) {
    (
        values.iter().copied().fold(f64::INFINITY, f64::min),
        values.iter().copied().fold(0.0, f64::max),
    )
}

/// How much is done for the tables.
#[derive(clap::Args)]
pub struct Effort {
    /// Seeds of experiments 4 and 5
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Tasks of experiment 4
    #[arg(long, value_delimiter = ',', default_values_t = [500, 1000, 2000])]
    tasks: Vec<usize>,
    /// Requests of experiment 5
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
    /// Boots, and clients on this machine
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Replies that such a client waits for
    #[arg(long, default_value_t = 50_000)]
    replies: usize,
    /// A Linux guest to compare with: the folder that berth-lab's example network_guest makes
    #[arg(long)]
    linux: Option<PathBuf>,
}

fn batches(text: &mut String, effort: &Effort, cpus: usize, arms: &[Arm], base: Arm) -> Result<()> {
    for &tasks in &effort.tasks {
        let mut base_ms = Vec::new();
        let mut rows = Vec::new();
        for arm in arms {
            let ran: Vec<run::Batch> = (1..=effort.seeds)
                .map(|seed| run::batch(*arm, cpus, tasks, seed))
                .collect::<Result<_>>()?;
            let times: Vec<f64> = ran.iter().map(|ran| ran.turnaround_ms).collect();
            let longest = ran.iter().map(|ran| ran.longest_ms).sum::<f64>() / ran.len() as f64;
            let paper: Vec<f64> = ran
                .iter()
                .map(|ran| ran.turnaround_ms / ran.paper_ms)
                .collect();
            if arm.name == base.name {
                base_ms = times.clone();
            }
            eprintln!(
                "  {tasks} tasks, {cpus} vCPU, {}: {:.1} ms",
                arm.name,
                Mean::of(&times)
            );
            rows.push((arm.name, times, longest, Mean::of(&paper).mean));
        }
        for (name, times, longest, paper) in rows {
            let pairs = times.iter().zip(&base_ms);
            let change: Vec<f64> = pairs
                .map(|(time, base)| (time / base - 1.0) * 100.0)
                .collect();
            let change = if name == base.name {
                "—".to_string()
            } else {
                format!("{:.1} %", Mean::of(&change))
            };
            writeln!(
                text,
                "| {cpus} | {tasks} | {name} | {:.1} | {change} | {longest:.0} | {paper:.3} |",
                Mean::of(&times)
            )?;
        }
    }
    Ok(())
}

/// The tables.
pub fn table(effort: &Effort) -> Result<String> {
    let Effort {
        seeds, requests, ..
    } = effort;
    let mut text = format!(
        "# The unikernel: tables\n\nWritten by `make unikernel-table`. [The page](unikernel.md) says what they \
         mean.\n\n## Experiment 4: a batch of tasks\n\nExponential, mean 1 ms, slices of 1 ms; deterministic \
         emulation (`-icount shift=1,sleep=off`), so all times are emulated; several vCPUs share one clock: order \
         and turn-around time count, not speed. 95 % intervals over {seeds} seeds, of changes in pairs.\n\n\
         | vCPUs | tasks | policy | turn-around, ms | against the base | longest, ms | of paper |\n\
         |---|---|---|---|---|---|---|\n",
    );
    batches(
        &mut text,
        effort,
        1,
        &[run::FCFS, run::RR, run::SHARED],
        run::FCFS,
    )?;
    let five = [run::MQMS, run::LITERAL, run::GUESSED, run::BLIND, run::FCFS];
    batches(&mut text, effort, 5, &five, run::MQMS)?;
    write!(
        text,
        "\n## Experiment 5: clients inside the guest\n\n40 clients, {requests} requests of 20 us (exponential) in all; \
         each asks again 100 us after a reply; slices of 20 us. Deterministic emulation: all times are emulated, \
         vCPUs share one clock. 95 % intervals over {seeds} seeds.\n\n\
         | vCPUs | policy | replies/s | response, us: mean | p50 | p99 | busy with tasks | network |\n\
         |---|---|---|---|---|---|---|---|\n",
    )?;
    for (cpus, arms) in [
        (
            5,
            &[
                run::MQMS,
                run::LITERAL,
                run::PRODUCT,
                run::SHARED,
                run::FCFS,
                run::RR,
            ][..],
        ),
        (1, &[run::FCFS, run::PRODUCT, run::SHARED, run::RR][..]),
    ] {
        for arm in arms {
            let ran: Vec<run::Closed> = (1..=effort.seeds)
                .map(|seed| run::closed(*arm, cpus, effort.requests, seed))
                .collect::<Result<_>>()?;
            let of = |value: &dyn Fn(&run::Closed) -> f64| {
                Mean::of(&ran.iter().map(value).collect::<Vec<_>>())
            };
            eprintln!(
                "  closed, {cpus} vCPU, {}: {:.0} replies/s",
                arm.name,
                of(&|ran| ran.rate)
            );
            writeln!(
                text,
                "| {cpus} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} |",
                arm.name,
                of(&|ran| ran.rate),
                of(&|ran| ran.response_us[0]),
                of(&|ran| ran.response_us[1]),
                of(&|ran| ran.response_us[2]),
                of(&|ran| ran.busy).mean,
                of(&|ran| ran.network).mean,
            )?;
        }
    }
    wall(&mut text, effort)?;
    Ok(text)
}

/// By the clock on the wall.
fn wall(text: &mut String, effort: &Effort) -> Result<()> {
    let kvm = run::kvm();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    writeln!(
        text,
        "\n## By the clock on the wall\n\nQEMU's emulator (TCG), on a machine with {cpus} CPUs, load {} when it began. \
         KVM: {}.\n\n| what | machine | vCPUs | runs | least | median | most |\n|---|---|---|---|---|---|---|",
        load.split(' ').next().unwrap_or("unknown"),
        kvm.as_ref().map_or_else(
            |why| format!("not here: {why:#}"),
            |()| "it runs".to_string()
        ),
    )?;
    let mut row = |what: &str, machine: &str, cpus: usize, values: &[f64]| {
        eprintln!("  {what}, {machine}, {cpus} vCPU: {:.0}", median(values));
        let (least, most) = ends(values);
        let n = values.len();
        writeln!(
            text,
            "| {what} | {machine} | {cpus} | {n} | {least:.0} | {:.0} | {most:.0} |",
            median(values)
        )
    };
    for (machine, cpus) in [("microvm", 1), ("microvm", 5), ("q35", 1)] {
        let guest = Guest::new(machine, cpus, "");
        let values: Vec<f64> = (0..effort.runs)
            .map(|_| run::ready_ms(&guest))
            .collect::<Result<_>>()?;
        row("start of QEMU until ready, ms", machine, cpus, &values)?;
    }
    for (way, words) in [(Way::Frames, "frames"), (Way::Loopback, "loopback")] {
        for (machine, cpus, options, how) in [
            ("microvm", 1, "work=inline", "no tasks"),
            ("microvm", 1, "", "a task each"),
            ("microvm", 5, "", "a task each"),
            ("q35", 1, "", "a task each, polled"),
        ] {
            let guest = Guest::new(machine, cpus, options);
            let rate = |_| Ok(run::echo(&guest, way, 64, effort.replies)?.0.rate());
            let values: Vec<f64> = (0..effort.runs).map(rate).collect::<Result<_>>()?;
            row(
                &format!("replies/s of 64 bytes, {words}, {how}"),
                machine,
                cpus,
                &values,
            )?;
        }
    }
    let Some(folder) = &effort.linux else {
        return Ok(());
    };
    let linux = Linux::new(folder)?;
    write!(
        text,
        "\n## Beside a Linux guest\n\nReplies/s of 64 bytes, 64 requests on their way, one vCPU, each run with all \
         in turn: medians, least and most; then the medians of the runs' ratios. The Linux guest is the lab's kernel \
         ({}) with one process that sends back what it receives.\n\n{}",
        linux.release(),
        beside_linux(&linux, effort.runs, effort.replies)?
    )?;
    Ok(())
}
