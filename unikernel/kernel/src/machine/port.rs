// SPDX-License-Identifier: GPL-2.0-only
//! Single instructions: I/O ports, model-specific registers, the interrupt flag, the time-stamp counter.
use core::arch::asm;

/// Writes a byte to an I/O port.
///
/// # Safety
/// Whatever device listens there must not change memory that Rust knows.
pub unsafe fn out8(port: u16, value: u8) {
    // SAFETY: the caller's.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags))
    }
}

/// Reads a byte from an I/O port.
///
/// # Safety
/// As [`out8`].
pub unsafe fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: the caller's.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags))
    }
    value
}

/// Writes 32 bits to an I/O port.
///
/// # Safety
/// As [`out8`].
pub unsafe fn out32(port: u16, value: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags))
    }
}

/// Reads 32 bits from an I/O port.
///
/// # Safety
/// As [`out8`].
pub unsafe fn in32(port: u16) -> u32 {
    let value;
    // SAFETY: the caller's.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags))
    }
    value
}

/// Writes a model-specific register.
///
/// # Safety
/// What it changes must leave the memory and the registers of Rust as they are.
pub unsafe fn write_msr(register: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: the caller's.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") low, in("edx") high, options(nostack, preserves_flags))
    }
}

/// Reads a model-specific register.
///
/// # Safety
/// The CPU must have it.
pub unsafe fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller's.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// The time-stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: every 64-bit CPU has it, and nothing forbids it here.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Interrupts off; whether they were on.
pub fn interrupts_off() -> bool {
    let flags: u64;
    // SAFETY: interrupts may be off for a while at any time; the stack is left as it was.
    unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) }
    flags & 0x200 != 0
}

/// Interrupts on.
pub fn interrupts_on() {
    // SAFETY: all vectors have handlers before this is called, and handlers leave threads as they were.
    unsafe { asm!("sti") }
}

/// Interrupts on, and nothing else until one comes.
pub fn halt() {
    // SAFETY: as `interrupts_on`; an interrupt between the two ends the halt.
    unsafe { asm!("sti", "hlt") }
}
