// SPDX-License-Identifier: GPL-2.0-only
//! From C source to executed callbacks: loading, refusing, trapping, and both executors side by side.
//! Needs clang and a C compiler.
mod arena;
mod enemies;
mod features;
mod in_maps;
mod kept;
mod kernel;
mod loader;
mod objects;
mod refusals;
mod side_by_side;
mod traps;

use berth_policy::compile::{self, CompileOptions};
use berth_policy::error::LoadError;
use berth_policy::policy::{LoadOptions, Policy};

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

/// A scheduler whose `enqueue` has this body.
fn enqueue(globals: &str, body: &str) -> String {
    format!(
        "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\n{globals}\n\
         void BPF_STRUCT_OPS(t_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n{body}\n}}\n\
         SCX_OPS_DEFINE(t_ops, .enqueue = (void *)t_enqueue, .name = \"t\");\n"
    )
}
