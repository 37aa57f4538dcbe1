// SPDX-License-Identifier: GPL-2.0-only
//! Shipped policies, by name.
use berth_policy::policy::{LoadOptions, Policy};
use std::path::Path;

/// A shipped policy; with BERTH_TEST_SOURCE set, compiled from the working tree (work on a policy without a build).
pub fn policy(name: &str) -> Policy {
    if std::env::var_os("BERTH_TEST_SOURCE").is_none() {
        let found = berth_builtin::find(name).expect("a shipped policy");
        return found.load(&LoadOptions::default()).expect("it loads");
    }
    let policies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    let mut options = LoadOptions::default();
    options.compile.include.push(policies.join("include"));
    options.compile.include.push(policies.join("study"));
    let file = format!("{name}.bpf.c");
    let supported = policies.join(&file);
    let source = if supported.exists() {
        supported
    } else {
        policies.join("study").join(&file)
    };
    Policy::from_source(&source, &options).expect("it loads")
}
