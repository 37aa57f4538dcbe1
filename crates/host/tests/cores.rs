// SPDX-License-Identifier: GPL-2.0-only
//! Kinds of cores on hosts that were written down (`fixtures/cores`).
use berth_host::cores::{CoreKind, Source};
use berth_host::doctor::{State, examine};
use berth_host::explain;
use berth_host::fixture::Fixture;
use berth_host::machine::Machine;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_host::time::Played;
use berth_host::view;
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
const HOSTS: [(&str, Source, &[Kind]); 22] = {
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
        // 1024 x 39 / 67, up: without the devices CPPC tells them apart, favoured cores among the others.
        (
            "intel-1370p",
            Cppc,
            &[
                ("fast", 12, 0, 6, Some(1024)),
                ("slow", 8, 12, 8, Some(597)),
            ],
        ),
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
        (
            "arm-snapdragon-8-gen-2",
            CpuCapacity,
            &[
                ("fast", 1, 7, 1, Some(1024)),
                ("middle", 4, 3, 4, Some(855)),
                ("slow", 3, 0, 3, Some(280)),
            ],
        ),
        // By turns; five capacities, but one gap.
        (
            "arm-gb10",
            CpuCapacity,
            &[
                ("fast", 10, 5, 10, Some(1024)),
                ("slow", 10, 0, 10, Some(731)),
            ],
        ),
        ("arm-server", CpuCapacity, &[]),
        ("xeon-two-sockets", Frequency, &[]),
        ("xeon-cpus-off", Frequency, &[]),
        ("vm-sparse-ids", Frequency, &[]),
        ("vm-vmware", Frequency, &[]),
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
        found("intel-1370p").1,
        "fast: CPUs 0-11 (6 cores), slow: CPUs 12-19 at 58 %, by CPPC"
    );
    assert_eq!(
        found("arm-gb10").1,
        "fast: CPUs 5-9,15-19, slow: CPUs 0-4,10-14 at 71 %, by cpu_capacity"
    );
    assert_eq!(
        found("hostile").1,
        "P: CPUs 0-5, E: CPUs 6-7, by the devices of performance counters"
    );
    assert_eq!(found("xeon-two-sockets"), (State::Ok, "one".into()));
}

/// Speeds that fall by less than a tenth from core to core are one kind, however far they fall in all.
#[test]
fn doctor_says_that_cores_of_one_kind_differ_much() {
    let found = |text: &str| {
        with(text, |root| {
            let checks = examine(root, &Snapshot::default(), &|_| None);
            let check = checks
                .into_iter()
                .find(|c| c.name == "kinds of cores")
                .unwrap();
            (check.state, check.found, check.advice.unwrap_or_default())
        })
    };
    let speeds = |file: &str, speeds: &[u32]| {
        let line = |(cpu, speed): (usize, &u32)| format!("cpus {cpu} {file} {speed}\n");
        let online = format!(
            "file sys/devices/system/cpu/online 0-{}\n",
            speeds.len() - 1
        );
        online + &speeds.iter().enumerate().map(line).collect::<String>()
    };
    let (state, said, advice) = found(&speeds(
        "cpu_capacity",
        &[1024, 940, 870, 800, 735, 680, 625, 570],
    ));
    assert_eq!(state, State::Note);
    assert_eq!(
        said,
        "one, though the slowest CPU (7) has 56 % of the fastest (0), by cpu_capacity"
    );
    assert!(advice.contains("take them for alike"), "{advice}");
    // By the measure that shows it.
    let by_clock = speeds("cpu_capacity", &[1024; 3])
        + &speeds(
            "cpufreq/cpuinfo_max_freq",
            &[3_300_000, 3_000_000, 2_800_000],
        );
    assert_eq!(
        found(&by_clock).1,
        "one, though the slowest CPU (2) has 85 % of the fastest (0), by highest frequency"
    );
    // Ranks of favoured cores that all reach the same frequency say nothing.
    assert_eq!(found(&host("amd-preferred-cores")).1, "one");
    // Favoured cores within a tenth, or one of which nothing is known: nothing to say.
    let one = (State::Ok, "one".to_string(), String::new());
    assert_eq!(found(&speeds("cpu_capacity", &[1000, 950, 900])), one);
    let partly = speeds("cpu_capacity", &[1000, 920, 860, 0]);
    assert_eq!(found(&partly), one);
}

/// A VM of two vCPUs that have run so many ms, on these CPUs.
fn vm(ran_ms: [u64; 2], on: [u32; 2]) -> String {
    let vcpu = |i: usize| {
        format!(
            "thread 1{i} \"CPU {i}/KVM\" start=1{i} run=2{i} cpu={} sched={},0,1\nfd 2{i} anon_inode:kvm-vcpu:{i}\n",
            on[i],
            ran_ms[i] * 1_000_000
        )
    };
    let process = "process 5 lkvm\nargs lkvm run --name v\nfd 3 anon_inode:kvm-vm\n";
    format!("{process}{}{}", vcpu(0), vcpu(1))
}

/// What `berth ls --json` and `berth explain --json` say of a VM whose first vCPU runs all the time on `fast`, the
/// second for a third of it on `slow`.
fn seen(name: &str, fast: u32, slow: u32) -> (Value, Value) {
    let folder = tempfile::tempdir().unwrap();
    let at = move |ms: u64| vm([ms, ms / 3], [fast, slow]);
    let first = Fixture::parse(&(host(name) + &at(0))).unwrap();
    first.unpack(folder.path()).unwrap();
    let running = folder.path().to_path_buf();
    let time = Played::new(move |passed: Duration| {
        let mut now = Fixture::parse(&at(passed.as_millis() as u64)).unwrap();
        now.links.clear();
        now.unpack(&running).unwrap();
    });
    let root = Root::at(folder.path()).with_time(Arc::new(time));
    let view = view::look(&root, Duration::from_secs(2)).unwrap();
    let explained = explain::explain(&root, &view, &view.vms[0]);
    (
        serde_json::to_value(&view).unwrap(),
        serde_json::to_value(&explained).unwrap(),
    )
}

#[test]
fn ls_and_explain_say_on_which_kind_a_vm_runs_and_for_how_much_of_its_time() {
    let hosts = [
        ("intel-alder-lake", 3, 17, ["P", "E"]),
        ("intel-1370p", 4, 19, ["fast", "slow"]),
        ("arm-rk3588", 6, 1, ["fast", "slow"]),
        ("arm-gb10", 19, 12, ["fast", "slow"]),
    ];
    for (name, fast, slow, kinds) in hosts {
        let (listed, explained) = seen(name, fast, slow);
        let machine = listed["machine"]["kinds"].as_array().unwrap();
        let names: Vec<&str> = machine
            .iter()
            .map(|k| k["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, kinds, "{name}");
        for vm in [&listed["vms"][0], &explained["vm"]] {
            let shares = vm["kinds"]
                .as_array()
                .unwrap_or_else(|| panic!("{name}: {vm}"));
            for ((share, kind), expected) in shares.iter().zip(kinds).zip([0.75, 0.25]) {
                assert_eq!(share["kind"], kind, "{name}");
                let share = share["share"].as_f64().unwrap();
                assert!((share - expected).abs() < 0.01, "{name}: {kind} {share}");
            }
        }
    }
    // All are alike: nothing is said.
    let (listed, _) = seen("xeon-two-sockets", 0, 1);
    assert_eq!(listed["machine"]["kinds"], Value::Array(Vec::new()));
    assert_eq!(listed["vms"][0]["kinds"], Value::Null);
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
