// SPDX-License-Identifier: GPL-2.0-only
//! VMs onto CPUs by their shares, the largest first, each to the least loaded CPUs: then the CPUs divide the machine,
//! whatever the scheduler does on each. A VM stays where it was unless its CPUs would be loaded too far above the mean.
use crate::cpuset::CpuSet;
use crate::machine::Machine;
use crate::promise::Service;
use std::collections::{BTreeMap, BTreeSet};

/// A VM to be packed.
#[derive(Clone, Debug)]
pub struct Item<'a> {
    pub service: Service,
    /// CPUs it gets, finite, not negative.
    pub share: f64,
    pub vcpus: u32,
    /// Where it was packed before.
    pub previous: Option<&'a CpuSet>,
    /// It runs there and nowhere else.
    pub pinned: Option<&'a CpuSet>,
}

impl Item<'_> {
    /// CPUs its share needs.
    fn width(&self, pool: usize) -> usize {
        // What is left of a share after rounding needs no CPU.
        let whole = (self.share - 1e-9).ceil().max(1.0) as usize;
        whole.min(self.vcpus.max(1) as usize).min(pool)
    }
}

/// CPUs by load, of equals the one of the lower rank. (The bits of floats that are not negative are in their order.)
type ByLoad = BTreeSet<(u64, usize)>;

/// CPUs of the pool and what is on them.
struct Bins<'a> {
    machine: &'a Machine,
    /// Of each CPU of the machine, by position.
    load: Vec<f64>,
    /// Positions of the pool's CPUs, the fastest first; the place there is a CPU's rank.
    ranked: Vec<usize>,
    /// By position: its rank, its cache and its node in the lists below.
    homes: Vec<Option<(usize, usize, usize)>>,
    all: ByLoad,
    /// Below one last-level cache, and on one node; those with the fastest CPU first. Empty if nobody needs them.
    caches: Vec<ByLoad>,
    nodes: Vec<ByLoad>,
}

impl<'a> Bins<'a> {
    /// `wide`: somebody needs several CPUs.
    fn new(machine: &'a Machine, pool: &CpuSet, wide: bool) -> Bins<'a> {
        let cpus = machine.cpus();
        let mut ranked: Vec<usize> = machine.positions(pool).collect();
        ranked.sort_by_key(|at| (std::cmp::Reverse(cpus[*at].capacity), *at));
        let mut bins = Bins {
            machine,
            load: vec![0.0; cpus.len()],
            homes: vec![None; cpus.len()],
            all: (0..ranked.len()).map(|rank| (0, rank)).collect(),
            caches: Vec::new(),
            nodes: Vec::new(),
            ranked,
        };
        if !wide {
            for (rank, at) in bins.ranked.iter().enumerate() {
                bins.homes[*at] = Some((rank, 0, 0));
            }
            return bins;
        }
        let (mut caches, mut nodes) = (BTreeMap::new(), BTreeMap::new());
        for (rank, at) in bins.ranked.iter().enumerate() {
            let list = |of: &mut BTreeMap<u32, usize>, id: u32, lists: &mut Vec<ByLoad>| {
                let list = *of.entry(id).or_insert(lists.len());
                lists.resize_with(lists.len().max(list + 1), ByLoad::new);
                lists[list].insert((0, rank));
                list
            };
            let cache = list(&mut caches, cpus[*at].llc, &mut bins.caches);
            let node = list(&mut nodes, cpus[*at].node, &mut bins.nodes);
            bins.homes[*at] = Some((rank, cache, node));
        }
        bins
    }

    fn set_load(&mut self, at: usize, load: f64) {
        let before = std::mem::replace(&mut self.load[at], load.max(0.0)).to_bits();
        let after = self.load[at].to_bits();
        let Some((rank, cache, node)) = self.homes[at] else {
            return;
        };
        let near = [self.caches.get_mut(cache), self.nodes.get_mut(node)];
        for list in near.into_iter().flatten().chain([&mut self.all]) {
            list.remove(&(before, rank));
            list.insert((after, rank));
        }
    }

    /// Puts a share onto these CPUs, or takes it off with the sign changed.
    fn add(&mut self, cpus: &[usize], share: f64) {
        let part = share / cpus.len().max(1) as f64;
        cpus.iter()
            .for_each(|at| self.set_load(*at, self.load[*at] + part));
    }

    fn sum(&self, cpus: &[usize]) -> f64 {
        cpus.iter().map(|at| self.load[*at]).sum()
    }

    /// Load of the least loaded CPU.
    fn lowest(&self) -> f64 {
        self.all
            .first()
            .map_or(0.0, |(load, _)| f64::from_bits(*load))
    }

    /// The `n` least loaded CPUs: for several those below one cache if one has so many, else on one node.
    fn least(&self, n: usize) -> Vec<usize> {
        let first = |list: &ByLoad| -> Vec<usize> {
            list.iter()
                .take(n)
                .map(|(_, rank)| self.ranked[*rank])
                .collect()
        };
        let best = |lists: &[ByLoad]| {
            let fits = lists.iter().filter(|list| list.len() >= n).map(first);
            fits.min_by(|a, b| self.sum(a).total_cmp(&self.sum(b)))
        };
        let near = || best(&self.caches).or_else(|| best(&self.nodes));
        let near = if n > 1 { near() } else { None };
        near.unwrap_or_else(|| first(&self.all))
    }

    /// Are these so many CPUs of the pool?
    fn fits(&self, cpus: &[usize], n: usize) -> bool {
        cpus.len() == n && cpus.iter().all(|at| self.homes[*at].is_some())
    }

    fn set(&self, cpus: &[usize]) -> Option<CpuSet> {
        CpuSet::of(cpus.iter().map(|at| self.machine.cpus()[*at].cpu))
    }
}

/// Times that all VMs are looked at for a better place. Two will do, nearly always.
const SWEEPS: usize = 16;

/// CPUs for each item, in the order of the items: as many as its share needs.
pub fn pack(machine: &Machine, pool: &CpuSet, items: &[Item], imbalance: f64) -> Vec<CpuSet> {
    let size = machine.positions(pool).count();
    let wide = items.iter().any(|item| item.width(size) > 1);
    let mut bins = Bins::new(machine, pool, wide);
    let at = |set: &CpuSet| -> Vec<usize> { machine.positions(set).collect() };
    let mut places: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
    // What nobody may move; many VMs are pinned to the same CPUs.
    let mut pins: BTreeMap<&CpuSet, f64> = BTreeMap::new();
    for item in items {
        if let Some(pinned) = item.pinned {
            *pins.entry(pinned).or_default() += item.share;
        }
    }
    for (pinned, share) in pins {
        // If all of them are offline the kernel runs the VM on all, which makes no CPU better than another.
        bins.add(&at(pinned), share);
    }
    // All others where they were.
    for (item, place) in items.iter().zip(&mut places) {
        let previous = item.previous.filter(|_| item.pinned.is_none()).map(at);
        if let Some(known) = previous.filter(|p| bins.fits(p, item.width(size))) {
            bins.add(&known, item.share);
            *place = known;
        }
    }
    let mut order: Vec<usize> = (0..items.len())
        .filter(|i| items[*i].pinned.is_none())
        .collect();
    order.sort_by(|a, b| {
        let (a, b) = (&items[*a], &items[*b]);
        a.service.cmp(&b.service).then(b.share.total_cmp(&a.share))
    });
    for i in &order {
        if places[*i].is_empty() {
            places[*i] = bins.least(items[*i].width(size));
            bins.add(&places[*i], items[*i].share);
        }
    }
    // One after the other moves, if that makes the loads more even by enough; each move does, so this ends.
    let most = imbalance * bins.load.iter().sum::<f64>() / size.max(1) as f64 + 1e-9;
    for _ in 0..SWEEPS {
        let mut moved = false;
        for i in &order {
            let place = &mut places[*i];
            let n = place.len();
            // Of one CPU it can be seen without taking the VM off it.
            if n == 1 && bins.load[place[0]] - items[*i].share <= bins.lowest() + most {
                continue;
            }
            bins.add(place, -items[*i].share);
            let least = bins.least(n);
            if bins.sum(place) > bins.sum(&least) + most * n as f64 {
                *place = least;
                moved = true;
            }
            bins.add(place, items[*i].share);
        }
        if !moved {
            break;
        }
    }
    let sets = items
        .iter()
        .zip(&places)
        .map(|(item, place)| match item.pinned {
            Some(pinned) => pinned.clone(),
            // A pool is never empty; it stands for what cannot be.
            None => bins.set(place).unwrap_or_else(|| pool.clone()),
        });
    sets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Cpu;
    use proptest::prelude::*;

    fn item(share: f64, vcpus: u32) -> Item<'static> {
        Item {
            service: Service::Normal,
            share,
            vcpus,
            previous: None,
            pinned: None,
        }
    }

    fn texts(sets: &[CpuSet]) -> Vec<String> {
        sets.iter().map(CpuSet::to_string).collect()
    }

    #[test]
    fn the_largest_first_to_the_least_loaded() {
        let m = Machine::new(&Cpu::flat(2)).unwrap();
        // The VM of eight vCPUs and that of one have a CPU each.
        let sets = pack(&m, m.all(), &[item(0.95, 8), item(0.95, 1)], 0.1);
        assert_eq!(texts(&sets), ["0", "1"]);
        let items = [0.2, 0.9, 0.3, 0.4].map(|s| item(s, 1));
        assert_eq!(texts(&pack(&m, m.all(), &items, 0.1)), ["1", "0", "1", "1"]);
        let wide = [item(1.5, 4), item(0.4, 1)];
        assert_eq!(texts(&pack(&m, m.all(), &wide, 0.1)), ["0-1", "0"]);
    }

    #[test]
    fn wide_vms_stay_below_one_cache_and_slow_cpus_are_last() {
        let mut cpus = Cpu::flat(8);
        cpus.iter_mut().for_each(|c| c.llc = c.cpu / 4);
        cpus[..4].iter_mut().for_each(|c| c.capacity = 500);
        let m = Machine::new(&cpus).unwrap();
        let items = [item(0.9, 1), item(2.7, 4), item(3.0, 3)];
        assert_eq!(texts(&pack(&m, m.all(), &items, 0.1)), ["7", "0-2", "4-6"]);
        let mut best_effort = items.clone();
        best_effort[2].service = Service::BestEffort;
        let sets = texts(&pack(&m, m.all(), &best_effort, 0.1));
        assert_eq!(sets, ["7", "4-6", "0-2"]);
    }

    #[test]
    fn vms_stay_where_they_are_while_that_is_about_even() {
        let m = Machine::new(&Cpu::flat(2)).unwrap();
        let (zero, one) = (CpuSet::of([0]).unwrap(), CpuSet::of([1]).unwrap());
        let with = |shares: [f64; 4], previous: [&CpuSet; 4]| {
            let items: Vec<Item> = (0..4)
                .map(|i| Item {
                    previous: Some(previous[i]),
                    ..item_of(shares[i])
                })
                .collect();
            texts(&pack(&m, m.all(), &items, 0.1))
        };
        fn item_of<'a>(share: f64) -> Item<'a> {
            Item {
                service: Service::Normal,
                share,
                vcpus: 1,
                previous: None,
                pinned: None,
            }
        }
        let even = [&one, &one, &zero, &zero];
        assert_eq!(with([0.5, 0.45, 0.4, 0.5], even), ["1", "1", "0", "0"]);
        // 1.4 to 0.4: one of them leaves.
        let uneven = [&one, &one, &one, &zero];
        assert_eq!(with([0.5, 0.5, 0.4, 0.4], uneven), ["0", "1", "1", "0"]);
        // Three equal VMs cannot be even on two CPUs: nobody moves for that.
        let moved = with([0.6, 0.6, 0.6, 0.01], [&one, &zero, &one, &zero]);
        assert_eq!(moved, ["1", "0", "1", "0"]);
        // CPU 1 has gone.
        let m = Machine::new(&Cpu::flat(1)).unwrap();
        let gone = Item {
            previous: Some(&one),
            ..item_of(0.5)
        };
        assert_eq!(texts(&pack(&m, m.all(), &[gone], 0.1)), ["0"]);
    }

    #[test]
    fn others_go_around_a_pinned_vm() {
        let m = Machine::new(&Cpu::flat(2)).unwrap();
        let zero = CpuSet::of([0]).unwrap();
        let pinned = Item {
            pinned: Some(&zero),
            ..item(0.3, 1)
        };
        let sets = pack(
            &m,
            m.all(),
            &[item(0.6, 1), pinned.clone(), item(0.4, 1)],
            0.1,
        );
        assert_eq!(texts(&sets), ["1", "0", "0"]);
        // Two weigh more; one whose CPUs are offline weighs on all alike.
        let heavy = Item {
            share: 0.35,
            ..pinned
        };
        let two = [item(0.6, 1), heavy.clone(), heavy, item(0.4, 1)];
        assert_eq!(texts(&pack(&m, m.all(), &two, 0.1)), ["1", "0", "0", "1"]);
        let nine = CpuSet::of([9]).unwrap();
        let offline = Item {
            share: 2.0,
            pinned: Some(&nine),
            ..item(0.0, 1)
        };
        let sets = pack(&m, m.all(), &[item(0.6, 1), offline, item(0.4, 1)], 0.1);
        assert_eq!(texts(&sets), ["0", "9", "1"]);
    }

    proptest! {
        /// Everybody has a CPU of the pool, nobody would be better off elsewhere by more than is put up with, and asked
        /// again nobody moves.
        #[test]
        fn nobody_is_without_and_loads_are_even(
            shares in prop::collection::vec((0.01..1.0f64, 1..4u32), 1..60),
            cpus in 1..12u32,
            before in prop::collection::vec(0..12u32, 60),
        ) {
            let m = Machine::new(&Cpu::flat(cpus)).unwrap();
            let previous: Vec<Option<CpuSet>> = before.iter().map(|c| CpuSet::of([*c])).collect();
            let items: Vec<Item> = shares
                .iter()
                .zip(&previous)
                .map(|((share, vcpus), p)| Item { previous: p.as_ref(), ..item(*share, *vcpus) })
                .collect();
            let sets = pack(&m, m.all(), &items, 0.1);
            let mut load = vec![0.0; cpus as usize];
            let cpu = |set: &CpuSet| set.iter().next().unwrap() as usize;
            for (item, set) in items.iter().zip(&sets) {
                prop_assert_eq!(set.count(), 1);
                load[cpu(set)] += item.share;
            }
            let least = load.iter().copied().fold(f64::INFINITY, f64::min);
            let mean = load.iter().sum::<f64>() / f64::from(cpus);
            for (item, set) in items.iter().zip(&sets) {
                prop_assert!(load[cpu(set)] - item.share <= least + 0.1 * mean + 1e-6, "{load:?}");
            }
            let again: Vec<Item> =
                items.iter().zip(&sets).map(|(i, s)| Item { previous: Some(s), ..i.clone() }).collect();
            prop_assert_eq!(pack(&m, m.all(), &again, 0.1), sets);
        }

        /// Wide VMs have as many CPUs as their shares need, all of the pool.
        #[test]
        fn wide_vms_have_room(
            shares in prop::collection::vec((0.01..6.0f64, 1..9u32), 1..30),
            cpus in 1..24u32,
        ) {
            let mut list = Cpu::flat(cpus + 2);
            list.iter_mut().for_each(|c| (c.llc, c.node) = (c.cpu / 4, c.cpu / 8));
            let m = Machine::new(&list).unwrap();
            let pool = CpuSet::of(0..cpus).unwrap();
            let items: Vec<Item> = shares.iter().map(|(share, vcpus)| item(*share, *vcpus)).collect();
            for (set, (share, vcpus)) in pack(&m, &pool, &items, 0.1).iter().zip(&shares) {
                let n = (share.ceil() as u32).min(*vcpus).min(cpus);
                prop_assert_eq!(set.count() as u32, n);
                prop_assert!(set.iter().all(|c| c < cpus));
                let near = set.iter().all(|c| c / 4 == set.iter().next().unwrap() / 4);
                prop_assert!(near || n > cpus.min(4));
            }
        }
    }
}
