// SPDX-License-Identifier: GPL-2.0-only
//! Enum constants of the kernel, by kernel version: answers to CO-RE questions about enums, and the values
//! put into the `__SCX_*` variables that the sched_ext headers leave for the loader to fill.
//!
//! Values are those of the type information of a 7.2 kernel; a constant that came after 6.18 has the
//! version that brought it.

struct Row {
    group: &'static str,
    name: &'static str,
    value: u64,
    since: (u16, u16),
}

const fn row(group: &'static str, name: &'static str, value: u64, since: (u16, u16)) -> Row {
    Row {
        group,
        name,
        value,
        since,
    }
}

/// Value of enum constant `name` in a kernel of this version.
pub fn value(name: &str, version: (u16, u16)) -> Option<u64> {
    ROWS.iter()
        .find(|r| r.name == name && version >= r.since)
        .map(|r| r.value)
}

/// Names of a group's constants on a kernel of this version.
pub fn group(group: &str, version: (u16, u16)) -> impl Iterator<Item = &'static str> {
    let rows = ROWS
        .iter()
        .filter(move |r| r.group == group && version >= r.since);
    rows.map(|r| r.name)
}

/// Is there a constant of this name in any version, older ones included? The headers list them all.
pub fn known(name: &str) -> bool {
    ROWS.iter().any(|r| r.name == name) || OTHER_VERSIONS.contains(&name)
}

/// Does a kernel of this version have the enum?
pub fn enum_exists(group: &str, version: (u16, u16)) -> bool {
    ROWS.iter().any(|r| r.group == group && version >= r.since)
}

/// First version that has a structure of the kernel view.
pub fn type_since(name: &str) -> (u16, u16) {
    match name {
        "scx_bpf_dsq_insert_vtime_args" | "scx_bpf_select_cpu_and_args" => (6, 19),
        _ => (0, 0),
    }
}

/// First version that has a field of the kernel view.
pub fn field_since(structure: &str, field: &str) -> (u16, u16) {
    match (structure, field) {
        ("scx_exit_info", "exit_cpu") => (7, 1),
        _ => (0, 0),
    }
}

/// Constants the headers ask for that the versions modelled here do not have (older or newer ones).
const OTHER_VERSIONS: &[&str] = &[
    "SCX_RQ_BAL_PENDING",
    "SCX_RQ_BAL_KEEP",
    "SCX_RQ_BYPASSING",
    "SCX_RQ_IN_DISPATCH",
    "SCX_TASK_NR_STATES",
    "SCX_ENQ_PREEMPT_LAZY",
    "SCX_ENQ_RESCUE",
    "SCX_ENQ_BLOCKED",
    "SCX_KICK_PREEMPT_LAZY",
    "SCX_KICK_ALL_FLAGS",
    "SCX_OPS_LAZY_RESCHED",
    "SCX_OPS_ENQ_BLOCKED",
    "SCX_CAP_ENQ_IMMED",
    "SCX_CAP_ENQ",
    "SCX_CAP_PREEMPT",
    "SCX_CAP_PERF",
    "SCX_CAP_BASE",
    "SCX_RESCUE_DISABLE",
];

static ROWS: &[Row] = &[
    row("cgroup_subsys_id", "cpuset_cgrp_id", 0, (0, 0)),
    row("cgroup_subsys_id", "cpu_cgrp_id", 1, (0, 0)),
    row("cgroup_subsys_id", "cpuacct_cgrp_id", 2, (0, 0)),
    row("cgroup_subsys_id", "io_cgrp_id", 3, (0, 0)),
    row("cgroup_subsys_id", "memory_cgrp_id", 4, (0, 0)),
    row("cgroup_subsys_id", "devices_cgrp_id", 5, (0, 0)),
    row("cgroup_subsys_id", "freezer_cgrp_id", 6, (0, 0)),
    row("cgroup_subsys_id", "net_cls_cgrp_id", 7, (0, 0)),
    row("cgroup_subsys_id", "perf_event_cgrp_id", 8, (0, 0)),
    row("cgroup_subsys_id", "net_prio_cgrp_id", 9, (0, 0)),
    row("cgroup_subsys_id", "hugetlb_cgrp_id", 10, (0, 0)),
    row("cgroup_subsys_id", "pids_cgrp_id", 11, (0, 0)),
    row("cgroup_subsys_id", "rdma_cgrp_id", 12, (0, 0)),
    row("cgroup_subsys_id", "misc_cgrp_id", 13, (0, 0)),
    row("cgroup_subsys_id", "CGROUP_SUBSYS_COUNT", 14, (0, 0)),
    row("scx_arena_consts", "SCX_ARENA_MIN_ORDER", 3, (0, 0)),
    row("scx_arena_consts", "SCX_ARENA_GROW_PAGES", 4, (0, 0)),
    row("scx_consts", "SCX_DSP_DFL_MAX_BATCH", 32, (0, 0)),
    row("scx_consts", "SCX_DSP_MAX_LOOPS", 32, (0, 0)),
    row("scx_consts", "SCX_WATCHDOG_MAX_TIMEOUT", 7500, (0, 0)),
    row("scx_consts", "SCX_TID_CHUNK", 1024, (7, 2)),
    row("scx_consts", "SCX_EXIT_BT_LEN", 64, (0, 0)),
    row("scx_consts", "SCX_EXIT_MSG_LEN", 1024, (0, 0)),
    row("scx_consts", "SCX_EXIT_DUMP_DFL_LEN", 32768, (0, 0)),
    row("scx_consts", "SCX_CPUPERF_ONE", 1024, (0, 0)),
    row("scx_consts", "SCX_TASK_ITER_BATCH", 32, (6, 18)),
    row("scx_consts", "SCX_BYPASS_HOST_NTH", 2, (0, 0)),
    row("scx_consts", "SCX_BYPASS_LB_DFL_INTV_US", 0x7a120, (0, 0)),
    row("scx_consts", "SCX_BYPASS_LB_DONOR_PCT", 125, (0, 0)),
    row("scx_consts", "SCX_BYPASS_LB_MIN_DELTA_DIV", 4, (0, 0)),
    row("scx_consts", "SCX_BYPASS_LB_BATCH", 256, (0, 0)),
    row("scx_consts", "SCX_REENQ_LOCAL_MAX_REPEAT", 256, (7, 1)),
    row("scx_consts", "SCX_SUB_MAX_DEPTH", 4, (7, 1)),
    row("scx_cpu_preempt_reason", "SCX_CPU_PREEMPT_RT", 0, (0, 0)),
    row("scx_cpu_preempt_reason", "SCX_CPU_PREEMPT_DL", 1, (0, 0)),
    row("scx_cpu_preempt_reason", "SCX_CPU_PREEMPT_STOP", 2, (0, 0)),
    row(
        "scx_cpu_preempt_reason",
        "SCX_CPU_PREEMPT_UNKNOWN",
        3,
        (0, 0),
    ),
    row("scx_deq_flags", "SCX_DEQ_SLEEP", 1, (0, 0)),
    row(
        "scx_deq_flags",
        "SCX_DEQ_CORE_SCHED_EXEC",
        0x100000000,
        (0, 0),
    ),
    row("scx_deq_flags", "SCX_DEQ_SCHED_CHANGE", 0x200000000, (7, 1)),
    row(
        "scx_dsq_id_flags",
        "SCX_DSQ_FLAG_BUILTIN",
        0x8000000000000000,
        (0, 0),
    ),
    row(
        "scx_dsq_id_flags",
        "SCX_DSQ_FLAG_LOCAL_ON",
        0x4000000000000000,
        (0, 0),
    ),
    row(
        "scx_dsq_id_flags",
        "SCX_DSQ_INVALID",
        0x8000000000000000,
        (0, 0),
    ),
    row(
        "scx_dsq_id_flags",
        "SCX_DSQ_GLOBAL",
        0x8000000000000001,
        (0, 0),
    ),
    row(
        "scx_dsq_id_flags",
        "SCX_DSQ_LOCAL",
        0x8000000000000002,
        (0, 0),
    ),
    row(
        "scx_dsq_id_flags",
        "SCX_DSQ_BYPASS",
        0x8000000000000003,
        (6, 19),
    ),
    row(
        "scx_dsq_id_flags",
        "SCX_DSQ_LOCAL_ON",
        0xc000000000000000,
        (0, 0),
    ),
    row(
        "scx_dsq_id_flags",
        "SCX_DSQ_LOCAL_CPU_MASK",
        0xffffffff,
        (0, 0),
    ),
    row("scx_dsq_iter_flags", "SCX_DSQ_ITER_REV", 0x10000, (0, 0)),
    row(
        "scx_dsq_iter_flags",
        "__SCX_DSQ_ITER_HAS_SLICE",
        0x40000000,
        (0, 0),
    ),
    row(
        "scx_dsq_iter_flags",
        "__SCX_DSQ_ITER_HAS_VTIME",
        0x80000000,
        (0, 0),
    ),
    row(
        "scx_dsq_iter_flags",
        "__SCX_DSQ_ITER_USER_FLAGS",
        0x10000,
        (0, 0),
    ),
    row(
        "scx_dsq_iter_flags",
        "__SCX_DSQ_ITER_ALL_FLAGS",
        0xc0010000,
        (0, 0),
    ),
    row("scx_enable_state", "SCX_ENABLING", 0, (0, 0)),
    row("scx_enable_state", "SCX_ENABLED", 1, (0, 0)),
    row("scx_enable_state", "SCX_DISABLING", 2, (0, 0)),
    row("scx_enable_state", "SCX_DISABLED", 3, (0, 0)),
    row("scx_enq_flags", "SCX_ENQ_WAKEUP", 1, (0, 0)),
    row("scx_enq_flags", "SCX_ENQ_HEAD", 0x10000, (0, 0)),
    row("scx_enq_flags", "SCX_ENQ_CPU_SELECTED", 0x100000, (0, 0)),
    row("scx_enq_flags", "SCX_ENQ_PREEMPT", 0x100000000, (0, 0)),
    row("scx_enq_flags", "SCX_ENQ_IMMED", 0x200000000, (7, 1)),
    row("scx_enq_flags", "SCX_ENQ_REENQ", 0x10000000000, (0, 0)),
    row("scx_enq_flags", "SCX_ENQ_LAST", 0x20000000000, (0, 0)),
    row(
        "scx_enq_flags",
        "__SCX_ENQ_INTERNAL_MASK",
        0xff00000000000000,
        (0, 0),
    ),
    row(
        "scx_enq_flags",
        "SCX_ENQ_CLEAR_OPSS",
        0x100000000000000,
        (0, 0),
    ),
    row(
        "scx_enq_flags",
        "SCX_ENQ_DSQ_PRIQ",
        0x200000000000000,
        (0, 0),
    ),
    row("scx_enq_flags", "SCX_ENQ_NESTED", 0x400000000000000, (0, 0)),
    row(
        "scx_enq_flags",
        "SCX_ENQ_GDSQ_FALLBACK",
        0x800000000000000,
        (7, 1),
    ),
    row("scx_ent_dsq_flags", "SCX_TASK_DSQ_ON_PRIQ", 1, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_QUEUED", 1, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_IN_CUSTODY", 2, (7, 1)),
    row("scx_ent_flags", "SCX_TASK_RESET_RUNNABLE_AT", 4, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_DEQD_FOR_SLEEP", 8, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_SUB_INIT", 16, (7, 1)),
    row("scx_ent_flags", "SCX_TASK_IMMED", 32, (7, 1)),
    row("scx_ent_flags", "SCX_TASK_STATE_SHIFT", 8, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_STATE_BITS", 3, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_STATE_MASK", 1792, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_NONE", 0, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_INIT_BEGIN", 256, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_INIT", 512, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_READY", 768, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_ENABLED", 1024, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_DEAD", 1280, (0, 0)),
    row("scx_ent_flags", "SCX_TASK_REENQ_REASON_SHIFT", 12, (7, 1)),
    row("scx_ent_flags", "SCX_TASK_REENQ_REASON_BITS", 2, (7, 1)),
    row("scx_ent_flags", "SCX_TASK_REENQ_REASON_MASK", 12288, (7, 1)),
    row("scx_ent_flags", "SCX_TASK_REENQ_NONE", 0, (7, 1)),
    row("scx_ent_flags", "SCX_TASK_REENQ_KFUNC", 4096, (7, 1)),
    row("scx_ent_flags", "SCX_TASK_REENQ_IMMED", 8192, (7, 1)),
    row("scx_ent_flags", "SCX_TASK_REENQ_PREEMPTED", 12288, (7, 1)),
    row("scx_ent_flags", "SCX_TASK_CURSOR", 0x80000000, (0, 0)),
    row(
        "scx_exit_code",
        "SCX_ECODE_RSN_HOTPLUG",
        0x100000000,
        (0, 0),
    ),
    row(
        "scx_exit_code",
        "SCX_ECODE_RSN_CGROUP_OFFLINE",
        0x200000000,
        (7, 1),
    ),
    row(
        "scx_exit_code",
        "SCX_ECODE_ACT_RESTART",
        0x1000000000000,
        (0, 0),
    ),
    row("scx_exit_flags", "SCX_EFLAG_INITIALIZED", 1, (0, 0)),
    row("scx_exit_kind", "SCX_EXIT_NONE", 0, (0, 0)),
    row("scx_exit_kind", "SCX_EXIT_DONE", 1, (0, 0)),
    row("scx_exit_kind", "SCX_EXIT_UNREG", 64, (0, 0)),
    row("scx_exit_kind", "SCX_EXIT_UNREG_BPF", 65, (0, 0)),
    row("scx_exit_kind", "SCX_EXIT_UNREG_KERN", 66, (0, 0)),
    row("scx_exit_kind", "SCX_EXIT_SYSRQ", 67, (0, 0)),
    row("scx_exit_kind", "SCX_EXIT_PARENT", 68, (7, 1)),
    row("scx_exit_kind", "SCX_EXIT_ERROR", 1024, (0, 0)),
    row("scx_exit_kind", "SCX_EXIT_ERROR_BPF", 1025, (0, 0)),
    row("scx_exit_kind", "SCX_EXIT_ERROR_STALL", 1026, (0, 0)),
    row("scx_kick_flags", "SCX_KICK_IDLE", 1, (0, 0)),
    row("scx_kick_flags", "SCX_KICK_PREEMPT", 2, (0, 0)),
    row("scx_kick_flags", "SCX_KICK_WAIT", 4, (0, 0)),
    row("scx_ops_flags", "SCX_OPS_KEEP_BUILTIN_IDLE", 1, (0, 0)),
    row("scx_ops_flags", "SCX_OPS_ENQ_LAST", 2, (0, 0)),
    row("scx_ops_flags", "SCX_OPS_ENQ_EXITING", 4, (0, 0)),
    row("scx_ops_flags", "SCX_OPS_SWITCH_PARTIAL", 8, (0, 0)),
    row(
        "scx_ops_flags",
        "SCX_OPS_ENQ_MIGRATION_DISABLED",
        16,
        (0, 0),
    ),
    row("scx_ops_flags", "SCX_OPS_ALLOW_QUEUED_WAKEUP", 32, (0, 0)),
    row("scx_ops_flags", "SCX_OPS_BUILTIN_IDLE_PER_NODE", 64, (0, 0)),
    row("scx_ops_flags", "SCX_OPS_ALWAYS_ENQ_IMMED", 128, (7, 1)),
    row("scx_ops_flags", "SCX_OPS_TID_TO_TASK", 256, (7, 2)),
    row("scx_ops_flags", "SCX_OPS_ALL_FLAGS", 511, (0, 0)),
    row(
        "scx_ops_flags",
        "__SCX_OPS_INTERNAL_MASK",
        0xff00000000000000,
        (0, 0),
    ),
    row(
        "scx_ops_flags",
        "SCX_OPS_HAS_CPU_PREEMPT",
        0x100000000000000,
        (0, 0),
    ),
    row("scx_pick_idle_cpu_flags", "SCX_PICK_IDLE_CORE", 1, (0, 0)),
    row(
        "scx_pick_idle_cpu_flags",
        "SCX_PICK_IDLE_IN_NODE",
        2,
        (0, 0),
    ),
    row("scx_public_consts", "SCX_OPS_NAME_LEN", 128, (0, 0)),
    row("scx_public_consts", "SCX_SLICE_DFL", 0x1312d00, (0, 0)),
    row("scx_public_consts", "SCX_SLICE_BYPASS", 0x4c4b40, (6, 19)),
    row(
        "scx_public_consts",
        "SCX_SLICE_INF",
        0xffffffffffffffff,
        (0, 0),
    ),
    row("scx_reenq_flags", "SCX_REENQ_ANY", 1, (7, 1)),
    row("scx_reenq_flags", "__SCX_REENQ_FILTER_MASK", 65535, (7, 1)),
    row("scx_reenq_flags", "__SCX_REENQ_USER_MASK", 1, (7, 1)),
    row(
        "scx_reenq_flags",
        "SCX_REENQ_TSR_RQ_OPEN",
        0x100000000,
        (7, 1),
    ),
    row(
        "scx_reenq_flags",
        "SCX_REENQ_TSR_NOT_FIRST",
        0x200000000,
        (7, 1),
    ),
    row(
        "scx_reenq_flags",
        "__SCX_REENQ_TSR_MASK",
        0xf00000000,
        (7, 1),
    ),
    row("scx_rq_flags", "SCX_RQ_ONLINE", 1, (0, 0)),
    row("scx_rq_flags", "SCX_RQ_CAN_STOP_TICK", 2, (0, 0)),
    row("scx_rq_flags", "SCX_RQ_CLK_VALID", 32, (0, 0)),
    row("scx_rq_flags", "SCX_RQ_BAL_CB_PENDING", 64, (0, 0)),
    row("scx_rq_flags", "SCX_RQ_IN_WAKEUP", 0x10000, (0, 0)),
    row("scx_rq_flags", "SCX_RQ_IN_BALANCE", 0x20000, (0, 0)),
    row("scx_tg_flags", "SCX_TG_ONLINE", 1, (0, 0)),
    row("scx_tg_flags", "SCX_TG_INITED", 2, (0, 0)),
    row("scx_wake_flags", "SCX_WAKE_FORK", 4, (0, 0)),
    row("scx_wake_flags", "SCX_WAKE_TTWU", 8, (0, 0)),
    row("scx_wake_flags", "SCX_WAKE_SYNC", 16, (0, 0)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_the_version() {
        assert_eq!(value("SCX_DSQ_LOCAL", (6, 18)), Some(0x8000_0000_0000_0002));
        assert_eq!(value("SCX_ENQ_IMMED", (6, 18)), None);
        assert!(value("SCX_ENQ_IMMED", (7, 2)).is_some());
        assert!(known("SCX_RQ_BAL_KEEP") && value("SCX_RQ_BAL_KEEP", (7, 2)).is_none());
        assert!(enum_exists("scx_enq_flags", (6, 18)) && !enum_exists("scx_nothing", (7, 2)));
    }
}
