// SPDX-License-Identifier: GPL-2.0-only
//! The simplest workload: tasks that only compute.
use berth_sim::workload::api::{Action, Ctx, Nanos, TaskId, TaskSpec, Who, Workload};
use std::collections::BTreeMap;

/// So many of them.
pub struct Hogs(pub u32);

impl Workload for Hogs {
    fn start(&mut self, ctx: &mut Ctx) {
        for token in 0..self.0 {
            ctx.spawn(&TaskSpec {
                token,
                ..TaskSpec::default()
            });
        }
    }
    fn born(&mut self, _: u32, _: TaskId) {}
    fn died(&mut self, _: u32, _: TaskId) {}
    fn next(&mut self, _: Who, _: Nanos, _: &mut Ctx) -> Action {
        Action::ComputeForever
    }
    fn event(&mut self, _: u64, _: Nanos, _: &mut Ctx) {}
    fn measure_from(&mut self, _: Nanos) {}
    fn metrics(&self, _: Nanos, _: &mut BTreeMap<String, f64>) {}
}
