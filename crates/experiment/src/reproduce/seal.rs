// SPDX-License-Identifier: GPL-2.0-only
//! The seal of a page: what it was made of, and what its first seeds gave, in some of its variants. A page whose runs
//! take minutes is held by it: where the paper's files and these results are the same, the page is taken to be so, too,
//! and need not be made.
use super::files::{self, Made};
use super::{Reproduced, over_time};
use crate::error::Failure;
use berth_report::text::significant;
use std::collections::BTreeSet;
use std::path::Path;

/// Hexadecimal digits of a hash.
const DIGITS: usize = 16;

/// Digits of a value: more than pages show.
const VALUE_DIGITS: usize = 6;

/// Of a run's variants the seal is of one in so many, where there are many.
const EVERY: usize = 3;

/// Which of the variants of a run, with one of its settings, the seal is of: the first, every third of those along
/// which one address varies, and where several do, a diagonal. Of two or three it is the first alone, so some values
/// come up in none. A variant is its `ADDRESS=VALUE`, in the order of the addresses.
pub fn chosen<'a>(variants: impl Iterator<Item = &'a [String]>) -> Vec<bool> {
    // The values of each address, in their order.
    let mut values: Vec<Vec<&str>> = Vec::new();
    let mut numbers = |variant: &'a [String]| -> usize {
        let number = |(address, value): (usize, &'a String)| {
            if values.len() == address {
                values.push(Vec::new());
            }
            let known = &mut values[address];
            known.iter().position(|v| v == value).unwrap_or_else(|| {
                known.push(value);
                known.len() - 1
            })
        };
        variant.iter().enumerate().map(number).sum()
    };
    variants
        .map(|variant| numbers(variant).is_multiple_of(EVERY))
        .collect()
}

/// What is hashed, in the order of the seal's line.
const PARTS: [&str; 3] = ["paper", "results", "page"];

/// The last line of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    hashes: [String; 3],
}

impl Seal {
    /// The seal of a page and its figures, with what its first `seeds` seeds gave.
    ///
    /// # Errors
    /// A file of the paper cannot be read.
    pub fn of(all: &Reproduced<'_>, seeds: u32, made: &[Made]) -> Result<Seal, Failure> {
        Ok(Seal {
            hashes: [folder(&all.paper.folder)?, results(all, seeds), files(made)],
        })
    }

    /// As it stands in the page.
    pub fn line(&self) -> String {
        let of = |(part, hash): (&str, &String)| format!("{part} {hash}");
        let all: Vec<String> = PARTS.into_iter().zip(&self.hashes).map(of).collect();
        format!("<!-- seal: {} -->\n", all.join(", "))
    }

    /// A page without its seal, and the seal.
    fn split(page: &str) -> Option<(&str, Seal)> {
        let start = page.trim_end().rfind('\n')? + 1;
        let (page, line) = page.split_at(start);
        let hashes = line
            .trim()
            .strip_prefix("<!-- seal: ")?
            .strip_suffix(" -->")?;
        let mut hashes = hashes.split(", ").zip(PARTS).map(|(text, part)| {
            let hash = text.strip_prefix(part)?.trim();
            Some(hash.to_string())
        });
        let mut next = || hashes.next().flatten();
        let seal = Seal {
            hashes: [next()?, next()?, next()?],
        };
        Some((page, seal))
    }
}

/// What is wrong with the page in `out` by its seal, if anything is; `all` has the results of its first `seeds` seeds.
///
/// # Errors
/// A file of the paper cannot be read.
pub fn broken(out: &Path, all: &Reproduced<'_>, seeds: u32) -> Result<Option<String>, Failure> {
    let path = out.join(files::page_of(all.paper));
    let shown = path.display();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) => return Ok(Some(format!("{shown} cannot be read: {e}"))),
    };
    let Some((page, kept)) = Seal::split(&text) else {
        return Ok(Some(format!("{shown} has no seal in its last line")));
    };
    let mut there = vec![Made {
        name: files::page_of(all.paper),
        text: page.into(),
    }];
    for name in files::figures_of(all.paper) {
        match std::fs::read_to_string(out.join(&name)) {
            Ok(text) => there.push(Made { name, text }),
            Err(e) => {
                let figure = out.join(&name);
                return Ok(Some(format!("{} cannot be read: {e}", figure.display())));
            }
        }
    }
    let now = Seal::of(all, seeds, &there)?;
    let name = &all.paper.name;
    let whys = [
        format!("papers/{name} has changed since it was made"),
        format!(
            "this version gives other values for the first {seeds} of its seeds, in variants that its seal is of"
        ),
        "it or a figure of it has been changed since it was made".into(),
    ];
    let differing = kept.hashes.iter().zip(&now.hashes).zip(whys);
    let mut differing = differing.filter(|((kept, now), _)| kept != now);
    Ok(differing.next().map(|(_, why)| format!("{shown}: {why}")))
}

fn digest(hasher: &blake3::Hasher) -> String {
    let hex = hasher.finalize().to_hex();
    hex.as_str()[..DIGITS].to_string()
}

/// The files of a paper: its experiments, claims, frame and scenarios.
fn folder(folder: &Path) -> Result<String, Failure> {
    let shown = folder.display();
    let wrong = |e: std::io::Error| Failure::Input(format!("cannot read the paper {shown}: {e}"));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        paths.push(entry.map_err(wrong)?.path());
    }
    paths.sort();
    let mut hasher = blake3::Hasher::new();
    for path in paths.iter().filter(|path| path.is_file()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = std::fs::read(path).map_err(wrong)?;
        hasher.update(format!("{name} {}\n", text.len()).as_bytes());
        hasher.update(&text);
    }
    Ok(digest(&hasher))
}

/// Whatever the tables show and the claims are judged by, of the first seeds and the seal's variants.
fn results(all: &Reproduced<'_>, seeds: u32) -> String {
    let mut hasher = blake3::Hasher::new();
    for run in all.experiments.iter().flat_map(|measured| &measured.runs) {
        for variant in run.variants.iter().filter(|variant| variant.sealed) {
            let outcome = &variant.outcome;
            let rows = run.run.rows.iter().map(|row| row.metric.as_str());
            let judged = outcome.findings.iter().map(|f| f.claim.metric.as_str());
            let metrics: BTreeSet<&str> = rows.chain(judged).collect();
            for record in outcome.runs.iter().filter(|r| r.seed <= u64::from(seeds)) {
                let values = metrics.iter().map(|metric| {
                    let value = record.metrics.get(*metric);
                    value.map_or("-".into(), |value| significant(*value, VALUE_DIGITS))
                });
                let values = values.collect::<Vec<_>>().join(" ");
                let (name, label) = (&run.run.name, &variant.label);
                let line = format!("{name} {label} {} {} {values}\n", record.arm, record.seed);
                hasher.update(line.as_bytes());
            }
        }
    }
    for traced in all.experiments.iter().flat_map(|measured| &measured.traced) {
        hasher.update(over_time::table(traced).as_bytes());
    }
    digest(&hasher)
}

fn files(made: &[Made]) -> String {
    let mut hasher = blake3::Hasher::new();
    for Made { name, text } in made {
        hasher.update(format!("{name} {}\n", text.len()).as_bytes());
        hasher.update(text.as_bytes());
    }
    digest(&hasher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_a_diagonal() {
        let of = |counts: &[usize]| {
            let mut variants: Vec<Vec<String>> = vec![Vec::new()];
            for (address, count) in counts.iter().enumerate() {
                let with = |v: &Vec<String>, n| [&v[..], &[format!("{address}={n}")]].concat();
                variants = variants
                    .iter()
                    .flat_map(|v| (0..*count).map(move |n| with(v, n)))
                    .collect();
            }
            let chosen = chosen(variants.iter().map(Vec::as_slice));
            let numbers = chosen.iter().enumerate().filter(|(_, is)| **is);
            numbers.map(|(i, _)| i).collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), [0], "a run in which nothing varies");
        assert_eq!(of(&[1]), [0]);
        assert_eq!(of(&[8]), [0, 3, 6]);
        assert_eq!([of(&[2]), of(&[3]), of(&[2, 2])], [[0]; 3]);
        // 00 12 21: each value of both.
        assert_eq!(of(&[3, 3]), [0, 5, 7]);
        assert_eq!(of(&[2, 3]), [0, 5]);
    }

    #[test]
    fn a_seal_is_read_as_it_was_written() {
        let seal = Seal {
            hashes: ["01", "23", "45"].map(str::to_string),
        };
        let page = format!("# T\n\nwords\n{}", seal.line());
        assert!(page.ends_with("<!-- seal: paper 01, results 23, page 45 -->\n"));
        assert_eq!(Seal::split(&page), Some(("# T\n\nwords\n", seal)));
        for none in [
            "",
            "# T\n",
            "# T\n<!-- seal: paper 01 -->\n",
            "a\n<!-- x -->\n",
        ] {
            assert_eq!(Seal::split(none), None, "{none}");
        }
    }
}
