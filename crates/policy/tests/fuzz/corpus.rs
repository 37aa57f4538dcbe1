// SPDX-License-Identifier: GPL-2.0-only
//! Schedulers with changes in their code: registers, offsets, numbers, operations, the order of instructions.
use super::wild::Random;
use super::{Beside, Ends, VTABLE, here, kernel, witness};
use ::object::{Object, ObjectSection, SectionFlags};
use berth_policy::abi::Op;
use berth_policy::instance::{Instance, InstanceConfig, Mode};
use berth_policy::policy::Policy;
use kernel::Machine;
use std::path::PathBuf;

pub fn sources() -> Vec<PathBuf> {
    let folder = here("tests/policies");
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().ends_with(".bpf.c"))
        .collect();
    all.sort();
    all
}

/// Where instructions are.
fn code(bytes: &[u8]) -> Vec<(usize, usize)> {
    const EXECUTABLE: u64 = 4;
    let file = ::object::File::parse(bytes).expect("clang writes ELF");
    let sections = file.sections().filter(|s| match s.flags() {
        SectionFlags::Elf { sh_flags } => sh_flags & EXECUTABLE != 0,
        _ => false,
    });
    let ranges = sections.filter_map(|s| s.file_range());
    let ranges = ranges.map(|(start, size)| (start as usize, size as usize));
    ranges.filter(|(_, size)| *size >= 16).collect()
}

/// A copy with a few changes.
pub fn changed(object: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = object.to_vec();
    let code = code(object);
    for _ in 0..1 + random.below(6) {
        let (start, size) = random.of(&code);
        let at = start + random.below(size / 8) * 8;
        match random.below(7) {
            // A register.
            0 => bytes[at + 1] = (bytes[at + 1] & 0xf0) | random.below(11) as u8,
            1 => bytes[at + 1] = (bytes[at + 1] & 0x0f) | (random.below(11) as u8) << 4,
            // An offset.
            2 => {
                let offset = (random.next() as i16) >> random.below(14);
                bytes[at + 2..at + 4].copy_from_slice(&offset.to_le_bytes());
            }
            // A number; of a call, which function.
            3 | 4 => {
                let number = (random.next() as i32) >> random.below(32);
                bytes[at + 4..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            5 => bytes[at] = random.next() as u8,
            _ => {
                let other = start + random.below(size / 8) * 8;
                for i in 0..8 {
                    bytes.swap(at + i, other + i);
                }
            }
        }
    }
    bytes
}

/// Some rounds of what a kernel calls; false if the instance cannot be made.
pub fn run(policy: &Policy, mode: Mode, number: u64, ends: &mut Ends) -> bool {
    let mut machine = Machine::new();
    let before = Beside::new();
    let config = InstanceConfig {
        mode,
        budget_insns: 20_000,
        seed: number,
        ..InstanceConfig::new(kernel::NR_CPUS as u32)
    };
    let var = policy.program().structs.first().map(|s| s.var.as_str());
    let Ok(instance) = Instance::new(policy, var, &config, &VTABLE) else {
        return false;
    };
    kernel::attach(&instance, &mut machine);
    let after = Beside::new();
    let [init, exit, cgroup] = machine.arguments();
    let mut call = |op: Op, args: &[u64]| {
        // SAFETY: arguments as the operation's prototype wants them, of a machine that lives.
        let call = || unsafe { instance.call(op, args) };
        let result = witness::watching(&instance, number, call);
        ends.count(result.map_err(|trap| trap.kind));
    };
    call(Op::Init, &[]);
    for c in 0..2 {
        call(Op::CgroupInit, &[machine.cgroup(c), cgroup]);
    }
    for i in 0..6 {
        call(Op::InitTask, &[machine.task(i), init]);
        call(Op::Enable, &[machine.task(i)]);
    }
    for round in 0..8u64 {
        let task = machine.task((round * 5 % 6) as usize);
        call(Op::Runnable, &[task, 1]);
        call(Op::SelectCpu, &[task, round % 8, 8]);
        call(Op::Enqueue, &[task, round & 1]);
        call(
            Op::Dispatch,
            &[round % 8, if round % 3 == 0 { 0 } else { task }],
        );
        call(Op::Running, &[task]);
        call(Op::Tick, &[task]);
        call(Op::Stopping, &[task, round >> 1 & 1]);
        call(Op::Quiescent, &[task, 1]);
        call(Op::SetCpumask, &[task, machine.mask()]);
        call(Op::CgroupSetWeight, &[machine.cgroup(1), 50 + round]);
        call(Op::Dequeue, &[task, 1]);
    }
    for i in 0..6 {
        call(Op::ExitTask, &[machine.task(i), exit]);
        instance.task_gone(i as u32);
    }
    call(Op::Exit, &[0]);
    machine.log.clear();
    before.assert_unharmed(number);
    after.assert_unharmed(number);
    true
}
