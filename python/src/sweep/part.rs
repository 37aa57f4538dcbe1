// SPDX-License-Identifier: GPL-2.0-only
//! What came of some jobs: a Parquet file, named by its jobs. The bytes depend on the jobs only, not on who did them or
//! in which order.
use super::columns::{self, Column, Lazy, Named};
use berth_experiment::job::VERSION;
use berth_results::schema::RunRecord;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Columns before the metrics.
pub const HEAD: [&str; 4] = ["job", "arm", "seed", "hash"];

/// Names of a run's metrics, sorted. Most runs of a sweep share them.
pub type Names = Arc<[String]>;

/// Names that runs had of late.
#[derive(Default)]
pub struct Known(Mutex<Vec<Names>>);

/// A few arms at a few points have other ones.
const MOST_KNOWN: usize = 16;

impl Known {
    fn names<'a>(&self, names: impl Iterator<Item = &'a String> + Clone) -> Names {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = known.iter().find(|k| k.iter().eq(names.clone())) {
            return same.clone();
        }
        let new: Names = names.cloned().collect();
        known.truncate(MOST_KNOWN - 1);
        known.insert(0, new.clone());
        new
    }
}

/// What a sweep keeps of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `Job::key`.
    pub job: String,
    pub arm: String,
    pub seed: u64,
    /// Of everything that happened.
    pub hash: String,
    /// Of the metrics.
    pub names: Names,
    pub values: Vec<f64>,
}

impl Row {
    pub fn of(job: String, record: RunRecord, known: &Known) -> Row {
        Row {
            job,
            arm: record.arm,
            seed: record.seed,
            hash: record.hash,
            names: known.names(record.metrics.keys()),
            values: record.metrics.into_values().collect(),
        }
    }
}

/// The metrics of all rows by name, for each row in its order.
fn metrics(rows: &[Row]) -> Vec<(&String, Vec<Option<f64>>)> {
    // Names are looked at once for all rows that share them.
    let mut places: HashMap<*const String, Vec<usize>> = HashMap::new();
    let mut columns = BTreeMap::new();
    for row in rows {
        if places.insert(row.names.as_ptr(), Vec::new()).is_none() {
            columns.extend(row.names.iter().map(|name| (name, 0)));
        }
    }
    for (at, place) in columns.values_mut().enumerate() {
        *place = at;
    }
    let mut values = vec![vec![None; rows.len()]; columns.len()];
    for (number, row) in rows.iter().enumerate() {
        let places = places.entry(row.names.as_ptr()).or_default();
        if places.is_empty() {
            places.extend(row.names.iter().map(|name| columns[name]));
        }
        for (value, at) in row.values.iter().zip(places) {
            values[*at][number] = Some(*value);
        }
    }
    columns.into_keys().zip(values).collect()
}

/// Sorts the rows. The file's name and bytes.
pub fn write(rows: &mut [Row]) -> Result<(String, Vec<u8>), String> {
    rows.sort_by(|a, b| a.job.cmp(&b.job));
    let mut columns: Vec<Named> = vec![
        (HEAD[0].into(), Column::words(rows.iter().map(|r| &r.job))),
        (HEAD[1].into(), Column::words(rows.iter().map(|r| &r.arm))),
        (
            HEAD[2].into(),
            Column::counts(rows.iter().map(|r| r.seed as i64)),
        ),
        (HEAD[3].into(), Column::words(rows.iter().map(|r| &r.hash))),
    ];
    for (name, values) in metrics(rows) {
        columns.push((name.clone(), Column::Number(values)));
    }
    let mut hasher = blake3::Hasher::new();
    rows.iter().for_each(|r| {
        hasher.update(r.job.as_bytes());
    });
    let name = format!("{}.parquet", &hasher.finalize().to_hex()[..32]);
    let columns = columns.into_iter().map(|(name, column)| Lazy {
        name,
        kind: column.kind(),
        make: Box::new(move || column.clone()),
    });
    let columns: Vec<_> = columns.collect();
    let bytes = columns::write(&columns, vec![("berth.version", VERSION.into())]);
    Ok((name, bytes.map_err(|e| e.to_string())?))
}

/// The rows of a part, and which version it is of.
pub fn read(bytes: Bytes) -> Result<(Vec<Row>, Option<String>), String> {
    let (columns, version) = columns::read(bytes, "berth.version").map_err(|e| e.to_string())?;
    let jobs = columns::words(&columns, HEAD[0])?;
    let arms = columns::words(&columns, HEAD[1])?;
    let seeds = columns::counts(&columns, HEAD[2])?;
    let hashes = columns::words(&columns, HEAD[3])?;
    let mut metrics: Vec<(&String, &Vec<Option<f64>>)> = Vec::new();
    for (name, column) in &columns {
        if let Column::Number(values) = column {
            metrics.push((name, values));
        }
    }
    metrics.sort_unstable_by_key(|(name, _)| *name);
    let known = Known::default();
    let mut rows = Vec::new();
    let heads = jobs.into_iter().zip(arms).zip(seeds).zip(hashes);
    for (number, (((job, arm), seed), hash)) in heads.enumerate() {
        let there = metrics
            .iter()
            .filter(|(_, values)| values[number].is_some());
        rows.push(Row {
            job,
            arm,
            seed,
            hash,
            names: known.names(there.clone().map(|(name, _)| *name)),
            values: there.filter_map(|(_, values)| values[number]).collect(),
        });
    }
    Ok((rows, version))
}
