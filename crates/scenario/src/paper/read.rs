// SPDX-License-Identifier: GPL-2.0-only
//! From `papers/NAME/` to a [`Paper`]. Whatever is wrong in it is found here, before anything runs.
use super::keys::{EXPERIMENT, FIGURE, PAPER, PART, ROW, RUN, SPEEDUP, TABLE, TRACE};
use super::{Experiment, Figure, Form, Over, Paper, Part, Row, Run, Speed, Speedup, Trace, table};
use crate::claims::{self, Claim};
use crate::diag::{At, Error, Result, Source, nearest};
use crate::edit::{self, Edit};
use crate::model::Scenario;
use crate::read::check_metric;
use crate::section::{Facts, Section};
use crate::tree::{self, Value};
use crate::{Input, read as read_scenario};
use std::path::Path;
use std::sync::Arc;

/// The file that makes a folder a paper.
pub const FILE: &str = "paper.toml";

/// The most seeds of a run.
const MOST_SEEDS: u32 = 10_000;

/// All papers of a folder, by name.
///
/// # Errors
/// There is no such folder, or something is wrong with one of its papers.
pub fn all(papers: &Path) -> Result<Vec<Paper>> {
    let names = names(papers)?;
    names.iter().map(|name| read(&papers.join(name))).collect()
}

/// The paper of a folder that is called `name`.
///
/// # Errors
/// There is none: the nearest name, and all names; or something is wrong with it.
pub fn named(papers: &Path, name: &str) -> Result<Paper> {
    let names = names(papers)?;
    if names.iter().any(|n| n == name) {
        return read(&papers.join(name));
    }
    let near = nearest(name, names.iter().map(String::as_str));
    let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    Err(
        Error::new(format!("there is no paper `{}`{near}", name.escape_debug()))
            .note(format!("Papers: {}", names.join(", "))),
    )
}

fn names(papers: &Path) -> Result<Vec<String>> {
    let shown = papers.display();
    let entries = std::fs::read_dir(papers).map_err(|e| {
        Error::new(format!("cannot read the folder of papers {shown}: {e}")).note(
            "Papers lie in `papers` of Berth's source: start berth there, or say where they are with --papers FOLDER",
        )
    })?;
    let folders = entries.flatten().map(|entry| entry.path());
    let mut names: Vec<String> = folders
        .filter(|folder| folder.join(FILE).is_file())
        .filter_map(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    if names.is_empty() {
        return Err(Error::new(format!(
            "there is no paper in {shown}: a paper is a folder with {FILE}"
        )));
    }
    Ok(names)
}

/// The paper in a folder.
///
/// # Errors
/// A file that cannot be read, a key that is missing, unknown or of another type, a scenario, arm, metric or claim that
/// there is not; with file and line.
pub fn read(folder: &Path) -> Result<Paper> {
    let path = folder.join(FILE);
    let name = path.display().to_string();
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Error::new(format!("cannot read the paper {name}: {e}")))?;
    let source = Arc::new(Source {
        name,
        text,
        numbered: true,
    });
    let root = tree::parse(&source)?;
    let Value::Table(table) = &root.value else {
        return Err(Error::at(&root.at, "a paper is a table"));
    };
    let facts = Facts::default();
    let file = Section::open(&PAPER, "", table, &root.at, &facts)?;
    let claims = claims::read(&folder.join("claims.toml"))?;
    let parts = file.tables("index", &PART, |section| part(&section))?;
    let mut experiments: Vec<Experiment> = Vec::new();
    file.tables("experiment", &EXPERIMENT, |section| {
        let experiment = experiment(&section, folder, &claims, &parts)?;
        if experiments.iter().any(|e| e.id == experiment.id) {
            let id = experiment.id.escape_debug();
            return Err(Error::at(
                &section.at,
                format!("there are two experiments `{id}`"),
            ));
        }
        experiments.push(experiment);
        Ok(())
    })?;
    judged_once(&experiments, &claims)?;
    let tables = file.tables("table", &TABLE, |section| {
        table::table(&section, &experiments)
    })?;
    let seeds = file.count("seeds", 1, MOST_SEEDS, "")?;
    let check_seeds = match file.table.get("check_seeds") {
        Some(_) => Some(file.count("check_seeds", 1, seeds, "")?),
        None => None,
    };
    let name = folder.file_name().unwrap_or(folder.as_os_str());
    Ok(Paper {
        name: name.to_string_lossy().into_owned(),
        folder: folder.to_path_buf(),
        title: words(&file, "title")?,
        cites: words(&file, "cites")?,
        about: words(&file, "about")?,
        seeds,
        check_seeds,
        experiments,
        tables,
        claims,
    })
}

/// A text that must be there.
pub(super) fn words(section: &Section<'_>, key: &str) -> Result<String> {
    Ok(section
        .string(key)?
        .map_or_else(String::new, |(text, _)| text))
}

pub(super) fn list(section: &Section<'_>, key: &str) -> Result<Vec<String>> {
    let found = section.strings(key)?.unwrap_or_default();
    Ok(found.into_iter().map(|(text, _)| text).collect())
}

fn part(section: &Section<'_>) -> Result<Part> {
    Ok(Part {
        name: words(section, "name")?,
        set: list(section, "set")?,
        metric: words(section, "metric")?,
        per: section.positive("per")?.unwrap_or(1.0),
        weight: section.positive("weight")?.unwrap_or(1.0),
    })
}

fn experiment(
    section: &Section<'_>,
    folder: &Path,
    claims: &[Claim],
    parts: &[Part],
) -> Result<Experiment> {
    let id = words(section, "id")?;
    if !tree::is_name(&id) {
        return Err(Error::at(
            &section.at,
            format!("`{}` cannot name an experiment", id.escape_debug()),
        )
        .label("letters, digits, - and _"));
    }
    section.node("run")?;
    let runs = section.tables("run", &RUN, |run| self::run(&run, folder, claims, parts))?;
    let figure = match section.table.get("figure") {
        Some(_) => Some(figure(&section.table("figure", &FIGURE)?, &runs)?),
        None => None,
    };
    Ok(Experiment {
        id,
        title: words(section, "title")?,
        note: section.string("note")?.map(|(text, _)| text),
        traces: section.tables("trace", &TRACE, |trace| self::trace(&trace, folder))?,
        runs,
        figure,
    })
}

fn run(section: &Section<'_>, folder: &Path, claims: &[Claim], parts: &[Part]) -> Result<Run> {
    let (file, set) = (file_of(section)?, list(section, "set")?);
    let scenario = scenario(folder, &file, set.iter())?;
    let arms = arms(section, &scenario)?;
    let speedup = match section.table.get("speedup") {
        Some(_) => Some(speedup(&section.table("speedup", &SPEEDUP)?, &arms)?),
        None => None,
    };
    let rows = section.tables("rows", &ROW, |row| {
        self::row(&row, &scenario, parts, speedup.is_some())
    })?;
    if rows.is_empty() {
        return Err(Error::at(
            &section.at,
            "a run needs `rows`: what its table shows",
        ));
    }
    let vary = list(section, "vary")?;
    edit::combinations(&vary)?;
    let parts = match rows.iter().filter(|row| of_index(&row.metric)).count() {
        0 => &[][..],
        n if n == rows.len() => parts,
        _ => {
            let why = "a run shows the index and its parts, or metrics of one run: take two runs";
            return Err(Error::at(&section.at, why));
        }
    };
    for part in parts {
        let scenario = self::scenario(folder, &file, set.iter().chain(&part.set))?;
        check_metric(&part.metric, &section.at, &scenario)?;
    }
    Ok(Run {
        name: words(section, "name")?,
        scenario: file.0,
        note: section.string("note")?.map(|(text, _)| text),
        chosen: section.table.get("arms").is_some(),
        arms,
        set,
        vary,
        each: list(section, "each")?,
        fit: section.boolean("fit")?.unwrap_or(true),
        judges: judges(section, &scenario, claims)?,
        head: words(section, "head")?,
        rows,
        parts: parts.to_vec(),
        speedup,
        at: section.at.clone(),
    })
}

fn trace(section: &Section<'_>, folder: &Path) -> Result<Trace> {
    let (file, set) = (file_of(section)?, list(section, "set")?);
    let arms = arms(section, &scenario(folder, &file, set.iter())?)?;
    let step_ns = section.duration("step")?;
    if step_ns == 0 {
        return Err(Error::at(&section.at, "`step` is a duration above 0"));
    }
    Ok(Trace {
        name: words(section, "name")?,
        scenario: file.0,
        arms,
        set,
        seed: u64::from(section.count("seed", 1, MOST_SEEDS, "")?),
        step_ns,
    })
}

/// The scenario that a run names, and where.
fn file_of(section: &Section<'_>) -> Result<(String, At)> {
    let named = section.string("scenario")?;
    Ok(named.unwrap_or_else(|| (String::new(), section.at.clone())))
}

fn scenario<'s>(
    folder: &Path,
    (file, at): &(String, At),
    set: impl Iterator<Item = &'s String>,
) -> Result<Scenario> {
    let edits: Vec<Edit> = set.cloned().map(Edit::Set).collect();
    let input = Input::from_file(&folder.join(file));
    let read = input.and_then(|input| read_scenario(&input, &edits));
    let read = read.map_err(|e| Error::at(at, e.to_string()))?;
    Ok(read.scenario)
}

/// The arms that are named, or all of the scenario; the first one is what the others are compared with.
fn arms(section: &Section<'_>, scenario: &Scenario) -> Result<Vec<String>> {
    let known: Vec<&str> = scenario.arms.iter().map(|a| a.name.as_str()).collect();
    let named = section.strings("arms")?.unwrap_or_default();
    if named.is_empty() {
        return Ok(known.into_iter().map(str::to_string).collect());
    }
    named
        .into_iter()
        .map(|(arm, at)| one_of(arm, &at, &known, "the scenario has no arm"))
        .collect()
}

/// A metric of the paper's index.
fn of_index(metric: &str) -> bool {
    metric.split('.').next() == Some(Part::INDEX)
}

fn speedup(section: &Section<'_>, arms: &[String]) -> Result<Speedup> {
    let (against, at) = section
        .string("against")?
        .unwrap_or_else(|| (String::new(), section.at.clone()));
    let known: Vec<&str> = arms.iter().map(String::as_str).collect();
    Ok(Speedup {
        against: one_of(against, &at, &known, "the run has no arm")?,
        of: word(
            section,
            "of",
            [("work", Speed::Work), ("completion", Speed::Completion)],
        )?,
    })
}

/// A metric of a run's speed-ups: of all VMs, or of one that there is.
fn of_speedup(metric: &str, at: &At, scenario: &Scenario) -> Result<()> {
    if let Some(vm) = metric.strip_prefix("speedup.of.") {
        return check_metric(&format!("{vm}.work"), at, scenario).map(|_| ());
    }
    one_of(
        metric.to_string(),
        at,
        &Speedup::ALL,
        "there is no metric of speed-ups",
    )
    .map(|_| ())
}

fn row(section: &Section<'_>, scenario: &Scenario, parts: &[Part], speedup: bool) -> Result<Row> {
    let (metric, at) = section
        .string("metric")?
        .unwrap_or_else(|| (String::new(), section.at.clone()));
    if of_index(&metric) {
        let names: Vec<String> = parts.iter().map(Part::of_index).collect();
        let all = names.iter().map(String::as_str);
        let known: Vec<&str> = all
            .chain((!parts.is_empty()).then_some(Part::INDEX))
            .collect();
        one_of(metric.clone(), &at, &known, "the paper's [[index]] has no")?;
    } else if speedup && Speedup::names(&metric) {
        of_speedup(&metric, &at, scenario)?;
    } else {
        check_metric(&metric, &at, scenario)?;
    }
    Ok(Row {
        metric,
        label: words(section, "label")?,
        per: section.positive("per")?.unwrap_or(1.0),
    })
}

/// Ids of the claims that a run judges: each is one of the scenario's own.
fn judges(section: &Section<'_>, scenario: &Scenario, claims: &[Claim]) -> Result<Vec<String>> {
    let own = scenario.reproduces.iter().flat_map(|r| &r.claims);
    let own: Vec<Claim> = own
        .flat_map(|pattern| claims::matching(claims, pattern))
        .cloned()
        .collect();
    let mut ids: Vec<String> = Vec::new();
    for (pattern, at) in section.strings("judges")?.unwrap_or_default() {
        let found = claims::matching(&own, &pattern);
        if found.is_empty() {
            let pattern_shown = pattern.escape_debug();
            return Err(Error::at(
                &at,
                format!("[reproduces] of the scenario names no claim `{pattern_shown}`"),
            )
            .nearest(&pattern, own.iter().map(|c| c.id.as_str())));
        }
        ids.extend(found.into_iter().map(|claim| claim.id.clone()));
    }
    Ok(ids)
}

/// A claim has one verdict: what it needs, that nothing could say it, or what one run of the paper says.
fn judged_once(experiments: &[Experiment], claims: &[Claim]) -> Result<()> {
    for claim in claims {
        let runs = experiments.iter().flat_map(|e| &e.runs);
        let mut judging = runs.filter(|run| run.judges.contains(&claim.id));
        let (_, Some(second)) = (judging.next(), judging.next()) else {
            continue;
        };
        return Err(Error::at(
            &second.at,
            format!("claim `{}` is judged by two runs", claim.id.escape_debug()),
        ));
    }
    Ok(())
}

fn figure(section: &Section<'_>, runs: &[Run]) -> Result<Figure> {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let mut drawn: Vec<String> = Vec::new();
    for (name, at) in section.strings("runs")?.unwrap_or_default() {
        drawn.push(one_of(name, &at, &names, "the experiment has no run")?);
    }
    if drawn.is_empty() {
        drawn.extend(names.first().map(|name| name.to_string()));
    }
    let of = |run: &&Run| drawn.contains(&run.name);
    let labels: Vec<&str> = runs
        .iter()
        .filter(of)
        .flat_map(|run| run.rows.iter().map(|row| row.label.as_str()))
        .collect();
    let arms: Vec<&str> = runs
        .iter()
        .filter(of)
        .flat_map(|run| run.arms.iter().map(String::as_str))
        .collect();
    let each = |key: &str, known: &[&str], none: &str| -> Result<Vec<String>> {
        let named = section.strings(key)?.unwrap_or_default();
        let named = named.into_iter();
        named
            .map(|(text, at)| one_of(text, &at, known, none))
            .collect()
    };
    Ok(Figure {
        form: word(
            section,
            "form",
            [("bars", Form::Bars), ("lines", Form::Lines)],
        )?,
        over: word(
            section,
            "over",
            [("rows", Over::Rows), ("variants", Over::Variants)],
        )?,
        rows: each("rows", &labels, "the runs that are drawn have no row")?,
        arms: each("arms", &arms, "the runs that are drawn have no arm")?,
        runs: drawn,
        variant: section.string("variant")?.map(|(text, _)| text),
        x: words(section, "x")?,
        y: words(section, "y")?,
    })
}

/// `text`, if it is one of those known.
pub(super) fn one_of(text: String, at: &At, known: &[&str], none: &str) -> Result<String> {
    if known.contains(&text.as_str()) {
        return Ok(text);
    }
    Err(Error::at(at, format!("{none} `{}`", text.escape_debug()))
        .nearest(&text, known.iter().copied())
        .note(format!("There are: {}", known.join(", "))))
}

/// What one of a few words means.
fn word<T: Copy, const N: usize>(
    section: &Section<'_>,
    key: &str,
    words: [(&str, T); N],
) -> Result<T> {
    let (text, at) = section
        .string(key)?
        .unwrap_or_else(|| (String::new(), section.at.clone()));
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let names = words.map(|(word, _)| word);
        Error::at(&at, format!("`{key}` is {}", names.join(" or "))).nearest(&text, names)
    })
}
