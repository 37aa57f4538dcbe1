// SPDX-License-Identifier: GPL-2.0-only
//! Steps that read or write a record.
use super::api::{Action, Ctx, Nanos, Who};
use super::blocks::At;
use super::device::{Device, Taker};
use super::scenario::ScenarioWorkload;

impl ScenarioWorkload {
    /// A step that reads or writes a record (disk, whether it writes, bytes). What the thread does first; then the step
    /// is asked for once more. `None`: it is over.
    pub(super) fn record(
        &mut self,
        who: Who,
        record: (u16, bool, u64),
        now: Nanos,
        ctx: &mut Ctx,
    ) -> Option<Action> {
        let thread = who.token;
        loop {
            let t = &mut self.threads[thread];
            let (home, program, cpu) = (t.home, t.program, t.cpu);
            let disks = self.devices.disk.as_mut()?;
            let (next, ns) = match self.blocks.get(thread) {
                At::Nowhere => {
                    let job = disks.job((thread, home, program), record);
                    let woken = false;
                    let ns = disks.guest_ns(job, Taker { thread, cpu, woken });
                    (At::Before(job, now), ns)
                }
                At::Before(job, began) => {
                    let (devices, mut board) = self.plugged(ctx);
                    devices.disk.as_mut()?.enter(job, &mut board);
                    (At::Inside(job, began, false), 0)
                }
                At::Inside(job, began, slept) => {
                    if disks.waits(thread) {
                        self.blocks.put(thread, At::Inside(job, began, true));
                        self.threads[thread].step -= 1;
                        return Some(Action::Block);
                    }
                    (At::Behind(job, began), disks.after_ns(job, slept))
                }
                At::Behind(job, began) => {
                    disks.count(job, began, now);
                    self.blocks.put(thread, At::Nowhere);
                    return None;
                }
            };
            self.blocks.put(thread, next);
            if ns > 0 {
                self.threads[thread].step -= 1;
                return Some(Action::Compute { ns });
            }
        }
    }
}
