// SPDX-License-Identifier: GPL-2.0-only
//! The VM that answers: a process of its own, as VMMs have it, which is this program called by another name.
use super::network;
use berth_loadgen::Echo;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

pub const NAME: &str = "echo";
pub const TAP: &str = "tap0";
const PROGRAM: &str = "berth-microvm";
/// What it says when it runs.
const UP: &[u8] = b"up";

pub struct Vm(Child);

impl Vm {
    /// In this cgroup, whose parent holds this process.
    pub fn start(group: &str) -> Result<Vm, String> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(PROGRAM).args(["--name", NAME]);
        command.env("GROUP", group).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{PROGRAM}: {e}"))?;
        let mut said = Vec::new();
        let out = child.stdout.as_mut().ok_or("no pipe")?;
        let got = out.take(UP.len() as u64).read_to_end(&mut said);
        let vm = Vm(child);
        match got {
            Ok(_) if said == UP => Ok(vm),
            _ => Err("the VM that answers did not start: see the console".into()),
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// If this program is called as that VM: what it does then.
pub fn called_as_it() -> Option<ExitCode> {
    let called = std::env::args().next()?;
    called.ends_with(PROGRAM).then(|| {
        let said = serve();
        eprintln!("{PROGRAM}: {said}");
        ExitCode::FAILURE
    })
}

/// Answers until it is killed; or why not.
fn serve() -> String {
    // SAFETY: who made this process has it ended with itself.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let group = std::env::var("GROUP").unwrap_or_default();
    // It has one thread yet.
    if let Err(e) = fs::write(format!("{group}/cgroup.threads"), "0") {
        return format!("{group}: {e}");
    }
    let tap = match network::tap(TAP, Echo::HEADER_BYTES) {
        Ok(tap) => tap,
        Err(e) => return e,
    };
    let vm = match Echo::new(&tap) {
        Ok(vm) => vm,
        Err(e) => return e.to_string(),
    };
    let named = std::thread::Builder::new().name("CPU 0/KVM".into());
    let vcpu = match named.spawn(move || vm.run().to_string()) {
        Ok(vcpu) => vcpu,
        Err(e) => return e.to_string(),
    };
    let mut out = std::io::stdout();
    if let Err(e) = out.write_all(UP).and_then(|()| out.flush()) {
        return e.to_string();
    }
    vcpu.join()
        .unwrap_or_else(|_| "the vCPU's thread panicked".into())
}
