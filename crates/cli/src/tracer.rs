// SPDX-License-Identifier: GPL-2.0-only
//! The BPF tracer, where there is one.
use berth_host::root::Root;
use berth_host::trace::Tracer;

/// A tracer of this machine; `None` where BPF is not allowed, or for a recorded tree: the columns that need it say so.
#[cfg(feature = "kernel")]
pub fn start(root: &Root) -> Option<Box<dyn Tracer>> {
    if !root.is_live() {
        return None;
    }
    let tracer = berth_tracer::BpfTracer::start().ok()?;
    Some(Box::new(tracer))
}

/// None: this program was built without libbpf.
#[cfg(not(feature = "kernel"))]
pub fn start(_: &Root) -> Option<Box<dyn Tracer>> {
    None
}
