// SPDX-License-Identifier: GPL-2.0-only
//! When a VM has done all its work: its last thread has ended by itself.
use super::api::Nanos;
use berth_scenario::placement::VmInstance;
use std::collections::BTreeMap;

/// One home.
#[derive(Clone, Copy, Debug, Default)]
struct Home {
    /// Threads that have begun and not ended.
    threads: u32,
    began: Option<Nanos>,
    ended: Option<Nanos>,
}

/// By home: VMs, then the host.
#[derive(Debug)]
pub(super) struct Completion(Vec<Home>);

impl Completion {
    pub fn new(homes: usize) -> Completion {
        Completion(vec![Home::default(); homes])
    }

    /// One more thread of this home.
    pub fn begins(&mut self, home: u32, now: Nanos) {
        let home = &mut self.0[home as usize];
        home.threads += 1;
        home.began.get_or_insert(now);
        home.ended = None;
    }

    /// One thread less.
    pub fn ends(&mut self, home: u32, now: Nanos) {
        let home = &mut self.0[home as usize];
        home.threads = home.threads.saturating_sub(1);
        if home.threads == 0 {
            home.ended = Some(now);
        }
    }

    /// `VM.completion`, in ns from its start, of each VM that is done; of a group of several, once all are, the
    /// longest.
    pub fn metrics(&self, vms: &[VmInstance], groups: &[String], out: &mut BTreeMap<String, f64>) {
        let took = |vm: &VmInstance| {
            let home = self.0.get(vm.ordinal as usize)?;
            Some((home.ended? - home.began?) as f64)
        };
        for (group, name) in groups.iter().enumerate() {
            let mut all = Vec::new();
            for vm in vms.iter().filter(|vm| vm.group == group) {
                let took = took(vm);
                all.push(took);
                if let Some(ns) = took {
                    out.insert(format!("{}.completion", vm.name), ns);
                }
            }
            let all: Option<Vec<f64>> = all.into_iter().collect();
            if let Some(longest) = all.and_then(|all| all.into_iter().reduce(f64::max)) {
                out.insert(format!("{name}.completion"), longest);
            }
        }
    }
}
