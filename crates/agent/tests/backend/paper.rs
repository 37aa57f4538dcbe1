// SPDX-License-Identifier: GPL-2.0-only
//! A backend that only writes down what it is told, and a host that was written down too, whose time is played.
use berth_agent::agent::Agent;
use berth_agent::backend::{Acting, Backend, End, Policy, Ready, Trouble, Value, Way, Ways};
use berth_agent::keeper::Keeper;
use berth_agent::register::Sink;
use berth_agent::rules::Rules;
use berth_agent::tripwire::LIMIT;
use berth_host::fixture::Fixture;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_host::time::Played;
use berth_identity::{Role, ThreadRecord, VmId, VmRecord};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// What was said, and what is to be said.
#[derive(Default)]
pub struct Notes {
    pub said: Vec<String>,
    pub obstacle: Option<String>,
    pub danger: Option<String>,
    /// Policies that do not begin, although they are good.
    pub stuck: Vec<&'static str>,
    /// How often more nothing begins, for a reason that passes.
    pub short: u32,
    /// And after that no thread can be told.
    pub deaf_then: bool,
    /// No thread can be told any more.
    pub deaf: bool,
    pub end: Option<End>,
}

/// Writes down what it is told; the same for one that is ready and one that acts.
#[derive(Clone, Default)]
pub struct Paper {
    pub notes: Rc<RefCell<Notes>>,
    pub policy: String,
    pub partial: bool,
    pub acts: bool,
}

impl Paper {
    fn say(&self, what: impl Into<String>) {
        self.notes.borrow_mut().said.push(what.into());
    }

    /// What was said since the last time.
    pub fn said(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.borrow_mut().said)
    }
}

impl Backend for Paper {
    fn able(&self) -> Result<(), Trouble> {
        Ok(())
    }
    fn obstacles(&self, _: &Snapshot, _: bool) -> Vec<String> {
        self.notes.borrow().obstacle.iter().cloned().collect()
    }
    fn danger(&self, _: &Snapshot) -> Option<String> {
        self.notes.borrow().danger.clone()
    }
    fn load(&self, policy: &Policy) -> Result<Box<dyn Ready>, Trouble> {
        if policy.object.is_empty() {
            return Err(Trouble::new("nothing is written in it"));
        }
        let mut ready = self.clone();
        ready.policy.clone_from(&policy.name);
        ready.partial = policy.partial;
        ready.say(format!("load {}", policy.name));
        Ok(Box::new(ready))
    }
}

impl Ready for Paper {
    fn sink(&mut self) -> Option<&mut dyn Sink> {
        Some(self)
    }
    fn start(mut self: Box<Self>) -> Result<Box<dyn Acting>, Trouble> {
        self.say(format!("start {}", self.policy));
        if self.notes.borrow().stuck.contains(&&*self.policy) {
            return Err(Trouble::new("the pen is dry"));
        }
        let mut notes = self.notes.borrow_mut();
        if notes.short > 0 {
            notes.short -= 1;
            notes.deaf |= notes.deaf_then;
            return Err(Trouble::passing("no ink at hand"));
        }
        drop(notes);
        self.acts = true;
        Ok(self)
    }
}

impl Acting for Paper {
    fn sink(&mut self) -> Option<&mut dyn Sink> {
        Some(self)
    }
    fn look(&mut self, host: &Keeper) {
        if self.partial {
            let entries = host.description().entries.iter();
            let named = entries.filter(|e| host.rules().names(&e.name));
            let names: Vec<&str> = named.map(|e| e.name.as_str()).collect();
            self.say(format!("act on {}", names.join(" ")));
        }
    }
    fn is_fixed(&self, parameter: &str) -> bool {
        parameter == "fixed"
    }
    fn change(&mut self, parameter: &str, value: &Value) -> Result<(), Trouble> {
        let Value::Number(n) = value else {
            return Err(Trouble::new("it is no number"));
        };
        self.say(format!("{parameter} = {n}"));
        Ok(())
    }
    fn poll(&mut self) -> Result<Option<End>, Trouble> {
        Ok(self.notes.borrow_mut().end.take())
    }
    fn counters(&self) -> BTreeMap<String, u64> {
        [("lines".to_string(), 7)].into()
    }
    fn warnings(&self) -> &[String] {
        &[]
    }
    fn end(self: Box<Self>) {
        self.say(format!("end {}", self.policy));
    }
}

impl Drop for Paper {
    fn drop(&mut self) {
        if self.acts {
            self.say(format!("undone {}", self.policy));
        }
    }
}

impl Sink for Paper {
    fn set_vm(&mut self, _: VmId, vm: &VmRecord) -> Result<(), Trouble> {
        self.say(format!("vm {} weight {}", vm.slot, vm.weight));
        Ok(())
    }
    fn remove_vm(&mut self, _: VmId) -> Result<(), Trouble> {
        self.say("a vm less");
        Ok(())
    }
    fn set_thread(&mut self, tid: u32, thread: &ThreadRecord) -> Result<(), Trouble> {
        if self.notes.borrow().deaf {
            return Err(Trouble::new("the paper is full"));
        }
        let vcpu = match thread.role {
            Role::Vcpu(index) => index.to_string(),
            _ => "none".into(),
        };
        self.say(format!("thread {tid} vcpu {vcpu}"));
        Ok(())
    }
    fn remove_thread(&mut self, tid: u32) -> Result<(), Trouble> {
        self.say(format!("thread {tid} less"));
        Ok(())
    }
    fn identities_changed(&mut self) -> Result<(), Trouble> {
        Ok(())
    }
}

pub fn process(pid: i32, name: &str) -> String {
    let tid = pid + 1;
    format!(
        "process {pid} lkvm sched=0,0,1\nargs lkvm run --name {name}\nfd 3 anon_inode:kvm-vm\n\
         fd 4 anon_inode:kvm-vcpu:0\nthread {tid} kvm-vcpu-0 run=4 sched=1000,0,1\n"
    )
}

/// A host of two CPUs with these VMs, and an agent that acts on it on paper.
pub struct Place {
    pub folder: tempfile::TempDir,
    pub root: Root,
    pub paper: Paper,
    pub agent: Agent,
}

pub fn unpack(folder: &Path, vms: &[(i32, &str)]) {
    let vms: String = vms.iter().map(|(pid, name)| process(*pid, name)).collect();
    let text = format!("file sys/devices/system/cpu/online 0-1\n{vms}");
    // The second time, there is a `proc/self` already.
    let _ = std::fs::remove_file(folder.join("proc/self"));
    Fixture::parse(&text).unwrap().unpack(folder).unwrap();
}

pub fn place(rules: Rules) -> Place {
    let folder = tempfile::tempdir().unwrap();
    unpack(folder.path(), &[(100, "web"), (200, "job")]);
    let root = Root::at(folder.path()).with_time(Arc::new(Played::new(|_| ())));
    let paper = Paper::default();
    let ways = Ways {
        scx: Box::new(paper.clone()),
        cgroup: Box::new(paper.clone()),
    };
    let agent = Agent::by(ways, root.clone(), rules, Some(LIMIT));
    Place {
        folder,
        root,
        paper,
        agent,
    }
}

pub fn policy(name: &str, values: &[(&str, i128)]) -> Policy {
    let values = values.iter();
    Policy {
        name: name.into(),
        hash: name.into(),
        parameters: BTreeMap::new(),
        values: values
            .map(|(k, v)| (k.to_string(), Value::Number(*v)))
            .collect(),
        partial: false,
        backend: Way::Scx,
        object: b"x".to_vec(),
    }
}

pub const TOLD: [&str; 6] = [
    "vm 1 weight 100",
    "thread 200 vcpu none",
    "thread 201 vcpu 0",
    "vm 2 weight 100",
    "thread 100 vcpu none",
    "thread 101 vcpu 0",
];
