// SPDX-License-Identifier: GPL-2.0-only
//! What came of some jobs: a Parquet file, named by its jobs. The bytes depend on the jobs only, not on who did them or
//! in which order.
use super::columns::{self, Column, Named};
use berth_experiment::job::VERSION;
use berth_results::schema::RunRecord;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Columns before the metrics.
pub const HEAD: [&str; 4] = ["job", "arm", "seed", "hash"];

/// What a sweep keeps of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `Job::key`.
    pub job: String,
    pub arm: String,
    pub seed: u64,
    /// Of everything that happened.
    pub hash: String,
    pub metrics: BTreeMap<String, f64>,
}

impl Row {
    pub fn of(job: String, record: RunRecord) -> Row {
        Row {
            job,
            arm: record.arm,
            seed: record.seed,
            hash: record.hash,
            metrics: record.metrics,
        }
    }
}

/// The file's name and bytes.
pub fn write(mut rows: Vec<Row>) -> Result<(String, Vec<u8>), String> {
    rows.sort_by(|a, b| a.job.cmp(&b.job));
    let names: BTreeSet<&String> = rows.iter().flat_map(|r| r.metrics.keys()).collect();
    let mut columns: Vec<Named> = vec![
        (HEAD[0].into(), Column::words(rows.iter().map(|r| &r.job))),
        (HEAD[1].into(), Column::words(rows.iter().map(|r| &r.arm))),
        (
            HEAD[2].into(),
            Column::counts(rows.iter().map(|r| r.seed as i64)),
        ),
        (HEAD[3].into(), Column::words(rows.iter().map(|r| &r.hash))),
    ];
    for name in names {
        let values = rows.iter().map(|r| r.metrics.get(name).copied());
        columns.push((name.clone(), Column::Number(values.collect())));
    }
    let mut hasher = blake3::Hasher::new();
    rows.iter().for_each(|r| {
        hasher.update(r.job.as_bytes());
    });
    let name = format!("{}.parquet", &hasher.finalize().to_hex()[..32]);
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
    let mut rows: Vec<Row> = Vec::new();
    for (((job, arm), seed), hash) in jobs.into_iter().zip(arms).zip(seeds).zip(hashes) {
        rows.push(Row {
            job,
            arm,
            seed,
            hash,
            metrics: BTreeMap::new(),
        });
    }
    for (name, column) in &columns {
        let Column::Number(values) = column else {
            continue;
        };
        for (row, value) in rows.iter_mut().zip(values) {
            row.metrics.extend(value.map(|v| (name.clone(), v)));
        }
    }
    Ok((rows, version))
}
