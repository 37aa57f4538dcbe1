// SPDX-License-Identifier: GPL-2.0-only
//! Simulated guests beside the records of real ones under steal.
use crate::error::Failure;
use crate::plan::plan;
use crate::policies;
use crate::request::Request;
use crate::simulator::{Running, Simulator};
use berth_compare::guests::{Beside, Case, GuestBounds, GuestRecord, Row, judge};
use berth_compare::judge::Verdict;
use berth_results::guest::Seen;
use berth_scenario::model::{Hz, Scenario, Step};
use berth_scenario::{Edit, Input, keys, read};
use berth_sim::witness::Witness;
use std::path::Path;

/// The scenario of a case, with these changes.
///
/// # Errors
/// It cannot be read.
pub fn scenario(folder: &Path, case: &Case, set: &[String]) -> Result<Scenario, Failure> {
    let input = Input::from_file(&case.scenario(folder))?;
    let edits: Vec<Edit> = set.iter().cloned().map(Edit::Set).collect();
    Ok(read(&input, &edits)?.scenario)
}

/// A case in the simulator, beside its record in the folder `records`.
///
/// # Errors
/// A scenario or a record cannot be read. A guest that starves in the simulator is a row.
pub fn beside(
    folder: &Path,
    records: &Path,
    case: &Case,
    bounds: &GuestBounds,
    running: &Running,
) -> Result<Beside, Failure> {
    let plain = scenario(folder, case, &[])?;
    let client = plain.clients.first().map_or("", |c| c.to.as_str());
    let others = plain.vms.iter().filter(|vm| vm.name != client);
    let mut beside = Beside {
        case: case.name.clone(),
        title: plain.title.clone(),
        competitors: others.map(|vm| vm.count).sum(),
        steal_accounting: case.steal_accounting,
        hrtick: case.hrtick,
        alone: case.alone.clone(),
        absent: None,
        answers: (0, 0),
        rows: Vec::new(),
        note: None,
    };
    let path = case.record(records);
    let record = GuestRecord::read(&path).map_err(|e| Failure::Input(e.to_string()))?;
    let Some(record) = record else {
        beside.absent = Some("no record yet".into());
        return Ok(beside);
    };
    beside.note.clone_from(&record.note);
    let keys: Vec<&str> = keys::GUEST.names().collect();
    let edits = match case.edits(client, &keys) {
        Ok(edits) => edits,
        Err(why) => {
            beside.absent = Some(why);
            return Ok(beside);
        }
    };
    let changed = scenario(folder, case, &edits)?;
    let Some(vm) = changed.vms.iter().find(|vm| vm.name == client) else {
        return Err(Failure::Input(format!(
            "{}: no client sends to a VM",
            case.scenario(folder).display()
        )));
    };
    let tasks = vm.tasks.iter().filter_map(|t| changed.tasks.get(t));
    let guest = judge::Guest {
        vcpus: vm.vcpus,
        tick_ns: match vm.guest.hz {
            Hz::Ticks(hz) => 1e9 / f64::from(hz.max(1)),
            Hz::Exact => 0.0,
        },
        busy: tasks
            .into_iter()
            .any(|t| matches!(t.steps[..], [Step::Busy])),
    };
    match simulate(&case.scenario(folder), edits, running) {
        Ok(seen) => {
            beside.answers = (seen.answers.len(), record.seen().answers.len());
            beside.rows = judge::judge(&seen, &record, guest, bounds);
        }
        // A guest that starves is a finding, not the end of the comparison.
        Err(Failure::Run(why)) => {
            beside.rows = vec![Row {
                what: judge::What::Mean,
                sim: None,
                real: record.seen().response().map(|r| r.mean),
                verdict: Verdict::Broken,
            }];
            beside.note = Some(format!("the simulation ended: {why}"));
        }
        Err(other) => return Err(other),
    }
    Ok(beside)
}

/// All seeds of a scenario under the kernel's own scheduler.
fn simulate(file: &Path, set: Vec<String>, running: &Running) -> Result<Seen, Failure> {
    let request = Request {
        scenario: file.display().to_string(),
        set,
        arms: vec!["linux".into()],
        ..Request::default()
    };
    let mut plan = plan(&request, &policies::shipped(), None)?;
    let mut simulator = Simulator::prepare(&mut plan, running)?;
    let mut all = Seen::default();
    for seed in &plan.seeds {
        let scenario = &plan.variants[0].scenario;
        let witness = Witness::new(scenario, *seed)
            .map_err(|e| Failure::Input(format!("{}: {e}", file.display())))?;
        simulator.tell(witness.sink());
        let record = simulator.run(0, 0, *seed).map_err(Failure::Run)?;
        all.add(witness.finish(&record));
    }
    Ok(all)
}
