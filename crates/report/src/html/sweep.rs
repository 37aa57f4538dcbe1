// SPDX-License-Identifier: GPL-2.0-only
//! What was varied, drawn: a plot per main metric, arms as lines; of two varied addresses a plot for each value of the
//! one with fewer, and a map of who leads where.
use super::escape::{csv_row, escape};
use super::figure::{Figure, key};
use crate::effort;
use crate::plot::{Look, Plot, Point, Series, far_apart, lines_as};
use crate::table::leading_metric;
use crate::text::{time_scale, value as value_of};
use berth_results::experiment::{Experiment, Results};
use berth_results::schema::unit_of;

/// The most plots of a metric.
const MOST_PLOTS: usize = 6;
/// The most groups whose work is spoken of.
const MOST_SAID: usize = 3;
/// The most values along an axis.
const MOST_VALUES: usize = 24;

/// An address and its values, in order.
struct Varied {
    address: String,
    values: Vec<String>,
}

/// The addresses that differ between variants.
fn varied(results: &Results) -> Vec<Varied> {
    let mut all: Vec<Varied> = Vec::new();
    for set in results.experiments.iter().flat_map(|e| &e.variant) {
        let Some((address, value)) = set.split_once('=') else {
            continue;
        };
        let at = match all.iter().position(|v| v.address == address) {
            Some(at) => at,
            None => {
                all.push(Varied {
                    address: address.to_string(),
                    values: Vec::new(),
                });
                all.len() - 1
            }
        };
        if !all[at].values.iter().any(|v| v == value) {
            all[at].values.push(value.to_string());
        }
    }
    all.retain(|v| v.values.len() > 1);
    all
}

/// A value that begins with a number.
fn is_number(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}

/// The values as numbers of one unit; none if they have several that are not told apart here.
fn numbers(values: &[String]) -> Option<Vec<f64>> {
    let parts = values.iter().map(|value| {
        let digit = |c: char| c.is_ascii_digit() || matches!(c, '-' | '.');
        let end = value.find(|c| !digit(c)).unwrap_or(value.len());
        let number: f64 = value[..end].parse().ok()?;
        Some((number, value[end..].trim()))
    });
    let parts: Vec<(f64, &str)> = parts.collect::<Option<_>>()?;
    let units: Vec<&str> = parts.iter().map(|p| p.1).collect();
    if units.windows(2).all(|two| two[0] == two[1]) {
        return Some(parts.into_iter().map(|p| p.0).collect());
    }
    const KINDS: [&[(&str, f64)]; 2] = [
        &[
            ("ns", 1.0),
            ("us", 1e3),
            ("µs", 1e3),
            ("ms", 1e6),
            ("s", 1e9),
        ],
        &[
            ("B", 1.0),
            ("KiB", 1024.0),
            ("MiB", 1048576.0),
            ("GiB", 1073741824.0),
        ],
    ];
    KINDS.iter().find_map(|kind| {
        let in_one = parts.iter().map(|(number, unit)| {
            let known = kind.iter().find(|(name, _)| name == unit);
            // 0 is 0 in every unit.
            let free = unit.is_empty() && *number == 0.0;
            known
                .map(|(_, factor)| number * factor)
                .or_else(|| free.then_some(0.0))
        });
        in_one.collect()
    })
}

/// By what arms are judged.
struct Lead {
    metric: String,
    /// The most is best: work.
    most: bool,
}

impl Lead {
    /// The arm that is certainly best.
    fn best<'e>(&self, e: &'e Experiment) -> Option<&'e str> {
        match self.most {
            true => e.highest(&self.metric),
            false => e.lowest(&self.metric),
        }
    }

    fn word(&self) -> &'static str {
        match self.most {
            true => "most",
            false => "lowest",
        }
    }
}

/// How long is waited, or, where nobody waits for answers, what each group gets done.
fn leads(e: &Experiment) -> Vec<Lead> {
    if let Some(metric) = leading_metric(e) {
        return vec![Lead {
            metric,
            most: false,
        }];
    }
    let work = metrics(e).into_iter().take(MOST_SAID);
    work.map(|metric| Lead { metric, most: true }).collect()
}

/// Plots, and above them the sentence that says where the order of policies changes; none if nothing was varied.
pub fn section(results: &Results) -> Option<String> {
    let mut varied = varied(results);
    varied.sort_by_key(|v| std::cmp::Reverse(v.values.len()));
    let along = varied.first()?;
    let by = varied.get(1);
    let first = results.experiments.iter().find(|e| !e.runs.is_empty())?;
    let what: Vec<&str> = varied.iter().map(|v| v.address.as_str()).collect();
    let heading = format!("Over {}", escape(&what.join(" and ")));
    let whole = |body: &str| {
        format!("<article><section class=\"group\"><h2>{heading}</h2>{body}</section></article>")
    };
    let words = |v: &&Varied| !v.values.iter().all(|v| is_number(v));
    if let Some(words) = varied.iter().find(words) {
        return Some(whole(&format!(
            "<p>Not drawn: {} takes words, and an axis is for numbers. Each of its values stands below, all rows in \
             the CSV file.</p>",
            escape(&words.address)
        )));
    }
    if varied.len() > 2 {
        let n = varied.len();
        return Some(whole(&format!(
            "<p>Not drawn: {n} addresses vary, and a picture has room for two. Each combination stands below, all rows \
             in the CSV file.</p>"
        )));
    }
    if along.values.len() > MOST_VALUES {
        let n = along.values.len();
        return Some(whole(&format!(
            "<p>Not drawn: {} has {n} values, and a picture has room for {MOST_VALUES}. All rows are in the CSV \
             file.</p>",
            escape(&along.address)
        )));
    }
    let panels: Vec<Option<(&str, &str)>> = match by {
        None => vec![None],
        Some(by) => by
            .values
            .iter()
            .map(|v| Some((by.address.as_str(), v.as_str())))
            .collect(),
    };
    let mut out = String::new();
    // One arm has nobody to be compared with.
    let several = first.arms.iter().filter(|a| a.absent.is_none()).count() > 1;
    let leads = if several { leads(first) } else { Vec::new() };
    for panel in &panels {
        let said = leads.iter().enumerate().map(|(i, lead)| {
            let begins = i > 0 || panel.is_none();
            order(results, first, along, *panel, lead, begins)
        });
        let said: Vec<String> = said.collect();
        let with = panel.map_or(String::new(), |(address, value)| {
            escape(&format!("With {address} = {value}: "))
        });
        if !said.is_empty() {
            out.push_str(&format!("<p>{with}{}</p>", said.join(" ")));
        }
    }
    if let (Some(by), Some(lead)) = (by, leads.first()) {
        out.push_str(&map(results, first, along, by, lead));
        if panels.len() > MOST_PLOTS {
            return Some(whole(&out));
        }
    }
    let at = numbers(&along.values);
    let spread = match &at {
        None => ", at equal distances",
        Some(at) if far_apart(at.iter().copied()) => " (logarithmic)",
        Some(_) => "",
    };
    for metric in metrics(first) {
        let plots = plots(results, first, along, &panels, &metric, at.as_ref());
        let body: String = plots.iter().map(picture).collect();
        let figure = Figure {
            title: metric.clone(),
            caption: format!(
                "{} over {}{spread}.",
                match first.setup.seeds.len() {
                    0 | 1 => "Values of one seed",
                    _ => "Means over seeds with 95 % intervals",
                },
                along.address
            ),
            body,
            csv: csv(&plots, &panels),
        };
        out.push_str(&figure.html());
    }
    Some(whole(&out))
}

/// Two addresses as a map: who leads at each pair of values, in its colour.
fn map(results: &Results, first: &Experiment, along: &Varied, by: &Varied, lead: &Lead) -> String {
    let metric = lead.metric.as_str();
    let mut data = csv_row(&[
        along.address.as_str(),
        by.address.as_str(),
        lead.word(),
        "mean",
        "unit",
    ]);
    let unit = unit_of(metric);
    let mut rows = String::new();
    for other in &by.values {
        let mut cells = String::new();
        for value in &along.values {
            let e = at(
                results,
                along,
                value,
                Some((by.address.as_str(), other.as_str())),
            );
            let best = e.and_then(|e| Some((e, lead.best(e)?)));
            let Some((e, arm)) = best else {
                cells.push_str("<td class=\"none\">-</td>");
                data.push_str(&csv_row(&[value.as_str(), other.as_str(), "", "", unit]));
                continue;
            };
            let colour = e.arms.iter().position(|a| a.name == arm);
            let colour = colour.map_or("base".into(), |i| key(e, i));
            let mean = e.estimate(arm, metric).map(|x| x.mean);
            cells.push_str(&format!(
                "<td><span class=\"swatch {colour}\"></span><b>{}</b><small>{}</small></td>",
                escape(arm),
                escape(&mean.map_or(String::new(), |x| value_of(x, unit)))
            ));
            let mean = mean.map_or(String::new(), |x| x.to_string());
            data.push_str(&csv_row(&[
                value.as_str(),
                other.as_str(),
                arm,
                mean.as_str(),
                unit,
            ]));
        }
        rows.push_str(&format!(
            "<tr><th scope=\"row\">{}</th>{cells}</tr>",
            escape(other)
        ));
    }
    let head: String = along
        .values
        .iter()
        .map(|v| format!("<th scope=\"col\">{}</th>", escape(v)))
        .collect();
    let figure = Figure {
        title: format!("Who has the {} {metric}", lead.word()),
        caption: format!(
            "{} across, {} down; -: the best ones are not told apart (of {} arms).",
            along.address,
            by.address,
            first.arms.iter().filter(|a| a.absent.is_none()).count()
        ),
        body: format!(
            "<div class=\"scroll\"><table class=\"map\"><thead><tr><th></th>{head}</tr></thead>\
             <tbody>{rows}</tbody></table></div>"
        ),
        csv: data,
    };
    figure.html()
}

/// What matters of each group: how long it waits, or what it gets done.
fn metrics(e: &Experiment) -> Vec<String> {
    let measured = e.metrics();
    let effort = effort::of(e);
    let groups = e.setup.groups.iter();
    let metrics = groups.filter_map(|group| {
        let mut times = ["response.p99", "wakeup.p99"]
            .map(|q| format!("{}.{q}", group.name))
            .into_iter();
        let time = times.find(|m| measured.contains(m.as_str()) && group.class != "batch");
        time.or_else(|| Some(effort.metric(group)).filter(|m| measured.contains(m.as_str())))
    });
    metrics.take(6).collect()
}

/// The experiment of a value, in a panel.
fn at<'r>(
    results: &'r Results,
    along: &Varied,
    value: &str,
    panel: Option<(&str, &str)>,
) -> Option<&'r Experiment> {
    let wanted = format!("{}={value}", along.address);
    let other = panel.map(|(address, value)| format!("{address}={value}"));
    results.experiments.iter().find(|e| {
        e.variant.contains(&wanted) && other.as_ref().is_none_or(|other| e.variant.contains(other))
    })
}

/// A plot for each panel, all with one unit and one scale.
fn plots(
    results: &Results,
    first: &Experiment,
    along: &Varied,
    panels: &[Option<(&str, &str)>],
    metric: &str,
    at: Option<&Vec<f64>>,
) -> Vec<Plot> {
    let estimates: Vec<Vec<Series>> = panels
        .iter()
        .map(|panel| series(results, first, along, *panel, metric))
        .collect();
    let points = || {
        let series = estimates.iter().flatten();
        series.flat_map(|s| s.points.iter().flatten())
    };
    let (unit, factor) = match unit_of(metric) {
        "ns" => {
            let scale = time_scale(points().map(|p| p.mean));
            (scale.name, scale.factor)
        }
        "CPU" => ("CPUs", 1.0),
        unit => (unit, 1.0),
    };
    let shown = |p: &Point| Point {
        mean: p.mean / factor,
        half: p.half / factor,
    };
    let beside: Vec<Point> = points().map(shown).collect();
    let plot = |(panel, estimates): (&Option<(&str, &str)>, &Vec<Series>)| {
        let with = panel.map_or(String::new(), |(address, value)| {
            format!(" where {address} = {value}")
        });
        let series = estimates.iter().map(|series| Series {
            name: series.name.clone(),
            points: series
                .points
                .iter()
                .map(|p| p.as_ref().map(shown))
                .collect(),
        });
        Plot {
            title: format!("{metric}{with}"),
            x: format!("{}{with}", along.address),
            y: format!("{metric} ({unit})"),
            categories: along.values.clone(),
            series: series.collect(),
            at: at.cloned().unwrap_or_default(),
            beside: beside.clone(),
        }
    };
    panels.iter().zip(&estimates).map(plot).collect()
}

/// An arm's means in a panel, for each arm.
fn series(
    results: &Results,
    first: &Experiment,
    along: &Varied,
    panel: Option<(&str, &str)>,
    metric: &str,
) -> Vec<Series> {
    let arms = first.arms.iter().filter(|arm| arm.absent.is_none());
    arms.map(|arm| {
        let point = |value: &String| {
            let estimate = at(results, along, value, panel)?.estimate(&arm.name, metric)?;
            Some(Point {
                mean: estimate.mean,
                half: estimate.half.unwrap_or(0.0),
            })
        };
        Series {
            name: arm.label(),
            points: along.values.iter().map(point).collect(),
        }
    })
    .collect()
}

/// A picture of its own, so that its colours are its own; another one for where there is little room.
fn picture(plot: &Plot) -> String {
    let at = |width| {
        let look = Look {
            width,
            log: plot.is_wide(),
            thin: true,
            ..Look::default()
        };
        url(&lines_as(plot, &look))
    };
    format!(
        "<picture class=\"sweep\"><source media=\"(max-width: 620px)\" srcset=\"data:image/svg+xml,{}\">\
         <img alt=\"{}\" src=\"data:image/svg+xml,{}\"></picture>",
        at(380.0),
        escape(&plot.in_words()),
        at(720.0)
    )
}

/// A file as the end of an address: no blank, or a list of files would end there.
fn url(svg: &str) -> String {
    let mut url = String::new();
    for c in svg.chars() {
        match c {
            '\n' | ' ' => url.push_str("%20"),
            '%' | '#' | '"' | '<' | '>' | '&' | '\'' | ',' => {
                url.push_str(&format!("%{:02X}", c as u32));
            }
            c => url.push(c),
        }
    }
    url
}

fn csv(plots: &[Plot], panels: &[Option<(&str, &str)>]) -> String {
    let mut text = String::from("panel,value,arm,metric,mean,half\n");
    for (plot, panel) in plots.iter().zip(panels) {
        let panel = panel.map_or(String::new(), |(address, value)| {
            format!("{address}={value}")
        });
        for series in &plot.series {
            for (value, point) in plot.categories.iter().zip(&series.points) {
                if let Some(point) = point {
                    let (mean, half) = (point.mean.to_string(), point.half.to_string());
                    text.push_str(&csv_row(&[
                        panel.as_str(),
                        value.as_str(),
                        series.name.as_str(),
                        plot.y.as_str(),
                        mean.as_str(),
                        half.as_str(),
                    ]));
                }
            }
        }
    }
    text
}

/// Which arm leads where, in a sentence; `begins`: nothing of it stands before.
fn order(
    results: &Results,
    first: &Experiment,
    along: &Varied,
    panel: Option<(&str, &str)>,
    lead: &Lead,
    begins: bool,
) -> String {
    // Values in a row with the same leader.
    let mut runs: Vec<(Option<&str>, &str, &str)> = Vec::new();
    for value in &along.values {
        let best = at(results, along, value, panel).and_then(|e| lead.best(e));
        match runs.last_mut().filter(|run| run.0 == best) {
            Some(run) => run.2 = value,
            None => runs.push((best, value, value)),
        }
    }
    let words = runs.iter().map(|(best, from, to)| {
        let who = best.map_or("not told apart".to_string(), |arm| {
            format!("<b>{}</b>", escape(arm))
        });
        match from == to {
            true => format!("{who} at {}", escape(from)),
            false => format!("{who} from {} to {}", escape(from), escape(to)),
        }
    });
    let words: Vec<String> = words.collect();
    let pairs = changing(results, first, along, panel, &lead.metric);
    let the = if begins { "The" } else { "the" };
    let says = match pairs.is_empty() {
        true => format!("{the} order of policies does not change"),
        false => format!("{the} order of policies changes ({})", pairs.join(", ")),
    };
    format!(
        "{says} over {}: {} {}: {}.",
        escape(&along.address),
        lead.word(),
        escape(&lead.metric),
        words.join(", ")
    )
}

/// Pairs of arms of which one is lower at one value and the other at another one, each with 95 % confidence.
fn changing(
    results: &Results,
    first: &Experiment,
    along: &Varied,
    panel: Option<(&str, &str)>,
    metric: &str,
) -> Vec<String> {
    let all: Vec<&Experiment> = along
        .values
        .iter()
        .filter_map(|v| at(results, along, v, panel))
        .collect();
    let arms: Vec<&str> = first
        .arms
        .iter()
        .filter(|a| a.absent.is_none())
        .map(|a| a.name.as_str())
        .collect();
    let mut pairs = Vec::new();
    for (i, one) in arms.iter().enumerate() {
        for other in &arms[i + 1..] {
            let ratios = all.iter().filter_map(|e| e.ratio(one, other, metric));
            let told: Vec<f64> = ratios.filter(|r| r.differs()).map(|r| r.ratio).collect();
            if told.iter().any(|r| *r < 1.0) && told.iter().any(|r| *r > 1.0) {
                pairs.push(format!("{} and {}", escape(one), escape(other)));
            }
        }
    }
    pairs
}
