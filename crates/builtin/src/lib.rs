// SPDX-License-Identifier: GPL-2.0-only
//! The shipped policies, compiled and translated at build time
