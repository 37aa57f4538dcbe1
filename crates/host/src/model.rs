// SPDX-License-Identifier: GPL-2.0-only
//! What is known of the virtual machines of a host.
pub use berth_identity::Role;
use serde::Serialize;

/// Why a thread is believed to have its role, the strongest first. What comes after [`Evidence::Parent`] is a hint: the
/// owner of the process chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// KVM names the thread in debugfs (`kvm/PID-FD/vcpuN/pid`).
    Debugfs,
    /// It was seen in `ioctl(KVM_RUN)` on the file descriptor of this vCPU.
    KvmRun,
    /// QEMU's monitor says so (`query-cpus-fast`).
    Qmp,
    /// The kernel's own flag for a thread that it made (`PF_KTHREAD`, `PF_USER_WORKER`, `PF_IO_WORKER`).
    KernelThread,
    /// The kernel charged it time in guest mode, so it is a vCPU; which one, says its cgroup, its name or its age.
    GuestTime,
    /// libvirt put it into the cgroup of this role.
    Cgroup,
    /// The process's first thread.
    MainThread,
    /// A process that the VMM started, or that shares the VM's scope.
    Parent,
    /// Its name.
    Name,
    /// As many threads are left as vCPUs; in the order in which they were made.
    Order,
    /// A thread of the VMM that nothing else is known of.
    Rest,
}

impl Evidence {
    /// A few words for a reader.
    pub fn words(self) -> &'static str {
        match self {
            Evidence::Debugfs => "KVM says so in debugfs",
            Evidence::KvmRun => "seen in KVM_RUN on the vCPU's file",
            Evidence::Qmp => "QEMU's monitor says so",
            Evidence::KernelThread => "made by the kernel",
            Evidence::GuestTime => "charged with guest time",
            Evidence::Cgroup => "libvirt's cgroup",
            Evidence::MainThread => "first thread of the VMM",
            Evidence::Parent => "started by the VMM, or in its scope",
            Evidence::Name => "its name only",
            Evidence::Order => "what is left, in order of age",
            Evidence::Rest => "a thread of the VMM",
        }
    }
}

/// Why a process is believed to be a VM, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// It holds a file of KVM (`anon_inode:kvm-vm`), or debugfs lists it.
    Kvm,
    /// The kernel charged it time in guest mode.
    GuestTime,
    /// Its command line and its threads' names look like one: all that a user without rights can see of a VM that has
    /// not run, and all there is for a VM without KVM.
    Looks,
}

/// The program that runs the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vmm {
    Qemu,
    CloudHypervisor,
    Firecracker,
    Crosvm,
    Kvmtool,
    /// Berth's own micro-VMs, of `berth lab` and `berth host`.
    Berth,
    /// Any other program that opened `/dev/kvm`.
    Unknown,
}

impl Vmm {
    pub fn word(self) -> &'static str {
        match self {
            Vmm::Qemu => "QEMU",
            Vmm::CloudHypervisor => "Cloud Hypervisor",
            Vmm::Firecracker => "Firecracker",
            Vmm::Crosvm => "crosvm",
            Vmm::Kvmtool => "kvmtool",
            Vmm::Berth => "a micro-VM of Berth",
            Vmm::Unknown => "an unknown VMM",
        }
    }
}

/// What started the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    Libvirt,
    Nova,
    Kubevirt,
    Kata,
    Proxmox,
    Incus,
    Lxd,
    /// Firecracker's jailer.
    Jailer,
    /// Nothing that is known: by hand, or another manager.
    None,
}

impl Manager {
    pub fn word(self) -> &'static str {
        match self {
            Manager::Libvirt => "libvirt",
            Manager::Nova => "nova",
            Manager::Kubevirt => "kubevirt",
            Manager::Kata => "kata",
            Manager::Proxmox => "proxmox",
            Manager::Incus => "incus",
            Manager::Lxd => "lxd",
            Manager::Jailer => "jailer",
            Manager::None => "-",
        }
    }
}

/// Where the VM's name comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NameFrom {
    /// An option of the VMM: `-name`, `--id`, `--name`.
    CommandLine,
    /// A socket's or folder's name on the command line.
    Socket,
    /// The scope that the manager made.
    Cgroup,
    /// Nothing names it: program and process id.
    Process,
}

/// Which task it is. A number alone is not enough: the kernel uses it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TaskId {
    /// The process the thread belongs to.
    pub pid: i32,
    pub tid: i32,
    /// Start, in clock ticks (1/100 s) since boot.
    pub start: u64,
}

/// One thread of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Thread {
    #[serde(flatten)]
    pub id: TaskId,
    /// Its name, escaped so that it can be shown.
    pub name: String,
    pub role: Role,
    pub evidence: Evidence,
}

/// One virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vm {
    /// Unique on this host: where two VMs have one name, `@PID` is appended.
    pub name: String,
    pub name_from: NameFrom,
    pub vmm: Vmm,
    pub manager: Manager,
    /// The manager's own number: Proxmox's VMID.
    pub manager_id: Option<String>,
    pub proof: Proof,
    pub pid: i32,
    /// Start of the process, in clock ticks (1/100 s) since boot.
    pub start: u64,
    /// The process's cgroup; `/` if none.
    pub cgroup: String,
    /// vCPUs. The threads of some may not be known.
    pub vcpus: u32,
    /// By role, then by thread.
    pub threads: Vec<Thread>,
}

impl Vm {
    /// vCPUs whose thread is known.
    pub fn known_vcpus(&self) -> u32 {
        let known = |t: &&Thread| matches!(t.role, Role::Vcpu(_));
        u32::try_from(self.threads.iter().filter(known).count()).unwrap_or(u32::MAX)
    }
}

/// What one look at a host found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// By name.
    pub vms: Vec<std::sync::Arc<Vm>>,
    /// Processes that are no part of a VM, kernel threads left out.
    pub other_processes: usize,
    pub blind: Blind,
}

/// What could not be seen, each with its consequence in [`Blind::words`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Blind {
    /// Processes whose files could not be listed.
    pub files: usize,
    /// Processes are hidden (`hidepid`): the machine's own process 1 cannot be seen.
    pub hidden: bool,
    /// It was root who looked, at this machine: what it could not see nobody can.
    pub as_root: bool,
}

impl Blind {
    /// A footnote for each thing that could not be seen.
    pub fn words(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let es = if self.files == 1 { "" } else { "es" };
        if self.files > 0 && self.as_root {
            notes.push(format!(
                "The kernel hides the files of {} process{es} even from root (a security module, another user \
                 namespace): a \
                 VM among them is known by its looks only.",
                self.files,
            ));
        } else if self.files > 0 {
            notes.push(format!(
                "The files of {} process{es} are not yours to see: a VM that has not run yet is known by its looks \
                 only, and \
                 which vCPU a thread is by its name. As root: all of it.",
                self.files,
            ));
        }
        if self.hidden {
            notes.push(
                "/proc is mounted with hidepid: VMs of other users are not shown. As root: all of them.".into(),
            );
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footnotes_say_what_would_help() {
        let one = Blind {
            files: 1,
            ..Blind::default()
        };
        assert!(
            one.words()[0].contains("1 process are not yours")
                && one.words()[0].contains("As root")
        );
        let root = Blind {
            files: 2,
            as_root: true,
            ..one
        };
        assert!(
            root.words()[0].contains("2 processes even from root")
                && !root.words()[0].contains("As root")
        );
        assert!(Blind::default().words().is_empty());
    }
}
