// SPDX-License-Identifier: GPL-2.0-only
//! Tells a policy who its threads are (`policies/include/berth/identity.bpf.h`): the records and the maps they go into.
use crate::{Loaded, ScxError, Value};

/// Version of both records.
const VERSION: u32 = 1;
const VMS: &str = "berth_vms";
const THREADS: &str = "berth_threads";
const GENERATION: &str = "berth_generation";

/// What kind of work a VM does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmClass {
    /// Nothing is said of it: policies decide.
    None = 0,
    Latency = 1,
    Batch = 2,
    Mixed = 3,
}

/// What a thread is for its VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Other = 0,
    Vcpu = 1,
    Vhost = 2,
    Iothread = 3,
    Emulator = 4,
}

/// What a policy knows a VM by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VmId {
    /// Its own cgroup: the inode of the folder.
    Cgroup(u64),
    /// Its process, if it has no cgroup of its own. `start` in clock ticks since boot: a number alone is used again.
    Process { pid: u32, start: u64 },
}

impl VmId {
    /// The key in the policy's map.
    pub fn key(self) -> u64 {
        const PROCESS: u64 = 1 << 63;
        const NUMBERS: u64 = 1 << 22;
        match self {
            VmId::Cgroup(id) => id,
            VmId::Process { pid, start } => {
                PROCESS | start.wrapping_mul(NUMBERS).wrapping_add(pid.into())
            }
        }
    }
}

/// A VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmRecord {
    /// Dense number of the VM, 1 and up.
    pub slot: u32,
    /// Another one for each VM that gets the slot.
    pub generation: u32,
    pub class: VmClass,
    /// 1..=10000, of the whole VM.
    pub weight: u32,
    /// Thousandths of a CPU the VM may use; `None`: no cap.
    pub cap_milli: Option<u32>,
    /// Memory node, if it has one.
    pub node: Option<u32>,
    pub vcpus: u32,
}

/// A thread, by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRecord {
    pub role: Role,
    /// Index of the vCPU.
    pub vcpu: Option<u32>,
    /// This vCPU serves I/O (mixed VMs).
    pub io: bool,
}

impl VmRecord {
    fn bytes(&self) -> Vec<u8> {
        let node = self.node.map_or(-1, |n| n as i32);
        [
            VERSION,
            self.slot,
            self.generation,
            self.class as u32,
            self.weight,
            self.cap_milli.unwrap_or(0),
            node as u32,
            self.vcpus,
        ]
        .iter()
        .flat_map(|f| f.to_ne_bytes())
        .collect()
    }
}

impl ThreadRecord {
    fn bytes(&self) -> Vec<u8> {
        let vcpu = self.vcpu.map_or(-1, |v| v as i32);
        [VERSION, self.role as u32, vcpu as u32, u32::from(self.io)]
            .iter()
            .flat_map(|f| f.to_ne_bytes())
            .collect()
    }
}

impl Loaded {
    /// Whether the policy asks who its threads are.
    pub fn wants_identity(&self) -> bool {
        self.map_size(VMS).is_some()
    }

    /// Registers a VM.
    ///
    /// # Errors
    /// The policy keeps no such map, or its record has another size than this version of Berth knows.
    pub fn set_vm(&mut self, id: VmId, vm: &VmRecord) -> Result<(), ScxError> {
        self.put(VMS, &id.key().to_ne_bytes(), &vm.bytes())
    }

    /// Registers a thread of a VM.
    ///
    /// # Errors
    /// As [`Loaded::set_vm`].
    pub fn set_thread(&mut self, tid: u32, thread: &ThreadRecord) -> Result<(), ScxError> {
        self.put(THREADS, &tid.to_ne_bytes(), &thread.bytes())
    }

    /// Forgets a VM; no error if the policy did not know it.
    ///
    /// # Errors
    /// The policy keeps no such map.
    pub fn remove_vm(&mut self, id: VmId) -> Result<(), ScxError> {
        self.remove(VMS, &id.key().to_ne_bytes())
    }

    /// Forgets what is known of a thread; no error if nothing is.
    ///
    /// # Errors
    /// The policy keeps no such map.
    pub fn remove_thread(&mut self, tid: u32) -> Result<(), ScxError> {
        self.remove(THREADS, &tid.to_ne_bytes())
    }

    /// Makes the policy look again: each thread is identified anew when it next stops running.
    ///
    /// # Errors
    /// The policy has no such variable.
    pub fn identities_changed(&mut self) -> Result<(), ScxError> {
        let now = self.variable(GENERATION)?;
        let now = u32::from_ne_bytes(now.try_into().unwrap_or_default());
        self.set_variable(GENERATION, &Value::Number(now.wrapping_add(1).into()))
    }

    fn put(&mut self, map: &str, key: &[u8], record: &[u8]) -> Result<(), ScxError> {
        match self.map_size(map) {
            Some(size) if size as usize != record.len() => Err(ScxError::Map {
                name: map.to_string(),
                reason: format!(
                    "its records have {size} bytes, this version of Berth writes {}; compile the policy again",
                    record.len()
                ),
            }),
            _ => self.set_map_value(map, key, record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `berth_vm_of_process` of `identity.bpf.h`.
    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let process = |pid, start| VmId::Process { pid, start }.key();
        assert_eq!(process(7, 3), 0x8000_0000_00c0_0007);
        assert_ne!(process(7, 3), process(7, 4));
        assert_ne!(process(4_194_303, 3), process(0, 4));
        assert_eq!(VmId::Cgroup(123).key(), 123);
    }

    #[test]
    fn records_have_the_headers_sizes() {
        let vm = VmRecord {
            slot: 1,
            generation: 1,
            class: VmClass::Mixed,
            weight: 100,
            cap_milli: None,
            node: None,
            vcpus: 2,
        };
        let b = vm.bytes();
        assert_eq!(b.len(), 32);
        assert_eq!(b[24..28], (-1i32).to_ne_bytes());
        assert_eq!(b[12..16], 3u32.to_ne_bytes());
        let t = ThreadRecord {
            role: Role::Vcpu,
            vcpu: Some(5),
            io: true,
        };
        assert_eq!(t.bytes().len(), 16);
        assert_eq!(t.bytes()[8..], [5, 0, 0, 0, 1, 0, 0, 0]);
    }
}
