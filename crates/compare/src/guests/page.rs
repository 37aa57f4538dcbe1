// SPDX-License-Identifier: GPL-2.0-only
//! Real guests beside the simulator, as text: a table for the terminal, and a page of the book.
use crate::guests::judge::{Beside, Row, What};
use crate::judge::Verdict;
use std::fmt::Write;

/// How many rows were judged, and held.
pub fn tally(all: &[Beside]) -> (usize, usize) {
    let rows = || all.iter().flat_map(|b| &b.rows);
    let judged = rows().filter(|r| !matches!(r.verdict, Verdict::NotJudged(_)));
    let held = rows().filter(|r| r.verdict == Verdict::Within);
    (judged.count(), held.count())
}

/// One sentence.
pub fn sum(all: &[Beside]) -> String {
    let (judged, held) = tally(all);
    let cases = all.iter().filter(|b| b.absent.is_none()).count();
    format!(
        "{cases} of {} cases compared: {held} of {judged} judged rows within their bounds",
        all.len()
    )
}

/// A case for the terminal.
pub fn table(b: &Beside) -> String {
    let mut out = format!("\n{}: {}\n", b.case, b.title);
    if let Some(why) = &b.absent {
        let _ = writeln!(out, "  not compared: {why}");
        return out;
    }
    let _ = writeln!(
        out,
        "  {:<22} {:>10}  {:>10}",
        "", "simulator", "real guest"
    );
    for row in &b.rows {
        let verdict = match &row.verdict {
            Verdict::Within => "ok".to_string(),
            Verdict::Broken => "BROKEN".to_string(),
            Verdict::NotJudged(why) => format!("not judged: {why}"),
        };
        let (sim, real) = (row.what.shown(row.sim), row.what.shown(row.real));
        let _ = writeln!(
            out,
            "  {:<22} {sim:>10}  {real:>10}  {verdict}",
            row.what.name()
        );
    }
    out
}

/// The table of the book: one line per case, simulator / real guest; what breaks its bound is bold.
pub fn markdown(all: &[Beside]) -> String {
    let mut out = format!("{}.\n\n", sum(all));
    out.push_str(
        "| case | others | guest | response mean | p50 | p90 | p99 | hog ran in a wait, most | steal | shares |\n\
         |---|---:|---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for b in all {
        let guest = match (b.steal_accounting, b.hrtick) {
            (true, true) => "",
            (false, true) => "no steal accounting",
            (true, false) => "no HRTICK",
            (false, false) => "no steal accounting, no HRTICK",
        };
        let _ = write!(
            out,
            "| {} ({}) | {} | {guest} |",
            b.title, b.case, b.competitors
        );
        if let Some(why) = &b.absent {
            let _ = writeln!(out, " {why} | | | | | | |");
            continue;
        }
        let cell = |what: What| {
            let row = b.rows.iter().find(|r| r.what == what);
            row.map_or(String::new(), shown)
        };
        for what in [
            What::Mean,
            What::P50,
            What::P90,
            What::P99,
            What::HogRan,
            What::Steal,
        ] {
            let _ = write!(out, " {} |", cell(what));
        }
        let shares = b.rows.iter().filter_map(|r| match &r.what {
            What::Share(task) if r.real.is_some() => Some(format!("{task} {}", shown(r))),
            _ => None,
        });
        let _ = writeln!(out, " {} |", shares.collect::<Vec<_>>().join(", "));
    }
    out.push_str(&explained(all));
    let mut notes: Vec<(&String, Vec<&str>)> = Vec::new();
    for b in all {
        let Some(note) = &b.note else { continue };
        match notes.iter_mut().find(|(n, _)| *n == note) {
            Some((_, cases)) => cases.push(&b.case),
            None => notes.push((note, vec![&b.case])),
        }
    }
    for (note, cases) in notes {
        let _ = write!(out, "\n- {}: {note}", cases.join(", "));
    }
    out.push('\n');
    out
}

/// Of each case of which one without competitors is known: how much of its difference is what an answer takes longer
/// there.
fn explained(all: &[Beside]) -> String {
    let mut out = String::new();
    for b in all {
        let mean = b.rows.iter().find(|r| r.what == What::Mean);
        let (Some(mean), Some(expected)) = (mean, b.expected(all)) else {
            continue;
        };
        let (Some(sim), Some(real)) = (mean.sim, mean.real) else {
            continue;
        };
        let of = |value: f64| What::Mean.shown(Some(value));
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {:.2} |",
            b.case,
            of(sim),
            of(expected),
            of(real),
            real / expected
        );
    }
    if out.is_empty() {
        return out;
    }
    format!(
        "\n## What the emulator adds\n\nAn emulated guest takes longer for an answer than a simulated one also with \
         nobody \
         beside it. That is run time of its vCPU, so\nbeside others it is as many times longer as the vCPU has less \
         than a CPU: \
         expected = simulated + (real - simulated, alone) / (1 - steal).\nOf means; not judged, and used for \
         nothing.\n\n\
         | case | simulated | expected | real | real / expected |\n|---|---:|---:|---:|---:|\n{out}"
    )
}

fn shown(row: &Row) -> String {
    let text = format!("{} / {}", row.what.shown(row.sim), row.what.shown(row.real));
    match row.verdict {
        Verdict::Within => text,
        Verdict::Broken => format!("**{text}**"),
        Verdict::NotJudged(_) => format!("({text})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_counts_and_marks_what_is_broken() {
        let row = |what, verdict| Row {
            what,
            sim: Some(2e6),
            real: Some(1e6),
            verdict,
        };
        let case = |name: &str, rows, absent: Option<&str>| Beside {
            case: name.into(),
            title: "T".into(),
            competitors: 1,
            steal_accounting: true,
            hrtick: false,
            alone: (name == "b").then(|| "a".to_string()),
            absent: absent.map(String::from),
            answers: (1, 1),
            rows,
            note: Some("n".into()),
        };
        let rows = vec![
            row(What::Mean, Verdict::Within),
            row(What::P50, Verdict::Broken),
            row(What::P99, Verdict::NotJudged("rare".into())),
        ];
        let all = [case("a", rows, None), case("b", vec![], Some("no record"))];
        assert_eq!(tally(&all), (2, 1));
        let page = markdown(&all);
        for text in [
            "1 of 2 cases compared: 1 of 2 judged rows",
            "| T (a) | 1 | no HRTICK | 2.00 ms / 1.00 ms | **2.00 ms / 1.00 ms** |",
            "(2.00 ms / 1.00 ms)",
            "| no record |",
            "- a, b: n",
        ] {
            assert!(page.contains(text), "{text}\n{page}");
        }
        assert!(table(&all[0]).contains("BROKEN"));
        assert!(!page.contains("What the emulator adds"));
    }

    #[test]
    fn what_a_guest_takes_alone_is_stretched_by_its_steal() {
        let case = |name: &str, mean: (f64, f64), steal, alone: Option<&str>| Beside {
            case: name.into(),
            title: "T".into(),
            competitors: 1,
            steal_accounting: true,
            hrtick: true,
            alone: alone.map(String::from),
            absent: None,
            answers: (1, 1),
            rows: [(What::Mean, mean), (What::Steal, (steal, steal))]
                .into_iter()
                .map(|(what, (sim, real))| Row {
                    what,
                    sim: Some(sim),
                    real: Some(real),
                    verdict: Verdict::Within,
                })
                .collect(),
            note: None,
        };
        let all = [
            case("alone", (0.1e6, 0.6e6), 0.0, None),
            case("x", (2e6, 8e6), 0.75, Some("alone")),
        ];
        assert_eq!(all[1].expected(&all), Some(4e6));
        assert_eq!(all[0].expected(&all), None);
        let page = markdown(&all);
        assert!(
            page.contains("| x | 2.00 ms | 4.00 ms | 8.00 ms | 2.00 |"),
            "{page}"
        );
    }
}
