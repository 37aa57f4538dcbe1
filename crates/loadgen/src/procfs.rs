// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel knows about threads and CPUs, read from /proc. Readers return `None` where the
//! running kernel does not tell.
use std::fs;

/// Counters of one thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ThreadCounters {
    /// CPU time used, in nanoseconds.
    pub cpu_ns: u64,
    /// Time spent in run queues, in nanoseconds.
    pub delay_ns: u64,
    /// Stays on a CPU, so also stays in a run queue.
    pub timeslices: u64,
    pub migrations: Option<u64>,
}

impl ThreadCounters {
    /// Of two threads together, without migrations.
    pub fn add(&mut self, other: &ThreadCounters) {
        self.cpu_ns += other.cpu_ns;
        self.delay_ns += other.delay_ns;
        self.timeslices += other.timeslices;
    }
}

/// The same without migrations, which take long to read.
pub fn times(tid: i32) -> Option<ThreadCounters> {
    parse_schedstat(&fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?)
}

/// Counters of a thread, of whichever process.
pub fn thread(tid: i32) -> Option<ThreadCounters> {
    let mut counters = times(tid)?;
    counters.migrations = fs::read_to_string(format!("/proc/{tid}/sched"))
        .ok()
        .and_then(|s| parse_migrations(&s));
    Some(counters)
}

fn parse_schedstat(text: &str) -> Option<ThreadCounters> {
    let mut numbers = text.split_whitespace().map(|w| w.parse().ok());
    Some(ThreadCounters {
        cpu_ns: numbers.next()??,
        delay_ns: numbers.next()??,
        timeslices: numbers.next()??,
        migrations: None,
    })
}

fn parse_migrations(text: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with("se.nr_migrations"))?;
    line.split(':').nth(1)?.trim().parse().ok()
}

/// Counters of the whole machine since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCounters {
    /// Idle time of all CPUs, I/O wait included, in nanoseconds.
    pub idle_ns: u64,
    pub switches: u64,
    pub cpus: u64,
}

/// Counters of the machine.
pub fn machine() -> Option<MachineCounters> {
    // SAFETY: asks for a constant.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    parse_stat(
        &fs::read_to_string("/proc/stat").ok()?,
        u64::try_from(hz).ok()?.max(1),
    )
}

fn parse_stat(text: &str, user_hz: u64) -> Option<MachineCounters> {
    let mut counters = MachineCounters::default();
    let mut switches = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(key) = words.next() else { continue };
        if key == "ctxt" {
            switches = words.next()?.parse().ok();
        } else if key != "cpu" && key.starts_with("cpu") {
            let fields: Vec<u64> = words.filter_map(|w| w.parse().ok()).collect();
            let idle = fields.get(3)? + fields.get(4).unwrap_or(&0);
            counters.idle_ns += idle * (1_000_000_000 / user_hz);
            counters.cpus += 1;
        }
    }
    counters.switches = switches?;
    Some(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_the_kernel_are_understood() {
        let t = parse_schedstat("123 45 6\n").unwrap();
        assert_eq!((t.cpu_ns, t.delay_ns, t.timeslices), (123, 45, 6));
        assert_eq!(parse_schedstat("123 x 6"), None);
        assert_eq!(
            parse_migrations("x : 1\nse.nr_migrations        :           17\n"),
            Some(17)
        );
        let stat =
            "cpu  1 2 3 30 2 0 0 0 0 0\ncpu0 1 1 1 10 1 0\ncpu1 0 1 2 20 1 0\nintr 5\nctxt 99\n";
        let m = parse_stat(stat, 100).unwrap();
        assert_eq!(
            m,
            MachineCounters {
                idle_ns: 320_000_000,
                switches: 99,
                cpus: 2
            }
        );
    }

    #[test]
    fn this_kernel_answers() {
        assert!(machine().unwrap().cpus > 0);
        assert!(thread(crate::sys::gettid()).is_some());
        assert_eq!(thread(-5), None);
    }
}
