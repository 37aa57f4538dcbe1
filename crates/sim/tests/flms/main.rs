// SPDX-License-Identifier: GPL-2.0-only
//! `flms` and its rivals against their specifications, through the real objects.
mod balance;
mod best_node;
mod brm;
mod credit2;
mod decisions;
mod ecredit;
mod iobound;
mod large;
mod nodes;
mod published;
#[path = "../support/mod.rs"]
mod support;
mod vslicer;
mod vturbo;
mod wake;
mod world;
mod zeng;
