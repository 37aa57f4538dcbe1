// SPDX-License-Identifier: GPL-2.0-only
//! A real kernel, recorded again: it must still answer as its stored recordings say. Boots a virtual machine,
//! so only with `BERTH_LAB=1`.
#![cfg(feature = "lab")]
use berth_conformance::log::compare;
use berth_conformance::report::MODEL_LINE;
use berth_conformance::{golden, recorder, vm};

#[test]
fn the_kernel_answers_as_it_did() {
    if std::env::var("BERTH_LAB").as_deref() != Ok("1") {
        eprintln!("left out: set BERTH_LAB=1 to boot virtual machines");
        return;
    }
    let wanted = [
        "01-",
        "03-",
        "05-order",
        "12-buffered",
        "22-",
        "32-nice",
        "42-weight-running",
        "45-move-running",
        "45-move-waiting",
        "46-refused",
    ]
    .map(String::from);
    let program = env!("CARGO_BIN_EXE_berth-conformance");
    let object = recorder::object().unwrap();
    let say = |text| eprintln!("{text}");
    let recorded = vm::record(
        MODEL_LINE,
        &object,
        &wanted,
        program.as_ref(),
        &say,
        &mut |_| Ok(()),
    )
    .unwrap();
    assert_eq!(recorded.len(), wanted.len());
    for row in vm::select(&wanted) {
        let (again, _) = recorded[row.name].as_ref().unwrap();
        let stored = golden::load(MODEL_LINE, &row).unwrap().unwrap();
        compare(&row, &stored.log, &again.log).unwrap_or_else(|e| panic!("{}: {e}", row.name));
    }
}
