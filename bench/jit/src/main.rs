// SPDX-License-Identifier: GPL-2.0-only
//! Translated C through a C compiler against Cranelift: the same programs, the same instances, the same callbacks, in
//! one process. Prints compile times and the cost of a callback; `--cold-build` also times
//! building Cranelift.
mod jit;
mod kernel;

use berth_policy::abi::{NativeFn, Op};
use berth_policy::cc::Compiler;
use berth_policy::compile::{self, CompileOptions};
use berth_policy::emit::{self, Guarding};
use berth_policy::instance::{Instance, InstanceConfig};
use berth_policy::ir::Program;
use berth_policy::native::{self, NativeTable};
use berth_policy::object;
use berth_policy::policy::Policy;
use berth_policy::profile::KernelProfile;
use kernel::{Machine, NR_CPUS};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

type Error = Box<dyn std::error::Error>;

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
const POLICIES: [&str; 2] = ["vtime", "vmfair"];
const INSTANCES: [usize; 2] = [1, 2500];
/// What happens to a thread between two wake-ups.
const CALLBACKS: [Op; 5] = [
    Op::SelectCpu,
    Op::Enqueue,
    Op::Dispatch,
    Op::Running,
    Op::Stopping,
];
/// Each measurement is the best of this many.
const REPEATS: usize = 7;

fn main() -> Result<(), Error> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("policy  back end   insns  compile ms   ns per callback, instances: {INSTANCES:?}");
    for name in POLICIES {
        let source = root.join(format!("policies/{name}.bpf.c"));
        let bytes = compile::compile(&source, &CompileOptions::default())?;
        let program = object::load(&bytes, &KernelProfile::default())?;
        let (c, c_ms) = best(|| through_c(&program))?;
        let (jit, jit_ms) = best(|| through_jit(&program))?;
        let insns: usize = program.funcs.iter().map(|f| f.insns.len()).sum();
        let backs = [
            BackEnd::new("C", &program, c, c_ms),
            BackEnd::new("Cranelift", &program, jit, jit_ms),
        ];
        let results = compare(&backs)?;
        for (back, costs) in backs.iter().zip(results) {
            let costs: Vec<String> = costs.iter().map(|ns| format!("{ns:8.1}")).collect();
            println!(
                "{name:7} {:10} {insns:5}  {:10.1}   {}",
                back.name,
                back.compile_ms,
                costs.join(" ")
            );
        }
    }
    packages()?;
    if std::env::args().any(|a| a == "--cold-build") {
        cold_build()?;
    }
    Ok(())
}

/// The result of the last and the milliseconds of the fastest of a few runs.
fn best<T>(mut run: impl FnMut() -> Result<T, Error>) -> Result<(T, f64), Error> {
    let mut fastest = f64::INFINITY;
    let mut result = None;
    for _ in 0..REPEATS {
        let started = Instant::now();
        result = Some(run()?);
        fastest = fastest.min(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok((result.ok_or("no run")?, fastest))
}

/// Emit, compile, link, load: what a user waits for at the first use of a policy.
fn through_c(program: &Program) -> Result<NativeTable, Error> {
    let dir = tempfile::tempdir()?;
    let (c, o, so) = (
        dir.path().join("p.c"),
        dir.path().join("p.o"),
        dir.path().join("p.so"),
    );
    let translation = emit::translate(program, "bench", Guarding::Trusted);
    let compiler = Compiler::find()?;
    compiler.object(&translation, &c, &o)?;
    compiler.shared(&o, &so)?;
    // SAFETY: a library without initialisers, loaded for the life of the process.
    unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(&so)?));
        let table = **library.get::<*const NativeTable>(b"berth_native_bench")?;
        native::register(&table);
        Ok(table)
    }
}

fn through_jit(program: &Program) -> Result<NativeTable, Error> {
    let code: &'static [NativeFn] = Vec::leak(jit::compile(program)?);
    Ok(NativeTable {
        code: code.as_ptr(),
        count: code.len() as u64,
        text_start: std::ptr::null(),
        text_end: std::ptr::null(),
        key: c"jit".as_ptr(),
    })
}

struct BackEnd {
    name: &'static str,
    policy: Policy,
    compile_ms: f64,
}

impl BackEnd {
    fn new(name: &'static str, program: &Program, table: NativeTable, compile_ms: f64) -> BackEnd {
        let kernel = KernelProfile::default();
        BackEnd {
            name,
            policy: Policy::from_parts(
                program.clone(),
                table,
                Guarding::Trusted,
                kernel,
                String::new(),
                Vec::new(),
                Vec::new(),
            ),
            compile_ms,
        }
    }
}

/// Nanoseconds per callback for each back end and number of instances. The back ends take turns, so that what else the
/// host does hits both.
fn compare(backs: &[BackEnd]) -> Result<Vec<Vec<f64>>, Error> {
    let mut results = vec![Vec::new(); backs.len()];
    for instances in INSTANCES {
        let mut fleets = backs
            .iter()
            .map(|b| Fleet::new(&b.policy, instances))
            .collect::<Result<Vec<_>, _>>()?;
        let mut fastest = vec![f64::INFINITY; backs.len()];
        for _ in 0..REPEATS * 5 {
            for (fleet, best) in fleets.iter_mut().zip(&mut fastest) {
                *best = best.min(fleet.lap()?);
            }
        }
        let counted: Vec<u64> = fleets.iter().map(Fleet::insns).collect();
        if counted.iter().any(|c| *c != counted[0]) {
            return Err(
                format!("the back ends counted different instructions: {counted:?}").into(),
            );
        }
        for (result, best) in results.iter_mut().zip(fastest) {
            result.push(best);
        }
    }
    Ok(results)
}

/// Instances of one policy, each with its own machine.
#[allow(clippy::vec_box)] // neither may move: pointers lead to them
struct Fleet {
    instances: Vec<Box<Instance>>,
    machines: Vec<Box<Machine>>,
    random: u64,
}

impl Fleet {
    fn new(policy: &Policy, instances: usize) -> Result<Fleet, Error> {
        let vtable = kernel::table();
        let config = InstanceConfig::new(NR_CPUS);
        let mut fleet = Fleet {
            instances: Vec::new(),
            machines: (0..instances).map(|_| Machine::new()).collect(),
            random: 0x9e37_79b9_7f4a_7c15,
        };
        for machine in &mut fleet.machines {
            let instance = Instance::new(policy, None, &config, vtable)?;
            instance.set_machine((&raw mut **machine).cast());
            let (p, init) = (task(machine), (&raw const *machine.init_task) as u64);
            call(&instance, Op::Init, &[])?;
            call(&instance, Op::InitTask, &[p, init])?;
            call(&instance, Op::Enable, &[p])?;
            fleet.instances.push(instance);
        }
        Ok(fleet)
    }

    fn insns(&self) -> u64 {
        self.instances.iter().map(|i| i.insns()).sum()
    }

    /// Visits instances in random order; nanoseconds of processor time per callback.
    fn lap(&mut self) -> Result<f64, Error> {
        const ROUNDS: u32 = 50_000;
        let started = processor_time();
        for round in 0..ROUNDS {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let at = (self.random as usize) % self.instances.len();
            let (instance, machine) = (&self.instances[at], &mut self.machines[at]);
            // SAFETY: nothing else uses the instance now.
            unsafe {
                (*instance.raw()).now += 1_000_000;
                (*instance.raw()).cpu = round % NR_CPUS;
            }
            machine.task.se.sum_exec_runtime += 1_000_000;
            let (p, cpu) = (task(machine), u64::from(round % NR_CPUS));
            for op in CALLBACKS {
                let args: [u64; 3] = match op {
                    Op::SelectCpu => [p, cpu, 8],
                    Op::Dispatch => [cpu, 0, 0],
                    _ => [p, 1, 0],
                };
                call(instance, op, &args)?;
            }
        }
        let spent = processor_time() - started;
        Ok(spent as f64 / (f64::from(ROUNDS) * CALLBACKS.len() as f64))
    }
}

/// Nanoseconds that this thread has run.
fn processor_time() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid clock and place.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn task(machine: &mut Machine) -> u64 {
    (&raw mut *machine.task) as u64
}

#[inline]
fn call(instance: &Instance, op: Op, args: &[u64]) -> Result<u64, Error> {
    // SAFETY: the machine's own objects.
    unsafe { instance.call(op, args) }.map_err(|t| format!("{}: {t:?}", op.name()).into())
}

/// Packages that Cranelift adds to what the policy crate needs anyway.
fn packages() -> Result<(), Error> {
    let tree = |package: &str| -> Result<BTreeSet<String>, Error> {
        let output = Command::new("cargo")
            .args([
                "tree",
                "--manifest-path",
                MANIFEST,
                "-p",
                package,
                "-e",
                "normal",
            ])
            .args(["--prefix", "none", "--no-dedupe"])
            .output()?;
        if !output.status.success() {
            return Err(format!("cargo tree -p {package} failed").into());
        }
        let text = String::from_utf8(output.stdout)?;
        Ok(text.lines().map(str::to_string).collect())
    };
    let base = tree("berth-policy")?;
    let mut all = BTreeSet::new();
    for package in ["cranelift-jit", "cranelift-frontend", "cranelift-native"] {
        all.append(&mut tree(package)?);
    }
    println!(
        "packages: berth-policy {}, Cranelift adds {}",
        base.len(),
        all.difference(&base).count()
    );
    Ok(())
}

/// Processor seconds of building each from nothing; what they share is built twice.
fn cold_build() -> Result<(), Error> {
    let dir = tempfile::tempdir()?;
    for package in ["cranelift-jit", "berth-policy"] {
        let before = children_time();
        let status = Command::new("cargo")
            .args(["build", "--release", "--quiet", "--manifest-path", MANIFEST])
            .args(["-p", package, "--target-dir"])
            .arg(dir.path().join(package))
            .status()?;
        if !status.success() {
            return Err(format!("building {package} failed").into());
        }
        println!(
            "cold release build of {package}: {:.0} s of processor time",
            children_time() - before
        );
    }
    Ok(())
}

/// Seconds that ended child processes have run.
fn children_time() -> f64 {
    // SAFETY: all zero is a valid rusage, and a valid place for one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
