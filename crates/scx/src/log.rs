// SPDX-License-Identifier: GPL-2.0-only
//! Keeps the last lines that libbpf prints, for error messages, instead of letting them reach the terminal.
use libbpf_rs::{PrintCallback, PrintLevel, set_print};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

/// Lines kept: enough for the verifier's last instructions and its verdict.
const KEEP: usize = 40;

static LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());
static TURN: Mutex<()> = Mutex::new(());

/// Collects while it lives; one at a time per process, since libbpf's print hook is global.
pub(crate) struct Capture {
    _turn: MutexGuard<'static, ()>,
    before: Option<(PrintLevel, PrintCallback)>,
}

impl Capture {
    pub fn start() -> Capture {
        let turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
        lines().clear();
        let before = set_print(Some((PrintLevel::Info, keep)));
        Capture {
            _turn: turn,
            before,
        }
    }

    /// The last lines so far, indented by two spaces.
    pub fn text(&self) -> String {
        let l: Vec<String> = lines().iter().map(|s| format!("  {s}")).collect();
        l.join("\n")
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        set_print(self.before.take());
    }
}

fn lines() -> MutexGuard<'static, VecDeque<String>> {
    LINES.lock().unwrap_or_else(|e| e.into_inner())
}

fn keep(_level: PrintLevel, text: String) {
    let mut l = lines();
    for line in text.lines().filter(|s| !s.trim().is_empty()) {
        if l.len() == KEEP {
            l.pop_front();
        }
        l.push_back(line.trim_end().to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_lines_only() {
        let c = Capture::start();
        for i in 0..100 {
            keep(PrintLevel::Warn, format!("line {i}\n\n"));
        }
        let t = c.text();
        assert_eq!(t.lines().count(), KEEP);
        assert!(t.ends_with("  line 99"));
    }
}
