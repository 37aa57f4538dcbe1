// SPDX-License-Identifier: GPL-2.0-only
//! The simulator: engine, hardware, sched_ext kernel model, workload, invariants
