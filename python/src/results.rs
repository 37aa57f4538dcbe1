// SPDX-License-Identifier: GPL-2.0-only
//! What came out of a run, in tables.
use crate::errors;
use crate::table::Table;
use arrow_array::builder::{ListBuilder, StringBuilder, UInt64Builder};
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, UInt32Array, UInt64Array,
};
use berth_experiment::plan::Plan;
use berth_experiment::save;
use berth_report::{Style, html};
use berth_results::detail::Distribution;
use berth_results::experiment::{self, Experiment};
use berth_results::schema::{Place, RunRecord, unit_of};
use berth_results::stats::{self, BySeed};
use berth_results::{expect, rows, write};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// What came out of `berth.run`, or of the command line (`berth.load`).
#[pyclass(frozen, module = "berth")]
pub struct Results {
    results: experiment::Results,
    /// The scenario's name: that of its folder.
    name: String,
    /// The arm that the scenario compares with, if it names one.
    baseline: Option<String>,
    warnings: Vec<String>,
}

impl Results {
    pub fn new(results: experiment::Results, plan: &Plan) -> Results {
        Results {
            results,
            name: plan.name.clone(),
            baseline: plan.baseline().map(String::from),
            warnings: plan.warnings.clone(),
        }
    }

    pub fn runs(&self) -> usize {
        self.results.experiments.iter().map(|e| e.runs.len()).sum()
    }

    /// All runs, each with what `--vary` set for it.
    fn each(&self) -> impl Iterator<Item = (String, &RunRecord)> {
        self.results.experiments.iter().flat_map(|e| {
            let variant = e.variant.join(" ");
            e.runs.iter().map(move |run| (variant.clone(), run))
        })
    }
}

/// A column of text.
pub fn text<S: AsRef<str>>(values: impl Iterator<Item = S>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// A column of numbers, some of which are not there.
pub fn maybe(values: impl Iterator<Item = Option<f64>>) -> ArrayRef {
    Arc::new(Float64Array::from_iter(values))
}

pub fn whole(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn ns(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

/// `a` beside `b`, paired by seed.
pub struct Pair {
    pub a: Option<stats::Estimate>,
    pub b: Option<stats::Estimate>,
    pub difference: Option<stats::Estimate>,
    pub ratio: Option<stats::Ratio>,
}

impl Pair {
    pub fn of(a: &BySeed, b: &BySeed) -> Pair {
        let mean = |of: &BySeed| stats::estimate(&of.values().copied().collect::<Vec<_>>());
        Pair {
            a: mean(a),
            b: mean(b),
            difference: stats::paired_difference(a, b),
            ratio: stats::paired_ratio(a, b),
        }
    }

    /// The columns of a table of pairs.
    pub fn columns(pairs: &[Pair]) -> Vec<(&'static str, ArrayRef)> {
        let of = |f: &dyn Fn(&Pair) -> Option<f64>| maybe(pairs.iter().map(f));
        let side =
            |f: &dyn Fn(&stats::Ratio) -> f64| maybe(pairs.iter().map(|p| p.ratio.as_ref().map(f)));
        let interval = |f: &dyn Fn((f64, f64)) -> f64| {
            maybe(pairs.iter().map(|p| Some(f(p.ratio?.interval?))))
        };
        let n = pairs.iter().map(|p| p.difference.map_or(0, |d| d.n as i64));
        let excludes = pairs.iter().map(|p| Some(p.difference?.excludes(0.0)));
        vec![
            ("n", whole(n)),
            ("mean", of(&|p| Some(p.a?.mean))),
            ("other_mean", of(&|p| Some(p.b?.mean))),
            ("difference", of(&|p| Some(p.difference?.mean))),
            ("difference_half", of(&|p| p.difference?.half)),
            ("differs", Arc::new(BooleanArray::from_iter(excludes))),
            ("ratio", side(&|r| r.ratio)),
            ("ratio_low", interval(&|i| i.0)),
            ("ratio_high", interval(&|i| i.1)),
        ]
    }
}

/// A row of a table of pairs: whose it is.
struct Of<'a> {
    variant: String,
    arm: &'a str,
    other: &'a str,
    metric: &'a str,
}

fn paired(of: &[Of<'_>], pairs: &[Pair]) -> PyResult<Table> {
    let mut columns = vec![
        ("variant", text(of.iter().map(|o| &o.variant))),
        ("arm", text(of.iter().map(|o| o.arm))),
        ("other", text(of.iter().map(|o| o.other))),
        ("metric", text(of.iter().map(|o| o.metric))),
        ("unit", text(of.iter().map(|o| unit_of(o.metric)))),
    ];
    columns.extend(Pair::columns(pairs));
    Table::of(columns)
}

#[pymethods]
impl Results {
    /// The scenario's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Where it ran: `sim`, `lab` or `host`.
    #[getter]
    fn place(&self) -> &'static str {
        rows::place(self.results.place)
    }

    /// False: interrupted, or a run failed.
    #[getter]
    fn complete(&self) -> bool {
        self.results.complete
    }

    /// What a reader must know, a sentence each.
    #[getter]
    fn notes(&self) -> Vec<String> {
        let notes = self
            .results
            .experiments
            .iter()
            .flat_map(Experiment::all_notes);
        self.warnings.iter().cloned().chain(notes).collect()
    }

    /// Names of the arms, in order.
    #[getter]
    fn arms(&self) -> Vec<String> {
        let first = self.results.experiments.first();
        let arms = first.map_or(&[][..], |e| &e.arms);
        arms.iter().map(|a| a.name.clone()).collect()
    }

    /// The arm that the others are compared with, if there are several.
    #[getter]
    fn baseline(&self) -> Option<String> {
        self.results.experiments.first()?.baseline.clone()
    }

    /// The results file as text: the schema of the command line.
    fn to_json(&self) -> PyResult<String> {
        write::to_json(&self.results).map_err(errors::failed)
    }

    /// All values, a row each: `place`, `variant`, `arm`, `seed`, `metric`, `unit`, `value`. The values of the command
    /// line's CSV and Parquet files; `WAITER.waits_for.CAUSE` is who waited for whom.
    #[getter]
    fn metrics(&self) -> PyResult<Table> {
        let rows: Vec<rows::Row<'_>> = rows::all(&self.results).collect();
        Table::of(vec![
            ("place", text(rows.iter().map(|r| r.place))),
            ("variant", text(rows.iter().map(rows::Row::variant))),
            ("arm", text(rows.iter().map(|r| r.arm))),
            ("seed", whole(rows.iter().map(|r| r.seed as i64))),
            ("metric", text(rows.iter().map(|r| &*r.metric))),
            ("unit", text(rows.iter().map(|r| r.unit))),
            (
                "value",
                Arc::new(Float64Array::from_iter_values(rows.iter().map(|r| r.value))),
            ),
        ])
    }

    /// Who waited for whom in the measured window, ns: `variant`, `arm`, `seed`, `waiter`, `cause`, `ns`.
    #[getter]
    fn waits(&self) -> PyResult<Table> {
        let runs = self.each();
        let rows: Vec<_> = runs
            .flat_map(|(v, run)| run.waits.iter().map(move |w| (v.clone(), run, w)))
            .collect();
        Table::of(vec![
            ("variant", text(rows.iter().map(|r| &r.0))),
            ("arm", text(rows.iter().map(|r| &r.1.arm))),
            ("seed", whole(rows.iter().map(|r| r.1.seed as i64))),
            ("waiter", text(rows.iter().map(|r| &r.2.waiter))),
            ("cause", text(rows.iter().map(|r| &r.2.cause))),
            ("ns", ns(rows.iter().map(|r| r.2.ns))),
        ])
    }

    /// The worst wait of each VM group in each run, and behind whom: threads and how long each had the CPU, ns.
    #[getter]
    fn worst_waits(&self) -> PyResult<Table> {
        let runs = self.each();
        let rows: Vec<_> = runs
            .flat_map(|(v, run)| run.worst.iter().map(move |w| (v.clone(), run, w)))
            .collect();
        let mut threads = ListBuilder::new(StringBuilder::new());
        let mut times = ListBuilder::new(UInt64Builder::new());
        for (.., worst) in &rows {
            for (thread, ns) in &worst.behind {
                threads.values().append_value(thread);
                times.values().append_value(*ns);
            }
            threads.append(true);
            times.append(true);
        }
        let unfinished = rows.iter().map(|r| Some(r.2.unfinished));
        Table::of(vec![
            ("variant", text(rows.iter().map(|r| &r.0))),
            ("arm", text(rows.iter().map(|r| &r.1.arm))),
            ("seed", whole(rows.iter().map(|r| r.1.seed as i64))),
            ("group", text(rows.iter().map(|r| &r.2.group))),
            ("thread", text(rows.iter().map(|r| &r.2.thread))),
            (
                "cpu",
                Arc::new(UInt32Array::from_iter_values(rows.iter().map(|r| r.2.cpu))),
            ),
            ("ns", ns(rows.iter().map(|r| r.2.ns()))),
            ("from_ns", ns(rows.iter().map(|r| r.2.from_ns))),
            ("to_ns", ns(rows.iter().map(|r| r.2.to_ns))),
            ("unfinished", Arc::new(BooleanArray::from_iter(unfinished))),
            ("behind", Arc::new(threads.finish())),
            ("behind_ns", Arc::new(times.finish())),
        ])
    }

    /// Distributions of times as histograms, the seeds together: `variant`, `arm`, `time` (such as `web.response`),
    /// `upto_ns` (largest value of a step, steps of 4.5 %), `count`.
    #[getter]
    fn histograms(&self) -> PyResult<Table> {
        let mut rows = Vec::new();
        for e in &self.results.experiments {
            let variant = e.variant.join(" ");
            for arm in &e.arms {
                let runs: Vec<_> = e.runs.iter().filter(|r| r.arm == arm.name).collect();
                let mut times: Vec<&String> = runs.iter().flat_map(|r| r.times.keys()).collect();
                times.sort();
                times.dedup();
                for time in times {
                    let all = Distribution::merged(runs.iter().filter_map(|r| r.times.get(time)));
                    let steps = all.upto_ns.into_iter().zip(all.count);
                    rows.extend(steps.map(|s| (variant.clone(), &arm.name, time, s)));
                }
            }
        }
        Table::of(vec![
            ("variant", text(rows.iter().map(|r| &r.0))),
            ("arm", text(rows.iter().map(|r| r.1))),
            ("time", text(rows.iter().map(|r| r.2))),
            ("upto_ns", ns(rows.iter().map(|r| r.3.0))),
            ("count", ns(rows.iter().map(|r| r.3.1))),
        ])
    }

    /// Values over the measured window, in equal parts: `variant`, `arm`, `seed`, `series`, `part`, `value`.
    #[getter]
    fn series(&self) -> PyResult<Table> {
        let rows: Vec<_> = self
            .each()
            .flat_map(|(v, run)| {
                run.series.iter().flat_map(move |(name, values)| {
                    let v = v.clone();
                    let values = values.iter().enumerate();
                    values.map(move |(i, x)| (v.clone(), run, name, i, *x))
                })
            })
            .collect();
        Table::of(vec![
            ("variant", text(rows.iter().map(|r| &r.0))),
            ("arm", text(rows.iter().map(|r| &r.1.arm))),
            ("seed", whole(rows.iter().map(|r| r.1.seed as i64))),
            ("series", text(rows.iter().map(|r| r.2))),
            ("part", whole(rows.iter().map(|r| r.3 as i64))),
            ("value", maybe(rows.iter().map(|r| Some(r.4)))),
        ])
    }

    /// Means over the seeds with 95 % intervals (Student's t): `variant`, `arm`, `metric`, `unit`, `n`, `mean`, `half`
    /// (none with a single seed).
    fn estimates(&self) -> PyResult<Table> {
        let mut rows = Vec::new();
        for e in &self.results.experiments {
            for (arm, metric) in cells(e) {
                if let Some(estimate) = e.estimate(arm, metric) {
                    rows.push((e.variant.join(" "), arm, metric, estimate));
                }
            }
        }
        Table::of(vec![
            ("variant", text(rows.iter().map(|r| &r.0))),
            ("arm", text(rows.iter().map(|r| r.1))),
            ("metric", text(rows.iter().map(|r| r.2))),
            ("unit", text(rows.iter().map(|r| unit_of(r.2)))),
            ("n", whole(rows.iter().map(|r| r.3.n as i64))),
            ("mean", maybe(rows.iter().map(|r| Some(r.3.mean)))),
            ("half", maybe(rows.iter().map(|r| r.3.half))),
        ])
    }

    /// Every arm beside `baseline` (the scenario's, if none is named), paired by seed.
    #[pyo3(signature = (baseline = None))]
    fn differences(&self, baseline: Option<&str>) -> PyResult<Table> {
        let (mut of, mut pairs) = (Vec::new(), Vec::new());
        for e in &self.results.experiments {
            let Some(other) = baseline.or(e.baseline.as_deref()) else {
                continue;
            };
            if !e.arms.iter().any(|a| a.name == other) {
                return Err(errors::input(format!(
                    "there is no arm `{other}` in the results"
                )));
            }
            for (arm, metric) in cells(e).filter(|(arm, _)| *arm != other) {
                let (a, b) = (e.values(arm, metric), e.values(other, metric));
                if !a.is_empty() && !b.is_empty() {
                    of.push(Of {
                        variant: e.variant.join(" "),
                        arm,
                        other,
                        metric,
                    });
                    pairs.push(Pair::of(&a, &b));
                }
            }
        }
        paired(&of, &pairs)
    }

    /// The same arms and metrics in `other` (another version, scenario or place), paired by seed.
    fn compare(&self, other: &Results) -> PyResult<Table> {
        let (mut of, mut pairs) = (Vec::new(), Vec::new());
        for e in &self.results.experiments {
            let mut beside = other.results.experiments.iter();
            let Some(beside) = beside.find(|b| b.variant == e.variant) else {
                continue;
            };
            for (arm, metric) in cells(e) {
                let (a, b) = (e.values(arm, metric), beside.values(arm, metric));
                if !a.is_empty() && !b.is_empty() {
                    of.push(Of {
                        variant: e.variant.join(" "),
                        arm,
                        other: arm,
                        metric,
                    });
                    pairs.push(Pair::of(&a, &b));
                }
            }
        }
        if of.is_empty() && self.runs() > 0 {
            return Err(errors::input(
                "nothing to compare: both have no arm with the same metrics",
            ));
        }
        paired(&of, &pairs)
    }

    /// The scenario's expectations: `arm`, `metric`, `bound`, `limit`, `value`, `holds` (none: it cannot be said),
    /// `why`.
    #[getter]
    fn expectations(&self) -> PyResult<Table> {
        let all = || self.results.experiments.iter().flat_map(|e| &e.expects);
        let words = |v: &expect::Verdict| match v.bound.at_most {
            true => "at most",
            false => "at least",
        };
        let limit = |v: &expect::Verdict| match v.bound.limit {
            expect::Limit::Absolute(x) => x.to_string(),
            expect::Limit::TimesBaseline(x) => format!("{x} x baseline"),
        };
        Table::of(vec![
            ("arm", text(all().map(|v| &v.bound.arm))),
            ("metric", text(all().map(|v| &v.bound.metric))),
            ("bound", text(all().map(words))),
            ("limit", text(all().map(limit))),
            ("value", maybe(all().map(|v| v.value))),
            (
                "holds",
                Arc::new(BooleanArray::from_iter(all().map(|v| v.holds))),
            ),
            (
                "why",
                Arc::new(StringArray::from_iter(all().map(|v| v.why.as_deref()))),
            ),
        ])
    }

    /// Writes what `berth sim` writes into the folder of the scenario's name in `out`; gives the path of the report.
    #[pyo3(signature = (out = PathBuf::from("berth-out")))]
    fn save(&self, py: Python<'_>, out: PathBuf) -> PyResult<PathBuf> {
        py.detach(|| save::save(&out, &self.name, &self.results))
            .map_err(errors::raised)
    }

    /// As `metrics`, a `pyarrow.Table`.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Bound::new(py, self.metrics()?)?.call_method0("to_arrow")
    }

    /// As `metrics`, a `pandas.DataFrame`.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Bound::new(py, self.metrics()?)?.call_method0("to_pandas")
    }

    /// As `metrics`, a `polars.DataFrame`.
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Bound::new(py, self.metrics()?)?.call_method0("to_polars")
    }

    /// How many runs there are.
    fn __len__(&self) -> usize {
        self.runs()
    }

    /// The command line's table and sentences.
    fn __str__(&self) -> String {
        let style = Style {
            colour: false,
            width: 100,
        };
        let experiments = self.results.experiments.iter();
        experiments
            .map(|e| berth_report::whole(e, self.results.place, self.baseline.as_deref(), &style))
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn __repr__(&self) -> String {
        format!(
            "<berth.Results {}: {} runs of {}>",
            self.name,
            self.runs(),
            self.arms().join(", ")
        )
    }

    /// The report's headline and figures, in a frame of their own.
    fn _repr_html_(&self) -> String {
        let page = html::brief(&self.results);
        let page = page.replace('&', "&amp;").replace('"', "&quot;");
        format!(
            "<iframe srcdoc=\"{page}\" sandbox=\"allow-scripts\" style=\"width:100%;height:640px;border:0\" \
             title=\"Berth\"></iframe>"
        )
    }
}

/// Arms and metrics, in order.
fn cells(e: &Experiment) -> impl Iterator<Item = (&str, &str)> {
    let metrics = e.metrics();
    e.arms.iter().flat_map(move |arm| {
        let metrics: Vec<&str> = metrics.iter().copied().collect();
        metrics
            .into_iter()
            .map(|metric| (arm.name.as_str(), metric))
    })
}

/// Results that were kept, of a folder: those of `place`, or of the only place that has some.
#[pyfunction]
pub fn load(folder: PathBuf, place: Option<&str>) -> PyResult<Results> {
    let places = match place {
        None => vec![Place::Sim, Place::Lab, Place::Host],
        Some("sim") => vec![Place::Sim],
        Some("lab") => vec![Place::Lab],
        Some("host") => vec![Place::Host],
        Some(other) => {
            return Err(errors::input(format!(
                "there is no place `{}`; it is sim, lab or host",
                other.escape_debug()
            )));
        }
    };
    let mut found = Vec::new();
    for place in places {
        found.extend(write::read(&folder, place).map_err(errors::input)?);
    }
    let several = found.len() > 1;
    let Some(results) = found.into_iter().next() else {
        return Err(errors::raised(save::none_in(&folder)));
    };
    if several {
        return Err(errors::input(format!(
            "{} has results of several places: say place=\"sim\" or place=\"lab\"",
            folder.display()
        )));
    }
    let first = results.experiments.first();
    Ok(Results {
        name: first.map_or(String::new(), |e| e.setup.name.clone()),
        baseline: first.and_then(|e| e.baseline.clone()),
        warnings: Vec::new(),
        results,
    })
}
