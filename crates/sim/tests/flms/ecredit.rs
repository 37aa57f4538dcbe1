// SPDX-License-Identifier: GPL-2.0-only
//! `ecredit`, the reconstruction of ECredit: its invariants.
use crate::support::Cast;
use crate::world::{BUSY, MS, assert_near, hogs, measured, napper, naps, on, peek, runtime, vm};
use berth_scenario::model::Class;
use berth_sim::machine::Shape;

/// Three wait for a boosted one: most requests first.
#[test]
fn who_has_more_requests_comes_first() {
    let mut cast = Cast::default();
    cast.vcpu(0, 0, 0, &BUSY);
    for i in 1..4 {
        cast.vcpu(i, 0, 25_200_000, &naps(100_000, 1_000 * MS));
    }
    // Boosted, as they are, and first.
    cast.vcpu(4, 0, 25 * MS, &naps(MS, 1_000 * MS));
    let vms: Vec<_> = (0..5).map(|i| vm(i, Class::Batch, 100, 1)).collect();
    let mut m = on("ecredit", Shape::flat(1), &vms, cast, &[]);
    m.run_until(24 * MS).unwrap();
    peek(&mut m, |p| {
        for (slot, requests) in [(2, 10), (3, 30), (4, 20)] {
            p.set("requests_by_vm", slot, "now", requests);
        }
    });
    let mut done = Vec::new();
    for at in [26_110_000, 26_210_000, 26_310_000] {
        m.run_until(at).unwrap();
        done.push([1, 2, 3].map(|i| runtime(&m, i) / 100_000));
    }
    assert_eq!(done, [[0, 1, 0], [0, 1, 1], [1, 1, 1]]);
}

/// Nobody asks for anything: Credit.
#[test]
fn without_requests_it_is_credit() {
    let text = hogs("cores = 2", &[300, 200, 100, 100, 100]);
    let (ours, credit) = (
        measured("ecredit", &[], "5s", &text),
        measured("credit", &[], "5s", &text),
    );
    for key in [
        "v0.cpu",
        "v1.cpu",
        "v2.cpu",
        "v3.cpu",
        "v4.cpu",
        "host.switches",
    ] {
        assert_eq!(ours[key], credit[key], "{key}");
    }
}

/// Requests change who comes first, not how much anybody has.
#[test]
fn shares_are_those_of_credit() {
    let text = format!(
        "{}[vm.both]\nvcpus = 2\nclass = \"mixed\"\nreserved_vcpus = 1\ntasks = [\"one\", \"both\"]\n[task.one]\n\
         model = \"busy\"\nthreads = 1\n[task.both]\nmodel = \"periodic\"\nthreads = 1\nperiod = \"2ms\"\n\
         compute = \"200us\"\n{}",
        hogs("cores = 2", &[100, 100]),
        napper("a", "latency", "7ms", "1ms"),
    );
    let ours = measured("ecredit", &[], "20s", &text);
    let credit = measured("credit", &[], "20s", &text);
    for vm in ["v0", "v1", "both", "a"] {
        let key = format!("{vm}.cpu");
        assert_near(ours[&key], credit[&key], 0.02, vm);
    }
}
