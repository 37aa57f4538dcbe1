// SPDX-License-Identifier: GPL-2.0-only
//! Tables, sentences and progress for the terminal. Nothing here computes statistics.
pub mod answers;
pub mod decisions;
pub mod effort;
pub mod findings;
pub mod host;
pub mod html;
pub mod perfetto;
pub mod plot;
pub mod progress;
pub mod say;
pub mod sentences;
pub mod side_by_side;
pub mod table;
pub mod text;
pub mod versus;
pub mod waiting;

use berth_results::experiment::Experiment;
use berth_results::schema::Place;

/// What the output can show.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Colour repeats only what a word already says.
    pub colour: bool,
    /// Columns.
    pub width: usize,
}

impl Style {
    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }

    pub fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn green(&self, text: &str) -> String {
        self.paint("32", text)
    }

    pub fn red(&self, text: &str) -> String {
        self.paint("31;1", text)
    }
}

/// Everything about one experiment, from its first line to its expectations.
pub fn whole(
    experiment: &Experiment,
    place: Place,
    baseline: Option<&str>,
    style: &Style,
) -> String {
    let blocks = [
        table::table(experiment, style),
        sentences::gain_and_price(experiment, style),
        waiting::lines(experiment, style),
        decisions::lines(experiment, style),
        sentences::expects(&experiment.expects, baseline, style),
        findings::findings(&experiment.findings, style),
        sentences::footnotes(experiment, style),
    ];
    let blocks: Vec<_> = blocks.into_iter().filter(|b| !b.is_empty()).collect();
    format!(
        "{}\n\n{}",
        sentences::title(experiment, place),
        blocks.join("\n")
    )
}
