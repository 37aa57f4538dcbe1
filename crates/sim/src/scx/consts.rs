// SPDX-License-Identifier: GPL-2.0-only
//! Constants of the sched_ext interface (Linux 7.1 and newer values).

pub const DSQ_FLAG_BUILTIN: u64 = 1 << 63;
pub use crate::machine::task::NO_DSQ as DSQ_INVALID;
pub const DSQ_GLOBAL: u64 = DSQ_FLAG_BUILTIN | 1;
pub const DSQ_LOCAL: u64 = DSQ_FLAG_BUILTIN | 2;
pub const DSQ_BYPASS: u64 = DSQ_FLAG_BUILTIN | 3;
pub const DSQ_LOCAL_ON: u64 = DSQ_FLAG_BUILTIN | 1 << 62;
pub const DSQ_LOCAL_CPU_MASK: u64 = 0xffff_ffff;

pub const SLICE_DFL: u64 = 20_000_000;
pub const SLICE_BYPASS: u64 = 5_000_000;
pub const SLICE_INF: u64 = u64::MAX;

pub const WAKE_FORK: u64 = 4;
pub const WAKE_TTWU: u64 = 8;
pub const WAKE_SYNC: u64 = 16;

pub const ENQ_WAKEUP: u64 = 1;
pub const ENQ_RESTORE: u64 = 2;
pub const ENQ_MOVE: u64 = 4;
pub const ENQ_NOCLOCK: u64 = 8;
pub const ENQ_CLASS: u64 = 0x40;
pub const ENQ_HEAD: u64 = 0x1_0000;
pub const ENQ_MIGRATED: u64 = 0x4_0000;
pub const ENQ_INITIAL: u64 = 0x8_0000;
pub const ENQ_CPU_SELECTED: u64 = 0x10_0000;
pub const ENQ_PREEMPT: u64 = 1 << 32;
pub const ENQ_IMMED: u64 = 1 << 33;
pub const ENQ_REENQ: u64 = 1 << 40;
pub const ENQ_LAST: u64 = 1 << 41;
pub const ENQ_INTERNAL: u64 = 0xff << 56;
pub const ENQ_DSQ_PRIQ: u64 = 1 << 57;
pub const ENQ_GDSQ_FALLBACK: u64 = 1 << 59;

pub const DEQ_SLEEP: u64 = 1;
pub const DEQ_SAVE: u64 = 2;
pub const DEQ_MOVE: u64 = 4;
pub const DEQ_NOCLOCK: u64 = 8;
pub const DEQ_CLASS: u64 = 0x40;
pub const DEQ_CORE_SCHED_EXEC: u64 = 1 << 32;
pub const DEQ_SCHED_CHANGE: u64 = 1 << 33;

pub const KICK_IDLE: u64 = 1;
pub const KICK_PREEMPT: u64 = 2;
pub const KICK_WAIT: u64 = 4;

pub const PICK_IDLE_CORE: u64 = 1;
pub const PICK_IDLE_IN_NODE: u64 = 2;

pub const OPS_KEEP_BUILTIN_IDLE: u64 = 1;
pub const OPS_ENQ_LAST: u64 = 1 << 1;
pub const OPS_ENQ_EXITING: u64 = 1 << 2;
pub const OPS_SWITCH_PARTIAL: u64 = 1 << 3;
pub const OPS_ENQ_MIGRATION_DISABLED: u64 = 1 << 4;
pub const OPS_BUILTIN_IDLE_PER_NODE: u64 = 1 << 6;
pub const OPS_ALWAYS_ENQ_IMMED: u64 = 1 << 7;

pub const TASK_QUEUED: u32 = 1;
pub const TASK_IN_CUSTODY: u32 = 2;
pub const TASK_RESET_RUNNABLE_AT: u32 = 4;
pub const TASK_DEQD_FOR_SLEEP: u32 = 8;
pub const TASK_IMMED: u32 = 32;
pub const TASK_STATE_MASK: u32 = 0x700;
pub const TASK_INIT: u32 = 2 << 8;
pub const TASK_READY: u32 = 3 << 8;
pub const TASK_ENABLED: u32 = 4 << 8;
pub const TASK_REENQ_MASK: u32 = 0x7000;
pub const TASK_REENQ_KFUNC: u32 = 1 << 12;
pub const TASK_REENQ_IMMED: u32 = 2 << 12;
pub const TASK_REENQ_PREEMPTED: u32 = 3 << 12;
pub const REENQ_ANY: u64 = 1;

pub const PF_IDLE: u32 = 0x2;
pub const PF_EXITING: u32 = 0x4;
pub const PF_KTHREAD: u32 = 0x20_0000;

pub const DSP_DFL_MAX_BATCH: u32 = 32;
pub const DSP_MAX_LOOPS: u32 = 32;
/// The watchdog's longest (and default) timeout, ns.
pub const WATCHDOG_MAX_NS: u64 = 30_000_000_000;
pub const DSQ_ITER_REV: u64 = 1 << 16;
pub const CPUPERF_ONE: u32 = 1024;

pub const EXIT_NONE: u32 = 0;
pub const EXIT_UNREG: u32 = 64;
pub const EXIT_UNREG_BPF: u32 = 65;
pub const EXIT_UNREG_KERN: u32 = 66;
pub const EXIT_ERROR: u32 = 1024;
pub const EXIT_ERROR_BPF: u32 = 1025;
pub const EXIT_ERROR_STALL: u32 = 1026;
pub const ECODE_ACT_RESTART: i64 = 1 << 48;
pub const ECODE_RSN_HOTPLUG: i64 = 1 << 32;

pub const ENOENT: i64 = 2;
pub const ENOMEM: i64 = 12;
pub const EBUSY: i64 = 16;
pub const EEXIST: i64 = 17;
pub const ENODEV: i64 = 19;
pub const EINVAL: i64 = 22;
pub const EDEADLK: i64 = 35;
pub const EOPNOTSUPP: i64 = 95;
