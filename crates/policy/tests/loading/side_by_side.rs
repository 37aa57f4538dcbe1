// SPDX-License-Identifier: GPL-2.0-only
//! Ordinary schedulers through both executors, their native code guarded as all that nobody has looked at. Shipped
//! ones: `crates/builtin/tests/side_by_side.rs`.
use super::executors::do_the_same;
use berth_policy::emit::Guarding;
use berth_policy::policy::{LoadOptions, Policy};
use std::path::Path;

#[test]
fn both_executors_do_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies");
    let mut nr_policies = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if name.ends_with(".bpf.c") {
            let policy = Policy::from_source(&path, &LoadOptions::default());
            let policy = policy.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(policy.guarding(), Guarding::Guarded, "{name}");
            let ops = &policy.ops_var(None).unwrap().name;
            let file = path.file_name().unwrap().to_string_lossy();
            assert_eq!(file.strip_suffix(".bpf.c"), Some(ops.as_str()));
            do_the_same(&name, &policy);
            nr_policies += 1;
        }
    }
    assert!(nr_policies > 0);
}
