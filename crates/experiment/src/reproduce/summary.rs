// SPDX-License-Identifier: GPL-2.0-only
//! All papers and all claims: how many of each verdict, and what those that nobody has judged wait for. It is made from
//! the kept verdicts; nothing is run for it.
use berth_scenario::claims::Verdict;
use berth_scenario::paper::Paper;

/// The page of all papers.
pub fn summary(papers: &[Paper]) -> String {
    let mut out = String::from(
        "<!-- Made by `berth reproduce` from papers/; do not edit. -->\n# Papers\n\n\
         What papers report, and what came out here. A claim is a value or a direction that a paper reports; what\n\
         counts as its finding was written down before anything ran (`accept` in `papers/NAME/claims.toml`).\n\n",
    );
    out.push_str(&counts(papers));
    out.push_str(
        "\n*Reproduced*: within what counts as the finding. *Direction only*: the arms differ as in the paper with\n\
         95 % confidence, but not by as much. *Not testable*: fitted to the value, or nothing that is run could say\n\
         it. *Not yet*: something is missing before it can be judged.\n",
    );
    for paper in papers {
        out.push_str(&section(paper));
    }
    out
}

fn counts(papers: &[Paper]) -> String {
    let verdicts = Verdict::ALL.map(Verdict::words).join(" | ");
    let mut out = format!("| paper | claims | {verdicts} |\n|{}\n", "---|".repeat(7));
    let mut row = |name: &str, papers: &[Paper]| {
        let all: Vec<Verdict> = papers
            .iter()
            .flat_map(|p| p.claims.iter().map(|c| c.standing()))
            .collect();
        let of = |verdict| all.iter().filter(|v| **v == verdict).count().to_string();
        let of_each = Verdict::ALL.map(of).join(" | ");
        out.push_str(&format!("| {name} | {} | {of_each} |\n", all.len()));
    };
    for paper in papers {
        row(&linked(paper), std::slice::from_ref(paper));
    }
    row("all", papers);
    out
}

/// The title, with a link to the page where there is one.
fn linked(paper: &Paper) -> String {
    match paper.experiments.is_empty() {
        true => paper.title.clone(),
        false => format!("[{}]({}.md)", paper.title, paper.name),
    }
}

fn section(paper: &Paper) -> String {
    let mut out = format!(
        "\n## {}\n\n{} (`papers/{}`)\n\n{}\n",
        paper.title,
        paper.cites,
        paper.name,
        paper.about.trim()
    );
    // In the order of the file, each need once.
    let mut needs: Vec<(&str, usize)> = Vec::new();
    for need in paper
        .claims
        .iter()
        .filter_map(|claim| claim.needs.as_deref())
    {
        match needs.iter_mut().find(|(known, _)| *known == need) {
            Some((_, count)) => *count += 1,
            None => needs.push((need, 1)),
        }
    }
    if !needs.is_empty() {
        out.push_str("\n| claims | wait for |\n|---|---|\n");
    }
    for (need, count) in needs {
        out.push_str(&format!("| {count} | {} |\n", need.trim()));
    }
    out
}
