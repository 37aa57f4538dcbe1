// SPDX-License-Identifier: GPL-2.0-only
//! What came out of a sweep, as tables and as one Parquet file.
use super::columns::{self, Column, Kind, Lazy, Named};
use crate::errors;
use crate::results::Pair;
use crate::table::Table;
use berth_results::schema::unit_of;
use berth_results::stats::{self, BySeed};
use berth_results::write;
use bytes::Bytes;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is set at a point.
#[derive(Clone, Debug, PartialEq, FromPyObject)]
pub enum Value {
    Whole(i64),
    Number(f64),
    Text(String),
}

/// `ADDRESS` and value, in the user's order.
pub type Point = Vec<(String, Value)>;

/// How it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    pub name: String,
    /// The arm that the scenario compares with, if it names one.
    pub baseline: Option<String>,
    /// At the first point, with every default filled in.
    pub scenario: String,
    pub version: String,
}

/// Runs of a sweep, a row each, in order of points, arms and seeds.
#[pyclass(frozen, module = "berth._native")]
pub struct Runs {
    pub head: Head,
    pub complete: bool,
    pub points: Vec<Point>,
    pub point: Vec<usize>,
    pub arm: Vec<String>,
    pub seed: Vec<u64>,
    pub job: Vec<String>,
    pub hash: Vec<String>,
    /// NaN: not there.
    pub metrics: BTreeMap<String, Vec<f64>>,
}

/// The metadata of the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    head: Head,
    complete: bool,
    addresses: Vec<String>,
}

const METADATA: &str = "berth.sweep";

impl Runs {
    fn addresses(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for (address, _) in self.points.iter().flatten() {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }

    /// A column of what is set at points: whole numbers, numbers or text, whatever holds all.
    fn column(&self, address: &str, of: &[usize]) -> Column {
        let set: Vec<Option<&Value>> = of
            .iter()
            .map(|p| {
                let mut point = self.points[*p].iter();
                point.find(|(a, _)| a == address).map(|(_, v)| v)
            })
            .collect();
        let there = || self.points.iter().flatten().filter(|(a, _)| a == address);
        if there().all(|(_, v)| matches!(v, Value::Whole(_))) {
            let whole = |v: &Option<&Value>| match v {
                Some(Value::Whole(n)) => Some(*n),
                _ => None,
            };
            Column::Whole(set.iter().map(whole).collect())
        } else if there().all(|(_, v)| !matches!(v, Value::Text(_))) {
            let number = |v: &Option<&Value>| match v {
                Some(Value::Whole(n)) => Some(*n as f64),
                Some(Value::Number(x)) => Some(*x),
                _ => None,
            };
            Column::Number(set.iter().map(number).collect())
        } else {
            Column::Text(set.iter().map(|v| v.map(ToString::to_string)).collect())
        }
    }

    fn columns<'a>(&'a self) -> Vec<Lazy<'a>> {
        let mut columns = Vec::new();
        let mut add = |name: &str, kind: Kind, make: Box<dyn Fn() -> Column + 'a>| {
            let name = name.to_string();
            columns.push(Lazy { name, kind, make });
        };
        add(
            "point",
            Kind::Whole,
            Box::new(|| Column::counts(self.point.iter().map(|p| *p as i64))),
        );
        for address in self.addresses() {
            let kind = self.column(&address, &[]).kind();
            let name = address.clone();
            let make = move || self.column(&name, &self.point);
            add(&address, kind, Box::new(make));
        }
        add(
            "arm",
            Kind::Text,
            Box::new(|| Column::words(self.arm.iter())),
        );
        add(
            "seed",
            Kind::Whole,
            Box::new(|| Column::counts(self.seed.iter().map(|s| *s as i64))),
        );
        for (name, values) in &self.metrics {
            let there = |v: &f64| (!v.is_nan()).then_some(*v);
            let make = move || Column::Number(values.iter().map(there).collect());
            add(name, Kind::Number, Box::new(make));
        }
        for (name, values) in [("job", &self.job), ("hash", &self.hash)] {
            let make = move || Column::words(values.iter());
            add(name, Kind::Text, Box::new(make));
        }
        columns
    }

    /// Rows of each point and arm.
    fn cells(&self) -> Vec<std::ops::Range<usize>> {
        let mut cells: Vec<std::ops::Range<usize>> = Vec::new();
        for i in 0..self.arm.len() {
            match cells.last_mut() {
                Some(last)
                    if self.point[last.start] == self.point[i]
                        && self.arm[last.start] == self.arm[i] =>
                {
                    last.end = i + 1;
                }
                _ => cells.push(i..i + 1),
            }
        }
        cells
    }

    fn values(&self, cell: &std::ops::Range<usize>, metric: &str) -> BySeed {
        let Some(values) = self.metrics.get(metric) else {
            return BySeed::new();
        };
        let rows = cell.clone().filter(|i| !values[*i].is_nan());
        rows.map(|i| (self.seed[i], values[i])).collect()
    }

    /// The metrics that are meant; all, if none are named.
    fn chosen<'a>(&'a self, metrics: &'a Option<Vec<String>>) -> PyResult<Vec<&'a String>> {
        let Some(metrics) = metrics else {
            return Ok(self.metrics.keys().collect());
        };
        for name in metrics {
            if !self.metrics.contains_key(name) && !self.arm.is_empty() {
                let all = self.metrics.keys().map(String::as_str);
                let near = berth_scenario::diag::nearest(name, all)
                    .map_or(String::new(), |n| format!("; did you mean `{n}`?"));
                return Err(errors::input(format!(
                    "the sweep has no metric `{}`{near}",
                    name.escape_debug()
                )));
            }
        }
        Ok(metrics.iter().collect())
    }
}

/// The columns that say what a row is of: point, what is set there, arm.
fn of_rows(runs: &Runs, cells: &[usize]) -> Vec<Named> {
    let points: Vec<usize> = cells.iter().map(|i| runs.point[*i]).collect();
    let numbers = points.iter().map(|p| *p as i64);
    let mut columns = vec![("point".to_string(), Column::counts(numbers))];
    for address in runs.addresses() {
        let column = runs.column(&address, &points);
        columns.push((address, column));
    }
    let arms = cells.iter().map(|i| &runs.arm[*i]);
    columns.push(("arm".to_string(), Column::words(arms)));
    columns
}

fn metric_and_unit(columns: &mut Vec<Named>, names: &[&String]) {
    let units = names.iter().map(|n| unit_of(n));
    columns.push(("metric".into(), Column::words(names.iter())));
    columns.push(("unit".into(), Column::words(units)));
}

#[pymethods]
impl Runs {
    #[getter]
    fn name(&self) -> &str {
        &self.head.name
    }

    #[getter]
    fn baseline(&self) -> Option<&str> {
        self.head.baseline.as_deref()
    }

    #[getter]
    fn scenario(&self) -> &str {
        &self.head.scenario
    }

    #[getter]
    fn complete(&self) -> bool {
        self.complete
    }

    /// Addresses that vary, in the user's order.
    #[getter(addresses)]
    fn all_addresses(&self) -> Vec<String> {
        self.addresses()
    }

    #[getter(metrics)]
    fn metric_names(&self) -> Vec<String> {
        self.metrics.keys().cloned().collect()
    }

    #[getter]
    fn arms(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for arm in &self.arm {
            if !all.contains(arm) {
                all.push(arm.clone());
            }
        }
        all
    }

    fn __len__(&self) -> usize {
        self.arm.len()
    }

    fn table(&self) -> PyResult<Table> {
        let columns = self.columns();
        let columns = columns
            .iter()
            .map(|c| (c.name.as_str(), (c.make)().arrow()));
        Table::of(columns.collect())
    }

    fn estimates(&self, metrics: Option<Vec<String>>) -> PyResult<Table> {
        let (mut rows, mut names, mut all) = (Vec::new(), Vec::new(), Vec::new());
        let chosen = self.chosen(&metrics)?;
        for cell in self.cells() {
            for metric in &chosen {
                let values: Vec<f64> = self.values(&cell, metric).into_values().collect();
                if let Some(estimate) = stats::estimate(&values) {
                    rows.push(cell.start);
                    names.push(*metric);
                    all.push(estimate);
                }
            }
        }
        let mut columns = of_rows(self, &rows);
        metric_and_unit(&mut columns, &names);
        let n = Column::counts(all.iter().map(|e| e.n as i64));
        let mean = Column::Number(all.iter().map(|e| Some(e.mean)).collect());
        let half = Column::Number(all.iter().map(|e| e.half).collect());
        columns.extend([
            ("n".into(), n),
            ("mean".into(), mean),
            ("half".into(), half),
        ]);
        Table::of_named(&columns, Vec::new())
    }

    fn differences(
        &self,
        baseline: Option<String>,
        metrics: Option<Vec<String>>,
    ) -> PyResult<Table> {
        let cells = self.cells();
        let known = self.arms();
        let base = baseline.clone().or(self.head.baseline.clone());
        let base = base.or_else(|| known.first().cloned()).unwrap_or_default();
        if !known.contains(&base) && !self.arm.is_empty() {
            return Err(errors::input(format!(
                "there is no arm `{base}` in the sweep; its arms: {}",
                known.join(", ")
            )));
        }
        let chosen = self.chosen(&metrics)?;
        let (mut rows, mut names, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
        for cell in cells.iter().filter(|c| self.arm[c.start] != base) {
            let mut others = cells.iter();
            let Some(other) = others.find(|o| {
                self.point[o.start] == self.point[cell.start] && self.arm[o.start] == base
            }) else {
                continue;
            };
            for metric in &chosen {
                let (a, b) = (self.values(cell, metric), self.values(other, metric));
                if !a.is_empty() && !b.is_empty() {
                    rows.push(cell.start);
                    names.push(*metric);
                    pairs.push(Pair::of(&a, &b));
                }
            }
        }
        let mut columns = of_rows(self, &rows);
        columns.push(("other".into(), Column::words(rows.iter().map(|_| &base))));
        metric_and_unit(&mut columns, &names);
        Table::of_named(&columns, Pair::columns(&pairs))
    }

    /// Writes all as one file, whole or not at all.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            let kept = Kept {
                head: self.head.clone(),
                complete: self.complete,
                addresses: self.addresses(),
            };
            let kept = serde_json::to_string(&kept).map_err(errors::failed)?;
            let bytes = columns::write(&self.columns(), vec![(METADATA, kept)]);
            write::atomic(&path, &bytes.map_err(errors::failed)?).map_err(errors::failed)
        })
    }

    /// Reads what `write` wrote.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Runs> {
        py.detach(|| {
            let wrong =
                |why: String| errors::input(format!("{} is no sweep: {why}", path.display()));
            let bytes = std::fs::read(&path)
                .map_err(|e| errors::input(format!("cannot read {}: {e}", path.display())))?;
            let (columns, kept) =
                columns::read(Bytes::from(bytes), METADATA).map_err(|e| wrong(e.to_string()))?;
            let kept = kept.ok_or_else(|| wrong("it does not say how it was made".into()))?;
            let kept: Kept = serde_json::from_str(&kept).map_err(|e| wrong(e.to_string()))?;
            of_columns(columns, kept).map_err(wrong)
        })
    }
}

/// No sweep has more points.
const MOST_POINTS: u64 = 10_000_000;

fn of_columns(columns: Vec<Named>, kept: Kept) -> Result<Runs, String> {
    let own = ["point", "arm", "seed", "job", "hash"];
    let mut runs = Runs {
        head: kept.head,
        complete: kept.complete,
        points: Vec::new(),
        point: Vec::new(),
        arm: columns::words(&columns, "arm")?,
        seed: columns::counts(&columns, "seed")?,
        job: columns::words(&columns, "job")?,
        hash: columns::words(&columns, "hash")?,
        metrics: BTreeMap::new(),
    };
    for (row, at) in columns::counts(&columns, "point")?.into_iter().enumerate() {
        if at > MOST_POINTS {
            return Err(format!("point {at} cannot be"));
        }
        let at = at as usize;
        if runs.points.len() <= at {
            runs.points.resize(at + 1, Point::new());
        }
        runs.point.push(at);
        if !runs.points[at].is_empty() {
            continue;
        }
        for address in &kept.addresses {
            let value = match columns::named(&columns, address)? {
                Column::Whole(values) => values[row].map(Value::Whole),
                Column::Number(values) => values[row].map(Value::Number),
                Column::Text(values) => values[row].clone().map(Value::Text),
            };
            runs.points[at].extend(value.map(|v| (address.clone(), v)));
        }
    }
    for (name, column) in columns {
        if own.contains(&name.as_str()) || kept.addresses.contains(&name) {
            continue;
        }
        let Column::Number(values) = column else {
            return Err(format!("column {name} is no number"));
        };
        let values = values.into_iter().map(|v| v.unwrap_or(f64::NAN));
        runs.metrics.insert(name, values.collect());
    }
    Ok(runs)
}
