// SPDX-License-Identifier: GPL-2.0-only
//! Which CPU. Earlier rules go before later ones:
//! 1. where the fewest others are bound;
//! 2. for a vCPU whose path is to be beside it: where there is room beside it;
//! 3. close to what it belongs to: the network card's node, or the caches of the vCPU that it works for;
//! 4. not CPU 0, where interrupts go that nobody has moved;
//! 5. where most is left: speed x idle time, half of that if the other thread of the core is used.
use crate::model::{Cpu, Host};
use berth_optimiser::CpuSet;
use std::collections::BTreeMap;

/// Shares of a core that differ by less are alike.
const STEP: f64 = 0.05;

/// What a CPU is wanted for.
#[derive(Clone, Copy, Debug)]
pub enum Near<'a> {
    /// The memory node of a card, if that is known.
    Node(Option<u32>),
    /// A CPU whose caches are to be shared.
    Cpu { cpu: &'a Cpu, thread: Thread },
}

/// The other threads of a core, for what is to be close to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    Never,
    /// After what shares a cache with it.
    Late,
    /// As close as it gets.
    Welcome,
}

/// CPUs, and who has been given them.
#[derive(Clone, Debug)]
pub struct Room<'a> {
    host: &'a Host,
    taken: BTreeMap<u32, u32>,
}

impl<'a> Room<'a> {
    pub fn new(host: &'a Host) -> Room<'a> {
        Room {
            host,
            taken: host.taken.clone(),
        }
    }

    pub fn cpu(&self, cpu: u32) -> Option<&'a Cpu> {
        self.host.cpus.iter().find(|c| c.cpu == cpu)
    }

    pub fn take(&mut self, cpu: u32) {
        *self.taken.entry(cpu).or_default() += 1;
    }

    pub fn taken(&self, cpu: u32) -> u32 {
        self.taken.get(&cpu).copied().unwrap_or(0)
    }

    /// What is left of a CPU, in steps.
    fn free(&self, cpu: &Cpu) -> i64 {
        let others = self
            .host
            .cpus
            .iter()
            .filter(|o| o.core == cpu.core && o.cpu != cpu.cpu);
        let used = |o: &Cpu| match self.taken(o.cpu) {
            0 => o.busy.clamp(0.0, 1.0),
            _ => 1.0,
        };
        let sibling = others.map(used).fold(0.0, f64::max);
        let idle = 1.0 - cpu.busy.clamp(0.0, 1.0);
        let free = f64::from(cpu.capacity) / 1024.0 * idle * (1.0 - sibling / 2.0);
        (free / STEP).round() as i64
    }

    /// How far a CPU is from what it is wanted for.
    fn distance(cpu: &Cpu, near: Near<'_>) -> u32 {
        match near {
            Near::Node(node) => u32::from(node.is_some_and(|node| node != cpu.node)),
            Near::Cpu { cpu: of, thread } => match () {
                () if cpu.core == of.core && thread != Thread::Welcome => 2,
                () if cpu.l2 == of.l2 => 0,
                () if cpu.llc == of.llc => 1,
                () if cpu.node == of.node => 3,
                () => 4,
            },
        }
    }

    /// Whether a path could be beside this CPU.
    fn has_company(&self, cpu: &Cpu, may: &dyn Fn(&Cpu) -> bool) -> bool {
        let beside = |o: &&Cpu| o.llc == cpu.llc && o.core != cpu.core;
        self.host
            .cpus
            .iter()
            .filter(beside)
            .any(|o| may(o) && self.taken(o.cpu) == 0)
    }

    /// The CPU to take of those that `may` be. `company`: another one beside it is wanted, too.
    pub fn choose(
        &self,
        near: Near<'_>,
        company: bool,
        may: &dyn Fn(&Cpu) -> bool,
    ) -> Option<&'a Cpu> {
        let other_core = |c: &&Cpu| match near {
            Near::Cpu { cpu, thread } => match thread {
                Thread::Never => c.core != cpu.core,
                _ => c.cpu != cpu.cpu,
            },
            Near::Node(_) => true,
        };
        let rank = |c: &&Cpu| {
            (
                self.taken(c.cpu),
                company && !self.has_company(c, may),
                Room::distance(c, near),
                c.cpu == 0,
                -self.free(c),
                c.cpu,
            )
        };
        let all = self.host.cpus.iter().filter(|c| may(c));
        all.filter(other_core).min_by_key(rank)
    }
}

/// CPUs that all of these may use; none: there is no limit. An error: there is no such CPU.
pub fn allowed<'s>(sets: impl Iterator<Item = &'s Option<CpuSet>>) -> Result<Option<CpuSet>, ()> {
    let mut all: Option<CpuSet> = None;
    for set in sets.flatten() {
        all = Some(match &all {
            None => set.clone(),
            Some(all) => CpuSet::of(all.iter().filter(|c| set.has(*c))).ok_or(())?,
        });
    }
    Ok(all)
}
