// SPDX-License-Identifier: GPL-2.0-only
//! The optimiser beside a scenario's micro-VMs, by the same code as `berth start optimiser` on a host: it finds them as
//! it finds any, sees what the kernel shows, and sets CPU sets or affinities, weights and caps.
use berth_agent::backend::cgroup::{Cgroup, Place};
use berth_agent::backend::{Acting, Backend, Policy};
use berth_agent::keeper::Keeper;
use berth_agent::rules::{Promised, Rules};
use berth_host::root::Root;
use berth_loadgen::Vcpus;
use berth_optimiser::{Means, Settings, Spread};
use berth_scenario::model::{Nanos, Optimiser, Scenario};
use berth_scenario::placement;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where it remembers what it changed. Nobody watches over it: the VM ends with the run.
const STATE: &str = "/run/berth-changes";
/// How often the daemon looks at the host.
const LOOK: Duration = Duration::from_millis(200);

/// Why a scenario's optimiser cannot be had in the lab, if it cannot; in one sentence, with what to do.
pub fn cannot(scenario: &Scenario, vcpus: Vcpus) -> Option<String> {
    let asked = scenario.optimiser.as_ref()?;
    if vcpus == Vcpus::Threads {
        return Some(
            "the optimiser acts on VMs that are processes: --vcpus kvm, and what micro-VMs can do"
                .into(),
        );
    }
    if asked.settings.means.freezing {
        return Some(
            "VMs are not frozen in the lab: leave `freezing` out of optimiser.by, or simulate"
                .into(),
        );
    }
    let fixed = Settings::default();
    let asked = &asked.settings;
    let times = [
        ("period", asked.period_ns, fixed.period_ns),
        ("decide", asked.decide_ns, fixed.decide_ns),
        ("gap", asked.gap_ns, fixed.gap_ns),
    ];
    let (name, ..) = times.into_iter().find(|(_, asked, fixed)| asked != fixed)?;
    Some(format!(
        "the optimiser of the lab is a host's, which looks once a second: leave out optimiser.{name}"
    ))
}

/// The optimiser while it acts.
pub struct Beside {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Done, String>>,
}

/// What it did.
#[derive(Debug)]
pub struct Done {
    /// Changes of VMs in the measured window.
    pub changes: u64,
    /// What could not be done, each in one sentence.
    pub warnings: Vec<String>,
}

impl Beside {
    /// Begins to act on the VMs of this scenario, which are there. The window begins `before_ns` from now.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(
        scenario: &Scenario,
        optimiser: &Optimiser,
        before_ns: Nanos,
    ) -> std::io::Result<Beside> {
        let stop = Arc::new(AtomicBool::new(false));
        let (policy, rules) = (policy(&optimiser.settings), rules(scenario, optimiser));
        let (until, window) = (
            stop.clone(),
            Instant::now() + Duration::from_nanos(before_ns),
        );
        let act = move || act(&policy, rules, &until, window);
        let thread = std::thread::Builder::new().name("berth-optimiser".into());
        Ok(Beside {
            thread: thread.spawn(act)?,
            stop,
        })
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// It could not act, or stopped.
    pub fn end(self) -> Result<Done, String> {
        self.stop.store(true, Ordering::Relaxed);
        let done = self.thread.join();
        done.map_err(|_| "the optimiser panicked; see the console".to_string())?
            .map_err(|e| format!("the optimiser: {e}"))
    }
}

fn act(policy: &Policy, rules: Rules, stop: &AtomicBool, window: Instant) -> Result<Done, String> {
    let root = Root::live();
    let place = Place {
        state: STATE.into(),
        guardian: None,
        lock: None,
    };
    let trouble = |e: berth_agent::backend::Trouble| e.to_string();
    let backend = Cgroup::new(root.clone(), place);
    let ready = backend.load(policy).map_err(trouble)?;
    let mut acting = ready.start().map_err(trouble)?;
    let mut keeper = Keeper::new(root.clone(), rules);
    keeper.watch_classes(root);
    let changes = |acting: &dyn Acting| acting.counters().get("changes").copied().unwrap_or(0);
    let mut before = 0;
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() < window {
            before = changes(&*acting);
        }
        keeper.look().map_err(|e| format!("/proc: {e}"))?;
        acting.look(&keeper);
        if let Some(end) = acting.poll().map_err(trouble)? {
            return Err(end.why);
        }
        std::thread::sleep(LOOK);
    }
    let done = Done {
        changes: changes(&*acting) - before,
        warnings: acting.warnings().to_vec(),
    };
    acting.end();
    Ok(done)
}

/// What each VM is promised; nobody else is acted on.
fn rules(scenario: &Scenario, optimiser: &Optimiser) -> Rules {
    let instances = placement::instances(scenario);
    let promised = |vm: &placement::VmInstance| Promised {
        name: vm.name.clone(),
        promise: optimiser.promise(&scenario.vms[vm.group]),
    };
    Rules {
        only: instances.iter().map(|vm| vm.name.clone()).collect(),
        promises: instances.iter().map(promised).collect(),
        ..Rules::default()
    }
}

/// The settings, as an operator would write them.
fn policy(settings: &Settings) -> Policy {
    let Means {
        sets,
        weights,
        caps,
        freezing: _,
    } = settings.means;
    let by = [("sets", sets), ("weights", weights), ("caps", caps)];
    let by: Vec<&str> = (by.iter().filter(|(_, on)| *on))
        .map(|(word, _)| *word)
        .collect();
    let spread = match settings.spread {
        Spread::Cpus => "cpus",
        Spread::Pool => "pool",
    };
    let set = [
        ("by", by.join(",")),
        ("reserve", settings.reserve.to_string()),
        ("host_weight", settings.host_weight.to_string()),
        ("alpha", settings.alpha.to_string()),
        ("step", settings.step.to_string()),
        ("hysteresis", settings.hysteresis.to_string()),
        ("imbalance", settings.imbalance.to_string()),
        ("dedicate_from", settings.dedicate_from.to_string()),
        ("dedicate_until", settings.dedicate_until.to_string()),
        ("spread", spread.to_string()),
    ];
    let parameters: BTreeMap<String, String> =
        set.map(|(name, value)| (name.to_string(), value)).into();
    Policy {
        parameters,
        ..Policy::optimiser(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_agent::backend::cgroup::parameters;
    use berth_scenario::{Input, read};

    fn scenario(text: &str) -> Scenario {
        let input = Input {
            name: "test".into(),
            shown: "test.toml".into(),
            text: text.into(),
            folder: None,
        };
        read(&input, &[]).unwrap().scenario
    }

    const VMS: &str = "[vm.web]\ntasks = [\"t\"]\n[vm.hog]\ncount = 2\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\"\n";

    #[test]
    fn an_operator_s_words_are_the_scenario_s_settings() {
        let told = "[optimiser]\nby = [\"sets\", \"caps\"]\nreserve = \"10%\"\nspread = \"pool\"\nsmoothing = \"25%\"\n\
                    host_weight = 7\n[optimiser.vm.web]\nservice = \"target\"\nguarantee = \"0.95 CPUs\"";
        let scenario = scenario(&format!("{VMS}{told}"));
        let optimiser = scenario.optimiser.as_ref().unwrap();
        let read = parameters::settings(&policy(&optimiser.settings).parameters).unwrap();
        assert_eq!(read, optimiser.settings);
        let rules = rules(&scenario, optimiser);
        assert_eq!(rules.only, ["web", "hog-1", "hog-2"]);
        assert_eq!(rules.promise("web", 100).guarantee, 0.95);
        assert_eq!(rules.promise("hog-2", 100).guarantee, 0.0);
        assert_eq!(cannot(&scenario, Vcpus::Kvm), None);
    }

    #[test]
    fn what_the_lab_cannot_do_is_said() {
        let of = |told: &str, vcpus| cannot(&scenario(&format!("{VMS}{told}")), vcpus);
        assert_eq!(of("", Vcpus::Threads), None);
        let says = |told: &str, vcpus, word: &str| {
            let why = of(told, vcpus).unwrap();
            assert!(why.contains(word), "{why}");
        };
        says("[optimiser]", Vcpus::Threads, "--vcpus kvm");
        says(
            "[optimiser]\nby = [\"sets\", \"freezing\"]",
            Vcpus::Kvm,
            "not frozen",
        );
        says("[optimiser]\ngap = \"4s\"", Vcpus::Kvm, "optimiser.gap");
    }
}
