// SPDX-License-Identifier: GPL-2.0-only
//! Where a VM's CPU set, weight and cap are set: files of its own cgroup, in both versions of cgroups, or the affinity
//! of its threads.
use berth_actuator::Knob;
use berth_host::cgroup::Version;
use berth_host::root::Root;

/// Period of caps that are set, µs.
const PERIOD_US: u64 = 100_000;
/// The least cap the kernel takes, µs of a period.
const LEAST_US: u64 = 1_000;

/// Of one VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The file with its CPU set; none: its threads are bound one by one.
    pub set: Option<Knob>,
    /// Files of weight and cap; none, and why.
    pub shares: Result<Shares, String>,
}

/// Weight and cap of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shares {
    V2 { group: String },
    V1 { group: String },
}

impl Shares {
    /// The file of the weight, and what to write for `weight` of `cpu.weight`'s scale.
    pub fn weight(&self, weight: u32) -> (Knob, String) {
        match self {
            Shares::V2 { group } => (file(group, "cpu.weight"), weight.to_string()),
            // 1024 is to `cpu.shares` what 100 is to `cpu.weight`.
            Shares::V1 { group } => {
                let shares = (u64::from(weight) * 1024 / 100).clamp(2, 262_144);
                (file(group, "cpu.shares"), shares.to_string())
            }
        }
    }

    /// What a value of the weight's file is on `cpu.weight`'s scale.
    pub fn weight_of(&self, value: &str) -> Option<u32> {
        let value: u64 = value.trim().parse().ok()?;
        let weight = match self {
            Shares::V2 { .. } => value,
            Shares::V1 { .. } => value.saturating_mul(100) / 1024,
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
        }
    }
}

fn file(group: &str, file: &str) -> Knob {
    Knob::Group {
        group: group.into(),
        file: file.into(),
    }
}

/// Where cgroups are, and who else manages them.
#[derive(Clone, Debug)]
pub struct Groups {
    root: Root,
    version: Version,
    /// systemd is process 1: what it made is only its to set.
    systemd: bool,
}

impl Groups {
    pub fn of(root: &Root) -> Groups {
        Groups {
            version: berth_host::cgroup::version(root),
            // As systemd's own sd_booted() asks.
            systemd: root.is_live() && std::path::Path::new("/run/systemd/system").is_dir(),
            root: root.clone(),
        }
    }

    /// The home of a VM whose own cgroup this is.
    pub fn home(&self, own: Option<&str>) -> Home {
        let nowhere = |why: String| Home {
            set: None,
            shares: Err(why),
        };
        let Some(path) = own else {
            return nowhere("it has no cgroup of its own with the `cpu` controller".into());
        };
        let below = path.trim_matches('/');
        let made = |part: &str| {
            [".scope", ".slice", ".service"]
                .iter()
                .any(|kind| part.ends_with(kind))
        };
        if self.systemd && below.split('/').any(made) {
            return nowhere(format!(
                "its cgroup {path} is systemd's, which is not told yet: only its threads are bound"
            ));
        }
        let exists = |name: String| self.root.sys_text(&name).is_some();
        match self.version {
            Version::V2 => {
                let set = file(below, "cpuset.cpus");
                Home {
                    set: exists(format!("fs/cgroup/{below}/cpuset.cpus")).then_some(set),
                    shares: Ok(Shares::V2 {
                        group: below.into(),
                    }),
                }
            }
            Version::V1 | Version::Hybrid => {
                // The same group of each controller.
                let find = |names: &[&str], wanted: &str| {
                    let there = |n: &&&str| exists(format!("fs/cgroup/{n}/{below}/{wanted}"));
                    names.iter().find(there).map(|n| format!("{n}/{below}"))
                };
                let shares = find(&["cpu,cpuacct", "cpu"], "cpu.shares");
                Home {
                    set: find(&["cpuset"], "cpuset.cpus").map(|group| file(&group, "cpuset.cpus")),
                    shares: shares
                        .map(|group| Shares::V1 { group })
                        .ok_or(format!("its cgroup {path} has no cpu.shares")),
                }
            }
            Version::None => nowhere("no cgroups are mounted at /sys/fs/cgroup".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::fixture::Fixture;

    fn groups(text: &str) -> (tempfile::TempDir, Groups) {
        let folder = tempfile::tempdir().unwrap();
        Fixture::parse(text).unwrap().unpack(folder.path()).unwrap();
        let groups = Groups::of(&Root::at(folder.path()));
        (folder, groups)
    }

    const V2: &str = "process 1 i\nfile proc/1/mountinfo \"30 24 0:26 / /x rw - cgroup2 n rw\\n\"\n\
                      file sys/fs/cgroup/a/vm/cpu.weight 100\nfile sys/fs/cgroup/a/vm/cpuset.cpus \"\"\n\
                      file sys/fs/cgroup/a/other/cpu.weight 100\n";
    const V1: &str = "process 1 i\nfile proc/1/mountinfo \"30 24 0:26 / /x rw - cgroup n rw,cpu\\n\"\n\
                      file sys/fs/cgroup/cpu/a/vm/cpu.shares 1024\nfile sys/fs/cgroup/cpuset/a/vm/cpuset.cpus 0-3\n";

    #[test]
    fn files_of_both_versions() {
        let (_f, new) = groups(V2);
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
        let (_f, old) = groups(V1);
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
}
