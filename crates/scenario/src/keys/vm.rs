// SPDX-License-Identifier: GPL-2.0-only
//! VMs, their guests, their network.
use super::Default::{Is, Said};
use super::{Kind, key, later};

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
            "latency, batch, mixed or none",
            Is("batch"),
            "what it needs: prompt answers, throughput, both; none: not said",
        ),
        key(
            "reserved_vcpus",
            "count",
            Said("0"),
            "class mixed: so many of the last vCPUs are kept for I/O",
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
        key(
            "backend_affinity",
            "list of CPUs",
            Said("as affinity"),
            "host CPUs of the threads that move its packets and blocks",
        ),
        key(
            "coverage",
            "percent",
            Said("all"),
            "threads that affinity holds: who moves packets first, then vCPUs",
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
            "cgroup that all who name it share; without guests their locks, too",
        ),
        key(
            "score",
            "percentage, or a list of COUNT x PERCENT",
            Said("measured"),
            "what policies are told: so fast on a fast core, of a slow one",
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
            "extra vCPUs, on which only tasks run that take requests",
        ),
        key(
            "guest_agent",
            "true or false",
            Is("false"),
            "class mixed: light tasks of users move to the reserved vCPUs, and back",
        ),
        key(
            "guest",
            "policy or table",
            Said("linux, all defaults"),
            "the machine inside; \"none\": its tasks are folded onto vCPU threads",
        ),
        key(
            "memory",
            "node, or list of percents",
            Said("not said: wherever it runs"),
            "on which nodes its memory is, e.g. 1, or [\"70%\", \"30%\"]",
        ),
        later("net", "network cards of single VMs"),
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
            "hrtick",
            "true or false",
            Is("false"),
            "linux also ends slices by a timer, as from 7.2 on",
        ),
        key(
            "steal_accounting",
            "true or false",
            Is("true"),
            "time without a physical CPU is charged to no task",
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
        key(
            "irq_cpus",
            "list of CPUs",
            Said("CPU n for VM n"),
            "host CPUs that take the card's interrupts, VMs dealt over them",
        ),
        key(
            "stages",
            "table [net.stages]",
            Said("none: the three costs above"),
            "what a packet costs stage by stage, and where",
        ),
    ],
};
