// SPDX-License-Identifier: GPL-2.0-only
//! Every shipped policy through both executors, with the native code that users run: it is trusted.
use berth_policy::emit::Guarding;
use berth_policy::policy::{LoadOptions, Policy};
use executors::do_the_same;

#[path = "../../policy/tests/loading/executors.rs"]
mod executors;
#[allow(dead_code, reason = "the tests of berth-policy ask for more")]
#[path = "../../policy/tests/loading/kernel.rs"]
mod kernel;

/// Guarded code of a shipped policy takes seconds to compile, and is the same translation with more around it.
const GUARDED: [&str; 3] = ["credit", "lottery", "vmfair"];

#[test]
fn both_executors_do_the_same() {
    for shipped in berth_builtin::all() {
        let policy = shipped.load(&LoadOptions::default()).unwrap();
        assert_eq!(policy.guarding(), Guarding::Trusted, "{}", shipped.name);
        do_the_same(shipped.name, &policy);
    }
}

#[test]
fn both_executors_do_the_same_with_guarded_code() {
    for name in GUARDED {
        let object = berth_builtin::find(name).unwrap().object();
        let policy = Policy::from_object(object, &LoadOptions::default()).unwrap();
        assert_eq!(policy.guarding(), Guarding::Guarded, "{name}");
        do_the_same(name, &policy);
    }
}
