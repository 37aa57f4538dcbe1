// SPDX-License-Identifier: GPL-2.0-only
//! The results schema, statistics over seeds, provenance
