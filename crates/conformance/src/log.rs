// SPDX-License-Identifier: GPL-2.0-only
//! The recorder's log: from bytes to lines, and the comparison of two logs.
use crate::row::{Op, Order, Row, Span};
use std::collections::BTreeMap;
use std::fmt;

/// One call, or a note of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Nanoseconds; what they count from is the world's own affair.
    pub clock: u64,
    pub op: Op,
    pub cpu: u16,
    /// 0 = no thread, or one that is not of the cast.
    pub label: u32,
    pub args: [u64; 3],
    /// Length of the executing CPU's local queue and of the recorder's queue.
    pub queues: [i32; 2],
}

/// [`Log::exit`] of a policy that the kernel did not even load, in place of a `SCX_EXIT_*` number.
pub const REFUSED: i32 = -1;
/// `SCX_EXIT_ERROR`: the policy was ejected for a mistake.
const EJECTED: i32 = 1024;

/// Size of the recorder's `struct entry`.
pub const ENTRY_BYTES: usize = 48;

impl Entry {
    /// From the recorder's `struct entry`; `None` if it was never written.
    pub fn parse(bytes: &[u8]) -> Option<Entry> {
        let u64_at = |i: usize| bytes.get(i..i + 8)?.try_into().ok().map(u64::from_le_bytes);
        let i32_at = |i: usize| bytes.get(i..i + 4)?.try_into().ok().map(i32::from_le_bytes);
        let u16_at = |i: usize| bytes.get(i..i + 2)?.try_into().ok().map(u16::from_le_bytes);
        Some(Entry {
            clock: u64_at(0)?,
            args: [u64_at(8)?, u64_at(16)?, u64_at(24)?],
            queues: [i32_at(32)?, i32_at(36)?],
            op: Op::from_number(u16_at(40)?)?,
            cpu: u16_at(42)?,
            label: i32_at(44)? as u32,
        })
    }

    fn label(&self) -> char {
        match self.label {
            0 => '-',
            n => (b'A' + (n as u8 - 1)) as char,
        }
    }

    fn args_text(&self) -> String {
        let [a, b, c] = self.args;
        let slice = |n: u64| {
            ["none", "1ns", "default", "endless", "some"]
                .get(n as usize)
                .copied()
                .unwrap_or("?")
        };
        let enq = |n: u64| flags(n, &["wakeup", "head", "preempt", "reenq", "last"]);
        let deq = |n: u64| flags(n, &["sleep", "core_sched_exec", "sched_change"]);
        match self.op {
            Op::SelectCpu => format!(
                "prev_cpu={a} {} cpus={c:#x}",
                flags(b, &["fork", "ttwu", "sync"])
            ),
            Op::Enqueue => format!("{} slice={} task_cpu={c}", enq(a), slice(b)),
            Op::Dequeue | Op::Quiescent => deq(a),
            Op::Dispatch if self.label == 0 => format!("cpu={a}"),
            Op::Dispatch => format!("cpu={a} slice={} queued={c}", slice(b)),
            Op::Tick => String::new(),
            Op::Runnable => format!("{} task_cpu={c}", enq(a)),
            Op::Running => format!("slice={} task_cpu={c}", slice(a)),
            Op::Stopping => format!("runnable={a} slice={}", slice(b)),
            Op::SetWeight => format!("weight={a}"),
            Op::SetCpumask => format!("cpus={a:#x}"),
            Op::UpdateIdle => format!("cpu={a} idle={b}"),
            Op::CpuAcquire | Op::CpuRelease => format!("cpu={a}"),
            Op::InitTask => format!("fork={a}"),
            Op::ExitTask => format!("cancelled={a}"),
            Op::Exit => format!("kind={a}"),
            Op::CgroupInit => {
                let (group, weight, period) = (group(a & 0xff), a >> 8 & 0xff_ffff, a >> 32);
                format!("{group} weight={weight} {}", limit(period, b, c))
            }
            Op::CgroupExit => group(a),
            Op::CgroupPrepMove | Op::CgroupMove | Op::CgroupCancelMove => {
                format!("from={} to={}", group(a), group(b))
            }
            Op::CgroupSetWeight => format!("{} weight={b}", group(a)),
            Op::CgroupSetBandwidth => {
                format!("{} {}", group(a & 0xff), limit(a >> 32, b, c))
            }
            Op::CgroupSetIdle => format!("{} idle={b}", group(a)),
            Op::Enable | Op::Disable | Op::Timer => String::new(),
            Op::Note => match a {
                5 => format!("moved from queue {b}: {c}"),
                7 => format!("default choice: cpu={} idle={c}", b as i32),
                10 => format!(
                    "idle cpus={:#x} cores={:#x} length={}",
                    b & 0xff,
                    b >> 8,
                    c as i32
                ),
                11 => format!("claimed cpu {b}: {c}"),
                12 => format!("picked cpu={}", b as i32),
                13 => format!("pulled from queue {b}: {c}"),
                14 => format!("awaited: {b}"),
                15 => format!("picked near node {c} cpu={}", b as i32),
                16 => format!("idle on node {c} cpus={:#x} cores={:#x}", b & 0xff, b >> 8),
                _ => format!("{a} {b} {c}"),
            },
        }
    }
}

/// A cgroup by the recorder's number: in the order in which it heard of them.
fn group(number: u64) -> String {
    match number {
        0 => "unknown".into(),
        1 => "root".into(),
        2 => "machine".into(),
        n => format!("vm{}", n - 3),
    }
}

fn limit(period: u64, quota: u64, burst: u64) -> String {
    let quota = match quota {
        u64::MAX => "max".into(),
        n => n.to_string(),
    };
    format!("quota={quota} period={period} burst={burst}")
}

fn flags(bits: u64, names: &[&str]) -> String {
    let set: Vec<&str> = names
        .iter()
        .enumerate()
        .filter(|(i, _)| bits >> i & 1 == 1)
        .map(|(_, n)| *n)
        .collect();
    if set.is_empty() {
        "flags=0".into()
    } else {
        set.join("+")
    }
}

/// A log as it is stored and compared: one line per entry.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Log {
    pub lines: Vec<Line>,
    /// How the scheduler ended, if it was ejected: `SCX_EXIT_*` number.
    pub exit: Option<i32>,
    /// Growth of the counters that the row names.
    pub counts: BTreeMap<String, u64>,
}

/// One entry: what is compared, and when it happened (ns after the row's start).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub op: String,
    pub cpu: u16,
    pub label: char,
    pub args: String,
    pub queues: [i32; 2],
    pub at_ns: u64,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!(
            "cpu{} {:<11} {} {}",
            self.cpu, self.op, self.label, self.args
        );
        let [local, queued] = self.queues;
        write!(
            f,
            "{text:<62} q={local},{queued} @{:.1}",
            self.at_ns as f64 / 1000.0
        )
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        for (name, n) in &self.counts {
            writeln!(f, "count {name} {n}")?;
        }
        match self.exit {
            Some(REFUSED) => writeln!(f, "exit refused"),
            Some(kind) => writeln!(f, "exit {kind}"),
            None => Ok(()),
        }
    }
}

/// Why a stored log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of a stored log cannot be read: `{text}`; record it again")]
pub struct BadLog {
    pub line: usize,
    pub text: String,
}

impl Log {
    /// The entries between two instants, without the callbacks that the row hides; ticks in a row become one.
    ///
    /// `real` machines have threads of their own, which interrupt the cast now and then: rows that are not
    /// about higher classes leave that out.
    pub fn new(entries: &[Entry], row: &Row, (from, to): (u64, u64), real: bool) -> Log {
        let mut lines: Vec<Line> = Vec::new();
        let from = match entries.first() {
            Some(first) if row.since_load => first.clock,
            _ => from,
        };
        for e in entries.iter().filter(|e| from <= e.clock && e.clock <= to) {
            if row.hide.contains(&e.op) {
                continue;
            }
            let line = Line {
                op: e.op.name().into(),
                cpu: e.cpu,
                label: e.label(),
                args: e.args_text(),
                queues: e.queues,
                at_ns: e.clock - from,
            };
            let again = lines.last().is_some_and(|l| {
                e.op == Op::Tick && l.op == line.op && l.label == line.label && l.cpu == line.cpu
            });
            if !again {
                lines.push(line);
            }
            if real && row.hide.contains(&Op::CpuRelease) {
                drop_interruption(&mut lines);
            }
        }
        if let Some((op, label)) = row.ejects
            && let Some(last) = lines
                .iter()
                .position(|l| l.op == op.name() && l.label == label)
        {
            let exit = lines
                .iter()
                .skip(last + 1)
                .find(|l| l.op == Op::Exit.name())
                .cloned();
            lines.truncate(last + 1);
            // Which CPU says goodbye, and what is queued then, is not the row's business.
            lines.extend(exit.map(|l| Line {
                cpu: 0,
                queues: [0, 0],
                ..l
            }));
        }
        if row.hide.contains(&Op::UpdateIdle) {
            drop_fruitless(&mut lines);
        }
        Log {
            lines,
            ..Log::default()
        }
    }

    /// Reads what [`fmt::Display`] wrote; lines that begin with `#` are comments.
    ///
    /// # Errors
    /// A line that is no entry.
    pub fn parse(text: &str) -> Result<Log, BadLog> {
        let mut log = Log::default();
        for (i, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = || BadLog {
                line: i + 1,
                text: line.to_string(),
            };
            if let Some(count) = line.strip_prefix("count ") {
                let (name, n) = count.split_once(' ').ok_or_else(bad)?;
                log.counts
                    .insert(name.into(), n.parse().map_err(|_| bad())?);
                continue;
            }
            if let Some(kind) = line.strip_prefix("exit ") {
                log.exit = Some(match kind.trim() {
                    "refused" => REFUSED,
                    number => number.parse().map_err(|_| bad())?,
                });
                continue;
            }
            log.lines.push(parse_line(line).ok_or_else(bad)?);
        }
        Ok(log)
    }
}

/// A thread of a higher class (a kernel worker of the real machine, say) may interrupt a running task at any
/// time: the task stops with slice left and is the next to run, nothing having been asked in between.
fn drop_interruption(lines: &mut Vec<Line>) {
    let [.., stop, run] = lines.as_slice() else {
        return;
    };
    let left = stop.args.starts_with("runnable=1") && !stop.args.ends_with("slice=none");
    let back = run.op == Op::Running.name() && (run.label, run.cpu) == (stop.label, stop.cpu);
    if stop.op == Op::Stopping.name() && left && back {
        lines.truncate(lines.len() - 2);
    }
}

/// Other threads of the real system come and go on CPUs that the cast leaves idle; each time one sleeps, its
/// CPU asks the policy in vain. Such a dispatch has no consequence (nothing that follows at once on its CPU)
/// and is left out, except in rows about idle CPUs.
fn drop_fruitless(lines: &mut Vec<Line>) {
    let mut keep = vec![true; lines.len()];
    for (i, line) in lines.iter().enumerate() {
        if line.op != Op::Dispatch.name() || line.label != '-' {
            continue;
        }
        let mut fruit = false;
        let mut vain = vec![i];
        for (j, next) in lines
            .iter()
            .enumerate()
            .skip(i + 1)
            .filter(|(_, l)| l.cpu == line.cpu)
        {
            let note = next.op == Op::Note.name();
            if note && next.args.starts_with("moved") && next.args.ends_with(": 0") {
                vain.push(j);
                continue;
            }
            let soon = next.at_ns - line.at_ns <= Span::GRAIN;
            fruit = soon
                && (note || [Op::Dequeue.name(), Op::Running.name()].contains(&next.op.as_str()));
            break;
        }
        if !fruit {
            vain.into_iter().for_each(|j| keep[j] = false);
        }
    }
    let mut keep = keep.into_iter();
    lines.retain(|_| keep.next().unwrap_or(true));
}

fn parse_line(line: &str) -> Option<Line> {
    let (rest, at) = line.rsplit_once(" @")?;
    let (rest, queues) = rest.rsplit_once(" q=")?;
    let (local, queued) = queues.split_once(',')?;
    let rest = rest.trim_end();
    let (cpu, rest) = rest.strip_prefix("cpu")?.split_once(' ')?;
    let (op, rest) = rest.split_once(' ')?;
    let rest = rest.trim_start();
    let label = rest.chars().next()?;
    Some(Line {
        op: op.into(),
        cpu: cpu.parse().ok()?,
        label,
        args: rest[1..].trim_start().into(),
        queues: [local.parse().ok()?, queued.parse().ok()?],
        at_ns: (at.parse::<f64>().ok()? * 1000.0).round() as u64,
    })
}

/// The first place where two logs differ.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    #[error("{of}, entry {at}: `{want}` is expected, there is `{got}`")]
    Entry {
        of: String,
        at: usize,
        want: String,
        got: String,
    },
    #[error("the scheduler ended with {got:?} (SCX_EXIT_ number), {want:?} is expected")]
    Exit { want: Option<i32>, got: Option<i32> },
    #[error("from {from} to the next {to}: {got} ns, expected {at_least} to {at_most}")]
    Span {
        from: String,
        to: String,
        got: u64,
        at_least: u64,
        at_most: u64,
    },
    #[error("from {from} to the next {to}: {got} ns, expected a multiple of {multiple_of}")]
    OffGrid {
        from: String,
        to: String,
        got: u64,
        multiple_of: u64,
    },
    #[error("the counter {name} grew by {got}, expected is {want}")]
    Count { name: String, want: u64, got: u64 },
    #[error("{0} does not occur")]
    Missing(String),
}

/// Compares a log with the one expected.
///
/// # Errors
/// The first difference.
pub fn compare(row: &Row, want: &Log, got: &Log) -> Result<(), Difference> {
    let result = compare_as_is(row, want, got);
    match row.twins {
        Some(twins) if result.is_err() => compare_as_is(row, want, &swapped(got, twins)).or(result),
        _ => result,
    }
}

/// The log with two CPUs' numbers exchanged.
fn swapped(log: &Log, (a, b): (u16, u16)) -> Log {
    let other = |cpu: u16| match cpu {
        c if c == a => b,
        c if c == b => a,
        c => c,
    };
    let words = |args: &str| {
        let word = |w: &str| match w.rsplit_once("cpu=") {
            Some((head, n)) => match n.parse() {
                Ok(n) => format!("{head}cpu={}", other(n)),
                Err(_) => w.to_string(),
            },
            None => w.to_string(),
        };
        args.split(' ').map(word).collect::<Vec<_>>().join(" ")
    };
    let mut log = log.clone();
    for line in &mut log.lines {
        line.cpu = other(line.cpu);
        line.args = words(&line.args);
    }
    log
}

fn compare_as_is(row: &Row, want: &Log, got: &Log) -> Result<(), Difference> {
    if want.exit == Some(REFUSED) && got.exit == Some(EJECTED) {
        // What one world refuses at load, the other does at the call: neither accepts it.
        return Ok(());
    }
    if want.exit != got.exit {
        return Err(Difference::Exit {
            want: want.exit,
            got: got.exit,
        });
    }
    for (name, want) in &want.counts {
        let got = got.counts.get(name).copied().unwrap_or(0);
        if got != *want {
            return Err(Difference::Count {
                name: name.clone(),
                want: *want,
                got,
            });
        }
    }
    let exact = row.order == Order::Exact;
    if exact {
        same(
            "the log",
            &keys(want, exact, |_| true),
            &keys(got, exact, |_| true),
        )?;
    } else {
        let mut labels: Vec<char> = want
            .lines
            .iter()
            .chain(&got.lines)
            .map(|l| l.label)
            .collect();
        labels.sort_unstable();
        labels.dedup();
        for label in labels.into_iter().filter(|l| *l != '-') {
            let of = |log| keys(log, exact, |l| l.label == label);
            same(&format!("the log of {label}"), &of(want), &of(got))?;
        }
        for cpu in 0..row.machine.cpus() as u16 {
            let of = |log| keys(log, exact, |l| l.cpu == cpu);
            same(&format!("the log of CPU {cpu}"), &of(want), &of(got))?;
        }
    }
    check_spans(row, got)
}

/// The lines that count, without times (and, where CPUs race, without the lengths of queues).
fn keys(log: &Log, exact: bool, counts: impl Fn(&Line) -> bool) -> Vec<String> {
    let text = |l: &Line| {
        let queues = if exact {
            format!(" q={},{}", l.queues[0], l.queues[1])
        } else {
            String::new()
        };
        format!("cpu{} {} {} {}{queues}", l.cpu, l.op, l.label, l.args)
    };
    log.lines.iter().filter(|l| counts(l)).map(text).collect()
}

fn same(of: &str, want: &[String], got: &[String]) -> Result<(), Difference> {
    let end = || "the end".to_string();
    for at in 0..want.len().max(got.len()) {
        let (w, g) = (want.get(at), got.get(at));
        if w != g {
            let (want, got) = (
                w.cloned().unwrap_or_else(end),
                g.cloned().unwrap_or_else(end),
            );
            return Err(Difference::Entry {
                of: of.into(),
                at: at + 1,
                want,
                got,
            });
        }
    }
    Ok(())
}

/// Checks the row's bounds on times.
///
/// # Errors
/// The first bound broken.
pub fn check_spans(row: &Row, log: &Log) -> Result<(), Difference> {
    for span in &row.spans {
        let (op, label, nth) = span.from;
        let name = format!("{} of {label} ({nth})", op.name());
        let mut found = log
            .lines
            .iter()
            .enumerate()
            .filter(|(_, l)| l.op == op.name() && l.label == label);
        let Some((i, from)) = found.nth(nth - 1) else {
            return Err(Difference::Missing(name));
        };
        let (op, label) = span.to;
        let to_name = format!("{} of {label}", op.name());
        let mut later = log.lines[i + 1..].iter();
        let Some(to) = later.find(|l| l.op == op.name() && l.label == label) else {
            return Err(Difference::Missing(to_name));
        };
        let got = to.at_ns.saturating_sub(from.at_ns);
        if got < span.at_least || span.at_most < got {
            let (at_least, at_most) = (span.at_least, span.at_most);
            return Err(Difference::Span {
                from: name,
                to: to_name,
                got,
                at_least,
                at_most,
            });
        }
        let multiple_of = span.multiple_of;
        if multiple_of > 0 && (got + Span::GRAIN) % multiple_of > 2 * Span::GRAIN {
            return Err(Difference::OffGrid {
                from: name,
                to: to_name,
                got,
                multiple_of,
            });
        }
    }
    Ok(())
}
