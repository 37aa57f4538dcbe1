// SPDX-License-Identifier: GPL-2.0-only
//! Rows on one CPU: their logs are sequences.
use super::{MS, ONE, burn, insert, ordered, row};
use crate::row::*;

pub(super) fn one_cpu() -> Vec<Row> {
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
        .wakes("A")
        .then(Do::Sleep(40_000)),
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
            "21-custody",
            ONE,
            "ops.dequeue for a task that waits with the policy when another changes it",
        )
        .actor(
            'A',
            vec![Do::Burn(1000), Do::NiceOf('B', 5), Do::Burn(1000)],
        )
        .actor('B', burn(1000))
        .wakes("AB"),
        row(
            "21-not-custody",
            ONE,
            "no ops.dequeue for a changed task that waits in the local queue",
        )
        .actor(
            'A',
            vec![Do::Burn(1000), Do::NiceOf('B', 5), Do::Burn(1000)],
        )
        .actor('B', burn(1000))
        .on(Op::Enqueue, 'B', 1, insert(LOCAL))
        .on(Op::Enqueue, 'A', 1, insert(LOCAL))
        .wakes("AB"),
        row(
            "32-queued-affinity",
            ONE,
            "Affinity of a waiting task: dequeue, quiescent, set_cpumask, runnable, enqueue",
        )
        .actor(
            'A',
            vec![Do::Burn(1000), Do::AffinityOf('B', &[0]), Do::Burn(1000)],
        )
        .actor('B', burn(1000))
        .wakes("AB"),
        row(
            "31b-move",
            ONE,
            "An iterator moves a task from the middle of a queue, with a slice for this move alone",
        )
        .actor('A', burn(1000))
        .actor('B', burn(1000))
        .actor('C', burn(1000))
        .on(
            Op::Dispatch,
            '-',
            1,
            Act::Pull {
                who: 'B',
                queue: QUEUE,
                slice: 5 * MS,
            },
        )
        .wakes("ABC"),
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
        row(
            "11-grid",
            ONE,
            "Ticks are on one grid, whoever runs since when",
        )
        .show(Op::Tick)
        .actor('A', burn(6000))
        .actor('B', burn(7000))
        .wakes("AB")
        .on_grid((Op::Tick, 'A', 1), (Op::Tick, 'B')),
        row(
            "23-release-once",
            ONE,
            "cpu_release once, however many threads of higher classes follow each other",
        )
        .ops("recorder_higher")
        .show(Op::CpuAcquire)
        .show(Op::CpuRelease)
        .actor('A', burn(6000))
        .fair('F', burn(1000))
        .wakes("A")
        .then(Do::Sleep(2000))
        .wakes("F")
        .then(Do::Sleep(500)),
        row(
            "23-release-stays",
            ONE,
            "cpu_release once until a dispatch pass, even if a sched_ext task has run meanwhile",
        )
        .ops("recorder_higher")
        .show(Op::CpuAcquire)
        .show(Op::CpuRelease)
        .actor('A', burn(6000))
        // F takes the CPU from A and becomes a sched_ext task on it, without having been chosen; G, which
        // waits, takes the CPU from F.
        .fair(
            'F',
            vec![
                Do::Burn(500),
                Do::Post('G'),
                Do::Burn(500),
                Do::Ext(true),
                Do::Burn(500),
            ],
        )
        .fair('G', burn(6000))
        // F has the CPU for no time at all in the simulator, and for next to none in the kernel.
        .on(Op::Running, 'F', 0, Act::Slice { ns: SLICE_INF })
        .wakes("A")
        .then(Do::Sleep(2000))
        .wakes("F"),
        row(
            "25-exiting",
            ONE,
            "A task preempted in the middle of its exit goes to the local queue, without enqueue",
        )
        .actor('A', vec![Do::Fork('C'), Do::Burn(1000)])
        .child('C', vec![Do::Burn(1000), Do::Exit])
        .actor('B', vec![Do::Burn(300), Do::Join('C'), Do::Burn(1000)])
        .on(Op::Enqueue, 'B', 2, insert(LOCAL).with_flags(PREEMPT))
        .wakes("BA"),
        row(
            "39-events",
            ONE,
            "Keeping the last task and giving default slices are counted",
        )
        .slice(10 * MS)
        .actor('A', burn(22_000))
        .counting(&["SCX_EV_DISPATCH_KEEP_LAST", "SCX_EV_REFILL_SLICE_DFL"])
        .wakes("A"),
        row(
            "31-kick-late",
            ONE,
            "A kick in dispatch acts when the switch is over: on the task that has come",
        )
        .slice(10 * MS)
        .actor('A', burn(20_000))
        .actor('B', burn(1000))
        .on(
            Op::Dispatch,
            'A',
            1,
            Act::Kick {
                cpu: 0,
                flags: KICK_PREEMPT,
            },
        )
        .on(Op::Dispatch, 'A', 1, Act::Move { queue: QUEUE })
        .wakes("AB"),
    ]
}
