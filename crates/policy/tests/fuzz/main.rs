// SPDX-License-Identifier: GPL-2.0-only
//! Objects that nobody would write, executed: made-up programs, and schedulers in whose code something was changed. By
//! translated code and by the interpreter each ends, with a result or with a trap, and touches nothing but what is its
//! instance's: the process goes on, memory beside the instance is as it was, and the compiler's own checks before each
//! access (`witness`) see none that is not. The same programs in every run; BERTH_FUZZ is how many times as many.
//! Needs clang and a C compiler.
mod corpus;
#[path = "../loading/kernel.rs"]
#[allow(dead_code)] // what the tests of loading need
mod kernel;
mod wild;
mod witness;

use berth_policy::abi::TrapKind;
use berth_policy::cc::{self, Compiler};
use berth_policy::compile::{self, CompileOptions};
use berth_policy::emit::{self, Guarding, Translation};
use berth_policy::instance::{Instance, InstanceConfig, KernelVtable, Mode};
use berth_policy::ir::Program;
use berth_policy::native::{self, NativeTable};
use berth_policy::object;
use berth_policy::policy::Policy;
use berth_policy::profile::KernelProfile;
use kernel::Machine;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// How many times the usual number.
fn times() -> u64 {
    let asked = std::env::var("BERTH_FUZZ").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(1)
}

fn compiled(source: &Path) -> Vec<u8> {
    compile::compile(source, &CompileOptions::default()).expect("it compiles")
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// What the machine has may be read.
unsafe fn readable(machine: *mut c_void, address: u64, size: u32, write: bool) -> bool {
    // SAFETY: the machine of the test.
    !write && unsafe { kernel::may_access(machine, address, size, write) }
}

static VTABLE: LazyLock<KernelVtable> =
    LazyLock::new(|| kernel::VTABLE.clone().with_memory(readable));

/// Translated, guarded code of a program; with the witness, it has the compiler's checks.
fn translated(program: &Program, witnessed: Option<&[&str]>) -> Option<NativeTable> {
    let translation = emit::translate(program, "fuzz", Guarding::Guarded);
    built(&translation, witnessed)
}

fn built(translation: &Translation, witnessed: Option<&[&str]>) -> Option<NativeTable> {
    let compiler = Compiler::find().expect("a C compiler");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| dir.path().join(name);
    let (source, made, library) = (path("t.c"), path("t.o"), path("t.so"));
    std::fs::write(&source, &translation.text).expect("it can be written");
    let mut command = Command::new(&compiler.path);
    command.args(cc::FLAGS).args(witnessed.unwrap_or_default());
    // Functions that call each other at random are too much for an optimiser that inlines them.
    command
        .args(["-O1", "-fno-inline"])
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&made);
    let out = command.output().expect("the compiler runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "translated code compiles: {said}");
    cc::reachable_missing(&made, translation).ok()?;
    let mut link = Command::new(&compiler.path);
    link.args(["-shared", "-nostdlib", "-Wl,-z,now"]).arg(&made);
    if witnessed.is_some() {
        let other = path("w.o");
        witness::object(&compiler.path, &other);
        link.arg(other);
    }
    let status = link.arg("-o").arg(&library).status();
    assert!(status.expect("it runs").success(), "it links");
    // SAFETY: the library has no initialisers; it stays loaded for the rest of the process, as its code is registered
    // with the trap handler.
    let table = unsafe {
        let library = libloading::Library::new(&library).expect("it loads");
        let library = Box::leak(Box::new(library));
        if witnessed.is_some() {
            let place = library.get::<*mut Option<witness::Seen>>(b"berth_witness");
            **place.expect("the checks have a place for it") = Some(witness::witness);
        }
        let table = library.get::<*const NativeTable>(b"berth_native_fuzz");
        **table.expect("it has a table")
    };
    native::register(&table);
    Some(table)
}

fn policy(program: Program, table: NativeTable) -> Policy {
    let kernel = KernelProfile::default();
    let (hash, guarded) = ("fuzz".to_string(), Guarding::Guarded);
    Policy::from_parts(
        program,
        table,
        guarded,
        kernel,
        hash,
        Vec::new(),
        Vec::new(),
    )
}

/// Memory that is nobody's, allocated around an instance.
struct Beside(Vec<Vec<u64>>);

const MARK: u64 = 0x5a5a_0001_5a5a_0001;

impl Beside {
    fn new() -> Beside {
        let sizes = [2, 8, 16, 64, 200, 1000];
        Beside(
            sizes
                .iter()
                .cycle()
                .take(48)
                .map(|n| vec![MARK; *n])
                .collect(),
        )
    }

    fn assert_unharmed(&self, run: u64) {
        let whole = self.0.iter().flatten().all(|word| *word == MARK);
        assert!(whole, "run {run}: memory beside the instance was written");
    }
}

/// What became of many calls.
#[derive(Debug, Default)]
struct Ends {
    returned: u32,
    refused: u32,
    endless: u32,
    deep: u32,
}

impl Ends {
    fn count(&mut self, result: Result<u64, TrapKind>) {
        match result {
            Ok(_) => self.returned += 1,
            Err(TrapKind::BadAccess { .. }) => self.refused += 1,
            Err(TrapKind::Budget { .. }) => self.endless += 1,
            Err(TrapKind::CallDepth { .. }) => self.deep += 1,
            Err(TrapKind::Unrunnable { what }) => panic!("{what}"),
        }
    }
}

/// Calls every program of the policy on an instance of its own.
fn run_all(policy: &Policy, mode: Mode, first: u64, ends: &mut Ends) {
    let programs = &policy.program().syscalls;
    for (i, (name, _)) in (first..).zip(programs) {
        let mut machine = Machine::new();
        let before = Beside::new();
        let config = InstanceConfig {
            mode,
            budget_insns: 20_000,
            seed: i,
            ..InstanceConfig::new(kernel::NR_CPUS as u32)
        };
        let instance = Instance::new(policy, None, &config, &VTABLE).expect("it is made");
        kernel::attach(&instance, &mut machine);
        let after = Beside::new();
        let own = instance.var("zeros").expect("a variable").0 as u64;
        let mut context = [
            machine.task(1),
            machine.cgroup(1),
            machine.mask(),
            own,
            machine.task(2),
            i,
            0,
            0,
        ];
        for _ in 0..3 {
            // SAFETY: the context is writable, and the machine lives.
            let call = || unsafe { instance.syscall(name, &mut context) };
            let result = witness::watching(&instance, i, call).expect("there is this program");
            ends.count(result.map_err(|trap| trap.kind));
        }
        machine.log.clear();
        before.assert_unharmed(i);
        after.assert_unharmed(i);
        // What ends with a task ends the timers and masks in its values, whatever is in them.
        for task in 0..6 {
            instance.task_gone(task);
        }
    }
}

const FUNCTIONS: usize = 60;

#[test]
fn made_up_programs_end_and_touch_nothing_else() {
    let base = object::load(
        &compiled(&here("tests/fuzz/base.bpf.c")),
        &KernelProfile::default(),
    );
    let base = base.expect("it loads");
    let mut ends = Ends::default();
    let mut checked = Ends::default();
    for batch in 0..times() {
        let first = batch * FUNCTIONS as u64;
        let program = wild::program(&base, FUNCTIONS, &mut wild::Random::new(batch));
        let table = translated(&program, None).expect("nothing is missing");
        let policy = policy(program, table);
        run_all(&policy, Mode::Native, first, &mut ends);
        run_all(&policy, Mode::Checked, first, &mut checked);
    }
    println!("translated: {ends:?}; interpreted: {checked:?}");
    for ends in [ends, checked] {
        let all = times() as u32 * FUNCTIONS as u32 * 3;
        // Neither is everything refused at its first step, nor is nothing.
        assert!(
            ends.returned > all / 20 && ends.refused > all / 20,
            "{ends:?}"
        );
    }
}

/// The witness's flags; `None`: said, and skipped.
fn sanitizer() -> Option<&'static [&'static str]> {
    let compiler = Compiler::find().expect("a C compiler");
    let flags = witness::flags(&compiler.path);
    if flags.is_none() {
        let compiler = compiler.path.display();
        println!("skipped: {compiler} has no address sanitizer whose checks are calls");
    }
    flags
}

#[test]
fn a_sanitizer_sees_made_up_programs_touch_nothing_else() {
    let Some(flags) = sanitizer() else { return };
    let base = object::load(
        &compiled(&here("tests/fuzz/base.bpf.c")),
        &KernelProfile::default(),
    );
    let base = base.expect("it loads");
    let mut ends = Ends::default();
    for batch in 0..times() {
        let seed = 1_000_000 + batch;
        let program = wild::program(&base, FUNCTIONS, &mut wild::Random::new(seed));
        let table = translated(&program, Some(flags)).expect("nothing is missing");
        let policy = policy(program, table);
        run_all(&policy, Mode::Native, batch * FUNCTIONS as u64, &mut ends);
    }
    println!("{ends:?}, {} accesses", witness::seen());
    assert!(witness::seen() > 1_000 && ends.returned > 10, "{ends:?}");
}

#[test]
fn changed_schedulers_end_and_touch_nothing_else() {
    let flags = sanitizer();
    let sources = corpus::sources();
    let mut ends = Ends::default();
    let (mut refused, mut ran) = (0, 0);
    for i in 0..24 * times() {
        let source = &sources[i as usize % sources.len()];
        let bytes = corpus::changed(&compiled(source), &mut wild::Random::new(i));
        let Ok(program) = object::load(&bytes, &KernelProfile::default()) else {
            refused += 1;
            continue;
        };
        // The compiler's checks see every third.
        let flags = flags.filter(|_| i % 3 == 0);
        let Some(table) = translated(&program, flags) else {
            refused += 1;
            continue;
        };
        let policy = policy(program, table);
        for mode in [Mode::Native, Mode::Checked] {
            ran += u32::from(corpus::run(&policy, mode, i, &mut ends));
        }
    }
    println!("{refused} refused, {ran} runs, {ends:?}");
    assert!(
        ran > 10 && ends.returned > 200 && ends.refused > 5,
        "{ends:?}"
    );
}

/// Code whose guard is taken out is seen at its first access to what is not its own.
#[test]
fn the_witness_sees_what_a_guard_would_have_refused() {
    let Some(flags) = sanitizer() else { return };
    const NAME: &str = "the_witness_sees_what_a_guard_would_have_refused";
    if std::env::var_os("BERTH_FUZZ_BLIND").is_none() {
        // It ends the process.
        let mut command = Command::new(std::env::current_exe().expect("a name"));
        command.args([NAME, "--exact", "--nocapture"]);
        let out = command
            .env("BERTH_FUZZ_BLIND", "1")
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            !out.status.success() && said.contains("which is not its instance's"),
            "{said}"
        );
        return;
    }
    let base = object::load(
        &compiled(&here("tests/fuzz/base.bpf.c")),
        &KernelProfile::default(),
    );
    let base = base.expect("it loads");
    let program = wild::program(&base, 20, &mut wild::Random::new(7));
    let mut translation = emit::translate(&program, "fuzz", Guarding::Guarded);
    let (first, none) = (
        "/* wild_0 */",
        "#undef GUARD\n#define GUARD(address, bytes, write)\n",
    );
    translation.text = translation
        .text
        .replacen(first, &format!("{none}{first}"), 1);
    let table = built(&translation, Some(flags)).expect("nothing is missing");
    run_all(
        &policy(program, table),
        Mode::Native,
        0,
        &mut Ends::default(),
    );
}
