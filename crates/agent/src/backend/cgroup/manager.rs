// SPDX-License-Identifier: GPL-2.0-only
//! From the optimiser's decisions to what is set of each VM, and what has become of it.
use super::change::{affinity, freeze, is_free, place, share};
use super::freezer::{Freezer, Write};
use super::home::{Groups, Home};
use super::observe::{Known, Watch, key};
use crate::backend::Decided;
use crate::keeper::Keeper;
use crate::register::{Entry, VmKey};
use berth_actuator::{Acting as Hands, Host, Knob, Outcome, Report, unit};
use berth_host::model::{TaskId, Vm};
use berth_host::root::Root;
use berth_optimiser::{Change, CpuSet, Decision, Observation, Optimiser, Setting, Settings};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::Discriminant;
use std::time::{Duration, Instant};

/// How often it is looked whether somebody else has set what was set here, or has come into a VM's groups.
const OTHERS: Duration = Duration::from_secs(10);
/// Remarks that are kept.
const WARNINGS: usize = 32;

/// One VM.
#[derive(Debug)]
pub struct Kept {
    pub home: Home,
    /// Its cgroup when that was looked for.
    cgroup: Option<String>,
    pub pinned: Option<CpuSet>,
    /// The operator has pinned it here (`berth pin`).
    pub by_hand: bool,
    /// Threads that are bound here, with what they were bound to, where they are bound one by one.
    pub bound: Option<String>,
    /// Threads that have been looked at.
    pub threads: BTreeSet<TaskId>,
}

impl Kept {
    /// All that may be set of it.
    fn knobs(&self) -> impl Iterator<Item = Knob> + '_ {
        let threads = self.threads.iter().map(affinity);
        self.home.knobs().into_iter().chain(threads)
    }
}

/// Decides once a second, and sets what was decided.
#[derive(Debug)]
pub struct Manager<H: Host> {
    watch: Watch,
    optimiser: Optimiser,
    partial: bool,
    /// None: it only says what it would do.
    hands: Option<Hands<H>>,
    /// What freezes VMs, once one is to be, and how it does.
    freezer: Option<Freezer>,
    freezes: Option<Write>,
    /// By which that looks where VMs are pinned; none: that is not known.
    eyes: Option<H>,
    /// What was seen last.
    seen: Option<Observation>,
    groups: Groups,
    vms: BTreeMap<VmKey, Kept>,
    /// Of each VM that is there, weight or cap that somebody else has set since, where it is: they are his.
    theirs: BTreeMap<VmKey, BTreeSet<Knob>>,
    decision: Option<Decision>,
    warnings: Vec<String>,
    over: Option<String>,
    /// Kinds of values that could be set.
    worked: HashSet<Discriminant<Knob>>,
    looked_for_others: Option<Instant>,
    looked_for_company: Option<Instant>,
    decisions: u64,
    changes: u64,
    /// How often a group could not be frozen or thawed.
    freeze_failures: u64,
}

impl<H: Host> Manager<H> {
    /// # Errors
    /// A setting out of its range.
    pub fn new(
        root: Root,
        settings: Settings,
        partial: bool,
        hands: Hands<H>,
    ) -> Result<Manager<H>, berth_optimiser::Error> {
        Manager::with(root, settings, partial, Some(hands), None)
    }

    /// One that sets nothing. `eyes`: the host, if it is there and not only recorded.
    ///
    /// # Errors
    /// A setting out of its range.
    pub fn dry(
        root: Root,
        settings: Settings,
        eyes: Option<H>,
    ) -> Result<Manager<H>, berth_optimiser::Error> {
        Manager::with(root, settings, false, None, eyes)
    }

    fn with(
        root: Root,
        settings: Settings,
        partial: bool,
        hands: Option<Hands<H>>,
        eyes: Option<H>,
    ) -> Result<Manager<H>, berth_optimiser::Error> {
        Ok(Manager {
            eyes,
            seen: None,
            groups: Groups::of(&root),
            watch: Watch::new(root),
            optimiser: Optimiser::new(settings)?,
            partial,
            hands,
            freezer: None,
            freezes: None,
            vms: BTreeMap::new(),
            theirs: BTreeMap::new(),
            decision: None,
            warnings: Vec::new(),
            over: None,
            worked: HashSet::new(),
            looked_for_others: None,
            looked_for_company: None,
            decisions: 0,
            changes: 0,
            freeze_failures: 0,
        })
    }

    /// How groups are frozen and thawed; without, nobody is.
    pub fn freeze_by(&mut self, write: Write) {
        self.freezes = Some(write);
    }

    /// Something that an operator should know; said once.
    pub fn warn(&mut self, what: String) {
        if !self.warnings.contains(&what) && self.warnings.len() < WARNINGS {
            self.warnings.push(what);
        }
    }

    /// Groups whose CPU set is set, with the list that they had before.
    pub fn cpu_sets(&self) -> BTreeMap<String, String> {
        let hands = self.hands.as_ref();
        hands.map(Hands::cpu_sets).unwrap_or_default()
    }

    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Why it cannot go on, if it cannot.
    pub fn over(&self) -> Option<String> {
        self.over.clone()
    }

    pub fn counters(&self) -> BTreeMap<String, u64> {
        [
            ("decisions", self.decisions),
            ("changes", self.changes),
            ("freeze_failures", self.freeze_failures),
        ]
        .map(|(name, n)| (name.to_string(), n))
        .into()
    }

    /// What was seen last.
    pub fn seen(&self) -> Option<&Observation> {
        self.seen.as_ref()
    }

    /// The last decision.
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// What was decided for each VM, by name.
    pub fn all_decided(&self) -> BTreeMap<String, Decided> {
        let seen = self.seen.iter().flat_map(|s| &s.vms);
        let one = |name: &String| Some((name.clone(), self.decided(name)?));
        seen.filter_map(|vm| one(&vm.name)).collect()
    }

    /// What was decided for a VM.
    pub fn decided(&self, vm: &str) -> Option<Decided> {
        Decided::of(&self.optimiser, self.decision.as_ref()?, vm)
    }

    /// The host has been looked at: decides if that is due, and sets what is decided.
    pub fn look(&mut self, host: &Keeper) {
        if self.over.is_some() {
            return;
        }
        self.watch.follow_cpus();
        self.hear_of_freezing();
        let anew = self.meet(host);
        self.leave_to_the_operator(host);
        self.set_again(host, &anew);
        self.follow(host);
        self.yield_to_others(host);
        let mut complaints = Vec::new();
        let (vms, hands) = (&self.vms, &self.hands);
        let known = |vm: &Vm, entry: Option<&Entry>| known(vms, hands.as_ref(), vm, entry);
        let seen = self
            .watch
            .look(host, self.partial, &known, &mut |c| complaints.push(c));
        complaints.into_iter().for_each(|c| self.warn(c));
        if host
            .watched()
            .is_some_and(crate::automatic::Automatic::is_blind)
        {
            self.warn(
                "this kernel keeps no scheduler statistics: CPU time is known to 10 ms (/proc/TID/stat), and what VMs \
                 wait for is not seen"
                    .into(),
            );
        }
        let Some(seen) = seen else { return };
        let decided = self.optimiser.observe(&seen);
        self.seen = Some(seen);
        let decision = match decided {
            Ok(Some(decision)) => decision,
            Ok(None) => return,
            Err(e) => return self.warn(e.to_string()),
        };
        self.decisions += 1;
        self.changes += decision.changes.len() as u64;
        for misfit in &decision.misfits {
            self.warn(misfit.to_string());
        }
        self.carry_out(host, &decision.changes);
        self.decision = Some(decision);
    }

    /// What could not be frozen or thawed.
    fn hear_of_freezing(&mut self) {
        let Some(freezer) = &self.freezer else { return };
        let (count, said) = freezer.failures();
        self.freeze_failures = count;
        said.into_iter().for_each(|why| self.warn(why));
    }

    /// Gets to know VMs that came, and lets go of those that went, that are in another cgroup now, or that have company
    /// in theirs: what was set there is no longer a VM's alone. Gives those that are met now.
    fn meet(&mut self, host: &Keeper) -> BTreeSet<VmKey> {
        let entries: BTreeMap<VmKey, &Entry> = host
            .description()
            .entries
            .iter()
            .map(|e| (e.key, e))
            .collect();
        let there: BTreeSet<VmKey> = host.snapshot().vms.iter().map(key).collect();
        let now = Instant::now();
        let all = self.looked_for_company.is_none_or(|at| now - at >= OTHERS);
        if all {
            self.looked_for_company = Some(now);
        }
        let mut left: BTreeSet<VmKey> = self.vms.keys().copied().collect();
        left.retain(|key| !there.contains(key));
        self.theirs.retain(|key, _| there.contains(key));
        let mut come = Vec::new();
        for vm in &host.snapshot().vms {
            let cgroup = entries.get(&key(vm)).and_then(|e| e.cgroup.clone());
            if let Some(kept) = self.vms.get(&key(vm)) {
                // A manager puts its VM into a cgroup after it has started.
                let stays = kept.cgroup == cgroup && !(all && kept.home.crowded);
                if stays && !self.has_company(kept, vm, all) {
                    continue;
                }
                left.insert(key(vm));
            }
            come.push((vm, cgroup));
        }
        self.let_go(&left);
        come.into_iter()
            .map(|(vm, cgroup)| {
                self.keep(vm, cgroup);
                key(vm)
            })
            .collect()
    }

    fn keep(&mut self, vm: &Vm, cgroup: Option<String>) {
        let kept = Kept {
            home: self.groups.home(cgroup.as_deref(), vm),
            cgroup,
            pinned: self.pinned(vm),
            by_hand: false,
            bound: None,
            threads: BTreeSet::new(),
        };
        let key = VmKey {
            pid: vm.pid,
            start: vm.start,
        };
        // With company nothing is set, and what is theirs is so afterwards, too; elsewhere it is not.
        if let (Ok(shares), Some(theirs)) = (&kept.home.shares, self.theirs.get_mut(&key)) {
            theirs.retain(|knob| shares.has(knob));
        }
        self.vms.insert(key, kept);
    }

    /// Whether somebody else is in the groups of a VM of which something is set: looked for each time where it is
    /// frozen, and now and then (`all`) where it is not.
    fn has_company(&self, kept: &Kept, vm: &Vm, all: bool) -> bool {
        let Some(hands) = &self.hands else {
            return false;
        };
        let freeze = kept.home.freeze.as_ref().ok().map(|f| f.knob());
        let frozen = freeze.is_some_and(|knob| hands.was(knob).is_some());
        let set = || {
            all && kept
                .home
                .knobs()
                .iter()
                .any(|knob| hands.was(knob).is_some())
        };
        (frozen || set()) && !self.groups.are_its_own(&kept.home, vm)
    }

    /// Puts back all that was set of these, whoever is frozen first, and forgets them.
    fn let_go(&mut self, vms: &BTreeSet<VmKey>) {
        self.put_back(vms);
        self.vms.retain(|key, _| !vms.contains(key));
    }

    fn put_back(&mut self, vms: &BTreeSet<VmKey>) {
        let Some(hands) = &mut self.hands else { return };
        let left = vms.iter().filter_map(|key| self.vms.get(key));
        for kept in left.clone() {
            if let (Ok(freeze), Some(freezer)) = (&kept.home.freeze, &self.freezer) {
                freezer.thaw(freeze.knob());
            }
        }
        let knobs = left.flat_map(Kept::knobs);
        let undone: BTreeSet<Knob> = knobs.filter(|knob| hands.was(knob).is_some()).collect();
        if undone.is_empty() {
            return;
        }
        match hands.undo(&undone) {
            Ok(report) => {
                self.keep_theirs(&report);
                report.complaints().into_iter().for_each(|c| self.warn(c));
            }
            Err(e) => self.give_up(e.to_string()),
        }
    }

    /// VMs that were let go of, or that have the name of one that was there before, are set to what was decided for
    /// them.
    fn set_again(&mut self, host: &Keeper, vms: &BTreeSet<VmKey>) {
        let again: Vec<Change> = host
            .snapshot()
            .vms
            .iter()
            .filter(|vm| vms.contains(&key(vm)))
            .filter_map(|vm| self.whole(host, vm))
            .collect();
        if !again.is_empty() {
            self.carry_out(host, &again);
        }
    }

    /// What was decided for a VM of which nothing is set.
    fn whole(&self, host: &Keeper, vm: &Vm) -> Option<Change> {
        let (to, reasons) = self.optimiser.explain(&vm.name)?;
        let entries = &host.description().entries;
        let entry = entries.iter().find(|e| e.name == vm.name);
        Some(Change {
            vm: vm.name.clone(),
            from: Setting::untouched(entry.map_or(to.weight, |e| e.weight)),
            to: to.clone(),
            reasons: reasons.to_vec(),
        })
    }

    /// The same changes; those of VMs that had their groups for themselves and have not any more begin anew, by other
    /// means.
    fn without_company(&mut self, host: &Keeper, changes: &[Change]) -> Vec<Change> {
        let of = |change: &Change| host.snapshot().vms.iter().find(|vm| vm.name == change.vm);
        let lost = |change: &Change| {
            let vm = of(change)?;
            let kept = self.vms.get(&key(vm))?;
            (!self.groups.are_its_own(&kept.home, vm)).then(|| (vm, kept.cgroup.clone()))
        };
        let lost: Vec<_> = changes.iter().filter_map(lost).collect();
        let keys: BTreeSet<VmKey> = lost.iter().map(|(vm, _)| key(vm)).collect();
        if !keys.is_empty() {
            self.let_go(&keys);
        }
        lost.into_iter()
            .for_each(|(vm, cgroup)| self.keep(vm, cgroup));
        let anew = |change: &Change| {
            let vm = of(change).filter(|vm| keys.contains(&key(vm)))?;
            self.whole(host, vm)
        };
        changes
            .iter()
            .map(|c| anew(c).unwrap_or_else(|| c.clone()))
            .collect()
    }

    /// VMs that the operator pins get back what was set of their CPUs; weight and cap stay. Those that he pins no more
    /// are met anew.
    fn leave_to_the_operator(&mut self, host: &Keeper) {
        let pins = host.pinned();
        self.vms
            .retain(|key, kept| !kept.by_hand || pins.contains_key(key));
        let mut undone = BTreeSet::new();
        for (key, cpus) in pins {
            let Some(kept) = self.vms.get_mut(key) else {
                continue;
            };
            if !std::mem::replace(&mut kept.by_hand, true) {
                undone.extend(kept.home.set.clone());
                undone.extend(kept.threads.iter().map(affinity));
                kept.bound = None;
            }
            kept.pinned.clone_from(cpus);
        }
        let Some(hands) = &mut self.hands else { return };
        if undone.is_empty() {
            return;
        }
        match hands.undo(&undone) {
            Ok(report) => report.complaints().into_iter().for_each(|c| self.warn(c)),
            Err(e) => self.give_up(e.to_string()),
        }
    }

    /// The CPUs to which somebody pinned all vCPUs of a VM; none: some may run everywhere.
    fn pinned(&self, vm: &Vm) -> Option<CpuSet> {
        let host = self
            .hands
            .as_ref()
            .map(Hands::host)
            .or(self.eyes.as_ref())?;
        let mut cpus = BTreeSet::new();
        for thread in vm.threads.iter().filter(|t| t.role.vcpu().is_some()) {
            let knob = affinity(&thread.id);
            // What is bound here is nobody else's.
            let mask = match self.hands.as_ref().and_then(|hands| hands.was(&knob)) {
                Some(was) => was.to_string(),
                None => host.read(&knob).ok()?,
            };
            if is_free(&mask, self.watch.cpus().as_ref()) {
                return None;
            }
            let list: CpuSet = mask.parse().ok()?;
            cpus.extend(list.iter());
        }
        CpuSet::of(cpus)
    }

    /// Threads that VMs have started since go where their VM is.
    fn follow(&mut self, host: &Keeper) {
        let Some(hands) = &mut self.hands else { return };
        let all = self.watch.cpus();
        let (mut born, mut wanted) = (Vec::new(), Vec::new());
        for vm in &host.snapshot().vms {
            let Some(kept) = self.vms.get_mut(&key(vm)) else {
                continue;
            };
            let Some(bound) = kept.bound.clone() else {
                continue;
            };
            let parent = kept
                .threads
                .iter()
                .map(affinity)
                .find(|knob| hands.was(knob).is_some());
            for thread in &vm.threads {
                if !kept.threads.insert(thread.id) {
                    continue;
                }
                let knob = affinity(&thread.id);
                match hands.host().read(&knob) {
                    Ok(mask) if is_free(&mask, all.as_ref()) => wanted.push((knob, bound.clone())),
                    // Born on the CPUs of the thread that made it, or bound by itself: the ledger cannot tell, and
                    // takes the first, as long as its VM is bound.
                    Ok(mask) if berth_actuator::same(&mask, &bound) => {
                        born.extend(parent.clone().map(|parent| (knob, parent)));
                    }
                    _ => {}
                }
            }
            // Those that have ended would be without end where threads come and go.
            if kept.threads.len() > vm.threads.len() {
                let there: BTreeSet<TaskId> = vm.threads.iter().map(|t| t.id).collect();
                kept.threads.retain(|id| there.contains(id));
            }
        }
        let followed = hands.adopt(&born).and_then(|()| match wanted.is_empty() {
            true => Ok(Report::default()),
            false => hands.set(&wanted),
        });
        if let Err(e) = followed {
            self.give_up(e.to_string());
        }
    }

    /// What somebody else has set is his.
    fn yield_to_others(&mut self, host: &Keeper) {
        let now = Instant::now();
        let Some(hands) = &mut self.hands else { return };
        if self.looked_for_others.is_some_and(|at| now - at < OTHERS) {
            return;
        }
        self.looked_for_others = Some(now);
        let report = hands.yielded();
        self.leave(host, &report);
        report.complaints().into_iter().for_each(|c| self.warn(c));
    }

    /// What somebody else has set, of these: the CPUs of a VM whose vCPU it is, its weight or cap. Another thread of it
    /// stays where it was put.
    fn leave(&mut self, host: &Keeper, report: &Report) {
        let vcpus = |vm: &Vm, knob: &Knob| {
            let mut threads = vm.threads.iter().filter(|t| t.role.vcpu().is_some());
            threads.any(|t| affinity(&t.id) == *knob)
        };
        for (knob, outcome) in &report.outcomes {
            let Outcome::Foreign(value) = outcome else {
                continue;
            };
            let bound = host.snapshot().vms.iter().find(|vm| vcpus(vm, knob));
            let bound = bound.map(key);
            let holds = |(vm, kept): &(&VmKey, &mut Kept)| {
                kept.home.set.as_ref() == Some(knob) || bound == Some(**vm)
            };
            if let Some((_, kept)) = self.vms.iter_mut().find(holds) {
                // Pinned, unless it may run everywhere again.
                (kept.pinned, kept.bound) = (unit::plain(value).parse().ok(), None);
            }
        }
        self.keep_theirs(report);
    }

    /// Weights and caps that somebody else has set, of these.
    fn keep_theirs(&mut self, report: &Report) {
        let foreign = report.outcomes.iter();
        let foreign = foreign.filter(|(_, outcome)| matches!(outcome, Outcome::Foreign(_)));
        for (knob, _) in foreign {
            let shares = |kept: &Kept| kept.home.shares.as_ref().is_ok_and(|s| s.has(knob));
            if let Some((vm, _)) = self.vms.iter().find(|(_, kept)| shares(kept)) {
                self.theirs.entry(*vm).or_default().insert(knob.clone());
            }
        }
    }

    /// Sets what was decided.
    fn carry_out(&mut self, host: &Keeper, changes: &[Change]) {
        if self.hands.is_none() {
            return self.rehearse(host, changes);
        }
        let changes = self.without_company(host, changes);
        let Some(hands) = &mut self.hands else { return };
        let all = self.watch.cpus();
        let free = |mask: &str| is_free(mask, all.as_ref());
        let (mut wanted, mut undone) = (Vec::new(), BTreeSet::new());
        let mut remarks = Vec::new();
        for change in &changes {
            let vm = host.snapshot().vms.iter().find(|vm| vm.name == change.vm);
            let Some((vm, kept)) = vm.and_then(|vm| Some((vm, self.vms.get_mut(&key(vm))?))) else {
                continue;
            };
            place(change, vm, kept, hands, &free, &mut wanted, &mut undone);
            let none = BTreeSet::new();
            let theirs = self.theirs.get(&key(vm)).unwrap_or(&none);
            let shared = share(change, &kept.home, hands, theirs, &mut wanted, &mut undone);
            if let Err(why) = shared {
                remarks.push(format!(
                    "VM {}: its weight and cap are not set: {why}",
                    change.vm
                ));
            }
            let frozen = match change.from.run_fraction == change.to.run_fraction {
                true => Ok(()),
                false => freeze(
                    change,
                    &kept.home,
                    hands,
                    &mut self.freezer,
                    &mut self.freezes,
                    &mut undone,
                ),
            };
            if let Err(why) = frozen {
                remarks.push(format!("VM {}: it is not frozen: {why}", change.vm));
            }
        }
        let done = match undone.is_empty() {
            true => Ok(Report::default()),
            false => hands.undo(&undone),
        };
        let done = done.and_then(|back| match wanted.is_empty() {
            true => Ok((back, Report::default())),
            false => hands.set(&wanted).map(|report| (back, report)),
        });
        match done {
            Ok((back, report)) => {
                for report in [&back, &report] {
                    self.leave(host, report);
                    remarks.extend(report.complaints());
                }
                if let Some(why) = self.lost(&report) {
                    self.give_up(format!("nothing can be set any more: {why}"));
                }
            }
            Err(e) => self.give_up(e.to_string()),
        }
        remarks.into_iter().for_each(|r| self.warn(r));
    }

    /// What of these could not be set is said.
    fn rehearse(&mut self, host: &Keeper, changes: &[Change]) {
        let mut remarks: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for Change { vm, from, to, .. } in changes {
            let known = host.snapshot().vms.iter().find(|known| known.name == *vm);
            let Some(kept) = known.and_then(|vm| self.vms.get(&key(vm))) else {
                continue;
            };
            let home = &kept.home;
            let shares = home.shares.as_ref().err();
            let shares = shares.filter(|_| from.weight != to.weight || from.cap != to.cap);
            let freeze = home.freeze.as_ref().err();
            let freeze = freeze.filter(|_| from.run_fraction != to.run_fraction);
            let both = [
                shares.map(|why| format!("weight and cap would not be set: {why}")),
                freeze.map(|why| format!("would not be frozen: {why}")),
            ];
            for what in both.into_iter().flatten() {
                remarks.entry(what).or_default().push(vm);
            }
        }
        for (what, vms) in remarks {
            let s = if vms.len() == 1 { "" } else { "s" };
            self.warn(format!("VM{s} {}: {what}", vms.join(", ")));
        }
    }

    /// Why what could be set until now cannot be any more, or why nothing can be. What the kernel refuses is that VM's
    /// matter; what this process may not do it may not do to others either, and what it never could (cgroups that are
    /// only read here, say) is left out.
    fn lost(&mut self, report: &Report) -> Option<String> {
        let kind = |knob: &Knob| std::mem::discriminant(knob);
        let set = report
            .outcomes
            .iter()
            .filter(|(_, o)| matches!(o, Outcome::Set | Outcome::Instead(_)));
        self.worked.extend(set.map(|(knob, _)| kind(knob)));
        let all = report
            .outcomes
            .iter()
            .all(|(_, o)| matches!(o, Outcome::Denied(_) | Outcome::Gone));
        report
            .outcomes
            .iter()
            .find_map(|(knob, outcome)| match outcome {
                Outcome::Denied(why) if all || self.worked.contains(&kind(knob)) => {
                    Some(why.clone())
                }
                _ => None,
            })
    }

    /// Undoes everything, and only watches from now on.
    fn give_up(&mut self, why: String) {
        // Thaws all.
        self.hear_of_freezing();
        self.freezer = None;
        let left = match self.hands.take().map(Hands::end) {
            Some(Err(e)) => Some(e.to_string()),
            Some(Ok(report)) => {
                let stays = |o: &Outcome| matches!(o, Outcome::Denied(_) | Outcome::Refused(_));
                let n = report.outcomes.iter().filter(|(_, o)| stays(o)).count();
                (n > 0).then(|| format!("{n} changes"))
            }
            None => None,
        };
        self.over = Some(match left {
            Some(left) => {
                format!(
                    "{why}; and not everything could be undone ({left}): berth restore tries again"
                )
            }
            None => why,
        });
    }
}

impl<H: Host> Drop for Manager<H> {
    fn drop(&mut self) {
        self.freezer = None;
        if let Some(hands) = self.hands.take() {
            // What cannot be undone stays in the ledger, for the guardian and `berth restore`.
            let _ = hands.end();
        }
    }
}

fn known<H: Host>(
    vms: &BTreeMap<VmKey, Kept>,
    hands: Option<&Hands<H>>,
    vm: &Vm,
    entry: Option<&Entry>,
) -> Known {
    let vm_key = VmKey {
        pid: vm.pid,
        start: vm.start,
    };
    let kept = vms.get(&vm_key);
    let shares = kept.and_then(|k| k.home.shares.as_ref().ok());
    let was = shares
        .zip(hands)
        .and_then(|(s, h)| s.weight_of(h.was(&s.weight(100).0)?));
    Known {
        weight: was.or(entry.map(|e| e.weight)),
        pinned: kept.and_then(|k| k.pinned.clone()),
    }
}
