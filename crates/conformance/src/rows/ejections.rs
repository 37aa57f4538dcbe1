// SPDX-License-Identifier: GPL-2.0-only
//! Rows in which the kernel ends the scheduler: the log up to there, and the kind of exit.
use super::{MS, ONE, TWO, burn, insert, ordered, row};
use crate::row::*;

/// Rows in which the kernel ends the scheduler: the log up to there, and the kind of exit.
pub(super) fn ejections() -> Vec<Row> {
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
        // Half a period of the watchdog after it was loaded, so that its next look is not at the limit.
        .then(Do::Sleep(500_000))
        .wakes("A")
        .run_us(4_500_000)
        .ejected(Op::Enqueue, 'A')
        .span((Op::Enqueue, 'A', 1), (Op::Exit, '-'), 2100 * MS, 3200 * MS),
        row(
            "31b-enqueue",
            ONE,
            "dsq_move in enqueue is not accepted: newer kernels refuse the policy, older ones eject it",
        )
        .ops("recorder_moving")
        .actor('A', burn(1000))
        .actor('B', burn(1000))
        .wakes("AB")
        .ejected(Op::Enqueue, 'B')
        .refused_for("scx_bpf_dsq_move"),
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
        row(
            "38-exit",
            ONE,
            "At the end: disable and exit_task for every thread, and then exit",
        )
        .only(&[Op::Disable, Op::ExitTask, Op::Exit])
        .actor('A', burn(1000))
        .actor('B', burn(1000))
        .on(Op::Enqueue, 'B', 1, insert(77))
        .wakes("AB")
        .ejected(Op::Exit, '-'),
        row(
            "37-offline",
            TWO,
            "A CPU that goes off line without an op for it ends the scheduler",
        )
        .only(&[Op::Exit])
        .bound('A', &[0], burn(1000))
        .wakes("A")
        .then(Do::Sleep(3000))
        .then(Do::Online(1, false))
        .ejected(Op::Exit, '-'),
    ]
}
