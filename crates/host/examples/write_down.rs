// SPDX-License-Identifier: GPL-2.0-only
//! Writes processes of this host down as a fixture, the other way than `unpack`:
//! `cargo run -p berth-host --example write_down PID... > FILE.host` (as root, with debugfs mounted).
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let pids: Result<Vec<i32>, _> = std::env::args().skip(1).map(|a| a.parse()).collect();
    let pids = pids.unwrap_or_default();
    if pids.is_empty() {
        eprintln!("usage: write_down PID...");
        return ExitCode::FAILURE;
    }
    match berth_host::fixture::write_down(Path::new("/"), &pids) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
