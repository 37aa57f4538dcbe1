// SPDX-License-Identifier: GPL-2.0-only
//! The papers' experiments: every file reads without a note, and names claims that exist.
use berth_scenario::model::*;
use berth_scenario::{Input, Loaded, claims, read, show};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/flms")
}

fn load(name: &str) -> Loaded {
    let input = Input::from_file(&folder().join(name)).unwrap();
    read(&input, &[]).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_experiment_reads_and_survives_full() {
    let mut files = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if !path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("ef")
        {
            continue;
        }
        files += 1;
        let mut input = Input::from_file(&path).unwrap();
        let first = read(&input, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(first.warnings, Vec::<String>::new(), "{}", path.display());
        let reproduces = first.scenario.reproduces.as_ref().unwrap();
        assert_eq!(reproduces.paper, "flms");
        assert!(!reproduces.claims.is_empty());
        input.text = show::full(&first.facts);
        let second = read(&input, &[]).unwrap_or_else(|e| panic!("{}\n{e}", input.text));
        assert_eq!(first.scenario, second.scenario, "{}", path.display());
    }
    assert!(files >= 7, "{files}");
}

#[test]
fn every_claim_is_readable_and_used() {
    let all = claims::read(&folder().join("claims.toml")).unwrap();
    let mut used = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("ef") {
            for pattern in load(&name).scenario.reproduces.unwrap().claims {
                used.extend(claims::matching(&all, &pattern).into_iter().cloned());
            }
        }
    }
    for claim in &all {
        let known = used.contains(claim) || claim.needs.is_some();
        assert!(known, "{} is in no experiment and says not why", claim.id);
        assert!(!claim.source.is_empty(), "{}", claim.id);
    }
}

/// The example of the guide, as it stands there.
#[test]
fn ping_beside_compute_load() {
    let s = load("ef6-ping.toml").scenario;
    assert_eq!(s.host.nr_cpus(), 8);
    assert_eq!(
        s.host.cost.migrate_same_llc_ns, 20_000,
        "one cache per package"
    );
    assert_eq!(s.host.cost.migrate_same_package_ns, 20_000);
    assert_eq!(s.host.cost.migrate_other_node_ns, 200_000);
    assert_eq!(s.net.path, NetPath::DriverDomain);
    let dom0 = &s.vms[0];
    assert_eq!((dom0.role, dom0.count), (VmRole::Driver, 1));
    assert_eq!(s.vms[1].tasks, ["lookbusy", "echo"]);
    let arms: Vec<_> = s.arms.iter().map(|a| a.name.as_str()).collect();
    let all = [
        "credit",
        "io-bounding",
        "vturbo",
        "kvm",
        "flms",
        "flms-direct",
    ];
    assert_eq!(arms, all);
    let arm = |name: &str| s.arms.iter().find(|a| a.name == name).unwrap();
    assert_eq!(arm("io-bounding").params["mode"], "vm");
    let turbo = s.for_arm(arm("vturbo"));
    assert!(turbo.vms.iter().all(|vm| vm.turbo_vcpus == 1));
    let kvm = s.for_arm(arm("kvm"));
    assert_eq!((kvm.net.path, kvm.vms[0].count), (NetPath::Vhost, 0));
    assert_eq!(arm("flms").preset.as_deref(), Some("paper"));
    let fit = s.calibrate.as_ref().unwrap();
    assert_eq!(
        (fit.arm.as_str(), fit.metric.as_str()),
        ("credit", "lsvm.response.mean")
    );
    assert_eq!(fit.target, 16_853_000.0);
    assert_eq!(fit.search["host.packages"], ["1", "2"]);
    assert_eq!(
        fit.search["task.lookbusy.period"],
        ["\"10ms\"", "\"100ms\"", "\"1s\""]
    );
}

/// Whoever a claim is about is an arm of each experiment that names it, unless it says what is missing.
#[test]
fn claims_are_about_arms_that_there_are() {
    let all = claims::read(&folder().join("claims.toml")).unwrap();
    let mut seconds = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if !name.starts_with("ef") {
            continue;
        }
        let scenario = load(&name).scenario;
        let patterns = &scenario.reproduces.as_ref().unwrap().claims;
        let judged = patterns.iter().flat_map(|p| claims::matching(&all, p));
        for claim in judged.filter(|c| c.needs.is_none()) {
            for arm in [&claim.arm, &claim.against, &claim.also]
                .into_iter()
                .flatten()
            {
                let found = scenario.arms.iter().any(|a| a.name == *arm);
                assert!(
                    found,
                    "{name} has no arm {arm}, which {} is about",
                    claim.id
                );
            }
            seconds += usize::from(claim.also.is_some());
        }
    }
    // Both readings of FLMS in EF6, EF7 and EF13.
    assert_eq!(seconds, 5);
}
