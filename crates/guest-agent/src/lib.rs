// SPDX-License-Identifier: GPL-2.0-only
//! Inside a mixed VM: light processes of its users go to the vCPUs that are reserved for I/O, and back when they
//! compute, by their threads' CPU affinity.
//!
//! ```text
//! sides   which CPUs are reserved, which compute
//! look    what processes there are, and what they use: read from /proc
//! agent   what is decided of them (berth-mixed) is done, remembered (berth-actuator), and undone
//! ```
//!
//! Names and numbers of processes are chosen by whoever owns them: a name is shown with escapes, a number means a
//! process only with its start. What somebody else has pinned is never touched.
pub mod agent;
pub mod look;
pub mod sides;

pub use agent::{Ended, Error, GuestAgent, Line, Moved, Round};
pub use look::{Eyes, Look, Proc, Reading};
pub use sides::{Reserved, Sides, Wrong};
