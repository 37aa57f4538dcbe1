// SPDX-License-Identifier: GPL-2.0-only
//! A plan's policies made ready for the simulator.
use crate::exit::Failure;
use crate::interrupt;
use crate::plan::Plan;
use crate::policies;
use berth_policy::policy::Policy;
use berth_results::schema::RunRecord;
use berth_scenario::model::{Arm, Scenario, Vm};
use berth_sim::run::{GuestPolicy, Options, kernel_scheduler, run_one};
use berth_sim::trace::SharedSink;
use std::collections::BTreeMap;

/// Everything that runs need. Positions are those of the plan.
pub struct Simulator {
    /// Per variant and arm; none where the arm is absent.
    cells: Vec<Vec<Option<Cell>>>,
}

struct Cell {
    scenario: Scenario,
    arm: Arm,
    policy: Policy,
    options: Options,
}

impl Simulator {
    /// Loads every policy once and checks parameters. `linux` is its model here.
    ///
    /// # Errors
    /// A policy that cannot be loaded, or a parameter that it does not have.
    pub fn prepare(plan: &mut Plan, checked: bool) -> Result<Simulator, Failure> {
        let mut loaded = Loaded::new();
        let mut cells = Vec::new();
        for variant in &mut plan.variants {
            let mut row = Vec::new();
            for planned in &mut variant.arms {
                let arm = &planned.arm;
                if planned.absent.is_some() {
                    row.push(None);
                    continue;
                }
                if let Some(name) = arm.params.keys().next()
                    && arm.policy == "linux"
                {
                    return Err(Failure::Input(format!(
                        "arm {}: `policy.{name}` is set, but `linux` is the kernel's own scheduler, which takes no parameters; an arm with policy = \"{}\" takes its model's",
                        arm.name,
                        berth_builtin::LINUX_MODEL
                    )));
                }
                let mut scenario = variant.scenario.for_arm(arm).clone();
                let mut options = Options {
                    checked,
                    cancel: Some(interrupt::flag()),
                    ..Options::default()
                };
                if arm.policy == "linux" {
                    kernel_scheduler(&mut scenario.host, &mut options);
                }
                let kernel = &scenario.host.kernel.clone();
                let policy = load(&mut loaded, &arm.policy, kernel)?;
                fits(&policy, arm, scenario.host.nr_cpus())?;
                let mut arm = arm.clone();
                arm.params = policies::resolve(&arm, policy.params(), policy.presets())?;
                for vm in &scenario.vms {
                    options.guests.push(if vm.guest.is_none() {
                        None
                    } else {
                        Some(guest(&mut loaded, vm, kernel)?)
                    });
                }
                planned.hash = Some(policy.hash().to_string());
                row.push(Some(Cell {
                    scenario,
                    arm,
                    policy,
                    options,
                }));
            }
            cells.push(row);
        }
        Ok(Simulator { cells })
    }

    /// Tells a sink what happens in the runs from now on (there should be one).
    pub fn tell(&mut self, sink: SharedSink) {
        for cell in self.cells.iter_mut().flatten().flatten() {
            cell.options.sink = Some(sink.clone());
        }
    }

    /// One run.
    ///
    /// # Errors
    /// One sentence: the policy was ejected or did something wrong, or the simulator broke a rule of its own.
    pub fn run(&self, variant: usize, arm: usize, seed: u64) -> Result<RunRecord, String> {
        let Some(Some(cell)) = self.cells.get(variant).and_then(|row| row.get(arm)) else {
            return Err("this arm cannot run here".into());
        };
        let Cell {
            scenario,
            arm,
            policy,
            options,
        } = cell;
        run_one(scenario, &arm.name, policy, &arm.params, seed, options).map_err(|e| e.to_string())
    }
}

/// By policy and kernel line: variants, arms and guests share them.
type Loaded = BTreeMap<(String, String), Policy>;

fn load(loaded: &mut Loaded, policy: &str, kernel: &str) -> Result<Policy, Failure> {
    let key = (policy.to_string(), kernel.to_string());
    if let Some(policy) = loaded.get(&key) {
        return Ok(policy.clone());
    }
    let policy = policies::load(policy, &policies::options(kernel)?)?;
    loaded.insert(key, policy.clone());
    Ok(policy)
}

/// Before anything runs: is the machine too large for the policy?
fn fits(policy: &Policy, arm: &Arm, cpus: u32) -> Result<(), Failure> {
    policy
        .fits(cpus)
        .map_err(|e| Failure::Input(format!("arm {}: policy {}: {e}", arm.name, arm.policy)))
}

/// The scheduler inside a VM.
fn guest(loaded: &mut Loaded, vm: &Vm, kernel: &str) -> Result<GuestPolicy, Failure> {
    let policy = load(loaded, &vm.guest.policy, kernel)?;
    // Checked like an arm's; the sentence names the VM.
    let as_arm = Arm {
        name: format!("vm.{}.guest", vm.name),
        policy: vm.guest.policy.clone(),
        preset: vm.guest.preset.clone(),
        params: vm.guest.params.clone(),
        set: BTreeMap::new(),
        scenario: None,
    };
    fits(&policy, &as_arm, vm.vcpus)?;
    let params = policies::resolve(&as_arm, policy.params(), policy.presets())?;
    Ok(GuestPolicy { policy, params })
}
