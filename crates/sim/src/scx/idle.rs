// SPDX-License-Identifier: GPL-2.0-only
//! The built-in masks of idle CPUs (rows 27, 28): one pair for the machine, or one per node.
use super::consts::*;
use super::kernel::Handle;
use super::mutation::Mutation;
use crate::machine::mask::next_in_all;
use crate::machine::{CpuMask, Topology};
use crate::words::CpuId;
use berth_policy::abi::Op;

/// Idle CPUs, and CPUs of wholly idle cores.
#[derive(Debug)]
pub struct Pair {
    pub cpu: CpuMask,
    pub smt: CpuMask,
}

#[derive(Debug)]
pub struct IdleMasks {
    /// The machine's, then one per node.
    pairs: Vec<Pair>,
    pub enabled: bool,
    pub per_node: bool,
    smt: bool,
    /// The LLC and node steps of the default choice make a difference here.
    pub by_llc: bool,
    pub by_node: bool,
}

impl IdleMasks {
    pub fn new(topo: &Topology) -> Self {
        let nr = topo.nr_cpus();
        let pair = || Pair {
            cpu: CpuMask::new(nr),
            smt: CpuMask::new(nr),
        };
        let mut masks = IdleMasks {
            pairs: (0..=topo.nr_nodes()).map(|_| pair()).collect(),
            enabled: true,
            per_node: false,
            smt: topo.smt(),
            by_llc: false,
            by_node: false,
        };
        let mut online = CpuMask::new(nr);
        (0..nr).for_each(|c| online.set(c));
        masks.update_topology(topo, &online);
        masks
    }

    /// Which steps of the default choice make sense, from CPU 0's (the first online CPU's) place.
    pub fn update_topology(&mut self, topo: &Topology, online: &CpuMask) {
        let first = online.first().unwrap_or(0);
        let nr = online.count();
        let in_online = |m: &CpuMask| m.iter().filter(|c| online.has(*c)).count() as u32;
        let llc = |c| in_online(&topo.llcs[topo.llc_of(c) as usize]);
        let node = |c| in_online(&topo.nodes[topo.node_of(c) as usize]);
        self.by_llc = llc(first) > 1 && llc(first) < nr;
        self.by_node = !self.per_node
            && topo.nr_nodes() > 1
            && node(first) < nr
            && online.iter().any(|c| llc(c) != node(c));
    }

    /// A scheduler is enabled: all online CPUs count as idle until they pass through idle.
    pub fn enable(&mut self, topo: &Topology, online: &CpuMask, enabled: bool, per_node: bool) {
        self.enabled = enabled;
        self.per_node = per_node;
        for (i, pair) in self.pairs.iter_mut().enumerate() {
            let of = |c: &u32| match i {
                0 => !per_node,
                n => per_node && topo.node_of(*c) == n as u32 - 1,
            };
            pair.cpu.clear_all();
            pair.smt.clear_all();
            for c in online.iter().filter(of) {
                pair.cpu.set(c);
                pair.smt.set(c);
            }
        }
        self.update_topology(topo, online);
    }

    /// Masks of a node (`None` = of the machine).
    #[inline]
    pub fn pair(&self, node: Option<u32>) -> &Pair {
        &self.pairs[node.map_or(0, |n| n as usize + 1)]
    }

    pub fn regions(&self) -> impl Iterator<Item = (*const u8, usize)> + '_ {
        self.pairs.iter().flat_map(|p| {
            [&p.cpu, &p.smt].map(|m| (m.words().as_ptr().cast(), m.words().len() * 8))
        })
    }
}

impl Handle {
    #[inline]
    pub fn idle_node(self, cpu: CpuId) -> Option<u32> {
        self.idle.per_node.then(|| self.topo.node_of(cpu))
    }

    /// Is it plain that there is no idle CPU to be found? (A core is idle only if its CPUs are.)
    #[inline]
    pub fn nobody_idle(self) -> bool {
        !self.idle.per_node && !self.idle.smt && self.idle.pair(None).cpu.is_empty()
    }

    /// Claim an idle CPU; `false` if it is not idle. The core's bits go either way.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn test_and_clear_idle(mut self, cpu: CpuId) -> bool {
        let node = self.idle_node(cpu);
        let k = &mut *self;
        let claim = !k.wrong(Mutation::NoClaim);
        let keep_smt = k.wrong(Mutation::SmtBitsStay);
        let pair = &mut k.idle.pairs[node.map_or(0, |n| n as usize + 1)];
        if k.idle.smt && !keep_smt {
            let core = k.topo.siblings(cpu);
            pair.smt.remove_all(core);
            pair.smt.clear(cpu);
        }
        let was = pair.cpu.has(cpu);
        if claim {
            pair.cpu.clear(cpu);
        }
        was
    }

    /// An idle CPU of these masks in all of `allowed`, claimed. "Any" goes on where this CPU's last search ended.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn pick_idle_in_node(
        mut self,
        allowed: [&[u64]; 3],
        node: Option<u32>,
        flags: u64,
    ) -> Option<CpuId> {
        loop {
            let from = if self.wrong(Mutation::LowestIdle) {
                0
            } else {
                self.cpus[self.exec as usize].distribute_prev + 1
            };
            let pair = self.idle.pair(node);
            let mut found = None;
            if self.idle.smt {
                found = next_in_all(pair.smt.words(), allowed, from);
                if found.is_none() && flags & PICK_IDLE_CORE != 0 {
                    return None;
                }
            }
            if found.is_none() {
                found = next_in_all(pair.cpu.words(), allowed, from);
            }
            let cpu = found?;
            let exec = self.exec as usize;
            self.cpus[exec].distribute_prev = cpu;
            if self.test_and_clear_idle(cpu) {
                return Some(cpu);
            }
            if self.wrong(Mutation::SmtBitsStay) {
                return None;
            }
        }
    }

    /// An idle CPU in all of `allowed`, beginning with `node`, claimed.
    pub fn pick_idle(self, allowed: [&[u64]; 3], node: Option<u32>, flags: u64) -> Option<CpuId> {
        if let Some(cpu) = self.pick_idle_in_node(allowed, node, flags) {
            return Some(cpu);
        }
        let stay = flags & PICK_IDLE_IN_NODE != 0 && !self.wrong(Mutation::LeavesNode);
        let node = node.filter(|_| !stay)?;
        // All other nodes are equally far: the machine has no distance matrix yet.
        (0..self.topo.nr_nodes())
            .filter(|n| *n != node)
            .find_map(|n| self.pick_idle_in_node(allowed, Some(n), flags))
    }

    /// A CPU passes through idle or leaves it. `notify`: a real transition, not idle to idle (row 30).
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn update_idle(mut self, cpu: CpuId, idle: bool, notify: bool) {
        if self.idle.enabled && (notify || self.cpus[cpu as usize].is_idle()) {
            let node = self.idle_node(cpu);
            let k = &mut *self;
            let pair = &mut k.idle.pairs[node.map_or(0, |n| n as usize + 1)];
            if idle {
                pair.cpu.set(cpu);
            } else {
                pair.cpu.clear(cpu);
            }
            if k.idle.smt {
                let core = k.topo.siblings(cpu);
                if !idle {
                    pair.smt.remove_all(core);
                } else if core.is_subset_of(pair.cpu.words()) {
                    pair.smt.insert_all(core);
                }
            }
        }
        if notify && !self.flags.bypass {
            self.op_cpu(Op::UpdateIdle, cpu, idle as u64);
        }
    }
}
