// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the trampoline through which translated policies are entered and left.

fn main() {
    println!("cargo::rerun-if-changed=src/trampoline.c");
    cc::Build::new()
        .file("src/trampoline.c")
        .std("gnu11")
        .opt_level(2)
        .warnings(true)
        .compile("berth_trampoline");
}
