// SPDX-License-Identifier: GPL-2.0-only
//! Some jobs of a sweep as bytes: what goes to another process, and what it does with them.
use super::part::{self, Known, Row};
use crate::attended::{Cancel, Counts, attended};
use crate::errors;
use berth_experiment::job::{Job, JobPolicy, Loaded, VERSION};
use berth_experiment::runner::{Here, Runner};
use berth_results::write;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Objects of policies that are not shipped, by hash, hexadecimal.
pub type Objects = BTreeMap<String, String>;

/// Jobs of a few cells. Policies' objects go another way, once for all chunks.
#[derive(Serialize, Deserialize)]
pub struct Chunk {
    pub version: String,
    /// Of seed 0, without objects.
    pub cells: Vec<Job>,
    /// Position of the cell, seed, and the key that must come out.
    pub jobs: Vec<(usize, u64, String)>,
}

/// Policies of this process: they are loaded once, whatever number of chunks come.
pub fn loaded() -> Arc<Loaded> {
    static LOADED: OnceLock<Arc<Loaded>> = OnceLock::new();
    LOADED.get_or_init(Arc::default).clone()
}

/// All policies of a job.
fn policies(job: &mut Job) -> impl Iterator<Item = &mut JobPolicy> {
    std::iter::once(&mut job.policy).chain(job.guests.iter_mut().flatten())
}

/// Takes the objects out of a job.
pub fn strip(job: &mut Job, objects: &mut Objects) {
    for policy in policies(job) {
        if let Some(object) = policy.object.take() {
            objects.insert(policy.hash.clone(), object);
        }
    }
}

/// Puts the objects back.
pub fn dress(job: &mut Job, objects: &Objects) {
    for policy in policies(job) {
        policy.object = objects.get(&policy.hash).cloned();
    }
}

/// What came of a chunk.
struct Done {
    name: String,
    part: Vec<u8>,
    failures: Vec<(String, String)>,
    seconds: f64,
}

/// The file's name and bytes, keys and sentences of runs that failed, wall time of one run, s.
type Came<'py> = (String, Bound<'py, PyBytes>, Vec<(String, String)>, f64);

/// Does the jobs of a chunk, one after the other: the file's name, its bytes (none if `folder` took them), keys and
/// sentences of runs that failed, and the wall time of one run, s.
#[pyfunction]
pub fn work<'py>(
    py: Python<'py>,
    chunk: &[u8],
    objects: Objects,
    folder: Option<PathBuf>,
) -> PyResult<Came<'py>> {
    let cancel = Cancel::new();
    let flag = cancel.flag();
    let (done, stopped) = attended(py, &cancel, &Counts::default(), None, || {
        done(chunk, &objects, flag)
    })?;
    if let Some(stopped) = stopped {
        return Err(stopped);
    }
    let mut done = done?;
    if let Some(folder) = folder {
        let path = folder.join(&done.name);
        write::atomic(&path, &done.part).map_err(errors::failed)?;
        done.part.clear();
    }
    let part = PyBytes::new(py, &done.part);
    Ok((done.name, part, done.failures, done.seconds))
}

fn done(
    chunk: &[u8],
    objects: &Objects,
    cancel: &'static std::sync::atomic::AtomicBool,
) -> PyResult<Done> {
    let mut chunk: Chunk = serde_json::from_slice(chunk)
        .map_err(|e| errors::input(format!("this is no chunk of version {VERSION}: {e}")))?;
    if chunk.version != VERSION {
        return Err(errors::input(format!(
            "the chunk is of version {}, and this is {VERSION}: both sides must be the same",
            chunk.version
        )));
    }
    chunk.cells.iter_mut().for_each(|job| dress(job, objects));
    let here = Here::new(Some(cancel), loaded());
    // What no run of a cell can do is an error of all.
    for job in &chunk.cells {
        here.ready(job).map_err(errors::raised)?;
    }
    let started = Instant::now();
    let known = Known::default();
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (cell, seed, key) in &chunk.jobs {
        let cell = chunk.cells.get(*cell);
        let Some(job) = cell.map(|job| Job {
            seed: *seed,
            ..job.clone()
        }) else {
            return Err(errors::input("a job of the chunk has no cell"));
        };
        if job.key() != *key {
            return Err(errors::input(format!(
                "a job of the chunk is another one here ({}) than there ({key})",
                job.key()
            )));
        }
        match here.run(&job) {
            Ok(record) => rows.push(Row::of(key.clone(), record, &known)),
            Err(why) => failures.push((key.clone(), why)),
        }
    }
    let seconds = started.elapsed().as_secs_f64() / chunk.jobs.len().max(1) as f64;
    let (name, part) = part::write(&mut rows).map_err(errors::failed)?;
    Ok(Done {
        name,
        part,
        failures,
        seconds,
    })
}
