// SPDX-License-Identifier: GPL-2.0-only
//! Recording real guests: each case until a recording is good, or so often.
use super::Args;
use crate::exit::{Done, Failure};
use crate::{interrupt, output};
use berth_compare::guests::{Case, GuestBounds, GuestRecord};
use berth_experiment::compare::guests::scenario;
use berth_lab::assets::{self, Assets, KernelRule, accounting, modules};
use berth_lab::witness::{self, Setting, Watched, WitnessAnswer};
use berth_lab::{LabError, Progress, neighbours::Clocks};
use berth_report::say;
use berth_results::guest::Seen;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Before each of the two windows of a recording: competitors settle.
const SETTLE_NS: u64 = 2_000_000_000;
/// The VM around the guest has booted and packed up in less, on a busy machine.
const OUTER_BOOT: Duration = Duration::from_secs(300);
/// Of the times at which requests are due.
const SEED: u64 = 1;

fn listen(progress: Progress) {
    if let Progress::Say(text) = progress {
        say!("{text}");
    }
}

fn failed(error: LabError) -> Failure {
    match error {
        LabError::Interrupted => Failure::Interrupted,
        LabError::Scenario(_) => Failure::Input(error.to_string()),
        _ => Failure::Run(error.to_string()),
    }
}

fn assets() -> Result<Assets, LabError> {
    let stop = interrupt::flag();
    let assets = assets::ensure(&KernelRule::Newest, false, &listen, stop)?;
    modules::kvm(&assets.kernel, &listen, stop)?;
    Ok(assets)
}

/// `--build-kernel`.
pub fn build_kernel() -> Done {
    let assets = assets().map_err(failed)?;
    let image = accounting::ensure(&assets.kernel, &listen, interrupt::flag()).map_err(failed)?;
    output::print(&format!("ready: {}\n", image.display()));
    Ok(())
}

/// Records what is asked for; what was refused or did not boot, one line each.
///
/// # Errors
/// Wrong input, an interrupt, or a record that cannot be written.
pub fn record(
    args: &Args,
    folder: &Path,
    records: &Path,
    cases: &[&Case],
    bounds: &GuestBounds,
) -> Result<Vec<String>, Failure> {
    let all = args.record.as_deref() == Some("all");
    let mut wanted = Vec::new();
    for case in cases {
        let kept = GuestRecord::read(&case.record(records));
        let kept = kept.map_err(|e| Failure::Input(e.to_string()))?;
        if all || kept.is_none_or(|r| r.stands_in) {
            wanted.push(case);
        }
    }
    // What does not fit is found before anything is fetched.
    let set: Vec<String> = args
        .seconds
        .map(|s| format!("run.measure={s}s"))
        .into_iter()
        .collect();
    let mut scenarios = Vec::new();
    for case in wanted {
        let scenario = scenario(folder, case, &set)?;
        Watched::of(&scenario)
            .map_err(|e| Failure::Input(format!("{}: {e}", case.scenario(folder).display())))?;
        scenarios.push((*case, scenario));
    }
    if scenarios.is_empty() {
        return Ok(Vec::new());
    }
    let stop = interrupt::flag();
    let assets = match assets() {
        Ok(assets) => assets,
        Err(LabError::Interrupted) => return Err(Failure::Interrupted),
        Err(e) => {
            say!("note: real guests cannot be had here, kept records are used: {e}");
            return Ok(Vec::new());
        }
    };
    let program = std::env::current_exe().map_err(|e| Failure::Run(e.to_string()))?;
    let mut not = Vec::new();
    let mut accounting: Option<Result<PathBuf, String>> = None;
    for (case, scenario) in &scenarios {
        let kernel = if case.steal_accounting {
            let made = accounting.get_or_insert_with(|| {
                accounting::ensure(&assets.kernel, &listen, stop).map_err(|e| e.to_string())
            });
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            match made {
                Ok(image) => Some(image.clone()),
                Err(why) => {
                    not.push(format!(
                        "{}: left out, for its guest accounts for steal: {why}",
                        case.name
                    ));
                    continue;
                }
            }
        } else {
            None
        };
        let measure = Duration::from_nanos(scenario.run.measure_ns);
        let floor = Duration::from_secs(args.floor);
        let boot = Duration::from_secs(args.boot);
        let setting = Setting {
            kernel,
            guest_hrtick: case.hrtick,
            host_hrtick: case.hrtick,
            floor_ns: floor.as_nanos() as u64,
            settle_ns: SETTLE_NS,
            boot,
            // More than the VM waits for its guest in all, so that it is the VM that says where the guest is.
            timeout: OUTER_BOOT
                + 5 * boot
                + 20 * (measure + floor + 3 * Duration::from_nanos(SETTLE_NS)),
        };
        let mut faults = Vec::new();
        for attempt in 1..=bounds.recording.attempts {
            say!(
                "{}: recording, {} s and a boot{}",
                case.name,
                measure.as_secs() + floor.as_secs(),
                if attempt > 1 { ", again" } else { "" }
            );
            let before = Clocks::now();
            let seen = witness::record(scenario, SEED, &setting, &assets, &program, &listen, stop);
            let record = match seen {
                Ok(answer) => {
                    let mut record = kept(answer, case, &assets, measure);
                    record.others_cpus = before.and_then(Clocks::others_since);
                    record
                }
                Err(LabError::Interrupted) => return Err(Failure::Interrupted),
                Err(e) => {
                    let said = e.to_string();
                    if said.contains("no nested KVM") {
                        say!("note: real guests cannot be had here, kept records are used: {said}");
                        return Ok(not);
                    }
                    faults = vec![said];
                    say!("{}: {}", case.name, faults[0]);
                    continue;
                }
            };
            faults = record.faults(case, &bounds.recording);
            if faults.is_empty() {
                record
                    .write(&case.record(records))
                    .map_err(|e| Failure::Run(e.to_string()))?;
                break;
            }
            say!("{}: not good: {}", case.name, faults.join("; "));
            if args.keep_refused {
                record
                    .write(&case.record(records))
                    .map_err(|e| Failure::Run(e.to_string()))?;
                faults.clear();
                break;
            }
        }
        if !faults.is_empty() {
            let used = match case.record(records).exists() {
                true => "the record that was kept before is used",
                false => "it has no record",
            };
            not.push(format!(
                "{}: refused after {} recordings ({}); {used}",
                case.name,
                bounds.recording.attempts,
                faults.join("; ")
            ));
        }
    }
    Ok(not)
}

fn kept(answer: WitnessAnswer, case: &Case, assets: &Assets, measure: Duration) -> GuestRecord {
    let floor = Seen {
        answers: answer.guest.floor.clone(),
        ..Seen::default()
    };
    let accounting = match case.steal_accounting {
        true => "built from the distribution's source, with steal accounting",
        false => "the distribution's",
    };
    let mut record = GuestRecord::of(&answer.guest.seen);
    record.guest_kernel = format!("{} ({accounting})", answer.guest.kernel);
    record.kernel = answer.kernel;
    record.emulator = format!("QEMU {}, on both levels", assets.qemu.version);
    record.measure_ns = measure.as_nanos() as u64;
    record.slice_ns = answer.guest.slice_ns.unwrap_or(0);
    record.floor_p90_us = floor.response().map(|r| (r.p90 / 1e3).round());
    record.counted_steal = Some((answer.guest.counted_steal * 1e4).round() / 1e4);
    record.turn_us = Some((answer.turn_ns as f64 / 1e3).round());
    record
}
