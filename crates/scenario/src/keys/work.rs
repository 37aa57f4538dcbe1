// SPDX-License-Identifier: GPL-2.0-only
//! What runs, and what asks for it: tasks and clients.
use super::Default::{Is, Required, Said};
use super::{Kind, key, later};

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
            "of all models but busy, lookbusy, iozone",
        ),
        key(
            "sleep",
            "duration or distribution",
            Said("of model batch: 10ms"),
            "model batch: pause between two computations",
        ),
        key(
            "serial",
            "duration or distribution",
            Said("of model serial: 20ms"),
            "model serial: what one thread does while the others wait",
        ),
        key(
            "chunks",
            "count",
            Said("of model parallel: 64"),
            "model parallel: pieces of work of a round",
        ),
        key(
            "mode",
            "read or write; stream or request",
            Said("the first"),
            "models iozone; netperf",
        ),
        key(
            "record",
            "size",
            Said("of model iozone: 1MiB"),
            "model iozone: read or written at once",
        ),
        key(
            "disk",
            "name",
            Said("the only one"),
            "model iozone: which disk",
        ),
        key(
            "events",
            "count",
            Said("without end"),
            "model sysbench-cpu: of all threads together, then they end",
        ),
        key(
            "from",
            "client",
            Said("the one client of its VMs"),
            "models echo, web, stream, netperf, webbench: whose requests it answers",
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
            "stall",
            "percent",
            Is("\"0%\""),
            "part of its time at full speed for which it waits for memory",
        ),
        key(
            "ipc",
            "number, 0.01 to 16",
            Is("1.5"),
            "instructions per cycle while it does not wait, as counters see them",
        ),
        key(
            "rounds",
            "count",
            Said("without end"),
            "its threads end after so many rounds of the loop: see metric completion",
        ),
        key(
            "per_request",
            "true or false",
            Is("false"),
            "each request starts a thread of its own, which ends with the loop",
        ),
        key(
            "estimate",
            "oracle or lognormal(SIGMA)",
            Said("nothing is told"),
            "what policies are told of how long a request, or a thread, computes",
        ),
        key(
            "uid",
            "count",
            Is("0"),
            "whose it is in its guest: vm.guest_agent moves those of 1000 and above",
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
            "host CPUs its threads may use; with a guest inside: the VM's vCPUs",
        ),
        later("memory", "sizes of memory"),
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
        key(
            "at_most",
            "count",
            Said("any number"),
            "unanswered requests in a VM; one more is lost",
        ),
        later("net", "a model of network cards and vhost threads"),
    ],
};
