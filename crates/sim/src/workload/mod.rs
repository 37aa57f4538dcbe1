// SPDX-License-Identifier: GPL-2.0-only
//! What the tasks do.
//!
//! ```text
//! api         the line between work and machine
//! device      what tasks and clients give work to: the network, disks
//! events      the workload's events, as the machine keeps them
//! homes       where threads live: VMs and the host; completion: when a VM has done all its work
//! program     tasks, ready to run; masks: their CPU lists
//! threads     who does it, and where each is
//! sync        locks, barriers, conditions, shared work
//! mail        queues and the threads that wait at them
//! clients     when who asks; sender: the clients as a thread
//! measured    response times, and Little's law over all requests
//! requests    from a queue to a thread, to the end
//! devices     the devices of a scenario, and what they reach
//! blocks      where threads are in steps that read or write
//! agents      who moves light tasks inside mixed VMs
//! scenario    all these as the work of a scenario file; what it does:
//!   births      threads begin, VMs start and stop
//!   look        an agent looks, and moves
//!   steps       a thread's next step; share: those that involve others; record: those that read or write
//!   ask         clients ask
//!   work        what the machine asks for
//! ```
//!
//! Each knows those above it and none below.
mod agents;
pub mod api;
mod ask;
mod births;
mod blocks;
mod clients;
mod completion;
mod device;
mod devices;
mod events;
mod homes;
mod look;
mod mail;
mod masks;
mod measured;
mod program;
mod record;
mod requests;
pub mod scenario;
mod sender;
mod share;
mod steps;
mod sync;
mod threads;
mod work;
