// SPDX-License-Identifier: GPL-2.0-only
//! What one call of a policy costs while thousands of instances are alive.
//!
//! Each instance belongs to a machine of its own (4 CPUs, 10 tasks that only compute) that has run for a while.
//! Then `running` and `stopping` of the task on CPU 0 are called, one instance after the other, as the engine
//! calls them: every call finds its instance's data where thousands of others have pushed it out of the
//! nearest caches. What the engine does to know whom to call for which task is not part of it: instances and tasks are
//! looked up beforehand. These two call few kernel functions but storages and maps, so the figure is the policy's own.
use crate::engine::Program;
use crate::hogs::Hogs;
use crate::{Fallible, median, timed};
use berth_policy::abi::Op;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;

const TASKS: u32 = 10;

/// Cost of one call.
pub struct Cost {
    what: String,
    instances: usize,
    ns: f64,
    insns: f64,
}

impl Cost {
    pub fn markdown(&self) -> String {
        format!(
            "| {} | {} | {:.1} | {:.0} |",
            self.what, self.instances, self.ns, self.insns
        )
    }

    pub fn json(&self) -> String {
        format!(
            "{{\"what\": \"{}\", \"instances\": {}, \"ns_per_call\": {:.2}, \"insns_per_call\": {:.2}}}",
            self.what, self.instances, self.ns, self.insns
        )
    }
}

/// One instance alone and `many`, for policies with both callbacks.
pub fn measure(many: usize, repeat: usize) -> Fallible<Vec<Cost>> {
    let mut costs = Vec::new();
    for name in ["vmfair", "vtime"] {
        let program = Program::load(name)?;
        for instances in [1, many] {
            costs.push(one(name, &program, instances, repeat)?);
        }
    }
    Ok(costs)
}

fn one(name: &str, program: &Program, instances: usize, repeat: usize) -> Fallible<Cost> {
    let spec = MachineSpec {
        tasks: TASKS as usize,
        needs: program.policy.needs(),
        ..MachineSpec::new(Shape::flat(4))
    };
    let machines: Vec<Simulation<Hogs>> = (0..instances)
        .map(|_| {
            let mut m = Simulation::new(&spec, &[], Hogs(TASKS));
            let none = BTreeMap::new();
            load_policy(&mut m, &program.policy, &none, &[], &Options::default())?;
            m.start();
            m.run_until(20_000_000)?;
            Ok(m)
        })
        .collect::<Fallible<_>>()?;
    let kernels: Vec<_> = machines.iter().map(Simulation::kernel).collect();
    let callees: Vec<_> = kernels
        .iter()
        .filter_map(|k| {
            let p = k.tasks.ptr(k.cpus[0].curr) as u64;
            Some((k.policy.instance()?, p))
        })
        .collect();
    let rounds = (200_000 / instances).max(1);
    let mut calls = 0u64;
    let mut trapped = None;
    let mut pass = |rounds: usize| {
        for _ in 0..rounds {
            for &(instance, p) in &callees {
                for (op, args) in [(Op::Running, &[p][..]), (Op::Stopping, &[p, 1][..])] {
                    // SAFETY: the arguments are the operation's: a live task of this machine, runnable.
                    if let Err(trap) = unsafe { instance.call(op, args) } {
                        trapped = Some(trap);
                    }
                    calls += 1;
                }
            }
        }
    };
    pass(1);
    let per_pass = (rounds * instances * 2) as f64;
    let times: Vec<f64> = (0..repeat)
        .map(|_| timed(|| pass(rounds)).1 / per_pass)
        .collect();
    let insns = |m: &Simulation<Hogs>| m.kernel().policy.insns();
    let before: u64 = machines.iter().map(insns).sum();
    pass(1);
    let after: u64 = machines.iter().map(insns).sum();
    if let Some(trap) = trapped {
        return Err(format!("{name} trapped: {trap:?}").into());
    }
    Ok(Cost {
        what: format!("{name}: running, stopping"),
        instances,
        ns: median(times) * 1e9,
        insns: (after - before) as f64 / (2 * instances) as f64,
    })
}
