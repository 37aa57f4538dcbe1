// SPDX-License-Identifier: GPL-2.0-only
//! A scenario's VMs and tasks made real: one thread per vCPU
