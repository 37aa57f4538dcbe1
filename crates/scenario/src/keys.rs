// SPDX-License-Identifier: GPL-2.0-only
//! Every table and key of a scenario: what it takes, its default, what it means.
//!
//! One list serves reading (unknown keys, defaults), `berth scenario help`, `show --full` and the reference.

/// What a key has when the file does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// This text, read as if it stood in the file.
    Is(&'static str),
    /// Nothing, or something that depends on other keys; said in words.
    Said(&'static str),
    /// It must be in the file.
    Required,
    /// Part of the grammar that this release cannot run: refused, with these words for the feature.
    Later(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    /// What a value looks like.
    pub takes: &'static str,
    pub default: Default,
    pub says: &'static str,
}

/// A kind of table.
#[derive(Debug)]
pub struct Kind {
    /// `A VM`: subject of "... may have: ...".
    pub label: &'static str,
    /// How its header is written.
    pub header: &'static str,
    /// Word for `berth scenario help WORD`.
    pub help: &'static str,
    pub says: &'static str,
    pub keys: &'static [Key],
}

impl Kind {
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|k| k.name == name)
    }

    /// Keys that this release has.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys
            .iter()
            .filter(|k| !matches!(k.default, Default::Later(_)))
            .map(|k| k.name)
    }
}

const fn key(name: &'static str, takes: &'static str, default: Default, says: &'static str) -> Key {
    Key {
        name,
        takes,
        default,
        says,
    }
}

const fn later(name: &'static str, feature: &'static str) -> Key {
    Key {
        name,
        takes: "",
        default: Default::Later(feature),
        says: "",
    }
}

use self::Default::{Is, Required, Said};

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
        later("disk", "disks"),
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

pub static HOST: Kind = Kind {
    label: "A host",
    header: "[host]",
    help: "host",
    says: "The machine that runs the VMs: packages x cores x threads CPUs, numbered in that order.",
    keys: &[
        key("packages", "count", Is("1"), "sockets in all"),
        key("cores", "count", Is("4"), "per package"),
        key("threads", "count", Is("1"), "SMT threads per core"),
        key("llcs", "count", Is("1"), "last-level caches per package"),
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
            "kernel whose sched_ext the simulator follows",
        ),
        key(
            "tasks",
            "list of tasks",
            Is("[]"),
            "threads of the host outside any VM",
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
        later("memory", "memory and its placement"),
        key(
            "speed",
            "percent or list",
            Is("\"100%\""),
            "of the cores in order: [\"4 x 100%\", \"8 x 55%\"]",
        ),
        key(
            "smt_speed",
            "percent",
            Said("of the cost profile"),
            "speed of an SMT thread while its sibling is busy too",
        ),
        key(
            "cache",
            "table or \"none\"",
            Said("of the cost profile; \"none\" if host.cost.migrate is set"),
            "caches that grow cold, and what it takes to warm them",
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

pub static VM: Kind = Kind {
    label: "A VM",
    header: "[vm.NAME]",
    help: "vm",
    says: "`count` equal VMs, called NAME, or NAME-1, NAME-2, ... if there are several.",
    keys: &[
        key(
            "count",
            "count",
            Is("1"),
            "how many; 0 leaves the group out",
        ),
        key("vcpus", "count", Is("1"), "virtual CPUs of each"),
        key(
            "class",
            "latency, batch or mixed",
            Is("batch"),
            "what it needs: prompt answers, throughput, or both",
        ),
        key(
            "reserved_vcpus",
            "count",
            Said("0"),
            "class mixed: the first vCPUs, kept for I/O",
        ),
        key(
            "weight",
            "1 to 10000",
            Is("100"),
            "share of the whole VM, as cgroup cpu.weight",
        ),
        key(
            "cap",
            "amount of CPUs",
            Said("no cap"),
            "never more than this, e.g. \"1.5 CPUs\"",
        ),
        key(
            "affinity",
            "list of CPUs",
            Said("all CPUs"),
            "host CPUs it may use, e.g. [0, 1] or \"0-3,8\"",
        ),
        key("nice", "-20 to 19", Is("0"), "nice value of its threads"),
        key(
            "slice",
            "duration",
            Said("the kernel's"),
            "slice asked of the kernel's own scheduler",
        ),
        key(
            "cgroup",
            "name",
            Said("one of its own"),
            "cgroup that all VMs share which name it",
        ),
        key("tasks", "list of tasks", Is("[]"), "what runs in it"),
        key(
            "start",
            "duration",
            Is("0s"),
            "when it starts, after the start of the run",
        ),
        key("stop", "duration", Said("it stays"), "when it stops"),
        key(
            "role",
            "guest or driver",
            Is("guest"),
            "driver: the driver domain, see net.path",
        ),
        key(
            "turbo_vcpus",
            "count",
            Is("0"),
            "extra vCPUs that only take interrupts",
        ),
        key(
            "guest",
            "policy or table",
            Said("linux, all defaults"),
            "the machine inside; \"none\": its tasks are folded onto vCPU threads",
        ),
        later("memory", "memory and its placement"),
        later("net", "network cards of single VMs"),
        later("disk", "disks"),
    ],
};

pub static GUEST: Kind = Kind {
    label: "A guest",
    header: "[vm.NAME.guest]",
    help: "guest",
    says: "The machine that a VM is for its tasks: its vCPUs are the CPUs of a kernel with a scheduler of its own.",
    keys: &[
        key(
            "policy",
            "name or file",
            Is("linux"),
            "linux, a policy, or none: no scheduler inside",
        ),
        key("preset", "name", Said("none"), "a named set of parameters"),
        key("set", "table", Is("{}"), "parameters of the policy"),
        key(
            "hz",
            "count or \"exact\"",
            Is("250"),
            "scheduler ticks a second",
        ),
        key(
            "ple",
            "true or false",
            Is("true"),
            "pause-loop exits: the host hears of vCPUs that spin",
        ),
        key(
            "ple_window",
            "duration",
            Is("2us"),
            "how long a vCPU may spin before it exits",
        ),
        key(
            "halt_poll",
            "duration",
            Is("0us"),
            "how long an idle vCPU polls before it halts",
        ),
    ],
};

pub static NET: Kind = Kind {
    label: "A network",
    header: "[net]",
    help: "net",
    says: "How requests come from clients to tasks, and answers back.",
    keys: &[
        key(
            "path",
            "a path",
            Is(crate::support::DEFAULT_NET_PATH),
            "none (a request is an interrupt), vhost, emulator, direct, driver-domain",
        ),
        key("link", "bandwidth", Is("10Gbit/s"), "of the link, each way"),
        key("latency", "duration", Is("25us"), "of the link, one way"),
        key(
            "coalesce",
            "duration",
            Is("0us"),
            "how long the card holds an interrupt back for more packets",
        ),
        key(
            "irq",
            "duration",
            Is("1us"),
            "of an interrupt, on the CPU that takes it",
        ),
        key(
            "per_packet_host",
            "duration",
            Is("1us"),
            "work of the host's side of the path",
        ),
        key(
            "per_packet_guest",
            "duration",
            Is("1us"),
            "work of the guest",
        ),
        key("mtu", "size", Is("1500B"), "of a packet"),
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

pub static TASK: Kind = Kind {
    label: "A task",
    header: "[task.NAME]",
    help: "task",
    says: "What one thread does, over and over: a list of steps, or a named model.",
    keys: &[
        key(
            "threads",
            "count",
            Said("one per vCPU"),
            "threads in each VM that runs it",
        ),
        key(
            "loop",
            "list of steps",
            Said("from the model"),
            "see `berth scenario help steps`",
        ),
        key(
            "model",
            "see `berth scenario help models`",
            Said("none"),
            "instead of a loop",
        ),
        key(
            "load",
            "percent",
            Said("of model lookbusy: 50%"),
            "model lookbusy: busy part of every period",
        ),
        key(
            "period",
            "duration",
            Said("of models lookbusy, periodic: 100ms"),
            "models lookbusy, periodic",
        ),
        key(
            "compute",
            "duration or distribution",
            Said("of the model"),
            "models periodic, batch, echo, web, stream, parallel",
        ),
        key(
            "sleep",
            "duration or distribution",
            Said("of model batch: 10ms"),
            "model batch: pause between two computations",
        ),
        key(
            "chunks",
            "count",
            Said("of model parallel: 64"),
            "model parallel: pieces of work of a round",
        ),
        key(
            "from",
            "client",
            Said("the one client of its VMs"),
            "models echo, web, stream: whose requests it answers",
        ),
        key(
            "first",
            "list of steps",
            Is("[]"),
            "steps before the loop, done once",
        ),
        key(
            "working_set",
            "size",
            Said("the host's default"),
            "what it works on over and over, and a migration must bring along",
        ),
        key(
            "nice",
            "-20 to 19",
            Is("0"),
            "nice value of its threads, beside the VM's",
        ),
        key(
            "affinity",
            "list of CPUs",
            Said("the VM's"),
            "host CPUs its threads may use",
        ),
        later("memory", "memory and its placement"),
    ],
};

pub static CLIENT: Kind = Kind {
    label: "A client",
    header: "[client.NAME]",
    help: "client",
    says: "Sends requests from outside the host; a task takes them with `receive NAME`.",
    keys: &[
        key(
            "to",
            "VM group",
            Required,
            "each VM of the group gets its own stream",
        ),
        key(
            "sends",
            "see `berth scenario help sends`",
            Required,
            "when requests come",
        ),
        key("request", "size", Is("1KiB"), "of a request"),
        key("reply", "size", Is("1KiB"), "of an answer"),
        later("net", "a model of network cards and vhost threads"),
        later("disk", "disks"),
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
            "one arm each, of that name",
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

/// All kinds of tables, in the order a file has them.
pub static KINDS: [&Kind; 17] = [
    &FILE,
    &RUN,
    &HOST,
    &COST,
    &MIGRATE,
    &CACHE,
    &HOTPLUG,
    &VM,
    &GUEST,
    &TASK,
    &CLIENT,
    &NET,
    &ARM,
    &COMPARE,
    &EXPECT,
    &CALIBRATE,
    &REPRODUCES,
];
