// SPDX-License-Identifier: GPL-2.0-only
//! Kinds of cores on hosts that were written down (`fixtures/cores`).
use berth_host::cores::{CoreKind, Source};
use berth_host::doctor::{State, examine};
use berth_host::fixture::Fixture;
use berth_host::machine::Machine;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use proptest::prelude::*;
use std::path::Path;

fn with<T>(text: &str, what: impl FnOnce(&Root) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    Fixture::parse(text).unwrap().unpack(folder.path()).unwrap();
    what(&Root::at(folder.path()))
}

fn host(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cores");
    std::fs::read_to_string(folder.join(format!("{name}.host"))).unwrap()
}

/// Name, number of CPUs, first CPU, cores, capacity.
type Kind = (&'static str, usize, u32, u32, Option<u32>);

/// What is found on each host. Frequencies: 1024 x 3.9 / 5.2 and so on.
const HOSTS: [(&str, Source, &[Kind]); 17] = {
    use Source::*;
    [
        (
            "intel-alder-lake",
            Counters,
            &[("P", 16, 0, 8, Some(1024)), ("E", 8, 16, 8, Some(768))],
        ),
        // 1024 x 43 / 74, up: CPPC says how fast, not how often a second.
        (
            "intel-raptor-lake",
            Counters,
            &[("P", 16, 0, 8, Some(1024)), ("E", 16, 16, 16, Some(596))],
        ),
        (
            "intel-meteor-lake",
            Counters,
            &[
                ("P", 12, 0, 6, Some(1024)),
                ("E", 8, 12, 8, Some(811)),
                ("LP-E", 2, 20, 2, Some(534)),
            ],
        ),
        (
            "intel-arrow-lake-h",
            Counters,
            &[
                ("P", 6, 0, 6, Some(1024)),
                ("E", 8, 6, 8, Some(884)),
                ("LP-E", 2, 14, 2, Some(502)),
            ],
        ),
        (
            "intel-lunar-lake",
            Counters,
            &[("P", 4, 0, 4, Some(1024)), ("E", 4, 4, 4, Some(676))],
        ),
        ("intel-efficient-cores-off", Counters, &[]),
        (
            "amd-dense-and-classic",
            Frequency,
            &[("fast", 4, 0, 2, Some(1024)), ("slow", 8, 2, 4, Some(732))],
        ),
        (
            "amd-strix-point",
            Frequency,
            &[("fast", 8, 0, 4, Some(1024)), ("slow", 16, 4, 8, Some(656))],
        ),
        ("amd-preferred-cores", Cppc, &[]),
        ("amd-epyc-dense", Cppc, &[]),
        (
            "arm-rk3588",
            CpuCapacity,
            &[("fast", 4, 4, 4, Some(1024)), ("slow", 4, 0, 4, Some(530))],
        ),
        (
            "arm-three-kinds",
            CpuCapacity,
            &[
                ("fast", 2, 6, 2, Some(1024)),
                ("middle", 2, 4, 2, Some(498)),
                ("slow", 4, 0, 4, Some(161)),
            ],
        ),
        (
            "arm-apple-m1",
            CpuCapacity,
            &[("fast", 4, 4, 4, Some(1024)), ("slow", 4, 0, 4, Some(459))],
        ),
        ("arm-server", CpuCapacity, &[]),
        ("xeon-two-sockets", Frequency, &[]),
        ("vm-sparse-ids", Frequency, &[]),
        // A CPU of two devices is the first one's; nothing that can be believed says how fast they are.
        (
            "hostile",
            Counters,
            &[("P", 6, 0, 6, None), ("E", 2, 6, 2, None)],
        ),
    ]
};

#[test]
fn kinds_are_found_on_hosts_that_were_written_down() {
    for (name, source, expected) in HOSTS {
        let machine = with(&host(name), Machine::read);
        assert!(!machine.cpus.is_empty(), "{name}");
        let found: Vec<_> = machine
            .kinds
            .iter()
            .map(|k| {
                (
                    k.name.as_str(),
                    k.cpus.len(),
                    k.cpus[0],
                    k.cores,
                    k.capacity,
                )
            })
            .collect();
        assert_eq!(found, expected, "{name}");
        assert!(machine.kinds.iter().all(|k| k.source == source), "{name}");
    }
}

#[test]
fn every_host_is_in_the_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cores");
    let files = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(files, HOSTS.len());
}

#[test]
fn doctor_names_them() {
    let found = |name: &str| {
        with(&host(name), |root| {
            let checks = examine(root, &Snapshot::default(), &|_| None);
            let check = checks
                .into_iter()
                .find(|c| c.name == "kinds of cores")
                .unwrap();
            (check.state, check.found)
        })
    };
    assert_eq!(
        found("intel-meteor-lake"),
        (
            State::Note,
            "P: CPUs 0-11 (6 cores), E: CPUs 12-19 at 79 %, LP-E: CPUs 20-21 at 52 %, by the devices of performance \
             counters"
                .into()
        )
    );
    assert_eq!(
        found("arm-rk3588").1,
        "fast: CPUs 4-7, slow: CPUs 0-3 at 52 %, by cpu_capacity"
    );
    assert_eq!(
        found("hostile").1,
        "P: CPUs 0-5, E: CPUs 6-7, by the devices of performance counters"
    );
    assert_eq!(found("xeon-two-sockets"), (State::Ok, "one".into()));
}

fn damaged() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        "[0-9]{1,5}",
        Just(String::new()),
        Just("-1".into()),
        Just("18446744073709551616".into()),
        "[0-9,-]{0,9}",
    ];
    let file = prop::sample::select(vec![
        "cpu_capacity",
        "acpi_cppc/highest_perf",
        "cpufreq/cpuinfo_max_freq",
        "topology/thread_siblings_list",
    ]);
    let device = prop::sample::select(vec!["cpu_core", "cpu_atom", "cpu_lowpower"]);
    let line = prop_oneof![
        (0u32..12, file, number.clone())
            .prop_map(|(cpu, file, n)| format!("cpus {cpu} {file} \"{n}\"")),
        (device, number).prop_map(|(device, n)| format!("file sys/devices/{device}/cpus \"{n}\"")),
    ];
    prop::collection::vec(line, 0..40).prop_map(|lines| {
        format!(
            "file sys/devices/system/cpu/online 0-7\n{}\n",
            lines.join("\n")
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the files say: each CPU is of one kind at most, all of them online, the fastest kind first.
    #[test]
    fn whatever_files_say_kinds_are_sound(text in damaged()) {
        let kinds: Vec<CoreKind> = with(&text, Machine::read).kinds;
        prop_assert_ne!(kinds.len(), 1);
        let mut seen: Vec<u32> = kinds.iter().flat_map(|k| k.cpus.clone()).collect();
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen.len(), all);
        prop_assert!(seen.iter().all(|cpu| *cpu < 8));
        for kind in &kinds {
            prop_assert!(!kind.cpus.is_empty() && kind.cores >= 1 && kind.cores as usize <= kind.cpus.len());
            prop_assert!(kind.capacity.is_none_or(|c| (1..=1024).contains(&c)));
        }
        let capacities: Vec<_> = kinds.iter().map(|k| k.capacity).collect();
        prop_assert!(capacities.is_sorted_by(|a, b| a >= b), "{:?}", capacities);
        prop_assert_eq!(kinds.first().and_then(|k| k.capacity).unwrap_or(1024), 1024);
    }
}
