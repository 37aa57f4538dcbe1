// SPDX-License-Identifier: GPL-2.0-only
//! A thread: a stack, and the registers with which it goes on.
use alloc::boxed::Box;
use alloc::vec;

/// Registers as `trap.s` pushes them, and as the CPU does.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    /// r15, r14, ..., r8, rdi, rsi, rbp, rbx, rdx, rcx, rax.
    pub registers: [u64; 15],
    /// Which vector brought it here.
    pub vector: u64,
    /// The CPU's word about an exception.
    pub error: u64,
    /// Where it goes on.
    pub rip: u64,
    cs: u64,
    rflags: u64,
    /// Its stack pointer.
    pub rsp: u64,
    ss: u64,
}

impl Frame {
    /// Goes on at `rip`, with the kernel's segments and interrupts on.
    pub fn at(rip: u64, rsp: u64) -> Frame {
        Frame {
            rip,
            cs: 0x08,
            rflags: 0x202,
            rsp,
            ss: 0x10,
            ..Frame::default()
        }
    }
}

/// Place of rdi in [`Frame::registers`].
const RDI: usize = 8;

/// Registers of SSE and x87, as `fxsave64` has them.
#[repr(C, align(16))]
pub struct Fpu([u8; 512]);

impl Fpu {
    /// As after a reset: all exceptions masked.
    pub const fn new() -> Fpu {
        let mut area = [0; 512];
        (area[0], area[1]) = (0x7f, 0x03);
        (area[24], area[25]) = (0x80, 0x1f);
        Fpu(area)
    }
}

/// 16-byte words of a thread's stack: 16 KiB.
const STACK: usize = 1024;
/// The last word of a stack that is sound.
const SOUND: u128 = 0x5afe_57ac_5afe_57ac_5afe_57ac_5afe_57ac;

/// A thread that does not run.
pub struct Thread {
    /// With what it goes on.
    pub frame: Frame,
    /// With what it goes on, SSE.
    pub fpu: Fpu,
    /// Empty: it runs on a stack that is not the heap's.
    stack: Box<[u128]>,
}

/// What a thread runs.
pub type Body = Box<dyn FnOnce() + Send>;

impl Thread {
    /// Memory that a thread takes, with what is kept of it elsewhere.
    pub const BYTES: usize = STACK * 16 + size_of::<Thread>() + 1024;

    /// Who runs already, on a stack of its own.
    pub fn running() -> Thread {
        Thread {
            frame: Frame::default(),
            fpu: Fpu::new(),
            stack: Box::default(),
        }
    }

    /// A thread with a stack and nothing to run.
    pub fn new() -> Box<Thread> {
        let mut stack = vec![0u128; STACK].into_boxed_slice();
        stack[0] = SOUND;
        Box::new(Thread {
            stack,
            ..Thread::running()
        })
    }

    /// Readies it to run `body` and to exit.
    pub fn begin(&mut self, body: Body) {
        let top = self.stack.as_ptr_range().end as u64;
        self.fpu = Fpu::new();
        // As if it were called: 8 below a multiple of 16.
        self.frame = Frame::at(
            thread_main as extern "C" fn(*mut Body) -> ! as usize as u64,
            top - 8,
        );
        self.frame.registers[RDI] = Box::into_raw(Box::new(body)) as u64;
    }

    /// Whether it stayed on its stack.
    pub fn is_sound(&self) -> bool {
        self.stack.first().is_none_or(|last| *last == SOUND)
    }
}

extern "C" fn thread_main(body: *mut Body) -> ! {
    // SAFETY: `begin` made it of a box, and a thread begins once.
    let body = unsafe { Box::from_raw(body) };
    body();
    super::trap::exit_thread()
}
