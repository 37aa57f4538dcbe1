// SPDX-License-Identifier: GPL-2.0-only
//! A paper's page: its frame, `page.md`, with what was measured in the place of each line `{{...}}`.
use super::figure::Drawn;
use super::judge::Judged;
use super::measure::Measured;
use super::over_time::Traced;
use super::{Reproduced, across, figure, over_time, table};
use crate::error::Failure;
use berth_scenario::claims::{Claim, Verdict};
use berth_scenario::diag::{At, Error, Source, nearest};
use berth_scenario::paper::Trace;
use std::sync::Arc;

/// The frame of a page.
pub const FRAME: &str = "page.md";

/// What may stand between `{{` and `}}`; those that end in a blank take the id of an experiment, or of a table.
const PARTS: [&str; 7] = [
    "verdicts",
    "waiting",
    "verdicts ",
    "tables ",
    "table ",
    "figure ",
    "experiment ",
];

/// The first line of a page of quick runs.
pub const QUICK: &str = "<!-- Of quick runs: no figure here means anything. -->";

/// The page of all experiments of a paper.
///
/// # Errors
/// The frame cannot be read, or names something that there is not; with file and line.
pub fn page(all: &Reproduced<'_>) -> Result<String, Failure> {
    let path = all.paper.folder.join(FRAME);
    let name = path.display().to_string();
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Failure::Input(format!("cannot read the frame of the page, {name}: {e}")))?;
    let source = Arc::new(Source {
        name,
        text,
        numbered: true,
    });
    let mut page = match all.quick {
        true => format!("{QUICK}\n"),
        false => String::new(),
    };
    let paper = &all.paper.name;
    page.push_str(&format!(
        "<!-- Made by `berth reproduce {paper}` from papers/{paper}; do not edit. -->\n"
    ));
    let mut start = 0;
    for line in source.text.split_inclusive('\n') {
        let at = At {
            source: source.clone(),
            span: start..start + line.trim_end().len(),
        };
        start += line.len();
        let place = line.trim().strip_prefix("{{");
        match place.and_then(|rest| rest.strip_suffix("}}")) {
            Some(what) => page.push_str(&part(all, what.trim(), &at)?),
            None => page.push_str(line),
        }
    }
    Ok(page)
}

fn part(all: &Reproduced<'_>, what: &str, at: &At) -> Result<String, Failure> {
    let (word, id) = what.split_once(' ').unwrap_or((what, ""));
    let find = || -> Result<&Measured<'_>, Failure> {
        let found = all.experiments.iter().find(|m| m.experiment.id == id);
        found.ok_or_else(|| {
            let ids = all.experiments.iter().map(|m| m.experiment.id.as_str());
            let message = format!("the paper has no experiment `{}`", id.escape_debug());
            Failure::from(Error::at(at, message).nearest(id, ids))
        })
    };
    match word {
        "verdicts" if id.is_empty() => Ok(verdicts(all, &all.judged.iter().collect::<Vec<_>>())),
        "verdicts" => {
            let id = &find()?.experiment.id;
            let own: Vec<&Judged> = all.judged.iter().filter(|j| j.experiment == *id).collect();
            Ok(verdicts(all, &own))
        }
        "waiting" if id.is_empty() => Ok(waiting(all)),
        "tables" => Ok(table::tables(find()?)),
        "figure" => Ok(picture(all, find()?)),
        "experiment" => Ok(experiment(all, find()?)),
        "table" => across::part(all, id, at),
        _ => {
            let near = nearest(word, PARTS.map(str::trim));
            let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            let message = format!("a page has no part `{}`{near}", what.escape_debug());
            let parts =
                PARTS.map(|part| format!("{part}{}", if part.ends_with(' ') { "ID" } else { "" }));
            Err(Error::at(at, message)
                .note(format!("Here may stand: {}", parts.join(", ")))
                .into())
        }
    }
}

/// An experiment from its heading to its tables.
fn experiment(all: &Reproduced<'_>, measured: &Measured<'_>) -> String {
    let experiment = measured.experiment;
    let mut parts = vec![format!("### {}: {}\n", experiment.id, experiment.title)];
    parts.extend(experiment.note.as_ref().map(|note| format!("{note}\n")));
    parts.push(picture(all, measured));
    parts.push(table::tables(measured));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// Where the figure of an experiment lies, from the page.
pub fn figure_file(paper: &str, experiment: &str) -> String {
    format!("figures/{paper}-{experiment}.svg")
}

fn picture(all: &Reproduced<'_>, measured: &Measured<'_>) -> String {
    let id = &measured.experiment.id;
    let drawn = pictures(&all.paper.name, measured).into_iter();
    let shown = drawn.map(|(file, drawn)| format!("![{id}: {}]({file})\n", drawn.words));
    shown.collect::<Vec<_>>().join("\n")
}

/// The pictures of an experiment, each with where it lies: its figure, and one for each arm of a trace.
pub fn pictures(paper: &str, measured: &Measured<'_>) -> Vec<(String, Drawn)> {
    let experiment = measured.experiment;
    let figure = figure::figure(measured).map(|drawn| (figure_file(paper, &experiment.id), drawn));
    let of_trace = |traced: &Traced<'_>| {
        let files = trace_files(paper, &experiment.id, traced.trace);
        let drawn = over_time::pictures(experiment, traced);
        files.into_iter().zip(drawn)
    };
    let traces = measured.traced.iter().flat_map(of_trace);
    figure.into_iter().chain(traces).collect()
}

/// Where the pictures of a trace lie, one for each arm.
pub fn trace_files(paper: &str, experiment: &str, trace: &Trace) -> Vec<String> {
    let of = |arm: &String| {
        let name = format!("{experiment}-{}-{arm}", trace.name);
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        figure_file(paper, &name.chars().map(plain).collect::<String>())
    };
    trace.arms.iter().map(of).collect()
}

/// A row for each claim that was judged.
pub fn verdicts(all: &Reproduced<'_>, judged: &[&Judged]) -> String {
    if all.quick {
        return "Nothing is judged from quick runs.\n".into();
    }
    let mut lines = vec![
        "| experiment | claim | paper | here | verdict | why |".to_string(),
        "|---|---|---|---|---|---|".to_string(),
    ];
    for j in judged {
        let claim = all.paper.claims.iter().find(|claim| claim.id == j.id);
        let says = claim.map_or(String::new(), |c| format!("{} ({})", c.says, c.source));
        let also = j.also.as_ref().map_or(String::new(), |(arm, said)| {
            let verdict = said.verdict.map_or("", Verdict::words);
            match verdict {
                "" => String::new(),
                verdict => format!("; `{arm}`: {}, {verdict}", said.text),
            }
        });
        lines.push(format!(
            "| {} | {says} `{}` | {} | {}{also} | **{}** | {} |",
            j.experiment,
            j.id,
            j.paper,
            j.ours.text,
            j.verdict().map_or("not judged", Verdict::words),
            j.why.as_deref().unwrap_or("-")
        ));
    }
    lines.join("\n") + "\n"
}

/// Claims that no run judges: what they need, or why nothing could say them.
fn waiting(all: &Reproduced<'_>) -> String {
    let runs = all.paper.experiments.iter().flat_map(|e| &e.runs);
    let by_a_run: Vec<&String> = runs.flat_map(|run| &run.judges).collect();
    let unjudged = |claim: &&Claim| claim.needs.is_some() || !by_a_run.contains(&&claim.id);
    let mut lines = vec![
        "| claim | verdict | why |".to_string(),
        "|---|---|---|".to_string(),
    ];
    for claim in all.paper.claims.iter().filter(unjudged) {
        let why = match (&claim.needs, &claim.why) {
            (Some(needs), _) => format!("it needs {needs}"),
            (None, Some(why)) => why.clone(),
            (None, None) => "no run judges it".into(),
        };
        let verdict = claim.standing().words();
        let (says, source, id) = (&claim.says, &claim.source, &claim.id);
        lines.push(format!("| {says} ({source}) `{id}` | {verdict} | {why} |"));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::paper::Paper;

    /// The page of a frame, of a paper without experiments.
    fn framed(frame: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FRAME), frame).unwrap();
        let mut paper = Paper {
            name: "p".into(),
            folder: dir.path().to_path_buf(),
            title: String::new(),
            cites: String::new(),
            about: String::new(),
            seeds: 1,
            check_seeds: None,
            experiments: Vec::new(),
            tables: Vec::new(),
            claims: Vec::new(),
        };
        std::fs::write(
            dir.path().join("claims.toml"),
            "[[claim]]\nid = \"A\"\nsays = \"x\"\nwhere = \"Fig. 1\"\nneeds = \"a disk\"\n",
        )
        .unwrap();
        paper.claims = berth_scenario::claims::read(&dir.path().join("claims.toml")).unwrap();
        let all = Reproduced {
            paper: &paper,
            quick: false,
            experiments: Vec::new(),
            judged: Vec::new(),
        };
        page(&all).map_err(|e| match e {
            Failure::Input(said) => said,
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn a_frame_keeps_its_words_and_gets_its_parts() {
        let page = framed("# T\n\n{{waiting}}\nEnd {{not alone}}.\n").unwrap();
        assert!(page.contains("# T\n\n| claim | verdict | why |"), "{page}");
        assert!(
            page.contains("| x (Fig. 1) `A` | not yet | it needs a disk |\nEnd {{not alone}}.\n"),
            "{page}"
        );
    }

    #[test]
    fn what_a_page_does_not_have_is_told_with_its_line() {
        let said = framed("a\n\n{{tabels EF1}}\n").unwrap_err();
        assert!(
            said.contains("did you mean `tables`?") && said.contains("page.md:3"),
            "{said}"
        );
        let said = framed("{{figure EF1}}").unwrap_err();
        assert!(
            said.contains("no experiment `EF1`") && said.contains("page.md:1"),
            "{said}"
        );
    }
}
