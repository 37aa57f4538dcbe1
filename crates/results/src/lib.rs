// SPDX-License-Identifier: GPL-2.0-only
//! The results schema (one for simulator, lab and host), statistics over seeds, provenance.
pub mod schema;
