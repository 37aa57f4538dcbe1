// SPDX-License-Identifier: GPL-2.0-only
//! What the unikernel does, without the machine that it does it on: boot options, the network over any card, requests,
//! workloads, clients of its own. Runs on any host too, where its tests are.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod card;
pub mod clients;
pub mod frames;
pub mod hostile;
pub mod options;
pub mod request;
pub mod stack;
pub mod workload;
