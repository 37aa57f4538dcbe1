// SPDX-License-Identifier: GPL-2.0-only
//! The disk's room. Nothing is here yet: `read` and `write` are steps that the scenario's reader refuses by name.
//!
//! What belongs here, by the functions of [`super::Device`] that it fills:
//!
//! | what | function |
//! |---|---|
//! | a task's `read` or `write` comes in; a hit in the guest's page cache is done at once | `enter` |
//! | system call, copy, page cache, the exit to the host | `guest_ns` of the task |
//! | the queue, and the service time of one after the other: seek, then size by rate | `event` |
//! | the host's interrupt when the device has finished | `Bus::interrupt` |
//! | who moves the blocks: the VMM's main loop, an I/O thread, a vhost thread, or nobody | `workers`, `serve` |
//! | write-back: a write is done at once, its blocks go to the disk later | `enter`, `event` |
//! | the task goes on | `Bus::done` |
