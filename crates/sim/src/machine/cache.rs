// SPDX-License-Identifier: GPL-2.0-only
//! Which part of a task's working set is in which cache.
//!
//! What a task brings into a cache fills room that is free, then pushes out what others have there, of each the same
//! part (as replacement at random does on average): never is more in a cache than it holds. When the task runs again,
//! it brings back what is missing: into its core's cache from the last-level cache if it is there, else from memory
//! (of which node it is said, or told by where it ran last). A task costs two marks, a switch a few multiplications.
//!
//! Left out: a working set larger than a cache streams through it in reality and pushes others out all the time; here
//! it counts as large as the cache. A running task's part is safe from those who run beside it on the same last-level
//! cache until it leaves. Of a task of whose memory nothing is said, one that changed nodes is local from then on.
use crate::machine::Topology;
use crate::machine::rate::FULL;
use crate::words::{CpuId, Nanos};
use berth_scenario::model::Cache;
use std::collections::BTreeMap;

const NOWHERE: u32 = u32::MAX;

/// A factor of this size is taken out of [`Level::keep`] before it gets too small to count with.
const EPOCH: f64 = 1e-100;

/// One cache.
#[derive(Clone, Copy, Debug)]
struct Level {
    size: u64,
    /// Bytes in it, whosesoever.
    used: u64,
    /// What is left of a byte that was there at the beginning, times `EPOCH` to the power of `-epoch`.
    keep: f64,
    epoch: u32,
}

impl Level {
    fn new(size: u64) -> Level {
        Level {
            size,
            used: 0,
            keep: 1.0,
            epoch: 0,
        }
    }

    /// Somebody who has `own` bytes here brings more.
    fn bring(&mut self, own: u64, bytes: u64) {
        let room = (self.size - self.used).min(bytes);
        let others = self.used.saturating_sub(own);
        let pushed = bytes - room;
        self.used += room;
        if pushed == 0 {
            return;
        }
        if pushed >= others {
            // Nobody else has anything left.
            self.epoch = self.epoch.wrapping_add(2);
            self.keep = 1.0;
            return;
        }
        self.keep *= 1.0 - pushed as f64 / others as f64;
        if self.keep < EPOCH {
            self.keep /= EPOCH;
            self.epoch = self.epoch.wrapping_add(1);
        }
    }
}

/// What a task has in one cache.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Number of the cache.
    place: u32,
    /// Bytes there when it left, or when it came if it has not left.
    bytes: u64,
    /// The cache's `keep` and `epoch` when it left.
    keep: f64,
    epoch: u32,
    /// Bytes it brings in during this run.
    missing: u64,
}

impl Default for Share {
    fn default() -> Share {
        Share {
            place: NOWHERE,
            bytes: 0,
            keep: 1.0,
            epoch: 0,
            missing: 0,
        }
    }
}

/// One task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Warmth {
    working_set: u64,
    core: Share,
    llc: Share,
    /// Duration of the warming of this run, ns.
    warm: Nanos,
}

/// All caches of a machine and the tasks that use them.
#[derive(Clone, Debug)]
pub struct Caches {
    of: Cache,
    cores: Vec<Level>,
    llcs: Vec<Level>,
    tasks: Vec<Warmth>,
    /// Working sets that tasks were born with, of those that have had another since.
    born_with: BTreeMap<u32, u64>,
}

impl Caches {
    pub fn new(of: &Cache, topo: &Topology) -> Caches {
        Caches {
            of: of.clone(),
            cores: vec![Level::new(of.core_bytes); topo.cores.len()],
            llcs: vec![Level::new(of.llc_bytes); topo.llcs.len()],
            tasks: Vec::new(),
            born_with: BTreeMap::new(),
        }
    }

    /// A new task; nothing of it is anywhere.
    pub fn born(&mut self, task: u32, working_set: Option<u64>) {
        if self.tasks.len() <= task as usize {
            self.tasks.resize(task as usize + 1, Warmth::default());
        }
        self.born_with.remove(&task);
        self.tasks[task as usize] = Warmth {
            working_set: working_set.unwrap_or(self.of.working_set),
            ..Warmth::default()
        };
    }

    /// A task that does not run works on so many bytes from now on; none: as many as when it was born. A smaller set is
    /// a part of a larger one, and what is left out stays until others push it out.
    pub fn set_working_set(&mut self, task: u32, bytes: Option<u64>) {
        let Some(t) = self.tasks.get_mut(task as usize) else {
            return;
        };
        let born_with = *self.born_with.entry(task).or_insert(t.working_set);
        t.working_set = bytes.unwrap_or(born_with);
    }

    /// A task gets a CPU, having last run on `from`: how long it goes at half speed while it warms up, ns. `away`: the
    /// part of its memory that is on another node, parts per million, if that is said.
    pub fn comes(
        &mut self,
        topo: &Topology,
        task: u32,
        from: Option<CpuId>,
        cpu: CpuId,
        away: Option<u32>,
    ) -> Nanos {
        let Some(t) = self.tasks.get_mut(task as usize) else {
            return 0;
        };
        let (core, llc) = (topo.core_of(cpu), topo.llc_of(cpu));
        let set = t.working_set;
        come(&mut t.core, core, &self.cores[core as usize], set);
        come(&mut t.llc, llc, &self.llcs[llc as usize], set);
        let far = from.is_some_and(|f| topo.node_of(f) != topo.node_of(cpu));
        let near = t.core.missing.saturating_sub(t.llc.missing);
        let remote = match away {
            Some(part) => (u128::from(t.llc.missing) * u128::from(part) / u128::from(FULL)) as u64,
            None if far => t.llc.missing,
            None => 0,
        };
        // Bytes by bytes per microsecond.
        let stall = near * 1000 / self.of.from_llc.max(1)
            + (t.llc.missing - remote) * 1000 / self.of.from_memory.max(1)
            + remote * 1000 / self.of.from_other_node.max(1);
        t.warm = 2 * stall;
        t.warm
    }

    /// A task leaves its CPU with this much of its warming still before it, ns.
    pub fn leaves(&mut self, task: u32, left: Nanos) {
        let Some(t) = self.tasks.get_mut(task as usize) else {
            return;
        };
        let (left, of) = (left.min(t.warm), t.warm);
        leave(&mut t.core, &mut self.cores, left, of);
        leave(&mut t.llc, &mut self.llcs, left, of);
        t.warm = 0;
    }
}

/// A task comes to a cache: what is there of it, and what is missing.
fn come(share: &mut Share, place: u32, level: &Level, working_set: u64) {
    let there = if share.place != place {
        0
    } else {
        let left = match level.epoch.wrapping_sub(share.epoch) {
            0 => level.keep / share.keep,
            1 => level.keep / share.keep * EPOCH,
            _ => 0.0,
        };
        // Whole bytes; a factor that is 1 but for rounding keeps all.
        ((share.bytes as f64 * left + 1e-3) as u64).min(share.bytes)
    };
    share.place = place;
    share.bytes = there;
    share.missing = working_set.min(level.size).saturating_sub(there);
}

fn leave(share: &mut Share, levels: &mut [Level], left: Nanos, of: Nanos) {
    let brought = if left == 0 {
        share.missing
    } else {
        (u128::from(share.missing) * u128::from(of - left) / u128::from(of)) as u64
    };
    let Some(level) = levels.get_mut(share.place as usize) else {
        return;
    };
    level.bring(share.bytes, brought);
    share.bytes += brought;
    (share.keep, share.epoch) = (level.keep, level.epoch);
    share.missing = 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Shape;

    const KIB: u64 = 1024;

    fn caches() -> (Caches, Topology) {
        let topo = Topology::new(Shape {
            nodes: 2,
            packages: 2,
            llcs: 1,
            cores: 2,
            threads: 1,
        });
        let cache = Cache {
            core_bytes: 100 * KIB,
            llc_bytes: 1000 * KIB,
            from_llc: 1024,
            from_memory: 512,
            from_other_node: 256,
            working_set: 60 * KIB,
        };
        let mut c = Caches::new(&cache, &topo);
        (0..4).for_each(|t| c.born(t, None));
        (c, topo)
    }

    #[test]
    fn distance_decides() {
        let (mut c, topo) = caches();
        // 60 KiB: at half speed for twice the time that bringing them takes.
        assert_eq!(c.comes(&topo, 0, None, 0, None), 2 * 120_000);
        c.leaves(0, 0);
        assert_eq!(c.comes(&topo, 0, Some(0), 0, None), 0);
        c.leaves(0, 0);
        assert_eq!(c.comes(&topo, 0, Some(0), 1, None), 2 * 60_000);
        c.leaves(0, 0);
        assert_eq!(c.comes(&topo, 0, Some(1), 2, None), 2 * 240_000);
        c.leaves(0, 0);
        // What it left on the other node is forgotten.
        assert_eq!(c.comes(&topo, 0, Some(2), 1, None), 2 * 240_000);
    }

    #[test]
    fn memory_whose_node_is_said_is_brought_from_there() {
        let (mut c, topo) = caches();
        // 15 KiB of this node's at 512 bytes a microsecond, 45 of the other's at 256; wherever it ran before.
        for (from, cpu) in [(None, 0), (Some(3), 0), (Some(0), 2)] {
            c.born(0, None);
            assert_eq!(
                c.comes(&topo, 0, from, cpu, Some(750_000)),
                2 * (30_000 + 180_000)
            );
            c.leaves(0, 0);
        }
    }

    #[test]
    fn others_push_out_what_does_not_fit_beside() {
        let (mut c, topo) = caches();
        c.comes(&topo, 0, None, 0, None);
        c.leaves(0, 0);
        c.comes(&topo, 1, None, 0, None);
        c.leaves(1, 0);
        // 40 KiB were free; the other brought 60: 20 are gone, and still in the last-level cache.
        assert_eq!(c.comes(&topo, 0, Some(0), 0, None), 2 * 20_000);
        c.leaves(0, 0);
        // All 20 came from the other's 60, which was all there was beside.
        assert_eq!(c.comes(&topo, 1, Some(0), 0, None), 2 * 20_000);
        assert_eq!(c.cores[0].used, 100 * KIB);
        c.leaves(1, 0);
        // One that takes it all leaves nothing.
        c.born(2, Some(100 * KIB));
        c.comes(&topo, 2, None, 0, None);
        c.leaves(2, 0);
        assert_eq!(c.comes(&topo, 0, Some(0), 0, None), 2 * 60_000);
    }

    #[test]
    fn no_share_is_lost_however_long_it_takes() {
        let mut level = Level::new(1000);
        level.bring(0, 1000);
        let mut task = Share {
            place: 0,
            bytes: 1 << 40,
            ..Share::default()
        };
        (0..20).for_each(|_| level.bring(100, 450));
        come(&mut task, 0, &level, 0);
        // Half went each time.
        assert_eq!(task.bytes, 1 << 20);
        let mut old = Share {
            place: 0,
            bytes: 1 << 40,
            ..Share::default()
        };
        (0..400).for_each(|_| level.bring(100, 450));
        come(&mut old, 0, &level, 0);
        assert_eq!((old.bytes, level.epoch), (0, 1));
    }

    #[test]
    fn half_warmed_is_half_there() {
        let (mut c, topo) = caches();
        let warm = c.comes(&topo, 0, None, 0, None);
        c.leaves(0, warm / 2);
        assert_eq!(c.comes(&topo, 0, Some(0), 0, None), warm / 2);
        c.leaves(0, warm / 2);
        assert_eq!(c.comes(&topo, 0, Some(0), 0, None), warm / 2);
    }

    #[test]
    fn more_than_a_cache_counts_as_the_cache() {
        let (mut c, topo) = caches();
        c.born(2, Some(1 << 40));
        // 100 KiB of the core come along with the 1000 of the last-level cache.
        assert_eq!(c.comes(&topo, 2, None, 0, None), 2 * 2_000_000);
        c.leaves(2, 0);
        assert_eq!(c.comes(&topo, 2, Some(0), 0, None), 0);
        c.born(3, Some(0));
        assert_eq!(c.comes(&topo, 3, None, 0, None), 0);
    }
}
