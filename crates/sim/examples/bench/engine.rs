// SPDX-License-Identifier: GPL-2.0-only
//! W8 on the simulated machine, under a shipped policy.
use crate::bare::W8;
use crate::{Fallible, timed};
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::model::Hz;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::workload::api::{Action, Ctx, Nanos, TaskId, TaskSpec, Who, Workload};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ran {
    pub seconds: f64,
    pub switches: u64,
    pub cycles: u64,
    pub insns: u64,
}

/// A shipped policy, loaded once.
pub struct Program {
    pub policy: Policy,
    slice_us: Option<u64>,
}

impl Program {
    pub fn load(name: &str) -> Fallible<Program> {
        let builtin = berth_builtin::find(name).ok_or(format!("no shipped policy {name}"))?;
        let policy = builtin.load(&LoadOptions::default())?;
        let has_slice = policy.params().iter().any(|p| p.name == "slice_us");
        Ok(Program {
            policy,
            slice_us: has_slice.then_some(3_000),
        })
    }

    /// One run; `hz`: ticks a second, none = slices end exactly.
    pub fn w8(&self, w: &W8, hz: Option<u32>) -> Fallible<Ran> {
        let spec = MachineSpec {
            hz: hz.map_or(Hz::Exact, Hz::Ticks),
            tasks: (w.workers + w.hogs) as usize,
            needs: self.policy.needs(),
            ..MachineSpec::new(Shape::flat(w.cpus))
        };
        let work = Work {
            w: *w,
            computed: vec![false; w.workers as usize],
            cycles: 0,
        };
        let mut machine = Simulation::new(&spec, &[], work);
        let slice = self
            .slice_us
            .map(|us| ("slice_us".to_string(), us.to_string()));
        let params: BTreeMap<_, _> = slice.into_iter().collect();
        load_policy(
            &mut machine,
            &self.policy,
            &params,
            &[],
            &Options::default(),
        )?;
        machine.start();
        let (done, seconds) = timed(|| machine.run_until(w.end_ns));
        done?;
        machine.check()?;
        let k = machine.kernel();
        Ok(Ran {
            seconds,
            switches: k.cpus.iter().map(|c| c.switches).sum(),
            cycles: machine.workload.cycles,
            insns: k.policy.insns(),
        })
    }
}

struct Work {
    w: W8,
    computed: Vec<bool>,
    cycles: u64,
}

impl Workload for Work {
    fn start(&mut self, ctx: &mut Ctx) {
        for i in 0..u64::from(self.w.workers + self.w.hogs) {
            ctx.at(i * self.w.stagger_ns, i);
        }
    }
    fn born(&mut self, _: u32, _: TaskId) {}
    fn died(&mut self, _: u32, _: TaskId) {}
    fn next(&mut self, who: Who, now: Nanos, _: &mut Ctx) -> Action {
        let Some(computed) = self.computed.get_mut(who.token as usize) else {
            return Action::ComputeForever;
        };
        *computed = !*computed;
        if *computed {
            Action::Compute {
                ns: self.w.compute_ns,
            }
        } else {
            self.cycles += 1;
            Action::SleepUntil {
                at: now + self.w.sleep_ns,
            }
        }
    }
    fn event(&mut self, token: u64, _: Nanos, ctx: &mut Ctx) {
        ctx.spawn(&TaskSpec {
            token: token as u32,
            ..TaskSpec::default()
        });
    }
    fn measure_from(&mut self, _: Nanos) {}
    fn metrics(&self, _: Nanos, _: &mut BTreeMap<String, f64>) {}
}
