// SPDX-License-Identifier: GPL-2.0-only
//! The CPU's own interrupt controller: its timer, interrupts between CPUs, starting other CPUs.
use super::{clock, port};

const BASE: usize = 0xfee0_0000;
const ID: usize = 0x20;
const PRIORITY: usize = 0x80;
const END_OF_INTERRUPT: usize = 0xb0;
const SPURIOUS: usize = 0xf0;
const COMMAND: usize = 0x300;
const COMMAND_TO: usize = 0x310;
const TIMER: usize = 0x320;
const TIMER_COUNT: usize = 0x380;
const TIMER_LEFT: usize = 0x390;
const TIMER_DIVIDE: usize = 0x3e0;
const BY_16: u32 = 3;

fn write(register: usize, value: u32) {
    // SAFETY: the registers are at this address on every machine that PVH starts, mapped uncached; what is written to
    // them changes no memory.
    unsafe { ((BASE + register) as *mut u32).write_volatile(value) }
}

fn read(register: usize) -> u32 {
    // SAFETY: as `write`.
    unsafe { ((BASE + register) as *const u32).read_volatile() }
}

/// Switches this CPU's on; its timer will raise `timer`.
pub fn init(timer: u8, spurious: u8) {
    const APIC_BASE: u32 = 0x1b;
    // SAFETY: enables the controller where it is.
    unsafe { port::write_msr(APIC_BASE, port::read_msr(APIC_BASE) | 0x800) }
    write(SPURIOUS, 0x100 | u32::from(spurious));
    write(PRIORITY, 0);
    write(TIMER_DIVIDE, BY_16);
    write(TIMER, u32::from(timer));
}

/// This CPU's number for interrupts.
pub fn id() -> u32 {
    read(ID) >> 24
}

/// The interrupt is handled.
pub fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

/// The timer's interrupt once, after `ns`.
pub fn arm(ns: u64) {
    start(clock::timer_ticks(ns));
}

/// No timer interrupt.
pub fn disarm() {
    start(0);
}

/// The timer counts down from `ticks`.
pub fn start(ticks: u32) {
    write(TIMER_COUNT, ticks);
}

/// What is left of that.
pub fn left() -> u32 {
    read(TIMER_LEFT)
}

/// Interrupt `vector` at the CPU with number `to`.
pub fn interrupt(to: u32, vector: u8) {
    command(to, u32::from(vector));
}

/// Resets a CPU, and has it begin at `page` (of 4096 bytes, below 1 MiB).
pub fn start_cpu(to: u32, page: u8) {
    command(to, 0x4500);
    clock::spin_us(200);
    for _ in 0..2 {
        command(to, 0x4600 | u32::from(page));
        clock::spin_us(100);
    }
}

fn command(to: u32, command: u32) {
    let were_on = port::interrupts_off();
    write(COMMAND_TO, to << 24);
    write(COMMAND, command);
    if were_on {
        port::interrupts_on();
    }
}
