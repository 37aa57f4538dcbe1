// SPDX-License-Identifier: GPL-2.0-only
//! What loaders ask of the machine that they start their scheduler on.
use super::table::{Run, Value};
use berth_policy::loader::calls::{Call, When};
use berth_scenario::model::Host;
use std::collections::BTreeMap;

/// What loaders ask of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub smt: bool,
    /// Of each CPU the other one of the first two on its core, if it is one of those.
    pub siblings: Vec<Option<u32>>,
    pub nodes: u32,
    /// Of each CPU, 1 to 1024.
    pub capacities: Vec<u32>,
    /// CPUs that are not there: loaders count those that are online.
    pub offline: Vec<u32>,
    /// Major and minor version.
    pub kernel: (u16, u16),
}

/// The largest capacity, as the kernel has it.
const CAPACITY: u64 = 1024;

impl Machine {
    /// A host of a scenario.
    pub fn host(host: &Host) -> Machine {
        let speed = |core: u32| {
            let mut kinds = host.cost.kinds.iter();
            kinds
                .find(|k| k.cores.contains(&core))
                .map_or(1_000_000, |k| k.speed_ppm)
        };
        let speeds: Vec<u32> = (0..host.nr_cpus())
            .map(|cpu| speed(cpu / host.threads.max(1)))
            .collect();
        let fastest = u64::from(speeds.iter().copied().max().unwrap_or(1).max(1));
        let capacity = |speed: &u32| (u64::from(*speed) * CAPACITY / fastest).max(1) as u32;
        let cores = (0..host.nr_cpus()).map(|cpu| cpu / host.threads.max(1));
        Machine {
            smt: host.threads > 1,
            siblings: siblings(&cores.collect::<Vec<_>>()),
            nodes: host.nodes,
            capacities: speeds.iter().map(capacity).collect(),
            offline: Vec::new(),
            kernel: version(&host.kernel),
        }
    }

    /// The machine that this runs on.
    pub fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let last = |list: &str| {
            let last = list.trim().rsplit([',', '-']).next();
            last.and_then(|n| n.parse::<u32>().ok())
                .map_or(1, |n| n + 1)
        };
        let cpus = last(&read("/sys/devices/system/cpu/possible"));
        let capacity = |cpu| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
            read(&path).trim().parse().unwrap_or(CAPACITY as u32)
        };
        // CPUs of one core name the same list; one that is offline has none.
        let core = |cpu| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let list = read(&path);
            match list.trim() {
                "" => format!("cpu{cpu}"),
                list => list.to_string(),
            }
        };
        let is_off =
            |cpu: &u32| read(&format!("/sys/devices/system/cpu/cpu{cpu}/online")).trim() == "0";
        // One that was never there has no folder.
        let is_absent = |cpu: &u32| {
            !std::path::Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists()
        };
        let offline: Vec<u32> = (0..cpus).filter(|c| is_off(c) || is_absent(c)).collect();
        Machine {
            siblings: siblings(&(0..cpus).map(core).collect::<Vec<_>>()),
            smt: read("/sys/devices/system/cpu/smt/active").trim() == "1",
            nodes: last(&read("/sys/devices/system/node/online")),
            capacities: (0..cpus).map(capacity).collect(),
            offline,
            kernel: version(&read("/proc/sys/kernel/osrelease")),
        }
    }

    /// CPUs all alike.
    pub fn even(cpus: u32, kernel: &str) -> Machine {
        Machine {
            smt: false,
            siblings: vec![None; cpus as usize],
            nodes: 1,
            capacities: vec![CAPACITY as u32; cpus as usize],
            offline: Vec::new(),
            kernel: version(kernel),
        }
    }

    /// CPUs by their capacity; those alike by their numbers.
    fn fastest_first(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = (0..self.capacities.len() as u32).collect();
        cpus.retain(|cpu| !self.offline.contains(cpu));
        cpus.sort_by_key(|cpu| std::cmp::Reverse(self.capacities[*cpu as usize]));
        cpus
    }

    /// An argument of a program that is run on behalf of `cpu`.
    fn argument(&self, value: &Value, cpu: u32) -> Option<i32> {
        match value {
            Value::Number(number) => i32::try_from(*number).ok(),
            Value::Truth(truth) => Some((*truth).into()),
            Value::Word(word) => match word.as_str() {
                "cpu" => i32::try_from(cpu).ok(),
                "sibling" => Some(match self.siblings.get(cpu as usize)? {
                    Some(sibling) => i32::try_from(*sibling).ok()?,
                    None => -1,
                }),
                "slowest" => i32::try_from(*self.fastest_first().last()?).ok(),
                _ => None,
            },
        }
    }

    /// The runs of a program that the table has a row for.
    pub fn calls(&self, run: &Run) -> Option<Vec<Call>> {
        if run.with_smt && !self.smt {
            return Some(Vec::new());
        }
        let when = match &run.after_on {
            Some(cpu) => When::After {
                cpu: self.argument(cpu, 0)?.try_into().ok()?,
            },
            None => When::Before,
        };
        let each = match run.each_cpu {
            true => self.capacities.len() as u32,
            false => 1,
        };
        let there = |cpu: &u32| !run.each_cpu || !self.offline.contains(cpu);
        let call = |cpu| {
            let arguments = run.arguments.iter().map(|a| self.argument(a, cpu));
            Some(Call {
                program: run.program.clone(),
                arguments: arguments.collect::<Option<_>>()?,
                when,
            })
        };
        (0..each).filter(there).map(call).collect()
    }

    /// A value of the table for this machine.
    pub fn value(&self, value: &Value) -> Option<String> {
        let list = |numbers: Vec<u32>| {
            let words: Vec<_> = numbers.iter().map(u32::to_string).collect();
            words.join(",")
        };
        Some(match value {
            Value::Truth(truth) => truth.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Word(word) => match word.as_str() {
                "cpus" => self.capacities.len().to_string(),
                "nodes" => self.nodes.to_string(),
                "smt" => self.smt.to_string(),
                "several nodes" => (self.nodes > 1).to_string(),
                "one node" => (self.nodes <= 1).to_string(),
                "all alike" => self.capacities.windows(2).all(|w| w[0] == w[1]).to_string(),
                // CPUs in pairs, the first half with the second.
                "pair cpus" | "pair ids" | "pair places" => {
                    let cpus = self.capacities.len() as u32;
                    let half = cpus / 2;
                    let of = |cpu: u32| match word.as_str() {
                        "pair cpus" => (cpu + half) % cpus,
                        "pair ids" => cpu % half,
                        _ => cpu / half,
                    };
                    let even = cpus > 0 && cpus.is_multiple_of(2);
                    return even.then(|| list((0..cpus).map(of).collect()));
                }
                "capacities" => list(self.capacities.clone()),
                "fastest first" => list(self.fastest_first()),
                _ => return None,
            },
        })
    }
}

/// The first two CPUs of each core are siblings, as the scx project counts them; `cores`: of each CPU, anything that
/// names its core.
fn siblings<T: Ord>(cores: &[T]) -> Vec<Option<u32>> {
    let mut of_core: BTreeMap<&T, Vec<u32>> = BTreeMap::new();
    for (cpu, core) in cores.iter().enumerate() {
        of_core.entry(core).or_default().push(cpu as u32);
    }
    let mut siblings = vec![None; cores.len()];
    for cpus in of_core.values() {
        if let [first, second, ..] = cpus[..] {
            siblings[first as usize] = Some(second);
            siblings[second as usize] = Some(first);
        }
    }
    siblings
}

/// Major and minor of a kernel line; the newest that Berth has if it is none.
fn version(kernel: &str) -> (u16, u16) {
    let mut parts = kernel.split('.').map_while(|part| part.parse().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => (major, minor),
        _ => berth_policy::profile::KernelProfile::default().version,
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::table;
    use super::*;
    use berth_policy::loader;

    #[test]
    fn the_table_can_be_read() {
        let table = table();
        assert!(table.len() >= 11, "{}", table.len());
        let mut host = Host::default();
        let machine = Machine::host(&host);
        for (name, known) in table {
            assert!(known.loader.starts_with(&format!("scx_{name} ")), "{name}");
            for (variable, value) in known.rodata.iter().chain(&known.older) {
                assert!(machine.value(value).is_some(), "{name}.{variable}");
            }
            for run in &known.runs {
                assert!(machine.calls(run).is_some(), "{name}: {}", run.program);
            }
            let flags = known
                .ops_flags
                .iter()
                .flatten()
                .chain(&known.ops_flags_numa);
            let all = loader::flags((7, 2));
            flags.for_each(|flag| assert!(all.contains(&flag.as_str()), "{name}: {flag}"));
        }
        let word = |word: &str| Value::Word(word.into());
        let four = Machine::even(4, "7.2");
        let pairs = ["pair cpus", "pair ids", "pair places"];
        let pairs = pairs.map(|pair| four.value(&word(pair)).unwrap());
        assert_eq!(pairs, ["2,3,0,1", "0,1,0,1", "0,0,1,1"]);
        assert_eq!(Machine::even(3, "7.2").value(&word("pair cpus")), None);
        host.nodes = 2;
        host.packages = 2;
        let two = Machine::host(&host);
        assert_eq!(
            two.value(&Value::Word("several nodes".into())).unwrap(),
            "true"
        );
        assert_eq!(
            two.value(&Value::Word("fastest first".into())).unwrap(),
            "0,1,2,3,4,5,6,7"
        );
    }

    fn machine(cores: u32, threads: u32, capacities: &[u32]) -> Machine {
        let of: Vec<u32> = (0..cores * threads).map(|cpu| cpu / threads).collect();
        Machine {
            smt: threads > 1,
            siblings: siblings(&of),
            nodes: 1,
            capacities: capacities.to_vec(),
            offline: Vec::new(),
            kernel: (7, 2),
        }
    }

    #[test]
    fn programs_are_run_as_loaders_run_them() {
        let of = |name: &str, machine: &Machine| -> Vec<String> {
            let runs = &table()[name].runs;
            let calls = runs.iter().flat_map(|run| machine.calls(run).unwrap());
            calls.map(|call| call.to_string()).collect()
        };
        // The last of the slowest CPUs.
        let hybrid = machine(4, 1, &[512, 1024, 512, 1024]);
        assert_eq!(
            of("tickless", &hybrid),
            [
                "before enable_primary_cpu -1",
                "before enable_primary_cpu 2",
                "after 2 start_timer 2"
            ]
        );
        assert!(of("cosmos", &hybrid).is_empty());
        // Of those that are there.
        let part = Machine {
            offline: vec![2],
            ..hybrid
        };
        assert_eq!(of("tickless", &part)[2], "after 0 start_timer 0");
        // Two of a core's three threads are siblings.
        let smt = machine(2, 3, &[1024; 6]);
        assert_eq!(
            of("cosmos", &smt),
            ["0 1", "1 0", "2 -1", "3 4", "4 3", "5 -1"]
                .map(|numbers| format!("before enable_sibling_cpu {numbers}"))
        );
        assert_eq!(of("flash", &smt)[0], "before enable_sibling_cpu 0 0 1");
    }
}
