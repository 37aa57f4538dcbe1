// SPDX-License-Identifier: GPL-2.0-only
//! `cargo run -p berth-policy --example load -- POLICY.bpf.c|.bpf.o ...`: load policies as the simulator
//! would and say what is in them.
use berth_policy::policy::{LoadOptions, Policy};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        match Policy::from_path(Path::new(&path), &LoadOptions::default()) {
            Ok(policy) => {
                let program = policy.program();
                println!(
                    "{path}: {} functions, {} instructions, {} maps, {} data sections, {} ms",
                    program.funcs.len(),
                    program.funcs.iter().map(|f| f.insns.len()).sum::<usize>(),
                    program.maps.len(),
                    program.sections.len(),
                    start.elapsed().as_millis()
                );
                for s in &program.structs {
                    let ops: Vec<_> = s.ops.iter().map(|(op, _)| op.name()).collect();
                    println!("  scheduler {} ({}): {}", s.name, s.var, ops.join(", "));
                }
                for (name, _) in &program.syscalls {
                    println!("  syscall {name}");
                }
                for p in policy.params() {
                    println!(
                        "  parameter {} = {} {}: {}",
                        p.name, p.default, p.unit, p.help
                    );
                }
            }
            Err(e) => {
                println!("{path}: {e}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
