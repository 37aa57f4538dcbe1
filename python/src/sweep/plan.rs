// SPDX-License-Identifier: GPL-2.0-only
//! The jobs of a sweep: points of a grid, arms, seeds; which are done; how they are done here.
use super::chunk::{Chunk, Objects, dress, loaded, strip};
use super::part::{self, Known, Names, Row};
use super::runs::{Head, Point, Runs, Value};
use crate::attended::{Cancel, Counts, attended};
use crate::errors;
use crate::scenario::Scenario;
use berth_experiment::calibrate;
use berth_experiment::job::{Job, VERSION};
use berth_experiment::plan::planned;
use berth_experiment::runner::{Here, Runner};
use berth_experiment::simulator::{Running, jobs};
use berth_experiment::{Failure, Request, policies};
use berth_results::write;
use berth_scenario::Input;
use berth_scenario::support::Place;
use berth_sim::replicate::{Job as Turn, Replicate};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Runs that are finished wait so long, at most, until they are on the disk.
const FLUSH: Duration = Duration::from_secs(2);

/// The name of the folder of parts.
const PARTS: &str = "parts";

/// All seeds of an arm at a point.
struct Cell {
    point: usize,
    /// Of seed 0, without objects.
    job: Job,
}

/// A sweep's jobs, in order of points, arms and seeds; each has a number.
#[pyclass(frozen, module = "berth._native")]
pub struct Sweep {
    head: Head,
    points: Vec<Point>,
    cells: Vec<Cell>,
    seeds: Vec<u64>,
    objects: Objects,
    /// Of each job.
    keys: Vec<String>,
    /// Jobs by key: several, where points differ in what an arm does not see.
    numbers: HashMap<String, Vec<usize>>,
    workers: AtomicU64,
    warnings: Vec<String>,
    done: Mutex<Done>,
}

/// What came out, by the jobs' numbers.
#[derive(Default)]
struct Done {
    hashes: Vec<Option<String>>,
    /// Of metrics: where their values are in `columns`.
    metrics: BTreeMap<String, usize>,
    /// NaN: not there.
    columns: Vec<Vec<f64>>,
    /// Jobs.
    finished: usize,
}

impl Done {
    /// Where the values of metrics are, of so many jobs.
    fn places(&mut self, names: &Names, jobs: usize) -> Vec<usize> {
        let mut places = Vec::with_capacity(names.len());
        for name in names.iter() {
            let at = *self.metrics.entry(name.clone()).or_insert_with(|| {
                self.columns.push(vec![f64::NAN; jobs]);
                self.columns.len() - 1
            });
            places.push(at);
        }
        places
    }
}

/// What is asked for besides the points.
#[derive(FromPyObject)]
pub struct Asked {
    #[pyo3(item)]
    arms: Vec<String>,
    #[pyo3(item)]
    policies: Vec<String>,
    #[pyo3(item)]
    seeds: Option<u32>,
    #[pyo3(item)]
    checked: bool,
    #[pyo3(item)]
    calibrate: bool,
    #[pyo3(item)]
    workers: usize,
}

#[pymethods]
impl Sweep {
    /// Reads the scenario at every point; whatever is wrong is found here.
    #[staticmethod]
    fn plan(
        py: Python<'_>,
        scenario: &Scenario,
        points: Vec<Point>,
        asked: Asked,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Sweep> {
        let (cancel, counts) = (Cancel::new(), Counts::default());
        counts.all.store(points.len() as u64, Ordering::Relaxed);
        let request = scenario.request(
            asked.arms.clone(),
            asked.policies.clone(),
            asked.seeds,
            None,
        );
        let input = &scenario.input;
        let work = || planned_sweep(input, &request, points, &asked, &cancel, &counts);
        let (sweep, stopped) = attended(py, &cancel, &counts, progress.as_ref(), work)?;
        match stopped {
            Some(stopped) => Err(stopped),
            None => sweep.map_err(errors::raised),
        }
    }

    /// Jobs in all.
    fn __len__(&self) -> usize {
        self.keys.len()
    }

    /// Points in all.
    #[getter]
    fn points(&self) -> usize {
        self.points.len()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// Jobs that are done.
    #[getter]
    fn finished(&self) -> usize {
        self.lock().finished
    }

    /// Takes what is kept in a folder: parts of this version, whatever sweep they were made for. How many jobs it has,
    /// and a sentence for each part that was not used.
    fn resume(&self, py: Python<'_>, out: PathBuf) -> PyResult<(usize, Vec<String>)> {
        py.detach(|| {
            let before = self.lock().finished;
            let notes = self.take_parts(&out)?;
            Ok((self.lock().finished - before, notes))
        })
    }

    /// Numbers of jobs that are to be done; of jobs with the same key the first.
    fn todo(&self) -> Vec<usize> {
        let done = self.lock();
        let first = |n: &usize| self.numbers[&self.keys[*n]].first() == Some(n);
        let all = 0..self.keys.len();
        all.filter(|n| done.hashes[*n].is_none())
            .filter(first)
            .collect()
    }

    /// Policies' objects, by hash, for who does chunks.
    fn objects(&self) -> Objects {
        self.objects.clone()
    }

    /// Jobs as bytes for another process.
    fn chunk<'py>(&self, py: Python<'py>, numbers: Vec<usize>) -> PyResult<Bound<'py, PyBytes>> {
        let mut positions: BTreeMap<usize, usize> = BTreeMap::new();
        let mut chunk = Chunk {
            version: VERSION.into(),
            cells: Vec::new(),
            jobs: Vec::new(),
        };
        for number in numbers {
            let (cell, seed) = self.place(number)?;
            let at = *positions.entry(cell).or_insert_with(|| {
                chunk.cells.push(self.cells[cell].job.clone());
                chunk.cells.len() - 1
            });
            chunk.jobs.push((at, seed, self.keys[number].clone()));
        }
        let bytes = serde_json::to_vec(&chunk).map_err(errors::failed)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Takes what came of a chunk, and keeps it in the folder; `bytes` may be empty if a worker has written it there.
    /// How many jobs are new.
    fn accept(&self, py: Python<'_>, out: PathBuf, name: &str, bytes: &[u8]) -> PyResult<usize> {
        let path = out.join(PARTS).join(name);
        py.detach(|| {
            if bytes.is_empty() {
                let read = std::fs::read(&path);
                let read = read.map_err(|e| {
                    errors::failed(format!(
                        "cannot read {}: {e}; is the folder the same on all nodes?",
                        path.display()
                    ))
                })?;
                return self.take(&path, read);
            }
            write::atomic(&path, bytes).map_err(errors::failed)?;
            self.take(&path, bytes.to_vec())
        })
    }

    /// Where a job stands in the sweep.
    fn which(&self, number: usize) -> PyResult<String> {
        self.place(number)?;
        Ok(self.words(number))
    }

    /// Which job a sentence is about: where it stands in the sweep.
    fn whose(&self, key: &str) -> String {
        let number = self.numbers.get(key).and_then(|all| all.first());
        number.map_or(String::new(), |n| self.words(*n))
    }

    /// Does all that is to be done in this process, and keeps it in the folder. Sentences of runs that failed, one for
    /// each cell.
    fn local(
        &self,
        py: Python<'_>,
        out: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<String>> {
        let (cancel, counts) = (Cancel::new(), Counts::default());
        let todo = self.todo();
        counts.all.store(self.keys.len() as u64, Ordering::Relaxed);
        counts.done.store(self.finished() as u64, Ordering::Relaxed);
        let work = || self.do_here(&out, &todo, &cancel, &counts);
        let (failures, stopped) = attended(py, &cancel, &counts, progress.as_ref(), work)?;
        match stopped {
            Some(stopped) => Err(stopped),
            None => failures,
        }
    }

    /// All that is done, as tables.
    fn runs(&self) -> Runs {
        let done = self.lock();
        let there: Vec<usize> = (0..self.keys.len())
            .filter(|n| done.hashes[*n].is_some())
            .collect();
        let cell = |n: &usize| &self.cells[n / self.seeds.len()];
        Runs {
            head: self.head.clone(),
            complete: there.len() == self.keys.len(),
            points: self.points.clone(),
            point: there.iter().map(|n| cell(n).point).collect(),
            arm: there.iter().map(|n| cell(n).job.arm.clone()).collect(),
            seed: there
                .iter()
                .map(|n| self.seeds[n % self.seeds.len()])
                .collect(),
            job: there.iter().map(|n| self.keys[*n].clone()).collect(),
            hash: there
                .iter()
                .map(|n| done.hashes[*n].clone().unwrap_or_default())
                .collect(),
            metrics: done
                .metrics
                .iter()
                .map(|(name, at)| {
                    let values = &done.columns[*at];
                    (name.clone(), there.iter().map(|n| values[*n]).collect())
                })
                .collect(),
        }
    }
}

impl Sweep {
    fn lock(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cell and seed of a job.
    fn place(&self, number: usize) -> PyResult<(usize, u64)> {
        let cell = number / self.seeds.len();
        match self.cells.get(cell) {
            Some(_) => Ok((cell, self.seeds[number % self.seeds.len()])),
            None => Err(errors::input(format!("there is no job {number}"))),
        }
    }

    fn words(&self, number: usize) -> String {
        let cell = &self.cells[number / self.seeds.len()];
        let seed = self.seeds[number % self.seeds.len()];
        let point = self.points[cell.point].iter();
        let with: Vec<String> = point.map(|(address, v)| format!("{address}={v}")).collect();
        format!(
            "arm {}, seed {seed}, with {}",
            cell.job.arm,
            with.join(", ")
        )
    }

    fn take_parts(&self, out: &Path) -> PyResult<Vec<String>> {
        let folder = out.join(PARTS);
        let Ok(entries) = std::fs::read_dir(&folder) else {
            return Ok(Vec::new());
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        paths.retain(|p| p.extension().is_some_and(|e| e == "parquet"));
        paths.sort();
        let (mut other, mut broken) = (0, Vec::new());
        for path in paths {
            let bytes = std::fs::read(&path)
                .map_err(|e| errors::failed(format!("cannot read {}: {e}", path.display())))?;
            match part::read(Bytes::from(bytes)) {
                Ok((rows, Some(version))) if version == VERSION => self.add(rows),
                Ok(_) => other += 1,
                Err(why) => broken.push(format!("{} is not used: {why}", path.display())),
            }
        }
        if other > 0 {
            broken.push(format!(
                "{other} parts in {} are of another version than {VERSION} and were not used",
                folder.display()
            ));
        }
        Ok(broken)
    }

    fn take(&self, path: &Path, bytes: Vec<u8>) -> PyResult<usize> {
        let wrong = |why: String| errors::failed(format!("{}: {why}", path.display()));
        let (rows, version) = part::read(Bytes::from(bytes)).map_err(wrong)?;
        if version.as_deref() != Some(VERSION) {
            return Err(wrong(format!(
                "it is of version {}, and this is {VERSION}: it is not used",
                version.unwrap_or_default()
            )));
        }
        let before = self.lock().finished;
        self.add(rows);
        Ok(self.lock().finished - before)
    }

    /// Counts rows whose jobs are this sweep's and not done yet.
    fn add(&self, rows: Vec<Row>) {
        let mut done = self.lock();
        // Names are looked at once for all rows that share them.
        let mut places: HashMap<*const String, Vec<usize>> = HashMap::new();
        for row in &rows {
            for number in self.numbers.get(&row.job).into_iter().flatten() {
                if done.hashes[*number].is_some() {
                    continue;
                }
                done.hashes[*number] = Some(row.hash.clone());
                done.finished += 1;
                let places = places
                    .entry(row.names.as_ptr())
                    .or_insert_with(|| done.places(&row.names, self.keys.len()));
                for (value, at) in row.values.iter().zip(places) {
                    done.columns[*at][*number] = *value;
                }
            }
        }
    }

    /// Writes finished runs down, then counts them.
    fn keep(&self, out: &Path, rows: &mut Vec<Row>) -> PyResult<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let (name, bytes) = part::write(rows).map_err(errors::failed)?;
        write::atomic(&out.join(PARTS).join(name), &bytes).map_err(errors::failed)?;
        self.add(std::mem::take(rows));
        Ok(())
    }

    fn do_here(
        &self,
        out: &Path,
        todo: &[usize],
        cancel: &Cancel,
        counts: &Counts,
    ) -> PyResult<Vec<String>> {
        let here = Here::new(Some(cancel.flag()), loaded());
        let turns: Vec<Turn> = todo.iter().map(|n| Turn { arm: *n, seed: 0 }).collect();
        let (sender, receiver) = channel::<Row>();
        let known = Known::default();
        let replicate = Replicate {
            workers: self.workers.load(Ordering::Relaxed) as usize,
            cancel: cancel.flag(),
            progress: &|_| (),
        };
        std::thread::scope(|scope| {
            let working = scope.spawn(move || {
                replicate.run(&turns, |turn| {
                    let cell = &self.cells[turn.arm / self.seeds.len()];
                    let mut job = Job {
                        seed: self.seeds[turn.arm % self.seeds.len()],
                        ..cell.job.clone()
                    };
                    dress(&mut job, &self.objects);
                    // What is kept of it, made by the worker: whoever gathers is one thread.
                    let row = Row::of(self.keys[turn.arm].clone(), here.run(&job)?, &known);
                    let same = self.numbers[&self.keys[turn.arm]].len() as u64;
                    counts.done.fetch_add(same, Ordering::Relaxed);
                    // Nobody takes it: the disk is full, and that is said below.
                    let _ = sender.send(row);
                    Ok::<(), String>(())
                })
            });
            let mut rows = Vec::new();
            let mut kept = Instant::now();
            let mut written = Ok(());
            loop {
                let over = match receiver.recv_timeout(FLUSH.saturating_sub(kept.elapsed())) {
                    Ok(row) => {
                        rows.push(row);
                        false
                    }
                    Err(RecvTimeoutError::Timeout) => false,
                    Err(RecvTimeoutError::Disconnected) => true,
                };
                if written.is_ok() && (over || kept.elapsed() >= FLUSH) {
                    written = self.keep(out, &mut rows);
                    if written.is_err() {
                        cancel.flag().store(true, Ordering::Relaxed);
                    }
                    kept = Instant::now();
                }
                if over {
                    break;
                }
            }
            let outcome = working
                .join()
                .map_err(|_| errors::failed("internal error: a worker panicked"))?;
            written?;
            let mut failed = BTreeMap::new();
            for (turn, error) in outcome.errors() {
                let cell = turn.arm / self.seeds.len();
                let sentence = || format!("{}: {error}", self.words(turn.arm));
                failed.entry(cell).or_insert_with(sentence);
            }
            Ok(failed.into_values().collect())
        })
    }
}

fn planned_sweep(
    input: &Input,
    request: &Request,
    points: Vec<Point>,
    asked: &Asked,
    cancel: &Cancel,
    counts: &Counts,
) -> Result<Sweep, Failure> {
    let mut request = request.clone();
    let varied: Vec<String> = points
        .iter()
        .flatten()
        .map(|(address, value)| format!("{address}={value}"))
        .collect();
    if asked.calibrate {
        // What varies is not fitted.
        let fitting = Request {
            vary: varied,
            ..request.clone()
        };
        let running = Running::new(asked.workers, cancel.flag());
        if let Some(fit) = calibrate::fit(input, &fitting, &running)? {
            request.set.extend(fit.set);
        }
    }
    let loaded = loaded();
    let mut sweep = Sweep {
        head: Head::default(),
        cells: Vec::new(),
        seeds: Vec::new(),
        objects: Objects::new(),
        keys: Vec::new(),
        numbers: HashMap::new(),
        workers: AtomicU64::new(asked.workers as u64),
        warnings: Vec::new(),
        done: Mutex::default(),
        points,
    };
    for (at, point) in sweep.points.iter().enumerate() {
        if cancel.flag().load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        let mut one = request.clone();
        let changes = point.iter();
        one.set
            .extend(changes.map(|(address, value)| format!("{address}={value}")));
        let mut plan = planned(input, &one, &policies::shipped(), None)?;
        let all = jobs(&mut plan, asked.checked, &loaded)?;
        plan.check(Place::Sim, false)?;
        if at == 0 {
            sweep.seeds.clone_from(&plan.seeds);
            sweep.head = Head {
                name: plan.name.clone(),
                baseline: plan.baseline().map(String::from),
                scenario: plan
                    .variants
                    .first()
                    .map_or(String::new(), |v| v.full.clone()),
                version: VERSION.into(),
            };
        }
        if plan.seeds != sweep.seeds {
            return Err(Failure::Input(format!(
                "points cannot differ in seeds ({} and {}): say seeds=",
                sweep.seeds.len(),
                plan.seeds.len()
            )));
        }
        if plan.runs() == 0 {
            return Err(Failure::Input(plan.nothing_to_run()));
        }
        for warning in &plan.warnings {
            if !sweep.warnings.contains(warning) {
                sweep.warnings.push(warning.clone());
            }
        }
        for mut job in all.into_iter().flatten().flatten() {
            for seed in &sweep.seeds {
                job.seed = *seed;
                let key = job.key();
                let number = sweep.keys.len();
                sweep.numbers.entry(key.clone()).or_default().push(number);
                sweep.keys.push(key);
            }
            job.seed = 0;
            strip(&mut job, &mut sweep.objects);
            sweep.cells.push(Cell { point: at, job });
        }
        counts.done.fetch_add(1, Ordering::Relaxed);
    }
    sweep.done = Mutex::new(Done {
        hashes: vec![None; sweep.keys.len()],
        ..Done::default()
    });
    Ok(sweep)
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Whole(n) => write!(f, "{n}"),
            Value::Number(x) => write!(f, "{x}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}
