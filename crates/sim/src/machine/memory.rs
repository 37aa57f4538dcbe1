// SPDX-License-Identifier: GPL-2.0-only
//! On which nodes the memory of VMs is, and what it costs to have it elsewhere. It does not move.
//!
//! A task's time at full speed is part waiting for memory ([`Phase::stalled`](crate::words::Phase)); from a CPU of
//! another node that part takes [`Memory::new`]'s `remote` times as long. A task whose VM has part of its memory here
//! and part elsewhere waits as much for each byte of it.
use super::rate::FULL;
use crate::words::{TaskId, VmId};
use std::collections::BTreeMap;

/// Of a task whose VM's memory is not said.
const UNSAID: u32 = u32::MAX;

/// All of a machine.
#[derive(Debug)]
pub struct Memory {
    /// Of VMs of which it is said: the part on each node, parts per million.
    parts: BTreeMap<VmId, Vec<u32>>,
    /// How many times as long a wait for another node takes, parts per million.
    remote: u32,
    nodes: usize,
    /// By VM in the order of `parts`, then by node: the part of its memory that is elsewhere.
    away: Vec<u32>,
    /// By task: where its VM's nodes begin in `away`; those beyond: [`UNSAID`].
    of_task: Vec<u32>,
}

impl Memory {
    /// `remote` in parts per million; 0: as if it were here.
    pub fn new(parts: &BTreeMap<VmId, Vec<u32>>, remote: u32, nodes: u32) -> Memory {
        let nodes = nodes as usize;
        let here = |part: &Vec<u32>, node| part.get(node).copied().unwrap_or(0).min(FULL);
        Memory {
            parts: parts.clone(),
            remote: remote.max(FULL),
            nodes,
            away: (parts.values())
                .flat_map(|part| (0..nodes).map(move |node| FULL - here(part, node)))
                .collect(),
            of_task: Vec::new(),
        }
    }

    pub fn born(&mut self, task: TaskId, vm: Option<VmId>) {
        let order = vm.filter(|vm| self.parts.contains_key(vm));
        let order = order.map(|vm| self.parts.range(..vm).count() * self.nodes);
        let at = task as usize;
        if self.of_task.len() <= at {
            if order.is_none() {
                return;
            }
            self.of_task.resize(at + 1, UNSAID);
        }
        self.of_task[at] = order.map_or(UNSAID, |order| order as u32);
    }

    /// The part of a task's memory that is elsewhere when it runs on this node, parts per million; none: it is not
    /// said where it is.
    pub fn away(&self, task: TaskId, node: u32) -> Option<u32> {
        let first = *self.of_task.get(task as usize)?;
        (first != UNSAID).then(|| self.away[first as usize + node as usize])
    }

    /// How long a wait takes of whose memory this part is elsewhere, parts per million of one for memory that is here.
    pub fn wait(&self, away: u32) -> u64 {
        let (full, more) = (u64::from(FULL), u64::from(self.remote - FULL));
        full + u64::from(away) * more / full
    }

    /// The parts of a VM's memory, if they are said.
    pub fn parts(&self, vm: VmId) -> Option<&[u32]> {
        self.parts.get(&vm).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_its_vms_memory() {
        let parts = BTreeMap::from([(3, vec![FULL, 0]), (7, vec![250_000, 750_000])]);
        let mut m = Memory::new(&parts, 2 * FULL, 2);
        m.born(9, Some(7));
        m.born(2, Some(3));
        m.born(5, Some(4));
        m.born(6, None);
        m.born(40, None);
        let away = |task| [0, 1].map(|node| m.away(task, node));
        assert_eq!(away(9), [Some(750_000), Some(250_000)]);
        assert_eq!(away(2), [Some(0), Some(FULL)]);
        for unsaid in [5, 6, 40, 41] {
            assert_eq!(away(unsaid), [None, None]);
        }
        assert_eq!(
            [0, 250_000, FULL].map(|a| m.wait(a)),
            [1_000_000, 1_250_000, 2_000_000]
        );
        // Its number is used again.
        m.born(9, None);
        assert_eq!(m.away(9, 0), None);
    }
}
