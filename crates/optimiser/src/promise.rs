// SPDX-License-Identifier: GPL-2.0-only
//! What a VM was promised: its class of service, guarantee, weight and limit.
use crate::error::Error;
use serde::{Deserialize, Serialize};

/// Least limit, CPUs: every VM keeps 1 % of a CPU.
pub const LEAST_CPUS: f64 = 0.01;

/// Class of service. (What a VM is *for*, latency or batch, is another matter.)
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// It may have CPUs of its own, and the fastest.
    Target,
    #[default]
    Normal,
    /// It is placed after all others.
    BestEffort,
}

impl Service {
    pub const ALL: [Service; 3] = [Service::Target, Service::Normal, Service::BestEffort];

    /// As in scenario files and tables.
    pub fn word(self) -> &'static str {
        match self {
            Service::Target => "target",
            Service::Normal => "normal",
            Service::BestEffort => "best-effort",
        }
    }

    /// The class of this word.
    pub fn of(word: &str) -> Option<Service> {
        Service::ALL.into_iter().find(|s| s.word() == word)
    }
}

/// What a VM was promised. The unit is the VM, not its threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Promise {
    pub service: Service,
    /// CPUs it gets whenever it wants them.
    pub guarantee: f64,
    /// CPUs it gets at most.
    pub limit: Option<f64>,
    /// Its part of what is left, 1 to 10000; the `cpu.weight` that it has on the host as long as nothing changes it.
    pub weight: u32,
}

impl Default for Promise {
    fn default() -> Promise {
        Promise {
            service: Service::Normal,
            guarantee: 0.0,
            limit: None,
            weight: 100,
        }
    }
}

impl Promise {
    /// # Errors
    /// What cannot be promised to a VM of so many vCPUs, whatever the host.
    pub fn check(&self, vm: &str, vcpus: u32) -> Result<(), Error> {
        let vm = || vm.to_string();
        if vcpus == 0 {
            return Err(Error::NoVcpus(vm()));
        }
        if !(1..=10_000).contains(&self.weight) {
            return Err(Error::Weight {
                vm: vm(),
                weight: self.weight,
            });
        }
        if !(0.0..=f64::from(vcpus)).contains(&self.guarantee) {
            return Err(Error::Guarantee {
                vm: vm(),
                cpus: self.guarantee,
                vcpus,
            });
        }
        match self.limit {
            Some(cpus) if !(cpus.is_finite() && cpus >= LEAST_CPUS) => {
                Err(Error::Limit { vm: vm(), cpus })
            }
            Some(limit) if limit < self.guarantee => Err(Error::LimitBelowGuarantee {
                vm: vm(),
                limit,
                guarantee: self.guarantee,
            }),
            _ => Ok(()),
        }
    }

    /// Whole CPUs that it may have to itself: class target, and a guarantee that fits into them and is at least 0.9 of
    /// them. 0: none.
    pub fn dedicated_cpus(&self, vcpus: u32) -> u32 {
        let whole = self.guarantee.ceil();
        // A guarantee of 0.9 times a whole number is enough, whatever the last bit says.
        let fills = self.guarantee >= 0.9 * whole - 1e-9;
        match self.service {
            Service::Target if fills => (whole as u32).min(vcpus),
            Service::Target | Service::Normal | Service::BestEffort => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_promised_is_refused_by_name_and_amount() {
        let text = |p: Promise, vcpus| p.check("web", vcpus).unwrap_err().to_string();
        let p = Promise::default();
        assert_eq!(p.check("web", 1), Ok(()));
        assert!(text(p, 0).starts_with("VM web has no vCPU"));
        assert!(text(Promise { weight: 0, ..p }, 1).starts_with("VM web: the weight is 0"));
        for guarantee in [-0.5, 1.5, f64::NAN] {
            let e = text(Promise { guarantee, ..p }, 1);
            assert!(
                e.starts_with("VM web: the guarantee is") && e.contains("its 1 vCPUs"),
                "{e}"
            );
        }
        for limit in [0.0, f64::NAN, f64::INFINITY] {
            let limit = Some(limit);
            assert!(text(Promise { limit, ..p }, 1).starts_with("VM web: the limit is"));
        }
        let both = Promise {
            guarantee: 0.75,
            limit: Some(0.5),
            ..p
        };
        assert_eq!(
            text(both, 1),
            "VM web: the limit of 0.5 CPUs is 0.25 below the guarantee of 0.75: raise the one or lower the other"
        );
    }

    #[test]
    fn dedicated_cpus_are_whole() {
        let of = |service, guarantee, vcpus| {
            let p = Promise {
                service,
                guarantee,
                ..Promise::default()
            };
            p.dedicated_cpus(vcpus)
        };
        assert_eq!(of(Service::Target, 0.95, 1), 1);
        assert_eq!(of(Service::Target, 0.89, 1), 0);
        assert_eq!(of(Service::Target, 0.0, 1), 0);
        assert_eq!(of(Service::Target, 1.5, 4), 0);
        assert_eq!(of(Service::Target, 2.7, 4), 3);
        assert_eq!(of(Service::Target, 10.0, 12), 10);
        assert_eq!(of(Service::Target, 10.0, 10), 10);
        assert_eq!(of(Service::Normal, 4.0, 4), 0);
    }
}
