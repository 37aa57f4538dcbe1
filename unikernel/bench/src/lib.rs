// SPDX-License-Identifier: GPL-2.0-only
//! The unikernel from outside: booted in QEMU, asked over its network, measured, and held against arithmetic.

pub mod client;
pub mod experiments;
pub mod figures;
pub mod guest;
pub mod image;
pub mod peer;
