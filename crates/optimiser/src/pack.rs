// SPDX-License-Identifier: GPL-2.0-only
//! VMs onto CPUs by their shares, the largest first, each to the least loaded CPUs: then the CPUs divide the machine,
//! whatever the scheduler does on each. A VM stays where it was unless its CPUs would be loaded too far above the mean.
//! Where whole VMs do not fill CPUs evenly (three equal VMs on two CPUs), CPUs are joined: their VMs have them
//! together, and the scheduler divides them by weight.
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

    /// Are they all of the pool?
    fn has(&self, cpus: &[usize]) -> bool {
        cpus.iter().all(|at| self.homes[*at].is_some())
    }

    fn set(&self, cpus: &[usize]) -> Option<CpuSet> {
        CpuSet::of(cpus.iter().map(|at| self.machine.cpus()[*at].cpu))
    }
}

/// Times that all VMs are looked at for a better place. Two will do, nearly always.
const SWEEPS: usize = 16;

/// How far CPUs may be from even, and what is done about it.
#[derive(Clone, Copy, Debug)]
pub struct Evenness {
    /// How far a CPU's load may be above the mean, a part of the mean.
    pub imbalance: f64,
    /// CPUs that whole VMs do not fill evenly are joined. That needs a scheduler that divides by the VMs' weights.
    pub join: bool,
}

/// What an item has.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    pub cpus: CpuSet,
    /// More CPUs than its share needs, together with others.
    pub joined: bool,
}

/// CPUs for each item, in the order of the items: as many as its share needs, or joined ones.
pub fn pack(machine: &Machine, pool: &CpuSet, items: &[Item], even: Evenness) -> Vec<Packed> {
    let mut packing = Packing::new(machine, pool, items, even.imbalance, true);
    if !packing.is_even() && packing.has_joined() {
        packing = Packing::new(machine, pool, items, even.imbalance, false);
    }
    if even.join && !packing.is_even() {
        packing.join();
    }
    let places = items.iter().zip(&packing.places);
    let packed = places.map(|(item, place)| match item.pinned {
        Some(pinned) => Packed {
            cpus: pinned.clone(),
            joined: false,
        },
        None => Packed {
            // A pool is never empty; it stands for what cannot be.
            cpus: packing.bins.set(place).unwrap_or_else(|| pool.clone()),
            joined: place.len() > item.width(packing.size),
        },
    });
    packed.collect()
}

/// Items on their CPUs.
struct Packing<'a> {
    items: &'a [Item<'a>],
    bins: Bins<'a>,
    /// Of each item, by position of the CPU; of pinned ones nothing.
    places: Vec<Vec<usize>>,
    /// CPUs of the pool.
    size: usize,
    /// Load of a CPU on average, and how far one may be above it.
    mean: f64,
    most: f64,
}

impl<'a> Packing<'a> {
    /// `joined`: CPUs that were joined before are kept so.
    fn new(
        machine: &'a Machine,
        pool: &CpuSet,
        items: &'a [Item<'a>],
        imbalance: f64,
        joined: bool,
    ) -> Packing<'a> {
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
            let width = item.width(size);
            let fits =
                |p: &Vec<usize>| bins.has(p) && (p.len() == width || joined && p.len() > width);
            if let Some(known) = previous.filter(fits) {
                bins.add(&known, item.share);
                *place = known;
            }
        }
        let mean = items.iter().map(|i| i.share).sum::<f64>() / size.max(1) as f64;
        let mut packing = Packing {
            items,
            bins,
            places,
            size,
            mean,
            most: imbalance * mean + 1e-9,
        };
        packing.place();
        packing
    }

    /// Who has no place gets one, and whoever makes loads more even by it moves.
    fn place(&mut self) {
        let (items, bins, places) = (self.items, &mut self.bins, &mut self.places);
        let mut order: Vec<usize> = (0..items.len())
            .filter(|i| items[*i].pinned.is_none())
            .collect();
        order.sort_by(|a, b| {
            let (a, b) = (&items[*a], &items[*b]);
            a.service.cmp(&b.service).then(b.share.total_cmp(&a.share))
        });
        for i in &order {
            if places[*i].is_empty() {
                places[*i] = bins.least(items[*i].width(self.size));
                bins.add(&places[*i], items[*i].share);
            }
        }
        // One after the other moves, if that makes the loads more even by enough; each move does, so this ends.
        for _ in 0..SWEEPS {
            let mut moved = false;
            for i in &order {
                let place = &mut places[*i];
                let n = place.len();
                // Who has CPUs together with others has them as long as that is even.
                if n > items[*i].width(self.size) {
                    continue;
                }
                // Of one CPU it can be seen without taking the VM off it.
                if n == 1 && bins.load[place[0]] - items[*i].share <= bins.lowest() + self.most {
                    continue;
                }
                bins.add(place, -items[*i].share);
                let least = bins.least(n);
                if bins.sum(place) > bins.sum(&least) + self.most * n as f64 {
                    *place = least;
                    moved = true;
                }
                bins.add(place, items[*i].share);
            }
            if !moved {
                break;
            }
        }
    }

    /// No CPU of somebody who may move is too far above the mean.
    fn is_even(&self) -> bool {
        let mut theirs = self.places.iter().flatten();
        theirs.all(|at| self.bins.load[*at] <= self.mean + self.most)
    }

    fn has_joined(&self) -> bool {
        let places = self.items.iter().zip(&self.places);
        places
            .filter(|(item, _)| item.pinned.is_none())
            .any(|(item, place)| place.len() > item.width(self.size))
    }

    /// Joins the most loaded CPUs with the nearest, least loaded ones, until they are about even.
    fn join(&mut self) {
        let mut sets = self.apart();
        loop {
            let above = |set: &&Joined| set.movable && set.mean() > self.mean + self.most;
            let most = (0..sets.len())
                .filter(|i| above(&&sets[*i]))
                .max_by(|a, b| sets[*a].mean().total_cmp(&sets[*b].mean()));
            let Some(most) = most else { break };
            let first = sets[most].cpus[0];
            let below = (0..sets.len()).filter(|i| sets[*i].mean() < self.mean);
            let least = below.min_by(|a, b| {
                let key = |i: usize| (self.far(first, sets[i].cpus[0]), sets[i].mean());
                let (a, b) = (key(*a), key(*b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            });
            let Some(least) = least else { break };
            let with = sets[least].clone();
            sets[most].load += with.load;
            sets[most].cpus.extend(with.cpus);
            sets.swap_remove(least);
        }
        let mut of = vec![None; self.bins.load.len()];
        for (i, set) in sets.iter().enumerate() {
            set.cpus.iter().for_each(|at| of[*at] = Some(i));
        }
        let items = self.items;
        for (item, place) in items.iter().zip(&mut self.places) {
            let set = place.first().and_then(|at| of[*at]);
            let Some(set) = set.filter(|_| item.pinned.is_none()) else {
                continue;
            };
            if sets[set].cpus.len() > place.len() {
                *place = sets[set].cpus.clone();
                place.sort_unstable();
            }
        }
    }

    /// The pool's CPUs, those of one VM together.
    fn apart(&self) -> Vec<Joined> {
        let mut sets: Vec<Joined> = Vec::new();
        let mut of = vec![None; self.bins.load.len()];
        let movable: BTreeSet<usize> = self.places.iter().flatten().copied().collect();
        for at in &self.bins.ranked {
            of[*at] = Some(sets.len());
            sets.push(Joined {
                cpus: vec![*at],
                load: self.bins.load[*at],
                movable: movable.contains(at),
            });
        }
        for place in &self.places {
            let Some(first) = place.first() else { continue };
            for at in &place[1..] {
                let (Some(to), Some(from)) = (of[*first], of[*at]) else {
                    continue;
                };
                if to != from {
                    let with = std::mem::take(&mut sets[from]);
                    with.cpus.iter().for_each(|at| of[*at] = Some(to));
                    sets[to].load += with.load;
                    sets[to].cpus.extend(with.cpus);
                }
            }
        }
        sets.retain(|set| !set.cpus.is_empty());
        sets
    }

    /// 0 below one cache, 1 on one node, 2 elsewhere.
    fn far(&self, a: usize, b: usize) -> u8 {
        let cpus = self.bins.machine.cpus();
        match (&cpus[a], &cpus[b]) {
            (a, b) if a.llc == b.llc => 0,
            (a, b) if a.node == b.node => 1,
            _ => 2,
        }
    }
}

/// CPUs that VMs have together, by position; the first is the fastest.
#[derive(Clone, Debug, Default)]
struct Joined {
    cpus: Vec<usize>,
    load: f64,
    /// Somebody who may move is on them.
    movable: bool,
}

impl Joined {
    fn mean(&self) -> f64 {
        self.load / self.cpus.len().max(1) as f64
    }
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

    /// Each VM on as few CPUs as its share needs.
    const APART: Evenness = Evenness {
        imbalance: 0.1,
        join: false,
    };
    const EVEN: Evenness = Evenness {
        join: true,
        ..APART
    };

    fn texts(packed: &[Packed]) -> Vec<String> {
        packed.iter().map(|p| p.cpus.to_string()).collect()
    }

    #[test]
    fn the_largest_first_to_the_least_loaded() {
        let m = Machine::new(&Cpu::flat(2)).unwrap();
        // The VM of eight vCPUs and that of one have a CPU each.
        let sets = pack(&m, m.all(), &[item(0.95, 8), item(0.95, 1)], APART);
        assert_eq!(texts(&sets), ["0", "1"]);
        let items = [0.2, 0.9, 0.3, 0.4].map(|s| item(s, 1));
        assert_eq!(
            texts(&pack(&m, m.all(), &items, APART)),
            ["1", "0", "1", "1"]
        );
        let wide = [item(1.5, 4), item(0.4, 1)];
        assert_eq!(texts(&pack(&m, m.all(), &wide, APART)), ["0-1", "0"]);
    }

    #[test]
    fn wide_vms_stay_below_one_cache_and_slow_cpus_are_last() {
        let mut cpus = Cpu::flat(8);
        cpus.iter_mut().for_each(|c| c.llc = c.cpu / 4);
        cpus[..4].iter_mut().for_each(|c| c.capacity = 500);
        let m = Machine::new(&cpus).unwrap();
        let items = [item(0.9, 1), item(2.7, 4), item(3.0, 3)];
        assert_eq!(
            texts(&pack(&m, m.all(), &items, APART)),
            ["7", "0-2", "4-6"]
        );
        let mut best_effort = items.clone();
        best_effort[2].service = Service::BestEffort;
        let sets = texts(&pack(&m, m.all(), &best_effort, APART));
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
            texts(&pack(&m, m.all(), &items, APART))
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
        // Three equal VMs cannot be even on two CPUs: nobody moves for that where CPUs are not to be joined.
        let moved = with([0.6, 0.6, 0.6, 0.01], [&one, &zero, &one, &zero]);
        assert_eq!(moved, ["1", "0", "1", "0"]);
        // CPU 1 has gone.
        let m = Machine::new(&Cpu::flat(1)).unwrap();
        let gone = Item {
            previous: Some(&one),
            ..item_of(0.5)
        };
        assert_eq!(texts(&pack(&m, m.all(), &[gone], APART)), ["0"]);
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
            APART,
        );
        assert_eq!(texts(&sets), ["1", "0", "0"]);
        // Two weigh more; one whose CPUs are offline weighs on all alike.
        let heavy = Item {
            share: 0.35,
            ..pinned
        };
        let two = [item(0.6, 1), heavy.clone(), heavy, item(0.4, 1)];
        assert_eq!(texts(&pack(&m, m.all(), &two, APART)), ["1", "0", "0", "1"]);
        let nine = CpuSet::of([9]).unwrap();
        let offline = Item {
            share: 2.0,
            pinned: Some(&nine),
            ..item(0.0, 1)
        };
        let sets = pack(&m, m.all(), &[item(0.6, 1), offline, item(0.4, 1)], APART);
        assert_eq!(texts(&sets), ["0", "9", "1"]);
    }

    #[test]
    fn cpus_that_whole_vms_do_not_fill_evenly_are_joined() {
        let m = Machine::new(&Cpu::flat(2)).unwrap();
        let three = [0.66, 0.66, 0.66].map(|s| item(s, 1));
        let packed = pack(&m, m.all(), &three, EVEN);
        assert_eq!(texts(&packed), ["0-1", "0-1", "0-1"]);
        assert!(packed.iter().all(|p| p.joined));
        // They stay so when asked again, with shares that are a little different.
        let again = |shares: &[f64], previous: &CpuSet| {
            let items: Vec<Item> = shares
                .iter()
                .map(|s| Item {
                    previous: Some(previous),
                    ..item(*s, 1)
                })
                .collect();
            texts(&pack(&m, m.all(), &items, EVEN))
        };
        assert_eq!(again(&[0.7, 0.6, 0.66], m.all()), ["0-1", "0-1", "0-1"]);
        // Seventeen on eight CPUs: some have a few of them together, the others one each with somebody.
        let m = Machine::new(&Cpu::flat(8)).unwrap();
        let items: Vec<Item> = (0..17).map(|_| item(8.0 / 17.0, 1)).collect();
        let packed = pack(&m, m.all(), &items, EVEN);
        let together = packed.iter().filter(|p| p.joined).count();
        assert_eq!(together, 7, "{packed:?}");
        assert!(packed.iter().all(|p| [1, 3].contains(&p.cpus.count())));
        // Near ones first: nobody is joined over two caches for what one can do.
        let mut cpus = Cpu::flat(8);
        cpus.iter_mut().for_each(|c| c.llc = c.cpu / 4);
        let m = Machine::new(&cpus).unwrap();
        for p in pack(&m, m.all(), &items, EVEN) {
            let llcs: BTreeSet<u32> = p.cpus.iter().map(|c| c / 4).collect();
            assert_eq!(llcs.len(), 1, "{p:?}");
        }
        // One that is pinned stays; the others go around it together.
        let m = Machine::new(&Cpu::flat(3)).unwrap();
        let zero = CpuSet::of([0]).unwrap();
        let mut items = three.to_vec();
        items.push(Item {
            pinned: Some(&zero),
            ..item(1.0, 1)
        });
        let packed = texts(&pack(&m, m.all(), &items, EVEN));
        assert_eq!(packed, ["1-2", "1-2", "1-2", "0"]);
    }

    proptest! {
        /// Joined, no CPU is too far above the mean, whatever the VMs; and asked again nobody moves.
        #[test]
        fn joined_cpus_are_even(
            shares in prop::collection::vec((0.01..1.0f64, 1..4u32), 1..60),
            cpus in 1..12u32,
        ) {
            let mut list = Cpu::flat(cpus);
            list.iter_mut().for_each(|c| (c.llc, c.node) = (c.cpu / 3, c.cpu / 6));
            let m = Machine::new(&list).unwrap();
            let items: Vec<Item> = shares.iter().map(|(share, vcpus)| item(*share, *vcpus)).collect();
            let packed = pack(&m, m.all(), &items, EVEN);
            let mut load = vec![0.0; cpus as usize];
            for (item, p) in items.iter().zip(&packed) {
                let part = item.share / p.cpus.count() as f64;
                p.cpus.iter().for_each(|cpu| load[cpu as usize] += part);
            }
            let mean = load.iter().sum::<f64>() / f64::from(cpus);
            prop_assert!(load.iter().all(|l| *l <= 1.1 * mean + 1e-6), "{load:?} {packed:?}");
            let again: Vec<Item> =
                items.iter().zip(&packed).map(|(i, p)| Item { previous: Some(&p.cpus), ..i.clone() }).collect();
            prop_assert_eq!(pack(&m, m.all(), &again, EVEN), packed);
        }

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
            let sets = pack(&m, m.all(), &items, APART);
            let mut load = vec![0.0; cpus as usize];
            let cpu = |set: &Packed| set.cpus.iter().next().unwrap() as usize;
            for (item, set) in items.iter().zip(&sets) {
                prop_assert_eq!(set.cpus.count(), 1);
                load[cpu(set)] += item.share;
            }
            let least = load.iter().copied().fold(f64::INFINITY, f64::min);
            let mean = load.iter().sum::<f64>() / f64::from(cpus);
            for (item, set) in items.iter().zip(&sets) {
                prop_assert!(load[cpu(set)] - item.share <= least + 0.1 * mean + 1e-6, "{load:?}");
            }
            let again: Vec<Item> =
                items.iter().zip(&sets).map(|(i, s)| Item { previous: Some(&s.cpus), ..i.clone() }).collect();
            prop_assert_eq!(pack(&m, m.all(), &again, APART), sets);
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
            for (set, (share, vcpus)) in pack(&m, &pool, &items, APART).iter().zip(&shares) {
                let set = &set.cpus;
                let n = (share.ceil() as u32).min(*vcpus).min(cpus);
                prop_assert_eq!(set.count() as u32, n);
                prop_assert!(set.iter().all(|c| c < cpus));
                let near = set.iter().all(|c| c / 4 == set.iter().next().unwrap() / 4);
                prop_assert!(near || n > cpus.min(4));
            }
        }
    }
}
