// SPDX-License-Identifier: GPL-2.0-only
//! A kernel that only remembers what it was asked: enough to run policies' callbacks without a simulator.
use berth_policy::abi::{Inst, KernelFn};
use berth_policy::instance::{Instance, KernelVtable};
use berth_policy::kview::{
    Cgroup, CssSet, KernfsNode, MmStruct, ScxCgroupInitArgs, ScxExitTaskArgs, ScxInitTaskArgs,
    SignalStruct, TaskGroup, TaskRest, TaskStruct,
};
use berth_policy::table::{FUNCS, Home};
use std::ffi::c_void;
use std::sync::LazyLock;

pub const NR_CPUS: usize = 8;
const TASKS: usize = 6;

/// One call: name and arguments; addresses of this process are written as 1 (they differ from run to run).
pub type Call = (&'static str, [u64; 5]);

/// All of a task.
#[derive(Default)]
#[repr(C)]
pub struct Task {
    front: TaskStruct,
    rest: TaskRest,
}

/// Objects at fixed places for the life of the machine.
pub struct Machine {
    pub tasks: Box<[Task]>,
    pub cgroups: Box<[Cgroup]>,
    mask: Box<[u64; 64]>,
    others: Box<Others>,
    pub log: Vec<Call>,
    counter: u64,
    /// Steps of iterators.
    walked: u64,
}

#[derive(Default)]
struct Others {
    signal: SignalStruct,
    mm: MmStruct,
    css_set: CssSet,
    group: TaskGroup,
    node: KernfsNode,
    init: ScxInitTaskArgs,
    exit: ScxExitTaskArgs,
    cgroup: ScxCgroupInitArgs,
}

impl Machine {
    pub fn new() -> Box<Machine> {
        let mut m = Box::new(Machine {
            tasks: (0..TASKS).map(|_| Task::default()).collect(),
            cgroups: (0..2).map(|_| Cgroup::default()).collect(),
            mask: Box::new([0; 64]),
            others: Box::default(),
            log: Vec::new(),
            counter: 0,
            walked: 0,
        });
        m.mask[0] = 0xb5;
        let mask: *const _ = m.mask.as_ptr().cast();
        m.others.node.id = 1;
        m.others.css_set.dfl_cgrp = &raw mut m.cgroups[1];
        let (node, signal, mm) = (
            &raw mut m.others.node,
            &raw mut m.others.signal,
            &raw mut m.others.mm,
        );
        let (css_set, group) = (&raw mut m.others.css_set, &raw mut m.others.group);
        for (i, c) in m.cgroups.iter_mut().enumerate() {
            c.berth_index = i as u32;
            c.level = i as i32;
            c.kn = node;
            c.self_css.cgroup = &raw mut *c;
        }
        let parent = &raw mut m.tasks[0].front;
        for (i, task) in m.tasks.iter_mut().enumerate() {
            let (t, rest) = (&mut task.front, &mut task.rest);
            t.berth_index = i as u32;
            t.pid = 100 + i as i32;
            rest.tgid = 100;
            t.nr_cpus_allowed = if i == 4 { 1 } else { NR_CPUS as i32 };
            t.flags = if i == 5 { 0x0020_0000 } else { 0 };
            t.cpus_ptr = mask;
            t.scx.weight = 100 + 50 * i as u32;
            t.scx.slice = 20_000_000;
            t.scx.dsq_vtime = 1_000_000 * i as u64;
            t.comm[..4].copy_from_slice(b"task");
            rest.mm = mm;
            rest.signal = signal;
            rest.cgroups = css_set;
            rest.sched_task_group = group;
            (rest.real_parent, rest.parent, rest.group_leader) = (parent, parent, parent);
        }
        m
    }

    pub fn task(&mut self, i: usize) -> u64 {
        (&raw mut self.tasks[i]) as u64
    }

    pub fn cgroup(&mut self, i: usize) -> u64 {
        (&raw mut self.cgroups[i]) as u64
    }

    pub fn mask(&mut self) -> u64 {
        self.mask.as_mut_ptr() as u64
    }

    /// Arguments of init_task, exit_task, cgroup_init.
    pub fn arguments(&mut self) -> [u64; 3] {
        self.others.init.cgroup = &raw mut self.cgroups[1];
        self.others.cgroup.weight = 100;
        [
            (&raw const self.others.init) as u64,
            (&raw const self.others.exit) as u64,
            (&raw const self.others.cgroup) as u64,
        ]
    }

    fn owns(&self, address: u64, size: u32) -> bool {
        let inside = |start: *const c_void, len: usize| {
            let start = start as u64;
            address >= start && address + u64::from(size) <= start + len as u64
        };
        inside(
            self.tasks.as_ptr().cast(),
            std::mem::size_of_val(&*self.tasks),
        ) || inside(
            self.cgroups.as_ptr().cast(),
            std::mem::size_of_val(&*self.cgroups),
        ) || inside(self.mask.as_ptr().cast(), 512)
            || inside((&raw const *self.others).cast(), size_of::<Others>())
    }

    /// Answer a call the way a busy machine might: numbers from a counter, objects in turn.
    fn answer(&mut self, name: &'static str, args: [u64; 5]) -> u64 {
        self.log.push((name, args.map(hide_address)));
        self.counter += 1;
        let n = self.counter;
        if name.contains("cpumask") || name.contains("smtmask") {
            return self.mask();
        }
        if name.ends_with("_next") {
            // By a count of their own: whatever else is called in between, a walk ends.
            self.walked += 1;
            return if self.walked.is_multiple_of(4) {
                0
            } else {
                self.task(n as usize % TASKS)
            };
        }
        if name.starts_with("bpf_timer") || name.ends_with("create_dsq") || name.ends_with("_new") {
            return 0;
        }
        if FUNCS
            .iter()
            .any(|f| f.name == name && f.proto.starts_with("struct task_struct"))
        {
            return self.task(n as usize % TASKS);
        }
        if FUNCS
            .iter()
            .any(|f| f.name == name && f.proto.starts_with("struct cgroup"))
        {
            return self.cgroup(1);
        }
        match name {
            "scx_bpf_nr_cpu_ids" => NR_CPUS as u64,
            "scx_bpf_nr_node_ids" => 1,
            "scx_bpf_cpu_node" => 0,
            "scx_bpf_cpu_rq" | "scx_bpf_locked_rq" | "bpf_per_cpu_ptr" | "bpf_this_cpu_ptr" => 0,
            "bpf_get_current_task" => self.task(0),
            "scx_bpf_select_cpu_dfl" => {
                // SAFETY: `bool *is_idle` on the policy's stack.
                unsafe { (args[3] as *mut u8).write(u8::from(n.is_multiple_of(2))) };
                n % NR_CPUS as u64
            }
            _ => n % NR_CPUS as u64,
        }
    }
}

/// User-space addresses of this process; numbers a policy passes are smaller, queue ids larger.
fn hide_address(value: u64) -> u64 {
    if (0x1000_0000_0000..0x8000_0000_0000).contains(&value) {
        1
    } else {
        value
    }
}

unsafe extern "C" fn kernel<const ID: usize>(
    inst: *mut Inst,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
) -> u64 {
    // SAFETY: the tests set the machine.
    let machine = unsafe { &mut *(*inst).machine.cast::<Machine>() };
    let row = &FUNCS[ID];
    // Registers beyond the parameters hold anything.
    let mut args = [a, b, c, d, e];
    args[row.parameters()..].fill(0);
    machine.answer(row.name, args)
}

macro_rules! by_hundred {
    ($($hundred:literal)*) => { &[$(
        by_ten!($hundred 0 1 2 3 4 5 6 7 8 9)
    ),*] };
}
macro_rules! by_ten {
    ($h:literal $($ten:literal)*) => { [$( by_one!($h $ten 0 1 2 3 4 5 6 7 8 9) ),*] };
}
macro_rules! by_one {
    ($h:literal $t:literal $($one:literal)*) => { [$( kernel::<{ $h * 100 + $t * 10 + $one }> as KernelFn ),*] };
}
static STUBS: &[[[KernelFn; 10]; 10]] = by_hundred!(0 1 2);

pub unsafe fn may_access(machine: *mut c_void, address: u64, size: u32, _write: bool) -> bool {
    // SAFETY: the tests set the machine.
    unsafe { &*machine.cast::<Machine>() }.owns(address, size)
}

/// The tasks, if an address lies among them.
pub unsafe fn piece(machine: *mut c_void, address: u64) -> Option<(u64, u64)> {
    // SAFETY: the tests set the machine.
    let tasks = unsafe { &(*machine.cast::<Machine>()).tasks };
    let start = tasks.as_ptr() as u64;
    let end = start + std::mem::size_of_val(&**tasks) as u64;
    (start..end).contains(&address).then_some((start, end))
}

pub static VTABLE: LazyLock<KernelVtable> = LazyLock::new(|| {
    let list: Vec<_> = FUNCS
        .iter()
        .enumerate()
        .filter(|(_, f)| f.home == Home::Kernel)
        .map(|(i, f)| (f.name, STUBS[i / 100][i / 10 % 10][i % 10]))
        .collect();
    KernelVtable::new(&list)
        .unwrap()
        .with_memory(may_access)
        .with_pieces(piece)
});

/// Connect an instance with its machine.
pub fn attach(instance: &Instance, machine: &mut Machine) {
    instance.set_machine((&raw mut *machine).cast());
}
