// SPDX-License-Identifier: GPL-2.0-only
//! The checklist. Each row starts from sleeping threads; the director (a fair thread) wakes them in the
//! order given and sleeps. Burn times and slices are chosen so that the *order* of events does not depend
//! on where ticks fall: no thread ends near a tick.
use crate::row::*;

const MS: u64 = 1_000_000;
/// One CPU; two cores; two cores of two threads.
const ONE: Machine = Machine {
    cores: 1,
    threads: 1,
};
const TWO: Machine = Machine {
    cores: 2,
    threads: 1,
};
const SMT: Machine = Machine {
    cores: 2,
    threads: 2,
};

fn row(name: &'static str, machine: Machine, title: &'static str) -> Row {
    Row {
        name,
        title,
        ops: "recorder_plain",
        machine,
        cast: Vec::new(),
        director_cpu: 0,
        director: Vec::new(),
        rules: Vec::new(),
        slice_ns: SLICE_DFL,
        run_us: 100_000,
        ejects: None,
        order: if machine.cpus() == 1 {
            Order::Exact
        } else {
            Order::Partial
        },
        hide: vec![Op::Tick, Op::CpuAcquire, Op::CpuRelease, Op::UpdateIdle],
        spans: Vec::new(),
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

    fn ejected(mut self, op: Op, label: Label) -> Row {
        self.ejects = Some((op, label));
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
    let mut rows = one_cpu();
    rows.extend(ejections());
    rows.extend(two_cpus());
    rows.extend(topology());
    rows
}

fn one_cpu() -> Vec<Row> {
    vec![
        row(
            "01-expired",
            ONE,
            "An expired task: dispatch, stopping, enqueue, then the next one's running",
        )
        .slice(10 * MS)
        .actor('A', burn(20_000))
        .actor('B', burn(20_000))
        .wakes("AB"),
        row(
            "02-sleeping",
            ONE,
            "A sleeping task: stopping, quiescent, then dispatch with prev not queued",
        )
        .actor('A', vec![Do::Burn(1000), Do::Sleep(5000), Do::Burn(1000)])
        .actor('B', burn(9000))
        .wakes("AB"),
        row(
            "03-kept",
            ONE,
            "With slice left prev is kept without dispatch: a plain kick changes nothing",
        )
        .actor('A', vec![Do::Burn(1000), Do::Post('B'), Do::Burn(1000)])
        .actor('B', burn(1000))
        .on(Op::Enqueue, 'B', 1, insert(QUEUE))
        .on(Op::Enqueue, 'B', 1, Act::Kick { cpu: 0, flags: 0 })
        .wakes("A"),
        row(
            "04-local-first",
            ONE,
            "The local queue's head is taken without dispatch, whatever waits elsewhere",
        )
        .actor('A', burn(1000))
        .actor('B', burn(1000))
        .on(Op::Enqueue, 'B', 1, insert(LOCAL))
        .wakes("AB"),
        row(
            "05-order",
            ONE,
            "Local queue, then the global one, then dispatch",
        )
        .actor('A', burn(1000))
        .actor('B', burn(1000))
        .actor('C', burn(1000))
        .on(Op::Enqueue, 'B', 1, insert(GLOBAL))
        .on(Op::Enqueue, 'C', 1, insert(LOCAL))
        .wakes("ABC"),
        row(
            "06-refilled",
            ONE,
            "A slice given to prev in dispatch keeps prev, even over a task just moved",
        )
        .slice(10 * MS)
        .actor('A', burn(22_000))
        .actor('B', burn(1000))
        .on(Op::Dispatch, 'A', 1, Act::Slice { ns: 30 * MS })
        .on(Op::Dispatch, 'A', 1, Act::Move { queue: QUEUE })
        .wakes("AB"),
        row(
            "07-alone",
            ONE,
            "Nothing found: prev goes on with a default slice, without stopping and running",
        )
        .slice(10 * MS)
        .actor('A', burn(22_000))
        .wakes("A"),
        row(
            "08-last",
            ONE,
            "With ENQ_LAST: stopping, then enqueue(last)",
        )
        .ops("recorder_last")
        .slice(10 * MS)
        .actor('A', burn(22_000))
        .on(Op::Enqueue, 'A', 1, insert(QUEUE).with_slice(10 * MS))
        .on(Op::Enqueue, 'A', 2, insert(LOCAL))
        .wakes("A"),
        row(
            "09-slice-kept",
            ONE,
            "Slice 0 in an insert keeps what is left",
        )
        .actor('A', vec![Do::Burn(1000), Do::Sleep(2000), Do::Burn(1000)])
        .on(Op::Enqueue, 'A', 1, insert(QUEUE))
        .on(Op::Enqueue, 'A', 2, insert(QUEUE).with_slice(0))
        .wakes("A"),
        row(
            "09-slice-least",
            ONE,
            "Slice 0 in an insert gives at least 1 ns",
        )
        .slice(10 * MS)
        .actor('A', burn(20_000))
        .actor('B', burn(20_000))
        .on(Op::Enqueue, 'A', 2, insert(QUEUE).with_slice(0))
        .wakes("AB"),
        row(
            "09-slice-default",
            ONE,
            "A local task with slice 0 gets the default when picked",
        )
        .actor('A', burn(1000))
        .on(Op::Enqueue, 'A', 1, insert(LOCAL))
        .on(Op::Enqueue, 'A', 1, Act::Slice { ns: 0 })
        .wakes("A"),
        row("09-slice-endless", ONE, "An endless slice never shrinks")
            .actor('A', burn(50_000))
            .on(Op::Enqueue, 'A', 1, insert(QUEUE).with_slice(SLICE_INF))
            .actor('B', burn(1000))
            .wakes("AB"),
        row(
            "10-ticks-end-slices",
            ONE,
            "A slice ends at a tick: 10 ms at 250 Hz take 10 to 14 ms",
        )
        .slice(10 * MS)
        .actor('A', burn(20_000))
        .actor('B', burn(20_000))
        .wakes("AB")
        .span(
            (Op::Running, 'A', 1),
            (Op::Stopping, 'A'),
            10 * MS - 200_000,
            14 * MS + 200_000,
        )
        .span(
            (Op::Running, 'B', 1),
            (Op::Stopping, 'B'),
            10 * MS - 200_000,
            14 * MS + 200_000,
        ),
        row(
            "11-tick",
            ONE,
            "Tick: charge, ops.tick, and only then the end of the slice",
        )
        .show(Op::Tick)
        .slice(10 * MS)
        .actor('A', burn(20_000))
        .actor('B', burn(20_000))
        .wakes("AB"),
        row(
            "11-tick-slice",
            ONE,
            "A slice set to 0 in ops.tick ends at that tick",
        )
        .show(Op::Tick)
        .actor('A', burn(20_000))
        .actor('B', burn(1000))
        .on(Op::Tick, 'A', 2, Act::Slice { ns: 0 })
        .wakes("AB"),
        row(
            "12-buffered",
            ONE,
            "An insert in dispatch happens at the next move, or when dispatch returns",
        )
        .actor('A', burn(1000))
        .actor('B', burn(1000))
        .actor('C', burn(1000))
        .on(Op::Enqueue, 'A', 1, Act::Hold)
        .on(Op::Enqueue, 'B', 1, Act::Hold)
        .on(
            Op::Dispatch,
            '-',
            1,
            Act::Release {
                who: 'A',
                queue: LOCAL,
                slice: SLICE_DFL,
            },
        )
        .on(Op::Dispatch, '-', 1, Act::Note { queue: QUEUE })
        .on(Op::Dispatch, '-', 1, Act::Move { queue: QUEUE })
        .on(Op::Dispatch, '-', 1, Act::Note { queue: QUEUE })
        .on(
            Op::Dispatch,
            '-',
            1,
            Act::Release {
                who: 'B',
                queue: QUEUE,
                slice: 5 * MS,
            },
        )
        .on(Op::Dispatch, '-', 1, Act::Note { queue: QUEUE })
        .wakes("ABC"),
        row(
            "12-spurious",
            ONE,
            "An insert in dispatch of a task that is not waiting is ignored",
        )
        .slice(10 * MS)
        .actor('A', vec![Do::Burn(1000), Do::Sleep(3000), Do::Burn(1000)])
        .actor('B', burn(1000))
        .on(Op::Enqueue, 'A', 1, Act::Hold)
        .on(
            Op::Dispatch,
            '-',
            1,
            Act::Release {
                who: 'A',
                queue: LOCAL,
                slice: SLICE_DFL,
            },
        )
        .on(
            Op::Dispatch,
            'A',
            1,
            Act::Release {
                who: 'A',
                queue: LOCAL,
                slice: SLICE_DFL,
            },
        )
        .on(Op::Dispatch, 'A', 1, Act::Move { queue: QUEUE })
        .wakes("AB"),
        row(
            "14-local-in-enqueue",
            ONE,
            "LOCAL in enqueue is the task's CPU; in dispatch the dispatching one",
        )
        .actor('A', burn(1000))
        .actor('B', burn(1000))
        .on(Op::Enqueue, 'A', 1, insert(LOCAL))
        .on(Op::Enqueue, 'B', 1, Act::Hold)
        .on(
            Op::Dispatch,
            'A',
            1,
            Act::Release {
                who: 'B',
                queue: LOCAL,
                slice: SLICE_DFL,
            },
        )
        .wakes("AB"),
        row("18-head", ONE, "ENQ_HEAD goes before those that wait")
            .actor('A', burn(1000))
            .actor('B', burn(1000))
            .actor('C', burn(1000))
            .on(Op::Enqueue, 'C', 1, insert(QUEUE).with_flags(HEAD))
            .wakes("ABC"),
        row(
            "18-preempt",
            ONE,
            "ENQ_PREEMPT into the local queue ends the running task's slice",
        )
        .actor('A', vec![Do::Burn(1000), Do::Post('B'), Do::Burn(1000)])
        .actor('B', burn(1000))
        .on(Op::Enqueue, 'B', 1, insert(LOCAL).with_flags(PREEMPT))
        .wakes("A"),
        row(
            "19-order",
            ONE,
            "Ordered queue: signed difference of keys; equal keys first come, first served",
        )
        .actor('A', burn(1000))
        .actor('B', burn(1000))
        .actor('C', burn(1000))
        .actor('D', burn(1000))
        .on(Op::Enqueue, 'A', 1, ordered(5))
        .on(Op::Enqueue, 'B', 1, ordered(u64::MAX - 9))
        .on(Op::Enqueue, 'C', 1, ordered(5))
        .on(Op::Enqueue, 'D', 1, ordered(4))
        .on(Op::Dispatch, '*', 0, Act::Move { queue: 2 })
        .wakes("ABCD"),
        row(
            "22-higher",
            ONE,
            "A higher class takes the CPU: head of local, without enqueue, slice kept",
        )
        .ops("recorder_higher")
        .show(Op::CpuAcquire)
        .show(Op::CpuRelease)
        .actor('A', burn(6000))
        .actor('B', burn(1000))
        .on(Op::Enqueue, 'B', 1, insert(LOCAL))
        .wakes("AB")
        .then(Do::Sleep(3000)),
        row(
            "30-update-idle",
            ONE,
            "update_idle(true) after a fruitless dispatch; (false) before running",
        )
        .ops("recorder_keep_idle")
        .show(Op::UpdateIdle)
        .actor('A', vec![Do::Burn(1000), Do::Sleep(3000), Do::Burn(1000)])
        .wakes("A"),
        row(
            "31-kick-preempt",
            ONE,
            "A preempting kick acts after the op: the running task's slice is gone",
        )
        .actor('A', vec![Do::Burn(1000), Do::Post('B'), Do::Burn(1000)])
        .actor('B', burn(1000))
        .on(
            Op::Enqueue,
            'B',
            1,
            Act::Kick {
                cpu: 0,
                flags: KICK_PREEMPT,
            },
        )
        .on(Op::Enqueue, 'B', 1, Act::Note { queue: QUEUE })
        .on(Op::Enqueue, 'B', 1, insert(QUEUE))
        .wakes("A"),
        row(
            "31-kick-idle",
            ONE,
            "An idle-kick of a busy CPU does nothing",
        )
        .actor('A', vec![Do::Burn(1000), Do::Post('B'), Do::Burn(1000)])
        .actor('B', burn(1000))
        .on(
            Op::Enqueue,
            'B',
            1,
            Act::Kick {
                cpu: 0,
                flags: KICK_IDLE,
            },
        )
        .on(Op::Enqueue, 'B', 1, insert(QUEUE))
        .wakes("A"),
        row(
            "32-nice",
            ONE,
            "Own nice: stopping, quiescent, set_weight, runnable, running, without enqueue",
        )
        .actor('A', vec![Do::Burn(1000), Do::Nice(5), Do::Burn(1000)])
        .actor('B', burn(1000))
        .wakes("AB"),
        row(
            "32-affinity",
            ONE,
            "Own affinity: stopping, quiescent, set_cpumask, runnable, running",
        )
        .actor(
            'A',
            vec![Do::Burn(1000), Do::Affinity(&[0]), Do::Burn(1000)],
        )
        .actor('B', burn(1000))
        .wakes("AB"),
        row(
            "33-class",
            ONE,
            "Leaving sched_ext and coming back: enable, set_weight, set_cpumask",
        )
        .actor(
            'A',
            vec![
                Do::Burn(1000),
                Do::Ext(false),
                Do::Burn(1000),
                Do::Ext(true),
                Do::Burn(1000),
            ],
        )
        .wakes("A"),
        row(
            "33-fork",
            ONE,
            "A new thread: init_task, enable, set_weight, and its first wake-up; at last exit_task",
        )
        .actor('A', vec![Do::Burn(1000), Do::Fork('B'), Do::Burn(1000)])
        .child('B', vec![Do::Burn(1000), Do::Exit])
        .wakes("A"),
        row(
            "35-yield",
            ONE,
            "yield without the op: the slice is gone, dispatch decides",
        )
        .actor('A', vec![Do::Burn(1000), Do::Yield, Do::Burn(1000)])
        .actor('B', burn(1000))
        .wakes("AB"),
        row(
            "35-yield-alone",
            ONE,
            "yield with nothing else to run: the same task goes on",
        )
        .actor('A', vec![Do::Burn(1000), Do::Yield, Do::Burn(1000)])
        .wakes("A"),
    ]
}

fn ordered(vtime: u64) -> Act {
    Act::InsertVtime {
        queue: 2,
        slice: SLICE_DFL,
        vtime,
    }
}

/// Rows in which the kernel ends the scheduler: the log up to there, and the kind of exit.
fn ejections() -> Vec<Row> {
    vec![
        row(
            "19-mixed",
            ONE,
            "Ordered and FIFO inserts into one queue eject",
        )
        .actor('A', burn(1000))
        .actor('B', burn(1000))
        .on(Op::Enqueue, 'A', 1, insert(2))
        .on(Op::Enqueue, 'B', 1, ordered(5))
        .wakes("AB")
        .ejected(Op::Enqueue, 'B'),
        row(
            "19-builtin",
            ONE,
            "An ordered insert into a built-in queue ejects",
        )
        .actor('A', burn(1000))
        .on(
            Op::Enqueue,
            'A',
            1,
            Act::InsertVtime {
                queue: LOCAL,
                slice: SLICE_DFL,
                vtime: 5,
            },
        )
        .wakes("A")
        .ejected(Op::Enqueue, 'A'),
        row(
            "36-watchdog",
            ONE,
            "A task that never gets to run ends the scheduler",
        )
        .actor('A', burn(1000))
        .on(Op::Enqueue, 'A', 1, Act::Hold)
        .wakes("A")
        .run_us(4_500_000)
        .ejected(Op::Enqueue, 'A'),
        row(
            "40-unknown-queue",
            ONE,
            "An insert into a queue that does not exist ejects",
        )
        .actor('A', burn(1000))
        .on(Op::Enqueue, 'A', 1, insert(77))
        .wakes("A")
        .ejected(Op::Enqueue, 'A'),
        row(
            "15-twice",
            TWO,
            "A second direct dispatch in select_cpu ejects",
        )
        .actor('A', burn(1000))
        .on(Op::SelectCpu, 'A', 1, insert(LOCAL))
        .on(Op::SelectCpu, 'A', 1, insert(LOCAL))
        .wakes("A")
        .ejected(Op::SelectCpu, 'A'),
        row(
            "15-another",
            TWO,
            "A direct dispatch in select_cpu of another task ejects",
        )
        .actor('A', burn(1000))
        .actor('B', burn(1000))
        .on(Op::Enqueue, 'A', 1, Act::Hold)
        .on(
            Op::SelectCpu,
            'B',
            1,
            Act::Release {
                who: 'A',
                queue: LOCAL,
                slice: SLICE_DFL,
            },
        )
        .wakes("AB")
        .ejected(Op::SelectCpu, 'B'),
        row(
            "17-affinity",
            TWO,
            "An insert into the local queue of a CPU the task may not use ejects",
        )
        .bound('A', &[0], burn(1000))
        .on(Op::Enqueue, 'A', 1, insert(LOCAL_ON + 1))
        .wakes("A")
        .ejected(Op::Enqueue, 'A'),
        row(
            "40-bad-cpu",
            TWO,
            "A local queue of a CPU that does not exist ejects",
        )
        .actor('A', burn(1000))
        .on(Op::Enqueue, 'A', 1, insert(LOCAL_ON + 77))
        .wakes("A")
        .ejected(Op::Enqueue, 'A'),
    ]
}

fn two_cpus() -> Vec<Row> {
    vec![
        row("14-select", TWO, "LOCAL in select_cpu is the CPU returned")
            .actor('A', burn(3000))
            .on(Op::SelectCpu, 'A', 1, insert(LOCAL))
            .on(Op::SelectCpu, 'A', 1, Act::Return { cpu: 1 })
            .wakes("A"),
        row(
            "15-direct",
            TWO,
            "Direct dispatch in select_cpu skips ops.enqueue",
        )
        .actor('A', burn(3000))
        .on(Op::SelectCpu, 'A', 1, insert(LOCAL))
        .wakes("A"),
        row(
            "16-deferred",
            TWO,
            "LOCAL_ON another CPU in enqueue: the task is re-homed and runs there",
        )
        .actor('A', burn(3000))
        .on(Op::SelectCpu, 'A', 1, Act::Return { cpu: 0 })
        .on(Op::Enqueue, 'A', 1, insert(LOCAL_ON + 1))
        .wakes("A"),
        row(
            "17-skipped",
            TWO,
            "move_to_local skips a task that may not run here",
        )
        .bound('A', &[1], burn(3000))
        .bound('B', &[0], burn(3000))
        .wakes("AB"),
        row(
            "20-first-allowed",
            TWO,
            "move_to_local takes the first task that may run here; no runnable/quiescent",
        )
        .bound('A', &[0], vec![Do::Burn(8000)])
        .bound('B', &[0], burn(1000))
        .actor('C', burn(1000))
        .on(Op::SelectCpu, 'C', 1, Act::Return { cpu: 0 })
        .on(Op::Enqueue, 'C', 1, insert(QUEUE))
        .on(
            Op::Enqueue,
            'C',
            1,
            Act::Kick {
                cpu: 1,
                flags: KICK_IDLE,
            },
        )
        .wakes("ABC"),
        row(
            "24-one-cpu",
            TWO,
            "select_cpu is not called for a task with one allowed CPU",
        )
        .bound(
            'A',
            &[0],
            vec![Do::Burn(1000), Do::Sleep(2000), Do::Burn(1000)],
        )
        .wakes("A"),
        row(
            "24-two-cpus",
            TWO,
            "select_cpu is called at every wake-up of other tasks; its result names the run queue",
        )
        .actor('A', vec![Do::Burn(1000), Do::Sleep(2000), Do::Burn(1000)])
        .on(Op::SelectCpu, 'A', 0, Act::Return { cpu: 1 })
        .wakes("A"),
        row(
            "27-claim",
            TWO,
            "Claiming clears the idle bit at once; it returns when the CPU passes through idle",
        )
        .actor('A', burn(1000))
        .bound('B', &[0], vec![Do::Burn(1000), Do::Post('C')])
        .actor('C', burn(1000))
        .on(Op::SelectCpu, 'A', 1, Act::Claim { cpu: 1 })
        .on(Op::SelectCpu, 'A', 1, Act::Claim { cpu: 1 })
        .on(Op::SelectCpu, 'A', 1, Act::Note { queue: QUEUE })
        .on(Op::SelectCpu, 'A', 1, insert(LOCAL))
        .on(Op::SelectCpu, 'A', 1, Act::Return { cpu: 1 })
        .on(Op::SelectCpu, 'C', 1, Act::Note { queue: QUEUE })
        .wakes("A")
        .then(Do::Sleep(5000))
        .wakes("B"),
        row(
            "34-leave-cpu",
            TWO,
            "Affinity away from the running CPU: an ordinary enqueue on the new one",
        )
        .bound(
            'A',
            &[0],
            vec![Do::Burn(1000), Do::Affinity(&[1]), Do::Burn(1000)],
        )
        .wakes("A"),
    ]
}

fn topology() -> Vec<Row> {
    let four = |name, title| {
        let mut row = row(name, SMT, title);
        for label in "ABCD".chars() {
            row = row.actor(label, burn(20_000)).on(
                Op::SelectCpu,
                label,
                1,
                Act::Default { insert: true },
            );
        }
        row
    };
    vec![
        four(
            "29-default",
            "Default choice: previous CPU's idle core, another idle core, then any idle thread",
        )
        .wakes("ABCD"),
    ]
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
    fn run_us(mut self, us: u64) -> Row {
        self.run_us = us;
        self
    }
}
