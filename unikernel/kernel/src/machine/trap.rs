// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts, exceptions, and what threads ask for: each may have another thread go on. Which one is not decided here.
use super::cpu::{self, Cpu};
use super::thread::{Fpu, Frame, Thread};
use super::{lapic, nic};
use crate::switch::{self, Current, Why};
use core::arch::{asm, global_asm};

global_asm!(include_str!("trap.s"), options(att_syntax));

/// The CPU's timer.
pub const TIMER: u8 = 0x20;
/// The network card.
pub const NIC: u8 = 0x21;
/// Another CPU has something for this one.
pub const WAKE: u8 = 0x22;
const YIELD: u8 = 0x30;
const WAIT: u8 = 0x31;
const EXIT: u8 = 0x32;
/// An interrupt that was withdrawn.
pub const SPURIOUS: u8 = 0x3f;

unsafe extern "C" {
    static trap_stubs: [[u8; 16]; 64];
}

/// Where `vector` is entered.
pub fn stub(vector: usize) -> *const u8 {
    // SAFETY: trap.s has 64 stubs of 16 bytes; only the address is taken.
    unsafe { trap_stubs[vector].as_ptr() }
}

/// The running thread lets others go first.
pub fn yield_now() {
    // SAFETY: the handler leaves the thread as it was; so below.
    unsafe { asm!("int {}", const YIELD) }
}

/// The running thread waits until it is wanted ([`switch`]).
pub fn wait() {
    // SAFETY: as above.
    unsafe { asm!("int {}", const WAIT) }
}

/// The running thread ends.
pub fn exit_thread() -> ! {
    // SAFETY: as above; it does not come back.
    unsafe { asm!("int {}", const EXIT) }
    unreachable!("a thread that ended went on")
}

/// The thread of `current`.
fn thread<'a>(current: &'a mut Current, idle: &'a mut Thread) -> &'a mut Thread {
    match current {
        Current::Idle => idle,
        Current::Main(thread) => thread,
        Current::Task(task) => &mut task.payload,
    }
}

/// Where traps save and restore the SSE registers of `current`.
pub fn fpu_of(current: &mut Current, idle: &mut Thread) -> *mut Fpu {
    &raw mut thread(current, idle).fpu
}

#[unsafe(no_mangle)]
extern "C" fn trap_entry(frame: &mut Frame) {
    let why = match frame.vector as u8 {
        TIMER => Why::Timer,
        NIC => Why::Nic,
        WAKE => Why::Wake,
        YIELD => Why::Yield,
        WAIT => Why::Wait,
        EXIT => Why::Exit,
        SPURIOUS => return,
        vector => panic!(
            "exception {vector} (error {:#x}) at {:#x}, stack {:#x}, on CPU {}",
            frame.error,
            frame.rip,
            frame.rsp,
            cpu::index()
        ),
    };
    if why == Why::Nic {
        nic::acknowledge();
    }
    if matches!(why, Why::Timer | Why::Nic | Why::Wake) {
        lapic::end_of_interrupt();
    }
    // SAFETY: the CPU's own structure, which nothing else uses: threads do not, and with interrupts off no other trap
    // is here.
    let Cpu {
        fpu, current, idle, ..
    } = unsafe { &mut *cpu::this() };
    let leaving = thread(current, idle);
    leaving.frame = *frame;
    assert!(
        leaving.is_sound(),
        "a thread left its stack, at {:#x}",
        frame.rip
    );
    *current = switch::switch(
        cpu::index(),
        why,
        core::mem::replace(current, Current::Idle),
    );
    *frame = thread(current, idle).frame;
    *fpu = fpu_of(current, idle);
}
