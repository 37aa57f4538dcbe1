// SPDX-License-Identifier: GPL-2.0-only
//! Rows on several CPUs: their logs are partial orders.
use super::{MS, NODES, SMT, TWO, burn, insert, row};
use crate::row::*;

pub(super) fn two_cpus() -> Vec<Row> {
    vec![
        changed_meanwhile(),
        kick_wait(),
        per_node(),
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

/// CPU 0 takes A out of the policy's custody and, before the insert is carried out, waits until A has been
/// taken off its queue and enqueued again on CPU 1. Then only C, on CPU 1, lets A go.
fn changed_meanwhile() -> Row {
    let release = |queue| Act::Release {
        who: 'A',
        queue,
        slice: SLICE_DFL,
    };
    let mut row = row(
        "13-changed",
        TWO,
        "A buffered insert of a task that was enqueued anew meanwhile is dropped",
    )
    .actor('A', burn(1000))
    .bound('B', &[0], burn(1000))
    .bound('C', &[1], burn(1000))
    .on(Op::SelectCpu, 'A', 1, Act::Return { cpu: 1 })
    .on(Op::Enqueue, 'A', 0, Act::Hold)
    .on(Op::Dispatch, 'B', 1, release(LOCAL))
    .on(
        Op::Dispatch,
        'B',
        1,
        Act::Await {
            who: 'A',
            enqueued: 2,
        },
    )
    .on(Op::Dispatch, 'C', 1, release(LOCAL));
    // Older lines have no ops.dequeue in some of their logs (`report::as_line`), and where A was born differs;
    // this row is not about them.
    row.hide.extend([Op::Dequeue, Op::SelectCpu]);
    row.director_cpu = 1;
    row.wakes("AB")
        .then(Do::NiceDuring('A', 5, 5000))
        .then(Do::Sleep(5000))
        .wakes("C")
}

/// B runs on CPU 1. A, on CPU 0, does next to nothing, and yet not before CPU 1 has been asked what to run.
fn kick_wait() -> Row {
    let mut row = row(
        "31-kick-wait",
        TWO,
        "KICK_WAIT: what runs next here waits until the other CPU has passed its scheduler",
    )
    .bound('A', &[0], burn(20))
    .bound('B', &[1], burn(19_000))
    .on(
        Op::Enqueue,
        'A',
        1,
        Act::Kick {
            cpu: 1,
            flags: KICK_PREEMPT | KICK_WAIT,
        },
    )
    .on(Op::Enqueue, 'A', 1, insert(QUEUE));
    row.ipi_ns = MS / 10;
    row.wakes("B").then(Do::Sleep(2000)).wakes("A").span(
        (Op::Dispatch, 'B', 1),
        (Op::Stopping, 'A'),
        0,
        u64::MAX,
    )
}

/// Masks of idle CPUs by node: CPU 0 is on node 0, CPU 1 on node 1, and the director keeps CPU 0 busy.
fn per_node() -> Row {
    let pick = |node, flags| Act::PickNode { node, flags };
    let mut row = row(
        "27-per-node",
        NODES,
        "Idle masks by node: a choice near a node looks there first, and elsewhere only if it may",
    )
    .ops("recorder_per_node")
    .actor('A', burn(1000));
    for act in [
        Act::NoteNode { node: 0 },
        Act::NoteNode { node: 1 },
        pick(0, PICK_IN_NODE),
        pick(0, 0),
        Act::NoteNode { node: 1 },
        pick(1, 0),
        insert(LOCAL),
        Act::Return { cpu: 1 },
    ] {
        row = row.on(Op::SelectCpu, 'A', 1, act);
    }
    row.wakes("A")
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
