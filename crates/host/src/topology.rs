// SPDX-License-Identifier: GPL-2.0-only
//! What the CPUs of a machine have in common: core, last-level cache, memory node; and how fast each is.
use crate::dir::Dir;
use crate::machine::Machine;
use crate::procfile::cpu_list;
use crate::root::Root;
use std::collections::BTreeMap;

/// One CPU that is online. Cores and caches are named by their lowest CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    pub cpu: u32,
    pub core: u32,
    /// CPUs below one second-level cache; as the core where the machine does not say.
    pub l2: u32,
    pub llc: u32,
    pub node: u32,
    /// Relative to the fastest, 1 to 1024.
    pub capacity: u32,
}

/// Caches of one CPU that are looked at.
const CACHES: u32 = 8;

/// The CPUs that are online, ascending. What the machine does not say: a core of its own, one cache for all of a node,
/// node 0, all alike.
pub fn cpus(root: &Root) -> Vec<CpuPlace> {
    let machine = Machine::read(root);
    let Ok(sys) = root.sys() else {
        return Vec::new();
    };
    let nodes = nodes(&sys);
    let capacity = |cpu: u32| {
        let kind = machine.kinds.iter().find(|k| k.cpus.contains(&cpu));
        kind.and_then(|k| k.capacity).unwrap_or(1024).clamp(1, 1024)
    };
    let place = |&cpu: &u32| {
        let node = nodes.get(&cpu).copied().unwrap_or(0);
        let first = |file: &str| lowest(&sys, &format!("devices/system/cpu/cpu{cpu}/{file}"));
        let core =
            first("topology/core_cpus_list").or_else(|| first("topology/thread_siblings_list"));
        let llc = cache(&sys, cpu, |_| true)
            .or_else(|| nodes.iter().find(|(_, n)| **n == node).map(|(cpu, _)| *cpu));
        CpuPlace {
            cpu,
            core: core.unwrap_or(cpu),
            l2: cache(&sys, cpu, |level| level == 2).or(core).unwrap_or(cpu),
            llc: llc.unwrap_or(0),
            node,
            capacity: capacity(cpu),
        }
    };
    machine.cpus.iter().map(place).collect()
}

fn list(sys: &Dir, file: &str) -> Option<Vec<u32>> {
    cpu_list(sys.text(file)?.as_bytes())
}

fn lowest(sys: &Dir, file: &str) -> Option<u32> {
    list(sys, file)?.into_iter().min()
}

/// The node of each CPU.
fn nodes(sys: &Dir) -> BTreeMap<u32, u32> {
    let online = list(sys, "devices/system/node/online").unwrap_or_default();
    let of = |node: u32| {
        let cpus =
            list(sys, &format!("devices/system/node/node{node}/cpulist")).unwrap_or_default();
        cpus.into_iter().map(move |cpu| (cpu, node))
    };
    online.into_iter().flat_map(of).collect()
}

/// The lowest CPU below the same cache, of the highest of these levels that it has.
fn cache(sys: &Dir, cpu: u32, of: impl Fn(u32) -> bool) -> Option<u32> {
    let index = |i: u32| {
        let folder = format!("devices/system/cpu/cpu{cpu}/cache/index{i}");
        let level: u32 = sys.text(&format!("{folder}/level"))?.parse().ok()?;
        Some((level, lowest(sys, &format!("{folder}/shared_cpu_list"))?))
    };
    (0..CACHES)
        .filter_map(index)
        .filter(|(level, _)| of(*level))
        .max_by_key(|(level, _)| *level)
        .map(|(_, cpu)| cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn read(text: &str) -> Vec<CpuPlace> {
        let folder = tempfile::tempdir().unwrap();
        Fixture::parse(text).unwrap().unpack(folder.path()).unwrap();
        cpus(&Root::at(folder.path()))
    }

    #[test]
    fn siblings_caches_and_nodes() {
        let mut text = String::from(
            "file sys/devices/system/cpu/online 0-7\nfile sys/devices/system/node/online 0-1\n",
        );
        text += "file sys/devices/system/node/node0/cpulist 0-1,4-5\n";
        text += "file sys/devices/system/node/node1/cpulist 2-3,6-7\n";
        for cpu in 0..8 {
            let core = cpu % 4;
            text += &format!(
                "file sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list {core},{}\n",
                core + 4
            );
            let cache = if core < 2 { "0-1,4-5" } else { "2-3,6-7" };
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache");
            text += &format!(
                "file {folder}/index0/level 1\nfile {folder}/index0/shared_cpu_list {core},{}\n",
                core + 4
            );
            text += &format!(
                "file {folder}/index3/level 3\nfile {folder}/index3/shared_cpu_list {cache}\n"
            );
        }
        let all = read(&text);
        let expected = |cpu: u32| CpuPlace {
            cpu,
            core: cpu % 4,
            l2: cpu % 4,
            llc: if cpu % 4 < 2 { 0 } else { 2 },
            node: (cpu % 4) / 2,
            capacity: 1024,
        };
        assert_eq!(all, (0..8).map(expected).collect::<Vec<_>>());
    }

    #[test]
    fn what_the_machine_does_not_say() {
        let all = read("file sys/devices/system/cpu/online 0-1,5\n");
        let cores: Vec<_> = all
            .iter()
            .map(|c| (c.cpu, c.core, c.llc, c.node, c.capacity))
            .collect();
        assert_eq!(
            cores,
            [(0, 0, 0, 0, 1024), (1, 1, 0, 0, 1024), (5, 5, 0, 0, 1024)]
        );
        assert!(read("process 1 init").is_empty());
        let broken = "file sys/devices/system/cpu/online 0-1\nfile sys/devices/system/node/online x\n\
                      file sys/devices/system/cpu/cpu0/cache/index0/level -\n\
                      file sys/devices/system/cpu/cpu0/topology/core_cpus_list 9-1\n";
        assert_eq!(read(broken).len(), 2);
    }
}
