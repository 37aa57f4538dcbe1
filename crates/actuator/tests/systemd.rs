// SPDX-License-Identifier: GPL-2.0-only
//! A real systemd as process 1: its units are set by D-Bus, read back, and put back exactly, also by who comes after
//! one that was killed at any of its system calls. `tools/systemd-live` runs it; elsewhere, without `BERTH_SYSTEMD`, it
//! is not tried.
use berth_actuator::ledger::{Ledger, this_boot};
use berth_actuator::live::Live;
use berth_actuator::unit::Property;
use berth_actuator::{Acting, Error, Host, Knob, Outcome, restore};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

mod killed;
use killed::{alone, killed_after};

/// A service that does nothing, without a setting of its own.
struct Service(String);

impl Service {
    fn start(name: &str) -> Option<Service> {
        if std::env::var_os("BERTH_SYSTEMD").is_none() {
            eprintln!("not tried: BERTH_SYSTEMD is not set");
            return None;
        }
        run("systemd-run", &["-q", "--unit", name, "sleep", "100000"]);
        Some(Service(format!("{name}.service")))
    }

    fn knob(&self, property: Property) -> Knob {
        Knob::Unit {
            unit: self.0.clone(),
            property,
        }
    }

    /// What systemd says of it, what the kernel has, and what is written down of it.
    fn state(&self) -> String {
        let shown = run(
            "systemctl",
            &[
                "show",
                &self.0,
                "-p",
                "CPUWeight,CPUQuotaPerSecUSec,AllowedCPUs",
            ],
        );
        format!("{shown}{}", self.kept())
    }

    /// The same without systemd's own words.
    fn kept(&self) -> String {
        let group = Path::new("/sys/fs/cgroup/system.slice").join(&self.0);
        let files = ["cpu.weight", "cpu.max", "cpuset.cpus"].map(|file| {
            // systemd enables controllers as somebody needs them: without one it is as with its default.
            std::fs::read_to_string(group.join(file)).unwrap_or_default()
        });
        let defaults = ["100\n", "max 100000\n", "\n"];
        let files: Vec<&str> = files
            .iter()
            .zip(defaults)
            .map(|(text, default)| if text.is_empty() { default } else { text })
            .collect();
        let mut written = Vec::new();
        for folder in ["transient", "system.control"] {
            let folder = format!("/run/systemd/{folder}/{}.d", self.0);
            for file in std::fs::read_dir(folder).into_iter().flatten() {
                let path = file.unwrap().path();
                written.push((
                    path.display().to_string(),
                    std::fs::read_to_string(&path).unwrap(),
                ));
            }
        }
        written.sort();
        format!("{files:?}{written:?}")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        run("systemctl", &["stop", &self.0]);
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).output().unwrap();
    assert!(out.status.success(), "{program} {arguments:?}: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

fn acting(state: &Path) -> Result<Acting<Live>, Error> {
    Ok(Acting::begin(Live::new(), Ledger::open(state, &this_boot()?)?)?.0)
}

fn wanted(service: &Service, weight: &str, quota: &str, cpus: &str) -> Vec<(Knob, String)> {
    vec![
        (service.knob(Property::Weight), weight.into()),
        (service.knob(Property::Quota), quota.into()),
        (service.knob(Property::Cpus), cpus.into()),
    ]
}

#[test]
fn a_unit_is_set_and_put_back_exactly() {
    let _alone = alone();
    let Some(service) = Service::start("berth-test-exact") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let before = service.state();
    let mut acting_on = acting(&folder.path().join("state")).unwrap();
    let report = acting_on
        .set(&wanted(
            &service,
            "300 runtime",
            "500000 runtime",
            "0 runtime",
        ))
        .unwrap();
    assert!(
        report.outcomes.iter().all(|(_, o)| *o == Outcome::Set),
        "{report:?}"
    );
    let during = service.state();
    let set = [
        "CPUWeight=300",
        "CPUQuotaPerSecUSec=500ms",
        "AllowedCPUs=0\n",
        "\"300\\n\"",
        "\"0\\n\"",
    ];
    for text in set.iter().chain(&["50000 100000", "50-CPUWeight.conf"]) {
        assert!(during.contains(text), "{text}: {during}");
    }
    // What systemd reads again it keeps: it was told.
    run("systemctl", &["daemon-reload"]);
    assert_eq!(service.state(), during);
    assert!(acting_on.yielded().outcomes.is_empty());
    // The next decision.
    acting_on
        .set(&wanted(
            &service,
            "50 runtime",
            "1000000 runtime",
            "0-1 runtime",
        ))
        .unwrap();
    assert_eq!(
        acting_on.was(&service.knob(Property::Weight)),
        Some("unset")
    );
    acting_on.end().unwrap();
    assert_eq!(service.state(), before);
    run("systemctl", &["daemon-reload"]);
    assert_eq!(service.state(), before);
}

#[test]
fn what_an_operator_has_set_is_there_again() {
    let _alone = alone();
    let Some(service) = Service::start("berth-test-his") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    run(
        "systemctl",
        &[
            "set-property",
            "--runtime",
            &service.0,
            "CPUWeight=200",
            "CPUQuota=33%",
            "AllowedCPUs=1",
        ],
    );
    let before = service.state();
    let mut acting_on = acting(&folder.path().join("state")).unwrap();
    acting_on
        .set(&wanted(
            &service,
            "300 runtime",
            "10000 runtime",
            "0 runtime",
        ))
        .unwrap();
    assert_ne!(service.state(), before);
    acting_on.end().unwrap();
    assert_eq!(service.state(), before);
    run("systemctl", &["daemon-reload"]);
    assert_eq!(service.state(), before);
    // What he sets meanwhile is his.
    let mut acting_on = acting(&folder.path().join("state")).unwrap();
    acting_on
        .set(&wanted(
            &service,
            "300 runtime",
            "10000 runtime",
            "0 runtime",
        ))
        .unwrap();
    run(
        "systemctl",
        &["set-property", "--runtime", &service.0, "CPUWeight=77"],
    );
    let yielded = acting_on.yielded();
    assert_eq!(
        yielded.outcomes,
        [(
            service.knob(Property::Weight),
            Outcome::Foreign("77 runtime".into())
        )]
    );
    acting_on.end().unwrap();
    assert_eq!(service.state(), before.replace("200", "77"));
}

#[test]
fn what_is_refused_is_not_remembered_and_a_unit_may_end() {
    let _alone = alone();
    let Some(service) = Service::start("berth-test-ends") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let before = service.state();
    let mut acting_on = acting(&folder.path().join("state")).unwrap();
    // Weights end at 10000.
    let report = acting_on
        .set(&[(service.knob(Property::Weight), "10001 runtime".into())])
        .unwrap();
    assert!(
        matches!(&report.outcomes[0].1, Outcome::Refused(why) if why.contains("systemd")),
        "{report:?}"
    );
    assert_eq!(
        (
            acting_on.was(&service.knob(Property::Weight)),
            service.state()
        ),
        (None, before)
    );
    let nobody = Knob::Unit {
        unit: "berth-test-nobody.scope".into(),
        property: Property::Weight,
    };
    assert!(matches!(Live::new().read(&nobody), Err(Error::Gone { .. })));
    assert!(matches!(
        Live::new().write(&nobody, "3 runtime"),
        Err(Error::Gone { .. })
    ));
    assert!(!Path::new("/run/systemd/system.control/berth-test-nobody.scope.d").exists());
    acting_on
        .set(&wanted(
            &service,
            "300 runtime",
            "500000 runtime",
            "0 runtime",
        ))
        .unwrap();
    let knob = service.knob(Property::Weight);
    drop(service);
    let report = acting_on
        .set(&[(knob.clone(), "301 runtime".into())])
        .unwrap();
    assert_eq!(report.outcomes, [(knob, Outcome::Gone)]);
    assert!(acting_on.end().unwrap().complaints().is_empty());
}

#[test]
fn killed_at_every_system_call_it_is_put_back() {
    let _alone = alone();
    let Some(service) = Service::start("berth-test-killed") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let (before, kept) = (service.state(), service.kept());
    let properties = [Property::Weight, Property::Quota, Property::Cpus];
    let mut calls = 0;
    loop {
        let through = killed_after(calls, || {
            let done = acting(&state).and_then(|mut acting_on| {
                acting_on.set(&wanted(
                    &service,
                    "300 runtime",
                    "500000 runtime",
                    "0 runtime",
                ))?;
                acting_on.undo(&[service.knob(Property::Weight)].into())?;
                Ok(())
            });
            if done.is_err() {
                // SAFETY: as at the end of the child.
                unsafe { libc::_exit(1) }
            }
        });
        let mut ledger = Ledger::open(&state, &this_boot().unwrap()).unwrap();
        let live = Live::new();
        restore(&live, &mut ledger).unwrap();
        assert!(ledger.entries().is_empty());
        for property in properties {
            let there = live.read(&service.knob(property)).unwrap();
            assert_eq!(there, "unset", "killed at {calls}");
        }
        assert_eq!(service.kept(), kept, "killed at {calls}");
        if through {
            assert_eq!(service.state(), before);
            break;
        }
        calls += 1;
    }
    println!("killed at each of {calls} system calls");
    assert!(calls > 100, "{calls}");
}

#[test]
fn what_a_change_costs() {
    let _alone = alone();
    const UNITS: usize = 100;
    let services: Vec<Service> = (0..UNITS)
        .filter_map(|i| Service::start(&format!("berth-test-cost-{i}")))
        .collect();
    if services.is_empty() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut acting_on = acting(&folder.path().join("state")).unwrap();
    let of = |value: &str| -> Vec<(Knob, String)> {
        services
            .iter()
            .map(|s| (s.knob(Property::Weight), value.into()))
            .collect()
    };
    let timed = |what: &str, work: &mut dyn FnMut()| {
        let begun = Instant::now();
        work();
        let took: Duration = begun.elapsed();
        println!("{UNITS} units, {what}: {:.1} ms", took.as_secs_f64() * 1e3);
    };
    timed("first change", &mut || {
        assert!(
            acting_on
                .set(&of("300 runtime"))
                .unwrap()
                .complaints()
                .is_empty()
        )
    });
    timed("next change", &mut || {
        assert!(
            acting_on
                .set(&of("400 runtime"))
                .unwrap()
                .complaints()
                .is_empty()
        )
    });
    let hundred = Path::new("/sys/fs/cgroup/system.slice");
    timed("the files alone", &mut || {
        for service in &services {
            let file = hundred.join(&service.0).join("cpu.weight");
            std::fs::write(&file, "400").unwrap();
            std::fs::read_to_string(&file).unwrap();
        }
    });
    let mut acting_on = Some(acting_on);
    timed("undone", &mut || {
        drop(acting_on.take().map(|a| a.end().unwrap()))
    });
}
