// SPDX-License-Identifier: GPL-2.0-only
//! Keeps a policy's idea of VMs and threads right: looks at the host, describes what it finds, tells what is new.
use crate::automatic::{Automatic, Guess};
use crate::backend::Trouble;
use crate::describe::{Describer, Description};
use crate::register::{Changes, Register, Sink, VmKey};
use crate::rules::Rules;
use berth_host::discover::Scanner;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_optimiser::CpuSet;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error("/proc cannot be read: {0}")]
    Look(#[from] io::Error),
    #[error("the policy cannot be told who its threads are: {0}")]
    Tell(#[from] Trouble),
}

/// Looks, describes, tells.
#[derive(Debug)]
pub struct Keeper {
    scanner: Scanner,
    describer: Describer,
    register: Register,
    snapshot: Snapshot,
    description: Description,
    rules: Rules,
    automatic: Option<Automatic>,
    no_guesses: BTreeMap<VmKey, Guess>,
    /// VMs all of whose vCPUs the policy knows, and how long after their start; none for those that were there first.
    known: BTreeMap<VmKey, Option<Duration>>,
    told: bool,
    /// VMs that the operator has pinned, and where.
    pinned: BTreeMap<VmKey, Option<CpuSet>>,
}

impl Keeper {
    /// For a policy that knows nothing yet. `root` is this machine. A VM of which the rules say no class counts as
    /// batch ([`Keeper::watch_classes`]).
    pub fn new(root: Root, rules: Rules) -> Keeper {
        Keeper {
            scanner: Scanner::new(root.clone()),
            describer: Describer::new(root),
            register: Register::default(),
            snapshot: Snapshot::default(),
            description: Description::default(),
            rules,
            automatic: None,
            no_guesses: BTreeMap::new(),
            known: BTreeMap::new(),
            told: false,
            pinned: BTreeMap::new(),
        }
    }

    /// From now on, what VMs do decides on the class of those of which the rules say none.
    pub fn watch_classes(&mut self, root: Root) {
        self.automatic = Some(Automatic::new(root));
    }

    /// Whether something acts by what is seen.
    pub fn set_acting(&mut self, acting: bool) {
        if let Some(automatic) = &mut self.automatic {
            automatic.set_acting(acting);
        }
    }

    /// Looks at the host, without telling anybody.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn look(&mut self) -> io::Result<&Description> {
        self.snapshot = self.scanner.scan()?;
        if let Some(automatic) = &mut self.automatic {
            automatic.feed(&self.snapshot, &self.scanner)?;
        }
        let guesses = self.automatic.as_ref().map(Automatic::guesses);
        let guesses = guesses.unwrap_or(&self.no_guesses);
        self.description = self
            .describer
            .describe(&self.snapshot, &self.rules, guesses);
        Ok(&self.description)
    }

    /// Tells the policy what is different from what it has been told.
    ///
    /// # Errors
    /// The policy does not take it.
    pub fn tell(&mut self, policy: &mut dyn Sink) -> Result<Changes, Trouble> {
        let changes = self.register.update(policy, &self.description.entries)?;
        self.note_known();
        Ok(changes)
    }

    /// The number of a VM that the policy knows.
    pub fn slot(&self, vm: VmKey) -> Option<u32> {
        self.register.slot(vm)
    }

    /// How long after the start of its process the policy knew all vCPUs of a VM; none if it was there before the
    /// policy.
    pub fn known_after(&self, vm: VmKey) -> Option<Duration> {
        self.known.get(&vm).copied().flatten()
    }

    /// These processes may be VMs now: they are looked at next time.
    pub fn suspect(&mut self, processes: &BTreeSet<i32>) {
        for pid in processes {
            self.scanner.suspect(*pid);
        }
    }

    fn note_known(&mut self) {
        let first = !std::mem::replace(&mut self.told, true);
        let slots = |key| self.register.slot(key).is_some();
        let mut known = BTreeMap::new();
        for entry in &self.description.entries {
            let vcpus = entry
                .threads
                .values()
                .filter(|t| t.role.vcpu().is_some())
                .count();
            let whole = entry.vcpus > 0 && vcpus >= entry.vcpus as usize && slots(entry.key);
            match self.known.get(&entry.key) {
                Some(after) => {
                    known.insert(entry.key, *after);
                }
                None if first => {
                    known.insert(entry.key, None);
                }
                None if whole => {
                    known.insert(entry.key, age(entry.key.start));
                }
                None => {}
            }
        }
        self.known = known;
    }

    /// Looks and tells.
    ///
    /// # Errors
    /// As [`Keeper::look`] and [`Keeper::tell`].
    pub fn refresh(&mut self, policy: &mut dyn Sink) -> Result<Changes, KeepError> {
        self.look()?;
        Ok(self.tell(policy)?)
    }

    /// What a VM seems to be for, by what it does.
    pub fn guess(&self, vm: VmKey) -> Option<&Guess> {
        self.automatic.as_ref()?.guesses().get(&vm)
    }

    /// What VMs do, if it is watched.
    pub fn watched(&self) -> Option<&Automatic> {
        self.automatic.as_ref()
    }

    /// Another policy has been loaded, which knows nothing.
    pub fn forget(&mut self) {
        self.register = Register::default();
        self.known.clear();
        self.told = false;
    }

    /// VMs that the operator has pinned: whoever acts leaves their CPUs alone.
    pub fn set_pinned(&mut self, pinned: BTreeMap<VmKey, Option<CpuSet>>) {
        self.pinned = pinned;
    }

    pub fn pinned(&self) -> &BTreeMap<VmKey, Option<CpuSet>> {
        &self.pinned
    }

    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What discovery saw last.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What was made of it.
    pub fn description(&self) -> &Description {
        &self.description
    }
}

/// How long ago a process began, by clock ticks since boot.
fn age(start: u64) -> Option<Duration> {
    // SAFETY: a name of a number, and a structure that outlives the call.
    let (ticks, now) = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now);
        (libc::sysconf(libc::_SC_CLK_TCK), now)
    };
    let ticks = u32::try_from(ticks).ok().filter(|t| *t > 0)?;
    let seconds = u64::try_from(now.tv_sec).ok()?;
    let now = Duration::new(seconds, u32::try_from(now.tv_nsec).ok()?);
    let began = Duration::from_secs_f64(start as f64 / f64::from(ticks));
    Some(now.saturating_sub(began))
}
