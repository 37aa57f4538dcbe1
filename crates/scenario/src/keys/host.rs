// SPDX-License-Identifier: GPL-2.0-only
//! The host and what its hardware takes: CPUs, costs, caches, migration, hotplug.
use super::Default::{Is, Required, Said};
use super::{Kind, key, later};

pub static HOST: Kind = Kind {
    label: "A host",
    header: "[host]",
    help: "host",
    says: "The machine that runs the VMs: packages x cores x threads CPUs, numbered in that order.",
    keys: &[
        key("packages", "count", Is("1"), "sockets in all"),
        key("cores", "count", Is("4"), "per package"),
        key("threads", "count", Is("1"), "SMT threads per core"),
        key(
            "llcs",
            "count",
            Said("1, or as the kinds of cores say"),
            "last-level caches per package",
        ),
        key(
            "nodes",
            "count",
            Said("one per package"),
            "NUMA nodes; packages are spread evenly over them",
        ),
        key(
            "hz",
            "count or \"exact\"",
            Is("250"),
            "scheduler ticks a second; exact: slices end when they are over",
        ),
        key(
            "kernel",
            "version",
            Is("\"7.2\""),
            "whose sched_ext is followed; 6.1 has none: there `linux` is CFS",
        ),
        key(
            "tasks",
            "list of tasks",
            Is("[]"),
            "threads of the host outside any VM",
        ),
        key(
            "ple_yield",
            "kvm or xen",
            Said("kvm; xen under policies on Xen's rules"),
            "of a vCPU that spins: kvm: to a sibling, or it goes on; xen: to anyone",
        ),
        key(
            "cost",
            "table or \"none\"",
            Said("all defaults"),
            "what switches and migrations cost",
        ),
        key(
            "hotplug",
            "tables [[host.hotplug]]",
            Said("none"),
            "CPUs that come and go",
        ),
        later("memory", "sizes of memory"),
        key(
            "remote_memory",
            "number, 1 to 100",
            Is("1"),
            "so many times as long a wait (task.stall) for another node's memory takes",
        ),
        key(
            "speed",
            "percent or list",
            Said("100%, or as the kinds of cores say"),
            "of the cores in order: [\"4 x 100%\", \"8 x 55%\"]",
        ),
        key(
            "kind",
            "tables [host.kind.NAME]",
            Said("none: host.speed says all"),
            "kinds of cores: how fast, and which",
        ),
        key(
            "smt_speed",
            "percent",
            Said("of the cost profile"),
            "speed of an SMT thread while its sibling is busy too",
        ),
        key(
            "pmu",
            "true or false",
            Is("false"),
            "CPUs count instructions and cycles, and policies can read them",
        ),
        key(
            "pmu_noise",
            "percent",
            Is("\"3%\""),
            "deviation of a task's instructions per cycle, drawn each 2.5 s",
        ),
        key(
            "cache",
            "table or \"none\"",
            Said("of the cost profile; \"none\" if host.cost.migrate is set"),
            "caches that grow cold, and what it takes to warm them",
        ),
    ],
};

pub static KIND: Kind = Kind {
    label: "A kind of cores",
    header: "[host.kind.NAME]",
    help: "kind",
    says: "Cores that are alike, where a host has several kinds; each core is of one. Instead of host.speed.",
    keys: &[
        key(
            "cores",
            "count, or list such as \"0-1,6-7\"",
            Required,
            "cores of this kind; a count: those left over",
        ),
        key(
            "speed",
            "percent",
            Is("\"100%\""),
            "work per time at the highest frequency, 1% to 1000%: the capacity",
        ),
        key(
            "frequency",
            "percent",
            Said("100%, or the highest of `steps`"),
            "at which the cores run, of their highest; policies are told it",
        ),
        key(
            "steps",
            "list of frequencies",
            Said("none: the cores always run at `frequency`"),
            "of which policies choose; the highest if they do not",
        ),
        key(
            "smt_speed",
            "percent",
            Said("as host.smt_speed"),
            "speed of an SMT thread while its sibling is busy too",
        ),
        key(
            "llcs",
            "count",
            Said("none of their own: one per package with all kinds that do not say"),
            "last-level caches of these cores alone, in all; instead of host.llcs",
        ),
    ],
};

pub static COST: Kind = Kind {
    label: "Costs",
    header: "[host.cost]",
    help: "cost",
    says: "Time that the machine takes for itself (simulator; a real kernel has its own). Assumed, not measured.",
    keys: &[
        key(
            "profile",
            "profile",
            Is("\"default\""),
            "costs not said here: default (assumed), lab, this-host",
        ),
        key(
            "switch",
            "duration",
            Said("of the profile; default: 1us"),
            "from one thread to another on the same CPU",
        ),
        key(
            "migrate",
            "table",
            Said("none: see host.cache"),
            "fixed costs of moving to another CPU, by distance, instead of caches",
        ),
        key(
            "wake_ipi",
            "duration",
            Said("of the profile; default: 1us"),
            "from a wake-up to the other CPU's entry into its scheduler",
        ),
        key(
            "tick",
            "duration",
            Said("of the profile; default: 1us"),
            "from a tick that ends a slice to the scheduler",
        ),
        key(
            "tick_jitter",
            "duration",
            Said("of the profile; default: 250ns"),
            "how late ticks come by chance, on each CPU for itself: the median",
        ),
        key(
            "vm_entry",
            "duration",
            Said("of the profile; default: 500ns"),
            "from the host into a guest",
        ),
        key(
            "vm_exit",
            "duration",
            Said("of the profile; default: 700ns"),
            "from a guest to the host",
        ),
    ],
};

pub static CACHE: Kind = Kind {
    label: "Caches",
    header: "[host.cache]",
    help: "cache",
    says: "What a thread has used stays in caches until others push it out, and is brought back when it runs again.",
    keys: &[
        key(
            "core",
            "size",
            Is("1MiB"),
            "of each core, all levels that are its own",
        ),
        key("llc", "size", Is("32MiB"), "of each last-level cache"),
        key(
            "from_llc",
            "bytes a second",
            Is("20GB/s"),
            "from the last-level cache into a core's",
        ),
        key(
            "from_memory",
            "bytes a second",
            Is("8GB/s"),
            "from memory, or from another last-level cache of the node",
        ),
        key(
            "from_other_node",
            "bytes a second",
            Is("4GB/s"),
            "from another NUMA node",
        ),
        key(
            "working_set",
            "size",
            Is("128KiB"),
            "of tasks that do not say their own",
        ),
    ],
};

pub static MIGRATE: Kind = Kind {
    label: "Migration",
    header: "[host.cost.migrate]",
    help: "migrate",
    says: "What a thread loses at the first run on another CPU, by how far that is.",
    keys: &[
        key("same_core", "duration", Is("0us"), "to the SMT sibling"),
        key(
            "same_llc",
            "duration",
            Said("as same_package, if that is set, else 3us"),
            "to another core below the same last-level cache",
        ),
        key(
            "same_package",
            "duration",
            Said("as same_node"),
            "to another last-level cache of the same package",
        ),
        key(
            "same_node",
            "duration",
            Is("20us"),
            "to another package of the same NUMA node",
        ),
        key("other_node", "duration", Is("50us"), "to another NUMA node"),
    ],
};

pub static HOTPLUG: Kind = Kind {
    label: "A hotplug event",
    header: "[[host.hotplug]]",
    help: "hotplug",
    says: "A CPU leaves or comes back.",
    keys: &[
        key(
            "at",
            "duration",
            Required,
            "after the start of the run, warm-up included",
        ),
        key("cpu", "CPU number", Required, "which"),
        key("online", "true or false", Required, "false: it leaves"),
    ],
};
