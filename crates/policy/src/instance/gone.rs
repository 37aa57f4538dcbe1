// SPDX-License-Identifier: GPL-2.0-only
//! What ends with a task, a cgroup or an element: storages, timers, masks.
use super::Instance;
use crate::ir::MapId;
use crate::maps;

impl Instance {
    /// A task is gone: free its storages. `index` is its `berth_index`.
    pub fn task_gone(&self, index: u32) {
        self.free_storage(maps::kind::TASK_STORAGE, index);
    }

    /// A cgroup is gone: free its storages.
    pub fn cgroup_gone(&self, index: u32) {
        self.free_storage(maps::kind::CGRP_STORAGE, index);
    }

    fn free_storage(&self, kind: u32, index: u32) {
        for (id, def) in self.policy.program().maps.iter().enumerate() {
            if def.kind == kind {
                // SAFETY: one operation; the key has four bytes.
                unsafe { self.slot(id).runtime.delete((&raw const index).cast()) };
                self.end_fields(id);
            }
        }
    }

    /// Ends what lived in values that an update or delete has just removed from map `id`: timers are
    /// cancelled, masks released.
    pub(crate) fn end_fields(&self, id: MapId) {
        let def = &self.policy.program().maps[id];
        if def.timers.is_empty() && def.kptrs.is_empty() {
            return;
        }
        // SAFETY: one operation each; the value's memory is intact until the map's next operation, and the
        // fields lie inside it.
        unsafe {
            while let Some(value) = self.slot(id).runtime.freed() {
                for offset in &def.timers {
                    let timer = value.add(*offset as usize);
                    if timer.cast::<[u64; 2]>().read_unaligned() != [0, 0] {
                        (self.vtable.timer_cancel())(self.raw.get(), timer as u64, 0, 0, 0, 0);
                        timer.cast::<[u64; 2]>().write_unaligned([0, 0]);
                    }
                }
                for offset in &def.kptrs {
                    let place = value.add(*offset as usize).cast::<u64>();
                    let (object, state) = (place.read_unaligned(), self.state());
                    if !state.masks.release(object) {
                        state.objects.drop_one(object);
                    }
                    place.write_unaligned(0);
                }
            }
        }
    }
}
