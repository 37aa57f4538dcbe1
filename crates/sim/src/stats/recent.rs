// SPDX-License-Identifier: GPL-2.0-only
//! The last moments of a machine, always there to look back at: a ring of switches, and the worst wait of each group
//! with what ran around it.
use crate::trace::{Event, Kind};
use crate::words::{CpuId, Nanos, TaskId};
use berth_results::detail::{STRIP_AFTER_NS, STRIP_BEFORE_NS, strip_cpus};
use std::collections::BTreeMap;

/// Events of the ring, per CPU and in all.
const EVENTS_PER_CPU: usize = 256;
const EVENTS: std::ops::RangeInclusive<usize> = 4096..=65_536;

/// What ran on which CPU for a short time.
#[derive(Clone, Debug, Default)]
pub struct Strip {
    pub from: Nanos,
    pub to: Nanos,
    pub cpus: std::ops::Range<CpuId>,
    /// Threads that ran, and the VM group of each.
    pub threads: Vec<(String, u32)>,
    /// CPU, index into `threads`, start after `from`, length; in order of CPU and time.
    pub ran: Vec<[u64; 4]>,
}

/// A stay in a run queue that was longer than all before.
#[derive(Clone, Debug)]
pub struct Worst {
    pub group: u32,
    pub task: TaskId,
    /// Its name; the number may be in use again.
    pub name: String,
    pub cpu: CpuId,
    pub from: Nanos,
    pub to: Nanos,
    pub unfinished: bool,
    pub strip: Strip,
}

/// The ring, and the worst waits; small where nothing is remembered.
#[derive(Debug)]
pub struct Recent {
    /// When strips are due.
    pub due: Nanos,
    /// `None`: nothing is remembered.
    kept: Option<Box<Kept>>,
}

#[derive(Debug)]
struct Kept {
    /// Time, and (kind, CPU, task) as in the trace hash; the length is a power of two.
    ring: Box<[(Nanos, u64)]>,
    next: usize,
    /// Without their strips.
    pending: Vec<Worst>,
    worst: BTreeMap<u32, Worst>,
}

impl Default for Recent {
    /// Remembers nothing.
    fn default() -> Self {
        Recent {
            due: Nanos::MAX,
            kept: None,
        }
    }
}

impl Recent {
    pub fn new(cpus: u32) -> Recent {
        let events = (cpus as usize * EVENTS_PER_CPU)
            .clamp(*EVENTS.start(), *EVENTS.end())
            .next_power_of_two();
        Recent {
            kept: Some(Box::new(Kept {
                ring: vec![(0, 0); events].into(),
                next: 0,
                pending: Vec::new(),
                worst: BTreeMap::new(),
            })),
            ..Recent::default()
        }
    }

    /// Does it remember anything?
    #[inline]
    pub fn is_on(&self) -> bool {
        self.kept.is_some()
    }

    #[inline(always)]
    pub fn push(&mut self, now: Nanos, word: u64) {
        let Some(kept) = &mut self.kept else {
            return;
        };
        let mask = kept.ring.len().wrapping_sub(1);
        if let Some(place) = kept.ring.get_mut(kept.next & mask) {
            *place = (now, word);
            kept.next += 1;
        }
    }

    /// Is a wait of this length worth a look?
    #[inline]
    pub fn beats(&self, group: u32, ns: Nanos) -> bool {
        let Some(kept) = &self.kept else {
            return false;
        };
        let longest = kept.pending.iter().filter(|w| w.group == group);
        let longest = longest.chain(kept.worst.get(&group));
        longest.map(|w| w.to - w.from).max().is_none_or(|w| w < ns)
    }

    /// A wait longer than all of its group before; its strip is cut when what follows it is known, too.
    #[cold]
    pub fn keep(&mut self, worst: Worst) {
        if let Some(kept) = &mut self.kept {
            self.due = self.due.min(worst.to + STRIP_AFTER_NS);
            kept.pending.retain(|w| w.group != worst.group);
            kept.pending.push(worst);
        }
    }

    /// Cut the strips that are due, at the end all of them. `names` gives name and group of a task.
    #[cold]
    pub fn cut(
        &mut self,
        now: Nanos,
        end: bool,
        cpus: u32,
        names: &dyn Fn(TaskId) -> (String, u32),
    ) {
        self.due = Nanos::MAX;
        let Some(kept) = &mut self.kept else {
            return;
        };
        for mut worst in std::mem::take(&mut kept.pending) {
            let due = worst.to + STRIP_AFTER_NS;
            if due > now && !end {
                self.due = self.due.min(due);
                kept.pending.push(worst);
                continue;
            }
            worst.strip = kept.strip(&worst, now, cpus, names);
            kept.worst.insert(worst.group, worst);
        }
    }

    /// The worst waits so far, by group; none is pending.
    pub fn worst(&self) -> impl Iterator<Item = &Worst> {
        self.kept.iter().flat_map(|kept| kept.worst.values())
    }

    /// Forget the worst waits, not the recent events.
    pub fn reset(&mut self) {
        self.due = Nanos::MAX;
        if let Some(kept) = &mut self.kept {
            kept.worst.clear();
            kept.pending.clear();
        }
    }
}

impl Kept {
    /// The ring's events, oldest first.
    fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let len = self.ring.len();
        let first = self.next.saturating_sub(len);
        (first..self.next).filter_map(move |i| {
            let (at_ns, word) = self.ring[i & (len - 1)];
            Some(Event {
                at_ns,
                kind: Kind::of((word >> 56) as u8)?,
                cpu: (word >> 32) as u32 & 0xff_ffff,
                task: word as u32,
            })
        })
    }

    fn strip(
        &self,
        worst: &Worst,
        now: Nanos,
        nr_cpus: u32,
        names: &dyn Fn(TaskId) -> (String, u32),
    ) -> Strip {
        // CPUs around the one it waited for.
        let shown = strip_cpus(worst.cpu, nr_cpus);
        // With the ring shorter than that, from its oldest event.
        let oldest = if self.next > self.ring.len() {
            self.events().next().map_or(0, |e| e.at_ns)
        } else {
            0
        };
        let from = worst.to.saturating_sub(STRIP_BEFORE_NS).max(oldest);
        let to = now.min(worst.to + STRIP_AFTER_NS);
        let mut strip = Strip {
            from,
            to,
            cpus: shown.clone(),
            ..Strip::default()
        };
        let mut threads = BTreeMap::<TaskId, u64>::new();
        let mut since = vec![(0, None); nr_cpus as usize];
        let mut put = |cpu: u32, task: Option<TaskId>, a: Nanos, b: Nanos| {
            let Some(task) = task.filter(|t| *t >= nr_cpus) else {
                return;
            };
            let (a, b) = (a.max(from), b.min(to));
            if b <= a || !shown.contains(&cpu) {
                return;
            }
            let next = threads.len() as u64;
            let index = *threads.entry(task).or_insert_with(|| {
                strip.threads.push(names(task));
                next
            });
            strip.ran.push([cpu.into(), index, a - from, b - a]);
        };
        for e in self.events().filter(|e| e.kind == Kind::Switch) {
            let (begin, task) =
                std::mem::replace(&mut since[e.cpu as usize], (e.at_ns, Some(e.task)));
            put(e.cpu, task, begin, e.at_ns);
        }
        for (cpu, (begin, task)) in since.into_iter().enumerate() {
            put(cpu as u32, task, begin, to);
        }
        strip.ran.sort_unstable_by_key(|r| (r[0], r[2]));
        strip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strip_shows_what_ran() {
        let mut r = Recent::new(2);
        let switch = |cpu: u64, task: u64| ((Kind::Switch as u64) << 56) | cpu << 32 | task;
        r.push(0, switch(0, 5));
        r.push(30_000_000, switch(0, 6));
        r.push(60_000_000, switch(1, 7));
        r.push(70_000_000, switch(0, 9));
        r.push(72_000_000, switch(1, 1));
        assert!(r.beats(0, 1));
        let nine = |group, to| Worst {
            group,
            task: 9,
            name: "nine".into(),
            cpu: 0,
            from: 10_000_000,
            to,
            unfinished: false,
            strip: Strip::default(),
        };
        r.keep(nine(0, 70_000_000));
        assert!(!r.beats(0, 60_000_000) && r.beats(1, 1) && r.due == 75_000_000);
        // Another group's is not due yet.
        r.keep(nine(1, 72_000_000));
        r.cut(75_000_000, false, 2, &|t| (format!("t{t}"), 0));
        assert_eq!((r.worst().count(), r.due), (1, 77_000_000));
        let w = r.worst().next().unwrap();
        let s = &w.strip;
        assert_eq!((s.from, s.to), (25_000_000, 75_000_000));
        let ran: Vec<_> = s
            .ran
            .iter()
            .map(|[cpu, i, at, n]| {
                (
                    *cpu,
                    s.threads[*i as usize].0.as_str(),
                    at / 1_000_000,
                    n / 1_000_000,
                )
            })
            .collect();
        assert_eq!(
            ran,
            [
                (0, "t5", 0, 5),
                (0, "t6", 5, 40),
                (0, "t9", 45, 5),
                (1, "t7", 35, 12)
            ]
        );
    }
}
