// SPDX-License-Identifier: GPL-2.0-only
//! What a request comes to: variants of a scenario, their arms, the seeds. Everything that can be wrong
//! with the input is found here, before anything runs.
use crate::claims;
use crate::error::Failure;
use crate::foreign;
use crate::policies;
use crate::request::Request;
use berth_results::expect::{self, Bound, Limit};
use berth_results::experiment::{self, Experiment, FORMAT, Group, Provenance, Results, Setup};
use berth_results::findings;
use berth_results::schema::{Place, RunRecord};
use berth_results::warmup;
use berth_scenario::diag::nearest;
use berth_scenario::model::{self, Arm, Scenario};
use berth_scenario::section::Fact;
use berth_scenario::support::{self, Place as Where};
use berth_scenario::{Edit, Input, Loaded, edit, place_of, read, shipped, show};

/// All that is to be run.
#[derive(Default)]
pub struct Plan {
    pub name: String,
    pub seeds: Vec<u64>,
    pub variants: Vec<Variant>,
    pub warnings: Vec<String>,
    /// Of every variant, for the results.
    pub notes: Vec<String>,
    /// Free parameters were fitted before.
    pub fitted: bool,
}

/// The scenario with one combination of `--vary`.
#[derive(Default)]
pub struct Variant {
    pub set: Vec<String>,
    pub scenario: Scenario,
    /// Everything that was read or defaulted, and where it stands.
    pub facts: Vec<Fact>,
    /// What a paper reports of it.
    pub claims: Vec<findings::Claim>,
    /// The scenario with all defaults, as text.
    pub full: String,
    pub arms: Vec<PlannedArm>,
}

/// An arm, and what a place has found out about it.
pub struct PlannedArm {
    pub arm: Arm,
    /// Of the policy's object.
    pub hash: Option<String>,
    /// The policy that does the work of the kernel's own scheduler.
    pub model: Option<String>,
    /// Why it will have no runs here.
    pub absent: Option<String>,
}

/// The longest runs and most seeds of a place where time is dear; what the user sets is taken as it is.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    pub warmup_ms: u64,
    pub measure_ms: u64,
    pub seeds: u32,
}

impl Lengths {
    /// The changes that shorten a run to this.
    fn edits(self, run: &model::Run, request: &Request) -> Vec<Edit> {
        let set = |address: &str| {
            let mut said = request.set.iter();
            said.any(|s| s.split('=').next().map(str::trim) == Some(address))
        };
        let mut edits = Vec::new();
        if run.warmup_ns > self.warmup_ms * 1_000_000 && !set("run.warmup") {
            edits.push(Edit::Set(format!("run.warmup={}ms", self.warmup_ms)));
        }
        if run.measure_ns > self.measure_ms * 1_000_000 && !set("run.measure") {
            edits.push(Edit::Set(format!("run.measure={}ms", self.measure_ms)));
        }
        if run.seeds > self.seeds && !set("run.seeds") && request.seeds.is_none() {
            edits.push(Edit::Set(format!("run.seeds={}", self.seeds)));
        }
        edits
    }
}

/// Reads the scenario in all its variants; `lengths` shortens runs that the user has not given a length.
///
/// # Errors
/// Whatever is wrong with it, or with the options.
pub fn plan(
    request: &Request,
    policies: &[&str],
    lengths: Option<Lengths>,
) -> Result<Plan, Failure> {
    planned(
        &shipped::find(&request.scenario)?,
        request,
        policies,
        lengths,
    )
}

/// As [`plan`], with the scenario's text at hand; the request's name is not looked at.
///
/// # Errors
/// As [`plan`].
pub fn planned(
    input: &Input,
    request: &Request,
    policies: &[&str],
    lengths: Option<Lengths>,
) -> Result<Plan, Failure> {
    let mut variants = Vec::new();
    let mut warnings = Vec::new();
    let names = names(input, request);
    for set in edit::variants(&request.vary)? {
        let mut edits: Vec<Edit> = request.set.iter().cloned().map(Edit::Set).collect();
        edits.extend(set.iter().cloned().map(Edit::Vary));
        edits.extend(request.seeds.map(|n| Edit::Set(format!("run.seeds={n}"))));
        edits.extend(request.policies.iter().cloned().map(Edit::AddPolicy));
        edits.extend(request.loader.iter().cloned().map(Edit::Loader));
        edits.extend(names.iter().cloned());
        let mut loaded = read(input, &edits)?;
        let missing = unknown_arms(&loaded.scenario, request, policies)?;
        let shorter = lengths.map_or(Vec::new(), |l| l.edits(&loaded.scenario.run, request));
        if !missing.is_empty() || !shorter.is_empty() {
            edits.extend(shorter);
            edits.extend(missing.into_iter().map(Edit::AddPolicy));
            loaded = read(input, &edits)?;
        }
        let Loaded {
            scenario,
            facts,
            warnings: said,
        } = loaded;
        for warning in said {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        let arms = chosen(&scenario, request, policies);
        let params = request.set.iter().map(|text| ("--set", text));
        let params = params.chain(set.iter().map(|text| ("--vary", text)));
        let params: Vec<(&str, &String)> = params
            .filter(|(_, text)| text.starts_with("policy."))
            .collect();
        parameters_without_policy(&arms, &params, &mut warnings)?;
        variants.push(Variant {
            set,
            claims: claims::of(&scenario, input.folder.as_deref())?,
            full: show::full(&facts),
            arms,
            scenario,
            facts,
        });
    }
    let seeds = match (request.seed, variants.first()) {
        (Some(seed), _) => vec![seed],
        (None, Some(first)) => {
            if let Some(other) = variants
                .iter()
                .find(|v| v.scenario.run.seeds != first.scenario.run.seeds)
            {
                let n = other.scenario.run.seeds;
                return Err(Failure::Input(format!(
                    "variants cannot differ in seeds ({n} and others): use --seeds"
                )));
            }
            (1..=u64::from(first.scenario.run.seeds)).collect()
        }
        (None, None) => Vec::new(),
    };
    Ok(Plan {
        name: input.name.clone(),
        seeds,
        variants,
        warnings,
        notes: Vec::new(),
        fitted: false,
    })
}

/// Arms' names that come from the schedulers in files called `main.bpf.o` and the like.
fn names(input: &Input, request: &Request) -> Vec<Edit> {
    let mut files: Vec<(String, model::Loader)> = Vec::new();
    let mut add = |policy: &str, loader: model::Loader| files.push((policy.to_string(), loader));
    let asked = |edits: Vec<Edit>| {
        read(
            &Input {
                text: String::new(),
                ..input.clone()
            },
            &edits,
        )
    };
    for policy in &request.policies {
        // Headers and folders of the command line are needed to compile it.
        let edits = request.loader.iter().cloned().map(Edit::Loader);
        let edits = std::iter::once(Edit::AddPolicy(policy.clone())).chain(edits);
        let arms = asked(edits.collect()).map_or(Vec::new(), |l| l.scenario.arms);
        let arm = arms.into_iter().find(|arm| arm.policy == *policy);
        add(policy, arm.map_or_else(Default::default, |arm| arm.loader));
    }
    if ["main.bpf.", "bpf.bpf."]
        .iter()
        .any(|file| input.text.contains(file))
    {
        // What is wrong with the scenario is said when it is read in earnest.
        let arms = read(input, &[]).map_or(Vec::new(), |l| l.scenario.arms);
        let listed = arms
            .into_iter()
            .filter(|arm| arm.name == edit::arm_name(&arm.policy));
        listed.for_each(|arm| add(&arm.policy, arm.loader));
    }
    let files = files.into_iter();
    let named = files.filter_map(|(policy, loader)| {
        let arm = foreign::arm_name(&policy, &loader)?;
        Some(Edit::Named { policy, arm })
    });
    named.collect()
}

/// `linux` takes no parameters: that is said where others run beside it, and refused where none does.
fn parameters_without_policy(
    arms: &[PlannedArm],
    params: &[(&str, &String)],
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    let own = arms.iter().filter(|a| a.arm.policy == "linux").count();
    let Some((option, first)) = params.first().filter(|_| own > 0) else {
        return Ok(());
    };
    if own == arms.len() {
        return Err(Failure::Input(format!(
            "{option} {first}: `linux` is the kernel's own scheduler, which takes no parameters, and no other arm \
             runs; an arm with the policy \"{}\" is its model, which takes some (berth policy show {0})",
            berth_builtin::LINUX_MODEL
        )));
    }
    let said = format!("{first} is not for `linux`, the kernel's own scheduler: it runs as it is");
    if !warnings.contains(&said) {
        warnings.push(said);
    }
    Ok(())
}

/// Names of `--arm` that are no arms of the scenario but policies; anything else is an error.
fn unknown_arms(
    scenario: &Scenario,
    request: &Request,
    policies: &[&str],
) -> Result<Vec<String>, Failure> {
    let arms: Vec<&str> = scenario.arms.iter().map(|a| a.name.as_str()).collect();
    let missing: Vec<&String> = request
        .arms
        .iter()
        .filter(|name| !arms.contains(&name.as_str()))
        .collect();
    for name in &missing {
        let known = *name == "linux" || support::is_program(name);
        if !known && !policies.contains(&name.as_str()) {
            let all = arms.iter().chain(policies).copied();
            let near =
                nearest(name, all).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            return Err(Failure::Input(format!(
                "there is no arm `{}`{near}\n  Arms of the scenario: {}\n  Shipped policies: {}",
                name.escape_debug(),
                arms.join(", "),
                policies.join(", ")
            )));
        }
    }
    Ok(missing.into_iter().cloned().collect())
}

fn chosen(scenario: &Scenario, request: &Request, shipped: &[&str]) -> Vec<PlannedArm> {
    // `--policy` adds to what `--arm` chooses.
    let added = |arm: &Arm, policy: &String| match policies::is_file(policy) {
        true => arm.policy == *policy,
        false => arm.name == edit::arm_name(policy),
    };
    let wanted = |arm: &&Arm| {
        request.arms.is_empty()
            || request.arms.contains(&arm.name)
            || request.policies.iter().any(|policy| added(arm, policy))
    };
    let arms = scenario.arms.iter().filter(wanted);
    arms.map(|arm| PlannedArm {
        arm: arm.clone(),
        hash: None,
        model: None,
        absent: (!shipped.contains(&arm.policy.as_str()))
            .then(|| {
                let program = support::is_program(&arm.policy);
                support::later_policy(&arm.policy)
                    .or_else(|| program.then(|| support::only_in_the_lab(&arm.policy)))
            })
            .flatten(),
    })
    .collect()
}

impl Plan {
    /// Something that should be known, once.
    pub fn say(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Schedulers that are programs of their own take part: here is a place that starts them.
    pub fn admit_programs(&mut self) {
        let arms = self.variants.iter_mut().flat_map(|v| &mut v.arms);
        for arm in arms.filter(|a| support::is_program(&a.arm.policy)) {
            arm.absent = None;
        }
    }

    /// Refuses by name and line what a place cannot do, before anything starts. `micro_vms`: tasks need not fold onto
    /// vCPU threads.
    ///
    /// # Errors
    /// The first thing that an arm that is to run here needs and the place does not have.
    pub fn check(&self, place: Where, micro_vms: bool) -> Result<(), Failure> {
        for variant in &self.variants {
            for PlannedArm { arm, .. } in variant.arms.iter().filter(|a| a.absent.is_none()) {
                let scenario = variant.scenario.for_arm(arm);
                let changes = format!("arm.{}.set", arm.name);
                // What an arm changes stands in the arm.
                let at = |address: &str| {
                    let changed = arm.set.keys().any(|key| {
                        key == address
                            || address
                                .strip_prefix(&**key)
                                .is_some_and(|r| r.starts_with('.'))
                    });
                    place_of(&variant.facts, if changed { &changes } else { address })
                };
                if micro_vms {
                    support::check_features(scenario, place, &at)?;
                } else {
                    support::check(scenario, place, &at)?;
                }
            }
        }
        Ok(())
    }

    /// Runs in all: variants x arms that can run x seeds.
    pub fn runs(&self) -> usize {
        self.seeds.len()
            * self
                .variants
                .iter()
                .map(|v| v.arms.iter().filter(|a| a.absent.is_none()).count())
                .sum::<usize>()
    }

    /// Why nothing can run, where no arm can.
    pub fn nothing_to_run(&self) -> String {
        let mut text = "no arm of the scenario can run here".to_string();
        for arm in self.variants.first().map_or(&[][..], |v| &v.arms) {
            if let Some(why) = &arm.absent {
                text.push_str(&format!("\n  {}: {why}", arm.arm.name));
            }
        }
        text
    }

    /// Its runs, in words.
    pub fn runs_in_words(&self) -> String {
        in_words(self.runs())
    }

    /// The arm that the scenario compares with, if it names one.
    pub fn baseline(&self) -> Option<&str> {
        self.variants.first()?.scenario.baseline.as_deref()
    }

    /// Puts records together. `records` are those of each variant, in any order.
    pub fn results(
        &self,
        place: Place,
        kernel: &str,
        command: String,
        records: Vec<Vec<RunRecord>>,
        complete: bool,
    ) -> Results {
        let experiments = self
            .variants
            .iter()
            .zip(records)
            .map(|(variant, runs)| variant.experiment(self, runs))
            .collect();
        Results {
            format: FORMAT,
            place,
            provenance: Provenance {
                version: env!("CARGO_PKG_VERSION").into(),
                command,
                kernel: kernel.into(),
                vcpus: String::new(),
                machine: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
                scenario: self
                    .variants
                    .first()
                    .map_or(String::new(), |v| v.full.clone()),
            },
            complete,
            experiments,
        }
    }
}

impl Variant {
    /// The arm that others are compared with: the scenario's, or the first that can run here, and a note then.
    fn baseline(&self) -> (Option<String>, Option<String>) {
        let can: Vec<&str> = self
            .arms
            .iter()
            .filter(|a| a.absent.is_none())
            .map(|a| a.arm.name.as_str())
            .collect();
        let wanted = self.scenario.baseline.as_deref();
        match (wanted, &can[..]) {
            (_, [] | [_]) => (None, None),
            (Some(wanted), can) if can.contains(&wanted) => (Some(wanted.into()), None),
            (wanted, [first, ..]) => {
                let note =
                    wanted.map(|w| format!("compared with {first}, since {w} has no runs here"));
                (Some(first.to_string()), note)
            }
        }
    }

    fn experiment(&self, plan: &Plan, mut runs: Vec<RunRecord>) -> Experiment {
        let order = |run: &RunRecord| self.arms.iter().position(|a| a.arm.name == run.arm);
        runs.sort_by_key(|run| (order(run), run.seed));
        let (baseline, note) = self.baseline();
        let mut experiment = Experiment {
            setup: setup(&self.scenario, &plan.seeds),
            variant: self.set.clone(),
            arms: self
                .arms
                .iter()
                .map(|a| experiment::Arm {
                    name: a.arm.name.clone(),
                    policy: a.arm.policy.clone(),
                    hash: a.hash.clone(),
                    model: a.model.clone(),
                    absent: a.absent.clone(),
                })
                .collect(),
            baseline,
            runs,
            expects: Vec::new(),
            findings: Vec::new(),
            notes: plan.notes.iter().cloned().chain(note).collect(),
        };
        experiment.keep_worst_strips();
        experiment.notes.extend(warmup::notes(&experiment));
        experiment.notes.extend(shared_homes(&experiment));
        let expects = self
            .scenario
            .expects
            .iter()
            .filter(|e| self.arms.iter().any(|a| a.arm.name == e.arm));
        experiment.expects = expects
            .flat_map(bounds)
            .map(|bound| expect::check(&bound, &experiment, self.scenario.baseline.as_deref()))
            .collect();
        experiment.findings = self
            .claims
            .iter()
            .map(|claim| {
                // Without fitting, nothing was fitted to it.
                let mut claim = claim.clone();
                claim.fitted &= plan.fitted;
                findings::find(&claim, &experiment)
            })
            .collect();
        experiment
    }
}

/// A number of runs, in words.
pub fn in_words(runs: usize) -> String {
    format!("{runs} run{}", if runs == 1 { "" } else { "s" })
}

fn setup(scenario: &Scenario, seeds: &[u64]) -> Setup {
    let groups = scenario.vms.iter().filter(|vm| vm.count > 0);
    Setup {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        cpus: scenario.host.nr_cpus(),
        groups: groups
            .map(|vm| Group {
                name: vm.name.clone(),
                class: vm.class.word().into(),
                vms: vm.count,
                vcpus: vm.vcpus,
            })
            .collect(),
        warmup_ns: scenario.run.warmup_ns,
        measure_ns: scenario.run.measure_ns,
        seeds: seeds.to_vec(),
    }
}

/// An expectation's bounds in the words of the results.
fn bounds(expect: &model::Expect) -> Vec<Bound> {
    let bound = |at_most: bool, limit: model::Bound| Bound {
        metric: expect.metric.clone(),
        arm: expect.arm.clone(),
        at_most,
        limit: match limit {
            model::Bound::Absolute(x) => Limit::Absolute(x),
            model::Bound::TimesBaseline(x) => Limit::TimesBaseline(x),
        },
    };
    [(true, expect.at_most), (false, expect.at_least)]
        .into_iter()
        .filter_map(|(at_most, limit)| Some(bound(at_most, limit?)))
        .collect()
}

/// Arms whose policy, on the host or in a VM, has a CPU for each queue, and fewer CPUs than queues.
fn shared_homes(e: &Experiment) -> Vec<String> {
    let inside = |group: &Group| {
        (
            format!(" inside {}", group.name),
            format!("{}.guest.", group.name),
        )
    };
    let host = (String::new(), String::new());
    let places: Vec<_> = std::iter::once(host)
        .chain(e.setup.groups.iter().map(inside))
        .collect();
    let note = |arm: &str, (place, prefix): &(String, String)| {
        let metric = format!("{prefix}policy.shared_home");
        let count = e.estimate(arm, &metric)?.mean;
        (count > 0.0).then(|| {
            format!(
                "{arm}{place}: more queues than CPUs: they were dealt around, and {count:.0} times a second a CPU \
                 chose among several ({metric})"
            )
        })
    };
    let arms = e.arms.iter().map(|arm| arm.name.as_str());
    arms.flat_map(|arm| places.iter().filter_map(move |place| note(arm, place)))
        .collect()
}
