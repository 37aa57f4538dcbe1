// SPDX-License-Identifier: GPL-2.0-only
//! What the events of the lab's VM cost: four small scenarios under the kernel's own scheduler, two of them under
//! policies made for this, and the cost profile that follows from them. The policies that are compared later are not
//! looked at.
use berth_results::experiment::Results;
use std::collections::BTreeMap;
use std::fmt::Write;

/// When each cost was measured for the first time, by the history of the profile.
const FIRST: &str = "\
# For the first time:
#   2026-11-21  wake_ns, tick_ns, request_ns, wake_ipi_ns, sleep_ns: before any policy was compared
#   2026-11-21  ext_wake_ns, insn_ps, then preempt_ns: after the first tables, where wake-ups under sched_ext and \
wake-ups
#               that preempt had been seen to differ
#   2026-11-22  call_ns, ext_preempt_ns: after later tables, for the same reason
#   2026-11-23  turn_ns, tick_jitter_ns, tick_skew_ns: after later tables, where wake-ups beside other busy CPUs had \
been seen
#               to take longer; costs of the others were measured beside an idle CPU or none
# Scenarios of the comparison set that are the like of what a cost was measured with are named in its set.toml.
";

/// What `ticks.bpf.c` adds to each difference, so that all are positive.
const SKEW_FROM_NS: f64 = 500_000.0;

/// A scenario that measures something.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub scenario: &'static str,
    /// Source of the policy; none: the kernel's own scheduler.
    pub policy: Option<&'static str>,
    /// Metrics read from it.
    metrics: &'static [&'static str],
}

const SLEEPER: Case = Case {
    name: "sleeper",
    scenario: include_str!("../costs/sleeper.toml"),
    policy: None,
    metrics: &[
        "sleeper.wakeup.p50",
        "sleeper.wakeup.p99",
        "sleeper.wakeup.mean",
        "sleeper.wakeup.count",
        "sleeper.cpu",
        "sleeper.work",
    ],
};
const PREEMPTED: Case = Case {
    name: "preempted",
    scenario: include_str!("../costs/preempted.toml"),
    policy: None,
    metrics: &["sleeper.wakeup.p50"],
};
const REQUEST: Case = Case {
    name: "request",
    scenario: include_str!("../costs/request.toml"),
    policy: None,
    metrics: &["web.wakeup.p50", "web.wakeup.count", "web.cpu", "web.work"],
};
const REMOTE: Case = Case {
    name: "remote",
    scenario: include_str!("../costs/remote.toml"),
    policy: None,
    metrics: &["receiver.wakeup.p50", "receiver.wakeup.p99"],
};

const NOTHING: Case = Case {
    name: "nothing",
    policy: Some(include_str!("../costs/nothing.bpf.c")),
    metrics: &["sleeper.wakeup.p50"],
    ..SLEEPER
};
const TYPICAL: Case = Case {
    name: "typical",
    policy: Some(include_str!("../costs/typical.bpf.c")),
    ..NOTHING
};

const CALLING: Case = Case {
    name: "calling",
    policy: Some(include_str!("../costs/calling.bpf.c")),
    ..NOTHING
};
const PREEMPTING: Case = Case {
    name: "preempting",
    policy: Some(include_str!("../costs/preempting.bpf.c")),
    ..PREEMPTED
};

const BESIDE: Case = Case {
    name: "beside",
    scenario: include_str!("../costs/beside.toml"),
    ..SLEEPER
};
const TICKS: Case = Case {
    name: "ticks",
    scenario: include_str!("../costs/ticks.toml"),
    policy: Some(include_str!("../costs/ticks.bpf.c")),
    metrics: &[
        "policy.ticks",
        "policy.uneven_ns",
        "policy.others",
        "policy.later_ns",
    ],
};

/// All of them, in the order in which they are run.
pub const CASES: [Case; 10] = [
    SLEEPER, PREEMPTED, REQUEST, REMOTE, BESIDE, NOTHING, TYPICAL, CALLING, PREEMPTING, TICKS,
];

impl Case {
    /// It is to be known what its policy executes in each wake-up of a sleeper.
    pub fn counts_code(&self) -> bool {
        self.policy.is_some() && self.metrics.contains(&"sleeper.wakeup.p50")
    }
}

/// BPF instructions that a policy executes per wake-up, by the simulator, and calls of kernel functions that choose a
/// CPU, kick one, or put or move a thread into a queue.
pub const INSNS: &str = "instructions per wake-up";
pub const CALLS: &str = "calls per wake-up";

/// The metrics of a simulated run that give them per switch.
pub const COUNTED: [(&str, &str); 2] = [
    (INSNS, "policy.insns_per_switch"),
    (CALLS, "policy.calls_per_switch"),
];

/// What a policy executes per wake-up, out of a simulated run of a case.
///
/// # Errors
/// It was not measured.
pub fn per_wakeup(results: &Results, metric: &str) -> Result<f64, String> {
    let missing = || format!("{metric} was not measured");
    let e = results.experiments.first().ok_or_else(missing)?;
    let arm = e.arms.first().ok_or_else(missing)?;
    let get = |metric| {
        let value = e.estimate(&arm.name, metric).ok_or_else(missing)?;
        Ok::<f64, String>(value.mean)
    };
    let seconds = e.setup.measure_ns as f64 / 1e9;
    let all = get(metric)? * get("host.switches")? * seconds;
    Ok(all / get("sleeper.wakeup.count")?.max(1.0))
}

/// What a case gave: means over seeds, by metric.
#[derive(Clone, Debug)]
pub struct Measured {
    pub case: &'static str,
    pub values: BTreeMap<String, f64>,
}

/// The figures of a case out of its results.
///
/// # Errors
/// One of them was not measured.
pub fn read(case: &Case, results: &Results) -> Result<BTreeMap<String, f64>, String> {
    let missing = |what: &str| format!("case {}: {what} was not measured", case.name);
    let e = results.experiments.first().ok_or_else(|| missing("it"))?;
    let arm = e.arms.first().ok_or_else(|| missing("it"))?;
    let mut values = BTreeMap::new();
    for metric in case.metrics {
        let value = e
            .estimate(&arm.name, metric)
            .ok_or_else(|| missing(metric))?;
        values.insert((*metric).to_string(), value.mean);
    }
    values.insert("seconds".into(), e.setup.measure_ns as f64 / 1e9);
    Ok(values)
}

/// The profile's text; `date`: of the measurement, `YYYY-MM-DD`.
pub fn profile(measured: &[Measured], kernel: &str, date: &str) -> String {
    let value = |case: &str, metric: &str| {
        let of = measured.iter().find(|m| m.case == case);
        of.and_then(|m| m.values.get(metric))
            .copied()
            .unwrap_or(0.0)
    };
    // CPU time besides work, per stay that began with a wake-up.
    let beside = |case: &str, vm: &str| {
        let get = |metric: &str| value(case, &format!("{vm}.{metric}"));
        let cpu_ns = get("cpu") * value(case, "seconds") * 1e9;
        (cpu_ns - get("work")) / get("wakeup.count").max(1.0)
    };
    let wake = value("sleeper", "sleeper.wakeup.p50");
    let request = value("request", "web.wakeup.p50") - wake;
    let preempted = value("preempted", "sleeper.wakeup.p50") - wake;
    let remote = value("remote", "receiver.wakeup.p50") - wake;
    let ext_wake = value("nothing", "sleeper.wakeup.p50");
    let code = value("typical", "sleeper.wakeup.p50") - ext_wake;
    let each = |ns: f64, count: f64| if count < 1.0 { 0.0 } else { ns / count };
    let insn_ps = each(code, value("typical", INSNS)) * 1_000.0;
    // What a case takes longer than `nothing`, its instructions left out.
    let besides = |case: &str| {
        let wake = value(case, "sleeper.wakeup.p50");
        wake - ext_wake - value(case, INSNS) * insn_ps / 1_000.0
    };
    let call = each(besides("calling"), value("calling", CALLS)).max(0.0);
    let ext_preempt = besides("preempting") - value("preempting", CALLS) * call;
    // Whoever has to wait for a turn waits for half of it in the mean.
    let turn =
        2.0 * (value("beside", "sleeper.wakeup.mean") - value("sleeper", "sleeper.wakeup.mean"));
    // Two ticks whose lateness is distributed exponentially lie its mean nearer or further apart than they should, in
    // the mean; half of them come within ln 2 of it.
    let uneven = each(
        value("ticks", "policy.uneven_ns"),
        value("ticks", "policy.ticks"),
    );
    let jitter = std::f64::consts::LN_2 * uneven;
    let skew = each(
        value("ticks", "policy.later_ns"),
        value("ticks", "policy.others"),
    ) - SKEW_FROM_NS;
    let costs = [
        (
            "ext_wake_ns",
            ext_wake,
            "the same under sched_ext, with a policy without code",
        ),
        (
            "insn_ps",
            insn_ps,
            "per BPF instruction: what callbacks made of the usual parts add to that",
        ),
        (
            "call_ns",
            call,
            "per call of a kernel function that puts a thread into a queue or moves it, besides",
        ),
        (
            "ext_preempt_ns",
            ext_preempt,
            "as preempt_ns, under sched_ext",
        ),
        (
            "wake_ns",
            wake,
            "a sleeper's timer on an idle CPU: wake-up to running, median",
        ),
        (
            "tick_ns",
            wake,
            "taken as a wake-up's, which has the same parts: interrupt, scheduler, switch",
        ),
        (
            "request_ns",
            request,
            "what a client's request takes longer than that",
        ),
        (
            "preempt_ns",
            preempted,
            "what a wake-up takes longer if it preempts a thread",
        ),
        ("wake_ipi_ns", remote, "and a wake-up from another CPU"),
        (
            "sleep_ns",
            beside("sleeper", "sleeper"),
            "CPU time of a thread besides its work, per sleep",
        ),
        (
            "turn_ns",
            turn,
            "a CPU's turn: twice what wake-ups on the second CPU take longer in the mean if the first is busy",
        ),
        (
            "tick_jitter_ns",
            jitter,
            "half of the ticks come up to so much late: ln 2 of their mean unevenness",
        ),
        (
            "tick_skew_ns",
            skew,
            "how much later ticks of the second CPU come than those of the first, in the mean",
        ),
    ];
    let mut out = String::from(
        "# SPDX-License-Identifier: GPL-2.0-only\n\
         # Costs of the lab's virtual machine, for `berth compare`: made by `berth lab --measure-costs`, under the \
         kernel's\n\
         # own scheduler and policies made for it. Nanoseconds of virtual time (2 ns per instruction).\n#\n",
    );
    let _ = writeln!(out, "# All of them were measured on {date}.");
    out.push_str(FIRST);
    out.push_str("\n[cost]\n");
    for (key, value, why) in costs {
        let _ = writeln!(out, "{key:<14} = {:<6} # {why}", value.max(0.0).round());
    }
    let _ = writeln!(out, "\n[measured]\nkernel = {kernel:?}");
    for m in measured {
        for (metric, value) in &m.values {
            if metric != "seconds" {
                let _ = writeln!(out, "\"{}: {metric}\" = {value:.4}", m.case);
            }
        }
    }
    let _ = writeln!(
        out,
        "\"request: CPU time besides work, per request\" = {:.0}.0",
        beside("request", "web")
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::profile::Profile;

    #[test]
    fn a_profile_is_what_was_measured_and_can_be_read() {
        let case = |case, list: &[(&str, f64)]| Measured {
            case,
            values: list.iter().map(|(n, v)| (n.to_string(), *v)).collect(),
        };
        let measured = [
            case(
                "sleeper",
                &[
                    ("sleeper.wakeup.p50", 10_000.0),
                    ("sleeper.wakeup.mean", 10_500.0),
                    ("sleeper.wakeup.count", 1000.0),
                    ("sleeper.cpu", 0.11),
                    ("sleeper.work", 2e8),
                    ("seconds", 2.0),
                ],
            ),
            case("preempted", &[("sleeper.wakeup.p50", 13_000.0)]),
            case("request", &[("web.wakeup.p50", 18_000.0)]),
            case("remote", &[("receiver.wakeup.p50", 9_000.0)]),
            case("beside", &[("sleeper.wakeup.mean", 18_000.0)]),
            case(
                "ticks",
                &[
                    ("policy.ticks", 500.0),
                    ("policy.uneven_ns", 3_000_000.0),
                    ("policy.others", 250.0),
                    ("policy.later_ns", 250.0 * 507_000.0),
                ],
            ),
            case("nothing", &[("sleeper.wakeup.p50", 8_000.0)]),
            case(
                "typical",
                &[("sleeper.wakeup.p50", 8_500.0), (INSNS, 100.0)],
            ),
            case(
                "calling",
                &[("sleeper.wakeup.p50", 9_300.0), (INSNS, 20.0), (CALLS, 2.0)],
            ),
            case(
                "preempting",
                &[("sleeper.wakeup.p50", 9_000.0), (INSNS, 40.0), (CALLS, 1.0)],
            ),
        ];
        let text = profile(&measured, "7.2.1", "2027-01-02");
        let p = Profile::parse(&text).unwrap();
        assert_eq!((p.cost.wake_ns, p.cost.request_ns), (10_000, 8_000));
        assert_eq!(p.cost.preempt_ns, 3_000);
        assert_eq!((p.cost.ext_wake_ns, p.cost.insn_ps), (8_000, 5_000));
        // 1.3 us more than nothing, of which 20 instructions take 0.1; 1 us more, of which 40 and a call take 0.8.
        assert_eq!((p.cost.call_ns, p.cost.ext_preempt_ns), (600, 200));
        // Never less than nothing.
        assert_eq!(p.cost.wake_ipi_ns, 0);
        // 6 us of unevenness a tick.
        assert_eq!(
            (p.cost.turn_ns, p.cost.tick_jitter_ns, p.cost.tick_skew_ns),
            (15_000, 4_159, 7_000)
        );
        // 0.11 CPUs for 2 s are 220 ms, 200 of them work; 1000 sleeps.
        assert_eq!(p.cost.sleep_ns, 20_000);
        assert!(text.contains("kernel = \"7.2.1\""));
        assert!(text.contains("measured on 2027-01-02"));
        // The head tells of every cost when it was measured.
        let (head, costs) = text.split_once("\n[cost]\n").unwrap();
        let costs = costs.split_once("\n\n").unwrap().0;
        for line in costs.lines() {
            let name = line.split(' ').next().unwrap();
            assert!(head.contains(name), "{name} is not in the head");
        }
    }
}
