// SPDX-License-Identifier: GPL-2.0-only
//! A policy that does something wrong is named with function, file and line, though it ran as machine code.
//! Needs clang and a C compiler.
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::{Input, read};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;

const SCENARIO: &str = "\
[run]
warmup = \"0s\"
measure = \"1s\"
[host]
cores = 1
[vm.web]
vcpus = 3
tasks = [\"work\"]
[task.work]
loop = [\"compute 5ms\", \"sleep 1ms\"]
";

/// What the user is told about a policy whose `enqueue` has this body (its first line is line 6).
fn told(body: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wrong.bpf.c");
    let source = format!(
        "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\nu64 *nowhere;\n\
         void BPF_STRUCT_OPS(wrong_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n{body}\n}}\n\
         SCX_OPS_DEFINE(wrong_ops, .enqueue = (void *)wrong_enqueue, .name = \"wrong\");\n"
    );
    std::fs::write(&path, source).unwrap();
    let policy = Policy::from_path(&path, &LoadOptions::default()).unwrap();
    let input = Input {
        name: "blame".into(),
        shown: "blame.toml".into(),
        text: SCENARIO.into(),
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap().scenario;
    let result = run_one(
        &scenario,
        "wrong",
        &policy,
        &BTreeMap::new(),
        1,
        &Options::default(),
    );
    result.expect_err("the policy is wrong").to_string()
}

/// The one sentence has all of these words, the policy and its function.
fn assert_says(body: &str, words: &[&str]) {
    let told = told(body);
    for word in words
        .iter()
        .chain(&["policy wrong", "function wrong_enqueue"])
    {
        assert!(told.contains(word), "`{told}` does not say `{word}`");
    }
    assert!(!told.contains('\n'), "one sentence: {told}");
}

#[test]
fn null_pointer() {
    assert_says("*(volatile u64 *)nowhere = 1;", &["NULL", "wrong.bpf.c:6"]);
}

#[test]
fn wild_pointer() {
    assert_says(
        "nowhere = (u64 *)0x123456789000; *(volatile u64 *)nowhere = 1;",
        &["0x123456789000", "wrong.bpf.c:6"],
    );
}

#[test]
fn endless_loop() {
    assert_says(
        "while (*(volatile u64 *)&p->scx.weight) ;",
        &["instructions", "wrong.bpf.c:6"],
    );
}

/// The headers wrap some kernel functions, so the line may be theirs.
#[test]
fn call_from_a_forbidden_operation() {
    assert_says(
        "scx_bpf_dsq_move_to_local(0, 0);",
        &["scx_bpf_dsq_move_to_local", "ops.enqueue", "not allowed"],
    );
    assert_says(
        "scx_bpf_create_dsq(7, -1);",
        &["scx_bpf_create_dsq", "ops.enqueue", "wrong.bpf.c:6"],
    );
}

#[test]
fn garbage_for_a_kernel_function() {
    assert_says(
        "scx_bpf_dsq_insert((void *)p + 8, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, 0);",
        &["scx_bpf_dsq_insert", "no task"],
    );
    assert_says("scx_bpf_kick_cpu(4711, 0);", &["4711", "wrong.bpf.c:6"]);
}
