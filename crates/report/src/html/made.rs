// SPDX-License-Identifier: GPL-2.0-only
//! How it was made: last and folded.
use super::escape::escape;
use super::figure::data;
use berth_results::experiment::Results;
use berth_results::schema::Place;

pub fn place_words(place: Place) -> &'static str {
    match place {
        Place::Sim => "simulated",
        Place::Lab => "on a real kernel, in a throw-away VM",
        Place::Host => "on this host",
    }
}

pub fn how(all: &[&Results]) -> String {
    let parts: String = all.iter().map(|r| one(r)).collect();
    format!("<section><h2>How it was made</h2>{parts}</section>")
}

fn one(results: &Results) -> String {
    let p = &results.provenance;
    let mut rows = String::new();
    let mut row = |name: &str, value: &str| {
        rows.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td><code>{}</code></td></tr>",
            escape(name),
            escape(value)
        ));
    };
    row("command", &p.command);
    row("Berth", &p.version);
    row("kernel", &p.kernel);
    row("machine", &p.machine);
    if let Some(e) = results.experiments.first() {
        let seeds: Vec<String> = e.setup.seeds.iter().map(u64::to_string).collect();
        row("seeds", &seeds.join(" "));
        for arm in &e.arms {
            let hash = arm.hash.as_deref().unwrap_or("the place's own scheduler");
            row(
                &format!("policy of {}", arm.name),
                &format!("{} {hash}", arm.policy),
            );
        }
    }
    let mut hashes = String::from("variant,arm,seed,hash\n");
    for e in &results.experiments {
        for r in &e.runs {
            hashes.push_str(&super::escape::csv_row(&[
                e.variant.join(" "),
                r.arm.clone(),
                r.seed.to_string(),
                r.hash.clone(),
            ]));
        }
    }
    let whole = if results.complete {
        ""
    } else {
        "<p><span class=\"loss\">Not complete</span>: interrupted, or a run failed; what there is, is whole.</p>"
    };
    format!(
        "<details class=\"made\"><summary>{}: command, versions, scenario with all defaults</summary>{whole}\
         <div class=\"scroll\"><table class=\"plain\"><tbody>{rows}</tbody></table></div>\
         <h4>Scenario</h4><pre>{}</pre><h4>Hash of each run: equal runs, equal hash</h4>{}</details>",
        escape(place_words(results.place)),
        escape(&p.scenario),
        data(&hashes)
    )
}
