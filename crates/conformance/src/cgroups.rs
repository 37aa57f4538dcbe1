// SPDX-License-Identifier: GPL-2.0-only
//! The cast's cgroups on a real kernel. Members are threads of one process, so the cgroups are threaded ones.
use crate::row::{Do, Group, GroupSpec, PERIOD_US};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::PathBuf;

const ROOT: &str = "/sys/fs/cgroup";
const SLICE: &str = "/sys/fs/cgroup/machine.slice";

fn folder(group: Group) -> PathBuf {
    PathBuf::from(format!("{SLICE}/vm{group}"))
}

fn set(group: Group, file: &str, value: &str) -> io::Result<()> {
    fs::write(folder(group).join(file), value)
}

/// Makes the cgroups if they are not there yet, in the order of their numbers, and gives them the row's settings.
/// All rows of a machine have equally many: the policy hears of those that there are.
///
/// # Errors
/// The kernel refuses; more cgroups than the row has.
pub(crate) fn prepare(groups: &[GroupSpec]) -> io::Result<()> {
    if !PathBuf::from(SLICE).exists() {
        make(groups.len() as Group)?;
    }
    if folder(groups.len() as Group).exists() {
        return Err(io::Error::other("an earlier row had more cgroups"));
    }
    for (group, spec) in (0..).zip(groups) {
        set(group, "cpu.idle", "0")?;
        set(group, "cpu.weight", &spec.weight.to_string())?;
        set(group, "cpu.max.burst", "0")?;
        set_limit(group, spec.quota_us, PERIOD_US)?;
    }
    Ok(())
}

fn make(groups: Group) -> io::Result<()> {
    favour_moves()?;
    let threaded = |folder: PathBuf| {
        fs::create_dir(&folder)?;
        fs::write(folder.join("cgroup.type"), "threaded")
    };
    let delegate = |folder: &str| fs::write(format!("{folder}/cgroup.subtree_control"), "+cpu");
    threaded(SLICE.into())?;
    delegate(ROOT)?;
    delegate(SLICE)?;
    (0..groups).try_for_each(|group| threaded(folder(group)))
}

/// Moves without a wait: else each one waits for an RCU grace period first, in which the cast does other things.
fn favour_moves() -> io::Result<()> {
    const KIND: &CStr = c"cgroup2";
    const AT: &CStr = c"/sys/fs/cgroup";
    const OPTION: &CStr = c"favordynmods";
    // SAFETY: four texts that end with zero.
    let rc = unsafe {
        libc::mount(
            KIND.as_ptr(),
            AT.as_ptr(),
            KIND.as_ptr(),
            libc::MS_REMOUNT,
            OPTION.as_ptr().cast(),
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set_limit(group: Group, quota_us: Option<u64>, period_us: u64) -> io::Result<()> {
    let quota = quota_us.map_or("max".to_string(), |us| us.to_string());
    set(group, "cpu.max", &format!("{quota} {period_us}"))
}

/// The calling thread goes to this cgroup, or back to the root.
///
/// # Errors
/// The kernel or the policy refuses.
pub(crate) fn enter(group: Option<Group>) -> io::Result<()> {
    match group {
        // A thread that names itself as 0 waits for nobody.
        Some(group) => set(group, "cgroup.threads", "0"),
        None => fs::write(format!("{ROOT}/cgroup.threads"), "0"),
    }
}

/// A step about cgroups; `tid` tells a member's thread.
///
/// # Errors
/// The kernel or the policy refuses, or does not although it should.
pub(crate) fn perform(step: &Do, tid: &dyn Fn(char) -> i32) -> io::Result<()> {
    match step {
        Do::Weight(group, weight) => set(*group, "cpu.weight", &weight.to_string()),
        Do::Limit(group, quota_us, period_us) => set_limit(*group, *quota_us, *period_us),
        Do::Burst(group, us) => set(*group, "cpu.max.burst", &us.to_string()),
        Do::Idle(group, idle) => set(*group, "cpu.idle", if *idle { "1" } else { "0" }),
        Do::Enter(group) => enter(Some(*group)),
        Do::Send(label, group) => set(*group, "cgroup.threads", &tid(*label).to_string()),
        Do::SendAll(group) => set(*group, "cgroup.procs", &std::process::id().to_string()),
        Do::Refused(step, errno) => match perform(step, tid) {
            Err(e) if e.raw_os_error() == Some(*errno) => Ok(()),
            Err(e) => Err(e),
            Ok(()) => Err(io::Error::other("it is not refused")),
        },
        _ => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
    }
}
