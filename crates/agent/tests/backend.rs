// SPDX-License-Identifier: GPL-2.0-only
//! The agent acts by whatever backend it is given: here one that only writes down what it is told, on a host that was
//! written down too and whose time is played. Discovery, description, register and tripwire are the real ones.
use berth_agent::agent::{Agent, AgentError, Event, LASTING, Started};
use berth_agent::backend::{Acting, Backend, End, Policy, Ready, Trouble, Value, Way, Ways};
use berth_agent::daemon::{self, DaemonError, Options};
use berth_agent::keeper::Keeper;
use berth_agent::register::Sink;
use berth_agent::rules::{Rule, Rules};
use berth_agent::signals::Asked;
use berth_agent::tripwire::LIMIT;
use berth_host::fixture::Fixture;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_host::time::Played;
use berth_identity::{Role, ThreadRecord, VmId, VmRecord};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What was said, and what is to be said.
#[derive(Default)]
struct Notes {
    said: Vec<String>,
    obstacle: Option<String>,
    danger: Option<String>,
    /// Policies that do not begin, although they are good.
    stuck: Vec<&'static str>,
    /// How often more nothing begins, for a reason that passes.
    short: u32,
    /// And after that no thread can be told.
    deaf_then: bool,
    /// No thread can be told any more.
    deaf: bool,
    end: Option<End>,
}

/// Writes down what it is told; the same for one that is ready and one that acts.
#[derive(Clone, Default)]
struct Paper {
    notes: Rc<RefCell<Notes>>,
    policy: String,
    partial: bool,
    acts: bool,
}

impl Paper {
    fn say(&self, what: impl Into<String>) {
        self.notes.borrow_mut().said.push(what.into());
    }

    /// What was said since the last time.
    fn said(&self) -> Vec<String> {
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

fn process(pid: i32, name: &str) -> String {
    let tid = pid + 1;
    format!(
        "process {pid} lkvm sched=0,0,1\nargs lkvm run --name {name}\nfd 3 anon_inode:kvm-vm\n\
         fd 4 anon_inode:kvm-vcpu:0\nthread {tid} kvm-vcpu-0 run=4 sched=1000,0,1\n"
    )
}

/// A host of two CPUs with these VMs, and an agent that acts on it on paper.
struct Place {
    folder: tempfile::TempDir,
    root: Root,
    paper: Paper,
    agent: Agent,
}

fn unpack(folder: &Path, vms: &[(i32, &str)]) {
    let vms: String = vms.iter().map(|(pid, name)| process(*pid, name)).collect();
    let text = format!("file sys/devices/system/cpu/online 0-1\n{vms}");
    // The second time, there is a `proc/self` already.
    let _ = std::fs::remove_file(folder.join("proc/self"));
    Fixture::parse(&text).unwrap().unpack(folder).unwrap();
}

fn place(rules: Rules) -> Place {
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

fn policy(name: &str, values: &[(&str, i128)]) -> Policy {
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

const TOLD: [&str; 6] = [
    "vm 1 weight 100",
    "thread 200 vcpu none",
    "thread 201 vcpu 0",
    "vm 2 weight 100",
    "thread 100 vcpu none",
    "thread 101 vcpu 0",
];

#[test]
fn what_is_told_and_in_which_order() {
    let mut p = place(Rules::default());
    assert_eq!(p.agent.start(policy("a", &[])).unwrap(), Started::Loaded);
    let told = [&["load a"][..], &TOLD, &["start a"]].concat();
    assert_eq!(p.paper.said(), told);
    assert!(
        p.agent
            .tick()
            .unwrap()
            .iter()
            .all(|e| matches!(e, Event::ByProcess(_)))
    );
    assert!(p.paper.said().is_empty(), "nothing is new");
    unpack(p.folder.path(), &[(300, "new")]);
    p.root.sleep(Duration::from_secs(1));
    p.agent.tick().unwrap();
    let new = [
        "vm 3 weight 100",
        "thread 300 vcpu none",
        "thread 301 vcpu 0",
    ];
    assert_eq!(p.paper.said(), new);
    std::fs::remove_dir_all(p.folder.path().join("proc/300")).unwrap();
    p.agent.tick().unwrap();
    assert_eq!(
        p.paper.said(),
        ["a vm less", "thread 300 less", "thread 301 less"]
    );
    let status = p.agent.status();
    let now = status.policy.unwrap();
    assert_eq!((now.name.as_str(), now.counters["lines"]), ("a", 7));
    assert_eq!((now.seconds, status.vms.len()), (1.0, 2));
    // Another in its place is judged and told while the first still acts.
    assert_eq!(p.agent.start(policy("b", &[])).unwrap(), Started::Switched);
    let told = [&["load b"][..], &TOLD, &["undone a", "start b"]].concat();
    assert_eq!(p.paper.said(), told);
    assert_eq!(p.agent.stop().unwrap(), "b");
    assert_eq!(p.paper.said(), ["end b", "undone b"]);
    assert!(matches!(p.agent.stop(), Err(AgentError::Idle)));
}

/// Who holds a VM for a moment is not warned of: an operator who looks does not find it.
#[test]
fn what_does_not_last_is_not_said() {
    let mut p = place(Rules::default());
    let tick = |p: &mut Place, seconds| {
        p.root.sleep(Duration::from_secs(seconds));
        p.agent.tick().unwrap()
    };
    assert_eq!(tick(&mut p, 0), []);
    unpack(p.folder.path(), &[(300, "probe")]);
    assert_eq!(tick(&mut p, 1), []);
    assert_eq!(p.agent.status().by_process.len(), 3, "who asks is told");
    std::fs::remove_dir_all(p.folder.path().join("proc/300")).unwrap();
    let said = tick(&mut p, LASTING.as_secs() - 1);
    let of = |event: &Event| match event {
        Event::ByProcess(remark) => remark.vm.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(said.iter().map(of).collect::<Vec<_>>(), ["job", "web"]);
    assert_eq!(tick(&mut p, 10), [], "once");
}

/// A configuration that says to act, where that cannot be: the daemon ends and says so.
#[test]
fn a_daemon_without_its_means_ends() {
    let folder = tempfile::tempdir().unwrap();
    unpack(folder.path(), &[(100, "web")]);
    let file = folder.path().join("c.toml");
    std::fs::write(&file, "mode = \"act\"\npolicy = \"a\"\n").unwrap();
    let options = Options {
        // No sched_ext there.
        root: Root::at(folder.path()),
        socket: folder.path().join("control.sock"),
        config: Some(file),
        ends_with_policy: false,
        resolve: &|_| Ok(policy("a", &[])),
        say: &|_| (),
    };
    // Should it go on, it is to end all the same.
    static STOP: AtomicBool = AtomicBool::new(true);
    static RELOAD: AtomicBool = AtomicBool::new(false);
    let asked = Asked {
        stop: &STOP,
        reload: &RELOAD,
    };
    let error = daemon::run(&options, asked).unwrap_err();
    assert!(
        matches!(&error, DaemonError::Start(AgentError::Refused(_))),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("mode = \"act\", and nothing is done: ")
    );
    assert!(!options.socket.exists());
}

/// A socket that cannot be made: what, where, what to do.
#[test]
fn a_socket_that_cannot_be_made_comes_with_advice() {
    let error = |kind: ErrorKind| {
        let socket = "/run/berth/control.sock".into();
        let source = kind.into();
        DaemonError::Socket { socket, source }.to_string()
    };
    for (kind, what_to_do) in [
        (
            ErrorKind::PermissionDenied,
            "be root, or name a socket in a folder of your own",
        ),
        (ErrorKind::NotFound, "make it, or name a socket elsewhere"),
        (ErrorKind::AddrInUse, "stop that one"),
    ] {
        let said = error(kind);
        assert!(
            said.starts_with("the agent cannot listen at /run/berth/control.sock: "),
            "{said}"
        );
        assert!(said.contains(what_to_do), "{said}");
    }
}

#[test]
fn parameters_change_while_it_acts_or_take_loading_it() {
    let mut p = place(Rules::default());
    p.agent
        .start(policy("a", &[("slice", 1), ("fixed", 1)]))
        .unwrap();
    p.paper.said();
    let mut start = |values: &[(&str, i128)]| {
        let started = p.agent.start(policy("a", values)).unwrap();
        let said = p.paper.said();
        (started, said.into_iter().find(|s| !s.starts_with("undone")))
    };
    let changed = start(&[("slice", 2), ("fixed", 1)]);
    assert_eq!(changed, (Started::Changed, Some("slice = 2".into())));
    let loaded = (Started::Switched, Some("load a".to_string()));
    assert_eq!(start(&[("slice", 2), ("fixed", 2)]), loaded);
    assert_eq!(start(&[("fixed", 2)]), loaded, "back to its default");
    let mut wrong = policy("a", &[("fixed", 2)]);
    wrong.values.insert("slice".into(), Value::Text("x".into()));
    let e = p.agent.start(wrong).unwrap_err().to_string();
    assert!(
        e.starts_with("policy a (object a) on Linux") && e.ends_with("it is no number"),
        "{e}"
    );
    assert!(p.agent.running());
}

#[test]
fn what_stands_in_the_way_is_said_in_the_backends_words() {
    let mut p = place(Rules::default());
    p.paper.notes.borrow_mut().obstacle = Some("no pencil: buy one".into());
    let e = p.agent.start(policy("a", &[])).unwrap_err();
    assert!(
        matches!(&e, AgentError::Refused(why) if why == "no pencil: buy one"),
        "{e}"
    );
    p.paper.notes.borrow_mut().obstacle = None;
    p.agent.start(policy("a", &[])).unwrap();
    let empty = Policy {
        object: Vec::new(),
        ..policy("b", &[])
    };
    let e = p.agent.start(empty).unwrap_err().to_string();
    assert!(e.ends_with("nothing is written in it"), "{e}");
    assert_eq!(
        p.agent.status().policy.unwrap().name,
        "a",
        "the one that acts stays"
    );
}

/// A policy that passes the verifier and does not begin all the same: the one that had to end for it is back, or the
/// status says that it is not.
#[test]
fn what_does_not_begin_brings_the_old_one_back() {
    let mut p = place(Rules::default());
    p.paper.notes.borrow_mut().stuck = vec!["b"];
    let e = p.agent.start(policy("b", &[])).unwrap_err().to_string();
    assert!(e.ends_with("the pen is dry"), "{e}");
    assert!(!p.agent.running());
    p.agent.start(policy("a", &[("slice", 3)])).unwrap();
    p.paper.said();
    let e = p.agent.start(policy("b", &[])).unwrap_err().to_string();
    assert!(
        e.starts_with("policy b ") && e.ends_with("the pen is dry"),
        "{e}"
    );
    let said = [
        &["load b"][..],
        &TOLD,
        &["undone a", "start b", "load a"],
        &TOLD,
        &["start a"],
    ];
    assert_eq!(p.paper.said(), said.concat());
    let status = p.agent.status();
    assert_eq!(status.policy.unwrap().name, "a");
    assert_eq!(status.trouble, None);
    // Nor does the old one begin again.
    p.paper.notes.borrow_mut().stuck = vec!["a", "b"];
    let e = p.agent.start(policy("b", &[])).unwrap_err().to_string();
    let status = p.agent.status();
    assert!(status.policy.is_none());
    assert_eq!(status.trouble.as_ref(), Some(&e));
    assert!(
        e.contains("policy a, which had to end for it, did not begin again: "),
        "{e}"
    );
    p.paper.notes.borrow_mut().stuck.clear();
    p.agent.start(policy("a", &[])).unwrap();
    assert_eq!(p.agent.status().trouble, None);
}

/// What keeps a policy from beginning may pass: it is loaded and told anew, and the old one ends once.
#[test]
fn what_passes_is_waited_for() {
    let mut p = place(Rules::default());
    p.agent.start(policy("a", &[])).unwrap();
    let anew = [&["load b"][..], &TOLD, &["start b"]].concat();
    let after_a = [&["load b"][..], &TOLD, &["undone a", "start b"]].concat();
    p.paper.notes.borrow_mut().short = 2;
    p.paper.said();
    assert_eq!(p.agent.start(policy("b", &[])).unwrap(), Started::Switched);
    assert_eq!(p.paper.said(), [&after_a[..], &anew, &anew].concat());
    let warnings = p.agent.status().policy.unwrap().warnings;
    assert_eq!(warnings, ["it did not begin at once: no ink at hand"]);
    // Not for ever: then it is refused, and the old one comes back.
    p.agent.start(policy("a", &[])).unwrap();
    p.paper.notes.borrow_mut().short = 3;
    let e = p.agent.start(policy("b", &[])).unwrap_err().to_string();
    assert!(e.ends_with("no ink at hand"), "{e}");
    let status = p.agent.status();
    assert_eq!(status.policy.unwrap().name, "a");
    assert_eq!(status.trouble, None);
    assert_eq!(p.paper.notes.borrow().short, 0);
    // It is loaded anew, and cannot be told who is who any more: both reasons are said.
    p.paper.notes.borrow_mut().short = 1;
    p.paper.notes.borrow_mut().deaf_then = true;
    let e = p.agent.start(policy("b", &[])).unwrap_err().to_string();
    assert!(e.contains("no ink at hand\nand loaded anew: "), "{e}");
}

/// Rules that come with a policy that is refused, whyever, do not hold; nor do some of its parameters.
#[test]
fn a_refused_start_changes_nothing() {
    let only = |name: &str| Rules {
        only: vec![name.into()],
        vms: vec![Rule {
            name: name.into(),
            class: Some("latency".into()),
            io_vcpus: 0,
        }],
        ..Rules::default()
    };
    let mut p = place(only("w*"));
    let refused = |p: &mut Place, policy| {
        p.agent.start_with(policy, Some(only("j*"))).unwrap_err();
        let status = p.agent.status();
        assert_eq!(status.only, ["w*"]);
        let named = status.vms.iter().filter(|vm| vm.named);
        let named: Vec<&str> = named.map(|vm| vm.name.as_str()).collect();
        assert_eq!(named, ["web"]);
        let class = |name: &str| {
            status
                .vms
                .iter()
                .find(|vm| vm.name == name)
                .map(|vm| &*vm.class)
        };
        assert_eq!(
            (class("web"), class("job")),
            (Some("latency"), Some("none"))
        );
        status.policy
    };
    p.paper.notes.borrow_mut().obstacle = Some("no pencil".into());
    assert_eq!(refused(&mut p, policy("a", &[])), None);
    p.paper.notes.borrow_mut().obstacle = None;
    let first = policy("a", &[("slice", 1), ("fixed", 1)]);
    p.agent.start(first.clone()).unwrap();
    p.paper.said();
    p.paper.notes.borrow_mut().stuck = vec!["b"];
    assert_eq!(refused(&mut p, policy("b", &[])).unwrap().name, "a");
    p.paper.said();
    // A parameter that could be set at once, another for which it has to be loaded, which is refused.
    let empty = Policy {
        object: Vec::new(),
        ..policy("a", &[("slice", 2), ("fixed", 2)])
    };
    assert_eq!(refused(&mut p, empty).unwrap().name, "a");
    assert_eq!(p.paper.said(), Vec::<String>::new());
    let started = p.agent.start_with(first, Some(only("j*"))).unwrap();
    assert_eq!(started, Started::Changed);
    assert_eq!(p.agent.status().only, ["j*"]);
}

/// Ends of all kinds: what became of the policy, and why, is in the status; nothing of it is left.
#[test]
fn it_ends_for_every_reason_there_is() {
    let ended = |p: &mut Place, why: &str| {
        let events = p.agent.tick().unwrap();
        let Some(Event::Ended(said)) = events.last() else {
            panic!("{events:?}")
        };
        assert!(said.ends_with(why), "{said}");
        assert_eq!(p.agent.status().trouble.as_ref(), Some(said));
        assert_eq!(p.paper.said().last().unwrap(), "undone a");
        assert!(!p.agent.running());
        p.agent.start(policy("a", &[])).unwrap();
        assert_eq!(p.agent.status().trouble, None);
    };
    let end = |again| End {
        why: "out of ink".into(),
        again,
    };
    let mut p = place(Rules::default());
    p.agent.start(policy("a", &[])).unwrap();
    p.paper.notes.borrow_mut().end = Some(end(false));
    ended(&mut p, "ended policy a: out of ink");
    p.paper.notes.borrow_mut().danger = Some("paper burns".into());
    let calm = |p: &Place| p.paper.notes.borrow_mut().danger = None;
    ended(&mut p, "policy a was unloaded: paper burns");
    calm(&p);
    p.paper.notes.borrow_mut().deaf = true;
    unpack(p.folder.path(), &[(300, "new")]);
    let events = p.agent.tick().unwrap();
    assert!(
        matches!(events.last(), Some(Event::Ended(said)) if said.ends_with("the paper is full"))
    );
    p.paper.notes.borrow_mut().deaf = false;
    p.agent.start(policy("a", &[])).unwrap();
    p.paper.said();
    p.paper.notes.borrow_mut().end = Some(end(true));
    let events = p.agent.tick().unwrap();
    assert!(
        matches!(events.last(), Some(Event::Restarted(_))),
        "{events:?}"
    );
    let said = p.paper.said();
    assert_eq!(
        (said[0].as_str(), said.last().unwrap().as_str()),
        ("undone a", "start a")
    );
}

#[test]
fn who_starves_a_thread_is_unloaded() {
    let mut p = place(Rules::default());
    p.agent.start(policy("a", &[])).unwrap();
    p.paper.said();
    // It can run, and does not.
    let stat = p.folder.path().join("proc/100/task/101/stat");
    let text = std::fs::read_to_string(&stat).unwrap();
    std::fs::write(&stat, text.replacen(") S ", ") R ", 1)).unwrap();
    let mut looks = 0;
    let why = loop {
        p.root.sleep(Duration::from_millis(100));
        looks += 1;
        assert!(looks < 20 && p.agent.status().trouble.is_none());
        if let Some(Event::Ended(why)) = p.agent.tick().unwrap().pop() {
            break why;
        }
    };
    assert_eq!(looks, 6, "{why}");
    let stall = "policy a was unloaded: thread 101 of VM web could run for 0.50 s and got no CPU, 0.50 s were owed to \
     it";
    assert_eq!(why, stall);
    assert_eq!(p.paper.said(), ["end a", "undone a"]);
}

#[test]
fn only_the_named_vms_are_given_to_a_partial_one() {
    let rules = Rules {
        only: vec!["w*".into()],
        ..Rules::default()
    };
    let mut p = place(rules);
    let partial = Policy {
        partial: true,
        ..policy("a", &[])
    };
    p.agent.start(partial).unwrap();
    assert_eq!(p.paper.said().last().unwrap(), "act on web");
    p.agent.set_rules(Rules::default());
    p.agent.tick().unwrap();
    assert!(p.paper.said().contains(&"act on job web".to_string()));
}

/// A policy that may be replaced: `cgroup` has a paper of its own.
fn two_ways() -> (Place, Paper) {
    let mut p = place(Rules::default());
    let other = Paper::default();
    let ways = Ways {
        scx: Box::new(p.paper.clone()),
        cgroup: Box::new(Optimising(other.clone())),
    };
    p.agent = Agent::by(ways, p.root.clone(), Rules::default(), Some(LIMIT));
    (p, other)
}

/// Loads what has no object.
struct Optimising(Paper);

impl Backend for Optimising {
    fn able(&self) -> Result<(), Trouble> {
        Ok(())
    }
    fn obstacles(&self, vms: &Snapshot, ours: bool) -> Vec<String> {
        self.0.obstacles(vms, ours)
    }
    fn danger(&self, _: &Snapshot) -> Option<String> {
        None
    }
    fn load(&self, policy: &Policy) -> Result<Box<dyn Ready>, Trouble> {
        self.0.load(&Policy {
            object: b"x".to_vec(),
            ..policy.clone()
        })
    }
}

fn auto() -> Policy {
    Policy {
        backend: Way::Auto,
        ..policy("a", &[])
    }
}

fn acts(p: &Place) -> (String, Option<String>) {
    let status = p.agent.status().policy.unwrap();
    (status.name, status.instead_of.map(|(_, why)| why))
}

#[test]
fn the_optimiser_acts_where_the_policy_cannot() {
    let (mut p, _) = two_ways();
    p.paper.notes.borrow_mut().obstacle = Some("no pencil".into());
    p.agent.start(auto()).unwrap();
    assert_eq!(acts(&p), ("optimiser".into(), Some("no pencil".into())));
    // A policy that is to act by one way only stays refused.
    let only = policy("a", &[]);
    assert!(matches!(p.agent.start(only), Err(AgentError::Refused(_))));
    // It is not tried by itself: the reason does not go away.
    p.paper.notes.borrow_mut().obstacle = None;
    p.root.sleep(Duration::from_secs(3600));
    p.agent.tick().unwrap();
    assert_eq!(acts(&p).0, "optimiser");
    // When the operator says so, it is.
    p.agent.start(auto()).unwrap();
    assert_eq!(acts(&p), ("a".into(), None));
}

/// But it is where the reason may go away.
#[test]
fn the_optimiser_acts_until_what_passes_has_passed() {
    let (mut p, _) = two_ways();
    p.paper.notes.borrow_mut().short = 3;
    p.agent.start(auto()).unwrap();
    let (name, why) = acts(&p);
    assert_eq!(name, "optimiser");
    assert!(why.unwrap().ends_with("no ink at hand"));
    p.root.sleep(Duration::from_secs(29));
    p.agent.tick().unwrap();
    assert_eq!(acts(&p).0, "optimiser", "not yet");
    p.root.sleep(Duration::from_secs(1));
    p.agent.tick().unwrap();
    assert_eq!(acts(&p), ("a".into(), None));
}

/// For each try the optimiser has to go: what does not pass is given up.
#[test]
fn what_never_passes_is_given_up() {
    let (mut p, other) = two_ways();
    p.paper.notes.borrow_mut().short = u32::MAX;
    p.agent.start(auto()).unwrap();
    for _ in 0..60 {
        p.root.sleep(Duration::from_secs(10));
        p.agent.tick().unwrap();
        assert_eq!(acts(&p).0, "optimiser");
    }
    let starts = |paper: &Paper, what| paper.said().iter().filter(|s| *s == what).count();
    assert_eq!(
        starts(&p.paper, "start a"),
        4 * 3,
        "asked for once, then by itself three times"
    );
    assert_eq!(starts(&other, "start optimiser"), 4);
}

#[test]
fn other_settings_of_the_optimiser_take_a_new_one() {
    let (mut p, other) = two_ways();
    let optimiser = |set: &[(&str, &str)]| Policy {
        parameters: set
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
        ..Policy::optimiser(false)
    };
    assert_eq!(p.agent.start(optimiser(&[])).unwrap(), Started::Loaded);
    assert_eq!(p.agent.start(optimiser(&[])).unwrap(), Started::Changed);
    assert_eq!(
        p.agent.start(optimiser(&[("reserve", "0.2")])).unwrap(),
        Started::Switched
    );
    let said = other.said();
    assert_eq!(
        said.iter().filter(|s| *s == "start optimiser").count(),
        2,
        "{said:?}"
    );
    assert_eq!(
        p.agent.status().policy.unwrap().parameters["reserve"],
        "0.2"
    );
}

#[test]
fn neither_can_act() {
    let (mut p, other) = two_ways();
    p.paper.notes.borrow_mut().obstacle = Some("no pencil".into());
    other.notes.borrow_mut().obstacle = Some("no knobs".into());
    let error = p.agent.start(auto()).unwrap_err().to_string();
    assert!(
        error.contains("no pencil") && error.contains("no knobs"),
        "{error}"
    );
    assert!(p.agent.status().policy.is_none());
}

#[test]
fn a_policy_that_is_ended_is_tried_again_and_after_three_ends_no_more() {
    let (mut p, other) = two_ways();
    p.agent.start(auto()).unwrap();
    let end = |p: &mut Place, why: &str| {
        p.paper.notes.borrow_mut().end = Some(End {
            why: why.into(),
            again: false,
        });
        // Asked often, acted on once.
        assert!(p.agent.notices_end().unwrap() && p.agent.notices_end().unwrap());
        p.agent.tick().unwrap()
    };
    assert!(!p.agent.notices_end().unwrap());
    for (turn, pause) in [(0, 30), (1, 60)] {
        let events = end(&mut p, "it stalled");
        assert!(
            events
                .iter()
                .any(|e| matches!(e, Event::FellBack(why) if why.contains("it stalled")))
        );
        assert_eq!(acts(&p).0, "optimiser", "{turn}");
        p.root.sleep(Duration::from_secs(pause - 1));
        p.agent.tick().unwrap();
        assert_eq!(acts(&p).0, "optimiser", "not yet");
        p.root.sleep(Duration::from_secs(1));
        let events = p.agent.tick().unwrap();
        assert!(events.contains(&Event::Back("a".into())), "{events:?}");
        assert_eq!(acts(&p), ("a".into(), None));
    }
    end(&mut p, "it stalled");
    p.root.sleep(Duration::from_secs(400));
    p.agent.tick().unwrap();
    assert_eq!(acts(&p).0, "optimiser", "three times in ten minutes");
    // Nor if it is asked for.
    p.agent.start(auto()).unwrap();
    assert!(acts(&p).1.unwrap().contains("too often"));
    assert_eq!(p.agent.stop().unwrap(), "optimiser");
    assert!(other.said().contains(&"end optimiser".to_string()));
}

#[test]
fn a_try_that_fails_leaves_the_optimiser() {
    let (mut p, _) = two_ways();
    p.agent.start(auto()).unwrap();
    let end = End {
        why: "gone".into(),
        again: false,
    };
    p.paper.notes.borrow_mut().end = Some(end);
    p.agent.tick().unwrap();
    p.paper.notes.borrow_mut().obstacle = Some("no pencil".into());
    p.root.sleep(Duration::from_secs(31));
    p.agent.tick().unwrap();
    assert_eq!(acts(&p), ("optimiser".into(), Some("no pencil".into())));
}
