// SPDX-License-Identifier: GPL-2.0-only
//! Hosts with cores of several kinds.
use berth_scenario::model::{CoreKind, HostCost, Hz};
use berth_sim::MachineSpec;
use berth_sim::machine::Shape;
use std::ops::Range;

/// Cores of one kind, at full frequency; speed in parts per million.
pub fn kind(name: &str, cores: Range<u32>, speed_ppm: u32) -> CoreKind {
    CoreKind {
        name: name.into(),
        cores: cores.collect(),
        speed_ppm,
        frequency_ppm: 1_000_000,
        smt_ppm: 0,
        llcs: 0,
        steps_khz: Vec::new(),
    }
}

/// So many cores of each kind, in the order of `speeds`.
pub fn kinds(cores: &[u32], speeds: &[u32]) -> Vec<CoreKind> {
    let mut next = 0;
    let mut out = Vec::new();
    for (n, speed) in cores.iter().zip(speeds) {
        out.push(kind(&format!("of {speed}"), next..next + n, *speed));
        next += n;
    }
    out
}

/// A host of these kinds with exact ends of slices.
pub fn host_of(kinds: Vec<CoreKind>) -> MachineSpec {
    let cores = kinds.iter().map(|k| k.cores.len() as u32).sum();
    MachineSpec {
        hz: Hz::Exact,
        cost: HostCost {
            kinds,
            ..HostCost::default()
        },
        ..MachineSpec::new(Shape::flat(cores))
    }
}
