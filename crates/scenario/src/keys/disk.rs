// SPDX-License-Identifier: GPL-2.0-only
//! Disks.
use super::Default::{Is, Said};
use super::{Kind, key};

pub static DISK: Kind = Kind {
    label: "A disk",
    header: "[disk.NAME]",
    help: "disk",
    says: "A disk of the host, for steps `read NAME SIZE`, `write NAME SIZE`. A VM has a file and a page cache on it.",
    keys: &[
        key(
            "path",
            "a path",
            Is("virtio"),
            "virtio (an I/O thread), emulated (the emulator), direct, driver-domain",
        ),
        key("size", "size", Is("256GiB"), "of the disk"),
        key(
            "file",
            "size",
            Is("1GiB"),
            "of each VM's file: its threads go through it together, over and over",
        ),
        key(
            "access",
            "sequential or random",
            Is("sequential"),
            "where the next record is",
        ),
        key(
            "bandwidth",
            "bandwidth",
            Is("500MB/s"),
            "of the disk, one request after the other",
        ),
        key(
            "seek",
            "duration",
            Is("60us"),
            "before a request that does not begin where the last one ended",
        ),
        key(
            "seek_far",
            "duration",
            Said("as seek"),
            "at the other end of the disk; between them by the root of the distance",
        ),
        key(
            "request",
            "size",
            Is("1MiB"),
            "the largest request; more is several",
        ),
        key(
            "cache",
            "size",
            Is("256MiB"),
            "page cache of each VM for this disk; \"0B\": none",
        ),
        key(
            "block",
            "size",
            Is("4KiB"),
            "what is in the cache or not as a whole",
        ),
        key(
            "read_ahead",
            "size",
            Said("128KiB; without a cache 0B"),
            "what sequential reading fetches before it is asked for",
        ),
        key(
            "write_back",
            "duration",
            Said("5s; without a cache 0s"),
            "after so long data are written back; 0s: at once, and the task waits",
        ),
        key(
            "dirty",
            "percent",
            Said("20%; without a cache nothing"),
            "of the cache may be unwritten before writers wait; half: writing begins",
        ),
        key(
            "syscall",
            "duration",
            Is("1us"),
            "work of a task for each step",
        ),
        key(
            "copy",
            "duration",
            Is("300ns"),
            "work of a task for each KiB",
        ),
        key(
            "submit",
            "duration",
            Said("2us; emulated 20us, direct 1us, driver-domain 3us"),
            "work of a task for each request that it needs",
        ),
        key(
            "per_request_host",
            "duration",
            Said("4us; emulated 10us, driver-domain 5us, direct none"),
            "work of the host's thread on the path, each way",
        ),
        key(
            "irq",
            "duration",
            Is("2us"),
            "of the interrupt when a request is done, host's and guest's",
        ),
    ],
};
