// SPDX-License-Identifier: GPL-2.0-only
//! Tells a policy how long threads' jobs will take (`policies/include/berth/jobs.bpf.h`).
use crate::prepare::map_error;
use crate::{Loaded, ScxError};
use berth_identity::JobRecord;
use berth_identity::record::JOBS;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// The policy's map of jobs that begin: from any thread, as long as it likes; after the policy's end nobody reads it.
#[derive(Debug)]
pub struct Jobs(MapHandle);

impl Jobs {
    /// The thread's next job is this one.
    ///
    /// # Errors
    /// The kernel refuses: the map is full.
    pub fn tell(&self, tid: u32, job: &JobRecord) -> Result<(), ScxError> {
        let told = self
            .0
            .update(&tid.to_ne_bytes(), &job.bytes(), MapFlags::ANY);
        told.map_err(|e| map_error(JOBS, &e))
    }
}

impl Loaded {
    /// How it is told of jobs, if it wants to be.
    ///
    /// # Errors
    /// The kernel gives no second hold of the map.
    pub fn jobs(&self) -> Result<Option<Jobs>, ScxError> {
        match self.map_size(JOBS) {
            None => Ok(None),
            Some(_) => {
                let handle = MapHandle::try_from(&self.map(JOBS)?);
                Ok(Some(Jobs(handle.map_err(|e| map_error(JOBS, &e))?)))
            }
        }
    }
}
