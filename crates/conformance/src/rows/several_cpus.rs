// SPDX-License-Identifier: GPL-2.0-only
//! Rows on several CPUs: their logs are partial orders.
use super::{MS, NODES, SMT, TWO, burn, insert, row};
use crate::row::*;

pub(super) fn two_cpus() -> Vec<Row> {
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
        .on(
            Op::Enqueue,
            'A',
            1,
            Act::Note {
                queue: LOCAL_ON + 1,
            },
        )
        .wakes("A"),
        row(
            "16-deferred-late",
            TWO,
            "Until the run queue is unlocked, the task is in no queue",
        )
        .bound('B', &[0], burn(1000))
        .actor('A', burn(20_000))
        .on(Op::SelectCpu, 'A', 1, Act::Return { cpu: 0 })
        .on(Op::Enqueue, 'A', 1, insert(LOCAL).with_slice(10 * MS))
        .on(Op::Enqueue, 'A', 2, insert(LOCAL_ON + 1))
        .on(Op::Enqueue, 'B', 1, insert(LOCAL))
        .on(
            Op::Running,
            'B',
            1,
            Act::Note {
                queue: LOCAL_ON + 1,
            },
        )
        .wakes("AB"),
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
        .on(Op::Enqueue, 'A', 0, insert(LOCAL))
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
        row(
            "05-own-node",
            NODES,
            "The global queue is one for each node: another node's CPU does not see it",
        )
        .actor('A', burn(1000))
        .bound('B', &[1], burn(1000))
        .on(Op::SelectCpu, 'A', 1, Act::Return { cpu: 1 })
        .on(Op::Enqueue, 'A', 1, insert(GLOBAL))
        .wakes("A")
        .then(Do::Sleep(3000))
        .wakes("B"),
        row("26-waker", TWO, "A wake-up runs on the waker's CPU")
            .bound('A', &[1], burn(1000))
            .on(Op::Enqueue, 'A', 1, insert(LOCAL))
            .wakes("A"),
    ]
}

pub(super) fn topology() -> Vec<Row> {
    let choice = |row: Row, label, cpus| {
        row.bound(label, cpus, burn(2000))
            .on(Op::SelectCpu, label, 1, Act::Default { insert: true })
            .on(Op::SelectCpu, label, 1, Act::Note { queue: QUEUE })
    };
    // The director keeps CPU 0 busy. Affinities leave one answer: which CPU of several equal ones the
    // kernel takes depends on what it took before.
    let mut row = row(
        "29-default",
        SMT,
        "Default choice: an idle core, prev, prev's sibling, any idle CPU, at last prev",
    );
    for (label, cpus) in [
        ('A', &[0, 2][..]),
        ('B', &[0, 1, 3]),
        ('C', &[0, 3]),
        ('D', &[0, 3]),
    ] {
        row = choice(row, label, cpus);
    }
    let cores = super::row(
        "28-core-bits",
        SMT,
        "A core counts as idle only while all its CPUs are",
    )
    .actor('A', burn(1000))
    .on(Op::SelectCpu, 'A', 1, Act::Note { queue: QUEUE })
    .on(Op::SelectCpu, 'A', 1, Act::Claim { cpu: 2 })
    .on(Op::SelectCpu, 'A', 1, Act::Note { queue: QUEUE })
    .on(Op::SelectCpu, 'A', 1, Act::Return { cpu: 2 })
    .on(Op::SelectCpu, 'A', 1, insert(LOCAL))
    .wakes("A");
    let again = || [Do::Post('A'), Do::Sleep(4000)];
    let mut rotates = super::row(
        "29-rotates",
        SMT,
        "Any of several idle CPUs: not the one taken last",
    )
    .actor(
        'A',
        vec![
            Do::Burn(300),
            Do::Wait,
            Do::Burn(300),
            Do::Wait,
            Do::Burn(300),
        ],
    )
    .on(Op::SelectCpu, 'A', 0, Act::Pick { flags: 0 })
    .on(Op::SelectCpu, 'A', 0, insert(LOCAL))
    .twins(2, 3);
    rotates.director = [again(), again(), again()].concat();
    vec![row.wakes("ABCD"), rotates, cores]
}
