// SPDX-License-Identifier: GPL-2.0-only
//! The CPU lists of affinity steps, on each machine.
use super::api::{CpuId, Ctx, HOST, MachineId, MaskId, VmId};

/// A list's number is that of [`super::program::Op::SetAffinity`].
pub(super) struct Masks {
    cpus: Vec<Vec<CpuId>>,
    of_host: Vec<MaskId>,
    /// By VM with a guest, once it has started.
    of_guest: Vec<Vec<MaskId>>,
}

impl Masks {
    pub fn new(cpus: Vec<Vec<CpuId>>, vms: usize) -> Masks {
        Masks {
            cpus,
            of_host: Vec::new(),
            of_guest: vec![Vec::new(); vms],
        }
    }

    fn made(&self, ctx: &mut Ctx) -> Vec<MaskId> {
        self.cpus.iter().map(|cpus| ctx.mask(cpus)).collect()
    }

    /// On the host, at its start.
    pub fn start_host(&mut self, ctx: &mut Ctx) {
        self.of_host = self.made(ctx);
    }

    /// Inside a VM, at its start.
    pub fn start_guest(&mut self, vm: VmId, ctx: &mut Ctx) {
        self.of_guest[vm as usize] = self.made(ctx);
    }

    /// List `number` on the machine of a thread, which may be inside the VM of its home.
    pub fn get(&self, machine: MachineId, home: u32, number: u32) -> MaskId {
        let masks = match machine {
            HOST => &self.of_host,
            _ => &self.of_guest[home as usize],
        };
        masks[number as usize]
    }
}
