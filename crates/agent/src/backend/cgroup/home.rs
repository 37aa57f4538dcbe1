// SPDX-License-Identifier: GPL-2.0-only
//! Where a VM's CPU set, weight and cap are set: files of its own cgroup, in both versions of cgroups, what systemd is
//! asked for where the cgroup is its own, or the affinity of the VM's threads.
use super::freezer::Freeze;
use crate::members::{self, Inside};
use berth_actuator::Knob;
use berth_actuator::systemd::Systemd;
use berth_actuator::unit::{self, Property};
use berth_host::cgroup::Version;
use berth_host::model::Vm;
use berth_host::root::Root;

/// Period of caps that are set, µs.
const PERIOD_US: u64 = 100_000;
/// The least cap the kernel takes, µs of a period.
const LEAST_US: u64 = 1_000;
/// systemd keeps caps in whole hundredths of a CPU, µs of a second.
const HUNDREDTH_US: u64 = 10_000;

/// Of one VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its CPU set; none: its threads are bound one by one.
    pub set: Option<Knob>,
    /// Weight and cap; none, and why.
    pub shares: Result<Shares, String>,
    /// By which it is frozen; none, and why.
    pub freeze: Result<Freeze, String>,
    /// Some group of its name is not used since others are in it, or the VM is not: that may change.
    pub crowded: bool,
}

impl Home {
    /// Of a VM that has none.
    fn nowhere(why: String) -> Home {
        Home {
            set: None,
            freeze: Err(why.clone()),
            shares: Err(why),
            crowded: false,
        }
    }

    /// All that may be set of its groups.
    pub fn knobs(&self) -> Vec<Knob> {
        let shares = self.shares.as_ref().ok();
        let shares = shares
            .into_iter()
            .flat_map(|s| [s.weight(100).0, s.cap(1.0, None).0]);
        let freeze = self.freeze.iter().map(|f| f.knob().clone());
        self.set
            .iter()
            .cloned()
            .chain(shares)
            .chain(freeze)
            .collect()
    }

    /// What to write for these CPUs into its CPU set.
    pub fn cpus(&self, list: &str) -> String {
        match self.set {
            Some(Knob::Unit { .. }) => unit::at_runtime(list),
            _ => list.into(),
        }
    }
}

/// Weight and cap of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shares {
    V2 {
        group: String,
    },
    V1 {
        group: String,
    },
    /// systemd's.
    Unit {
        unit: String,
    },
}

impl Shares {
    /// Whether this is where its weight or cap stands.
    pub fn has(&self, knob: &Knob) -> bool {
        [self.weight(100).0, self.cap(1.0, None).0].contains(knob)
    }

    /// The file of the weight, and what to write for `weight` of `cpu.weight`'s scale.
    pub fn weight(&self, weight: u32) -> (Knob, String) {
        match self {
            Shares::V2 { group } => (file(group, "cpu.weight"), weight.to_string()),
            // 1024 is to `cpu.shares` what 100 is to `cpu.weight`.
            Shares::V1 { group } => {
                let shares = (u64::from(weight) * 1024 / 100).clamp(2, 262_144);
                (file(group, "cpu.shares"), shares.to_string())
            }
            Shares::Unit { unit } => (
                property(unit, Property::Weight),
                unit::at_runtime(&weight.to_string()),
            ),
        }
    }

    /// What a value of the weight's file is on `cpu.weight`'s scale.
    pub fn weight_of(&self, value: &str) -> Option<u32> {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let weight = match self {
            Shares::V2 { .. } => number(value)?,
            Shares::V1 { .. } => number(value)?.saturating_mul(100) / 1024,
            Shares::Unit { .. } if unit::plain(value) == unit::UNSET => 100,
            Shares::Unit { .. } => number(unit::plain(value))?,
        };
        u32::try_from(weight.clamp(1, 10_000)).ok()
    }

    /// The file of the cap, and what to write for so many CPUs; `own`: what was in it before, which stays a cap.
    pub fn cap(&self, cpus: f64, own: Option<&str>) -> (Knob, String) {
        let quota = ((cpus * PERIOD_US as f64) as u64).max(LEAST_US);
        match self {
            Shares::V2 { group } => {
                let own = own.and_then(|text| text.split_once(' '));
                let own =
                    own.and_then(|(q, p)| Some((q.parse::<f64>().ok()?, p.parse::<f64>().ok()?)));
                let own = own
                    .filter(|(_, p)| *p > 0.0)
                    .map(|(q, p)| (q / p * PERIOD_US as f64) as u64);
                let quota = own.map_or(quota, |own| own.min(quota).max(LEAST_US));
                (file(group, "cpu.max"), format!("{quota} {PERIOD_US}"))
            }
            // Its period stays what it is: the kernel's default, unless somebody changed it.
            Shares::V1 { group } => {
                let own = own
                    .and_then(|text| text.trim().parse::<i64>().ok())
                    .filter(|q| *q > 0);
                let quota = own.map_or(quota, |own| quota.min(own.unsigned_abs()).max(LEAST_US));
                (file(group, "cpu.cfs_quota_us"), quota.to_string())
            }
            Shares::Unit { unit } => {
                let own = own.and_then(|text| unit::plain(text).parse::<u64>().ok());
                let quota = (cpus * 1e6) as u64 / HUNDREDTH_US * HUNDREDTH_US;
                let quota = own.map_or(quota, |own| own.min(quota)).max(HUNDREDTH_US);
                (
                    property(unit, Property::Quota),
                    unit::at_runtime(&quota.to_string()),
                )
            }
        }
    }
}

fn file(group: &str, file: &str) -> Knob {
    Knob::Group {
        group: group.into(),
        file: file.into(),
    }
}

fn property(unit: &str, property: Property) -> Knob {
    Knob::Unit {
        unit: unit.into(),
        property,
    }
}

/// Whose a cgroup is.
#[derive(Debug, PartialEq, Eq)]
enum Owner<'a> {
    /// Of whoever made it: its files may be written.
    Files,
    /// This unit of systemd's.
    Systemd(&'a str),
    /// A unit of a systemd that is not process 1, but a user's.
    User,
}

/// By the names of the cgroups on the way: what is below a unit systemd has left to whoever runs in it.
fn owner(path: &str) -> Owner<'_> {
    let mut parts = path.split('/').filter(|p| !p.is_empty());
    if path
        .split('/')
        .any(|p| p.starts_with("user@") && p.ends_with(".service"))
    {
        return Owner::User;
    }
    match parts.next_back().and_then(unit::of_part) {
        Some(unit) => Owner::Systemd(unit),
        None => Owner::Files,
    }
}

/// Where cgroups are, and who else manages them.
#[derive(Debug)]
pub struct Groups {
    root: Root,
    version: Version,
    /// systemd is process 1: what it made is only its to set.
    systemd: Option<Systemd>,
}

impl Groups {
    pub fn of(root: &Root) -> Groups {
        Groups {
            version: berth_host::cgroup::version(root),
            // As systemd's own sd_booted() asks.
            systemd: (root.is_live() && std::path::Path::new("/run/systemd/system").is_dir())
                .then(Systemd::new),
            root: root.clone(),
        }
    }

    /// The home of a VM whose own cgroup this is. A group that anybody else is in is none, nor one below which somebody
    /// is: what is set there is set for all of them.
    pub fn home(&self, own: Option<&str>, vm: &Vm) -> Home {
        let Some(path) = own else {
            return Home::nowhere("it has no cgroup of its own with the `cpu` controller".into());
        };
        let below = path.trim_matches('/');
        let Some(systemd) = &self.systemd else {
            return self.by_files(below, vm);
        };
        match owner(below) {
            Owner::Files => self.by_files(below, vm),
            Owner::User => Home::nowhere(format!(
                "its cgroup {path} is of a user's systemd: only its threads are bound"
            )),
            Owner::Systemd(unit) => match systemd.answers() {
                Ok(()) => self.by_unit(below, unit, vm),
                Err(why) => Home::nowhere(format!(
                    "its cgroup {path} is systemd's: only its threads are bound, since {why}"
                )),
            },
        }
    }

    /// Whether a VM still has the groups of its home for itself.
    pub fn are_its_own(&self, home: &Home, vm: &Vm) -> bool {
        home.knobs().iter().all(|knob| match knob {
            Knob::Group { group, .. } => self.has_alone(group, vm).is_ok(),
            // Looked at when it was found ([`crate::describe`]).
            _ => true,
        })
    }

    /// That nobody but the VM is in a group.
    fn has_alone(&self, group: &str, vm: &Vm) -> Result<(), String> {
        let unseen = |e: std::io::Error| format!("its cgroup {group} cannot be read: {e}");
        let folder = self
            .root
            .sys()
            .and_then(|sys| sys.dir(&format!("fs/cgroup/{group}")));
        match members::of(&self.root, &folder.map_err(unseen)?, vm) {
            Err(why) => Err(format!("its cgroup {group} {why}")),
            Ok(Inside::Nobody) => Err(format!("it is not in the cgroup {group}")),
            Ok(Inside::Unknown) if self.root.is_live() => {
                Err(format!("who is in its cgroup {group} is not told"))
            }
            Ok(Inside::Vm | Inside::Unknown) => Ok(()),
        }
    }

    fn by_unit(&self, below: &str, unit: &str, vm: &Vm) -> Home {
        let (set, freeze) = match self.version {
            // Not told, systemd would not know; libvirt's group in it is libvirt's, which freezes nobody.
            Version::V2 => (
                Ok(Some(property(unit, Property::Cpus))),
                self.freezer(&format!("{below}/libvirt"), vm),
            ),
            // systemd sets no CPU sets there: they are whoever's has made them.
            _ => (self.old_set(below, vm), self.freezer(below, vm)),
        };
        Home {
            crowded: set.is_err() || freeze.1,
            set: set.unwrap_or(None),
            shares: Ok(Shares::Unit { unit: unit.into() }),
            freeze: freeze.0,
        }
    }

    /// By which a group is frozen; and whether it is not since others are in it.
    fn freezer(&self, below: &str, vm: &Vm) -> (Result<Freeze, String>, bool) {
        let (group, name) = match self.version {
            Version::V2 => (below.to_string(), "cgroup.freeze"),
            _ => (format!("freezer/{below}"), "freezer.state"),
        };
        if !self.exists(&format!("{group}/{name}")) {
            let why = "it has no cgroup of its own that can be, or it is systemd's";
            return (Err(why.into()), false);
        }
        if let Err(why) = self.has_alone(&group, vm) {
            return (Err(why), true);
        }
        let knob = file(&group, name);
        let freeze = match self.version {
            Version::V2 => Freeze::V2(knob),
            _ => Freeze::V1(knob),
        };
        (Ok(freeze), false)
    }

    fn exists(&self, name: &str) -> bool {
        self.root.sys_text(&format!("fs/cgroup/{name}")).is_some()
    }

    /// The CPU set of version 1. One without memory takes no thread, and one that holds others cannot be smaller than
    /// they are: there it is the threads that are bound, as where others are in it, which is an error.
    fn old_set(&self, below: &str, vm: &Vm) -> Result<Option<Knob>, String> {
        match self.old_set_at(below) {
            Some(group) => {
                self.has_alone(&group, vm)?;
                Ok(Some(file(&group, "cpuset.cpus")))
            }
            None => Ok(None),
        }
    }

    fn old_set_at(&self, below: &str) -> Option<String> {
        let group = format!("cpuset/{below}");
        let text = |file: &str| self.root.sys_text(&format!("fs/cgroup/{group}/{file}"));
        let has_memory = text("cpuset.mems").is_some_and(|mems| !mems.trim().is_empty());
        let sys = self.root.sys().ok()?;
        let folder = sys.dir(&format!("fs/cgroup/{group}")).ok()?;
        let mut names = Vec::new();
        let all = folder.list(|name, _| names.push(String::from_utf8_lossy(name).into_owned()));
        let holds = |name: &String| self.exists(&format!("{group}/{name}/cpuset.cpus"));
        let parent = all.is_err() || names.iter().any(holds);
        (text("cpuset.cpus").is_some() && has_memory && !parent).then_some(group)
    }

    /// Where on the way to a cgroup of version 2 the `cpu` controller is not passed on.
    fn lacks(&self, below: &str) -> String {
        let mut above = String::new();
        for part in below.split('/') {
            let text = self
                .root
                .sys_text(&format!("fs/cgroup{above}/cgroup.subtree_control"));
            if !text.is_some_and(|t| t.split_whitespace().any(|c| c == "cpu")) {
                return format!(
                    "its cgroup /{below} has no cpu.weight: `cpu` is not enabled in \
                     /sys/fs/cgroup{above}/cgroup.subtree_control"
                );
            }
            above = format!("{above}/{part}");
        }
        format!("its cgroup /{below} has no cpu.weight")
    }

    fn by_files(&self, below: &str, vm: &Vm) -> Home {
        match self.version {
            Version::V2 => {
                // One group for all of it.
                if let Err(why) = self.has_alone(below, vm) {
                    return Home {
                        crowded: true,
                        ..Home::nowhere(why)
                    };
                }
                Home {
                    set: self
                        .exists(&format!("{below}/cpuset.cpus"))
                        .then(|| file(below, "cpuset.cpus")),
                    shares: match self.exists(&format!("{below}/cpu.weight")) {
                        true => Ok(Shares::V2 {
                            group: below.into(),
                        }),
                        false => Err(self.lacks(below)),
                    },
                    freeze: self.freezer(below, vm).0,
                    crowded: false,
                }
            }
            Version::V1 | Version::Hybrid => {
                // The same group of each controller, as far as the VM has it for itself there.
                let there = |n: &&&str| self.exists(&format!("{n}/{below}/cpu.shares"));
                let group = ["cpu,cpuacct", "cpu"]
                    .iter()
                    .find(there)
                    .map(|n| format!("{n}/{below}"));
                let set = self.old_set(below, vm);
                let (freeze, others) = self.freezer(below, vm);
                let alone = group.as_ref().map(|group| self.has_alone(group, vm));
                let crowded = |e: &Option<Result<(), String>>| matches!(e, Some(Err(_)));
                Home {
                    crowded: set.is_err() || others || crowded(&alone),
                    set: set.unwrap_or(None),
                    shares: match (group, alone) {
                        (Some(_), Some(Err(why))) => Err(why),
                        (Some(group), _) => Ok(Shares::V1 { group }),
                        (None, _) => Err(format!("its cgroup /{below} has no cpu.shares")),
                    },
                    freeze,
                }
            }
            Version::None => Home::nowhere("no cgroups are mounted at /sys/fs/cgroup".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::discover::Scanner;
    use berth_host::fixture::Fixture;
    use std::sync::Arc;

    /// Groups of a host on which process 5 is a VM.
    struct Host {
        _folder: tempfile::TempDir,
        groups: Groups,
        vm: Arc<Vm>,
    }

    impl Host {
        fn home(&self, own: Option<&str>) -> Home {
            self.groups.home(own, &self.vm)
        }
    }

    fn host(text: &str) -> Host {
        let folder = tempfile::tempdir().unwrap();
        let vm = "process 5 lkvm start=3\nargs lkvm run --name v\nfd 3 anon_inode:kvm-vm\n\
                  fd 4 anon_inode:kvm-vcpu:0\nthread 6 v run=4\n";
        let text = format!("{text}{vm}");
        Fixture::parse(&text)
            .unwrap()
            .unpack(folder.path())
            .unwrap();
        let root = Root::at(folder.path());
        let vms = Scanner::new(root.clone()).scan().unwrap();
        Host {
            groups: Groups::of(&root),
            vm: vms.vms[0].clone(),
            _folder: folder,
        }
    }

    const V2: &str = "process 1 i\nfile proc/1/mountinfo \"30 24 0:26 / /x rw - cgroup2 n rw\\n\"\n\
                      file sys/fs/cgroup/a/vm/cpu.weight 100\nfile sys/fs/cgroup/a/vm/cpuset.cpus \"\"\n\
                      file sys/fs/cgroup/a/other/cpu.weight 100\n";
    const V1: &str = "process 1 i\nfile proc/1/mountinfo \"30 24 0:26 / /x rw - cgroup n rw,cpu\\n\"\n\
                      file sys/fs/cgroup/cpu/a/vm/cpu.shares 1024\nfile sys/fs/cgroup/cpuset/a/vm/cpuset.cpus 0-3\n\
                      file sys/fs/cgroup/cpuset/a/vm/cpuset.mems 0\n";

    #[test]
    fn files_of_both_versions() {
        let new = host(V2);
        let home = new.home(Some("/a/vm"));
        assert_eq!(home.set, Some(file("a/vm", "cpuset.cpus")));
        let shares = home.shares.unwrap();
        assert_eq!(
            shares.weight(250),
            (file("a/vm", "cpu.weight"), "250".into())
        );
        assert_eq!(shares.cap(1.5, Some("max 100000")).1, "150000 100000");
        // What was capped stays capped.
        assert_eq!(shares.cap(1.5, Some("50000 50000")).1, "100000 100000");
        assert_eq!(shares.cap(0.0, None).1, "1000 100000");
        assert_eq!(new.home(Some("/a/other")).set, None);
        assert!(new.home(None).shares.is_err());
        let old = host(V1);
        let home = old.home(Some("/a/vm"));
        assert_eq!(home.set, Some(file("cpuset/a/vm", "cpuset.cpus")));
        let shares = home.shares.unwrap();
        assert_eq!(
            shares.weight(250),
            (file("cpu/a/vm", "cpu.shares"), "2560".into())
        );
        assert_eq!(shares.weight_of("2560"), Some(250));
        assert_eq!(shares.cap(1.5, Some("-1")).1, "150000");
        assert_eq!(shares.cap(1.5, Some("120000")).1, "120000");
        assert!(
            old.home(Some("/gone"))
                .shares
                .unwrap_err()
                .contains("cpu.shares")
        );
    }

    #[test]
    fn what_freezes_a_vm() {
        let new = host(&format!("{V2}file sys/fs/cgroup/a/vm/cgroup.freeze 0\n"));
        let home = new.home(Some("/a/vm"));
        assert_eq!(home.freeze, Ok(Freeze::V2(file("a/vm", "cgroup.freeze"))));
        assert!(new.home(Some("/a/other")).freeze.is_err());
        let old = host(&format!(
            "{V1}file sys/fs/cgroup/freezer/a/vm/freezer.state THAWED\n"
        ));
        let home = old.home(Some("/a/vm"));
        assert_eq!(
            home.freeze,
            Ok(Freeze::V1(file("freezer/a/vm", "freezer.state")))
        );
    }

    /// Whoever else is in a group, or below it, would be capped, bound and frozen, too.
    #[test]
    fn a_group_that_holds_a_stranger_is_nobodys_home() {
        let procs = |group: &str, pids: &str| {
            format!("file sys/fs/cgroup/{group}/cgroup.procs \"{pids}\"\n")
        };
        let (vm, both) = ("5\\n", "5\\n77\\n");
        let freeze = "file sys/fs/cgroup/a/vm/cgroup.freeze 0\n";
        for (files, own) in [
            (procs("a/vm", vm), true),
            (procs("a/vm", both), false),
            (procs("a/vm", vm) + &procs("a/vm/below", "77\\n"), false),
            (procs("a/vm", "77\\n"), false),
            // It is elsewhere.
            (procs("a/vm", ""), false),
        ] {
            let host = host(&format!("{V2}{freeze}{files}"));
            let home = host.home(Some("/a/vm"));
            assert_eq!(home.knobs().len(), if own { 4 } else { 0 }, "{files}");
            assert_eq!(home.crowded, !own, "{files}");
            let before = host.home(Some("/a/other"));
            assert!(host.groups.are_its_own(&before, &host.vm));
            // As it was found before he came.
            let known = super::Home {
                set: Some(file("a/vm", "cpuset.cpus")),
                ..home
            };
            assert_eq!(host.groups.are_its_own(&known, &host.vm), own, "{files}");
        }
        // Version 1: each controller has a group of that name, with others in it.
        let freezer = "file sys/fs/cgroup/freezer/a/vm/freezer.state THAWED\n";
        let all = ["cpu/a/vm", "cpuset/a/vm", "freezer/a/vm"];
        for stranger in all {
            let files: String = all
                .iter()
                .map(|g| procs(g, if *g == stranger { both } else { vm }))
                .collect();
            let home = host(&format!("{V1}{freezer}{files}")).home(Some("/a/vm"));
            let there = [home.shares.is_ok(), home.set.is_some(), home.freeze.is_ok()];
            assert_eq!(there, all.map(|g| g != stranger), "{stranger}: {home:?}");
            assert!(home.crowded);
        }
        // A freezer's group of that name, and the VM is in another one.
        let elsewhere = procs("cpu/a/vm", vm) + &procs("freezer/a/vm", "");
        let home = host(&format!("{V1}{freezer}{elsewhere}")).home(Some("/a/vm"));
        let why = home.freeze.unwrap_err();
        assert!(
            why.contains("it is not in the cgroup freezer/a/vm"),
            "{why}"
        );
    }

    #[test]
    fn a_set_of_version_1_without_memory_or_with_others_below_is_left_alone() {
        let old = host(&V1.replace("cpuset.mems 0", "cpuset.mems \"\""));
        let home = old.home(Some("/a/vm"));
        assert!(home.set.is_none() && home.shares.is_ok());
        let below = "file sys/fs/cgroup/cpuset/a/vm/vcpu0/cpuset.cpus 0-3\n";
        let old = host(&format!("{V1}{below}"));
        assert!(old.home(Some("/a/vm")).set.is_none());
    }

    #[test]
    fn a_controller_that_is_not_passed_on_is_said_with_the_place() {
        let at = |file: &str, text: &str| {
            format!("file sys/fs/cgroup/{file}cgroup.subtree_control \"{text}\"\n")
        };
        let base = "process 1 i\nfile proc/1/mountinfo \"30 24 0:26 / /x rw - cgroup2 n rw\\n\"\n\
                    file sys/fs/cgroup/a/vm/cgroup.procs \"5\\n\"\n";
        let why = |more: &str| {
            let home = host(&format!("{base}{more}")).home(Some("/a/vm"));
            assert_eq!(home.set, None);
            home.shares.unwrap_err()
        };
        let root = why(&at("", "cpuset memory"));
        assert!(
            root.ends_with("in /sys/fs/cgroup/cgroup.subtree_control"),
            "{root}"
        );
        let parent = why(&(at("", "cpuset cpu") + &at("a/", "cpuset")));
        assert!(
            parent.ends_with("in /sys/fs/cgroup/a/cgroup.subtree_control"),
            "{parent}"
        );
    }

    #[test]
    fn whose_a_cgroup_is() {
        for (path, whose) in [
            ("machine/vm1", Owner::Files),
            ("kubepods/pod1/ctr", Owner::Files),
            ("qemu.slice/100.scope", Owner::Systemd("100.scope")),
            (
                "machine.slice/machine-qemu\\x2d1\\x2dweb.scope",
                Owner::Systemd("machine-qemu\\x2d1\\x2dweb.scope"),
            ),
            ("system.slice/vm@1.service", Owner::Systemd("vm@1.service")),
            // Left to whoever runs in the unit.
            ("system.slice/vmm.service/vm1", Owner::Files),
            (
                "user.slice/user-1.slice/user@1.service/app.slice/vm.scope",
                Owner::User,
            ),
            (
                "user.slice/user-1.slice/session-2.scope",
                Owner::Systemd("session-2.scope"),
            ),
        ] {
            assert_eq!(owner(path), whose, "{path}");
        }
    }

    #[test]
    fn what_systemd_is_asked_for() {
        let shares = Shares::Unit {
            unit: "vm.scope".into(),
        };
        assert_eq!(
            shares.weight(250),
            (property("vm.scope", Property::Weight), "250 runtime".into())
        );
        assert_eq!(shares.weight_of("unset"), Some(100));
        assert_eq!(shares.weight_of("250 runtime"), Some(250));
        assert_eq!(shares.weight_of("x"), None);
        // In whole hundredths of a CPU; what was capped stays capped.
        assert_eq!(shares.cap(1.509, Some("unset")).1, "1500000 runtime");
        assert_eq!(shares.cap(1.5, Some("330000 runtime")).1, "330000 runtime");
        assert_eq!(shares.cap(0.0, None).1, "10000 runtime");
        let home = Home {
            set: Some(property("vm.scope", Property::Cpus)),
            shares: Ok(shares),
            freeze: Err("x".into()),
            crowded: false,
        };
        assert_eq!(home.cpus("0-1"), "0-1 runtime");
    }
}
