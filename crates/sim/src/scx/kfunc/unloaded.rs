// SPDX-License-Identifier: GPL-2.0-only
//! What kernel functions that need a scheduler do while none is loaded: programs that a loader runs before the start
//! meet these. All others are as ever.
use super::kernel_fns;
use crate::scx::consts::{CPUPERF_ONE, ENODEV};

const NO_SCHEDULER: u64 = -ENODEV as u64;

kernel_fns! {
    fn scx_bpf_create_dsq(_k, _id, _node) { NO_SCHEDULER }
    fn scx_bpf_destroy_dsq(_k, _id) { 0 }
    fn scx_bpf_dsq_nr_queued(_k, _id) { NO_SCHEDULER }
    fn scx_bpf_dsq_peek(_k, _id) { 0 }
    fn bpf_iter_scx_dsq_new(_k, _it, _id, _flags) { NO_SCHEDULER }
    fn bpf_iter_scx_dsq_next(_k, _it) { 0 }
    fn scx_bpf_dsq_move(_k, _it, _p, _id, _flags) { 0 }
    fn scx_bpf_dsq_move_vtime(_k, _it, _p, _id, _flags) { 0 }
    fn scx_bpf_reenqueue_local(_k) { 0 }
    fn scx_bpf_dsq_reenq(_k, _id, _flags) { 0 }
    fn scx_bpf_select_cpu_dfl(_k, _p, _prev, _wake_flags, _is_idle) { NO_SCHEDULER }
    fn scx_bpf_select_cpu_and(_k, _p, _prev, _wake_flags, _allowed, _flags) { NO_SCHEDULER }
    fn __scx_bpf_select_cpu_and(_k, _p, _allowed, _args) { NO_SCHEDULER }
    fn scx_bpf_get_idle_cpumask_node(k, _node) { k.no_cpus.as_kernel() as u64 }
    fn scx_bpf_get_idle_cpumask(k) { k.no_cpus.as_kernel() as u64 }
    fn scx_bpf_get_idle_smtmask_node(k, _node) { k.no_cpus.as_kernel() as u64 }
    fn scx_bpf_get_idle_smtmask(k) { k.no_cpus.as_kernel() as u64 }
    fn scx_bpf_test_and_clear_cpu_idle(_k, _cpu) { 0 }
    fn scx_bpf_pick_idle_cpu_node(_k, _allowed, _node, _flags) { NO_SCHEDULER }
    fn scx_bpf_pick_idle_cpu(_k, _allowed, _flags) { NO_SCHEDULER }
    fn scx_bpf_pick_any_cpu_node(_k, _allowed, _node, _flags) { NO_SCHEDULER }
    fn scx_bpf_pick_any_cpu(_k, _allowed, _flags) { NO_SCHEDULER }
    fn scx_bpf_kick_cpu(_k, _cpu, _flags) { 0 }
    fn scx_bpf_exit_bstr(_k, _code, _fmt, _data, _size) { 0 }
    fn scx_bpf_error_bstr(_k, _fmt, _data, _size) { 0 }
    fn scx_bpf_cpuperf_cap(_k, _cpu) { CPUPERF_ONE as u64 }
    fn scx_bpf_cpuperf_cur(_k, _cpu) { CPUPERF_ONE as u64 }
    fn scx_bpf_cpuperf_set(_k, _cpu, _perf) { 0 }
    fn scx_bpf_cpu_curr(_k, _cpu) { 0 }
    fn scx_bpf_cpu_rq(_k, _cpu) { 0 }
    fn scx_bpf_locked_rq(_k) { 0 }
    fn scx_bpf_task_set_slice(_k, _p, _slice) { 0 }
    fn scx_bpf_task_set_dsq_vtime(_k, _p, _vtime) { 0 }
}
