// SPDX-License-Identifier: GPL-2.0-only
//! The first CPU, from its first line of Rust to the kernel's own.
use super::exit::Code;
use super::thread::{Frame, Thread};
use super::{acpi, clock, cpu, heap, nic, port, serial, smp};
use crate::switch::Current;
use alloc::boxed::Box;
use core::arch::global_asm;
use core::ffi::CStr;

global_asm!(
    ".set LEAST_HEAP, {least_heap}",
    ".set CANNOT_RUN, {cannot_run}",
    include_str!("boot.s"),
    least_heap = const heap::LEAST,
    cannot_run = const Code::Machine as u32,
    options(att_syntax)
);
global_asm!(include_str!("memory.s"), options(att_syntax));

unsafe extern "C" {
    static __image_start: u8;
    static __image_end: u8;
}

/// Start information of PVH, version 1 (Xen's `hvm_start_info`).
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    modules_at: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_entries: u32,
}

/// A piece of the memory map; type 1 is memory.
#[repr(C)]
struct Piece {
    start: u64,
    bytes: u64,
    kind: u32,
    reserved: u32,
}

/// Devices begin here; what is mapped as memory ends.
const END: u64 = 0xc000_0000;

/// Where the memory ends that the image is in.
fn end_of_memory(info: &StartInfo) -> u64 {
    let image = &raw const __image_start as u64;
    (0..u64::from(info.memory_map_entries))
        .map(|i| info.memory_map + i * size_of::<Piece>() as u64)
        // SAFETY: PVH has so many there, and boot.s read them before.
        .map(|at| unsafe { (at as *const Piece).read_unaligned() })
        .find(|piece| {
            piece.kind == 1
                && piece.start <= image
                && image < piece.start.saturating_add(piece.bytes)
        })
        .map_or(0, |piece| piece.start.saturating_add(piece.bytes).min(END))
}

#[unsafe(no_mangle)]
extern "C" fn start_first(info: *const StartInfo) -> ! {
    serial::init();
    // SAFETY: boot.s found the magic number there.
    let info = unsafe { info.read_unaligned() };
    let (start, end) = (
        (&raw const __image_end as usize).next_multiple_of(4096),
        end_of_memory(&info) as usize,
    );
    // SAFETY: boot.s found enough memory behind the image; the firmware's tables and the start information are not in
    // it (QEMU puts them below the image or at the end, which the map does not call memory).
    unsafe { heap::init(start, end) };
    let command_line = if info.command_line == 0 {
        ""
    } else {
        // SAFETY: PVH has a string there, outside of the heap, for ever.
        unsafe { CStr::from_ptr(info.command_line as *const core::ffi::c_char) }
            .to_str()
            .unwrap_or("(no-UTF-8)")
    };
    // The boot options are read before the memory they are in can be used for anything else.
    let command_line: &'static str = Box::leak(Box::from(command_line));
    let main = Box::new(Thread::running());
    cpu::init(0, Current::Main(main));
    give_idle_a_place();
    clock::init();
    let machine = acpi::read_machine(info.rsdp);
    let cpus = smp::start(&machine.cpus);
    nic::know(machine.io_apics);
    port::interrupts_on();
    crate::main_thread(command_line, cpus)
}

/// CPU 0's idle thread has not run yet: it begins at the idle loop, on a stack of its own.
fn give_idle_a_place() {
    let stack = alloc::vec![0u128; 512].leak();
    let (rip, rsp) = smp::idle_frame(stack);
    // SAFETY: interrupts are off, so nobody else uses the CPU's own structure.
    let cpu = unsafe { &mut *cpu::this() };
    cpu.idle.frame = Frame::at(rip, rsp);
}
