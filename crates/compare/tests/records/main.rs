// SPDX-License-Identifier: GPL-2.0-only
//! The set's scenarios in the simulator, against the kept records of a real kernel.
mod guests;
mod held;
mod known;
mod wrong;
