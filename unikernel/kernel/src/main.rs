// SPDX-License-Identifier: GPL-2.0-only
//! The unikernel: a kernel with one program in it, which answers UDP requests, a task each. `machine` is all that needs
//! `unsafe`; [`switch`] puts the scheduler of `unikernel-sched` between threads and CPUs; the modes use both.
#![no_std]
#![no_main]
#![deny(unsafe_code)]
extern crate alloc;

mod batch;
#[expect(
    unsafe_code,
    reason = "the machine layer: each block says why it is sound"
)]
mod machine;
mod report;
mod serve;
mod stress;
mod switch;

use machine::exit::{Code, exit, refuse};
use machine::thread::Thread;
use unikernel_service::options::{Mode, Options};
use unikernel_service::stack;

/// What the first thread does, once the machine is up.
fn main_thread(command_line: &'static str, cpus: usize) -> ! {
    let options = match Options::read(command_line) {
        Ok(options) => options,
        Err(why) => refuse(Code::Options, format_args!("{why}")),
    };
    let fits = options.fits(machine::heap::bytes(), Thread::BYTES, stack::MEMORY);
    if let Err(why) = fits {
        refuse(Code::Machine, format_args!("{why}"));
    }
    if let Err(refused) = switch::init(&options, cpus) {
        refuse(Code::Options, format_args!("{refused}"));
    }
    say!(
        "up with {cpus} CPUs after {} us: {command_line}",
        machine::clock::now_us()
    );
    if let Some(queues) = options.config(cpus).dealt_around() {
        say!("{queues} queues on {cpus} CPUs: they are dealt around");
    }
    let code = match options.mode {
        Mode::Serve => serve::serve(&options),
        Mode::Closed => serve::closed(&options),
        Mode::Batch => batch::run(&options),
        Mode::Stress => stress::run(&options),
        Mode::Boot => Code::Done,
    };
    exit(code)
}
