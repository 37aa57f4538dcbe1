// SPDX-License-Identifier: GPL-2.0-only
//! Choosing CPUs, and the masks of idle ones.
use super::kernel_fns;
use crate::machine::mask::next_and_wrap;
use crate::scx::consts::*;
use crate::scx::kernel::Handle;
use crate::scx::select_cpu::bit;
use berth_policy::kview::ScxBpfSelectCpuAndArgs;

/// The words of a mask that a policy gave us; `None` if the address is null.
///
/// # Safety
/// `addr` is null or a mask of this machine (a policy's own masks have the machine's size too).
unsafe fn words<'a>(k: Handle, addr: u64) -> Option<&'a [u64]> {
    if addr == 0 {
        return None;
    }
    let n = k.masks.get(crate::machine::MaskId::ALL).words().len();
    // SAFETY: the caller's promise.
    Some(unsafe { std::slice::from_raw_parts(addr as *const u64, n) })
}

impl Handle {
    fn idle_enabled(self) -> bool {
        if !self.idle.enabled {
            self.scx_error("built-in idle tracking is disabled".into());
        }
        self.idle.enabled
    }

    /// A node number from a policy: per-node masks must be on. `Err` = what to return.
    fn node_arg(self, node: i32) -> Result<u32, i64> {
        if !self.idle.per_node {
            self.scx_error("per-node idle tracking is disabled".into());
            return Err(-EOPNOTSUPP);
        }
        if node == -1 {
            return Err(-ENOENT);
        }
        if node < 0 || node as u32 >= self.topo.nr_nodes() {
            self.scx_error(format!("invalid node {node}"));
            return Err(-EINVAL);
        }
        Ok(node as u32)
    }

    /// Per-node masks must be off for the calls without a node.
    fn no_nodes(self, name: &str) -> bool {
        if self.idle.per_node {
            self.scx_error(format!(
                "{name}() not allowed with per-node idle tracking: use {name}_node()"
            ));
        }
        !self.idle.per_node
    }

    #[inline(always)]
    fn select(
        self,
        name: &str,
        p: u64,
        prev: i32,
        wake_flags: u64,
        allowed: Option<&[u64]>,
        flags: u64,
    ) -> i64 {
        let Some(task) = self.task_arg(name, p) else {
            return -EINVAL;
        };
        if !self.ops_cpu_valid(prev, "") {
            return -EINVAL;
        }
        if !self.idle_enabled() {
            return -EBUSY;
        }
        if self.nobody_idle() {
            return -EBUSY;
        }
        let prev = prev as u32;
        let ts = self.tasks.ts(task);
        if ts.nr_cpus_allowed == 1 || ts.migration_disabled != 0 {
            let own = self.masks.get(self.tasks.hot[task as usize].mask).words();
            let set = allowed.unwrap_or(own);
            return if bit(set, prev) && self.test_and_clear_idle(prev) {
                prev as i64
            } else {
                -EBUSY
            };
        }
        self.select_cpu_dfl(task, prev, wake_flags, allowed, flags)
            .map_or(-EBUSY, i64::from)
    }

    /// Any allowed CPU, rotating per calling CPU.
    fn any_cpu(mut self, allowed: &[u64]) -> i64 {
        let exec = self.exec as usize;
        let all = self.masks.get(crate::machine::MaskId::ALL);
        match next_and_wrap(all.words(), allowed, self.cpus[exec].distribute_prev + 1) {
            Some(cpu) => {
                self.cpus[exec].distribute_prev = cpu;
                cpu as i64
            }
            None => -EBUSY,
        }
    }
}

fn empty(k: Handle) -> u64 {
    k.no_cpus.as_kernel() as u64
}

kernel_fns! {
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn scx_bpf_select_cpu_dfl(k, p, prev, wake_flags, is_idle) {
        let cpu = k.select("scx_bpf_select_cpu_dfl", p, prev as i32, wake_flags, None, 0);
        let idle = is_idle as *mut u8;
        if !idle.is_null() {
            // SAFETY: the policy's out parameter (native code faults as its own store would).
            unsafe { *idle = (cpu >= 0) as u8 };
        }
        if cpu >= 0 { cpu as u64 } else { prev as i32 as i64 as u64 }
    }
    fn scx_bpf_select_cpu_and(k, p, prev, wake_flags, cpus_allowed, flags) {
        // SAFETY: a mask of the policy or the kernel.
        let allowed = unsafe { words(k, cpus_allowed) };
        k.select("scx_bpf_select_cpu_and", p, prev as i32, wake_flags, allowed, flags) as u64
    }
    fn __scx_bpf_select_cpu_and(k, p, cpus_allowed, args) {
        // SAFETY: a mask of the policy or the kernel; the policy's argument block.
        let (allowed, args) = unsafe { (words(k, cpus_allowed), (args as *const ScxBpfSelectCpuAndArgs).as_ref()) };
        match args {
            Some(a) => k.select("scx_bpf_select_cpu_and", p, a.prev_cpu, a.wake_flags, allowed, a.flags) as u64,
            None => -EINVAL as u64,
        }
    }
    fn scx_bpf_get_idle_cpumask_node(k, node) {
        match k.node_arg(node as i32) {
            Ok(n) => k.idle.pair(Some(n)).cpu.as_kernel() as u64,
            Err(_) => empty(k),
        }
    }
    fn scx_bpf_get_idle_cpumask(k) {
        if !k.idle_enabled() || !k.no_nodes("scx_bpf_get_idle_cpumask") {
            return empty(k);
        }
        k.idle.pair(None).cpu.as_kernel() as u64
    }
    fn scx_bpf_get_idle_smtmask_node(k, node) {
        match k.node_arg(node as i32) {
            Ok(n) if k.topo.smt() => k.idle.pair(Some(n)).smt.as_kernel() as u64,
            Ok(n) => k.idle.pair(Some(n)).cpu.as_kernel() as u64,
            Err(_) => empty(k),
        }
    }
    fn scx_bpf_get_idle_smtmask(k) {
        if !k.idle_enabled() || !k.no_nodes("scx_bpf_get_idle_smtmask") {
            return empty(k);
        }
        let pair = k.idle.pair(None);
        if k.topo.smt() { pair.smt.as_kernel() as u64 } else { pair.cpu.as_kernel() as u64 }
    }
    fn scx_bpf_put_idle_cpumask(_k, _mask) { 0 }
    fn scx_bpf_test_and_clear_cpu_idle(k, cpu) {
        if !k.idle_enabled() || !k.ops_cpu_valid(cpu as i32, "") {
            return 0;
        }
        k.test_and_clear_idle(cpu as u32) as u64
    }
    fn scx_bpf_pick_idle_cpu_node(k, allowed, node, flags) {
        // SAFETY: a mask of the policy or the kernel.
        let Some(allowed) = (unsafe { words(k, allowed) }) else { return -EINVAL as u64 };
        match k.node_arg(node as i32) {
            Ok(n) => k.pick_idle([allowed; 3], Some(n), flags).map_or(-EBUSY, i64::from) as u64,
            Err(e) => e as u64,
        }
    }
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn scx_bpf_pick_idle_cpu(k, allowed, flags) {
        if !k.no_nodes("scx_bpf_pick_idle_cpu") || !k.idle_enabled() {
            return -EBUSY as u64;
        }
        // SAFETY: a mask of the policy or the kernel.
        let Some(allowed) = (unsafe { words(k, allowed) }) else { return -EINVAL as u64 };
        k.pick_idle([allowed; 3], None, flags).map_or(-EBUSY, i64::from) as u64
    }
    fn scx_bpf_pick_any_cpu_node(k, allowed, node, flags) {
        // SAFETY: a mask of the policy or the kernel.
        let Some(allowed) = (unsafe { words(k, allowed) }) else { return -EINVAL as u64 };
        match k.node_arg(node as i32) {
            Ok(n) => match k.pick_idle([allowed; 3], Some(n), flags) {
                Some(cpu) => cpu as u64,
                None => k.any_cpu(allowed) as u64,
            },
            Err(e) => e as u64,
        }
    }
    fn scx_bpf_pick_any_cpu(k, allowed, flags) {
        if !k.no_nodes("scx_bpf_pick_any_cpu") {
            return -EBUSY as u64;
        }
        // SAFETY: a mask of the policy or the kernel.
        let Some(allowed) = (unsafe { words(k, allowed) }) else { return -EINVAL as u64 };
        if k.idle.enabled && let Some(cpu) = k.pick_idle([allowed; 3], None, flags) {
            return cpu as u64;
        }
        k.any_cpu(allowed) as u64
    }
    fn scx_bpf_get_possible_cpumask(k) {
        k.masks.get(crate::machine::MaskId::ALL).as_kernel() as u64
    }
    fn scx_bpf_get_online_cpumask(k) {
        k.online.as_kernel() as u64
    }
    fn scx_bpf_put_cpumask(_k, _mask) { 0 }
    fn scx_bpf_cpu_node(k, cpu) {
        if !k.ops_cpu_valid(cpu as i32, "") {
            return -1i64 as u64;
        }
        k.topo.node_of(cpu as u32) as u64
    }
    fn scx_bpf_nr_node_ids(k) { k.topo.nr_nodes() as u64 }
    fn scx_bpf_nr_cpu_ids(k) { k.topo.nr_cpus() as u64 }
}
