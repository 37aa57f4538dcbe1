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
    /// The computing VMs are bound to this CPU, too.
    pub confined: Option<u32>,
    /// VMs that answer; none goes before more.
    pub vms: usize,
}

const fn arm(name: &'static str, policy: Policy, method: Method, cpu: Option<u32>) -> Arm {
    Arm {
        name,
        pin: Some((policy, method, cpu)),
        confined: None,
        vms: 1,
    }
}

pub const LINUX: Arm = Arm {
    name: "linux",
    pin: None,
    confined: None,
    vms: 1,
};

/// With as many VMs that answer as there may be.
const FOUR: [Arm; 2] = [
    Arm {
        vms: client::VMS,
        ..arm(FOUR_UNBOUND, Policy::None, Method::Auto, None)
    },
    Arm {
        vms: client::VMS,
        ..arm(FOUR_AUTO, Policy::Auto, Method::Auto, None)
    },
];

const ARMS: [Arm; 13] = [
    LINUX,
    arm("none", Policy::None, Method::Auto, None),
    arm("paper, taskset", Policy::Paper, Method::Taskset, None),
    arm("paper, cgroup", Policy::Paper, Method::Cgroup, None),
    arm("full", Policy::Full, Method::Auto, None),
    arm(ON_CPU_0, Policy::Full, Method::Auto, Some(0)),
    arm("l2", Policy::L2, Method::Auto, None),
    arm("auto", Policy::Auto, Method::Auto, None),
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
/// [`Ways::Pairs`]: what chooses by itself beside nothing bound, with the VMs that answer.
pub const PAIRS: [[Arm; 2]; 2] = [
    [
        Arm {
            vms: 2,
            ..arm("2 VMs: none", Policy::None, Method::Auto, None)
        },
        Arm {
            vms: 2,
            ..arm("2 VMs: auto", Policy::Auto, Method::Auto, None)
        },
    ],
    FOUR,
];
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
    /// [`PAIRS`], the second of each first with every other seed.
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
                .flat_map(|[a, b]| {
                    if seed.is_multiple_of(2) {
                        [b, a]
                    } else {
                        [a, b]
                    }
                })
                .collect(),
        }
    }
}

/// Judged by their times.
pub const JUDGED: [&str; 2] = [LINUX.name, CONFINED];
/// The calls are counted, too, each time: here a CPU has time to patch functions.
pub const COUNTED: &str = CONFINED;
