// SPDX-License-Identifier: GPL-2.0-only
//! Tables and progress for the terminal
