// SPDX-License-Identifier: GPL-2.0-only
//! How much work a policy is for the kernel's verifier.
use crate::load::Loaded;
use libbpf_rs::libbpf_sys::{bpf_obj_get_info_by_fd, bpf_prog_info};
use std::os::fd::{AsFd, AsRawFd};

impl Loaded {
    /// Instructions that the kernel's verifier went through for each program; a loop or branch counts as often as it
    /// was followed. Of a program that was not loaded there is none, and none where the kernel does not say (before
    /// Linux 5.16).
    pub fn verified_insns(&self) -> Vec<(String, u32)> {
        let programs = self.object.progs();
        programs
            .filter_map(|program| {
                let mut info = bpf_prog_info::default();
                let mut bytes = size_of::<bpf_prog_info>() as u32;
                // SAFETY: the descriptor is open, and the kernel writes at most so many bytes.
                let failed = unsafe {
                    let fd = program.as_fd().as_raw_fd();
                    bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &mut bytes)
                };
                let name = program.name().to_string_lossy().into_owned();
                (failed == 0 && info.verified_insns > 0).then_some((name, info.verified_insns))
            })
            .collect()
    }
}
