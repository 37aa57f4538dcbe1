// SPDX-License-Identifier: GPL-2.0-only
//! What a host shows of a second, for the optimiser: what its VMs' threads ran and waited, what else ran, which CPUs
//! are online.
use crate::keeper::Keeper;
use crate::register::{Entry, VmKey};
use berth_host::model::Vm;
use berth_host::root::Root;
use berth_host::topology;
use berth_optimiser::{Cpu, CpuSet, Load, Observation, VmSeen};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// What is known of a VM besides what it did.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Its weight before anything was set.
    pub weight: Option<u32>,
    /// Where somebody else has pinned it.
    pub pinned: Option<CpuSet>,
}

/// Looks, once per reading of the counters.
#[derive(Debug)]
pub struct Watch {
    root: Root,
    first: Instant,
    /// The reading that was seen last.
    last: Option<Instant>,
    online: String,
    cpus: Vec<Cpu>,
    /// Ticks (1/100 s) that all CPUs were busy, at the last look.
    busy: Option<u64>,
}

impl Watch {
    pub fn new(root: Root) -> Watch {
        Watch {
            first: root.now(),
            last: None,
            online: String::new(),
            cpus: Vec::new(),
            busy: None,
            root,
        }
    }

    /// What there is new since the last time; none before there is. `known`: what is known of a VM; `complain`: gets a
    /// promise that cannot be one, which then does not count.
    pub fn look(
        &mut self,
        host: &Keeper,
        partial: bool,
        known: &dyn Fn(&Vm, Option<&Entry>) -> Known,
        complain: &mut dyn FnMut(String),
    ) -> Option<Observation> {
        let watched = host.watched()?;
        let sampled = watched.sampled()?;
        if self.last == Some(sampled) {
            return None;
        }
        let before = self.last.replace(sampled);
        let busy = self.busy_ticks();
        let busy_before = std::mem::replace(&mut self.busy, busy);
        let span_ns = sampled.saturating_duration_since(before?).as_nanos() as u64;
        let entries: BTreeMap<VmKey, &Entry> = host
            .description()
            .entries
            .iter()
            .map(|e| (e.key, e))
            .collect();
        let mut vms = Vec::new();
        for vm in &host.snapshot().vms {
            if vm.vcpus == 0 || partial && !host.rules().names(&vm.name) {
                continue;
            }
            let known = known(vm, entries.get(&key(vm)).copied());
            let weight = known.weight.unwrap_or(100).clamp(1, 10_000);
            let mut promise = host.rules().promise(&vm.name, weight);
            if let Err(e) = promise.check(&vm.name, vm.vcpus) {
                complain(format!("{e}; until then nothing is promised to it"));
                promise = berth_optimiser::Promise {
                    weight,
                    ..Default::default()
                };
            }
            let rates = watched.rates(vm).unwrap_or_default();
            vms.push(VmSeen {
                name: vm.name.clone(),
                vcpus: vm.vcpus,
                promise,
                pinned: known.pinned,
                load: Load {
                    ran_ns: (rates.cpus * span_ns as f64) as u64,
                    run_delay_ns: (rates.waiting * span_ns as f64) as u64,
                },
            });
        }
        let ran: u64 = vms.iter().map(|vm| vm.load.ran_ns).sum();
        let all_ns = busy
            .zip(busy_before)
            .map_or(0, |(now, before)| now.saturating_sub(before) * TICK_NS);
        Some(Observation {
            at_ns: sampled.saturating_duration_since(self.first).as_nanos() as u64,
            span_ns: span_ns.max(1),
            cpus: self.cpus.clone(),
            vms,
            host: Load {
                ran_ns: all_ns.saturating_sub(ran),
                // Not told by most kernels; VMs' own delays say how much there is to wait for.
                run_delay_ns: 0,
            },
            pressure: self.pressure(),
        })
    }

    /// The CPUs that are divided: those online but for isolated ones (`isolcpus=`), on which threads run only if they
    /// are bound there. None before the first look.
    pub fn cpus(&self) -> Option<CpuSet> {
        CpuSet::of(self.cpus.iter().map(|c| c.cpu))
    }

    /// Reads what CPUs there are, again when others are online.
    pub fn follow_cpus(&mut self) {
        let online = self
            .root
            .sys_text("devices/system/cpu/online")
            .unwrap_or_default();
        if online == self.online && !self.cpus.is_empty() {
            return;
        }
        self.online = online;
        let cpu = |c: topology::CpuPlace| Cpu {
            cpu: c.cpu,
            core: c.core,
            llc: c.llc,
            node: c.node,
            capacity: c.capacity,
        };
        let isolated = self
            .root
            .sys_text("devices/system/cpu/isolated")
            .unwrap_or_default();
        let isolated: Option<CpuSet> = isolated.parse().ok();
        let apart = |c: &Cpu| isolated.as_ref().is_some_and(|i| i.has(c.cpu));
        self.cpus = topology::cpus(&self.root)
            .into_iter()
            .map(cpu)
            .filter(|c| !apart(c))
            .collect();
    }

    fn busy_ticks(&self) -> Option<u64> {
        let text = self.root.proc_text("stat")?;
        busy(text.lines().next()?)
    }

    /// Part of the last ten seconds in which some task waited for a CPU.
    fn pressure(&self) -> Option<f64> {
        let text = self.root.proc_text("pressure/cpu")?;
        let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
        let percent: f64 = some
            .split(' ')
            .find_map(|word| word.strip_prefix("avg10="))?
            .parse()
            .ok()?;
        Some(percent / 100.0)
    }
}

const TICK_NS: u64 = 10_000_000;

/// Busy ticks of `cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL GUEST GUEST_NICE`; guests' are in the user's.
fn busy(line: &str) -> Option<u64> {
    let mut words = line
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map(|w| w.parse::<u64>().ok());
    let mut next = || words.next().flatten();
    let (user, nice, system, _idle, _wait) = (next()?, next()?, next()?, next()?, next()?);
    let (irq, softirq) = (next().unwrap_or(0), next().unwrap_or(0));
    [nice, system, irq, softirq]
        .into_iter()
        .try_fold(user, u64::checked_add)
}

/// Which VM it is.
pub fn key(vm: &Arc<Vm>) -> VmKey {
    VmKey {
        pid: vm.pid,
        start: vm.start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::fixture::Fixture;

    #[test]
    fn isolated_cpus_are_not_divided() {
        let of = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            Fixture::parse(text).unwrap().unpack(folder.path()).unwrap();
            let mut watch = Watch::new(Root::at(folder.path()));
            watch.follow_cpus();
            watch.cpus().map(|c| c.to_string())
        };
        let online = "file sys/devices/system/cpu/online 0-7\n";
        assert_eq!(
            of(&format!(
                "{online}file sys/devices/system/cpu/isolated 2-3,7\n"
            )),
            Some("0-1,4-6".into())
        );
        assert_eq!(
            of(&format!(
                "{online}file sys/devices/system/cpu/isolated \"\"\n"
            )),
            Some("0-7".into())
        );
        assert_eq!(
            of(&format!("{online}file sys/devices/system/cpu/isolated x\n")),
            Some("0-7".into())
        );
        assert_eq!(of(online), Some("0-7".into()));
        assert_eq!(of("process 1 init"), None);
    }

    #[test]
    fn busy_time_is_all_but_idle_and_stolen() {
        assert_eq!(busy("cpu  10 20 30 1000 5 3 4 99 7 7"), Some(67));
        assert_eq!(busy("cpu  1 2 3 4 5"), Some(6));
        for bad in [
            "",
            "cpu",
            "cpu0 1 2 3 4 5",
            "cpu  1 2 x 4 5",
            "cpu  18446744073709551615 1 1 1 1",
        ] {
            assert_eq!(busy(bad), None, "{bad}");
        }
    }
}
