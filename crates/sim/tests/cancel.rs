// SPDX-License-Identifier: GPL-2.0-only
//! One run, however long, ends soon after it was asked to.
use berth_policy::policy::LoadOptions;
use berth_scenario::{Input, read};
use berth_sim::SimError;
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn a_long_run_ends_when_asked() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let input = Input {
        name: "long".into(),
        shown: "long.toml".into(),
        // About ten days of CPU time.
        text: "[run]\nmeasure = \"3000000s\"\n[vm.web]\nvcpus = 3\ntasks = [\"work\"]\n\
               [task.work]\nloop = [\"compute 5ms\", \"sleep 1ms\"]\n"
            .into(),
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap().scenario;
    let gfifo = berth_builtin::find("gfifo").unwrap();
    let policy = gfifo.load(&LoadOptions::default()).unwrap();
    let options = Options {
        cancel: Some(&STOP),
        ..Options::default()
    };
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            STOP.store(true, Ordering::Relaxed);
        });
        let result = run_one(&scenario, "gfifo", &policy, &BTreeMap::new(), 1, &options);
        assert!(
            matches!(result, Err(SimError::Cancelled { .. })),
            "{result:?}"
        );
    });
}
