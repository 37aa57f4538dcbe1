// SPDX-License-Identifier: GPL-2.0-only
//! The VM that answers: a process of its own, as VMMs have it, which is this program called by another name.
use super::{client, network};
use berth_loadgen::Echo;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

/// What their names begin with.
pub const NAME: &str = "echo";
const PROGRAM: &str = "berth-microvm";
/// What it says when it runs.
const UP: &[u8] = b"up";

pub struct Vm(Child);

/// Its tap.
pub fn tap(number: usize) -> String {
    format!("tap{number}")
}

impl Vm {
    /// With this number, in a cgroup whose parent holds this process.
    pub fn start(number: usize, group: &str) -> Result<Vm, String> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0(PROGRAM)
            .args(["--name", &format!("{NAME}-{number}")]);
        command
            .env("GROUP", group)
            .env("NUMBER", number.to_string());
        command.stdout(Stdio::piped());
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
    let number = std::env::var("NUMBER").ok().and_then(|n| n.parse().ok());
    let number = number.unwrap_or(0);
    let tap = match network::tap(&tap(number), Echo::HEADER_BYTES) {
        Ok(tap) => tap,
        Err(e) => return e,
    };
    let vm = match Echo::new(&tap, client::link(number)) {
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
