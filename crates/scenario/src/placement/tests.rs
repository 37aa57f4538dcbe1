// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::model::*;

fn task(name: &str, threads: Option<u32>, steps: Vec<Step>) -> Task {
    Task {
        name: name.into(),
        threads,
        nice: 0,
        affinity: vec![],
        steps,
        ..Task::default()
    }
}

fn vm(name: &str, count: u32, vcpus: u32, tasks: &[&str]) -> Vm {
    Vm {
        name: name.into(),
        count,
        vcpus,
        class: Class::Batch,
        reserved_vcpus: 0,
        weight: 100,
        cap_milli: None,
        affinity: vec![],
        nice: 0,
        tasks: tasks.iter().map(|t| t.to_string()).collect(),
        ..Vm::default()
    }
}

/// Tasks: `worker` and `disk` serve `users` and `disk`, `hog` is busy, `beat` has one thread.
fn scenario(vms: Vec<Vm>) -> Scenario {
    let serve = |q: &str| {
        vec![
            Step::Receive(q.into()),
            Step::Compute(Dist::Const(1000)),
            Step::Reply,
        ]
    };
    let tasks = [
        task("worker", Some(4), serve("users")),
        task("disk", Some(1), serve("disk")),
        task("hog", None, vec![Step::Busy]),
        task(
            "beat",
            Some(1),
            vec![
                Step::Timer {
                    period_ns: 1000,
                    grid: Grid::Random,
                },
                Step::Compute(Dist::Const(10)),
            ],
        ),
    ];
    Scenario {
        name: "t".into(),
        title: "t".into(),
        run: Run {
            warmup_ns: 0,
            measure_ns: 1,
            seeds: 1,
        },
        host: Host {
            nodes: 1,
            packages: 1,
            llcs: 1,
            cores: 2,
            threads: 1,
            hz: Hz::Exact,
            ..Host::default()
        },
        vms,
        tasks: tasks
            .into_iter()
            .map(|t| (t.name.clone(), t))
            .collect::<BTreeMap<_, _>>(),
        clients: vec![],
        ..Scenario::default()
    }
}

fn shown(s: &Scenario) -> Vec<String> {
    let what = |w: &Work| match w {
        Work::Task(t) => t.clone(),
        Work::Pools(p) => format!("[{}]", p.join(" ")),
    };
    threads(s)
        .unwrap()
        .iter()
        .map(|t| format!("{} {}", t.name, what(&t.work)))
        .collect()
}

#[test]
fn a_pool_is_served_by_every_vcpu_and_a_model_has_one_thread_per_vcpu() {
    let s = scenario(vec![
        vm("web", 2, 2, &["worker"]),
        vm("build", 1, 2, &["hog"]),
    ]);
    let want = [
        "web-1/0 [worker]",
        "web-1/1 [worker]",
        "web-2/0 [worker]",
        "web-2/1 [worker]",
    ];
    assert_eq!(shown(&s)[..4], want);
    assert_eq!(shown(&s)[4..], ["build/0 hog", "build/1 hog"]);
    let all = threads(&s).unwrap();
    assert_eq!(all[2].vm.as_ref().unwrap().ordinal, 1);
    assert_eq!(
        (all[2].cgroup.as_str(), all[4].cgroup.as_str()),
        ("web-2", "build")
    );
}

#[test]
fn vms_that_name_a_cgroup_share_it() {
    let in_one = |name, count| Vm {
        cgroup: Some("all".into()),
        ..vm(name, count, 1, &["hog"])
    };
    let s = scenario(vec![
        in_one("a", 2),
        vm("b", 1, 1, &["hog"]),
        in_one("c", 1),
    ]);
    let groups: Vec<String> = threads(&s).unwrap().into_iter().map(|t| t.cgroup).collect();
    assert_eq!(groups, ["all", "all", "b", "all"]);
    let uses = crate::support::uses(&s).into_iter();
    let shared: Vec<String> = uses
        .filter(|u| u.feature == crate::support::Feature::SharedCgroups)
        .map(|u| u.address)
        .collect();
    assert_eq!(shared, ["vm.a.cgroup", "vm.c.cgroup"]);
}

#[test]
fn ordinary_tasks_leave_the_rest_to_the_pools() {
    let mut v = vm("m", 1, 4, &["worker", "beat", "disk"]);
    let want = [
        "m/0 beat",
        "m/1 [worker disk]",
        "m/2 [worker]",
        "m/3 [worker]",
    ];
    assert_eq!(shown(&scenario(vec![v.clone()])), want);
    (v.class, v.reserved_vcpus) = (Class::Mixed, 1);
    let want = [
        "m/0 beat",
        "m/1 [worker]",
        "m/2 [worker]",
        "m/3 [worker disk]",
    ];
    assert_eq!(shown(&scenario(vec![v])), want);
}

#[test]
fn tasks_that_take_requests_have_turbo_vcpus_for_themselves() {
    let mut v = vm("m", 1, 2, &["worker", "hog"]);
    v.turbo_vcpus = 1;
    let mut s = scenario(vec![v]);
    assert_eq!(shown(&s), ["m/0 hog", "m/1 hog", "m/2 [worker]"]);
    let inside = |s: &Scenario| {
        let threads = threads_where(s, &|_| true).unwrap();
        let of = |task: &str| {
            threads
                .iter()
                .find(|t| t.name == format!("{task}/0"))
                .unwrap()
                .affinity
                .clone()
        };
        [of("worker"), of("hog")]
    };
    assert_eq!(inside(&s), [vec![2], vec![0, 1]]);
    (s.vms[0].class, s.vms[0].reserved_vcpus) = (Class::Mixed, 1);
    assert_eq!(inside(&s), [vec![2], vec![0]]);
    assert!(!s.vms[0].is_reserved(1) && s.vms[0].is_reserved(2) && !s.vms[0].is_reserved(3));
}

#[test]
fn a_users_task_starts_where_tasks_compute_if_an_agent_moves_it() {
    let mut v = vm("m", 1, 4, &["worker", "hog"]);
    (v.class, v.reserved_vcpus) = (Class::Mixed, 1);
    let mut s = scenario(vec![v]);
    let of = |s: &Scenario, task: &str| {
        let threads = threads_where(s, &|_| true).unwrap();
        let name = format!("{task}/0");
        threads
            .into_iter()
            .find(|t| t.name == name)
            .unwrap()
            .affinity
    };
    for (agent, uid, on) in [
        (false, 1000, vec![3]),
        (true, 0, vec![3]),
        (true, 999, vec![3]),
        (true, 1000, vec![0, 1, 2]),
    ] {
        s.vms[0].guest_agent = agent;
        s.tasks.get_mut("worker").unwrap().uid = uid;
        assert_eq!(of(&s, "worker"), on, "{agent} {uid}");
        assert_eq!(of(&s, "hog"), [0, 1, 2]);
    }
    s.tasks.get_mut("worker").unwrap().affinity = vec![2];
    assert_eq!(of(&s, "worker"), [2]);
}

#[test]
fn what_needs_a_guest_is_refused_by_name() {
    let error = |tasks: &[&str]| {
        threads(&scenario(vec![vm("v", 1, 2, tasks)]))
            .unwrap_err()
            .to_string()
    };
    assert!(error(&["hog", "beat"]).starts_with("task `beat` of vm.v: its 1 threads find 0 of 2"));
    assert!(error(&["hog", "worker"]).starts_with("task `worker` of vm.v receives requests"));
    assert!(error(&["hogg"]).contains("add [task.hogg]"));
    let mut s = scenario(vec![vm("v", 1, 2, &["worker"])]);
    s.tasks
        .get_mut("worker")
        .unwrap()
        .steps
        .push(Step::Sleep(Dist::Const(1)));
    assert!(matches!(
        threads(&s),
        Err(PlacementError::SleepingPool { free: 2, .. })
    ));
    s.tasks
        .get_mut("worker")
        .unwrap()
        .steps
        .push(Step::Receive("x".into()));
    assert!(matches!(
        threads(&s),
        Err(PlacementError::ReceiveInside { .. })
    ));
}

#[test]
fn messages_stay_in_the_vm_or_go_to_the_matching_instance() {
    let s = scenario(vec![
        vm("web", 2, 2, &["worker"]),
        vm("db", 2, 1, &["disk"]),
    ]);
    let all = instances(&s);
    assert_eq!(queue_of(&s, "worker"), Some("users"));
    assert_eq!(queue_of(&s, "disk"), Some("disk"));
    assert_eq!(queue_of(&s, "nobody"), None);
    assert_eq!(receiver(&s, Some(&all[1]), "users"), Some(Some(1)));
    assert_eq!(receiver(&s, Some(&all[1]), "disk"), Some(Some(3)));
    assert_eq!(receiver(&s, None, "disk"), Some(Some(2)));
    assert_eq!(receiver(&s, None, "x"), None);
}

#[test]
fn host_tasks_and_forks_have_threads_of_their_own() {
    let mut s = scenario(vec![vm("v", 1, 1, &["hog"])]);
    s.host.tasks = vec!["beat".into()];
    s.vms[0].affinity = vec![1];
    s.vms[0].nice = 5;
    let all = threads(&s).unwrap();
    assert_eq!(
        (all[1].name.as_str(), all[1].role, all[1].cgroup.as_str()),
        ("beat/0", Role::Other, "")
    );
    let child = forked(&s, &all[0], "beat").unwrap();
    assert_eq!(
        (child.name.as_str(), child.role, child.nice),
        ("v/0+beat", Role::Vcpu(0), 5)
    );
    assert_eq!(child.affinity, [1]);
    assert!(forked(&s, &all[0], "none").is_err());
}

#[test]
fn a_client_nobody_listens_to_is_refused() {
    let mut s = scenario(vec![vm("v", 1, 1, &["worker"])]);
    let sends = Sends::Open {
        gap: Dist::Const(1),
    };
    let client = |name: &str| Client {
        name: name.into(),
        to: "v".into(),
        sends: sends.clone(),
        request_bytes: 0,
        reply_bytes: 0,
        window_bytes: None,
        at_most: None,
    };
    s.clients = vec![client("users")];
    assert!(threads(&s).is_ok());
    s.clients = vec![client("usrs")];
    assert!(
        threads(&s)
            .unwrap_err()
            .to_string()
            .contains("`receive usrs`")
    );
}
