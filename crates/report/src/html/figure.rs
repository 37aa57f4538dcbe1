// SPDX-License-Identifier: GPL-2.0-only
//! What every figure has: a title, a caption, a picture, and its data to copy.
use super::escape::escape;
use berth_results::experiment::Experiment;

pub struct Figure {
    pub title: String,
    pub caption: String,
    /// SVG or HTML, already harmless.
    pub body: String,
    pub csv: String,
}

impl Figure {
    pub fn html(&self) -> String {
        format!(
            "<section class=\"figure\"><h3>{}</h3>{}<p class=\"caption\">{}</p>{}</section>",
            escape(&self.title),
            self.body,
            escape(&self.caption),
            data(&self.csv)
        )
    }
}

/// The data behind a figure: to unfold, and to copy.
pub fn data(csv: &str) -> String {
    format!(
        "<details class=\"data\"><summary>Data</summary><button type=\"button\" \
         class=\"copy\">Copy</button><pre>{}</pre></details>",
        escape(csv)
    )
}

/// Colours that differ, after which they come again.
pub const COLOURS: usize = 8;

/// Class of an arm's colour: the baseline is grey.
pub fn key(e: &Experiment, arm: usize) -> String {
    let is_base = |i: usize| e.baseline.as_deref() == Some(e.arms[i].name.as_str());
    if is_base(arm) {
        return "base".into();
    }
    let before = (0..arm).filter(|i| !is_base(*i)).count();
    format!("k{}", before % COLOURS)
}

/// Names with their colours, for pictures with several arms.
pub fn legend(entries: &[(String, String)]) -> String {
    let entries: String = entries
        .iter()
        .map(|(class, name)| {
            format!(
                "<span class=\"entry\"><span class=\"swatch {class}\"></span>{}</span>",
                escape(name)
            )
        })
        .collect();
    format!("<div class=\"legend\">{entries}</div>")
}
