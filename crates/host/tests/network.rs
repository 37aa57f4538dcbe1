// SPDX-License-Identifier: GPL-2.0-only
//! Networks of VMs on hosts that were written down, and on this machine's own tap and bridge.
use berth_host::cgroup;
use berth_host::discover::Scanner;
use berth_host::doctor::{self, State};
use berth_host::fixture::Fixture;
use berth_host::model::Snapshot;
use berth_host::network::{self, Balance, Kind, Network, Networks, Switch};
use berth_host::root::Root;
use proptest::prelude::*;
use std::path::Path;

const HOST: &str = include_str!("fixtures/network.host");

fn found(folder: &Path) -> (Snapshot, Networks) {
    let root = Root::at(folder);
    let vms = Scanner::new(root.clone()).scan().unwrap();
    let networks = network::of(&root, &vms);
    (vms, networks)
}

fn host() -> (tempfile::TempDir, Snapshot, Networks) {
    let folder = tempfile::tempdir().unwrap();
    Fixture::parse(HOST).unwrap().unpack(folder.path()).unwrap();
    let (vms, networks) = found(folder.path());
    (folder, vms, networks)
}

fn of<'a>(vms: &Snapshot, networks: &'a Networks, name: &str) -> &'a Network {
    let vm = vms.vms.iter().find(|vm| vm.name == name).unwrap();
    networks.network(vm).unwrap()
}

#[test]
fn taps_bridges_and_the_cards_behind_them() {
    let (_f, vms, networks) = host();
    let web = of(&vms, &networks, "web");
    assert_eq!((web.links.len(), web.vhost), (1, 2));
    let link = &web.links[0];
    assert_eq!(
        (link.kind, &*link.name, link.queues, link.here),
        (Kind::Tap, "tap0", 2, true)
    );
    assert_eq!(
        (link.bridge.as_deref(), &*link.uplinks),
        (Some("br0"), &["eth0".to_string()][..])
    );
    let path: Vec<&str> = networks.path(web).iter().map(|d| &*d.name).collect();
    assert_eq!(path, ["tap0", "eth0"]);
    // Two VMs on the bridge, one on each tap.
    assert_eq!((networks.users["eth0"], networks.users["tap0"]), (2, 1));
    let eth0 = &networks.devices["eth0"];
    assert_eq!(
        (eth0.node, eth0.physical, eth0.index),
        (Some(0), true, Some(2))
    );
    let irqs: Vec<_> = eth0
        .irqs
        .iter()
        .map(|i| (i.irq, i.queue, i.managed, &*i.cpus))
        .collect();
    assert_eq!(
        irqs,
        [
            (40, Some(0), None, ""),
            (41, Some(0), Some(true), "0-3"),
            (42, Some(1), Some(false), "0-7")
        ]
    );
    assert_eq!(eth0.irqs[2].effective.as_deref(), Some("5"));
    let tap0: Vec<&str> = networks.devices["tap0"]
        .queues
        .iter()
        .map(|q| &*q.name)
        .collect();
    assert_eq!(tap0, ["rx-0", "tx-0", "rx-1", "tx-1"]);
}

#[test]
fn macvtap_bonds_and_cards_passed_through() {
    let (_f, vms, networks) = host();
    let mac = &of(&vms, &networks, "mac").links[0];
    assert_eq!(
        (mac.kind, &*mac.name, mac.here),
        (Kind::Macvtap, "macvtap0", true)
    );
    assert_eq!(mac.uplinks, ["eth1", "eth2"]);
    let eth1 = &networks.devices["eth1"];
    assert_eq!(
        (eth1.node, eth1.irqs[0].irq, eth1.irqs[0].queue),
        (Some(1), 50, Some(0))
    );
    assert_eq!(networks.devices["eth2"].node, None);
    let pass = &of(&vms, &networks, "pass").links;
    assert_eq!(
        (pass.len(), pass[0].kind, &*pass[0].name),
        (1, Kind::Vfio, "0000:3b:00.0")
    );
    let card = &networks.devices["0000:3b:00.0"];
    assert_eq!(
        (card.node, card.irqs[0].irq, card.irqs[0].queue),
        (Some(1), 60, Some(1))
    );
}

/// A tap that is a port of something else than a bridge of Linux, or is elsewhere: that is said.
#[test]
fn what_is_not_looked_into_is_said() {
    let vm = |pid: u32, name: &str, tap: &str| {
        format!(
            "process {pid} qemu-system-x86 start={pid}\nargs qemu-system-x86_64 -name guest={name}\n\
             fd 10 anon_inode:kvm-vm\nfd 14 anon_inode:kvm-vcpu:0\nfd 20 /dev/net/tun\n\
             file proc/{pid}/fdinfo/20 \"iff:\\x09{tap}\\n\"\nthread {} \"CPU 0/KVM\" run=14\n",
            pid + 1
        )
    };
    let tap = |name: &str, index: u32, master: &str| {
        format!(
            "file sys/class/net/{name}/ifindex {index}\nfile sys/class/net/{name}/tun_flags 0x1002\n\
             link sys/class/net/{name}/master ../{master}\n\
             file sys/class/net/{name}/queues/rx-0/rps_cpus 00\n"
        )
    };
    let host = [
        HOST.to_string(),
        vm(2710, "ovs", "vnet0"),
        tap("vnet0", 30, "ovs-system"),
        "file sys/class/net/ovs-system/ifindex 31\n".into(),
        vm(2720, "vrf", "vnet1"),
        tap("vnet1", 32, "vrf-blue"),
        "file sys/class/net/vrf-blue/ifindex 33\n".into(),
        vm(2730, "pod", "tap0123"),
        // A bridge of Linux may have any name.
        vm(2740, "odd", "vnet2"),
        tap("vnet2", 34, "ovs-system2"),
        "file sys/class/net/ovs-system2/bridge/stp_state 0\n".into(),
    ];
    let folder = tempfile::tempdir().unwrap();
    Fixture::parse(&host.concat())
        .unwrap()
        .unpack(folder.path())
        .unwrap();
    let (vms, networks) = found(folder.path());
    let says = |name: &str| of(&vms, &networks, name).not_seen();
    let switch = |name: &str| of(&vms, &networks, name).links[0].switch;
    for (name, is, said) in [
        ("web", Some(Switch::Bridge), None),
        ("odd", Some(Switch::Bridge), None),
        ("mac", None, None),
        ("pass", None, None),
        (
            "ovs",
            Some(Switch::OpenVSwitch),
            Some("vnet0 is a port of Open vSwitch (ovs-system)"),
        ),
        (
            "vrf",
            Some(Switch::Other),
            Some("vnet1 belongs to vrf-blue, which is no Linux bridge"),
        ),
        ("pod", None, Some("tap0123 is in another network namespace")),
    ] {
        let found = says(name);
        assert_eq!(
            (switch(name), found.len()),
            (is, usize::from(said.is_some())),
            "{name}: {found:?}"
        );
        assert!(
            found.iter().zip(said).all(|(f, s)| f.starts_with(s)),
            "{name}: {found:?}"
        );
    }
    // Their own queues are known all the same, and no card is.
    let ovs = of(&vms, &networks, "ovs");
    let path: Vec<&str> = networks.path(ovs).iter().map(|d| &*d.name).collect();
    assert_eq!(path, ["vnet0"]);
    let check = doctor::networks(&Root::at(folder.path()), &vms);
    assert_eq!(check.state, State::Note);
    for what in ["ovs: vnet0", "vrf: vnet1", "pod: tap0123"] {
        assert!(check.found.contains(what), "{}", check.found);
    }
    let (folder, vms, _) = self::host();
    let check = doctor::networks(&Root::at(folder.path()), &vms);
    assert_eq!(
        (check.state, &*check.found),
        (State::Ok, "4 links of 4 VMs")
    );
}

#[test]
fn irqbalance_is_roots_and_cpu_sets_are_seen() {
    let (folder, _, networks) = host();
    assert_eq!(
        networks.balance,
        Some(Balance {
            pid: 600,
            start: 77
        })
    );
    let root = Root::at(folder.path());
    let none = |_: &str| None;
    let cpus = |pid, tid| cgroup::cpus(&root, pid, tid, &none);
    assert_eq!(cpus(2201, 2210), Some((0..6).collect()));
    assert_eq!(cpus(2301, 2310), None);
    assert_eq!(cpus(4, 4), None);
    // But for a set that was put there: what it was before, within the group above.
    let was = |list: &'static str| {
        let was = move |group: &str| (group == "vms/web").then(|| list.to_string());
        cgroup::cpus(&root, 2201, 2210, &was)
    };
    assert_eq!(was(""), None, "nothing is said of the group above");
    assert_eq!(was("2-3"), Some(vec![2, 3]));
    let above = folder
        .path()
        .join("sys/fs/cgroup/vms/cpuset.cpus.effective");
    std::fs::write(above, "3-7\n").unwrap();
    assert_eq!(was(""), Some((3..8).collect()));
    assert_eq!(was("2-3"), Some(vec![3]));
    assert_eq!(was("0-1"), Some((3..8).collect()));
}

#[derive(Clone, Debug)]
enum Damage {
    Gone,
    Bytes(Vec<u8>),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever /proc and /sys hold: no panic, no end, and no name that leads elsewhere.
    #[test]
    fn hostile_trees_are_survived(
        hits in proptest::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![
                Just(Damage::Gone),
                proptest::collection::vec(any::<u8>(), 0..60).prop_map(Damage::Bytes),
                Just(Damage::Bytes(b"iff:\t../../../etc\n".to_vec())),
                Just(Damage::Bytes(b"99999999999999999999".to_vec())),
                Just(Damage::Bytes(b"-1".to_vec())),
            ]),
            1..20,
        ),
    ) {
        let fixture = Fixture::parse(HOST).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fixture.unpack(folder.path()).unwrap();
        let paths: Vec<&String> = fixture.files.keys().filter(|p| !p.ends_with('/')).collect();
        for (at, damage) in &hits {
            let path = folder.path().join(at.get(&paths).as_str());
            match damage {
                Damage::Gone => { let _ = std::fs::remove_file(path); }
                Damage::Bytes(bytes) => { let _ = std::fs::write(path, bytes); }
            }
        }
        let (_, networks) = found(folder.path());
        for name in networks.devices.keys() {
            prop_assert!(!name.contains('/') && name != ".." && !name.contains(char::is_control));
        }
    }
}

/// This machine's kernel: this process holds a tap of two queues, a port of a bridge with one end of a veth.
#[test]
fn a_real_tap_on_a_real_bridge() {
    // A thread of its own: it gives up its network.
    let done = std::thread::spawn(real::look).join().unwrap();
    let (network, networks) = match done {
        Ok(found) => found,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let link = &network.links[0];
    assert_eq!((&*link.name, link.queues, link.here), ("tapx", 2, true));
    assert_eq!(
        (link.bridge.as_deref(), &*link.uplinks),
        (Some("brx"), &["vethx".to_string()][..])
    );
    assert_eq!((networks.users["tapx"], networks.users["vethx"]), (1, 1));
    let queues = &networks.devices["tapx"].queues;
    assert!(
        queues.iter().any(|q| q.name == "rx-1" && q.mask.is_some()),
        "{queues:?}"
    );
    assert!(networks.devices["vethx"].irqs.is_empty() && !networks.devices["vethx"].physical);
}

/// A network namespace with what it takes.
mod real {
    use berth_host::model::{Manager, NameFrom, Proof, Snapshot, Vm, Vmm};
    use berth_host::network::{self, Network, Networks};
    use berth_host::root::Root;
    use std::ffi::CString;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::Command;
    use std::sync::Arc;

    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    const TAP_OF_SEVERAL: libc::c_short = 0x0002 | 0x1000 | 0x0100;

    fn c(path: &Path) -> CString {
        CString::new(path.to_str().unwrap()).unwrap()
    }

    fn or(what: &str, done: bool) -> Result<(), String> {
        let why = std::io::Error::last_os_error();
        done.then_some(()).ok_or(format!("{what}: {why}"))
    }

    /// A pair of queues of the tap.
    fn queue() -> Result<File, String> {
        let tun = File::options().read(true).write(true).open("/dev/net/tun");
        let tun = tun.map_err(|e| format!("/dev/net/tun: {e}"))?;
        let mut request = [0u8; 40];
        request[..4].copy_from_slice(b"tapx");
        request[16..18].copy_from_slice(&TAP_OF_SEVERAL.to_ne_bytes());
        // SAFETY: `struct ifreq` is 40 bytes, which outlive the call.
        let done = unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
        or("a tap", done == 0)?;
        Ok(tun)
    }

    pub fn look() -> Result<(Network, Networks), String> {
        let folder = tempfile::tempdir().unwrap();
        symlink("/proc", folder.path().join("proc")).unwrap();
        let sys = folder.path().join("sys");
        std::fs::create_dir(&sys).unwrap();
        let all = libc::CLONE_NEWNET | libc::CLONE_NEWNS;
        // SAFETY: of this thread alone, which ends with the test.
        or("a network namespace", unsafe { libc::unshare(all) } == 0)?;
        let (none, root, at) = (c(Path::new("sysfs")), c(Path::new("/")), c(&sys));
        let private = libc::MS_REC | libc::MS_PRIVATE;
        // SAFETY: C strings that outlive the calls.
        unsafe {
            let done = libc::mount(
                none.as_ptr(),
                root.as_ptr(),
                std::ptr::null(),
                private,
                std::ptr::null(),
            );
            or("private mounts", done == 0)?;
            let done = libc::mount(
                none.as_ptr(),
                at.as_ptr(),
                none.as_ptr(),
                0,
                std::ptr::null(),
            );
            or("sysfs", done == 0)?;
        }
        let _queues = [queue()?, queue()?];
        for line in [
            "link add brx type bridge",
            "link add vethx type veth peer name vethy",
            "link set tapx master brx",
            "link set vethx master brx",
        ] {
            let done = Command::new("ip").args(line.split(' ')).status();
            let done = done.map_err(|e| format!("ip: {e}"))?;
            if !done.success() {
                return Err(format!("ip {line}: {done}"));
            }
        }
        let pid = std::process::id() as i32;
        let vm = Vm {
            name: "this".into(),
            name_from: NameFrom::Process,
            vmm: Vmm::Unknown,
            manager: Manager::None,
            manager_id: None,
            proof: Proof::Looks,
            pid,
            start: 1,
            cgroup: "/".into(),
            vcpus: 1,
            threads: Vec::new(),
        };
        let vms = Snapshot {
            vms: vec![Arc::new(vm)],
            ..Snapshot::default()
        };
        let mut networks = network::of(&Root::at(folder.path()), &vms);
        let network = networks.vms.remove(&(pid, 1)).ok_or("it is not there")?;
        // SAFETY: as above.
        unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
        Ok((network, networks))
    }
}
