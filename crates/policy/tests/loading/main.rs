// SPDX-License-Identifier: GPL-2.0-only
//! From C source to executed callbacks: loading, refusing, trapping, and both executors side by side.
//! Needs clang and a C compiler.
mod arena;
mod enemies;
mod executors;
mod features;
mod in_maps;
mod kept;
mod kernel;
mod loader;
mod objects;
mod refusals;
mod side_by_side;
mod traps;

use berth_policy::abi::{Op, Trap};
use berth_policy::compile::{self, CompileOptions};
use berth_policy::error::LoadError;
use berth_policy::instance::{Instance, InstanceConfig, Mode};
use berth_policy::policy::{LoadOptions, Policy};
use kernel::{Machine, VTABLE, attach};

/// Compile and load C source given as text; nobody trusts it.
fn load(text: &str) -> Result<Policy, LoadError> {
    load_with(text, &LoadOptions::default())
}

/// The same, trusted with this process's memory.
fn load_trusted(text: &str) -> Result<Policy, LoadError> {
    let options = LoadOptions {
        trusted: true,
        ..LoadOptions::default()
    };
    load_with(text, &options)
}

fn load_with(text: &str, options: &LoadOptions) -> Result<Policy, LoadError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.bpf.c");
    std::fs::write(&path, text).unwrap();
    let object = compile::compile(&path, &CompileOptions::default())?;
    Policy::from_object(&object, options)
}

/// What is done with a policy in each executor, on a machine of so many CPUs; the second argument calls its `enqueue`.
fn in_both<R>(
    policy: &Policy,
    cpus: u32,
    mut what: impl FnMut(&Instance, &mut dyn FnMut() -> Result<u64, Trap>) -> R,
) -> [R; 2] {
    [Mode::Native, Mode::Checked].map(|mode| {
        let mut machine = Machine::new();
        let config = InstanceConfig {
            mode,
            ..InstanceConfig::new(cpus)
        };
        let instance = Instance::new(policy, None, &config, &VTABLE).unwrap();
        attach(&instance, &mut machine);
        let args = [machine.task(1), 0];
        // SAFETY: a live task of the machine.
        what(&instance, &mut || unsafe {
            instance.call(Op::Enqueue, &args)
        })
    })
}

/// The words of an instance's variable `seen`.
fn words(instance: &Instance) -> Vec<u64> {
    let (at, size) = instance.var("seen").unwrap();
    // SAFETY: the variable's words.
    unsafe { std::slice::from_raw_parts(at.cast::<u64>(), size / 8) }.to_vec()
}

/// A scheduler whose `enqueue` has this body.
fn enqueue(globals: &str, body: &str) -> String {
    format!(
        "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\n{globals}\n\
         void BPF_STRUCT_OPS(t_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n{body}\n}}\n\
         SCX_OPS_DEFINE(t_ops, .enqueue = (void *)t_enqueue, .name = \"t\");\n"
    )
}
