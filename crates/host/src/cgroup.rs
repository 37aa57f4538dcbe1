// SPDX-License-Identifier: GPL-2.0-only
//! Shares and caps that the VM managers set, in both versions of cgroups.
use crate::dir::Dir;
use crate::procfile::{cgroup_lines, cpu_list};
use crate::root::Root;
use serde::Serialize;

/// How control groups are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// Version 2 alone.
    V2,
    /// Version 1 alone.
    V1,
    /// Version 1 holds the controllers, version 2 only names groups.
    Hybrid,
    None,
}

/// What a VM is entitled to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// As `cpu.weight` counts (1 to 10000, default 100); converted from `cpu.shares` in version 1. `None` if unknown.
    pub weight: Option<u64>,
    /// CPUs it may use at most, the smallest of its own cap and those above it; `None` without a cap.
    pub cap: Option<f64>,
}

/// How control groups are mounted, by `mountinfo`.
pub fn version(root: &Root) -> Version {
    let Some(mounts) = root.proc_text("self/mountinfo") else {
        return Version::None;
    };
    let kind = |line: &str| {
        let mut words = line.split(" - ").nth(1)?.split(' ');
        let kind = words.next()?.to_string();
        // Version 1 mounts named groups without a controller too: systemd's.
        let cpu = words.nth(1).unwrap_or("").split(',').any(|o| o == "cpu");
        Some((kind, cpu))
    };
    let kinds: Vec<_> = mounts.lines().filter_map(kind).collect();
    let old = kinds.iter().any(|(k, cpu)| k == "cgroup" && *cpu);
    let new = kinds.iter().any(|(k, _)| k == "cgroup2");
    match (old, new) {
        (true, true) => Version::Hybrid,
        (true, false) => Version::V1,
        (false, true) => Version::V2,
        (false, false) => Version::None,
    }
}

/// Share and cap of a cgroup: its own weight, the smallest cap on the way up.
pub fn share(root: &Root, cgroup: &str) -> Share {
    Tree::open(root).map_or(Share::default(), |tree| tree.share(cgroup))
}

/// The groups with the `cpu` controller, opened once for many questions.
#[derive(Debug)]
pub struct Tree {
    base: Dir,
    /// Version 1.
    old: bool,
}

impl Tree {
    /// None: nothing is mounted where it usually is.
    pub fn open(root: &Root) -> Option<Tree> {
        let sys = root.sys().ok()?;
        let old = ["fs/cgroup/cpu", "fs/cgroup/cpu,cpuacct"];
        let old = old.iter().find_map(|base| sys.dir(base).ok());
        let old = old.map(|base| Tree { base, old: true });
        old.or_else(|| {
            let base = sys.dir("fs/cgroup").ok()?;
            Some(Tree { base, old: false })
        })
    }

    /// As [`share`].
    pub fn share(&self, cgroup: &str) -> Share {
        let Some(mut path) = inside(cgroup) else {
            return Share::default();
        };
        let mut share = Share {
            weight: match self.old {
                true => number(&self.base, &format!("{path}/cpu.shares")).map(weight_of_shares),
                // 0: the group is idle (`cpu.idle`), behind all that have a weight.
                false => {
                    number(&self.base, &format!("{path}/cpu.weight")).map(|w| w.clamp(1, 10_000))
                }
            },
            cap: None,
        };
        while !path.is_empty() {
            share.cap = match (share.cap, self.cap(path)) {
                (Some(a), Some(b)) => Some(f64::min(a, b)),
                (a, b) => a.or(b),
            };
            path = path.rsplit_once('/').map_or("", |(above, _)| above);
        }
        share
    }

    /// The cap that a group has itself, whatever those above it have, in CPUs; none: it has none.
    pub fn cap(&self, cgroup: &str) -> Option<f64> {
        let path = inside(cgroup)?;
        match self.old {
            true => old_cap(&self.base, path),
            false => text(&self.base, &format!("{path}/cpu.max")).and_then(|t| cap_of(&t)),
        }
    }
}

/// The path below the tree; none: it has `..`, which leads out of this namespace's tree.
fn inside(cgroup: &str) -> Option<&str> {
    let path = cgroup.trim_matches('/');
    path.split('/').all(|part| part != "..").then_some(path)
}

/// CPUs that the cgroup of a thread lets it use, as far as they are online; none: it is in none that says.
///
/// `was`: of a group (below `/sys/fs/cgroup`) whose CPU set is left out of account: what its list was before, empty: no
/// list of its own.
pub fn cpus(
    root: &Root,
    pid: i32,
    tid: i32,
    was: &dyn Fn(&str) -> Option<String>,
) -> Option<Vec<u32>> {
    let text = root.proc_text(&format!("{pid}/task/{tid}/cgroup"))?;
    let (mut old, mut new) = (None, None);
    for line in cgroup_lines(text.as_bytes()) {
        let path = line.path.trim_matches('/');
        // A path with `..` leads out of this namespace's tree.
        if path.split('/').any(|part| part == "..") {
            continue;
        }
        match line.controllers {
            "" => new = Some(path),
            c if c.split(',').any(|c| c == "cpuset") => old = Some(path),
            _ => {}
        }
    }
    let hierarchies = [
        ("cpuset", old, "cpuset.effective_cpus"),
        ("", new, "cpuset.cpus.effective"),
        ("unified", new, "cpuset.cpus.effective"),
    ];
    let mut lists = hierarchies.into_iter().filter_map(|(mount, path, file)| {
        let at = |path: &str| match (mount.is_empty(), path.is_empty()) {
            (true, _) => path.to_string(),
            (false, true) => mount.to_string(),
            (false, false) => format!("{mount}/{path}"),
        };
        let list = |path: &str| {
            let text = root.sys_text(&format!("fs/cgroup/{}/{file}", at(path)))?;
            cpu_list(text.as_bytes())
        };
        let path = path?;
        let Some(was) = was(&at(path)) else {
            return list(path);
        };
        let above = list(path.rsplit_once('/').map_or("", |(above, _)| above));
        let own = cpu_list(was.as_bytes()).filter(|own| !own.is_empty());
        match (own, above) {
            // One that shares nothing with the group above has all of that.
            (Some(own), Some(above)) => Some(match own.iter().any(|cpu| above.contains(cpu)) {
                true => own.into_iter().filter(|cpu| above.contains(cpu)).collect(),
                false => above,
            }),
            (own, above) => own.or(above),
        }
    });
    lists.next().filter(|cpus| !cpus.is_empty())
}

/// `cpu.max`: quota and period in microseconds, or `max`.
fn cap_of(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (period > 0.0 && quota > 0.0).then(|| quota / period)
}

fn old_cap(base: &Dir, path: &str) -> Option<f64> {
    let quota = text(base, &format!("{path}/cpu.cfs_quota_us"))?;
    let period = text(base, &format!("{path}/cpu.cfs_period_us"))?;
    // No cap is -1.
    cap_of(&format!("{quota} {period}"))
}

/// `cpu.shares` has the default 1024 where `cpu.weight` has 100; the kernel's own conversion.
fn weight_of_shares(shares: u64) -> u64 {
    (shares.saturating_mul(100) / 1024).clamp(1, 10_000)
}

fn number(dir: &Dir, name: &str) -> Option<u64> {
    text(dir, name)?.parse().ok()
}

fn text(dir: &Dir, name: &str) -> Option<String> {
    let mut buf = [0; 4096];
    let bytes = dir
        .read_record(name.trim_start_matches('/'), &mut buf)
        .ok()?;
    Some(String::from_utf8_lossy(bytes).trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn root(text: &str) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        Fixture::parse(text).unwrap().unpack(folder.path()).unwrap();
        let root = Root::at(folder.path());
        (folder, root)
    }

    #[test]
    fn shares_and_caps_of_both_versions() {
        let (_f, new) = root(
            "file sys/fs/cgroup/a/b/cpu.weight 300\nfile sys/fs/cgroup/a/b/cpu.max \"max 100000\"\n\
             file sys/fs/cgroup/a/cpu.max \"250000 100000\"\nfile sys/fs/cgroup/cpu.max \"1 100000\"\n",
        );
        let expected = Share {
            weight: Some(300),
            cap: Some(2.5),
        };
        assert_eq!(share(&new, "/a/b"), expected);
        assert_eq!(share(&new, "/../x"), Share::default());
        let (_f, idle) = root("file sys/fs/cgroup/a/cpu.weight 0\n");
        assert_eq!(share(&idle, "/a").weight, Some(1));
        assert_eq!(share(&new, "/gone"), Share::default());
        let (_f, old) = root(
            "file sys/fs/cgroup/cpu/m/cpu.shares 2048\nfile sys/fs/cgroup/cpu/m/cpu.cfs_quota_us -1\n\
             file sys/fs/cgroup/cpu/m/cpu.cfs_period_us 100000\n",
        );
        let expected = Share {
            weight: Some(200),
            cap: None,
        };
        assert_eq!(share(&old, "/m"), expected);
    }

    #[test]
    fn versions() {
        let line = |kind: &str, options: &str| {
            format!("30 24 0:26 / /x rw shared:4 - {kind} n {options}\\n")
        };
        let of = |lines: &[String]| {
            let text = format!(
                "process 1 i\nfile proc/1/mountinfo \"{}\"\n",
                lines.concat()
            );
            let (_f, root) = root(&text);
            version(&root)
        };
        let (v2, cpu) = (line("cgroup2", "rw"), line("cgroup", "rw,cpu,cpuacct"));
        let systemd = line("cgroup", "rw,name=systemd");
        assert_eq!(of(std::slice::from_ref(&v2)), Version::V2);
        assert_eq!(of(&[v2, cpu.clone()]), Version::Hybrid);
        assert_eq!(of(&[cpu, systemd.clone()]), Version::V1);
        assert_eq!(of(&[systemd]), Version::None);
    }
}
