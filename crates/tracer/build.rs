// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the tracer, `bpf/tracer.bpf.c`.
use berth_policy::build_script;

fn main() {
    build_script::run(|| build_script::bpf_object("tracer"));
}
