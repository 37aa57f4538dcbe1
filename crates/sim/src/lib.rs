// SPDX-License-Identifier: GPL-2.0-only
//! The simulator: engine, hardware, sched_ext kernel model, workload, invariants
pub mod machine;
pub mod oracle;
pub mod replicate;
pub mod scx;
pub mod workload;
