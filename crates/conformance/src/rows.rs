// SPDX-License-Identifier: GPL-2.0-only
//! The checklist. Each row starts from sleeping threads; the director (a fair thread) wakes them in the
//! order given and sleeps. Burn times and slices are chosen so that the *order* of events does not depend
//! on where ticks fall: no thread ends near a tick.
mod cgroups;
mod ejections;
mod one_cpu;
mod several_cpus;

use crate::row::*;

const MS: u64 = 1_000_000;
/// One CPU; two cores; two cores of two threads; two cores on a node each.
const ONE: Machine = machine(1, 1, 1);
const TWO: Machine = machine(1, 2, 1);
const SMT: Machine = machine(1, 2, 2);
const NODES: Machine = machine(2, 2, 1);

const fn machine(nodes: u32, cores: u32, threads: u32) -> Machine {
    Machine {
        nodes,
        cores,
        threads,
    }
}

fn row(name: &'static str, machine: Machine, title: &'static str) -> Row {
    Row {
        name,
        title,
        ops: "recorder_plain",
        machine,
        groups: Vec::new(),
        cast: Vec::new(),
        director_cpu: 0,
        director: Vec::new(),
        rules: Vec::new(),
        slice_ns: SLICE_DFL,
        run_us: 100_000,
        ejects: None,
        refused_for: None,
        ipi_ns: 0,
        order: if machine.cpus() == 1 {
            Order::Exact
        } else {
            Order::Partial
        },
        hide: vec![Op::Tick, Op::CpuAcquire, Op::CpuRelease, Op::UpdateIdle],
        spans: Vec::new(),
        counts: Vec::new(),
        twins: None,
        since_load: false,
    }
}

impl Row {
    fn ops(mut self, ops: &'static str) -> Row {
        self.ops = ops;
        self
    }

    /// Adds a thread of sched_ext that may use all CPUs.
    fn actor(self, label: Label, steps: Vec<Do>) -> Row {
        self.bound(label, &[], steps)
    }

    /// Adds a thread of sched_ext that may use these CPUs.
    fn bound(mut self, label: Label, cpus: &'static [u32], steps: Vec<Do>) -> Row {
        self.cast.push(Actor {
            label,
            ext: true,
            cpus,
            nice: 0,
            forked: false,
            group: None,
            steps,
        });
        self
    }

    /// Adds a thread that another one forks.
    fn child(mut self, label: Label, steps: Vec<Do>) -> Row {
        self.cast.push(Actor {
            label,
            ext: true,
            cpus: &[],
            nice: 0,
            forked: true,
            group: None,
            steps,
        });
        self
    }

    /// The director wakes these, one after the other, without sleeping in between.
    fn wakes(mut self, labels: &str) -> Row {
        self.director.extend(labels.chars().map(Do::Post));
        self
    }

    fn then(mut self, step: Do) -> Row {
        self.director.push(step);
        self
    }

    fn on(mut self, op: Op, label: Label, nth: u8, act: Act) -> Row {
        self.rules.push(Rule {
            op,
            label,
            nth,
            act,
        });
        self
    }

    fn slice(mut self, ns: u64) -> Row {
        self.slice_ns = ns;
        self
    }

    fn show(mut self, op: Op) -> Row {
        self.hide.retain(|o| *o != op);
        self
    }

    /// Adds a thread of the fair class, which is above sched_ext.
    fn fair(mut self, label: Label, steps: Vec<Do>) -> Row {
        self.cast.push(Actor {
            label,
            ext: false,
            cpus: &[],
            nice: 0,
            forked: false,
            group: None,
            steps,
        });
        self
    }

    /// Compares nothing but these callbacks.
    fn only(mut self, ops: &[Op]) -> Row {
        self.hide = Op::ALL
            .iter()
            .map(|(op, _)| *op)
            .filter(|op| !ops.contains(op))
            .collect();
        self
    }

    fn twins(mut self, a: u16, b: u16) -> Row {
        self.twins = Some((a, b));
        self
    }

    fn counting(mut self, names: &[&'static str]) -> Row {
        self.counts = names.to_vec();
        self
    }

    /// The time between two entries is a multiple of the tick's period (4 ms).
    fn on_grid(mut self, from: (Op, Label, usize), to: (Op, Label)) -> Row {
        self.spans.push(Span {
            from,
            to,
            at_least: 0,
            at_most: u64::MAX,
            multiple_of: 4 * MS,
        });
        self
    }

    fn ejected(mut self, op: Op, label: Label) -> Row {
        self.ejects = Some((op, label));
        self
    }

    /// A kernel may refuse the policy at load for calling this function.
    fn refused_for(mut self, function: &'static str) -> Row {
        self.refused_for = Some(function);
        self
    }

    fn span(
        mut self,
        from: (Op, Label, usize),
        to: (Op, Label),
        at_least: u64,
        at_most: u64,
    ) -> Row {
        self.spans.push(Span {
            from,
            to,
            at_least,
            at_most,
            multiple_of: 0,
        });
        self
    }
}

fn insert(queue: u64) -> Act {
    Act::Insert {
        queue,
        slice: SLICE_DFL,
        flags: 0,
    }
}

fn burn(us: u64) -> Vec<Do> {
    vec![Do::Burn(us)]
}

/// All rows, in the order of the checklist.
pub fn rows() -> Vec<Row> {
    let mut rows = one_cpu::one_cpu();
    rows.extend(ejections::ejections());
    rows.extend(several_cpus::two_cpus());
    rows.extend(several_cpus::topology());
    rows.extend(cgroups::cgroups());
    rows
}

fn ordered(vtime: u64) -> Act {
    Act::InsertVtime {
        queue: 2,
        slice: SLICE_DFL,
        vtime,
    }
}

impl Act {
    fn with_slice(self, ns: u64) -> Act {
        match self {
            Act::Insert { queue, flags, .. } => Act::Insert {
                queue,
                slice: ns,
                flags,
            },
            other => other,
        }
    }

    fn with_flags(self, bits: u64) -> Act {
        match self {
            Act::Insert { queue, slice, .. } => Act::Insert {
                queue,
                slice,
                flags: bits,
            },
            other => other,
        }
    }
}

impl Row {
    /// The director works on this CPU.
    fn director(mut self, cpu: u32) -> Row {
        self.director_cpu = cpu;
        self
    }

    fn run_us(mut self, us: u64) -> Row {
        self.run_us = us;
        self
    }
}
