// SPDX-License-Identifier: GPL-2.0-only
//! Tasks: what a policy sees of them (`task_struct`, at an address that never changes) and what only the
//! simulator knows (dense and small, so that the hot part stays in cache).
use super::mask::MaskId;
use crate::dense::Dense;
use crate::words::{Nanos, SchedClass, TaskId};
use berth_policy::kview::{self, TaskRest, TaskStruct};
use berth_policy::needs::Needs;
use std::alloc::Layout;

/// "No task", "no queue" in 32-bit links.
pub const NONE: u32 = u32::MAX;
/// No dispatch queue (`SCX_DSQ_INVALID`).
pub const NO_DSQ: u64 = 1 << 63;
/// Demand without end.
pub const ENDLESS: Nanos = u64::MAX;
/// Demand until released: the task spins.
pub const SPINNING: Nanos = u64::MAX - 1;

/// Mark of a task: it is the thread of a vCPU whose guest is simulated.
pub const MARK_VCPU: u8 = 1;
/// Mark of a task: its timer is due, but the CPU has not taken the interrupt yet.
pub const MARK_LATE: u8 = 2;

/// Whether a task can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The slot of this number is free.
    Free,
    /// Asleep (or not yet started).
    Asleep,
    /// Runnable or running.
    Runnable,
    /// Has exited; its number is freed after the last callback.
    Dead,
}

/// Whether a task stands in a run queue, and what it did before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// It runs or sleeps.
    No,
    /// It slept.
    Woken,
    /// It was preempted, or has just been born.
    Ready,
}

/// What a task meets when it next runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    None,
    /// Its VM is frozen: it stops.
    Freezer,
    /// It has stopped there, or would have woken: it runs when its VM is thawed.
    Stopped,
    /// It was killed: it exits.
    Kill,
}

/// Ownership of a task between kernel and policy (`scx_ops_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpsState {
    /// The kernel's.
    None,
    /// ops.enqueue is being called for it.
    Queueing,
    /// The policy's.
    Queued,
}

/// What only the simulator knows of a task: two cache lines.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct TaskHot {
    /// Links in a FIFO queue, in a higher class's queue or in the list of deferred inserts.
    pub next: u32,
    pub prev: u32,
    /// Dispatch queue it is on, by index.
    pub dsq: u32,
    /// When it was put there, in that queue's own count.
    pub dsq_seq: u32,
    /// It is in the ordered part of the queue, under this key.
    pub on_priq: bool,
    pub key: u64,
    /// It waits for the run-queue lock to be dropped (insert to another CPU's local queue).
    pub deferred: bool,
    pub migrating: bool,
    pub life: Life,
    pub class: SchedClass,
    pub ops_state: OpsState,
    /// Number of the enqueue that gave it to the policy.
    pub qseq: u64,
    /// Direct dispatch asked for: queue id and flags; [`NO_DSQ`] = none.
    pub ddsp_dsq: u64,
    pub ddsp_flags: u64,
    /// CPU whose run queue it belongs to, and the CPU it last ran on (`NONE` = never ran).
    pub cpu: u32,
    pub last_cpu: u32,
    /// Destination of an internal migration.
    pub sticky_cpu: i32,
    pub mask: MaskId,
    pub nice: i8,
    /// CPU time still asked for by the workload.
    pub remaining: Nanos,
    /// Since when it waits in a queue (or is stopped by the freezer), and whether and how: then it is counted on its
    /// run queue's CPU.
    pub queued_at: Nanos,
    pub waits: Waits,
    /// Position in the run queue's list of runnable tasks.
    pub runnable_seq: u64,
    pub trap: Trap,
    /// The policy's init_task has been called, and its enable.
    pub inited: bool,
    pub enabled: bool,
    /// See [`MARK_VCPU`], [`MARK_LATE`].
    pub mark: u8,
    /// Instant actions in a row.
    pub instant: u32,
    /// Index of its VM's statistics (the host's own threads have one too).
    pub stats: u32,
    /// Its timer.
    pub slot: u32,
    pub token: u32,
    pub cgroup: u32,
    /// CPU time it has had.
    pub runtime: Nanos,
}

impl TaskHot {
    /// It waits in a queue and is bound to no CPUs.
    #[inline]
    pub fn could_run_anywhere(&self) -> bool {
        self.waits != Waits::No && self.mask == MaskId::ALL
    }
}

const _: () = assert!(size_of::<TaskHot>() == 128);

/// All tasks of a machine. Numbers begin with the idle tasks, one per CPU.
#[derive(Debug)]
pub struct TaskTable {
    /// What of a task there is.
    needs: Needs,
    ptrs: Dense<*mut TaskStruct>,
    pub hot: Dense<TaskHot>,
    book: Box<Book>,
}

/// What no event asks.
#[derive(Debug, Default)]
struct Book {
    chunks: Vec<Chunk>,
    /// Full names, for people (`comm` holds 15 bytes).
    names: Vec<Box<str>>,
    free: Vec<TaskId>,
}

/// Structures in one piece.
#[derive(Debug)]
struct Chunk {
    base: *mut u8,
    /// Bytes of all of them.
    layout: Layout,
    /// Number of the task with the first one.
    first: TaskId,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `add_chunk`.
        unsafe { std::alloc::dealloc(self.base, self.layout) };
    }
}

/// Bytes of a task's structure if a policy reaches all of it.
const WHOLE: usize = size_of::<TaskStruct>() + size_of::<TaskRest>();
/// If it does not.
const FRONT: usize = size_of::<TaskStruct>();

impl TaskTable {
    /// Room for the idle tasks of this many CPUs and for this many other tasks in one piece (more are added in further
    /// pieces). Idle tasks that no policy reaches have one structure between them.
    pub fn new(nr_cpus: u32, expected: usize, needs: Needs) -> Self {
        let (cpus, others) = (nr_cpus as usize, expected.max(4));
        let mut table = TaskTable {
            needs,
            ptrs: Dense::default(),
            hot: Dense::default(),
            book: Box::default(),
        };
        table.book.chunks.reserve_exact(1);
        table.ptrs.reserve_exact(cpus + others);
        table.hot.reserve_exact(cpus + others);
        let shared = if needs.idle_tasks {
            0
        } else {
            cpus.saturating_sub(1)
        };
        table.add_chunk(shared, cpus - shared + others);
        table
    }

    /// `len` more structures; the first of them also stands for `shared` tasks with smaller numbers.
    fn add_chunk(&mut self, shared: usize, len: usize) {
        let first = self.ptrs.len() + shared;
        let layout = Layout::from_size_align(len * self.stride(), align_of::<TaskStruct>());
        let Ok(layout) = layout else {
            panic!("{len} more tasks do not fit into memory");
        };
        // SAFETY: of some size.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        if base.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        let stride = self.stride();
        self.book.chunks.push(Chunk {
            base,
            layout,
            first: first as TaskId,
        });
        // SAFETY: within the memory just made.
        let at = |i: usize| unsafe { base.add(i * stride) }.cast::<TaskStruct>();
        self.ptrs.extend((0..shared).map(|_| at(0)));
        self.ptrs.extend((0..len).map(at));
    }

    /// What of a task there is.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// Bytes from one structure to the next.
    #[inline]
    pub fn stride(&self) -> usize {
        if self.needs.whole_tasks { WHOLE } else { FRONT }
    }

    /// A free number, lowest first at the beginning, else the one freed last; all fields as after boot.
    pub fn alloc(&mut self) -> TaskId {
        let id = self.book.free.pop().unwrap_or_else(|| {
            let id = self.hot.len() as TaskId;
            if self.hot.len() == self.ptrs.len() {
                self.add_chunk(0, self.ptrs.len());
            }
            self.hot.push(blank());
            id
        });
        self.hot[id as usize] = blank();
        // SAFETY: a live element; nobody else refers to it yet.
        unsafe { *self.ptr(id) = TaskStruct::default() };
        if let Some(rest) = self.rest(id) {
            *rest = TaskRest::default();
        }
        self.ts(id).berth_index = id;
        id
    }

    /// Say what a task is called. A name that fits into `comm` is kept there only.
    pub fn set_name(&mut self, id: TaskId, name: &str) {
        let id = id as usize;
        if name.len() < 16 && self.book.names.get(id).is_none_or(|n| n.is_empty()) {
            return;
        }
        if self.book.names.len() <= id {
            self.book.names.resize(id + 1, Box::default());
        }
        self.book.names[id] = name.into();
    }

    /// What a task is called; its `comm` if nobody has said.
    pub fn name(&self, id: TaskId) -> String {
        match self.book.names.get(id as usize) {
            Some(name) if !name.is_empty() => name.to_string(),
            _ => comm(self.ts(id)),
        }
    }

    pub fn release(&mut self, id: TaskId) {
        self.hot[id as usize].life = Life::Free;
        self.book.free.push(id);
    }

    /// Number of task numbers in use or freed.
    pub fn len(&self) -> usize {
        self.hot.len()
    }

    pub fn is_empty(&self) -> bool {
        self.hot.is_empty()
    }

    /// The policy's view of a task, as an address.
    #[inline]
    pub fn ptr(&self, id: TaskId) -> *mut TaskStruct {
        self.ptrs[id as usize]
    }

    /// The policy's view of a task. Short use only: not while policy code runs, not across another `ts` of the
    /// same task, not beyond the table (hence not public).
    #[inline]
    #[allow(clippy::mut_from_ref)] // the structures are reached through raw pointers, as by the policy
    pub(crate) fn ts<'a>(&self, id: TaskId) -> &'a mut TaskStruct {
        let p = self.ptrs[id as usize];
        // SAFETY: `ptrs` are live elements as long as the table is; see above for the callers' part.
        unsafe { &mut *p }
    }

    /// The rest of the policy's view of a task, if the policy can reach it. As [`TaskTable::ts`].
    #[inline]
    #[allow(clippy::mut_from_ref)] // as `ts`
    pub(crate) fn rest<'a>(&self, id: TaskId) -> Option<&'a mut TaskRest> {
        if !self.needs.whole_tasks {
            return None;
        }
        let front = self.ptrs[id as usize];
        // SAFETY: as `ts`; the rest follows the front.
        Some(unsafe { &mut *front.add(1).cast::<TaskRest>() })
    }

    /// Is this the task at an address that a policy gave us?
    #[inline(always)]
    pub fn is_at(&self, id: TaskId, addr: u64) -> bool {
        self.ptr(id) as u64 == addr && self.hot[id as usize].life != Life::Free
    }

    /// The task at an address that a policy gave us, if there is one.
    #[inline]
    pub fn find(&self, addr: u64) -> Option<TaskId> {
        for c in &self.book.chunks {
            let offset = (addr as usize).wrapping_sub(c.base as usize);
            if offset < c.layout.size() {
                // By a constant, which takes no division.
                let (place, size) = if self.needs.whole_tasks {
                    (offset / WHOLE, WHOLE)
                } else {
                    (offset / FRONT, FRONT)
                };
                let id = c.first + place as TaskId;
                let live = place * size == offset
                    && (id as usize) < self.hot.len()
                    && self.hot[id as usize].life != Life::Free;
                return live.then_some(id);
            }
        }
        None
    }

    /// Address ranges of the structures, for access checks.
    pub fn regions(&self) -> impl Iterator<Item = (*const u8, usize)> + '_ {
        self.book
            .chunks
            .iter()
            .map(|c| (c.base.cast_const(), c.layout.size()))
    }
}

fn blank() -> TaskHot {
    TaskHot {
        next: NONE,
        prev: NONE,
        dsq: NONE,
        dsq_seq: 0,
        on_priq: false,
        key: 0,
        deferred: false,
        migrating: false,
        life: Life::Asleep,
        class: SchedClass::Ext,
        ops_state: OpsState::None,
        qseq: 0,
        ddsp_dsq: NO_DSQ,
        ddsp_flags: 0,
        cpu: 0,
        last_cpu: NONE,
        sticky_cpu: -1,
        mask: MaskId::ALL,
        nice: 0,
        remaining: 0,
        queued_at: 0,
        waits: Waits::No,
        runnable_seq: 0,
        trap: Trap::None,
        inited: false,
        enabled: false,
        mark: 0,
        instant: 0,
        stats: 0,
        slot: NONE,
        token: 0,
        cgroup: 0,
        runtime: 0,
    }
}

/// Load weight of a nice level (each step is a factor of about 1.25; nice 0 = 1024), as Linux tabulates it.
pub fn nice_to_load(nice: i32) -> u64 {
    const TABLE: [u64; 40] = [
        88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100,
        4904, 3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172,
        137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
    ];
    TABLE[(nice.clamp(-20, 19) + 20) as usize]
}

/// The weight sched_ext shows for a nice level: 1..=10000, nice 0 = 100.
pub fn nice_to_weight(nice: i32) -> u32 {
    ((nice_to_load(nice) * 100 + 512) / 1024).clamp(1, 10000) as u32
}

/// `comm` of a task: at most 15 bytes and a zero.
pub fn set_comm(ts: &mut kview::TaskStruct, name: &str) {
    ts.comm = [0; 16];
    let mut end = name.len().min(15);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    ts.comm[..end].copy_from_slice(&name.as_bytes()[..end]);
}

/// `comm` as text.
pub fn comm(ts: &kview::TaskStruct) -> String {
    let end = ts.comm.iter().position(|b| *b == 0).unwrap_or(16);
    String::from_utf8_lossy(&ts.comm[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_back_to_numbers() {
        for whole_tasks in [true, false] {
            let needs = Needs {
                whole_tasks,
                idle_tasks: true,
            };
            let mut t = TaskTable::new(1, 16, needs);
            let ids: Vec<TaskId> = (0..40).map(|_| t.alloc()).collect();
            for id in &ids {
                assert_eq!(t.find(t.ptr(*id) as u64), Some(*id));
                assert_eq!(t.ts(*id).berth_index, *id);
                assert_eq!(t.rest(*id).is_some(), whole_tasks);
            }
            assert_eq!(t.find(t.ptr(3) as u64 + 8), None);
            assert_eq!(t.find(t.ptr(3) as u64 + 64), None);
            assert_eq!(t.find(0), None);
            t.release(3);
            assert_eq!(t.find(t.ptr(3) as u64), None);
            assert_eq!(t.alloc(), 3);
        }
    }

    #[test]
    fn idle_tasks_that_nobody_sees_share_a_structure() {
        let mut t = TaskTable::new(4, 4, Needs::default());
        let ids: Vec<TaskId> = (0..20).map(|_| t.alloc()).collect();
        assert!((1..4).all(|id| t.ptr(id) == t.ptr(0)));
        assert!(
            ids[4..]
                .iter()
                .all(|id| t.find(t.ptr(*id) as u64) == Some(*id))
        );
        let mut places: Vec<_> = ids[3..].iter().map(|id| t.ptr(*id)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 17);
        let bytes: usize = t.regions().map(|(_, bytes)| bytes).sum();
        assert_eq!(bytes, (5 + 8 + 16) * FRONT);
    }

    #[test]
    fn weights() {
        assert_eq!(nice_to_weight(0), 100);
        assert_eq!(nice_to_weight(-20), 8668);
        assert_eq!(nice_to_weight(19), 1);
        assert_eq!(nice_to_weight(5), 33);
    }

    #[test]
    fn names_are_cut_at_characters() {
        let mut t = TaskTable::new(0, 1, Needs::ALL);
        let id = t.alloc();
        set_comm(t.ts(id), "abcdefghijklmn\u{e9}xyz");
        assert_eq!(comm(t.ts(id)), "abcdefghijklmn");
    }
}
