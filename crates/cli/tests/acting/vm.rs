// SPDX-License-Identifier: GPL-2.0-only
//! A process that looks like a VM: the test's own program, begun once more.
use std::ffi::CString;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Marks the process.
pub const VM: &str = "BERTH_TEST_VM";

pub struct Vm(pub Child);

impl Vm {
    /// Once it looks like one. `mark`: what it finds in [`VM`].
    pub fn begin(name: &str, mark: &str) -> Vm {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg0("qemu-system-x86_64")
            .args(["-name", name, "-smp", "1"])
            .env(VM, mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut up = [0; 2];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut up).unwrap();
        Vm(child)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn call_me(name: &str) {
    let name = CString::new(name).unwrap();
    // SAFETY: a C string that outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

pub fn idle() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// In the VM's process: it looks like one from here on, and ends with who made it. `vcpu`: what its vCPU does.
pub fn look_like_one(vcpu: impl FnOnce() + Send + 'static) {
    call_me("qemu-system-x86");
    // SAFETY: who made this process has it ended with itself.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let (named, is_named) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        call_me("CPU 0/TCG");
        let _ = named.send(());
        vcpu()
    });
    // Before, it does not look like a VM.
    let _ = is_named.recv();
    println!("up");
}
