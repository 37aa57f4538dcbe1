// SPDX-License-Identifier: GPL-2.0-only
//! The simulator against the kept records of real kernels: no bound is broken that is not in the list of known ones.
use crate::held::{RIGHT, files, folder, held};
use berth_compare::Comparison;
use berth_compare::known::Known;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn nothing_is_broken_but_what_is_known() {
    let files = files();
    assert!(files.len() >= 20, "{} scenarios", files.len());
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::<Comparison>::new()));
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let c = held(file, &["linux", "vmfair", "vtime", "gfifo"], &RIGHT);
                    all.lock().unwrap().push(c);
                }
            });
        }
    });
    let all = all.into_inner().unwrap();
    let judged = all.iter().flat_map(|c| &c.rows).count();
    assert!(judged > 300, "{judged} rows");
    let known = Known::read(&folder().join("known.toml")).unwrap();
    let news = known.news(&all);
    assert!(news.is_empty(), "{}", news.join("\n"));
}
