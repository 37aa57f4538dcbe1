// SPDX-License-Identifier: GPL-2.0-only
//! What is wrong with the input. An observation that is refused changes nothing.

/// Names the VM, the amount, and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("no CPU is online: give the CPUs that are")]
    NoCpus,
    #[error("CPU {0} is listed twice: give each CPU once")]
    CpuTwice(u32),
    #[error("CPU {0} has capacity 0: give 1 to 1024, 1024 for the fastest")]
    Capacity(u32),
    #[error("VM {0} is listed twice: give each VM once, by a name of its own")]
    VmTwice(String),
    #[error("VM {0} has no vCPU: give at least 1")]
    NoVcpus(String),
    #[error("VM {vm}: the weight is {weight}: give 1 to 10000")]
    Weight { vm: String, weight: u32 },
    #[error("VM {vm}: the guarantee is {cpus} CPUs: give a number from 0 to its {vcpus} vCPUs")]
    Guarantee { vm: String, cpus: f64, vcpus: u32 },
    #[error("VM {vm}: the limit is {cpus} CPUs: give at least 0.01, or none")]
    Limit { vm: String, cpus: f64 },
    #[error(
        "VM {vm}: the limit of {limit} CPUs is {} below the guarantee of {guarantee}: raise the one or lower the other",
        guarantee - limit
    )]
    LimitBelowGuarantee {
        vm: String,
        limit: f64,
        guarantee: f64,
    },
    #[error("an observation of 0 ns says nothing: give the time it covers")]
    NoSpan,
    #[error(
        "an observation of {at_ns} ns after one of {last_ns} ns: give them in the order of time"
    )]
    Order { at_ns: u64, last_ns: u64 },
    #[error("setting {name} is {value}: give {range}")]
    Setting {
        name: &'static str,
        value: f64,
        range: &'static str,
    },
    #[error("{0:?} is no list of CPUs: give numbers and ranges, such as 0-3,8")]
    CpuList(String),
}
