// SPDX-License-Identifier: GPL-2.0-only
//! Runs that are kept: what was run once is not run again, and what was interrupted goes on where it stopped.
//!
//! A folder has a file per job, named by [`Job::key`], with the outcome and the version that it is of. A run of another
//! version is not used; the next one takes its place, so that the folder does not grow with versions.
use crate::error::Failure;
use crate::job::{Job, Outcome, VERSION};
use berth_results::schema::RunRecord;
use berth_results::write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder of kept runs. Several processes may use one at the same time. Clones count together.
#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
    as_finished: bool,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    used: AtomicUsize,
    other_version: AtomicUsize,
    unwritten: AtomicUsize,
}

impl Kept {
    /// A folder of its own. Each run is kept as it is finished.
    pub fn at(folder: &Path) -> Kept {
        Kept {
            folder: folder.to_path_buf(),
            as_finished: true,
            counts: Arc::default(),
        }
    }

    /// The user's: `runs` in Berth's cache folder.
    ///
    /// # Errors
    /// There is no cache folder.
    pub fn of_user() -> Result<Kept, Failure> {
        let cache = berth_policy::cache::folder().map_err(|e| Failure::Run(e.to_string()))?;
        Ok(Kept::at(&cache.join("runs")))
    }

    /// The same folder; runs are kept at an interrupt only, see [`Simulator::interrupted`].
    ///
    /// [`Simulator::interrupted`]: crate::simulator::Simulator::interrupted
    pub fn at_interrupt(self) -> Kept {
        Kept {
            as_finished: false,
            ..self
        }
    }

    /// Each run is kept as it is finished.
    pub fn as_finished(&self) -> bool {
        self.as_finished
    }

    fn path(&self, key: &str) -> PathBuf {
        let (shelf, _) = key.split_at(key.len().min(2));
        self.folder.join(shelf).join(format!("{key}.json"))
    }

    /// The kept run of this job and of this version. A file that cannot be read is as good as none.
    pub fn get(&self, job: &Job) -> Option<RunRecord> {
        let key = job.key();
        let text = std::fs::read(self.path(&key)).ok()?;
        let outcome: Outcome = serde_json::from_slice(&text).ok()?;
        if outcome.version != VERSION {
            self.counts.other_version.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let record = outcome.result.ok().filter(|_| outcome.job == key)?;
        self.counts.used.fetch_add(1, Ordering::Relaxed);
        Some(record)
    }

    /// Keeps a run. A disk that is full loses no results: the run is done again then.
    pub fn put(&self, job: &Job, record: &RunRecord) {
        let outcome = Outcome::new(job, Ok(record.clone()));
        let text = serde_json::to_vec(&outcome).unwrap_or_default();
        if write::atomic(&self.path(&outcome.job), &text).is_err() {
            self.counts.unwritten.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What a user should know, a sentence each; empty if nothing was kept before.
    pub fn notes(&self) -> Vec<String> {
        let folder = self.folder.display();
        let n = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let mut notes = Vec::new();
        if n(&self.counts.used) > 0 {
            notes.push(format!(
                "{} runs were kept before and not run again",
                n(&self.counts.used)
            ));
        }
        if n(&self.counts.other_version) > 0 {
            notes.push(format!(
                "{} kept runs are of another version than {VERSION} and were not used",
                n(&self.counts.other_version)
            ));
        }
        if n(&self.counts.unwritten) > 0 {
            notes.push(format!(
                "{} runs could not be kept in {folder}: is the disk full?",
                n(&self.counts.unwritten)
            ));
        }
        notes
    }
}
