// SPDX-License-Identifier: GPL-2.0-only
//! Who a VM is, from its command line and its cgroup.
use crate::model::{Manager, NameFrom, Vmm};

/// What command line and cgroup tell of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub vmm: Vmm,
    pub manager: Manager,
    pub manager_id: Option<String>,
    pub name: String,
    pub name_from: NameFrom,
}

/// The program by the first argument, or by the process's name where there are no arguments.
pub fn vmm(args: &[String], comm: &str) -> Vmm {
    let program = args.first().map_or(comm, |a| base(a));
    match program {
        // Distributions name it so: RHEL, Proxmox.
        "qemu-kvm" | "kvm" => Vmm::Qemu,
        p if p.starts_with("qemu-system-") => Vmm::Qemu,
        "lkvm" | "kvmtool" | "lkvm-static" => Vmm::Kvmtool,
        "cloud-hypervisor" | "cloud-hypervisor-static" => Vmm::CloudHypervisor,
        // Also with a version behind it, as its releases are named.
        p if p == "firecracker" || p.starts_with("firecracker-v") => Vmm::Firecracker,
        "crosvm" => Vmm::Crosvm,
        "berth-microvm" => Vmm::Berth,
        _ => Vmm::Unknown,
    }
}

/// Who the VM is. `cgroup` is the process's main one, `/` if none.
pub fn identify(args: &[String], comm: &str, pid: i32, cgroup: &str) -> Identity {
    let vmm = vmm(args, comm);
    let manager = manager(vmm, args, cgroup);
    let given = given_name(vmm, args);
    let scope = scope_name(cgroup);
    let found = match (manager, given) {
        // Proxmox's own scope is only a number, Kata's QEMU name is a container's.
        (Manager::Kubevirt, Some(name)) => {
            Some((name.replacen('_', "/", 1), NameFrom::CommandLine))
        }
        (_, Some(name)) => Some((name, NameFrom::CommandLine)),
        (Manager::Jailer, None) => leaf(cgroup).map(|n| (n, NameFrom::Cgroup)),
        (_, None) => scope
            .map(|n| (n, NameFrom::Cgroup))
            .or_else(|| socket_name(args).map(|n| (n, NameFrom::Socket))),
    };
    let (name, name_from) = found
        .filter(|(name, _)| !name.is_empty())
        .unwrap_or_else(|| {
            let program = args.first().map_or(comm, |a| base(a));
            (format!("{program}-{pid}"), NameFrom::Process)
        });
    Identity {
        vmm,
        manager,
        manager_id: match manager {
            Manager::Proxmox => proxmox_id(args, cgroup),
            _ => None,
        },
        name: crate::procfile::printable(name.as_bytes()),
        name_from,
    }
}

/// What the VMM's own option says.
fn given_name(vmm: Vmm, args: &[String]) -> Option<String> {
    match vmm {
        Vmm::Qemu => qemu_name(option(args, &["-name", "--name"])?),
        Vmm::Firecracker => option(args, &["--id"]).map(String::from),
        Vmm::Crosvm | Vmm::Kvmtool | Vmm::Berth => {
            option(args, &["--name", "-n"]).map(String::from)
        }
        // Cloud Hypervisor has no name of its own; an unknown program may have any option.
        Vmm::CloudHypervisor | Vmm::Unknown => None,
    }
}

/// The value behind an option: `--id x` or `--id=x`.
fn option<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    for (i, arg) in args.iter().enumerate().skip(1) {
        if names.contains(&arg.as_str()) {
            return args.get(i + 1).map(String::as_str);
        }
        if let Some((name, value)) = arg.split_once('=')
            && names.contains(&name)
        {
            return Some(value);
        }
    }
    None
}

/// QEMU's `-name`: `web`, `web,debug-threads=on` or `guest=web,...`; a comma in a name is written twice.
fn qemu_name(value: &str) -> Option<String> {
    let mut parts = vec![String::new()];
    let mut chars = value.chars().peekable();
    while let Some(c) = chars.next() {
        let last = parts.last_mut()?;
        match c {
            ',' if chars.peek() == Some(&',') => {
                chars.next();
                last.push(',');
            }
            ',' => parts.push(String::new()),
            c => last.push(c),
        }
    }
    let named = parts.iter().find_map(|p| p.strip_prefix("guest="));
    let first = parts.first().map(String::as_str);
    named
        .or(first.filter(|f| !f.contains('=')))
        .map(String::from)
}

fn manager(vmm: Vmm, args: &[String], cgroup: &str) -> Manager {
    let any = |words: &[&str]| args.iter().any(|a| words.iter().any(|w| a.contains(w)));
    let kubernetes = cgroup.contains("kubepods");
    if any(&["/run/vc/", "/run/kata"]) || leaf(cgroup).is_some_and(|l| l.starts_with("kata_")) {
        return Manager::Kata;
    }
    if vmm == Vmm::Firecracker {
        let jailed = leaf(cgroup).is_some() && option(args, &["--start-time-us"]).is_some();
        return if jailed {
            Manager::Jailer
        } else {
            Manager::None
        };
    }
    if any(&["/kubevirt-private/", "/kubevirt-"]) || (kubernetes && vmm == Vmm::Qemu) {
        return Manager::Kubevirt;
    }
    if any(&["product=OpenStack", "manufacturer=OpenStack"]) {
        return Manager::Nova;
    }
    if proxmox_id(args, cgroup).is_some() {
        return Manager::Proxmox;
    }
    if any(&["/incus/"]) {
        return Manager::Incus;
    }
    if any(&["/lxd/"]) {
        return Manager::Lxd;
    }
    let machine = |part: &str| part.starts_with("machine-qemu") || part.starts_with("qemu-");
    if any(&["/libvirt/qemu"]) || (cgroup.contains("machine") && cgroup.split('/').any(machine)) {
        return Manager::Libvirt;
    }
    Manager::None
}

/// Proxmox's number of the VM: of its scope, or its own option `-id`.
fn proxmox_id(args: &[String], cgroup: &str) -> Option<String> {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let scope = cgroup
        .split('/')
        .skip_while(|part| *part != "qemu.slice")
        .nth(1)
        .and_then(|scope| scope.strip_suffix(".scope"))
        .filter(|id| digits(id));
    let own = || args.iter().any(|a| a.contains("/run/qemu-server/"));
    let option = option(args, &["-id"]).filter(|id| digits(id) && own());
    scope.or(option).map(String::from)
}

/// The name in a scope that libvirt made: `machine-qemu\x2d1\x2dweb.scope`, `qemu-1-web.libvirt-qemu`.
fn scope_name(cgroup: &str) -> Option<String> {
    for part in cgroup.split('/') {
        let plain = unescape(part);
        let machine = plain
            .strip_prefix("machine-")
            .and_then(|m| m.strip_suffix(".scope"))
            .or_else(|| plain.strip_suffix(".libvirt-qemu"));
        let Some(machine) = machine else { continue };
        let Some(numbered) = machine.strip_prefix("qemu-") else {
            continue;
        };
        if let Some((number, name)) = numbered.split_once('-')
            && number.bytes().all(|b| b.is_ascii_digit())
        {
            return Some(name.to_string());
        }
    }
    None
}

/// The part of a cgroup's path that belongs to the whole VM: processes in it are the VM's, also helpers beside the VMM.
pub fn scope(cgroup: &str) -> Option<&str> {
    let mut end = 0;
    let mut above = "";
    for part in cgroup.split('/') {
        end += part.len();
        let libvirt = part.starts_with("machine-qemu\\x2d") || part.ends_with(".libvirt-qemu");
        if libvirt || (above == "qemu.slice" && part.ends_with(".scope")) {
            return cgroup.get(..end);
        }
        above = part;
        end += 1;
    }
    None
}

/// systemd's escapes: `\x2d` is `-`.
fn unescape(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = tail
            .get(..3)
            .filter(|_| *first == b'\\' && tail[0] == b'x')
            .and_then(|hex| std::str::from_utf8(&hex[1..]).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A name from the socket the VMM is controlled by. Where every VM has the same file name, its folder is the name.
fn socket_name(args: &[String]) -> Option<String> {
    let options = [
        "--api-socket",
        "--api-sock",
        "-s",
        "--socket",
        "--socket-path",
    ];
    let value = option(args, &options)?;
    let path = value.split(',').next().unwrap_or(value);
    let path = path.strip_prefix("path=").unwrap_or(path);
    let mut parts = path.rsplit('/').filter(|p| !p.is_empty());
    let file = parts.next()?;
    let stem = file
        .strip_suffix(".sock")
        .or_else(|| file.strip_suffix(".socket"))
        .unwrap_or(file);
    // A file descriptor's number (`fd=3`) names nothing.
    if stem.contains('=') {
        return None;
    }
    let common = [
        "api",
        "clh-api",
        "ch",
        "cloud-hypervisor",
        "control",
        "crosvm",
        "vmm",
    ];
    match common.contains(&stem) {
        true => parts
            .next()
            .filter(|folder| *folder != "run" && *folder != "tmp")
            .map(String::from),
        false => Some(stem.to_string()),
    }
}

fn leaf(cgroup: &str) -> Option<String> {
    let last = cgroup.rsplit('/').next()?;
    (!last.is_empty()).then(|| last.to_string())
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name_of(line: &str, cgroup: &str) -> (String, NameFrom, Manager) {
        let args: Vec<String> = line.split(' ').map(String::from).collect();
        let id = identify(&args, "comm", 7, cgroup);
        (id.name, id.name_from, id.manager)
    }

    #[test]
    fn names_of_the_command_line() {
        use NameFrom::{CommandLine, Process, Socket};
        for (line, name, from) in [
            (
                "qemu-system-x86_64 -name guest=web01,debug-threads=on",
                "web01",
                CommandLine,
            ),
            ("/usr/bin/kvm -name a,,b,process=x", "a,b", CommandLine),
            ("qemu-kvm -name process=x", "qemu-kvm-7", Process),
            ("qemu-kvm -name", "qemu-kvm-7", Process),
            ("/opt/firecracker-v1.13.1 --id=fc-1", "fc-1", CommandLine),
            ("crosvm run --name arc -c 2", "arc", CommandLine),
            ("berth-microvm --name web-1", "web-1", CommandLine),
            (
                "cloud-hypervisor --api-socket path=/run/ch/db.sock",
                "db",
                Socket,
            ),
            (
                "cloud-hypervisor --api-socket /run/vm-3/api.sock",
                "vm-3",
                Socket,
            ),
            (
                "cloud-hypervisor --api-socket fd=3",
                "cloud-hypervisor-7",
                Process,
            ),
            ("myvmm --name x", "myvmm-7", Process),
        ] {
            let got = name_of(line, "/");
            assert_eq!((got.0.as_str(), got.1), (name, from), "{line}");
        }
        assert_eq!(identify(&[], "vm\n", 9, "/").name, "vm\\n-9");
    }

    #[test]
    fn names_and_managers_of_cgroups() {
        let libvirt = r"/machine.slice/machine-qemu\x2d12\x2dweb\x2d01.scope/libvirt/emulator";
        assert_eq!(
            name_of("/usr/libexec/qemu-kvm", libvirt),
            ("web-01".into(), NameFrom::Cgroup, Manager::Libvirt)
        );
        let old = "/machine/qemu-1-lab1.libvirt-qemu/emulator";
        assert_eq!(
            name_of("qemu-system-x86_64", old),
            ("lab1".into(), NameFrom::Cgroup, Manager::Libvirt)
        );
        let args = ["/usr/bin/kvm", "-name", "mail,debug-threads=on"].map(String::from);
        let id = identify(&args, "kvm", 7, "/qemu.slice/104.scope");
        assert_eq!((id.manager, id.name.as_str()), (Manager::Proxmox, "mail"));
        assert_eq!(id.manager_id.as_deref(), Some("104"));
        assert_eq!(scope(libvirt), libvirt.strip_suffix("/libvirt/emulator"));
        assert_eq!(scope(old), Some("/machine/qemu-1-lab1.libvirt-qemu"));
        assert_eq!(
            scope("/qemu.slice/104.scope"),
            Some("/qemu.slice/104.scope")
        );
        assert_eq!(scope("/user.slice/user-0.slice/session-1.scope"), None);
        assert_eq!(unescape(r"a\x2db\xzz\x"), r"a-b\xzz\x");
    }

    proptest! {
        #[test]
        fn nothing_panics(args: Vec<String>, comm: String, cgroup: String) {
            let id = identify(&args, &comm, 1, &cgroup);
            prop_assert!(!id.name.is_empty());
            prop_assert!(!id.name.contains(char::is_control));
            scope(&cgroup);
        }

        #[test]
        fn any_name_comes_back_from_qemu(name in "[a-z,=\\\\. äß-]{1,20}") {
            prop_assume!(!name.starts_with("guest="));
            let written = format!("guest={},debug-threads=on", name.replace(',', ",,"));
            prop_assert_eq!(qemu_name(&written), Some(name));
        }
    }
}
