// SPDX-License-Identifier: GPL-2.0-only
//! What the observer (`bpf/observer.bpf.c`) wrote down, made into metrics that mean the same as the simulator's.
//!
//! * A *stay* in a run queue begins when a thread is woken or loses its CPU while it could go on, and ends when it is
//!   switched in. It counts in the window in which it ends.
//! * A thread that something outside the scenario takes the CPU from (a kernel thread, the clients' real-time thread),
//!   and that goes on there as soon as that is over, was interrupted: neither a stay nor a switch.
//! * A *switch* is one of a scenario's threads switched in, a *migration* one switched in on another CPU than last.
use crate::account::{Account, On};
use crate::cast::Cast;
use crate::strip::Stay;
use berth_results::blame::Blame;
use berth_results::detail::{Distribution, Wait};
use berth_scx::{ScxError, Watcher};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/observer.bpf.o"));
/// `MAX_RECORDS` of the object.
const MAX_RECORDS: u64 = 1 << 20;
const KIND_WAKING: u16 = 1;
const KIND_SWITCH: u16 = 2;
const KIND_MOVE: u16 = 3;
pub(crate) const RUNNABLE: u32 = 1;
pub(crate) const IDLE: u32 = 2;
pub(crate) const WAS_IDLE: u32 = 4;
/// Longest stay told from longer ones, in nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// One thing that happened; ids are 0 for what is not of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub ns: u64,
    pub prev: u32,
    pub next: u32,
    pub cpu: u16,
    pub kind: u16,
    pub flags: u32,
}

impl Record {
    fn parse(bytes: &[u8]) -> Option<Record> {
        let four = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let two = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        Some(Record {
            ns: u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?),
            prev: four(8)?,
            next: four(12)?,
            cpu: two(16)?,
            kind: two(18)?,
            flags: four(20)?,
        })
    }

    pub fn is_switch(&self) -> bool {
        self.kind == KIND_SWITCH
    }

    fn on(cast: &Cast, tid: u32, idle: bool) -> On {
        match tid {
            0 if idle => On::Idle,
            tid if cast.members.contains_key(&tid) => On::Thread(tid),
            _ => On::Outside,
        }
    }

    /// What had the CPU before a switch.
    fn prev_on(&self, cast: &Cast) -> On {
        Record::on(cast, self.prev, self.flags & WAS_IDLE != 0)
    }

    /// What a switch gives the CPU to.
    pub fn next_on(&self, cast: &Cast) -> On {
        Record::on(cast, self.next, self.flags & IDLE != 0)
    }
}

/// The observer at work.
pub(crate) struct Observer {
    watcher: Watcher,
}

impl Observer {
    /// Watches this process.
    ///
    /// # Errors
    /// The kernel refuses its programs.
    pub fn start() -> Result<Observer, ScxError> {
        let watcher = Watcher::load(OBJECT)?;
        let control = [u64::from(std::process::id()), 0].map(u64::to_ne_bytes);
        watcher.set("control", &0u32.to_ne_bytes(), &control.concat())?;
        Ok(Observer { watcher })
    }

    /// Stops watching; the records in order, and how many were lost at the end.
    ///
    /// # Errors
    /// The records cannot be read.
    pub fn finish(mut self) -> Result<(Vec<Record>, u64), ScxError> {
        self.watcher.detach();
        let control = self.watcher.first("control", 1)?;
        let made = control
            .first()
            .and_then(|c| Some(u64::from_ne_bytes(c.get(8..16)?.try_into().ok()?)))
            .unwrap_or(0);
        let kept = made.min(MAX_RECORDS);
        let bytes = self.watcher.first("records", kept as usize)?;
        let mut records: Vec<Record> = bytes.iter().filter_map(|b| Record::parse(b)).collect();
        // CPUs append side by side.
        records.sort_by_key(|r| r.ns);
        Ok((records, made - kept))
    }
}

/// What was seen of one thread in the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Length of each stay, and whether it began with a wake-up.
    pub stays: Vec<(u64, bool)>,
    pub switches: u64,
    pub migrations: u64,
    pub interruptions: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Blocked, or not seen yet.
    #[default]
    Away,
    Queued {
        since: u64,
        woken: bool,
        /// The CPU that something outside the scenario took from it.
        interrupted_on: Option<u16>,
    },
    Running,
}

#[derive(Default)]
struct Thread {
    state: State,
    last_cpu: Option<u16>,
    /// The CPU whose run queue it belongs to.
    queue: u16,
    seen: Seen,
}

/// What a log says of the measured window.
#[derive(Debug)]
pub(crate) struct Replay {
    /// By thread id.
    pub threads: BTreeMap<u32, Seen>,
    /// The longest stay of each group that ended in the window, or had not ended at its end.
    pub longest: BTreeMap<u32, Stay>,
    /// CPUs of the machine.
    pub cpus: u32,
    blame: Blame,
    window: (u64, u64),
}

/// Goes through the records; what was seen between the two times.
pub(crate) fn replay(records: &[Record], cast: &Cast, window: (u64, u64)) -> Replay {
    let (begin, end) = window;
    let highest = records.iter().map(|r| u32::from(r.cpu) + 1).max();
    let cpus = highest.unwrap_or(1).max(cast.cpus);
    let mut account = Account::new(cast, cpus, window);
    let mut longest = BTreeMap::<u32, Stay>::new();
    let mut stayed = |stay: Stay| {
        let group = cast.group_of(cast.members[&stay.tid].entry);
        let best = longest.entry(group).or_insert(stay);
        if stay.to - stay.from > best.to - best.from {
            *best = stay;
        }
    };
    let mut all: BTreeMap<u32, Thread> = cast
        .members
        .keys()
        .map(|tid| (*tid, Thread::default()))
        .collect();
    // The scenario's thread that each CPU ran last.
    let mut last: BTreeMap<u16, u32> = BTreeMap::new();
    for r in records {
        account.at(r.ns);
        match r.kind {
            KIND_WAKING => {
                if let Some(t) = all.get_mut(&r.next)
                    && matches!(t.state, State::Away)
                {
                    t.state = State::Queued {
                        since: r.ns,
                        woken: true,
                        interrupted_on: None,
                    };
                    t.queue = r.cpu;
                    account.waits(cast, r.next, r.cpu, r.ns);
                }
                continue;
            }
            KIND_MOVE => {
                if let Some(t) = all.get_mut(&r.next) {
                    t.queue = r.cpu;
                    account.moves(cast, r.next, r.cpu, r.ns);
                }
                continue;
            }
            KIND_SWITCH => (),
            _ => continue,
        }
        let prev = (r.prev_on(cast), r.flags & RUNNABLE != 0);
        account.switch(cast, r.cpu, r.ns, prev, r.next_on(cast));
        let ours = all.contains_key(&r.next);
        if let Some(t) = all.get_mut(&r.prev) {
            let outside = !ours && r.flags & IDLE == 0;
            t.queue = r.cpu;
            t.state = match r.flags & RUNNABLE {
                0 => State::Away,
                _ => State::Queued {
                    since: r.ns,
                    woken: false,
                    interrupted_on: outside.then_some(r.cpu),
                },
            };
        }
        let Some(t) = all.get_mut(&r.next) else {
            if r.flags & IDLE != 0 {
                last.remove(&r.cpu);
            }
            continue;
        };
        let again = last.insert(r.cpu, r.next) == Some(r.next) && r.flags & WAS_IDLE == 0;
        let counts = begin <= r.ns && r.ns < end;
        let moved = t.last_cpu.is_some_and(|c| c != r.cpu);
        t.last_cpu = Some(r.cpu);
        match std::mem::replace(&mut t.state, State::Running) {
            State::Queued {
                interrupted_on: Some(cpu),
                ..
            } if again && cpu == r.cpu => t.seen.interruptions += u64::from(counts),
            State::Queued { since, woken, .. } if counts => {
                t.seen.stays.push((r.ns.saturating_sub(since), woken));
                t.seen.switches += 1;
                t.seen.migrations += u64::from(moved);
                stayed(Stay {
                    tid: r.next,
                    cpu: r.cpu,
                    from: since,
                    to: r.ns.max(since),
                    unfinished: false,
                });
            }
            // Its wake-up was not seen: on a CPU since before the observer.
            State::Away | State::Running if counts => {
                t.seen.switches += 1;
                t.seen.migrations += u64::from(moved);
            }
            // It stood in the queue when the window ended.
            State::Queued { since, .. } if r.ns >= end && since < end => stayed(Stay {
                tid: r.next,
                cpu: r.cpu,
                from: since,
                to: end,
                unfinished: true,
            }),
            _ => (),
        }
    }
    // The same of what the log does not see again.
    for (tid, t) in &all {
        if let State::Queued { since, .. } = t.state
            && since < end
        {
            stayed(Stay {
                tid: *tid,
                cpu: t.queue,
                from: since,
                to: end,
                unfinished: true,
            });
        }
    }
    Replay {
        threads: all.into_iter().map(|(tid, t)| (tid, t.seen)).collect(),
        longest,
        cpus,
        blame: account.finish(),
        window,
    }
}

impl Replay {
    /// Who waited for whom in the window.
    pub fn waits(&self, cast: &Cast) -> Vec<Wait> {
        let vms: Vec<&str> = cast.vms.iter().map(|(name, _)| name.as_str()).collect();
        let groups: Vec<&str> = cast.groups.iter().map(String::as_str).collect();
        self.blame.waits(&vms, &groups, &[])
    }

    /// What was seen of groups, and of VMs that are not their group.
    fn objects(&self, cast: &Cast) -> BTreeMap<String, Seen> {
        let mut objects: BTreeMap<String, Seen> = BTreeMap::new();
        for (tid, member) in &cast.members {
            let (Some((vm, group)), Some(s)) =
                (cast.vms.get(member.entry as usize), self.threads.get(tid))
            else {
                continue;
            };
            let group = cast.group_name(*group);
            let own = (vm != group).then_some(vm.as_str());
            for name in std::iter::once(group).chain(own) {
                let sum = objects.entry(name.to_string()).or_default();
                sum.stays.extend(&s.stays);
                sum.switches += s.switches;
                sum.migrations += s.migrations;
            }
        }
        objects
    }

    /// The metrics of groups and VMs that the observer knows better than the kernel's own counters.
    pub fn metrics(&self, cast: &Cast) -> BTreeMap<String, f64> {
        let seconds = (self.window.1 - self.window.0).max(1) as f64 / 1e9;
        let mut out = BTreeMap::new();
        for (name, seen) in self.objects(cast) {
            out.insert(format!("{name}.switches"), seen.switches as f64 / seconds);
            out.insert(
                format!("{name}.migrations"),
                seen.migrations as f64 / seconds,
            );
            let woken = seen.stays.iter().filter(|s| s.1).map(|s| s.0);
            percentiles(&mut out, &format!("{name}.wakeup"), woken);
            let all = seen.stays.iter().map(|s| s.0);
            percentiles(&mut out, &format!("{name}.run_delay"), all);
        }
        out
    }

    /// Distributions of waiting, by group.
    pub fn times(&self, cast: &Cast) -> BTreeMap<String, Distribution> {
        let mut out = BTreeMap::new();
        let objects = self.objects(cast);
        for (name, seen) in objects.iter().filter(|(n, _)| cast.groups.contains(n)) {
            let mut put = |quantity: &str, mut times: Vec<u64>| {
                times.sort_unstable();
                let times = Distribution::of(times.into_iter().map(|ns| (ns, 1)));
                if times.total() > 0 {
                    out.insert(format!("{name}.{quantity}"), times);
                }
            };
            let stays = seen.stays.iter();
            put(
                "wakeup",
                stays.clone().filter(|s| s.1).map(|s| s.0).collect(),
            );
            put("run_delay", stays.map(|s| s.0).collect());
        }
        out
    }
}

fn percentiles(out: &mut BTreeMap<String, f64>, name: &str, times: impl Iterator<Item = u64>) {
    // Three significant digits; both are constants that the library accepts.
    let mut h = Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 3).expect("valid bounds");
    for ns in times {
        h.saturating_record(ns.max(1));
    }
    out.insert(format!("{name}.count"), h.len() as f64);
    if h.is_empty() {
        return;
    }
    out.insert(format!("{name}.mean"), h.mean());
    out.insert(format!("{name}.max"), h.max() as f64);
    for (stat, q) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)] {
        if name.ends_with("run_delay") && matches!(stat, "p90" | "p999") {
            continue;
        }
        out.insert(format!("{name}.{stat}"), h.value_at_quantile(q) as f64);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cast::Member;
    use berth_results::detail::{HOST, IDLE as NOBODY};

    pub fn switch(ns: u64, cpu: u16, prev: u32, next: u32, flags: u32) -> Record {
        Record {
            ns,
            prev,
            next,
            cpu,
            kind: KIND_SWITCH,
            flags,
        }
    }

    pub fn waking(ns: u64, next: u32) -> Record {
        Record {
            ns,
            next,
            kind: KIND_WAKING,
            ..Record::default()
        }
    }

    fn moving(ns: u64, next: u32, cpu: u16) -> Record {
        Record {
            ns,
            next,
            cpu,
            kind: KIND_MOVE,
            ..Record::default()
        }
    }

    /// VMs a, b, ... with one thread each.
    pub fn cast(tids: &[u32]) -> Cast {
        let names: Vec<String> = ["a", "b", "c"].map(String::from)[..tids.len()].to_vec();
        let member = |(i, tid): (usize, &u32)| {
            let name = format!("{}/0", names[i]);
            let entry = i as u32;
            (*tid, Member { name, entry })
        };
        Cast {
            members: tids.iter().enumerate().map(member).collect(),
            vms: (0..).zip(&names).map(|(i, n)| (n.clone(), i)).collect(),
            groups: names.clone(),
            cpus: 1,
        }
    }

    fn threads(records: &[Record], tids: &[u32], window: (u64, u64)) -> BTreeMap<u32, Seen> {
        replay(records, &cast(tids), window).threads
    }

    const ALL: (u64, u64) = (0, 1_000);

    fn waits(records: &[Record], tids: &[u32], window: (u64, u64)) -> Vec<(String, String, u64)> {
        let cast = cast(tids);
        let waits = replay(records, &cast, window).waits(&cast);
        let told = waits.into_iter().map(|w| (w.waiter, w.cause, w.ns));
        told.collect()
    }

    fn told(rows: &[(&str, &str, u64)]) -> Vec<(String, String, u64)> {
        let row = |(w, c, ns): &(&str, &str, u64)| (w.to_string(), c.to_string(), *ns);
        rows.iter().map(row).collect()
    }

    #[test]
    fn a_wait_is_cut_by_what_had_the_cpu() {
        let records = [
            waking(10, 1),
            switch(15, 0, 0, 1, WAS_IDLE), // a: 5 on an idle CPU
            waking(20, 2),
            switch(30, 0, 1, 0, RUNNABLE), // b: 10 behind a; a kernel thread runs
            switch(34, 0, 0, 2, 0),        // b: 4 behind the host; a: 4
            moving(40, 1, 1),              // a: 6 behind b, then on another, idle CPU
            switch(43, 1, 0, 1, WAS_IDLE), // a: 3
            switch(60, 1, 1, 0, IDLE),
            switch(60, 0, 2, 0, IDLE),
        ];
        let all = [
            ("a", "b", 6),
            ("a", HOST, 4),
            ("a", NOBODY, 8),
            ("b", "a", 10),
            ("b", HOST, 4),
        ];
        assert_eq!(waits(&records, &[1, 2], ALL), told(&all));
        // The window cuts waits, too.
        let some = [
            ("a", "b", 6),
            ("a", HOST, 2),
            ("a", NOBODY, 1),
            ("b", HOST, 2),
        ];
        assert_eq!(waits(&records, &[1, 2], (32, 41)), told(&some));
    }

    #[test]
    fn a_move_that_came_late_and_a_switch_that_was_missed_upset_nothing() {
        let records = [
            waking(10, 1),
            // On another CPU, without a move: the wait ends there.
            switch(18, 2, 0, 1, WAS_IDLE),
            // Its switching out was not seen.
            waking(20, 1),
            switch(25, 1, 0, 1, WAS_IDLE),
            switch(30, 1, 1, 2, RUNNABLE),
            moving(31, 7, 0),
        ];
        assert_eq!(
            waits(&records, &[1, 2], ALL),
            told(&[("a", "b", 970), ("a", NOBODY, 8)])
        );
        let stay = replay(&records, &cast(&[1, 2]), ALL).longest[&0];
        assert!(stay.unfinished && (stay.from, stay.to, stay.cpu) == (30, 1_000, 1));
    }

    #[test]
    fn stays_switches_and_migrations() {
        let records = [
            waking(10, 1),
            switch(15, 0, 0, 1, WAS_IDLE), // 5 after a wake-up
            waking(20, 2),
            switch(30, 0, 1, 2, RUNNABLE), // 10 after a wake-up
            switch(40, 0, 2, 1, 0),        // 10 after having lost the CPU
            switch(50, 0, 1, 0, RUNNABLE | IDLE),
            switch(70, 1, 0, 1, WAS_IDLE), // 20, and on another CPU
        ];
        let seen = threads(&records, &[1, 2], ALL);
        assert_eq!(seen[&1].stays, [(5, true), (10, false), (20, false)]);
        assert_eq!((seen[&1].switches, seen[&1].migrations), (3, 1));
        assert_eq!(seen[&2].stays, [(10, true)]);
        // Only what ends in the window counts, whole.
        let late = threads(&records, &[1, 2], (40, 70));
        assert_eq!(late[&1].stays, [(10, false)]);
        assert_eq!(late[&2].switches, 0);
    }

    #[test]
    fn an_interruption_is_neither_stay_nor_switch() {
        let (kernel, clients) = (0, 99);
        let records = [
            waking(10, 1),
            switch(15, 0, 0, 1, WAS_IDLE),
            switch(20, 0, 1, kernel, RUNNABLE),
            switch(25, 0, kernel, 1, 0),
            switch(30, 0, 1, clients, RUNNABLE),
            switch(35, 0, clients, 1, 0),
        ];
        let seen = threads(&records, &[1, 2], ALL);
        assert_eq!((seen[&1].switches, seen[&1].interruptions), (1, 2));
        // Something else runs before it goes on: then it stood in the queue since it lost the CPU.
        let records = [
            waking(10, 1),
            switch(15, 0, 0, 1, WAS_IDLE),
            switch(20, 0, 1, clients, RUNNABLE),
            waking(22, 2),
            switch(25, 0, clients, 2, 0),
            switch(40, 0, 2, 1, 0),
        ];
        let seen = threads(&records, &[1, 2], ALL);
        assert_eq!(seen[&1].stays, [(5, true), (20, false)]);
        // The CPU was idle in between (its cap was used up): a stay.
        let records = [
            waking(10, 1),
            switch(15, 0, 0, 1, WAS_IDLE),
            switch(20, 0, 1, kernel, RUNNABLE),
            switch(90, 0, 0, 1, WAS_IDLE),
        ];
        assert_eq!(
            threads(&records, &[1], ALL)[&1].stays,
            [(5, true), (70, false)]
        );
    }

    #[test]
    fn a_wake_up_of_one_that_is_awake_changes_nothing() {
        let records = [
            waking(10, 1),
            waking(12, 1),
            switch(15, 0, 0, 1, WAS_IDLE),
            waking(18, 1),
            switch(20, 0, 1, 2, RUNNABLE),
            waking(25, 1),
            switch(30, 0, 2, 1, 0),
        ];
        let seen = threads(&records, &[1, 2], ALL);
        assert_eq!(seen[&1].stays, [(5, true), (10, false)]);
    }

    #[test]
    fn records_are_read_as_they_are_written() {
        let bytes: Vec<u8> = [
            7u64.to_ne_bytes().to_vec(),
            1u32.to_ne_bytes().to_vec(),
            2u32.to_ne_bytes().to_vec(),
            3u16.to_ne_bytes().to_vec(),
            KIND_SWITCH.to_ne_bytes().to_vec(),
            5u32.to_ne_bytes().to_vec(),
        ]
        .concat();
        assert_eq!(Record::parse(&bytes), Some(switch(7, 3, 1, 2, 5)));
        assert_eq!(Record::parse(&bytes[..20]), None);
    }
}
