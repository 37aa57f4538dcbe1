// SPDX-License-Identifier: GPL-2.0-only
//! Experiments 4 and 5 of the M-RSF paper on the unikernel, and what it does by the clock on the wall.
use crate::client::{self, Frames, Loopback, Seen};
use crate::guest::{Ended, Guest, Network};
use anyhow::{Context, Result, anyhow, ensure};
use std::time::Duration;
use unikernel_sched::machine::{self, Clock, Job};
use unikernel_service::options::Options;
use unikernel_service::workload::Sizes;

/// No run takes so long but on a machine that stands still.
const LIMIT: Duration = Duration::from_secs(600);
/// Mean CPU time of a task of experiment 4, and the slice, us.
pub const MEAN_US: u64 = 1000;

/// A scheduler under a name.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// Its name in tables.
    pub name: &'static str,
    /// Its boot options, without times.
    pub options: &'static str,
}

const fn arm(name: &'static str, options: &'static str) -> Arm {
    Arm { name, options }
}

/// The paper's M-RSF: a CPU for each queue, run times known.
pub const LITERAL: Arm = arm(
    "mrsf, per queue, oracle",
    "sched=mrsf map=per_queue estimate=oracle q3_slice=0 aging=0",
);
/// The same with estimates that are wrong by a factor of 3.5 (one deviation).
pub const GUESSED: Arm = arm(
    "mrsf, per queue, sigma 1.25",
    "sched=mrsf map=per_queue estimate=lognormal:1.25 q3_slice=0 aging=0",
);
/// The same without estimates.
pub const BLIND: Arm = arm(
    "mrsf, per queue, none",
    "sched=mrsf map=per_queue estimate=none q3_slice=0 aging=0",
);
/// M-RSF whose queues all CPUs serve.
pub const SHARED: Arm = arm(
    "mrsf, shared, oracle",
    "sched=mrsf map=shared estimate=oracle q3_slice=0 aging=0",
);
/// What the unikernel does without being told: shared queues, learned estimates, bounds on waiting.
pub const PRODUCT: Arm = arm("mrsf, as shipped (ema)", "sched=mrsf");
/// The paper's baseline.
pub const MQMS: Arm = arm("mqms", "sched=mqms");
/// First come, first served.
pub const FCFS: Arm = arm("fcfs", "sched=fcfs");
/// Round robin.
pub const RR: Arm = arm("rr", "sched=rr");

/// A batch of experiment 4 that was run.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Mean turn-around time in the guest, emulated, ms.
    pub turnaround_ms: f64,
    /// The same on paper: the scheduler without any cost, on a clock that the CPUs share as the emulator's vCPUs do.
    pub paper_ms: f64,
    /// Longest turn-around time in the guest, emulated, ms.
    pub longest_ms: f64,
    /// Of who was done when.
    pub hash: String,
    /// All it said.
    pub ended: Ended,
}

/// Boot options of a batch.
pub fn batch_options(arm: Arm, tasks: usize, seed: u64) -> String {
    format!(
        "mode=batch {} tasks={tasks} mean_us={MEAN_US} slice_us={MEAN_US} seed={seed}",
        arm.options
    )
}

/// Runs a batch of `tasks` exponential tasks under deterministic emulation.
///
/// # Errors
/// The guest does not boot, or a task is not done.
pub fn batch(arm: Arm, cpus: usize, tasks: usize, seed: u64) -> Result<Batch> {
    let options = batch_options(arm, tasks, seed);
    let ended = Guest::new("microvm", cpus, &options)
        .deterministic()
        .run(LIMIT)?
        .done()?;
    Ok(Batch {
        turnaround_ms: ended.value("turnaround_us_mean")? / 1000.0,
        paper_ms: on_paper(&options, cpus)?,
        longest_ms: ended.value("turnaround_us_max")? / 1000.0,
        hash: ended.word("hash")?.to_string(),
        ended,
    })
}

/// Mean turn-around time of the batch of `options` on paper, ms.
///
/// # Errors
/// The options are wrong.
pub fn on_paper(options: &str, cpus: usize) -> Result<f64> {
    let options = Options::read(options).map_err(|refused| anyhow!(refused))?;
    let sizes =
        Sizes::new(options.seed, options.mean_us, options.sigma()).take(options.tasks as usize);
    let job = |us: u64, estimate_us: u64| Job {
        arrival_ns: 0,
        size_ns: us * 1000,
        estimate_ns: estimate_us * 1000,
    };
    let jobs: Vec<Job> = sizes
        .map(|size| job(size.work_us, size.estimate_us))
        .collect();
    let clock = if cpus == 1 {
        Clock::Real
    } else {
        Clock::Shared
    };
    let run = machine::run(&options.config(cpus), &jobs, clock)
        .map_err(|refused| anyhow!(refused.to_string()))?;
    Ok(run.mean_turnaround_ns(&jobs) / 1e6)
}

/// Experiment 5 with clients inside the guest that was run; times are emulated.
#[derive(Clone, Debug)]
pub struct Closed {
    /// Replies per emulated second.
    pub rate: f64,
    /// Mean, median and 0.99 quantile of response times, us.
    pub response_us: [f64; 3],
    /// Part of the time that vCPUs ran tasks, of all vCPUs together (which share one clock).
    pub busy: f64,
    /// Part of the time that the network had.
    pub network: f64,
}

/// 40 clients inside the guest, which have `requests` requests of 20 us (exponential) in all answered; each asks again
/// 100 us after a reply.
///
/// # Errors
/// The guest does not boot, or a reply is wrong or missing.
pub fn closed(arm: Arm, cpus: usize, requests: usize, seed: u64) -> Result<Closed> {
    let options = format!(
        "mode=closed {} clients=40 requests={requests} mean_us=20 rtt_us=100 slice_us=20 seed={seed}",
        arm.options
    );
    let ended = Guest::new("microvm", cpus, &options)
        .deterministic()
        .run(LIMIT)?
        .done()?;
    let elapsed_us = ended.value("elapsed_us")?;
    let busy_us: f64 = (0..cpus)
        .map(|cpu| ended.value(&format!("tasks_us_cpu_{cpu}")))
        .sum::<Result<f64>>()?;
    let response = |what: &str| ended.value(&format!("response_us_{what}"));
    // The counters have a mean of their own, in the server; the clients' is in the last line.
    let last = Ended {
        lines: ended.lines.last().cloned().into_iter().collect(),
        ..ended.clone()
    };
    Ok(Closed {
        rate: ended.value("replies_per_s")?,
        response_us: [
            last.value("response_us_mean")?,
            response("p50")?,
            response("p99")?,
        ],
        busy: busy_us / elapsed_us / cpus as f64,
        network: ended.value("main_us")? / elapsed_us,
    })
}

/// How a client reaches the guest for [`echo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// UDP on the loopback, forwarded by QEMU's user network.
    Loopback,
    /// Frames, straight to the card.
    Frames,
}

/// 64-byte requests without work from a client on this machine, `window` at a time, until `wanted` are answered; by the
/// clock on the wall. What the client saw, and all that the guest said.
///
/// # Errors
/// The guest does not boot, or a reply is wrong, or none comes any more.
pub fn echo(guest: &Guest, way: Way, window: usize, wanted: usize) -> Result<(Seen, Ended)> {
    let folder = tempfile::tempdir()?;
    // Warming up, the window, and what may be lost stand over: the guest goes on until it is told enough.
    let enough = wanted + 2 * window;
    let options = format!("{} requests={enough}", guest.options);
    let guest = Guest {
        options,
        ..guest.clone()
    };
    let (seen, running) = match way {
        Way::Frames => {
            let mut line = Frames::new(folder.path())?;
            let mut running = guest
                .network(Network::Frames(folder.path().to_path_buf()))
                .start()?;
            running.wait_for("ready", LIMIT)?;
            line.meet(folder.path(), LIMIT)?;
            let seen = client::ask(&mut line, 64, window, wanted)?;
            // Until it has had enough.
            while running.runs()? && client::ask(&mut line, 64, 1, 1).is_ok() {}
            (seen, running)
        }
        Way::Loopback => {
            let port = client::free_port()?;
            let mut running = guest.network(Network::Forwarded(port)).start()?;
            running.wait_for("ready", LIMIT)?;
            let mut line = Loopback::new(port)?;
            let seen = client::ask(&mut line, 64, window, wanted)?;
            while running.runs()? && client::ask(&mut line, 64, 1, 1).is_ok() {}
            (seen, running)
        }
    };
    let ended = running.end(LIMIT)?.done()?;
    ensure!(
        ended.value("replies")? >= seen.replies as f64,
        "the guest counted fewer replies than came"
    );
    Ok((seen, ended))
}

/// From the start of QEMU until the guest is ready, wall, ms.
///
/// # Errors
/// It does not boot.
pub fn ready_ms(guest: &Guest) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let _line = Frames::new(folder.path())?;
    let guest = guest
        .clone()
        .network(Network::Frames(folder.path().to_path_buf()));
    let mut running = guest.start()?;
    running.wait_for("ready", LIMIT)?;
    Ok(running.started.elapsed().as_secs_f64() * 1000.0)
}

/// Whether the unikernel runs under KVM here.
///
/// # Errors
/// Why not.
pub fn kvm() -> Result<()> {
    ensure!(
        std::fs::exists("/dev/kvm").unwrap_or(false),
        "there is no /dev/kvm"
    );
    let guest = Guest {
        accel: "kvm".to_string(),
        ..Guest::new("microvm", 1, "mode=stress tasks=8 sched=rr slice_us=100")
    };
    let ended = guest.run(Duration::from_secs(30)).context("under KVM")?;
    let first = ended
        .qemu
        .lines()
        .next()
        .unwrap_or("it says nothing")
        .to_string();
    ended.done().map_err(|_| anyhow!("QEMU: {first}"))?;
    Ok(())
}
