// SPDX-License-Identifier: GPL-2.0-only
//! What each VM would have if every CPU were divided by the shares of the VMs on it, and all wanted all they can get.
//! Freezing holds VMs to that, not to their shares: what the packing of whole VMs leaves free is for those who are
//! there.
use crate::cpuset::CpuSet;
use crate::machine::Machine;

/// CPUs, in the order of `vms`: CPUs on which each may run (none, or none of them online: on all), and its share.
pub fn due(machine: &Machine, vms: &[(Option<&CpuSet>, f64)]) -> Vec<f64> {
    let online = machine.online();
    let places = |set: Option<&CpuSet>| -> Option<Vec<usize>> {
        let places: Vec<usize> = machine.positions(set?).collect();
        (!places.is_empty()).then_some(places)
    };
    let mut load = vec![0.0; online];
    let mut everywhere = 0.0;
    for (set, share) in vms {
        match places(*set) {
            Some(places) => {
                let part = share / places.len() as f64;
                places.iter().for_each(|place| load[*place] += part);
            }
            None => everywhere += share / online as f64,
        }
    }
    // What a share of one CPU on this one is worth.
    let worth: Vec<f64> = (load.iter())
        .map(|load| 1.0 / (load + everywhere).max(1e-9))
        .collect();
    let all: f64 = worth.iter().sum();
    let of = |(set, share): &(Option<&CpuSet>, f64)| match places(*set) {
        Some(places) => {
            let sum: f64 = places.iter().map(|place| worth[*place]).sum();
            share / places.len() as f64 * sum
        }
        None => share / online as f64 * all,
    };
    vms.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Cpu;

    #[test]
    fn cpus_are_divided_by_the_shares_on_them() {
        let machine = Machine::new(&Cpu::flat(2)).unwrap();
        let (zero, one) = (CpuSet::of([0]), CpuSet::of([1]));
        let (zero, one) = (zero.as_ref(), one.as_ref());
        let near = |vms: &[(Option<&CpuSet>, f64)], expected: &[f64]| {
            let due = due(&machine, vms);
            let all = due.iter().zip(expected).all(|(d, e)| (d - e).abs() < 1e-12);
            assert!(all, "{due:?}");
        };
        // Sixteen of 0.05625 on one CPU: a sixteenth each.
        let dummies = vec![(zero, 0.05625); 16];
        near(&dummies, &[0.0625; 16]);
        // Three of 0.633 on two CPUs: who is alone has its CPU.
        let third = 1.9 / 3.0;
        near(
            &[(zero, third), (zero, third), (one, third)],
            &[0.5, 0.5, 1.0],
        );
        // The reserve is not kept back.
        near(&[(None, 1.4), (None, 0.5)], &[1.4 / 0.95, 0.5 / 0.95]);
        // One that may run on both has its part of each: 0.25 of 0.75 and of 0.5.
        near(
            &[(None, 0.5), (zero, 0.5), (one, 0.25)],
            &[0.25 / 0.75 + 0.25 / 0.5, 0.5 / 0.75, 0.25 / 0.5],
        );
        // Its CPUs are offline: it runs on all.
        let offline = CpuSet::of([7]);
        near(&[(offline.as_ref(), 1.0), (None, 1.0)], &[1.0, 1.0]);
    }
}
