// SPDX-License-Identifier: GPL-2.0-only
//! A real QEMU's monitor as evidence for its vCPUs. Skipped, with the reason, where there is no `qemu-system-x86_64`.
use berth_host::discover::Scanner;
use berth_host::model::{Evidence, Role, Vm};
use berth_host::root::Root;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ends a test that hangs; nothing is judged by it.
const HUNG: Duration = Duration::from_secs(300);

/// Ends with the test.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Three vCPUs that were made and never ran: nothing but the monitor tells which is which.
fn qemu(folder: &Path, accelerator: &str, names: &str) -> Result<Qemu, String> {
    let monitor = format!("unix:{},server=on,wait=off", folder.join("qmp").display());
    let name = format!("guest=probe,debug-threads={names}");
    Command::new("qemu-system-x86_64")
        .args(["-accel", accelerator, "-smp", "3", "-m", "64", "-S"])
        .args(["-nodefaults", "-display", "none", "-name", &name])
        .args(["-qmp", &monitor])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(Qemu)
        .map_err(|e| format!("qemu-system-x86_64: {e}"))
}

/// Scans until QEMU's monitor has answered.
fn found(qemu: &mut Qemu) -> Result<Arc<Vm>, String> {
    let pid = i32::try_from(qemu.0.id()).unwrap();
    let mut scanner = Scanner::new(Root::live());
    let until = Instant::now() + HUNG;
    loop {
        if let Some(status) = qemu.0.try_wait().unwrap() {
            return Err(format!("QEMU ended: {status}"));
        }
        let snapshot = scanner.scan().unwrap();
        let vm = snapshot.vms.iter().find(|vm| vm.pid == pid);
        let by_qmp = |vm: &&Arc<Vm>| {
            let told = vm.threads.iter().filter(|t| t.evidence == Evidence::Qmp);
            told.count() == 3
        };
        if let Some(vm) = vm.filter(by_qmp) {
            return Ok(vm.clone());
        }
        assert!(Instant::now() < until, "{vm:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn qemu_tells_which_thread_is_which_vcpu() {
    for (accelerator, names) in [("tcg,thread=multi", "on"), ("kvm", "off")] {
        let folder = tempfile::tempdir().unwrap();
        let vm = qemu(folder.path(), accelerator, names).and_then(|mut q| {
            let vm = found(&mut q)?;
            Ok((q, vm))
        });
        let (_qemu, vm) = match vm {
            Ok(found) => found,
            Err(e) => {
                println!("skipped, {accelerator}: {e}");
                continue;
            }
        };
        assert_eq!((vm.name.as_str(), vm.vcpus), ("probe", 3));
        let mut seen = Vec::new();
        for thread in &vm.threads {
            if let Role::Vcpu(index) = thread.role {
                assert_eq!(thread.evidence, Evidence::Qmp, "{vm:#?}");
                // Its own names, where it gives any, say the same.
                if names == "on" {
                    assert_eq!(thread.name, format!("CPU {index}/TCG"));
                }
                seen.push(index);
            }
        }
        assert_eq!(seen, [0, 1, 2]);
        println!("{accelerator}: {} threads", vm.threads.len());
    }
}
