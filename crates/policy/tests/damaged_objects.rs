// SPDX-License-Identifier: GPL-2.0-only
//! Damaged objects: whatever the bytes are, loading ends with an error or with a program that is sound, in little
//! time and memory. Needs clang.
use ::object::read::elf::{ElfFile64, FileHeader};
use ::object::{Endianness, Object, ObjectSection};
use berth_policy::blocks;
use berth_policy::compile::{self, CompileOptions};
use berth_policy::emit;
use berth_policy::interp::Prepared;
use berth_policy::ir::{Operation, Program, Src};
use berth_policy::object;
use berth_policy::profile::KernelProfile;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::path::Path;
use std::time::Duration;

/// One change of the bytes; positions are fractions of what is changed, so that they fit any object.
#[derive(Clone, Debug)]
enum Damage {
    /// Anywhere.
    Byte(u32, u8),
    /// A 32-bit word of the numbered section.
    Word(usize, u32, u32),
    /// A byte of the numbered section.
    InSection(usize, u32, u8),
    /// A byte of the ELF header or of the section headers.
    Header(u32, u8),
    /// Bytes of one place over another.
    Copy(u32, u32, u8),
    Cut(u32),
}

fn interesting() -> impl Strategy<Value = u32> {
    prop_oneof![
        prop::sample::select(
            &[
                0u32,
                1,
                2,
                7,
                8,
                0x7f,
                0xff,
                0x7fff,
                0xffff,
                0x7fff_ffff,
                0x8000_0000,
                u32::MAX
            ][..]
        ),
        any::<u32>(),
        0u32..4096,
    ]
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        1 => (any::<u32>(), any::<u8>()).prop_map(|(at, v)| Damage::Byte(at, v)),
        4 => (any::<usize>(), any::<u32>(), interesting()).prop_map(|(s, at, v)| Damage::Word(s, at, v)),
        4 => (any::<usize>(), any::<u32>(), any::<u8>()).prop_map(|(s, at, v)| Damage::InSection(s, at, v)),
        1 => (any::<u32>(), any::<u8>()).prop_map(|(at, v)| Damage::Header(at, v)),
        1 => (any::<u32>(), any::<u32>(), any::<u8>()).prop_map(|(a, b, n)| Damage::Copy(a, b, n)),
        1 => any::<u32>().prop_map(Damage::Cut),
    ]
}

/// Where things are in the undamaged object.
struct Layout {
    sections: Vec<(usize, usize)>,
    headers: usize,
}

fn layout(bytes: &[u8]) -> Layout {
    let file = ElfFile64::<Endianness>::parse(bytes).expect("clang writes ELF");
    let sections = file.sections().filter_map(|s| s.file_range());
    Layout {
        sections: sections
            .map(|(start, size)| (start as usize, size as usize))
            .filter(|&(_, size)| size >= 4)
            .collect(),
        headers: file.elf_header().e_shoff(Endianness::Little) as usize,
    }
}

/// `at` scaled to below `len`.
fn scaled(at: u32, len: usize) -> usize {
    ((u64::from(at) * len as u64) >> 32) as usize
}

fn apply(bytes: &mut Vec<u8>, layout: &Layout, damage: &Damage) {
    let len = bytes.len();
    let mut set = |at: usize, v: u8| {
        if let Some(b) = bytes.get_mut(at) {
            *b = v;
        }
    };
    match *damage {
        Damage::Byte(at, v) => set(scaled(at, len), v),
        Damage::Word(section, at, v) => {
            let (start, size) = layout.sections[section % layout.sections.len()];
            let at = start + scaled(at, size / 4) * 4;
            v.to_le_bytes()
                .into_iter()
                .enumerate()
                .for_each(|(i, b)| set(at + i, b));
        }
        Damage::InSection(section, at, v) => {
            let (start, size) = layout.sections[section % layout.sections.len()];
            set(start + scaled(at, size), v);
        }
        Damage::Header(at, v) if at & 1 == 0 => set(scaled(at, 64), v),
        Damage::Header(at, v) => set(
            layout.headers + scaled(at, len.saturating_sub(layout.headers)),
            v,
        ),
        Damage::Copy(from, to, n) => {
            let (from, to) = (scaled(from, len), scaled(to, len));
            let n = usize::from(n).min(len - from.max(to));
            bytes.copy_within(from..from + n, to);
        }
        Damage::Cut(at) => bytes.truncate(scaled(at, len)),
    }
}

/// Everything an executor relies on without looking.
fn assert_sound(program: &Program) -> Result<(), TestCaseError> {
    let register = |r: u8| r <= 10;
    let (funcs, maps, sections) = (
        program.funcs.len(),
        program.maps.len(),
        program.sections.len(),
    );
    for f in &program.funcs {
        let ends = matches!(
            f.insns.last().map(|i| &i.op),
            Some(Operation::Exit | Operation::Jump { .. })
        );
        prop_assert!(ends, "{} does not end", f.name);
        for i in &f.insns {
            if let Some(target) = blocks::target(&i.op) {
                prop_assert!(
                    (target as usize) < f.insns.len(),
                    "{}: jump to {target}",
                    f.name
                );
            }
            let source = |s: Src| !matches!(s, Src::Reg(r) if r > 10);
            let fine = match i.op {
                Operation::Alu { dst, src, .. } | Operation::JumpIf { dst, src, .. } => {
                    register(dst) && source(src)
                }
                Operation::Endian { dst, bits, .. } => {
                    register(dst) && matches!(bits, 16 | 32 | 64)
                }
                Operation::Load { dst, base, .. } => register(dst) && register(base),
                Operation::Store { base, src, .. } => register(base) && source(src),
                Operation::Atomic { base, src, .. } => register(base) && register(src),
                Operation::LoadImm64 { dst, .. } => register(dst),
                Operation::LoadSection { dst, section, .. } => register(dst) && section < sections,
                Operation::LoadMap { dst, map } => register(dst) && map < maps,
                Operation::LoadFunc { dst, func } => register(dst) && func < funcs,
                Operation::CallFunc { func } => func < funcs,
                _ => true,
            };
            prop_assert!(fine, "{}: {:?}", f.name, i.op);
        }
    }
    for s in &program.structs {
        prop_assert!(s.ops.iter().all(|&(_, func)| func < funcs), "{}", s.var);
    }
    for s in &program.sections {
        for v in &s.vars {
            let end = u64::from(v.offset) + u64::from(v.size);
            prop_assert!(end <= s.data.len() as u64, "{} in {}", v.name, s.name);
        }
    }
    Ok(())
}

/// What this thread has used of a CPU.
fn cpu_time() -> Duration {
    // SAFETY: all-zero is a valid time, which the kernel fills.
    let used = unsafe {
        let mut used = std::mem::zeroed::<libc::timespec>();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used);
        used
    };
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

fn examine(bytes: &[u8]) -> Result<bool, TestCaseError> {
    let started = cpu_time();
    let loaded = object::load(bytes, &KernelProfile::default());
    let took = cpu_time() - started;
    prop_assert!(
        took < Duration::from_secs(10),
        "loading took {took:?} of CPU time"
    );
    let Ok(program) = loaded else {
        return Ok(false);
    };
    assert_sound(&program)?;
    Prepared::new(&program);
    emit::translate(&program, "damaged", emit::Guarding::Guarded);
    Ok(true)
}

#[test]
fn damaged_objects_are_refused_or_sound() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/vtime.bpf.c");
    let object =
        compile::compile(&source, &CompileOptions::default()).expect("a shipped policy compiles");
    let layout = layout(&object);
    assert!(
        examine(&object).expect("it is sound"),
        "the undamaged object loads"
    );
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    let config = Config {
        cases: cases.unwrap_or(600),
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..Config::default()
    };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let mut loaded = 0;
    let counter = std::cell::Cell::new(0u32);
    let result = runner.run(&prop::collection::vec(damage(), 1..4), |changes| {
        let mut bytes = object.clone();
        changes.iter().for_each(|d| apply(&mut bytes, &layout, d));
        if examine(&bytes)? {
            counter.set(counter.get() + 1);
        }
        Ok(())
    });
    loaded += counter.get();
    result.unwrap_or_else(|e| panic!("{e}"));
    // Otherwise the damage is so heavy that nothing behind the first check is ever reached.
    println!("{loaded} damaged objects still loaded");
    assert!(loaded > 50);
}
