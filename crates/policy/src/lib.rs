// SPDX-License-Identifier: GPL-2.0-only
//! From a policy's `.bpf.c` to something that runs anywhere, without libbpf.
//!
//! ```text
//! compile  .bpf.c → .bpf.o (clang)                       headers packed by build.rs
//! object   .bpf.o → Object: sections, BTF, maps, struct_ops, CO-RE applied against the kernel view
//! ir       Object → Program: resolved instructions per function (what both executors run)
//! emit     Program → C, one statement per instruction     native → cc → shared library or static archive
//! interp   Program executed instruction by instruction, every access checked: oracle and checked mode
//! instance one policy's data on one machine: sections, maps, storages, timers' owner
//! loader   what a scheduler's own loader sets, done to the object's bytes
//! table    every helper and kfunc: name, prototype, contexts, where implemented (also the docs page)
//! kview    the kernel's types and constants as a policy sees them, shared with the simulator
//! abi      what translated code and runtime share: Inst, Map, function types, operations
//! ```
pub mod abi;
pub mod arena;
pub mod blocks;
pub mod btf;
pub mod build_script;
pub mod cache;
pub mod callback;
pub mod cc;
mod code;
pub mod compile;
mod compiled;
mod core_reloc;
mod decode;
mod elf;
pub mod emit;
pub mod error;
pub mod guard;
pub mod headers;
mod helper_names;
pub mod host_map;
pub mod identity;
pub mod instance;
pub mod interp;
pub mod ir;
pub mod kview;
mod kview_consts;
pub mod loader;
mod map_defs;
pub mod maps;
pub mod native;
pub mod needs;
pub mod object;
mod ops_vars;
pub mod params;
pub mod policy;
pub mod presets;
pub mod profile;
pub mod runtime;
pub mod scx_headers;
mod sections;
mod slim;
mod storage;
pub mod supported;
pub mod table;
mod table_rows;
