// SPDX-License-Identifier: GPL-2.0-only
//! What the operator says of VMs, by name: which of them, of which class.
use berth_identity::Class;
use berth_optimiser::Promise;

/// Whether a name fits a pattern, in which `*` stands for any text.
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// What is said of the VMs whose names fit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rule {
    /// `web*`
    pub name: String,
    /// `latency`, `batch`, `mixed`, or `none` (the policy is told nothing); what the VM does decides if no class is
    /// said.
    pub class: Option<String>,
    /// So many of the last vCPUs of a mixed VM serve I/O.
    #[serde(default)]
    pub io_vcpus: u32,
}

/// What the VMs whose names fit are promised.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Promised {
    /// `web*`
    pub name: String,
    /// Its weight does not count: a VM's is that of its cgroup.
    pub promise: Promise,
}

/// All that the operator says of VMs.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Rules {
    /// Only these have a class; all others count as batch. Empty: all.
    #[serde(default)]
    pub only: Vec<String>,
    /// The first that fits counts.
    #[serde(default)]
    pub vms: Vec<Rule>,
    /// The first that fits counts; the optimiser keeps them.
    #[serde(default)]
    pub promises: Vec<Promised>,
}

impl Rules {
    /// Whether a VM is among those named.
    pub fn names(&self, vm: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|p| fits(p, vm))
    }

    /// The rule for a VM.
    pub fn rule(&self, vm: &str) -> Option<&Rule> {
        self.vms.iter().find(|r| fits(&r.name, vm))
    }

    /// What a VM is promised; of the weight it has on its host.
    pub fn promise(&self, vm: &str, weight: u32) -> Promise {
        let promised = self.promises.iter().find(|p| fits(&p.name, vm));
        let promise = promised.map_or(Promise::default(), |p| p.promise);
        Promise { weight, ..promise }
    }

    /// Its class, if the operator says so.
    pub fn class(&self, vm: &str) -> Option<Class> {
        Class::of(self.rule(vm)?.class.as_deref()?)
    }

    /// How many of its vCPUs, the last ones, serve I/O.
    pub fn io_vcpus(&self, vm: &str) -> u32 {
        self.rule(vm).map_or(0, |r| r.io_vcpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, yes) in [
            ("web", "web", true),
            ("web", "web1", false),
            ("web*", "web", true),
            ("web*", "web-12", true),
            ("*web", "my-web", true),
            ("*a*b*", "xaybz", true),
            ("a*b", "ab", true),
            ("a*ba", "aba", true),
            ("a*aba", "aba", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("a*b*c", "a-c-b", false),
        ] {
            assert_eq!(fits(pattern, name), yes, "{pattern} {name}");
        }
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rule = |name: &str, class: &str| Rule {
            name: name.into(),
            class: Some(class.into()),
            io_vcpus: 0,
        };
        let rules = Rules {
            only: vec!["web*".into()],
            vms: vec![rule("web-9", "batch"), rule("web*", "latency")],
            ..Rules::default()
        };
        assert_eq!(rules.class("web-9"), Some(Class::Batch));
        assert_eq!(rules.class("web-1"), Some(Class::Latency));
        assert_eq!(rules.class("db"), None);
        assert!(rules.names("web-1") && !rules.names("db"));
    }
}
