// SPDX-License-Identifier: GPL-2.0-only
//! Loads a compiled policy into the running kernel, watches it, sets its parameters, reads its counters, and unloads
//! it.
//!
//! ```no_run
//! # fn main() -> Result<(), berth_scx::ScxError> {
//! let policy = std::fs::read("vmfair.bpf.o").unwrap();
//! let mut loaded = berth_scx::Loaded::load(&policy, &berth_scx::LoadOptions::default())?;
//! while let Some(state) = loaded.poll()?.running() {
//!     println!("{} is scheduling", state);
//!     std::thread::sleep(std::time::Duration::from_secs(1));
//! }
//! println!("{}", loaded.exit_record()?);
//! # Ok(())
//! # }   // dropped: the kernel's own scheduler takes over
//! ```
//!
//! # Why plain libbpf-rs
//! The scx project's `scx_utils` does the same job through macros over a generated skeleton: one Rust type per object,
//! made by the build. Berth loads objects it meets at run time (a user's own file, the same bytes the simulator ran),
//! so there is no skeleton, and far fewer packages build (`cargo tree -p berth-scx`). What `scx_utils` does beyond
//! libbpf is done here:
//! * the weak `__SCX_*` constants in `.rodata` are filled from the running kernel's BTF ([`LoadOptions`] may override
//!   one);
//! * members of `sched_ext_ops` that the kernel does not have are cleared, each with a warning in [`Loaded::warnings`];
//! * `hotplug_seq` is set, so that a CPU going away between load and attach is noticed;
//! * `SEC("syscall")` programs are associated with the scheduler where the kernel can do that (7.1 and newer);
//! * a policy that uses `include/berth/topology.bpf.h` is told this machine's topology, and its maps named `_by_cpu`,
//!   `_by_llc`, `_by_node` get the machine's size;
//! * programs that a scheduler's own loader runs are run, where the object says so (`.berth.calls`);
//! * the exit record (`UEI_DEFINE(uei)`) is read ([`Loaded::exit_record`]).
mod calls;
mod counters;
mod error;
mod exit;
mod identity;
mod jobs;
mod layout;
mod link;
mod load;
mod log;
mod machine;
mod prepare;
mod shared;
mod sysfs;
mod value;
mod verified;
mod watch;

pub use error::ScxError;
pub use exit::ExitRecord;
pub use jobs::Jobs;
pub use link::link;
pub use load::{LoadOptions, Loaded, Prepared, STARTED_AGAIN};
pub use shared::Shared;
pub use sysfs::{State, Status, events, status, supported};
pub use value::Value;
pub use watch::Watcher;
