// SPDX-License-Identifier: GPL-2.0-only
//! The filter of samples (D3, D4), step by step: what a vCPU did in a window is written here.
use super::support::{Cast, Peek};
use super::{MS, ROUND, machine};
use berth_sim::Simulation;
use berth_sim::workload::api::Action;

/// A window.
const WINDOW: u64 = ROUND;

/// What the policy has in its memory.
fn look<T>(m: &mut Simulation<Cast>, at: impl FnOnce(&Peek) -> T) -> T {
    let k = m.kernel();
    at(&Peek(k.policy.instance().unwrap()))
}

/// A vCPU that sleeps, beside a busy one, windows of 30 ms in intervals of 60.
fn sleeper(set: &[(&str, &str)]) -> (Simulation<Cast>, u32) {
    let mut cast = Cast::default();
    let sleep = Action::SleepUntil { at: 1_000_000 * MS };
    cast.vcpu(0, 0, 0, &[Action::Compute { ns: 1000 }, sleep]);
    cast.vcpu(0, 1, 0, &[Action::ComputeForever]);
    let mut all = vec![
        ("interval_ms", "60"),
        ("window_ms", "30"),
        ("efficiency", "literal"),
    ];
    all.extend(set);
    let mut m = machine(1, 1, &[2], cast, &all);
    m.run_until(25 * MS).unwrap();
    let index = look(&mut m, |peek| {
        let sleeps = |i: &u32| peek.vcpu(*i, "slot") == 1 && peek.vcpu(*i, "active") == 0;
        (1..peek.var("vcpus_used") as u32).find(sleeps).unwrap()
    });
    (m, index)
}

/// The next window begins, has this written in it, and is over.
fn window(m: &mut Simulation<Cast>, write: impl Fn(&Peek)) {
    let before = look(m, |peek| peek.var("window_at"));
    let begun = |peek: &Peek| {
        let new = peek.var("window_at") > before && peek.var("window_closed") == 0;
        if new {
            write(peek);
        }
        new
    };
    while !look(m, begun) {
        let next = m.kernel().now + ROUND;
        m.run_until(next).unwrap();
    }
    let end = m.kernel().now + ROUND;
    m.run_until(end).unwrap();
}

/// The first element of an array of u64 in a vCPU.
fn set_first(peek: &Peek, index: u32, field: &str, value: u64) {
    let map = peek.0.map("vcpus").unwrap();
    let offset = map
        .def()
        .fields
        .iter()
        .find(|f| f.name == field)
        .unwrap()
        .offset as usize;
    let mut bytes = map.lookup(&index.to_ne_bytes()).unwrap();
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    map.update(&index.to_ne_bytes(), &bytes, 0).unwrap();
}

/// Samples, and (level, rejected) after each. 0: no sample.
const STEPS: [(u64, u64, u64); 11] = [
    (1000, 1000, 0),
    (1150, 1150, 0),
    (1400, 1150, 1400),
    (1150, 1150, 0),
    (1400, 1150, 1400),
    (0, 1150, 1400),
    (1450, 1450, 0),
    (900, 1450, 900),
    (2000, 1450, 2000),
    (1700, 1700, 0),
    (1700, 1700, 0),
];

/// D3: a sample of IPC within 15 % counts; one further off waits for a second like it.
#[test]
fn a_sudden_change_of_ipc_counts_when_it_is_seen_twice() {
    let (mut m, index) = sleeper(&[]);
    for (sample, level, rejected) in STEPS {
        window(&mut m, |peek| {
            peek.set("vcpus", index, "ran", 20 * MS);
            set_first(peek, index, "instructions", sample * 1000);
            set_first(
                peek,
                index,
                "cycles",
                if sample > 0 { 1_000_000 } else { 0 },
            );
        });
        // Parts per million.
        let got = look(&mut m, |peek| {
            ["level", "rejected"].map(|name| peek.vcpu(index, name))
        });
        assert_eq!(got, [level * 1000, rejected * 1000], "after {sample}");
    }
}

/// D4: utilisation is what it was in the window, or goes through the filter as well. Who was not active has score 0,
/// and is no sample.
#[test]
fn a_sudden_change_of_utilisation_counts_at_once_or_when_it_is_seen_twice() {
    for both in [false, true] {
        let set = ("filter_of", if both { "both" } else { "ipc" });
        // 1000 is three tenths of the window.
        let (mut m, index) = sleeper(&[set, ("score_by", "utilisation"), ("active_ms", "1")]);
        for (sample, level, rejected) in STEPS {
            let ran = sample * WINDOW * 3 / 10_000;
            window(&mut m, |peek| peek.set("vcpus", index, "ran", ran));
            let ppm = |level: u64| level * 300;
            let counts = match (sample, both) {
                (0, _) => 0,
                (_, true) => ppm(level),
                (_, false) => ppm(sample),
            };
            let names = ["score_next", "use_level", "use_rejected"];
            let got = look(&mut m, |peek| names.map(|name| peek.vcpu(index, name)));
            let [level, rejected] = if both { [level, rejected] } else { [0, 0] };
            assert_eq!(
                got,
                [counts, ppm(level), ppm(rejected)],
                "{both}: after {sample}"
            );
        }
    }
}
