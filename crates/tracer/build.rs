// SPDX-License-Identifier: GPL-2.0-only
//! Compiles what watches: `bpf/tracer.bpf.c` and `bpf/calls.bpf.c`.
use berth_policy::build_script;

fn main() {
    build_script::run(|| {
        build_script::bpf_object("tracer")?;
        build_script::bpf_object("calls")
    });
}
