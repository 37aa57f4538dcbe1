// SPDX-License-Identifier: GPL-2.0-only
//! A process that looks like a VM: the test's own program, begun once more, which may hold a tap. And somebody who has
//! no rights.
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Marks the process.
pub const VM: &str = "BERTH_TEST_VM";
/// A user who owns nothing.
pub const NOBODY: u32 = 65_534;

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

/// A tap of this process's network namespace; none: no tap can be had.
pub fn tap() -> Option<File> {
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let tun = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .ok()?;
    let mut request = [0u8; 40];
    request[..4].copy_from_slice(b"tapx");
    // IFF_TAP and IFF_NO_PI.
    request[16..18].copy_from_slice(&0x1002u16.to_ne_bytes());
    // SAFETY: `struct ifreq` is 40 bytes, which outlive the call.
    let done = unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
    (done == 0).then_some(tun)
}

/// A copy of `berth` that [`NOBODY`] can begin, wherever this one was built, in a folder that is his from now on.
pub fn berth_for_nobody(folder: &Path) -> PathBuf {
    let program = folder.join("berth");
    std::fs::copy(env!("CARGO_BIN_EXE_berth"), &program).unwrap();
    std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    program
}

/// It is begun as by [`NOBODY`].
pub fn as_nobody(command: &mut Command) {
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
}
