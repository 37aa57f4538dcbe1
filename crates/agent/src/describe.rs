// SPDX-License-Identifier: GPL-2.0-only
//! From what discovery found to what a policy should know: by what it knows the VM, the VM's share and class, its
//! threads' roles.
use crate::automatic::Guess;
use crate::members;
use crate::register::{Entry, ThreadKey, VmKey};
use crate::rules::Rules;
use berth_host::cgroup::{Share, Tree};
use berth_host::dir::Dir;
use berth_host::model::{Snapshot, Vm};
use berth_host::name;
use berth_host::root::Root;
use berth_identity::{Class, Role, ThreadRecord, VmId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Who else is in a VM's cgroup is looked at again so often, though nothing of the VM has changed.
const MEMBERS: Duration = Duration::from_secs(5);

/// Weight of a VM whose manager set none.
const USUAL_WEIGHT: u32 = 100;

/// Something of a VM that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Remark {
    pub vm: String,
    /// A clause: `its cgroup holds other processes too (4711)`.
    pub why: String,
}

impl Remark {
    /// The VM and why.
    pub fn pair(&self) -> (&str, &str) {
        (&self.vm, &self.why)
    }
}

/// What to tell a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// By name.
    pub entries: Vec<Entry>,
    /// VMs among the entries without a cgroup of their own: known by their process.
    pub by_process: Vec<Remark>,
    /// VMs that cannot be told to a policy: their threads count as the host's.
    pub left_out: Vec<Remark>,
}

/// Describes VMs; remembers what costs much to find out.
#[derive(Debug)]
pub struct Describer {
    root: Root,
    /// The cgroup of each VM, or why it has none of its own.
    homes: BTreeMap<VmKey, Home>,
}

#[derive(Clone, Debug)]
struct Home {
    /// The process's cgroup when it was looked at, and its threads then.
    seen: (String, usize),
    at: Instant,
    own: Result<Own, String>,
}

#[derive(Clone, Debug)]
struct Own {
    path: String,
    id: u64,
}

/// By what a policy knows a VM, and what it is entitled to.
struct Entitled {
    id: VmId,
    cgroup: Option<String>,
    weight: u32,
    cap_milli: Option<u32>,
}

impl Describer {
    pub fn new(root: Root) -> Describer {
        Describer {
            root,
            homes: BTreeMap::new(),
        }
    }

    /// Everything that a policy should know of these VMs. `guesses` are the classes of VMs of which the operator says
    /// nothing.
    pub fn describe(
        &mut self,
        vms: &Snapshot,
        rules: &Rules,
        guesses: &BTreeMap<VmKey, Guess>,
    ) -> Description {
        let alive: BTreeSet<VmKey> = vms.vms.iter().map(|vm| key(vm)).collect();
        self.homes.retain(|key, _| alive.contains(key));
        let mut users: BTreeMap<&str, usize> = BTreeMap::new();
        for vm in vms.vms.iter().filter(|vm| runs(vm)) {
            *users.entry(own_path(&vm.cgroup)).or_default() += 1;
        }
        let mut all = Description::default();
        let mut groups = Groups {
            tree: Tree::open(&self.root),
            shared: BTreeMap::new(),
        };
        for vm in &vms.vms {
            let shared = users.get(own_path(&vm.cgroup)).is_some_and(|n| *n > 1);
            let own = match shared {
                true => Err("it shares its cgroup with another VM".to_string()),
                false => self.home(vm),
            };
            let path = own.as_ref().ok().map(|own| own.path.clone());
            let share = own.and_then(|own| share(&groups, vm, &own));
            let remark = |why| Remark {
                vm: vm.name.clone(),
                why,
            };
            let share =
                share.map_err(|why| (self.by_process(&mut groups, vm, shared, path, &why), why));
            let share = match share {
                Ok(share) => share,
                Err((Ok(share), why)) => {
                    all.by_process.push(remark(why));
                    share
                }
                Err((Err(why), _)) => {
                    all.left_out.push(remark(why));
                    continue;
                }
            };
            let entry = entry(vm, share, rules, guesses.get(&key(vm)));
            all.entries.push(entry);
        }
        all
    }

    fn home(&mut self, vm: &Vm) -> Result<Own, String> {
        let (seen, now) = ((vm.cgroup.clone(), vm.threads.len()), self.root.now());
        if let Some(home) = self.homes.get(&key(vm))
            && home.seen == seen
            && now.saturating_duration_since(home.at) < MEMBERS
        {
            return home.own.clone();
        }
        let own = look(&self.root, vm);
        let home = Home {
            seen,
            at: now,
            own: own.clone(),
        };
        self.homes.insert(key(vm), home);
        own
    }

    /// A VM that has no cgroup of its own, which is `why`: its process stands for it. What its cgroup is entitled to is
    /// the VM's, as far as it is the only one in there: whoever else is (a pod's helpers, the shell it was started
    /// from) does little beside it. A cap `shared` with other VMs is each one's, as a common slice's is; the weight is
    /// not. `own`: a cgroup of its own all the same, without what a policy would need of it.
    fn by_process(
        &self,
        groups: &mut Groups,
        vm: &Vm,
        shared: bool,
        own: Option<String>,
        why: &str,
    ) -> Result<Entitled, String> {
        if self.root.is_live() && !members::in_first_namespace() {
            return Err(format!(
                "{why}, and processes have other numbers here than in the kernel: run Berth in the host's PID namespace"
            ));
        }
        if !runs(vm) {
            return Err(format!("{why}, and none of its threads is known as a vCPU"));
        }
        let path = own_path(&vm.cgroup);
        let (share, cap_milli) = match shared {
            true => groups.of_shared(vm, path),
            false => groups.of(vm, path),
        };
        let weight = share.weight.filter(|_| !shared);
        let weight = weight.and_then(|w| u32::try_from(w).ok());
        Ok(Entitled {
            id: VmId::Process {
                pid: vm.pid.unsigned_abs(),
                start: vm.start,
            },
            cgroup: own,
            weight: weight.unwrap_or(USUAL_WEIGHT),
            cap_milli,
        })
    }
}

/// The cgroups of one look.
struct Groups {
    tree: Option<Tree>,
    /// Share and cap of groups that several VMs share, by path and vCPUs.
    shared: BTreeMap<(String, u32), (Share, Option<u32>)>,
}

impl Groups {
    /// What a VM's group is entitled to, and the VM's cap.
    fn of(&self, vm: &Vm, path: &str) -> (Share, Option<u32>) {
        let Some(tree) = &self.tree else {
            return (Share::default(), None);
        };
        let share = tree.share(path);
        (share, cap(tree, vm.vcpus, path, &share))
    }

    fn of_shared(&mut self, vm: &Vm, path: &str) -> (Share, Option<u32>) {
        let place = (path.to_string(), vm.vcpus);
        if let Some(known) = self.shared.get(&place) {
            return *known;
        }
        let found = self.of(vm, path);
        self.shared.insert(place, found);
        found
    }
}

/// What the VM's own cgroup entitles it to.
fn share(groups: &Groups, vm: &Vm, own: &Own) -> Result<Entitled, String> {
    let (share, cap_milli) = groups.of(vm, &own.path);
    let Some(weight) = share.weight else {
        return Err(format!(
            "the `cpu` controller is not enabled for its cgroup {}",
            own.path
        ));
    };
    Ok(Entitled {
        id: VmId::Cgroup(own.id),
        cgroup: Some(own.path.clone()),
        weight: u32::try_from(weight).unwrap_or(USUAL_WEIGHT),
        cap_milli,
    })
}

/// A VM's cap, in thousandths of a CPU. libvirt's `vcpu_quota` caps each vCPU's cgroup: together they cap the VM, as
/// does the folder that they are in.
fn cap(tree: &Tree, vcpus: u32, path: &str, share: &Share) -> Option<u32> {
    let together = |folder: &str| {
        let each = |index: u32| tree.cap(&format!("{path}/{folder}vcpu{index}"));
        let caps: Option<Vec<f64>> = (0..vcpus).map(each).collect();
        let caps = caps.filter(|caps| !caps.is_empty())?;
        Some(caps.iter().sum::<f64>())
    };
    let inside = ["libvirt/", ""].into_iter().find_map(together);
    let folder = tree.cap(&format!("{path}/libvirt"));
    let caps = [share.cap, inside, folder].into_iter().flatten();
    // A policy's zero is no cap.
    caps.min_by(f64::total_cmp)
        .map(|cpus| (cpus * 1000.0).round().clamp(1.0, 4e9) as u32)
}

/// What a policy should know of a VM.
fn entry(vm: &Vm, share: Entitled, rules: &Rules, guess: Option<&Guess>) -> Entry {
    let (named, told) = (rules.names(&vm.name), rules.class(&vm.name));
    let (class, io_vcpus) = match (named, told, guess) {
        (true, Some(Class::Mixed), _) => {
            let vcpus = vm.threads.iter().filter_map(|t| Some(t.role.vcpu()? + 1));
            // Also those whose threads are not known yet.
            let vcpus = vcpus.max().unwrap_or(0).max(vm.vcpus);
            let last = vcpus.saturating_sub(rules.io_vcpus(&vm.name))..vcpus;
            (Class::Mixed, last.collect())
        }
        (true, Some(class), _) => (class, BTreeSet::new()),
        (true, None, Some(guess)) => (guess.class, guess.io_vcpus.clone()),
        (true, None, None) => (Class::Batch, BTreeSet::new()),
        (false, ..) => (Class::None, BTreeSet::new()),
    };
    let threads = vm.threads.iter().map(|t| {
        let key = ThreadKey {
            tid: t.id.tid,
            start: t.id.start,
        };
        let score_milli = t.role.vcpu().and_then(|v| rules.score_milli(&vm.name, v));
        let record = ThreadRecord {
            score_milli,
            ..record(t.role, &io_vcpus)
        };
        (key, record)
    });
    Entry {
        key: key(vm),
        name: vm.name.clone(),
        id: share.id,
        class,
        weight: share.weight,
        cap_milli: share.cap_milli,
        node: None,
        cgroup: share.cgroup,
        vcpus: vm.vcpus,
        threads: threads.collect(),
    }
}

/// Whether a thread is known as its vCPU. Somebody who makes VMs for others holds them, too, for a moment.
fn runs(vm: &Vm) -> bool {
    vm.threads.iter().any(|t| t.role.vcpu().is_some())
}

fn key(vm: &Vm) -> VmKey {
    VmKey {
        pid: vm.pid,
        start: vm.start,
    }
}

fn record(role: Role, io_vcpus: &BTreeSet<u32>) -> ThreadRecord {
    let io = role.vcpu().is_some_and(|index| io_vcpus.contains(&index));
    ThreadRecord {
        role,
        io,
        score_milli: None,
    }
}

/// The cgroup of the whole VM, from that of its main thread.
fn own_path(cgroup: &str) -> &str {
    if let Some(scope) = name::scope(cgroup) {
        return scope;
    }
    let cgroup = cgroup.strip_suffix("/emulator").unwrap_or(cgroup);
    cgroup.strip_suffix("/libvirt").unwrap_or(cgroup)
}

/// Where the cgroups with the `cpu` controller are mounted.
fn mounted(root: &Root) -> Option<Dir> {
    let sys = root.sys().ok()?;
    ["fs/cgroup/cpu", "fs/cgroup/cpu,cpuacct", "fs/cgroup"]
        .iter()
        .find_map(|folder| sys.dir(folder).ok())
}

/// Finds the VM's own cgroup, and makes sure that it is its own.
fn look(root: &Root, vm: &Vm) -> Result<Own, String> {
    let path = own_path(&vm.cgroup).to_string();
    let below = path.trim_matches('/');
    if below.is_empty() {
        return Err("it has no cgroup of its own".into());
    }
    if below.split('/').any(|part| part == "..") {
        return Err(format!(
            "its cgroup {path} is outside of what can be seen from here"
        ));
    }
    let unreadable = |e: std::io::Error| format!("its cgroup {path} cannot be read: {e}");
    let mount = mounted(root).ok_or("there are no cgroups with the `cpu` controller here")?;
    let folder = mount.dir(below).map_err(unreadable)?;
    let id = folder.inode().map_err(unreadable)?;
    members::of(root, &folder, vm).map_err(|why| format!("its cgroup {path} {why}"))?;
    Ok(Own { path, id })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rule;
    use berth_host::discover::Scanner;
    use berth_host::fixture::Fixture;

    fn host(text: &str, rules: &Rules) -> Description {
        let folder = tempfile::tempdir().unwrap();
        Fixture::parse(text).unwrap().unpack(folder.path()).unwrap();
        let root = Root::at(folder.path());
        let vms = Scanner::new(root.clone()).scan().unwrap();
        Describer::new(root).describe(&vms, rules, &BTreeMap::new())
    }

    const VM: &str = "process 5 lkvm\nargs lkvm run --name web-1\ncgroup 0::/vms/web-1\n\
        fd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\nfd 5 anon_inode:kvm-vcpu:1\n\
        thread 6 kvm-vcpu-0\nthread 7 kvm-vcpu-1\n";

    #[test]
    fn share_class_and_roles() {
        let rules = Rules {
            only: Vec::new(),
            vms: vec![Rule {
                name: "web*".into(),
                class: Some("mixed".into()),
                io_vcpus: 1,
            }],
            ..Rules::default()
        };
        let text = format!(
            "{VM}file sys/fs/cgroup/vms/web-1/cpu.weight 250\n\
             file sys/fs/cgroup/vms/web-1/cpu.max \"150000 100000\"\n\
             file sys/fs/cgroup/vms/web-1/cgroup.procs \"5\\n\"\n"
        );
        let found = host(&text, &rules);
        assert_eq!(found.left_out, []);
        let [vm] = found.entries.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(
            (vm.class, vm.weight, vm.cap_milli),
            (Class::Mixed, 250, Some(1500))
        );
        assert_eq!(vm.vcpus, 2);
        assert!(matches!(vm.id, VmId::Cgroup(_)));
        let of = |tid: i32| {
            let (_, r) = vm.threads.iter().find(|(k, _)| k.tid == tid).unwrap();
            (r.role, r.io)
        };
        assert_eq!(of(6), (Role::Vcpu(0), false));
        assert_eq!(of(7), (Role::Vcpu(1), true));
        assert_eq!(of(5).0, Role::Emulator);
        // Not among those named: no privilege.
        let others = Rules {
            only: vec!["db*".into()],
            ..rules
        };
        assert_eq!(host(&text, &others).entries[0].class, Class::None);
    }

    #[test]
    fn a_vm_without_a_cgroup_of_its_own_is_known_by_its_process() {
        let known = |text: &str, weight: u32, cap: Option<u32>| {
            let found = host(text, &Rules::default());
            assert_eq!(found.left_out, [], "{text}");
            let vm = found.entries.iter().find(|e| e.key.pid == 5).unwrap();
            assert_eq!((vm.weight, vm.cap_milli), (weight, cap), "{text}");
            let VmId::Process { pid: 5, start } = vm.id else {
                panic!("{:?}", vm.id)
            };
            assert_eq!(start, vm.key.start);
            found.by_process[0].why.clone()
        };
        let why = |text: &str| known(text, 100, None);
        assert!(why(VM).contains("no cgroups"));
        // A pod: what it is entitled to is its VM's.
        let pod = "file sys/fs/cgroup/vms/web-1/cpu.weight 300\nfile sys/fs/cgroup/vms/cpu.max \"150000 100000\"\n\
             file sys/fs/cgroup/vms/web-1/cgroup.procs \"5\\n9\\n\"\n";
        let helper = format!("process 9 bash\ncgroup 0::/vms/web-1\n{pod}");
        assert!(
            known(&format!("{VM}{helper}"), 300, Some(1500)).contains("other processes too (9)")
        );
        // One that only asks what the kernel has is no second VM.
        let asks = "process 8 qemu\ncgroup 0::/vms/web-1\nfd 3 anon_inode:kvm-vm\n";
        let found = host(&format!("{VM}{asks}{pod}"), &Rules::default());
        let weights: Vec<_> = found
            .entries
            .iter()
            .map(|e| (e.key.pid, e.weight))
            .collect();
        assert_eq!(weights, [(5, 300)]);
        let plain = format!("{VM}file sys/fs/cgroup/vms/web-1/cgroup.procs \"5\\n\"\n");
        assert!(why(&plain).contains("`cpu` controller is not enabled"));
        let two = format!(
            "{VM}{}",
            VM.replace("process 5", "process 15")
                .replace("thread ", "thread 1")
        );
        assert!(why(&two).contains("shares its cgroup"));
        // Of two, the cap is each one's, and the weight nobody's.
        known(&format!("{two}{pod}"), 100, Some(1500));
        assert!(why(&VM.replace("/vms/web-1", "/")).contains("no cgroup of its own"));
    }

    /// Whoever makes VMs for others holds one for a moment.
    #[test]
    fn a_process_without_vcpus_is_left_out_and_named() {
        let maker = "process 5 maker\ncgroup 0::/\nfd 3 anon_inode:kvm-vm\n";
        let found = host(maker, &Rules::default());
        assert_eq!((found.entries.len(), found.by_process.len()), (0, 0));
        assert!(
            found.left_out[0]
                .why
                .contains("none of its threads is known as a vCPU")
        );
    }

    #[test]
    fn a_thread_that_came_after_the_scan_is_no_stranger() {
        let groups = "file sys/fs/cgroup/vms/web-1/cpu.weight 100\n\
            file sys/fs/cgroup/vms/web-1/cgroup.threads \"5\\n6\\n7\\n8\\n\"\n";
        let status = |process: i32| format!("file proc/8/status \"Tgid: {process}\\n\"\n");
        let found = |process| {
            host(
                &format!("{VM}{groups}{}", status(process)),
                &Rules::default(),
            )
        };
        assert_eq!(found(5).left_out, []);
        assert_eq!(found(5).entries.len(), 1);
        assert!(found(8).by_process[0].why.contains("processes too (8)"));
        // Nobody's number: on a recorded host it may be a stranger of another namespace.
        let nobody = groups.replace("8\\n", "0\\n");
        let with_nobody = host(&format!("{VM}{nobody}"), &Rules::default());
        let why = &with_nobody.by_process[0].why;
        assert!(why.contains("processes too (0)"));
    }

    /// Nothing of the VM changes when somebody else comes into its cgroup, or into one below it.
    #[test]
    fn who_comes_into_a_vms_cgroup_later_is_seen() {
        use berth_host::time::Played;
        use std::sync::Arc;
        let group = "file sys/fs/cgroup/vms/web-1/cpu.weight 100\n\
                     file sys/fs/cgroup/vms/web-1/cgroup.procs \"5\\n\"\n";
        for place in ["vms/web-1", "vms/web-1/below"] {
            let folder = tempfile::tempdir().unwrap();
            let text = format!("{VM}{group}");
            Fixture::parse(&text)
                .unwrap()
                .unpack(folder.path())
                .unwrap();
            let root = Root::at(folder.path()).with_time(Arc::new(Played::new(|_| {})));
            let vms = Scanner::new(root.clone()).scan().unwrap();
            let mut describer = Describer::new(root.clone());
            let mut look = || describer.describe(&vms, &Rules::default(), &BTreeMap::new());
            assert_eq!(look().by_process, []);
            let place = folder.path().join("sys/fs/cgroup").join(place);
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("cgroup.procs"), "5\n77\n").unwrap();
            root.sleep(MEMBERS);
            let why = look().by_process.pop().unwrap().why;
            assert!(why.contains("other processes too (77)"), "{why}");
            std::fs::write(place.join("cgroup.procs"), "5\n").unwrap();
            root.sleep(MEMBERS);
            assert_eq!(look().by_process, []);
        }
    }

    #[test]
    fn the_cgroup_of_the_whole_vm() {
        let scope = r"/machine.slice/machine-qemu\x2d1\x2da.scope";
        assert_eq!(own_path(&format!("{scope}/libvirt/emulator")), scope);
        assert_eq!(
            own_path("/machine/qemu-1-a.libvirt-qemu/emulator"),
            "/machine/qemu-1-a.libvirt-qemu"
        );
        assert_eq!(own_path("/qemu.slice/100.scope"), "/qemu.slice/100.scope");
        assert_eq!(own_path("/x/libvirt/emulator"), "/x");
        assert_eq!(own_path("/x/y"), "/x/y");
    }
}
