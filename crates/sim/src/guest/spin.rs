// SPDX-License-Identifier: GPL-2.0-only
//! What a processor does about a vCPU that spins for long: pause-loop exiting. The vCPU leaves the guest. Under KVM its
//! thread yields to a vCPU of the same VM that is runnable and has no physical CPU where the host's policy can do that
//! (`ops.yield` with a second task): KVM asks the vCPUs in turn, beginning after the one last helped
//! (`kvm_vcpu_on_spin`), and goes back into the guest if nobody can be helped. Under Xen the vCPU gives its CPU away
//! (`host.ple_yield`). Each exit in a row doubles the window; it is what it was when the vCPU next gets a CPU (KVM's
//! `ple_window_grow`).
use super::world::WorldRef;
use crate::machine::vcpu::VcpuState;
use crate::scx::Handle;
use crate::scx::pass::Why;
use crate::words::CpuId;
use berth_policy::abi::Op;
use berth_scenario::model::PleYield;

impl WorldRef {
    /// The vCPU has spun for a window.
    pub fn pause_loop_exit(self, k: Handle, cpu: CpuId) {
        let me = k.guest.first_vcpu + cpu;
        let n = k.cpus.len() as u32;
        let host = self.host();
        let task = self.vcpus[me as usize].task;
        let host_cpu = host.tasks.hot[task as usize].cpu;
        host.begin(k.now, host_cpu);
        host.update_curr(host_cpu);
        if host.ple_yield == PleYield::Xen {
            return host.yield_running(host_cpu);
        }
        if host.policy.has(Op::Yield) {
            let from = host.tasks.ptr(task) as u64;
            let last = self.boosted(k.id);
            for i in 1..=n {
                let v = (last + i) % n;
                let other = &self.vcpus[(k.guest.first_vcpu + v) as usize];
                let waits = other.state == VcpuState::Waiting && v != cpu;
                let to = host.tasks.ptr(other.task) as u64;
                if waits && host.call_yield(host_cpu, from, to) {
                    self.set_boosted(k.id, v);
                    host.schedule(host_cpu, Why::Resched);
                    return;
                }
            }
        }
    }

    fn boosted(self, machine: u32) -> u32 {
        let guest = self.guests[machine as usize - 1].as_ref();
        guest.map_or(0, |g| g.boosted)
    }

    fn set_boosted(mut self, machine: u32, vcpu: u32) {
        if let Some(g) = &mut self.guests[machine as usize - 1] {
            g.boosted = vcpu;
        }
    }
}
