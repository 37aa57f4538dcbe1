// SPDX-License-Identifier: GPL-2.0-only
//! The steps of a task's loop: what there are, their words, and whatever anybody asks of a step.
//!
//! ```text
//! mod     the steps, and questions about one (does it sleep, whom does it name, which feature does it need)
//! words   kinds of steps: the word in a file, an example, help
//! read    from words to a step
//! ```
//!
//! No question has an arm for "all others": a new step does not compile until each is answered for it.
mod read;
pub mod words;

pub(crate) use read::IPC;
pub use words::{Kind, STEPS};

use crate::model::{Dist, Nanos};
use crate::phrase::never_positive;
use crate::support::Feature;
use serde::{Deserialize, Serialize};

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Burn CPU time.
    Compute(Dist),
    /// Burn CPU without end.
    Busy,
    /// Relative sleep, from when the step is reached.
    Sleep(Dist),
    /// Sleep until the next point of a grid of this period (absolute timer).
    Timer {
        period_ns: Nanos,
        #[serde(default, skip_serializing_if = "Grid::is_random")]
        grid: Grid,
    },
    /// Wait for a request of a client, or for a `Send` by another task, on this queue.
    Receive(String),
    /// Answer the request in hand: its response time ends here.
    Reply,
    /// Put a message into a task's queue, waking a waiter.
    Send {
        to: String,
        bytes: u64,
    },
    Yield,
    SetNice(i32),
    /// Empty = all CPUs.
    SetAffinity(Vec<u32>),
    Stall(Stall),
    /// Start one more thread of the named task, in the same VM.
    Fork(String),
    Exit,
    /// Take the VM's lock of this name; sleep while another holds it (futex). Released by `Unlock`.
    Lock {
        name: String,
    },
    /// The same, burning CPU while another holds it (spin lock; pause-loop exits apply). Released by `Unlock`.
    Spin {
        name: String,
    },
    Unlock {
        name: String,
    },
    /// Sleep until every thread in the VM whose task has this barrier has come to it.
    Barrier {
        name: String,
    },
    /// Sleep until the next `Signal` or `Broadcast` of this name in the VM.
    Wait {
        name: String,
    },
    /// Wake the thread that has waited longest; without one, nothing (it is not kept).
    Signal {
        name: String,
    },
    /// Wake all that wait.
    Broadcast {
        name: String,
    },
    /// Work stealing: the threads in the VM that come to the pool `name` share `chunks` chunks of work, dealt evenly
    /// among those with this step when the first of them comes; who has none left takes one from the thread that has
    /// most, and goes on to the next step when there is none anywhere. A `Barrier` behind it ends the round.
    Chunks {
        name: String,
        chunks: u32,
        each: Dist,
    },
    /// Disk: `bytes` from, or to, the disk of this name.
    Read {
        name: String,
        bytes: u64,
    },
    Write {
        name: String,
        bytes: u64,
    },
}

/// Where the points of a timer are, and what becomes of one that was missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grid {
    /// They begin with a random phase per thread; the thread waits for the next one.
    #[default]
    Random,
    /// The first is a period after the thread's start (after the end of its first sleep, if it begins with one). Who
    /// comes late goes on at once, and the next one is a period after that.
    Start,
    /// The same, but the grid stays: who is late goes on at once until it has caught up.
    StartCatchUp,
}

impl Grid {
    pub fn is_random(&self) -> bool {
        *self == Grid::Random
    }
}

/// What a task is to the hardware from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// It waits for memory for this part of its time at full speed, parts per million, at most all.
    pub ppm: u32,
    /// Thousandths of instructions per cycle while it does not wait; none: as before.
    pub ipc_milli: Option<u32>,
    /// Bytes it works on over and over; none: as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_set: Option<u64>,
}

/// What a step names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    Nothing,
    /// The queue it takes messages from.
    Takes(&'a str),
    /// The task or queue it sends to.
    SendsTo(&'a str),
    /// The task of which it starts a thread.
    Starts(&'a str),
    /// The lock that it takes, asleep or spinning while another has it.
    Locks {
        name: &'a str,
        spins: bool,
    },
    Unlocks(&'a str),
    MeetsAt(&'a str),
    /// The condition it waits for.
    WaitsFor(&'a str),
    /// The condition whose waiters it wakes.
    Wakes(&'a str),
    /// The pool of chunks.
    Shares(&'a str),
    Disk(&'a str),
}

/// What a step is to the vCPU thread that a pool of tasks is folded onto (see [`crate::placement`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folds {
    /// As it is.
    Plainly,
    /// Its thread would sleep with other tasks of the pool in hand: each thread needs a vCPU of its own.
    Asleep,
    /// As the wait for the next message of the pool: nowhere else.
    AtTheFront,
}

impl Step {
    pub fn kind(&self) -> Kind {
        match self {
            Step::Compute(_) => Kind::Compute,
            Step::Busy => Kind::Busy,
            Step::Sleep(_) => Kind::Sleep,
            Step::Timer { .. } => Kind::Timer,
            Step::Receive(_) => Kind::Receive,
            Step::Reply => Kind::Reply,
            Step::Send { .. } => Kind::Send,
            Step::Yield => Kind::Yield,
            Step::SetNice(_) => Kind::SetNice,
            Step::SetAffinity(_) => Kind::SetAffinity,
            Step::Stall(_) => Kind::Stall,
            Step::Fork(_) => Kind::Fork,
            Step::Exit => Kind::Exit,
            Step::Lock { .. } => Kind::Lock,
            Step::Spin { .. } => Kind::Spin,
            Step::Unlock { .. } => Kind::Unlock,
            Step::Barrier { .. } => Kind::Barrier,
            Step::Wait { .. } => Kind::Wait,
            Step::Signal { .. } => Kind::Signal,
            Step::Broadcast { .. } => Kind::Broadcast,
            Step::Chunks { .. } => Kind::Chunks,
            Step::Read { .. } => Kind::Read,
            Step::Write { .. } => Kind::Write,
        }
    }

    /// The word that begins it in a file.
    pub fn word(&self) -> &'static str {
        self.kind().word()
    }

    /// The feature that a place must have for it.
    pub fn needs(&self) -> Option<Feature> {
        match self {
            Step::Lock { .. } => Some(Feature::Locks),
            Step::Spin { .. } => Some(Feature::Spinning),
            Step::Barrier { .. } => Some(Feature::Barriers),
            Step::Wait { .. } | Step::Signal { .. } | Step::Broadcast { .. } => {
                Some(Feature::Events)
            }
            Step::Chunks { .. } => Some(Feature::Stealing),
            Step::Read { .. } | Step::Write { .. } => Some(Feature::Disks),
            Step::Stall(_) => Some(Feature::Phases),
            Step::Compute(_)
            | Step::Busy
            | Step::Sleep(_)
            | Step::Timer { .. }
            | Step::Receive(_)
            | Step::Reply
            | Step::Send { .. }
            | Step::Yield
            | Step::SetNice(_)
            | Step::SetAffinity(_)
            | Step::Fork(_)
            | Step::Exit
            | Step::Unlock { .. } => None,
        }
    }

    pub fn named(&self) -> Named<'_> {
        match self {
            Step::Receive(name) => Named::Takes(name),
            Step::Send { to, .. } => Named::SendsTo(to),
            Step::Fork(name) => Named::Starts(name),
            Step::Lock { name } => Named::Locks { name, spins: false },
            Step::Spin { name } => Named::Locks { name, spins: true },
            Step::Unlock { name } => Named::Unlocks(name),
            Step::Barrier { name } => Named::MeetsAt(name),
            Step::Wait { name } => Named::WaitsFor(name),
            Step::Signal { name } | Step::Broadcast { name } => Named::Wakes(name),
            Step::Chunks { name, .. } => Named::Shares(name),
            Step::Read { name, .. } | Step::Write { name, .. } => Named::Disk(name),
            Step::Compute(_)
            | Step::Busy
            | Step::Sleep(_)
            | Step::Timer { .. }
            | Step::Reply
            | Step::Yield
            | Step::SetNice(_)
            | Step::SetAffinity(_)
            | Step::Stall(_)
            | Step::Exit => Named::Nothing,
        }
    }

    /// The queue it takes messages from.
    pub fn takes(&self) -> Option<&str> {
        if let Named::Takes(queue) = self.named() {
            Some(queue)
        } else {
            None
        }
    }

    /// The task of which it starts a thread.
    pub fn starts(&self) -> Option<&str> {
        if let Named::Starts(task) = self.named() {
            Some(task)
        } else {
            None
        }
    }

    /// The task or queue it sends to.
    pub fn sends_to(&self) -> Option<&str> {
        if let Named::SendsTo(to) = self.named() {
            Some(to)
        } else {
            None
        }
    }

    /// Can a loop of it alone let time pass? One that never does would stop the clock.
    pub fn passes_time(&self) -> bool {
        match self {
            Step::Compute(dist) | Step::Sleep(dist) => !never_positive(dist),
            Step::Busy
            | Step::Timer { .. }
            | Step::Receive(_)
            | Step::Exit
            | Step::Chunks { .. }
            | Step::Wait { .. }
            | Step::Read { .. }
            | Step::Write { .. } => true,
            Step::Reply
            | Step::Send { .. }
            | Step::Yield
            | Step::SetNice(_)
            | Step::SetAffinity(_)
            | Step::Stall(_)
            | Step::Fork(_)
            | Step::Lock { .. }
            | Step::Spin { .. }
            | Step::Unlock { .. }
            | Step::Barrier { .. }
            | Step::Signal { .. }
            | Step::Broadcast { .. } => false,
        }
    }

    /// No step follows it.
    pub fn is_last(&self) -> bool {
        match self {
            Step::Busy | Step::Exit => true,
            Step::Compute(_)
            | Step::Sleep(_)
            | Step::Timer { .. }
            | Step::Receive(_)
            | Step::Reply
            | Step::Send { .. }
            | Step::Yield
            | Step::SetNice(_)
            | Step::SetAffinity(_)
            | Step::Stall(_)
            | Step::Fork(_)
            | Step::Lock { .. }
            | Step::Spin { .. }
            | Step::Unlock { .. }
            | Step::Barrier { .. }
            | Step::Wait { .. }
            | Step::Signal { .. }
            | Step::Broadcast { .. }
            | Step::Chunks { .. }
            | Step::Read { .. }
            | Step::Write { .. } => false,
        }
    }

    /// May it be done once, before the loop?
    pub fn may_be_first(&self) -> bool {
        match self {
            Step::Busy | Step::Exit | Step::Receive(_) | Step::Reply => false,
            Step::Compute(_)
            | Step::Sleep(_)
            | Step::Timer { .. }
            | Step::Send { .. }
            | Step::Yield
            | Step::SetNice(_)
            | Step::SetAffinity(_)
            | Step::Stall(_)
            | Step::Fork(_)
            | Step::Lock { .. }
            | Step::Spin { .. }
            | Step::Unlock { .. }
            | Step::Barrier { .. }
            | Step::Wait { .. }
            | Step::Signal { .. }
            | Step::Broadcast { .. }
            | Step::Chunks { .. }
            | Step::Read { .. }
            | Step::Write { .. } => true,
        }
    }

    pub fn folds(&self) -> Folds {
        match self {
            Step::Receive(_) => Folds::AtTheFront,
            Step::Sleep(_)
            | Step::Timer { .. }
            | Step::Lock { .. }
            | Step::Barrier { .. }
            | Step::Wait { .. }
            | Step::Read { .. }
            | Step::Write { .. } => Folds::Asleep,
            Step::Compute(_)
            | Step::Busy
            | Step::Reply
            | Step::Send { .. }
            | Step::Yield
            | Step::SetNice(_)
            | Step::SetAffinity(_)
            | Step::Stall(_)
            | Step::Fork(_)
            | Step::Exit
            | Step::Spin { .. }
            | Step::Unlock { .. }
            | Step::Signal { .. }
            | Step::Broadcast { .. }
            | Step::Chunks { .. } => Folds::Plainly,
        }
    }
}
