// SPDX-License-Identifier: GPL-2.0-only
//! The files of a page: written, or compared with those that are there.
use super::seal::Seal;
use super::{Reproduced, page};
use crate::error::Failure;
use berth_results::write::atomic;
use berth_scenario::paper::{Experiment, Paper};
use std::path::{Path, PathBuf};

/// A file as this version makes it.
pub struct Made {
    /// In the folder of pages.
    pub name: String,
    pub text: String,
}

/// The summary of all papers, in the folder of pages.
pub const SUMMARY: &str = "README.md";

/// The page of a paper, in the folder of pages.
pub fn page_of(paper: &Paper) -> String {
    format!("{}.md", paper.name)
}

/// The figures of a paper, there.
pub fn figures_of(paper: &Paper) -> Vec<String> {
    let of = |e: &Experiment| {
        let figure = e
            .figure
            .as_ref()
            .map(|_| page::figure_file(&paper.name, &e.id));
        let traces = e
            .traces
            .iter()
            .flat_map(|trace| page::trace_files(&paper.name, &e.id, trace));
        figure.into_iter().chain(traces).collect::<Vec<_>>()
    };
    paper.experiments.iter().flat_map(of).collect()
}

/// The page of a paper and its figures; sealed, if the paper wants that of its pages.
///
/// # Errors
/// See [`page::page`], [`Seal::of`].
pub fn of_paper(all: &Reproduced<'_>) -> Result<Vec<Made>, Failure> {
    let paper = &all.paper.name;
    let mut made = vec![Made {
        name: page_of(all.paper),
        text: page::page(all)?,
    }];
    let drawn = all
        .experiments
        .iter()
        .flat_map(|measured| page::pictures(paper, measured));
    made.extend(drawn.map(|(name, drawn)| Made {
        name,
        text: drawn.picture,
    }));
    if let Some(seeds) = all.paper.check_seeds.filter(|_| !all.quick) {
        let seal = Seal::of(all, seeds, &made)?;
        made[0].text.push_str(&seal.line());
    }
    Ok(made)
}

/// Writes files into a folder; gives their paths. `quick`: a page of whole runs is not overwritten.
///
/// # Errors
/// There is a page of whole runs, or the disk's.
pub fn write(out: &Path, made: &[Made], quick: bool) -> Result<Vec<PathBuf>, Failure> {
    let whole = |made: &&Made| {
        let there = std::fs::read_to_string(out.join(&made.name));
        made.name.ends_with(".md") && there.is_ok_and(|text| !text.starts_with(page::QUICK))
    };
    if let Some(page) = made.iter().find(whole).filter(|_| quick) {
        return Err(Failure::Input(format!(
            "{} is of whole runs, and this would be of quick ones: take another folder with --out",
            out.join(&page.name).display()
        )));
    }
    let write = |made: &Made| {
        let path = out.join(&made.name);
        atomic(&path, made.text.as_bytes()).map_err(|e| Failure::Run(e.to_string()))?;
        Ok(path)
    };
    made.iter().map(write).collect()
}

/// The first line of a folder's file that is not what this version makes; none if all is as it should be.
pub fn differs(out: &Path, made: &Made) -> Option<String> {
    let path = out.join(&made.name);
    let shown = path.display();
    let there = match std::fs::read_to_string(&path) {
        Ok(there) => there,
        Err(e) => return Some(format!("{shown} cannot be read: {e}")),
    };
    if there == made.text {
        return None;
    }
    let (mut old, mut new) = (there.lines(), made.text.lines());
    let mut number = 1;
    let (old, new) = loop {
        match (old.next(), new.next()) {
            (Some(a), Some(b)) if a == b => number += 1,
            (None, None) => break (None, None),
            different => break different,
        }
    };
    let words = |line: Option<&str>| line.unwrap_or("(the end)").to_string();
    Some(format!(
        "{shown}, line {number}, is not what this version gives\n  there: {}\n  now:   {}",
        words(old),
        words(new)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str) -> Made {
        Made {
            name: "p.md".into(),
            text: text.into(),
        }
    }

    #[test]
    fn the_first_line_that_differs_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            differs(dir.path(), &made("a"))
                .unwrap()
                .contains("cannot be read")
        );
        write(dir.path(), &[made("a\nb\nc\n")], false).ok().unwrap();
        assert_eq!(differs(dir.path(), &made("a\nb\nc\n")), None);
        let said = differs(dir.path(), &made("a\nB\nc\n")).unwrap();
        assert!(
            said.contains("p.md, line 2") && said.ends_with("there: b\n  now:   B"),
            "{said}"
        );
        let said = differs(dir.path(), &made("a\n")).unwrap();
        assert!(
            said.contains("line 2") && said.ends_with("now:   (the end)"),
            "{said}"
        );
    }

    #[test]
    fn quick_pages_do_not_take_the_place_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let quick = made(&format!("{}\n", page::QUICK));
        for _ in 0..2 {
            assert!(write(dir.path(), std::slice::from_ref(&quick), true).is_ok());
        }
        write(dir.path(), &[made("whole\n")], false).ok().unwrap();
        let said = write(dir.path(), &[quick], true);
        assert!(matches!(said, Err(Failure::Input(why)) if why.contains("of whole runs")));
        assert_eq!(
            std::fs::read_to_string(dir.path().join("p.md")).unwrap(),
            "whole\n"
        );
    }
}
