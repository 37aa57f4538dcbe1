// SPDX-License-Identifier: GPL-2.0-only
//! Results on disk: `berth-out/NAME/N/{sim,lab}.{json,csv,parquet}`, a folder for each run, numbered from 1; the newest
//! of each place is also found as `berth-out/NAME/{sim,lab}.*`, and the newest folder as `latest`.
//!
//! A file is written beside its place and renamed into it, so that there is always a whole one. What is there is never
//! written over; the same results again make no new folder.
use crate::columns::to_parquet;
use crate::experiment::{FORMAT, Results};
use crate::rows;
use crate::schema::Place;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
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
    // Threads, and processes of one number on two machines, may write the same file at once.
    let own = RandomState::new().build_hasher().finish();
    let beside = folder.join(format!(".{name}.{own:016x}"));
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
    let varied = rows::varied(results);
    let columns = rows::COLUMNS.iter().copied();
    out.write_record(columns.chain(varied.iter().map(String::as_str)))
        .map_err(error)?;
    for row in rows::all(results) {
        let value = row.value.to_string();
        let texts = row.texts();
        let set = varied.iter().map(|address| row.set(address));
        let cells = texts.iter().map(|t| &**t).chain([value.as_str()]);
        out.write_record(cells.chain(set)).map_err(error)?;
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

/// Writes the three files into the folder's next numbered one, and lets the folder show them as the newest; gives the
/// path of the JSON file as the folder shows it.
///
/// # Errors
/// See [`atomic`].
pub fn write(folder: &Path, results: &Results) -> Result<PathBuf, FileError> {
    let shown = json_path(folder, results.place);
    let json = to_json(results)?;
    if fs::read(&shown).is_ok_and(|there| there == json.as_bytes()) {
        return Ok(shown);
    }
    let csv = head(results) + &to_csv(results)?;
    let parquet = to_parquet(results).map_err(|e| FileError::Csv(e.to_string()))?;
    keep_unnumbered(folder, results.place)?;
    let numbered = next(folder)?;
    let place = results.place;
    // The JSON file last: where it is, the others are.
    atomic(&csv_path(&numbered, place), csv.as_bytes())?;
    atomic(&parquet_path(&numbered, place), &parquet)?;
    atomic(&json_path(&numbered, place), json.as_bytes())?;
    let number = numbered.file_name().map(PathBuf::from).unwrap_or_default();
    for path in [csv_path, parquet_path, json_path] {
        show(
            &path(folder, place),
            &path(&number, place),
            &path(&numbered, place),
        )?;
    }
    let latest = folder.join(LATEST);
    // Something of the user's stays.
    if latest.symlink_metadata().is_err() || latest.is_symlink() {
        show(&latest, &number, &numbered)?;
    }
    Ok(shown)
}

/// The name by which the newest numbered folder is found.
pub const LATEST: &str = "latest";

/// The numbered folder that a folder shows a place's results of.
pub fn newest(folder: &Path, place: Place) -> Option<PathBuf> {
    let target = fs::read_link(json_path(folder, place)).ok()?;
    Some(folder.join(target.parent()?))
}

/// Numbered folders, ascending.
pub fn numbered(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u64>().ok();
    let paths = entries.map(|e| e.path()).filter(|path| path.is_dir());
    let mut all: Vec<(u64, PathBuf)> = paths.filter_map(|p| Some((number(&p)?, p))).collect();
    all.sort();
    all.into_iter().map(|(_, path)| path).collect()
}

/// Finds out whether results can be written into a folder, before there are any. It leaves nothing behind, so that a
/// run that fails has no folder.
///
/// # Errors
/// They cannot.
pub fn ready(folder: &Path) -> Result<(), FileError> {
    let there = |path: &&Path| path.symlink_metadata().is_ok();
    let nearest = folder.ancestors().find(there).unwrap_or(Path::new("."));
    let own = RandomState::new().build_hasher().finish();
    let beside = nearest.join(format!(".berth.{own:016x}"));
    let written = fs::File::create_new(&beside).and_then(|mut file| file.write_all(&[0; 512]));
    let _ = fs::remove_file(&beside);
    written.map_err(|error| FileError::Write {
        path: folder.to_path_buf(),
        error,
    })
}

/// Makes the next numbered folder; several processes may at the same time.
///
/// # Errors
/// It cannot be made.
pub fn next(folder: &Path) -> Result<PathBuf, FileError> {
    let failed = |path: &Path, error| FileError::Write {
        path: path.to_path_buf(),
        error,
    };
    fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    let last = numbered(folder).into_iter().next_back();
    let last = last.and_then(|path| path.file_name()?.to_str()?.parse::<u64>().ok());
    let mut number = last.unwrap_or(0);
    loop {
        number += 1;
        let path = folder.join(number.to_string());
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => (),
            Err(e) => return Err(failed(&path, e)),
        }
    }
}

/// Results that lie in the folder itself, as Berth wrote them once, move into a numbered one.
fn keep_unnumbered(folder: &Path, place: Place) -> Result<(), FileError> {
    let paths = [csv_path, parquet_path, json_path].map(|path| path(folder, place));
    let plain = |path: &&PathBuf| path.is_file() && !path.is_symlink();
    if !paths.iter().any(|path| plain(&path)) {
        return Ok(());
    }
    let numbered = next(folder)?;
    for path in paths.iter().filter(plain) {
        let to = numbered.join(path.file_name().unwrap_or_default());
        fs::rename(path, &to).map_err(|error| FileError::Write { path: to, error })?;
    }
    Ok(())
}

/// Lets `path` lead to `target`, which is said as seen from its folder; where there are no symbolic links, a file is
/// copied.
fn show(path: &Path, target: &Path, source: &Path) -> Result<(), FileError> {
    let error = |error: io::Error| FileError::Write {
        path: path.to_path_buf(),
        error,
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    match std::os::unix::fs::symlink(target, &beside) {
        Ok(()) => fs::rename(&beside, path).map_err(|e| {
            let _ = fs::remove_file(&beside);
            error(e)
        }),
        Err(_) if source.is_file() => atomic(path, &fs::read(source).map_err(error)?),
        Err(_) => Ok(()),
    }
}

/// Reads a place's results of a folder; none if there are none.
///
/// # Errors
/// There is a file, but it cannot be read, or another version wrote it.
pub fn read(folder: &Path, place: Place) -> Result<Option<Results>, FileError> {
    match read_file(&json_path(folder, place)) {
        Err(FileError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// What tells apart the versions of results files; the rest of another version's may be anything.
#[derive(serde::Deserialize)]
struct Version {
    format: u32,
}

/// Reads one results file (JSON).
///
/// # Errors
/// It cannot be read, or is none, or another version wrote it.
pub fn read_file(path: &Path) -> Result<Results, FileError> {
    let text = fs::read_to_string(path).map_err(|error| FileError::Read {
        path: path.to_path_buf(),
        error,
    })?;
    let wrong = |error: String| FileError::Format {
        path: path.to_path_buf(),
        error,
    };
    let version: Version = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    if version.format != FORMAT {
        return Err(wrong(format!(
            "its format is {}, not {FORMAT}",
            version.format
        )));
    }
    serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))
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
        assert_eq!(
            names.len(),
            5,
            "the files, their folder, `latest`: {names:?}"
        );
        let csv = fs::read_to_string(folder.join("sim.csv")).unwrap();
        let (head, rows): (Vec<&str>, Vec<&str>) = csv.lines().partition(|l| l.starts_with('#'));
        assert!(head.contains(&"# made by: berth sim t") && head.contains(&"#   title = \"T\""));
        assert_eq!(rows.len(), 4);
        assert_eq!(
            rows[0],
            "place,variant,arm,seed,vm,quantity,statistic,metric,unit,value"
        );
        assert_eq!(rows[1], "sim,,a,1,web,response,p99,web.response.p99,ns,1.5");
    }

    #[test]
    fn what_was_varied_has_columns() {
        use parquet::file::reader::{FileReader, SerializedFileReader};
        let mut all = results();
        all.experiments.push(all.experiments[0].clone());
        all.experiments[0].variant = vec!["vm.web.count=1".into(), "run.measure=1s".into()];
        all.experiments[1].variant = vec!["vm.web.count=2".into()];
        let csv = to_csv(&all).unwrap();
        let lines: Vec<&str> = csv.lines().collect();
        assert!(
            lines[0].ends_with(",value,vm.web.count,run.measure"),
            "{}",
            lines[0]
        );
        assert!(
            lines[1].starts_with("sim,vm.web.count=1 run.measure=1s,a,1,web,"),
            "{}",
            lines[1]
        );
        assert!(lines[1].ends_with(",1.5,1,1s"), "{}", lines[1]);
        assert!(
            lines.last().unwrap().ends_with(",0.1,2,"),
            "{}",
            lines.last().unwrap()
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        fs::write(&path, to_parquet(&all).unwrap()).unwrap();
        let file = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
        let schema = file.metadata().file_metadata().schema_descr();
        let names: Vec<_> = (0..schema.num_columns())
            .map(|i| schema.column(i).name().to_string())
            .collect();
        assert_eq!(names, lines[0].split(',').collect::<Vec<_>>());
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
        assert_eq!(made("berth.schema"), rows::SCHEMA.to_string());
        let csv = to_csv(&results()).unwrap();
        let rows: Vec<String> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|r| {
                let r = r.unwrap();
                let text = |i| r.get_string(i).unwrap().clone();
                let (seed, value) = (r.get_long(3).unwrap(), r.get_double(9).unwrap());
                let middle: Vec<_> = (4..9).map(text).collect();
                format!(
                    "{},{},{},{seed},{},{value}",
                    text(0),
                    text(1),
                    text(2),
                    middle.join(",")
                )
            })
            .collect();
        assert_eq!(rows, csv.lines().skip(1).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let seen = |at: &str| fs::read_to_string(folder.join(at)).unwrap();
        // As an older Berth left it.
        fs::write(folder.join("sim.json"), "old").unwrap();
        fs::write(folder.join("sim.csv"), "old").unwrap();
        let first = results();
        write(folder, &first).unwrap();
        assert_eq!(
            (seen("1/sim.json").as_str(), seen("1/sim.csv").as_str()),
            ("old", "old")
        );
        assert_eq!(seen("sim.json"), seen("2/sim.json"));
        // The same again.
        write(folder, &first).unwrap();
        assert_eq!(numbered(folder).len(), 2);
        let other = Results {
            complete: false,
            ..results()
        };
        write(folder, &other).unwrap();
        assert_eq!(read(folder, Place::Sim).unwrap(), Some(other.clone()));
        assert_eq!(
            read(&folder.join("2"), Place::Sim).unwrap(),
            Some(first.clone())
        );
        assert_eq!(
            read(&folder.join(LATEST), Place::Sim).unwrap(),
            Some(other.clone())
        );
        assert_eq!(newest(folder, Place::Sim), Some(folder.join("3")));
        // Another place has a folder of its own, and the folder shows both.
        let lab = Results {
            place: Place::Lab,
            ..results()
        };
        write(folder, &lab).unwrap();
        assert_eq!(read(folder, Place::Sim).unwrap(), Some(other));
        assert_eq!(read(folder, Place::Lab).unwrap(), Some(lab));
        assert!(read(&folder.join("4"), Place::Sim).unwrap().is_none());
        // Whatever else is there stays: no number is taken twice.
        fs::create_dir(folder.join("17")).unwrap();
        write(folder, &first).unwrap();
        assert_eq!(newest(folder, Place::Sim), Some(folder.join("18")));
    }

    #[test]
    fn whether_results_can_be_written_is_known_before() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        ready(&at("out/t")).unwrap();
        fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink(at("nothing"), at("nowhere")).unwrap();
        for wrong in ["file", "file/t", "nowhere", "nowhere/t"] {
            let error = ready(&at(wrong)).unwrap_err().to_string();
            assert!(error.contains("cannot write"), "{error}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn several_may_write_the_same_file_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t/part");
        let write = || (0..20).for_each(|_| atomic(&path, &[7; 5000]).unwrap());
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(write))));
        assert_eq!(fs::read(&path).unwrap(), [7; 5000]);
        assert_eq!(fs::read_dir(dir.path().join("t")).unwrap().count(), 1);
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
