// SPDX-License-Identifier: GPL-2.0-only
//! What VMs are promised, on the command line.
use crate::exit::Failure;
use berth_agent::rules::Promised;
use berth_optimiser::{Promise, Service};

#[derive(clap::Args, Clone, Debug, Default)]
pub struct Promises {
    /// Guaranteed so many CPUs, to itself where that goes: VM=CPUS; `*` stands for any text
    #[arg(long, value_name = "VM=CPUS")]
    target: Vec<String>,

    /// Guaranteed so many CPUs: VM=CPUS
    #[arg(long, value_name = "VM=CPUS")]
    guarantee: Vec<String>,

    /// At most so many CPUs: VM=CPUS
    #[arg(long, value_name = "VM=CPUS")]
    limit: Vec<String>,

    /// Placed after all others
    #[arg(long, value_name = "VM,VM", value_delimiter = ',')]
    best_effort: Vec<String>,
}

impl Promises {
    /// One for each name; the first that fits a VM counts.
    pub fn all(&self) -> Result<Vec<Promised>, Failure> {
        let mut all: Vec<Promised> = Vec::new();
        for text in &self.target {
            let (name, cpus) = named("--target", text)?;
            let promise = of(&mut all, name);
            (promise.service, promise.guarantee) = (Service::Target, cpus);
        }
        for text in &self.guarantee {
            let (name, cpus) = named("--guarantee", text)?;
            of(&mut all, name).guarantee = cpus;
        }
        for text in &self.limit {
            let (name, cpus) = named("--limit", text)?;
            of(&mut all, name).limit = Some(cpus);
        }
        for name in &self.best_effort {
            of(&mut all, name).service = Service::BestEffort;
        }
        for promised in &all {
            // How many vCPUs it has is known when it is there.
            let checked = promised.promise.check(&promised.name, u32::MAX);
            checked.map_err(|e| Failure::Input(e.to_string()))?;
        }
        Ok(all)
    }
}

fn of<'a>(all: &'a mut Vec<Promised>, name: &str) -> &'a mut Promise {
    let at = all.iter().position(|p| p.name == name).unwrap_or(all.len());
    if at == all.len() {
        all.push(Promised {
            name: name.into(),
            promise: Promise::default(),
        });
    }
    &mut all[at].promise
}

fn named<'a>(option: &str, text: &'a str) -> Result<(&'a str, f64), Failure> {
    let pair = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let pair = pair.and_then(|(name, cpus)| Some((name, cpus.parse().ok()?)));
    pair.ok_or_else(|| Failure::Input(format!("{option} {text}: VM=CPUS, such as 'web*=0.95'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_promise_for_each_name() {
        let promises = Promises {
            target: vec!["web*=0.95".into()],
            limit: vec!["web*=2".into(), "job=1".into()],
            best_effort: vec!["job".into()],
            ..Promises::default()
        };
        let all = promises.all().unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].promise.guarantee, 0.95);
        assert_eq!(all[0].promise.limit, Some(2.0));
        assert_eq!(all[1].promise.service, Service::BestEffort);
        let wrong = |limit: &str| {
            let promises = Promises {
                guarantee: vec!["a=2".into()],
                limit: vec![limit.into()],
                ..Promises::default()
            };
            matches!(promises.all(), Err(Failure::Input(_)))
        };
        for text in ["a=1", "a=-1", "a=x", "a", "=1", "a=nan"] {
            assert!(wrong(text), "{text}");
        }
    }
}
