// SPDX-License-Identifier: GPL-2.0-only
//! Kicks, exits, run queues, clocks, timers, counters.
use super::kernel_fns;
use crate::scx::consts::*;
use crate::scx::kernel::Handle;
use crate::scx::lifecycle::ExitKind;
use berth_policy::kview::ScxEventStats;
use berth_policy::runtime::format::format;

impl Handle {
    /// A message of the policy.
    fn message(self, fmt: u64, data: u64, size: u64) -> String {
        let text = self
            .policy
            .instance()
            .and_then(|i| format(i, fmt, data, size as u32));
        text.unwrap_or_else(|| "(a message that cannot be formatted)".into())
    }

    /// A run queue as policies see it, its clocks up to date.
    fn rq_ptr(self, cpu: u32) -> u64 {
        let (clock, clock_task) = (self.clock(self.now), self.task_clock(cpu));
        let mut c = self.cpu(cpu);
        (c.rq.clock, c.rq.clock_task) = (clock, clock_task);
        (&raw const c.rq) as u64
    }
}

kernel_fns! {
    fn scx_bpf_kick_cpu(k, cpu, flags) {
        k.code.queue_calls += 1;
        k.kick_cpu(cpu as i32, flags);
        0
    }
    fn scx_bpf_exit_bstr(k, code, fmt, data, size) {
        let m = k.message(fmt, data, size);
        k.scx_exit(ExitKind::UnregBpf, code as i64, m);
        0
    }
    fn scx_bpf_error_bstr(k, fmt, data, size) {
        let m = k.message(fmt, data, size);
        k.scx_exit(ExitKind::ErrorBpf, 0, m);
        0
    }
    fn scx_bpf_dump_bstr(_k, _fmt, _data, _size) {
        // Dumps are not kept: nobody reads them here.
        0
    }
    fn scx_bpf_cpuperf_cap(k, cpu) {
        if !k.ops_cpu_valid(cpu as i32, "") { return CPUPERF_ONE as u64 }
        k.capacity(cpu as u32) as u64
    }
    fn scx_bpf_cpuperf_cur(k, cpu) {
        if !k.ops_cpu_valid(cpu as i32, "") { return CPUPERF_ONE as u64 }
        k.frequency(cpu as u32) as u64
    }
    fn scx_bpf_cpuperf_set(k, cpu, perf) {
        if perf as u32 > CPUPERF_ONE {
            k.scx_error(format!("Invalid cpuperf target {} for CPU {}", perf as u32, cpu as i32));
        } else if k.ops_cpu_valid(cpu as i32, "") {
            if k.policy.locked_rq.is_some_and(|rq| rq != cpu as u32) {
                k.scx_error(format!("Invalid target CPU {}", cpu as i32));
            } else {
                k.ask_performance(cpu as u32, perf as u32);
            }
        }
        0
    }
    fn scx_bpf_task_running(k, p) {
        let Some(t) = k.task_arg("scx_bpf_task_running", p) else { return 0 };
        let cpu = k.tasks.hot[t as usize].cpu;
        (k.cpus[cpu as usize].curr == t) as u64
    }
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn scx_bpf_task_cpu(k, p) {
        let Some(t) = k.task_arg("scx_bpf_task_cpu", p) else { return 0 };
        k.tasks.hot[t as usize].cpu as u64
    }
    fn scx_bpf_cpu_curr(k, cpu) {
        if !k.ops_cpu_valid(cpu as i32, "") { return 0 }
        k.sync_to_last_tick(cpu as u32);
        k.tasks.ptr(k.cpus[cpu as u32 as usize].curr) as u64
    }
    fn scx_bpf_cpu_rq(k, cpu) {
        if !k.ops_cpu_valid(cpu as i32, "") { return 0 }
        k.sync_to_last_tick(cpu as u32);
        k.rq_ptr(cpu as u32)
    }
    fn scx_bpf_locked_rq(k) {
        match k.policy.locked_rq {
            Some(cpu) => k.rq_ptr(cpu),
            None => {
                k.scx_error("accessing rq without holding rq lock".into());
                0
            }
        }
    }
    fn bpf_per_cpu_ptr(k, _var, cpu) {
        // The only per-CPU variable of the kernel view is `runqueues`.
        if cpu as u32 >= k.topo.nr_cpus() { return 0 }
        k.sync_to_last_tick(cpu as u32);
        k.rq_ptr(cpu as u32)
    }
    fn bpf_this_cpu_ptr(k, _var) {
        let cpu = k.exec;
        k.rq_ptr(cpu)
    }
    fn scx_bpf_task_set_slice(k, p, slice) {
        let Some(t) = k.task_arg("scx_bpf_task_set_slice", p) else { return 0 };
        let cpu = k.tasks.hot[t as usize].cpu;
        let running = k.cpus[cpu as usize].curr == t;
        if running {
            // What it has used up to the last tick is charged to the slice it had.
            k.sync_to_last_tick(cpu);
        }
        k.tasks.ts(t).scx.slice = slice;
        if running {
            k.refresh_tick(cpu);
            if cpu != k.exec {
                k.arm(cpu);
            }
        }
        1
    }
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn scx_bpf_task_set_dsq_vtime(k, p, vtime) {
        let Some(t) = k.task_arg("scx_bpf_task_set_dsq_vtime", p) else { return 0 };
        k.tasks.ts(t).scx.dsq_vtime = vtime;
        1
    }
    fn scx_bpf_events(k, events, size) {
        let e = &k.events;
        let all = ScxEventStats {
            SCX_EV_SELECT_CPU_FALLBACK: e.select_cpu_fallback as i64,
            SCX_EV_DISPATCH_LOCAL_DSQ_OFFLINE: e.dispatch_local_dsq_offline as i64,
            SCX_EV_DISPATCH_KEEP_LAST: e.dispatch_keep_last as i64,
            SCX_EV_ENQ_SKIP_EXITING: e.enq_skip_exiting as i64,
            SCX_EV_ENQ_SKIP_MIGRATION_DISABLED: e.enq_skip_migration_disabled as i64,
            SCX_EV_REFILL_SLICE_DFL: e.refill_slice_dfl as i64,
            SCX_EV_BYPASS_DURATION: e.bypass_duration as i64,
            SCX_EV_BYPASS_DISPATCH: e.bypass_dispatch as i64,
            SCX_EV_BYPASS_ACTIVATE: e.bypass_activate as i64,
        };
        if events == 0 { return 0 }
        let n = (size as usize).min(size_of::<ScxEventStats>());
        // SAFETY: the policy's buffer of `size` bytes.
        unsafe { std::ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), events as *mut u8, n) };
        0
    }
    fn bpf_jiffies64(k) { k.jiffies() }
    fn bpf_get_numa_node_id(k) { k.topo.node_of(k.exec) as u64 }
    fn bpf_timer_init(k, timer, _map, flags) {
        // Clocks: realtime 0, monotonic 1, boottime 7.
        if !matches!(flags & 15, 0 | 1 | 7) || flags > 15 {
            return -EINVAL as u64;
        }
        k.timer_init(timer) as u64
    }
    fn bpf_timer_set_callback(k, timer, callback) { k.timer_set_callback(timer, callback) as u64 }
    fn bpf_timer_start(k, timer, ns, flags) { k.timer_start(timer, ns, flags) as u64 }
    fn bpf_timer_cancel(k, timer) { k.timer_cancel(timer) as u64 }
}
