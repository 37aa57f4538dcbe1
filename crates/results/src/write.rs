// SPDX-License-Identifier: GPL-2.0-only
//! Results on disk: `berth-out/NAME/{sim,lab}.{json,csv,parquet}`.
//!
//! A file is written beside its place and renamed into it, so that there is always a whole one.
use crate::columns::to_parquet;
use crate::experiment::{FORMAT, Results};
use crate::rows;
use crate::schema::Place;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why results could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{} is not a results file of this version of Berth: {error}", path.display())]
    Format { path: PathBuf, error: String },
    #[error("cannot write the results: {0}")]
    Csv(String),
}

/// The folder of a scenario's results.
pub fn folder(out: &Path, name: &str) -> PathBuf {
    out.join(name)
}

/// Path of a place's results file in a folder.
pub fn json_path(folder: &Path, place: Place) -> PathBuf {
    folder.join(format!("{}.json", rows::place(place)))
}

pub fn csv_path(folder: &Path, place: Place) -> PathBuf {
    folder.join(format!("{}.csv", rows::place(place)))
}

pub fn parquet_path(folder: &Path, place: Place) -> PathBuf {
    folder.join(format!("{}.parquet", rows::place(place)))
}

/// Writes a file whole or not at all.
///
/// # Errors
/// The folder cannot be made, or the file not written or renamed; nothing is left behind then.
pub fn atomic(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let error = |error: io::Error| FileError::Write {
        path: path.to_path_buf(),
        error,
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(error)?;
    let name = path
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let beside = folder.join(format!(".{name}.{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = fs::File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&beside, path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&beside);
        error(e)
    })
}

/// The results as JSON.
///
/// # Errors
/// Never for results that this program made: all numbers in them are finite.
pub fn to_json(results: &Results) -> Result<String, FileError> {
    crate::json::to_string(results).map_err(|e| FileError::Csv(e.to_string()))
}

/// The runs as CSV, one row per run and metric.
///
/// # Errors
/// None that depend on the input; the CSV library's are passed on.
pub fn to_csv(results: &Results) -> Result<String, FileError> {
    let error = |e: csv::Error| FileError::Csv(e.to_string());
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(["place", "variant", "arm", "seed", "metric", "unit", "value"])
        .map_err(error)?;
    for row in rows::all(results) {
        let (seed, value) = (row.seed.to_string(), row.value.to_string());
        let row = [
            row.place,
            &row.variant,
            row.arm,
            &seed,
            &row.metric,
            row.unit,
            &value,
        ];
        out.write_record(row).map_err(error)?;
    }
    let bytes = out
        .into_inner()
        .map_err(|e| FileError::Csv(e.to_string()))?;
    String::from_utf8(bytes).map_err(|e| FileError::Csv(e.to_string()))
}

/// The head of a CSV file: lines beginning with `#`, which readers can be told to skip.
fn head(results: &Results) -> String {
    let lines = rows::how_it_was_made(results);
    let lines = lines.iter().flat_map(|l| l.lines());
    lines.map(|l| format!("# {l}\n")).collect()
}

/// Writes the three files into the folder; gives the path of the JSON file.
///
/// # Errors
/// See [`atomic`].
pub fn write(folder: &Path, results: &Results) -> Result<PathBuf, FileError> {
    let csv = head(results) + &to_csv(results)?;
    atomic(&csv_path(folder, results.place), csv.as_bytes())?;
    let parquet = to_parquet(results).map_err(|e| FileError::Csv(e.to_string()))?;
    atomic(&parquet_path(folder, results.place), &parquet)?;
    let path = json_path(folder, results.place);
    atomic(&path, to_json(results)?.as_bytes())?;
    Ok(path)
}

/// Reads a place's results of a folder; none if there are none.
///
/// # Errors
/// There is a file, but it cannot be read, or another version wrote it.
pub fn read(folder: &Path, place: Place) -> Result<Option<Results>, FileError> {
    let path = json_path(folder, place);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::Read { path, error }),
    };
    let results: Results = serde_json::from_str(&text).map_err(|e| FileError::Format {
        path: path.clone(),
        error: e.to_string(),
    })?;
    if results.format != FORMAT {
        let error = format!("its format is {}, not {FORMAT}", results.format);
        return Err(FileError::Format { path, error });
    }
    Ok(Some(results))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Provenance, tests::experiment};

    fn results() -> Results {
        Results {
            format: FORMAT,
            place: Place::Sim,
            provenance: Provenance {
                version: "0".into(),
                command: "berth sim t".into(),
                kernel: "7.2".into(),
                vcpus: String::new(),
                machine: "m".into(),
                scenario: "title = \"T\"".into(),
            },
            complete: true,
            experiments: vec![experiment(&[("a", &[1.5, 2.0]), ("b", &[0.1])])],
        }
    }

    #[test]
    fn there_and_back() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path(), "t");
        assert!(read(&folder, Place::Sim).unwrap().is_none());
        let path = write(&folder, &results()).unwrap();
        assert!(path.ends_with("t/sim.json"));
        assert_eq!(read(&folder, Place::Sim).unwrap(), Some(results()));
        let names: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names.len(), 3, "nothing else is left: {names:?}");
        let csv = fs::read_to_string(folder.join("sim.csv")).unwrap();
        let (head, rows): (Vec<&str>, Vec<&str>) = csv.lines().partition(|l| l.starts_with('#'));
        assert!(head.contains(&"# made by: berth sim t") && head.contains(&"#   title = \"T\""));
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[1], "sim,,a,1,web.response.p99,ns,1.5");
    }

    #[test]
    fn parquet_has_the_rows_of_the_csv() {
        use parquet::file::reader::{FileReader, SerializedFileReader};
        use parquet::record::RowAccessor;
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &results()).unwrap();
        let file = fs::File::open(dir.path().join("sim.parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let made = reader
            .metadata()
            .file_metadata()
            .key_value_metadata()
            .unwrap();
        let made = |k: &str| {
            made.iter()
                .find(|m| m.key == k)
                .unwrap()
                .value
                .clone()
                .unwrap()
        };
        assert_eq!(made("berth.command"), "berth sim t");
        assert_eq!(made("berth.scenario"), "title = \"T\"");
        let csv = to_csv(&results()).unwrap();
        let rows: Vec<String> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|r| {
                let r = r.unwrap();
                let text = |i| r.get_string(i).unwrap().clone();
                let (seed, value) = (r.get_long(3).unwrap(), r.get_double(6).unwrap());
                format!(
                    "{},{},{},{seed},{},{},{value}",
                    text(0),
                    text(1),
                    text(2),
                    text(4),
                    text(5)
                )
            })
            .collect();
        assert_eq!(rows, csv.lines().skip(1).collect::<Vec<_>>());
    }

    #[test]
    fn failures_are_told_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        let error = write(&file.join("below"), &results())
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot write"), "{error}");
        fs::create_dir_all(dir.path().join("t/sim.json")).unwrap();
        assert!(atomic(&dir.path().join("t/sim.json"), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path().join("t")).unwrap().count(), 1);
        fs::write(dir.path().join("lab.json"), "{}").unwrap();
        assert!(
            read(dir.path(), Place::Lab)
                .unwrap_err()
                .to_string()
                .contains("not a results file")
        );
    }
}
