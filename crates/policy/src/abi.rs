// SPDX-License-Identifier: GPL-2.0-only
//! What translated code, interpreter and runtime share. The C side of these layouts is `rt.h`;
//! `rt.h` and this file change together (offsets are asserted on both sides).
use std::ffi::c_void;

/// A helper or kfunc as the policy calls it: five 64-bit arguments, one result.
pub type KernelFn = unsafe extern "C" fn(*mut Inst, u64, u64, u64, u64, u64) -> u64;
/// A translated BPF function (r1..r5).
pub type NativeFn = unsafe extern "C" fn(*mut Inst, u64, u64, u64, u64, u64) -> u64;

/// One policy on one machine, as seen by translated code. Hot fields only; the rest is `Instance`'s.
#[repr(C)]
pub struct Inst {
    /// BPF instructions executed so far: the deterministic cost of the policy.
    pub insns: u64,
    /// Execution past this count traps (a callback that never returns).
    pub insns_limit: u64,
    /// `scx_bpf_now()`: run-queue clock, constant within one scheduling pass, ns.
    pub now: u64,
    /// `bpf_ktime_get_ns()`, ns.
    pub ktime: u64,
    /// CPU that executes the callback.
    pub cpu: u32,
    /// [`Op`] being executed, for context rules.
    pub op: u32,
    /// The simulated machine; opaque here.
    pub machine: *mut c_void,
    /// Indexed by [`crate::table::KernelFunc::id`].
    pub fns: *const KernelFn,
    /// Data section bases, indexed by [`crate::ir::SectionId`].
    pub sec: *const *mut u8,
    /// Indexed by [`crate::ir::MapId`].
    pub map: *mut Map,
    /// Translated functions, indexed by [`crate::ir::FuncId`]: callbacks go through it.
    pub code: *const NativeFn,
    /// CPUs of the machine: bits of a mask.
    pub nr_cpus: u32,
    /// What guarded code asks before it touches memory; null for code that is not.
    pub guard: *mut Guard,
}

/// A piece of memory: eight bytes at least, so that no access is wider.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start: u64,
    pub size: u64,
}

impl Span {
    /// Where no program has memory.
    pub const NONE: Span = Span {
        start: 1 << 62,
        size: 8,
    };

    pub fn has(&self, address: u64, bytes: u32) -> bool {
        let offset = address.wrapping_sub(self.start);
        offset < self.size && self.size - offset >= u64::from(bytes)
    }
}

/// Places of a guard, for reads and for writes each.
pub const PLACES: usize = 64;
/// Addresses that differ in this many of the last bits have the same place.
pub const PLACE_BITS: u32 = 8;

/// What guarded code (`emit::Guarding::Guarded`) sees of its instance's guard: see [`crate::guard`].
#[repr(C)]
#[derive(Debug)]
pub struct Guard {
    /// Memory that was found to be the policy's own: what may be read, what may be written. An address is looked for
    /// at one place only ([`Guard::place`]), so that it costs the same however much memory there is.
    pub places: [[Span; PLACES]; 2],
    /// Where the stacks are, and the arguments of the call, which may be read.
    pub stacks: Span,
    pub arguments: Span,
    /// Stacks of BPF functions, one above the other.
    pub stack: *mut u8,
    /// Those in use, and how many may be.
    pub frames: u32,
    pub most_frames: u32,
    /// May these bytes not be touched? (address, size, write)
    pub refuses: unsafe extern "C" fn(*mut Inst, u64, u32, u32) -> u32,
    /// Would this kernel function, with these arguments, touch what may not be? Then `refused` says what.
    pub refuses_call: unsafe extern "C" fn(*mut Inst, u32, *const u64) -> u32,
    /// Address, and whether it would have been written.
    pub refused: [u64; 2],
}

impl Guard {
    /// Where an address is looked for.
    pub fn place(address: u64) -> usize {
        (address >> PLACE_BITS) as usize % PLACES
    }
}

/// A map as translated code sees it: enough for inline lookups.
#[repr(C)]
#[derive(Debug)]
pub struct Map {
    /// ARRAY, PERCPU_ARRAY: first element. Storages: table of pointers to elements, null where there is none.
    pub data: *mut u8,
    /// Distance of two CPUs' copies, bytes; 0 if not per CPU.
    pub cpu_stride: u64,
    /// Of a storage: how many numbers its table covers now.
    pub max_entries: u32,
    /// BPF_MAP_TYPE_* number.
    pub kind: u32,
    pub key_size: u32,
    pub value_size: u32,
}

impl Map {
    /// Distance of two elements, bytes (value size rounded up to 8).
    pub fn stride(&self) -> u64 {
        u64::from(self.value_size).next_multiple_of(8)
    }
}

/// A BPF function as a *value* (timer, bpf_loop callbacks): `FUNC_TAG | FuncId`, the same in both executors.
pub const FUNC_TAG: u64 = 0xfbf0_0000_0000_0000;

/// Address of a kernel variable: `KSYM_TAG |` index into [`KSYMS`]; `bpf_per_cpu_ptr` follows it.
pub const KSYM_TAG: u64 = 0xfbf1_0000_0000_0000;
/// Kernel variables a policy may name.
pub const KSYMS: &[&str] = &["runqueues"];
/// A kfunc's address as a value, only ever compared with zero: `KFUNC_TAG |` id.
pub const KFUNC_TAG: u64 = 0xfbf2_0000_0000_0000;

macro_rules! ops {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// The operations of `struct sched_ext_ops`, and the other contexts in which policy code runs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Op { $($variant),* }
        impl Op {
            pub const ALL: &'static [Op] = &[$(Op::$variant),*];
            /// Member name in `struct sched_ext_ops` (or a name in brackets for other contexts).
            pub fn name(self) -> &'static str { match self { $(Op::$variant => $name),* } }
            pub fn from_name(name: &str) -> Option<Op> { Op::ALL.iter().copied().find(|o| o.name() == name) }
        }
    };
}
ops! {
    SelectCpu = "select_cpu", Enqueue = "enqueue", Dequeue = "dequeue", Dispatch = "dispatch", Tick = "tick",
    Runnable = "runnable", Running = "running", Stopping = "stopping", Quiescent = "quiescent", Yield = "yield",
    CoreSchedBefore = "core_sched_before", SetWeight = "set_weight", SetCpumask = "set_cpumask",
    UpdateIdle = "update_idle", CpuAcquire = "cpu_acquire", CpuRelease = "cpu_release", InitTask = "init_task",
    ExitTask = "exit_task", Enable = "enable", Disable = "disable", Dump = "dump", DumpCpu = "dump_cpu",
    DumpTask = "dump_task", CgroupInit = "cgroup_init", CgroupExit = "cgroup_exit",
    CgroupPrepMove = "cgroup_prep_move", CgroupMove = "cgroup_move", CgroupCancelMove = "cgroup_cancel_move",
    CgroupSetWeight = "cgroup_set_weight", CgroupSetBandwidth = "cgroup_set_bandwidth",
    CgroupSetIdle = "cgroup_set_idle", SubAttach = "sub_attach", SubDetach = "sub_detach",
    CpuOnline = "cpu_online", CpuOffline = "cpu_offline", Init = "init", Exit = "exit",
    Timer = "(timer)", Syscall = "(syscall)",
}

/// Why a callback did not return normally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trap {
    pub kind: TrapKind,
    /// BPF function and source position, where known (always in checked mode).
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrapKind {
    /// Load or store outside everything the policy may touch. `address` 0..4096 = NULL.
    BadAccess {
        address: u64,
        size: u32,
        write: bool,
    },
    /// The instruction budget of one callback ran out.
    Budget { insns: u64 },
    /// Functions of the policy called each other too deeply.
    CallDepth { frames: u32 },
    /// Execution reached something that cannot be run; loading a policy normally refuses it first.
    Unrunnable { what: String },
}
