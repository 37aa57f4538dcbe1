// SPDX-License-Identifier: GPL-2.0-only
//! Models that are wrong on purpose: one per row of the conformance checklist. A test of a row is worth
//! something only if it rejects its mutation. Never set outside tests.

/// Are they compiled in? In optimised builds only with the feature `mutations`: asking takes 5 % of the time.
pub const MUTATIONS: bool = cfg!(any(debug_assertions, feature = "mutations"));

macro_rules! mutations {
    ($($(#[doc = $doc:literal])* $name:ident = $row:literal),* $(,)?) => {
        /// A deliberate mistake. The number in brackets is the checklist's row.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Mutation { $($(#[doc = $doc])* $name),* }
        impl Mutation {
            pub const ALL: &'static [Mutation] = &[$(Mutation::$name),*];
            /// Row of the checklist, e.g. `31b`.
            pub fn row(self) -> &'static str { match self { $(Mutation::$name => $row),* } }
            pub fn name(self) -> &'static str { match self { $(Mutation::$name => stringify!($name)),* } }
            /// What it does wrong.
            pub fn wrong(self) -> &'static str { match self { $(Mutation::$name => concat!($($doc),*)),* } }
            pub fn from_name(name: &str) -> Option<Mutation> {
                Mutation::ALL.iter().copied().find(|m| m.name() == name)
            }
        }
    };
}

mutations! {
    /// A preempted task is enqueued before dispatch is called.
    EnqueueBeforeDispatch = "1",
    /// A sleeping task is dispatched over before it is dequeued.
    DispatchBeforeDequeue = "2",
    /// Dispatch is called on every reschedule, even if the running task has slice left.
    DispatchDespiteSlice = "3",
    /// Dispatch is called although the local queue holds tasks.
    DispatchDespiteLocal = "4",
    /// One global queue for the whole machine instead of one per node.
    OneGlobalQueue = "5",
    /// Tasks moved to the local queue win over a running task whose slice dispatch renewed.
    LocalBeatsRenewed = "6",
    /// A task that goes on because nothing else is there is stopped and started again.
    KeepLastRestarts = "7",
    /// The last runnable task goes on although the policy asked for ENQ_LAST.
    IgnoreEnqLast = "8",
    /// Slice 0 in an insert means the default slice.
    ZeroSliceIsDefault = "9",
    /// Slices end exactly, not at ticks.
    ExactSlices = "10",
    /// Ticks are counted from when the task was switched in.
    TickRelative = "11",
    /// Inserts from dispatch move the task at once.
    ImmediateInsert = "12",
    /// A buffered insert is carried out even if the task was dequeued and enqueued again meanwhile.
    IgnoreQseq = "13",
    /// LOCAL in select_cpu means the CPU the task ran on before.
    LocalIsPrevCpu = "14",
    /// Direct dispatch in select_cpu does not skip enqueue.
    EnqueueAfterDirect = "15",
    /// LOCAL_ON from enqueue inserts at once instead of when the lock is dropped.
    SynchronousLocalOn = "16",
    /// An insert outside the task's affinity goes quietly to an allowed CPU.
    RepairAffinity = "17",
    /// ENQ_PREEMPT does not reschedule the running task.
    PreemptIsHead = "18",
    /// Keys are compared as unsigned numbers.
    UnsignedVtime = "19",
    /// move_to_local gives up if the first task may not run here.
    OnlyFirstTask = "20",
    /// ops.dequeue is called for tasks that are not the policy's.
    DequeueAlways = "21",
    /// A task preempted by a higher class is enqueued again.
    EnqueueOnPreempt = "22",
    /// cpu_release is called at each preemption, not once.
    ReleaseRepeats = "23",
    /// select_cpu is called for tasks with one allowed CPU.
    SelectPinned = "24",
    /// Exiting and migration-disabled tasks go through enqueue.
    EnqueueExiting = "25",
    /// A wake-up is executed on the CPU the task last ran on.
    WakeOnWakee = "26",
    /// Picking an idle CPU does not clear its bit until a task runs there.
    NoClaim = "27",
    /// A search for an idle CPU in one node alone goes on in the others.
    LeavesNode = "27",
    /// A core's bits stay set while one of its CPUs is claimed.
    SmtBitsStay = "28",
    /// The default choice always takes the lowest idle CPU.
    LowestIdle = "29",
    /// update_idle(false) comes after running.
    LateUpdateIdle = "30",
    /// A kick acts inside the callback that asks for it.
    InlineKick = "31",
    /// KICK_WAIT does not wait.
    NoKickWait = "31",
    /// dsq_move is accepted in any operation.
    MoveAnywhere = "31b",
    /// A property change of the running task goes through enqueue.
    ChangeEnqueues = "32",
    /// set_weight comes before enable.
    WeightBeforeEnable = "33",
    /// A task moved away from its CPU is reported quiescent and runnable again.
    NoisyMigration = "34",
    /// yield keeps the slice.
    YieldKeepsSlice = "35",
    /// The watchdog counts from when the task became runnable, and is exact.
    ExactWatchdog = "36",
    /// A CPU going offline without an op for it is ignored.
    HotplugIgnored = "37",
    /// exit comes before the tasks' exit_task.
    ExitFirst = "38",
    /// Default slices are not counted.
    UncountedRefill = "39",
    /// An unknown queue id falls back to the global queue without an error.
    LenientQueueId = "40",
    /// cgroups are told in an order that puts children before their parents.
    ChildrenFirst = "41",
    /// The cgroups' exit comes after that of the tasks.
    CgroupsExitLast = "41",
    /// A cgroup's weight is told even if it is what it was.
    WeightAlwaysTold = "42",
    /// A cgroup's weight is told as one of its tasks, too.
    WeightOfTasks = "42",
    /// A cgroup's bandwidth is told even if it is what it was.
    LimitAlwaysTold = "43",
    /// A limited cgroup's tasks lose their slices, as if they were throttled.
    LimitEndsSlices = "43",
    /// The idle mark is told only if it changes.
    IdleToldOnce = "44",
    /// A task moves to another cgroup without leaving its queue.
    MoveInPlace = "45",
    /// Tasks that move together are prepared one by one, each just before it moves.
    MoveOneByOne = "45",
    /// Moves are told only of the policy's own tasks.
    MoveOwnOnly = "45",
    /// Moves are told only of tasks that are on a queue.
    MoveQueuedOnly = "45",
    /// When one task may not move, all are told that nothing comes of it, that one too.
    CancelAll = "46",
    /// An error of prep_move stops nobody.
    MoveDespiteRefusal = "46",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_wrong_model() {
        let mut rows: Vec<&str> = Mutation::ALL.iter().map(|m| m.row()).collect();
        // Some have two, one after the other.
        rows.dedup();
        assert_eq!(rows.len(), 47);
        let named = |m: &&Mutation| Mutation::from_name(m.name()) == Some(**m);
        assert!(Mutation::ALL.iter().all(|m| named(&m)));
    }
}
