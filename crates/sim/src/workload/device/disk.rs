// SPDX-License-Identifier: GPL-2.0-only
//! The disk's room. Nothing is here yet: `read` and `write` are steps that the scenario's reader refuses by name.
//!
//! What belongs here, by the functions of [`super::Device`] that it fills:
//!
//! | what | function |
//! |---|---|
//! | a task's `read NAME 4KiB` or `write NAME 4KiB` comes in; a hit in the guest's page cache is done at once | `enter` |
//! | system call, copy, page cache, the exit to the host | `guest_ns` of the task |
//! | the queue, in the order of the device's scheduler, and the service time: seek, then size by rate | `event`, one at a time |
//! | the host's interrupt when the device has finished | `Bus::interrupt` |
//! | who moves the blocks: the VMM's main loop (`Role::Emulator`), an I/O thread (`Role::Iothread`) or a kernel thread
//! (`Role::Vhost`); nobody, if the disk is the guest's own | `workers`, `serve` |
//! | write-back: a write is done at once, its blocks go to the disk later | `enter`, `event` |
//! | the task goes on | `Bus::done` |
