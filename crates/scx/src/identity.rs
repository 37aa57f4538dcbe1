// SPDX-License-Identifier: GPL-2.0-only
//! Tells a policy who its threads are (`policies/include/berth/identity.bpf.h`).
use crate::{Loaded, ScxError, Value};
use berth_identity::record::{GENERATION, SCORED, SCORES, THREADS, VMS};
use berth_identity::{Scored, ThreadRecord, VmId, VmRecord};

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

    /// Registers a thread of a VM, and its score with a policy that has use for it.
    ///
    /// # Errors
    /// As [`Loaded::set_vm`].
    pub fn set_thread(&mut self, tid: u32, thread: &ThreadRecord) -> Result<(), ScxError> {
        let key = tid.to_ne_bytes();
        match (self.map_size(SCORES), thread.score_milli) {
            (None, _) => {}
            (Some(_), Some(milli)) => self.put(SCORES, &key, &milli.to_ne_bytes())?,
            (Some(_), None) => self.remove(SCORES, &key)?,
        }
        self.put(THREADS, &key, &thread.bytes())
    }

    /// By what the policy scores the VM of this slot; none: it has scored none of its vCPUs, or scores nobody.
    pub fn scored(&self, slot: u32) -> Option<Scored> {
        self.map_size(SCORED)?;
        let found = self.map_value(SCORED, &slot.to_ne_bytes()).ok()??;
        Scored::parse(found.first()?)
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
        if self.map_size(SCORES).is_some() {
            self.remove(SCORES, &tid.to_ne_bytes())?;
        }
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
