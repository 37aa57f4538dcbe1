// SPDX-License-Identifier: GPL-2.0-only
//! What kernel functions return on a known host. To test one: a line in a list below, the call in C and what comes
//! back. Each list becomes a policy that calls all of it once, in `init` or when its one thread, `p`, runs.
use berth_policy::policy::{LoadOptions, Policy};
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use support::{Cast, Peek};

#[allow(dead_code, reason = "other tests have vCPUs and shipped policies")]
mod support;

/// An expression in C and its value.
type Line = (&'static str, i64);

/// Two packages, each a memory node with one L3 of two cores of two threads.
fn shape() -> Shape {
    Shape {
        nodes: 2,
        packages: 2,
        llcs: 1,
        cores: 2,
        threads: 2,
    }
}

fn source(in_init: &[Line], while_running: &[Line]) -> String {
    let mut text = String::from(
        "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\nUEI_DEFINE(uei);\nbool done;\n",
    );
    let mut part = |name: &str, lines: &[Line]| {
        let mut calls = String::new();
        for (i, (expression, _)) in lines.iter().enumerate() {
            writeln!(text, "s64 {name}_{i};").unwrap();
            writeln!(calls, "\t{name}_{i} = (s64)({expression});").unwrap();
        }
        calls
    };
    let (init, running) = (part("init", in_init), part("running", while_running));
    writeln!(
        text,
        "s32 BPF_STRUCT_OPS_SLEEPABLE(f_init)\n{{\n{init}\treturn 0;\n}}\n\
         void BPF_STRUCT_OPS(f_running, struct task_struct *p)\n{{\n\tif (done)\n\t\treturn;\n\
         \tdone = true;\n{running}}}\n\
         void BPF_STRUCT_OPS(f_exit, struct scx_exit_info *ei)\n{{\n\tUEI_RECORD(uei, ei);\n}}\n\
         SCX_OPS_DEFINE(f_ops, .init = (void *)f_init, .running = (void *)f_running, .exit = (void *)f_exit,\n\
         \t.name = \"functions\");"
    )
    .unwrap();
    text
}

/// Calls everything; the thread is pinned to CPU 5 and runs from the first ms on.
fn check(in_init: &[Line], while_running: &[Line]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("functions.bpf.c");
    let text = source(in_init, while_running);
    std::fs::write(&file, &text).unwrap();
    let mut options = LoadOptions::default();
    options
        .compile
        .include
        .push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/include"));
    let policy = Policy::from_source(&file, &options).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut cast = Cast::default();
    cast.vcpu(0, 0, 1_000_000, &[Action::ComputeForever]);
    cast.masks = vec![vec![5]];
    cast.scripts[0].on = 5;
    let mut m = Simulation::new(&MachineSpec::new(shape()), &[], cast);
    load_policy(&mut m, &policy, &BTreeMap::new(), &[], &Options::default()).unwrap();
    m.start();
    m.run_until(3_000_000).unwrap();
    let kernel = m.kernel();
    let peek = Peek(kernel.policy.instance().unwrap());
    assert_eq!(peek.var("done"), 1, "the thread ran");
    for (name, lines) in [("init", in_init), ("running", while_running)] {
        for (i, (expression, expected)) in lines.iter().enumerate() {
            let got = peek.var(&format!("{name}_{i}")) as i64;
            assert_eq!(got, *expected, "{expression} in {name}");
        }
    }
}

#[test]
fn of_the_host() {
    check(
        &[
            ("scx_bpf_nr_cpu_ids()", 8),
            ("scx_bpf_nr_node_ids()", 2),
            ("scx_bpf_cpu_node(3)", 0),
            ("scx_bpf_cpu_node(4)", 1),
            ("scx_bpf_cpuperf_cap(7)", 1024),
            ("scx_bpf_cpuperf_cur(0)", 1024),
            ("bpf_cpumask_weight(scx_bpf_get_online_cpumask())", 8),
        ],
        &[
            ("bpf_get_smp_processor_id()", 5),
            ("bpf_get_numa_node_id()", 1),
        ],
    );
}

#[test]
fn of_queues() {
    check(
        &[
            ("scx_bpf_create_dsq(7, -1)", 0),
            // The kernel's -EEXIST, and -EINVAL for ids of its own.
            ("scx_bpf_create_dsq(7, -1)", -17),
            ("scx_bpf_create_dsq(SCX_DSQ_GLOBAL, -1)", -22),
            ("scx_bpf_dsq_nr_queued(7)", 0),
            ("scx_bpf_dsq_nr_queued(8)", -2),
        ],
        &[
            ("scx_bpf_dsq_nr_queued(7)", 0),
            ("scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL)", 0),
        ],
    );
}

#[test]
fn of_a_running_thread() {
    check(
        &[],
        &[
            // `rq->curr` becomes the thread after `running`.
            ("scx_bpf_task_running(p)", 0),
            ("scx_bpf_task_cpu(p)", 5),
            ("p->nr_cpus_allowed", 1),
            ("bpf_cpumask_test_cpu(5, p->cpus_ptr)", 1),
            ("bpf_cpumask_first(p->cpus_ptr)", 5),
            ("scx_bpf_test_and_clear_cpu_idle(5)", 0),
            // The first look takes the idle CPU, the second finds it taken.
            ("scx_bpf_test_and_clear_cpu_idle(2)", 1),
            ("scx_bpf_test_and_clear_cpu_idle(2)", 0),
        ],
    );
}
