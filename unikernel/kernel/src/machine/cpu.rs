// SPDX-License-Identifier: GPL-2.0-only
//! What each CPU has of its own: segments, interrupt stacks, the table of vectors, and who runs on it.
use super::thread::{Fpu, Thread};
use super::{CPUS_MAX, lapic, port, trap};
use crate::switch::Current;
use alloc::boxed::Box;
use alloc::vec;
use core::arch::asm;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};

/// 16-byte words of an interrupt stack: 16 KiB.
const STACK: usize = 1024;

/// A CPU's own; `gs` points to it.
#[repr(C)]
pub struct Cpu {
    /// At gs:0, itself.
    me: *mut Cpu,
    /// At gs:8, where traps save and restore SSE.
    pub fpu: *mut Fpu,
    /// At gs:16, from 0.
    index: usize,
    /// Who runs.
    pub current: Current,
    /// Who runs when nobody else does.
    pub idle: Thread,
    gdt: [u64; 7],
    /// The task-state segment, which tells the interrupt stacks.
    tss: [u32; 26],
}

const TRAPS: usize = 64;

#[repr(C, align(16))]
struct Vectors([[u64; 2]; TRAPS]);

#[repr(C, packed)]
struct Table(u16, u64);

/// Numbers for interrupts of the CPUs that are up.
static LAPICS: [AtomicU32; CPUS_MAX] = [const { AtomicU32::new(0) }; CPUS_MAX];

fn segments(tss: *const [u32; 26]) -> [u64; 7] {
    let at = tss as u64;
    let low = 103 | (at & 0xff_ffff) << 16 | 0x89 << 40 | (at >> 24 & 0xff) << 56;
    // None, code, data, 32-bit code, the task-state segment (two words), none.
    [
        0,
        0x00af_9b00_0000_ffff,
        0x00cf_9300_0000_ffff,
        0x00cf_9b00_0000_ffff,
        low,
        at >> 32,
        0,
    ]
}

fn vectors() -> Box<Vectors> {
    let mut table = Box::new(Vectors([[0; 2]; TRAPS]));
    for (vector, gate) in table.0.iter_mut().enumerate() {
        let at = trap::stub(vector) as u64;
        let stack = match vector {
            2 | 8 => 2,
            32.. => 1,
            _ => 3,
        };
        *gate = [
            at & 0xffff | 0x08 << 16 | stack << 32 | 0x8e << 40 | (at >> 16 & 0xffff) << 48,
            at >> 32,
        ];
    }
    table
}

/// Readies this CPU as number `index`; `current` is who runs here.
pub fn init(index: usize, current: Current) {
    // Never freed: the CPU refers to both for ever.
    let cpu = Box::leak(Box::new(Cpu {
        me: null_mut(),
        fpu: null_mut(),
        index,
        current,
        idle: Thread::running(),
        gdt: [0; 7],
        tss: [0; 26],
    }));
    let table = Box::leak(vectors());
    cpu.me = cpu;
    cpu.fpu = trap::fpu_of(&mut cpu.current, &mut cpu.idle);
    // For interrupts, for NMI and double faults, for exceptions.
    for i in 0..3 {
        let top = vec![0u128; STACK].leak().as_ptr_range().end as u64;
        (cpu.tss[9 + 2 * i], cpu.tss[10 + 2 * i]) = (top as u32, (top >> 32) as u32);
    }
    cpu.tss[25] = 104 << 16;
    cpu.gdt = segments(&cpu.tss);
    LAPICS[index].store(lapic::id(), Ordering::Relaxed);
    let gdt = Table(size_of::<[u64; 7]>() as u16 - 1, cpu.gdt.as_ptr() as u64);
    let idt = Table(size_of::<Vectors>() as u16 - 1, table.0.as_ptr() as u64);
    const GS_BASE: u32 = 0xc000_0101;
    // SAFETY: the tables are whole and stay where they are; segments are those that are loaded already; gs is used by
    // nothing but this file and trap.s, which want this structure there.
    unsafe {
        asm!("lgdt [{}]", in(reg) &gdt, options(readonly, nostack, preserves_flags));
        asm!("ltr {:x}", in(reg) 0x20u16, options(nostack, preserves_flags));
        asm!("lidt [{}]", in(reg) &idt, options(readonly, nostack, preserves_flags));
        port::write_msr(GS_BASE, cpu.me as u64);
    }
    if index == 0 {
        // SAFETY: masks the old interrupt controllers, which nobody listens to.
        unsafe {
            port::out8(0x21, 0xff);
            port::out8(0xa1, 0xff);
        }
    }
    lapic::init(trap::TIMER, trap::SPURIOUS);
}

/// This CPU's own.
pub fn this() -> *mut Cpu {
    let cpu;
    // SAFETY: `init` put its address there.
    unsafe { asm!("mov {}, gs:[0]", out(reg) cpu, options(readonly, nostack, preserves_flags)) }
    cpu
}

/// This CPU's number, from 0. A thread that may be moved knows it only while interrupts are off.
pub fn index() -> usize {
    let index;
    // SAFETY: as `this`.
    unsafe { asm!("mov {}, gs:[16]", out(reg) index, options(readonly, nostack, preserves_flags)) }
    index
}

/// Has CPU `index` look for something to run.
pub fn wake(index: usize) {
    lapic::interrupt(LAPICS[index].load(Ordering::Relaxed), trap::WAKE);
}
