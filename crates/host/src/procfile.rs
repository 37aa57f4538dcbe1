// SPDX-License-Identifier: GPL-2.0-only
//! The texts of /proc, parsed. What a file does not say as expected is `None`, never a panic: names in it are chosen by
//! whoever owns the process, and it may change while it is read.

/// `PF_VCPU` of `include/linux/sched.h`: in guest mode right now.
pub const PF_VCPU: u64 = 0x1;
/// `PF_IO_WORKER`: a worker of io_uring.
pub const PF_IO_WORKER: u64 = 0x10;
/// `PF_USER_WORKER`: made by the kernel inside a process (vhost since Linux 6.4, KVM's page recovery since 6.15).
pub const PF_USER_WORKER: u64 = 0x4000;
/// `PF_KTHREAD`: a thread of the kernel itself.
pub const PF_KTHREAD: u64 = 0x0020_0000;

/// What `/proc/PID/stat` or `/proc/PID/task/TID/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// The thread's name, as its owner set it: any bytes, brackets and newlines too.
    pub comm: &'a [u8],
    /// One letter, as in proc(5): `R`, `S`, `Z`.
    pub state: u8,
    pub ppid: i32,
    /// `PF_*`.
    pub flags: u64,
    /// Time on a CPU, in clock ticks; of the whole process in `/proc/PID/stat`.
    pub ran: u64,
    /// Start, in clock ticks (1/100 s) since boot.
    pub start: u64,
    /// The CPU it runs on or ran on last.
    pub processor: u32,
    /// Time in guest mode, in clock ticks; of the whole process in `/proc/PID/stat`.
    pub guest: u64,
}

/// Parses a `stat` file.
pub fn stat(text: &[u8]) -> Option<Stat<'_>> {
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let comm = text.get(open + 1..close)?;
    let mut fields = words(text.get(close + 1..)?);
    // Counted from the state, field 3 of proc(5).
    let mut field = |skip: usize| fields.nth(skip);
    Some(Stat {
        comm,
        state: *field(0)?.first()?,
        ppid: signed(field(0)?)?,
        flags: number(field(4)?)?,
        ran: number(field(4)?)?.saturating_add(number(field(0)?)?),
        start: number(field(6)?)?,
        processor: field(16)
            .and_then(number)
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(0),
        guest: field(3).and_then(number).unwrap_or(0),
    })
}

/// Counters of one thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// CPU time used, in nanoseconds.
    pub run_ns: u64,
    /// Time spent waiting in run queues, in nanoseconds.
    pub wait_ns: u64,
    /// Stays on a CPU.
    pub stays: u64,
}

/// Parses a `schedstat` file.
pub fn schedstat(text: &[u8]) -> Option<Counters> {
    let mut fields = words(text);
    Some(Counters {
        run_ns: number(fields.next()?)?,
        wait_ns: number(fields.next()?)?,
        stays: number(fields.next()?)?,
    })
}

/// Voluntary and involuntary context switches of a `status` file.
pub fn switches(text: &[u8]) -> Option<(u64, u64)> {
    let value = |key| number(status_value(text, key)?);
    Some((
        value("voluntary_ctxt_switches")?,
        value("nonvoluntary_ctxt_switches")?,
    ))
}

/// The value of a key of a `status` file, without blanks around it.
pub fn status_value<'a>(text: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let line = text.split(|b| *b == b'\n').find(|line| {
        line.strip_prefix(key.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&b':'))
    })?;
    Some(line[key.len() + 1..].trim_ascii())
}

/// The file descriptor that a thread is in `ioctl(fd, KVM_RUN)` with, by its `syscall` file.
///
/// The number of the system call differs between architectures and is not looked at; `KVM_RUN` is 0xae80 on all of
/// them.
pub fn kvm_run_fd(text: &[u8]) -> Option<i32> {
    const KVM_RUN: u64 = 0xae80;
    let mut fields = words(text).skip(1);
    let fd = hex(fields.next()?)?;
    (hex(fields.next()?)? == KVM_RUN).then(|| i32::try_from(fd).ok())?
}

/// One line of `/proc/PID/cgroup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupLine<'a> {
    /// Controllers, or `name=...`; empty in version 2.
    pub controllers: &'a str,
    pub path: &'a str,
}

/// The lines of a `cgroup` file. Paths that are not UTF-8 are left out.
pub fn cgroup_lines(text: &[u8]) -> impl Iterator<Item = CgroupLine<'_>> {
    text.split(|b| *b == b'\n').filter_map(|line| {
        let mut parts = std::str::from_utf8(line).ok()?.splitn(3, ':');
        parts.next()?.parse::<u32>().ok()?;
        let controllers = parts.next()?;
        let path = parts.next()?;
        path.starts_with('/')
            .then_some(CgroupLine { controllers, path })
    })
}

/// The cgroup that tells most: version 2 if the process is anywhere in it, else that of the controller `cpu`, else
/// systemd's own. `/` if none does.
pub fn main_cgroup(text: &[u8]) -> &str {
    let rank = |line: &CgroupLine<'_>| match line.controllers {
        _ if line.path == "/" => 3,
        "" => 0,
        c if c.split(',').any(|c| c == "cpu") => 1,
        "name=systemd" => 2,
        _ => 4,
    };
    let best = cgroup_lines(text)
        .filter(|line| rank(line) < 4)
        .min_by_key(rank);
    best.map_or("/", |line| line.path)
}

/// The arguments of a `cmdline` file; what is not UTF-8 in them is replaced.
pub fn arguments(text: &[u8]) -> Vec<String> {
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|b| *b == 0)
        .map(|a| String::from_utf8_lossy(a).into_owned())
        .collect()
}

/// CPU numbers as the kernel lists them (`0-3,8,10-11`), ascending. An empty list is empty.
pub fn cpu_list(text: &[u8]) -> Option<Vec<u32>> {
    // More CPUs than any kernel supports: a malformed list must not fill the memory.
    const CPUS: u32 = 1 << 16;
    let text = std::str::from_utf8(text).ok()?.trim();
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// CPU numbers written as the kernel writes them.
pub fn cpu_text(cpus: &[u32]) -> String {
    let mut out = String::new();
    let mut rest = cpus;
    while let Some(first) = rest.first() {
        let run = (1..rest.len())
            .find(|i| rest[*i] != rest[i - 1] + 1)
            .unwrap_or(rest.len());
        if !out.is_empty() {
            out.push(',');
        }
        match run {
            1 => out.push_str(&first.to_string()),
            _ => out.push_str(&format!("{first}-{}", rest[run - 1])),
        }
        rest = &rest[run..];
    }
    out
}

/// A name of unknown origin as it can be shown on one line of a terminal: control characters and what is not UTF-8 are
/// written as escapes.
pub fn printable(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Direction marks turn the rest of the line around.
            let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            match c {
                c if c.is_control() || turns => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// A decimal number that is the whole word.
pub fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn signed(word: &[u8]) -> Option<i32> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn hex(word: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(word).ok()?.strip_prefix("0x")?;
    u64::from_str_radix(digits, 16).ok()
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| b.is_ascii_whitespace())
        .filter(|w| !w.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stat_survives_any_name() {
        let line = |comm: &str| {
            let zeros = "0 ".repeat(16);
            format!(
                "77 ({comm}) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 4711 {zeros}6 0 0 0 88 0"
            )
        };
        for comm in ["a", "a) S 9 (b", "new\nline", "", "CPU 0/KVM", ") S 1 2"] {
            let text = line(comm);
            let parsed = stat(text.as_bytes()).unwrap();
            assert_eq!(parsed.comm, comm.as_bytes());
            assert_eq!((parsed.ppid, parsed.flags), (1, 4_194_560));
            assert_eq!(
                (parsed.start, parsed.processor, parsed.guest),
                (4711, 6, 88)
            );
        }
        assert_eq!(stat(b"77 (x) S 1"), None);
        assert_eq!(stat(b")("), None);
        // This very process: its start is in the past of the machine's uptime.
        let own = std::fs::read("/proc/self/stat").unwrap();
        let up = std::fs::read_to_string("/proc/uptime").unwrap();
        let up: f64 = up.split(' ').next().unwrap().parse().unwrap();
        let parsed = stat(&own).unwrap();
        assert!(parsed.start > 0 && (parsed.start as f64) < up * 100.0 + 100.0);
        assert_eq!(parsed.ppid, std::os::unix::process::parent_id() as i32);
    }

    #[test]
    fn small_files() {
        let c = schedstat(b"123 45 6\n").unwrap();
        assert_eq!((c.run_ns, c.wait_ns, c.stays), (123, 45, 6));
        assert_eq!(schedstat(b"123 x 6"), None);
        let status = b"Name:\tvoluntary_ctxt_switches:9\nvoluntary_ctxt_switches:\t12\n\
            nonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches(status), Some((12, 3)));
        assert_eq!(kvm_run_fd(b"16 0x1c 0xae80 0x0 0x0 1 2 3 4"), Some(28));
        assert_eq!(kvm_run_fd(b"29 0x1c 0xae80 0x0"), Some(28));
        assert_eq!(kvm_run_fd(b"16 0x1c 0xae81 0x0"), None);
        assert_eq!(kvm_run_fd(b"running\n"), None);
        assert_eq!(arguments(b"a\0b c\0\0"), ["a", "b c", ""]);
        assert!(arguments(b"").is_empty());
        assert_eq!(
            printable(b"a\nb\xff\xc3\xa4\x1b[31m"),
            "a\\nb\\xffä\\u{1b}[31m"
        );
    }

    #[test]
    fn the_cgroup_that_tells_most() {
        assert_eq!(main_cgroup(b"0::/a/b\n"), "/a/b");
        assert_eq!(
            main_cgroup(b"9:name=systemd:/s\n5:cpu,cpuacct:/m/x\n0::/\n"),
            "/m/x"
        );
        assert_eq!(main_cgroup(b"9:name=systemd:/s\n1:cpu:/\n0::/\n"), "/s");
        assert_eq!(main_cgroup(b"4:memory:/x\n"), "/");
        assert_eq!(main_cgroup(b"0::/a:b\n"), "/a:b");
        assert_eq!(main_cgroup(b"nonsense"), "/");
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list(b"0-3,8\n").unwrap(), [0, 1, 2, 3, 8]);
        assert_eq!(cpu_list(b"\n").unwrap(), [0; 0]);
        assert_eq!(cpu_list(b"3-1"), None);
        assert_eq!(cpu_list(b"0-4000000000"), None);
        assert_eq!(cpu_text(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(cpu_text(&[]), "");
    }

    proptest! {
        #[test]
        fn nothing_panics(text: Vec<u8>) {
            stat(&text);
            schedstat(&text);
            switches(&text);
            kvm_run_fd(&text);
            main_cgroup(&text);
            arguments(&text);
            cpu_list(&text);
            prop_assert!(!printable(&text).contains(char::is_control));
        }

        #[test]
        fn lists_come_back(mut cpus in proptest::collection::vec(0u32..4096, 0..40)) {
            cpus.sort_unstable();
            cpus.dedup();
            prop_assert_eq!(cpu_list(cpu_text(&cpus).as_bytes()).unwrap(), cpus);
        }

        #[test]
        fn stat_is_found_behind_any_name(comm: Vec<u8>, start: u64) {
            let mut text = b"1 (".to_vec();
            text.extend(&comm);
            text.extend(format!(") S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0\n").bytes());
            let parsed = stat(&text).unwrap();
            prop_assert_eq!((parsed.comm, parsed.start), (&comm[..], start));
        }
    }
}
