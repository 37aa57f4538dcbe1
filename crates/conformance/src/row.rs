// SPDX-License-Identifier: GPL-2.0-only
//! A row of the checklist as data: a cast of threads, what they do, and what the recorder does to them.

/// One of the threads, `'A'` to `'O'`.
pub type Label = char;

/// One of the row's cgroups, by its place in [`Row::groups`]: `vm0`, `vm1`.
pub type Group = u32;

/// A cgroup below `machine.slice`, as it is before the recorder is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// `cpu.weight`.
    pub weight: u32,
    /// First number of `cpu.max`, in microseconds per [`PERIOD_US`]; none = no limit.
    pub quota_us: Option<u64>,
}

/// Period of `cpu.max` if no step says otherwise, in microseconds.
pub const PERIOD_US: u64 = 100_000;

/// What a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Do {
    /// Run for so many microseconds.
    Burn(u64),
    /// Take from its own semaphore; sleep until there is something.
    Wait,
    /// Put into that thread's semaphore, waking it if it waits.
    Post(Label),
    /// Sleep so many microseconds.
    Sleep(u64),
    Yield,
    /// Own nice value.
    Nice(i32),
    /// Own CPUs.
    Affinity(&'static [u32]),
    /// Nice value and CPUs of another member, whatever it is doing.
    NiceOf(Label, i32),
    AffinityOf(Label, &'static [u32]),
    /// Nice value of another member so many microseconds from now, while another CPU waits for it in a callback
    /// ([`Act::Await`]). In the simulator callbacks take no time: it happens when the callback waits for it.
    NiceDuring(Label, i32, u64),
    /// Wait for the end of this (forked) member: it wakes us in the middle of its exit.
    Join(Label),
    /// Leave sched_ext (false) or join it (true).
    Ext(bool),
    /// Start this member of the cast (which must be marked [`Actor::forked`]).
    Fork(Label),
    Exit,
    /// Take a CPU off or on line (the director only; it sleeps and posts besides).
    Online(u32, bool),
    /// Write to a cgroup's `cpu.weight`.
    Weight(Group, u32),
    /// Write to a cgroup's `cpu.max`: quota and period in microseconds; none = `max`.
    Limit(Group, Option<u64>, u64),
    /// Write to a cgroup's `cpu.max.burst`, in microseconds.
    Burst(Group, u64),
    /// Write to a cgroup's `cpu.idle`.
    Idle(Group, bool),
    /// Go to this cgroup.
    Enter(Group),
    /// Move another member to this cgroup, whatever it is doing.
    Send(Label, Group),
    /// Move all threads of the process to this cgroup in one go: the director, then the members in their order.
    SendAll(Group),
    /// A step about cgroups that must be refused with this error number, and change nothing.
    Refused(Box<Do>, i32),
}

/// A member of the cast. Every one that is not forked is asleep on its semaphore when the row begins:
/// somebody has to [`Do::Post`] it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub label: Label,
    /// Member of sched_ext (else of the fair class, which is above it).
    pub ext: bool,
    /// CPUs it may use at first; empty = all.
    pub cpus: &'static [u32],
    pub nice: i32,
    /// It does not exist before another one forks it.
    pub forked: bool,
    /// Where it is when the row begins; none: the root.
    pub group: Option<Group>,
    pub steps: Vec<Do>,
}

/// Callbacks and other entries of the recorder's log; numbers as in `recorder.bpf.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Op {
    SelectCpu = 1,
    Enqueue,
    Dequeue,
    Dispatch,
    Tick,
    Runnable,
    Running,
    Stopping,
    Quiescent,
    SetWeight,
    SetCpumask,
    UpdateIdle,
    CpuAcquire,
    CpuRelease,
    InitTask,
    ExitTask,
    Enable,
    Disable,
    Timer,
    Note,
    Exit,
    CgroupInit,
    CgroupExit,
    CgroupPrepMove,
    CgroupMove,
    CgroupCancelMove,
    CgroupSetWeight,
    CgroupSetBandwidth,
    CgroupSetIdle,
}

impl Op {
    pub const ALL: [(Op, &'static str); 29] = [
        (Op::SelectCpu, "select_cpu"),
        (Op::Enqueue, "enqueue"),
        (Op::Dequeue, "dequeue"),
        (Op::Dispatch, "dispatch"),
        (Op::Tick, "tick"),
        (Op::Runnable, "runnable"),
        (Op::Running, "running"),
        (Op::Stopping, "stopping"),
        (Op::Quiescent, "quiescent"),
        (Op::SetWeight, "set_weight"),
        (Op::SetCpumask, "set_cpumask"),
        (Op::UpdateIdle, "update_idle"),
        (Op::CpuAcquire, "cpu_acquire"),
        (Op::CpuRelease, "cpu_release"),
        (Op::InitTask, "init_task"),
        (Op::ExitTask, "exit_task"),
        (Op::Enable, "enable"),
        (Op::Disable, "disable"),
        (Op::Timer, "timer"),
        (Op::Note, "note"),
        (Op::Exit, "exit"),
        (Op::CgroupInit, "cgroup_init"),
        (Op::CgroupExit, "cgroup_exit"),
        (Op::CgroupPrepMove, "cgroup_prep_move"),
        (Op::CgroupMove, "cgroup_move"),
        (Op::CgroupCancelMove, "cgroup_cancel_move"),
        (Op::CgroupSetWeight, "cgroup_set_weight"),
        (Op::CgroupSetBandwidth, "cgroup_set_bandwidth"),
        (Op::CgroupSetIdle, "cgroup_set_idle"),
    ];

    pub fn from_number(n: u16) -> Option<Op> {
        Op::ALL.iter().map(|(op, _)| *op).find(|op| *op as u16 == n)
    }

    pub fn name(self) -> &'static str {
        Op::ALL[self as usize - 1].1
    }
}

/// Queue numbers. `LOCAL_ON + cpu` is another CPU's local queue.
pub const LOCAL: u64 = (1 << 63) | 2;
pub const GLOBAL: u64 = (1 << 63) | 1;
pub const LOCAL_ON: u64 = (1 << 63) | (1 << 62);
/// Where the recorder puts what no rule speaks of.
pub const QUEUE: u64 = 1;
/// Default and endless slice.
pub const SLICE_DFL: u64 = 20_000_000;
pub const SLICE_INF: u64 = u64::MAX;
/// Flags of an insert, as bits of our own (the kernel's differ between versions).
pub const HEAD: u64 = 2;
pub const PREEMPT: u64 = 4;
/// Flags of a kick, and of the choice of a CPU on a node.
pub const KICK_IDLE: u64 = 1;
pub const KICK_PREEMPT: u64 = 2;
pub const KICK_WAIT: u64 = 4;
pub const PICK_IN_NODE: u64 = 2;

/// What a rule does; see `enum action` of the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Insert { queue: u64, slice: u64, flags: u64 },
    InsertVtime { queue: u64, slice: u64, vtime: u64 },
    Hold,
    Release { who: Label, queue: u64, slice: u64 },
    Move { queue: u64 },
    Kick { cpu: u64, flags: u64 },
    Default { insert: bool },
    Return { cpu: u64 },
    Slice { ns: u64 },
    Note { queue: u64 },
    Claim { cpu: u64 },
    Pick { flags: u64 },
    Pull { who: Label, queue: u64, slice: u64 },
    Await { who: Label, enqueued: u64 },
    PickNode { node: u64, flags: u64 },
    NoteNode { node: u64 },
    Refuse { errno: i32 },
}

/// One rule of the recorder's script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub op: Op,
    /// `'*'`: whoever it is; `'-'`: nobody of the cast (in dispatch: prev is none of them).
    pub label: Label,
    /// Which call, from 1; 0 = each.
    pub nth: u8,
    pub act: Act,
}

/// A label as the recorder numbers them: 1 for `'A'`.
pub fn label_number(label: Label) -> u8 {
    (label as u8).wrapping_sub(b'A').wrapping_add(1) & 15
}

impl Rule {
    /// `struct rule` of the recorder.
    pub fn bytes(&self) -> [u8; 40] {
        let (action, [a, b, c, d]) = match self.act {
            Act::Insert {
                queue,
                slice,
                flags,
            } => (1, [queue, slice, flags, 0]),
            Act::InsertVtime {
                queue,
                slice,
                vtime,
            } => (2, [queue, slice, 0, vtime]),
            Act::Hold => (3, [0; 4]),
            Act::Release { who, queue, slice } => (4, [queue, slice, 0, label_number(who).into()]),
            Act::Move { queue } => (5, [queue, 0, 0, 0]),
            Act::Kick { cpu, flags } => (6, [cpu, flags, 0, 0]),
            Act::Default { insert } => (7, [0, insert.into(), 0, 0]),
            Act::Return { cpu } => (8, [cpu, 0, 0, 0]),
            Act::Slice { ns } => (9, [ns, 0, 0, 0]),
            Act::Note { queue } => (10, [queue, 0, 0, 0]),
            Act::Claim { cpu } => (11, [cpu, 0, 0, 0]),
            Act::Pick { flags } => (12, [flags, 0, 0, 0]),
            Act::Pull { who, queue, slice } => (13, [queue, slice, 0, label_number(who).into()]),
            Act::Await { who, enqueued } => (14, [enqueued, 0, 0, label_number(who).into()]),
            Act::PickNode { node, flags } => (15, [node, flags, 0, 0]),
            Act::NoteNode { node } => (16, [node, 0, 0, 0]),
            Act::Refuse { errno } => (17, [errno as u64, 0, 0, 0]),
        };
        let mut bytes = [0; 40];
        bytes[..4].copy_from_slice(&[
            self.op as u8,
            match self.label {
                '*' => 0,
                '-' => 255,
                label => label_number(label),
            },
            self.nth,
            action,
        ]);
        for (i, x) in [a, b, c, d].into_iter().enumerate() {
            bytes[8 + 8 * i..16 + 8 * i].copy_from_slice(&x.to_le_bytes());
        }
        bytes
    }
}

/// Most rules the recorder has room for.
pub const MAX_RULES: usize = 32;

/// How two logs of a row are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The same sequence.
    Exact,
    /// The same sequence for each thread, and for each CPU.
    Partial,
}

/// What the machine of a row must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine {
    /// One package each.
    pub nodes: u32,
    /// In all.
    pub cores: u32,
    /// SMT threads per core.
    pub threads: u32,
}

impl Machine {
    pub fn cpus(self) -> u32 {
        self.cores * self.threads
    }

    /// `2x1` (cores x threads), `2x1n2` with two nodes.
    pub fn name(self) -> String {
        let nodes = if self.nodes == 1 {
            String::new()
        } else {
            format!("n{}", self.nodes)
        };
        format!("{}x{}{nodes}", self.cores, self.threads)
    }
}

/// A bound on the time between two entries of the log, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// From the `nth` (from 1) entry of this op and label ...
    pub from: (Op, Label, usize),
    /// ... to the next entry of this op and label.
    pub to: (Op, Label),
    pub at_least: u64,
    pub at_most: u64,
    /// The time must be a multiple of this, give or take [`Span::GRAIN`]; 0 = any.
    pub multiple_of: u64,
}

impl Span {
    /// Machines are busy for a moment before they log something; 0.2 ms.
    pub const GRAIN: u64 = 200_000;
}

/// One case of the checklist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Row number of the checklist and a word: `01-expired`.
    pub name: &'static str,
    /// The rule, as one sentence.
    pub title: &'static str,
    /// Which scheduler of the recorder.
    pub ops: &'static str,
    pub machine: Machine,
    /// The cgroups besides the root and `machine.slice`; none: the policy's threads are all in the root.
    pub groups: Vec<GroupSpec>,
    pub cast: Vec<Actor>,
    /// What the director does (a fair thread, bound to this CPU): it starts the others.
    pub director_cpu: u32,
    pub director: Vec<Do>,
    pub rules: Vec<Rule>,
    /// Slice of threads no rule speaks of, in nanoseconds.
    pub slice_ns: u64,
    /// Time from the director's last step to the end of the row, in microseconds.
    pub run_us: u64,
    /// The kernel is expected to eject the scheduler for what it does in this call: the log ends there.
    pub ejects: Option<(Op, Label)>,
    /// Or it is expected to refuse to load it, naming this function.
    pub refused_for: Option<&'static str>,
    /// How long an interrupt to another CPU takes in the simulator, ns: long where a row is about waiting for one.
    pub ipi_ns: u64,
    pub order: Order,
    /// Callbacks left out of the comparison.
    pub hide: Vec<Op>,
    /// Times that must hold in both worlds.
    pub spans: Vec<Span>,
    /// Two CPUs that the row cannot tell apart: which of them comes first depends on the machine's past.
    pub twins: Option<(u16, u16)>,
    /// Counters of the kernel's events file whose growth during the row is compared.
    pub counts: Vec<&'static str>,
    /// The log begins when the recorder is loaded, not when the director begins.
    pub since_load: bool,
}
