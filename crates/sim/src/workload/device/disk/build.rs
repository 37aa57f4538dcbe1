// SPDX-License-Identifier: GPL-2.0-only
//! The disks of a scenario: files, caches, and the threads that move blocks.
use super::super::Worker;
use super::cache::Cache;
use super::drive::Drive;
use super::state::{Area, BackEnd, Counter, Disk, Disks, File, Hand, Next};
use crate::words::Role;
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::{DiskPath, Scenario, VmRole};
use berth_scenario::placement::{self, PlacementError, VmInstance};
use hdrhistogram::Histogram;

/// Threads of VMs that move blocks: one for all disks that a VM reaches in the same way.
#[derive(Default)]
struct Staff {
    backs: Vec<BackEnd>,
    workers: Vec<Worker>,
    hands: Vec<Hand>,
    /// Position of the back end, by VM and role.
    hired: Vec<(u32, Role, u32)>,
    /// Those of driver domains; none: not looked for yet.
    drivers: Option<Vec<u32>>,
}

impl Staff {
    fn hire(&mut self, vm: u32, roles: impl IntoIterator<Item = Role>) -> Option<u32> {
        let (back, before) = (self.backs.len() as u32, self.workers.len());
        for role in roles {
            self.workers.push(Worker { vm, role });
            self.hands.push(Hand { back, holds: None });
        }
        if self.workers.len() == before {
            return None;
        }
        self.backs.push(BackEnd {
            vm,
            ..BackEnd::default()
        });
        Some(back)
    }

    fn own(&mut self, vm: u32, role: Role) -> Option<u32> {
        if let Some((_, _, back)) = self.hired.iter().find(|(v, r, _)| (*v, *r) == (vm, role)) {
            return Some(*back);
        }
        let back = self.hire(vm, [role])?;
        self.hired.push((vm, role, back));
        Some(back)
    }

    fn driver(
        &mut self,
        scenario: &Scenario,
        vm: &VmInstance,
        busy: &impl Fn(u32, u32) -> bool,
    ) -> Option<u32> {
        let drivers = match &self.drivers {
            Some(drivers) => drivers.clone(),
            None => {
                let drives = |vm: &&VmInstance| scenario.vms[vm.group].role == VmRole::Driver;
                let mut all = Vec::new();
                for vm in placement::instances(scenario).iter().filter(drives) {
                    let free = (0..scenario.vms[vm.group].vcpus).filter(|v| !busy(vm.ordinal, *v));
                    all.extend(self.hire(vm.ordinal, free.map(Role::Vcpu)));
                }
                self.drivers = Some(all.clone());
                all
            }
        };
        drivers
            .get(vm.ordinal as usize % drivers.len().max(1))
            .copied()
    }
}

impl Disks {
    /// `None`: there are no disks that somebody uses. `busy` tells which vCPUs of which VM have other work.
    ///
    /// # Errors
    /// No driver domain, or none with a free vCPU.
    pub fn new(
        scenario: &Scenario,
        seed: u64,
        programs: usize,
        busy: impl Fn(u32, u32) -> bool,
    ) -> Result<Option<Disks>, PlacementError> {
        let vms = placement::instances(scenario);
        let homes = vms.len() + 1;
        let mut staff = Staff::default();
        let mut disks = Vec::new();
        let mut uses = vec![false; homes];
        for spec in &scenario.disks {
            let users = placement::users_of_disk(scenario, &spec.name);
            let mut disk = Disk {
                spec: spec.clone(),
                drive: Drive::new(spec),
                files: Vec::new(),
                file_of: vec![None; homes],
                flow: Default::default(),
                present: Area::default(),
                working: Area::default(),
                back: vec![None; homes],
            };
            for (number, home) in (0u64..).zip(users) {
                uses[home as usize] = true;
                let blocks = spec.file_bytes.div_ceil(spec.block_bytes.max(1)) as u32;
                let room = (spec.cache_bytes / spec.block_bytes.max(1)).min(u64::from(u32::MAX));
                disk.file_of[home as usize] = Some(number as u32);
                disk.files.push(File {
                    home,
                    begin: number * spec.file_bytes,
                    next: (0..programs as u32)
                        .map(|task| Next {
                            at: [0; 2],
                            random: Rng::new(seed, Stream::Records { home, task }),
                        })
                        .collect(),
                    cache: (room > 0).then(|| Cache::new(blocks, room as u32)),
                    throttled: Vec::new(),
                    flushing: 0,
                    sweep: None,
                    armed: false,
                });
                // The host's own tasks ask its kernel.
                let Some(vm) = vms.get(home as usize) else {
                    continue;
                };
                disk.back[home as usize] = match spec.path {
                    DiskPath::Direct => None,
                    DiskPath::Virtio => staff.own(home, Role::Iothread),
                    DiskPath::Emulated => staff.own(home, Role::Emulator),
                    DiskPath::DriverDomain => {
                        let back = staff.driver(scenario, vm, &busy);
                        Some(back.ok_or_else(|| {
                            PlacementError::Disk(format!(
                                "disk.{} has path driver-domain, but no VM with role = \"driver\" has a vCPU for it: \
                                 add [vm.dom0] with role = \"driver\", or a vCPU there (one that moves packets does \
                                 nothing else), or choose another path",
                                spec.name
                            ))
                        })?)
                    }
                };
            }
            disks.push(disk);
        }
        if !uses.contains(&true) {
            return Ok(None);
        }
        let counters = scenario.vms.iter().enumerate().map(|(group, vm)| Counter {
            name: vm.name.clone(),
            uses: vms
                .iter()
                .any(|v| v.group == group && uses[v.ordinal as usize]),
            bytes: [0; 2],
            cached: 0,
            requests: 0,
            // It grows with the largest value; only digits above 5 are refused.
            took: Histogram::new(3).expect("valid number of digits"),
            took_sum: 0,
            longest: 0,
        });
        let groups = vms.iter().map(|vm| Some(vm.group)).chain([None]);
        Ok(Some(Disks {
            counters: counters.collect(),
            group: groups.collect(),
            disks,
            turns: Vec::new(),
            requests: Vec::new(),
            free: Vec::new(),
            backs: staff.backs,
            workers: staff.workers,
            hands: staff.hands,
            stopped: vec![false; homes],
            flow: Default::default(),
            measure_from: 0,
        }))
    }
}
