// SPDX-License-Identifier: GPL-2.0-only
//! CPUs for one VM alone: of one kind, below one cache, on one node as far as there are some, the fastest first, whole
//! cores before single SMT threads.
use crate::cpuset::CpuSet;
use crate::machine::{Cpu, Machine};
use std::collections::BTreeMap;

/// How fast the CPUs of a group are, 0 if that does not matter, and which group it is.
type Group = dyn Fn(&Cpu) -> (u32, u32);

/// CPUs that nobody has to itself yet.
#[derive(Clone, Debug)]
pub struct Free<'a> {
    machine: &'a Machine,
    /// By position in the machine.
    free: Vec<bool>,
}

impl<'a> Free<'a> {
    /// All CPUs but those to which others are pinned.
    pub fn new(machine: &'a Machine, pinned: &[&CpuSet]) -> Free<'a> {
        let mut free = vec![true; machine.online()];
        for at in pinned.iter().flat_map(|set| machine.positions(set)) {
            free[at] = false;
        }
        Free { machine, free }
    }

    /// Takes these CPUs, if all are online and free.
    pub fn take(&mut self, cpus: &CpuSet) -> bool {
        let at: Vec<usize> = self.machine.positions(cpus).collect();
        let all = at.len() == cpus.count() && at.iter().all(|i| self.free[*i]);
        if all {
            at.iter().for_each(|i| self.free[*i] = false);
        }
        all
    }

    /// Takes the best `n` CPUs, `n` at least 1; `None`: there are not so many.
    pub fn choose(&mut self, n: usize) -> Option<CpuSet> {
        let near: [&Group; 6] = [
            &|c| (c.capacity, c.llc),
            &|c| (c.capacity, c.node),
            &|c| (c.capacity, 0),
            &|c| (0, c.llc),
            &|c| (0, c.node),
            &|_| (0, 0),
        ];
        let set = near.iter().find_map(|group| self.within(*group, n))?;
        self.take(&set).then_some(set)
    }

    /// The best `n` free CPUs of one group: of the fastest groups with so many the one with the fewest.
    fn within(&self, group: &Group, n: usize) -> Option<CpuSet> {
        let cpus = self.machine.cpus().iter().zip(&self.free);
        let free = || cpus.clone().filter(|(_, free)| **free).map(|(cpu, _)| cpu);
        let mut groups: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        free().for_each(|c| *groups.entry(group(c)).or_default() += 1);
        let fits = groups.into_iter().filter(|(_, count)| *count >= n);
        // The last of equals: CPUs of low numbers are left for the rest.
        let best = fits.max_by_key(|((speed, id), count)| (*speed, std::cmp::Reverse(*count), *id));
        let (best, _) = best?;
        let mut taken: BTreeMap<u32, bool> = BTreeMap::new();
        for (cpu, free) in cpus.clone() {
            *taken.entry(cpu.core).or_default() |= !free;
        }
        let mut list: Vec<&Cpu> = free().filter(|c| group(c) == best).collect();
        list.sort_by_key(|c| (taken[&c.core], std::cmp::Reverse((c.core, c.cpu))));
        CpuSet::of(list.iter().take(n).map(|c| c.cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes with two caches each, of two cores with two threads: CPUs 0 to 15. The last node is slower.
    fn machine() -> Machine {
        let cpu = |cpu: u32| Cpu {
            cpu,
            core: cpu / 2,
            llc: cpu / 4,
            node: cpu / 8,
            capacity: if cpu < 8 { 1024 } else { 600 },
        };
        Machine::new(&(0..16).map(cpu).collect::<Vec<_>>()).unwrap()
    }

    fn text(set: Option<CpuSet>) -> String {
        set.map_or("none".into(), |s| s.to_string())
    }

    #[test]
    fn near_to_each_other_and_fast() {
        let m = machine();
        let mut free = Free::new(&m, &[]);
        // A whole core of a fast cache, then the rest of that cache, then the other one.
        assert_eq!(text(free.choose(2)), "6-7");
        assert_eq!(text(free.choose(1)), "5");
        // More than a cache has: two caches of a node; more than the node has: the slow one.
        assert_eq!(text(free.choose(3)), "1-3");
        assert_eq!(text(free.choose(3)), "13-15");
        assert_eq!(text(free.choose(8)), "none");
        assert_eq!(text(free.choose(7)), "0,4,8-12");
        assert_eq!(text(free.choose(1)), "none");
    }

    #[test]
    fn what_is_pinned_or_offline_is_not_taken() {
        let m = machine();
        let pinned = CpuSet::of([6]).unwrap();
        let mut free = Free::new(&m, &[&pinned]);
        assert_eq!(text(free.choose(2)), "4-5");
        // The core of the pinned VM is the last choice of its cache.
        assert_eq!(text(free.choose(1)), "7");
        assert!(!free.take(&CpuSet::of([15, 16]).unwrap()));
        assert!(!free.take(&CpuSet::of([3, 4]).unwrap()));
        assert!(free.take(&CpuSet::of([3, 15]).unwrap()));
    }
}
