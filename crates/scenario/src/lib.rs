// SPDX-License-Identifier: GPL-2.0-only
//! The scenario vocabulary (topology, VM, class, task, arm) and its file format
