// SPDX-License-Identifier: GPL-2.0-only
//! Who may connect to the agent's socket.
use crate::door::Access;
use std::sync::LazyLock;

/// Looked up once: who keeps the groups may be far away.
pub(super) static USUAL: LazyLock<Access> =
    LazyLock::new(|| usual(rustix::process::geteuid().is_root(), &group));

/// Who may connect if nobody says it: root's agent lets in the group that is made for it, any other only its own.
pub(super) fn usual(is_root: bool, group: &dyn Fn(&str) -> Option<u32>) -> Access {
    Access {
        group: is_root.then(|| group("berth")).flatten(),
        group_if_possible: true,
        ..Access::default()
    }
}

/// The number of a group.
pub(super) fn group(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    let mut buffer = vec![0; 64 << 10];
    // SAFETY: places for the answer that outlive the call; all zeroes are such a structure.
    unsafe {
        let mut found: libc::group = std::mem::zeroed();
        let mut result = std::ptr::null_mut();
        libc::getgrnam_r(
            name.as_ptr(),
            &raw mut found,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut result,
        );
        (!result.is_null()).then_some(found.gr_gid)
    }
}
