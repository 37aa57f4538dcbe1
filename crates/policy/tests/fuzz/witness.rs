// SPDX-License-Identifier: GPL-2.0-only
//! The second witness: translated code built with an address sanitizer's checks before each access, which ask here. It
//! shares nothing with the guard but what an instance says of its memory, and sees what the compiler made of the C.
use berth_policy::abi::{Guard, Inst, Map};
use berth_policy::instance::Instance;
use berth_policy::maps::kind;
use berth_policy::table::FUNCS;
use std::cell::Cell;
use std::path::Path;
use std::process::Command;

/// What turns the checks into calls, all of them, for the two compilers.
const FLAGS: [&[&str]; 2] = [
    &[
        "-fsanitize=kernel-address",
        "-mllvm",
        "-asan-instrumentation-with-call-threshold=0",
        "-mllvm",
        "-asan-stack=0",
        "-mllvm",
        "-asan-globals=0",
    ],
    &[
        "-fsanitize=kernel-address",
        "--param",
        "asan-instrumentation-with-call-threshold=0",
        "--param",
        "asan-stack=0",
        "--param",
        "asan-globals=0",
    ],
];

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/witness.c");

/// The flags that this compiler understands; `None`: it has no such sanitizer.
pub fn flags(compiler: &Path) -> Option<&'static [&'static str]> {
    let dir = tempfile::tempdir().ok()?;
    let (source, object) = (dir.path().join("t.c"), dir.path().join("t.o"));
    std::fs::write(&source, "int f(int *p) { return *p; }\n").ok()?;
    FLAGS.into_iter().find(|flags| {
        let mut command = Command::new(compiler);
        command
            .args(*flags)
            .args(["-O2", "-fPIC", "-c"])
            .arg(&source);
        let out = command.arg("-o").arg(&object).output();
        out.is_ok_and(|out| out.status.success())
            && std::fs::read(&object).is_ok_and(|bytes| {
                let name = b"__asan_load4_noabort";
                bytes.windows(name.len()).any(|w| w == name)
            })
    })
}

/// The functions that the checks call, compiled without checks.
pub fn object(compiler: &Path, out: &Path) {
    let mut command = Command::new(compiler);
    command
        .args(berth_policy::cc::FLAGS)
        .args(["-c", SOURCE, "-o"]);
    let status = command.arg(out).status().expect("the compiler runs");
    assert!(status.success(), "{SOURCE} compiles");
}

/// The type of `berth_witness`.
pub type Seen = unsafe extern "C" fn(u64, u64, u32);

thread_local! {
    /// The instance whose code runs, and what to say if it does what it must not.
    static WATCHED: Cell<(*const Instance, u64)> = const { Cell::new((std::ptr::null(), 0)) };
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Accesses that were looked at so far.
pub fn seen() -> u64 {
    SEEN.get()
}

/// Runs with an eye on what the instance's code touches; `number` names the run.
pub fn watching<T>(instance: &Instance, number: u64, run: impl FnOnce() -> T) -> T {
    WATCHED.set((instance, number));
    let result = run();
    WATCHED.set((std::ptr::null(), 0));
    result
}

/// # Safety
/// Called by the checks of translated code, of the instance that is watched.
pub unsafe extern "C" fn witness(address: u64, size: u64, write: u32) {
    let (instance, number) = WATCHED.get();
    if instance.is_null() {
        return;
    }
    SEEN.set(SEEN.get() + 1);
    // SAFETY: it is watched while it is alive.
    if !unsafe { fine(&*instance, address, size, write != 0) } {
        let access = if write != 0 { "writes" } else { "reads" };
        // Nothing can be undone, and a panic must not pass through C.
        eprintln!(
            "run {number}: translated code {access} {size} bytes at {address:#x}, which is not its instance's"
        );
        std::process::abort();
    }
}

/// Is it the instance's, or what translated code itself works with?
///
/// # Safety
/// The instance's tables are valid.
unsafe fn fine(instance: &Instance, address: u64, size: u64, write: bool) -> bool {
    let within = |start: u64, bytes: u64| {
        let offset = address.wrapping_sub(start);
        offset < bytes && bytes - offset >= size
    };
    // SAFETY: the caller's promise.
    unsafe {
        let raw: &Inst = &*instance.raw();
        let guard: &Guard = &*raw.guard;
        let maps = instance.policy().program().maps.len();
        let sections = instance.policy().program().sections.len();
        let stacks = guard.stacks;
        let arguments = guard.arguments;
        let own = within(instance.raw() as u64, size_of::<Inst>() as u64)
            || within(raw.guard as u64, size_of::<Guard>() as u64)
            || within(stacks.start, stacks.size)
            || within(arguments.start, arguments.size);
        let tables = !write
            && (within(raw.map as u64, (maps * size_of::<Map>()) as u64)
                || within(raw.sec as u64, sections as u64 * 8)
                || within(raw.fns as u64, FUNCS.len() as u64 * 8)
                || within(
                    raw.code as u64,
                    instance.policy().program().funcs.len() as u64 * 8,
                )
                || (0..maps).any(|id| {
                    let map = &*raw.map.add(id);
                    let storage = matches!(map.kind, kind::TASK_STORAGE | kind::CGRP_STORAGE);
                    storage && within(map.data as u64, u64::from(map.max_entries) * 8)
                }));
        own || tables
            || instance
                .piece(address, write)
                .is_some_and(|(_, end)| end - address >= size)
            || u32::try_from(size).is_ok_and(|size| instance.may_access(address, size, write))
    }
}
