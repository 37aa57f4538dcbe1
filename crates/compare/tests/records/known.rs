// SPDX-License-Identifier: GPL-2.0-only
//! The list of known deviations is the truth: what is broken is listed, and what is listed is broken.
use crate::held::{RIGHT, folder, held};
use berth_compare::known::Known;
use berth_compare::record::Record;
use berth_compare::{Comparison, Quantity, set};
use std::path::{Path, PathBuf};

/// All scenarios with all recorded policies, simulated on as many threads as there are processors.
fn whole_set() -> Vec<Comparison> {
    let recorded = |file: &PathBuf| Record::path(file).is_file();
    let files: Vec<PathBuf> = set::files(&folder())
        .unwrap()
        .into_iter()
        .filter(recorded)
        .collect();
    let one = |file: &Path| {
        let record = Record::read(&Record::path(file)).unwrap().unwrap();
        let arms: Vec<&str> = record.arms.keys().map(String::as_str).collect();
        held(file, &arms, &RIGHT)
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let part = files.len().div_ceil(threads);
    std::thread::scope(|s| {
        let parts: Vec<_> = files
            .chunks(part)
            .map(|part| s.spawn(move || part.iter().map(|f| one(f)).collect::<Vec<_>>()))
            .collect();
        parts.into_iter().flat_map(|p| p.join().unwrap()).collect()
    })
}

#[test]
fn the_list_says_what_is_broken_and_nothing_else() {
    let all = whole_set();
    let known = Known::read(&folder().join("known.toml")).unwrap();
    let news = known.news(&all);
    assert!(news.is_empty(), "not in known.toml:\n{}", news.join("\n"));
    let mended = known.mended(&all);
    assert!(
        mended.is_empty(),
        "in known.toml, but within the bound:\n{}",
        mended.join("\n")
    );
    // The set is as large as it is said to be: 20 scenarios, three policies besides the kernel's own.
    assert!(all.len() >= 20);
    assert!(all.iter().all(|c| c.arms.len() >= 4));
    let judged = |q: Quantity| {
        let rows = all.iter().flat_map(|c| &c.rows);
        rows.filter(|r| r.quantity == q).count()
    };
    assert!(Quantity::ALL.into_iter().all(|q| judged(q) > 0));
}
