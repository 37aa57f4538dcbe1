// SPDX-License-Identifier: GPL-2.0-only
//! The hardware and the tasks on it: data only, no scheduling.
pub mod cache;
pub mod cgroup;
pub mod cpu;
pub mod mask;
pub mod memory;
pub mod pace;
pub mod pmu;
pub mod rate;
pub mod task;
pub mod topology;
pub mod vcpu;

pub use crate::dense::Dense;
pub use cpu::Cpu;
pub use mask::{CpuMask, MaskId, MaskTable};
pub use task::{TaskHot, TaskTable};
pub use topology::{Distance, Shape, Topology};
