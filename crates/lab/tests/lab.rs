// SPDX-License-Identifier: GPL-2.0-only
//! Real kernels in throw-away VMs. Runs when BERTH_LAB=1 (as `make test` sets it), since it may download a kernel and
//! takes a few minutes; else it says so and passes. BERTH_LAB_KERNELS chooses the kernel lines, e.g. `6.18,7.0`;
//! BERTH_LAB_CASES the cases, by a part of their names; BERTH_LAB_POLICY one of the shipped policies; BERTH_LAB_LONG=1
//! adds those that take long. Of single cases: BERTH_LAB_ROUNDS and BERTH_LAB_BOOTS, how often; BERTH_LAB_SEEDS,
//! BERTH_LAB_WAYS and BERTH_LAB_KEPT (`path.rs`): how many boots, which ways, and the folder where they are kept.
//!
//! This program is also the first process inside the VMs, hence no test harness.
mod cases;
mod shipped;

use berth_lab::guest::{self, Handler};
use std::process::ExitCode;

const HANDLERS: [(&str, Handler); 21] = [
    ("agent", cases::agent_inside),
    ("attacked", cases::attacked_inside),
    ("any kernel", cases::any_kernel_inside),
    ("asleep", cases::asleep_inside),
    ("batch", cases::batch_inside),
    ("braked", cases::braked_inside),
    ("cycles", cases::cycles_inside),
    ("limits", cases::limits_inside),
    ("modes", cases::modes_inside),
    ("optimised", cases::optimised_inside),
    ("path", cases::path_inside),
    ("verbs", cases::verbs_inside),
    ("programs", cases::programs_inside),
    ("rivals", cases::rivals_inside),
    ("survival", cases::survival_inside),
    ("steer", cases::steer_inside),
    ("victim", cases::victim_inside),
    ("topology", cases::topology_inside),
    ("refusals", cases::refusals_inside),
    ("traced", cases::traced_inside),
    ("shipped", shipped::inside),
];

fn main() -> ExitCode {
    if guest::is_guest() {
        guest::main_with(&HANDLERS);
    }
    let called = cases::called_as_program()
        .or_else(cases::called_as_vm)
        .or_else(cases::called_as_guardian);
    if let Some(code) = called {
        return code;
    }
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    if std::env::var("BERTH_LAB").as_deref() != Ok("1") {
        println!(
            "lab: skipped, set BERTH_LAB=1 to boot real kernels (downloads 140 MB or more once)"
        );
        return ExitCode::SUCCESS;
    }
    cases::run_all()
}
