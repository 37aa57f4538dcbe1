// SPDX-License-Identifier: GPL-2.0-only
//! A plan's policies made ready for the simulator.
use crate::exit::Failure;
use crate::interrupt;
use crate::plan::Plan;
use crate::policies;
use berth_policy::policy::Policy;
use berth_results::schema::RunRecord;
use berth_scenario::model::{Arm, Scenario};
use berth_sim::run::{Options, run_one};
use berth_sim::trace::SharedSink;
use std::collections::BTreeMap;

/// Everything that runs need. Positions are those of the plan.
pub struct Simulator {
    /// Per variant and arm; none where the arm is absent.
    cells: Vec<Vec<Option<Cell>>>,
    options: Options,
}

struct Cell {
    scenario: Scenario,
    arm: Arm,
    policy: Policy,
}

impl Simulator {
    /// Loads every policy once and checks parameters. `linux` is its model here.
    ///
    /// # Errors
    /// A policy that cannot be loaded, or a parameter that it does not have.
    pub fn prepare(plan: &mut Plan, checked: bool) -> Result<Simulator, Failure> {
        // By policy and kernel line: variants and arms share them.
        let mut loaded: BTreeMap<(String, String), Policy> = BTreeMap::new();
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
                let scenario = variant.scenario.for_arm(arm);
                let key = (arm.policy.clone(), scenario.host.kernel.clone());
                let policy = match loaded.get(&key) {
                    Some(policy) => policy.clone(),
                    None => {
                        let options = policies::options(&scenario.host.kernel)?;
                        let policy = policies::load(&arm.policy, &options)?;
                        loaded.insert(key, policy.clone());
                        policy
                    }
                };
                policies::check_params(arm, policy.params())?;
                planned.hash = Some(policy.hash().to_string());
                row.push(Some(Cell {
                    scenario: scenario.clone(),
                    arm: arm.clone(),
                    policy,
                }));
            }
            cells.push(row);
        }
        let options = Options {
            checked,
            cancel: Some(interrupt::flag()),
            ..Options::default()
        };
        Ok(Simulator { cells, options })
    }

    /// Tells a sink what happens in the runs from now on (there should be one).
    pub fn tell(&mut self, sink: SharedSink) {
        self.options.sink = Some(sink);
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
        } = cell;
        run_one(
            scenario,
            &arm.name,
            policy,
            &arm.params,
            seed,
            &self.options,
        )
        .map_err(|e| e.to_string())
    }
}
