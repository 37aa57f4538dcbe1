// SPDX-License-Identifier: GPL-2.0-only
//! The file itself, its runs, and what is compared, expected, calibrated and reproduced.
use super::Default::{Is, Required, Said};
use super::{Kind, key};

pub static FILE: Kind = Kind {
    label: "A scenario",
    header: "",
    help: "scenario",
    says: "What a host runs, what is compared, and what must hold.",
    keys: &[
        key(
            "title",
            "\"words\"",
            Said("the file's name"),
            "first line of every output",
        ),
        key("run", "table", Said("all defaults"), "how long, how often"),
        key("host", "table", Said("all defaults"), "the machine"),
        key(
            "vm",
            "tables [vm.NAME]",
            Said("none"),
            "groups of equal VMs",
        ),
        key(
            "task",
            "tables [task.NAME]",
            Said("none"),
            "what threads do",
        ),
        key(
            "client",
            "tables [client.NAME]",
            Said("none"),
            "who sends requests from outside",
        ),
        key(
            "arm",
            "tables [arm.NAME]",
            Said("from compare.policies"),
            "what is compared",
        ),
        key(
            "compare",
            "table",
            Said("all defaults"),
            "short form of arms, and the baseline",
        ),
        key(
            "expect",
            "tables [[expect]]",
            Said("none"),
            "bounds; a broken one is exit status 1",
        ),
        key(
            "net",
            "table",
            Said("all defaults"),
            "between clients and VMs",
        ),
        key(
            "optimiser",
            "table",
            Said("none"),
            "sets CPUs, weights and caps of VMs while they run",
        ),
        key(
            "calibrate",
            "table",
            Said("none"),
            "free parameters, fitted before anything is compared",
        ),
        key(
            "reproduces",
            "table",
            Said("none"),
            "the experiment of a paper that this is",
        ),
        key(
            "disk",
            "tables [disk.NAME]",
            Said("none"),
            "what steps read and write use",
        ),
    ],
};

pub static RUN: Kind = Kind {
    label: "A run",
    header: "[run]",
    help: "run",
    says: "How long each run takes and how many there are.",
    keys: &[
        key(
            "warmup",
            "duration",
            Is("2s"),
            "runs before anything is measured",
        ),
        key("measure", "duration", Is("10s"), "the measured window"),
        key(
            "seeds",
            "count",
            Is("10"),
            "runs of each arm, with random seeds 1, 2, ...; all arms see the same ones",
        ),
    ],
};

pub static ARM: Kind = Kind {
    label: "An arm",
    header: "[arm.NAME]",
    help: "arm",
    says: "What is compared: a policy, its parameters, and anything else that this arm changes.",
    keys: &[
        key(
            "policy",
            "name or file",
            Said("the arm's name"),
            "linux, a shipped policy, or a .bpf.c or .bpf.o file",
        ),
        key(
            "preset",
            "name",
            Said("none"),
            "a named set of parameters of the policy",
        ),
        key(
            "set",
            "table",
            Is("{}"),
            "address = value, e.g. { \"policy.slice\" = \"5ms\", \"vm.web.count\" = 4 }",
        ),
        key(
            "rodata",
            "table",
            Said("as its loader"),
            "of a .bpf.c or .bpf.o: global variables, e.g. { slice_ns = \"5ms\" }",
        ),
        key(
            "ops_flags",
            "list of flags",
            Said("as its loader"),
            "all of its flags, e.g. [\"ENQ_LAST\"]; [\"none\"]",
        ),
        key(
            "resize",
            "table",
            Said("CPUs"),
            "elements of its RESIZABLE_ARRAYs, e.g. { cpu_ctx = 8 }",
        ),
        key(
            "include",
            "list of folders",
            Said("none"),
            "headers for a .bpf.c, looked for before Berth's own",
        ),
        key(
            "headers",
            "version",
            Said("Berth's own"),
            "the scx project's headers of this version, e.g. \"1.0.14\"",
        ),
    ],
};

pub static COMPARE: Kind = Kind {
    label: "A comparison",
    header: "[compare]",
    help: "compare",
    says: "Policies to compare (short form of [arm.NAME]), and with which.",
    keys: &[
        key(
            "policies",
            "list of policies",
            Said("linux and vmfair, if there are no arms"),
            "one arm each, of that name (berth policy list)",
        ),
        key(
            "baseline",
            "arm",
            Said("linux, else the first arm"),
            "the arm that the others are compared with",
        ),
    ],
};

pub static EXPECT: Kind = Kind {
    label: "An expectation",
    header: "[[expect]]",
    help: "expect",
    says: "A bound on a metric of one arm; if it does not hold, the exit status is 1.",
    keys: &[
        key(
            "metric",
            "name",
            Required,
            "e.g. web.response.p99; see `berth scenario help metrics`",
        ),
        key("arm", "arm", Required, "whose"),
        key(
            "at_most",
            "bound",
            Said("none"),
            "\"5ms\", \"0.2 x baseline\"",
        ),
        key(
            "at_least",
            "bound",
            Said("none"),
            "\"400/s\", \"0.95 x baseline\"",
        ),
    ],
};

pub static CALIBRATE: Kind = Kind {
    label: "A calibration",
    header: "[calibrate]",
    help: "calibrate",
    says: "Free parameters, fitted on the baseline alone before any other arm runs: all else is a prediction.",
    keys: &[
        key(
            "arm",
            "arm",
            Required,
            "the baseline; never an arm under test",
        ),
        key(
            "claim",
            "name",
            Said("none"),
            "whose value is to be met, from claims.toml beside the scenario",
        ),
        key(
            "metric",
            "name",
            Said("reproduces.metric"),
            "what is measured",
        ),
        key(
            "target",
            "bound",
            Said("the claim's value"),
            "the value to be met, e.g. \"16.9ms\"",
        ),
        key(
            "search",
            "table",
            Required,
            "values to try, e.g. { \"host.cores\" = [4, 8] }, in all combinations",
        ),
    ],
};

pub static REPRODUCES: Kind = Kind {
    label: "A reproduction",
    header: "[reproduces]",
    help: "reproduces",
    says: "Which experiment of which paper this scenario is, and what the paper found.",
    keys: &[
        key("paper", "name", Required, "short name, e.g. flms"),
        key("experiment", "name", Required, "number or name in it"),
        key("metric", "name", Required, "what the paper reports"),
        key(
            "claims",
            "list of names",
            Is("[]"),
            "from claims.toml beside the scenario; * stands for any end",
        ),
    ],
};
