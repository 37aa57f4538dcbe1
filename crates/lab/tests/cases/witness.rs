// SPDX-License-Identifier: GPL-2.0-only
//! A real Linux guest inside the lab's VM. Emulated without a virtual clock, so nothing is asked of its times.
use berth_lab::assets::Assets;
use berth_lab::witness::{Setting, WitnessAnswer, record};
use berth_scenario::{Input, read};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const SCENARIO: &str = "[run]\nmeasure = \"3s\"\n[host]\ncores = 2\n[vm.a]\naffinity = [1]\ntasks = [\"hog\", \
 \"echo\"]\n\
    [vm.b]\naffinity = [1]\ntasks = [\"burn\"]\n[task.hog]\nmodel = \"busy\"\nthreads = 1\n[task.burn]\nmodel = \
    \"busy\"\n\
    [task.echo]\nthreads = 1\nloop = [\"receive pinger\", \"compute 75us\", \"reply\"]\n\
    [client.pinger]\nto = \"a\"\nsends = \"every 50ms +- 50%\"\n";

fn recorded(assets: &Assets, kernel: Option<PathBuf>) -> Result<WitnessAnswer, String> {
    super::roam();
    let input = Input {
        name: "witness".into(),
        shown: "witness.toml".into(),
        text: SCENARIO.into(),
        folder: None,
    };
    let scenario = read(&input, &[]).map_err(|e| e.to_string())?.scenario;
    let setting = Setting {
        kernel,
        guest_hrtick: true,
        host_hrtick: true,
        floor_ns: 1_000_000_000,
        settle_ns: 1_000_000_000,
        boot: Duration::from_secs(400),
        timeout: Duration::from_secs(1200),
    };
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let stop = AtomicBool::new(false);
    record(&scenario, 1, &setting, assets, &program, &|_| (), &stop).map_err(|e| e.to_string())
}

/// Boots, answers beside a hog and a competitor, and sends home what it saw.
pub fn answers(assets: &Assets) -> Result<String, String> {
    // Several emulation threads crash now and then: once more, as with any infrastructure.
    let answer = recorded(assets, None).or_else(|e| {
        println!("  again: {e}");
        recorded(assets, None)
    })?;
    let (guest, seen) = (&answer.guest, &answer.guest.seen);
    if guest.kernel != assets.kernel.release || guest.cpus != 1 {
        return Err(format!("{} on {} CPUs", guest.kernel, guest.cpus));
    }
    let whole = |a: &berth_results::guest::Answer| a.work_ns > 0 && a.work_ns <= a.latency_ns;
    if seen.answers.is_empty() || !seen.answers.iter().all(whole) {
        return Err(format!("answers: {:?}", seen.answers));
    }
    match (seen.steal, seen.ran_ns.get("hog"), seen.ran_ns.get("echo")) {
        (Some(steal), Some(hog), Some(echo)) if steal > 0.0 && *hog > 0.0 && *echo > 0.0 => {
            Ok(format!("{} answers, steal {steal:.3}", seen.answers.len()))
        }
        other => Err(format!("steal, hog, echo: {other:?}")),
    }
}

/// What is no kernel does not boot, and the emulator's last words say why.
pub fn no_kernel(assets: &Assets) -> Result<String, String> {
    match recorded(assets, Some(assets.kernel.config.clone())) {
        Err(e) if e.contains("the guest did not boot") && e.contains("last lines") => {
            Ok("refused, with its last lines".into())
        }
        other => Err(format!("{other:?}")),
    }
}
