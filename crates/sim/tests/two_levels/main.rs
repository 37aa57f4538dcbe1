// SPDX-License-Identifier: GPL-2.0-only
//! Two levels: hosts with guests, held against what must be true of them.
mod basics;
mod play;
#[path = "../support/shipped.rs"]
mod shipped;
mod steal;
mod truths;
mod watch;
