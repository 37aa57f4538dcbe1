// SPDX-License-Identifier: GPL-2.0-only
//! The CPUs of a host and what they have in common, as `/sys/devices/system/cpu` tells it.
use crate::cpuset::CpuSet;
use crate::error::Error;
use serde::{Deserialize, Serialize};

/// One CPU that is online. Cores, caches and nodes are numbered over the whole host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    pub cpu: u32,
    /// CPUs of one core are SMT siblings.
    pub core: u32,
    /// Its last-level cache.
    pub llc: u32,
    /// Its NUMA node.
    pub node: u32,
    /// How fast it is, 1 to 1024, 1024 for the fastest (`cpu_capacity`).
    pub capacity: u32,
}

impl Cpu {
    /// CPUs 0 to `n - 1`, each a core of its own, all alike below one cache.
    pub fn flat(n: u32) -> Vec<Cpu> {
        let cpu = |cpu| Cpu {
            cpu,
            core: cpu,
            llc: 0,
            node: 0,
            capacity: 1024,
        };
        (0..n).map(cpu).collect()
    }
}

/// The CPUs that are online, ascending, each once; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    cpus: Vec<Cpu>,
    all: CpuSet,
}

impl Machine {
    /// # Errors
    /// No CPU, a CPU twice, a capacity of 0.
    pub fn new(cpus: &[Cpu]) -> Result<Machine, Error> {
        let mut cpus = cpus.to_vec();
        cpus.sort_unstable();
        if let Some(pair) = cpus.windows(2).find(|p| p[0].cpu == p[1].cpu) {
            return Err(Error::CpuTwice(pair[0].cpu));
        }
        if let Some(slow) = cpus.iter().find(|c| !(1..=1024).contains(&c.capacity)) {
            return Err(Error::Capacity(slow.cpu));
        }
        let all = CpuSet::of(cpus.iter().map(|c| c.cpu)).ok_or(Error::NoCpus)?;
        Ok(Machine { cpus, all })
    }

    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    pub fn all(&self) -> &CpuSet {
        &self.all
    }

    /// Number of CPUs online.
    pub fn online(&self) -> usize {
        self.cpus.len()
    }

    /// The CPUs but these, of which it has more.
    pub fn without(&self, mut taken: Vec<u32>) -> CpuSet {
        taken.sort_unstable();
        let left = self
            .cpus
            .iter()
            .map(|c| c.cpu)
            .filter(|c| taken.binary_search(c).is_err());
        CpuSet::of(left).unwrap_or_else(|| self.all.clone())
    }

    /// Positions of the CPUs of a set that are online, ascending.
    pub fn positions<'a>(&'a self, set: &'a CpuSet) -> impl Iterator<Item = usize> + 'a {
        let from = |cpu: u32| self.cpus.partition_point(|c| c.cpu < cpu);
        set.runs()
            .iter()
            .flat_map(move |(first, last)| from(*first)..from(last.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_machines_are_refused() {
        assert_eq!(Machine::new(&[]), Err(Error::NoCpus));
        let mut cpus = Cpu::flat(3);
        cpus[2].cpu = 0;
        assert_eq!(Machine::new(&cpus), Err(Error::CpuTwice(0)));
        cpus[2].cpu = 9;
        cpus[1].capacity = 0;
        assert_eq!(Machine::new(&cpus), Err(Error::Capacity(1)));
        cpus[1].capacity = 600;
        cpus.reverse();
        let machine = Machine::new(&cpus).unwrap();
        assert_eq!(machine.all().to_string(), "0-1,9");
        let at = |cpus: &[u32]| {
            let set = CpuSet::of(cpus.iter().copied()).unwrap();
            machine.positions(&set).collect::<Vec<_>>()
        };
        assert_eq!(at(&[1, 2, 3, 9]), [1, 2]);
        assert_eq!(at(&[2, 8, 10]), []);
    }
}
