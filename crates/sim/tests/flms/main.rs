// SPDX-License-Identifier: GPL-2.0-only
//! `flms` against its specification, through the real object.
mod balance;
mod decisions;
mod large;
mod published;
#[path = "../support/mod.rs"]
mod support;
mod wake;
mod world;
