// SPDX-License-Identifier: GPL-2.0-only
//! One CPU's samples, as the kernel writes them (`perf_event_open(2)`).
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of samples: 24 bytes each, so some ten thousand.
const PAGES: usize = 64;
/// Of `struct perf_event_attr`'s first version.
const ATTR: usize = 64;
/// Where the kernel's and the reader's place are in the first page.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
const SAMPLE: u32 = 9;
const LOST: u32 = 2;

/// What makes a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Cycles,
    CpuClock,
}

/// What ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Kernel,
    User,
    Guest,
}

/// Samples of one CPU, since it was opened.
#[derive(Debug)]
pub struct Ring {
    _event: OwnedFd,
    at: *mut u8,
    page: usize,
}

impl Ring {
    /// # Errors
    /// Those of `perf_event_open` and `mmap`.
    pub fn open(event: Event, cpu: u32, per_second: u64) -> io::Result<Ring> {
        // exclude_idle, and a frequency in place of a period.
        const FLAGS: u64 = 1 << 7 | 1 << 10;
        // The address, process and thread of each.
        const WHAT: u64 = 1 | 2;
        let (kind, config) = match event {
            Event::Cycles => (0u32, 0u64),
            Event::CpuClock => (1, 0),
        };
        let mut attr = [0u8; ATTR];
        let mut put = |at: usize, bytes: &[u8]| attr[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &kind.to_ne_bytes());
        put(4, &(ATTR as u32).to_ne_bytes());
        put(8, &config.to_ne_bytes());
        put(16, &per_second.to_ne_bytes());
        put(24, &WHAT.to_ne_bytes());
        put(40, &FLAGS.to_ne_bytes());
        let cpu = i32::try_from(cpu).map_err(io::Error::other)?;
        const CLOEXEC: libc::c_ulong = 8;
        // SAFETY: the kernel reads as many bytes of `attr` as it says it has.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                attr.as_ptr(),
                -1,
                cpu,
                -1,
                CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, owned by nobody else.
        let event = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(io::Error::other)?) };
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
        let page = page.map_err(io::Error::other)?;
        // SAFETY: a new mapping, unmapped when this is dropped.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                (1 + PAGES) * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring {
            _event: event,
            at: at.cast(),
            page,
        })
    }

    fn place(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: aligned, inside of the first page, which both sides use as atomic numbers.
        unsafe { AtomicU64::from_ptr(self.at.add(offset).cast()) }
    }

    /// Gives each new sample: what ran, its address, its thread. How many were lost.
    pub fn read(&mut self, each: &mut dyn FnMut(Mode, u64, i32)) -> u64 {
        let size = PAGES * self.page;
        let head = self.place(HEAD).load(Ordering::Acquire);
        let mut tail = self.place(TAIL).load(Ordering::Relaxed);
        let mut lost = 0;
        let byte = |at: u64| {
            // SAFETY: inside of the pages of samples, whose size is a power of two; the kernel does not write again
            // what it has not been told is read.
            unsafe {
                self.at
                    .add(self.page + (at as usize & (size - 1)))
                    .read_volatile()
            }
        };
        while tail < head {
            let number = |at: u64, bytes: u64| {
                (0..bytes).fold(0u64, |n, i| n | u64::from(byte(tail + at + i)) << (8 * i))
            };
            let (kind, misc, length) = (number(0, 4) as u32, number(4, 2), number(6, 2));
            if length < 8 {
                break;
            }
            match kind {
                SAMPLE => {
                    let mode = match misc & 7 {
                        1 => Mode::Kernel,
                        4 | 5 => Mode::Guest,
                        _ => Mode::User,
                    };
                    each(mode, number(8, 8), number(20, 4) as i32);
                }
                LOST => lost += number(16, 8),
                _ => {}
            }
            tail += length;
        }
        self.place(TAIL).store(head, Ordering::Release);
        lost
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, used by nobody else.
        unsafe { libc::munmap(self.at.cast(), (1 + PAGES) * self.page) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn who_works_on_a_cpu_is_sampled_there() {
        // SAFETY: plain calls about this thread.
        let (cpu, tid) = unsafe {
            let cpu = libc::sched_getcpu();
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu as usize, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
            (cpu as u32, libc::syscall(libc::SYS_gettid) as i32)
        };
        let mut ring = match Ring::open(Event::CpuClock, cpu, 997) {
            Ok(ring) => ring,
            Err(e) => return eprintln!("skipped: {e}"),
        };
        let (mut ours, mut kernel, mut all) = (0, 0, 0);
        // Until there are enough, however slow this machine is.
        let end = Instant::now() + Duration::from_secs(60);
        while ours < 50 && Instant::now() < end {
            let until = Instant::now() + Duration::from_millis(20);
            while Instant::now() < until {
                let _ = std::fs::read("/proc/self/stat");
            }
            ring.read(&mut |mode, address, of| {
                all += 1;
                if of == tid {
                    ours += 1;
                    kernel += u32::from(mode == Mode::Kernel && address >> 63 == 1);
                }
            });
        }
        assert!(
            ours >= 50 && kernel > 0 && all >= ours,
            "{ours} {kernel} {all}"
        );
    }
}
