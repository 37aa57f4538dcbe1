// SPDX-License-Identifier: GPL-2.0-only
//! Kinds of cores: which CPUs of the machine are fast and which are slow, and by how much.
//!
//! Asked in this order, and the first that tells at least two kinds apart is believed:
//! 1. the performance counters' devices of hybrid x86 (`cpu_core`, `cpu_atom`, `cpu_lowpower`). What they hold together
//!    may still be of two kinds: some processors list their low-power cores with the efficient ones;
//! 2. `cpu_capacity`, which Arm has from its device tree;
//! 3. `acpi_cppc/highest_perf`;
//! 4. the highest frequency.
//!
//! Cores of one kind are not exactly alike (favoured ones reach some more), so a kind is what has no gap: sorted by
//! speed, the next one with less than [`ALIKE_PERCENT`] of the one before begins another kind. There is no
//! `topology/core_type` in Linux.
use crate::dir::Dir;
use crate::procfile::cpu_list;
use crate::root::Root;
use serde::Serialize;
use std::collections::BTreeMap;

/// The next slower core with less than so much of one's speed is of another kind.
pub const ALIKE_PERCENT: u64 = 90;

/// Speeds above this are none: what says so is broken.
const HIGHEST: u64 = 1_000_000_000;

/// CPUs of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CoreKind {
    /// `P`, `E`, `LP-E` where the kernel names them so; else `fast`, `middle`, `slow`, or `kind 1` and so on from the
    /// fastest if there are more.
    pub name: String,
    /// Online ones, ascending.
    pub cpus: Vec<u32>,
    /// How many cores these CPUs are: fewer, where several are threads of one.
    pub cores: u32,
    /// Speed of its fastest CPU relative to that of the fastest kind: at most 1024. `None`: nothing says.
    pub capacity: Option<u32>,
    /// What told it from the others.
    pub source: Source,
}

/// What tells kinds of cores apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Devices of performance counters.
    Counters,
    CpuCapacity,
    Cppc,
    /// The highest frequency: what a core does in a cycle is not known.
    Frequency,
}

impl Source {
    /// Files of speeds below `/sys/devices/system/cpu/cpuN`, in the order in which they are asked.
    const SPEEDS: [(Source, &'static str); 3] = [
        (Source::CpuCapacity, "cpu_capacity"),
        (Source::Cppc, "acpi_cppc/highest_perf"),
        (Source::Frequency, "cpufreq/cpuinfo_max_freq"),
    ];

    /// For a line of text.
    pub fn words(self) -> &'static str {
        match self {
            Source::Counters => "by the devices of performance counters",
            Source::CpuCapacity => "by cpu_capacity",
            Source::Cppc => "by CPPC",
            Source::Frequency => "by highest frequency",
        }
    }
}

/// The kinds of the CPUs that are online, the fastest first; empty if all are alike or nothing tells them apart.
pub fn kinds(root: &Root, online: &[u32]) -> Vec<CoreKind> {
    let Ok(sys) = root.sys() else {
        return Vec::new();
    };
    let cpus = Cpus { sys: &sys, online };
    let named = cpus.named();
    let groups = match named.len() {
        0 | 1 => cpus.by_speed(),
        _ => named,
    };
    match groups.len() {
        0 | 1 => Vec::new(),
        _ => cpus.finished(groups),
    }
}

/// The slowest and the fastest of CPUs that are one kind: each with little less than the one before, all together with
/// much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    pub fastest: u32,
    pub slowest: u32,
    /// Speed of the slowest, percent of the fastest's: less than [`ALIKE_PERCENT`].
    pub percent: u32,
    pub source: Source,
}

/// How far CPUs are apart that are of one kind ([`kinds`] finds none); `None`: they are alike, or nothing says. CPPC's
/// values are ranks, not speeds, where all CPUs reach the same frequency.
pub fn spread(root: &Root, online: &[u32]) -> Option<Spread> {
    let sys = root.sys().ok()?;
    let cpus = Cpus { sys: &sys, online };
    let all = |file: &str| -> Option<Vec<(u64, u32)>> {
        let speed = |cpu: &u32| Some((cpus.speed(*cpu, file)?, *cpu));
        online.iter().map(speed).collect()
    };
    let one_frequency = Source::SPEEDS.iter().any(|(source, file)| {
        let speeds = all(file).filter(|_| *source == Source::Frequency);
        speeds.is_some_and(|s| s.iter().all(|(speed, _)| *speed == s[0].0))
    });
    Source::SPEEDS.iter().find_map(|(source, file)| {
        if *source == Source::Cppc && one_frequency {
            return None;
        }
        let speeds = all(file)?;
        let (top, fastest) = *speeds.iter().rev().max_by_key(|(speed, _)| *speed)?;
        let (least, slowest) = *speeds.iter().min_by_key(|(speed, _)| *speed)?;
        (least * 100 < top * ALIKE_PERCENT).then_some(Spread {
            fastest,
            slowest,
            percent: ((least * 200 + top) / (2 * top)).min(ALIKE_PERCENT - 1) as u32,
            source: *source,
        })
    })
}

/// A kind as it is found.
struct Group {
    /// As the kernel calls it.
    name: Option<&'static str>,
    cpus: Vec<u32>,
    source: Source,
}

struct Cpus<'a> {
    sys: &'a Dir,
    online: &'a [u32],
}

impl Cpus<'_> {
    /// By the devices of performance counters. A CPU that two of them list is the first one's.
    fn named(&self) -> Vec<Group> {
        let devices = [
            ("P", "devices/cpu_core/cpus"),
            ("E", "devices/cpu_atom/cpus"),
            ("LP-E", "devices/cpu_lowpower/cpus"),
        ];
        let mut left: Vec<u32> = self.online.to_vec();
        let mut groups = Vec::new();
        for (name, file) in devices {
            let listed = self.sys.text(file).and_then(|t| cpu_list(t.as_bytes()));
            let listed = listed.unwrap_or_default();
            let (mine, others) = left.iter().partition(|cpu| listed.contains(cpu));
            left = others;
            groups.push(Group {
                name: Some(name),
                cpus: mine,
                source: Source::Counters,
            });
        }
        // Low-power cores may be among the efficient ones.
        let efficient = std::mem::take(&mut groups[1].cpus);
        let mut parts = match groups[2].cpus.is_empty() {
            true => self.parts(&efficient, &Source::SPEEDS).0,
            false => vec![efficient],
        }
        .into_iter();
        groups[1].cpus = parts.next().unwrap_or_default();
        groups[2].cpus.extend(parts.flatten());
        groups.retain(|group| !group.cpus.is_empty());
        // Ones that no device lists make no kind: what they are is not known.
        groups
    }

    fn by_speed(&self) -> Vec<Group> {
        let (parts, source) = self.parts(self.online, &Source::SPEEDS);
        let group = |cpus| Group {
            name: None,
            cpus,
            source,
        };
        parts.into_iter().map(group).collect()
    }

    /// CPUs in parts of like speed, the fastest first, by the first of these sources that makes several; else all in
    /// one.
    fn parts(&self, cpus: &[u32], sources: &[(Source, &str)]) -> (Vec<Vec<u32>>, Source) {
        for (source, file) in sources {
            let speeds: Vec<(u64, u32)> = cpus
                .iter()
                .filter_map(|cpu| Some((self.speed(*cpu, file)?, *cpu)))
                .collect();
            // One of which it is not known may be of any.
            if speeds.len() == cpus.len() {
                let parts = alike(speeds);
                if parts.len() > 1 {
                    return (parts, *source);
                }
            }
        }
        (vec![cpus.to_vec()], Source::Frequency)
    }

    fn speed(&self, cpu: u32, file: &str) -> Option<u64> {
        let speed = self
            .sys
            .text(&format!("devices/system/cpu/cpu{cpu}/{file}"))?;
        let speed = speed.parse().ok()?;
        (1..=HIGHEST).contains(&speed).then_some(speed)
    }

    /// With names, cores and capacities, the fastest first.
    fn finished(&self, groups: Vec<Group>) -> Vec<CoreKind> {
        let fastest_of = |cpus: &[u32], file: &str| -> Option<u64> {
            let speeds: Option<Vec<u64>> = cpus.iter().map(|c| self.speed(*c, file)).collect();
            speeds?.into_iter().max()
        };
        // All by one measure.
        let measure = |file: &str| -> Option<Vec<u64>> {
            let fastest = groups.iter().map(|g| fastest_of(&g.cpus, file));
            fastest.collect()
        };
        let speeds = Source::SPEEDS
            .iter()
            .filter_map(|(_, file)| measure(file))
            // A measure by which all are alike says nothing of kinds.
            .find(|speeds| speeds.iter().any(|s| *s != speeds[0]));
        let top = speeds.iter().flatten().copied().max().unwrap_or(1);
        let (count, by_name) = (groups.len(), groups.iter().all(|g| g.name.is_some()));
        let mut kinds: Vec<CoreKind> = groups
            .into_iter()
            .enumerate()
            .map(|(i, group)| CoreKind {
                name: group
                    .name
                    .map_or_else(|| name(i, count), |name| name.to_string()),
                cores: self.cores(&group.cpus),
                cpus: group.cpus,
                capacity: speeds
                    .as_ref()
                    .map(|speeds| (speeds[i] * 1024).div_ceil(top) as u32),
                source: group.source,
            })
            .collect();
        if by_name {
            // Stable: without capacities in the order of the devices.
            kinds.sort_by_key(|kind| std::cmp::Reverse(kind.capacity));
        }
        kinds
    }

    /// How many cores CPUs are. By lists of siblings: `core_id` is used again in other packages and dies.
    fn cores(&self, cpus: &[u32]) -> u32 {
        let first = |cpu: &u32| {
            let file = format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let siblings = self.sys.text(&file).and_then(|t| cpu_list(t.as_bytes()));
            let siblings = siblings.filter(|s| s.contains(cpu)).unwrap_or_default();
            siblings
                .into_iter()
                .find(|s| cpus.contains(s))
                .unwrap_or(*cpu)
        };
        let mut firsts: Vec<u32> = cpus.iter().map(first).collect();
        firsts.sort_unstable();
        firsts.dedup();
        firsts.len() as u32
    }
}

/// Parts without a gap, the fastest first; CPUs of each ascending.
fn alike(speeds: Vec<(u64, u32)>) -> Vec<Vec<u32>> {
    let mut by_speed: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (speed, cpu) in speeds {
        by_speed.entry(speed).or_default().push(cpu);
    }
    let mut parts: Vec<Vec<u32>> = Vec::new();
    let mut before = None;
    for (speed, cpus) in by_speed.into_iter().rev() {
        match parts.last_mut() {
            Some(part) if before.is_some_and(|b| speed * 100 >= b * ALIKE_PERCENT) => {
                part.extend(cpus);
            }
            _ => parts.push(cpus),
        }
        before = Some(speed);
    }
    parts.iter_mut().for_each(|part| part.sort_unstable());
    parts
}

/// The name of the `i`th of so many kinds, from the fastest.
fn name(i: usize, count: usize) -> String {
    match (i, count) {
        (0, 2 | 3) => "fast".into(),
        (1, 3) => "middle".into(),
        (1, 2) | (2, 3) => "slow".into(),
        _ => format!("kind {}", i + 1),
    }
}
