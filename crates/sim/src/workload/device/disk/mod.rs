// SPDX-License-Identifier: GPL-2.0-only
//! Disks: a task's `read` or `write`, through its guest's page cache, the path to the host and the queue of the disk.
//! What is modelled and what is left out: `docs/disk.md`.
//!
//! ```text
//! drive     the disk itself: a queue, one request in service, seek and transfer
//! cache     the page cache of a VM: which blocks are there, unwritten, on their way
//! state     who reads and writes, and where their requests are
//! build     the disks of a scenario, and the threads on the path to them
//! page      a step on its way through the page cache: hits, what is fetched, what is written back
//! path      a request on its way to a disk and back
//! ```
mod build;
mod cache;
mod drive;
mod page;
mod path;
mod state;

pub use state::{Disks, Job};
