// SPDX-License-Identifier: GPL-2.0-only
//! The kernel view: types and constants of the kernel as a policy sees them in the simulator.
//!
//! One macro defines each structure as a `#[repr(C)]` Rust type (what the simulator fills) *and* as a
//! description (what CO-RE relocations of a policy resolve against), so the two cannot disagree.
//! Names are the kernel's. A field that is not here is refused by name when a policy can reach it.
use std::ffi::c_void;

/// Type of a field, as far as CO-RE needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    Int {
        size: u32,
        signed: bool,
    },
    /// Pointer to a named structure, or to anything (`""`).
    Ptr(&'static str),
    Struct(&'static str),
    /// Element type and count.
    Array(&'static Ty, u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub offset: u32,
    pub size: u32,
    pub ty: Ty,
}

#[derive(Clone, Copy, Debug)]
pub struct StructDesc {
    pub name: &'static str,
    pub size: u32,
    /// Bytes that are always there, from its start: the rest only where a policy can reach it
    /// ([`crate::needs::Needs`]).
    pub front: u32,
    pub fields: &'static [Field],
}

/// Description of a Rust field type.
pub trait Described {
    const TY: Ty;
}
macro_rules! ints {
    ($($t:ty: $signed:literal),*) => { $(impl Described for $t {
        const TY: Ty = Ty::Int { size: std::mem::size_of::<$t>() as u32, signed: $signed };
    })* };
}
ints!(u8: false, u16: false, u32: false, u64: false, i8: true, i16: true, i32: true, i64: true);
impl Described for *mut c_void {
    const TY: Ty = Ty::Ptr("");
}
impl Described for *const u8 {
    const TY: Ty = Ty::Ptr("");
}
impl Described for *mut u8 {
    const TY: Ty = Ty::Ptr("");
}
impl Described for *mut u64 {
    const TY: Ty = Ty::Ptr("");
}
impl<T: Described, const N: usize> Described for [T; N] {
    const TY: Ty = Ty::Array(&T::TY, N as u32);
}

macro_rules! kview {
    ($(
        $(#[$m:meta])* $kname:literal => $rname:ident { $( $(#[$fm:meta])* $f:ident : $t:ty ),* $(,)? }
        $( then $rest:ident { $( $g:ident : $u:ty ),* $(,)? } )?
    )*) => {
        $(
            $(#[$m])*
            #[repr(C)]
            #[allow(non_snake_case)] // the kernel's own names
            pub struct $rname { $( $(#[$fm])* pub $f: $t ),* }
            impl Described for $rname { const TY: Ty = Ty::Struct($kname); }
            impl Described for *mut $rname { const TY: Ty = Ty::Ptr($kname); }
            impl Described for *const $rname { const TY: Ty = Ty::Ptr($kname); }
            impl Default for $rname {
                /// All bits zero, as the kernel's zeroed allocations.
                fn default() -> Self {
                    // SAFETY: integers, arrays of integers and raw pointers only: zero is valid.
                    unsafe { std::mem::zeroed() }
                }
            }
            $(
                #[doc = concat!("What follows [`", stringify!($rname), "`] where a policy can reach it.")]
                #[repr(C)]
                pub struct $rest { $( pub $g: $u ),* }
                impl Default for $rest {
                    fn default() -> Self {
                        // SAFETY: as above.
                        unsafe { std::mem::zeroed() }
                    }
                }
            )?
        )*
        /// All structures of the view.
        pub static STRUCTS: &[StructDesc] = &[$(StructDesc {
            name: $kname,
            size: (std::mem::size_of::<$rname>() $( + std::mem::size_of::<$rest>() )?) as u32,
            front: std::mem::size_of::<$rname>() as u32,
            fields: &[
                $(Field {
                    name: field_name(stringify!($f)),
                    offset: std::mem::offset_of!($rname, $f) as u32,
                    size: std::mem::size_of::<$t>() as u32,
                    ty: <$t as Described>::TY,
                },)*
                $($(Field {
                    name: stringify!($g),
                    offset: (std::mem::size_of::<$rname>() + std::mem::offset_of!($rest, $g)) as u32,
                    size: std::mem::size_of::<$u>() as u32,
                    ty: <$u as Described>::TY,
                },)*)?
            ],
        }),*];
    };
}

/// Kernel name of a Rust field: `self` cannot be a Rust field name.
const fn field_name(s: &'static str) -> &'static str {
    if let b"self_css" = s.as_bytes() {
        "self"
    } else {
        s
    }
}

/// Most CPUs a machine may have; a mask in the view declares this many bits, and has storage for the
/// machine's own number only (policies reach masks through kfuncs).
pub const NR_CPUS_MAX: usize = 4096;

kview! {
    "cpumask" => Cpumask { bits: [u64; NR_CPUS_MAX / 64] }
    /// A policy's own mask: same layout as `cpumask`, reference counted by the runtime.
    "bpf_cpumask" => BpfCpumask { cpumask: Cpumask }

    "load_weight" => LoadWeight { weight: u64 }
    "sched_entity" => SchedEntity {
        exec_start: u64, sum_exec_runtime: u64, nr_migrations: u64,
        load: LoadWeight, slice: u64, custom_slice: u8,
    }
    "scx_dispatch_q" => ScxDispatchQ { nr: u32, seq: u32, id: u64 }
    "sched_ext_entity" => SchedExtEntity {
        dsq: *mut ScxDispatchQ,
        flags: u32, weight: u32, sticky_cpu: i32, selected_cpu: i32,
        slice: u64, dsq_vtime: u64, ddsp_dsq_id: u64, ddsp_enq_flags: u64, runnable_at: u64,
        holding_cpu: i32, disallow: u8,
    }
    "thread_info" => ThreadInfo { cpu: u32 }
    "mm_struct" => MmStruct { task_size: u64 }
    "kernfs_node" => KernfsNode { id: u64, name: *mut c_void }
    "cgroup_subsys_state" => CgroupSubsysState { cgroup: *mut Cgroup, id: i32 }
    "cgroup" => Cgroup {
        self_css: CgroupSubsysState, level: i32, kn: *mut KernfsNode,
        /// The simulator's dense number.
        berth_index: u32,
    }
    "css_set" => CssSet { dfl_cgrp: *mut Cgroup }
    "task_group" => TaskGroup { css: CgroupSubsysState, idle: i32 }
    "signal_struct" => SignalStruct { nr_threads: i32, oom_score_adj: i16 }
    /// The order of the fields (and of those of `scx` and `se`) is the simulator's: what wake-ups and switches
    /// touch is in the first two cache lines, and the rest is there only where the policy has a relocation for
    /// one of its fields. Policies find fields by relocation.
    #[repr(align(64))]
    "task_struct" => TaskStruct {
        thread_info: ThreadInfo,
        __state: u32, flags: u32,
        on_cpu: i32, on_rq: i32, wake_cpu: i32, nr_cpus_allowed: i32,
        /// Dense number of the task in its machine: index of task storages. Reused after exit.
        berth_index: u32,
        migration_disabled: u16,
        policy: u32,
        scx: SchedExtEntity,
        se: SchedEntity,
        cpus_ptr: *const Cpumask,
        static_prio: i32, pid: i32,
        comm: [u8; 16],
    }
    then TaskRest {
        utime: u64, nvcsw: u64, nivcsw: u64,
        prio: i32, normal_prio: i32, tgid: i32, recent_used_cpu: i32, exit_state: i32,
        sched_task_group: *mut TaskGroup,
        mm: *mut MmStruct,
        real_parent: *mut TaskStruct, parent: *mut TaskStruct, group_leader: *mut TaskStruct,
        signal: *mut SignalStruct,
        cgroups: *mut CssSet,
        stime: u64, start_time: u64, start_boottime: u64,
    }
    "rq" => Rq { curr: *mut TaskStruct, idle: *mut TaskStruct, nr_running: u32, cpu: i32, clock: u64, clock_task: u64 }

    "scx_exit_info" => ScxExitInfo {
        kind: u32, exit_cpu: i32, exit_code: i64, reason: *const u8, bt: *mut u64, bt_len: u32,
        msg: *mut u8, dump: *mut u8,
    }
    "scx_init_task_args" => ScxInitTaskArgs { fork: u8, cgroup: *mut Cgroup }
    "scx_exit_task_args" => ScxExitTaskArgs { cancelled: u8 }
    "scx_cpu_acquire_args" => ScxCpuAcquireArgs { berth_pad: u8 }
    "scx_cpu_release_args" => ScxCpuReleaseArgs { reason: u32, task: *mut TaskStruct }
    "scx_cgroup_init_args" => ScxCgroupInitArgs { weight: u32, bw_period_us: u64, bw_quota_us: u64, bw_burst_us: u64 }
    "scx_dump_ctx" => ScxDumpCtx { kind: u32, exit_code: i64, reason: *const u8, at_ns: u64, at_jiffies: u64 }
    "scx_bpf_dsq_insert_vtime_args" => ScxBpfDsqInsertVtimeArgs { dsq_id: u64, slice: u64, vtime: u64, enq_flags: u64 }
    "scx_bpf_select_cpu_and_args" => ScxBpfSelectCpuAndArgs { prev_cpu: i32, wake_flags: u64, flags: u64 }
    "bpf_perf_event_value" => BpfPerfEventValue { counter: u64, enabled: u64, running: u64 }
    "scx_event_stats" => ScxEventStats {
        SCX_EV_SELECT_CPU_FALLBACK: i64, SCX_EV_DISPATCH_LOCAL_DSQ_OFFLINE: i64, SCX_EV_DISPATCH_KEEP_LAST: i64,
        SCX_EV_ENQ_SKIP_EXITING: i64, SCX_EV_ENQ_SKIP_MIGRATION_DISABLED: i64, SCX_EV_REFILL_SLICE_DFL: i64,
        SCX_EV_BYPASS_DURATION: i64, SCX_EV_BYPASS_DISPATCH: i64, SCX_EV_BYPASS_ACTIVATE: i64,
    }
}

const _: () = assert!(size_of::<TaskStruct>() == 192 && size_of::<TaskRest>() == 128);

/// Look a structure up by its kernel name.
pub fn find(name: &str) -> Option<&'static StructDesc> {
    STRUCTS.iter().find(|s| s.name == name)
}
