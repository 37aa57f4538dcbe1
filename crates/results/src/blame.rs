// SPDX-License-Identifier: GPL-2.0-only
//! Who waited for whom: each nanosecond that a thread stands in a run queue is charged to what has that queue's CPU.
//!
//! One account for both worlds: the simulator keeps it while it runs, the lab from its observer's log.
//!
//! The CPU is the one whose run queue the thread belongs to (`task_cpu`), also while the thread is in a shared queue
//! or in the policy's custody; when it moves to another CPU's run queue, the account moves with it. What has the CPU
//! is a VM, the host's own threads, idleness, or the cost of a switch.
//!
//! Nothing is remembered per thread: per CPU it is counted how many threads of each class wait, and when the CPU
//! changes to something else, that many times the span is added. A thread that joins in the middle of a span
//! subtracts the part it did not see. All sums are exact; a switch costs as many additions as classes wait there.
use crate::detail::{COSTS, FROZEN, HOST, IDLE, OTHERS, Wait};

type CpuId = u32;
type Nanos = u64;

/// Classes that are told apart, at most: one bit each.
const CLASSES: usize = 64;
/// Of them, for VMs and groups: without the host's own threads.
const FOR_VMS: usize = CLASSES - 1;

/// What has a CPU since when.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// Classes with waiting threads.
    waiting: u64,
    since: Nanos,
    /// Up to here it is switching.
    cost_end: Nanos,
    /// Class of the thread that has it, or that of idleness.
    cause: u32,
}

/// How VMs are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Each VM is a class.
    Vm,
    /// Each group of VMs is one.
    Group,
    /// The first groups; the rest together.
    FirstGroups,
}

/// The account of one machine.
#[derive(Debug)]
pub struct Blame {
    pub resolution: Resolution,
    /// Class of each statistics entry (VMs, then the host's threads).
    class_of: Vec<u8>,
    /// Of VMs or groups; the host's threads are the next class.
    nr_vm_classes: usize,
    spans: Vec<Span>,
    /// Waiting threads by CPU and class.
    counts: Vec<u32>,
    /// By waiter and cause; may be below zero in between, hence wrapping.
    ns: Vec<u64>,
}

impl Default for Blame {
    /// No CPUs: nothing is counted.
    fn default() -> Self {
        Blame::new(&[], 0)
    }
}

impl Blame {
    /// `groups[vm]` is the VM's group number.
    pub fn new(groups: &[u32], cpus: u32) -> Blame {
        let nr_groups = groups.iter().max().map_or(0, |m| *m as usize + 1);
        let (resolution, nr) = if groups.len() <= FOR_VMS {
            (Resolution::Vm, groups.len())
        } else if nr_groups <= FOR_VMS {
            (Resolution::Group, nr_groups)
        } else {
            (Resolution::FirstGroups, FOR_VMS)
        };
        let class = |vm: usize| match resolution {
            Resolution::Vm => vm,
            Resolution::Group | Resolution::FirstGroups => (groups[vm] as usize).min(nr - 1),
        };
        let mut class_of: Vec<u8> = (0..groups.len()).map(|vm| class(vm) as u8).collect();
        class_of.push(nr as u8);
        let idle = nr as u32 + 1;
        let span = Span {
            cause: idle,
            ..Span::default()
        };
        Blame {
            resolution,
            class_of,
            nr_vm_classes: nr,
            spans: vec![span; cpus as usize],
            counts: vec![0; cpus as usize * (nr + 1)],
            ns: vec![0; (nr + 1) * (nr + 3)],
        }
    }

    /// Is nothing counted (a guest's machine)?
    #[inline]
    pub fn is_off(&self) -> bool {
        self.spans.is_empty()
    }

    /// Classes: VMs or groups, then the host.
    #[inline]
    pub fn classes(&self) -> usize {
        self.nr_vm_classes + 1
    }

    /// Causes: the classes, idleness, switching.
    #[inline]
    pub fn causes(&self) -> usize {
        self.nr_vm_classes + 3
    }

    #[inline]
    pub fn class_of(&self, entry: u32) -> usize {
        self.class_of[entry as usize] as usize
    }

    /// Time that threads of class `waiter` waited while `cause` had their CPU, as of the last [`Blame::settle`].
    #[inline]
    pub fn between(&self, waiter: usize, cause: usize) -> Nanos {
        self.ns[waiter * self.causes() + cause]
    }

    #[inline(always)]
    fn add(&mut self, class: usize, cause: u32, costs: u64, rest: u64) {
        let row = class * (self.nr_vm_classes + 3);
        let ns = &mut self.ns;
        if costs != 0 {
            let switching = row + self.nr_vm_classes + 2;
            ns[switching] = ns[switching].wrapping_add(costs);
        }
        let by = row + cause as usize;
        ns[by] = ns[by].wrapping_add(rest);
    }

    /// The span up to now is over: everybody who waits on this CPU has it on account.
    #[inline(always)]
    fn close(&mut self, cpu: CpuId, now: Nanos) {
        let span = &mut self.spans[cpu as usize];
        let (costs, rest) = Blame::so_far(span, now);
        span.since = now;
        let (mut waiting, cause) = (span.waiting, span.cause);
        let counts = cpu as usize * (self.nr_vm_classes + 1);
        while waiting != 0 {
            let class = waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            let n = u64::from(self.counts[counts + class]);
            self.add(class, cause, n * costs, n * rest);
        }
    }

    /// The CPU changes from one thread (or idleness: `None`) to another one, at this instant. The previous one waits
    /// from now on if `stays`; the next one waited until now.
    #[inline]
    pub fn switch(
        &mut self,
        cpu: CpuId,
        now: Nanos,
        prev: Option<u32>,
        stays: bool,
        next: Option<u32>,
    ) {
        if self.is_off() {
            return;
        }
        self.close(cpu, now);
        let class = |e: u32| self.class_of[e as usize] as usize;
        let counts = cpu as usize * (self.nr_vm_classes + 1);
        let span = &mut self.spans[cpu as usize];
        if let (true, Some(prev)) = (stays, prev) {
            let class = class(prev);
            self.counts[counts + class] += 1;
            span.waiting |= 1 << class;
        }
        span.cause = self.nr_vm_classes as u32 + 1;
        if let Some(next) = next {
            let class = class(next);
            let count = &mut self.counts[counts + class];
            *count -= 1;
            if *count == 0 {
                span.waiting &= !(1 << class);
            }
            span.cause = class as u32;
        }
        span.cost_end = now;
    }

    /// What has the CPU does nothing useful until then.
    #[inline]
    pub fn costs_until(&mut self, cpu: CpuId, at: Nanos) {
        if self.is_off() {
            return;
        }
        self.spans[cpu as usize].cost_end = at;
    }

    /// The part of the present span that lies before now: costs, rest.
    #[inline(always)]
    fn so_far(span: &Span, now: Nanos) -> (u64, u64) {
        let costs = span.cost_end.min(now).saturating_sub(span.since);
        (costs, now - span.since - costs)
    }

    /// A thread joins those that wait on this CPU.
    #[inline]
    pub fn enter(&mut self, cpu: CpuId, entry: u32, now: Nanos) {
        if self.is_off() {
            return;
        }
        let class = self.class_of(entry);
        let span = &mut self.spans[cpu as usize];
        span.waiting |= 1 << class;
        let (costs, rest) = Blame::so_far(span, now);
        let cause = span.cause;
        self.counts[cpu as usize * (self.nr_vm_classes + 1) + class] += 1;
        self.add(class, cause, costs.wrapping_neg(), rest.wrapping_neg());
    }

    /// A thread leaves this CPU's queue for another one.
    #[inline]
    pub fn leave(&mut self, cpu: CpuId, entry: u32, now: Nanos) {
        if self.is_off() {
            return;
        }
        let class = self.class_of(entry);
        let count = &mut self.counts[cpu as usize * (self.nr_vm_classes + 1) + class];
        *count -= 1;
        let none_left = *count == 0;
        let span = &mut self.spans[cpu as usize];
        if none_left {
            span.waiting &= !(1 << class);
        }
        let (costs, rest) = Blame::so_far(span, now);
        let cause = span.cause;
        self.add(class, cause, costs, rest);
    }

    /// Everything up to now is on account.
    pub fn settle(&mut self, now: Nanos) {
        (0..self.spans.len() as u32).for_each(|cpu| self.close(cpu, now));
    }

    /// Names of the classes, of those of all VMs and of all groups.
    fn names<'a>(&self, vms: &[&'a str], groups: &[&'a str]) -> Vec<&'a str> {
        let classes = self.classes();
        let mut names: Vec<&str> = match self.resolution {
            Resolution::Vm => vms.to_vec(),
            Resolution::Group | Resolution::FirstGroups => groups.to_vec(),
        };
        names.resize(classes - 1, "");
        if let (Resolution::FirstGroups, Some(last)) = (self.resolution, names.last_mut()) {
            *last = OTHERS;
        }
        names.push(HOST);
        names
    }

    /// The accounts, settled: rows that are not zero. Names of all VMs, and of all groups; for how long the threads of
    /// each entry of the statistics were stopped since their VM was frozen, ns: it is told as a cause, and stands in no
    /// run queue's account (empty: nobody was).
    pub fn waits(&self, vms: &[&str], groups: &[&str], frozen_ns: &[u64]) -> Vec<Wait> {
        let classes = self.classes();
        let mut names = self.names(vms, groups);
        names.extend([IDLE, COSTS, FROZEN]);
        let mut frozen = vec![0; classes];
        for (entry, ns) in (0..).zip(frozen_ns) {
            frozen[self.class_of(entry)] += ns;
        }
        let mut waits = Vec::new();
        for waiter in 0..classes {
            for (cause, name) in names.iter().enumerate() {
                let ns = match cause < self.causes() {
                    true => self.between(waiter, cause),
                    false => frozen[waiter],
                };
                if ns > 0 {
                    waits.push(Wait {
                        waiter: names[waiter].to_string(),
                        cause: (*name).to_string(),
                        ns,
                    });
                }
            }
        }
        waits
    }

    /// Forget the accounts (after [`Blame::settle`]), not who waits.
    pub fn reset(&mut self) {
        self.ns.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_cut_where_the_cpu_changes() {
        // VMs 0 and 1, host = 2, idle = 3, switching = 4.
        let mut b = Blame::new(&[0, 0], 2);
        b.enter(0, 0, 10); // idle until 25
        b.switch(0, 25, None, false, Some(0));
        b.costs_until(0, 27);
        b.enter(0, 1, 26); // 1 of costs, 13 behind VM 0
        b.switch(0, 40, Some(0), true, Some(1));
        b.enter(1, 2, 41);
        b.leave(0, 0, 45); // 5 behind VM 1, then CPU 1, idle
        b.enter(1, 0, 45);
        b.settle(50);
        let row = |w| (0..5).map(|c| b.between(w, c)).collect::<Vec<_>>();
        assert_eq!(row(0), [0, 5, 0, 20, 0]);
        assert_eq!(row(1), [13, 0, 0, 0, 1]);
        assert_eq!(row(2), [0, 0, 0, 9, 0]);
        let told = b.waits(&["a", "b"], &["g"], &[0, 7, 0]);
        let told: Vec<_> = told
            .iter()
            .map(|w| (w.waiter.as_str(), w.cause.as_str(), w.ns))
            .collect();
        assert_eq!(
            told,
            [
                ("a", "b", 5),
                ("a", IDLE, 20),
                ("b", "a", 13),
                ("b", COSTS, 1),
                ("b", FROZEN, 7),
                (HOST, IDLE, 9)
            ]
        );
    }

    #[test]
    fn many_vms_are_put_together() {
        let by_group: Vec<u32> = (0..1000).map(|v| v / 100).collect();
        let b = Blame::new(&by_group, 1);
        assert_eq!((b.resolution, b.classes()), (Resolution::Group, 11));
        assert_eq!((b.class_of(999), b.class_of(1000)), (9, 10));
        let alone: Vec<u32> = (0..1000).collect();
        let b = Blame::new(&alone, 1);
        assert_eq!((b.resolution, b.classes()), (Resolution::FirstGroups, 64));
        assert_eq!((b.class_of(999), b.class_of(1000)), (62, 63));
    }
}
