// SPDX-License-Identifier: GPL-2.0-only
//! The executors against each other, against hand-written results, and against the kernel.
mod encode;
mod golden;
mod harness;
mod kernel;
mod maps;
mod native;
mod random;

use berth_policy::abi::{Trap, TrapKind};
use berth_policy::interp::Prepared;
use harness::{CONTEXT_REG, Input, LIMIT, Outcome};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

fn golden_program() -> (Vec<golden::Case>, berth_policy::ir::Program) {
    let cases = golden::cases();
    let funcs = cases
        .iter()
        .map(|c| harness::function(c.name.clone(), &c.work))
        .collect();
    (cases, harness::program(funcs))
}

/// The registers a case must leave behind.
fn expected(case: &golden::Case) -> [u64; 10] {
    let mut registers = case.input;
    registers[usize::from(CONTEXT_REG)] = 0;
    for &(r, v) in &case.expected {
        registers[usize::from(r)] = v;
    }
    registers
}

fn assert_registers(who: &str, case: &golden::Case, outcome: &Outcome) {
    assert_eq!(
        outcome.registers.map(|v| format!("{v:#x}")),
        expected(case).map(|v| format!("{v:#x}")),
        "{who}: {}",
        case.name
    );
}

#[test]
fn every_instruction_in_the_interpreter() {
    let (cases, program) = golden_program();
    let prepared = Prepared::new(&program);
    assert!(cases.len() > 250, "{} rows", cases.len());
    for (i, case) in cases.iter().enumerate() {
        let outcome = harness::interpret(&prepared, &program, i, &Input::new(case.input), LIMIT);
        assert_registers("interpreter", case, &outcome.expect("no trap"));
    }
}

#[test]
fn every_instruction_in_the_kernel() {
    if let Some(why) = kernel::refusal() {
        println!("skipped: the kernel's own execution is not available here ({why})");
        return;
    }
    let (cases, program) = golden_program();
    let mut compared = 0;
    for (i, case) in cases.iter().enumerate().filter(|(_, c)| c.kernel) {
        let outcome = harness::in_kernel(&program.funcs, i, &Input::new(case.input));
        assert_registers(
            "kernel",
            case,
            &outcome.unwrap_or_else(|e| panic!("{}: {e}", case.name)),
        );
        compared += 1;
    }
    println!(
        "{compared} of {} rows compared with the kernel",
        cases.len()
    );
}

#[test]
fn every_instruction_in_translated_code() {
    let (cases, program) = golden_program();
    let native = native::Native::translate(&program);
    let prepared = Prepared::new(&program);
    for (i, case) in cases.iter().enumerate() {
        let input = Input::new(case.input);
        let outcome = native.run(i, &input, LIMIT).expect("no trap");
        assert_registers("translated", case, &outcome);
        let ours = harness::interpret(&prepared, &program, i, &input, LIMIT).expect("no trap");
        assert_eq!(
            ours.insns, outcome.insns,
            "instructions counted: {}",
            case.name
        );
    }
}

#[test]
fn random_programs_in_translated_code() {
    let mut runner = runner(3, 12);
    let function = (random::statements(), random::input(), 0u64..200);
    let strategy = prop::collection::vec(function, 2 * BATCH);
    runner
        .run(&strategy, |functions| {
            let bodies: Vec<_> = functions.iter().map(|(b, ..)| b.clone()).collect();
            let program = random::program(&bodies);
            let native = native::Native::translate(&program);
            let prepared = Prepared::new(&program);
            for (i, (_, registers, budget)) in functions.iter().enumerate() {
                let input = Input::new(*registers);
                let func = random::CALLEES + i;
                // Once with all the instructions it needs, once with a budget that may run out anywhere.
                for limit in [LIMIT, *budget] {
                    let ours = harness::interpret(&prepared, &program, func, &input, limit);
                    let theirs = native.run(func, &input, limit);
                    prop_assert_eq!(
                        kinds(ours),
                        kinds(theirs),
                        "interpreter, translated; limit {}, from {:x?}\n{}",
                        limit,
                        input,
                        listing(&program, func)
                    );
                }
            }
            Ok(())
        })
        .unwrap_or_else(|e| fail(&e));
}

/// A trap's kind: the function is exact in the interpreter only, as the compiler inlines functions into each other.
fn kinds(result: Result<Outcome, Trap>) -> Result<Outcome, TrapKind> {
    result.map_err(|t| t.kind)
}

/// Functions per batch; one translation serves them all.
const BATCH: usize = 64;

#[test]
fn random_programs_in_the_kernel() {
    if let Some(why) = kernel::refusal() {
        println!("skipped: the kernel's own execution is not available here ({why})");
        return;
    }
    let mut runner = runner(8, 150);
    let strategy = prop::collection::vec((random::statements(), random::input()), BATCH);
    runner
        .run(&strategy, |functions| {
            let bodies: Vec<_> = functions.iter().map(|(b, _)| b.clone()).collect();
            let program = random::program(&bodies);
            let prepared = Prepared::new(&program);
            for (i, (_, registers)) in functions.iter().enumerate() {
                let input = Input::new(*registers);
                let func = random::CALLEES + i;
                let ours = harness::interpret(&prepared, &program, func, &input, LIMIT);
                let theirs = harness::in_kernel(&program.funcs, func, &input);
                let ours = ours.map_err(|t| TestCaseError::fail(format!("{t:?}")))?;
                let theirs = theirs.map_err(|e| {
                    TestCaseError::fail(format!("{e}\n{}", listing(&program, func)))
                })?;
                let ours = Outcome { insns: 0, ..ours };
                prop_assert_eq!(
                    ours,
                    theirs,
                    "interpreter, kernel; from {:x?}\n{}",
                    input,
                    listing(&program, func)
                );
            }
            Ok(())
        })
        .unwrap_or_else(|e| fail(&e));
}

/// Random programs from fixed seeds: the same in every run. PROPTEST_CASES asks for more batches.
fn runner(cases: u32, max_shrink_iters: u32) -> TestRunner {
    let asked = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    let cases = asked.unwrap_or(cases);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// The reason alone: the shrunk input is in it, as instructions.
fn fail<T: std::fmt::Debug>(error: &proptest::test_runner::TestError<T>) -> ! {
    match error {
        proptest::test_runner::TestError::Fail(reason, _) => panic!("{reason}"),
        other => panic!("{other}"),
    }
}

fn listing(program: &berth_policy::ir::Program, func: usize) -> String {
    let insns = program.funcs[func].insns.iter().enumerate();
    insns
        .map(|(i, insn)| format!("{i:4} {:?}\n", insn.op))
        .collect()
}
