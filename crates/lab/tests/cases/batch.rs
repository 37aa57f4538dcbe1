// SPDX-License-Identifier: GPL-2.0-only
//! Experiments E1, E2 and E4 of the M-RSF paper by a real kernel: a batch of tasks, each a thread that computes for as
//! long as in the simulator's run of the same seed, under the task schedulers as sched_ext policies. A boot for each of
//! them, several side by side. The table in docs/mrsf.md, by `make mrsf-lab`. BERTH_LAB_ARMS=`mqms;sjf-1` leaves out
//! the others.
//!
//! Threads wait, the policy is told their sizes, then a real-time thread releases them one after the other, within some
//! milliseconds of the virtual clock.
use super::{check, host, options};
use berth_identity::{JobRecord, record};
use berth_lab::assets::Assets;
use berth_lab::job::Work;
use berth_lab::run::{LabOptions, Single, single};
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::{Dist, Estimate};
use berth_scx::{LoadOptions, Loaded, Value as Setting};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

const TASKS: u32 = 500;
const SEEDS: u64 = 2;
const LAMBDA_NS: u64 = 10_000_000;
/// As many as the lab has. The paper's M-RSF has five queues: the first of level 1 and level 3 share a CPU.
const CPUS: u32 = 4;

/// A policy as one of the paper's, under its name in papers/mrsf/batch.toml.
#[derive(Serialize, Deserialize)]
struct Arm {
    name: String,
    policy: String,
    cpus: u32,
    /// What it is told of sizes; none: nothing.
    estimate: Option<Estimate>,
    variables: BTreeMap<String, i64>,
}

/// Name, policy, preset, further parameters, CPUs, what is told.
type Row = (
    &'static str,
    &'static str,
    Option<&'static str>,
    &'static [(&'static str, &'static str)],
    u32,
    Option<Estimate>,
);

const KNOWN: Option<Estimate> = Some(Estimate::Oracle);
const ROUGH: Option<Estimate> = Some(Estimate::Lognormal(1.25));
/// A thread is there before its task: a record begins the job.
const ANEW: (&str, &str) = ("unit", "request");
const ROWS: [Row; 14] = [
    ("literal", "mrsf", Some("literal"), &[ANEW], CPUS, KNOWN),
    (
        "literal, slice 0.5",
        "mrsf",
        Some("literal"),
        &[ANEW, ("lambda_us", "5000")],
        CPUS,
        KNOWN,
    ),
    (
        "literal, slice 1.5",
        "mrsf",
        Some("literal"),
        &[ANEW, ("lambda_us", "15000")],
        CPUS,
        KNOWN,
    ),
    (
        "literal, slice 2",
        "mrsf",
        Some("literal"),
        &[ANEW, ("lambda_us", "20000")],
        CPUS,
        KNOWN,
    ),
    (
        "literal, sigma 1.25",
        "mrsf",
        Some("literal"),
        &[ANEW],
        CPUS,
        ROUGH,
    ),
    (
        "none",
        "mrsf",
        Some("literal"),
        &[ANEW, ("estimate", "none")],
        CPUS,
        None,
    ),
    ("mrsf-5", "mrsf", Some("fair"), &[ANEW], CPUS, KNOWN),
    (
        "mqms",
        "mqms",
        Some("textbook"),
        &[ANEW, ("queues", "4")],
        CPUS,
        None,
    ),
    ("osv", "osv", None, &[("place", "deal")], CPUS, None),
    ("las", "las", None, &[ANEW], CPUS, None),
    (
        "mlfq",
        "mlfq",
        Some("textbook"),
        &[ANEW, ("cpus", "per_level")],
        3,
        None,
    ),
    ("sjf-1", "sjf", Some("textbook"), &[ANEW], 1, KNOWN),
    ("rr-1", "rr", None, &[("slice_us", "10000")], 1, None),
    ("fcfs-1", "fcfs", Some("textbook"), &[ANEW], 1, None),
];

/// Values of a policy's variables, from a preset and further parameters.
pub fn variables(
    policy: &str,
    preset: Option<&str>,
    set: &[(&str, &str)],
) -> Result<BTreeMap<String, i64>, String> {
    let builtin = berth_builtin::find(policy).ok_or(format!("no policy {policy}"))?;
    let loaded = builtin
        .load(&berth_policy::policy::LoadOptions::default())
        .map_err(|e| e.to_string())?;
    let set = set.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    let values = berth_policy::presets::resolve(loaded.presets(), preset, &set.collect())
        .map_err(|e| e.to_string())?;
    let number = |(name, text): (&String, &String)| {
        let param = loaded.params().iter().find(|p| p.name == *name);
        let param = param.ok_or(format!("{policy} has no {name}"))?;
        let value = param.value(text).map_err(|e| e.to_string())?;
        Ok((name.clone(), value))
    };
    values.iter().map(number).collect()
}

fn arm(row: Row) -> Result<Arm, String> {
    let (name, policy, preset, set, cpus, estimate) = row;
    Ok(Arm {
        name: name.into(),
        policy: policy.into(),
        cpus,
        estimate,
        variables: variables(policy, preset, set)?,
    })
}

pub fn table(assets: &Assets) -> Result<String, String> {
    let wanted = std::env::var("BERTH_LAB_ARMS").unwrap_or_default();
    let named = |row: &Row| wanted.is_empty() || wanted.split(';').any(|name| name == row.0);
    let arms = ROWS.into_iter().filter(named).map(arm);
    let arms = arms.collect::<Result<Vec<_>, _>>()?;
    let mut text = format!(
        "Linux {}, {TASKS} tasks, seeds 1 to {SEEDS}\n\n| arm | CPUs | mean wait, in mean service times, by seed | \
         mean | longest wait |\n|---|---|---|---|---|\n",
        assets.kernel.release
    );
    for (row, arm) in boots(&arms, assets)?.iter().zip(&arms) {
        let list = |key: &str| -> Vec<f64> {
            let values = row[key].as_array().into_iter().flatten();
            values.filter_map(Value::as_f64).collect()
        };
        let waits = list("waits");
        check(waits.len() as u64 == SEEDS, format!("{}: {row}", arm.name))?;
        let each: Vec<String> = waits.iter().map(|w| format!("{w:.1}")).collect();
        text += &format!(
            "| {} | {} | {} | {:.1} | {:.0} |\n",
            arm.name,
            arm.cpus,
            each.join(", "),
            waits.iter().sum::<f64>() / waits.len() as f64,
            list("longest").into_iter().fold(0.0, f64::max)
        );
    }
    Ok(format!("\n{text}"))
}

/// What came of each arm, in their order. The first to fail ends it all.
fn boots(arms: &[Arm], assets: &Assets) -> Result<Vec<Value>, String> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (results, failed) = (Mutex::new(BTreeMap::new()), OnceLock::new());
    let boot = |arm: &Arm| {
        let what = Single {
            host: host(1, 1, 1, CPUS, 1),
            policy: None,
            work: Work::Custom {
                name: "batch".to_string(),
                input: json!(arm),
            },
        };
        let patient = LabOptions {
            timeout: Duration::from_secs(7200),
            ..options()
        };
        let boot = single(&what, &patient, assets, &stop).map_err(|e| e.to_string())?;
        if let Some(e) = &boot.answer.error {
            return Err(format!("{e}\n{}", boot.console));
        }
        // What is done is not lost if a later one fails.
        let (result, s) = (&boot.answer.result, boot.wall.as_secs());
        println!("      {}: {result} ({s} s)", arm.name);
        Ok(boot.answer.result)
    };
    let worker = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(arm) = arms.get(i).filter(|_| !stop.load(Ordering::Relaxed)) else {
                return;
            };
            let result = boot(arm);
            let mut all = results.lock().unwrap_or_else(|e| e.into_inner());
            match result {
                Ok(result) => {
                    all.insert(i, result);
                }
                // The others are stopped, and fail after it.
                Err(e) if !stop.swap(true, Ordering::Relaxed) => {
                    failed.set(format!("{}: {e}", arm.name)).unwrap_or_default();
                }
                Err(_) => (),
            }
        }
    };
    std::thread::scope(|s| {
        for _ in 0..LabOptions::default().jobs {
            s.spawn(worker);
        }
    });
    if let Some(why) = failed.into_inner() {
        return Err(why);
    }
    let all = results.into_inner().unwrap_or_else(|e| e.into_inner());
    Ok(all.into_values().collect())
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let arm: Arm = serde_json::from_value(input.clone()).map_err(|e| e.to_string())?;
    let (mut waits, mut longest) = (Vec::new(), Vec::new());
    for seed in 1..=SEEDS {
        println!("BERTH-BATCH {} {seed}", arm.name);
        let (mean, most) = once(&arm, seed).map_err(|e| format!("{}: {e}", arm.name))?;
        waits.push(mean);
        longest.push(most);
    }
    Ok(json!({ "waits": waits, "longest": longest }))
}

/// Sizes, and what is told of them: those of the simulator's request number i to its first task of its first VM.
fn sizes(arm: &Arm, seed: u64) -> Vec<(u64, Option<u64>)> {
    let (task, home) = (0, 0);
    let mean_ns = LAMBDA_NS as f64;
    (0..TASKS)
        .map(|number| {
            let mut rng = Rng::new(seed, Stream::Request { task, home, number });
            let size = Dist::Exp { mean_ns }.sample(&mut rng, 0);
            let told = arm.estimate.map(|of| {
                Rng::new(seed, Stream::Estimate { task, home, number }).estimate(of, size)
            });
            (size, told)
        })
        .collect()
}

pub(super) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the answer; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// The calling thread may use these CPUs.
fn stay_on(cpus: std::ops::Range<u32>) {
    // SAFETY: a set of bits of this function's own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.for_each(|cpu| libc::CPU_SET(cpu as usize, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// The calling thread is before all policies' threads, or one of them again.
fn real_time(priority: i32) -> Result<(), String> {
    let class = if priority > 0 {
        libc::SCHED_FIFO
    } else {
        libc::SCHED_OTHER
    };
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: a structure of this function's own.
    match unsafe { libc::sched_setscheduler(0, class, &raw const param) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().to_string()),
    }
}

fn burn(size_ns: u64) {
    let end = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) + size_ns;
    while clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) < end {
        (0..500).for_each(|i| {
            std::hint::black_box(i);
        });
    }
}

/// One batch: mean and longest wait, in mean service times.
fn once(arm: &Arm, seed: u64) -> Result<(f64, f64), String> {
    let builtin = berth_builtin::find(&arm.policy).ok_or("no such policy")?;
    let values = arm.variables.iter();
    let load = LoadOptions {
        variables: values
            .map(|(name, n)| (name.clone(), Setting::Number((*n).into())))
            .collect(),
        ..LoadOptions::default()
    };
    let mut policy = Loaded::load(builtin.object(), &load).map_err(|e| e.to_string())?;
    let sizes = sizes(arm, seed);
    let (ready, is_ready) = mpsc::channel();
    let go = Arc::new(AtomicBool::new(false));
    real_time(10)?;
    let threads: Vec<_> = (0..)
        .zip(&sizes)
        .map(|(number, (size, _))| {
            let (ready, go, size, cpus) = (ready.clone(), go.clone(), *size, arm.cpus);
            let work = move || {
                // Dealt to the CPUs, for policies that leave a thread where it is.
                let home = number as u32 % cpus;
                stay_on(home..home + 1);
                stay_on(0..cpus);
                // It inherits the class of who made it.
                let tid = real_time(0).map(|()| {
                    // SAFETY: no preconditions.
                    unsafe { libc::gettid() }
                });
                let _ = ready.send((number, tid));
                while !go.load(Ordering::Acquire) {
                    std::thread::park();
                }
                burn(size);
                clock_ns(libc::CLOCK_MONOTONIC)
            };
            let builder = std::thread::Builder::new().stack_size(64 << 10);
            builder
                .name("job".into())
                .spawn(work)
                .map_err(|e| e.to_string())
        })
        .collect::<Result<_, String>>()?;
    let mut tids = vec![0; sizes.len()];
    for _ in &sizes {
        let (number, tid): (usize, Result<i32, String>) =
            is_ready.recv().map_err(|e| e.to_string())?;
        tids[number] = tid?;
    }
    // All sleep by then.
    std::thread::sleep(Duration::from_millis(100));
    for ((_, told), tid) in sizes.iter().zip(&tids) {
        let Some(size_ns) = *told else { continue };
        let job = JobRecord {
            size_ns,
            each: true,
        };
        policy
            .set_map_value(record::JOBS, &tid.to_ne_bytes(), &job.bytes())
            .map_err(|e| e.to_string())?;
    }
    let start = clock_ns(libc::CLOCK_MONOTONIC);
    go.store(true, Ordering::Release);
    threads.iter().for_each(|t| t.thread().unpark());
    let mut waits = Vec::new();
    for (thread, (size, _)) in threads.into_iter().zip(&sizes) {
        let end = thread.join().map_err(|_| "a thread panicked")?;
        waits.push(end.saturating_sub(start).saturating_sub(*size) as f64 / LAMBDA_NS as f64);
    }
    real_time(0)?;
    let name = policy.name().to_string();
    let lasted = policy.poll().map_err(|e| e.to_string())?.running() == Some(&name);
    let exit = policy.unload().map_err(|e| e.to_string())?;
    check(lasted, format!("ejected: {exit}"))?;
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    Ok((mean, waits.into_iter().fold(0.0, f64::max)))
}
