// SPDX-License-Identifier: GPL-2.0-only
//! What the operator says of VMs, by name: which of them, of which class.
use berth_identity::Class;
use berth_identity::record::SCORE_MILLI;
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

/// What the VMs whose names fit gain from fast cores.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Gains {
    /// `web*`
    pub name: String,
    /// How many times as fast a vCPU is on the fastest kind of cores as on the slowest, in thousandths
    /// ([`SCORE_MILLI`]): of each vCPU, or one for all.
    pub score_milli: Vec<u32>,
}

impl Gains {
    /// From numbers such as 1.75.
    ///
    /// # Errors
    /// There is none, or one is not 1 to 100.
    pub fn new(name: &str, scores: &[f64]) -> Result<Gains, String> {
        let milli = |score: &f64| {
            let milli = (score * 1000.0).round();
            // A saturating cast: what is no number is 0.
            let milli = milli as u32;
            match SCORE_MILLI.contains(&milli) {
                true => Ok(milli),
                false => Err(format!(
                    "{score} is not 1 to 100: how many times as fast is it on a fast core as on a slow one?"
                )),
            }
        };
        if scores.is_empty() {
            return Err("no score: one for all vCPUs, or one for each".into());
        }
        Ok(Gains {
            name: name.into(),
            score_milli: scores.iter().map(milli).collect::<Result<_, _>>()?,
        })
    }
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
    /// The first that fits counts; a policy that gives fast cores to who gains most measures all others.
    #[serde(default)]
    pub scores: Vec<Gains>,
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

    /// What a vCPU gains from fast cores, in thousandths, if the operator says so.
    pub fn score_milli(&self, vm: &str, vcpu: u32) -> Option<u32> {
        let scores = &self.scores.iter().find(|s| fits(&s.name, vm))?.score_milli;
        match scores[..] {
            [all] => Some(all),
            _ => scores.get(vcpu as usize).copied(),
        }
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
    fn scores_are_of_all_vcpus_or_of_each() {
        let rules = Rules {
            scores: vec![
                Gains::new("web-9", &[2.0, 1.25]).unwrap(),
                Gains::new("web*", &[1.75]).unwrap(),
            ],
            ..Rules::default()
        };
        let of = |vm, vcpu| rules.score_milli(vm, vcpu);
        assert_eq!((of("web-1", 0), of("web-1", 7)), (Some(1750), Some(1750)));
        assert_eq!(
            (of("web-9", 0), of("web-9", 1), of("web-9", 2)),
            (Some(2000), Some(1250), None)
        );
        assert_eq!(of("db", 0), None);
        for wrong in [0.0, 0.99, 100.1, -3.0, f64::NAN, f64::INFINITY] {
            let why = Gains::new("x", &[1.5, wrong]).unwrap_err();
            assert!(why.contains("1 to 100"), "{why}");
        }
        assert!(Gains::new("x", &[]).unwrap_err().contains("no score"));
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
