// SPDX-License-Identifier: GPL-2.0-only
//! The throw-away VM: kernel, initramfs, topology, boots
