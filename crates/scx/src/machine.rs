// SPDX-License-Identifier: GPL-2.0-only
//! This machine's topology as policies see it (`policies/include/berth/topology.bpf.h`).
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Fastest core type of a machine.
const FULL_CAPACITY: u32 = 1024;

/// One possible CPU number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cpu {
    llc: u32,
    node: u32,
    /// SMT siblings and LLC mates that are online, this CPU among them, ascending.
    siblings: Vec<u32>,
    mates: Vec<u32>,
    capacity: u32,
}

/// The running machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    cpus: Vec<Cpu>,
    online: Vec<u32>,
    pub nr_llcs: u32,
    pub nr_nodes: u32,
}

impl Machine {
    /// Reads /sys/devices/system/cpu.
    pub fn running() -> Machine {
        Machine::read(Path::new("/sys/devices/system/cpu"))
    }

    /// What cannot be read counts as "nothing to tell apart": one LLC, one node, no siblings.
    fn read(root: &Path) -> Machine {
        let file = |p: &str| fs::read_to_string(root.join(p)).ok();
        let possible = list(&file("possible").unwrap_or_default());
        let online: BTreeSet<u32> = match file("online") {
            Some(text) => list(&text).into_iter().collect(),
            None => possible.iter().copied().collect(),
        };
        let nr_cpus = possible.iter().max().map_or(1, |m| m + 1);
        let alive = |text: Option<String>, own: u32| -> Vec<u32> {
            let mut l = list(&text.unwrap_or_default());
            l.retain(|c| online.contains(c));
            if !l.contains(&own) {
                l = vec![own];
            }
            l.sort_unstable();
            l
        };
        let mut llcs = Groups::default();
        let mut nodes = Groups::default();
        let mut cpus = Vec::new();
        for c in 0..nr_cpus {
            let mut cpu = Cpu {
                llc: 0,
                node: 0,
                siblings: vec![c],
                mates: vec![c],
                capacity: FULL_CAPACITY,
            };
            if online.contains(&c) {
                let topology = |n: &str| file(&format!("cpu{c}/topology/{n}"));
                cpu.siblings = alive(
                    topology("core_cpus_list").or_else(|| topology("thread_siblings_list")),
                    c,
                );
                cpu.mates = alive(last_level(root, c), c);
                cpu.llc = llcs.number(cpu.mates[0]);
                cpu.node = nodes.number(node_of(root, c));
            }
            cpus.push(cpu);
        }
        // Nothing is said of CPUs that are offline: they count as fast.
        for (cpu, capacity) in online.iter().zip(capacities(root, &online)) {
            if let Some(cpu) = cpus.get_mut(*cpu as usize) {
                cpu.capacity = capacity;
            }
        }
        Machine {
            cpus,
            online: online.into_iter().collect(),
            nr_llcs: llcs.count(),
            nr_nodes: nodes.count(),
        }
    }

    /// Says for the first CPUs what they can do.
    pub fn set_capacities(&mut self, capacities: &[u32]) {
        for (cpu, capacity) in self.cpus.iter_mut().zip(capacities) {
            cpu.capacity = *capacity;
        }
    }

    pub fn nr_cpus(&self) -> u32 {
        self.cpus.len() as u32
    }

    pub fn online(&self) -> impl Iterator<Item = u32> {
        self.online.iter().copied()
    }

    /// `struct berth_cpu` of each CPU, by number.
    pub fn records(&self) -> impl Iterator<Item = (u32, Vec<u8>)> {
        self.cpus.iter().enumerate().map(|(i, c)| {
            let own = i as u32;
            let fields = [
                c.llc,
                c.node,
                c.siblings[0],
                after(&c.mates, own),
                after(&c.siblings, own),
                c.capacity,
            ];
            (own, fields.iter().flat_map(|f| f.to_ne_bytes()).collect())
        })
    }
}

/// Dense numbers in order of first appearance.
#[derive(Default)]
struct Groups(Vec<u32>);

impl Groups {
    fn number(&mut self, key: u32) -> u32 {
        let found = self.0.iter().position(|&k| k == key);
        found.unwrap_or_else(|| {
            self.0.push(key);
            self.0.len() - 1
        }) as u32
    }

    fn count(&self) -> u32 {
        self.0.len().max(1) as u32
    }
}

/// The next member of the ring behind `own`.
fn after(ring: &[u32], own: u32) -> u32 {
    let at = ring.iter().position(|&c| c == own).unwrap_or(0);
    ring[(at + 1) % ring.len()]
}

fn last_level(root: &Path, cpu: u32) -> Option<String> {
    let caches = root.join(format!("cpu{cpu}/cache"));
    let level = |i: u32| -> Option<u32> {
        let text = fs::read_to_string(caches.join(format!("index{i}/level"))).ok()?;
        text.trim().parse().ok()
    };
    let last = (0..16).filter_map(|i| Some((level(i)?, i))).max()?.1;
    fs::read_to_string(caches.join(format!("index{last}/shared_cpu_list"))).ok()
}

fn node_of(root: &Path, cpu: u32) -> u32 {
    let Ok(entries) = fs::read_dir(root.join(format!("cpu{cpu}"))) else {
        return 0;
    };
    entries
        .flatten()
        .find_map(|e| e.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .unwrap_or(0)
}

/// Capacities of the CPUs that are online, relative to the fastest; none if nothing says. By the first measure that
/// tells kinds of cores apart, as Berth's map of hosts does it: where one has less than 90 % of the next faster one.
/// If none
/// does, by the first there is.
fn capacities(root: &Path, online: &BTreeSet<u32>) -> Vec<u32> {
    let measures = [
        "cpu_capacity",
        "acpi_cppc/highest_perf",
        "cpufreq/cpuinfo_max_freq",
    ];
    let speeds = |file: &str| -> Option<Vec<u64>> {
        let speed = |cpu: &u32| {
            let text = fs::read_to_string(root.join(format!("cpu{cpu}/{file}"))).ok()?;
            let speed = text.trim().parse().ok()?;
            (1..=1_000_000_000).contains(&speed).then_some(speed)
        };
        online.iter().map(speed).collect()
    };
    let has_gap = |speeds: &Vec<u64>| {
        let mut sorted = speeds.clone();
        sorted.sort_unstable();
        sorted.windows(2).any(|w| w[0] * 100 < w[1] * 90)
    };
    let all: Vec<Vec<u64>> = measures.iter().filter_map(|file| speeds(file)).collect();
    let best = all.iter().find(|speeds| has_gap(speeds)).or(all.first());
    let fastest = best.into_iter().flatten().copied().max().unwrap_or(1);
    let relative = |speed: &u64| (speed * u64::from(FULL_CAPACITY) / fastest).max(1) as u32;
    best.into_iter().flatten().map(relative).collect()
}

/// `0-3,8` as numbers.
pub(crate) fn list(text: &str) -> Vec<u32> {
    let mut out = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(a), Ok(b)) = (first.parse(), last.parse::<u32>()) {
            out.extend(a..=b);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 nodes of one LLC each, 2 cores a node, CPU n and n+4 siblings; CPU 7 offline.
    fn sample(root: &Path) {
        let put = |p: String, t: &str| {
            let p = root.join(p);
            fs::create_dir_all(p.parent().unwrap()).unwrap();
            fs::write(p, t).unwrap();
        };
        put("possible".to_string(), "0-7\n");
        put("online".to_string(), "0-6\n");
        for c in 0..7u32 {
            let node = c % 4 / 2;
            put(
                format!("cpu{c}/topology/core_cpus_list"),
                &format!("{},{}\n", c % 4, c % 4 + 4),
            );
            put(format!("cpu{c}/cache/index0/level"), "1\n");
            put(
                format!("cpu{c}/cache/index0/shared_cpu_list"),
                &format!("{c}\n"),
            );
            put(format!("cpu{c}/cache/index3/level"), "3\n");
            put(
                format!("cpu{c}/cache/index3/shared_cpu_list"),
                if node == 0 { "0-1,4-5" } else { "2-3,6-7" },
            );
            put(format!("cpu{c}/node{node}/x"), "");
        }
    }

    #[test]
    fn rings_llcs_and_nodes() {
        let d = tempfile::tempdir().unwrap();
        sample(d.path());
        let m = Machine::read(d.path());
        assert_eq!((m.nr_cpus(), m.nr_llcs, m.nr_nodes), (8, 2, 2));
        let records: Vec<Vec<u32>> = m
            .records()
            .map(|(_, b)| {
                b.chunks(4)
                    .map(|c| u32::from_ne_bytes(c.try_into().unwrap()))
                    .collect()
            })
            .collect();
        assert_eq!(records[0], [0, 0, 0, 1, 4, 1024]);
        assert_eq!(records[5], [0, 0, 1, 0, 1, 1024]);
        // The offline sibling is in no ring, and is a ring of one itself.
        assert_eq!(records[3], [1, 1, 3, 6, 3, 1024]);
        assert_eq!(records[7], [0, 0, 7, 7, 7, 1024]);
    }

    #[test]
    fn capacities_are_relative_to_the_fastest_that_is_online() {
        let d = tempfile::tempdir().unwrap();
        sample(d.path());
        for c in 0..7 {
            let folder = d.path().join(format!("cpu{c}/acpi_cppc"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("highest_perf"), if c < 4 { "64" } else { "36" }).unwrap();
        }
        let m = Machine::read(d.path());
        let capacities: Vec<u32> = m.cpus.iter().map(|c| c.capacity).collect();
        // CPU 7 is offline.
        assert_eq!(capacities, [1024, 1024, 1024, 1024, 576, 576, 576, 1024]);
    }

    /// As AMD's dense cores: CPPC says the same of all, frequencies do not.
    #[test]
    fn the_first_measure_counts_that_tells_kinds_apart() {
        let d = tempfile::tempdir().unwrap();
        sample(d.path());
        for c in 0..7 {
            for (file, value) in [
                ("acpi_cppc/highest_perf", "166".to_string()),
                (
                    "cpufreq/cpuinfo_max_freq",
                    if c < 4 { "5000000" } else { "3500000" }.to_string(),
                ),
            ] {
                let file = d.path().join(format!("cpu{c}/{file}"));
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, value).unwrap();
            }
        }
        let m = Machine::read(d.path());
        let capacities: Vec<u32> = m.cpus.iter().map(|c| c.capacity).collect();
        assert_eq!(capacities, [1024, 1024, 1024, 1024, 716, 716, 716, 1024]);
        // One CPU of which it is not said may be of any kind.
        fs::remove_file(d.path().join("cpu2/cpufreq/cpuinfo_max_freq")).unwrap();
        let m = Machine::read(d.path());
        assert!(m.cpus.iter().all(|c| c.capacity == FULL_CAPACITY));
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(list("\n"), Vec::<u32>::new());
    }
}
