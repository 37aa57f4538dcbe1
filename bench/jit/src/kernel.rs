// SPDX-License-Identifier: GPL-2.0-only
//! A kernel that costs next to nothing, so that what is measured is the policy.
use berth_policy::abi::{Inst, KernelFn};
use berth_policy::instance::KernelVtable;
use berth_policy::kview::{Cgroup, Cpumask, KernfsNode, ScxInitTaskArgs, TaskStruct};
use berth_policy::table::{FUNCS, Home};

pub const NR_CPUS: u32 = 8;

/// The kernel objects of one machine: one task.
pub struct Machine {
    pub task: Box<TaskStruct>,
    pub init_task: Box<ScxInitTaskArgs>,
    mask: Box<Cpumask>,
    cgroup: Box<Cgroup>,
    _node: Box<KernfsNode>,
}

impl Machine {
    pub fn new() -> Box<Machine> {
        let mut mask = Box::<Cpumask>::default();
        mask.bits[0] = (1 << NR_CPUS) - 1;
        let mut node = Box::new(KernfsNode {
            id: 1,
            ..KernfsNode::default()
        });
        let mut cgroup = Box::<Cgroup>::default();
        cgroup.kn = &raw mut *node;
        let mut task = Box::<TaskStruct>::default();
        task.nr_cpus_allowed = NR_CPUS as i32;
        task.cpus_ptr = &raw const *mask;
        task.pid = 100;
        task.scx.weight = 100;
        task.scx.slice = 3_000_000;
        let mut init_task = Box::<ScxInitTaskArgs>::default();
        init_task.cgroup = &raw mut *cgroup;
        Box::new(Machine {
            task,
            init_task,
            mask,
            cgroup,
            _node: node,
        })
    }
}

unsafe extern "C" fn nothing(_: *mut Inst, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    0
}

unsafe extern "C" fn one(_: *mut Inst, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    1
}

unsafe extern "C" fn first_argument(_: *mut Inst, a: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    a
}

/// The previous CPU, which is not idle.
unsafe extern "C" fn select_cpu(
    _: *mut Inst,
    _: u64,
    prev: u64,
    _: u64,
    is_idle: u64,
    _: u64,
) -> u64 {
    // SAFETY: `bool *` on the policy's stack.
    unsafe { (is_idle as *mut bool).write(false) };
    prev
}

unsafe extern "C" fn set_vtime(_: *mut Inst, task: u64, vtime: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: the machine's task.
    unsafe { (*(task as *mut TaskStruct)).scx.dsq_vtime = vtime };
    1
}

unsafe extern "C" fn mask(inst: *mut Inst, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: the benchmark sets the machine.
    unsafe { (&raw const *(*(*inst).machine.cast::<Machine>()).mask) as u64 }
}

unsafe extern "C" fn cgroup(inst: *mut Inst, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: the benchmark sets the machine.
    unsafe { (&raw const *(*(*inst).machine.cast::<Machine>()).cgroup) as u64 }
}

/// The table of kernel functions, for the life of the process.
pub fn table() -> &'static KernelVtable {
    let kernel = FUNCS.iter().filter(|f| f.home == Home::Kernel);
    let list: Vec<(&'static str, KernelFn)> = kernel
        .map(|f| {
            let code: KernelFn = match f.name {
                "scx_bpf_select_cpu_dfl" => select_cpu,
                "scx_bpf_task_set_dsq_vtime" => set_vtime,
                "scx_bpf_dsq_move_to_local" | "scx_bpf_dsq_move_to_local___v2" => one,
                "bpf_task_acquire" | "bpf_cgroup_acquire" => first_argument,
                name if name.contains("cpumask") || name.contains("smtmask") => mask,
                _ if f.proto.starts_with("struct cgroup *") => cgroup,
                _ => nothing,
            };
            (f.name, code)
        })
        .collect();
    Box::leak(Box::new(
        KernelVtable::new(&list).expect("every kernel function has a stub"),
    ))
}
