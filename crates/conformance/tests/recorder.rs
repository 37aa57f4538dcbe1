// SPDX-License-Identifier: GPL-2.0-only
//! The recorder is a policy like any other: it compiles, and the simulator has everything it calls.
use berth_conformance::recorder;
use berth_conformance::rows::rows;
use berth_policy::policy::{LoadOptions, Policy};

#[test]
fn the_recorder_loads_and_has_every_variant_that_a_row_asks_for() {
    let policy =
        Policy::from_object(&recorder::object().unwrap(), &LoadOptions::default()).unwrap();
    for row in rows() {
        assert!(
            policy.ops_var(Some(row.ops)).is_ok(),
            "{} asks for {}",
            row.name,
            row.ops
        );
    }
}
