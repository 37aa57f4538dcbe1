// SPDX-License-Identifier: GPL-2.0-only
//! Loads policies into a running kernel
