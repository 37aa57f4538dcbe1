// SPDX-License-Identifier: GPL-2.0-only
//! The ways to bind that are compared on the path, and which of them a run measures.
use super::super::is_long;
use super::client;
use berth_affinity::Policy;
use berth_agent::pins::Method;
use serde::{Deserialize, Serialize};

/// One way to bind.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    pub name: &'static str,
    /// None: no agent looks at all.
    pub pin: Option<(Policy, Method, Option<u32>)>,
    /// The first thread of each VM that answers is on this CPU, by hand, as `taskset -p` has it.
    pub first_thread: Option<u32>,
    /// The computing VMs are bound to this CPU, too.
    pub confined: Option<u32>,
    /// VMs that answer; none goes before more.
    pub vms: usize,
}

const fn arm(name: &'static str, policy: Policy, method: Method, cpu: Option<u32>) -> Arm {
    Arm {
        name,
        pin: Some((policy, method, cpu)),
        first_thread: None,
        confined: None,
        vms: 1,
    }
}

const fn of(vms: usize, arm: Arm) -> Arm {
    Arm { vms, ..arm }
}

pub const LINUX: Arm = Arm {
    name: "linux",
    pin: None,
    first_thread: None,
    confined: None,
    vms: 1,
};
const NONE: Arm = arm("none", Policy::None, Method::Auto, None);
const AUTO: Arm = arm("auto", Policy::Auto, Method::Auto, None);

/// With as many VMs that answer as there may be.
const FOUR: [Arm; 2] = [
    Arm {
        name: FOUR_UNBOUND,
        ..of(client::VMS, NONE)
    },
    Arm {
        name: FOUR_AUTO,
        ..of(client::VMS, AUTO)
    },
];

const ARMS: [Arm; 13] = [
    LINUX,
    NONE,
    arm("paper, taskset", Policy::Paper, Method::Taskset, None),
    arm("paper, cgroup", Policy::Paper, Method::Cgroup, None),
    arm("full", Policy::Full, Method::Auto, None),
    arm(ON_CPU_0, Policy::Full, Method::Auto, Some(0)),
    arm("l2", Policy::L2, Method::Auto, None),
    AUTO,
    Arm {
        confined: Some(0),
        ..arm(CONFINED, Policy::Full, Method::Auto, Some(1))
    },
    Arm {
        name: LINUX_AGAIN,
        ..LINUX
    },
    FOUR[0],
    FOUR[1],
    Arm {
        vms: client::VMS,
        confined: Some(0),
        ..arm(FOUR_CONFINED, Policy::Full, Method::Auto, Some(1))
    },
];
/// As `full`, and the computing VMs are confined to the other CPU.
pub const CONFINED: &str = "full, confined";
const ON_CPU_0: &str = "full, CPU 0";
const LINUX_AGAIN: &str = "linux again";
const FOUR_UNBOUND: &str = "4 VMs: none";
const FOUR_AUTO: &str = "4 VMs: auto";
const FOUR_CONFINED: &str = "4 VMs: full, confined";
/// [`Ways::Pairs`]: each is held against the first of its line, in which nothing is bound, with as many VMs that
/// answer.
pub const PAIRS: [[Arm; 3]; 3] = [
    [
        NONE,
        AUTO,
        Arm {
            name: "first thread alone",
            first_thread: Some(1),
            ..NONE
        },
    ],
    [
        Arm {
            name: "2 VMs: none",
            ..of(2, NONE)
        },
        Arm {
            name: "2 VMs: auto",
            ..of(2, AUTO)
        },
        Arm {
            name: "2 VMs: auto, all on CPU 1",
            ..of(2, ON_ONE)
        },
    ],
    [
        FOUR[0],
        FOUR[1],
        Arm {
            name: "4 VMs: auto, all on CPU 1",
            ..of(client::VMS, ON_ONE)
        },
    ],
];
const ON_ONE: Arm = arm("", Policy::Auto, Method::Auto, Some(1));
/// Ways to compare with, and those that set the same files as others do: only with `BERTH_LAB_SEEDS=N` or
/// `BERTH_LAB_LONG=1` (3 seeds).
const MORE: [&str; 6] = [
    "full",
    ON_CPU_0,
    "l2",
    LINUX_AGAIN,
    FOUR_UNBOUND,
    FOUR_CONFINED,
];

/// Which ways are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ways {
    /// Without those [`MORE`], and most of them briefly.
    Short,
    /// All, and in some where the kernel spends its time.
    All,
    /// [`PAIRS`], those of a line each time in another order.
    Pairs,
}

impl Ways {
    /// `BERTH_LAB_WAYS=pairs`; all if seeds are asked for.
    pub fn asked() -> Result<Ways, String> {
        let many = is_long() || std::env::var_os("BERTH_LAB_SEEDS").is_some();
        match std::env::var("BERTH_LAB_WAYS").ok().as_deref() {
            None if many => Ok(Ways::All),
            None => Ok(Ways::Short),
            Some("pairs") => Ok(Ways::Pairs),
            Some(other) => Err(format!("BERTH_LAB_WAYS is {other}; it may be: pairs")),
        }
    }

    /// For how long each is measured.
    pub fn seconds(self) -> f64 {
        match self {
            Ways::Short => 0.5,
            Ways::All => 1.5,
            Ways::Pairs => 3.0,
        }
    }

    pub fn arms(self, seed: u64) -> Vec<&'static Arm> {
        match self {
            Ways::Short => ARMS.iter().filter(|a| !MORE.contains(&a.name)).collect(),
            Ways::All => ARMS.iter().collect(),
            Ways::Pairs => PAIRS
                .iter()
                .flat_map(|line| {
                    let turned = seed as usize % line.len();
                    line[turned..].iter().chain(&line[..turned])
                })
                .collect(),
        }
    }
}

/// Judged by their times.
pub const JUDGED: [&str; 2] = [LINUX.name, CONFINED];
/// The calls are counted, too, each time: here a CPU has time to patch functions.
pub const COUNTED: &str = CONFINED;
