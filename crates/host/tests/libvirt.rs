// SPDX-License-Identifier: GPL-2.0-only
//! A VM that a real libvirt started, found by its name, with the role of every thread. Skipped, with the reason, where
//! libvirt or QEMU is missing; `tools/libvirt-live` installs both into a throw-away root and runs this there.
//!
//! `BERTH_LIBVIRT` says which libvirt (`qemu:///system`); otherwise a session of its own is started in a temporary
//! folder.
use berth_host::discover::Scanner;
use berth_host::model::{Evidence, Manager, NameFrom, Role, Vm, Vmm};
use berth_host::root::Root;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ends a test that hangs; nothing is judged by it.
const HUNG: Duration = Duration::from_secs(300);

/// What ends with the test, the VM first.
struct Libvirt {
    uri: String,
    /// For a session of our own: its folder, and the daemon.
    own: Option<(tempfile::TempDir, Child)>,
    vm: Option<String>,
}

impl Libvirt {
    fn virsh(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new("virsh");
        command.args(["-c", &self.uri]).args(arguments);
        if let Some((folder, _)) = &self.own {
            in_folder(&mut command, folder.path());
        }
        let done = command.output().map_err(|e| format!("virsh: {e}"))?;
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&done.stderr).trim().to_string()),
        }
    }

    /// Connects, or starts one.
    fn reach() -> Result<Libvirt, String> {
        if let Ok(uri) = std::env::var("BERTH_LIBVIRT") {
            let libvirt = Libvirt {
                uri,
                own: None,
                vm: None,
            };
            libvirt.virsh(&["version"])?;
            return Ok(libvirt);
        }
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = Command::new("libvirtd");
        in_folder(&mut daemon, folder.path());
        let daemon = daemon
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("libvirtd: {e}"))?;
        let libvirt = Libvirt {
            uri: "qemu:///session".into(),
            own: Some((folder, daemon)),
            vm: None,
        };
        let until = Instant::now() + HUNG;
        loop {
            match libvirt.virsh(&["version"]) {
                Ok(_) => return Ok(libvirt),
                Err(e) if Instant::now() > until => return Err(e),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        if let Some(vm) = self.vm.take() {
            let _ = self.virsh(&["destroy", &vm]);
        }
        if let Some((_, daemon)) = &mut self.own {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// A home that is nobody's.
fn in_folder(command: &mut Command, folder: &Path) {
    for variable in [
        "HOME",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
    ] {
        command.env(variable, folder);
    }
}

fn domain(kind: &str, name: &str) -> String {
    format!(
        "<domain type='{kind}'><name>{name}</name><memory unit='MiB'>64</memory><vcpu>3</vcpu>\
         <iothreads>1</iothreads><os><type arch='x86_64'>hvm</type></os>\
         <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices></domain>"
    )
}

fn found(name: &str) -> Arc<Vm> {
    let mut scanner = Scanner::new(Root::live());
    let until = Instant::now() + HUNG;
    loop {
        let snapshot = scanner.scan().unwrap();
        let vm = snapshot.vms.iter().find(|vm| vm.name == name);
        if let Some(vm) = vm.filter(|vm| vm.known_vcpus() == 3) {
            return vm.clone();
        }
        assert!(Instant::now() < until, "{:#?}", snapshot.vms);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_vm_of_libvirt_is_found_with_all_its_threads() {
    let mut libvirt = match Libvirt::reach() {
        Ok(libvirt) => libvirt,
        Err(e) => {
            println!("skipped: {e}");
            return;
        }
    };
    let name = format!("berth-test-{}", std::process::id());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("domain.xml");
    let create = |kind: &str| {
        std::fs::write(&file, domain(kind, &name)).unwrap();
        libvirt.virsh(&["create", file.to_str().unwrap()])
    };
    let kind = match create("kvm") {
        Ok(_) => "kvm",
        Err(kvm) => match create("qemu") {
            Ok(_) => "qemu",
            Err(e) => {
                println!("skipped: libvirt starts no VM: {kvm}; {e}");
                return;
            }
        },
    };
    libvirt.vm = Some(name.clone());
    let vm = found(&name);
    let told = (vm.vmm, vm.manager, vm.name_from, vm.vcpus);
    println!("{kind} by {}: {vm:#?}", libvirt.uri);
    assert_eq!(
        told,
        (Vmm::Qemu, Manager::Libvirt, NameFrom::CommandLine, 3)
    );
    for thread in &vm.threads {
        // QEMU's own names (`debug-threads=on`, which libvirt sets) say the truth of a VM that nobody means harm with.
        let expected = match thread.name.as_str() {
            "IO iothread1" => Role::Iothread,
            n if n.starts_with("CPU ") => {
                let index = n["CPU ".len()..]
                    .split('/')
                    .next()
                    .unwrap()
                    .parse()
                    .unwrap();
                Role::Vcpu(index)
            }
            n if n.starts_with("kvm-nx-lpage") || n.starts_with("kvm-pit/") => Role::Other,
            n if n.starts_with("vhost-") => Role::Vhost,
            _ => Role::Emulator,
        };
        assert_eq!(thread.role, expected, "{thread:?}");
        // The names are not what it is known by, where the kernel or libvirt's cgroups tell.
        if matches!(expected, Role::Vcpu(_)) && kind == "kvm" && libvirt.own.is_none() {
            assert!(thread.evidence < Evidence::Name, "{thread:?}");
        }
    }
    if libvirt.own.is_none() {
        assert!(vm.cgroup.contains("emulator"), "{}", vm.cgroup);
    }
}
