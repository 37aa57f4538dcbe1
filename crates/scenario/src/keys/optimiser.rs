// SPDX-License-Identifier: GPL-2.0-only
//! The optimiser that watches the host and sets CPUs, weights and caps of VMs while they run, or freezes them by turns.
use super::Default::{Is, Said};
use super::{Kind, key};

pub static OPTIMISER: Kind = Kind {
    label: "An optimiser",
    header: "[optimiser]",
    help: "optimiser",
    says: "Watches run time and run delay of VMs and sets their CPUs, weights and caps, under any policy of the host.",
    keys: &[
        key(
            "on",
            "true or false",
            Is("true"),
            "false: as without this table (for arms)",
        ),
        key(
            "by",
            "list of sets, weights, caps, freezing",
            Is("[\"sets\", \"weights\", \"caps\"]"),
            "what it may set; the last: VMs run by turns",
        ),
        key(
            "spread",
            "cpus or pool",
            Is("\"cpus\""),
            "in want, VMs are packed onto CPUs by their shares, or left on one pool",
        ),
        key(
            "period",
            "duration",
            Is("1s"),
            "from one look at the host to the next",
        ),
        key(
            "decide",
            "duration",
            Is("2s"),
            "longest time between two decisions",
        ),
        key(
            "gap",
            "duration",
            Is("2s"),
            "shortest time between two changes of one VM",
        ),
        key(
            "smoothing",
            "percent",
            Is("\"30%\""),
            "weight of the newest sample in the average of demand",
        ),
        key(
            "step",
            "percent",
            Is("\"20%\""),
            "a change of demand by more is followed at once",
        ),
        key(
            "reserve",
            "percent",
            Is("\"5%\""),
            "part of the host that is not planned for VMs",
        ),
        key(
            "host_weight",
            "count",
            Is("100"),
            "weight of the host's own threads beyond the reserve",
        ),
        key(
            "hysteresis",
            "percent",
            Is("\"5%\""),
            "weights and caps are not changed for less",
        ),
        key(
            "imbalance",
            "percent",
            Is("\"10%\""),
            "of the mean load of CPUs, for which no VM moves",
        ),
        key(
            "dedicate_from",
            "percent",
            Is("\"50%\""),
            "demand, of the CPUs that a target then has to itself",
        ),
        key(
            "dedicate_until",
            "percent",
            Is("\"20%\""),
            "demand, of its own CPUs, below which it loses them",
        ),
        key(
            "vm",
            "tables [optimiser.vm.NAME]",
            Said("none: all are normal"),
            "what groups of VMs were promised",
        ),
    ],
};

pub static PROMISE: Kind = Kind {
    label: "A promise",
    header: "[optimiser.vm.NAME]",
    help: "promise",
    says: "What each VM of the group [vm.NAME] was promised.",
    keys: &[
        key(
            "service",
            "target, normal or best-effort",
            Is("\"normal\""),
            "a target may have CPUs to itself; best effort is placed last",
        ),
        key(
            "guarantee",
            "amount of CPUs",
            Is("\"0 CPUs\""),
            "what it gets whenever it wants it",
        ),
        key(
            "limit",
            "amount of CPUs",
            Said("none"),
            "what it gets at most",
        ),
        key(
            "weight",
            "count",
            Said("the VM's"),
            "its part of what is left, 1 to 10000",
        ),
    ],
};
