// SPDX-License-Identifier: GPL-2.0-only
//! `report.html`: one file that needs no network, for light, dark and paper.
//!
//! The order is that of a reader's questions: what was varied, drawn (`sweep`), what is gained and lost (`sentence`),
//! gain against price (`trade`), latency as a picture (`curve`), who waited for whom (`matrix`), the worst wait
//! (`strip`), then everything else (`tables`, `over_time`) and, last, how it was made (`made`). Pictures are drawn here
//! as SVG: the page shows all without its script, which only adds copying and pointing.
pub(crate) mod axis;
mod curve;
pub(crate) mod escape;
mod figure;
mod made;
mod matrix;
mod moves;
mod over_time;
mod sentence;
pub(crate) mod strip;
mod sweep;
mod tables;
mod trade;

pub(crate) use matrix::{group_of, table_of_waits};

use crate::text::{fixed, plain_duration};
use berth_results::experiment::{Experiment, Results};
use berth_results::schema::Place;
use escape::escape;
use figure::Figure;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Variants that are shown with all pictures; of more only sentences and tables.
const FULL_VARIANTS: usize = 4;

/// Instead of the matrix, where nobody knows.
const UNKNOWN_WAITS: &str = "<section><h2>Who waited for whom</h2><p>Not known here: the kernel's counters say how \
 long \
    a thread waited, not for whom. The simulator knows.</p></section>";

/// The page of all results of a scenario: of one place, or of several.
pub fn page(all: &[&Results]) -> String {
    let shown = |r: &Results| r.experiments.len() <= FULL_VARIANTS;
    let mut body = parts(all, |r, e| part(e, r.place, shown(r)));
    if let Some((sim, lab)) = both_places(all) {
        body.push_str(&tables::side_by_side(sim, lab));
    }
    body.push_str(&made::how(all));
    whole(all, &body)
}

/// The page's headline and figures, for where there is little room.
pub fn brief(results: &Results) -> String {
    let shown = results.experiments.len() <= FULL_VARIANTS;
    let all = [results];
    let body = parts(&all, |r, e| {
        let figures = if shown {
            figures(e, r.place)
        } else {
            String::new()
        };
        format!(
            "<article><p class=\"what\">{}</p>{}{figures}</article>",
            what(e, r.place),
            sentence::sentences(e)
        )
    });
    whole(&all, &body)
}

/// What was varied, and what `of` says of every experiment that has runs, and of one that stands alone.
fn parts(all: &[&Results], of: impl Fn(&Results, &Experiment) -> String) -> String {
    let mut body = String::new();
    for results in all {
        body.push_str(&sweep::section(results).unwrap_or_default());
        let alone = results.experiments.len() == 1;
        let shown = results
            .experiments
            .iter()
            .filter(|e| alone || !e.runs.is_empty());
        body.extend(shown.map(|e| of(results, e)));
    }
    body
}

/// A page around its body.
fn whole(all: &[&Results], body: &str) -> String {
    let title = all
        .iter()
        .flat_map(|r| &r.experiments)
        .map(|e| e.setup.title.as_str())
        .next()
        .unwrap_or("Berth");
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         img-src data:; script-src 'unsafe-inline'\">\
         <title>{0} · Berth</title><style>{STYLE}</style></head>\
         <body><header><h1>{0}</h1></header><main>{body}</main>\
         <footer>Made by Berth {1}. This file needs nothing else and asks nobody.</footer>\
         <script>{SCRIPT}</script></body></html>\n",
        escape(title),
        escape(all.first().map_or("", |r| r.provenance.version.as_str()))
    )
}

/// The first experiments of simulator and lab, if they are of the same VMs.
fn both_places<'a>(all: &[&'a Results]) -> Option<(&'a Experiment, &'a Experiment)> {
    let first = |place| all.iter().find(|r| r.place == place)?.experiments.first();
    let (sim, lab) = (first(Place::Sim)?, first(Place::Lab)?);
    (sim.setup.groups == lab.setup.groups).then_some((sim, lab))
}

/// Everything about one experiment.
fn part(e: &Experiment, place: Place, full: bool) -> String {
    let mut out = format!("<article><p class=\"what\">{}</p>", what(e, place));
    out.push_str(&sentence::sentences(e));
    if full {
        out.push_str(&figures(e, place));
    }
    out.push_str(&tables::expects(e));
    out.push_str(&tables::findings(e));
    out.push_str(&tables::metrics(e));
    out.push_str(&tables::notes(e));
    out + "</article>"
}

/// All pictures of one experiment.
fn figures(e: &Experiment, place: Place) -> String {
    let mut out = String::new();
    let put = |heading: &str, lead: &str, figures: Vec<Figure>| {
        if figures.is_empty() {
            return String::new();
        }
        let figures: String = figures.iter().map(Figure::html).collect();
        let heading = if heading.is_empty() {
            String::new()
        } else {
            format!("<h2>{heading}</h2>")
        };
        let lead = if lead.is_empty() {
            String::new()
        } else {
            format!("<p>{lead}</p>")
        };
        format!("<section class=\"group\">{heading}{lead}{figures}</section>")
    };
    out.push_str(&put("", "", trade::figure(e).into_iter().collect()));
    out.push_str(&put("Latency as a picture", "", curve::figures(e)));
    let matrix = matrix::figure(e);
    if matrix.is_none() && place != Place::Sim && !e.runs.is_empty() {
        out.push_str(UNKNOWN_WAITS);
    }
    out.push_str(&put("", "", matrix.into_iter().collect()));
    let group = strip::group(e).unwrap_or_default();
    let lead = format!(
        "The longest that a thread of {} stood in a run queue, per arm, with what all CPUs did meanwhile.",
        escape(&group)
    );
    out.push_str(&put("The worst wait", &lead, strip::figures(e)));
    out.push_str(&put("", "", over_time::figure(e).into_iter().collect()));
    out.push_str(&put("", "", moves::figure(e).into_iter().collect()));
    out
}

/// What and where, in one line.
fn what(e: &Experiment, place: Place) -> String {
    let s = &e.setup;
    let vms: u32 = s.groups.iter().map(|g| g.vms).sum();
    let vcpus: u32 = s.groups.iter().map(|g| g.vms * g.vcpus).sum();
    let count = |n: u32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let mut parts = vec![count(s.cpus, "CPU")];
    if vms > 0 {
        parts.push(format!(
            "{}, {} ({} per CPU)",
            count(vms, "VM"),
            count(vcpus, "vCPU"),
            fixed(f64::from(vcpus) / f64::from(s.cpus.max(1)), 1)
        ));
    }
    parts.push(format!(
        "{} × {}",
        plain_duration(s.measure_ns),
        count(s.seeds.len() as u32, "seed")
    ));
    parts.push(made::place_words(place).into());
    if !e.variant.is_empty() {
        parts.push(format!("with {}", e.variant.join(", ")));
    }
    escape(&parts.join(" · "))
}
