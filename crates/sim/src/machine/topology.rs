// SPDX-License-Identifier: GPL-2.0-only
//! Nodes, packages, last-level caches, cores, SMT threads. CPU numbers run through the threads of a core
//! first, then the cores of a cache, the caches of a package, the packages of a node.
use super::mask::CpuMask;
use berth_scenario::model::CoreKind;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Shape of a machine. All counts are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub nodes: u32,
    /// In all; spread over the nodes in order.
    pub packages: u32,
    /// Per package.
    pub llcs: u32,
    /// Per package.
    pub cores: u32,
    /// Per core.
    pub threads: u32,
}

impl Shape {
    /// One package with one cache and no SMT.
    pub fn flat(cpus: u32) -> Self {
        Shape {
            nodes: 1,
            packages: 1,
            llcs: 1,
            cores: cpus,
            threads: 1,
        }
    }
}

/// How far a task moves, from nothing to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    Same,
    Core,
    Llc,
    /// Another last-level cache of the same package.
    Package,
    /// Another package of the same node.
    Node,
    Far,
}

/// Place of one CPU.
#[derive(Clone, Copy, Debug)]
struct Place {
    core: u32,
    llc: u32,
    package: u32,
    node: u32,
}

#[derive(Debug)]
pub struct Topology {
    pub shape: Shape,
    /// Last-level cache of each core, if kinds of cores say; else they are cut evenly.
    llc_of_core: Option<Vec<u32>>,
    places: Vec<Place>,
    /// CPUs of each core, cache and node.
    pub cores: Vec<CpuMask>,
    pub llcs: Vec<CpuMask>,
    pub nodes: Vec<CpuMask>,
}

impl Topology {
    pub fn new(shape: Shape) -> Self {
        Topology::with(shape, None)
    }

    fn with(shape: Shape, llc_of_core: Option<Vec<u32>>) -> Self {
        let per_package = shape.cores * shape.threads;
        let nr = shape.packages * per_package;
        let llcs = shape.llcs.clamp(1, shape.cores);
        let place = |cpu: u32| {
            let package = cpu / per_package;
            let core = cpu / shape.threads;
            // Cores that do not divide evenly: the first caches get one more.
            let even = package * llcs + core % shape.cores * llcs / shape.cores;
            let own = llc_of_core.as_ref().and_then(|of| of.get(core as usize));
            Place {
                core,
                llc: own.copied().unwrap_or(even),
                package,
                node: package * shape.nodes.min(shape.packages) / shape.packages,
            }
        };
        let places: Vec<Place> = (0..nr).map(place).collect();
        let group = |of: &dyn Fn(&Place) -> u32| {
            let n = places.iter().map(of).max().map_or(0, |m| m + 1);
            let mut masks = vec![CpuMask::new(nr); n as usize];
            for (cpu, p) in places.iter().enumerate() {
                masks[of(p) as usize].set(cpu as u32);
            }
            masks
        };
        Topology {
            cores: group(&|p| p.core),
            llcs: group(&|p| p.llc),
            nodes: group(&|p| p.node),
            places,
            shape,
            llc_of_core,
        }
    }

    /// With these kinds of cores; machines of the same shape, and the same caches, have one between them.
    pub fn shared(shape: Shape, kinds: &[CoreKind]) -> Arc<Topology> {
        static MADE: Mutex<Vec<Weak<Topology>>> = Mutex::new(Vec::new());
        let llc_of_core = CoreKind::llc_of_core(kinds, shape.packages, shape.cores);
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|t| t.strong_count() > 0);
        let mut all = made.iter().filter_map(Weak::upgrade);
        if let Some(topo) = all.find(|t| t.shape == shape && t.llc_of_core == llc_of_core) {
            return topo;
        }
        let topo = Arc::new(Topology::with(shape, llc_of_core));
        made.push(Arc::downgrade(&topo));
        topo
    }

    #[inline]
    pub fn nr_cpus(&self) -> u32 {
        self.places.len() as u32
    }

    pub fn nr_nodes(&self) -> u32 {
        self.nodes.len() as u32
    }

    pub fn smt(&self) -> bool {
        self.shape.threads > 1
    }

    #[inline]
    pub fn core_of(&self, cpu: u32) -> u32 {
        self.places[cpu as usize].core
    }

    #[inline]
    pub fn llc_of(&self, cpu: u32) -> u32 {
        self.places[cpu as usize].llc
    }

    #[inline]
    pub fn node_of(&self, cpu: u32) -> u32 {
        self.places[cpu as usize].node
    }

    /// The CPU itself and its SMT siblings.
    pub fn siblings(&self, cpu: u32) -> &CpuMask {
        &self.cores[self.core_of(cpu) as usize]
    }

    pub fn distance(&self, a: u32, b: u32) -> Distance {
        let (pa, pb) = (self.places[a as usize], self.places[b as usize]);
        if a == b {
            Distance::Same
        } else if pa.core == pb.core {
            Distance::Core
        } else if pa.llc == pb.llc {
            Distance::Llc
        } else if pa.package == pb.package {
            Distance::Package
        } else if pa.node == pb.node {
            Distance::Node
        } else {
            Distance::Far
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbering_and_distances() {
        let t = Topology::new(Shape {
            nodes: 2,
            packages: 2,
            llcs: 2,
            cores: 4,
            threads: 2,
        });
        assert_eq!(t.nr_cpus(), 16);
        assert_eq!(t.nr_nodes(), 2);
        assert_eq!(t.distance(0, 1), Distance::Core);
        assert_eq!(t.distance(0, 3), Distance::Llc);
        assert_eq!(t.distance(0, 4), Distance::Package);
        assert_eq!(t.distance(0, 8), Distance::Far);
        assert_eq!(t.siblings(5).iter().collect::<Vec<_>>(), [4, 5]);
        assert_eq!(t.llcs[1].iter().collect::<Vec<_>>(), [4, 5, 6, 7]);
        assert_eq!(t.nodes[1].count(), 8);
    }
}
