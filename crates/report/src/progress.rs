// SPDX-License-Identifier: GPL-2.0-only
//! Progress on the error stream: a bar on a terminal, nothing elsewhere.
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Columns of the terminal, if there is one.
pub fn columns() -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// A bar over so many runs. Safe to use from several threads; gone when dropped.
pub struct Bar(ProgressBar);

impl Bar {
    /// `visible`: standard error is a terminal and the user did not ask for silence.
    pub fn new(runs: u64, visible: bool) -> Bar {
        let target = if visible {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(runs), target);
        let template =
            "  {bar:40.cyan/dim} {pos} of {len} runs   {elapsed}, about {eta} more   {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("██░"));
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Bar(bar)
    }

    /// So many runs are done.
    pub fn at(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Words behind the bar.
    pub fn say(&self, words: impl Into<String>) {
        self.0.set_message(words.into());
    }

    /// A line above the bar, kept.
    pub fn line(&self, text: &str) {
        if self.0.is_hidden() {
            crate::say!("{text}");
        } else {
            self.0.println(text);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
