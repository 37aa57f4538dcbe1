// SPDX-License-Identifier: GPL-2.0-only
//! The system calls that threads of a load need, as safe functions. Times are nanoseconds of
//! `CLOCK_MONOTONIC` unless said otherwise.
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// What guests' speed is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// CPU time: others may use the CPUs meanwhile.
    Cpu,
    /// Time: nobody else does. For emulated CPUs that take turns of unequal length, in which interrupts seem to last as
    /// long as the others' turns, and are no CPU time of any thread.
    Wall,
}

/// `SCHED_EXT` of the kernel's `sched.h`.
const SCHED_EXT: i32 = 7;

fn clock(id: libc::clockid_t) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid timespec; both clocks used here exist on every Linux.
    unsafe { libc::clock_gettime(id, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

pub fn now_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread, in nanoseconds.
pub fn cpu_ns() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

pub fn gettid() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::gettid() }
}

/// Lets other threads run first.
pub fn yield_now() {
    // SAFETY: no arguments, cannot fail on Linux.
    unsafe { libc::sched_yield() };
}

fn check(rc: libc::c_long) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Wake-ups of the calling thread's timers are not batched (default: up to 50 us late).
pub fn exact_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes one number.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
}

/// Switches away from the calling thread so far, asked for or not.
pub fn switches() -> u64 {
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for the call, which cannot fail with these arguments.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    (usage.ru_nvcsw + usage.ru_nivcsw) as u64
}

/// The most CPUs a kernel can be built for (`NR_CPUS`).
const MOST_CPUS: usize = 8192;

/// CPUs that the calling thread may use, in order.
pub fn affinity() -> io::Result<Vec<u32>> {
    let mut mask = [0u64; MOST_CPUS / 64];
    // SAFETY: pointer and size describe `mask`. Returns the number of bytes written.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            size_of_val(&mask),
            mask.as_mut_ptr(),
        )
    };
    check(rc.min(0))?;
    let has = |cpu: &u32| mask[*cpu as usize / 64] >> (cpu % 64) & 1 != 0;
    Ok((0..MOST_CPUS as u32).filter(has).collect())
}

/// Binds the calling thread to these CPUs; an empty list means all.
pub fn set_affinity(cpus: &[u32]) -> io::Result<()> {
    let words = cpus
        .iter()
        .map(|c| *c as usize / 64 + 1)
        .max()
        .unwrap_or(MOST_CPUS / 64);
    let mut mask = vec![if cpus.is_empty() { u64::MAX } else { 0 }; words];
    for cpu in cpus {
        mask[*cpu as usize / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: pointer and length describe `mask`.
    check(
        unsafe {
            libc::syscall(
                libc::SYS_sched_setaffinity,
                0,
                mask.len() * 8,
                mask.as_ptr(),
            )
        }
        .min(0),
    )
}

/// Nice value of the calling thread.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: plain numbers. On Linux, 0 names the calling thread, not its process.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }.into())
}

/// The calling thread asks the kernel's own scheduler for slices of this length. Keeps its nice value.
pub fn set_slice(ns: u64, nice: i32) -> io::Result<()> {
    // struct sched_attr, first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime: ns,
        deadline: 0,
        period: 0,
    };
    // SAFETY: a structure of the size it says; 0 names the calling thread.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0u32) })
}

fn set_policy(policy: i32, priority: i32) -> io::Result<()> {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `param` is valid for the call.
    check(unsafe { libc::sched_setscheduler(0, policy, &param) }.into())
}

/// The calling thread joins the sched_ext scheduler. Keeps its nice value.
pub fn join_sched_ext() -> io::Result<()> {
    set_policy(SCHED_EXT, 0)
}

/// The calling thread becomes a real-time thread (1 = lowest priority).
pub fn become_fifo(priority: i32) -> io::Result<()> {
    set_policy(libc::SCHED_FIFO, priority)
}

/// The calling thread becomes an ordinary one. Keeps its nice value.
pub fn become_ordinary() -> io::Result<()> {
    set_policy(libc::SCHED_OTHER, 0)
}

/// What ended a [`wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A word no longer had its expected value: the thread did not sleep.
    Changed,
    /// Another thread woke it (or a signal did).
    Wake,
    Timeout,
}

/// One element of the kernel's `futex_waitv`.
#[repr(C)]
struct Waiter {
    val: u64,
    uaddr: u64,
    flags: u32,
    reserved: u32,
}

const FUTEX2_SIZE_U32: u32 = 0x02;

/// Sleeps until one of the words is woken or `deadline_ns` passes, unless one already differs from the
/// value expected. At most 128 words (the kernel's limit).
pub fn wait(words: &[(&AtomicU32, u32)], deadline_ns: Option<u64>) -> io::Result<Woken> {
    let list: Vec<Waiter> = words
        .iter()
        .map(|(word, val)| Waiter {
            val: u64::from(*val),
            uaddr: word.as_ptr() as u64,
            flags: FUTEX2_SIZE_U32,
            reserved: 0,
        })
        .collect();
    let until = deadline_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    let until_ptr = until
        .as_ref()
        .map_or(std::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: `list` and `until` outlive the call; the words are borrowed for its duration.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            list.as_ptr(),
            list.len() as u32,
            0u32,
            until_ptr,
            libc::CLOCK_MONOTONIC,
        )
    };
    if rc >= 0 {
        return Ok(Woken::Wake);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Ok(Woken::Changed),
        Some(libc::ETIMEDOUT) => Ok(Woken::Timeout),
        Some(libc::EINTR) => Ok(Woken::Wake),
        _ => Err(error),
    }
}

/// Changes the word and wakes up to `threads` of those that wait on it.
pub fn change_and_wake(word: &AtomicU32, threads: i32) {
    word.fetch_add(1, Ordering::Release);
    wake(word, threads);
}

/// Wakes up to `threads` of those that wait on a word that has been changed.
pub fn wake(word: &AtomicU32, threads: i32) {
    // SAFETY: FUTEX_WAKE only uses the address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, threads) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_by_change_wake_and_time() {
        let a = AtomicU32::new(1);
        let b = AtomicU32::new(0);
        assert_eq!(wait(&[(&a, 0), (&b, 0)], None).unwrap(), Woken::Changed);
        assert_eq!(
            wait(&[(&a, 1), (&b, 0)], Some(now_ns())).unwrap(),
            Woken::Timeout
        );
        std::thread::scope(|s| {
            s.spawn(|| change_and_wake(&b, 1));
            assert_ne!(wait(&[(&a, 1), (&b, 0)], None).unwrap(), Woken::Timeout);
        });
        assert_eq!(b.load(Ordering::Acquire), 1);
    }

    #[test]
    fn affinity_is_set_and_bad_cpus_are_refused() {
        std::thread::spawn(|| {
            set_affinity(&[0]).unwrap();
            assert_eq!(affinity().unwrap(), [0]);
            set_affinity(&[]).unwrap();
            assert!(affinity().unwrap().contains(&0));
            assert!(set_affinity(&[8000]).is_err());
        })
        .join()
        .unwrap();
    }
}
