// SPDX-License-Identifier: GPL-2.0-only
//! A VM with a machine inside is switched on and off.
use super::machine_of;
use super::world::WorldRef;
use crate::machine::task::{ENDLESS, MARK_VCPU};
use crate::machine::vcpu::VcpuState;
use crate::words::VmId;

impl WorldRef {
    /// Switch a VM on: the threads of its vCPUs are started, as the VM's manager would.
    pub fn start_vm(mut self, vm: VmId) {
        let host = self.host();
        let Some(mut k) = self.guest(machine_of(vm)) else {
            return;
        };
        k.guest.off = false;
        k.guest.waiting = 0;
        k.now = host.now;
        // What its policy's timers and its watchdog have missed is due now.
        for slot in 0..k.sources.len() as u32 {
            if k.queue.time(slot) < host.now {
                k.queue.set(slot, host.now);
            }
        }
        let Some(info) = &mut self.guests[vm as usize] else {
            return;
        };
        let first = info.first;
        let threads = std::mem::take(&mut info.threads);
        for (i, mut spec) in threads.into_iter().enumerate() {
            let index = first + i as u32;
            spec.token = index;
            let task = host.create_task(&spec);
            let mut h = host;
            let hot = &mut h.tasks.hot[task as usize];
            hot.mark |= MARK_VCPU;
            hot.remaining = ENDLESS;
            let v = &mut self.vcpus[index as usize];
            v.task = task;
            v.state = VcpuState::Halted;
            v.since = host.now;
            v.born = host.now;
            host.start_task(task);
        }
        self.touch(k);
    }

    /// Switch a VM off: the threads of its vCPUs are killed, and nothing happens in it any more.
    pub fn stop_vm(self, vm: VmId) {
        let host = self.host();
        let Some(mut k) = self.guest(machine_of(vm)) else {
            return;
        };
        k.guest.off = true;
        for cpu in 0..k.cpus.len() as u32 {
            k.pause(host.now, cpu);
            let v = &self.vcpus[(k.guest.first_vcpu + cpu) as usize];
            if v.state != VcpuState::Off {
                host.kill_task(v.task);
            }
        }
        self.touch(k);
    }
}
