// SPDX-License-Identifier: GPL-2.0-only
//! The stages of a packet's way through a KVM host.
use super::Default::{Is, Said};
use super::{Kind, key};

pub static STAGES: Kind = Kind {
    label: "A path in stages",
    header: "[net.stages]",
    help: "stages",
    says: "What a packet alone costs at each stage of vhost, emulator or direct, and what other CPUs' caches add.",
    keys: &[
        key(
            "card",
            "virtio or emulated",
            Is("virtio"),
            "what the guest sees; emulated: two copies and exits, path emulator only",
        ),
        key(
            "driver",
            "duration",
            Is("3us"),
            "interrupt and driver of the host's card",
        ),
        key("bridge", "duration", Is("2500ns"), "the bridge"),
        key(
            "filter",
            "duration",
            Is("1500ns"),
            "connection tracking on the bridge",
        ),
        key(
            "tap",
            "duration",
            Is("2us"),
            "into the tap's queue, or out of the tap",
        ),
        key(
            "copy",
            "duration",
            Said("6us; emulated: 18us"),
            "between tap and guest memory, by the back end's thread",
        ),
        key(
            "copy_byte",
            "duration",
            Said("2ns; emulated: 4ns"),
            "of it, for each byte",
        ),
        key(
            "inject",
            "duration",
            Said("4us; emulated: 10us"),
            "the guest's interrupt by the back end; its exit to send, by the vCPU",
        ),
        key(
            "guest",
            "duration",
            Is("12us"),
            "driver and stack of the guest, by the vCPU",
        ),
        key(
            "cold_copy",
            "duration",
            Is("4us"),
            "besides, for a back end that ran on another CPU before",
        ),
        key(
            "cold_inject",
            "duration",
            Is("2us"),
            "the same for what it does in KVM",
        ),
        key("cold_guest", "duration", Is("6us"), "the same for a vCPU"),
        key(
            "near_line",
            "duration",
            Is("5ns"),
            "64 bytes from a CPU below the same last-level cache",
        ),
        key(
            "far_line",
            "duration",
            Is("110ns"),
            "64 bytes from any other CPU",
        ),
        key(
            "own_lines",
            "count",
            Is("4"),
            "lines of each stage itself, which are where it ran last",
        ),
        key(
            "wake_here",
            "duration",
            Is("1us"),
            "a wake-up by the CPU that runs the thread then",
        ),
        key(
            "wake_other",
            "duration",
            Is("3us"),
            "a wake-up by another CPU",
        ),
        key(
            "per_batch",
            "percent",
            Is("\"80%\""),
            "of each duration above `cold_copy`: once for packets taken together",
        ),
        key(
            "batch",
            "count",
            Is("64"),
            "most packets that are taken together",
        ),
        key(
            "ring",
            "count",
            Is("256"),
            "packets that the card holds for a VM; more are dropped",
        ),
        key(
            "tap_queue",
            "count",
            Is("500"),
            "packets that a tap holds; more are dropped",
        ),
        key(
            "resend",
            "duration",
            Is("200ms"),
            "until the client sends a dropped packet again",
        ),
        key(
            "rps_cpus",
            "list of CPUs",
            Said("who took the interrupt"),
            "host CPUs for bridge, filter and tap (RPS), VMs dealt over them",
        ),
    ],
};
