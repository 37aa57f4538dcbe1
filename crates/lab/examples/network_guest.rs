// SPDX-License-Identifier: GPL-2.0-only
//! Puts the lab's kernel and the modules of its network cards into a folder, for a guest that is asked over one: the
//! peer of the unikernel (`tools/unikernel table`). `vmlinuz`, `release`, and `modules/N-NAME` in the order in which
//! they are loaded.
//!
//!     cargo run -p berth-lab --example network_guest -- FOLDER
use berth_lab::Progress;
use berth_lab::assets::{self, KernelRule, modules};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

fn put(folder: &Path) -> Result<String, String> {
    let say = |p: Progress| {
        if let Progress::Say(text) = p {
            eprintln!("lab: {text}");
        }
    };
    let assets = assets::ensure(&KernelRule::Newest, false, &say, &NEVER);
    let assets = assets.map_err(|e| e.to_string())?;
    let kernel = &assets.kernel;
    let all = modules::network(kernel, &say, &NEVER).map_err(|e| e.to_string())?;
    let below = folder.join("modules");
    // What an older kernel left there is not loaded.
    let _ = fs::remove_dir_all(&below);
    let failed = |at: &Path| {
        let at = at.display().to_string();
        move |e: std::io::Error| format!("{at}: {e}")
    };
    fs::create_dir_all(&below).map_err(failed(&below))?;
    for (i, module) in all.iter().enumerate() {
        let to = below.join(format!("{i}-{}", module.file));
        fs::write(&to, &module.bytes).map_err(failed(&to))?;
    }
    let to = folder.join("release");
    fs::write(&to, &kernel.release).map_err(failed(&to))?;
    let to = folder.join("vmlinuz");
    fs::copy(&kernel.image, &to).map_err(failed(&to))?;
    Ok(kernel.release.clone())
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: network_guest FOLDER");
        return ExitCode::from(2);
    };
    match put(Path::new(&folder)) {
        Ok(release) => {
            println!("{release}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("network_guest: {e}");
            ExitCode::FAILURE
        }
    }
}
