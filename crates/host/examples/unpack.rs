// SPDX-License-Identifier: GPL-2.0-only
//! Unpacks a host that was written down: `cargo run -p berth-host --example unpack FILE FOLDER`, then
//! `berth ls --root FOLDER`.
use berth_host::fixture::Fixture;
use std::process::ExitCode;

fn unpack() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let (Some(file), Some(folder)) = (args.next(), args.next()) else {
        return Err("usage: unpack FILE FOLDER".into());
    };
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    let fixture = Fixture::parse(&text).map_err(|e| format!("{file}: {e}"))?;
    let folder = std::path::Path::new(&folder);
    fixture
        .unpack(folder)
        .map_err(|e| format!("{}: {e}", folder.display()))
}

fn main() -> ExitCode {
    match unpack() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
