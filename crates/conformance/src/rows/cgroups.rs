// SPDX-License-Identifier: GPL-2.0-only
//! Rows about cgroups: what the policy hears when they come and go, when their settings change, and when threads
//! move from one to another. `vm0` begins with weight 300, `vm1` with half a CPU.
use super::{MS, ONE, TWO, burn, row};
use crate::row::*;

const EAGAIN: i32 = 11;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const EPROTO: i32 = 71;

const EVERY: u64 = PERIOD_US;

fn grouped(name: &'static str, machine: Machine, title: &'static str) -> Row {
    let mut row = row(name, machine, title).ops("recorder_cgroups");
    let group = |weight, quota_us| GroupSpec { weight, quota_us };
    row.groups = vec![group(300, None), group(100, Some(50_000))];
    row
}

impl Row {
    /// The member added last is in this cgroup.
    fn within(mut self, group: Group) -> Row {
        if let Some(actor) = self.cast.last_mut() {
            actor.group = Some(group);
        }
        self
    }

    fn since_load(mut self) -> Row {
        self.since_load = true;
        self
    }
}

fn refused(step: Do, errno: i32) -> Do {
    Do::Refused(Box::new(step), errno)
}

pub(super) fn cgroups() -> Vec<Row> {
    let mut rows = settings();
    rows.extend(moves());
    rows
}

fn settings() -> Vec<Row> {
    vec![
        grouped(
            "41-init",
            ONE,
            "cgroup_init for every group, parents first, with its settings",
        )
        .since_load()
        .only(&[Op::CgroupInit])
        .actor('A', burn(1000))
        .within(0)
        .wakes("A"),
        grouped(
            "41-exit",
            ONE,
            "At the end: cgroup_exit for every group, children first, before the threads' exit_task",
        )
        .only(&[Op::CgroupExit, Op::Disable, Op::ExitTask, Op::Exit])
        .actor('A', burn(1000))
        .within(0)
        // A mistake while all sleep: what waits where at the end is not this row's business.
        .on(Op::CgroupPrepMove, 'A', 0, Act::Refuse { errno: 7 })
        .then(refused(Do::Send('A', 1), EPROTO))
        .ejected(Op::Exit, '-'),
        grouped(
            "42-weight-running",
            ONE,
            "A new cpu.weight is told once, the old one again is not; threads of the group are left alone",
        )
        .actor(
            'A',
            vec![
                Do::Burn(1000),
                Do::Weight(0, 200),
                Do::Weight(0, 200),
                refused(Do::Weight(0, 0), ERANGE),
                refused(Do::Weight(0, 10_001), ERANGE),
                Do::Burn(1000),
                Do::Weight(1, 100),
                Do::Weight(0, 10_000),
                Do::Burn(1000),
            ],
        )
        .within(0)
        .wakes("A"),
        grouped(
            "42-weight-sleeping",
            ONE,
            "cpu.weight of a group whose threads all sleep is told at once, and not again when one wakes up",
        )
        .actor('A', burn(1000))
        .within(0)
        .then(Do::Weight(0, 200))
        .wakes("A")
        .then(Do::Sleep(10_000))
        .then(Do::Weight(0, 1)),
        grouped(
            "42-weight-waiting",
            ONE,
            "cpu.weight changes while threads of the group wait: they stay where they wait",
        )
        .actor('A', burn(5000))
        .within(0)
        .actor('B', burn(1000))
        .within(0)
        .wakes("AB")
        .then(Do::Sleep(2000))
        .then(Do::Weight(0, 200)),
        grouped(
            "42-weight-elsewhere",
            TWO,
            "cpu.weight is told on the CPU that writes it, while the group's thread runs on another",
        )
        .bound('A', &[0], burn(12_000))
        .within(0)
        .director(1)
        .wakes("A")
        .then(Do::Sleep(5000))
        .then(Do::Weight(0, 200))
        .then(Do::Sleep(2000))
        .then(Do::Weight(0, 300)),
        grouped(
            "43-limit",
            ONE,
            "cpu.max and cpu.max.burst are told with all three numbers, and only if one is new",
        )
        .actor(
            'A',
            vec![
                Do::Burn(1000),
                Do::Limit(0, None, EVERY),
                Do::Limit(0, Some(60_000), EVERY),
                Do::Limit(0, Some(60_000), EVERY),
                Do::Burst(0, 10_000),
                refused(Do::Limit(0, Some(500), EVERY), EINVAL),
                refused(Do::Burst(0, 70_000), EINVAL),
                Do::Burn(1000),
                Do::Limit(0, Some(60_000), 200_000),
                Do::Limit(1, Some(50_000), EVERY),
                Do::Burst(0, 0),
                Do::Limit(0, None, EVERY),
                Do::Burn(1000),
            ],
        )
        .within(0)
        .wakes("A"),
        grouped(
            "43-not-throttled",
            ONE,
            "A group that has used up its cpu.max runs on: limits are the policy's business",
        )
        .slice(10 * MS)
        .actor('A', vec![Do::Limit(0, Some(2000), EVERY), Do::Burn(30_000)])
        .within(0)
        .actor('B', burn(20_000))
        .within(0)
        .wakes("AB"),
        grouped(
            "44-idle",
            ONE,
            "cpu.idle is told each time it is written; an idle group's weight cannot be set",
        )
        .actor(
            'A',
            vec![
                Do::Burn(1000),
                Do::Idle(0, true),
                Do::Idle(0, true),
                refused(Do::Weight(0, 200), EINVAL),
                Do::Burn(1000),
                Do::Idle(0, false),
                Do::Weight(0, 200),
                Do::Burn(1000),
            ],
        )
        .within(0)
        .wakes("A"),
    ]
}

fn moves() -> Vec<Row> {
    let crowd = |name, title| {
        grouped(name, ONE, title)
            .actor('A', burn(5000))
            .within(0)
            .actor('B', burn(1000))
            .within(0)
            .actor('C', burn(1000))
            .within(0)
            .actor('D', burn(1000))
            .within(1)
            .wakes("AB")
            .then(Do::Sleep(2000))
    };
    vec![
        grouped(
            "45-move-sleeping",
            ONE,
            "A sleeping thread moves: prep_move, move, nothing else",
        )
        .actor('A', burn(1000))
        .within(0)
        .then(Do::Send('A', 1))
        .wakes("A"),
        grouped(
            "45-move-running",
            ONE,
            "A running one: prep_move, stopping, quiescent, move, runnable, running; to its own group: nothing",
        )
        .actor(
            'A',
            vec![
                Do::Burn(1000),
                Do::Enter(1),
                Do::Burn(1000),
                Do::Enter(1),
                Do::Burn(1000),
            ],
        )
        .within(0)
        .wakes("A"),
        grouped(
            "45-move-waiting",
            ONE,
            "One that waits with the policy: dequeue, quiescent, move, runnable, enqueue",
        )
        .actor('A', burn(5000))
        .within(0)
        .actor('B', burn(1000))
        .within(0)
        .wakes("AB")
        .then(Do::Sleep(2000))
        .then(Do::Send('B', 1)),
        grouped(
            "45-move-local",
            ONE,
            "One that waits in a local queue: quiescent, move, runnable, enqueue; it has lost its place",
        )
        .actor('A', burn(5000))
        .within(0)
        .actor('B', burn(1000))
        .within(0)
        .wakes("AB")
        .then(Do::Sleep(2000))
        .then(Do::Send('A', 1)),
        grouped(
            "45-move-elsewhere",
            TWO,
            "One that runs on another CPU: told on the CPU that moves it, and it keeps its own",
        )
        .bound('A', &[0], burn(12_000))
        .within(0)
        .director(1)
        .wakes("A")
        .then(Do::Sleep(5000))
        .then(Do::Send('A', 1))
        .then(Do::Sleep(2000))
        .then(Do::Send('A', 0)),
        grouped(
            "45-move-fair",
            ONE,
            "A thread of another class moves: prep_move and move are told all the same",
        )
        .fair('F', burn(1000))
        .within(0)
        .actor('A', burn(5000))
        .within(0)
        .wakes("A")
        .then(Do::Sleep(2000))
        .then(Do::Send('F', 1)),
        crowd(
            "45-move-all",
            "A process moves in one go: prep_move of all threads that are not there yet, then move of each",
        )
        .then(Do::SendAll(1)),
        crowd(
            "46-refused",
            "prep_move refuses one thread: cancel_move for those before it, and nobody moves",
        )
        .on(Op::CgroupPrepMove, 'C', 0, Act::Refuse { errno: -EAGAIN })
        .then(refused(Do::SendAll(1), EAGAIN)),
        grouped(
            "46-bad-errno",
            ONE,
            "prep_move that returns neither 0 nor an error number ejects",
        )
        .actor('A', burn(1000))
        .within(0)
        .on(Op::CgroupPrepMove, 'A', 0, Act::Refuse { errno: 7 })
        .then(refused(Do::Send('A', 1), EPROTO))
        .ejected(Op::CgroupPrepMove, 'A'),
    ]
}
