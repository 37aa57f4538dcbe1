// SPDX-License-Identifier: GPL-2.0-only
//! What the optimiser remembers of one VM.
use crate::act::Setting;
use crate::cpuset::CpuSet;
use crate::demand::{Demand, Sample};
use crate::machine::Machine;
use crate::observe::VmSeen;
use crate::promise::Promise;
use crate::reason::{Reason, Trigger};
use crate::settings::Settings;

/// One VM, from its first observation to the one without it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) vcpus: u32,
    pub(crate) promise: Promise,
    pub(crate) pinned: Option<CpuSet>,
    pub(crate) demand: Demand,
    /// CPUs that it would use where nobody is in its way ([`Sample::running`]).
    pub(crate) running: f64,
    /// CPUs that it used, at the last two looks; at one that was not: without end.
    pub(crate) used: [f64; 2],
    /// Those that came before have lower numbers.
    pub(crate) arrival: u64,
    /// As the host has it.
    pub(crate) setting: Setting,
    pub(crate) changed_ns: Option<u64>,
    /// CPUs it was last given to itself, and those onto which it was packed last.
    pub(crate) own: Option<CpuSet>,
    pub(crate) packed: Option<CpuSet>,
    /// Why it is to be set as it is.
    pub(crate) reasons: Vec<Reason>,
}

impl Known {
    pub(crate) fn first(seen: &VmSeen, span_ns: u64, arrival: u64) -> Known {
        let setting = Setting {
            cpus: seen.pinned.clone(),
            ..Setting::untouched(seen.promise.weight)
        };
        let sample = sample(seen, span_ns, &setting);
        let (demand, running) = (Demand::first(sample.cpus()), sample.running(0.0));
        Known {
            vcpus: seen.vcpus,
            promise: seen.promise,
            pinned: seen.pinned.clone(),
            demand,
            running,
            used: [sample.used, f64::INFINITY],
            arrival,
            setting,
            changed_ns: None,
            own: None,
            packed: None,
            reasons: Vec::new(),
        }
    }

    /// A further look at it; what of it makes a decision due.
    pub(crate) fn see(
        &mut self,
        seen: &VmSeen,
        span_ns: u64,
        settings: &Settings,
    ) -> Option<Trigger> {
        let other =
            (self.vcpus, &self.promise, &self.pinned) != (seen.vcpus, &seen.promise, &seen.pinned);
        if self.pinned != seen.pinned {
            // Whoever pins a VM, or ends that, has changed where it runs.
            self.setting.cpus = seen.pinned.clone();
            self.pinned = seen.pinned.clone();
        }
        (self.vcpus, self.promise) = (seen.vcpus, seen.promise);
        let sample = sample(seen, span_ns, &self.setting);
        self.running = sample.running(self.running);
        self.used = [sample.used, self.used[0]];
        let step = self.demand.update(sample.cpus(), settings);
        match (other, step) {
            (true, _) => Some(Trigger::Promise(seen.name.clone())),
            (false, true) => Some(Trigger::Step(seen.name.clone())),
            (false, false) => None,
        }
    }

    /// The kernel lets a VM of whose CPUs none is left run on all.
    pub(crate) fn cpus_gone(&mut self, machine: &Machine) {
        if self.pinned.is_none()
            && self
                .setting
                .cpus
                .as_ref()
                .is_some_and(|c| !c.meets(machine.all()))
        {
            self.setting.cpus = None;
        }
    }

    /// As it would be without the optimiser.
    pub(crate) fn untouched(&self) -> Setting {
        Setting {
            cpus: self.pinned.clone(),
            ..Setting::untouched(self.promise.weight)
        }
    }
}

fn sample(seen: &VmSeen, span_ns: u64, setting: &Setting) -> Sample {
    Sample {
        used: seen.load.used(span_ns),
        wanted: seen.load.wanted(span_ns),
        run_fraction: setting.run_fraction.unwrap_or(1.0),
        cap: setting.cap,
        vcpus: seen.vcpus,
    }
}
