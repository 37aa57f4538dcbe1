// SPDX-License-Identifier: GPL-2.0-only
//! Time since the start, by the time-stamp counter; its speed, and that of the timers, by the PIT.
use super::exit::{Code, refuse};
use super::{lapic, port};
use core::arch::asm;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU64, Ordering};

static START: AtomicU64 = AtomicU64::new(0);
static TSC_KHZ: AtomicU64 = AtomicU64::new(0);
static TIMER_KHZ: AtomicU64 = AtomicU64::new(0);
static TURNS_PER_MS: AtomicU64 = AtomicU64::new(0);

const PIT_HZ: u64 = 1_193_182;
/// How long speeds are measured: 5 ms, and if that does not do, 1 ms.
const PIT_TICKS: u64 = PIT_HZ / 200;
const FEWER_TICKS: u64 = PIT_HZ / 1000;
/// So many times the longer, and the shorter.
const TRIES: usize = 8;
const MORE_TRIES: usize = 400;

/// The PIT's counter and what the others stand at, read closest to each other of some tries: where the host lets
/// something else run in between, they are of different times.
fn together() -> (u16, u64, u32) {
    let once = || {
        let before = port::tsc();
        // SAFETY: the PIT's registers; it changes no memory. Channel 0 is latched, then read.
        let pit = unsafe {
            port::out8(0x43, 0);
            u16::from(port::in8(0x40)) | u16::from(port::in8(0x40)) << 8
        };
        let left = lapic::left();
        let after = port::tsc();
        (after - before, (pit, before + (after - before) / 2, left))
    };
    let first = once();
    (0..7)
        .map(|_| once())
        .fold(
            first,
            |best, next| if next.0 < best.0 { next } else { best },
        )
        .1
}

/// Speeds of counter and timer in kHz, over so many ticks of the PIT.
fn measure(least: u64) -> (u64, u64) {
    lapic::start(u32::MAX);
    let (pit_0, tsc_0, left_0) = together();
    loop {
        let (pit, tsc, left) = together();
        let ticks = u64::from(pit_0.wrapping_sub(pit));
        if ticks >= least {
            lapic::disarm();
            let khz = |count: u64| count * PIT_HZ / ticks / 1000;
            return (khz(tsc - tsc_0), khz(u64::from(left_0 - left)));
        }
    }
}

fn agree(a: (u64, u64), b: (u64, u64)) -> bool {
    // Of those that there are.
    b.1 > 0 && b.0.abs_diff(a.0) * 200 <= b.0 && b.1.abs_diff(a.1) * 200 <= b.1
}

/// Finds out how fast clocks are. Where the host lets others run for 55 ms or more in between, the PIT has begun anew
/// and a measurement says too much: two of the three least must agree.
pub fn init() {
    START.store(port::tsc(), Ordering::Relaxed);
    // SAFETY: as above; channel 0 counts down from 65536 again and again.
    unsafe {
        port::out8(0x43, 0x34);
        port::out8(0x40, 0);
        port::out8(0x40, 0);
    }
    let mut least = [(u64::MAX, 0); 3];
    for tried in 0..TRIES + MORE_TRIES {
        let next = measure(if tried < TRIES {
            PIT_TICKS
        } else {
            FEWER_TICKS
        });
        if next.0 < least[2].0 {
            least[2] = next;
            least.sort_unstable();
        }
        if let Some(pair) = least.windows(2).find(|pair| agree(pair[0], pair[1])) {
            TSC_KHZ.store((pair[0].0 + pair[1].0) / 2, Ordering::Relaxed);
            TIMER_KHZ.store((pair[0].1 + pair[1].1) / 2, Ordering::Relaxed);
            return;
        }
    }
    refuse(
        Code::Machine,
        format_args!(
            "clocks that do not agree: {} kHz, {} kHz",
            least[0].0, least[0].1
        ),
    )
}

/// Nanoseconds since the start.
pub fn now_ns() -> u64 {
    let khz = TSC_KHZ.load(Ordering::Relaxed).max(1);
    (u128::from(port::tsc() - START.load(Ordering::Relaxed)) * 1_000_000 / u128::from(khz)) as u64
}

/// Microseconds since the start.
pub fn now_us() -> u64 {
    now_ns() / 1000
}

/// What the timer counts in `ns`; 1 at least.
pub fn timer_ticks(ns: u64) -> u32 {
    let ticks = u128::from(ns) * u128::from(TIMER_KHZ.load(Ordering::Relaxed)) / 1_000_000;
    u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
}

/// Lets `us` pass.
pub fn spin_us(us: u64) {
    let end_us = now_us() + us;
    while now_us() < end_us {
        spin_loop();
    }
}

/// Work of `turns` turns: two instructions each.
#[inline(never)]
fn turns(turns: u64) {
    if turns > 0 {
        // SAFETY: counts a register down.
        unsafe { asm!("2: dec {0}", "jnz 2b", inout(reg) turns => _, options(nomem, nostack)) }
    }
}

/// How much work a millisecond is: the fastest of some short runs, so that a host that is busy counts little.
pub fn measure_work() {
    const TURNS: u64 = 50_000;
    let once = || {
        let were_on = port::interrupts_off();
        let start_ns = now_ns();
        turns(TURNS);
        let took_ns = now_ns() - start_ns;
        if were_on {
            port::interrupts_on();
        }
        took_ns.max(1)
    };
    let best_ns = (0..10).map(|_| once()).min().unwrap_or(1);
    TURNS_PER_MS.store(TURNS * 1_000_000 / best_ns, Ordering::Relaxed);
}

/// Turns of work that make a millisecond.
pub fn turns_per_ms() -> u64 {
    TURNS_PER_MS.load(Ordering::Relaxed)
}

/// Work of `us` on a CPU of its own, whoever else runs meanwhile.
pub fn work_us(us: u64) {
    turns(us * turns_per_ms() / 1000);
}
