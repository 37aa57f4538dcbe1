// SPDX-License-Identifier: GPL-2.0-only
//! Schedulers that are programs of their own: this program, called by another name, is one that schedules and one that
//! gives up.
use super::{NEVER, check, coarse, host, options};
use berth_lab::assets::Assets;
use berth_lab::job::{Answer, Work};
use berth_lab::run::{LabPolicy, Single, single};
use berth_scx::{LoadOptions, Loaded};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

const SCHEDULES: &str = "scx_first_in_first_out";
const GIVES_UP: &str = "scx_gives_up";

pub fn of_their_own(assets: &Assets) -> Result<String, String> {
    let folder = std::env::temp_dir().join(format!("berth-lab-programs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let done = both(assets, &folder);
    std::fs::remove_dir_all(&folder).map_err(|e| e.to_string())?;
    done
}

fn both(assets: &Assets, folder: &Path) -> Result<String, String> {
    let answer = boot(assets, folder, SCHEDULES)?;
    if let Some(e) = answer.error {
        return Err(e);
    }
    let report = answer.policy.ok_or("no report")?;
    check(
        report.lasted && answer.result["during"] == json!(report.name),
        format!("{report:?}, {}", answer.result),
    )?;
    check(
        report.exit.message.contains("asked to end"),
        format!("{report:?}"),
    )?;
    let failed = boot(assets, folder, GIVES_UP)?.error.unwrap_or_default();
    check(
        failed.contains(GIVES_UP) && failed.contains("not on this machine"),
        failed.clone(),
    )?;
    Ok(format!("{} scheduled; {failed}", report.name))
}

fn boot(assets: &Assets, folder: &Path, name: &str) -> Result<Answer, String> {
    let program = folder.join(name);
    std::os::unix::fs::symlink(&options().program, &program).map_err(|e| e.to_string())?;
    let what = Single {
        host: host(1, 1, 1, 2, 1),
        policy: Some(LabPolicy::Program(program)),
        work: Work::Custom {
            name: "programs".to_string(),
            input: Value::Null,
        },
    };
    let boot = single(&what, &coarse(), assets, &NEVER).map_err(|e| e.to_string())?;
    Ok(boot.answer)
}

pub fn inside(_: &Value, loaded: Option<&mut Loaded>) -> Result<Value, String> {
    check(loaded.is_none(), "it was Berth that loaded it")?;
    let status = berth_scx::status().map_err(|e| e.to_string())?;
    Ok(json!({ "during": status.running() }))
}

/// If this program is called as one of the schedulers: what it does then.
pub fn called_as_one() -> Option<ExitCode> {
    let called = std::env::args().next()?;
    let done = if called.ends_with(SCHEDULES) {
        schedule()
    } else if called.ends_with(GIVES_UP) {
        Err("not on this machine".to_string())
    } else {
        return None;
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    })
}

/// Until Ctrl-C.
fn schedule() -> Result<(), String> {
    // SAFETY: a set of this function's own; the signal waits from here on.
    let set = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    };
    let policy = berth_builtin::find("gfifo").ok_or("no gfifo")?;
    let loaded =
        Loaded::load(policy.object(), &LoadOptions::default()).map_err(|e| e.to_string())?;
    let mut signal = 0;
    // SAFETY: both are this function's own.
    unsafe { libc::sigwait(&set, &mut signal) };
    println!("asked to end");
    loaded.unload().map_err(|e| e.to_string())?;
    Ok(())
}
